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
	NAME("malloc", ALLOC_ROLE_NEW, 1, 0),
	NAME("calloc", ALLOC_ROLE_NEW, 1, 2),
	NAME("realloc", ALLOC_ROLE_RENEW, 2, 0),
	NAME("reallocarray", ALLOC_ROLE_RENEW, 3, 2),
	NAME("memalign", ALLOC_ROLE_NEW, 2, 0),
	NAME("aligned_alloc", ALLOC_ROLE_NEW, 2, 0),
	NAME("posix_memalign", ALLOC_ROLE_AT, 3, 0),
	NAME("valloc", ALLOC_ROLE_NEW, 1, 0),
	NAME("pvalloc", ALLOC_ROLE_NEW, 1, 0),
	NAME("free", ALLOC_ROLE_FREE, 0, 0),
	NAME("mallocx", ALLOC_ROLE_NEW, 1, 0),
	NAME("rallocx", ALLOC_ROLE_RENEW, 2, 0),
	NAME("dallocx", ALLOC_ROLE_FREE, 0, 0),
	NAME("sdallocx", ALLOC_ROLE_FREE, 0, 0),
	NAME("zalloc", ALLOC_ROLE_NEW, 1, 0),
	NAME("mallocn", ALLOC_ROLE_NEW, 1, 2),
	NAME("malloc_small", ALLOC_ROLE_NEW, 1, 0),
	NAME("zalloc_small", ALLOC_ROLE_NEW, 1, 0),
	NAME("malloc_aligned", ALLOC_ROLE_NEW, 1, 0),
	NAME("zalloc_aligned", ALLOC_ROLE_NEW, 1, 0),
	NAME("reallocn", ALLOC_ROLE_RENEW, 3, 2),
	NAME("reallocf", ALLOC_ROLE_RENEW, 2, 0),
	NAME("new", ALLOC_ROLE_NEW, 1, 0),
	NAME("new_nothrow", ALLOC_ROLE_NEW, 1, 0),
	NAME("new_aligned", ALLOC_ROLE_NEW, 1, 0),
	NAME("realloc_aligned", ALLOC_ROLE_RENEW, 2, 0),
};
/* Those from zalloc on are mimalloc's own, and mean other things elsewhere. */
#define EVERYWHERE 14

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

struct prefix {
	struct sv text, malloc;
	enum alloc_library library;
	size_t names; /* of plain_names */
};

static const struct prefix prefixes[] = {
	{{"je_", 3}, {"je_malloc", 9}, ALLOC_JEMALLOC, EVERYWHERE},
	{{"_rjem_", 6}, {"_rjem_malloc", 12}, ALLOC_JEMALLOC, EVERYWHERE},
	{{"tc_", 3}, {"tc_malloc", 9}, ALLOC_TCMALLOC, EVERYWHERE},
	{{"mi_", 3}, {"mi_malloc", 9}, ALLOC_MIMALLOC, ARRAY_SIZE(plain_names)},
	{{"TCMallocInternal", 16}, {"TCMallocInternalMalloc", 22}, ALLOC_TCMALLOC, 0},
};

/* Functions of C libraries that nothing which stands in for their malloc() has. */
static const struct mark {
	struct sv name;
	enum alloc_library library;
} marks[] = {
	{{"mallocx", 7}, ALLOC_JEMALLOC},	{{"__dls2b", 7}, ALLOC_MUSL},
	{{"__init_libc", 11}, ALLOC_MUSL},	{{"gnu_get_libc_version", 20}, ALLOC_GLIBC},
	{{"__libc_memalign", 15}, ALLOC_GLIBC}, /* not only, but others are known by their prefix */
};

struct found {
	const struct name *name;
	uint64_t off; /* of the function */
	enum alloc_library library;
};

struct finder {
	const struct elf *e;
	struct alloc_find *out;
	struct found found[ALLOCFIND_MAX];
	unsigned count;
	bool gives, takes;	       /* C functions that do */
	uint32_t marked;	       /* bit n: a mark of enum alloc_library n */
	uint64_t malloc_off;	       /* 0: none */
	enum alloc_library plain;      /* whose the functions without a prefix are */
	uint64_t own[ALLOC_LIBRARIES]; /* where the malloc() of a prefix is */
};

static const struct name *search_name(struct sv name, const struct name *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (sv_eq(name, list[i].name))
			return &list[i];
	return NULL;
}

static const struct name *name_of(struct sv name, enum alloc_library *library)
{
	*library = ALLOC_OTHER;
	if (sv_starts(name, SV("_Z")))
		return search_name(name, cxx_names, ARRAY_SIZE(cxx_names));
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		const struct prefix *p = &prefixes[i];

		if (!sv_starts(name, p->text))
			continue;
		*library = p->library;
		return search_name((struct sv){name.ptr + p->text.len, name.len - p->text.len}, plain_names, p->names);
	}
	return search_name(name, plain_names, EVERYWHERE);
}

/* What tells whose malloc() it is. */
static void note_library(struct finder *f, const struct elf_symbol *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (sv_eq(s->name, marks[i].name))
			f->marked |= 1u << marks[i].library;
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (sv_eq(s->name, prefixes[i].malloc))
			f->own[prefixes[i].library] = s->off;
	if (sv_eq(s->name, SV("malloc")))
		f->malloc_off = s->off;
}

static enum alloc_library plain_library(const struct finder *f)
{
	for (int i = ALLOC_OTHER + 1; i < ALLOC_LIBRARIES; i++)
		if (f->malloc_off && f->own[i] == f->malloc_off)
			return (enum alloc_library)i;
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (f->marked & 1u << marks[i].library)
			return marks[i].library;
	return ALLOC_OTHER;
}

/* Names of one function: the first counts. */
static bool note_symbol(void *ctx, const struct elf_symbol *s)
{
	struct finder *f = ctx;
	enum alloc_library library;
	const struct name *name = name_of(s->name, &library);

	note_library(f, s);
	if (!name)
		return true;
	if (!sv_starts(name->name, SV("_Z"))) {
		f->gives |= name->role != ALLOC_ROLE_FREE;
		f->takes |= name->role == ALLOC_ROLE_FREE;
	}
	for (unsigned i = 0; i < f->count; i++)
		if (f->found[i].off == s->off)
			return true;
	if (f->count == ALLOCFIND_MAX)
		f->out->refused++;
	else
		f->found[f->count++] = (struct found){name, s->off, library};
	return true;
}

static enum alloc_library library_of(const struct finder *f, const struct found *found)
{
	if (found->library)
		return found->library;
	return sv_starts(found->name->name, SV("_Z")) && !f->gives ? ALLOC_NEW : f->plain;
}

/* Registers that hold what the cookie says, at its site. */
static int resolve(const struct elf *e, const struct found *found, struct site *site, uint8_t place[3])
{
	const struct name *n = found->name;
	const uint8_t arguments[3] = {n->size, n->times, n->role == ALLOC_ROLE_NEW ? 0 : 1};
	uint8_t registers[3];
	unsigned count = 0;
	int err;

	for (unsigned i = 0; i < 3; i++)
		if (arguments[i])
			registers[count++] = arguments[i];
	err = site_resolve_arguments(e, found->off, registers, count, site);
	count = 0;
	for (unsigned i = 0; i < 3; i++)
		place[i] = !err && arguments[i] ? 1 + registers[count++] : 0;
	return err;
}

static void add(struct finder *f, const struct found *found)
{
	const struct name *name = found->name;
	enum alloc_library library = library_of(f, found);
	uint8_t place[3];
	struct site site;

	/* Without a free() beside it, it hands on to that of another file. */
	if (name->role == ALLOC_ROLE_FREE && sv_starts(name->name, SV("_Z")) && !f->takes)
		return;
	/* Entry and return: the return address is where the site says. */
	if (resolve(f->e, found, &site, place)) {
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
		.cookie = ALLOC_COOKIE(name->role, place[0], place[1], place[2], library, site.class == SITE_STEPPED),
	};
	f->out->libraries |= 1u << library;
	f->out->slow += site.class == SITE_STEPPED;
	f->out->gives |= name->role != ALLOC_ROLE_FREE;
	f->out->takes |= name->role == ALLOC_ROLE_FREE;
}

static int search(void *ctx)
{
	struct finder *f = ctx;

	elf_each_function(f->e, note_symbol, f);
	f->plain = plain_library(f);
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
