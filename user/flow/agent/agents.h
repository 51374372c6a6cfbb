/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_AGENT_AGENTS_H
#define FLOW_AGENT_AGENTS_H

/*
 * Agents: finished calls and processes become turns, tools and sub-agents, and the wall time is charged.
 *
 * A model step is a call of class main or subagent. Steps of one conversation form a lane; a lane is found by a tool
 * call's id that the request answers, else by session and agent id, else by process, provider and the hash of system
 * prompt, tools and first message (of those that are alike: one that was not busy). A turn begins with a step whose
 * newest item is a person's (or nothing says that it goes on), and is over with an answer that asks for nothing more;
 * failed and cut answers keep it open, for their retry.
 *
 * A tool call is over when a request carries its result, or when its lane goes on without. It is joined, in this order,
 * to: the child whose environment names its id; the MCP request of its name; the processes of
 * the agent's tree that were born between its block in the answer and the request that follows, unless another tool
 * call may have started them as well. With none of them the gap is all that is known: an upper bound.
 *
 * A sub-agent is what the client's ids say; else another conversation of the same process, or a call of a descendant
 * process, that begins while a lane waits for its tools ("by time"). Which tool call asked for it is proven by its
 * prompt, with which the sub-agent's conversation begins (only marks of both are known); without such proof it is the
 * one that was waited for, if there is only one: whose of several it is, of conversations or of tools, is not told.
 *
 * Calls of a process come in the order of their ends; processes as they are born, exec and end.
 */

#include "base/lost.h"
#include "family.h"
#include "flow/llm/call.h"
#include "walltime.h"

/* Remembered. Past it the oldest whose process has ended is forgotten, then a sub-agent that has nothing open, then any
 * such one; where all are busy, later ones share the last one's place, counted as one. */
#define AGENTS_MAX 1024
#define AGENTS_LANES_MAX                                                                                               \
	4096 /* conversations; past it the one silent longest is closed; counted (no_memory) if it was busy */
#define AGENT_TEXT_BYTES  160
#define TOOL_CHILDREN_MAX 256 /* of one answer's tools; later born ones are not joined */

enum tool_join {
	TOOL_JOIN_GAP,	  /* nothing was seen to run: upper bound */
	TOOL_JOIN_TIME,	  /* by time and process tree */
	TOOL_JOIN_CLIENT, /* the client's own measure */
	TOOL_JOIN_RPC,	  /* a tools/call of MCP with that name, by the agent's process */
	TOOL_JOIN_ID,	  /* the id in a child's environment */
};
const char *tool_join_name(enum tool_join j); /* "upper bound", "time", "client", "mcp", "id" */

struct agent {
	unsigned index;		/* in order of appearance, from 0 */
	int parent;		/* index, -1: a main agent */
	bool by_time;		/* a sub-agent for whom nothing but time speaks */
	const char *name;	/* kind of sub-agent; NULL unknown */
	const char *session_id; /* NULL unknown */
	uint32_t shown_pid;
	uint64_t first_call;	  /* id */
	uint64_t begin_ns;	  /* of its first call */
	uint64_t spawned_by_call; /* id of the call whose answer asked for it; 0 unknown */
};

struct agent_tool {
	unsigned agent;
	bool sub;		 /* of a sub-agent */
	uint64_t call_id;	 /* that asked for it */
	uint64_t result_call_id; /* that carries the result; 0: none came */
	const char *id, *name;	 /* NULL unknown */
	enum tool_join join;
	int64_t client_ns;    /* what the client says it took; UNKNOWN_COUNT */
	bool ambiguous;	      /* processes ran that it or another one may have started: none is joined */
	uint64_t asked_ns;    /* the end of its block in the answer, else the answer's end */
	struct interval at;   /* of what ran; of the whole window with TOOL_JOIN_GAP */
	uint64_t took_ns;     /* so long; of several alike with the same name that are ambiguous: an equal share */
	bool at_most;	      /* took_ns is a bound: nobody saw it run */
	unsigned processes;   /* joined */
	const char *program;  /* of the one of them that ran longest; NULL none */
	unsigned spawned;     /* index of the sub-agent that it started; 0 none */
	uint32_t child_pid;   /* shown pid of that one; 0 none */
	bool running;	      /* one of them still ran when the window closed */
	int32_t code, signal; /* of that one, when it ended */
	uint64_t cpu_ns;      /* of those that ended */
	int64_t result_bytes; /* UNKNOWN_COUNT */
	int is_error;	      /* -1 unknown */
	uint64_t asks;	      /* mark of what it asks for; 0 unknown */
	uint32_t shown_pid;   /* of the agent */
};

struct turn {
	uint64_t id; /* unique in the run, from 1 */
	unsigned agent;
	bool sub;			  /* of a sub-agent */
	const char *session_id, *turn_id; /* NULL unknown */
	uint32_t shown_pid;
	struct interval at;
	enum call_trigger trigger;
	unsigned steps, tools;
	const char *model;		  /* that it waited longest for, its sub-agents' too; NULL unknown */
	const char *writer;		  /* that wrote longest */
	double model_share, writer_share; /* theirs, of all waits, and of all that was written */
	int64_t output_tokens;		  /* sum of the steps'; UNKNOWN_COUNT when one of them is unknown */
	bool complete;			  /* ended by an answer that asks for nothing more */
	bool partial;			  /* its beginning was not seen */
	struct walltime_report wall;
};

/* What is passed is borrowed for the call. NULL members are skipped. */
struct agents_sink {
	void *ctx;
	void (*on_agent)(void *ctx, const struct agent *a);
	void (*on_tool)(void *ctx, const struct agent_tool *t);
	void (*on_turn)(void *ctx, const struct turn *t);
};

struct agents;

struct agents *agents_new(struct lost *lost, const struct agents_sink *sink); /* NULL: ENOMEM */
void agents_free(struct agents *t);

/* Born, another program, or ended. */
void agents_push_proc(struct agents *t, const struct proc *p);

/* A tools/call of MCP that a process made. `name` is borrowed for the call. */
struct agent_rpc {
	struct proc_key proc;
	const char *name;
	struct interval at;
	bool is_error;
};
#define AGENTS_RPCS_MAX 256 /* the latest ones that no tool call was joined with */
void agents_push_rpc(struct agents *t, const struct agent_rpc *r);

/* So much processor time a process took, or waited for. Where it is an agent's, and that is most of the time, it was
 * busy: the client's time, as far as no call, tool or retry lies there. Stretches follow each other, each at most half
 * of AGENTS_LOAD_NS long, and are told at most as long after they ended; where work begins or ends inside of one is
 * told from its neighbours. */
#define AGENTS_LOAD_NS 1000000000ull
void agents_push_cpu(struct agents *t, const struct proc_key *p, const struct interval *at, uint64_t busy_ns);

struct agent_place {
	unsigned agent;
	bool sub;      /* a sub-agent's */
	bool first;    /* it is the agent's first call */
	uint64_t turn; /* 0: belongs to none */
};
/* p may be NULL. A call that is no step belongs to its agent, but to no turn. */
void agents_push_call(struct agents *t, const struct call *c, const struct proc *p, struct agent_place *place);

/* Turns, and tool calls that may have started a sub-agent, are told by this or by agents_finish(), once no call that
 * began inside of them can come any more. No call that is pushed from now on began before `open_ns` (UNKNOWN_NS: none
 * is open, before now_ns). */
void agents_tick(struct agents *t, uint64_t now_ns, uint64_t open_ns);
/* Closes what is open; what is a process's, at its end. Tools that still run end here. */
void agents_finish(struct agents *t, uint64_t now_ns);

uint64_t agents_count(const struct agents *t); /* agents so far, sub-agents included */
/* Those that are remembered, by index. */
void agents_each(const struct agents *t, void (*fn)(void *ctx, const struct agent *a), void *ctx);
/* Turns that are open, as they stand, and those that are over and not told yet. */
void agents_each_open_turn(struct agents *t, uint64_t now_ns, void (*fn)(void *ctx, const struct turn *turn),
			   void *ctx);

/* The run so far. */
struct agents_run {
	struct walltime_report wall;
	uint64_t begin_ns; /* UNKNOWN_NS: nothing yet */
	uint64_t turns, steps, tools;
	uint64_t tool_window_ns; /* all tools' times, added up: parallel ones count twice */
	struct agents_tool_name {
		char name[64], program[64];
		uint64_t total_ns, count;
	} top_tool;			   /* that ran longest, of those that were seen to; name "": none was */
	char top_model[AGENT_TEXT_BYTES];  /* with the longest waits for first tokens; "" unknown */
	char top_writer[AGENT_TEXT_BYTES]; /* that generated longest */
	/* Of the waits and the generation of all models, of all times of tools that were seen to run. */
	double model_share, writer_share, tool_share;
	uint64_t ttft_p50_ns; /* of it */
};
/* As of end_ns, or of the end of the last agent's process. 0 or -ENOMEM. */
int agents_run(const struct agents *t, uint64_t end_ns, struct agents_run *out);

#endif
