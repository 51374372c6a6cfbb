/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "base/err.h"
#include "flow/agent/verdict.h"
#include "flow/db/db.h"
#include "flow/db/sqlite.h"
#include "flow/functions.h"
#include "flow/halves.h"
#include "flow/http/operations.h"
#include "flow/interest.h"
#include "flow/llm/dialect.h"
#include "flow/llm/exchange.h"
#include "flow/llm/mcp.h"
#include "flow/profile.h"
#include "flow/proto/proto.h"

#define AGENTS_TICK_NS 1000000000ull /* of event time: how often what is past becomes final */

#define PASS_BYTES_MIN 65536 /* a body, or what is left of it, that is worth passing over */

#define FLOW_RETRANSMITS_MAX 64 /* latest retransmit times kept of one connection, for the instants on its calls */

struct pipeline {
	struct pipeline_config cfg;
	char axes[TRACE_AXES_MAX][32]; /* texts of the trace that is written */
	struct lost lost;
	struct record record;
	struct procs *procs;
	struct halves *halves;
	struct conns *conns;
	struct wires *wires;
	struct dns *dns;
	struct counters *counters;
	struct exchanges *exchanges;
	struct mcp *mcp;
	struct sqlite *sqlite;	       /* NULL: not asked for */
	struct operations *operations; /* NULL: not asked for */
	struct spans *spans;
	struct coverage *coverage;
	struct agents *agents;
	struct profile *profile;
	struct functions *functions;
	uint64_t agents_tick_ns; /* the last one */
	struct flow *flows;	 /* by connection id */
	uint64_t call_count;
};

/* What one connection owns downstream of the conn stage (conn->ctx). */
struct flow {
	struct pipeline *p;
	struct conn *conn;
	uint64_t conn_id; /* hash key */
	UT_hash_handle hh;
	bool begun;	/* bytes came */
	bool looked_up; /* setup is filled */
	struct dns_setup setup;
	bool setup_paid; /* a call drew the connection's set-up */
	struct proto *proto;
	struct exchange_conn view;
	struct exchange_flow *exchanges;
	struct mcp_flow *mcp;
	struct db *db; /* NULL: not asked for, or it is something else */
	struct operation_conn asked;
	struct operation_flow *operations; /* NULL: not asked for */
	uint64_t passed[2];		   /* by direction: as it was said last */
	struct interest interest;
	uint64_t first_plain_ns; /* entry of the first call that moved plaintext, UNKNOWN_NS: none yet */
	unsigned ended_calls;	 /* of the calls that began on it */
	uint64_t retransmits[FLOW_RETRANSMITS_MAX];
	unsigned retransmit_count; /* ever; the ring index is modulo */
};

static const enum http_abort abort_of[] = {
	[CONN_END_UNKNOWN] = HTTP_ABORT_CLOSED,	     [CONN_END_LOCAL] = HTTP_ABORT_CLIENT,
	[CONN_END_REMOTE] = HTTP_ABORT_SERVER,	     [CONN_END_EXIT] = HTTP_ABORT_EXIT,
	[CONN_END_EXEC] = HTTP_ABORT_CLOSED,	     [CONN_END_REPLACED] = HTTP_ABORT_CLOSED,
	[CONN_END_CAPTURE] = HTTP_ABORT_CAPTURE_END, [CONN_END_LIMIT] = HTTP_ABORT_LOSS,
};

/* The exchange stage reads connections through this copy, so that it need not know the conn stage. */
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

static void flow_refresh(struct flow *f)
{
	const struct conn *c = f->conn;

	flow_look_up(f);
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
	proto_free(f->proto);
	exchanges_conn_free(f->exchanges);
	mcp_conn_free(f->mcp);
	operations_conn_free(f->operations);
	db_free(f->db);
	free(f);
}

/* --- adaptors: proto -> exchange, for WebSocket messages -------------------------------------------------------- */

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

/* --- adaptors: proto -> mcp, for lines -----------------------------------------------------------------------------
 */

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

/* --- adaptors: db -> span and the views ----------------------------------------------------------------------------
 */

static void push_db(struct pipeline *p, const struct db_command *c, const struct proc *proc)
{
	struct span span;

	if (span_from_db(&span, c, proc ? proc->shown_pid : c->proc.tgid) || spans_push(p->spans, &span))
		p->lost.n[LOST_NO_MEMORY]++;
}

static void on_db(void *ctx, const struct db_command *c)
{
	struct conn_key key = {.tgid = c->proc.tgid, .start_ns = c->proc.start_ns, .exec_id = c->proc.exec_id};
	struct pipeline *p = ctx;
	const struct proc *proc = procs_get(p->procs, &key);

	push_db(p, c, proc);
	if (p->cfg.on_db)
		p->cfg.on_db(p->cfg.ctx, c, proc);
}

static int flow_add_db(struct flow *f)
{
	const struct conn_key *key = &f->conn->key;
	struct proc_key proc = {.tgid = key->tgid, .exec_id = key->exec_id, .start_ns = key->start_ns};

	if (!f->p->cfg.db)
		return 0;
	f->db = db_new(f->conn->fresh, &proc, &(struct db_sink){f->p, on_db});
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
	const struct socket_sink sockets = {
		f, on_socket_message, on_socket_opaque, on_socket_undecoded, on_socket_close, on_socket_end};
	struct http_sink sink;

	if (!f)
		return NULL;
	f->p = p;
	f->conn = c;
	f->conn_id = c->id;
	f->first_plain_ns = UNKNOWN_NS;
	f->setup = (struct dns_setup){UNKNOWN_NS, UNKNOWN_NS, UNKNOWN_NS};
	interest_init(&f->interest, &(struct interest_sink){.ctx = f, .on_word = on_interest});
	flow_refresh(f);
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

/* --- adaptors: what was read -> interest ---------------------------------------------------------------------------
 */

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

/* --- adaptors: conn -> proto ------------------------------------------------------------------------------------- */

static void on_conn_open(void *ctx, struct conn *c)
{
	struct pipeline *p = ctx;

	c->ctx = flow_new(p, c);
	if (!c->ctx)
		p->lost.n[LOST_NO_MEMORY]++;
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
	if (proto_push(f->proto, dir, ptr, len, at))
		p->lost.n[LOST_NO_MEMORY]++;
	flow_push_interest(f, dir, len);
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
}

static void count(struct pipeline *p, enum counter_kind kind, uint32_t pid, uint64_t ts_ns, uint64_t value)
{
	if (counters_push(p->counters, kind, pid, ts_ns, value))
		p->lost.n[LOST_NO_MEMORY]++;
}

/* Of processes that make calls. */
static void flow_count(struct flow *f, enum counter_kind kind, uint64_t ts_ns, uint64_t value)
{
	const struct proc *proc = procs_get(f->p->procs, &f->conn->key);

	if (proc && (proc->caller || exchanges_conn_calls(f->exchanges)))
		count(f->p, kind, proc->shown_pid, ts_ns, value);
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
	if (f->conn->bytes[DIR_TX] + f->conn->bytes[DIR_RX] == 0)
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

/* A set-up that no call paid for is drawn by itself. */
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

	if (f->setup_paid || (f->p->cfg.callers_only && !(proc && proc->caller)))
		return;
	err = span_from_setup(&span, &setup);
	if (!err)
		err = spans_push(f->p->spans, &span);
	if (err == -ENOMEM)
		f->p->lost.n[LOST_NO_MEMORY]++;
}

/* Somebody else's calls, which the traced program answers. A gateway makes its own to answer them. */
static bool is_served(const struct flow *f)
{
	return f && proto_is_server(f->proto);
}

static void on_conn_end(void *ctx, struct conn *c, enum conn_end why, uint64_t ts_ns)
{
	struct pipeline *p = ctx;
	struct flow *f = c->ctx;

	if (!f)
		return;
	flow_refresh(f);
	proto_finish(f->proto, abort_of[why], ts_ns);
	if (f->db)
		db_finish(f->db, ts_ns);
	p->lost.n[LOST_PARSE_ERRORS] += proto_errors(f->proto) + (f->db ? db_errors(f->db) : 0);
	flow_count_coverage(f);
	flow_push_setup(f);
	if (is_served(f))
		mcp_conn_forget(f->mcp);
	interest_finish(&f->interest);
	flow_free(f);
	c->ctx = NULL;
}

/* --- adaptors: exchange -> span and the views --------------------------------------------------------------------- */

static struct flow *flow_of(struct pipeline *p, uint64_t conn_id)
{
	struct flow *f;

	HASH_FIND(hh, p->flows, &conn_id, sizeof(conn_id), f);
	return f;
}

static unsigned retransmits_of(const struct flow *f, const struct call *c, uint64_t out[FLOW_RETRANSMITS_MAX])
{
	uint64_t begin_ns, end_ns;
	unsigned n = 0, kept;

	if (!f || c->retransmits <= 0)
		return 0;
	call_bounds(c, &begin_ns, &end_ns);
	kept = f->retransmit_count < FLOW_RETRANSMITS_MAX ? f->retransmit_count : FLOW_RETRANSMITS_MAX;
	for (unsigned i = 0; i < kept; i++)
		if (f->retransmits[i] >= begin_ns && f->retransmits[i] <= end_ns)
			out[n++] = f->retransmits[i];
	return n;
}

static void keep_span(struct pipeline *p, struct spans *spans, struct span *span)
{
	if (spans_push(spans, span))
		p->lost.n[LOST_NO_MEMORY]++;
}

static void push_span(struct pipeline *p, struct spans *spans, const struct call *c, const struct proc *proc,
		      const struct agent_place *place)
{
	uint64_t retransmits[FLOW_RETRANSMITS_MAX];
	struct flow *f = flow_of(p, c->conn_id);
	unsigned n = retransmits_of(f, c, retransmits);
	struct span span;

	if (f && (c->connect_begin_ns != UNKNOWN_NS || c->tls_begin_ns != UNKNOWN_NS))
		f->setup_paid = true;
	if (span_from_call(&span, c, proc ? proc->shown_pid : c->conn.tgid, retransmits, n)) {
		p->lost.n[LOST_NO_MEMORY]++;
		return;
	}
	span.agent = place->sub ? place->agent : 0;
	span.flow_in = place->sub && place->first ? SPAN_FLOW_AGENT(place->agent) : SPAN_FLOW_NONE;
	keep_span(p, spans, &span);
}

static void on_call(void *ctx, const struct call *c)
{
	struct pipeline *p = ctx;
	const struct proc *proc = procs_get(p->procs, &c->conn);
	struct flow *f = flow_of(p, c->conn_id);
	struct agent_place place;

	if (is_served(f))
		return;
	if (f && f->operations)
		operations_was_call(f->operations, c->xid);
	p->call_count++;
	if (f)
		f->ended_calls++;
	procs_call_made(p->procs, &c->conn);
	if (proc)
		coverage_push_call(p->coverage, proc);
	agents_push_call(p->agents, c, proc, &place);
	push_span(p, p->spans, c, proc, &place);
	if (p->cfg.on_call)
		p->cfg.on_call(p->cfg.ctx, c, proc, &place);
}

/* --- adaptors: operations -> span and the views --------------------------------------------------------------------
 */

static bool is_call(void *ctx, uint64_t conn_id, uint64_t xid)
{
	struct flow *f = flow_of(ctx, conn_id);

	return f && exchanges_is_call(f->exchanges, xid);
}

static void push_operation(struct pipeline *p, struct spans *spans, const struct http_operation *o,
			   const struct proc *proc)
{
	struct span span;

	if (span_from_http(&span, o, proc ? proc->shown_pid : o->conn.tgid))
		p->lost.n[LOST_NO_MEMORY]++;
	else
		keep_span(p, spans, &span);
}

static void on_operation(void *ctx, const struct http_operation *o)
{
	struct pipeline *p = ctx;
	const struct proc *proc = procs_get(p->procs, &o->conn);

	push_operation(p, p->spans, o, proc);
	if (proc)
		procs_show(p->procs, &proc->key);
	if (p->cfg.on_http)
		p->cfg.on_http(p->cfg.ctx, o, proc);
}

static void push_mcp(struct pipeline *p, struct spans *spans, const struct mcp_call *c)
{
	const struct proc *proc = procs_get(p->procs, &c->conn);
	struct span span;

	if (span_from_mcp(&span, c, proc ? proc->shown_pid : c->conn.tgid) || spans_push(spans, &span))
		p->lost.n[LOST_NO_MEMORY]++;
}

static void on_mcp(void *ctx, const struct mcp_call *c)
{
	struct pipeline *p = ctx;

	if (c->transport == MCP_HTTP && is_served(flow_of(p, c->conn_id)))
		return;
	push_mcp(p, p->spans, c);
	if (!c->answerer && c->method && !strcmp(c->method, "tools/call"))
		agents_push_rpc(p->agents, &(struct agent_rpc){
						   .proc = {.tgid = c->conn.tgid, .start_ns = c->conn.start_ns},
						   .name = c->target,
						   .at = {c->start_ns, c->end_ns},
						   .is_error = c->error != NULL,
					   });
	if (p->cfg.on_mcp)
		p->cfg.on_mcp(p->cfg.ctx, c);
}

/* --- adaptors: agents -> span --------------------------------------------------------------------------------------
 */

static void on_turn(void *ctx, const struct turn *t)
{
	struct pipeline *p = ctx;
	struct span span;

	if (span_from_turn(&span, t))
		p->lost.n[LOST_NO_MEMORY]++;
	else
		keep_span(p, p->spans, &span);
	if (p->cfg.on_turn)
		p->cfg.on_turn(p->cfg.ctx, t);
}

static void on_tool(void *ctx, const struct agent_tool *t)
{
	struct pipeline *p = ctx;
	struct span span;

	if (span_from_tool(&span, t))
		p->lost.n[LOST_NO_MEMORY]++;
	else
		keep_span(p, p->spans, &span);
}

/* --- adaptors: proc -> agents ---------------------------------------------------------------------------------------
 */

static void on_proc(void *ctx, const struct proc *proc)
{
	agents_push_proc(((struct pipeline *)ctx)->agents, proc);
}

static void on_load(void *ctx, const struct proc *proc, const struct interval *at, uint64_t cpu_ns, uint64_t wait_ns)
{
	struct pipeline *p = ctx;

	count(p, COUNTER_CPU, proc->shown_pid, at->end_ns, cpu_ns * 1000 / (at->end_ns - at->begin_ns));
	agents_push_cpu(p->agents, &proc->key, at, cpu_ns + wait_ns);
}

static void find_first_open(void *ctx, const struct call *c)
{
	uint64_t *first_ns = ctx, begin_ns, end_ns;

	call_bounds(c, &begin_ns, &end_ns);
	if (begin_ns < *first_ns)
		*first_ns = begin_ns;
}

static void tick_agents(struct pipeline *p, uint64_t now_ns)
{
	uint64_t open_ns = UNKNOWN_NS;

	if (now_ns < p->agents_tick_ns + AGENTS_TICK_NS)
		return;
	p->agents_tick_ns = now_ns;
	exchanges_each_open(p->exchanges, now_ns, find_first_open, &open_ns);
	agents_tick(p->agents, now_ns, open_ns);
}

/* --- adaptors: halves -> conn ---------------------------------------------------------------------------------------
 */

static void on_whole_open(void *ctx, const struct rec_open *r)
{
	conns_push_open(((struct pipeline *)ctx)->conns, r);
}

static void on_whole_data(void *ctx, const struct rec_data *r)
{
	conns_push_data(((struct pipeline *)ctx)->conns, r);
}

static void on_whole_gap(void *ctx, const struct rec_gap *r)
{
	conns_push_gap(((struct pipeline *)ctx)->conns, r);
}

static void on_whole_pos(void *ctx, const struct rec_pos *r)
{
	conns_push_pos(((struct pipeline *)ctx)->conns, r);
}

static void on_whole_handshake(void *ctx, const struct rec_handshake *r)
{
	conns_push_handshake(((struct pipeline *)ctx)->conns, r);
}

static void on_whole_conn_sock(void *ctx, const struct rec_conn_sock *r)
{
	conns_push_conn_sock(((struct pipeline *)ctx)->conns, r);
}

/* A connection has two: what it wrote stands for it. */
static void on_unpaired(void *ctx, const struct conn_key *key, enum dir dir)
{
	struct pipeline *p = ctx;
	const struct proc *proc = procs_get(p->procs, key);

	if (proc && dir == DIR_TX)
		coverage_push_conn(p->coverage, proc, COVERAGE_UNDECODED,
				   "which socket its TLS records use was not learned");
}

static void on_half_ignored(void *ctx, const struct conn_key *key, uint32_t answers, bool ignored)
{
	struct pipeline *p = ctx;

	if (p->cfg.on_interest)
		p->cfg.on_interest(p->cfg.interest_ctx, key, answers, ignored ? INTEREST_IGNORED : INTEREST_WANTED);
}

/* --- adaptors: wire -> span, coverage and the session ---------------------------------------------------------------
 */

static const struct proc *proc_of_wire(struct pipeline *p, const struct wire_conn *c)
{
	struct conn_key key = {.tgid = c->proc.tgid, .start_ns = c->proc.start_ns, .exec_id = c->proc.exec_id};

	return procs_get(p->procs, &key);
}

static const char *why_undecoded(char *out, size_t size, const struct wire_conn *c, const struct proc *proc)
{
	switch (c->why) {
	case WIRE_NO_FUNCTIONS:
		snprintf(out, size, "no TLS functions found in %.120s",
			 proc && proc->exe[0]	 ? proc->exe
			 : proc && proc->name[0] ? proc->name
						 : "its files");
		return out;
	case WIRE_REFUSED:
		snprintf(out, size, "%s", c->reason);
		return out;
	case WIRE_NOT_RUN:
		return "the TLS functions that are probed did not run";
	case WIRE_NOT_RUN_AGAIN:
		return "the TLS functions that are probed did not run, nor did they when they were probed again";
	case WIRE_LATE:
		return "its TLS functions were probed after it began";
	}
	return "";
}

/* Among all processes of the machine only callers are shown, and who talks to a model's host. */
static bool is_shown(const struct pipeline *p, const struct wire_conn *c, const struct proc *proc)
{
	return !p->cfg.callers_only || (proc && proc->caller) ||
	       strcmp(dialect_provider(NULL, sv_of(c->host), SV(""), NULL), "_OTHER");
}

static void on_wire_turn(void *ctx, const struct wire_turn *t)
{
	struct pipeline *p = ctx;
	const struct proc *proc = proc_of_wire(p, &t->conn);
	char why[160];
	struct span_unread turn = {
		.shown_pid = proc ? proc->shown_pid : t->conn.proc.tgid,
		.undecoded = why_undecoded(why, sizeof(why), &t->conn, proc),
		.host = t->conn.host,
		.peer = t->conn.remote,
		.connect_begin_ns = t->connect_begin_ns,
		.connect_end_ns = t->connect_end_ns,
		.tls_begin_ns = t->tls_begin_ns,
		.begin_ns = t->begin_ns,
		.send_end_ns = t->send_end_ns,
		.first_ns = t->first_ns,
		.end_ns = t->end_ns,
		.gap_ns = t->gap_ns,
		.bytes = {t->bytes[0], t->bytes[1]},
		.merged = t->merged,
		.retransmit_ns = t->retransmit_ns,
		.retransmits = t->retransmits,
	};
	struct span span;

	if (t->conn.why == WIRE_LATE)
		p->lost.n[LOST_LATE]++;
	if (!is_shown(p, &t->conn, proc))
		return;
	if (proc)
		procs_show(p->procs, &proc->key);
	if (span_from_unread(&span, &turn) || spans_push(p->spans, &span))
		p->lost.n[LOST_NO_MEMORY]++;
}

static void on_wire_conn(void *ctx, const struct wire_conn *c)
{
	struct pipeline *p = ctx;
	const struct proc *proc = proc_of_wire(p, c);
	char why[160];

	if (!proc)
		return;
	coverage_push_conn(p->coverage, proc, c->served ? COVERAGE_SERVED : COVERAGE_UNDECODED,
			   c->served ? NULL : why_undecoded(why, sizeof(why), c, proc));
}

static void on_wire_silent(void *ctx, const struct wire_conn *c)
{
	struct pipeline *p = ctx;
	const struct proc *proc = proc_of_wire(p, c);
	char why[160];

	if (p->cfg.on_silent && is_shown(p, c, proc))
		p->cfg.on_silent(p->cfg.interest_ctx, c, proc, why_undecoded(why, sizeof(why), c, proc));
}

/* --- adaptors: dns -> span ------------------------------------------------------------------------------------------
 */

static void on_lookup(void *ctx, const struct dns_lookup *l)
{
	struct pipeline *p = ctx;
	struct conn_key key = {.tgid = l->proc.tgid, .start_ns = l->proc.start_ns, .exec_id = l->proc.exec_id};
	const struct proc *proc = procs_get(p->procs, &key);
	struct span_lookup lookup = {
		.shown_pid = proc ? proc->shown_pid : l->proc.tgid,
		.name = l->name,
		.begin_ns = l->begin_ns,
		.end_ns = l->end_ns,
		.queries = l->queries,
		.addresses = l->addr_count,
	};
	struct span span;

	if (p->cfg.callers_only && !(proc && proc->caller))
		return;
	if (span_from_lookup(&span, &lookup) || spans_push(p->spans, &span))
		p->lost.n[LOST_NO_MEMORY]++;
}

/* --- adaptors: record -> conn and proc -----------------------------------------------------------------------------
 */

static void on_data(void *ctx, const struct rec_data *r)
{
	struct pipeline *p = ctx;

	/* Its socket may be learned later; until then it may be any of the process's. */
	if (r->half)
		wires_push_plain(p->wires, r->conn.tgid, 0, r->at.entry_ns, r->at.ts_ns);
	if (r->half)
		halves_push_data(p->halves, r);
	else
		conns_push_data(p->conns, r);
}

static void on_gap(void *ctx, const struct rec_gap *r)
{
	struct pipeline *p = ctx;

	if (r->half)
		halves_push_gap(p->halves, r);
	else
		conns_push_gap(p->conns, r);
}

static void on_open(void *ctx, const struct rec_open *r)
{
	struct pipeline *p = ctx;

	if (!r->half) /* its first data or socket says more */
		conns_push_open(p->conns, r);
}

static void on_close(void *ctx, const struct rec_close *r)
{
	conns_push_close(((struct pipeline *)ctx)->conns, r);
}

static void on_pos(void *ctx, const struct rec_pos *r)
{
	struct pipeline *p = ctx;

	if (r->half)
		halves_push_pos(p->halves, r);
	else
		conns_push_pos(p->conns, r);
}

static void on_handshake(void *ctx, const struct rec_handshake *r)
{
	struct pipeline *p = ctx;

	if (r->half)
		halves_push_handshake(p->halves, r);
	else
		conns_push_handshake(p->conns, r);
}

static void on_socket_evidence(void *ctx, const struct rec_conn_sock *r)
{
	struct pipeline *p = ctx;

	if (r->half)
		halves_push_conn_sock(p->halves, r);
	else
		conns_push_conn_sock(p->conns, r);
}

static void on_sock(void *ctx, const struct rec_sock *r)
{
	struct pipeline *p = ctx;

	halves_push_sock(p->halves, r);
	dns_push_sock(p->dns, r);
	conns_push_sock(p->conns, r);
	wires_push_sock(p->wires, r);
}

/* The old program's connections end before the process gets its new name. */
static void on_exec(void *ctx, const struct rec_exec *r)
{
	struct pipeline *p = ctx;

	halves_push_exec(p->halves, r);
	conns_push_exec(p->conns, r);
	wires_push_exec(p->wires, r);
	procs_push_exec(p->procs, r);
}

static void on_fork(void *ctx, const struct rec_fork *r)
{
	struct pipeline *p = ctx;

	procs_push_fork(p->procs, r);
}

static void on_exit_record(void *ctx, const struct rec_exit *r)
{
	struct pipeline *p = ctx;

	halves_push_exit(p->halves, r);
	conns_push_exit(p->conns, r);
	mcp_exit(p->mcp, &r->proc, r->code, r->signal, r->ts_ns);
	wires_push_exit(p->wires, r);
	if (p->sqlite)
		sqlite_forget(p->sqlite, r->proc.tgid);
	profile_push_exit(p->profile, r);
	procs_push_exit(p->procs, r);
}

static void on_wire(void *ctx, const struct rec_wire *r)
{
	wires_push(((struct pipeline *)ctx)->wires, r);
}

static void on_sqlite_text(void *ctx, const struct rec_sqlite_text *r)
{
	struct pipeline *p = ctx;

	if (p->sqlite)
		sqlite_push_text(p->sqlite, &(struct sqlite_text){.proc = r->proc,
								  .stmt = r->stmt,
								  .entry_ns = r->entry_ns,
								  .ts_ns = r->ts_ns,
								  .tid = r->tid,
								  .result = r->result,
								  .cut = r->cut,
								  .text = r->text});
}

static void on_sqlite_run(void *ctx, const struct rec_sqlite_run *r)
{
	struct pipeline *p = ctx;

	if (p->sqlite)
		sqlite_push_run(p->sqlite, &(struct sqlite_run){.proc = r->proc,
								.stmt = r->stmt,
								.begin_ns = r->begin_ns,
								.end_ns = r->ts_ns,
								.rows = r->rows,
								.tid = r->tid,
								.result = r->result});
}

static void on_func_call(void *ctx, const struct rec_func_call *r)
{
	struct conn_key key = {.tgid = r->proc.tgid, .start_ns = r->proc.start_ns, .exec_id = r->proc.exec_id};
	struct pipeline *p = ctx;
	const struct proc *proc = procs_get(p->procs, &key);
	const char *name = functions_name(p->functions, r->func);
	struct span span;

	if (name && span_from_function(&span, r, name, proc ? proc->shown_pid : r->proc.tgid))
		p->lost.n[LOST_NO_MEMORY]++;
	else if (name)
		keep_span(p, p->spans, &span);
}

static void on_func(void *ctx, const struct rec_func *r)
{
	struct pipeline *p = ctx;

	if (functions_push(p->functions, r))
		p->lost.n[LOST_NO_MEMORY]++;
}

static void on_hello(void *ctx, const struct rec_hello *r)
{
	struct pipeline *p = ctx;

	conns_push_hello(p->conns, r);
	wires_push_hello(p->wires, r);
}

static void on_files(void *ctx, const struct rec_files *r)
{
	wires_push_files(((struct pipeline *)ctx)->wires, r);
}

static void on_cpu(void *ctx, const struct rec_cpu *r)
{
	procs_push_cpu(((struct pipeline *)ctx)->procs, r);
}

static void on_dns(void *ctx, const struct rec_dns *r)
{
	dns_push(((struct pipeline *)ctx)->dns, r);
}

static void on_tool_call(void *ctx, const struct rec_tool_call *r)
{
	procs_push_tool_call(((struct pipeline *)ctx)->procs, r);
}

static void on_sample(void *ctx, const struct rec_sample *r)
{
	profile_push_sample(((struct pipeline *)ctx)->profile, r);
}

static void on_frame(void *ctx, const struct rec_frame *r)
{
	profile_push_frame(((struct pipeline *)ctx)->profile, r);
}

static void on_sampling(void *ctx, const struct rec_sampling *r)
{
	profile_push_sampling(((struct pipeline *)ctx)->profile, r);
}

static void on_alloc_window(void *ctx, const struct rec_alloc_window *r)
{
	profile_push_alloc_window(((struct pipeline *)ctx)->profile, r);
}

static void on_alloc_free(void *ctx, const struct rec_alloc_free *r)
{
	profile_push_alloc_free(((struct pipeline *)ctx)->profile, r);
}

static void on_tick(void *ctx, uint64_t now_ns)
{
	pipeline_tick(ctx, now_ns);
}

/* --- the house ------------------------------------------------------------------------------------------------------
 */

struct pipeline *pipeline_new(const struct pipeline_config *cfg)
{
	struct pipeline *p = calloc(1, sizeof(*p));
	struct exchange_config exchange_cfg = {.stale_ns = cfg->stale_ns,
					       .sweep_ns = cfg->sweep_ns,
					       .content = cfg->content,
					       .anybody = cfg->callers_only};
	struct exchange_sink exchange_sink = {.ctx = p, .on_call = on_call};
	struct mcp_config mcp_cfg = {.stale_ns = cfg->stale_ns, .sweep_ns = cfg->sweep_ns, .content = cfg->content};
	struct mcp_sink mcp_sink = {.ctx = p, .on_mcp = on_mcp};
	struct halves_sink halves_sink = {
		.ctx = p,
		.on_open = on_whole_open,
		.on_data = on_whole_data,
		.on_gap = on_whole_gap,
		.on_pos = on_whole_pos,
		.on_handshake = on_whole_handshake,
		.on_conn_sock = on_whole_conn_sock,
		.on_unpaired = on_unpaired,
		.on_ignored = on_half_ignored,
	};
	struct conn_sink conn_sink = {
		.ctx = p,
		.on_conn_open = on_conn_open,
		.on_conn_bytes = on_conn_bytes,
		.on_conn_gap = on_conn_gap,
		.on_conn_sock = on_conn_sock,
		.on_conn_end = on_conn_end,
	};
	struct record_sink record_sink = {
		.ctx = p,
		.on_data = on_data,
		.on_gap = on_gap,
		.on_open = on_open,
		.on_close = on_close,
		.on_handshake = on_handshake,
		.on_conn_sock = on_socket_evidence,
		.on_sock = on_sock,
		.on_exec = on_exec,
		.on_fork = on_fork,
		.on_exit = on_exit_record,
		.on_tick = on_tick,
		.on_pos = on_pos,
		.on_wire = on_wire,
		.on_hello = on_hello,
		.on_files = on_files,
		.on_cpu = on_cpu,
		.on_dns = on_dns,
		.on_sqlite_text = on_sqlite_text,
		.on_sqlite_run = on_sqlite_run,
		.on_func_call = on_func_call,
		.on_func = on_func,
		.on_tool_call = on_tool_call,
		.on_sample = on_sample,
		.on_frame = on_frame,
		.on_sampling = on_sampling,
		.on_alloc_window = on_alloc_window,
		.on_alloc_free = on_alloc_free,
	};
	struct operations_config operations_cfg = {.stale_ns = cfg->stale_ns, .sweep_ns = cfg->sweep_ns};
	struct operations_sink operations_sink = {.ctx = p, .on_operation = on_operation, .is_call = is_call};
	struct wire_sink wire_sink = {
		.ctx = p, .on_turn = on_wire_turn, .on_conn = on_wire_conn, .on_silent = on_wire_silent};
	struct dns_sink dns_sink = {.ctx = p, .on_lookup = on_lookup};
	struct proc_sink proc_sink = {.ctx = p, .on_change = on_proc, .on_load = on_load};
	struct agents_sink agents_sink = {.ctx = p, .on_tool = on_tool, .on_turn = on_turn};

	if (!p)
		return NULL;
	p->cfg = *cfg;
	p->agents = agents_new(&p->lost, &agents_sink);
	p->spans = spans_new(cfg->max_events, &p->lost);
	p->coverage = coverage_new(&p->lost);
	p->procs = procs_new(&p->lost, &proc_sink);
	p->exchanges = exchanges_new(&exchange_cfg, &p->lost, &exchange_sink);
	p->mcp = mcp_new(&mcp_cfg, &p->lost, &mcp_sink);
	p->conns = conns_new(&p->lost, &conn_sink);
	p->wires = wires_new(&p->lost, &wire_sink);
	if (cfg->db)
		p->sqlite = sqlite_new(&p->lost, &(struct db_sink){p, on_db});
	if (cfg->http)
		p->operations = operations_new(&operations_cfg, &p->lost, &operations_sink);
	p->halves = halves_new(&p->lost, &halves_sink);
	p->profile = profile_new(&p->lost, cfg->max_events);
	p->functions = functions_new();
	p->dns = dns_new(&p->lost, &dns_sink);
	p->counters = counters_new();
	if ((cfg->db && !p->sqlite) || (cfg->http && !p->operations) || !p->profile || !p->functions || !p->dns ||
	    !p->counters || !p->wires || !p->agents || !p->spans || !p->coverage || !p->procs || !p->exchanges ||
	    !p->mcp || !p->conns || !p->halves) {
		pipeline_free(p);
		errno = ENOMEM;
		return NULL;
	}
	procs_set_content(p->procs, cfg->content);
	coverage_set_callers_only(p->coverage, cfg->callers_only);
	record_init(&p->record, &p->lost, &record_sink);
	return p;
}

static void free_flow_of(void *ctx, struct conn *c)
{
	(void)ctx;
	flow_free(c->ctx);
	c->ctx = NULL;
}

void pipeline_free(struct pipeline *p)
{
	if (!p)
		return;
	if (p->conns) {
		conns_each(p->conns, free_flow_of, NULL);
		conns_free(p->conns);
	}
	halves_free(p->halves);
	exchanges_free(p->exchanges);
	agents_free(p->agents);
	profile_free(p->profile);
	functions_free(p->functions);
	mcp_free(p->mcp);
	wires_free(p->wires);
	sqlite_free(p->sqlite);
	operations_free(p->operations);
	dns_free(p->dns);
	counters_free(p->counters);
	procs_free(p->procs);
	coverage_free(p->coverage);
	spans_free(p->spans);
	free(p);
}

void pipeline_push(struct pipeline *p, const void *record, size_t len)
{
	record_push(&p->record, record, len);
}

static void tick_flow(void *ctx, struct conn *c)
{
	struct flow *f = c->ctx;

	if (f)
		proto_tick(f->proto, *(uint64_t *)ctx);
}

void pipeline_tick(struct pipeline *p, uint64_t now_ns)
{
	halves_tick(p->halves, now_ns);
	conns_tick(p->conns, now_ns);
	wires_tick(p->wires, now_ns);
	dns_tick(p->dns, now_ns);
	count(p, COUNTER_LOST, 0, now_ns, lost_total(&p->lost));
	conns_each(p->conns, tick_flow, &now_ns);
	exchanges_tick(p->exchanges, now_ns);
	if (p->operations) /* after the exchanges: those know what is a call */
		operations_tick(p->operations, now_ns);
	tick_agents(p, now_ns);
	mcp_tick(p->mcp, now_ns);
}

void pipeline_finish(struct pipeline *p, uint64_t now_ns)
{
	halves_finish(p->halves);
	conns_finish(p->conns, now_ns);
	wires_finish(p->wires, now_ns);
	dns_finish(p->dns);
	exchanges_tick(p->exchanges, now_ns);
	agents_finish(p->agents, now_ns);
	mcp_finish(p->mcp, now_ns);
}

const struct lost *pipeline_lost(const struct pipeline *p)
{
	return &p->lost;
}

const struct coverage *pipeline_coverage(const struct pipeline *p)
{
	return p->coverage;
}

void pipeline_count_lost(struct pipeline *p, enum lost_id id, uint64_t n)
{
	p->lost.n[id] += n;
}

struct callers {
	void (*fn)(void *ctx, const struct proc_key *k);
	void *ctx;
};

static void tell_caller(void *ctx, const struct proc *proc)
{
	struct callers *c = ctx;

	if (proc->caller && proc->end_ns == UNKNOWN_NS)
		c->fn(c->ctx, &proc->key);
}

void pipeline_each_caller(struct pipeline *p, void (*fn)(void *ctx, const struct proc_key *k), void *ctx)
{
	struct callers c = {fn, ctx};

	procs_each(p->procs, tell_caller, &c);
}

unsigned pipeline_open_calls(const struct pipeline *p)
{
	return exchanges_open_count(p->exchanges);
}

/* --- the verdict
 * ----------------------------------------------------------------------------------------------------
 */

static void verdict_of(const struct agents_run *run, const struct lost *lost, struct verdict_facts *out)
{
	*out = (struct verdict_facts){
		.wall = &run->wall,
		.model = run->top_model[0] ? run->top_model : NULL,
		.writer = run->top_writer[0] ? run->top_writer : NULL,
		.several_models = run->several_models,
		.ttft_p50_ns = run->ttft_p50_ns,
		.tool = run->top_tool.name[0] ? run->top_tool.name : NULL,
		.program = run->top_tool.program[0] ? run->top_tool.program : NULL,
		.lossy = lost_total(lost) != 0,
	};
}

int pipeline_verdict(struct pipeline *p, uint64_t now_ns, struct buf *out)
{
	struct verdict_facts facts;
	struct agents_run run;
	int err = agents_run(p->agents, now_ns, &run);

	verdict_of(&run, &p->lost, &facts);
	return err ? err : verdict_text(out, &facts);
}

static int write_verdict(struct pipeline *p, uint64_t now_ns, struct buf *out)
{
	struct verdict_facts facts;
	struct agents_run run;
	struct json j;
	int err = agents_run(p->agents, now_ns, &run);

	if (err || run.begin_ns == UNKNOWN_NS)
		return err;
	verdict_of(&run, &p->lost, &facts);
	json_init(&j, out);
	json_object(&j, NULL);
	verdict_json(&j, &facts);
	json_uint(&j, "turns", run.turns);
	json_uint(&j, "steps", run.steps);
	json_uint(&j, "tools", run.tools);
	json_end_object(&j);
	return j.err;
}

/* --- the trace
 * ------------------------------------------------------------------------------------------------------
 */

struct snapshot {
	struct pipeline *p;
	struct spans *spans;
};

static void snapshot_call(void *ctx, const struct call *c)
{
	static const struct agent_place nobody; /* until it ends */
	struct snapshot *s = ctx;

	if (is_served(flow_of(s->p, c->conn_id)))
		return;
	procs_call_made(s->p->procs, &c->conn);
	push_span(s->p, s->spans, c, procs_get(s->p->procs, &c->conn), &nobody);
}

static void snapshot_mcp(void *ctx, const struct mcp_call *c)
{
	struct snapshot *s = ctx;

	if (c->transport == MCP_STDIO || !is_served(flow_of(s->p, c->conn_id)))
		push_mcp(s->p, s->spans, c);
}

static void snapshot_operation(void *ctx, const struct http_operation *o)
{
	struct snapshot *s = ctx;

	const struct proc *proc = procs_get(s->p->procs, &o->conn);

	push_operation(s->p, s->spans, o, proc);
	if (proc)
		procs_show(s->p->procs, &proc->key);
}

static void snapshot_turn(void *ctx, const struct turn *t)
{
	struct snapshot *s = ctx;
	struct span span;

	if (span_from_turn(&span, t))
		s->p->lost.n[LOST_NO_MEMORY]++;
	else
		keep_span(s->p, s->spans, &span);
}

static void name_agent(void *ctx, const struct agent *a)
{
	((const char **)ctx)[a->index] = a->name;
}

static const char *name_process(void *ctx, const struct proc_key *key, uint32_t *shown_pid)
{
	struct conn_key k = {.tgid = key->tgid, .start_ns = key->start_ns, .exec_id = key->exec_id};
	const struct proc *proc = procs_get(((struct pipeline *)ctx)->procs, &k);

	if (!proc)
		return NULL;
	*shown_pid = proc->shown_pid;
	return proc->agent ? proc->agent : proc->name;
}

/* What was asked for beside calls of models: option and value. */
static void name_axes(struct pipeline *p, struct trace_meta *meta)
{
	const struct rec_sampling *s = profile_sampling(p->profile);
	const struct {
		const char *name;
		bool on;
		double value; /* 0: it has none */
	} all[] = {{"cpu", s->period_ns, s->period_ns ? 1e9 / (double)s->period_ns : 0},
		   {"off-cpu", s->off_cpu_min_ns, 0},
		   {"alloc", s->alloc_bytes, (double)s->alloc_bytes},
		   {"db", p->cfg.db, 0},
		   {"http", p->cfg.http, 0}};
	size_t n = 0;

	memset(meta->axes, 0, sizeof(meta->axes));
	_Static_assert(ARRAY_SIZE(all) <= TRACE_AXES_MAX, "one place each");
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (!all[i].on)
			continue;
		if (all[i].value > 0)
			snprintf(p->axes[n], sizeof(p->axes[n]), "%s=%.0f", all[i].name, all[i].value);
		else
			snprintf(p->axes[n], sizeof(p->axes[n]), "%s", all[i].name);
		meta->axes[n] = p->axes[n];
		n++;
	}
}

int pipeline_write_trace(struct pipeline *p, struct trace_meta *meta, uint64_t now_ns, const struct trace_sink *sink)
{
	struct lost scratch = {0}; /* a snapshot that is cut loses nothing */
	struct snapshot s = {.p = p, .spans = spans_new(p->cfg.max_events, &scratch)};
	const char **names = calloc(agents_count(p->agents) + 1, sizeof(*names));
	const struct profile_namer namer = {p, name_process};
	struct buf verdict, profile;
	int err;

	if (!s.spans || !names) {
		spans_free(s.spans);
		free(names);
		return -ENOMEM;
	}
	agents_each(p->agents, name_agent, names);
	meta->agent_names = names;
	meta->agent_name_count = agents_count(p->agents);
	buf_init(&verdict, 0); /* bounded: a sentence and numbers */
	buf_init(&profile, 0); /* bounded: PROFILE_WRITTEN_MAX, max_events */
	exchanges_each_open(p->exchanges, now_ns, snapshot_call, &s);
	mcp_each_open(p->mcp, now_ns, snapshot_mcp, &s);
	if (p->operations)
		operations_each_open(p->operations, now_ns, snapshot_operation, &s);
	agents_each_open_turn(p->agents, now_ns, snapshot_turn, &s);
	meta->now_ns = now_ns;
	meta->max_events = p->cfg.max_events;
	spans_show(p->spans, p->cfg.max_events - spans_events(s.spans)); /* what is open comes first */
	name_axes(p, meta);
	meta->call_count = p->call_count;
	meta->callers_only = p->cfg.callers_only;
	meta->agent_count = agents_count(p->agents);
	meta->lost = &p->lost;
	meta->counters = p->counters;
	meta->functions = p->functions;
	err = write_verdict(p, now_ns, &verdict);
	meta->verdict_json = (struct sv){verdict.ptr, verdict.len};
	if (!err)
		err = profile_json(p->profile, &profile, &namer, meta->start_ns);
	meta->profile_json = (struct sv){profile.ptr, profile.len};
	if (!err)
		err = trace_write(p->spans, s.spans, p->procs, meta, sink);
	meta->verdict_json = meta->profile_json = SV_NONE;
	meta->agent_names = NULL;
	meta->agent_name_count = 0;
	free(names);
	buf_release(&verdict);
	buf_release(&profile);
	spans_free(s.spans);
	return err;
}
