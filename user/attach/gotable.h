/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_GOTABLE_H
#define ATTACH_GOTABLE_H

/*
 * Go's function table (pclntab): names and extents of all functions of a Go program, which the runtime itself needs, so
 * that -s -w does not remove it. Formats of Go 1.18 to 1.26 (src/internal/abi/symtab.go, src/debug/gosym/pclntab.go);
 * 64-bit, little-endian. Found by its section, or, where it has none, by its first bytes.
 */

#include "elf.h"

struct go_table {
	const struct elf *e;
	uint64_t off, size;	   /* in the file; nothing is read outside */
	uint64_t vaddr;		   /* of the table, UINT64_MAX: not in a segment */
	uint64_t text;		   /* textStart as it is in the file, 0 from Go 1.26 on */
	uint64_t names, functions; /* offsets in the table */
	uint64_t count;
};

struct go_function {
	uint64_t entry, size; /* entry: from the text's start; size: up to the next function, padding included */
};

/* 0; -ENOENT: no table; -EPROTONOSUPPORT: of a release before 1.18 (off and size are set); -EBADMSG: broken. */
int go_table_open(struct go_table *t, const struct elf *e);
/* Whether a name stands anywhere in the table, of any release. */
bool go_table_mentions(const struct go_table *t, const char *name);
/* The function of each name, all in one walk. found[i] counts the functions of names[i]; out[i] is the first. */
void go_table_find(const struct go_table *t, const char *const *names, unsigned count, struct go_function *out,
		   unsigned *found);

/* Where the text may start (virtual address), in ways numbered from 0, best evidence first: the table's own word,
 * relocated and as it stands; the runtime's moduledata, by a pointer to the table and by a relocation; the section
 * .text (wrong where C code was linked in front). The caller proves one by the code. False: not known in that way. */
#define GO_TEXT_WAYS 5
bool go_table_text(const struct go_table *t, unsigned way, uint64_t *text);

#endif
