/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SYMBOL_ELFSYMS_H
#define SYMBOL_ELFSYMS_H

/*
 * The functions of an ELF file, by virtual address: .symtab, .dynsym, mini debug info (.gnu_debugdata), and where the
 * file itself has no .symtab the debug file of its build id (/usr/lib/debug/.build-id).
 */

#include "attach/elf.h"
#include "symtab.h"

/* Into a table made with symtab_init(t, false): sorted. root: where /usr/lib/debug is looked for too ("/proc/PID/root",
 * or NULL). 0; -EBADMSG (broken tables: what could be read is in it), -EIO (it became shorter), -ENOMEM. */
int elfsyms_load(struct symtab *t, const struct elf *e, const char *root);

#endif
