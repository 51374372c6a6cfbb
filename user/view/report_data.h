/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VIEW_REPORT_DATA_H
#define VIEW_REPORT_DATA_H

/* What is kept of a trace. Private to report*.c. */

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "report.h"

enum report_table { TABLE_MODEL, TABLE_TOOL, TABLE_MCP, TABLE_DB, TABLES };

/* Parts of a verdict's wall time, in the order of doc/trace-format.md. */
enum { PARTS = 11 };
extern const char *const report_part_names[PARTS];

struct report_values { /* durations in ms */
	float *v;
	size_t count, room;
	uint64_t seen;
};

struct report_row {
	char *name; /* hash key; owned */
	uint64_t count, errors;
	double total_ms, in_tokens, out_tokens;
	double parts_ms[PARTS];
	struct report_values ms, ttft_ms;
	UT_hash_handle hh;
};

struct report_thread {
	uint32_t pid, tid;
	uint32_t first; /* the first thread of its process */
	char *process;	/* owned */
};

struct report_frame {
	char *name; /* owned: "function", or "[file]" where the function has none */
	char *module;
	uint32_t first; /* the first frame of the same text: what tables go by */
};

struct report_stack {
	unsigned kind;
	uint32_t thread, depth;
	double ns;
	uint64_t samples;
	bool broken, deep;
	uint32_t *frames; /* innermost first; owned */
};

enum report_section { SECTION_START, SECTION_EVENTS, SECTION_THREADS, SECTION_FRAMES, SECTION_STACKS, SECTION_END };

struct report {
	enum report_section section;
	char why[160];
	struct report_row *rows[TABLES];
	struct report_thread *threads;
	struct report_frame *frames;
	struct report_stack *stacks;
	size_t thread_count, frame_count, stack_count;
	size_t thread_room, frame_room, stack_room;
	/* Of the profile; 0: not sampled. */
	double period_ns, off_cpu_min_ns, broken_ns, deep_samples, cpu_samples, lost_samples;
	double duration_ms; /* of the trace, 0: not known */
	double window_ns;   /* of sampling, 0: not known */
	double lost;	    /* of everything */
	char *verdict;	    /* owned; NULL: none */
	uint64_t random;
};

/* As in the trace file; the first is what ran, the second what waited for a processor. */
enum { KIND_CPU, KIND_QUEUE, KINDS = 10 };
extern const char *const report_kind_names[KINDS];

/* What stacks add up to. */
struct report_sums {
	double kind_ns[KINDS];
	uint64_t kind_samples[KINDS];
	double *self_ns, *total_ns; /* by frame (its first), of what ran; owned */
	uint64_t *self_samples;
};
int report_sum(const struct report *r, struct report_sums *out); /* 0 or -ENOMEM */
void report_sums_release(struct report_sums *s);

/* Stacks of all threads of a process as one; NULL: no memory. Freed by the caller, the frames are the report's. */
struct report_stack *report_join_stacks(const struct report *r, size_t *count);

/* Entries by weight, heaviest first, equal ones in their order. */
struct report_entry {
	double weight;
	size_t at;
};
void report_sort(struct report_entry *e, size_t count);
/* The rows of a table by total time; NULL: no memory, or none. Freed by the caller. */
struct report_row **report_rows(const struct report *r, enum report_table table, size_t *count);
/* "function [file]", fit for a terminal. */
#define REPORT_NAME_BYTES 160
const char *report_frame_name(const struct report *r, uint32_t frame, char out[REPORT_NAME_BYTES]);

double report_quantile(struct report_values *v, double share); /* sorts; NAN: none */

#endif
