/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HTTP1_MESSAGE_H
#define FLOW_PROTO_HTTP1_MESSAGE_H

/*
 * Private to http1: the messages of one direction, one after the other. Knows framing and how to get back into step;
 * knows nothing of the other direction. What a head means for the body is asked of the owner, since a response's body
 * depends on its request.
 */

#include "base/buf.h"
#include "http.h"
#include "http1_head.h"

enum message_next {
	NEXT_NO_BODY,
	NEXT_LENGTH,
	NEXT_CHUNKED,
	NEXT_UNTIL_CLOSE,
	NEXT_INTERIM, /* 1xx: another head follows */
	NEXT_WAIT,    /* not known yet: message_begin() is called later, bytes are not taken until then */
	NEXT_INVALID, /* framing contradicts itself: a parse error */
	NEXT_STOP,    /* what follows is no HTTP: handed to on_raw */
};

enum message_loss {
	LOSS_GAP,   /* bytes are missing, and with them the framing */
	LOSS_PARSE, /* not valid HTTP */
	LOSS_HEAD,  /* ... from somewhere in a head on that began well */
	LOSS_GUESS, /* a chunk line that was found by searching was none */
};

struct message;

struct message_sink {
	void *ctx;
	/* A head is complete: m->head. *length for NEXT_LENGTH. The message before it, if it was lost, is over. */
	enum message_next (*on_head)(void *ctx, struct message *m, uint64_t *length);
	void (*on_body)(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at);
	void (*on_gap)(void *ctx, uint64_t len, enum http_gap why, const struct stamp *at); /* in step all the same */
	void (*on_end)(void *ctx, const struct stamp *at);				    /* m->carried bytes */
	/* Out of step from here. Return: chunk lines are looked for too, not only the next head. */
	bool (*on_lost)(void *ctx, enum message_loss loss, enum http_gap why, const struct stamp *at);
	void (*on_skip)(void *ctx, size_t len, const struct stamp *at); /* bytes passed over while out of step */
	/* A chunk line was found while out of step. Return: believe it. */
	bool (*on_chunk_found)(void *ctx, const struct stamp *at);
	void (*on_raw)(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at); /* after NEXT_STOP */
};

enum message_state {
	MESSAGE_START,
	MESSAGE_HEAD,
	MESSAGE_WAIT,
	MESSAGE_LENGTH,
	MESSAGE_CHUNK_SIZE,
	MESSAGE_CHUNK_EXT,
	MESSAGE_CHUNK_LF,
	MESSAGE_CHUNK_DATA,
	MESSAGE_CHUNK_END,
	MESSAGE_CHUNK_END_LF,
	MESSAGE_TRAILER,
	MESSAGE_UNTIL_CLOSE,
	MESSAGE_SEARCH,
	MESSAGE_STOP,
};

/* Stamps of the pieces that the bytes in `head` came with. More pieces than that share the last stamp. */
#define MESSAGE_RUNS 8
struct message_run {
	size_t at; /* offset in head of its first byte */
	struct stamp stamp;
};

struct message {
	const struct message_sink *sink;
	enum http_side side;
	enum message_state state;
	/* What each piece of a body looks at lies together. */
	uint64_t left;	   /* of the body or chunk */
	unsigned digits;   /* of the chunk size */
	size_t extra;	   /* bytes of extension or trailer lines */
	size_t line_len;   /* of the trailer line at hand */
	bool line_cr;	   /* ... which is a CR so far */
	bool chunked;	   /* the message at hand is */
	bool lost;	   /* out of step, or in step by a guess, since some message */
	bool unsure;	   /* the head at hand was found by searching, behind bytes that were passed over or lost */
	bool chunks;	   /* searching for chunk lines too */
	size_t skipped;	   /* while searching */
	uint64_t head_len; /* of the message at hand */
	uint64_t carried;  /* bytes of the message at hand, its head and framing too */
	struct stamp last; /* of its last byte */
	struct buf head;   /* head so far, or what may become one */
	unsigned lines;	   /* complete lines in head */
	size_t line_at;	   /* where the line at hand begins in head */
	unsigned run_count;
	struct message_run runs[MESSAGE_RUNS];
	struct stamp head_end; /* of the last byte of `head`, once that is complete */
	struct line_match line_match;
	struct chunk_match chunk_match;
};

void message_init(struct message *m, enum http_side side, bool in_step, const struct message_sink *sink);
void message_release(struct message *m);
/* Bytes taken: all unless it came to NEXT_WAIT, or to another state while out of step, of which the owner may think
 * something else than of the one before. Or -ENOMEM. */
long message_push(struct message *m, const uint8_t *ptr, size_t len, const struct stamp *at);
void message_gap(struct message *m, uint64_t len, enum http_gap why, const struct stamp *at);
/* What on_head() left open with NEXT_WAIT. */
void message_begin(struct message *m, enum message_next next, uint64_t length, const struct stamp *at);
void message_search(struct message *m, bool chunks); /* drops the message at hand */
void message_stop(struct message *m);
bool message_at_body(const struct message *m); /* behind a head, in step, before the first byte of a body */

static inline const struct stamp *message_first(const struct message *m)
{
	return &m->runs[0].stamp; /* of the head's first byte */
}

#endif
