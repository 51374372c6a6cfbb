/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HTTP2_FRAME_H
#define FLOW_PROTO_HTTP2_FRAME_H

/*
 * Private to http2.c: the frames of one direction, one after the other (RFC 9113 sections 4 and 6). Knows framing and
 * how to get back into step; knows nothing of streams.
 *
 * In step lengths are believed, whatever SETTINGS_MAX_FRAME_SIZE says: that is in the other direction, which is not
 * ordered against this one. A frame that cannot be (a PING of 7 bytes, a CONTINUATION of nothing) loses step.
 *
 * Out of step a chain of frames is looked for: headers that are strictly plausible (known type, no undefined flag,
 * length of its type and at most 16384, stream rules), each where the one before says. Enough is
 *   - from the first byte of a call of the program: two headers, or one frame that ends where a call ends;
 *   - from any other byte: three headers, or two frames that end where a call ends.
 * Where a call ends is told by the stamps, and for the last bytes there are by frames_settle(). At most
 * HTTP2_QUEUE_BYTES are looked at for one chain.
 */

#include "queue.h"

enum frame_type {
	FRAME_DATA,
	FRAME_HEADERS,
	FRAME_PRIORITY,
	FRAME_RST_STREAM,
	FRAME_SETTINGS,
	FRAME_PUSH_PROMISE,
	FRAME_PING,
	FRAME_GOAWAY,
	FRAME_WINDOW_UPDATE,
	FRAME_CONTINUATION,
};

#define FRAME_HEADER_BYTES   9
#define FRAMES_PREFACE_BYTES 24

#define FRAME_END_STREAM  0x01 /* DATA, HEADERS; ACK of SETTINGS, PING */
#define FRAME_END_HEADERS 0x04
#define FRAME_PADDED	  0x08
#define FRAME_PRIORITISED 0x20

struct frame {
	uint32_t length, stream;
	uint8_t type, flags;
	struct stamp first; /* of the header's first byte */
};

enum frames_loss {
	FRAMES_LOSS_GAP,   /* bytes are missing, and with them the framing */
	FRAMES_LOSS_PARSE, /* not valid HTTP/2 */
};

struct frames_sink {
	void *ctx;
	void (*on_preface)(void *ctx); /* the client's connection preface was the first there was */
	void (*on_found)(void *ctx);   /* in step by a search */
	/* A header is complete. False: not to be taken yet; asked again by frames_resume(). */
	bool (*on_frame)(void *ctx, const struct frame *f);
	void (*on_content)(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at); /* without padding */
	/* Content is missing, in step all the same. len UINT64_MAX: nothing more of this frame is told. */
	void (*on_gap)(void *ctx, uint64_t len, enum http_gap why, const struct stamp *at);
	void (*on_end)(void *ctx, const struct stamp *at); /* `at`: of the frame's last byte */
	void (*on_lost)(void *ctx, enum frames_loss loss, enum http_gap why, const struct stamp *at);
};

enum frames_state {
	FRAMES_PREFACE,
	FRAMES_SEARCH,
	FRAMES_HEADER,
	FRAMES_WAIT,	/* on_frame() said so */
	FRAMES_FRONT,	/* pad length, priority, promised stream */
	FRAMES_CONTENT, /* what they are for */
	FRAMES_PADDING, /* ... or what cannot be told from it */
	FRAMES_STOP,
};

enum frames_start {
	FRAMES_START_PREFACE,  /* it must be there */
	FRAMES_START_FRAME,    /* the server's direction, from its first byte */
	FRAMES_START_ANYWHERE, /* the preface may be there */
};

/* A chain of frames from the front of the queue. */
struct chain {
	size_t next;	 /* offset of the next header */
	unsigned frames; /* headers seen */
	uint32_t block;	 /* stream that must go on with CONTINUATION, 0: none */
};

struct frames {
	const struct frames_sink *sink;
	enum frames_state state;
	enum frames_start start;
	struct frame frame; /* at hand */
	uint8_t header[9];  /* of it */
	struct stamp header_end;
	unsigned matched; /* bytes of preface or header */
	uint32_t left;	  /* of front, content or padding */
	uint32_t content; /* bytes of content, known behind the front */
	uint32_t padding;
	uint32_t block;	    /* stream whose header block is open, 0: none */
	struct queue queue; /* what is searched, or waits */
	struct chain chain;
	bool unsettled;	   /* bytes came since frames_settle() */
	struct stamp last; /* of the last byte */
	bool has_last;	   /* ... which is next to the one that will come */
};

void frames_init(struct frames *f, enum frames_start start, const struct frames_sink *sink);
void frames_release(struct frames *f);
/* 0 or -ENOMEM. `force` is called when bytes wait and there is no room for more: on_frame() must then take the frame.
 */
int frames_push(struct frames *f, const uint8_t *ptr, size_t len, const struct stamp *at, void (*force)(void *ctx));
int frames_gap(struct frames *f, uint64_t len, enum http_gap why, const struct stamp *at, void (*force)(void *ctx));
void frames_resume(struct frames *f); /* asks again; what waited follows */
void frames_settle(struct frames *f); /* the bytes so far end a call of the program */
void frames_stop(struct frames *f);

static inline bool frames_in_step(const struct frames *f)
{
	return f->state >= FRAMES_HEADER && f->state < FRAMES_STOP;
}

#endif
