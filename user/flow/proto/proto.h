/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_PROTO_H
#define FLOW_PROTO_PROTO_H

/*
 * One connection's application protocol: told by its first bytes, then handed to the parser. What is no HTTP is counted
 * and named.
 */

#include "http.h"
#include "sockets.h"

enum proto_kind { PROTO_UNDECIDED, PROTO_HTTP1, PROTO_HTTP2, PROTO_WEBSOCKET, PROTO_JSONRPC, PROTO_OTHER };

/* Lines of JSON-RPC, which have no heads: the bytes as they come. */
struct proto_line_sink {
	void *ctx;
	void (*on_bytes)(void *ctx, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
	void (*on_gap)(void *ctx, enum dir dir, enum http_gap why, const struct stamp *at);
	void (*on_end)(void *ctx, enum http_abort why, uint64_t ts_ns);
};

struct proto;

/* fresh: see http1_new. NULL: ENOMEM. The client direction is found from which side sends a request. */
struct proto *proto_new(bool fresh, const struct http_sink *sink);
void proto_free(struct proto *p);
void proto_set_sockets(struct proto *p, const struct socket_sink *sink); /* before any byte: WebSocket messages */
/* Before any byte, of the standard input and output of a child that speaks JSON-RPC, as the kernel side saw: lines. */
void proto_set_lines(struct proto *p, const struct proto_line_sink *sink);
int proto_push(struct proto *p, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
int proto_gap(struct proto *p, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at);
void proto_tick(struct proto *p, uint64_t now_ns);
/* Adds what proto_push() of a piece of the body at hand looks at. */
void proto_warm(const struct proto *p, struct warm *w);
bool proto_waits(const struct proto *p); /* for time to pass: until something is pushed ticks do nothing without it */
void proto_finish(struct proto *p, enum http_abort why, uint64_t ts_ns);

enum proto_kind proto_kind(const struct proto *p);
/* "http/1.1", "http/2", "websocket", "json-rpc", "unknown protocol", "no data" */
const char *proto_name(const struct proto *p);
/* NULL: something of it could be read; else why not: its name, or what of it hides the rest. Static. */
const char *proto_undecoded(const struct proto *p);
/* HTTP/2 that was opened and not used: all of it was read, and nothing but the connection's own frames came. */
bool proto_is_idle(const struct proto *p);
bool proto_is_server(const struct proto *p); /* the traced program answers requests here */
/* It is decided: another protocol than those that are read, or one of which the traced program is the server. */
bool proto_is_hopeless(const struct proto *p);
unsigned proto_errors(const struct proto *p);
unsigned proto_requests(const struct proto *p); /* exchanges begun */
/* So many of the next bytes of that direction are certainly a body's, and nothing else. HTTP/1 only: where it frames
 * bodies in pieces of 16 KiB, nothing is known in time. */
uint64_t proto_body_left(const struct proto *p, enum dir dir);

#endif
