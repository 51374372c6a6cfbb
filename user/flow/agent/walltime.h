/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_AGENT_WALLTIME_H
#define FLOW_AGENT_WALLTIME_H

/*
 * Where wall time went: intervals of several kinds become parts that add up to the whole. Each instant is charged once,
 * to the interval of the lowest rank that covers it; what nothing covers is unknown. Intervals come in any order, and
 * late (a call is told when it ends): what lies before a watermark that the owner moves is final and takes no memory.
 */

#include "base/types.h"

enum time_part {
	PART_CONNECT,	  /* name look-up, TCP connect, TLS handshake */
	PART_NETWORK,	  /* round trips and retransmissions inside calls */
	PART_FIRST_TOKEN, /* the server, until the first token */
	PART_GENERATION,  /* from the first token to the end of the answer, less stalls */
	PART_STALL,	  /* silences of the server inside an answer */
	PART_TOOL,
	PART_RETRY_WAIT,
	PART_CLIENT, /* late reads; the agent's own CPU between calls */
	/* From an answer that asked for tools to the request that carries their results, as far as nothing was seen to
	 * run: tools inside the agent, approval by the user, the agent's own work. */
	PART_AGENT_GAP,
	PART_USER,
	PART_UNKNOWN, /* in no interval, or in one of which nobody knows */
	PART_COUNT,
};
const char *time_part_name(enum time_part p); /* "connect", "network", "first_token" … as args name them */

/*
 * Ranks. Inside a call a narrower cause lies over the phase that it delays; calls lie over tools (a sub-agent's calls
 * run while its parent waits for the "tool"), a main lane's calls over those of others.
 */
enum walltime_rank {
	RANK_CALL_LATE,
	RANK_CALL_NETWORK,
	RANK_CALL_STALL,
	RANK_CALL_CONNECT,
	RANK_CALL_PHASE, /* first token, generation, unknown */
	RANK_CALLS,	 /* so many a lane class: main lane's + 0, other lanes' + RANK_CALLS */
	RANK_TOOL = 2 * RANK_CALLS,
	RANK_RETRY_WAIT,
	RANK_CLIENT,
	RANK_AGENT_GAP,
	RANK_USER,
	RANK_COUNT,
};

#define WALLTIME_MAX                                                                                                   \
	16384 /* intervals waiting at once; at the cap the watermark moves by itself, see pushed_late_ns               \
	       */

struct walltime;

struct walltime *walltime_new(uint64_t begin_ns); /* NULL: ENOMEM */
void walltime_free(struct walltime *w);		  /* NULL is fine */

/* Empty intervals are fine. What lies before the begin is left out; what lies before the watermark, too, and counted. 0
 * or -ENOMEM (it is left out and counted). */
int walltime_push(struct walltime *w, unsigned rank, enum time_part part, uint64_t begin_ns, uint64_t end_ns);
/* No interval that is pushed from now on begins before. Moving back does nothing. */
void walltime_advance(struct walltime *w, uint64_t watermark_ns);

struct walltime_report {
	uint64_t total_ns; /* begin to end: the sum of all parts */
	uint64_t part_ns[PART_COUNT];
	uint64_t overlap_ns;	 /* what intervals of the same instant would have added to it (parallel lanes) */
	uint64_t pushed_late_ns; /* left out: it was told too late, or there was no memory; inside the parts it is what
				    else was going on, or unknown */
};
/* As of end_ns: what is pushed and lies before counts, also past the watermark, which stays. 0 or -ENOMEM. */
int walltime_report(const struct walltime *w, uint64_t end_ns, struct walltime_report *out);

#endif
