/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef OUTPUT_H
#define OUTPUT_H

/* What a run leaves: call records, live lines, the trace file, the summary. Shared by record and replay. */

#include "capture.h"
#include "options.h"
#include "pipeline.h"

struct output_config {
	const struct options *options;	 /* borrowed */
	const char *trace_path;		 /* NULL: no trace; "-": standard output; borrowed */
	const struct capture_info *info; /* borrowed */
	const char *command;		 /* for metadata: redacted; borrowed */
};

struct output;

/* May the files be written? Printed when not. 0 or -errno. Old files stay as they are, no new one is left. Two
 * outputs in one file are -EBUSY. */
int output_check(const struct options *o, const char *trace_path);
/* Opens the calls file, beside an old one. Printed on failure; NULL with errno. */
struct output *output_new(const struct output_config *cfg);
/* Tracing begins: the calls file takes its name, so that readers may follow it while it grows. Printed on failure. 0 or
 * -errno. */
int output_begin(struct output *out);
void output_free(struct output *out);

/* A call ended: record, live line, summary. For pipeline_config.on_call, ctx is the output. */
void output_call(void *out, const struct call *c, const struct proc *p, const struct agent_place *place);
/* A turn is over: live line. For pipeline_config.on_turn. */
void output_turn(void *out, const struct turn *t);
/* A request of MCP ended: summary. For pipeline_config.on_mcp. */
void output_mcp(void *out, const struct mcp_call *c);
/* A database command ended: record, summary. For pipeline_config.on_db. */
void output_attempt(void *out, const struct attempt *a, const char *host);
void output_lookup(void *out, const struct dns_lookup *l);
void output_db(void *out, const struct db_command *c, const struct proc *p);
/* An HTTP exchange that is no call ended: record, summary. For pipeline_config.on_http. */
void output_http(void *out, const struct http_operation *o, const struct proc *p);
/* Writes the trace as it stands. attach: JSON array text, self: JSON object text, or absent. Printed on failure. 0 or
 * -errno. */
int output_trace(struct output *out, struct pipeline *p, uint64_t now_ns, struct sv attach, struct sv self);
/* Last of all: closes the calls file, prints the summary. 0, or the first error of any output so far. */
int output_finish(struct output *out, struct pipeline *p, uint64_t now_ns);

#endif
