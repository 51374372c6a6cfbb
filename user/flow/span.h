/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_SPAN_H
#define FLOW_SPAN_H

/*
 * Spans: finished things with a place on the timeline, kept in a ring of at most max_events trace events (one for the
 * slice, one a phase, a detail, an instant, an end of an arrow); past it the oldest whole spans are dropped and counted
 * in LOST_SPANS and LOST_SPAN_EVENTS. A second limit of SPANS_BYTES_PER_EVENT bytes an event keeps a hostile peer's
 * long texts from filling the memory; it is counted the same way. What a span looks like in the file is trace.c's
 * business.
 */

#include "base/lost.h"
#include "flow/agent/agents.h"
#include "flow/attempts.h"
#include "flow/db/command.h"
#include "flow/functions.h"
#include "flow/http/operation.h"
#include "flow/llm/call.h"
#include "flow/llm/mcp_call.h"

#define SPANS_BYTES_PER_EVENT 384	 /* a usual call takes about 900 bytes and 4 events */
#define SPANS_BYTES_MIN	      (1u << 20) /* ... but a small ring may hold this much */
#define SPAN_INSTANTS_MAX     256	 /* of one span; later ones are only in args.retransmits */

enum span_track {
	SPAN_LLM,      /* lanes of concurrent requests */
	SPAN_MCP,      /* lanes of concurrent requests of MCP */
	SPAN_DB,       /* lanes of concurrent database commands */
	SPAN_HTTP,     /* lanes of concurrent HTTP requests, served and called */
	SPAN_FUNCTION, /* lanes of calls of functions that are traced by name: concurrent, or nested */
	SPAN_NETWORK,  /* lanes of connection set-ups that no call paid for */
	SPAN_TURN,     /* lanes of turns */
	SPAN_TOOL,     /* lanes of tool calls */
	SPAN_PROCESS, /* tid = pid: life of a process. Made by trace.c from the process table, never pushed. The last */
};

struct span_phase {
	const char *name; /* static: dns connect tls send wait stream */
	uint64_t begin_ns, end_ns;
};
#define SPAN_PHASES_MAX	 6
#define SPAN_DETAILS_MAX (CALL_SEGMENTS_MAX + CALL_STALLS_MAX)

/* An arrow from the slice that has it as flow_out to the one that has it as flow_in; drawn when both are there. */
#define SPAN_FLOW_NONE	       0
#define SPAN_FLOW_PROCESS(pid) (1ull << 40 | (pid))   /* to the life of the process with that shown pid */
#define SPAN_FLOW_AGENT(index) (2ull << 40 | (index)) /* to the first call of an agent */

struct span_instant {
	const char *name; /* static: "retransmit", "reset" */
	uint64_t ts_ns;
};

struct span {
	uint64_t begin_ns, end_ns;
	uint32_t pid; /* shown_pid of its process */
	enum span_track track;
	char *name;	 /* owned: low cardinality, "LLM claude-x" */
	const char *cat; /* static */
	char *args;	 /* owned: JSON object text, or NULL */
	struct span_phase phases[SPAN_PHASES_MAX];
	unsigned phase_count;
	/* Slices inside of the last phase, by begin, the longer one first; they nest or follow each other. */
	struct span_phase *details; /* owned */
	unsigned detail_count;
	struct span_instant *instants; /* owned */
	unsigned instant_count;
	uint32_t agent; /* whose lanes: 0 the main agent's, else a sub-agent's index */
	uint64_t flow_out, flow_in;
	/* For counters, 0 where unknown. */
	double output_tok_s, input_tok_s;	/* over [first_token_ns, last_token_ns], [begin_ns, first_token_ns] */
	uint64_t first_token_ns, last_token_ns; /* UNKNOWN_NS: no token; last: where output_tok_s is known */
	bool is_call;
};

struct spans;

struct spans *spans_new(uint64_t max_events, struct lost *lost); /* NULL: ENOMEM */
void spans_free(struct spans *t);
/* Takes the contents of *s (owned pointers move in), also on failure. 0; -ENOMEM (the caller counts it); -EINVAL for
 * SPAN_PROCESS. A span that does not fit at all is dropped and counted, which is no failure. */
int spans_push(struct spans *t, struct span *s);
/* spans_each() leaves out the oldest whole spans, so that the others have at most so many events together. They stay.
 */
void spans_show(struct spans *t, uint64_t max_events);
/* Oldest to newest as pushed. *s is made for the call and borrowed: its pointers die with the callback. */
void spans_each(const struct spans *t, void (*fn)(void *ctx, const struct span *s), void *ctx);
uint64_t spans_count(const struct spans *t);  /* for tests */
uint64_t spans_events(const struct spans *t); /* trace events of the kept spans, at most max_events */
void span_release(struct span *s);

/* A call as a span: phases, name, args as JSON. instants are copied from `retransmit_ns`. 0 or -ENOMEM (*out is empty).
 */
int span_from_call(struct span *out, const struct call *c, uint32_t shown_pid, const uint64_t *retransmit_ns,
		   unsigned retransmit_count);

/* A request of MCP as a span. 0 or -ENOMEM (*out is empty). */
int span_from_mcp(struct span *out, const struct mcp_call *c, uint32_t shown_pid);

/* A database command as a span. 0 or -ENOMEM (*out is empty). */
int span_from_db(struct span *out, const struct db_command *c, uint32_t shown_pid);

/* An HTTP exchange as a span. 0 or -ENOMEM (*out is empty). */
int span_from_http(struct span *out, const struct http_operation *o, uint32_t shown_pid);

/* A call of a function that is traced by name (BINARY:SYMBOL). 0 or -ENOMEM (*out is empty). */
int span_from_function(struct span *out, const struct rec_func_call *c, const char *name, uint32_t shown_pid);

/* A turn, and a tool call. 0 or -ENOMEM (*out is empty). */
int span_from_turn(struct span *out, const struct turn *t);
int span_from_tool(struct span *out, const struct agent_tool *t);

/* The set-up of a connection that no call paid for. Times UNKNOWN_NS where not known. */
struct span_setup {
	uint32_t shown_pid;
	uint32_t tid;	       /* that called connect(); 0: not known */
	struct sock_addr peer; /* family 0: unknown */
	uint64_t dns_begin_ns, dns_end_ns;
	uint64_t connect_begin_ns, connect_end_ns, tls_begin_ns, tls_end_ns;
	bool tls_approximate;
};

/* The look-up of a name that no connection followed. */
struct span_lookup {
	uint32_t shown_pid;
	const char *name;
	uint64_t begin_ns, end_ns; /* end: UNKNOWN_NS: no answer came */
	unsigned queries;
	size_t addresses;
	unsigned unanswered; /* queries */
};

/* A connection that was tried in vain. */
struct span_attempt {
	uint32_t shown_pid;
	const char *host; /* "" not known */
	const struct attempt *attempt;
};

/* A request and its answer that nobody could read: what TCP alone tells. Times UNKNOWN_NS where not known; begin <=
 * send_end <= first <= end. */
struct span_unread {
	uint32_t shown_pid;
	const char *undecoded; /* why */
	const char *host;      /* "" unknown */
	struct sock_addr peer;
	uint64_t connect_begin_ns, connect_end_ns, tls_begin_ns; /* set-up that it paid for */
	uint64_t begin_ns, send_end_ns, first_ns, end_ns;
	uint64_t gap_ns;   /* longest silence before bytes came in */
	uint64_t bytes[2]; /* on the wire, by direction */
	bool merged;	   /* many in one */
	const uint64_t *retransmit_ns;
	unsigned retransmits;
};

/* 0 or -ENOMEM (*out is empty). */
int span_from_unread(struct span *out, const struct span_unread *t);

/* 0 or -ENOMEM (*out is empty). */
int span_from_attempt(struct span *out, const struct span_attempt *a);

/* 0 or -ENOMEM (*out is empty). */
int span_from_lookup(struct span *out, const struct span_lookup *l);

/* 0; -ENOMEM; -EINVAL when neither of the two has both its times. *out is empty on failure. */
int span_from_setup(struct span *out, const struct span_setup *s);

#endif
