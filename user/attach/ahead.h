/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_AHEAD_H
#define ATTACH_AHEAD_H

/* What the finder says of files, before it is asked: while the kernel verifies the programs that will probe them. */

#include "tlsfind.h"

#define AHEAD_FILES_MAX 256 /* those with TLS take 20 KiB each, until ahead_free() */

struct ahead;

struct ahead *ahead_new(void);	  /* NULL: ENOMEM */
void ahead_free(struct ahead *a); /* NULL is fine */

/* Looks through a file, once. What could not be read is looked at again when it is asked for. */
void ahead_look(struct ahead *a, const char *path);
/* As tlsfind(); without looking again where it was looked at. a NULL: nothing was. */
int ahead_find(const struct ahead *a, const struct elf *e, struct tls_finds *out);

#endif
