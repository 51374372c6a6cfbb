/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PIPELINE_H
#define PIPELINE_H

/*
 * The house: builds every stage, last room first, and wires their sinks. Ownership and adaptors, no logic. No libbpf.
 */

#include "flow/conn.h"
#include "flow/llm/call.h"
#include "flow/proc.h"
#include "flow/span.h"
#include "flow/trace.h"

struct pipeline_config {
	uint64_t stale_ns, sweep_ns;
	uint64_t max_events;
	bool content;
	void *ctx;
	/* A call ended. NULL members are skipped. */
	void (*on_call)(void *ctx, const struct call *c, const struct proc *p);
	/* A process appeared by exec, forked, ended: for who is traced. */
	void (*on_exec)(void *ctx, const struct rec_exec *r);
	void (*on_fork)(void *ctx, const struct rec_fork *r);
	void (*on_exit)(void *ctx, const struct rec_exit *r);
};

/* What became of one connection, for the coverage table. */
struct coverage_row {
	const struct proc *proc;
	uint64_t connections, decoded, undecoded, served, empty;
	uint64_t calls;
	char reason[96]; /* of undecoded ones, the most frequent */
};

struct pipeline;

struct pipeline *pipeline_new(const struct pipeline_config *cfg); /* NULL: ENOMEM */
void pipeline_free(struct pipeline *p);
void pipeline_push(struct pipeline *p, const void *record, size_t len);
void pipeline_tick(struct pipeline *p, uint64_t now_ns);
void pipeline_finish(struct pipeline *p, uint64_t now_ns); /* closes what is open, in order */
struct lost *pipeline_lost(struct pipeline *p);
struct procs *pipeline_procs(struct pipeline *p);
uint64_t pipeline_call_count(const struct pipeline *p);
uint64_t pipeline_agent_count(const struct pipeline *p); /* processes that made a model call */
void pipeline_coverage(struct pipeline *p, void (*fn)(void *ctx, const struct coverage_row *r), void *ctx);
/* The trace as it stands; fills call_count, agent_count and lost of *meta. 0 or -errno. */
int pipeline_write_trace(struct pipeline *p, struct trace_meta *meta, uint64_t now_ns, const struct trace_sink *sink);

#endif
