/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ringahead.h"

#include <linux/bpf.h>

#define ALIGN 8

unsigned ringahead_look(const void *record, size_t len, uint64_t left, struct sv *out, unsigned max)
{
	const char *at = record;
	uint32_t header = (uint32_t)len;
	unsigned count = 0;

	while (count < max) {
		uint64_t size = header & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
		uint64_t room = (BPF_RINGBUF_HDR_SZ + size + ALIGN - 1) / ALIGN * ALIGN;

		if (header & BPF_RINGBUF_BUSY_BIT || room > left)
			break;
		if (!(header & BPF_RINGBUF_DISCARD_BIT))
			out[count++] = (struct sv){at, (size_t)size};
		left -= room;
		at += room;
		if (left < BPF_RINGBUF_HDR_SZ)
			break;
		/* Its writer says last that it is complete. */
		header = __atomic_load_n((const uint32_t *)(const void *)(at - BPF_RINGBUF_HDR_SZ), __ATOMIC_ACQUIRE);
	}
	return count;
}
