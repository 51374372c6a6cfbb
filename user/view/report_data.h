/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VIEW_REPORT_DATA_H
#define VIEW_REPORT_DATA_H

/* What is kept of a trace. Private to report*.c. */

#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"
#include "report.h"

#define REPORT_NUMBER_MAX 1.8e19 /* of a trace, which has counts of 64 bits */

enum report_table { TABLE_MODEL, TABLE_TOOL, TABLE_MCP, TABLE_DB, TABLE_HTTP, TABLE_CONNECT, TABLE_FUNC, TABLES };

/* Parts of a verdict's wall time, in the order of doc/trace-format.md: those of flow/agent/walltime.h (make
 * check-docs). */
enum { PARTS = 11 };
extern const char *const report_part_names[PARTS];

struct report_values { /* durations in ms */
	float *v;
	size_t count, room;
	uint64_t seen;
	double largest; /* of all that were seen */
};

struct report_row {
	char *name; /* hash key: what it is, and " @ " whose; owned */
	size_t what_len;
	size_t at; /* in row_list */
	uint64_t count, errors;
	uint64_t partial;			/* of count: their begin or end was not seen, they have no duration */
	uint64_t uncounted;			/* of count: calls of models that do not say how many tokens */
	double total_ms, in_tokens, out_tokens; /* tokens: NAN where never told */
	double parts_ms[PARTS];
	struct report_values ms, ttft_ms;
	UT_hash_handle hh;
};

/* A call of a model. Numbers are NAN, texts NULL where the trace does not say. */
struct report_call {
	uint32_t pid;
	double id, start_ms, ms, setup_ms, ttft_ms, in_tokens, cached_tokens, out_tokens, status;
	double parts_ms[PARTS];
	const struct report_row *row; /* its model */
	char *end;		      /* owned: what went wrong, or why it stopped */
	bool failed;
	bool partial; /* its begin or end was not seen: it took longer than that */
};

struct report_process {
	uint32_t pid;
	size_t at;	       /* in process_list */
	char *name;	       /* owned; NULL: not told */
	uint64_t calls, timed; /* of models; those that were seen from begin to end */
	double call_ms, in_tokens, out_tokens;
	double exit_cpu_ms; /* what it had used when it ended; NAN: it runs, or nobody says */
	bool sampled;
	double cpu_ns, queue_ns, blocked_ns; /* of its samples */
	UT_hash_handle hh;
};

struct report_thread {
	uint32_t pid, tid;
	uint32_t first; /* the first thread of its process */
	char *process;	/* owned */
};

struct report_frame {
	char *name;	/* owned; "": it has none */
	char *module;	/* owned; its file, or what it is in brackets */
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

/* What a stack allocated; bytes that were touched first (page faults). NAN: not known. */
struct report_memory {
	struct report_stack stack; /* without time */
	bool fault;
	uint32_t allocator; /* its process; their number: it is not told */
	double bytes, error, count, kept_bytes, kept_count;
};

#define REPORT_LIBRARIES_MAX 8

/* A process that allocates. */
struct report_allocator {
	uint32_t pid;
	char name[64];				  /* captured text, may be cut */
	char libraries[REPORT_LIBRARIES_MAX][16]; /* whose functions handed out memory; "": no more */
	double share;				  /* of its own processor time that was looked at */
	double bytes, error, count, windows;
	double window_us; /* when its last window ended */
	uint32_t first;	  /* the first one of the same pid */
};

/* A sample of an allocation: what it stands for in its window. */
struct report_allocation {
	double at_us;
	uint32_t tid, memory;
	float bytes, count;
};

/* What was counted in a window of a process; its own processor time there, and since the window before. */
struct report_window {
	double at_us, before_us; /* their ends */
	uint32_t allocator;
	double cpu_ns, own_ns, whole_ns, bytes, count;
};

struct report_sample {
	double at_us; /* when it was, or began to wait, since the trace's start */
	float us;     /* how long, or what it stands for */
	uint32_t stack;
};

enum report_section {
	SECTION_START,
	SECTION_EVENTS,
	SECTION_THREADS,
	SECTION_FRAMES,
	SECTION_STACKS,
	SECTION_TIMELINE,
	SECTION_MEMORY,
	SECTION_ALLOCATIONS,
	SECTION_WINDOWS,
	SECTION_END,
};

struct report {
	enum report_section section;
	char why[160];
	double from_ms; /* of what is looked at; 0: all of it */
	struct report_row *rows[TABLES];
	struct report_row **row_list[TABLES];
	size_t row_room[TABLES];
	struct report_call *calls; /* a heap, the fastest on top */
	struct report_process *processes, **process_list;
	struct report_thread *threads;
	struct report_frame *frames;
	struct report_stack *stacks;
	struct report_memory *memory;
	struct report_allocator *allocators;
	struct report_allocation *allocations; /* by time, likewise, see alloc_from_us */
	struct report_window *windows;
	bool alloc_timed;	       /* the trace says when allocations were */
	struct report_sample *samples; /* by time; all of it, or what is left of it, see timeline_from_us */
	bool timed;		       /* the trace says when samples were */
	size_t call_count, process_count, thread_count, frame_count, stack_count, sample_count, memory_count,
		allocator_count, allocation_count, window_count;
	size_t call_room, process_room, thread_room, frame_room, stack_room, sample_room, memory_room, allocator_room,
		allocation_room, window_room;
	/* Of the profile; 0: not sampled. */
	double period_ns, off_cpu_min_ns, broken_ns, deep_samples, cpu_samples, lost_samples;
	double alloc_bytes;	 /* one sample of allocations in so many; 0: not sampled */
	double timeline_from_us; /* earlier samples have no time; 0: all have */
	double alloc_from_us;	 /* likewise of allocations */
	double duration_ms;	 /* of the trace, 0: not known */
	double window_ns;	 /* of sampling, 0: not known */
	double lost;		 /* of everything: 0 or not, events and bytes together */
	char losses[1024];	 /* "lost_events 2, lost_bytes 7": what is not 0; captured text, may be cut */
	uint64_t unlisted;	 /* calls, ends and samples of processes beyond REPORT_PIDS_MAX */
	char *verdict;		 /* owned; NULL: none */
	char axes[4096];	 /* "db http": what it was taken with */
	bool axes_told;		 /* older traces do not say */
	struct report_ops *ops;	 /* report_op.h; owned */
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
	uint64_t *self_samples, *total_samples;
	struct report_stack *joined; /* stacks of all threads of a process as one; the frames are the report's */
	size_t joined_count;
};
int report_sum(const struct report *r, struct report_sums *out); /* 0 or -ENOMEM */
void report_sums_release(struct report_sums *s);

/* Entries by weight, heaviest first, equal ones in their order. */
struct report_entry {
	double weight;
	size_t at;
};
void report_sort(struct report_entry *e, size_t count);
/* "function [file]", fit for a terminal. Functions that are not the same may have the same beginning. */
#define REPORT_NAME_BYTES  160 /* of it in a table */
#define REPORT_FRAME_BYTES 640 /* of all of it */
const char *report_frame_name(const struct report *r, uint32_t frame, char *out, size_t size);

double report_quantile(struct report_values *v, double share); /* sorts; as quantile_of_floats() */

/* A row of samples' times. 0, -ENOMEM, -EBADMSG: it is none. */
int report_timeline_row(struct report *r, const cJSON *row);
/* Is it known what ran in what is looked at? */
bool report_window_known(const struct report *r);
/* After the last row: stacks are those of what is looked at, if that is known. */
void report_cut_to_window(struct report *r);
/* As far as sampling lasted in it. */
void report_cut_sampling(struct report *r);
double report_sampled_s(const struct report *r); /* how long sampling lasted */

/* report_alloc_time.c. Rows of the two tables of times: as report_timeline_row(). */
int report_allocations_row(struct report *r, const cJSON *row);
int report_window_row(struct report *r, const cJSON *row);
/* Once all rows are read: whose memory it is. 0 or -ENOMEM. */
int report_join_allocators(struct report *r);
/* Is it known what was allocated in what is looked at? */
bool report_allocations_known(const struct report *r);
/* After report_join_allocators(): allocations are those of what is looked at, if that is known. 0 or -ENOMEM. */
int report_cut_allocations(struct report *r);
/* From a time on, by process: sums of its windows, and what each sampled byte stands for (NAN: not known). */
struct report_scale {
	double windows, cpu_ns, own_ns, whole_ns, bytes, count, sampled;
	double told_bytes; /* all that the process asked for, as the trace tells it: by the windows that tell it best,
			      which need not be all of them (flow/profile_alloc.c). NAN: that is not known */
	double factor;
};
struct report_scale *report_alloc_scales(const struct report *r, double from_us); /* NULL: no memory. The caller's. */
struct report_alloc_sum {							  /* by row of memory */
	double bytes, count;
	uint64_t samples;
};
void report_add_allocation(const struct report *r, const struct report_scale *scales, size_t at,
			   struct report_alloc_sum *sums);

/*
 * The time of these stacks (a flag each), ms a second, in each of as many parts of the sampling: sorted. Samples that
 * are near each other are alike, parts of seconds less so. None where times are not known. 0 or -ENOMEM.
 */
#define REPORT_SLICES 20
int report_slices(const struct report *r, const bool *of_stack, struct report_values *out);

/* Keeps a value, or a fair sample of many. 0 or -ENOMEM. */
int report_add_value(struct report *r, struct report_values *v, double ms);
/* A number of a document that means something (no NaN, nothing negative); else `otherwise`. */
double report_member(const cJSON *object, const char *key, double otherwise);
/* One of traceEvents. 0 or -ENOMEM. */
int report_event(struct report *r, const cJSON *e);
void report_events_release(struct report *r);
struct report_process *report_process_of(struct report *r, uint32_t pid); /* NULL: no memory, or too many */

#endif
