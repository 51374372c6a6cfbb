/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HTTP2_STATE_H
#define FLOW_PROTO_HTTP2_STATE_H

/*
 * A connection as its parts share it: http2.c has the connection and its frames, http2_head.c header blocks, roles and
 * what heads begin, http2_stream.c the table of streams and how they end. Private to them.
 */

#include "http2.h"

#include "hpack.h"
#include "http2_frame.h"
#include "http2_ids.h"

#include "base/hash.h"

#define FIXED_BYTES 8 /* what is read of RST_STREAM and GOAWAY */

/* An exchange. In the hash until its last word; oldest first. */
struct http2_stream {
	uint32_t id;
	bool orphan;  /* its request was not seen */
	bool connect; /* CONNECT, with :protocol websocket or another */
	bool websocket;
	bool upgraded;	     /* its last word is said, its data is raw */
	bool request_done;   /* END_STREAM was seen */
	bool request_lost;   /* ... or may have gone by: the response does not wait for it */
	bool response_begun; /* its head was told */
	bool response_done;
	bool response_lost; /* END_STREAM may have gone by */
	bool head_lost;	    /* a response head that could not be read came at head_at */
	bool front_told;    /* an orphan's body was begun */
	uint64_t xid;
	uint64_t since_ns;   /* of its first byte */
	uint64_t last_ns;    /* of its youngest byte */
	uint64_t carried[2]; /* by enum http_side */
	struct stamp head_at;
	struct stamp end; /* response_done: of its last byte */
	/* A head that may be a 1xx, its :status being unknown; the next frame tells. Owned; NULL: none. */
	struct hpack_head *doubtful;
	uint64_t doubtful_carried;
	uint64_t left; /* of the response's content-length; UINT64_MAX: not known */
	struct stamp full_at;
	UT_hash_handle hh;
};

/* A header block, from HEADERS or PUSH_PROMISE to END_HEADERS. */
struct http2_block {
	struct buf bytes;
	uint32_t stream;
	bool end_stream, push;
	bool broken;   /* bytes are missing */
	bool too_long; /* more than we take */
	unsigned continuations;
	uint64_t carried;
	struct stamp first;
};

struct http2_side {
	struct http2 *h;
	enum dir dir;
	struct frames_sink sink;
	struct frames frames;
	struct hpack *hpack;
	struct http2_block block;
	uint64_t data_xid; /* of the stream that the DATA frame at hand began on; 0: none */
	uint32_t counted;  /* payload bytes of the DATA frame at hand that are in carried */
	uint8_t fixed[FIXED_BYTES];
	unsigned fixed_len;
	bool fixed_lost;
};

struct http2 {
	struct http_sink sink;
	struct http2_raw raw;
	struct http2_side side[2]; /* by enum dir */
	enum dir client_dir;
	bool client_known;
	struct ids ids;
	struct http2_stream *streams;
	unsigned waiting; /* streams with response_done */
	unsigned lost;	  /* ... with response_lost */
	uint32_t goaway_last;
	uint64_t next_xid;
	unsigned errors, requests;
	uint64_t bytes;	    /* that came, of both directions */
	uint64_t own_bytes; /* ... of them the connection's own: its preface, and whole frames of no exchange */
	bool force;	    /* the frame that waits must be taken */
	bool found, finished;
	bool gap; /* bytes are missing */
	int err;
};

static inline enum http_side http2_side_of(const struct http2_side *s)
{
	return s->dir == s->h->client_dir ? HTTP_REQUEST : HTTP_RESPONSE;
}

static inline struct http2_side *http2_server_side(struct http2 *h)
{
	return &h->side[dir_other(h->client_dir)];
}

/* The frame's stream may still get its request: it waits. */
static inline bool http2_must_wait(const struct http2 *h, uint32_t id)
{
	return !h->force && id >= h->ids.next && !h->ids.lossy;
}

/* --- http2_stream.c ---------------------------------------------------------------------------------------------- */
/* No memory: nothing more is read; what is outstanding is ended by http2_finish(). */
void http2_fail(struct http2 *h, int err);
struct http2_stream *http2_stream_find(struct http2 *h, uint32_t id);
/* h2c: one that was told before. NULL: no memory. */
struct http2_stream *http2_stream_add(struct http2 *h, uint32_t id, uint64_t xid);
/* NULL: over the cap, or no memory. */
struct http2_stream *http2_stream_new(struct http2 *h, uint32_t id, const struct stamp *first);
/* ... which is told without a request; NULL also where that number was used. */
struct http2_stream *http2_orphan_new(struct http2 *h, uint32_t id, const struct stamp *first);
void http2_stream_saw(struct http2_stream *x, const struct stamp *at);
void http2_stream_drop_doubtful(struct http2_stream *x);
/* Each says the last word if that is due, and then removes x. */
void http2_stream_abort(struct http2 *h, struct http2_stream *x, enum http_abort why, uint64_t ts_ns);
void http2_stream_complete(struct http2 *h, struct http2_stream *x);
void http2_stream_lose(struct http2 *h, struct http2_stream *x);
void http2_stream_settle(struct http2 *h, struct http2_stream *x); /* if both directions are done */
void http2_request_end(struct http2 *h, struct http2_stream *x, const struct stamp *at);
void http2_response_end(struct http2 *h, struct http2_stream *x, const struct stamp *at);
/* To the sink, or of an upgraded one to `raw`. */
void http2_body(struct http2 *h, struct http2_stream *x, enum http_side side, const uint8_t *ptr, size_t len,
		const struct stamp *at);
void http2_body_gap(struct http2 *h, struct http2_stream *x, enum http_side side, uint64_t len, enum http_gap why,
		    const struct stamp *at);

/* --- http2_head.c ------------------------------------------------------------------------------------------------ */
void http2_block_begin(struct http2_side *s, const struct frame *f); /* HEADERS, PUSH_PROMISE */
void http2_block_continue(struct http2_side *s, const struct frame *f);
void http2_block_add(struct http2_side *s, const uint8_t *ptr, size_t len);
void http2_block_end(struct http2_side *s, const struct stamp *at);
void http2_set_client(struct http2 *h, enum dir dir);
void http2_resume_server(struct http2 *h); /* more is known of requests: a frame of the server that waits may go on */
/* Data came: a head that could be a 1xx was the final one; one that could not be read is told as it is. */
void http2_settle_doubtful(struct http2 *h, struct http2_stream *x, const struct stamp *at);
void http2_response_begin_unread(struct http2 *h, struct http2_stream *x, const struct stamp *at);

#endif
