/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_ANSWER_H
#define FLOW_LLM_ANSWER_H

/*
 * A response's body: content coding, then event stream or one document, then the dialect; keeps what the call record
 * needs. Private child of exchange.
 */

#include "base/lost.h"
#include "call.h"
#include "dialect.h"
#include "flow/proto/http.h"

struct answer_config {
	const struct dialect *dialect; /* NULL: told by the documents */
	bool guessed;		       /* ... which may tell that it is another one */
	bool stream_asked;	       /* the request wanted a stream */
	bool content;		       /* keep the visible text */
	bool messages;		       /* no body: whole documents come by answer_event() */
};

struct answer;

/* h: head of the response, NULL when it was not seen. NULL: ENOMEM. `lost` is borrowed. */
struct answer *answer_new(const struct answer_config *cfg, const struct http_head *h, struct lost *lost);
void answer_free(struct answer *a);
void answer_push(struct answer *a, const uint8_t *ptr, size_t len, const struct stamp *at);
void answer_gap(struct answer *a, uint64_t len); /* bytes are missing here; UINT64_MAX: unknown how many */
/* One document that came by itself. doc NULL: `raw` is no JSON. */
void answer_event(struct answer *a, struct sv type, const cJSON *doc, struct sv raw, const struct stamp *at);
void answer_undecoded(struct answer *a, struct sv why); /* a part of it cannot be read; counted by the caller */
void answer_give_up(struct answer *a, struct sv why);	/* ... nor anything from here on: lets go of all it holds */
void answer_finish(struct answer *a);			/* the body is framed to its end */

const struct dialect *answer_dialect(const struct answer *a); /* NULL: not told yet */
bool answer_rejected(const struct answer *a);		      /* without a dialect, and its documents are of none */
bool answer_confirmed(const struct answer *a);		      /* the dialect found something to say */
bool answer_contradicts(const struct answer *a);	      /* there was something, and it told no dialect */
bool answer_ended(const struct answer *a);		      /* by its terminal event */
uint64_t answer_ended_ns(const struct answer *a);	  /* when that came; UNKNOWN_NS: it is no stream, or has none */
void answer_warm(const struct answer *a, struct warm *w); /* adds what answer_push() looks at */
size_t answer_held(const struct answer *a);		  /* bytes of memory that grow with the body */
const char *answer_provider(const struct answer *a);	  /* whose server it must be; static. NULL: it does not tell */
/* Fills the response's fields of c; text and arrays stay owned by a. */
void answer_report(const struct answer *a, struct call *c);

#endif
