/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * repeatcap N < one.cap > many.cap: the DATA records of a capture N times, one after the other in time and in the
 * positions of their connections, as if the same program had gone on and on. Other records come once, before them.
 */
#include <errno.h>
#include <linux/types.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "bpf/event.h"

#define PAUSE_NS 1000000ull /* between two repetitions */

struct all {
	struct buf data; /* DATA records */
	uint64_t begin_ns, end_ns;
	uint64_t length[2]; /* by direction: all connections are shifted alike */
};

static void fail(const char *what)
{
	fprintf(stderr, "repeatcap: %s\n", what);
	exit(1);
}

static void put(const void *ptr, size_t len)
{
	if (fwrite(ptr, 1, len, stdout) != len)
		fail("cannot write");
}

static void take(struct all *a, const uint8_t *record, size_t size)
{
	struct ev_data d;
	uint64_t end;

	memcpy(&d, record, size < sizeof(d) ? size : sizeof(d));
	if (d.h.kind != EV_DATA) {
		put(record, size);
		return;
	}
	end = d.pos + d.orig_len;
	if (end > a->length[d.dir & 1])
		a->length[d.dir & 1] = end;
	if (!a->begin_ns || d.entry_ns < a->begin_ns)
		a->begin_ns = d.entry_ns;
	if (d.h.ts_ns > a->end_ns)
		a->end_ns = d.h.ts_ns;
	if (buf_push(&a->data, record, size))
		fail("out of memory");
}

static void repeat(const struct all *a, uint64_t round)
{
	uint64_t shift = round * (a->end_ns - a->begin_ns + PAUSE_NS);

	for (size_t at = 0; at < a->data.len;) {
		struct ev_data d;

		memcpy(&d, a->data.ptr + at, sizeof(d));
		d.h.ts_ns += shift;
		d.entry_ns += shift;
		d.pos += round * a->length[d.dir & 1];
		put(&d, sizeof(d));
		put(a->data.ptr + at + sizeof(d), d.h.size - sizeof(d));
		at += d.h.size;
	}
}

int main(int argc, char **argv)
{
	uint64_t rounds = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
	static uint8_t record[1 << 20];
	struct capture_header header;
	struct ev_head head;
	struct all all = {0};

	if (!rounds)
		fail("usage: repeatcap N < one.cap > many.cap");
	if (fread(&header, sizeof(header), 1, stdin) != 1 || memcmp(header.magic, CAPTURE_MAGIC, sizeof(header.magic)))
		fail("not a capture");
	put(&header, sizeof(header));
	while (fread(&head, sizeof(head), 1, stdin) == 1) {
		if (head.size < sizeof(head) || head.size > sizeof(record))
			fail("not a record");
		memcpy(record, &head, sizeof(head));
		if (fread(record + sizeof(head), 1, head.size - sizeof(head), stdin) != head.size - sizeof(head))
			fail("the capture is cut");
		take(&all, record, head.size);
	}
	for (uint64_t i = 0; i < rounds; i++)
		repeat(&all, i);
	buf_release(&all.data);
	return fflush(stdout) ? 1 : 0;
}
