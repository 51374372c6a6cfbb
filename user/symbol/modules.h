/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SYMBOL_MODULES_H
#define SYMBOL_MODULES_H

/*
 * The files that processes map, and the names of their functions: read when an address in one is asked for first, one
 * table for all processes. What nobody maps any more stays until there is no room.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/elf.h"
#include "attach/maps.h"
#include "base/hash.h"
#include "symtab.h"

/* Past these, files that no process maps any more are forgotten; then later ones have no names, and are counted. */
#define MODULES_MAX	  4096
#define MODULES_BYTES_MAX (256u << 20) /* of all symbol tables */

struct module_key { /* compared with memcmp: no holes */
	uint64_t dev, ino, name;
};

enum module_state { MODULE_NEW, MODULE_READ, MODULE_NONE };

struct module {
	struct module_key key;
	enum module_state state;
	char *path; /* as the maps of a process say it; owned */
	struct elf_load loads[ELF_LOADS_MAX];
	unsigned load_count;
	struct symtab symbols;
	bool used; /* for `mark` */
	UT_hash_handle hh;
};

struct modules {
	struct module *table;
	size_t bytes;	  /* of the tables of symbols */
	bool may_be_less; /* set by the owner: fewer are mapped than before */
	unsigned unread;  /* files without names because of a cap */
	/* Called when there is no more room: sets `used` of each module that a process maps. */
	void (*mark)(void *ctx);
	void *ctx;
};

void modules_release(struct modules *s);

/* The file of this mapping; it stays while it is marked. NULL: no memory, or too many. */
struct module *modules_get(struct modules *s, const struct map_entry *e);

/* Reads a MODULE_NEW one as the process sees it that maps it from begin to end: MODULE_READ, or MODULE_NONE. */
void modules_read(struct modules *s, struct module *m, pid_t pid, uint64_t begin, uint64_t end);

/* The function at this place of the file; absent: not known. Borrowed until the module goes. */
struct sv module_find(const struct module *m, uint64_t offset);

#endif
