/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "exchange.h"

#include <stdlib.h>

/* Before uthash: no memory is an answer there, not an exit. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "answer.h"
#include "base/err.h"
#include "client.h"
#include "dialect.h"
#include "request.h"
#include "retry.h"
#include "text.h"

#define SETUP_MAX_AGE_NS   50000000ull /* a connection opened longer before its first call was not opened for it */
#define HOST_BYTES_MAX	   255
#define MAIN_PROCESSES_MAX 4096

/* All of an exchange but its framing. */
struct pending {
	struct pending *prev, *next; /* of exchanges.silent */
	struct entry *entry;
	uint64_t last_ns;	       /* when it was last heard of */
	struct call call;	       /* what is known from the request; the answer's part is added by report() */
	const struct dialect *dialect; /* NULL: an orphan that has not said yet what it is */
	struct request *request;       /* NULL after its end */
	struct request_facts facts;
	struct client client;
	struct answer *answer;
	bool count_path;
	bool first_call; /* of its connection */
	bool denied;	 /* the request is none of a model call, whatever its path */
	bool retransmits_known;
	uint32_t retransmits; /* of the socket when it began */
};

/* One exchange of one connection. Without `pending` its call was evicted and only later bytes are counted. */
struct entry {
	struct entry_key {
		struct exchange_flow *flow;
		uint64_t xid;
	} key;
	UT_hash_handle hh;
	struct entry *prev, *next; /* of exchange_flow.entries */
	struct pending *pending;
};

struct exchange_flow {
	struct exchanges *table;
	const struct exchange_conn *conn;
	struct entry *entries;
	unsigned calls;
	bool used;  /* it carried an exchange before */
	bool asked; /* ... whose request was seen */
};

/* Processes that made calls with tools: beside such a main session small calls without tools are auxiliary. */
struct main_process {
	struct main_key {
		uint32_t tgid, exec_id;
		uint64_t start_ns;
	} key;
	UT_hash_handle hh;
};

struct exchanges {
	struct exchange_config cfg;
	struct lost *lost;
	struct exchange_sink sink;
	struct entry *entries;	/* hash */
	struct pending *silent; /* list, longest silent first */
	unsigned pending_count, open_calls;
	uint64_t now_ns;	/* latest stamp seen */
	uint64_t next_sweep_ns; /* 0: no stamp seen yet */
	uint64_t last_id;
	struct main_process *mains; /* hash, oldest first */
	struct retries retries;
};

/* --- life
 * ------------------------------------------------------------------------------------------------------------- */

static void pending_free(struct exchanges *t, struct pending *p)
{
	DL_DELETE(t->silent, p);
	t->pending_count--;
	t->open_calls -= p->dialect != NULL;
	p->entry->pending = NULL;
	request_free(p->request);
	answer_free(p->answer);
	call_release(&p->call);
	free(p);
}

static void entry_free(struct exchanges *t, struct entry *e)
{
	if (e->pending)
		pending_free(t, e->pending);
	HASH_DEL(t->entries, e);
	DL_DELETE(e->key.flow->entries, e);
	free(e);
}

static struct entry *entry_find(struct exchange_flow *f, uint64_t xid)
{
	struct entry_key key = {f, xid};
	struct entry *e = NULL;

	if (f->entries)
		HASH_FIND(hh, f->table->entries, &key, sizeof(key), e);
	return e;
}

static void touch(struct exchanges *t, struct pending *p)
{
	p->last_ns = t->now_ns;
	DL_DELETE(t->silent, p);
	DL_APPEND(t->silent, p);
}

/* NULL: no memory, counted. */
static struct pending *pending_new(struct exchange_flow *f, uint64_t xid)
{
	struct exchanges *t = f->table;
	struct entry *e = calloc(1, sizeof(*e));
	struct pending *p = e ? calloc(1, sizeof(*p)) : NULL;

	if (!p)
		goto fail;
	e->key = (struct entry_key){f, xid};
	HASH_ADD(hh, t->entries, key, sizeof(e->key), e);
	if (!e->hh.tbl)
		goto fail;
	DL_APPEND(f->entries, e);
	e->pending = p;
	p->entry = e;
	call_init(&p->call);
	p->facts = (struct request_facts){.counts = {-1, -1, -1, -1, -1}, .stream = -1};
	p->client.retry_count = -1;
	p->last_ns = t->now_ns;
	DL_APPEND(t->silent, p);
	t->pending_count++;
	return p;
fail:
	free(p);
	free(e);
	t->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

/* --- class
 * ------------------------------------------------------------------------------------------------------------ */

static struct main_key main_key_of(const struct call *c)
{
	return (struct main_key){c->conn.tgid, c->conn.exec_id, c->conn.start_ns};
}

static bool has_main_session(struct exchanges *t, const struct call *c)
{
	struct main_key key = main_key_of(c);
	struct main_process *m;

	HASH_FIND(hh, t->mains, &key, sizeof(key), m);
	return m != NULL;
}

static void note_main_session(struct exchanges *t, const struct call *c)
{
	struct main_process *m;

	if (has_main_session(t, c))
		return;
	if (HASH_COUNT(t->mains) >= MAIN_PROCESSES_MAX) {
		m = t->mains;
		HASH_DEL(t->mains, m);
		free(m);
	}
	m = calloc(1, sizeof(*m));
	if (!m)
		return; /* at worst an auxiliary call is shown as a main one */
	m->key = main_key_of(c);
	HASH_ADD(hh, t->mains, key, sizeof(m->key), m);
	if (!m->hh.tbl)
		free(m);
}

/* In the order of the contract: path, prewarm, the client's word, agent ids, shape. */
static enum call_class classify(struct exchanges *t, const struct pending *p, const struct call *c)
{
	const struct request_facts *f = &p->facts;
	enum call_class stated;

	if (p->count_path)
		return CALL_COUNT;
	if (f->no_generate || c->request.max_tokens == 0)
		return CALL_PREWARM;
	if (p->client.class_stated)
		return p->client.class;
	if (client_class_of_kind(sv_of(f->kind), &stated))
		return stated;
	if (p->client.subagent)
		return CALL_SUBAGENT;
	if (c->request.tools == 0 && (f->json_schema || (c->request.messages >= 0 && c->request.messages <= 3)) &&
	    has_main_session(t, c))
		return CALL_AUX;
	return CALL_MAIN;
}

/* --- report
 * ----------------------------------------------------------------------------------------------------------- */

/* Set-up of the connection, when this call is its first one and it was opened for it. */
static void report_setup(const struct pending *p, const struct exchange_conn *conn, struct call *c)
{
	bool connect = conn->connect_begin_ns != UNKNOWN_NS && conn->connect_end_ns != UNKNOWN_NS;
	bool tls = conn->tls_begin_ns != UNKNOWN_NS && conn->tls_end_ns != UNKNOWN_NS;
	uint64_t end = tls ? conn->tls_end_ns : conn->connect_end_ns;

	if (!p->first_call || c->mid_attach || (!connect && !tls))
		return;
	if (end < c->start_ns && c->start_ns - end > SETUP_MAX_AGE_NS)
		return;
	if (connect) {
		c->connect_begin_ns = conn->connect_begin_ns;
		c->connect_end_ns = conn->connect_end_ns;
	}
	if (tls) {
		c->tls_begin_ns = conn->tls_begin_ns;
		c->tls_end_ns = conn->tls_end_ns;
		c->tls_approximate = conn->tls_approximate;
	}
}

static void report_socket(const struct pending *p, const struct exchange_conn *conn, struct call *c)
{
	c->peer = conn->peer;
	if (!conn->bound)
		return;
	if (conn->srtt_us)
		c->srtt_us = conn->srtt_us;
	if (p->retransmits_known && conn->retransmits >= p->retransmits)
		c->retransmits = conn->retransmits - p->retransmits;
}

static void report_request(const struct pending *p, struct call *c)
{
	const struct request_facts *f = &p->facts;

	c->request = f->counts;
	c->stream = f->stream;
	c->request_truncated = f->truncated;
	if (f->undecoded[0])
		c->undecoded = (char *)f->undecoded;
	if (f->model[0])
		c->model = c->request_model = (char *)f->model;
	if (!c->session_id && f->session[0])
		c->session_id = (char *)f->session;
}

/*
 * The call as it stands: a copy whose text and arrays stay owned by p. `end_ns`: now, or when it ended.
 */
static void report(struct exchanges *t, const struct pending *p, enum end_reason end, uint64_t end_ns, struct call *out)
{
	const struct exchange_conn *conn = p->entry->key.flow->conn;

	*out = p->call;
	out->api = p->dialect->api;
	out->operation = p->dialect->operation;
	out->end = end;
	out->end_ns = end_ns;
	report_request(p, out);
	if (p->answer)
		answer_report(p->answer, out);
	if (!out->provider)
		out->provider = dialect_provider(p->dialect, SV_NONE, SV_NONE);
	if (out->ttfb_ns != UNKNOWN_NS && out->send_end_ns != UNKNOWN_NS && out->send_end_ns > out->ttfb_ns)
		out->send_end_ns = out->ttfb_ns;
	if (out->mid_attach)
		out->first_token_ns = out->first_visible_ns = out->ttfb_ns = UNKNOWN_NS;
	if (out->first_token_ns == UNKNOWN_NS)
		out->first_kind = TOKEN_NONE;
	out->class = classify(t, p, out);
	report_setup(p, conn, out);
	report_socket(p, conn, out);
	if (end == END_PROCESS_EXIT) {
		out->exit_code = conn->exit_code;
		out->exit_signal = conn->exit_signal;
	}
}

/* Is it a model call? The path alone proposes it; a body that says otherwise, and an answer that says nothing, deny it.
 */
static bool is_call(const struct pending *p)
{
	return p->dialect && !(p->denied && !(p->answer && answer_confirmed(p->answer)));
}

static void emit(struct exchanges *t, struct pending *p, enum end_reason end, uint64_t end_ns)
{
	uint64_t identity;
	struct call c;

	if (!is_call(p)) {
		p->entry->key.flow->calls -= p->dialect != NULL;
		return;
	}
	report(t, p, end, end_ns, &c);
	identity = retry_identity(&c, p->facts.hash);
	retry_link(&t->retries, &c, identity, true);
	if (c.attempt == 1 && p->client.retry_count > 0)
		c.attempt = p->client.retry_count + 1; /* the first ones were not seen */
	t->sink.on_call(t->sink.ctx, &c);
	retry_note(&t->retries, &c, identity);
}

static char *copy(struct exchanges *t, struct sv text, size_t max)
{
	char *out = text_dup(text, max);

	if (!out && text.len && text.ptr[0])
		t->lost->n[LOST_NO_MEMORY]++;
	return out;
}

static void request_done(struct exchanges *t, struct pending *p, bool ended)
{
	struct request_facts *f = &p->facts;
	struct call c;

	if (!p->request)
		return;
	request_report(p->request, ended, f);
	request_free(p->request);
	p->request = NULL;
	/* It could be read whole, or is no JSON, and has none of the keys that a call has. An upgrade has no body. */
	p->denied = ended && !f->marks && !f->truncated && !f->lossy && !f->undecoded[0] && p->call.method &&
		    strcmp(p->call.method, "POST") == 0;
	c = p->call;
	report_request(p, &c);
	if (!p->denied && c.request.tools > 0 && classify(t, p, &c) == CALL_MAIN)
		note_main_session(t, &c);
}

static void finish(struct exchanges *t, struct entry *e, enum end_reason end, uint64_t end_ns)
{
	if (e->pending)
		emit(t, e->pending, end, end_ns);
	entry_free(t, e);
}

/* --- eviction
 * --------------------------------------------------------------------------------------------------------- */

/* The record goes out now; the stub stays until the protocol says that the exchange ended. */
static void evict(struct exchanges *t, struct pending *p, uint64_t at_ns)
{
	request_done(t, p, false);
	if (is_call(p))
		t->lost->evicted_calls++;
	emit(t, p, END_EVICTED, at_ns);
	pending_free(t, p);
}

/* Event time only: a sweep happens at the times it is due, whatever comes between them, live and in a replay. */
static void advance(struct exchanges *t, uint64_t ns)
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
		evict(t, t->silent, at);
}

static void make_room(struct exchanges *t)
{
	if (t->pending_count < EXCHANGE_MAX)
		return;
	t->lost->n[LOST_NO_MEMORY]++;
	evict(t, t->silent, t->now_ns);
}

/* --- requests
 * --------------------------------------------------------------------------------------------------------- */

/* A WebSocket handshake for a model's path is its only trace until that protocol is read. */
static bool is_upgrade(const struct http_head *h)
{
	return sv_eq(h->method, SV("GET")) && sv_ieq(http_header_get(h, "upgrade"), SV("websocket"));
}

static void begin_call(struct exchange_flow *f, struct pending *p, const struct dialect *d)
{
	p->dialect = d;
	p->first_call = f->calls == 0;
	p->call.id = ++f->table->last_id;
	f->calls++;
	f->table->open_calls++;
}

static void fill_request(struct exchanges *t, struct pending *p, const struct http_head *h)
{
	struct sv host = sv_trim(h->host);
	struct call *c = &p->call;

	client_identify(h, &p->client);
	c->protocol = h->protocol;
	c->method = copy(t, h->method, 32);
	c->path = client_path(h->target);
	t->lost->n[LOST_NO_MEMORY] += !c->path && h->target.len;
	c->host = copy(t, host, HOST_BYTES_MAX);
	c->provider = dialect_provider(p->dialect, host, client_plain_path(h->target));
	c->session_id = copy(t, sv_of(p->client.session), EXCHANGE_ID_MAX);
	c->agent_id = copy(t, sv_of(p->client.agent), EXCHANGE_ID_MAX);
	c->parent_agent_id = copy(t, sv_of(p->client.parent_agent), EXCHANGE_ID_MAX);
	p->request = request_new(p->dialect, http_header_get(h, "content-encoding"), t->lost);
	t->lost->n[LOST_NO_MEMORY] += !p->request;
}

static void fill_conn(struct exchange_flow *f, struct pending *p, const struct stamp *first)
{
	struct call *c = &p->call;

	c->conn = f->conn->key;
	c->conn_id = f->conn->conn_id;
	c->tid = first->tid;
	/* Not yet bound, but seen from its first byte: all that the socket will have counted counts here. */
	p->retransmits_known = f->conn->bound || (f->conn->fresh && !f->used);
	p->retransmits = f->conn->bound ? f->conn->retransmits : 0;
}

static void note_lost(struct call *c, uint64_t len)
{
	c->lossy = true;
	if (len > INT64_MAX || c->lost_bytes < 0 || (uint64_t)c->lost_bytes > INT64_MAX - len)
		c->lost_bytes = UNKNOWN_COUNT;
	else
		c->lost_bytes += (int64_t)len;
}

static void on_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct exchange_flow *f = ctx;
	struct exchanges *t = f->table;
	enum call_class class = CALL_MAIN;
	const struct dialect *d = NULL;
	struct pending *p;

	advance(t, first->ts_ns);
	f->asked |= h != NULL;
	if (h)
		d = dialect_by_path(is_upgrade(h) ? SV("POST") : h->method, client_plain_path(h->target), &class);
	if ((h && !d) || entry_find(f, xid)) {
		f->used = true;
		return;
	}
	make_room(t);
	p = pending_new(f, xid);
	if (!p)
		return;
	fill_conn(f, p, first);
	f->used = true;
	p->count_path = class == CALL_COUNT;
	p->call.mid_attach = !h;
	/* The start of this connection was seen, or a request on it: this one is not old, it was lost. */
	if (!h && (f->conn->fresh || f->asked))
		note_lost(&p->call, UINT64_MAX);
	/* The first byte seen, where the request was not. */
	p->call.start_ns = h ? first->entry_ns : first->ts_ns;
	if (!h)
		return;
	begin_call(f, p, d);
	fill_request(t, p, h);
}

static void on_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct exchange_flow *f = ctx;
	struct entry *e;

	advance(f->table, at->ts_ns);
	e = entry_find(f, xid);
	if (!e || !e->pending)
		return;
	touch(f->table, e->pending);
	e->pending->call.request_bytes = (int64_t)carried;
	e->pending->call.send_end_ns = at->ts_ns;
	request_done(f->table, e->pending, true);
}

/* --- responses
 * -------------------------------------------------------------------------------------------------------- */

static void start_answer(struct exchanges *t, struct pending *p, const struct http_head *h)
{
	struct answer_config cfg = {.dialect = p->dialect, .content = t->cfg.content};

	/* What the request wants is wanted now: the answer may begin before the request is at its end. */
	if (p->request)
		request_report(p->request, false, &p->facts);
	cfg.stream_asked = p->facts.stream == 1;
	p->answer = answer_new(&cfg, h, t->lost);
	t->lost->n[LOST_NO_MEMORY] += !p->answer;
}

static void on_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct exchange_flow *f = ctx;
	struct pending *p;
	struct entry *e;

	advance(f->table, first->ts_ns);
	e = entry_find(f, xid);
	p = e ? e->pending : NULL;
	if (!p || p->answer)
		return;
	touch(f->table, p);
	p->call.status = h->status;
	p->call.ttfb_ns = first->ts_ns;
	if (!p->call.protocol)
		p->call.protocol = h->protocol;
	start_answer(f->table, p, h);
}

/* An orphan that said what it is becomes a call; one that is none is forgotten. */
static void look_at_orphan(struct exchange_flow *f, struct entry *e)
{
	struct pending *p = e->pending;

	if (p->dialect || !p->answer)
		return;
	if (answer_dialect(p->answer))
		begin_call(f, p, answer_dialect(p->answer));
	else if (answer_rejected(p->answer))
		entry_free(f->table, e);
}

static void on_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
		    const struct stamp *at)
{
	struct exchange_flow *f = ctx;
	struct pending *p;
	struct entry *e;

	advance(f->table, at->ts_ns);
	e = entry_find(f, xid);
	if (!e)
		return;
	p = e->pending;
	if (!p) {
		f->table->lost->late_bytes += len;
		return;
	}
	touch(f->table, p);
	if (side == HTTP_REQUEST) {
		if (p->request)
			request_push(p->request, ptr, len, at);
		return;
	}
	if (!p->answer)
		start_answer(f->table, p, NULL);
	if (!p->answer)
		return;
	answer_push(p->answer, ptr, len, at);
	look_at_orphan(f, e);
}

static void on_body_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
			const struct stamp *at)
{
	bool capped = side == HTTP_REQUEST && why == HTTP_GAP_CAPPED;
	struct exchange_flow *f = ctx;
	struct pending *p;
	struct entry *e;

	advance(f->table, at->ts_ns);
	e = entry_find(f, xid);
	p = e ? e->pending : NULL;
	if (!p)
		return;
	touch(f->table, p);
	if (!capped)
		note_lost(&p->call, len);
	if (side == HTTP_REQUEST) {
		if (p->request)
			request_gap(p->request, len, capped);
		return;
	}
	if (!p->answer)
		start_answer(f->table, p, NULL);
	if (p->answer)
		answer_gap(p->answer);
	look_at_orphan(f, e);
}

static void on_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct exchange_flow *f = ctx;
	struct pending *p;
	struct entry *e;

	advance(f->table, at->ts_ns);
	e = entry_find(f, xid);
	p = e ? e->pending : NULL;
	if (p) {
		request_done(f->table, p, false);
		p->call.response_bytes = (int64_t)carried;
		if (p->answer)
			answer_finish(p->answer);
		if (!p->dialect && p->answer && answer_dialect(p->answer))
			begin_call(f, p, answer_dialect(p->answer));
	}
	if (e)
		finish(f->table, e, END_COMPLETE, at->ts_ns);
}

static enum end_reason end_of(enum http_abort why)
{
	switch (why) {
	case HTTP_ABORT_CLIENT:
		return END_CLIENT_ABORT;
	case HTTP_ABORT_SERVER:
		return END_SERVER_ABORT;
	case HTTP_ABORT_EXIT:
		return END_PROCESS_EXIT;
	case HTTP_ABORT_LOSS:
	case HTTP_ABORT_PARSE:
		return END_CAPTURE_LOSS;
	case HTTP_ABORT_CAPTURE_END:
		return END_CAPTURE_END;
	case HTTP_ABORT_UPGRADE:
		return END_COMPLETE;
	default:
		return END_CONNECTION_CLOSED;
	}
}

static void on_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	struct exchange_flow *f = ctx;
	struct exchanges *t = f->table;
	struct pending *p;
	struct entry *e;

	advance(t, ts_ns);
	e = entry_find(f, xid);
	p = e ? e->pending : NULL;
	if (p) {
		request_done(t, p, false);
		p->call.response_bytes = (int64_t)carried;
		p->call.unfinished = why == HTTP_ABORT_CAPTURE_END;
		if (why == HTTP_ABORT_LOSS && !p->call.lossy)
			note_lost(&p->call, UINT64_MAX);
		if (why == HTTP_ABORT_PARSE)
			p->call.undecoded = copy(t, sv_of(p->call.protocol), 32);
		if (why == HTTP_ABORT_UPGRADE) {
			p->call.protocol = "websocket";
			p->call.undecoded = copy(t, SV("websocket"), 32);
		}
	}
	if (e)
		finish(t, e, end_of(why), ts_ns);
}

/* --- the stage
 * -------------------------------------------------------------------------------------------------------- */

struct exchanges *exchanges_new(const struct exchange_config *cfg, struct lost *lost, const struct exchange_sink *sink)
{
	struct exchanges *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->cfg = *cfg;
	t->lost = lost;
	t->sink = *sink;
	return t;
}

void exchanges_free(struct exchanges *t)
{
	struct entry *e, *next_entry;
	struct main_process *m, *next_main;

	if (!t)
		return;
	HASH_ITER (hh, t->entries, e, next_entry)
		entry_free(t, e);
	HASH_ITER (hh, t->mains, m, next_main) {
		HASH_DEL(t->mains, m);
		free(m);
	}
	free(t);
}

struct exchange_flow *exchanges_conn_new(struct exchanges *t, const struct exchange_conn *conn)
{
	struct exchange_flow *f = calloc(1, sizeof(*f));

	if (!f) {
		t->lost->n[LOST_NO_MEMORY]++;
		return NULL;
	}
	f->table = t;
	f->conn = conn;
	return f;
}

void exchanges_conn_free(struct exchange_flow *f)
{
	if (!f)
		return;
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

unsigned exchanges_conn_calls(const struct exchange_flow *f)
{
	return f->calls;
}

void exchanges_tick(struct exchanges *t, uint64_t now_ns)
{
	advance(t, now_ns);
}

void exchanges_each_open(struct exchanges *t, uint64_t now_ns, void (*fn)(void *ctx, const struct call *c), void *ctx)
{
	struct pending *p;

	DL_FOREACH (t->silent, p) {
		struct call c;

		if (!is_call(p))
			continue;
		if (p->request)
			request_report(p->request, false, &p->facts);
		report(t, p, END_COMPLETE, now_ns, &c);
		c.unfinished = true;
		retry_link(&t->retries, &c, retry_identity(&c, p->facts.hash), false);
		fn(ctx, &c);
	}
}

unsigned exchanges_open_count(const struct exchanges *t)
{
	return t->open_calls;
}
