/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_TRACE_H
#define FLOW_TRACE_H

/*
 * The trace file's text: Chrome Trace Event JSON, by doc/trace-format.md. Lanes are given out here, from all spans at
 * once: the lowest lane that is free at the span's begin. Written in pieces to a sink, one event a line.
 */

#include "counters.h"
#include "functions.h"
#include "proc.h"
#include "span.h"

#define TRACE_COMMAND_BYTES 4096

#define TRACE_AXES_MAX 8

/* What kind of sub-agent has this index. */
struct trace_agent_name {
	unsigned index;
	const char *name; /* captured text */
};

struct trace_meta {
	uint64_t start_ns;	 /* zero of ts */
	uint64_t now_ns;	 /* where open process spans end; 0: the latest time in the trace */
	int64_t boot_to_unix_ns; /* 0 unknown */
	const char *version, *host, *kernel;
	const char *command;		  /* redacted */
	const char *axes[TRACE_AXES_MAX]; /* options that decide what is in the trace, "alloc=524288"; the first NULL
					     ends it */
	uint64_t call_count, agent_count;
	const struct trace_agent_name *agent_names; /* by index */
	size_t agent_name_count;
	uint64_t max_events; /* counter samples that are more are left out, the oldest first; 0: no limit */
	const struct lost *lost;
	const struct counters *counters;   /* NULL: none */
	bool callers_only;		   /* processes without a model call are left out */
	struct sv attach_json;		   /* array text: chosen probe sites and classes; absent: none */
	struct sv verdict_json;		   /* object text; absent: none */
	struct sv self_json;		   /* object text: what tracing cost; absent: none */
	const struct functions *functions; /* NULL: none is traced by name */
	struct sv profile_json;		   /* object text: samples, see flow/profile.h; absent or empty: none */
};

struct trace_sink {
	void *ctx;
	int (*write)(void *ctx, const void *ptr, size_t len); /* 0 or -errno, which ends the writing */
};

/* `extra`: spans of calls that are still open (unfinished), may be NULL. 0, -ENOMEM, or what the sink returned. Texts
 * of *meta that are NULL are written as "unknown"; `command` is cut at TRACE_COMMAND_BYTES. */
int trace_write(const struct spans *spans, const struct spans *extra, struct procs *procs,
		const struct trace_meta *meta, const struct trace_sink *sink);

#endif
