/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "pipeline_parts.h"

#include <stdlib.h>

#define PASS_BYTES_MIN 65536 /* a body, or what is left of it, that is worth passing over */

static const enum http_abort abort_of[] = {
	[CONN_END_UNKNOWN] = HTTP_ABORT_CLOSED,	     [CONN_END_LOCAL] = HTTP_ABORT_CLIENT,
	[CONN_END_REMOTE] = HTTP_ABORT_SERVER,	     [CONN_END_EXIT] = HTTP_ABORT_EXIT,
	[CONN_END_EXEC] = HTTP_ABORT_CLOSED,	     [CONN_END_REPLACED] = HTTP_ABORT_CLOSED,
	[CONN_END_CAPTURE] = HTTP_ABORT_CAPTURE_END, [CONN_END_LIMIT] = HTTP_ABORT_LOSS,
};

/* NULL: nothing proved one yet. */
static const char *flow_protocol(const struct flow *f)
{
	enum proto_kind kind = f->proto ? proto_kind(f->proto) : PROTO_UNDECIDED;

	return kind == PROTO_UNDECIDED || kind == PROTO_OTHER ? NULL : proto_name(f->proto);
}

/* What came before the connection, once it is known which one it is. */
static void flow_look_up(struct flow *f)
{
	const struct conn *c = f->conn;

	if (f->looked_up || !c->bound || c->setup.connect_begin_ns == UNKNOWN_NS)
		return;
	f->setup = dns_find(f->p->dns, c->key.tgid, &c->remote, c->setup.connect_begin_ns);
	f->looked_up = true;
}

/* Other stages read connections through these copies, so that they need not know the conn stage. */
static void flow_copy(struct flow *f)
{
	const struct conn *c = f->conn;

	flow_look_up(f);
	f->stale = false;
	f->asked = (struct operation_conn){
		.key = c->key,
		.conn_id = c->id,
		.fresh = c->fresh,
		.server = f->proto && proto_is_server(f->proto),
		.peer = c->remote,
	};
	f->view = (struct exchange_conn){
		.key = c->key,
		.conn_id = c->id,
		.fresh = c->fresh,
		.peer = c->remote,
		.dns_begin_ns = f->setup.dns_begin_ns,
		.dns_end_ns = f->setup.dns_end_ns,
		.connect_begin_ns = f->setup.connect_begin_ns,
		.connect_end_ns = c->setup.connect_end_ns,
		.tls_begin_ns = c->setup.tls_begin_ns,
		.tls_end_ns = c->setup.tls_end_ns,
		.tls_approximate = c->setup.tls_approximate,
		.tls_resumed = c->setup.tls_resumed,
		.exit_code = c->exit_code,
		.exit_signal = c->exit_signal,
		.srtt_us = c->srtt_us,
		.rtt_min_us = c->rtt_min_us,
		.retransmits = c->retransmits,
		.reset_ns = c->reset_ns,
		.reset_sent = c->reset_sent,
		.late_at = c->late.at,
		.late_count = c->late.count,
		.network_at = c->network.at,
		.network_count = c->network.count,
		.bound = c->bound,
		.protocol = flow_protocol(f),
	};
}

static void flow_refresh(struct flow *f)
{
	if (f->stale)
		flow_copy(f);
	if (f->operations)
		f->asked.server = proto_is_server(f->proto);
	f->view.protocol = flow_protocol(f);
}

static void on_interest(void *ctx, enum interest_word word)
{
	struct flow *f = ctx;

	wires_ignore(f->p->wires, f->conn->cookie, word != INTEREST_WANTED);
	if (f->conn->halves) /* each has a generation of its own */
		halves_ignore(f->p->halves, f->conn->key.obj, word != INTEREST_WANTED);
	else if (f->p->cfg.on_interest)
		f->p->cfg.on_interest(f->p->cfg.interest_ctx, &f->conn->key, 0, word);
}

static void flow_free(struct flow *f)
{
	if (!f)
		return;
	if (f->hh.tbl)
		HASH_DEL(f->p->flows, f);
	if (f->waits)
		DL_DELETE(f->p->waiting, f);
	proto_free(f->proto);
	exchanges_conn_free(f->exchanges);
	mcp_conn_free(f->mcp);
	operations_conn_free(f->operations);
	db_free(f->db);
	free(f);
}

/* --- proto -> exchange, for WebSocket messages ------------------------------------------------------------------- */

static void on_socket_message(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	exchanges_ws_message(((struct flow *)ctx)->exchanges, xid, side, m);
}

static void on_socket_opaque(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	exchanges_ws_opaque(((struct flow *)ctx)->exchanges, xid, side, m);
}

static void on_socket_undecoded(void *ctx, uint64_t xid, enum http_side side, const struct stamp *at)
{
	exchanges_ws_undecoded(((struct flow *)ctx)->exchanges, xid, side, at);
}

static void on_socket_close(void *ctx, uint64_t xid, enum http_side side, const struct stamp *at)
{
	exchanges_ws_close(((struct flow *)ctx)->exchanges, xid, side, at);
}

static void on_socket_end(void *ctx, uint64_t xid, enum http_abort why, uint64_t ts_ns)
{
	exchanges_ws_end(((struct flow *)ctx)->exchanges, xid, why, ts_ns);
}

static void on_socket_lost(void *ctx, uint64_t xid, enum http_side side, uint64_t len, bool all, const struct stamp *at)
{
	exchanges_ws_lost(((struct flow *)ctx)->exchanges, xid, side, len, all, at);
}

static bool on_socket_found(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	return exchanges_ws_found(((struct flow *)ctx)->exchanges, xid, side, m);
}

/* --- proto -> mcp, for lines ------------------------------------------------------------------------------------- */

static void on_line_bytes(void *ctx, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	mcp_stdio_push(((struct flow *)ctx)->mcp, dir, ptr, len, at);
}

static void on_line_gap(void *ctx, enum dir dir, enum http_gap why, const struct stamp *at)
{
	mcp_stdio_gap(((struct flow *)ctx)->mcp, dir, why == HTTP_GAP_CAPPED, at);
}

static void on_line_end(void *ctx, enum http_abort why, uint64_t ts_ns)
{
	mcp_stdio_end(((struct flow *)ctx)->mcp, why, ts_ns);
}

/* --- what a connection has downstream ---------------------------------------------------------------------------- */

static int flow_add_db(struct flow *f)
{
	const struct conn_key *key = &f->conn->key;
	struct proc_key proc = {.tgid = key->tgid, .exec_id = key->exec_id, .start_ns = key->start_ns};
	const struct db_sink sink = pipeline_db_sink(f->p);

	if (!f->p->cfg.db)
		return 0;
	f->db = db_new(f->conn->fresh, &proc, &sink);
	return f->db ? 0 : -ENOMEM;
}

/* Between the protocol and all that reads exchanges. 0 or -ENOMEM. */
static int flow_add_operations(struct flow *f, struct http_sink *sink)
{
	if (!f->p->cfg.http)
		return 0;
	f->operations = operations_conn_new(f->p->operations, &f->asked);
	if (!f->operations)
		return -ENOMEM;
	*sink = operations_http_sink(f->operations, sink);
	return 0;
}

static struct flow *flow_new(struct pipeline *p, struct conn *c)
{
	struct flow *f = calloc(1, sizeof(*f));
	const struct socket_sink sockets = {f,
					    on_socket_message,
					    on_socket_opaque,
					    on_socket_undecoded,
					    on_socket_close,
					    on_socket_end,
					    on_socket_lost,
					    on_socket_found};
	struct http_sink sink;

	if (!f)
		return NULL;
	f->p = p;
	f->conn = c;
	f->conn_id = c->id;
	f->first_plain_ns = UNKNOWN_NS;
	f->setup = (struct dns_setup){UNKNOWN_NS, UNKNOWN_NS, UNKNOWN_NS};
	interest_init(&f->interest, &(struct interest_sink){.ctx = f, .on_word = on_interest});
	flow_copy(f);
	f->exchanges = exchanges_conn_new(p->exchanges, &f->view);
	f->mcp = mcp_conn_new(p->mcp, &f->view);
	if (!f->exchanges || !f->mcp)
		goto fail;
	sink = exchanges_http_sink(f->exchanges);
	sink = mcp_http_sink(f->mcp, &sink);
	if (flow_add_operations(f, &sink))
		goto fail;
	f->proto = proto_new(c->fresh, &sink);
	if (!f->proto)
		goto fail;
	if (flow_add_db(f))
		goto fail;
	proto_set_sockets(f->proto, &sockets);
	HASH_ADD(hh, p->flows, conn_id, sizeof(f->conn_id), f);
	if (!f->hh.tbl)
		goto fail;
	return f;
fail:
	flow_free(f);
	return NULL;
}

/* --- who answers where -------------------------------------------------------------------------------------------- */

static struct served_at *find_served(struct pipeline *p, const struct sock_addr *at)
{
	for (unsigned i = 0; i < SERVED_AT_MAX && p->served[i].at.family; i++) {
		if (!memcmp(&p->served[i].at, at, sizeof(*at)))
			return &p->served[i];
	}
	return NULL;
}

/* A socket may be known later than what it carries. */
static void flow_note_served(struct flow *f)
{
	const struct sock_addr *at = &f->conn->local;
	struct served_at *s;

	if (f->served_noted || !at->family || !flow_is_served(f))
		return;
	f->served_noted = true;
	s = find_served(f->p, at);
	if (!s)
		s = &f->p->served[f->p->served_count++ % SERVED_AT_MAX];
	s->at = *at;
	s->process = f->conn->key;
}

bool pipeline_answers_and_calls(struct pipeline *p, const struct sock_addr *at, uint64_t ts_ns)
{
	const struct served_at *s = at->family ? find_served(p, at) : NULL;
	const struct proc *proc = s ? procs_get(p->procs, &s->process) : NULL;

	/* Somebody else may have the port of one that ended. */
	return proc && proc->caller && proc->end_ns >= ts_ns;
}

/* --- what was read -> interest ----------------------------------------------------------------------------------- */

static void flow_push_interest(struct flow *f, enum dir dir, size_t len)
{
	unsigned calls = exchanges_conn_calls(f->exchanges), mcp = mcp_conn_begun(f->mcp);
	enum proto_kind kind = proto_kind(f->proto);
	struct interest_view view = {
		.calls = calls + mcp,
		.open_calls = (calls > f->ended_calls ? calls - f->ended_calls : 0) + mcp_conn_open(f->mcp),
		.hopeless =
			kind == PROTO_OTHER || proto_is_server(f->proto) || (f->db && db_status(f->db) == DB_SERVED),
		.heads = f->operations && (kind == PROTO_HTTP1 || kind == PROTO_HTTP2),
		.for_good = proto_is_hopeless(f->proto) && !f->operations,
		.messages = kind == PROTO_WEBSOCKET || kind == PROTO_JSONRPC,
	};

	interest_push(&f->interest, &view, dir, len);
	flow_note_served(f);
}

/* The last byte of a body is always wanted: it says when. */
static void flow_pass(struct flow *f, enum dir dir)
{
	uint64_t left = f->interest.no_bodies ? proto_body_left(f->proto, dir) : 0;
	uint64_t until = f->conn->bytes[dir] + left - 1;

	if (left < PASS_BYTES_MIN || f->passed[dir] >= until || f->conn->halves || !f->p->cfg.on_pass)
		return;
	f->passed[dir] = until;
	f->p->cfg.on_pass(f->p->cfg.interest_ctx, &f->conn->key, dir, until);
}

/* --- conn -> proto ----------------------------------------------------------------------------------------------- */

/* Somebody else's calls, which the traced program answers. A gateway makes its own to answer them. */
bool flow_is_served(const struct flow *f)
{
	return f && proto_is_server(f->proto);
}

struct flow *pipeline_flow(struct pipeline *p, uint64_t conn_id)
{
	struct flow *f;

	HASH_FIND(hh, p->flows, &conn_id, sizeof(conn_id), f);
	return f;
}

/* Of processes that make calls. */
static void flow_count(struct flow *f, enum counter_kind kind, uint64_t ts_ns, uint64_t value)
{
	const struct proc *proc = procs_get(f->p->procs, &f->conn->key);

	if (proc && (proc->caller || exchanges_conn_calls(f->exchanges)))
		pipeline_count(f->p, kind, proc->shown_pid, ts_ns, value);
}

static void on_conn_open(void *ctx, struct conn *c)
{
	struct pipeline *p = ctx;

	c->ctx = flow_new(p, c);
	if (!c->ctx)
		p->lost.n[LOST_NO_MEMORY]++;
}

static void on_conn_change(void *ctx, struct conn *c)
{
	struct flow *f = c->ctx;

	(void)ctx;
	if (!f)
		return;
	f->stale = true;
	/* Borrowed: what they were may be gone. */
	f->view.late_at = c->late.at;
	f->view.late_count = c->late.count;
	f->view.network_at = c->network.at;
	f->view.network_count = c->network.count;
}

/* After all that its protocol was told. */
static void flow_wait(struct flow *f)
{
	bool waits = proto_waits(f->proto);

	if (waits == f->waits)
		return;
	f->waits = waits;
	if (waits)
		DL_APPEND(f->p->waiting, f);
	else
		DL_DELETE(f->p->waiting, f);
}

/* What a connection is is known when its first bytes come. */
static void flow_begin(struct flow *f)
{
	const struct proto_line_sink lines = {f, on_line_bytes, on_line_gap, on_line_end};

	if (!f->begun && f->conn->stdio)
		proto_set_lines(f->proto, &lines);
	f->begun = true;
}

/* Bytes of a TLS connection were moved by functions that are probed, copied or not. */
static void flow_push_plain(struct flow *f, const struct stamp *at)
{
	const struct conn *c = f->conn;

	if (c->plain)
		return;
	if (f->first_plain_ns == UNKNOWN_NS)
		f->first_plain_ns = at->entry_ns ? at->entry_ns : at->ts_ns;
	wires_push_plain(f->p->wires, c->key.tgid, c->bound ? c->cookie : 0, f->first_plain_ns, at->ts_ns);
}

/* True: it is a database's, and nothing else. */
static bool flow_push_db(struct flow *f, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	enum proto_kind kind = proto_kind(f->proto);

	if (!f->db)
		return false;
	if (db_push(f->db, dir, ptr, len, at))
		f->p->lost.n[LOST_NO_MEMORY]++;
	if (db_status(f->db) == DB_READ) {
		interest_finish(&f->interest); /* it may have been found to be nothing before */
		return true;
	}
	if (db_status(f->db) != DB_SERVED &&
	    (db_status(f->db) == DB_NONE || (kind != PROTO_UNDECIDED && kind != PROTO_OTHER))) {
		db_free(f->db);
		f->db = NULL;
	}
	return false;
}

static bool flow_gap_db(struct flow *f, enum dir dir, uint64_t len, const struct stamp *at)
{
	if (f->db)
		db_gap(f->db, dir, len, at);
	return f->db && db_status(f->db) == DB_READ;
}

/* What the next pieces will look at is what this one did. */
static void flow_note_warm(struct flow *f)
{
	struct warm *w = &f->warm;

	if (!f->p->looks_ahead || f->pieces++ % FLOW_WARM_EVERY)
		return;
	w->count = 0;
	warm_add(w, &f->view.protocol, sizeof(f->view.protocol));
	wires_warm(f->p->wires, f->conn->bound ? f->conn->cookie : 0, w);
	proto_warm(f->proto, w);
	mcp_conn_warm(f->mcp, w);
	exchanges_conn_warm(f->exchanges, w);
}

void pipeline_soon(struct pipeline *p, const struct sv *records, unsigned record_count)
{
	struct conn_key keys[PIPELINE_SOON_MAX] = {0};
	struct conn *found[PIPELINE_SOON_MAX];
	unsigned count = 0;

	p->looks_ahead = true;
	for (unsigned i = 0; i < record_count && count < PIPELINE_SOON_MAX; i++)
		if (record_conn(records[i].ptr, records[i].len, &keys[count]) &&
		    !(count && !memcmp(&keys[count], &keys[count - 1], sizeof(keys[0]))))
			count++;
	conns_soon(p->conns, keys, count, found);
	for (unsigned i = 0; i < count; i++)
		if (found[i] && found[i]->ctx)
			warm_fetch_lines(found[i]->ctx, offsetof(struct flow, prev));
	for (unsigned i = 0; i < count; i++)
		if (found[i] && found[i]->ctx)
			warm_fetch(&((struct flow *)found[i]->ctx)->warm);
}

static void on_conn_bytes(void *ctx, struct conn *c, enum dir dir, const uint8_t *ptr, size_t len,
			  const struct stamp *at)
{
	struct pipeline *p = ctx;
	struct flow *f = c->ctx;

	if (!f)
		return;
	flow_refresh(f);
	flow_begin(f);
	flow_push_plain(f, at);
	if (flow_push_db(f, dir, ptr, len, at))
		return;
	f->view.answers_wait = dir == DIR_TX && conn_waits(c, DIR_RX);
	if (proto_push(f->proto, dir, ptr, len, at))
		p->lost.n[LOST_NO_MEMORY]++;
	flow_wait(f);
	flow_push_interest(f, dir, len);
	flow_note_warm(f);
	if (f->operations)
		flow_pass(f, dir);
}

static void on_conn_gap(void *ctx, struct conn *c, enum dir dir, uint64_t len, enum gap_why why, const struct stamp *at)
{
	struct pipeline *p = ctx;
	struct flow *f = c->ctx;

	if (!f)
		return;
	flow_refresh(f);
	flow_begin(f);
	flow_push_plain(f, at);
	if (flow_gap_db(f, dir, len, at))
		return;
	if (proto_gap(f->proto, dir, len, why == GAP_CAPPED ? HTTP_GAP_CAPPED : HTTP_GAP_LOST, at))
		p->lost.n[LOST_NO_MEMORY]++;
	flow_wait(f);
}

static void on_conn_sock(void *ctx, struct conn *c, const struct rec_sock *r)
{
	struct flow *f = c->ctx;

	(void)ctx;
	if (!f)
		return;
	flow_refresh(f);
	if (r->srtt_us && r->what == SOCK_RTT)
		flow_count(f, COUNTER_SRTT, r->ts_ns, r->srtt_us);
	if (r->what == SOCK_RETRANSMIT)
		f->retransmits[f->retransmit_count++ % FLOW_RETRANSMITS_MAX] = r->ts_ns;
}

static enum coverage_kind flow_coverage(const struct flow *f)
{
	if (f->db && db_status(f->db) != DB_UNDECIDED)
		return db_status(f->db) == DB_SERVED ? COVERAGE_SERVED : COVERAGE_DECODED;
	if (proto_is_server(f->proto))
		return COVERAGE_SERVED;
	if (f->conn->bytes[DIR_TX] + f->conn->bytes[DIR_RX] == 0 || proto_is_idle(f->proto))
		return COVERAGE_EMPTY;
	if (proto_kind(f->proto) == PROTO_JSONRPC && mcp_conn_begun(f->mcp))
		return COVERAGE_DECODED;
	return proto_undecoded(f->proto) ? COVERAGE_UNDECODED : COVERAGE_DECODED;
}

static void flow_count_coverage(struct flow *f)
{
	const struct proc *proc = procs_get(f->p->procs, &f->conn->key);
	enum coverage_kind kind = flow_coverage(f);

	if (proc)
		coverage_push_conn(f->p->coverage, proc, kind,
				   kind == COVERAGE_UNDECODED ? proto_undecoded(f->proto) : NULL);
}

/* A set-up that no call paid for is drawn by itself; one that was not completed is told by the wire. */
static void flow_push_setup(struct flow *f)
{
	const struct proc *proc = procs_get(f->p->procs, &f->conn->key);
	struct span_setup setup = {
		.shown_pid = proc ? proc->shown_pid : f->conn->key.tgid,
		.tid = f->conn->setup.tid,
		.peer = f->conn->remote,
		.dns_begin_ns = f->setup.dns_begin_ns,
		.dns_end_ns = f->setup.dns_end_ns,
		.connect_begin_ns = f->setup.connect_begin_ns,
		.connect_end_ns = f->conn->setup.connect_end_ns,
		.tls_begin_ns = f->conn->setup.tls_begin_ns,
		.tls_end_ns = f->conn->setup.tls_end_ns,
		.tls_approximate = f->conn->setup.tls_approximate,
	};
	struct span span;
	int err;

	if (f->setup_paid || wires_greeted(f->p->wires, f->conn->cookie) ||
	    (f->p->cfg.callers_only && !(proc && proc->caller)))
		return;
	err = span_from_setup(&span, &setup);
	if (!err)
		err = spans_push(f->p->spans, &span);
	if (err == -ENOMEM)
		f->p->lost.n[LOST_NO_MEMORY]++;
}

static void on_conn_end(void *ctx, struct conn *c, enum conn_end why, uint64_t ts_ns)
{
	struct pipeline *p = ctx;
	struct flow *f = c->ctx;

	if (!f)
		return;
	flow_refresh(f);
	f->view.answers_wait = false; /* what was missing was said to be */
	proto_finish(f->proto, abort_of[why], ts_ns);
	if (f->db)
		db_finish(f->db, ts_ns);
	p->lost.n[LOST_PARSE_ERRORS] += proto_errors(f->proto) + (f->db ? db_errors(f->db) : 0);
	p->lost.n[LOST_COMMANDS] += f->db ? db_dropped(f->db) : 0;
	flow_count_coverage(f);
	flow_push_setup(f);
	if (flow_is_served(f))
		mcp_conn_forget(f->mcp);
	interest_finish(&f->interest);
	flow_free(f);
	c->ctx = NULL;
}

static void on_conn_closing(void *ctx, struct conn *c, uint64_t ts_ns)
{
	struct flow *f = c->ctx;

	(void)ctx;
	/* where bytes of answers are missing nobody knows yet how these ended */
	if (f && !conn_waits(c, DIR_RX))
		exchanges_conn_closing(f->exchanges, ts_ns);
}

struct conn_sink pipeline_conn_sink(struct pipeline *p)
{
	return (struct conn_sink){
		.ctx = p,
		.on_conn_open = on_conn_open,
		.on_conn_bytes = on_conn_bytes,
		.on_conn_gap = on_conn_gap,
		.on_conn_change = on_conn_change,
		.on_conn_sock = on_conn_sock,
		.on_conn_closing = on_conn_closing,
		.on_conn_end = on_conn_end,
	};
}

static void free_flow_of(void *ctx, struct conn *c)
{
	(void)ctx;
	flow_free(c->ctx);
	c->ctx = NULL;
}

void pipeline_free_flows(struct pipeline *p)
{
	if (p->conns)
		conns_each(p->conns, free_flow_of, NULL);
}

void pipeline_tick_flows(struct pipeline *p, uint64_t now_ns)
{
	struct flow *f, *next;

	DL_FOREACH_SAFE (p->waiting, f, next) {
		proto_tick(f->proto, now_ns);
		flow_wait(f);
	}
}
