/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SYMBOL_PERFMAP_H
#define SYMBOL_PERFMAP_H

/*
 * /tmp/perf-PID.map: names of code that a runtime made, a line each, "START SIZE NAME" with numbers in hex, as Linux
 * perf defined it (tools/perf/Documentation/jit-interface.txt). Anybody can write one, so it is read with care: in the
 * root directory and under the pid of the process's own namespaces, only a regular file that belongs to the user of the
 * process, and no link leads to it; never waiting.
 */

#include <sys/types.h>

#include "symtab.h"

#define PERFMAP_BYTES_MAX (64u << 20) /* a larger file is not read */

/* A descriptor. -ENOENT (none, or the process is gone), -EINVAL (no regular file), -EPERM (somebody else's), -ELOOP (a
 * link), -EFBIG, other -errno. */
int perfmap_open(pid_t pid);
/* What it says now, into a table made with symtab_init(t, true): sorted. 0 or -errno; -EFBIG. */
int perfmap_read(int fd, struct symtab *t);
/* The text: lines that are none are passed over. 0 or -ENOMEM; at a cap of the table it ends early. */
int perfmap_parse(struct symtab *t, const char *ptr, size_t len);

#endif
