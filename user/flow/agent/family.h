/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_AGENT_FAMILY_H
#define FLOW_AGENT_FAMILY_H

/*
 * The family tree of the traced processes, as it was at each birth: whose child ran when. For tools, which are
 * processes that an agent starts (directly, or through a shell that it keeps).
 */

#include "flow/proc.h"

#define FAMILY_MAX     16384 /* processes remembered; past it the oldest that have ended are forgotten */
#define FAMILY_DEPTH   64    /* generations that are climbed */
#define FAMILY_TOOL_ID 128   /* bytes of a tool call's id in the environment */

struct family;

struct family *family_new(void); /* NULL: ENOMEM */
void family_free(struct family *f);

/* A process was born, is another program now, ended, or is gone. 0 or -ENOMEM (it is not known then). */
int family_push(struct family *f, const struct proc *p);

struct family_member {
	struct proc_key key; /* exec_id 0 */
	uint32_t shown_pid;
	struct interval at; /* end_ns UNKNOWN_NS: runs */
	char program[64];   /* of its last exec */
	int32_t code, signal;
	uint64_t cpu_ns;
	char tool_id[FAMILY_TOOL_ID]; /* "" where the environment names none */
	bool claimed;		      /* a tool call owns it */
	bool disputed;		      /* several may, and nothing says which */
};

/* Oldest first, at most max (the oldest ones then): processes of `agent`'s tree that were born in [from, to) while
 * their parent had been born before `from`. What those start themselves runs inside their lives. Borrowed until the
 * next push. Returns their number. */
size_t family_born(const struct family *f, const struct proc_key *agent, uint64_t from, uint64_t to,
		   const struct family_member **out, size_t max);

/* A tool call owns it, or (disputed) one of several: no other one gets it by time. */
void family_claim(struct family *f, const struct family_member *m, bool disputed);

/* When the process ended; UNKNOWN_NS: it runs, or is not known (any more). */
uint64_t family_end(const struct family *f, const struct proc_key *k);

/* The nearest ancestor for which `is` says yes, at most FAMILY_DEPTH generations up; false: none. */
bool family_ancestor(const struct family *f, const struct proc_key *of, bool (*is)(void *ctx, const struct proc_key *k),
		     void *ctx, struct proc_key *out);

#endif
