/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_JSONARRAY_H
#define FLOW_PROTO_JSONARRAY_H

/*
 * A body that is one JSON array, streamed element by element (Gemini without alt=sse): each element that is an object
 * or an array is delivered at the bracket that closes it; scalars are passed over. A bare object or several one after
 * another, as error bodies come, count as elements too. Only brackets and strings are looked at: whether an element is
 * valid JSON is for its reader to find out.
 *
 * After a gap an element may begin where a line begins with `{`: line breaks do not occur inside of strings, and
 * streaming servers begin each element on a line of its own, those inside indented. Such elements say so: they may be
 * a part of an element, never a mixture of two.
 */

#include "base/sv.h"
#include "base/types.h"

#define JSONARRAY_ELEMENT_MAX (8u << 20) /* a longer element is skipped and counted */

struct jsonarray_element {
	struct sv text;	 /* from its first bracket to its last; borrowed, not NUL-terminated */
	struct stamp at; /* of its last byte */
	bool after_gap;	 /* found after a gap: depth is a guess */
};

struct jsonarray_sink {
	void *ctx;
	void (*on_element)(void *ctx, const struct jsonarray_element *e); /* called when an element is complete */
};

struct jsonarray;

struct jsonarray *jsonarray_new(const struct jsonarray_sink *sink); /* NULL: ENOMEM */
void jsonarray_free(struct jsonarray *a);
int jsonarray_push(struct jsonarray *a, const uint8_t *ptr, size_t len, const struct stamp *at); /* 0 or -ENOMEM */
void jsonarray_gap(struct jsonarray *a);
bool jsonarray_closed(const struct jsonarray *a);  /* nothing was missing, up to the `]` of the array. For tests */
bool jsonarray_is_json(const struct jsonarray *a); /* false: the body begins as no array and no object. For tests */
unsigned jsonarray_oversize(const struct jsonarray *a); /* elements skipped for JSONARRAY_ELEMENT_MAX */
size_t jsonarray_held(const struct jsonarray *a);	/* bytes of memory that it grew to */

#endif
