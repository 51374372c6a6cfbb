/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_JSONSCAN_H
#define FLOW_LLM_JSONSCAN_H

/*
 * A JSON text of any size in bounded memory: a push tokenizer that reports where it is and short prefixes of scalars.
 * For request bodies (up to many MiB) of which a few fields are wanted. cJSON parses complete documents elsewhere.
 * Cut anywhere: the same reports. A gap makes the scan stop (what was reported stays true).
 */

#include "base/sv.h"
#include "base/types.h"

#define JSONSCAN_DEPTH	     64	 /* deeper levels are skipped over, correctly */
#define JSONSCAN_KEY_BYTES   64	 /* longer keys are reported cut */
#define JSONSCAN_VALUE_BYTES 512 /* prefix kept of a string */

enum json_type { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_OBJECT, JSON_ARRAY };

/* One level of the path: a key of an object, or an index of an array. */
struct jsonscan_step {
	struct sv key; /* SV_NONE in arrays */
	uint64_t index;
};

struct jsonscan_value {
	const struct jsonscan_step *path; /* depth steps; borrowed */
	unsigned depth;			  /* 0: the top-level value */
	enum json_type type;
	/* Scalars: a number's text (SV_NONE when longer than JSONSCAN_VALUE_BYTES: a cut number would be another one),
	 * or the decoded string, of a longer one the first JSONSCAN_VALUE_BYTES in whole characters. Lone surrogates:
	 * U+FFFD. */
	struct sv text;
	uint64_t bytes; /* strings: whole decoded length; containers (on_end): members or elements */
};

/* Whether the step at that level of the path is this key of an object. */
static inline bool jsonscan_key_is(const struct jsonscan_value *v, unsigned level, struct sv key)
{
	return level < v->depth && v->path[level].key.ptr && sv_eq(v->path[level].key, key);
}

struct jsonscan_sink {
	void *ctx;
	void (*on_value)(void *ctx, const struct jsonscan_value *v); /* a scalar is complete; a container begins */
	void (*on_end)(void *ctx, const struct jsonscan_value *v);   /* a container is complete. May be NULL */
};

struct jsonscan;

struct jsonscan *jsonscan_new(const struct jsonscan_sink *sink); /* NULL: ENOMEM */
void jsonscan_free(struct jsonscan *s);
/* 0; -EBADMSG, sticky: not JSON (what follows the top-level value is ignored). */
int jsonscan_push(struct jsonscan *s, const uint8_t *ptr, size_t len);
void jsonscan_gap(struct jsonscan *s); /* stops: later pushes return -EBADMSG */
/* The top-level value is complete. (A number at the top level never is: only what follows it would end it.) */
bool jsonscan_done(const struct jsonscan *s);

#endif
