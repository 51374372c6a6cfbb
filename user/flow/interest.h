/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_INTEREST_H
#define FLOW_INTEREST_H

/*
 * Whether what a connection carries is worth copying out of the kernel. Most bytes of a program are not a model's:
 * downloads, package registries, object stores.
 *
 *   - It is, at first, and from the moment on at which a model call, or a request of MCP, begins, until that has ended.
 *   - It is not any more when INTEREST_READ_BYTES came in, or INTEREST_WRITTEN_BYTES went out (a request may be that
 *     long before it can be told what it is), without a model call; and at once when its protocol is one that is not
 *     read, or when the program is the server. The kernel then copies the beginning of each write only, in which a call
 *     would be seen to begin; or nothing, and does not look any more, where none can (INTEREST_NEVER).
 *   - A WebSocket that had a call, and lines of JSON-RPC with one of MCP, stay: once bytes are missing, no later call
 * can be read, or be seen to begin.
 *   - Where every request's head is wanted, nothing that carries any is ignored: instead of that its bodies are of no
 * use from then on.
 *   - The kernel takes it back by itself at an HTTP/1 POST, and at the HTTP/2 headers of a request with a body. Whoever
 * looks at that afterwards and finds no call here says so again after INTEREST_AGAIN_BYTES.
 */

#include "base/types.h"

#define INTEREST_READ_BYTES    (256u << 10)
#define INTEREST_WRITTEN_BYTES (1u << 20)
#define INTEREST_AGAIN_BYTES   (64u << 10)

/* What is known of the connection after the bytes at hand. */
struct interest_view {
	unsigned calls;	     /* model calls begun so far */
	unsigned open_calls; /* of them not ended */
	bool hopeless;	     /* a protocol that is not read, or calls that others make */
	bool heads;	     /* one whose heads are wanted, whatever they are of */
	bool for_good;	     /* hopeless, and it is certain that it stays so */
	bool messages;	     /* one that brings messages without heads: WebSocket, lines of JSON-RPC */
};

enum interest_word {
	INTEREST_WANTED,
	INTEREST_IGNORED, /* until a call begins */
	INTEREST_NEVER,	  /* none will */
};

struct interest_sink {
	void *ctx;
	/* Called when it changes, and when it must be said again. */
	void (*on_word)(void *ctx, enum interest_word word);
};

struct interest {
	struct interest_sink sink;
	enum interest_word word; /* the latest */
	bool no_bodies;		 /* with interest_view.heads: no call was seen for long */
	unsigned calls;
	uint64_t bytes[2]; /* by direction, since the last call or the last word */
};

void interest_init(struct interest *i, const struct interest_sink *sink);
/* Bytes of the connection that were copied. */
void interest_push(struct interest *i, const struct interest_view *v, enum dir dir, uint64_t len);
void interest_finish(struct interest *i); /* the connection ended: nothing is ignored any more */

#endif
