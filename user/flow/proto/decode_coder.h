/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_DECODE_CODER_H
#define FLOW_PROTO_DECODE_CODER_H

/*
 * One decompressor behind one way to call it. Private to decode.c.
 *
 * zstd and brotli forget what they put out in the very call that finds an error. So that what is told of a damaged
 * stream does not depend on how it was cut, they are given no more at once than what cannot both put out and fail.
 */

#include <brotli/decode.h>
#include <zlib.h>
#include <zstd.h>

#include "base/sv.h"

enum coding { CODING_GZIP, CODING_DEFLATE, CODING_BROTLI, CODING_ZSTD, CODING_UNKNOWN };

enum coder_result {
	CODER_MORE,   /* as far as the input, or the room, went */
	CODER_MEMBER, /* the end of a stream; another one may follow after coder_restart() */
	CODER_END,    /* the end of all */
	CODER_CORRUPT,
	CODER_LIMIT, /* needs more memory than we grant */
	CODER_NO_MEMORY,
};

struct coder {
	enum coding coding;
	bool open;
	bool full;   /* the last call filled its room: there may be more */
	size_t held; /* bytes of memory; not to be moved while it is open */
	z_stream z;
	BrotliDecoderState *brotli;
	ZSTD_DCtx *zstd;
	size_t zstd_want; /* bytes that it asked for last */
	uint64_t zstd_in; /* bytes of the frame so far */
};

enum coding coding_of(struct sv name);
/* raw: deflate without its zlib header. CODER_MORE, or why not. */
enum coder_result coder_open(struct coder *c, enum coding coding, bool raw);
void coder_close(struct coder *c);
/* Some of [*in, *in + *in_len) becomes some of [out, out + room): both are moved on, *out_len is what came out. */
enum coder_result coder_run(struct coder *c, const uint8_t **in, size_t *in_len, uint8_t *out, size_t room,
			    size_t *out_len);
bool coder_restart(struct coder *c);
bool coder_is_between(const struct coder *c); /* zstd: a frame has ended, and no other one begun */

#endif
