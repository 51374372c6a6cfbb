/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DB_POSTGRES_H
#define FLOW_DB_POSTGRES_H

/*
 * PostgreSQL's protocol 3 (PostgreSQL documentation, chapter "Frontend/Backend Protocol"), both directions as the
 * client sees them.
 *
 *   - A simple query is one command, however many statements it has; rows are added up. An Execute is one, with the
 *     text of the Parse that named its statement; a name that was never seen has none.
 *   - A command begins with the first message of its round trip (Parse, Bind, or Execute), and ends with its
 *     CommandComplete, error, or suspension. An error of its Sync is its own, if that followed at once.
 *   - After an error of the extended protocol the server passes over all up to the next Sync: nothing of that is told.
 *   - What follows a granted request for encryption is not read: TLS has its own connection.
 *
 * Missing bytes inside of a message cost that message: its text or its row count is unknown. Otherwise what was asked
 * before is told when it was the client's bytes that are missing (a COPY is longer than what is captured), the
 * connection is read on from the first bytes that the client sends right behind a ReadyForQuery, and what was prepared
 * is forgotten. What then waits for an answer that cannot be told is told as unfinished.
 */

#include "command.h"

#define POSTGRES_NAME_MAX    256   /* of a statement or portal; a longer one is unknown */
#define POSTGRES_PENDING_MAX 16384 /* messages without an answer yet; more: the connection is out of step */

struct postgres;

/* startup: it begins with a startup message, or a request for encryption. proc of its commands is left to the owner.
 * NULL: ENOMEM. */
struct postgres *postgres_new(bool startup, const struct db_sink *sink);
void postgres_free(struct postgres *p);
int postgres_push(struct postgres *p, enum dir dir, const uint8_t *ptr, size_t len,
		  const struct stamp *at);						   /* 0 or -ENOMEM */
void postgres_gap(struct postgres *p, enum dir dir, uint64_t len, const struct stamp *at); /* UINT64_MAX: unknown */
void postgres_finish(struct postgres *p, uint64_t ts_ns); /* what waits for an answer is unfinished */
unsigned postgres_errors(const struct postgres *p);	  /* how often it made no sense */
unsigned postgres_dropped(const struct postgres *p);	  /* commands that were not told therefore */
unsigned postgres_open(const struct postgres *p);	  /* messages without an answer */

/* The first bytes that a client sends. 1: a startup message or request for encryption; 2: a message of a connection met
 * in the middle; 0: neither; -1: too short to tell. At most POSTGRES_LOOK_BYTES are looked at. */
#define POSTGRES_LOOK_BYTES 8
int postgres_look(const uint8_t *ptr, size_t len);

#endif
