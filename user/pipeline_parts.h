/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PIPELINE_PARTS_H
#define PIPELINE_PARTS_H

/*
 * What the files of the pipeline share. Private to them: pipeline.c builds the house, pipeline_record.c leads records
 * to their stages, pipeline_conn.c owns what a connection has downstream, pipeline_spans.c turns what stages tell into
 * spans and lines, pipeline_trace.c writes the verdict and the trace.
 */

#include "pipeline.h"

#include <utlist.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/warm.h"
#include "flow/db/db.h"
#include "flow/db/sqlite.h"
#include "flow/functions.h"
#include "flow/halves.h"
#include "flow/http/operations.h"
#include "flow/interest.h"
#include "flow/llm/beside.h"
#include "flow/llm/exchange.h"
#include "flow/llm/mcp.h"
#include "flow/profile.h"
#include "flow/proto/proto.h"
#include "flow/tunnels.h"

#define FLOW_RETRANSMITS_MAX 64 /* latest retransmit times kept of one connection, for the instants on its calls */

#define FLOW_WARM_EVERY 8 /* pieces of a connection, until it is noted anew what they look at */

/* Where a process answers requests. */
struct served_at {
	struct sock_addr at; /* family 0: free */
	struct conn_key process;
};

#define SERVED_AT_MAX 64 /* past it the oldest goes */

struct pipeline {
	struct pipeline_config cfg;
	char axes[TRACE_AXES_MAX][32]; /* texts of the trace that is written */
	struct lost lost;
	struct lost unwritten; /* of spans, where no trace is written */
	struct record record;
	struct procs *procs;
	struct halves *halves;
	struct conns *conns;
	struct wires *wires;
	struct dns *dns;
	struct attempts *attempts;
	struct tunnels *tunnels;
	struct counters *counters;
	struct exchanges *exchanges;
	struct beside *beside;
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
	struct flow *waiting;	 /* those for which time matters, see proto_waits() */
	uint64_t call_count;
	struct served_at served[SERVED_AT_MAX];
	unsigned served_count; /* ever */
	bool looks_ahead;      /* pipeline_soon() was called: a replay does not need it */
};

/* What one connection owns downstream of the conn stage (conn->ctx). */
struct flow {
	/* First what each piece of bytes looks at. */
	struct pipeline *p;
	struct conn *conn;
	struct proto *proto;
	struct exchange_flow *exchanges;
	struct mcp_flow *mcp;
	struct db *db;			   /* NULL: not asked for, or it is something else */
	struct operation_flow *operations; /* NULL: not asked for */
	uint64_t first_plain_ns;	   /* entry of the first call that moved plaintext, UNKNOWN_NS: none yet */
	unsigned ended_calls;		   /* of the calls that began on it */
	bool begun;			   /* bytes came */
	bool stale;			   /* the connection changed, and the copies below are of before */
	bool waits;			   /* it is in pipeline.waiting: */
	bool looked_up;			   /* setup is filled */
	bool served_noted;		   /* in pipeline.served */
	bool setup_paid;		   /* a call drew the connection's set-up */
	struct interest interest;
	unsigned pieces;  /* ever */
	struct warm warm; /* as of one of the last FLOW_WARM_EVERY pieces */
	struct flow *prev, *next;
	struct exchange_conn view;
	struct operation_conn asked;
	struct dns_setup setup;
	uint64_t passed[2]; /* by direction: as it was said last */
	uint64_t conn_id;   /* hash key */
	UT_hash_handle hh;
	uint64_t retransmits[FLOW_RETRANSMITS_MAX];
	unsigned retransmit_count; /* ever; the ring index is modulo */
};

/* pipeline_record.c */
struct record_sink pipeline_record_sink(struct pipeline *p);
struct halves_sink pipeline_halves_sink(struct pipeline *p);

/* pipeline_conn.c */
struct conn_sink pipeline_conn_sink(struct pipeline *p);
struct flow *pipeline_flow(struct pipeline *p, uint64_t conn_id); /* NULL: it has ended */
/* Somebody else's calls, which the traced program answers. f NULL: no. */
bool flow_is_served(const struct flow *f);
/* The process that answered requests there at that time (and is traced) makes calls itself. */
bool pipeline_answers_and_calls(struct pipeline *p, const struct sock_addr *at, uint64_t ts_ns);
void pipeline_tick_flows(struct pipeline *p, uint64_t now_ns);
void pipeline_free_flows(struct pipeline *p); /* of connections that are open still; before the stages go */

/* pipeline_spans.c */
const struct proc *pipeline_proc(struct pipeline *p, const struct proc_key *key); /* NULL: it is not known */
struct exchange_sink pipeline_exchange_sink(struct pipeline *p);
struct beside_sink pipeline_beside_sink(struct pipeline *p);
struct mcp_sink pipeline_mcp_sink(struct pipeline *p);
struct operations_sink pipeline_operations_sink(struct pipeline *p);
struct db_sink pipeline_db_sink(struct pipeline *p);
struct wire_sink pipeline_wire_sink(struct pipeline *p);
struct dns_sink pipeline_dns_sink(struct pipeline *p);
struct attempts_sink pipeline_attempts_sink(struct pipeline *p);
struct proc_sink pipeline_proc_sink(struct pipeline *p);
struct agents_sink pipeline_agents_sink(struct pipeline *p);
void pipeline_count(struct pipeline *p, enum counter_kind kind, uint32_t pid, uint64_t ts_ns, uint64_t value);
/* Into `spans`: those of the run, or of a snapshot of what is open. What finds no memory is counted.
 * pipeline_add_span() takes the span; err: it could not be made. */
void pipeline_add_span(struct pipeline *p, struct spans *spans, int err, struct span *span);
void pipeline_add_call(struct pipeline *p, struct spans *spans, const struct call *c, const struct proc *proc,
		       const struct agent_place *place);
void pipeline_add_mcp(struct pipeline *p, struct spans *spans, const struct mcp_call *c);
void pipeline_add_operation(struct pipeline *p, struct spans *spans, const struct http_operation *o,
			    const struct proc *proc);

#endif
