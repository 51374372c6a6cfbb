/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elfsyms.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach/debugdata.h"
#include "base/err.h"
#include "base/sigbus.h"

struct load {
	struct symtab *t;
	const struct elf *e;
	const struct elf *by; /* whose symbols; NULL: those of e, and of its mini debug info */
	int err;
};

static bool add(void *ctx, const struct elf_symbol *s)
{
	struct load *l = ctx;
	int err = symtab_add(l->t, s->vaddr, s->size, s->name);

	if (err == -ENOMEM)
		l->err = err;
	return !err;
}

static int read_symbols(void *ctx)
{
	struct load *l = ctx;
	struct debugdata d;
	int err = elf_each_function_by(l->e, l->by ? l->by : l->e, add, l);

	if (!err && !l->by && !l->e->symtab.count && !debugdata_open(&d, l->e)) {
		err = elf_each_function_by(l->e, &d.elf, add, l);
		debugdata_close(&d);
	}
	return l->err ? l->err : err;
}

/* false: there is none. */
static bool load_debug_file(struct load *l, const char *root)
{
	char path[512];
	struct elf debug;

	snprintf(path, sizeof(path), "%s/usr/lib/debug/.build-id/%.2s/%s.debug", root, l->e->build_id,
		 l->e->build_id + 2);
	if (elf_map(&debug, path))
		return false;
	if (!strcmp(debug.build_id, l->e->build_id)) {
		l->by = &debug;
		sigbus_guard(read_symbols, l);
	}
	elf_unmap(&debug);
	return l->by != NULL;
}

/* _init and _fini have no size, and behind them lie other sections: stubs that call functions of other files. */
static void end_sections(struct symtab *t, const struct elf *e)
{
	static const struct sv names[] = {SV(".init"), SV(".text"), SV(".fini")};
	struct elf_section s;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (elf_section(e, names[i], &s))
			symtab_end(t, s.vaddr + s.size);
}

int elfsyms_load(struct symtab *t, const struct elf *e, const char *root)
{
	struct load l = {.t = t, .e = e};
	int err = sigbus_guard(read_symbols, &l);

	if (!err && !e->symtab.count && strlen(e->build_id) > 2 && !load_debug_file(&l, "") && root)
		load_debug_file(&l, root);
	symtab_sort(t);
	end_sections(t, e);
	return l.err ? l.err : err;
}
