/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DB_DB_H
#define FLOW_DB_DB_H

/*
 * One connection's database commands: its protocol is told by its first bytes, then it is handed to a parser. Only the
 * client's end is told: what a server of a target answers is its clients' business.
 *
 *   PostgreSQL  postgres.h: the client's startup, or a message of it
 *   MySQL       mysql.h: the server's greeting, the client's answer to it (inside TLS), or a command
 *   Redis       redis.h: a command as an array, or PING
 */

#include "command.h"

enum db_status {
	DB_UNDECIDED,
	DB_READ,   /* it is one, and its commands are told */
	DB_SERVED, /* the traced program is the server */
	DB_NONE,   /* it is something else */
};

struct db;

/* fresh: its first byte is the first pushed. NULL: ENOMEM. */
struct db *db_new(bool fresh, const struct proc_key *proc, const struct db_sink *sink);
void db_free(struct db *d);
int db_push(struct db *d, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at); /* 0 or -ENOMEM */
void db_gap(struct db *d, enum dir dir, uint64_t len, const struct stamp *at); /* len UINT64_MAX: unknown */
void db_finish(struct db *d, uint64_t ts_ns); /* what waits for an answer is unfinished */

enum db_status db_status(const struct db *d);
unsigned db_errors(const struct db *d);	 /* how often its bytes made no sense */
unsigned db_dropped(const struct db *d); /* commands that were not told therefore */
unsigned db_open(const struct db *d);	 /* commands without an answer yet. For tests */

#endif
