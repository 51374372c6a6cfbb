/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_ALLOCWINDOW_H
#define ATTACH_ALLOCWINDOW_H

/*
 * A window of --alloc: probes on the allocators of one process for some milliseconds, and what it took of the process.
 *
 * Setting and removing the probes takes some 16 and 36 ms, of which the kernel works 0.3 ms and waits for the rest: a
 * thread of its own does that, with two that help to remove probes of several files at once (perfbpf's only ones
 * besides the main one), so that records are read meanwhile. They see nothing but the window that it was given, and the
 * kernel's variables. The kernel waits before it takes the first probe away, and not if some other change of probes was
 * just before: so there is one, of perfbpf's own, for which it waits while the window is still open.
 *
 * What a window holds is put in relation to the processor time that the process took for itself, not to time: the traps
 * make a busy program slower, and an idle one not. So the processor time of its threads is read at both ends (a clock a
 * thread, perf_event_open(2): what /proc tells is as old as the last tick), and what a trap takes is measured on this
 * machine, with a function of perfbpf's own, after each window. What a trap spoils besides is in ALLOC_SPOILS.
 *
 * Private to allocwatch.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/types.h>

#include "allocfind.h"
#include "bpf/event.h"

#define ALLOCWINDOW_FILES   8	/* allocators of one process */
#define ALLOCWINDOW_THREADS 256 /* of a process with more, the kernel's sum is taken, exact to a tick */

struct alloc_costs { /* ns of processor time a hit; 0: not known yet */
	uint32_t hit, slow, sample;
	uint32_t take; /* of a function that takes memory back */
};

/* How a program is attached. */
struct allocwindow_program {
	int fd;
	uint32_t type; /* of the link */
};

struct allocwindow_kernel {
	/* Entries alone; and with returns, for windows that follow: there are none where fd is < 0. The kernel takes
	 * every return of a function for a session, whatever process calls it: windows of another perfbpf would be
	 * slowed. */
	struct allocwindow_program entries, returns;
	bool by_process; /* the link takes a pid, and nobody else is slowed */
	/* Its variables of these names. */
	uint32_t *process, *open, *period, *follows, *layers;
	struct alloc_sums *sums;     /* LIMIT_ALLOC_SLOTS */
	struct alloc_site *sites;    /* LIMIT_ALLOC_SITES */
	void (*thread_begins)(void); /* called in each thread, first of all; NULL is fine */
};

struct allocwindow_file {
	int fd;
	const struct alloc_find *found; /* borrowed until the window is over */
	uint64_t without;		/* bit n: its function n is not probed */
};

struct allocwindow_job {
	pid_t pid;
	struct allocwindow_file files[ALLOCWINDOW_FILES];
	unsigned count;
	uint64_t length_ns;
	uint64_t cost_ns; /* ends earlier when traps took so much */
	uint32_t period;
	bool follows; /* what takes memory back is probed too */
	bool layers;  /* how each function is called is counted */
};

struct allocwindow_sums {
	uint64_t hits, slow_hits, count, bytes, samples, unfollowed, takes;
};

uint64_t allocwindow_cost(const struct alloc_costs *c, const struct allocwindow_sums *s);

struct allocwindow_result {
	int err; /* -errno: nothing was probed */
	uint64_t begin_ns, end_ns, cpu_ns;
	struct allocwindow_sums in;  /* of the window */
	struct allocwindow_sums all; /* and of the time that it took to set and remove the probes */
	struct alloc_costs costs;    /* as they are known now */
	uint32_t libraries;	     /* bit n: enum alloc_library n handed out memory in it */
	/* As the job's files and their functions; with job.layers. */
	struct alloc_site sites[ALLOCWINDOW_FILES][ALLOCFIND_MAX];
};

struct allocwindow;

/* Starts the threads. NULL with errno. */
struct allocwindow *allocwindow_new(const struct allocwindow_kernel *kernel);
void allocwindow_free(struct allocwindow *w); /* ends a window that is open; NULL is fine */
/* False: the one before is not over yet. */
bool allocwindow_start(struct allocwindow *w, const struct allocwindow_job *job);
/* True, once a window: it is over, nothing of it will come into the ring any more. */
bool allocwindow_over(struct allocwindow *w, struct allocwindow_result *out);
/* Closes a window that is open, waits until it is over (some 40 ms), and ends the threads. True: there was one. */
bool allocwindow_stop(struct allocwindow *w, struct allocwindow_result *out);

#endif
