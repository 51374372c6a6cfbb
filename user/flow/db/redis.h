/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DB_REDIS_H
#define FLOW_DB_REDIS_H

/*
 * RESP2 and RESP3 (redis.io, "Redis serialization protocol specification"), both directions as the client sees them.
 *
 *   - A command is an array of bulk strings, or a line. Its shape is its name, that of its subcommand where it has
 * some, and one `?` for all arguments.
 *   - Answers come in order. Pushed messages (RESP3) are no answers; a command that subscribes has one if it fails. A
 *     connection that subscribes (RESP2), monitors, replicates, or asks for no answers is read until what it asked
 * before is answered.
 *   - A connection met in the middle may owe answers to commands that were not seen: nothing is told until once all
 *     that were seen had their answers, and no other came before the next command.
 *
 * Missing bytes inside of a bulk string cost nothing. Otherwise what waits for an answer is told as unfinished, and the
 * connection is one that is met in the middle again.
 */

#include "command.h"

#define REDIS_LINE_MAX	  65536 /* of an inline command (PROTO_INLINE_MAX_SIZE of the server) */
#define REDIS_DEPTH_MAX	  32	/* answers in each other */
#define REDIS_PENDING_MAX 65536 /* commands without an answer yet; more: the connection is out of step */
#define REDIS_WORD_MAX	  32	/* of a name; a longer one is none */

struct redis;

struct redis *redis_new(bool fresh, const struct db_sink *sink); /* NULL: ENOMEM */
void redis_free(struct redis *r);
int redis_push(struct redis *r, enum dir dir, const uint8_t *ptr, size_t len,
	       const struct stamp *at);						     /* 0 or -ENOMEM */
void redis_gap(struct redis *r, enum dir dir, uint64_t len, const struct stamp *at); /* UINT64_MAX: unknown */
void redis_finish(struct redis *r, uint64_t ts_ns); /* what waits for an answer is unfinished */
unsigned redis_errors(const struct redis *r);	    /* how often it made no sense */
unsigned redis_dropped(const struct redis *r);	    /* commands that were not told therefore */
unsigned redis_open(const struct redis *r);	    /* commands without an answer */

/* The first bytes of a client. 1: a command; 0: none; -1: too short to tell. */
#define REDIS_LOOK_BYTES 16
int redis_look(const uint8_t *ptr, size_t len);

#endif
