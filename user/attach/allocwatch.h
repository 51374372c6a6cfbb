/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_ALLOCWATCH_H
#define ATTACH_ALLOCWATCH_H

/*
 * Whose allocations are looked at, when, and for how long (--alloc). A trap at every malloc() would take a busy program
 * half of its speed, so that only a share of its time is seen: one window at a time (allocwindow.h), of the process
 * that ran most since its last one, until its traps took ALLOCWATCH_WINDOW_COST_NS, and its next one so late that they
 * take no more than ALLOCWATCH_BUDGET of one processor. A process that hardly allocates is seen nearly all the time,
 * one that sleeps costs nothing.
 *
 * One window of three also sees what is freed, which is as many traps again: the fewer there are, the better is known
 * what share was seen. And where functions hand on to others (a malloc() that was preloaded, to the C library's), it
 * sees all of them, and how each is called: one that was called 1,000 times, and but for one in 1,000, by number
 * and by bytes, by another one that is probed too, is not probed in the other windows. The outer one is: its caller is
 * whose memory it is.
 *
 * Each window, and how much processor time each process took in all, is told as EV_ALLOC_WINDOW: whoever adds the
 * samples up knows then what share was seen. Private child of probes.
 */

#include "allocwindow.h"

#define ALLOCWATCH_PROCESSES_MAX  4096 /* later ones are not looked at, and counted */
#define ALLOCWATCH_FILES_MAX	  256  /* files with allocators, each an open descriptor */
#define ALLOCWATCH_BUDGET	  0.04 /* of one processor */
#define ALLOCWATCH_WINDOW_COST_NS 6000000ull
#define ALLOCWATCH_LENGTH_MIN_NS  2000000ull
#define ALLOCWATCH_LENGTH_MAX_NS  1000000000ull
#define ALLOCWATCH_GAP_NS	  100000000ull /* from one window to the next, at least */
#define ALLOCWATCH_RAN_NS	  1000000ull   /* of processor time, for a window to be worth it */

struct allocwatch_config {
	struct allocwindow_kernel kernel;
	uint32_t bytes; /* of everything that is allocated, one sample in so many */
	bool follows;	/* the kernel side knows addresses, and sees them freed */
	/* The exact start time and number of the program of a process; 0 or -errno. */
	int (*identify)(void *ctx, pid_t pid, uint64_t *start_ns, uint32_t *exec_id);
	void (*on_record)(void *ctx, const void *bytes, size_t len);
	void *ctx; /* of both */
};

struct allocwatch;

/* NULL with errno. */
struct allocwatch *allocwatch_new(const struct allocwatch_config *cfg);
void allocwatch_free(struct allocwatch *w); /* NULL is fine */

/* A file that has been looked through for allocators: which number it has here; -ENOENT: there are none in it;
 * -ENOSPC, -ENOMEM, other -errno. `path` is opened now. */
int allocwatch_file(struct allocwatch *w, const char *path, const struct elf *e);
/* The process maps it. */
void allocwatch_map(struct allocwatch *w, pid_t pid, int file);
void allocwatch_fork(struct allocwatch *w, pid_t parent, pid_t child); /* a child maps what its parent maps */
void allocwatch_forget(struct allocwatch *w, pid_t pid);	       /* it ended, or runs another program */

/* Before the ring is drained: whether a window is over. Afterwards, when all of it has been read: tells it. */
void allocwatch_collect(struct allocwatch *w);
void allocwatch_tell(struct allocwatch *w);
/* Opens the next window when it is time. */
void allocwatch_update(struct allocwatch *w, uint64_t now_ns);
/* No more windows. What each process took in all is told by the next allocwatch_tell(). */
void allocwatch_stop(struct allocwatch *w);

/* How often a file, or one of a process, was not looked at for want of room or because it cannot be probed. */
unsigned allocwatch_refused(const struct allocwatch *w);

#endif
