/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_AGENT_TOOLWAIT_H
#define FLOW_AGENT_TOOLWAIT_H

/* The tool calls that one answer asked for, until the lane goes on: joined then with the processes that ran. Private
 * child of agents. */

#include "agents.h"

struct tool_pending {
	char *id, *name;   /* owned; NULL unknown */
	unsigned spawned;  /* index of the sub-agent that it started, 0 none */
	bool proven;	   /* ... by what it asked for, not by time */
	bool inside;	   /* ... which runs in the agent's own process: what runs below is the sub-agent's */
	uint64_t asks;	   /* mark of what it asks for; 0 unknown */
	uint64_t begin_ns; /* the end of its block in the answer, else the answer's end */
};

struct toolwait {		    /* zero: waits for nothing */
	struct tool_pending *tools; /* owned */
	size_t count;
	uint64_t begin_ns; /* the earliest of them */
	uint64_t call_id;
};

void toolwait_release(struct toolwait *w);
/* What `c`, whose answer ended at end_ns, asked for, in the place of what was waited for. 0 or -ENOMEM (nothing then).
 */
int toolwait_begin(struct toolwait *w, const struct call *c, uint64_t end_ns);
/* Whether the request of `c` carries a result with an id that is waited for. */
bool toolwait_answered_by(const struct toolwait *w, const struct call *c);
/* Whether the conversation of `c` begins with what was asked for. */
bool toolwait_asked_for(uint64_t asks, const struct call *c);
/* Whether that tool call may have started a sub-agent whose first call began then: of an answer with tools named like
 * that only those may. */
bool toolwait_may_spawn(const struct toolwait *w, const struct tool_pending *p, uint64_t begin_ns);

bool toolwait_names_agent(const char *tool); /* NULL: no */
#define TOOLWAIT_RIVALS_MAX 64		     /* other conversations of a process that are looked at */
#define TOOLWAIT_RUNS_MAX   8		     /* processes of one conversation at once that are looked at */

/* Who may start processes: a conversation that waits for tools. */
struct toolwait_rival {
	uint64_t from_ns;		      /* since when; UNKNOWN_NS: it may not */
	bool shell;			      /* one of these tools is named like a shell or another program */
	unsigned capacity;		      /* tools that may run a process */
	uint64_t until_ns[TOOLWAIT_RUNS_MAX]; /* ends of its latest processes; 0: none */
};
struct toolwait_rival toolwait_rival(const struct toolwait *w);

/* The latest MCP requests: a ring. Zero: none. */
struct toolwait_rpcs {
	struct toolwait_rpc {
		struct proc_key proc;
		struct interval at;
		char name[128]; /* "": joined, or none */
		bool is_error;
	} ring[AGENTS_RPCS_MAX];
	unsigned next;
};
void toolwait_note_rpc(struct toolwait_rpcs *t, const struct agent_rpc *r);

struct toolwait_end {
	struct family *family;
	struct toolwait_rpcs *rpcs;
	const struct proc_key *agent;
	unsigned agent_index;
	bool sub;
	uint32_t shown_pid;
	const struct call *next; /* the step that follows; NULL: none */
	uint64_t end_ns;	 /* when it began */
	void *ctx;
	void (*on_tool)(void *ctx, const struct agent_tool *t); /* once for each */
	/* A tool ran then, nobody knows which; `ours`: one of these. */
	void (*on_ran)(void *ctx, const struct interval *at, bool ours);
	/* Other conversations of the process. What was born while several waited is whose nothing ran yet, if that is
	 * one. */
	const struct toolwait_rival *rivals;
	size_t rival_count;
};
/* Ends the waiting. 0 or -ENOMEM (the tools are told all the same, unjoined). */
int toolwait_end(struct toolwait *w, const struct toolwait_end *end);

#endif
