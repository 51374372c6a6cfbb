/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DB_MYSQL_H
#define FLOW_DB_MYSQL_H

/*
 * The client/server protocol of MySQL and MariaDB (MySQL Internals, "Client/Server Protocol"; MariaDB Knowledge Base,
 * "Client/Server Protocol"), both directions as the client sees them.
 *
 *   - A COM_QUERY is one command, with all its results; a COM_STMT_EXECUTE is one, with the text that was prepared. A
 *     COM_STMT_PREPARE is told when it fails. Other commands are followed, not told.
 *   - Rows: those of result sets, and those that were changed.
 *   - Packets are numbered from each command on: that is how answers are held against commands.
 *   - Compressed connections, and what follows a request for TLS, are not read.
 *
 * Missing bytes inside of a text or a row cost no more than that. Otherwise the connection is read on with the next
 * command that the client sends after the server has spoken, and what was prepared is forgotten. What then waits for an
 * answer is told as unfinished.
 */

#include "command.h"

#define MYSQL_PENDING_MAX 64 /* commands without an answer yet; more: the connection is out of step */

enum mysql_begin {
	MYSQL_GREETING, /* the server greets */
	MYSQL_ANSWER,	/* the client answers that: inside of TLS */
	MYSQL_COMMAND,	/* met in the middle */
};

struct mysql;

struct mysql *mysql_new(enum mysql_begin begin, const struct db_sink *sink); /* NULL: ENOMEM */
void mysql_free(struct mysql *m);
int mysql_push(struct mysql *m, enum dir dir, const uint8_t *ptr, size_t len,
	       const struct stamp *at);						     /* 0 or -ENOMEM */
void mysql_gap(struct mysql *m, enum dir dir, uint64_t len, const struct stamp *at); /* UINT64_MAX: unknown */
void mysql_finish(struct mysql *m, uint64_t ts_ns); /* what waits for an answer is unfinished */
unsigned mysql_errors(const struct mysql *m);	    /* how often it made no sense */
unsigned mysql_dropped(const struct mysql *m);	    /* commands that were not told therefore */
unsigned mysql_open(const struct mysql *m);	    /* commands without an answer */

/* The first bytes of a client. 1: its answer to a greeting; 2: a command; 0: neither; -1: too short to tell. */
#define MYSQL_LOOK_BYTES 16
int mysql_look_at_client(const uint8_t *ptr, size_t len);
/* Those of a server. 1: its greeting; 0: not; -1: too short to tell. */
int mysql_look_at_server(const uint8_t *ptr, size_t len);

#endif
