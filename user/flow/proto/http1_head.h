/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HTTP1_HEAD_H
#define FLOW_PROTO_HTTP1_HEAD_H

/*
 * Private to http1.c: the grammar of start lines, header lines and whole heads, and the two matchers that look for a
 * way back into step. No state of a connection here.
 */

#include "http.h"

/* What a head says about the body that follows. */
enum head_body {
	HEAD_BODY_UNSTATED, /* neither length nor coding */
	HEAD_BODY_LENGTH,
	HEAD_BODY_CHUNKED,
	HEAD_BODY_UNTIL_CLOSE, /* transfer coding that does not end with chunked */
	HEAD_BODY_INVALID,     /* lengths that differ or are no numbers */
};

struct head_info {
	struct http_head head; /* points into `headers` and the text */
	struct http_header headers[HTTP_HEADERS_MAX];
	enum head_body body;
	uint64_t length; /* HEAD_BODY_LENGTH */
	bool websocket;	 /* Upgrade names it */
	bool h2c;	 /* ... or this */
	bool upgrade;	 /* there is an Upgrade header */
	bool expect;	 /* the body waits for 100 Continue */
};

/* A line without its CR and LF. */
bool head_request_line(struct sv line, struct sv *method, struct sv *target);
bool head_status_line(struct sv line, int *status);
bool head_header_line(struct sv line); /* a field, or the continuation of one (obsolete folding) */

/*
 * A complete head, whose lines have passed the functions above, up to and with its empty line. Folded lines are joined
 * in place. Headers over HTTP_HEADERS_MAX are not kept, but lengths and codings in them count.
 */
void head_parse(char *text, size_t len, enum http_side side, struct head_info *info);

enum match { MATCH_NO, MATCH_MORE, MATCH_YES };

/* Looks whether bytes are a start line, strictly: only known methods, only plain reason phrases. */
struct line_match {
	unsigned phase, n;
};
/* text[0, len) with one byte more than at the last call (m zeroed before the first). YES: the last byte is the line's
 * LF. */
enum match line_match(struct line_match *m, enum http_side side, const char *text, size_t len);

/* Looks for a line with a chunk size in a stream of bytes. Zeroed: a line may begin at the next byte. */
struct chunk_match {
	enum { CHUNK_AT_LINE, CHUNK_IN_SIZE, CHUNK_IN_EXT, CHUNK_AT_LF, CHUNK_IN_TEXT, CHUNK_TEXT_CR } phase;
	unsigned digits;
	uint64_t size;
};
/* True when c is the LF that ends one; m->size is its size. */
bool chunk_match(struct chunk_match *m, unsigned char c);

int hex_digit(unsigned char c); /* 0..15 or -1 */

#endif
