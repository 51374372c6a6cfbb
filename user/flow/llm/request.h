/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_REQUEST_H
#define FLOW_LLM_REQUEST_H

/*
 * What a request's body says, in bounded memory: counts, sizes and a few names, never text. Private child of exchange.
 */

#include "base/lost.h"
#include "call.h"
#include "dialect.h"

#define REQUEST_NAME_BYTES 129 /* EXCHANGE_ID_MAX and a NUL */

struct request_facts {
	struct call_request counts;
	int stream;			  /* -1 unknown */
	char model[REQUEST_NAME_BYTES];	  /* "" unknown */
	char session[REQUEST_NAME_BYTES]; /* where the body names one */
	char turn[REQUEST_NAME_BYTES];	  /* Codex: turn_id of its turn metadata */
	char kind[32];			  /* Codex: request_kind of its turn metadata */
	bool no_generate;		  /* generate:false */
	bool json_schema;		  /* the answer has to follow a schema */
	unsigned marks;			  /* MARK_*: keys that were seen */
	char type[32];			  /* of a WebSocket message: response.create …; Live: its member's name */
	bool turn_ended;		  /* Live: the user's turn ends with it */
	char lane[REQUEST_NAME_BYTES];	  /* ... its stream_id */
	bool complete;			  /* the whole body was read: what was not seen is not there */
	bool truncated, lossy;		  /* body gaps by choice, by loss */
	/* text_sum() of the decoded body: that of another attempt is the same, also where members come in another order
	 * each time (Codex: maps of Rust). 0: none, or not known. */
	uint64_t identity;
	char undecoded[64]; /* content coding that could not be read */
};

struct request;

/* d NULL: not known yet, see request_set_dialect(). h: of the request, NULL: its body is not coded. NULL: ENOMEM. */
struct request *request_new(const struct dialect *d, const struct http_head *h, struct lost *lost);
void request_set_dialect(struct request *r, const struct dialect *d);
void request_free(struct request *r);
void request_push(struct request *r, const uint8_t *ptr, size_t len, const struct stamp *at);
void request_gap(struct request *r, uint64_t len, bool capped);
size_t request_held(const struct request *r); /* bytes of memory that grow with the body */
/* Moves what the newest part of a body that was read to its end is into c: trigger, results, conversation. */
void request_take_suffix(struct request *r, struct call *c);
/* What is known so far; `ended`: the body is at its end. */
void request_report(struct request *r, bool ended, struct request_facts *out);

#endif
