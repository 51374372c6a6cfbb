/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROC_H
#define FLOW_PROC_H

/*
 * Processes by (pid, start time): names, parents, exits. A pid that is used again is another process.
 */

#include "base/buf.h"
#include "record.h"

#define PROC_SYNTHETIC_PID 10000000 /* shown pids of processes whose pid was used before; above any real pid (2^22) */
#define PROC_ARGS_BYTES	   4096	    /* of a redacted argument vector */

#define PROC_CHAIN_MAX 8
#define PROC_MAX       16384 /* remembered; past it the ones that exited longest ago are forgotten, then counted */
#define PROC_LATE      2048  /* the latest that exited stay even where nobody asked for them yet */

struct proc {
	struct proc_key key; /* exec_id: of the latest exec */
	uint32_t ppid;
	uint32_t parent_tid; /* the thread that made it; 0 unknown */
	uint32_t shown_pid;  /* pid for the trace file: tgid, or a synthetic one >= 10000000 when the tgid was used
				before */
	char name[64]; /* the program's: basename of exe or script, else comm; never a thread's. UTF-8 not guaranteed */
	const char *agent; /* what people call it, of a known agent or model server; static; NULL: not known */
	char exe[256];
	char *args; /* owned, NUL-separated, secrets redacted, args_len bytes; NULL unknown */
	size_t args_len;
	char *tool_call_id; /* owned; the tool call that started it, as its environment says; NULL unknown */
	uint64_t begin_ns;  /* start time of the process, or when first seen */
	uint64_t end_ns;    /* UNKNOWN_NS: runs. When its parent was told; until then, and if it never is, its exit */
	int32_t code, signal;
	uint64_t cpu_ns;
	uint64_t max_rss_bytes; /* most memory that was resident at once; 0 unknown, or it runs */
	/* Owned: names of the programs that it ran before, oldest first, NUL-terminated each, chain_len bytes with the
	 * NULs. NULL: none. At most PROC_CHAIN_MAX, the later ones. */
	char *chain;
	size_t chain_len;
	unsigned order; /* first seen, from 0 */
	bool caller;	/* made a model call */
	bool shown;	/* ... or did something else that is worth showing */
};

struct proc_sink {
	void *ctx;
	/* Known now (born, or there already), another program, ended, or gone. May be NULL. */
	void (*on_change)(void *ctx, const struct proc *p);
	/* So much processor time it took in that time, and so long its first thread waited for a processor. May be
	 * NULL. */
	void (*on_load)(void *ctx, const struct proc *p, const struct interval *at, uint64_t cpu_ns, uint64_t wait_ns);
};

struct procs;

struct procs *procs_new(struct lost *lost, const struct proc_sink *sink); /* NULL: ENOMEM */
void procs_free(struct procs *t);
void procs_push_exec(struct procs *t, const struct rec_exec *r);
void procs_push_fork(struct procs *t, const struct rec_fork *r); /* the child inherits names until it execs */
void procs_push_exit(struct procs *t, const struct rec_exit *r);
void procs_push_gone(struct procs *t, const struct rec_gone *r);
void procs_push_cpu(struct procs *t, const struct rec_cpu *r);
void procs_push_tool_call(struct procs *t, const struct rec_tool_call *r);

/* The process, made with what the key says when it was not known (its name is "" then). NULL without memory, or when
 * PROC_MAX processes are alive. Valid until PROC_MAX later ones came and it has exited. */
const struct proc *procs_get(struct procs *t, const struct conn_key *k);
/* The newest one that had this number. NULL: none is known. */
const struct proc *procs_newest(struct procs *t, uint32_t tgid);
/* The process made a model call. */
void procs_call_made(struct procs *t, const struct conn_key *k);
void procs_show(struct procs *t, const struct proc_key *k);
void procs_each(struct procs *t, void (*fn)(void *ctx, const struct proc *p), void *ctx); /* in order of appearance */

/*
 * An argument vector (NUL-separated) with secrets as "***": values of options, assignments, headers and URL parameters
 * whose name ends in key, token, secret, password and the like; bearer tokens; tokens with well-known prefixes (sk-,
 * ghp_, eyJ …); user:password of URLs. Rather one too many than one too few. 0 or -errno of the buffer.
 */
int proc_redact_args(struct buf *out, struct sv args);

/* As above, and without content what may be a prompt, or part of one, is replaced by its size ("<57 bytes>"): all that
 * is no program, option name, number, path or short plain word; values of options that take text (-p, --prompt, -d …)
 * and of environment variables; query values of URLs; nearly everything that an agent is told. 0 or -errno of the
 * buffer. */
int proc_public_args(struct buf *out, struct sv args, bool content);
/* Argument vectors from now on are kept with prompts. Off at first. */
void procs_set_content(struct procs *t, bool content);

#endif
