/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_PROBES_H
#define ATTACH_PROBES_H

/*
 * The kernel side's only user: loads the BPF object, attaches probes, drains the ring, reads counters. Nobody else sees
 * the skeleton or libbpf.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/sv.h"
#include "base/types.h"
#include "overload.h"
#include "progcost.h"
#include "tlsfind.h"

#define PROBES_SOON_MAX 8 /* records that are told at once before their turn */

enum probes_mode { PROBES_SESSION, PROBES_MULTI, PROBES_PERF };

struct probes_config {
	uint32_t ring_bytes;	     /* power of two */
	bool follow_exec;	     /* -n: every exec is reported and provisionally traced */
	bool all;		     /* -a: every process that forks or execs from now on is traced: probes_add_all() */
	enum probes_mode mode_max;   /* for tests: PROBES_SESSION = best there is; PERF forces the oldest way */
	bool functions;		     /* some are traced by name */
	bool db;		     /* sockets that may be a database's are read too */
	bool http;		     /* the heads of all HTTP are wanted, see probes_pass() */
	bool force_no_dynptr;	     /* for tests */
	bool force_no_sock_length;   /* for tests */
	bool force_no_storage;	     /* for tests: of threads that call TLS */
	uint32_t period_ns;	     /* --cpu: between samples of each processor; 0: none */
	uint32_t off_cpu_min_ns;     /* --off-cpu: the shortest wait that is told; 0: none is */
	int (*enable_stats)(void);   /* see progcost.h */
	void (*thread_begins)(void); /* called in each thread that --alloc starts, first of all; NULL is fine */
	uint32_t alloc_bytes;	     /* --alloc: one sample in so many bytes that are allocated; 0: none */
	/* Called from probes_consume() once a record. Bytes are read-only and borrowed. */
	void (*on_record)(void *ctx, const void *bytes, size_t len);
	/* Before that: these will be told next, of those that wait already. NULL is fine. */
	void (*on_soon)(void *ctx, const struct sv *records, unsigned count);
	void *ctx;
};

/* What can be seen of allocations: nothing (uprobe_multi is missing), how many there are, or also their end. */
enum probes_alloc { PROBES_ALLOC_NONE, PROBES_ALLOC_COUNTED, PROBES_ALLOC_FOLLOWED };

struct probes_features {
	enum probes_mode mode;
	enum probes_alloc alloc;
	bool read_dynptr;
	bool finds_thread; /* a thread's storage, at any moment: see bpf/thread.bpf.h */
	bool sock_length; /* sock_send_length / sock_recv_length: connections are tied to sockets, plain HTTP is seen */
	bool prepare_exec; /* sched_prepare_exec: stdio is known before the parent can use it; else the child's reads
			      tell */
	bool tcp_rtt, tcp_retransmit, tcp_reset;
	bool tcp_late, tcp_hole, tcp_resent; /* how long bytes waited: see bpf/delay.bpf.c */
	char degraded[1024];		     /* one line of what this kernel lacks, "" when nothing */
};

struct probes;
struct ev_wire;

/* How many page faults there are between two samples of --alloc. */
uint32_t probes_fault_period(uint32_t alloc_bytes);

/* Descriptors that may be open at least (RLIMIT_NOFILE): without any file that is probed a run has 146 on two
 * processors with all axes, and events of each processor. */
#define PROBES_DESCRIPTORS	     160
#define PROBES_DESCRIPTORS_PROCESSOR 4

/* Load. NULL with errno and *why (static or in probes_why()): EPERM (privileges), ENOENT (no BTF), EINVAL (verifier),
 * EMFILE (fewer descriptors than that) … */
struct probes *probes_open(const struct probes_config *cfg);
/* The same in two steps: the kernel takes a tenth of a second for the programs, and whatever does not need them can be
 * done meanwhile. In between only probes_close() may be called. 0 or -errno, as above: probes_close() it then. */
struct probes *probes_begin(const struct probes_config *cfg);
int probes_ready(struct probes *p);
const char *probes_why(void);	      /* one line of the last failure of probes_open, for the user */
const char *probes_hint(void);	      /* what to do about it, or NULL */
void probes_detach(struct probes *p); /* every probe is removed; the ring and the counters can still be read */
void probes_close(struct probes *p);  /* detaches everything; NULL is fine */

const struct probes_features *probes_features(const struct probes *p);
const struct progcost *probes_cost(const struct probes *p);
const struct overload *probes_overload(const struct probes *p);
uint64_t probes_ring_peak(const struct probes *p); /* bytes that waited in the ring at most */

/* Makes e->dev and e->ino those of the inode that probes end up on: on overlayfs stat(2) tells those of one mount's
 * view. Left as they are where the kernel does not tell. */
void probes_real_file(struct probes *p, struct elf *e);

#define PROBES_FILES_MAX 1024 /* stacks of files that are probed at once */
/* Probe one TLS stack of a file (each (device, inode, found->stack) once; again returns 0). `path` must reach the very
 * file (map_files, root, exe). 0; -errno when no read or no write probe could be set, failures[] then names them;
 * -EMFILE past PROBES_FILES_MAX. Results are kept for probes_each_file. */
int probes_attach_file(struct probes *p, const char *path, const char *shown_path, const struct elf *e,
		       const struct tls_find *found);

/* Removes the probes of all stacks of a file, and sets them again: device and inode as of its elf. What was found is
 * kept. 0 or -errno. */
void probes_detach_file(struct probes *p, uint64_t dev, uint64_t ino);
int probes_attach_again(struct probes *p, const char *path, uint64_t dev, uint64_t ino);
/* What was found in a file whose probes were removed is not kept any longer. */
void probes_forget_file(struct probes *p, uint64_t dev, uint64_t ino);
/* Takes the probes of the file away and sets them anew, once a file and run. 0; -EALREADY: it had its time; -errno. */
int probes_renew_file(struct probes *p, const char *path, uint64_t dev, uint64_t ino);
/* Functions by name (funcfind.h): the probes of the one whose found->stack this is are taken away for good; and how
 * often the one of this number was called, and ended without a span. */
void probes_stop_function(struct probes *p, const char *stack);
void probes_function_calls(const struct probes *p, unsigned number, uint64_t *calls, uint64_t *untold);
/* A record of each TLS connection of a target that moved since the last time, given as by probes_consume(). */
void probes_wires(struct probes *p);
/* TCP connections that targets have open, on which data went out and none has come since: a record of each, borrowed.
 * Who asked before the probes were set waits for an answer there, or has acknowledged one last (HTTP/2). */
void probes_asked(struct probes *p, void (*fn)(void *ctx, const struct ev_wire *wire), void *ctx);

/*
 * --alloc: files with allocators, and who maps them; see allocwatch.h. The number of a file, or -ENOENT (no allocator
 * in it, or they are not looked for); -errno.
 */
int probes_alloc_file(struct probes *p, const char *path, const struct elf *e);
void probes_alloc_map(struct probes *p, pid_t pid, int file);
void probes_alloc_fork(struct probes *p, pid_t parent, pid_t child);
void probes_alloc_forget(struct probes *p, pid_t pid);
unsigned probes_alloc_refused(const struct probes *p); /* allocwatch_refused(); 0 without --alloc */

struct probes_file { /* one for each stack of a file */
	const char *shown_path;
	uint64_t dev, ino;
	const struct tls_find *found;
	int status[TLSFIND_MAX]; /* per function: 0 or -errno */
};
void probes_each_file(const struct probes *p, void (*fn)(void *ctx, const struct probes_file *f), void *ctx);

/* A process is traced from now on, with the children it makes. start_ns: to 20 ms, 0 not known. 0, -E2BIG
 * (LIMIT_TARGETS), -ESRCH (gone, or the pid is another process's by now), -EINVAL (perfbpf itself). */
int probes_add_target(struct probes *p, pid_t tgid, uint64_t start_ns);
/* Every process that runs is traced from now on, perfbpf itself excepted; fn is told each. 0 or -errno. With
 * probes_config.all there is no gap to those that start later. */
int probes_add_all(struct probes *p, void (*fn)(void *ctx, pid_t tgid, uint64_t start_ns, uint32_t exec_id), void *ctx);
void probes_confirm_target(struct probes *p, pid_t tgid); /* provisional -> traced */
void probes_drop_target(struct probes *p, pid_t tgid);
/* The kernel follows it, and not just until it is decided: true also for a child whose birth was lost. */
bool probes_has_target(const struct probes *p, uint32_t tgid, uint64_t start_ns);
/* All of these. */
void probes_each_target(const struct probes *p, void (*fn)(void *ctx, uint32_t tgid, uint64_t start_ns), void *ctx);
/* One process that was there before the start, as the kernel sees it (exact start time, exec id). 0 or -ESRCH. */
int probes_identify(struct probes *p, pid_t tgid, uint64_t *start_ns, uint32_t *exec_id);

/* The connection generation carries nothing of interest, or does again: what is copied of it, see LIMIT_IGNORED_* in
 * limits.h. The kernel takes it back by itself at a request that may be a call, also of the generation that its answers
 * come on (0: this one); unless it is for good. 0, -EBUSY (another one is in its place: it goes on being copied). */
int probes_ignore(struct probes *p, uint32_t gen, uint32_t answers, bool on, bool for_good);

/* Of the connection generation, bytes of that direction before this position are a body that nobody wants: they need
 * not be copied. Only with probes_config.http; to be said again with each body. */
void probes_pass(struct probes *p, uint32_t gen, enum dir dir, uint64_t until);

/* Whether the end of every system call is traced now (attach/syscalls.h says when). For tests. */
bool probes_sees_syscalls(const struct probes *p);

int probes_fd(const struct probes *p); /* epoll-able: woken only on urgent records */
int probes_consume(struct probes *p);  /* drains all, or -EAGAIN after two rings full; number of records or -errno. Call
					  on a timer too */
void probes_stats(struct probes *p, uint64_t *stats); /* ST_COUNT sums; see EV_STATS */
void probes_tick(struct probes *p,
		 uint64_t now_ns); /* deletes kernel state of closed connections and ended processes */

#endif
