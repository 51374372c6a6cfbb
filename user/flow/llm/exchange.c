/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Exchanges as HTTP brings them. */

#include "exchange_table.h"

#include <stdlib.h>

#include "text.h"

#define HOST_BYTES_MAX 255

/* --- requests ---------------------------------------------------------------------------------------------------- */

static bool is_upgrade(const struct http_head *h)
{
	if (sv_eq(h->method, SV("CONNECT")))
		return sv_ieq(http_header_get(h, ":protocol"), SV("websocket"));
	return sv_eq(h->method, SV("GET")) && sv_ieq(http_header_get(h, "upgrade"), SV("websocket"));
}

/* Attached in the middle of an HTTP/2 connection, or after loss, parts of a head cannot be known. */
static bool is_partial(const struct http_head *h)
{
	return !h->method.ptr || !h->target.ptr;
}

/* A gateway's path says nothing: any JSON that is posted is looked at. */
static bool may_be_call(const struct http_head *h, struct sv path)
{
	struct sv rest, type = sv_trim(sv_cut(http_header_get(h, "content-type"), ';', &rest));

	if (h->method.ptr && !sv_eq(h->method, SV("POST")))
		return false;
	return (!type.len || sv_ieq(type, SV("application/json"))) && !dialect_path_excluded(path);
}

/* model=NAME of a query. */
static struct sv query_model(struct sv target)
{
	struct sv query, key, value, parameter;

	sv_cut(target, '?', &query);
	while (query.ptr) {
		parameter = sv_cut(query, '&', &query);
		key = sv_cut(parameter, '=', &value);
		if (sv_eq(key, SV("model")))
			return value;
	}
	return SV_NONE;
}

static void fill_request(struct exchanges *t, struct pending *p, const struct http_head *h)
{
	struct call *c = &p->call;

	client_identify(h, &p->client);
	c->protocol = h->protocol;
	c->method = exchanges_copy(t, h->method, 32);
	c->path = client_path(h->target);
	t->lost->n[LOST_NO_MEMORY] += !c->path && h->target.len;
	c->host = exchanges_copy(t, sv_trim(h->host), HOST_BYTES_MAX);
	c->session_id = exchanges_copy(t, sv_of(p->client.session), EXCHANGE_ID_MAX);
	c->agent_id = exchanges_copy(t, sv_of(p->client.agent), EXCHANGE_ID_MAX);
	c->parent_agent_id = exchanges_copy(t, sv_of(p->client.parent_agent), EXCHANGE_ID_MAX);
	p->anthropic_head = http_header_get(h, "anthropic-version").len != 0;
	text_percent_decode(p->path_model, sizeof(p->path_model),
			    p->path.model.ptr ? p->path.model
			    : p->upgrade      ? query_model(h->target)
					      : SV_NONE);
	p->path.model = SV_NONE;
	p->request = request_new(p->dialect, h, t->lost);
	t->lost->n[LOST_NO_MEMORY] += !p->request;
}

static void note_asked(struct exchange_flow *f, const struct stamp *first)
{
	if (f->asked_ns == UNKNOWN_NS)
		f->asked_ns = first->ts_ns;
}

/* The exchange whose request is not seen: its answer tells what it is. */
static void begin_unseen(struct exchange_flow *f, uint64_t xid, const struct stamp *first)
{
	struct pending *p = pending_new(f, xid);

	if (!p)
		return;
	pending_conn(p, first);
	p->call.start_ns = first->ts_ns; /* of the first byte seen */
	/* The start of this connection was seen, or an earlier request on it: this one is not old, it was lost. */
	p->call.request_lost = f->conn->fresh || f->asked_ns <= first->ts_ns;
	p->call.mid_attach = !p->call.request_lost;
}

/* The exchange whose request has a head that cannot be read: its answer tells what it is. */
static void begin_unreadable(struct exchange_flow *f, uint64_t xid, const struct http_head *h,
			     const struct stamp *first)
{
	struct pending *p = pending_new(f, xid);

	if (!p)
		return;
	pending_conn(p, first);
	p->call.start_ns = first->entry_ns;
	p->call.protocol = h->protocol;
	p->call.method = exchanges_copy(f->table, h->method, 32);
	p->call.path = h->target.len ? client_path(h->target) : NULL;
	p->call.undecoded = exchanges_copy(f->table, sv_of(h->protocol), 32);
}

static void begin_seen(struct exchange_flow *f, uint64_t xid, const struct http_head *h, const struct dialect *d,
		       const struct dialect_path *path, const struct stamp *first)
{
	struct pending *p = pending_new(f, xid);

	if (!p)
		return;
	pending_conn(p, first);
	p->path = *path;
	p->upgrade = is_upgrade(h);
	p->by_shape = !d && !p->upgrade;
	pending_note_unseen(p, is_partial(h));
	p->call.start_ns = first->entry_ns;
	if (d)
		pending_begin(p, d);
	fill_request(f->table, p, h);
}

static void on_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct dialect_path said = DIALECT_PATH_NONE;
	struct exchange_flow *f = ctx;
	const struct dialect *d;
	struct sv path;

	exchanges_advance(f->table, first->ts_ns);
	if (entry_find(f, xid))
		return;
	if (!h) {
		exchanges_make_room(f->table);
		begin_unseen(f, xid, first);
		return;
	}
	if (h->unreadable) {
		note_asked(f, first);
		exchanges_make_room(f->table);
		begin_unreadable(f, xid, h, first);
		return;
	}
	if (strcmp(h->protocol ? h->protocol : "", "http/2") != 0)
		note_asked(f, first);
	path = client_plain_path(h->target);
	d = is_upgrade(h) ? dialect_by_upgrade(path)
			  : dialect_by_path(h->method.ptr ? h->method : SV("POST"), path, &said);
	if (!d && !is_upgrade(h) && !may_be_call(h, path)) {
		f->used = true;
		return;
	}
	exchanges_make_room(f->table);
	begin_seen(f, xid, h, d, &said, first);
}

/* Time passes, which may evict it. NULL: it was evicted, or is none; *e: its entry, NULL when there is none. */
static struct pending *pending_at(struct exchange_flow *f, uint64_t xid, uint64_t ts_ns, struct entry **e)
{
	exchanges_advance(f->table, ts_ns);
	*e = entry_find(f, xid);
	return *e ? (*e)->pending : NULL;
}

static void on_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct exchange_flow *f = ctx;
	struct entry *e;
	struct pending *p = pending_at(f, xid, at->ts_ns, &e);

	if (!p)
		return;
	pending_touch(f->table, p);
	p->call.request_bytes = p->hole[HTTP_REQUEST] ? UNKNOWN_COUNT : (int64_t)carried;
	p->call.send_end_ns = at->ts_ns;
	pending_request_done(p, true);
	if (p->by_shape && (p->rpc || (p->denied && !p->dialect)))
		entry_free(f->table, e);
}

/* --- responses --------------------------------------------------------------------------------------------------- */

static void start_answer(struct exchanges *t, struct pending *p, const struct http_head *h)
{
	struct answer_config cfg = {.dialect = p->dialect, .guessed = p->by_shape, .content = t->cfg.content};

	/* What the request wants is wanted now: the answer may begin before the request is at its end. */
	if (p->request)
		request_report(p->request, false, &p->facts);
	cfg.stream_asked = p->path.stream >= 0	  ? p->path.stream
			   : p->facts.stream >= 0 ? p->facts.stream
						  : p->dialect && p->dialect->stream_default;
	p->answer = answer_new(&cfg, h, t->lost);
	t->lost->n[LOST_NO_MEMORY] += !p->answer;
}

static void on_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct exchange_flow *f = ctx;
	struct entry *e;
	struct pending *p = pending_at(f, xid, first->ts_ns, &e);

	if (!p || p->answer || p->doubted)
		return;
	pending_touch(f->table, p);
	p->call.status = h->status;
	p->call.ttfb_ns = first->ts_ns;
	if (!p->call.protocol)
		p->call.protocol = h->protocol;
	start_answer(f->table, p, h);
}

/* One that said what it is becomes a call; one that is none is forgotten. */
static void look_at_answer(struct exchange_flow *f, struct entry *e)
{
	struct pending *p = e->pending;

	if (p->dialect || !p->answer)
		return;
	if (answer_dialect(p->answer))
		pending_begin(p, answer_dialect(p->answer));
	else if (answer_rejected(p->answer))
		entry_free(f->table, e);
}

static void on_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
		    const struct stamp *at)
{
	struct exchange_flow *f = ctx;
	struct pending *p;
	struct entry *e;

	exchanges_advance(f->table, at->ts_ns);
	e = entry_find(f, xid);
	if (!e)
		return;
	p = e->pending;
	if (!p) {
		f->table->lost->late_bytes += len;
		return;
	}
	pending_touch(f->table, p);
	if (side == HTTP_REQUEST) {
		if (p->request)
			request_push(p->request, ptr, len, at);
		exchanges_weigh(f->table, p);
		return;
	}
	if (!p->answer && !p->doubted)
		start_answer(f->table, p, NULL);
	if (!p->answer)
		return;
	answer_push(p->answer, ptr, len, at);
	exchanges_weigh(f->table, p);
	look_at_answer(f, e);
}

/* A wrong number is worse than none. */
static void doubt_answer(struct pending *p)
{
	p->doubted = true;
	answer_free(p->answer);
	p->answer = NULL;
	p->call.status = 0;
	p->call.ttfb_ns = UNKNOWN_NS;
}

static void on_body_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
			const struct stamp *at)
{
	bool capped = side == HTTP_REQUEST && why == HTTP_GAP_CAPPED;
	struct exchange_flow *f = ctx;
	struct entry *e;
	struct pending *p = pending_at(f, xid, at->ts_ns, &e);

	if (!p)
		return;
	pending_touch(f->table, p);
	p->hole[side] |= len == UINT64_MAX;
	if (!capped)
		call_note_lost(&p->call, len);
	if (side == HTTP_REQUEST) {
		if (p->request)
			request_gap(p->request, len, capped);
		return;
	}
	if (why == HTTP_GAP_DOUBT) {
		doubt_answer(p);
		exchanges_weigh(f->table, p);
	} else if (!p->answer && !p->doubted) {
		start_answer(f->table, p, NULL);
	}
	if (p->answer)
		answer_gap(p->answer, len);
	look_at_answer(f, e);
}

static void on_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct exchange_flow *f = ctx;
	struct entry *e;
	struct pending *p = pending_at(f, xid, at->ts_ns, &e);

	if (p) {
		pending_request_done(p, false);
		p->call.response_bytes = p->hole[HTTP_RESPONSE] ? UNKNOWN_COUNT : (int64_t)carried;
		if (p->answer)
			answer_finish(p->answer);
		if (!p->dialect && p->answer && answer_dialect(p->answer))
			pending_begin(p, answer_dialect(p->answer));
		/* no message was sent: only that it was refused is of interest */
		p->denied |= p->upgrade && p->call.status < 400;
	}
	if (e)
		pending_finish(f->table, e, p && p->doubted ? END_CAPTURE_LOSS : END_COMPLETE, at->ts_ns);
}

static void on_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	struct exchange_flow *f = ctx;
	struct exchanges *t = f->table;
	struct pending *p;
	struct entry *e;

	exchanges_advance(t, ts_ns);
	e = entry_find(f, xid);
	if (!e)
		return;
	p = e->pending;
	if (p) {
		pending_request_done(p, false);
		p->call.response_bytes =
			p->hole[HTTP_RESPONSE] || why == HTTP_ABORT_LOSS ? UNKNOWN_COUNT : (int64_t)carried;
		p->call.unfinished = why == HTTP_ABORT_CAPTURE_END;
		if (why == HTTP_ABORT_LOSS && !p->call.lossy)
			call_note_lost(&p->call, UINT64_MAX);
		if (why == HTTP_ABORT_PARSE && !p->call.undecoded)
			p->call.undecoded = exchanges_copy(t, sv_of(p->call.protocol), 32);
		if (why == HTTP_ABORT_UPGRADE && p->upgrade) {
			ws_session_start(f, e, ts_ns);
			return;
		}
		if (why == HTTP_ABORT_UPGRADE)
			p->call.undecoded = exchanges_copy(t, SV("upgraded connection"), 32);
	}
	pending_finish(t, e, end_of_abort(why), ts_ns);
}

/* --- the connection ---------------------------------------------------------------------------------------------- */

struct exchange_flow *exchanges_conn_new(struct exchanges *t, const struct exchange_conn *conn)
{
	struct exchange_flow *f = calloc(1, sizeof(*f));

	if (!f) {
		t->lost->n[LOST_NO_MEMORY]++;
		return NULL;
	}
	f->table = t;
	f->conn = conn;
	f->asked_ns = UNKNOWN_NS;
	return f;
}

void exchanges_conn_free(struct exchange_flow *f)
{
	struct entry *e, *next;

	if (!f)
		return;
	do { /* ending one frees others, and never itself alone */
		DL_FOREACH_SAFE (f->entries, e, next) {
			if (e->session)
				break;
		}
		if (e)
			exchanges_ws_end(f, e->key.xid, HTTP_ABORT_CLOSED, f->table->now_ns);
	} while (e);
	while (f->entries)
		entry_free(f->table, f->entries);
	free(f);
}

struct http_sink exchanges_http_sink(struct exchange_flow *f)
{
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

bool exchanges_is_call(struct exchange_flow *f, uint64_t xid)
{
	const struct entry *e = entry_find(f, xid);

	return e && e->pending && pending_is_call(e->pending);
}

void exchanges_conn_warm(const struct exchange_flow *f, struct warm *w)
{
	const struct pending *p = f->latest ? f->latest->pending : NULL;

	warm_add(w, f, sizeof(*f));
	warm_add(w, f->latest, offsetof(struct entry, hh));
	if (!p)
		return;
	warm_add(w, p, offsetof(struct pending, call));
	if (p->answer)
		answer_warm(p->answer, w);
}

unsigned exchanges_conn_calls(const struct exchange_flow *f)
{
	return f->calls;
}
