/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_RINGAHEAD_H
#define ATTACH_RINGAHEAD_H

/*
 * The records that follow one in a BPF ring, while that one is read. Each begins with BPF_RINGBUF_HDR_SZ bytes, the
 * first four of them its length and two bits of state (linux/bpf.h), and is rounded up to 8; a ring is mapped twice in
 * a row, so that none is in two parts (kernel/bpf/ringbuf.c).
 */

#include <stddef.h>
#include <stdint.h>

#include "base/sv.h"

/* `record` of `len` bytes as the reader of the ring has it, and as much as `max` after it that are complete, into
 * `out`: how many; dropped ones are left out. left: bytes from the header of `record` to where the writers are; at most
 * the ring's size, and nothing behind them is read. Borrowed until the reader goes on past them. */
unsigned ringahead_look(const void *record, size_t len, uint64_t left, struct sv *out, unsigned max);

#endif
