/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HTTP2_H
#define FLOW_PROTO_HTTP2_H

/*
 * HTTP/2 on one connection, both directions (RFC 9113, 7541, 8441), each read by itself and joined by stream number.
 * One stream of the client is one exchange; pushed streams are passed over (their headers are decoded, for the table).
 * 1xx are skipped, trailers are carried and not told.
 *
 * carried: all bytes of the stream's HEADERS, CONTINUATION and DATA frames of that direction, frame headers, padding
 * and trailers too; without those of 1xx, WINDOW_UPDATE, RST_STREAM and the like. A header block counts as encoded.
 *
 * A stream ends with END_STREAM in both directions; a complete response whose request has not ended waits for that end,
 * RST_STREAM, or HTTP2_PARK_NS. RST_STREAM before the response's end aborts, by the direction it went: TX is CLIENT
 * (the program), RX is SERVER (the peer); so does the server's GOAWAY for streams above its last one.
 *
 * Directions are not ordered against each other. A response to a stream that no request was seen of yet waits, with all
 * that follows in its direction, up to HTTP2_QUEUE_BYTES or HTTP2_PARK_NS. It is an exchange without a request (h NULL)
 * where the request may have gone by unseen: attached in the middle, after loss in that direction, or when it waited
 * too long. Each stream number makes one exchange at most.
 *
 * Out of step (attached in the middle, or after a gap that hides framing): see http2_frame.h. A gap of known length
 * inside one frame does not lose step. Headers after that: see hpack.h; a name, value, method, target, host (SV_NONE)
 * or status (0) that is not known is absent, never wrong. So on_request may have a head without a target. Streams that
 * were open in a direction that lost step get a body gap of unknown length, and go on when it is in step again; where
 * no end comes, they end LOSS at the latest in http2_finish().
 *
 * Which direction is the client's need not be known: TX is assumed, the preface or the first head that proves the
 * opposite changes it, and what was told of the wrong roles so far (exchanges without a request) ends LOSS.
 *
 * Extended CONNECT and CONNECT, once granted: on_abort(UPGRADE), and the stream's data goes to `raw`.
 *
 * The input may be cut anywhere: the same calls come out. Linear in its input.
 */

#include "http.h"

#define HTTP2_STREAMS_MAX 4096	/* open at once; beyond: an older one with losses goes, or the new one is not told */
#define HTTP2_QUEUE_BYTES 65536 /* of a direction that wait */
#define HTTP2_QUEUE_RUNS  512	/* calls that they came with, and gaps */
#define HTTP2_PARK_NS	  1000000000ull
#define HTTP2_SETTLE_NS	  50000000ull /* out of step: silence after which the last bytes are taken as a call's end */
#define HTTP2_RANGES_MAX  64	      /* runs of stream numbers whose requests may have gone by unseen */

enum http2_client { HTTP2_CLIENT_TX, HTTP2_CLIENT_RX, HTTP2_CLIENT_UNKNOWN };

struct http2;

/* fresh: both directions begin at the first byte, the client's with the preface; not with HTTP2_CLIENT_UNKNOWN. NULL:
 * ENOMEM.
 */
struct http2 *http2_new(bool fresh, enum http2_client client, const struct http_sink *sink);
void http2_free(struct http2 *h);

/* After an h2c upgrade, before any byte: stream 1 answers the request that was told as `xid`; this one's own numbers
 * are higher. The exchange must be open in the sink, its request ended. 0 or -ENOMEM. */
int http2_adopt(struct http2 *h, uint64_t xid);

/* Return 0 or -ENOMEM; after that nothing more is read. */
int http2_push(struct http2 *h, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
int http2_gap(struct http2 *h, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at);
void http2_tick(struct http2 *h, uint64_t now_ns);
void http2_warm(const struct http2 *h, struct warm *w); /* as http1_warm(), of no stream in particular */
bool http2_waits(const struct http2 *h);		/* as http1_waits() */
/* The connection ended: all that is outstanding is aborted with `why`, or LOSS where its end may have been lost. */
void http2_finish(struct http2 *h, enum http_abort why, uint64_t ts_ns);
unsigned http2_errors(const struct http2 *h);	/* steps lost to bytes that are no HTTP/2, heads and streams given up */
unsigned http2_requests(const struct http2 *h); /* exchanges begun */
bool http2_is_server(const struct http2 *h);	/* the program answers; false while unknown */
bool http2_found(const struct http2 *h);	/* frames were seen: this is HTTP/2 */
/* All that came were whole frames of the connection itself (SETTINGS, PING and the like), of no exchange. */
bool http2_is_idle(const struct http2 *h);

/* The door for the protocol that follows a granted CONNECT, by stream. */
struct http2_raw {
	void *ctx;
	void (*on_bytes)(void *ctx, uint64_t xid, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
	void (*on_gap)(void *ctx, uint64_t xid, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at);
	void (*on_end)(void *ctx, uint64_t xid, enum http_abort why, uint64_t ts_ns); /* last word */
};
enum http2_upgrade { HTTP2_NOT_UPGRADED, HTTP2_WEBSOCKET, HTTP2_OTHER_PROTOCOL };
enum http2_upgrade http2_upgraded(const struct http2 *h, uint64_t xid); /* while that stream is open */
void http2_set_raw(struct http2 *h, const struct http2_raw *raw);

#endif
