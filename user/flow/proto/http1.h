/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HTTP1_H
#define FLOW_PROTO_HTTP1_H

/*
 * HTTP/1.0 and 1.1 on one connection, both directions (RFC 9112). Pairs requests and responses in order; keep-alive,
 * pipelining, 1xx, HEAD/204/304, chunked with extensions and trailers, close-delimited, 101 (parsing stops).
 *
 * Directions are not ordered against each other: response bytes may come before the request's (the write returns after
 * the answer was read). Response bytes with no request outstanding are parked, up to HTTP1_PARK_BYTES or
 * HTTP1_PARK_NS; when a request comes, parked bytes older than its entry time cannot answer it and belong to an
 * exchange whose request was not seen; newer ones are its response.
 *
 * Out of step (attached in the middle, or after a gap that hides framing) the parser looks for the next request line,
 * or status line, anywhere in the bytes (a request line ends a line but need not begin one: a body without a final
 * newline may precede it); a gap of known length inside a body of known length, or inside one chunk, does not lose
 * step. After a gap of unknown length in a chunked body, a chunk-size line at the very next byte is taken as step
 * regained.
 *
 * What the bytes at the front of a connection that was met in the middle belong to is an exchange whose request was not
 * seen (h NULL): told when chunk framing is found in them, or, without a body, when a later message proves that this is
 * HTTP. Its first body gap is not a loss of ours.
 *
 * A response whose request has not ended yet (an early answer, or a write that returns late) is told as it comes; its
 * on_response_end waits for the request's end, HTTP1_PARK_NS at most.
 *
 * A request that waits for 100 Continue and gets a final response instead has no body from there on (RFC 9110 section
 * 10.1.1): what its client writes next is the next request.
 *
 * A response that was found behind a hole, or whose chunks go on there, is told as it comes; its on_response_end waits
 * for the next request, or the end of the connection, which say whether requests are missing, too: then it may be
 * another one's, and has a body gap. Nothing is proven after HTTP1_PROOF_NS.
 *
 * A head that began well but is too long or malformed is told as unreadable, when it is a request's: its response still
 * answers it. Of a response it ends the exchange (HTTP_ABORT_PARSE). So is the head of a served request that has not
 * come to its end when the answer has waited for it in vain.
 *
 * The input may be cut anywhere: the same calls come out. Linear in its input. A parse error gives up this direction
 * until it is in step again, and is counted by the owner through http1_errors().
 */

#include "http.h"

#define HTTP1_PARK_BYTES   65536
#define HTTP1_PARK_RUNS	   1024 /* calls that they came with, and gaps */
#define HTTP1_PARK_NS	   1000000000ull
#define HTTP1_EARLY_BYTES  (1u << 20)
#define HTTP1_PROOF_NS	   30000000000ull
#define HTTP1_PIPELINE_MAX 256 /* requests outstanding; more: the connection is given up */

struct http1;

/* `fresh`: both directions begin at the first byte. NULL: ENOMEM. `client_dir`: the direction that carries requests. */
struct http1 *http1_new(bool fresh, enum dir client_dir, const struct http_sink *sink);
void http1_free(struct http1 *h);

/* Return 0 or -ENOMEM. */
int http1_push(struct http1 *h, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
int http1_gap(struct http1 *h, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at);
void http1_tick(struct http1 *h, uint64_t now_ns);
void http1_warm(const struct http1 *h, struct warm *w); /* adds what a piece of the body at hand looks at */
bool http1_waits(const struct http1 *h); /* for time to pass: until something is pushed ticks do nothing without it */
/* The connection ended: a close-delimited response is complete when who sent it closed (why SERVER, of a program that
 * serves CLIENT; or CLOSED) and nothing was lost; all else outstanding is aborted with `why`. */
void http1_finish(struct http1 *h, enum http_abort why, uint64_t ts_ns);
unsigned http1_errors(const struct http1 *h);
unsigned http1_requests(const struct http1 *h); /* exchanges begun */
/* So many of the next bytes of that direction are certainly a body's, and nothing else. */
uint64_t http1_body_left(const struct http1 *h, enum dir dir);

/*
 * After 101 or a CONNECT that was granted, bytes are no HTTP any more. `raw` gets them, from the first one, and raw_gap
 * their gaps; without them they are dropped. (The door for the protocol that follows.) What the client sends behind a
 * request for an upgrade, and is no HTTP, waits for the answer if it is seen before that: up to HTTP1_EARLY_BYTES, more
 * is a gap. Where the answer to one for a WebSocket is lost, a client's text frame says that it was 101: told with a
 * head of nothing, status 0, and all that came with and behind it by then is a gap.
 */
enum http1_upgrade { HTTP1_NOT_UPGRADED, HTTP1_WEBSOCKET, HTTP1_OTHER_PROTOCOL };
enum http1_upgrade http1_upgraded(const struct http1 *h);
void http1_set_raw(struct http1 *h, void *ctx,
		   void (*raw)(void *ctx, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at),
		   void (*raw_gap)(void *ctx, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at));
/* With it, a 101 to h2c (RFC 7540 section 3.2) is told here, and to the sink neither as response nor as end: whoever
 * reads what follows, beginning with the response to that request, goes on with the exchange. Unless h2c returns an
 * error: then it is one like others. */
void http1_set_h2c(struct http1 *h, void *ctx, int (*h2c)(void *ctx, uint64_t xid));

#endif
