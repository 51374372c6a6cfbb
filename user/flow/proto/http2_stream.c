/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http2_state.h"

#include <errno.h>
#include <stdlib.h>

/* Nothing more is read; what is outstanding is ended by http2_finish(). */
void http2_fail(struct http2 *h, int err)
{
	h->err = err;
	frames_stop(&h->side[DIR_TX].frames);
	frames_stop(&h->side[DIR_RX].frames);
}

struct http2_stream *http2_stream_find(struct http2 *h, uint32_t id)
{
	struct http2_stream *x = NULL;

	if (h->streams)
		HASH_FIND(hh, h->streams, &id, sizeof(id), x);
	return x;
}

void http2_stream_drop_doubtful(struct http2_stream *x)
{
	if (!x->doubtful)
		return;
	hpack_head_release(x->doubtful);
	free(x->doubtful);
	x->doubtful = NULL;
}

static void stream_remove(struct http2 *h, struct http2_stream *x)
{
	h->waiting -= x->response_done;
	h->lost -= x->response_lost;
	HASH_DEL(h->streams, x);
	http2_stream_drop_doubtful(x);
	free(x);
}

void http2_stream_saw(struct http2_stream *x, const struct stamp *at)
{
	if (at->ts_ns > x->last_ns)
		x->last_ns = at->ts_ns;
}

/*
 * Ends it with its last word, whatever that is for it. A response whose content-length is full is whole: some clients
 * (curl, several transfers at once) leave without reading the empty frame with END_STREAM.
 */
void http2_stream_abort(struct http2 *h, struct http2_stream *x, enum http_abort why, uint64_t ts_ns)
{
	if (!x->upgraded && x->response_begun && x->request_done && !x->left)
		h->sink.on_response_end(h->sink.ctx, x->xid, x->carried[HTTP_RESPONSE], &x->full_at);
	else if (!x->upgraded)
		h->sink.on_abort(h->sink.ctx, x->xid, why, x->carried[HTTP_RESPONSE], ts_ns);
	else if (h->raw.on_end)
		h->raw.on_end(h->raw.ctx, x->xid, why, ts_ns);
	stream_remove(h, x);
}

void http2_stream_complete(struct http2 *h, struct http2_stream *x)
{
	if (x->upgraded) {
		http2_stream_abort(h, x, HTTP_ABORT_CLOSED, x->end.ts_ns);
		return;
	}
	h->sink.on_response_end(h->sink.ctx, x->xid, x->carried[HTTP_RESPONSE], &x->end);
	stream_remove(h, x);
}

void http2_stream_settle(struct http2 *h, struct http2_stream *x)
{
	if (x->response_done && (x->request_done || x->request_lost))
		http2_stream_complete(h, x);
}

/* Its end may have gone by: it lasted at least to its youngest byte. */
void http2_stream_lose(struct http2 *h, struct http2_stream *x)
{
	http2_stream_abort(h, x, HTTP_ABORT_LOSS, x->last_ns);
}

/* At the cap the oldest one whose end may have gone by makes room. */
static bool stream_room(struct http2 *h)
{
	struct http2_stream *x, *tmp;

	if (HASH_COUNT(h->streams) < HTTP2_STREAMS_MAX)
		return true;
	h->errors++;
	if (!h->lost)
		return false;
	HASH_ITER (hh, h->streams, x, tmp) {
		if (x->response_lost)
			break;
	}
	http2_stream_lose(h, x);
	return true;
}

struct http2_stream *http2_stream_add(struct http2 *h, uint32_t id, uint64_t xid)
{
	struct http2_stream *x = calloc(1, sizeof(*x));

	if (x) {
		x->id = id;
		x->xid = xid;
		x->left = UINT64_MAX;
		HASH_ADD(hh, h->streams, id, sizeof(id), x);
		if (x->hh.tbl)
			return x;
		free(x);
	}
	http2_fail(h, -ENOMEM);
	return NULL;
}

/* NULL: over the cap, or no memory. */
struct http2_stream *http2_stream_new(struct http2 *h, uint32_t id, const struct stamp *first)
{
	struct http2_stream *x;

	if (!stream_room(h))
		return NULL;
	x = http2_stream_add(h, id, h->next_xid + 1);
	if (!x)
		return NULL;
	h->next_xid++;
	h->requests++;
	x->since_ns = x->last_ns = first->ts_ns;
	return x;
}

struct http2_stream *http2_orphan_new(struct http2 *h, uint32_t id, const struct stamp *first)
{
	struct http2_stream *x;

	if (!ids_take(&h->ids, id, false))
		return NULL;
	x = http2_stream_new(h, id, first);
	if (!x)
		return NULL;
	x->orphan = x->request_done = true;
	h->sink.on_request(h->sink.ctx, x->xid, NULL, first);
	return x;
}

void http2_body_gap(struct http2 *h, struct http2_stream *x, enum http_side side, uint64_t len, enum http_gap why,
		    const struct stamp *at)
{
	enum dir dir = side == HTTP_REQUEST ? h->client_dir : !h->client_dir;

	if (!x->upgraded)
		h->sink.on_body_gap(h->sink.ctx, x->xid, side, len, why, at);
	else if (h->raw.on_gap)
		h->raw.on_gap(h->raw.ctx, x->xid, dir, len, why, at);
}

void http2_body(struct http2 *h, struct http2_stream *x, enum http_side side, const uint8_t *ptr, size_t len,
		const struct stamp *at)
{
	enum dir dir = side == HTTP_REQUEST ? h->client_dir : !h->client_dir;

	if (!x->upgraded)
		h->sink.on_body(h->sink.ctx, x->xid, side, ptr, len, at);
	else if (h->raw.on_bytes)
		h->raw.on_bytes(h->raw.ctx, x->xid, dir, ptr, len, at);
}

void http2_request_end(struct http2 *h, struct http2_stream *x, const struct stamp *at)
{
	if (x->request_done)
		return;
	x->request_done = true;
	if (!x->upgraded)
		h->sink.on_request_end(h->sink.ctx, x->xid, x->carried[HTTP_REQUEST], at);
	http2_stream_settle(h, x);
}

void http2_response_end(struct http2 *h, struct http2_stream *x, const struct stamp *at)
{
	if (x->response_done)
		return;
	x->response_done = true;
	x->end = *at;
	h->waiting++;
	http2_stream_settle(h, x);
}
