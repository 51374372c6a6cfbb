/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_FILEID_H
#define ATTACH_FILEID_H

/* The inode that probes on a file end up on. Private child of probes. */

#include <stdint.h>

#include "elf.h"

struct bpf_program;

/* Of a file that elf_map() mapped: device (as st_dev) and inode as the kernel's memory management knows them. 0;
 * -ENOENT: not told; other -errno. */
int fileid_read(const struct bpf_program *file_list, const struct elf *e, uint64_t *dev, uint64_t *ino);

#endif
