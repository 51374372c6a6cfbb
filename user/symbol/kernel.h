/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SYMBOL_KERNEL_H
#define SYMBOL_KERNEL_H

/* The kernel's functions: /proc/kallsyms. */

#include <stdio.h>

#include "symtab.h"

/* The file, or NULL. Whether addresses are told is decided by who opens it: CAP_SYSLOG, with kernel.kptr_restrict. */
FILE *kernel_open(void);
/* Read from there (closed) into a table made with symtab_init(t, false): sorted. 0; -EPERM: the kernel does not tell
 * addresses (kernel.kptr_restrict); -errno. */
int kernel_symbols(struct symtab *t, FILE *f);
/* One line without its newline. 1: added; 0: no function; -EPERM: without an address; -ENOMEM, -ENOSPC. */
int kernel_parse_line(struct symtab *t, struct sv line);

#endif
