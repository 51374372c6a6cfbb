/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http2_state.h"

#include <errno.h>
#include <stdlib.h>

#define CONTINUATIONS_MAX 1024 /* of one header block */

/* --- roles ------------------------------------------------------------------------------------------------------- */

/* What was told with the roles assumed the wrong way round was no response. */
void http2_set_client(struct http2 *h, enum dir dir)
{
	if (!h->client_known && dir != h->client_dir) {
		while (h->streams)
			http2_stream_lose(h, h->streams);
		ids_init(&h->ids, false);
		h->client_dir = dir;
	}
	h->client_known = true;
}

/* --- responses --------------------------------------------------------------------------------------------------- */

static void head_of(const struct hpack_head *in, struct http_head *out)
{
	*out = (struct http_head){
		.status = in->status,
		.headers = in->headers,
		.header_count = in->header_count,
		.protocol = "http/2",
		.partial = in->unknown > 0,
	};
}

/* Data, or an end, of a response whose head could not be read: that is said with a head of nothing. */
void http2_response_begin_unread(struct http2 *h, struct http2_stream *x, const struct stamp *at)
{
	struct hpack_head none = {.header_count = 0};
	struct http_head head;

	if (x->response_begun || x->orphan)
		return;
	head_of(&none, &head);
	x->response_begun = true;
	if (!x->head_lost)
		http2_body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, at);
	h->sink.on_response(h->sink.ctx, x->xid, &head, x->head_lost ? &x->head_at : at);
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

static void response_begin(struct http2 *h, struct http2_stream *x, const struct hpack_head *in,
			   const struct stamp *first, const struct stamp *at)
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

/* An end without a status is trailers' where the head cannot have been it: of that all was read, or it may be lost. */
static bool is_trailers(const struct http2_stream *x, const struct http2_block *b, const struct hpack_head *in)
{
	return b->end_stream && !in->status && (!in->unknown || x->response_lost || x->orphan);
}

/* ... and not trailers, which is all that can follow the data of a stream whose head was not seen. */
static bool is_final_head(const struct http2_stream *x, const struct http2_block *b, const struct hpack_head *in)
{
	if (x->response_begun || (in->status && in->status < 200) || is_trailers(x, b, in))
		return false;
	return !x->orphan || !x->front_told;
}

/* Final, or a 1xx: in the middle of a connection :status may be one of the table's unknown entries. */
static bool is_doubtful(const struct http2_stream *x, const struct http2_block *b, const struct hpack_head *in)
{
	return !x->orphan && !x->response_begun && !in->status && in->unknown && !b->end_stream;
}

/* Takes what *in owns. */
static void keep_doubtful(struct http2 *h, struct http2_stream *x, const struct http2_block *b, struct hpack_head *in)
{
	if (x->doubtful)
		x->carried[HTTP_RESPONSE] -= x->doubtful_carried;
	http2_stream_drop_doubtful(x);
	x->doubtful = malloc(sizeof(*x->doubtful));
	if (!x->doubtful) {
		http2_fail(h, -ENOMEM);
		return;
	}
	*x->doubtful = *in;
	buf_init(&in->text, 0);
	in->header_count = 0;
	x->doubtful_carried = b->carried;
	x->head_at = b->first;
}

/* It was the final one: what came is no other head. */
void http2_settle_doubtful(struct http2 *h, struct http2_stream *x, const struct stamp *at)
{
	if (!x->doubtful)
		return;
	response_begin(h, x, x->doubtful, &x->head_at, at);
	http2_stream_drop_doubtful(x);
}

/* A head of the server: final, 1xx, or trailers. `read`: it could be decoded. */
static void response_block(struct http2 *h, const struct http2_block *b, struct hpack_head *in, bool read,
			   const struct stamp *at)
{
	struct http2_stream *x = http2_stream_find(h, b->stream);

	if (!x)
		x = http2_orphan_new(h, b->stream, &b->first);
	if (!x || x->response_done)
		return;
	http2_stream_saw(x, at);
	if (in->status / 100 == 1 && !b->end_stream)
		return;
	x->carried[HTTP_RESPONSE] += b->carried;
	if (read && is_doubtful(x, b, in)) {
		keep_doubtful(h, x, b, in);
		return;
	}
	if (x->doubtful && read && in->status) { /* it was a 1xx */
		x->carried[HTTP_RESPONSE] -= x->doubtful_carried;
		http2_stream_drop_doubtful(x);
	}
	http2_settle_doubtful(h, x, at);
	if (!x->response_begun && !read) {
		x->head_lost = true;
		x->head_at = b->first;
		http2_body_gap(h, x, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, at);
	} else if (is_final_head(x, b, in)) {
		response_begin(h, x, in, &b->first, at);
	}
	if (!b->end_stream)
		return;
	http2_response_begin_unread(h, x, &b->first);
	http2_response_end(h, x, at);
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

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
	head->host = http_without_userinfo(in->authority.ptr ? in->authority : http_header_get(head, "host"));
}

static bool has_request(const struct hpack_head *in)
{
	return in->method.ptr || in->path.ptr || in->scheme.ptr || in->authority.ptr;
}

/* A head of the client: a request's, or trailers. */
static void request_block(struct http2 *h, const struct http2_block *b, struct hpack_head *in, bool read,
			  const struct stamp *at)
{
	struct http2_stream *x = http2_stream_find(h, b->stream);
	bool trailers = read ? !has_request(in) : b->stream < h->ids.next;
	struct http_head head;

	if (!x && !trailers && ids_take(&h->ids, b->stream, true)) {
		x = http2_stream_new(h, b->stream, &b->first);
		if (!x)
			return;
		fill_request(in, &head);
		x->connect = sv_eq(head.method, SV("CONNECT"));
		x->websocket = x->connect && sv_ieq(in->protocol, SV("websocket"));
		h->sink.on_request(h->sink.ctx, x->xid, &head, &b->first);
	}
	if (!x || x->request_done)
		return;
	http2_stream_saw(x, at);
	x->carried[HTTP_REQUEST] += b->carried;
	if (b->end_stream)
		http2_request_end(h, x, at);
}

/* --- header blocks ----------------------------------------------------------------------------------------------- */

void http2_block_begin(struct http2_side *s, const struct frame *f)
{
	struct http2_block *b = &s->block;

	buf_clear(&b->bytes);
	b->stream = f->stream;
	b->end_stream = f->type == FRAME_HEADERS && f->flags & FRAME_END_STREAM;
	b->push = f->type == FRAME_PUSH_PROMISE;
	b->broken = b->too_long = false;
	b->continuations = 0;
	b->carried = FRAME_HEADER_BYTES + (uint64_t)f->length;
	b->first = f->first;
}

void http2_block_continue(struct http2_side *s, const struct frame *f)
{
	s->block.carried += FRAME_HEADER_BYTES + (uint64_t)f->length;
	if (++s->block.continuations > CONTINUATIONS_MAX)
		s->block.too_long = true;
}

void http2_block_add(struct http2_side *s, const uint8_t *ptr, size_t len)
{
	struct http2_block *b = &s->block;
	int err;

	if (b->broken || b->too_long)
		return;
	err = buf_push(&b->bytes, ptr, len);
	if (err == -ENOSPC)
		b->too_long = true;
	else if (err)
		http2_fail(s->h, err);
}

/* True: decoded. */
static bool block_decode(struct http2_side *s, struct hpack_head *head)
{
	struct http2_block *b = &s->block;
	int err = 0;

	*head = (struct hpack_head){.header_count = 0};
	if (!b->broken && !b->too_long) {
		err = hpack_decode(s->hpack, (const uint8_t *)b->bytes.ptr, b->bytes.len, head);
		if (err == -ENOMEM)
			http2_fail(s->h, err);
	} else {
		hpack_lose(s->hpack);
	}
	if (b->bytes.size > 4096)
		buf_release(&b->bytes);
	return !err && !b->broken && !b->too_long;
}

/* A head that we do not take, or that is none, gives its stream up. */
static void block_refused(struct http2_side *s, const struct stamp *at)
{
	struct http2 *h = s->h;
	struct http2_stream *x = http2_stream_find(h, s->block.stream);

	h->errors++;
	if (x && !x->response_done)
		http2_stream_abort(h, x, HTTP_ABORT_PARSE, at->ts_ns);
	else if (!x && s->block.stream & 1)
		ids_take(&h->ids, s->block.stream, http2_side_of(s) == HTTP_REQUEST);
}

void http2_resume_server(struct http2 *h)
{
	struct frames *f = &http2_server_side(h)->frames;

	if (f->state == FRAMES_WAIT && !http2_must_wait(h, f->frame.stream))
		frames_resume(f);
}

void http2_block_end(struct http2_side *s, const struct stamp *at)
{
	struct http2 *h = s->h;
	struct hpack_head head;
	bool read = block_decode(s, &head), too_long = s->block.too_long || head.too_long;

	if (h->err || s->block.push || !(s->block.stream & 1))
		goto out;
	if (!h->client_known && (has_request(&head) || head.status))
		http2_set_client(h, has_request(&head) ? s->dir : !s->dir);
	if (too_long || (!read && !s->block.broken))
		block_refused(s, at);
	else if (http2_side_of(s) == HTTP_RESPONSE)
		response_block(h, &s->block, &head, read, at);
	else
		request_block(h, &s->block, &head, read, at);
	if (http2_side_of(s) == HTTP_REQUEST)
		http2_resume_server(h);
out:
	hpack_head_release(&head);
}
