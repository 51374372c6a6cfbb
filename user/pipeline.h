/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PIPELINE_H
#define PIPELINE_H

/*
 * The house: builds every stage, last room first, and wires their sinks. Ownership and adaptors, no logic. No libbpf.
 */

#include "flow/agent/agents.h"
#include "flow/attempts.h"
#include "flow/conn.h"
#include "flow/coverage.h"
#include "flow/dns.h"
#include "flow/db/command.h"
#include "flow/http/operation.h"
#include "flow/interest.h"
#include "flow/llm/call.h"
#include "flow/llm/mcp_call.h"
#include "flow/proc.h"
#include "flow/span.h"
#include "flow/trace.h"
#include "flow/wire.h"

struct pipeline_config {
	uint64_t stale_ns, sweep_ns;
	uint64_t max_events;
	bool no_trace; /* none will be written: spans that are dropped are no loss */
	bool content;
	bool db;	   /* database commands are read */
	bool http;	   /* every HTTP exchange is told */
	bool callers_only; /* processes that make no model call are counted, and not shown */
	void *ctx;
	/* A call ended. NULL members are skipped. */
	void (*on_call)(void *ctx, const struct call *c, const struct proc *p, const struct agent_place *place);
	/* A turn is over. */
	void (*on_turn)(void *ctx, const struct turn *t);
	/* A request of MCP ended. */
	void (*on_mcp)(void *ctx, const struct mcp_call *c);
	/* A database command ended. p may be NULL. */
	void (*on_db)(void *ctx, const struct db_command *c, const struct proc *p);
	/* An HTTP exchange that is no call ended. p may be NULL. */
	void (*on_http)(void *ctx, const struct http_operation *o, const struct proc *p);
	/* A connection was tried in vain. host: text, "" not known. */
	void (*on_attempt)(void *ctx, const struct attempt *a, const char *host);
	/* A name was looked up that no connection followed. */
	void (*on_lookup)(void *ctx, const struct dns_lookup *l);
	/* A connection, or half of one, carries nothing of interest any more, or does again. answers: the generation
	 * that its answers come on, 0: its own, or none. */
	void *interest_ctx;
	void (*on_interest)(void *interest_ctx, const struct conn_key *conn, uint32_t answers, enum interest_word word);
	/* Of a connection, bytes of that direction before this position are a body that nobody wants. */
	void (*on_pass)(void *interest_ctx, const struct conn_key *conn, enum dir dir, uint64_t until);
	/* Plaintext should come and does not: once a process and state of its files. why: text, p may be NULL. */
	void (*on_silent)(void *interest_ctx, const struct wire_conn *c, const struct proc *p, const char *why);
};

struct pipeline;

struct pipeline *pipeline_new(const struct pipeline_config *cfg); /* NULL: ENOMEM */
void pipeline_free(struct pipeline *p);
void pipeline_push(struct pipeline *p, const void *record, size_t len);
/* These will be pushed soon: what is known of their connections is fetched into the caches. A hint: they may be
 * anything, and more than PIPELINE_SOON_MAX are left out. */
#define PIPELINE_SOON_MAX CONN_SOON_MAX
void pipeline_soon(struct pipeline *p, const struct sv *records, unsigned count);
void pipeline_tick(struct pipeline *p, uint64_t now_ns);
void pipeline_finish(struct pipeline *p, uint64_t now_ns); /* closes what is open, in order */
const struct lost *pipeline_lost(const struct pipeline *p);
const struct coverage *pipeline_coverage(const struct pipeline *p);
/* Processes that made calls and run. */
void pipeline_each_caller(struct pipeline *p, void (*fn)(void *ctx, const struct proc_key *k), void *ctx);
unsigned pipeline_open_calls(const struct pipeline *p);
/* Why was it slow, in one sentence, as of now; nothing when no call was made. 0 or -errno of the buffer. Captured text:
 * not fit for a terminal as it is. */
int pipeline_verdict(struct pipeline *p, uint64_t now_ns, struct buf *out);
/* The trace as it stands; fills call_count, agent_count, verdict and lost of *meta. 0 or -errno. */
int pipeline_write_trace(struct pipeline *p, struct trace_meta *meta, uint64_t now_ns, const struct trace_sink *sink);

#endif
