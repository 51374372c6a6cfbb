/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sqlitefind.h"

#include <stdio.h>

#include <linux/types.h>

#include "base/err.h"
#include "base/sigbus.h"
#include "bpf/event.h"

/* stmt_at: which argument says where the statement will be; the next one, where its text ends. */
static const struct {
	const char *name;
	uint32_t role, stmt_at;
} wanted[] = {
	{"sqlite3_prepare_v2", SQLITE_ROLE_PREPARE, 4}, {"sqlite3_prepare_v3", SQLITE_ROLE_PREPARE, 5},
	{"sqlite3_prepare", SQLITE_ROLE_PREPARE, 4},	{"sqlite3_step", SQLITE_ROLE_STEP, 0},
	{"sqlite3_reset", SQLITE_ROLE_RESET, 0},	{"sqlite3_finalize", SQLITE_ROLE_RESET, 0},
};

struct finder {
	const struct elf *e;
	struct tls_find *out;
	bool defined[ARRAY_SIZE(wanted)];
	uint64_t off[ARRAY_SIZE(wanted)];
};

static bool note_symbol(void *ctx, const struct elf_symbol *s)
{
	struct finder *find = ctx;

	if (!sv_starts(s->name, SV("sqlite3_")))
		return true;
	for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++) {
		if (!sv_eq(s->name, sv_of(wanted[i].name)) || find->defined[i])
			continue;
		find->defined[i] = true;
		find->off[i] = s->off;
	}
	return true;
}

static void add(struct finder *find, unsigned i)
{
	struct tls_func *f = &find->out->funcs[find->out->count];
	struct site site;

	if (!find->defined[i])
		return;
	if (site_resolve(find->e, find->off[i], wanted[i].role != SQLITE_ROLE_RESET, &site)) {
		snprintf(find->out->reason, sizeof(find->out->reason), "no instruction can be decoded at %s",
			 wanted[i].name);
		return;
	}
	*f = (struct tls_func){
		.role = wanted[i].role, .len_arg = wanted[i].stmt_at, .abi = TLS_ABI_SQLITE, .site = site};
	snprintf(f->name, sizeof(f->name), "%s", wanted[i].name);
	find->out->count++;
}

static int search(void *ctx)
{
	struct finder *find = ctx;
	bool steps = false;

	elf_each_function(find->e, note_symbol, find);
	for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++)
		steps |= wanted[i].role == SQLITE_ROLE_STEP && find->defined[i];
	if (!steps)
		return -ENOENT;
	for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++)
		add(find, i);
	for (unsigned i = 0; i < find->out->count; i++)
		if (find->out->funcs[i].role == SQLITE_ROLE_STEP)
			return 0;
	find->out->count = 0;
	return -EINVAL;
}

int sqlitefind(const struct elf *e, struct tls_find *out)
{
	struct finder find = {.e = e, .out = out};
	int err;

	*out = (struct tls_find){.stack = "sqlite", .method = "symbols", .confidence = TLS_NAMED};
	err = sigbus_guard(search, &find);
	if (err)
		out->count = 0;
	return err;
}
