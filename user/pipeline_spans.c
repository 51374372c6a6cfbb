/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "pipeline_parts.h"

#include <stdio.h>
#include <string.h>

#include "flow/llm/dialect.h"

const struct proc *pipeline_proc(struct pipeline *p, const struct proc_key *key)
{
	struct conn_key k = {.tgid = key->tgid, .start_ns = key->start_ns, .exec_id = key->exec_id};

	return procs_get(p->procs, &k);
}

void pipeline_count(struct pipeline *p, enum counter_kind kind, uint32_t pid, uint64_t ts_ns, uint64_t value)
{
	if (counters_push(p->counters, kind, pid, ts_ns, value))
		p->lost.n[LOST_NO_MEMORY]++;
}

/* --- exchange -> span and the views ------------------------------------------------------------------------------ */

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

void pipeline_add_span(struct pipeline *p, struct spans *spans, int err, struct span *span)
{
	if (err || spans_push(spans, span))
		p->lost.n[LOST_NO_MEMORY]++;
}

void pipeline_add_call(struct pipeline *p, struct spans *spans, const struct call *c, const struct proc *proc,
		       const struct agent_place *place)
{
	uint64_t retransmits[FLOW_RETRANSMITS_MAX];
	const uint64_t *at = c->retransmit_at ? c->retransmit_at : retransmits;
	struct flow *f = pipeline_flow(p, c->conn_id);
	unsigned n = c->retransmit_at ? (unsigned)c->retransmit_count : retransmits_of(f, c, retransmits);
	struct span span;

	if (f && (c->connect_begin_ns != UNKNOWN_NS || c->tls_begin_ns != UNKNOWN_NS))
		f->setup_paid = true;
	if (span_from_call(&span, c, proc ? proc->shown_pid : c->conn.tgid, at, n)) {
		p->lost.n[LOST_NO_MEMORY]++;
		return;
	}
	span.agent = place->sub ? place->agent : 0;
	span.flow_in = place->sub && place->first ? SPAN_FLOW_AGENT(place->agent) : SPAN_FLOW_NONE;
	pipeline_add_span(p, spans, 0, &span);
}

static void on_settled(void *ctx, const struct call *c)
{
	struct pipeline *p = ctx;
	const struct proc *proc = procs_get(p->procs, &c->conn);
	struct agent_place place;

	if (proc)
		coverage_push_call(p->coverage, proc);
	agents_push_call(p->agents, c, proc, &place);
	pipeline_add_call(p, p->spans, c, proc, &place);
	if (p->cfg.on_call)
		p->cfg.on_call(p->cfg.ctx, c, proc, &place);
}

/* Its class may take a while to be known; its connection may be gone by then. */
static void on_call(void *ctx, const struct call *c)
{
	uint64_t retransmits[FLOW_RETRANSMITS_MAX];
	struct pipeline *p = ctx;
	struct flow *f = pipeline_flow(p, c->conn_id);
	struct call told = *c;

	if (flow_is_served(f))
		return;
	if (f && f->operations)
		operations_was_call(f->operations, c->xid);
	if (f) {
		f->ended_calls++;
		f->setup_paid |= c->connect_begin_ns != UNKNOWN_NS || c->tls_begin_ns != UNKNOWN_NS;
	}
	p->call_count++;
	procs_call_made(p->procs, &c->conn);
	told.retransmit_count = retransmits_of(f, c, retransmits);
	told.retransmit_at = retransmits;
	told.to_caller = pipeline_answers_and_calls(p, &c->peer, c->start_ns);
	beside_push(p->beside, &told);
}

static void on_main(void *ctx, const struct proc_key *process)
{
	beside_main(((struct pipeline *)ctx)->beside, process);
}

/* --- operations -> span and the views ---------------------------------------------------------------------------- */

static bool is_call(void *ctx, uint64_t conn_id, uint64_t xid)
{
	struct flow *f = pipeline_flow(ctx, conn_id);

	return f && exchanges_is_call(f->exchanges, xid);
}

void pipeline_add_operation(struct pipeline *p, struct spans *spans, const struct http_operation *o,
			    const struct proc *proc)
{
	struct span span;

	pipeline_add_span(p, spans, span_from_http(&span, o, proc ? proc->shown_pid : o->conn.tgid), &span);
}

static void on_operation(void *ctx, const struct http_operation *o)
{
	struct pipeline *p = ctx;
	const struct proc *proc = procs_get(p->procs, &o->conn);

	pipeline_add_operation(p, p->spans, o, proc);
	if (proc)
		procs_show(p->procs, &proc->key);
	if (p->cfg.on_http)
		p->cfg.on_http(p->cfg.ctx, o, proc);
}

void pipeline_add_mcp(struct pipeline *p, struct spans *spans, const struct mcp_call *c)
{
	const struct proc *proc = procs_get(p->procs, &c->conn);
	struct span span;

	pipeline_add_span(p, spans, span_from_mcp(&span, c, proc ? proc->shown_pid : c->conn.tgid), &span);
}

static void on_mcp(void *ctx, const struct mcp_call *c)
{
	struct pipeline *p = ctx;

	if (c->transport == MCP_HTTP && flow_is_served(pipeline_flow(p, c->conn_id)))
		return;
	pipeline_add_mcp(p, p->spans, c);
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

/* --- db -> span and the views ------------------------------------------------------------------------------------ */

static void push_db(struct pipeline *p, const struct db_command *c, const struct proc *proc)
{
	struct span span;

	pipeline_add_span(p, p->spans, span_from_db(&span, c, proc ? proc->shown_pid : c->proc.tgid), &span);
}

static void on_db(void *ctx, const struct db_command *c)
{
	struct pipeline *p = ctx;
	const struct proc *proc = pipeline_proc(p, &c->proc);

	push_db(p, c, proc);
	if (p->cfg.on_db)
		p->cfg.on_db(p->cfg.ctx, c, proc);
}

/* --- agents -> span ---------------------------------------------------------------------------------------------- */

static void on_turn(void *ctx, const struct turn *t)
{
	struct pipeline *p = ctx;
	struct span span;

	pipeline_add_span(p, p->spans, span_from_turn(&span, t), &span);
	if (p->cfg.on_turn)
		p->cfg.on_turn(p->cfg.ctx, t);
}

static void on_tool(void *ctx, const struct agent_tool *t)
{
	struct pipeline *p = ctx;
	struct span span;

	pipeline_add_span(p, p->spans, span_from_tool(&span, t), &span);
}

/* --- proc -> agents ---------------------------------------------------------------------------------------------- */

static void on_proc(void *ctx, const struct proc *proc)
{
	struct pipeline *p = ctx;

	if (proc->end_ns != UNKNOWN_NS)
		beside_gone(p->beside, &proc->key);
	agents_push_proc(p->agents, proc);
}

static void on_load(void *ctx, const struct proc *proc, const struct interval *at, uint64_t cpu_ns, uint64_t wait_ns)
{
	struct pipeline *p = ctx;

	pipeline_count(p, COUNTER_CPU, proc->shown_pid, at->end_ns, cpu_ns * 1000 / (at->end_ns - at->begin_ns));
	beside_push_load(p->beside, &proc->key, at, cpu_ns + wait_ns);
}

static void on_load_settled(void *ctx, const struct proc_key *process, const struct interval *at, uint64_t busy_ns)
{
	agents_push_cpu(((struct pipeline *)ctx)->agents, process, at, busy_ns);
}

/* --- wire -> span, coverage and the session ---------------------------------------------------------------------- */

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
	const struct proc *proc = pipeline_proc(p, &t->conn.proc);
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
	pipeline_add_span(p, p->spans, span_from_unread(&span, &turn), &span);
}

static void on_wire_conn(void *ctx, const struct wire_conn *c)
{
	struct pipeline *p = ctx;
	const struct proc *proc = pipeline_proc(p, &c->proc);
	char why[160];

	if (!proc)
		return;
	coverage_push_conn(p->coverage, proc, c->served ? COVERAGE_SERVED : COVERAGE_UNDECODED,
			   c->served ? NULL : why_undecoded(why, sizeof(why), c, proc));
}

static void on_wire_missed(void *ctx, const struct wire_conn *c)
{
	struct pipeline *p = ctx;

	if (is_shown(p, c, pipeline_proc(p, &c->proc)))
		p->lost.n[LOST_LATE]++;
}

static enum attempt_what attempt_of(const struct wire_handshake *h)
{
	if (h->unanswered)
		return ATTEMPT_TLS_UNANSWERED;
	if (h->completed)
		return ATTEMPT_TLS_LEFT;
	return h->closer == SOCK_CLOSER_LOCAL	 ? ATTEMPT_TLS_LOCAL
	       : h->closer == SOCK_CLOSER_REMOTE ? ATTEMPT_TLS_REMOTE
						 : ATTEMPT_TLS;
}

static void on_wire_handshake(void *ctx, const struct wire_handshake *h)
{
	struct pipeline *p = ctx;
	bool connected = h->connect_begin_ns != UNKNOWN_NS && h->connect_begin_ns <= h->begin_ns;
	const struct attempt attempt = {
		.tgid = h->conn.proc.tgid,
		.remote = h->conn.remote,
		.what = attempt_of(h),
		.host = *h->conn.host ? h->conn.host : NULL,
		.begin_ns = connected ? h->connect_begin_ns : h->begin_ns,
		.tls_begin_ns = h->begin_ns,
		.end_ns = h->end_ns,
		.unfinished = h->unfinished,
	};

	attempts_push(p->attempts, &attempt);
}

static void on_wire_silent(void *ctx, const struct wire_conn *c)
{
	struct pipeline *p = ctx;
	const struct proc *proc = pipeline_proc(p, &c->proc);
	char why[160];

	if (p->cfg.on_silent && is_shown(p, c, proc))
		p->cfg.on_silent(p->cfg.interest_ctx, c, proc, why_undecoded(why, sizeof(why), c, proc));
}

/* --- dns -> span ------------------------------------------------------------------------------------------------- */

/* Of who makes calls, or would: it is shown then. */
static bool is_of_caller(struct pipeline *p, const struct proc *proc)
{
	if (p->cfg.callers_only && !(proc && (proc->caller || proc->agent)))
		return false;
	if (proc)
		procs_show(p->procs, &proc->key);
	return true;
}

static void on_lookup(void *ctx, const struct dns_lookup *l)
{
	struct pipeline *p = ctx;
	const struct proc *proc = pipeline_proc(p, &l->proc);
	struct span_lookup lookup = {
		.shown_pid = proc ? proc->shown_pid : l->proc.tgid,
		.name = l->name,
		.begin_ns = l->begin_ns,
		.end_ns = l->end_ns,
		.queries = l->queries,
		.addresses = l->addr_count,
		.unanswered = l->unanswered,
	};
	struct span span;

	if (!is_of_caller(p, proc))
		return;
	if (p->cfg.on_lookup)
		p->cfg.on_lookup(p->cfg.ctx, l);
	pipeline_add_span(p, p->spans, span_from_lookup(&span, &lookup), &span);
}

/* --- connections that were tried in vain -> span and the views ---------------------------------------------------- */

static void on_attempt(void *ctx, const struct attempt *a)
{
	struct pipeline *p = ctx;
	const struct proc *proc = procs_newest(p->procs, a->tgid);
	struct span_attempt attempt = {
		.shown_pid = proc ? proc->shown_pid : a->tgid,
		.host = a->host ? a->host : dns_name(p->dns, a->tgid, &a->remote, a->begin_ns),
		.attempt = a,
	};
	struct span span;

	if (!is_of_caller(p, proc))
		return;
	if (p->cfg.on_attempt)
		p->cfg.on_attempt(p->cfg.ctx, a, attempt.host);
	if (a->drawn)
		pipeline_add_span(p, p->spans, span_from_attempt(&span, &attempt), &span);
}

struct exchange_sink pipeline_exchange_sink(struct pipeline *p)
{
	return (struct exchange_sink){.ctx = p, .on_call = on_call, .on_main = on_main};
}

struct beside_sink pipeline_beside_sink(struct pipeline *p)
{
	return (struct beside_sink){.ctx = p, .on_call = on_settled, .on_load = on_load_settled};
}

struct mcp_sink pipeline_mcp_sink(struct pipeline *p)
{
	return (struct mcp_sink){.ctx = p, .on_mcp = on_mcp};
}

struct operations_sink pipeline_operations_sink(struct pipeline *p)
{
	return (struct operations_sink){.ctx = p, .on_operation = on_operation, .is_call = is_call};
}

struct wire_sink pipeline_wire_sink(struct pipeline *p)
{
	return (struct wire_sink){.ctx = p,
				  .on_turn = on_wire_turn,
				  .on_conn = on_wire_conn,
				  .on_missed = on_wire_missed,
				  .on_handshake = on_wire_handshake,
				  .on_silent = on_wire_silent};
}

struct dns_sink pipeline_dns_sink(struct pipeline *p)
{
	return (struct dns_sink){.ctx = p, .on_lookup = on_lookup};
}

struct attempts_sink pipeline_attempts_sink(struct pipeline *p)
{
	return (struct attempts_sink){.ctx = p, .on_attempt = on_attempt};
}

struct proc_sink pipeline_proc_sink(struct pipeline *p)
{
	return (struct proc_sink){.ctx = p, .on_change = on_proc, .on_load = on_load};
}

struct agents_sink pipeline_agents_sink(struct pipeline *p)
{
	return (struct agents_sink){.ctx = p, .on_tool = on_tool, .on_turn = on_turn};
}

struct db_sink pipeline_db_sink(struct pipeline *p)
{
	return (struct db_sink){p, on_db};
}
