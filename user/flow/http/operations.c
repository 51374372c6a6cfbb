/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "operations.h"

#include <stdlib.h>

#include <utlist.h>

#include "base/hash.h"
#include "flow/llm/client.h"
#include "flow/llm/ended.h"
#include "flow/llm/text.h"
#include "graphql.h"
#include "route.h"

#define METHOD_BYTES_MAX 32
#define HOST_BYTES_MAX	 255

struct open_operation {
	struct open_key {
		struct operation_flow *flow;
		uint64_t xid;
	} key;
	UT_hash_handle hh;
	struct open_operation *prev, *next;	  /* of operations.silent */
	struct open_operation *of_prev, *of_flow; /* of operation_flow.open */
	uint64_t last_ns;
	bool kept_back; /* not handed on */
	bool was_call;
	bool hole[2]; /* of unknown length, by enum http_side */
	bool doubted; /* the response may be another request's */
	struct stamp first;
	struct graphql *graphql; /* its body is read */
	struct http_operation o;
};

struct operation_flow {
	struct operations *table;
	const struct operation_conn *conn;
	struct http_sink next;
	struct open_operation *open;
};

struct operations {
	struct operations_config cfg;
	struct lost *lost;
	struct operations_sink sink;
	struct open_operation *open;   /* hash */
	struct open_operation *silent; /* list, longest silent first */
	uint64_t now_ns;	       /* latest stamp seen */
	uint64_t next_sweep_ns;	       /* 0: no stamp seen yet */
	uint64_t last_id;
};

/* --- life -------------------------------------------------------------------------------------------------------- */

static struct open_operation *find(struct operation_flow *f, uint64_t xid)
{
	struct open_key key;
	struct open_operation *e;

	memset(&key, 0, sizeof(key));
	key.flow = f;
	key.xid = xid;
	HASH_FIND(hh, f->table->open, &key, sizeof(key), e);
	return e;
}

static void release(struct open_operation *e)
{
	graphql_free(e->graphql);
	free(e->o.method);
	free(e->o.host);
	free(e->o.path);
	free(e->o.route);
	free(e->o.label);
	free(e);
}

static void drop(struct open_operation *e)
{
	struct operation_flow *f = e->key.flow;

	HASH_DEL(f->table->open, e);
	DL_DELETE(f->table->silent, e);
	DL_DELETE2(f->open, e, of_prev, of_flow);
	release(e);
}

static struct open_operation *begin(struct operation_flow *f, uint64_t xid, const struct stamp *first)
{
	struct operations *t = f->table;
	struct open_operation *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->key.flow = f;
	e->key.xid = xid;
	HASH_ADD(hh, t->open, key, sizeof(e->key), e);
	if (!e->hh.tbl) {
		free(e);
		return NULL;
	}
	DL_APPEND(t->silent, e);
	DL_APPEND2(f->open, e, of_prev, of_flow);
	e->last_ns = t->now_ns;
	e->first = *first;
	e->o = (struct http_operation){.id = ++t->last_id,
				       .tid = first->tid,
				       .ttfb_ns = UNKNOWN_NS,
				       .request_bytes = UNKNOWN_COUNT,
				       .response_bytes = UNKNOWN_COUNT};
	return e;
}

static void touch(struct open_operation *e)
{
	struct operations *t = e->key.flow->table;

	e->last_ns = t->now_ns;
	DL_DELETE(t->silent, e);
	DL_APPEND(t->silent, e);
}

/* --- what it comes to -------------------------------------------------------------------------------------------- */

/* A server's read may have begun long before there was anything to read. */
static struct http_operation report(const struct open_operation *e, enum end_reason end, uint64_t end_ns)
{
	const struct operation_conn *c = e->key.flow->conn;
	struct http_operation o = e->o;

	o.conn = c->key;
	o.conn_id = c->conn_id;
	o.peer = c->peer;
	o.server = c->server;
	o.start_ns = o.mid_attach || o.server ? e->first.ts_ns : e->first.entry_ns;
	if (!o.label && e->graphql && graphql_name(e->graphql)[0])
		o.label = (char *)graphql_name(e->graphql);
	o.end = end;
	o.end_ns = end_ns;
	if (e->hole[HTTP_REQUEST])
		o.request_bytes = UNKNOWN_COUNT;
	if (e->hole[HTTP_RESPONSE])
		o.response_bytes = UNKNOWN_COUNT;
	return o;
}

static bool is_call(const struct open_operation *e)
{
	const struct operation_flow *f = e->key.flow;
	const struct operations_sink *sink = &f->table->sink;

	if (f->conn->server)
		return false;
	return e->was_call || (sink->is_call && sink->is_call(sink->ctx, f->conn->conn_id, e->key.xid));
}

static void finish(struct open_operation *e, enum end_reason end, uint64_t end_ns)
{
	struct operations *t = e->key.flow->table;
	struct http_operation o;

	if (!is_call(e)) {
		o = report(e, end, end_ns);
		t->sink.on_operation(t->sink.ctx, &o);
	}
	drop(e);
}

/* Event time only, as the exchanges do it. */
static void advance(struct operations *t, uint64_t ns)
{
	uint64_t every = t->cfg.sweep_ns ? t->cfg.sweep_ns : 1, at;

	if (ns == UNKNOWN_NS || ns <= t->now_ns)
		return;
	t->now_ns = ns;
	if (!t->next_sweep_ns)
		t->next_sweep_ns = ns + every;
	if (ns < t->next_sweep_ns)
		return;
	at = t->next_sweep_ns + (ns - t->next_sweep_ns) / every * every;
	t->next_sweep_ns = at + every;
	while (t->silent && t->silent->last_ns <= at && at - t->silent->last_ns >= t->cfg.stale_ns)
		finish(t->silent, END_EVICTED, at);
}

static void make_room(struct operations *t)
{
	if (HASH_COUNT(t->open) < OPERATIONS_MAX)
		return;
	t->lost->n[LOST_NO_MEMORY]++;
	finish(t->silent, END_EVICTED, t->now_ns);
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

static char *copy(struct operations *t, struct sv text, size_t max)
{
	char *copied = text_dup(text, max);

	t->lost->n[LOST_NO_MEMORY] += !copied && text.len;
	return copied;
}

static void fill_target(struct operations *t, struct open_operation *e, struct sv target)
{
	char route[ROUTE_MAX + 1];
	size_t len = route_of_path(route, client_plain_path(target));

	if (!target.ptr)
		return;
	e->o.path = client_path(target);
	t->lost->n[LOST_NO_MEMORY] += !e->o.path && target.len;
	e->o.route = copy(t, (struct sv){route, len}, ROUTE_MAX);
	e->o.label = copy(t, route_label_of_target(client_origin_form(target)), ROUTE_LABEL_MAX);
}

static bool is_json_post(const struct http_head *h)
{
	struct sv rest, type = sv_trim(sv_cut(http_header_get(h, "content-type"), ';', &rest));

	return sv_eq(h->method, SV("POST")) && !http_header_get(h, "content-encoding").len &&
	       (sv_ieq(type, SV("application/json")) || sv_ieq(type, SV("application/graphql+json")));
}

static void fill(struct operations *t, struct open_operation *e, const struct http_head *h)
{
	e->o.protocol = h->protocol;
	e->o.method = copy(t, h->method, METHOD_BYTES_MAX);
	e->o.host = copy(t, sv_trim(h->host), HOST_BYTES_MAX);
	fill_target(t, e, h->target);
	if (e->o.label || !is_json_post(h) || !route_is_graphql(client_plain_path(h->target)))
		return;
	e->graphql = graphql_new();
	t->lost->n[LOST_NO_MEMORY] += !e->graphql;
}

static void on_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct operation_flow *f = ctx;
	struct operations *t = f->table;
	bool server = f->conn->server;
	struct open_operation *e;

	if (!server)
		f->next.on_request(f->next.ctx, xid, h, first);
	advance(t, first->ts_ns);
	if (find(f, xid))
		return;
	make_room(t);
	e = begin(f, xid, first);
	if (!e) {
		t->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	e->kept_back = server;
	if (h) {
		fill(t, e, h);
	} else {
		e->o.mid_attach = true;
		e->o.tid = 0;
		e->o.lossy = f->conn->fresh;
	}
}

/* Time passes, which may evict it. *kept_back: `next` does not know of it. */
static struct open_operation *at(struct operation_flow *f, uint64_t xid, uint64_t ts_ns, bool *kept_back)
{
	struct open_operation *e = find(f, xid);

	*kept_back = e ? e->kept_back : f->conn->server;
	if (!e)
		return NULL;
	advance(f->table, ts_ns);
	e = find(f, xid);
	if (e)
		touch(e);
	return e;
}

static void on_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
		    const struct stamp *stamp)
{
	struct operation_flow *f = ctx;
	bool kept_back;
	struct open_operation *e = at(f, xid, stamp->ts_ns, &kept_back);

	if (!kept_back)
		f->next.on_body(f->next.ctx, xid, side, ptr, len, stamp);
	if (e && e->graphql && side == HTTP_REQUEST)
		graphql_push(e->graphql, ptr, len);
}

static void on_body_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
			const struct stamp *stamp)
{
	struct operation_flow *f = ctx;
	bool kept_back;
	struct open_operation *e = at(f, xid, stamp->ts_ns, &kept_back);

	if (!kept_back)
		f->next.on_body_gap(f->next.ctx, xid, side, len, why, stamp);
	if (!e)
		return;
	e->hole[side] |= len == UINT64_MAX;
	e->o.lossy |= why != HTTP_GAP_CAPPED && !e->o.mid_attach;
	if (why == HTTP_GAP_DOUBT) {
		e->doubted = true;
		e->o.status = 0;
		e->o.ttfb_ns = UNKNOWN_NS;
	}
	if (e->graphql && side == HTTP_REQUEST)
		graphql_gap(e->graphql);
}

static void on_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *stamp)
{
	struct operation_flow *f = ctx;
	bool kept_back;
	struct open_operation *e = at(f, xid, stamp->ts_ns, &kept_back);

	if (!kept_back)
		f->next.on_request_end(f->next.ctx, xid, carried, stamp);
	if (e)
		e->o.request_bytes = (int64_t)carried;
}

/* --- responses --------------------------------------------------------------------------------------------------- */

static void on_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct operation_flow *f = ctx;
	bool kept_back;
	struct open_operation *e = at(f, xid, first->ts_ns, &kept_back);

	if (!kept_back)
		f->next.on_response(f->next.ctx, xid, h, first);
	if (!e || e->o.ttfb_ns != UNKNOWN_NS || e->doubted)
		return;
	e->o.status = h->status;
	e->o.ttfb_ns = first->ts_ns;
	e->o.response_tid = first->tid;
	if (!e->o.protocol)
		e->o.protocol = h->protocol;
}

static void on_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *stamp)
{
	struct operation_flow *f = ctx;
	bool kept_back;
	struct open_operation *e = at(f, xid, stamp->ts_ns, &kept_back);

	if (!kept_back)
		f->next.on_response_end(f->next.ctx, xid, carried, stamp);
	if (!e)
		return;
	e->o.response_bytes = (int64_t)carried;
	finish(e, e->doubted ? END_CAPTURE_LOSS : END_COMPLETE, stamp->ts_ns);
}

/* The connection's "client" is the program: where that serves, who closed is the other way round. */
static enum end_reason end_at(const struct operation_flow *f, enum http_abort why)
{
	if (f->conn->server && (why == HTTP_ABORT_CLIENT || why == HTTP_ABORT_SERVER))
		why = why == HTTP_ABORT_CLIENT ? HTTP_ABORT_SERVER : HTTP_ABORT_CLIENT;
	return end_of_abort(why);
}

static void on_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	struct operation_flow *f = ctx;
	bool kept_back;
	struct open_operation *e = at(f, xid, ts_ns, &kept_back);

	if (!kept_back)
		f->next.on_abort(f->next.ctx, xid, why, carried, ts_ns);
	if (!e)
		return;
	if (e->o.ttfb_ns != UNKNOWN_NS && why != HTTP_ABORT_LOSS)
		e->o.response_bytes = (int64_t)carried;
	e->o.lossy |= why == HTTP_ABORT_LOSS && !e->o.mid_attach;
	finish(e, end_at(f, why), ts_ns);
}

/* --- connections and the table ----------------------------------------------------------------------------------- */

struct operation_flow *operations_conn_new(struct operations *t, const struct operation_conn *conn)
{
	struct operation_flow *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->table = t;
	f->conn = conn;
	return f;
}

void operations_conn_free(struct operation_flow *f)
{
	if (!f)
		return;
	while (f->open)
		drop(f->open);
	free(f);
}

struct http_sink operations_http_sink(struct operation_flow *f, const struct http_sink *next)
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

void operations_was_call(struct operation_flow *f, uint64_t xid)
{
	struct open_operation *e = find(f, xid);

	if (e)
		e->was_call = true;
}

struct operations *operations_new(const struct operations_config *cfg, struct lost *lost,
				  const struct operations_sink *sink)
{
	struct operations *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->cfg = *cfg;
	t->lost = lost;
	t->sink = *sink;
	return t;
}

void operations_free(struct operations *t)
{
	struct open_operation *e, *next;

	if (!t)
		return;
	HASH_ITER (hh, t->open, e, next)
		drop(e);
	free(t);
}

void operations_tick(struct operations *t, uint64_t now_ns)
{
	advance(t, now_ns);
}

void operations_each_open(struct operations *t, uint64_t now_ns, void (*fn)(void *ctx, const struct http_operation *o),
			  void *ctx)
{
	struct open_operation *e;

	DL_FOREACH (t->silent, e) {
		struct http_operation o;

		if (is_call(e))
			continue;
		o = report(e, END_COMPLETE, now_ns);
		o.unfinished = true;
		fn(ctx, &o);
	}
}
