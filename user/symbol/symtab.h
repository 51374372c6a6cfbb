/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SYMBOL_SYMTAB_H
#define SYMBOL_SYMTAB_H

/*
 * Ranges of addresses and their names: of a file's functions, of the kernel's, or of code that a runtime made. Names
 * are copied, as they are found (mangled).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sv.h"

#define SYMTAB_ROWS_MAX	   (1u << 20) /* later ones are left out */
#define SYMTAB_NAMES_BYTES (64u << 20)
#define SYMTAB_NAME_BYTES  4096 /* longer names are cut */

struct symtab_row {
	uint64_t start;
	uint32_t size; /* 0, until they are sorted: up to the next one */
	uint32_t name; /* offset; rises with each row that is added */
};

struct symtab {
	struct symtab_row *rows; /* owned */
	size_t count, room;
	struct buf names; /* NUL-terminated, one after the other */
	bool latest;	  /* ranges are used again: of those that cover an address the one that was added last counts */
};

void symtab_init(struct symtab *t, bool latest);
void symtab_release(struct symtab *t);
void symtab_clear(struct symtab *t);
/* 0, -ENOMEM, -ENOSPC (a cap; nothing was added). Names without characters, and with a NUL, are passed over. */
int symtab_add(struct symtab *t, uint64_t start, uint64_t size, struct sv name);
/* After the last one was added, before the first search. `latest`: the rows are parts of ranges then, and without
 * memory there are none. */
void symtab_sort(struct symtab *t);
/* Sorted: what begins before the address ends there. */
void symtab_end(struct symtab *t, uint64_t addr);
/* The name of the range that covers the address; absent: none does. Borrowed until the next change. */
struct sv symtab_find(const struct symtab *t, uint64_t addr);
size_t symtab_bytes(const struct symtab *t); /* memory that it takes */

#endif
