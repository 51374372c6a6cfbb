/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_NDJSON_H
#define FLOW_PROTO_NDJSON_H

/*
 * One JSON text a line (application/x-ndjson, as Ollama streams): lines end at LF, what surrounds the text (CR, spaces,
 * tabs, a byte order mark at the very start) is taken off, blank lines are no lines. A line is delivered at its LF.
 */

#include "base/sv.h"
#include "base/types.h"

#define NDJSON_LINE_MAX (8u << 20) /* up to the LF; a longer line is skipped and counted */

struct ndjson_line {
	struct sv text;	   /* not empty; borrowed, not NUL-terminated */
	struct stamp at;   /* of its last byte: the LF, or the last byte there is */
	bool unterminated; /* the stream ended before its LF */
};

struct ndjson_sink {
	void *ctx;
	void (*on_line)(void *ctx, const struct ndjson_line *line); /* called when a line is complete */
};

struct ndjson;

struct ndjson *ndjson_new(const struct ndjson_sink *sink); /* NULL: ENOMEM */
void ndjson_free(struct ndjson *n);
int ndjson_push(struct ndjson *n, const uint8_t *ptr, size_t len, const struct stamp *at); /* 0 or -ENOMEM */
void ndjson_gap(
	struct ndjson *n); /* the line at hand is dropped, up to the next LF. Also first, when met in the middle */
void ndjson_finish(struct ndjson *n);		  /* delivers the last line, unless a part of it is missing */
unsigned ndjson_oversize(const struct ndjson *n); /* lines skipped for NDJSON_LINE_MAX */
size_t ndjson_held(const struct ndjson *n);	  /* bytes of memory that it grew to */

#endif
