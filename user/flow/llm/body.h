/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_BODY_H
#define FLOW_LLM_BODY_H

/*
 * A response's body: from content coding to documents. What it is made of is told by the content type, else, and where
 * that lies, by the first bytes:
 *
 *   server-sent events	      text/event-stream, or a stream was asked for and it begins like one
 *   JSON texts, a line each  application/x-ndjson and its like, or such a stream was asked for
 *   JSON array		      begins with a bracket: elements are told as they come
 *   event stream frames      application/vnd.amazon.eventstream
 *   one document	      begins with a brace
 *
 * Of a head that is known in part only the first byte tells the coding, too: gzip, zstd, deflate; what is no text then
 * has one without a mark. Anything else (multipart, HTML, media) is passed over. Private child of answer.
 */

#include "base/lost.h"
#include "flow/proto/http.h"

struct body_config {
	bool stream_asked; /* the request wanted a stream */
	bool lines;	   /* ... and they come as lines */
};

struct body_sink {
	void *ctx;
	/* One document of a stream. type: of an event or frame, else absent. `at`: of its last byte, NULL where it came
	 * too late to tell. */
	void (*on_event)(void *ctx, struct sv type, struct sv text, const struct stamp *at);
	void (*on_document)(void *ctx, struct sv text); /* a document that is no part of a stream */
	void (*on_error)(void *ctx, struct sv type);	/* a frame that says so */
	void (*on_missing)(void *ctx);			/* parts are missing here */
};

struct body;

/* h: head of the response, NULL when it was not seen. NULL: ENOMEM. `lost` is borrowed. */
struct body *body_new(const struct body_config *cfg, const struct http_head *h, const struct body_sink *sink,
		      struct lost *lost);
void body_free(struct body *b);
void body_push(struct body *b, const uint8_t *ptr, size_t len, const struct stamp *at);
void body_gap(struct body *b, uint64_t len);	  /* UINT64_MAX: unknown how long */
bool body_finish(struct body *b);		  /* framed to its end; false: and ends inside of a content coding */
void body_cut(struct body *b);			  /* ... which hides what is wanted: that is missing */
void body_ignore(struct body *b);		  /* no more documents are wanted */
void body_give_up(struct body *b, struct sv why); /* lets go of all that it holds; the rest is missing */

bool body_begun(const struct body *b);		      /* what it is made of is known */
bool body_streams(const struct body *b);	      /* it comes in pieces whose times mean something */
bool body_given_up(const struct body *b);	      /* nothing more will be told */
void body_warm(const struct body *b, struct warm *w); /* adds what body_push() looks at */
size_t body_held(const struct body *b);		      /* bytes of memory */
/* "", or why parts of it could not be read. */
const char *body_undecoded(const struct body *b);
const char *body_other_type(const struct body *b); /* "", or the content type of what is passed over */

#endif
