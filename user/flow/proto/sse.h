/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_SSE_H
#define FLOW_PROTO_SSE_H

/*
 * Server-sent events by the WHATWG rules (HTML section 9.2): BOM, LF, CR, CRLF (also cut between), comments, one
 * leading space, several data lines, fields without colon. An event is delivered at the byte that completes it: at the
 * CR, when a CR ends the blank line. JSON that begins a line where a field's name should be (Google's servers tell
 * errors so, in one line or many) is an event, which the rules would pass over. At the end of the stream complete lines
 * are delivered with `unterminated` set.
 */

#include "base/sv.h"
#include "base/types.h"
#include "base/warm.h"

#define SSE_EVENT_MAX (8u << 20) /* data of one event; a longer one is skipped to the next blank line and counted */

struct sse_event {
	struct sv type;	 /* "message" when the stream names none; borrowed */
	struct sv data;	 /* lines joined by LF; borrowed, NUL-terminated beyond len */
	struct stamp at; /* of its last byte */
	bool unterminated;
};

struct sse_sink {
	void *ctx;
	void (*on_event)(void *ctx, const struct sse_event *e);
	void (*on_comment)(void *ctx, const struct stamp *at); /* may be NULL: keep-alives */
};

struct sse;

struct sse *sse_new(const struct sse_sink *sink); /* NULL: ENOMEM */
void sse_free(struct sse *s);
int sse_push(struct sse *s, const uint8_t *ptr, size_t len, const struct stamp *at); /* 0 or -ENOMEM */
void sse_gap(struct sse *s); /* the event at hand is dropped, up to the next blank line */
void sse_finish(struct sse *s);
unsigned sse_oversize(const struct sse *s);	    /* events skipped for SSE_EVENT_MAX */
void sse_warm(const struct sse *s, struct warm *w); /* adds what sse_push() looks at */
size_t sse_held(const struct sse *s);		    /* bytes of memory that it grew to */

#endif
