/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_AGENT_AGENTS_PARTS_H
#define FLOW_AGENT_AGENTS_PARTS_H

/*
 * What the files of the agents' stage share. Private to them: agents.c follows calls and time, agents_lane.c knows
 * whose a call is, agents_turn.c has turns and tools.
 */

#include "agents.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/quantile.h"
#include "held.h"
#include "load.h"
#include "toolwait.h"

#define KEY_BYTES 448

/* How little it is missed. */
enum need { NEED_ENDED, NEED_SUB, NEED_MAIN, NEED_BUSY };

/* One agent: a session of a process, or a sub-agent of it. */
struct agent_entry {
	char key[KEY_BYTES];
	struct agent agent;
	char name[AGENT_TEXT_BYTES], session[AGENT_TEXT_BYTES];
	struct proc_key proc;
	uint64_t gone_ns;	/* the process ended; UNKNOWN_NS: not as far as was looked */
	struct agent_entry *up; /* whose sub-agent it is; NULL: a main agent */
	uint64_t up_lane;	/* number of the conversation that waits for it */
	enum need need;		/* for least_needed() */
	UT_hash_handle hh;
};

/* One conversation. */
struct lane {
	char key[KEY_BYTES];
	uint64_t number; /* unique, from 1 */
	struct agent_entry *of;
	struct proc_key proc;
	struct toolwait wait; /* tools that its last answer asked for */
	uint64_t last_end_ns, last_call_id;
	bool last_failed, last_broken_off;
	int64_t last_messages;		/* of its request; UNKNOWN_COUNT */
	struct held_turn *turn;		/* the open one; NULL none */
	char turn_id[AGENT_TEXT_BYTES]; /* the client's name of the latest one */
	struct load load[2];		/* the latest stretches of its process's time */
	/* User time is told while it goes on, so that a lane that nobody talks to does not hold the watermark. */
	uint64_t idle_from_ns;	  /* UNKNOWN_NS: not idle */
	struct lane *prev, *next; /* the one silent longest first */
	UT_hash_handle hh;
};

struct tool_name {
	struct agents_tool_name sum;
	UT_hash_handle hh;
};

struct model_waits {
	char name[AGENT_TEXT_BYTES];
	uint64_t total_ns, wrote_ns;
	struct quantile ttft;
	UT_hash_handle hh;
};

struct agents {
	struct lost *lost;
	struct agents_sink sink;
	struct family *family;
	struct agent_entry *agents; /* by index */
	uint64_t agent_count;	    /* ever */
	uint64_t forgotten_end_ns;  /* the latest end of a process of those that are not remembered; 0: none is */
	struct lane *lanes, *oldest;
	struct tool_name *tool_names;
	struct model_waits *models;
	uint64_t waited_ns, wrote_ns; /* of all models */
	uint64_t tools_ns;	      /* of all tools that were seen to run */
	struct toolwait_rpcs rpcs;
	struct held_turn *turns; /* over, not told yet; oldest end first */
	struct held_tool *tools;
	size_t turn_count, tool_count;
	struct walltime *run_wall;
	struct agents_run run;
	uint64_t last_turn, last_lane;
};

static inline void agents_text(char *out, size_t size, const char *s)
{
	snprintf(out, size, "%s", s ? s : "");
}

/* --- agents_lane.c ----------------------------------------------------------------------------------------------- */

/* The conversation that a step belongs to, and its agent, made when it is the first one. NULL without memory. */
struct lane *agents_lane_of(struct agents *t, const struct call *c, const struct proc *p, uint64_t begin_ns);
/* Whose call beside all conversations it is. NULL without memory. */
struct agent_entry *agents_of_helper(struct agents *t, const struct call *c, const struct proc *p, uint64_t begin_ns);
void agents_close_lane(struct agents *t, struct lane *l, uint64_t end_ns); /* its tools and turn end; frees it */
void agents_lane_free(struct agents *t, struct lane *l);		   /* nothing is told */

/* --- agents_turn.c ----------------------------------------------------------------------------------------------- */

void agents_begin_turn(struct agents *t, struct lane *l, const struct call *c, uint64_t begin_ns);
void agents_end_turn(struct agents *t, struct lane *l); /* if there is an open one */
/* The lane goes on at end_ns: with `c`, or without (NULL). */
void agents_end_tools(struct agents *t, struct lane *l, const struct call *c, uint64_t end_ns);
/* The turns that wait for this conversation of a sub-agent: those of its parent, and so on. */
void agents_each_turn_above(struct agents *t, const struct lane *l, uint64_t begin_ns,
			    void (*fn)(struct agents *t, struct held_turn *h, const void *what), const void *what);
/* w NULL is fine. */
void agents_push_wall(struct agents *t, struct walltime *w, unsigned rank, enum time_part part, uint64_t begin_ns,
		      uint64_t end_ns);
/* What was over before: no call that began inside of it can come any more. */
void agents_tell_held(struct agents *t, uint64_t past_ns, bool loud);

#endif
