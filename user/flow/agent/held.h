/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_AGENT_HELD_H
#define FLOW_AGENT_HELD_H

/*
 * What is over and not told yet. Calls are known when they end: one of a sub-agent that began inside of a turn may come
 * after the turn's last one, and so may the first call of a sub-agent after the tool call that asked for it. Private
 * child of agents.
 */

#include "models.h"
#include "toolwait.h"

#define HELD_MAX 1024 /* turns, and tools; past it the oldest is told at once */
#define HELD_SPAWN_LATE_NS                                                                                             \
	1000000000ull /* after a tool call that started a sub-agent returned, until its first call                     \
		       */

/* A turn, from its first step on. */
struct held_turn {
	struct turn turn; /* its texts are those below; wall is filled by held_turn_report() */
	char session_id[AGENT_TEXT_BYTES], turn_id[AGENT_TEXT_BYTES];
	struct models models;
	uint64_t lane; /* number of the conversation */
	struct walltime *wall;
	struct held_turn *prev, *next;
};

struct held_turn *held_turn_new(const struct turn *t, uint64_t lane, const char *turn_id); /* NULL: ENOMEM */
void held_turn_free(struct held_turn *h);						   /* NULL is fine */
/* 0; -ENOMEM: out->wall is all 0. */
int held_turn_report(const struct held_turn *h, struct turn *out);

/* A tool call that may have started a sub-agent. */
struct held_tool {
	struct agent_tool tool; /* its texts are those below */
	char id[AGENT_TEXT_BYTES], name[AGENT_TEXT_BYTES];
	struct held_tool *prev, *next;
};

/* It has no process: `program` is not kept. NULL: ENOMEM. */
struct held_tool *held_tool_new(const struct agent_tool *t);

#endif
