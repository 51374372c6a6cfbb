/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_STREAM_H
#define FLOW_STREAM_H

/*
 * One direction of one connection: puts records in the order of their positions and turns what stays missing into gaps.
 * Duplicated bytes (position below the expected one) are dropped. A record ahead of the expected position waits up to
 * STREAM_HOLD_NS of event time, or until STREAM_HOLD_BYTES are held; then the hole becomes a gap. Nothing is copied
 * when records come in order.
 */

#include "base/types.h"

#define STREAM_HOLD_NS	    500000000ull /* events from other CPUs were seen up to 170 ms late in the field */
#define STREAM_HOLD_BYTES   (1u << 20)
#define STREAM_HOLD_RECORDS 1024

enum gap_why {
	GAP_LOST,   /* bytes were lost */
	GAP_CAPPED, /* left out by choice (request cap) */
};

struct stream_sink {
	void *ctx;
	/* Called with the next bytes in order. len 0 never happens. */
	void (*on_bytes)(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at);
	/* Called where bytes are missing. len UINT64_MAX: unknown how many. `at`: of the record after (or with) the
	 * hole. */
	void (*on_gap)(void *ctx, uint64_t len, enum gap_why why, const struct stamp *at);
};

struct stream_held; /* private: records that wait */

struct stream {
	struct stream_sink sink;
	uint64_t next;		  /* position expected */
	struct stream_held *held; /* owned, sorted by position */
	size_t held_bytes;
	unsigned held_count;
	bool started; /* fresh, or something was delivered: `next` is exact */
};

void stream_init(struct stream *s, const struct stream_sink *sink);

/*
 * The kernel counts positions of a generation from 0, also of one that it met in the middle, so 0 is expected of every
 * stream. But where a fresh stream begins later, so many bytes were lost; for another one the number is not known.
 */
void stream_start_fresh(struct stream *s);
void stream_start_at(struct stream *s, uint64_t pos); /* goes on where an earlier stream of the generation was */

/* bytes [pos, pos + len) and, when orig_len > len, a hole of orig_len - len behind them. Return 0, or -ENOMEM (they
 * could not wait: what is missing before them became a gap, they were delivered). */
int stream_push(struct stream *s, uint64_t pos, const uint8_t *ptr, uint32_t len, uint32_t orig_len, enum gap_why why,
		const struct stamp *at);
/* Unknown-length hole just before pos: held records before pos are delivered first. Return as stream_push. */
int stream_gap(struct stream *s, uint64_t pos, const struct stamp *at);
void stream_tick(struct stream *s, uint64_t now_ns);	     /* gives up waiting after STREAM_HOLD_NS */
void stream_flush(struct stream *s, const struct stamp *at); /* gives up waiting now, delivers all that is held */
/* As flush; and if final_pos is ahead of what came, the difference is a gap (bytes lost at the end). */
void stream_finish(struct stream *s, uint64_t final_pos, const struct stamp *at);
void stream_release(struct stream *s);

#endif
