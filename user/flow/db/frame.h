/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DB_FRAME_H
#define FLOW_DB_FRAME_H

/*
 * Messages of a binary protocol, one direction: a head of fixed size that says how long the body is, then the body,
 * handed on in pieces as it comes. Missing bytes inside of a body cost that message only. Private to flow/db.
 */

#include "base/types.h"

#define FRAME_HEAD_MAX 8

struct frame_reader {
	uint8_t head[FRAME_HEAD_MAX];
	unsigned head_len, have; /* bytes of the head, and of them here */
	uint64_t left;		 /* of the body, when the head is whole */
	struct stamp first;	 /* of the head's first byte */
	bool lost;		 /* bytes of the body are missing */
};

struct frame_sink {
	void *ctx;
	/* A head is whole: the length of its body; < 0: the stream makes no sense. */
	int64_t (*on_head)(void *ctx, const struct frame_reader *r);
	void (*on_body)(void *ctx, const struct frame_reader *r, const uint8_t *ptr, size_t len);
	/* 0; < 0: stop here, with the bytes up to and with this message consumed. */
	int (*on_end)(void *ctx, const struct frame_reader *r, const struct stamp *at);
};

void frame_init(struct frame_reader *r, unsigned head_len);
static inline bool frame_between(const struct frame_reader *r)
{
	return !r->have;
}
/* 0, or what a callback said; *used: bytes that were consumed by then. */
int frame_push(struct frame_reader *r, const struct frame_sink *sink, const uint8_t *ptr, size_t len,
	       const struct stamp *at, size_t *used);
/* 0: the gap lay in a body; -EBADMSG: where the next message begins is not known any more; else as frame_push(). */
int frame_gap(struct frame_reader *r, const struct frame_sink *sink, uint64_t len, const struct stamp *at);

#endif
