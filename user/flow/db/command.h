/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DB_COMMAND_H
#define FLOW_DB_COMMAND_H

/* One finished database command: the plain data that span, record and summary read. Never a value of it. Unknown:
 * UNKNOWN_COUNT, NULL, "" where said. */

#include "base/sv.h"
#include "base/types.h"

#define DB_ERROR_MAX 32 /* an SQLSTATE, a number, or the word that an error of Redis begins with */

struct db_command {
	struct proc_key proc;
	const char *system;	  /* static: OTel's db.system.name: postgresql, mysql, mariadb, redis, sqlite */
	struct sv shape;	  /* borrowed for the callback; SV_NONE: unknown */
	uint64_t start_ns;	  /* entry of the call that moved its first byte */
	uint64_t end_ns;	  /* the last byte of what ends it was moved; or what ended it instead */
	int64_t rows;		  /* returned or changed */
	char error[DB_ERROR_MAX]; /* "" none; "_OTHER": there was one, which is not known */
	uint32_t tid;		  /* thread of its first byte */
	bool unfinished; /* no end was seen: bytes were lost, or the connection, its process, or the tracing ended */
};

struct db_sink {
	void *ctx;
	/* A command has ended. Valid for the call. */
	void (*on_command)(void *ctx, const struct db_command *c);
};

#endif
