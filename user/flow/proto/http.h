/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HTTP_H
#define FLOW_PROTO_HTTP_H

/*
 * What every HTTP-carrying protocol (http1, http2) says downstream: exchanges, each a request and its
 * response, named by a number that is unique within its connection. Order per exchange:
 *   on_request, on_request_body*, on_request_end, on_response, on_response_body*, on_response_end
 * with request and response parts free to interleave (a response may begin before the request ended), body gaps between
 * body pieces, and exactly one of on_response_end or on_abort as the last word.
 */

#include "base/sv.h"
#include "base/types.h"
#include "base/warm.h"

#define HTTP_HEADERS_MAX    128	  /* kept of one head; more are parsed over */
#define HTTP_HEAD_BYTES_MAX 65536 /* one head; a longer one kills the stream */

struct http_header {
	struct sv name, value; /* name as on the wire; compare with sv_ieq */
};

/* Borrowed for the callback. */
struct http_head {
	struct sv method, target; /* requests */
	struct sv host;		  /* Host header or :authority, without userinfo */
	int status;		  /* responses */
	const struct http_header *headers;
	size_t header_count;
	const char *protocol; /* "http/1.1", "http/2", "websocket" (static) */
	bool partial;	      /* HTTP/2 attached in the middle, or after loss: it has fields that are not known */
	/* A request's head that is too long, malformed or not to its end: beside method and target, if its first line
	 * came, nothing more is known, and only response parts follow. */
	bool unreadable;
};

/* Value of the first header of that name, SV_NONE when there is none. */
struct sv http_header_get(const struct http_head *h, const char *name);
/* host and port of user:password@host:port, which nobody should send (RFC 9110 section 4.2.4). */
struct sv http_without_userinfo(struct sv authority);

/* Length of the method in use (RFC 9110, PATCH, WebDAV's common ones) and its space that `text` begins with: what a
 * connection is told by, and a request line is searched by. 0: none; -1: text ends before that can be told. */
int http_method_prefix(struct sv text);
bool http_is_token(struct sv s); /* RFC 9110 token, not empty */

enum http_side { HTTP_REQUEST, HTTP_RESPONSE };

enum http_gap {
	HTTP_GAP_LOST,	 /* lost bytes */
	HTTP_GAP_CAPPED, /* over the capture cap: a choice */
	HTTP_GAP_DOUBT,	 /* lost bytes on both sides: the response may be that to another request, all of it */
};

/* Why an exchange ended without being framed to its end. */
enum http_abort {
	HTTP_ABORT_CLIENT, /* the program closed or reset */
	HTTP_ABORT_SERVER, /* the peer did */
	HTTP_ABORT_CLOSED, /* connection gone, by whom is unknown */
	HTTP_ABORT_EXIT,   /* the process ended */
	HTTP_ABORT_LOSS,   /* lost bytes: its end cannot be told */
	HTTP_ABORT_CAPTURE_END,
	HTTP_ABORT_PARSE,   /* not valid HTTP: the stream was given up */
	HTTP_ABORT_UPGRADE, /* 101 or CONNECT: what follows is another protocol */
};

struct http_sink {
	void *ctx;
	/* Head of a request is complete. `first`: of its first byte (start of the call = first->entry_ns). h is NULL
	 * for an exchange whose request was never seen (attached in the middle): then only response parts follow. */
	void (*on_request)(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first);
	/* Decoded from the transfer coding (chunked), not from the content coding. */
	void (*on_body)(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
			const struct stamp *at);
	/* Body bytes are missing here. len UINT64_MAX: unknown how many. */
	void (*on_body_gap)(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
			    const struct stamp *at);
	/* carried: bytes of start line, head and body with its framing, as carried. `at`: of the last byte. */
	void (*on_request_end)(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at);
	/* Head of the final response (1xx are skipped). `first`: of its first byte. */
	void (*on_response)(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first);
	void (*on_response_end)(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at);
	/* Last word instead of on_response_end. `ts_ns`: the event that ended it. carried: response bytes so far. */
	void (*on_abort)(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns);
};

#endif
