/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_DEBUGDATA_H
#define ATTACH_DEBUGDATA_H

/*
 * Mini debug info (Fedora and its kin): the section .gnu_debugdata of a stripped file is an ELF file, compressed by xz,
 * that holds the names of functions which are not exported (GDB manual, "MiniDebugInfo").
 */

#include "elf.h"

#define DEBUGDATA_BYTES_MAX (32u << 20) /* unpacked; more is refused */

struct debugdata {
	uint8_t *bytes; /* owned */
	struct elf elf; /* over them; only its symbols count */
};

/* 0; -ENOENT: the file has none; -EBADMSG: it cannot be unpacked, or holds no ELF file; -EFBIG; -ENOMEM.
 * debugdata_close() after 0. */
int debugdata_open(struct debugdata *d, const struct elf *e);
void debugdata_close(struct debugdata *d);

#endif
