/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROFILE_H
#define FLOW_PROFILE_H

/*
 * Samples of what runs (--cpu) and of what waits (--off-cpu), added up by thread, reason and stack of functions; and of
 * what is allocated (--alloc), by process and stack. What does not fit is still counted in the totals of its thread.
 *
 * Allocations are seen in windows: what a process allocated in all is what it allocated in those, times its own
 * processor time (without that of traps) over that in the windows. How far that may be off is estimated from how much
 * the windows differ from each other, and from what is not known of the cost of a trap.
 */

#include "base/buf.h"
#include "base/lost.h"
#include "record.h"

#define PROFILE_STACKS_MAX     65536  /* different ones; later ones count without frames */
#define PROFILE_THREADS_MAX    16384  /* later ones are one, "(others)" */
#define PROFILE_ADDRESSES_MAX  262144 /* named; later ones are "(not kept)" */
#define PROFILE_SYMBOLS_MAX    131072
#define PROFILE_FOLLOWED_MAX   65536 /* sampled allocations that were not seen freed; later ones are not followed */
#define PROFILE_ALLOCATORS_MAX 2000  /* processes that allocate; later ones are not told */
#define PROFILE_FAULT_BYTES    4096  /* what a page fault is taken for */
#define PROFILE_WRITTEN_MAX    20000 /* stacks in a trace, the heaviest; the rest counts without frames */
#define PROFILE_TIMED_MAX      (1u << 20) /* samples of which it is kept when they were: the newest, of memory apart */
#define PROFILE_WINDOWS_MAX    65536	  /* likewise windows */

/* Where a thread was: on a processor, waiting for one, or blocked, by what for. */
enum profile_kind {
	PROFILE_CPU,
	PROFILE_QUEUE,
	PROFILE_FUTEX,	/* locks and conditions */
	PROFILE_SOCKET, /* one of them: a read, write, connect, accept */
	PROFILE_POLL,	/* for any of several files: an event loop that has nothing to do */
	PROFILE_PIPE,
	PROFILE_DISK, /* files, page cache, memory that has to be read in */
	PROFILE_SLEEP,
	PROFILE_CHILD, /* waits for a process */
	PROFILE_OTHER,
	PROFILE_MEMORY, /* from here on no time */
	PROFILE_ALLOC = PROFILE_MEMORY,
	PROFILE_FAULT, /* pages touched for the first time */
	PROFILE_KINDS,
};
const char *profile_kind_name(enum profile_kind kind); /* as in the trace file */

/* How much of the user stack is known, by frame pointers. */
enum profile_state {
	PROFILE_WHOLE,
	PROFILE_DEEP,	/* it goes on above */
	PROFILE_BROKEN, /* it does not lead to the thread's first function: code without frame pointers */
};

struct profile;

/* Of `timed` samples it is kept when they were, PROFILE_TIMED_MAX at most. NULL: ENOMEM. */
struct profile *profile_new(struct lost *lost, uint64_t timed);
void profile_free(struct profile *p);
void profile_push_sampling(struct profile *p, const struct rec_sampling *r);
const struct rec_sampling *profile_sampling(const struct profile *p); /* all 0: none was told */
void profile_push_frame(struct profile *p, const struct rec_frame *r);
void profile_push_sample(struct profile *p, const struct rec_sample *r);
void profile_push_alloc_window(struct profile *p, const struct rec_alloc_window *r);
void profile_push_alloc_free(struct profile *p, const struct rec_alloc_free *r);
void profile_push_exit(struct profile *p, const struct rec_exit *r);

/* The process of samples, for the trace: its pid there, and its name. */
struct profile_namer {
	void *ctx;
	const char *(*name)(void *ctx, const struct proc_key *key, uint32_t *shown_pid); /* NULL: not known */
};

/* The object of doc/trace-format.md, "Profile", one row of a table a line; nothing when nothing is sampled. Times count
 * from start_ns. 0 or -errno. */
int profile_json(const struct profile *p, struct buf *out, const struct profile_namer *namer, uint64_t start_ns);

#endif
