/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_DECODE_H
#define FLOW_PROTO_DECODE_H

/*
 * Content coding (RFC 9110 section 8.4), incremental: output is delivered with the stamp of the input that released it.
 * identity, gzip, x-gzip, deflate (zlib, and raw as some servers send it), br, zstd, stacked in any order. Others:
 * DECODE_UNKNOWN. Several gzip members and several zstd frames follow each other.
 *
 * Memory of one body: 40 KiB for gzip and deflate, up to 16 MiB for br (its largest window; as much as came out, until
 * then), 9 MiB for zstd, whose window may be 8 MiB (RFC 9659); a frame that needs more is DECODE_LIMIT. After any
 * status but DECODE_OK nothing is held.
 *
 * What comes out does not depend on how the input is cut; but of an input that is corrupt, how much comes out before it
 * is found out may (libzstd hands out a raw block's bytes as they come, and refuses a whole one that is too long).
 */

#include "base/sv.h"
#include "base/types.h"
#include "base/warm.h"
#include "http.h"

#define DECODE_OUT_MAX	     (256ull << 20) /* decoded bytes of one body, and of each coding of a stack */
#define DECODE_RATIO_MAX     200	    /* output / input, looked at once DECODE_RATIO_MIN bytes came out */
#define DECODE_RATIO_STACKED 8 /* ... where the output is compressed again: such bytes hardly shrink, but for bombs */
#define DECODE_RATIO_MIN     (1u << 20)
#define DECODE_STACK_MAX     4

enum decode_status {
	DECODE_OK,
	DECODE_UNKNOWN,
	DECODE_CORRUPT,
	DECODE_LIMIT,
	DECODE_NO_MEMORY,
	DECODE_GAP,
	DECODE_CUT, /* the body ended and a coding did not */
};

struct decode_sink {
	void *ctx;
	void (*on_bytes)(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at);
};

struct decode;

/* content_encoding: the header's value, absent or empty for identity. NULL: ENOMEM. */
struct decode *decode_new(struct sv content_encoding, const struct decode_sink *sink);
/* The same of a head, which may be NULL: its lines are one list in their order (RFC 9110 section 5.3), and around what
 * they say are the transfer codings (RFC 9112 section 6.1) but for chunked, which http.h has taken off. */
struct decode *decode_new_of(const struct http_head *h, const struct decode_sink *sink);
void decode_free(struct decode *d);
/* Sticky: after the first status that is not DECODE_OK nothing comes out any more. */
enum decode_status decode_push(struct decode *d, const uint8_t *ptr, size_t len, const struct stamp *at);
void decode_gap(struct decode *d); /* identity goes on; compressed: DECODE_GAP */
/* That was all of the body. A coding of which nothing came has no end either. */
enum decode_status decode_finish(struct decode *d);
enum decode_status decode_status(const struct decode *d);
bool decode_is_identity(const struct decode *d);
void decode_warm(const struct decode *d, struct warm *w); /* adds what decode_push() looks at, without the coders */
size_t decode_held(const struct decode *d);		  /* bytes of memory */
/* Name for `undecoded`: the coding as the header says it, cut to 63 bytes; "" when all is well. */
const char *decode_undecoded(const struct decode *d);

#endif
