/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "pipeline_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/agent/verdict.h"

/* --- the verdict ------------------------------------------------------------------------------------------------- */

static void verdict_of(const struct agents_run *run, const struct lost *lost, struct verdict_facts *out)
{
	*out = (struct verdict_facts){
		.wall = &run->wall,
		.model = run->top_model[0] ? run->top_model : NULL,
		.writer = run->top_writer[0] ? run->top_writer : NULL,
		.model_share = run->model_share,
		.writer_share = run->writer_share,
		.tool_share = run->tool_share,
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

/* --- the trace --------------------------------------------------------------------------------------------------- */

struct snapshot {
	struct pipeline *p;
	struct spans *spans;
};

static void snapshot_call(void *ctx, const struct call *c)
{
	static const struct agent_place nobody; /* until it ends */
	struct snapshot *s = ctx;

	if (flow_is_served(pipeline_flow(s->p, c->conn_id)))
		return;
	procs_call_made(s->p->procs, &c->conn);
	pipeline_add_call(s->p, s->spans, c, procs_get(s->p->procs, &c->conn), &nobody);
}

static void snapshot_mcp(void *ctx, const struct mcp_call *c)
{
	struct snapshot *s = ctx;

	if (c->transport == MCP_STDIO || !flow_is_served(pipeline_flow(s->p, c->conn_id)))
		pipeline_add_mcp(s->p, s->spans, c);
}

static void snapshot_operation(void *ctx, const struct http_operation *o)
{
	struct snapshot *s = ctx;

	const struct proc *proc = procs_get(s->p->procs, &o->conn);

	pipeline_add_operation(s->p, s->spans, o, proc);
	if (proc)
		procs_show(s->p->procs, &proc->key);
}

static void snapshot_turn(void *ctx, const struct turn *t)
{
	struct snapshot *s = ctx;
	struct span span;

	pipeline_add_span(s->p, s->spans, span_from_turn(&span, t), &span);
}

struct naming {
	struct trace_agent_name *names;
	size_t count;
};

static void name_agent(void *ctx, const struct agent *a)
{
	struct naming *n = ctx;

	if (a->name)
		n->names[n->count++] = (struct trace_agent_name){a->index, a->name};
}

static const char *name_process(void *ctx, const struct proc_key *key, uint32_t *shown_pid)
{
	const struct proc *proc = pipeline_proc(ctx, key);

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
	struct naming agents = {.names = calloc(AGENTS_MAX, sizeof(*agents.names))};
	const struct profile_namer namer = {p, name_process};
	struct buf verdict, profile;
	int err;

	if (!s.spans || !agents.names) {
		spans_free(s.spans);
		free(agents.names);
		return -ENOMEM;
	}
	agents_each(p->agents, name_agent, &agents);
	meta->agent_names = agents.names;
	meta->agent_name_count = agents.count;
	buf_init(&verdict, 0); /* bounded: a sentence and numbers */
	buf_init(&profile, 0); /* bounded: PROFILE_WRITTEN_MAX, max_events */
	exchanges_each_open(p->exchanges, now_ns, snapshot_call, &s);
	beside_each(p->beside, snapshot_call, &s);
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
	free(agents.names);
	buf_release(&verdict);
	buf_release(&profile);
	spans_free(s.spans);
	return err;
}
