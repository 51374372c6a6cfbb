/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * MCP over HTTP. What is posted as JSON is looked at until its first member says that it is no JSON-RPC; a stream that
 * is fetched, until its first event does.
 */

#include "mcp_table.h"

#include <stdio.h>
#include <stdlib.h>

#include "body.h"
#include "client.h"
#include "ended.h"
#include "flow/proto/decode.h"
#include "text.h"

#define HOST_BYTES_MAX 255

enum end_reason mcp_end_of_abort(enum http_abort why)
{
	return why == HTTP_ABORT_UPGRADE ? END_CONNECTION_CLOSED : end_of_abort(why);
}

/* --- exchanges --------------------------------------------------------------------------------------------------- */

static struct mcp_exchange *exchange_find(struct mcp_flow *f, uint64_t xid)
{
	struct mcp_exchange *e = NULL;

	if (f->exchanges)
		HASH_FIND(hh, f->exchanges, &xid, sizeof(xid), e);
	return e;
}

static struct mcp_exchange *exchange_new(struct mcp_flow *f, uint64_t xid)
{
	struct mcp *t = f->table;
	struct mcp_exchange *e = HASH_COUNT(f->exchanges) < MCP_EXCHANGES_MAX ? calloc(1, sizeof(*e)) : NULL;

	if (!e)
		goto fail;
	e->xid = xid;
	e->flow = f;
	e->serial = ++t->last_serial;
	HASH_ADD(hh, f->exchanges, xid, sizeof(e->xid), e);
	if (e->hh.tbl)
		return e;
fail:
	free(e);
	t->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

/* What is open goes on without it. */
static void exchange_free(struct mcp_exchange *e)
{
	struct mcp_flow *f = e->flow;
	struct mcp_request *r, *next;

	for (r = e->requests; r; r = next) {
		next = r->of_exchange;
		DL_DELETE2(e->requests, r, of_exchange_prev, of_exchange);
		r->exchange = NULL;
	}
	f->streams -= e->stream;
	f->table->held -= e->held;
	HASH_DEL(f->exchanges, e);
	mcp_session_release(f->table, e->session);
	mcp_session_release(f->table, e->answer_session);
	mcp_scan_free(e->scan);
	decode_free(e->decode);
	body_free(e->body);
	free(e->host);
	free(e);
}

void mcp_exchanges_free(struct mcp_flow *f)
{
	while (f->exchanges)
		exchange_free(f->exchanges);
}

static void end_requests(struct mcp_exchange *e, enum end_reason end, uint64_t ns)
{
	struct mcp_flow *f = e->flow;

	while (e->requests) {
		struct mcp_request *r = e->requests;

		r->call.exit_code = f->conn->exit_code;
		r->call.exit_signal = f->conn->exit_signal;
		mcp_request_end(f->table, r, end, ns);
	}
}

static void lose(struct mcp_exchange *e, uint64_t ns)
{
	for (struct mcp_request *r = e->requests; r; r = r->of_exchange)
		mcp_request_lossy(r, ns);
}

/* What its bodies hold, against MCP_HELD_MAX of all together: over it this one is given up. */
static void weigh(struct mcp_exchange *e)
{
	struct mcp *t = e->flow->table;

	t->held -= e->held;
	e->held = (e->decode ? decode_held(e->decode) : 0) + (e->body ? body_held(e->body) : 0);
	t->held += e->held;
	if (t->held <= MCP_HELD_MAX)
		return;
	if (e->body) {
		body_give_up(e->body, SV("over 32 MiB at once"));
	} else {
		decode_free(e->decode);
		e->decode = NULL;
		mcp_scan_gap(e->scan);
		t->lost->n[LOST_DECODE_ERRORS]++;
	}
	t->held -= e->held;
	e->held = e->body ? body_held(e->body) : 0;
	t->held += e->held;
}

/* --- sessions ---------------------------------------------------------------------------------------------------- */

static uint64_t name_of_id(struct sv id)
{
	return text_hash(text_hash(0, "id", 2), id.ptr, id.len);
}

static uint64_t name_of_target(const struct mcp_exchange *e, struct sv target)
{
	uint64_t hash = text_hash(0, "target", 6);

	if (e->host)
		hash = text_hash(hash, e->host, strlen(e->host) + 1);
	target = client_origin_form(target);
	return target.len ? text_hash(hash, target.ptr, target.len) : hash;
}

/* Made when a message comes: most of what is posted is none. */
static bool need_session(struct mcp_exchange *e)
{
	if (e->session)
		return true;
	e->session = mcp_session_get(e->flow->table, &e->flow->conn->key, e->session_name);
	if (e->session)
		e->session->shared |= e->session_stated;
	return e->session != NULL;
}

static void stream_begin(struct mcp_exchange *e)
{
	e->flow->streams += !e->stream;
	e->stream = true;
}

/* Where this stream's answers are asked for (2024-11-05: HTTP with SSE). */
static void on_endpoint(struct mcp_exchange *e, struct sv target)
{
	mcp_session_release(e->flow->table, e->session);
	e->session = NULL;
	e->session_name = name_of_target(e, sv_trim(target));
	e->session_stated = true;
	if (need_session(e))
		stream_begin(e);
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

static void on_message(struct mcp_exchange *e, enum dir dir, const struct mcp_message *m)
{
	struct mcp_place at = {.flow = e->flow, .exchange = e, .dir = dir, .first = e->first, .last = e->last};

	e->heard = true;
	if (!need_session(e))
		return;
	if (dir == DIR_RX)
		at.first = e->last;
	at.session = dir == DIR_RX && e->answer_session ? e->answer_session : e->session;
	mcp_message(e->flow->table, &at, m);
}

static void on_posted(void *ctx, const struct mcp_message *m)
{
	on_message(ctx, DIR_TX, m);
}

static void on_answered(void *ctx, const struct mcp_message *m)
{
	on_message(ctx, DIR_RX, m);
}

static void read_text(struct mcp_exchange *e, struct sv text)
{
	const struct mcp_scan_sink sink = {.ctx = e, .on_message = on_answered};
	struct mcp_scan *scan = mcp_scan_new(&sink, e->flow->table->lost);

	if (!scan) {
		e->flow->table->lost->n[LOST_NO_MEMORY]++;
		lose(e, e->last.ts_ns);
		return;
	}
	mcp_scan_push(scan, (const uint8_t *)text.ptr, text.len);
	mcp_scan_free(scan);
}

static void on_event(void *ctx, struct sv type, struct sv text, const struct stamp *at)
{
	struct mcp_exchange *e = ctx;

	if (at)
		e->last = *at;
	if (!e->post && sv_eq(type, SV("endpoint"))) {
		on_endpoint(e, text);
		return;
	}
	if (!text.len)
		return;
	read_text(e, text);
	e->foreign |= !e->heard && !e->session_stated;
}

static void on_document(void *ctx, struct sv text)
{
	read_text(ctx, text);
}

static void on_error(void *ctx, struct sv type)
{
	(void)ctx;
	(void)type;
}

static void on_missing(void *ctx)
{
	struct mcp_exchange *e = ctx;

	e->missing = true;
}

/* --- the request ------------------------------------------------------------------------------------------------- */

static void on_decoded(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct mcp_exchange *e = ctx;

	(void)at;
	mcp_scan_push(e->scan, ptr, len);
}

static bool is_json(const struct http_head *h)
{
	struct sv rest, type = sv_trim(sv_cut(http_header_get(h, "content-type"), ';', &rest));

	return !type.len || sv_ieq(type, SV("application/json"));
}

static bool asks_for_events(const struct http_head *h)
{
	struct sv rest = http_header_get(h, "accept");

	while (rest.len) {
		struct sv parameters, type = sv_cut(rest, ',', &rest);

		if (sv_ieq(sv_trim(sv_cut(type, ';', &parameters)), SV("text/event-stream")))
			return true;
	}
	return false;
}

static void begin_exchange(struct mcp_flow *f, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	bool post = !h->method.ptr || sv_eq(h->method, SV("POST")), get = sv_eq(h->method, SV("GET"));
	struct sv id = http_header_get(h, "mcp-session-id");
	struct mcp_exchange *e;

	if ((!post || !is_json(h)) && (!get || !asks_for_events(h)))
		return;
	e = exchange_new(f, xid);
	if (!e)
		return;
	e->post = post;
	e->first = e->last = *first;
	e->host = mcp_copy(f->table, sv_trim(h->host), HOST_BYTES_MAX);
	e->session_stated = id.len != 0;
	e->session_name = id.len ? name_of_id(id) : name_of_target(e, h->target);
	if (post) {
		const struct mcp_scan_sink sink = {.ctx = e, .on_message = on_posted};
		const struct decode_sink decoded = {.ctx = e, .on_bytes = on_decoded};

		e->scan = mcp_scan_new(&sink, f->table->lost);
		e->decode = e->scan ? decode_new_of(h, &decoded) : NULL;
	}
	if (post && !e->decode) {
		f->table->lost->n[LOST_NO_MEMORY]++;
		exchange_free(e);
	}
}

static void on_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct mcp_flow *f = ctx;

	mcp_advance(f->table, first->ts_ns);
	if (h && !h->unreadable && !exchange_find(f, xid))
		begin_exchange(f, xid, h, first);
	f->next.on_request(f->next.ctx, xid, h, first);
}

static void push_request(struct mcp_exchange *e, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	if (!e->decode)
		return;
	e->last = *at;
	decode_push(e->decode, ptr, len, at);
	weigh(e);
	if (mcp_scan_over(e->scan) && !e->heard)
		exchange_free(e);
}

/* A message that is longer than what is copied of a request cannot be read. */
static void request_gap(struct mcp_exchange *e, bool capped)
{
	if (!e->scan)
		return;
	if (capped && mcp_scan_begun(e->scan) && !mcp_scan_over(e->scan))
		e->flow->table->lost->n[LOST_DECODE_ERRORS]++;
	mcp_scan_gap(e->scan);
	if (!e->heard)
		exchange_free(e);
}

static void request_done(struct mcp_exchange *e)
{
	mcp_scan_free(e->scan);
	decode_free(e->decode);
	e->scan = NULL;
	e->decode = NULL;
	weigh(e);
	if (e->post && !e->heard)
		exchange_free(e);
}

static void on_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct mcp_flow *f = ctx;
	struct mcp_exchange *e = exchange_find(f, xid);

	mcp_advance(f->table, at->ts_ns);
	if (e)
		request_done(e);
	f->next.on_request_end(f->next.ctx, xid, carried, at);
}

/* --- the response ------------------------------------------------------------------------------------------------ */

static void begin_response(struct mcp_exchange *e, const struct http_head *h, const struct stamp *first)
{
	const struct body_sink sink = {e, on_event, on_document, on_error, on_missing};
	const struct body_config cfg = {0};
	struct mcp *t = e->flow->table;
	struct sv id = h ? http_header_get(h, "mcp-session-id") : SV_NONE;

	e->last = *first;
	e->status = h ? h->status : 0;
	for (struct mcp_request *r = e->requests; r; r = r->of_exchange)
		r->call.status = e->status;
	if (id.len && e->post) {
		e->answer_session = mcp_session_get(t, &e->flow->conn->key, name_of_id(id));
		if (e->answer_session)
			e->answer_session->shared = true;
	}
	e->body = body_new(&cfg, h, &sink, t->lost);
	t->lost->n[LOST_NO_MEMORY] += !e->body;
	if (!e->post && e->session_stated && e->status < 300)
		stream_begin(e);
}

static bool is_event_stream(const struct http_head *h)
{
	struct sv rest;

	return sv_ieq(sv_trim(sv_cut(http_header_get(h, "content-type"), ';', &rest)), SV("text/event-stream"));
}

static void on_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct mcp_flow *f = ctx;
	struct mcp_exchange *e = exchange_find(f, xid);

	mcp_advance(f->table, first->ts_ns);
	if (e && (e->post ? !e->heard : h && !is_event_stream(h)))
		exchange_free(e);
	else if (e && !e->body)
		begin_response(e, h, first);
	f->next.on_response(f->next.ctx, xid, h, first);
}

static void push_response(struct mcp_exchange *e, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	if (!e->body)
		return;
	e->last = *at;
	body_push(e->body, ptr, len, at);
	weigh(e);
	if (e->foreign)
		exchange_free(e);
}

static void on_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
		    const struct stamp *at)
{
	struct mcp_flow *f = ctx;
	struct mcp_exchange *e = exchange_find(f, xid);

	mcp_advance(f->table, at->ts_ns);
	if (e && side == HTTP_REQUEST)
		push_request(e, ptr, len, at);
	else if (e)
		push_response(e, ptr, len, at);
	f->next.on_body(f->next.ctx, xid, side, ptr, len, at);
}

static void on_body_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
			const struct stamp *at)
{
	struct mcp_flow *f = ctx;
	struct mcp_exchange *e = exchange_find(f, xid);

	mcp_advance(f->table, at->ts_ns);
	if (e && side == HTTP_REQUEST) {
		request_gap(e, why == HTTP_GAP_CAPPED);
	} else if (e) {
		lose(e, at->ts_ns);
		if (e->body)
			body_gap(e->body, len);
	}
	f->next.on_body_gap(f->next.ctx, xid, side, len, why, at);
}

/* What the response said of requests that no message of it answers. */
static void end_unanswered(struct mcp_exchange *e, uint64_t ns)
{
	const char *undecoded = e->body ? body_undecoded(e->body) : "";
	struct mcp *t = e->flow->table;
	char status[16];

	if (!e->requests)
		return;
	snprintf(status, sizeof(status), "%d", e->status);
	for (struct mcp_request *r = e->requests; r; r = r->of_exchange) {
		if (e->status >= 400)
			r->call.error = mcp_copy(t, sv_of(status), sizeof(status));
		else if (undecoded[0])
			r->call.undecoded = mcp_copy(t, sv_of(undecoded), 64);
	}
	if (e->status >= 400 || undecoded[0])
		end_requests(e, END_COMPLETE, ns);
	else if (e->missing)
		end_requests(e, END_CAPTURE_LOSS, ns);
	else if (!e->session || !e->session->shared)
		end_requests(e, END_SERVER_ABORT, ns);
}

static void on_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct mcp_flow *f = ctx;
	struct mcp_exchange *e = exchange_find(f, xid);

	mcp_advance(f->table, at->ts_ns);
	if (e && e->body && !body_finish(e->body) && e->requests)
		body_cut(e->body);
	if (e) {
		end_unanswered(e, at->ts_ns);
		exchange_free(e);
	}
	f->next.on_response_end(f->next.ctx, xid, carried, at);
}

static void on_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	struct mcp_flow *f = ctx;
	struct mcp_exchange *e = exchange_find(f, xid);

	mcp_advance(f->table, ts_ns);
	if (e) {
		end_requests(e, mcp_end_of_abort(why), ts_ns);
		exchange_free(e);
	}
	f->next.on_abort(f->next.ctx, xid, why, carried, ts_ns);
}

struct http_sink mcp_http_sink(struct mcp_flow *f, const struct http_sink *next)
{
	f->next = *next;
	return (struct http_sink){
		.ctx = f,
		.on_request = on_request,
		.on_body = on_body,
		.on_body_gap = on_body_gap,
		.on_request_end = on_request_end,
		.on_response = on_response,
		.on_response_end = on_response_end,
		.on_abort = on_abort,
	};
}
