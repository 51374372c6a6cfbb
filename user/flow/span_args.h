/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_SPAN_ARGS_H
#define FLOW_SPAN_ARGS_H

/* What the makers of spans share: args of which unknown ones are left out and texts are cut, phases that fit their
 * span. Private to span*.c. */

#include "base/json.h"
#include "span.h"

#define SPAN_NAME_BYTES 160 /* a word and a name of at most 128 bytes; viewers warn above 256 characters */

static inline bool known(uint64_t ns)
{
	return ns != UNKNOWN_NS;
}

static inline uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b; /* UNKNOWN_NS is the largest: the other one wins */
}

/* Cut at a whole character. Nothing when absent or empty. */
void span_put_text(struct json *j, const char *key, const char *text, size_t max);
void span_put_number(struct json *j, const char *key, double value, int decimals); /* NAN: unknown */
void span_put_count(struct json *j, const char *key, int64_t value);		   /* < 0: unknown */
void span_put_true(struct json *j, const char *key, bool value);
void span_put_peer(struct json *j, const struct sock_addr *a);
void span_put_duration(struct json *j, const char *key, int64_t ns); /* < 0: unknown */

/* Unknown and empty phases are left out; a phase never begins before the one before it has ended. */
void span_add_phase(struct span *s, const char *name, uint64_t begin_ns, uint64_t end_ns);

/* One more instant. 0 or -ENOMEM. */
int span_put_instant(struct span *s, const char *name, uint64_t ts_ns);
/* The first SPAN_INSTANTS_MAX of them as instants. 0 or -ENOMEM. */
int span_put_retransmits(struct span *s, const uint64_t *retransmit_ns, unsigned count);

/* Takes the text of a whole JSON object as the span's args, and releases it; "{}" is none. 0 or -ENOMEM. */
int span_take_args(struct span *s, const struct json *j, struct buf *text);

#endif
