/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http2.h"

#include <errno.h>
#include <stdlib.h>

#include "http2_state.h"

/* --- data -------------------------------------------------------------------------------------------------------- */

/*
 * The stream whose DATA frame is at hand, if it is told. One that took the number after the frame began (the roles
 * turned out to be the other way round in its middle) is another one.
 */
static struct http2_stream *data_stream(struct http2_side *s)
{
	struct http2_stream *x = http2_stream_find(s->h, s->frames.frame.stream);

	if (!x || x->xid != s->data_xid)
		return NULL;
	if (http2_side_of(s) == HTTP_REQUEST)
		return x->request_done ? NULL : x;
	return x->response_done ? NULL : x;
}

static void data_begin(struct http2_side *s, const struct frame *f)
{
	struct http2 *h = s->h;
	struct http2_stream *x = http2_stream_find(h, f->stream);

	s->counted = 0;
	if (!x && http2_side_of(s) == HTTP_RESPONSE && f->stream & 1)
		x = http2_orphan_new(h, f->stream, &f->first);
	s->data_xid = x ? x->xid : 0;
	x = data_stream(s);
	if (!x)
		return;
	http2_stream_saw(x, &s->frames.header_end);
	x->carried[http2_side_of(s)] += FRAME_HEADER_BYTES;
	if (http2_side_of(s) == HTTP_REQUEST)
		return;
	http2_settle_doubtful(h, x, &f->first);
	http2_response_begin_unread(h, x, &f->first);
	if (!x->orphan || x->front_told)
		return;
	x->front_told = true;
	http2_body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, &f->first);
}

static void count_down(struct http2_stream *x, uint64_t len, const struct stamp *at)
{
	if (x->left == UINT64_MAX || !len)
		return;
	x->left = len <= x->left ? x->left - len : UINT64_MAX;
	x->full_at = *at;
}

static void data_add(struct http2_side *s, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct http2_stream *x = data_stream(s);

	if (!x)
		return;
	s->counted += (uint32_t)len;
	http2_stream_saw(x, at);
	x->carried[http2_side_of(s)] += len;
	if (http2_side_of(s) == HTTP_RESPONSE)
		count_down(x, len, at);
	http2_body(s->h, x, http2_side_of(s), ptr, len, at);
}

static void data_gap(struct http2_side *s, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct http2_stream *x = data_stream(s);

	if (!x)
		return;
	if (len != UINT64_MAX) {
		s->counted += (uint32_t)len;
		x->carried[http2_side_of(s)] += len;
	}
	if (http2_side_of(s) == HTTP_RESPONSE && len == UINT64_MAX)
		x->left = UINT64_MAX;
	else if (http2_side_of(s) == HTTP_RESPONSE)
		count_down(x, len, at);
	http2_body_gap(s->h, x, http2_side_of(s), len, why, at);
}

static void data_end(struct http2_side *s, const struct stamp *at)
{
	const struct frame *f = &s->frames.frame;
	struct http2_stream *x = data_stream(s);

	if (!x)
		return;
	http2_stream_saw(x, at);
	x->carried[http2_side_of(s)] += f->length - s->counted;
	if (!(f->flags & FRAME_END_STREAM))
		return;
	if (http2_side_of(s) == HTTP_REQUEST)
		http2_request_end(s->h, x, at);
	else
		http2_response_end(s->h, x, at);
}

/* --- the other frames -------------------------------------------------------------------------------------------- */

static enum http_abort abort_by(const struct http2_side *s)
{
	return s->dir == DIR_TX ? HTTP_ABORT_CLIENT : HTTP_ABORT_SERVER;
}

static void reset(struct http2_side *s, const struct stamp *at)
{
	struct http2 *h = s->h;
	uint32_t id = s->frames.frame.stream;
	struct http2_stream *x = http2_stream_find(h, id);

	if (!x) { /* what is still under way on it is nobody's */
		if (id & 1 && ids_is_unseen(&h->ids, id))
			ids_take(&h->ids, id, false);
		return;
	}
	if (x->response_done)
		http2_stream_complete(h, x);
	else if (x->response_lost && !x->orphan) /* who reads an answer no further may well have all of it */
		http2_stream_lose(h, x);
	else
		http2_stream_abort(h, x, abort_by(s), at->ts_ns);
}

static void goaway(struct http2_side *s, const struct stamp *at)
{
	struct http2 *h = s->h;
	struct http2_stream *x, *tmp;
	uint32_t last;

	if (http2_side_of(s) == HTTP_REQUEST || s->fixed_lost || s->fixed_len < 4)
		return;
	last = (uint32_t)(s->fixed[0] & 0x7f) << 24 | (uint32_t)s->fixed[1] << 16 | (uint32_t)s->fixed[2] << 8 |
	       s->fixed[3];
	if (last >= h->goaway_last)
		return;
	h->goaway_last = last;
	HASH_ITER (hh, h->streams, x, tmp) {
		if (x->id > last && !x->response_done && x->since_ns <= at->ts_ns)
			http2_stream_abort(h, x, abort_by(s), at->ts_ns);
	}
}

static void fixed_add(struct http2_side *s, const uint8_t *ptr, size_t len)
{
	for (size_t i = 0; i < len && s->fixed_len < FIXED_BYTES; i++)
		s->fixed[s->fixed_len++] = ptr[i];
}

/* --- from the frames --------------------------------------------------------------------------------------------- */

static void on_preface(void *ctx)
{
	struct http2_side *s = ctx;

	s->h->found = true;
	s->h->own_bytes += FRAMES_PREFACE_BYTES;
	http2_set_client(s->h, s->dir);
	/* Whatever was missed in the other direction, this one is seen from its first byte. */
	hpack_free(s->hpack);
	s->hpack = hpack_new(true);
	if (!s->hpack)
		http2_fail(s->h, -ENOMEM);
	if (http2_side_of(s) == HTTP_REQUEST && !s->h->streams)
		ids_init(&s->h->ids, true);
}

static void on_found(void *ctx)
{
	struct http2_side *s = ctx;

	s->h->found = true;
}

/* Priorities are stated of streams that are never opened, too. */
static bool is_of_exchange(const struct frame *f)
{
	return f->stream && f->type != FRAME_PRIORITY;
}

static bool on_frame(void *ctx, const struct frame *f)
{
	struct http2_side *s = ctx;
	struct http2 *h = s->h;
	bool of_stream = f->type == FRAME_DATA || f->type == FRAME_HEADERS || f->type == FRAME_RST_STREAM;

	if (of_stream && f->stream & 1 && http2_side_of(s) == HTTP_RESPONSE && http2_must_wait(h, f->stream))
		return false;
	if (s == http2_server_side(h))
		h->force = false;
	s->fixed_len = 0;
	s->fixed_lost = false;
	if (f->type == FRAME_HEADERS || f->type == FRAME_PUSH_PROMISE)
		http2_block_begin(s, f);
	else if (f->type == FRAME_CONTINUATION)
		http2_block_continue(s, f);
	else if (f->type == FRAME_DATA)
		data_begin(s, f);
	return true;
}

static void on_content(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct http2_side *s = ctx;

	switch (s->frames.frame.type) {
	case FRAME_DATA:
		data_add(s, ptr, len, at);
		break;
	case FRAME_HEADERS:
	case FRAME_PUSH_PROMISE:
	case FRAME_CONTINUATION:
		http2_block_add(s, ptr, len);
		break;
	case FRAME_GOAWAY:
		fixed_add(s, ptr, len);
		break;
	default:
		break;
	}
}

static void on_gap(void *ctx, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct http2_side *s = ctx;

	if (s->frames.frame.type == FRAME_DATA)
		data_gap(s, len, why, at);
	s->block.broken = true;
	s->fixed_lost = true;
}

static void on_end(void *ctx, const struct stamp *at)
{
	struct http2_side *s = ctx;

	switch (s->frames.frame.type) {
	case FRAME_DATA:
		data_end(s, at);
		break;
	case FRAME_HEADERS:
	case FRAME_PUSH_PROMISE:
	case FRAME_CONTINUATION:
		if (s->frames.frame.flags & FRAME_END_HEADERS)
			http2_block_end(s, at);
		break;
	case FRAME_RST_STREAM:
		reset(s, at);
		break;
	case FRAME_GOAWAY:
		goaway(s, at);
		break;
	default:
		break;
	}
	if (!is_of_exchange(&s->frames.frame))
		s->h->own_bytes += FRAME_HEADER_BYTES + s->frames.frame.length;
}

static void requests_lost(struct http2 *h, enum http_gap why, const struct stamp *at)
{
	struct http2_stream *x, *tmp;

	ids_lose(&h->ids);
	HASH_ITER (hh, h->streams, x, tmp) {
		if (x->request_done)
			continue;
		x->request_lost = true;
		http2_body_gap(h, x, HTTP_REQUEST, UINT64_MAX, why, at);
		http2_stream_settle(h, x);
	}
	http2_resume_server(h);
}

static void responses_lost(struct http2 *h, enum http_gap why, const struct stamp *at)
{
	struct http2_stream *x, *tmp;

	HASH_ITER (hh, h->streams, x, tmp) {
		if (x->response_done)
			continue;
		h->lost += !x->response_lost;
		x->response_lost = true;
		if (x->response_begun || x->front_told)
			http2_body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, why, at);
	}
}

static void on_lost(void *ctx, enum frames_loss loss, enum http_gap why, const struct stamp *at)
{
	struct http2_side *s = ctx;

	if (loss == FRAMES_LOSS_PARSE)
		s->h->errors++;
	hpack_lose(s->hpack);
	if (http2_side_of(s) == HTTP_REQUEST)
		requests_lost(s->h, why, at);
	else
		responses_lost(s->h, why, at);
}

/* --- the connection ---------------------------------------------------------------------------------------------- */

static bool side_init(struct http2 *h, enum dir dir, bool fresh)
{
	struct http2_side *s = &h->side[dir];
	enum frames_start start = FRAMES_START_ANYWHERE;

	s->h = h;
	s->dir = dir;
	s->sink = (struct frames_sink){s, on_preface, on_found, on_frame, on_content, on_gap, on_end, on_lost};
	if (fresh)
		start = dir == h->client_dir ? FRAMES_START_PREFACE : FRAMES_START_FRAME;
	frames_init(&s->frames, start, &s->sink);
	buf_init(&s->block.bytes, HPACK_BLOCK_MAX);
	s->hpack = hpack_new(fresh);
	return s->hpack;
}

struct http2 *http2_new(bool fresh, enum http2_client client, const struct http_sink *sink)
{
	struct http2 *h = calloc(1, sizeof(*h));
	bool made;

	if (!h)
		return NULL;
	h->sink = *sink;
	h->client_dir = client == HTTP2_CLIENT_RX ? DIR_RX : DIR_TX;
	h->client_known = client != HTTP2_CLIENT_UNKNOWN;
	h->goaway_last = UINT32_MAX;
	fresh = fresh && h->client_known;
	ids_init(&h->ids, fresh);
	made = side_init(h, DIR_TX, fresh);
	if (!side_init(h, DIR_RX, fresh) || !made) {
		http2_free(h);
		return NULL;
	}
	return h;
}

static void side_release(struct http2_side *s)
{
	frames_release(&s->frames);
	buf_release(&s->block.bytes);
	hpack_free(s->hpack);
}

void http2_free(struct http2 *h)
{
	struct http2_stream *x, *tmp;

	if (!h)
		return;
	HASH_ITER (hh, h->streams, x, tmp) {
		HASH_DEL(h->streams, x);
		http2_stream_drop_doubtful(x);
		free(x);
	}
	side_release(&h->side[DIR_TX]);
	side_release(&h->side[DIR_RX]);
	free(h);
}

int http2_adopt(struct http2 *h, uint64_t xid)
{
	struct http2_stream *x;

	ids_take(&h->ids, 1, true);
	x = http2_stream_add(h, 1, xid);
	if (!x)
		return h->err;
	x->request_done = true;
	if (h->next_xid < xid)
		h->next_xid = xid;
	return 0;
}

/* The frame that waits is taken, whatever it belongs to. */
static void force(void *ctx)
{
	struct http2_side *s = ctx;

	s->h->force = true;
}

static bool waited_long(const struct http2 *h, uint64_t now_ns)
{
	const struct frames *f = &h->side[dir_other(h->client_dir)].frames;
	uint64_t since = f->frame.first.ts_ns;

	return f->state == FRAMES_WAIT && now_ns > since && now_ns - since >= HTTP2_PARK_NS;
}

static void resume_forced(struct http2 *h)
{
	force(http2_server_side(h));
	frames_resume(&http2_server_side(h)->frames);
	h->force = false;
}

/* Bytes of one direction that are younger than the last ones of the other: those end a call of the program. */
static void settle_other(struct http2 *h, enum dir dir, const struct stamp *at)
{
	struct frames *other = &h->side[dir_other(dir)].frames;

	if (other->state == FRAMES_SEARCH && at->ts_ns >= other->last.ts_ns)
		frames_settle(other);
}

static void before(struct http2 *h, enum dir dir, const struct stamp *at)
{
	const struct frames *f = &h->side[dir].frames;

	if (f->has_last && memcmp(&f->last, at, sizeof(*at)) == 0) /* once a call of the program, however it is cut */
		return;
	settle_other(h, dir, at);
	while (waited_long(h, at->ts_ns) && !h->err)
		resume_forced(h);
}

int http2_push(struct http2 *h, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	int err;

	if (h->finished || h->err || !len)
		return h->err;
	h->bytes += len;
	before(h, dir, at);
	err = frames_push(&h->side[dir].frames, ptr, len, at, force);
	if (err && !h->err)
		http2_fail(h, err);
	return h->err;
}

int http2_gap(struct http2 *h, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	int err;

	if (h->finished || h->err || !len)
		return h->err;
	h->gap = true;
	before(h, dir, at);
	err = frames_gap(&h->side[dir].frames, len, why, at, force);
	if (err && !h->err)
		http2_fail(h, err);
	return h->err;
}

void http2_warm(const struct http2 *h, struct warm *w)
{
	warm_add(w, h, offsetof(struct http2, side));
	warm_add(w, &h->side[dir_other(h->client_dir)], sizeof(h->side[0]));
	warm_add(w, &h->streams, sizeof(*h) - offsetof(struct http2, streams));
	if (h->streams)
		warm_add(w, h->streams, sizeof(*h->streams));
}

bool http2_waits(const struct http2 *h)
{
	enum frames_state tx = h->side[DIR_TX].frames.state, rx = h->side[DIR_RX].frames.state;

	return !h->finished && !h->err &&
	       (h->waiting || tx == FRAMES_SEARCH || rx == FRAMES_SEARCH || tx == FRAMES_WAIT || rx == FRAMES_WAIT);
}

void http2_tick(struct http2 *h, uint64_t now_ns)
{
	struct http2_stream *x, *tmp;

	if (h->finished || h->err)
		return;
	for (int dir = 0; dir < 2; dir++) {
		struct frames *f = &h->side[dir].frames;

		if (f->state == FRAMES_SEARCH && now_ns > f->last.ts_ns && now_ns - f->last.ts_ns >= HTTP2_SETTLE_NS)
			frames_settle(f);
	}
	while (waited_long(h, now_ns) && !h->err)
		resume_forced(h);
	if (!h->waiting)
		return;
	HASH_ITER (hh, h->streams, x, tmp) {
		if (x->response_done && !x->upgraded && now_ns > x->end.ts_ns && now_ns - x->end.ts_ns >= HTTP2_PARK_NS)
			http2_stream_complete(h, x);
	}
}

void http2_finish(struct http2 *h, enum http_abort why, uint64_t ts_ns)
{
	if (h->finished)
		return;
	frames_settle(&h->side[DIR_TX].frames);
	frames_settle(&h->side[DIR_RX].frames);
	while (http2_server_side(h)->frames.state == FRAMES_WAIT && !h->err)
		resume_forced(h);
	h->finished = true;
	while (h->streams) {
		struct http2_stream *x = h->streams;

		if (x->response_done)
			http2_stream_complete(h, x);
		else if (x->response_lost && !x->orphan)
			http2_stream_lose(h, x);
		else
			http2_stream_abort(h, x, why, ts_ns);
	}
	frames_stop(&h->side[DIR_TX].frames);
	frames_stop(&h->side[DIR_RX].frames);
}

unsigned http2_errors(const struct http2 *h)
{
	return h->errors;
}

unsigned http2_requests(const struct http2 *h)
{
	return h->requests;
}

bool http2_is_server(const struct http2 *h)
{
	return h->client_known && h->client_dir == DIR_RX;
}

bool http2_found(const struct http2 *h)
{
	return h->found;
}

bool http2_is_idle(const struct http2 *h)
{
	return h->bytes && !h->gap && h->own_bytes == h->bytes;
}

enum http2_upgrade http2_upgraded(const struct http2 *h, uint64_t xid)
{
	for (const struct http2_stream *x = h->streams; x; x = x->hh.next)
		if (x->xid == xid && x->upgraded)
			return x->websocket ? HTTP2_WEBSOCKET : HTTP2_OTHER_PROTOCOL;
	return HTTP2_NOT_UPGRADED;
}

void http2_set_raw(struct http2 *h, const struct http2_raw *raw)
{
	h->raw = *raw;
}
