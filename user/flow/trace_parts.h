/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_TRACE_PARTS_H
#define FLOW_TRACE_PARTS_H

/*
 * What the files of the trace's text share. Private to them: trace.c writes it, trace_layout.c gives spans their places
 * before, trace_names.c tells tracks and processes, trace_counters.c what changes over time.
 */

#include "trace.h"

#include <inttypes.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/err.h"

#define SELF_PID 9999999u /* of events that belong to no process; below the synthetic pids of proc.h */

/* A span's place, for lanes and counters. */
struct item {
	uint64_t begin, end;	   /* since the trace's start */
	uint64_t first, last;	   /* tokens; == end where there is none */
	int64_t in_rate, out_rate; /* thousandths of a token/s: integers, so that sums come back to exactly 0 */
	uint32_t pid, index, agent;
	uint64_t flow_out, flow_in;
	uint8_t track;
	bool is_call;
};

/* One kind of lane of one agent of one process. */
struct row {
	uint32_t pid, lanes, agent;
	uint32_t first_lane; /* those of the agents before it come first */
	uint32_t order;	     /* thread_sort_index of its first lane */
	uint8_t track;
};

/* Where an arrow begins: one an id. */
struct arrow {
	uint64_t id, at; /* at: since the trace's start */
	uint32_t index;	 /* of the item */
};

/* A process that has anything to show. */
struct shown {
	uint32_t pid;
	const struct proc *proc; /* NULL: forgotten */
	bool has_spans;
};

struct writing {
	const struct trace_meta *meta;
	const struct trace_sink *sink;
	struct buf line;
	int err;	  /* sticky */
	uint64_t timed;	  /* events with a ts */
	uint64_t samples; /* of counters, so far */
	uint64_t skipped; /* so many of the first ones are not written */
	bool comma;
	uint64_t latest; /* latest end, since the trace's start */

	struct item *items;
	size_t item_count, item_size;
	uint32_t *lanes; /* by item index */
	struct row *rows;
	size_t row_count, row_size;
	struct shown *shown;
	size_t shown_count, shown_size;
	struct arrow *arrows; /* sorted; those of which both ends are there */
	size_t arrow_count;
	uint32_t *quiets; /* pids of processes that are not to be shown, sorted */
	size_t quiet_count, quiet_size;
	size_t cursor; /* item index while spans are written */
};

/* Nanoseconds as microseconds with exactly three decimals. */
#define US_FORMAT "%" PRIu64 ".%03u"
#define US(ns)	  (uint64_t)(ns) / 1000, (unsigned)((ns) % 1000)

/* trace.c. Text: formatted pieces are short; strings of others go through trace_put_text(). */
void trace_put(struct writing *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void trace_put_text(struct writing *w, struct sv text);
void trace_begin_event(struct writing *w);
void trace_put_slice(struct writing *w, uint32_t pid, uint32_t tid, struct sv name, const char *cat, uint64_t begin,
		     uint64_t end);
void trace_put_own_name(struct writing *w);
void trace_put_arrow_end(struct writing *w, uint64_t id, uint32_t pid, uint32_t tid, uint64_t begin);
uint64_t trace_relative(const struct writing *w, uint64_t ns); /* to the trace's start */
uint32_t trace_viewer_pid(uint32_t pid);

/* trace_layout.c */
void trace_lay_out(struct writing *w, const struct spans *spans, const struct spans *extra, struct procs *procs);
bool trace_is_quiet(const struct writing *w, const struct span *s);
struct shown *trace_find_shown(const struct writing *w, size_t count, uint32_t pid);
const struct arrow *trace_find_arrow(const struct arrow *arrows, size_t count, uint64_t id);

/* trace_names.c */
void trace_put_names(struct writing *w);
void trace_put_lives(struct writing *w);
bool trace_draws_life(const struct writing *w, const struct shown *s);
uint64_t trace_life_end(const struct writing *w, const struct proc *p);
uint32_t trace_track_tid(uint8_t track, uint32_t lane, uint32_t pid);
uint32_t trace_track_order(uint8_t track); /* within a process */
struct sv trace_cut_text(struct sv text, size_t max);

/* trace_counters.c */
void trace_put_newest_counters(struct writing *w);
void trace_put_measured(struct writing *w);

#endif
