/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_EVENTSTREAM_H
#define FLOW_PROTO_EVENTSTREAM_H

/*
 * application/vnd.amazon.eventstream: binary messages, each of
 *   total length u32, headers length u32, CRC-32 of these 8 bytes, headers, payload, CRC-32 of all before it
 * (big-endian). A header is a length byte, its name, a type byte, the value. Both checksums are verified: what is told
 * is what was sent. Out of step (attached in the middle, after a gap that hides a length) the next 12 bytes whose
 * checksum fits begin a message; a gap of known length inside one message costs that message only.
 */

#include "base/sv.h"
#include "base/types.h"

#define EVENTSTREAM_MESSAGE_MAX (8u << 20)   /* a longer message is skipped and counted; step is kept */
#define EVENTSTREAM_TOTAL_MAX	(32u << 20)  /* a length above this is no message */
#define EVENTSTREAM_HEADERS_MAX (128u << 10) /* as the format has it */
#define EVENTSTREAM_HEADER_KEEP 32	     /* headers of one message that are told; more are parsed over */

enum eventstream_type {
	EVENTSTREAM_TRUE,
	EVENTSTREAM_FALSE,
	EVENTSTREAM_INT8,
	EVENTSTREAM_INT16,
	EVENTSTREAM_INT32,
	EVENTSTREAM_INT64,
	EVENTSTREAM_BYTES,
	EVENTSTREAM_STRING,
	EVENTSTREAM_TIME, /* milliseconds since 1970 */
	EVENTSTREAM_UUID, /* 16 bytes */
};

struct eventstream_header {
	struct sv name;
	enum eventstream_type type;
	int64_t number;	 /* the integers and the time; 1 and 0 of true and false */
	struct sv bytes; /* BYTES, STRING, UUID; absent for the others */
};

/* Borrowed for the callback. Absent headers are absent views. */
struct eventstream_event {
	struct sv message_type; /* "event", "exception", "error" */
	struct sv event_type, exception_type, content_type;
	struct sv error_code, error_message; /* of message type "error" */
	struct sv payload;
	const struct eventstream_header *headers;
	size_t header_count;
	struct stamp first, at; /* of its first and its last byte */
};

struct eventstream_sink {
	void *ctx;
	void (*on_event)(void *ctx,
			 const struct eventstream_event *e); /* called when a message is complete and sound */
};

struct eventstream;

struct eventstream *eventstream_new(const struct eventstream_sink *sink); /* NULL: ENOMEM */
void eventstream_free(struct eventstream *e);
int eventstream_push(struct eventstream *e, const uint8_t *ptr, size_t len, const struct stamp *at); /* 0 or -ENOMEM */
/* len UINT64_MAX: unknown. To be called first, too, when the stream is met in the middle. */
void eventstream_gap(struct eventstream *e, uint64_t len);
bool eventstream_at_end(const struct eventstream *e); /* in step, and no message is open. For tests */
/* Messages whose checksum or headers are wrong, and places where step was lost without a gap. */
unsigned eventstream_errors(const struct eventstream *e);
unsigned eventstream_lost(const struct eventstream *e);	    /* messages told to be there, but hit by a gap. For tests */
unsigned eventstream_oversize(const struct eventstream *e); /* messages skipped for EVENTSTREAM_MESSAGE_MAX */
size_t eventstream_held(const struct eventstream *e);	    /* bytes of memory that it grew to */

#endif
