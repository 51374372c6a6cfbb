/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_ITERATOR_H
#define ATTACH_ITERATOR_H

/* What a BPF iterator of the kernel writes: records of one size. Private child of probes. */

#include <stdbool.h>
#include <stddef.h>

#include <bpf/libbpf.h>

#define ITERATOR_RECORD_MAX 4096 /* bytes of one, at most */

/* Runs it, and gives fn each record, in order, aligned to 8 bytes, borrowed; fn returns true when it has enough. `over`
 * NULL: over all that there is. 0 or -errno: it cannot be run (-ESRCH: no such process), or not be read to its end. */
int iterator_read(const struct bpf_program *program, const union bpf_iter_link_info *over, size_t size,
		  bool (*fn)(void *ctx, const void *record), void *ctx);

#endif
