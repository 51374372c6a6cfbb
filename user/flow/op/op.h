/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_OP_H
#define FLOW_OP_H

/*
 * Operations: what a process was asked for, and where the time of each went. Given are the operations, the calls that
 * left the process meanwhile, and what its threads did (samples of a processor, waits). A call is charged to the
 * operation whose thread made it, where the process works so; else to the one whose lane it is on; else to the only
 * one that was going on; to a turn only where no request is served but one that it is a part of. Operations that
 * overlap and cannot be told apart have durations and nothing else: no number is made up for them.
 *
 * Threads prove something only in a process none of whose threads had two operations at a time, and none of whose
 * answers left on another thread than the request came in on: event loops and runtimes that move work between threads
 * fail one or the other.
 *
 * Time is the union of intervals. Everything is n log n in what was pushed, and does not depend on its order.
 * Names and shapes are the caller's numbers.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OP_SPANS_MAX  (1u << 20)   /* operations, and calls; later ones are counted */
#define OP_STATES_MAX (1u << 20)   /* likewise */
#define OP_TIME_MAX   (1ull << 53) /* ns; later times are that */
#define OP_REPEATS    10	   /* calls of one shape in one operation that are a pattern (N+1) */

enum op_family {
	OP_REQUEST, /* that came in */
	OP_TURN,    /* of an agent */
	OP_NAMED,   /* that somebody asked for by its name */
	OP_FAMILIES,
};

/* CONNECT: the set-up of a connection, whatever for, which is part of no call. */
enum op_kind { OP_LLM, OP_HTTP, OP_DB, OP_TOOL, OP_MCP, OP_CONNECT, OP_KINDS };

struct op_operation {
	uint64_t begin_ns, end_ns;
	uint32_t pid, tid, answer_tid; /* threads that it came in on, and was answered on; 0: not known */
	uint32_t lane;		       /* of agents: who is at work, the same number on calls; 0: none */
	uint32_t name;
	enum op_family family;
	bool partial; /* its begin or end was not seen: it may hide others, and has no times */
	bool single;  /* a turn of one call: in a request of its process it is that request's call, and no operation */
};

struct op_call {
	uint64_t begin_ns, end_ns;
	uint32_t pid, tid, lane; /* as above */
	uint32_t shape;		 /* 0: not known */
	enum op_kind kind;
	/* Seen as the call of a library's function, so that what the library did may be among the calls too: then it is
	 * that which counts, and this only its time. */
	bool function;
	bool inside;  /* counts only for operations that it lies in whole (processes: they may go on for ever) */
	bool named;   /* is an operation of OP_NAMED too, and no call of these */
	bool no_turn; /* of an agent's turn something else tells it already */
};

/* ALLOC: a sample of an allocation, which takes no time. */
enum op_what { OP_CPU, OP_BLOCKED, OP_QUEUE, OP_ALLOC, OP_WHATS };

struct op_state {
	uint64_t begin_ns, end_ns; /* CPU, ALLOC: the instant twice */
	uint64_t weight_ns;	   /* CPU: what the sample stands for */
	uint32_t pid, tid;
	uint32_t stack; /* the caller's number */
	enum op_what what;
};

struct op_usage {
	uint64_t count;
	double union_ns;
};

/* Operations of one name and family. Sums over those that could be told apart, where not said otherwise. */
struct op_group {
	uint32_t name;
	enum op_family family;
	uint64_t calls;			       /* all whose times are known */
	uint64_t partial;		       /* and those whose are not */
	uint64_t refused;		       /* of calls: they overlapped others and cannot be told apart */
	double wall_ns;			       /* of all calls, each by itself */
	double p50_ns, p95_ns, p99_ns, max_ns; /* of all calls; NAN: not known, see base/quantile.h */
	double told_ns;			       /* wall time of calls - refused */
	uint64_t clouded; /* of those told apart: calls that may be theirs are charged to none, see op_totals.unclear */
	struct op_usage kinds[OP_KINDS];
	double overlap_ns; /* sum of union_ns of kinds + in_proc_ns - told_ns: several kinds at a time */
	double in_proc_ns; /* that no call explains */
	/* Of in_proc_ns, where the states are known: split_ns of it, waits of which waits_ns (operations on a thread of
	 * their own). What no state explains is left. */
	double split_ns, waits_ns, state_ns[OP_WHATS];
	uint64_t samples;	  /* of a processor, in all of the operations' time */
	size_t pattern, patterns; /* place of its patterns, and how many */
};

/* A shape that was called OP_REPEATS times or more in one operation. */
struct op_pattern {
	uint32_t group; /* place of it */
	enum op_kind kind;
	uint32_t shape;
	uint64_t operations, most; /* in which it was; its calls in the worst of them */
	struct op_usage usage;	   /* in these operations */
};

/* What became of the calls, by family. */
struct op_totals {
	uint64_t by_thread, by_lane, by_time; /* charged */
	uint64_t unclear;		      /* several operations were going on: refused */
	uint64_t outside;		      /* none was */
	uint64_t overlapped;		      /* charged to an operation that is refused itself */
};

struct ops;

struct ops *ops_new(void); /* NULL: ENOMEM */
void ops_free(struct ops *o);
/* 0; -ENOMEM; -ENOSPC: at the limit, and counted. */
int ops_push_operation(struct ops *o, const struct op_operation *p);
int ops_push_call(struct ops *o, const struct op_call *c);
int ops_push_state(struct ops *o, const struct op_state *s);
uint64_t ops_dropped(const struct ops *o);
/* Which states of time there are at all: of --cpu, of --off-cpu; and that those before `from_ns` are not kept. */
void ops_states(struct ops *o, bool cpu, bool waits, uint64_t from_ns);

/* Once, after all of them. 0 or -ENOMEM. */
int ops_solve(struct ops *o);
/* By family, then by wall time, the longest first. Patterns of a group by time. */
const struct op_group *ops_groups(const struct ops *o, size_t *count);
const struct op_pattern *ops_patterns(const struct ops *o, size_t *count);
const struct op_totals *ops_totals(const struct ops *o, enum op_family family);
/* Samples (CPU or ALLOC) within the told-apart operations of a group, whatever was going on. */
void ops_each_sample(const struct ops *o, size_t group, enum op_what what,
		     void (*fn)(void *ctx, uint32_t stack, uint64_t weight_ns), void *ctx);

#endif
