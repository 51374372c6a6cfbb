/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_RETRY_H
#define FLOW_LLM_RETRY_H

/*
 * Which calls are attempts of one logical call: same process, path, model and request body (request_facts.identity),
 * after a failed one. Clients whose WebSocket fails ask again over HTTP, with another body: same process, API, model
 * and session, soon after it. Remembers the last RETRY_MAX failed calls. Private child of exchange.
 */

#include "call.h"

#define RETRY_MAX	64
#define RETRY_WINDOW_NS 600000000000ull /* back-off beyond 10 minutes is a new question */
#define RETRY_SWITCH_NS 1000000000ull	/* from WebSocket to HTTP */

struct retry_failed {
	struct conn_key proc; /* the process part of it */
	uint64_t identity;    /* of path, model and body; 0: none */
	uint64_t switching;   /* of API, model and session of a WebSocket's call; 0: none */
	uint64_t id;	      /* the call's; 0: an empty place */
	uint64_t first_id;    /* the first attempt's call */
	int attempt;
	uint64_t end_ns;
	uint64_t refused_ns; /* when its status came; 0: none did */
};

struct retries {
	struct retry_failed failed[RETRY_MAX];
	unsigned next;
};

/* 0: not known (a body that was not seen whole cannot be compared). */
uint64_t retry_identity(const struct call *c, uint64_t body);
/*
 * Fills attempt, retry_of, retry_wait_ns of c where it follows a failed one: it starts after its end, and a connection
 * that was opened for it after that one's status was known. `stated`: attempts before it by the client's count, which
 * tell apart those that are alike; 0 (what a client's own loop around its SDK says, too) or -1: nothing. `take`: no
 * other call may follow it too.
 */
void retry_link(struct retries *r, struct call *c, uint64_t identity, int stated, bool take);
/* Remembers c when it failed in a way that clients repeat. After retry_link(). Said again of the same call, when more
 * is known of its end, that holds; that another one followed it stays. */
void retry_note(struct retries *r, const struct call *c, uint64_t identity);

#endif
