/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VIEW_VIEWS_H
#define VIEW_VIEWS_H

/* What a person reads: call records, live lines, the exit summary. */

#include "base/buf.h"
#include "flow/agent/agents.h"
#include "flow/attempts.h"
#include "flow/coverage.h"
#include "flow/db/command.h"
#include "flow/dns.h"
#include "flow/http/operation.h"
#include "flow/llm/call.h"
#include "flow/llm/mcp_call.h"

/* One JSON object and a newline: the call record of doc/calls-format.md. */
int view_call_json(struct buf *out, const struct call *c, const struct proc *p, const struct agent_place *place,
		   uint64_t start_ns, int64_t boot_to_unix_ns, bool content);
/* The same of a database command: "type":"db". */
int view_db_json(struct buf *out, const struct db_command *c, const struct proc *p, uint64_t start_ns);
/* The same of an HTTP exchange that is no call: "type":"http". */
int view_http_json(struct buf *out, const struct http_operation *o, const struct proc *p, uint64_t start_ns,
		   int64_t boot_to_unix_ns);
/* One line for a terminal, no control bytes from captured data. */
int view_call_line(struct buf *out, const struct call *c, const struct proc *p, uint64_t start_ns);

/* The same for a turn that took several steps; nothing for others, whose call's line says it all. */
int view_turn_line(struct buf *out, const struct turn *t, uint64_t start_ns);

/* The verdict as a line for a terminal. */
int view_verdict_line(struct buf *out, struct sv verdict);

/* Collects what the summary needs, a few bytes a call (bounded reservoir for percentiles). */
struct summary;
struct summary *summary_new(void);
void summary_free(struct summary *s);
void summary_push(struct summary *s, const struct call *c);
void summary_push_db(struct summary *s, const struct db_command *c);
void summary_push_http(struct summary *s, const struct http_operation *o);
/* A connection that was tried in vain. host: "" not known. */
void summary_push_attempt(struct summary *s, const struct attempt *a, const char *host);
/* A name that was looked up and nothing came of it; one with addresses is passed over. */
void summary_push_lookup(struct summary *s, const struct dns_lookup *l);
void summary_push_mcp(struct summary *s, const struct mcp_call *c);

/* What was seen often, by shape. */
#define SHAPE_TABLE_SHAPES 1024 /* kept; what comes later counts as one row without a shape */
#define SHAPE_TABLE_ROWS   10	/* shown: those that took the longest, all together */
struct shape_table;
struct shape_table *shape_table_new(void); /* NULL: ENOMEM */
void shape_table_free(struct shape_table *t);
/* ns: UNKNOWN_NS where its begin or end was not seen; rows: of its answer, UNKNOWN_COUNT */
void shape_table_push(struct shape_table *t, struct sv shape, uint64_t ns, int64_t rows, bool failed);
/* "12 database commands", "12 HTTP requests served". */
struct shape_words {
	const char *what, *how;
	const char *shape; /* what a line is: "shape", "route" */
	bool rows;	   /* with a column of them */
};
/* Nothing where nothing was pushed. 0 or -ENOMEM. */
int shape_table_render(struct shape_table *t, struct buf *out, const struct shape_words *words);
/* Calls, requests of MCP where there were some, tokens, TTFT and token-rate percentiles, losses, coverage table. 0 or
 * -ENOMEM. */
int summary_render(struct summary *s, struct buf *out, const struct lost *lost, const struct coverage *coverage,
		   uint64_t duration_ns);

#endif
