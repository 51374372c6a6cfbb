/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "allocfind.h"

#include <errno.h>
#include <string.h>

#include <linux/types.h>

#include "base/err.h"
#include "base/sigbus.h"
#include "bpf/event.h"
#include "site.h"

/* size, times: arguments whose product is what is asked for. */
struct name {
	struct sv name;
	uint8_t role, size, times;
};

#define NAME(text, ...)                                                                                                \
	{                                                                                                              \
		{text, sizeof(text) - 1}, __VA_ARGS__                                                                  \
	}

static const struct name plain_names[] = {
	NAME("malloc", ALLOC_ROLE_NEW, 1, 0),	      NAME("calloc", ALLOC_ROLE_NEW, 1, 2),
	NAME("realloc", ALLOC_ROLE_RENEW, 2, 0),      NAME("memalign", ALLOC_ROLE_NEW, 2, 0),
	NAME("aligned_alloc", ALLOC_ROLE_NEW, 2, 0),  NAME("posix_memalign", ALLOC_ROLE_AT, 3, 0),
	NAME("valloc", ALLOC_ROLE_NEW, 1, 0),	      NAME("free", ALLOC_ROLE_FREE, 0, 0),
	NAME("mallocx", ALLOC_ROLE_NEW, 1, 0),	      NAME("rallocx", ALLOC_ROLE_RENEW, 2, 0),
	NAME("dallocx", ALLOC_ROLE_FREE, 0, 0),	      NAME("sdallocx", ALLOC_ROLE_FREE, 0, 0),
	NAME("zalloc", ALLOC_ROLE_NEW, 1, 0),	      NAME("malloc_aligned", ALLOC_ROLE_NEW, 1, 0),
	NAME("zalloc_aligned", ALLOC_ROLE_NEW, 1, 0), NAME("realloc_aligned", ALLOC_ROLE_RENEW, 2, 0),
};
/* Those from zalloc on are mimalloc's own, and mean other things elsewhere. */
#define EVERYWHERE 12

/* Itanium C++ ABI: operator new and new[], for size_t as unsigned long and, of memory of more than a page, aligned. */
static const struct name cxx_names[] = {
	NAME("_Znwm", ALLOC_ROLE_NEW, 1, 0),
	NAME("_Znam", ALLOC_ROLE_NEW, 1, 0),
	NAME("_ZnwmRKSt9nothrow_t", ALLOC_ROLE_NEW, 1, 0),
	NAME("_ZnamRKSt9nothrow_t", ALLOC_ROLE_NEW, 1, 0),
	NAME("_ZnwmSt11align_val_t", ALLOC_ROLE_NEW, 1, 0),
	NAME("_ZnamSt11align_val_t", ALLOC_ROLE_NEW, 1, 0),
	NAME("_ZnwmSt11align_val_tRKSt9nothrow_t", ALLOC_ROLE_NEW, 1, 0),
	NAME("_ZnamSt11align_val_tRKSt9nothrow_t", ALLOC_ROLE_NEW, 1, 0),
	NAME("_ZdlPv", ALLOC_ROLE_FREE, 0, 0),
	NAME("_ZdaPv", ALLOC_ROLE_FREE, 0, 0),
	NAME("_ZdlPvm", ALLOC_ROLE_FREE, 0, 0),
	NAME("_ZdaPvm", ALLOC_ROLE_FREE, 0, 0),
	NAME("_ZdlPvSt11align_val_t", ALLOC_ROLE_FREE, 0, 0),
	NAME("_ZdaPvSt11align_val_t", ALLOC_ROLE_FREE, 0, 0),
	NAME("_ZdlPvmSt11align_val_t", ALLOC_ROLE_FREE, 0, 0),
	NAME("_ZdaPvmSt11align_val_t", ALLOC_ROLE_FREE, 0, 0),
};

struct found {
	const struct name *name;
	uint64_t off; /* of the function */
};

struct finder {
	const struct elf *e;
	struct alloc_find *out;
	struct found found[ALLOCFIND_MAX];
	unsigned count;
	bool gives, takes; /* C functions that do */
};

static const struct name *search_name(struct sv name, const struct name *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (sv_eq(name, list[i].name))
			return &list[i];
	return NULL;
}

static const struct name *name_of(struct sv name)
{
	static const struct sv prefixes[] = {{"je_", 3}, {"_rjem_", 6}, {"tc_", 3}};

	if (sv_starts(name, SV("_Z")))
		return search_name(name, cxx_names, ARRAY_SIZE(cxx_names));
	if (sv_starts(name, SV("mi_")))
		return search_name((struct sv){name.ptr + 3, name.len - 3}, plain_names, ARRAY_SIZE(plain_names));
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (sv_starts(name, prefixes[i]))
			return search_name((struct sv){name.ptr + prefixes[i].len, name.len - prefixes[i].len},
					   plain_names, EVERYWHERE);
	return search_name(name, plain_names, EVERYWHERE);
}

/* Names of one function: the first counts. */
static bool note_symbol(void *ctx, const struct elf_symbol *s)
{
	struct finder *f = ctx;
	const struct name *name = name_of(s->name);

	if (!name)
		return true;
	for (unsigned i = 0; i < f->count; i++)
		if (f->found[i].off == s->off)
			return true;
	if (f->count == ALLOCFIND_MAX) {
		f->out->refused++;
		return true;
	}
	f->found[f->count++] = (struct found){name, s->off};
	if (!sv_starts(name->name, SV("_Z"))) {
		f->gives |= name->role != ALLOC_ROLE_FREE;
		f->takes |= name->role == ALLOC_ROLE_FREE;
	}
	return true;
}

static void add(struct finder *f, const struct found *found)
{
	const struct name *name = found->name;
	struct site site;

	/* Without a free() beside it, it hands on to that of another file. */
	if (name->role == ALLOC_ROLE_FREE && sv_starts(name->name, SV("_Z")) && !f->takes)
		return;
	/* Entry and return: the return address is where the site says. */
	if (site_resolve(f->e, found->off, true, &site)) {
		f->out->refused++;
		return;
	}
	/* What it costs is not worth one more function of the stack: it hands on to a malloc(), where it is seen. */
	if (site.class == SITE_STEPPED && sv_starts(name->name, SV("_Z")) && !f->gives)
		return;
	for (unsigned i = 0; i < f->out->count; i++)
		if (f->out->funcs[i].off == site.off)
			return;
	f->out->funcs[f->out->count++] = (struct alloc_func){
		.off = site.off,
		.cookie = ALLOC_COOKIE(name->role, name->size, name->times, site.class == SITE_STEPPED),
	};
	f->out->slow += site.class == SITE_STEPPED;
	f->out->gives |= name->role != ALLOC_ROLE_FREE;
	f->out->takes |= name->role == ALLOC_ROLE_FREE;
}

static int search(void *ctx)
{
	struct finder *f = ctx;

	elf_each_function(f->e, note_symbol, f);
	for (unsigned i = 0; i < f->count; i++)
		add(f, &f->found[i]);
	return f->out->gives ? 0 : -ENOENT;
}

int allocfind(const struct elf *e, struct alloc_find *out)
{
	struct finder f = {.e = e, .out = out};
	int err;

	memset(out, 0, sizeof(*out));
	err = sigbus_guard(search, &f);
	if (err)
		out->count = 0;
	return err;
}
