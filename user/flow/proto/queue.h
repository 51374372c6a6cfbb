/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_QUEUE_H
#define FLOW_PROTO_QUEUE_H

/*
 * Private to http1 and http2: bytes of one direction, and gaps between them, that cannot be used yet, with the stamps
 * they came with. Bytes of one stamp are one run: one call of the program, however it was cut on its way here.
 */

#include "base/buf.h"
#include "http.h"

struct queue_run {
	struct stamp at;
	size_t len;
	uint64_t gap; /* not 0: no bytes, a gap */
	enum http_gap why;
	bool start; /* its first byte is the first of a call */
};

struct queue {
	struct buf bytes;
	size_t used; /* bytes taken from the front */
	struct queue_run *runs;
	size_t run_count, run_used, run_size;
	unsigned gaps;
	size_t bytes_max, runs_max;
};

/* How much it holds. Gaps are runs too; whoever adds something looks at the room before. */
void queue_init(struct queue *q, size_t bytes_max, size_t runs_max);
void queue_release(struct queue *q); /* can be used again */

bool queue_is_empty(const struct queue *q);
/* Bytes that queue_add() of that call takes. Those of a call whose run is the last one need no other: where it was cut
 * does not show in when the queue is full. */
size_t queue_room(const struct queue *q, const struct stamp *at, bool start);
bool queue_takes_gap(const struct queue *q);
/* 0 or -ENOMEM; len <= room. */
int queue_add(struct queue *q, const uint8_t *ptr, size_t len, const struct stamp *at, bool start);
int queue_add_gap(struct queue *q, uint64_t len, enum http_gap why, const struct stamp *at);

const struct queue_run *queue_front(const struct queue *q); /* not empty */
const uint8_t *queue_bytes(const struct queue *q);	    /* of the front run and those behind it */
void queue_drop(struct queue *q, size_t len);		    /* bytes, across runs; not across a gap */
void queue_drop_gap(struct queue *q);			    /* which is in front */
size_t queue_plain(const struct queue *q);		    /* bytes before the first gap */
bool queue_starts_at(const struct queue *q, size_t offset); /* a call begins there */

#endif
