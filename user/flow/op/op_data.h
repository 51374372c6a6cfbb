/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_OP_DATA_H
#define FLOW_OP_DATA_H

/* What the operations' stage keeps. Private to it. */

#include "op.h"

#define NO_OP UINT32_MAX

/* How an operation's states are told from others'. */
enum op_view { VIEW_NONE, VIEW_THREAD, VIEW_PROCESS };

struct operation {
	struct op_operation is;
	bool told;	   /* apart from all others */
	enum op_view view; /* of a told one */
	uint32_t group;
};

/*
 * Operations of one family by a key and their begin. Of those with a key that begin before an instant, the one that
 * ends last and the end of the next one say whether none, one, or several were going on.
 */
struct op_entry {
	uint64_t key, begin_ns;
	uint32_t op;
	uint32_t last;			   /* of those up to here with this key: which one ends last */
	uint64_t last_end_ns, next_end_ns; /* and when; and the next one; 0: none */
};

struct op_index {
	struct op_entry *e; /* sorted; owned */
	size_t count;
};

enum op_found { FOUND_NONE, FOUND_ONE, FOUND_SEVERAL };

/* A process, as far as one family goes. */
struct op_process {
	uint32_t pid;
	bool shared; /* a thread had two operations at a time */
	bool moves;  /* one was answered on another thread than it came in on */
};

/* A call that is charged. */
struct op_charge {
	uint32_t op, call;
	bool silent; /* is counted under another one's name: only its time is of use */
};

struct op_interval {
	uint64_t begin_ns, end_ns;
	uint64_t before_ns; /* length of those before it */
};

struct ops {
	struct operation *operations;
	struct op_call *calls;
	struct op_state *states;
	size_t operation_count, call_count, state_count;
	size_t operation_room, call_room, state_room;
	uint64_t dropped;
	bool has_cpu, has_waits;
	uint64_t from_ns;

	struct op_group *groups;
	struct op_pattern *patterns;
	size_t group_count, pattern_count, pattern_room;
	struct op_totals totals[OP_FAMILIES];
	uint32_t *owners[OP_FAMILIES]; /* by state: which told-apart operation a sample is in */
};

/* op_owner.c: drops turns of one call that lie in requests, and what they called is no turn's. Before there are groups.
 * 0 or -ENOMEM. */
int op_drop_parts(struct ops *o);

/* op_owner.c: tells the operations of a family apart, and whose each call is. *charges is the caller's, in no order. 0
 * or -ENOMEM. */
int op_charge_calls(struct ops *o, enum op_family family, struct op_charge **charges, size_t *count);

/* op_time.c: adds what the charged calls and the states come to, to the groups. 0 or -ENOMEM. */
int op_add_times(struct ops *o, enum op_family family, struct op_charge *charges, size_t count);

#endif
