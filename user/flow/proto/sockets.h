/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_SOCKETS_H
#define FLOW_PROTO_SOCKETS_H

/*
 * The WebSockets of one connection: one after an HTTP/1 upgrade, any number as HTTP/2 streams. Stands between an HTTP
 * parser and its sink to see what was agreed in handshakes; gets the bytes that follow; says the messages. Private
 * child of proto.
 */

#include "http.h"
#include "ws.h"

#define SOCKETS_MAX 256 /* open at once on a connection; the bytes of more are passed over */

/* Messages by exchange (the one that was upgraded) and side. After on_end nothing comes of that exchange. */
struct socket_sink {
	void *ctx;
	void (*on_message)(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m);
	void (*on_opaque)(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m);
	/* Something of this side cannot be told: a message, or all that follows, until on_found. */
	void (*on_undecoded)(void *ctx, uint64_t xid, enum http_side side, const struct stamp *at);
	void (*on_close)(void *ctx, uint64_t xid, enum http_side side, const struct stamp *at);
	void (*on_end)(void *ctx, uint64_t xid, enum http_abort why, uint64_t ts_ns);
	/* Bytes of this side were lost, of the message under way if there is one. `all`: what follows cannot be read
	 * either, until on_found. NULL is skipped. */
	void (*on_lost)(void *ctx, uint64_t xid, enum http_side side, uint64_t len, bool all, const struct stamp *at);
	/* What was found behind that may be a message. True: certainly, it comes next, and all that follows (ws.h).
	 * NULL: never. */
	bool (*on_found)(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m);
};

struct sockets;

struct sockets *sockets_new(const struct http_sink *http); /* NULL: ENOMEM */
void sockets_free(struct sockets *s);
void sockets_set_sink(struct sockets *s, const struct socket_sink *sink); /* without one nothing is said */
/* For the parser instead of the owner's. */
struct http_sink sockets_http_sink(struct sockets *s);
void sockets_warm(const struct sockets *s, struct warm *w); /* adds what a piece of a body looks at */
/* One whose handshake was not seen. 0 or -ENOMEM. */
int sockets_adopt(struct sockets *s, uint64_t xid);
int sockets_take_error(struct sockets *s);	  /* -ENOMEM, once: a handshake could not be kept */
uint64_t sockets_latest(const struct sockets *s); /* exchange that was upgraded last */

/* What follows a handshake. client: the direction of the client's bytes. 0 or -ENOMEM. */
int sockets_push(struct sockets *s, uint64_t xid, enum dir client, enum dir dir, const uint8_t *ptr, size_t len,
		 const struct stamp *at);
int sockets_gap(struct sockets *s, uint64_t xid, enum dir client, enum dir dir, uint64_t len, enum http_gap why,
		const struct stamp *at);
void sockets_end(struct sockets *s, uint64_t xid, enum http_abort why, uint64_t ts_ns);
/* NULL: messages could be read; else what hides them, "websocket" when none came. Static. */
const char *sockets_undecoded(const struct sockets *s);
void sockets_finish(struct sockets *s, enum http_abort why, uint64_t ts_ns); /* all of them */

#endif
