/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Waits in the list: bytes, with a hole of orig_len - len behind them; or (marker) a hole of unknown length just before
 * pos. */
struct stream_held {
	struct stream_held *prev, *next;
	uint64_t pos;
	struct stamp at;
	uint32_t len, orig_len;
	enum gap_why why;
	bool marker;
	uint8_t bytes[];
};

void stream_init(struct stream *s, const struct stream_sink *sink)
{
	*s = (struct stream){.sink = *sink};
}

void stream_start_fresh(struct stream *s)
{
	s->started = true;
}

void stream_start_at(struct stream *s, uint64_t pos)
{
	s->started = true;
	s->next = pos;
}

/* Where bytes are missing that no record speaks of. An unstarted stream cannot say how many. */
static void skip_to(struct stream *s, uint64_t pos, const struct stamp *at)
{
	uint64_t len = s->started ? pos - s->next : UINT64_MAX;

	s->started = true;
	s->next = pos;
	s->sink.on_gap(s->sink.ctx, len, GAP_LOST, at);
}

/* pos <= s->next: what of it is new goes on. */
static void deliver(struct stream *s, uint64_t pos, const uint8_t *ptr, uint32_t len, uint32_t orig_len,
		    enum gap_why why, const struct stamp *at)
{
	uint64_t end = pos + len, hole_end = pos + orig_len;
	uint64_t from = s->next;

	s->started = true;
	if (end > from) {
		s->next = end;
		s->sink.on_bytes(s->sink.ctx, ptr + (from - pos), (size_t)(end - from), at);
	}
	if (hole_end > s->next) {
		uint64_t missing = hole_end - s->next;

		s->next = hole_end;
		s->sink.on_gap(s->sink.ctx, missing, why, at);
	}
}

/* The first held record leaves the list and goes on. Its position has been reached. */
static void deliver_first(struct stream *s)
{
	struct stream_held *h = s->held;

	DL_DELETE(s->held, h);
	s->held_bytes -= h->len;
	s->held_count--;
	if (h->marker) {
		s->started = true;
		s->sink.on_gap(s->sink.ctx, UINT64_MAX, GAP_LOST, &h->at);
	} else {
		deliver(s, h->pos, h->bytes, h->len, h->orig_len, h->why, &h->at);
	}
	free(h);
}

static void drain(struct stream *s)
{
	while (s->held && s->held->pos <= s->next)
		deliver_first(s);
}

/* Stops waiting for what is missing before the first held record. */
static void give_up_first(struct stream *s)
{
	if (s->held->pos > s->next)
		skip_to(s, s->held->pos, &s->held->at);
	drain(s);
}

/* Sorted by position; a marker comes before the bytes of its position, and after an earlier marker. */
static void insert(struct stream *s, struct stream_held *n)
{
	struct stream_held *e = NULL;

	/* From the back: late records are few, most come after all that waits. */
	if (s->held) {
		for (e = s->held->prev;; e = e->prev) {
			if (e->pos < n->pos || (e->pos == n->pos && (e->marker || !n->marker)))
				break;
			if (e == s->held) {
				e = NULL;
				break;
			}
		}
	}
	if (e)
		DL_APPEND_ELEM(s->held, e, n);
	else
		DL_PREPEND(s->held, n);
	s->held_bytes += n->len;
	s->held_count++;
}

static int hold(struct stream *s, const struct stream_held *what, const uint8_t *ptr)
{
	struct stream_held *n = malloc(sizeof(*n) + what->len);

	if (!n)
		return -ENOMEM;
	*n = *what;
	if (what->len)
		memcpy(n->bytes, ptr, what->len);
	insert(s, n);
	while (s->held && (s->held_bytes > STREAM_HOLD_BYTES || s->held_count > STREAM_HOLD_RECORDS))
		give_up_first(s);
	return 0;
}

/* No memory to wait: everything before pos is delivered or given up now. */
static void give_up_before(struct stream *s, uint64_t pos, const struct stamp *at)
{
	while (s->held && s->held->pos < pos)
		give_up_first(s);
	if (s->next < pos)
		skip_to(s, pos, at);
}

int stream_push(struct stream *s, uint64_t pos, const uint8_t *ptr, uint32_t len, uint32_t orig_len, enum gap_why why,
		const struct stamp *at)
{
	struct stream_held what = {.pos = pos, .at = *at, .len = len, .orig_len = orig_len, .why = why};
	int err = 0;

	if (orig_len < len)
		orig_len = what.orig_len = len;
	if (!orig_len || pos + orig_len < pos) /* empty, or past the end of the number line */
		return 0;
	if (pos > s->next) {
		err = hold(s, &what, ptr);
		if (!err)
			return 0;
		give_up_before(s, pos, at);
	}
	deliver(s, pos, ptr, len, orig_len, why, at);
	drain(s);
	return err;
}

int stream_gap(struct stream *s, uint64_t pos, const struct stamp *at)
{
	struct stream_held what = {.pos = pos, .at = *at, .marker = true};
	int err = 0;

	if (pos > s->next) {
		err = hold(s, &what, NULL);
		if (!err)
			return 0;
		give_up_before(s, pos, at);
	}
	/* At its place; or late, when the bytes behind the hole have already gone on: said now rather than never. */
	s->started = true;
	s->sink.on_gap(s->sink.ctx, UINT64_MAX, GAP_LOST, at);
	drain(s);
	return err;
}

/* The holes before a record that has waited long enough are given up, also those before records that came later. */
void stream_tick(struct stream *s, uint64_t now_ns)
{
	const struct stream_held *h, *last = NULL;
	uint64_t pos;

	DL_FOREACH (s->held, h)
		if (now_ns > h->at.ts_ns && now_ns - h->at.ts_ns >= STREAM_HOLD_NS)
			last = h;
	if (!last)
		return;
	pos = last->pos;
	while (s->held && s->held->pos <= pos)
		give_up_first(s);
}

void stream_flush(struct stream *s, const struct stamp *at)
{
	(void)at;
	while (s->held)
		give_up_first(s);
}

void stream_finish(struct stream *s, uint64_t final_pos, const struct stamp *at)
{
	stream_flush(s, at);
	if (final_pos > s->next)
		skip_to(s, final_pos, at);
}

void stream_release(struct stream *s)
{
	struct stream_held *h, *tmp;

	DL_FOREACH_SAFE (s->held, h, tmp) {
		DL_DELETE(s->held, h);
		free(h);
	}
	s->held_bytes = 0;
	s->held_count = 0;
}
