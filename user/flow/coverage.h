/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_COVERAGE_H
#define FLOW_COVERAGE_H

/*
 * Honest coverage: what became of every TLS connection of every traced process. connections = decoded + undecoded +
 * served + empty, always. Processes past COVERAGE_ROWS_MAX share a row with others of their name, past
 * COVERAGE_NAMES_MAX of these all share one, "(others)".
 */

#include "proc.h"

#define COVERAGE_ROWS_MAX  1024
#define COVERAGE_NAMES_MAX 256

enum coverage_kind {
	COVERAGE_DECODED,   /* a protocol that we read */
	COVERAGE_UNDECODED, /* plaintext seen, but its protocol is not read */
	COVERAGE_SERVED,    /* the process answers requests here: not its own calls */
	COVERAGE_EMPTY,	    /* no plaintext came, or but what opens HTTP/2 and keeps it open: nothing was asked */
	COVERAGE_KINDS,
};

struct coverage_row {
	char process[64]; /* captured text: not fit for a terminal as it is */
	uint32_t pid;
	uint64_t processes; /* 1; in a row of many: how many, and pid is the first one's; 0: nobody counted */
	uint64_t connections;
	uint64_t kinds[COVERAGE_KINDS];
	uint64_t calls;	 /* model calls of the process */
	char reason[96]; /* why the latest undecoded one was not decoded, "" when none */
};

struct coverage;

struct coverage *coverage_new(struct lost *lost); /* NULL: ENOMEM */
void coverage_free(struct coverage *t);
/* coverage_each() has one row "(others)" for all processes that made no model call, behind the rest. */
void coverage_set_callers_only(struct coverage *t, bool on);
/* One connection ended. `reason`: text for COVERAGE_UNDECODED, else NULL. */
void coverage_push_conn(struct coverage *t, const struct proc *p, enum coverage_kind kind, const char *reason);
/* One model call ended. */
void coverage_push_call(struct coverage *t, const struct proc *p);
/* Rows in the order in which the processes were first seen. */
void coverage_each(const struct coverage *t, void (*fn)(void *ctx, const struct coverage_row *r), void *ctx);
/* The same in at most max_rows rows, where that can be done by one row for all processes of a name. 0 or -ENOMEM. */
int coverage_each_grouped(const struct coverage *t, size_t max_rows,
			  void (*fn)(void *ctx, const struct coverage_row *r), void *ctx);

#endif
