/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http2.h"

#include <errno.h>
#include <stdlib.h>

/* Before uthash: no memory is an answer there, not an exit. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "hpack.h"
#include "http2_frame.h"
#include "http2_ids.h"

#define CONTINUATIONS_MAX 1024 /* of one header block */
#define FIXED_BYTES	  8    /* what is read of RST_STREAM and GOAWAY */

/* An exchange. In the hash until its last word; oldest first. */
struct stream {
	uint32_t id;
	bool orphan;  /* its request was not seen */
	bool connect; /* CONNECT, with :protocol websocket or another */
	bool websocket;
	bool upgraded;	     /* its last word is said, its data is raw */
	bool request_done;   /* END_STREAM was seen */
	bool request_lost;   /* ... or may have gone by: the response does not wait for it */
	bool response_begun; /* its head was told */
	bool response_done;
	bool response_lost; /* END_STREAM may have gone by */
	bool head_lost;	    /* a response head that could not be read came at head_at */
	bool front_told;    /* an orphan's body was begun */
	uint64_t xid;
	uint64_t since_ns;   /* of its first byte */
	uint64_t last_ns;    /* of its youngest byte */
	uint64_t carried[2]; /* by enum http_side */
	struct stamp head_at;
	struct stamp end; /* response_done: of its last byte */
	/* A head that may be a 1xx, its :status being unknown; the next frame tells. Owned; NULL: none. */
	struct hpack_head *doubtful;
	uint64_t doubtful_carried;
	uint64_t left; /* of the response's content-length; UINT64_MAX: not known */
	struct stamp full_at;
	UT_hash_handle hh;
};

/* A header block, from HEADERS or PUSH_PROMISE to END_HEADERS. */
struct block {
	struct buf bytes;
	uint32_t stream;
	bool end_stream, push;
	bool broken;   /* bytes are missing */
	bool too_long; /* more than we take */
	unsigned continuations;
	uint64_t carried;
	struct stamp first;
};

struct side {
	struct http2 *h;
	enum dir dir;
	struct frames_sink sink;
	struct frames frames;
	struct hpack *hpack;
	struct block block;
	uint32_t counted; /* payload bytes of the DATA frame at hand that are in carried */
	uint8_t fixed[FIXED_BYTES];
	unsigned fixed_len;
	bool fixed_lost;
};

struct http2 {
	struct http_sink sink;
	struct http2_raw raw;
	struct side side[2]; /* by enum dir */
	enum dir client_dir;
	bool client_known;
	struct ids ids;
	struct stream *streams;
	unsigned waiting; /* streams with response_done */
	unsigned lost;	  /* ... with response_lost */
	uint32_t goaway_last;
	uint64_t next_xid;
	unsigned errors, requests;
	bool force; /* the frame that waits must be taken */
	bool found, finished;
	int err;
};

static enum http_side side_of(const struct side *s)
{
	return s->dir == s->h->client_dir ? HTTP_REQUEST : HTTP_RESPONSE;
}

static struct side *server_side(struct http2 *h)
{
	return &h->side[!h->client_dir];
}

static enum http_abort abort_by(const struct side *s)
{
	return s->dir == DIR_TX ? HTTP_ABORT_CLIENT : HTTP_ABORT_SERVER;
}

/* Nothing more is read; what is outstanding is ended by http2_finish(). */
static void fail(struct http2 *h, int err)
{
	h->err = err;
	frames_stop(&h->side[DIR_TX].frames);
	frames_stop(&h->side[DIR_RX].frames);
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static struct stream *stream_find(struct http2 *h, uint32_t id)
{
	struct stream *x = NULL;

	if (h->streams)
		HASH_FIND(hh, h->streams, &id, sizeof(id), x);
	return x;
}

static void drop_doubtful(struct stream *x)
{
	if (!x->doubtful)
		return;
	hpack_head_release(x->doubtful);
	free(x->doubtful);
	x->doubtful = NULL;
}

static void stream_remove(struct http2 *h, struct stream *x)
{
	h->waiting -= x->response_done;
	h->lost -= x->response_lost;
	HASH_DEL(h->streams, x);
	drop_doubtful(x);
	free(x);
}

static void stream_saw(struct stream *x, const struct stamp *at)
{
	if (at->ts_ns > x->last_ns)
		x->last_ns = at->ts_ns;
}

/*
 * Ends it with its last word, whatever that is for it. A response whose content-length is full is whole: some clients
 * (curl, several transfers at once) leave without reading the empty frame with END_STREAM.
 */
static void stream_abort(struct http2 *h, struct stream *x, enum http_abort why, uint64_t ts_ns)
{
	if (!x->upgraded && x->response_begun && x->request_done && !x->left)
		h->sink.on_response_end(h->sink.ctx, x->xid, x->carried[HTTP_RESPONSE], &x->full_at);
	else if (!x->upgraded)
		h->sink.on_abort(h->sink.ctx, x->xid, why, x->carried[HTTP_RESPONSE], ts_ns);
	else if (h->raw.on_end)
		h->raw.on_end(h->raw.ctx, x->xid, why, ts_ns);
	stream_remove(h, x);
}

static void stream_complete(struct http2 *h, struct stream *x)
{
	if (x->upgraded) {
		stream_abort(h, x, HTTP_ABORT_CLOSED, x->end.ts_ns);
		return;
	}
	h->sink.on_response_end(h->sink.ctx, x->xid, x->carried[HTTP_RESPONSE], &x->end);
	stream_remove(h, x);
}

static void stream_settle(struct http2 *h, struct stream *x)
{
	if (x->response_done && (x->request_done || x->request_lost))
		stream_complete(h, x);
}

/* Its end may have gone by: it lasted at least to its youngest byte. */
static void stream_lose(struct http2 *h, struct stream *x)
{
	stream_abort(h, x, HTTP_ABORT_LOSS, x->last_ns);
}

/* At the cap the oldest one whose end may have gone by makes room. */
static bool stream_room(struct http2 *h)
{
	struct stream *x, *tmp;

	if (HASH_COUNT(h->streams) < HTTP2_STREAMS_MAX)
		return true;
	h->errors++;
	if (!h->lost)
		return false;
	HASH_ITER (hh, h->streams, x, tmp) {
		if (x->response_lost)
			break;
	}
	stream_lose(h, x);
	return true;
}

static struct stream *stream_add(struct http2 *h, uint32_t id, uint64_t xid)
{
	struct stream *x = calloc(1, sizeof(*x));

	if (x) {
		x->id = id;
		x->xid = xid;
		x->left = UINT64_MAX;
		HASH_ADD(hh, h->streams, id, sizeof(id), x);
		if (x->hh.tbl)
			return x;
		free(x);
	}
	fail(h, -ENOMEM);
	return NULL;
}

/* NULL: over the cap, or no memory. */
static struct stream *stream_new(struct http2 *h, uint32_t id, const struct stamp *first)
{
	struct stream *x;

	if (!stream_room(h))
		return NULL;
	x = stream_add(h, id, h->next_xid + 1);
	if (!x)
		return NULL;
	h->next_xid++;
	h->requests++;
	x->since_ns = x->last_ns = first->ts_ns;
	return x;
}

static struct stream *orphan_new(struct http2 *h, uint32_t id, const struct stamp *first)
{
	struct stream *x;

	if (!ids_take(&h->ids, id, false))
		return NULL;
	x = stream_new(h, id, first);
	if (!x)
		return NULL;
	x->orphan = x->request_done = true;
	h->sink.on_request(h->sink.ctx, x->xid, NULL, first);
	return x;
}

static void body_gap(struct http2 *h, struct stream *x, enum http_side side, uint64_t len, enum http_gap why,
		     const struct stamp *at)
{
	enum dir dir = side == HTTP_REQUEST ? h->client_dir : !h->client_dir;

	if (!x->upgraded)
		h->sink.on_body_gap(h->sink.ctx, x->xid, side, len, why, at);
	else if (h->raw.on_gap)
		h->raw.on_gap(h->raw.ctx, x->xid, dir, len, why, at);
}

static void body(struct http2 *h, struct stream *x, enum http_side side, const uint8_t *ptr, size_t len,
		 const struct stamp *at)
{
	enum dir dir = side == HTTP_REQUEST ? h->client_dir : !h->client_dir;

	if (!x->upgraded)
		h->sink.on_body(h->sink.ctx, x->xid, side, ptr, len, at);
	else if (h->raw.on_bytes)
		h->raw.on_bytes(h->raw.ctx, x->xid, dir, ptr, len, at);
}

static void request_end(struct http2 *h, struct stream *x, const struct stamp *at)
{
	if (x->request_done)
		return;
	x->request_done = true;
	if (!x->upgraded)
		h->sink.on_request_end(h->sink.ctx, x->xid, x->carried[HTTP_REQUEST], at);
	stream_settle(h, x);
}

/* --- responses ---------------------------------------------------------------------------------------------------- */

/* The frame's stream may still get its request: it waits. */
static bool must_wait(const struct http2 *h, uint32_t id)
{
	return !h->force && id >= h->ids.next && !h->ids.lossy;
}

static void head_of(const struct hpack_head *in, struct http_head *out)
{
	*out = (struct http_head){
		.status = in->status, .headers = in->headers, .header_count = in->header_count, .protocol = "http/2"};
}

/* Data, or an end, of a response whose head could not be read: that is said with a head of nothing. */
static void response_begin_unread(struct http2 *h, struct stream *x, const struct stamp *at)
{
	struct hpack_head none = {.header_count = 0};
	struct http_head head;

	if (x->response_begun || x->orphan)
		return;
	head_of(&none, &head);
	x->response_begun = true;
	if (!x->head_lost)
		body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, at);
	h->sink.on_response(h->sink.ctx, x->xid, &head, x->head_lost ? &x->head_at : at);
}

static void response_end(struct http2 *h, struct stream *x, const struct stamp *at)
{
	if (x->response_done)
		return;
	x->response_done = true;
	x->end = *at;
	h->waiting++;
	stream_settle(h, x);
}

/* UINT64_MAX: it says nothing, nothing that can be used, or there is no body. */
static uint64_t content_length(const struct http_head *head)
{
	struct sv value = http_header_get(head, "content-length");
	uint64_t length = 0;

	if (!value.len || value.len > 15)
		return UINT64_MAX;
	for (size_t i = 0; i < value.len; i++) {
		if (value.ptr[i] < '0' || value.ptr[i] > '9')
			return UINT64_MAX;
		length = length * 10 + (uint64_t)(value.ptr[i] - '0');
	}
	return length ? length : UINT64_MAX;
}

static void count_down(struct stream *x, uint64_t len, const struct stamp *at)
{
	if (x->left == UINT64_MAX || !len)
		return;
	x->left = len <= x->left ? x->left - len : UINT64_MAX;
	x->full_at = *at;
}

static void response_begin(struct http2 *h, struct stream *x, const struct hpack_head *in, const struct stamp *first,
			   const struct stamp *at)
{
	struct http_head head;

	head_of(in, &head);
	x->response_begun = x->front_told = true;
	x->left = content_length(&head);
	h->lost -= x->response_lost;
	x->response_lost = false; /* what was lost came before its first byte */
	h->sink.on_response(h->sink.ctx, x->xid, &head, first);
	if (!x->connect || head.status / 100 != 2)
		return;
	h->sink.on_abort(h->sink.ctx, x->xid, HTTP_ABORT_UPGRADE, x->carried[HTTP_RESPONSE], at->ts_ns);
	x->upgraded = true;
}

/* ... and not trailers, which is all that can follow the data of a stream whose head was not seen. */
static bool is_final_head(const struct stream *x, const struct block *b, const struct hpack_head *in)
{
	if (x->response_begun || (in->status && in->status < 200))
		return false;
	return !x->orphan || (!x->front_told && !(b->end_stream && !in->status));
}

/* Final, or a 1xx: in the middle of a connection :status may be one of the table's unknown entries. */
static bool is_doubtful(const struct stream *x, const struct block *b, const struct hpack_head *in)
{
	return !x->orphan && !x->response_begun && !in->status && in->unknown && !b->end_stream;
}

/* Takes what *in owns. */
static void keep_doubtful(struct http2 *h, struct stream *x, const struct block *b, struct hpack_head *in)
{
	if (x->doubtful)
		x->carried[HTTP_RESPONSE] -= x->doubtful_carried;
	drop_doubtful(x);
	x->doubtful = malloc(sizeof(*x->doubtful));
	if (!x->doubtful) {
		fail(h, -ENOMEM);
		return;
	}
	*x->doubtful = *in;
	buf_init(&in->text, 0);
	in->header_count = 0;
	x->doubtful_carried = b->carried;
	x->head_at = b->first;
}

/* It was the final one: what came is no other head. */
static void settle_doubtful(struct http2 *h, struct stream *x, const struct stamp *at)
{
	if (!x->doubtful)
		return;
	response_begin(h, x, x->doubtful, &x->head_at, at);
	drop_doubtful(x);
}

/* A head of the server: final, 1xx, or trailers. `read`: it could be decoded. */
static void response_block(struct http2 *h, const struct block *b, struct hpack_head *in, bool read,
			   const struct stamp *at)
{
	struct stream *x = stream_find(h, b->stream);

	if (!x)
		x = orphan_new(h, b->stream, &b->first);
	if (!x || x->response_done)
		return;
	stream_saw(x, at);
	if (in->status / 100 == 1 && !b->end_stream)
		return;
	x->carried[HTTP_RESPONSE] += b->carried;
	if (read && is_doubtful(x, b, in)) {
		keep_doubtful(h, x, b, in);
		return;
	}
	if (x->doubtful && read && in->status) { /* it was a 1xx */
		x->carried[HTTP_RESPONSE] -= x->doubtful_carried;
		drop_doubtful(x);
	}
	settle_doubtful(h, x, at);
	if (!x->response_begun && !read) {
		x->head_lost = true;
		x->head_at = b->first;
		body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, at);
	} else if (is_final_head(x, b, in)) {
		response_begin(h, x, in, &b->first, at);
	}
	if (!b->end_stream)
		return;
	response_begin_unread(h, x, &b->first);
	response_end(h, x, at);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static void fill_request(struct hpack_head *in, struct http_head *head)
{
	head_of(in, head);
	if (in->protocol.ptr && in->header_count < HTTP_HEADERS_MAX) {
		in->headers[in->header_count] = (struct http_header){SV(":protocol"), in->protocol};
		head->header_count = ++in->header_count;
	}
	head->method = in->method;
	head->target = in->path;
	if (!in->path.ptr && sv_eq(in->method, SV("CONNECT")))
		head->target = in->authority;
	head->host = in->authority.ptr ? in->authority : http_header_get(head, "host");
}

static bool has_request(const struct hpack_head *in)
{
	return in->method.ptr || in->path.ptr || in->scheme.ptr || in->authority.ptr;
}

/* A head of the client: a request's, or trailers. */
static void request_block(struct http2 *h, const struct block *b, struct hpack_head *in, bool read,
			  const struct stamp *at)
{
	struct stream *x = stream_find(h, b->stream);
	bool trailers = read ? !has_request(in) : b->stream < h->ids.next;
	struct http_head head;

	if (!x && !trailers && ids_take(&h->ids, b->stream, true)) {
		x = stream_new(h, b->stream, &b->first);
		if (!x)
			return;
		fill_request(in, &head);
		x->connect = sv_eq(head.method, SV("CONNECT"));
		x->websocket = x->connect && sv_ieq(in->protocol, SV("websocket"));
		h->sink.on_request(h->sink.ctx, x->xid, &head, &b->first);
	}
	if (!x || x->request_done)
		return;
	stream_saw(x, at);
	x->carried[HTTP_REQUEST] += b->carried;
	if (b->end_stream)
		request_end(h, x, at);
}

/* --- roles -------------------------------------------------------------------------------------------------------- */

/* What was told with the roles assumed the wrong way round was no response. */
static void set_client(struct http2 *h, enum dir dir)
{
	if (!h->client_known && dir != h->client_dir) {
		while (h->streams)
			stream_lose(h, h->streams);
		ids_init(&h->ids, false);
		h->client_dir = dir;
	}
	h->client_known = true;
}

/* --- header blocks ------------------------------------------------------------------------------------------------ */

static void block_begin(struct side *s, const struct frame *f)
{
	struct block *b = &s->block;

	buf_clear(&b->bytes);
	b->stream = f->stream;
	b->end_stream = f->type == FRAME_HEADERS && f->flags & FRAME_END_STREAM;
	b->push = f->type == FRAME_PUSH_PROMISE;
	b->broken = b->too_long = false;
	b->continuations = 0;
	b->carried = 9 + (uint64_t)f->length;
	b->first = f->first;
}

static void block_continue(struct side *s, const struct frame *f)
{
	s->block.carried += 9 + (uint64_t)f->length;
	if (++s->block.continuations > CONTINUATIONS_MAX)
		s->block.too_long = true;
}

static void block_add(struct side *s, const uint8_t *ptr, size_t len)
{
	struct block *b = &s->block;
	int err;

	if (b->broken || b->too_long)
		return;
	err = buf_push(&b->bytes, ptr, len);
	if (err == -ENOSPC)
		b->too_long = true;
	else if (err)
		fail(s->h, err);
}

/* True: decoded. */
static bool block_decode(struct side *s, struct hpack_head *head)
{
	struct block *b = &s->block;
	int err = 0;

	*head = (struct hpack_head){.header_count = 0};
	if (!b->broken && !b->too_long) {
		err = hpack_decode(s->hpack, (const uint8_t *)b->bytes.ptr, b->bytes.len, head);
		if (err == -ENOMEM)
			fail(s->h, err);
	} else {
		hpack_lose(s->hpack);
	}
	if (b->bytes.size > 4096)
		buf_release(&b->bytes);
	return !err && !b->broken && !b->too_long;
}

/* A head that we do not take, or that is none, gives its stream up. */
static void block_refused(struct side *s, const struct stamp *at)
{
	struct http2 *h = s->h;
	struct stream *x = stream_find(h, s->block.stream);

	h->errors++;
	if (x && !x->response_done)
		stream_abort(h, x, HTTP_ABORT_PARSE, at->ts_ns);
	else if (!x && s->block.stream & 1)
		ids_take(&h->ids, s->block.stream, side_of(s) == HTTP_REQUEST);
}

static void resume_server(struct http2 *h)
{
	struct frames *f = &server_side(h)->frames;

	if (f->state == FRAMES_WAIT && !must_wait(h, f->frame.stream))
		frames_resume(f);
}

static void block_end(struct side *s, const struct stamp *at)
{
	struct http2 *h = s->h;
	struct hpack_head head;
	bool read = block_decode(s, &head), too_long = s->block.too_long || head.too_long;

	if (h->err || s->block.push || !(s->block.stream & 1))
		goto out;
	if (!h->client_known && (has_request(&head) || head.status))
		set_client(h, has_request(&head) ? s->dir : !s->dir);
	if (too_long || (!read && !s->block.broken))
		block_refused(s, at);
	else if (side_of(s) == HTTP_RESPONSE)
		response_block(h, &s->block, &head, read, at);
	else
		request_block(h, &s->block, &head, read, at);
	if (side_of(s) == HTTP_REQUEST)
		resume_server(h);
out:
	hpack_head_release(&head);
}

/* --- data --------------------------------------------------------------------------------------------------------- */

/* The stream whose DATA frame is at hand, if it is told. */
static struct stream *data_stream(struct side *s)
{
	struct stream *x = stream_find(s->h, s->frames.frame.stream);

	if (!x)
		return NULL;
	if (side_of(s) == HTTP_REQUEST)
		return x->request_done ? NULL : x;
	return x->response_done ? NULL : x;
}

static void data_begin(struct side *s, const struct frame *f)
{
	struct http2 *h = s->h;
	struct stream *x = data_stream(s);

	s->counted = 0;
	if (!x && side_of(s) == HTTP_RESPONSE && !stream_find(h, f->stream) && f->stream & 1)
		x = orphan_new(h, f->stream, &f->first);
	if (!x)
		return;
	stream_saw(x, &s->frames.header_end);
	x->carried[side_of(s)] += 9;
	if (side_of(s) == HTTP_REQUEST)
		return;
	settle_doubtful(h, x, &f->first);
	response_begin_unread(h, x, &f->first);
	if (!x->orphan || x->front_told)
		return;
	x->front_told = true;
	body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, &f->first);
}

static void data_add(struct side *s, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct stream *x = data_stream(s);

	if (!x)
		return;
	s->counted += (uint32_t)len;
	stream_saw(x, at);
	x->carried[side_of(s)] += len;
	if (side_of(s) == HTTP_RESPONSE)
		count_down(x, len, at);
	body(s->h, x, side_of(s), ptr, len, at);
}

static void data_gap(struct side *s, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct stream *x = data_stream(s);

	if (!x)
		return;
	if (len != UINT64_MAX) {
		s->counted += (uint32_t)len;
		x->carried[side_of(s)] += len;
	}
	if (side_of(s) == HTTP_RESPONSE && len == UINT64_MAX)
		x->left = UINT64_MAX;
	else if (side_of(s) == HTTP_RESPONSE)
		count_down(x, len, at);
	body_gap(s->h, x, side_of(s), len, why, at);
}

static void data_end(struct side *s, const struct stamp *at)
{
	const struct frame *f = &s->frames.frame;
	struct stream *x = data_stream(s);

	if (!x)
		return;
	stream_saw(x, at);
	x->carried[side_of(s)] += f->length - s->counted;
	if (!(f->flags & FRAME_END_STREAM))
		return;
	if (side_of(s) == HTTP_REQUEST)
		request_end(s->h, x, at);
	else
		response_end(s->h, x, at);
}

/* --- the other frames --------------------------------------------------------------------------------------------- */

static void reset(struct side *s, const struct stamp *at)
{
	struct http2 *h = s->h;
	uint32_t id = s->frames.frame.stream;
	struct stream *x = stream_find(h, id);

	if (!x) { /* what is still under way on it is nobody's */
		if (id & 1 && ids_is_unseen(&h->ids, id))
			ids_take(&h->ids, id, false);
		return;
	}
	if (x->response_done)
		stream_complete(h, x);
	else
		stream_abort(h, x, abort_by(s), at->ts_ns);
}

static void goaway(struct side *s, const struct stamp *at)
{
	struct http2 *h = s->h;
	struct stream *x, *tmp;
	uint32_t last;

	if (side_of(s) == HTTP_REQUEST || s->fixed_lost || s->fixed_len < 4)
		return;
	last = (uint32_t)(s->fixed[0] & 0x7f) << 24 | (uint32_t)s->fixed[1] << 16 | (uint32_t)s->fixed[2] << 8 |
	       s->fixed[3];
	if (last >= h->goaway_last)
		return;
	h->goaway_last = last;
	HASH_ITER (hh, h->streams, x, tmp) {
		if (x->id > last && !x->response_done && x->since_ns <= at->ts_ns)
			stream_abort(h, x, abort_by(s), at->ts_ns);
	}
}

static void fixed_add(struct side *s, const uint8_t *ptr, size_t len)
{
	for (size_t i = 0; i < len && s->fixed_len < FIXED_BYTES; i++)
		s->fixed[s->fixed_len++] = ptr[i];
}

/* --- from the frames ---------------------------------------------------------------------------------------------- */

static void on_preface(void *ctx)
{
	struct side *s = ctx;

	s->h->found = true;
	set_client(s->h, s->dir);
	/* Whatever was missed in the other direction, this one is seen from its first byte. */
	hpack_free(s->hpack);
	s->hpack = hpack_new(true);
	if (!s->hpack)
		fail(s->h, -ENOMEM);
	if (side_of(s) == HTTP_REQUEST && !s->h->streams)
		ids_init(&s->h->ids, true);
}

static void on_found(void *ctx)
{
	struct side *s = ctx;

	s->h->found = true;
}

static bool on_frame(void *ctx, const struct frame *f)
{
	struct side *s = ctx;
	struct http2 *h = s->h;
	bool of_stream = f->type == FRAME_DATA || f->type == FRAME_HEADERS || f->type == FRAME_RST_STREAM;

	if (of_stream && f->stream & 1 && side_of(s) == HTTP_RESPONSE && must_wait(h, f->stream))
		return false;
	if (s == server_side(h))
		h->force = false;
	s->fixed_len = 0;
	s->fixed_lost = false;
	if (f->type == FRAME_HEADERS || f->type == FRAME_PUSH_PROMISE)
		block_begin(s, f);
	else if (f->type == FRAME_CONTINUATION)
		block_continue(s, f);
	else if (f->type == FRAME_DATA)
		data_begin(s, f);
	return true;
}

static void on_content(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct side *s = ctx;

	switch (s->frames.frame.type) {
	case FRAME_DATA:
		data_add(s, ptr, len, at);
		break;
	case FRAME_HEADERS:
	case FRAME_PUSH_PROMISE:
	case FRAME_CONTINUATION:
		block_add(s, ptr, len);
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
	struct side *s = ctx;

	if (s->frames.frame.type == FRAME_DATA)
		data_gap(s, len, why, at);
	s->block.broken = true;
	s->fixed_lost = true;
}

static void on_end(void *ctx, const struct stamp *at)
{
	struct side *s = ctx;

	switch (s->frames.frame.type) {
	case FRAME_DATA:
		data_end(s, at);
		break;
	case FRAME_HEADERS:
	case FRAME_PUSH_PROMISE:
	case FRAME_CONTINUATION:
		if (s->frames.frame.flags & FRAME_END_HEADERS)
			block_end(s, at);
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
}

static void requests_lost(struct http2 *h, enum http_gap why, const struct stamp *at)
{
	struct stream *x, *tmp;

	ids_lose(&h->ids);
	HASH_ITER (hh, h->streams, x, tmp) {
		if (x->request_done)
			continue;
		x->request_lost = true;
		body_gap(h, x, HTTP_REQUEST, UINT64_MAX, why, at);
		stream_settle(h, x);
	}
	resume_server(h);
}

static void responses_lost(struct http2 *h, enum http_gap why, const struct stamp *at)
{
	struct stream *x, *tmp;

	HASH_ITER (hh, h->streams, x, tmp) {
		if (x->response_done)
			continue;
		h->lost += !x->response_lost;
		x->response_lost = true;
		if (x->response_begun || x->front_told)
			body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, why, at);
	}
}

static void on_lost(void *ctx, enum frames_loss loss, enum http_gap why, const struct stamp *at)
{
	struct side *s = ctx;

	if (loss == FRAMES_LOSS_PARSE)
		s->h->errors++;
	hpack_lose(s->hpack);
	if (side_of(s) == HTTP_REQUEST)
		requests_lost(s->h, why, at);
	else
		responses_lost(s->h, why, at);
}

/* --- the connection ----------------------------------------------------------------------------------------------- */

static bool side_init(struct http2 *h, enum dir dir, bool fresh)
{
	struct side *s = &h->side[dir];
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

static void side_release(struct side *s)
{
	frames_release(&s->frames);
	buf_release(&s->block.bytes);
	hpack_free(s->hpack);
}

void http2_free(struct http2 *h)
{
	struct stream *x, *tmp;

	if (!h)
		return;
	HASH_ITER (hh, h->streams, x, tmp) {
		HASH_DEL(h->streams, x);
		free(x);
	}
	side_release(&h->side[DIR_TX]);
	side_release(&h->side[DIR_RX]);
	free(h);
}

int http2_adopt(struct http2 *h, uint64_t xid)
{
	struct stream *x;

	ids_take(&h->ids, 1, true);
	x = stream_add(h, 1, xid);
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
	struct side *s = ctx;

	s->h->force = true;
}

static bool waited_long(const struct http2 *h, uint64_t now_ns)
{
	const struct frames *f = &h->side[!h->client_dir].frames;
	uint64_t since = f->frame.first.ts_ns;

	return f->state == FRAMES_WAIT && now_ns > since && now_ns - since >= HTTP2_PARK_NS;
}

static void resume_forced(struct http2 *h)
{
	force(server_side(h));
	frames_resume(&server_side(h)->frames);
	h->force = false;
}

/* Bytes of one direction that are younger than the last ones of the other: those end a call of the program. */
static void settle_other(struct http2 *h, enum dir dir, const struct stamp *at)
{
	struct frames *other = &h->side[!dir].frames;

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
	before(h, dir, at);
	err = frames_push(&h->side[dir].frames, ptr, len, at, force);
	if (err && !h->err)
		fail(h, err);
	return h->err;
}

int http2_gap(struct http2 *h, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	int err;

	if (h->finished || h->err || !len)
		return h->err;
	before(h, dir, at);
	err = frames_gap(&h->side[dir].frames, len, why, at, force);
	if (err && !h->err)
		fail(h, err);
	return h->err;
}

void http2_tick(struct http2 *h, uint64_t now_ns)
{
	struct stream *x, *tmp;

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
			stream_complete(h, x);
	}
}

void http2_finish(struct http2 *h, enum http_abort why, uint64_t ts_ns)
{
	if (h->finished)
		return;
	frames_settle(&h->side[DIR_TX].frames);
	frames_settle(&h->side[DIR_RX].frames);
	while (server_side(h)->frames.state == FRAMES_WAIT && !h->err)
		resume_forced(h);
	h->finished = true;
	while (h->streams) {
		struct stream *x = h->streams;

		if (x->response_done)
			stream_complete(h, x);
		else if (x->response_lost && !x->orphan)
			stream_lose(h, x);
		else
			stream_abort(h, x, why, ts_ns);
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

enum http2_upgrade http2_upgraded(const struct http2 *h, uint64_t xid)
{
	for (const struct stream *x = h->streams; x; x = x->hh.next)
		if (x->xid == xid && x->upgraded)
			return x->websocket ? HTTP2_WEBSOCKET : HTTP2_OTHER_PROTOCOL;
	return HTTP2_NOT_UPGRADED;
}

void http2_set_raw(struct http2 *h, const struct http2_raw *raw)
{
	h->raw = *raw;
}
