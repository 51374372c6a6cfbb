/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_SPAN_H
#define FLOW_SPAN_H

/*
 * Spans: finished things with a place on the timeline, kept in a ring of at most max_events trace events; past it the oldest
 * whole spans are dropped and counted. What a span looks like in the file is trace.c's business.
 */

#include "base/lost.h"
#include "flow/llm/call.h"

enum span_track {
	SPAN_LLM,     /* lanes of concurrent requests (synthetic tids above 5000000) */
	SPAN_NETWORK, /* connection set-up that no call paid for */
	SPAN_PROCESS, /* tid = pid: life of a process */
};

struct span_phase {
	const char *name; /* static: dns connect tls send wait stream */
	uint64_t begin_ns, end_ns;
};
#define SPAN_PHASES_MAX 6

struct span_instant {
	const char *name; /* static: "retransmit", "reset" */
	uint64_t ts_ns;
};

struct span {
	uint64_t begin_ns, end_ns;
	uint32_t pid; /* shown_pid of its process */
	enum span_track track;
	char *name; /* owned: low cardinality, "LLM claude-x" */
	const char *cat; /* static */
	char *args;	 /* owned: JSON object text, or NULL */
	struct span_phase phases[SPAN_PHASES_MAX];
	unsigned phase_count;
	struct span_instant *instants; /* owned */
	unsigned instant_count;
	/* For counters, 0 where unknown. */
	double output_tok_s, input_tok_s; /* over [first_token_ns, end_ns], [begin_ns, first_token_ns] */
	uint64_t first_token_ns;
	bool is_call;
};

struct spans;

struct spans *spans_new(uint64_t max_events, struct lost *lost); /* NULL: ENOMEM */
void spans_free(struct spans *t);
/* Takes the contents of *s (owned pointers move in), also on failure. 0 or -ENOMEM (counted). */
int spans_push(struct spans *t, struct span *s);
/* Oldest to newest as pushed. */
void spans_each(const struct spans *t, void (*fn)(void *ctx, const struct span *s), void *ctx);
uint64_t spans_count(const struct spans *t);
void span_release(struct span *s);

/* A call as a span: phases, name, args as JSON. instants are copied from `retransmit_ns`. 0 or -ENOMEM. */
int span_from_call(struct span *out, const struct call *c, uint32_t shown_pid, const uint64_t *retransmit_ns,
		   unsigned retransmit_count);

#endif
