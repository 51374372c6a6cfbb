/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HTTP1_STATE_H
#define FLOW_PROTO_HTTP1_STATE_H

/*
 * What the files of an HTTP/1 connection share. Private to them: http1.c hears both directions, http1_exchange.c knows
 * which response answers which request, http1_park.c keeps responses that came before theirs, http1_early.c
 * what is seen before the upgrade that it follows.
 */

#include "http1.h"
#include "http1_message.h"
#include "queue.h"

struct exchange {
	struct exchange *prev, *next;
	uint64_t xid;
	uint64_t since_ns; /* a response cannot be older */
	uint64_t last_ns;  /* of its youngest byte */
	bool head_method, connect, upgrade, websocket, expect;
	bool orphan;	    /* its request was not seen */
	bool unsure;	    /* its request was found by searching */
	bool request_done;  /* or given up */
	bool begun;	    /* response head seen, or never to be */
	bool lost;	    /* response bytes are missing, so that its end may not be seen */
	bool gap_told;	    /* ... and that was said */
	bool response_done; /* waits for the request's end, or while: */
	bool unproven;	    /* a hole in the responses may have held its own, and another request may be missing */
	uint64_t carried;   /* response_done: what on_response_end will say */
	struct stamp end;
};

struct http1 {
	/* First what each piece of bytes looks at. */
	struct exchange *list;	    /* oldest first */
	struct exchange *answering; /* whose response is at hand */
	enum dir client_dir;
	enum http1_upgrade upgrade;
	int err;
	bool finished;
	unsigned errors, requests;
	struct http_sink sink;
	struct message response, request;
	struct message_sink request_sink, response_sink;
	struct queue park;	 /* response bytes behind a head that waits for its request */
	unsigned count;		 /* in list */
	struct exchange *asking; /* whose request is at hand */
	bool middle;		 /* no response message was seen to begin yet, on a connection met in the middle */
	bool pipelined;
	bool doubt; /* something was lost, and requests and responses were not seen to be in step since */
	struct stamp before_first, before_last; /* bytes at the front that are in no message */
	uint64_t before_bytes;
	struct stamp request_end;		    /* of the last complete request */
	uint64_t response_hole_ns, request_hole_ns; /* when bytes behind the latest hole moved; 0: none */
	uint64_t orphan_ns;  /* when the last response began that was given up waiting for its request; 0: none */
	uint64_t paired_ns;  /* when the last response began that was paired in doubt; 0: none */
	uint64_t passed_ns;  /* of the latest response bytes that were read out of step; 0: none */
	uint64_t refused_ns; /* when the response came that the body of the request at hand had waited for; 0: none */
	struct exchange *refused; /* ... and whose: whether bytes behind it are its body or the next request shows */
	uint64_t refused_bytes;	  /* of its head */
	struct stamp refused_last;
	uint64_t next_xid;
	struct queue early; /* what waits for an upgrade */
	bool early_lost;    /* it was too much */
	/* The upgrade was not seen, and what came behind it neither: to be told before the server's next bytes, since
	 * the client's, and where they were cut, do not say when that was. */
	bool unseen;
	struct stamp unseen_at; /* when the upgrade was known */
	void *raw_ctx;
	void (*raw)(void *ctx, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
	void (*raw_gap)(void *ctx, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at);
	void *h2c_ctx;
	int (*h2c)(void *ctx, uint64_t xid);
};

/* --- http1.c ----------------------------------------------------------------------------------------------------- */

/* The request that a server answers though its head has not come to its end, and whose never does (408). NULL: none. */
struct exchange *http1_unended_request(struct http1 *h, const struct stamp *answered);

/* --- http1_exchange.c -------------------------------------------------------------------------------------------- */

/* NULL: no memory, h->err. since_ns: no response to it is older. */
struct exchange *http1_exchange_new(struct http1 *h, uint64_t since_ns);
/* The same of a response whose request was not seen: it began at `first`. */
struct exchange *http1_orphan_new(struct http1 *h, const struct stamp *first);
static inline void http1_exchange_saw(struct exchange *x, const struct stamp *at)
{
	if (x && at->ts_ns > x->last_ns)
		x->last_ns = at->ts_ns;
}

void http1_body_gap(struct http1 *h, struct exchange *x, enum http_side side, uint64_t len, enum http_gap why,
		    const struct stamp *at);
/* These three may end and free it. */
void http1_exchange_abort(struct http1 *h, struct exchange *x, enum http_abort why, uint64_t ts_ns);
/* Its end was not seen: it lasted at least to its youngest byte. */
void http1_exchange_lose(struct http1 *h, struct exchange *x);
/* Says on_response_end when both halves are over. */
void http1_exchange_settle(struct http1 *h, struct exchange *x);

/* The next unanswered request; NULL: none is. */
struct exchange *http1_unanswered(const struct http1 *h);
/* ... if a response byte of that time can be its. */
struct exchange *http1_eligible(const struct http1 *h, const struct stamp *at);
/* Pairs the head in h->response. `force`: it does not wait for a request any more. */
enum message_next http1_pair(struct http1 *h, uint64_t *length, bool force);
/*
 * The response at hand lost its framing, or was found again by a guess, and a request that came after it is old enough:
 * the response is over, wherever it ended.
 */
void http1_advance(struct http1 *h, const struct stamp *at);
/* Its response may have been another one; HTTP_GAP_DOUBT: and requests lost bytes, too. */
void http1_say_doubtful(struct http1 *h, struct exchange *x, enum http_gap why, const struct stamp *at);
/* Its body goes on behind a hole, by a chunk that may be another response's, in the same way. */
void http1_weigh_rest(struct http1 *h, struct exchange *x);
/* The requests come to this place without a hole, or they do not. */
void http1_prove(struct http1 *h, bool whole, const struct stamp *at);
/* Bytes of what follows an upgrade are missing. */
void http1_raw_gap(struct http1 *h, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at);
/* The 101 to x is lost, and what follows it comes. */
void http1_upgrade_unseen(struct http1 *h, struct exchange *x, const struct stamp *at);
/* On a connection that was met in the middle: a message proves that this is HTTP, so what came before it was an
 * exchange too. */
void http1_before_tell(struct http1 *h);

/* Nothing more is read of this connection. */
void http1_stop(struct http1 *h);
void http1_give_up(struct http1 *h); /* ... and what is outstanding ends, by a parse error */

/* --- http1_park.c ------------------------------------------------------------------------------------------------ */

/* So many bytes more can be parked, beside the head that waits. */
bool http1_park_takes(const struct http1 *h, size_t len, const struct stamp *at);
/* A head waits: tries again to pair it, now that there is a request, or by force. Heads behind it are not forced.
 * 0 or -ENOMEM. */
int http1_unpark(struct http1 *h, bool force);

/* --- http1_early.c ----------------------------------------------------------------------------------------------- */

/* Bytes of the client's, the first of them as here, or a gap in them, wait for the answer. */
bool http1_early_takes(const struct http1 *h, uint8_t first, const struct stamp *at);
bool http1_early_takes_gap(const struct http1 *h);
/* Bytes of the client's, or a gap: kept, or read as requests. 0 or -ENOMEM. */
int http1_early_push(struct http1 *h, const uint8_t *ptr, size_t len, const struct stamp *at);
int http1_early_gap(struct http1 *h, uint64_t len, enum http_gap why, const struct stamp *at);
/* The upgrade came, by then: they are what follows it. asks_now: the head at hand is that which asked. Before the
 * requests stop. */
void http1_early_tell(struct http1 *h, bool asks_now, const struct stamp *at);
/* It may have come unseen: http1_upgrade_unseen() then. After what may tell. */
void http1_early_look(struct http1 *h, const struct stamp *at);
/* They are read as requests if there is no upgrade that they could wait for. 0 or -ENOMEM. */
int http1_early_release(struct http1 *h);

#endif
