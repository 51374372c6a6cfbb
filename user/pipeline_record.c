/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "pipeline_parts.h"

/* --- halves -> conn ---------------------------------------------------------------------------------------------- */

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

/* --- record -> the stages that read records ---------------------------------------------------------------------- */

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
	struct rec_sock whole = *r;

	whole.begin_ns = attempts_push_sock(p->attempts, r);
	tunnels_push_sock(p->tunnels, r);
	halves_push_sock(p->halves, r);
	dns_push_sock(p->dns, r);
	conns_push_sock(p->conns, &whole);
	wires_push_sock(p->wires, &whole);
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

static void on_gone(void *ctx, const struct rec_gone *r)
{
	procs_push_gone(((struct pipeline *)ctx)->procs, r);
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
	struct pipeline *p = ctx;
	const struct proc *proc = pipeline_proc(p, &r->proc);
	const char *name = functions_name(p->functions, r->func);
	struct span span;

	if (name)
		pipeline_add_span(p, p->spans,
				  span_from_function(&span, r, name, proc ? proc->shown_pid : r->proc.tgid), &span);
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

static void on_tunnel(void *ctx, const struct rec_tunnel *r)
{
	tunnels_push(((struct pipeline *)ctx)->tunnels, r);
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

struct halves_sink pipeline_halves_sink(struct pipeline *p)
{
	return (struct halves_sink){
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
}

struct record_sink pipeline_record_sink(struct pipeline *p)
{
	return (struct record_sink){
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
		.on_gone = on_gone,
		.on_tick = on_tick,
		.on_pos = on_pos,
		.on_wire = on_wire,
		.on_hello = on_hello,
		.on_tunnel = on_tunnel,
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
}
