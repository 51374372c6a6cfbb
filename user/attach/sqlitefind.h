/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_SQLITEFIND_H
#define ATTACH_SQLITEFIND_H

#include "tlsfind.h"

/*
 * SQLite in a file, by its symbols: sqlite3_prepare_v2, sqlite3_prepare_v3, sqlite3_prepare, sqlite3_step,
 * sqlite3_reset, sqlite3_finalize (TLS_ABI_SQLITE). The result has the form of a TLS stack, named "sqlite", because it
 * is probed the same way. 0; -ENOENT: none here; -EINVAL: refused, see reason.
 */
int sqlitefind(const struct elf *e, struct tls_find *out);

#endif
