/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * repeatcap N [FROM COUNT] < one.cap > many.cap: the DATA records of a capture N times, one after the other in time and
 * in the positions of their connections, as if the same program had gone on and on. Other records come once. With FROM
 * and COUNT only these DATA records (from 0 on) are repeated; the others come once, before and behind them.
 */
#include <linux/types.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "bpf/event.h"

#define PAUSE_NS 1000000ull /* between two repetitions */

struct all {
	struct buf data; /* DATA records that are repeated */
	uint64_t from, count, rounds;
	uint64_t seen; /* DATA records so far */
	uint64_t begin_ns, end_ns;
	uint64_t begin[2], end[2]; /* positions by direction: all connections are shifted alike */
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

/* A DATA record as it is in that round. */
static void put_shifted(const struct all *a, const uint8_t *record, uint64_t round)
{
	uint64_t shift = round * (a->end_ns - a->begin_ns + PAUSE_NS);
	struct ev_data d;

	memcpy(&d, record, sizeof(d));
	d.h.ts_ns += shift;
	d.entry_ns += shift;
	d.pos += round * (a->end[d.dir & 1] - a->begin[d.dir & 1]);
	put(&d, sizeof(d));
	put(record + sizeof(d), d.h.size - sizeof(d));
}

static void repeat(const struct all *a)
{
	for (uint64_t round = 0; round < a->rounds; round++) {
		for (size_t at = 0; at < a->data.len;) {
			struct ev_head h;

			memcpy(&h, a->data.ptr + at, sizeof(h));
			put_shifted(a, (const uint8_t *)a->data.ptr + at, round);
			at += h.size;
		}
	}
}

static void keep(struct all *a, const uint8_t *record)
{
	struct ev_data d;
	unsigned dir;

	memcpy(&d, record, sizeof(d));
	dir = d.dir & 1;
	if (a->begin[dir] == UINT64_MAX)
		a->begin[dir] = d.pos;
	if (d.pos < a->begin[dir])
		a->begin[dir] = d.pos;
	if (d.pos + d.orig_len > a->end[dir])
		a->end[dir] = d.pos + d.orig_len;
	if (!a->begin_ns || d.entry_ns < a->begin_ns)
		a->begin_ns = d.entry_ns;
	if (d.h.ts_ns > a->end_ns)
		a->end_ns = d.h.ts_ns;
	if (buf_push(&a->data, record, d.h.size))
		fail("out of memory");
}

static void take(struct all *a, const uint8_t *record)
{
	struct ev_head h;
	uint64_t nth;

	memcpy(&h, record, sizeof(h));
	if (h.kind != EV_DATA) {
		put(record, h.size);
		return;
	}
	nth = a->seen++;
	if (nth < a->from) {
		put(record, h.size);
		return;
	}
	if (nth - a->from < a->count)
		keep(a, record);
	else if (a->begin_ns)
		put_shifted(a, record, a->rounds - 1);
	if (nth - a->from == a->count - 1)
		repeat(a);
}

int main(int argc, char **argv)
{
	static uint8_t record[1 << 20];
	struct all all = {.begin = {UINT64_MAX, UINT64_MAX}, .count = UINT64_MAX};
	struct capture_header header;
	struct ev_head head;

	if (argc == 2 || argc == 4)
		all.rounds = strtoull(argv[1], NULL, 10);
	if (argc == 4) {
		all.from = strtoull(argv[2], NULL, 10);
		all.count = strtoull(argv[3], NULL, 10);
	}
	if (!all.rounds || !all.count)
		fail("usage: repeatcap N [FROM COUNT] < one.cap > many.cap");
	if (fread(&header, sizeof(header), 1, stdin) != 1 || memcmp(header.magic, CAPTURE_MAGIC, sizeof(header.magic)))
		fail("not a capture");
	put(&header, sizeof(header));
	while (fread(&head, sizeof(head), 1, stdin) == 1) {
		if (head.size < sizeof(head) || head.size > sizeof(record))
			fail("not a record");
		memcpy(record, &head, sizeof(head));
		if (fread(record + sizeof(head), 1, head.size - sizeof(head), stdin) != head.size - sizeof(head))
			fail("the capture is cut");
		take(&all, record);
	}
	if (all.seen - all.from < all.count)
		repeat(&all);
	buf_release(&all.data);
	return fflush(stdout) ? 1 : 0;
}
