/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DB_SQLITE_H
#define FLOW_DB_SQLITE_H

/*
 * SQLite's statements, by what its functions were called with: texts that were prepared, and runs. A run is one
 * command: from the first step to the last, or to the reset that ends it early; rows are those that steps returned. A
 * statement that was prepared before it could be seen has no shape. A text that could not be prepared is a command with
 * an error.
 */

#include "base/lost.h"
#include "command.h"

#define SQLITE_PROCESSES_MAX 4096 /* whose statements are remembered; more: the oldest is forgotten */

struct sqlite_text {
	struct proc_key proc;
	uint64_t stmt; /* address; 0: it failed */
	uint64_t entry_ns, ts_ns;
	uint32_t tid;
	int32_t result;
	bool cut; /* the text went on */
	struct sv text;
};

struct sqlite_run {
	struct proc_key proc;
	uint64_t stmt;
	uint64_t begin_ns, end_ns;
	uint64_t rows;
	uint32_t tid;
	int32_t result; /* SQLITE_OK (reset), SQLITE_DONE, or an error */
};

struct sqlite;

struct sqlite *sqlite_new(struct lost *lost, const struct db_sink *sink); /* NULL: ENOMEM; lost is borrowed */
void sqlite_free(struct sqlite *t);
void sqlite_push_text(struct sqlite *t, const struct sqlite_text *e);
void sqlite_push_run(struct sqlite *t, const struct sqlite_run *e);
/* The process ended, or runs another program: its statements are gone. */
void sqlite_forget(struct sqlite *t, uint32_t tgid);

#endif
