/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_WS_H
#define FLOW_PROTO_WS_H

/*
 * WebSocket (RFC 6455) with permessage-deflate (RFC 7692), both directions of one connection, from the first byte after
 * the upgrade: frames unmasked, fragments joined, control frames between fragments, messages inflated as their bytes
 * come. Text is not checked to be UTF-8, except where that is part of a proof (below).
 *
 * Compression. A back reference reaches only into bytes that were sent before, so a message that inflates to its end
 * out of the window that is known has been inflated right, whatever was missed before it: every compressed message is
 * tried, and what does not come out is told by on_opaque. That holds for a connection met in the middle too (no
 * parameters known): nothing is told of a compressed message until one of them proves to be self-contained.
 *
 * Gaps. WebSocket has nothing to find a frame by: a gap of known length inside a payload keeps step and costs that
 * message (and, with it, what later compressed messages refer to); any other one loses step. A frame may begin where
 * the program's own call does (bytes of another stamp), or right behind the gap: what is there is read as frames, and
 * if the first message comes out whole and its reader says that it is one (on_found), step is regained. Nothing is told
 * before. A frame that no peer may send ends the direction for good.
 *
 * The input may be cut anywhere: the same calls come out. Linear in its input and output.
 */

#include "base/sv.h"
#include "base/types.h"
#include "ws_frame.h"

#define WS_MESSAGE_MAX (8u << 20)  /* a longer message, decoded, is told by on_opaque */
#define WS_PREFIX_MAX  (64u << 10) /* ... with this much of its beginning */
/* Inflated bytes of one message, and output per input from DECODE_RATIO_MIN on (decode.h): beyond, no more is inflated.
 */
#define WS_INFLATE_MAX (256ull << 20)

/* What was agreed. All zero: nothing is known (the handshake was not seen). */
struct ws_params {
	bool known;
	bool deflate;
	bool other; /* an extension that is not known here: reserved bits may mean anything */
	bool client_no_context_takeover, server_no_context_takeover;
	int client_max_window_bits, server_max_window_bits; /* 0: not said, thus 15 */
};

/* One Sec-WebSocket-Extensions header of the 101 response; once for each of them, and with an absent view when there is
 * none. */
void ws_params_add(struct ws_params *p, struct sv extensions);

struct ws_message {
	enum ws_opcode opcode; /* WS_TEXT, WS_BINARY */
	bool compressed;
	bool complete;	/* framed to its end */
	bool ended;	/* not complete, for the connection ended within it: up to there nothing of it is missing */
	struct sv data; /* borrowed, not NUL-terminated. on_opaque: its beginning, as far as it is sure; may be empty */
	uint64_t carried;   /* payload bytes of its frames, compressed if so, with those that a gap hides */
	struct stamp first; /* of the first byte of its first frame */
	struct stamp last;  /* of the last byte of its last frame, or of the last that came */
};

#define WS_CLOSE_UNKNOWN (-1) /* no code in the frame, or hidden by a gap */

struct ws_sink {
	void *ctx;
	/* A whole message. */
	void (*on_message)(void *ctx, enum dir dir, const struct ws_message *m);
	/* A message of which the content is not, or not wholly, known: sizes and timing only. */
	void (*on_opaque)(void *ctx, enum dir dir, const struct ws_message *m);
	/* A close frame is complete. Nothing comes of that direction afterwards. */
	void (*on_close)(void *ctx, enum dir dir, int code, const struct stamp *at);
	/* Something of this direction cannot be told; at most once for each direction, and again after on_found.
	 * `reason` is static. */
	void (*on_undecoded)(void *ctx, enum dir dir, const char *reason, const struct stamp *at);
	/* Step was lost, and this may be a message, of one frame or more that begin where one can. True: certainly; it
	 * is told next, and all that follows. NULL: never. */
	bool (*on_found)(void *ctx, enum dir dir, const struct ws_message *m);
};

struct ws_counts {
	uint64_t bytes;	       /* pushed */
	uint64_t frames;       /* complete, and in step */
	uint64_t control;      /* ... of them control frames */
	uint64_t messages;     /* told by on_message */
	uint64_t opaque;       /* told by on_opaque */
	uint64_t gaps, hidden; /* gaps, and the bytes known to be in them */
};

struct ws;

/* client_dir: the direction that carries the client's, masked, frames. params NULL: unknown. NULL: ENOMEM. */
struct ws *ws_new(enum dir client_dir, const struct ws_params *params, const struct ws_sink *sink);
void ws_free(struct ws *w);
/* 0 or -ENOMEM; after that only ws_finish and ws_free make sense. */
int ws_push(struct ws *w, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
void ws_gap(struct ws *w, enum dir dir, uint64_t len, const struct stamp *at); /* len UINT64_MAX: unknown */
bool ws_gap_loses_step(const struct ws *w, enum dir dir, uint64_t len);	       /* what follows cannot be told, yet */
void ws_finish(struct ws *w);						       /* messages under way: on_opaque */
bool ws_given_up(const struct ws *w, enum dir dir); /* out of step by a gap, or an invalid frame. For tests */
const struct ws_counts *ws_counts(const struct ws *w, enum dir dir);

#endif
