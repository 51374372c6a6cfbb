/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "pipeline_parts.h"

#include <errno.h>
#include <stdlib.h>

#define AGENTS_TICK_NS 1000000000ull /* of event time: how often what is past becomes final */

struct pipeline *pipeline_new(const struct pipeline_config *cfg)
{
	struct pipeline *p = calloc(1, sizeof(*p));
	struct exchange_config exchange_cfg = {.stale_ns = cfg->stale_ns,
					       .sweep_ns = cfg->sweep_ns,
					       .content = cfg->content,
					       .anybody = cfg->callers_only};
	struct mcp_config mcp_cfg = {.stale_ns = cfg->stale_ns, .sweep_ns = cfg->sweep_ns, .content = cfg->content};
	struct operations_config operations_cfg = {.stale_ns = cfg->stale_ns, .sweep_ns = cfg->sweep_ns};
	const struct record_sink record_sink = pipeline_record_sink(p);
	const struct halves_sink halves_sink = pipeline_halves_sink(p);
	const struct conn_sink conn_sink = pipeline_conn_sink(p);
	const struct exchange_sink exchange_sink = pipeline_exchange_sink(p);
	const struct beside_sink beside_sink = pipeline_beside_sink(p);
	const struct mcp_sink mcp_sink = pipeline_mcp_sink(p);
	const struct operations_sink operations_sink = pipeline_operations_sink(p);
	const struct wire_sink wire_sink = pipeline_wire_sink(p);
	const struct dns_sink dns_sink = pipeline_dns_sink(p);
	const struct attempts_sink attempts_sink = pipeline_attempts_sink(p);
	const struct proc_sink proc_sink = pipeline_proc_sink(p);
	const struct agents_sink agents_sink = pipeline_agents_sink(p);
	const struct db_sink db_sink = pipeline_db_sink(p);

	if (!p)
		return NULL;
	p->cfg = *cfg;
	p->agents = agents_new(&p->lost, &agents_sink);
	p->spans = spans_new(cfg->max_events, cfg->no_trace ? &p->unwritten : &p->lost);
	p->coverage = coverage_new(&p->lost);
	p->procs = procs_new(&p->lost, &proc_sink);
	p->exchanges = exchanges_new(&exchange_cfg, &p->lost, &exchange_sink);
	p->beside = beside_new(&p->lost, &beside_sink);
	p->mcp = mcp_new(&mcp_cfg, &p->lost, &mcp_sink);
	p->conns = conns_new(&p->lost, &conn_sink);
	p->wires = wires_new(&p->lost, &wire_sink);
	if (cfg->db)
		p->sqlite = sqlite_new(&p->lost, &db_sink);
	if (cfg->http)
		p->operations = operations_new(&operations_cfg, &p->lost, &operations_sink);
	p->halves = halves_new(&p->lost, &halves_sink);
	p->profile = profile_new(&p->lost, cfg->max_events);
	p->functions = functions_new();
	p->attempts = attempts_new(&attempts_sink);
	p->tunnels = tunnels_new(p->attempts);
	p->dns = dns_new(&p->lost, &dns_sink, p->attempts);
	p->counters = counters_new(cfg->max_events);
	if ((cfg->db && !p->sqlite) || (cfg->http && !p->operations) || !p->profile || !p->functions || !p->dns ||
	    !p->attempts || !p->tunnels || !p->counters || !p->wires || !p->agents || !p->spans || !p->coverage ||
	    !p->procs || !p->exchanges || !p->beside || !p->mcp || !p->conns || !p->halves) {
		pipeline_free(p);
		errno = ENOMEM;
		return NULL;
	}
	procs_set_content(p->procs, cfg->content);
	coverage_set_callers_only(p->coverage, cfg->callers_only);
	record_init(&p->record, &p->lost, &record_sink);
	return p;
}

void pipeline_free(struct pipeline *p)
{
	if (!p)
		return;
	pipeline_free_flows(p);
	conns_free(p->conns);
	halves_free(p->halves);
	exchanges_free(p->exchanges);
	beside_free(p->beside);
	agents_free(p->agents);
	profile_free(p->profile);
	functions_free(p->functions);
	mcp_free(p->mcp);
	wires_free(p->wires);
	sqlite_free(p->sqlite);
	operations_free(p->operations);
	dns_free(p->dns);
	tunnels_free(p->tunnels);
	attempts_free(p->attempts);
	counters_free(p->counters);
	procs_free(p->procs);
	coverage_free(p->coverage);
	spans_free(p->spans);
	free(p);
}

static void tick_agents(struct pipeline *p, uint64_t now_ns)
{
	uint64_t open_ns, waits_ns;

	if (now_ns < p->agents_tick_ns + AGENTS_TICK_NS)
		return;
	p->agents_tick_ns = now_ns;
	open_ns = exchanges_first_open_ns(p->exchanges, now_ns);
	waits_ns = beside_first_ns(p->beside);
	agents_tick(p->agents, now_ns, open_ns < waits_ns ? open_ns : waits_ns);
}

void pipeline_push(struct pipeline *p, const void *record, size_t len)
{
	record_push(&p->record, record, len);
}

void pipeline_tick(struct pipeline *p, uint64_t now_ns)
{
	halves_tick(p->halves, now_ns);
	conns_tick(p->conns, now_ns);
	wires_tick(p->wires, now_ns);
	dns_tick(p->dns, now_ns);
	tunnels_tick(p->tunnels, now_ns);
	attempts_tick(p->attempts, now_ns);
	pipeline_count(p, COUNTER_LOST, 0, now_ns, lost_total(&p->lost));
	pipeline_tick_flows(p, now_ns);
	exchanges_tick(p->exchanges, now_ns);
	beside_tick(p->beside, now_ns);
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
	tunnels_finish(p->tunnels, now_ns);
	attempts_finish(p->attempts, now_ns);
	dns_finish(p->dns);
	exchanges_tick(p->exchanges, now_ns);
	beside_finish(p->beside);
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
