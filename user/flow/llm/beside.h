/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_BESIDE_H
#define FLOW_LLM_BESIDE_H

/*
 * Finished calls whose class is not settled (call.class_open_ns) wait here until it is: a client may ask for a title
 * before the conversation's first call begins, and the title may come first. They are auxiliary calls if a session with
 * tools begins in time, and what they seem to be if none does. All others pass at once, but for those of a process of
 * which some wait: what is told of a process keeps its order, what it did on processors after a call as well.
 */

#include "base/lost.h"
#include "call.h"

#define BESIDE_MAX 1024 /* that wait at once; past it the oldest is told as what it seems to be */

struct beside_sink {
	void *ctx;
	void (*on_call)(void *ctx, const struct call *c); /* its class is settled; borrowed for the call */
	void (*on_load)(void *ctx, const struct proc_key *process, const struct interval *at, uint64_t busy_ns);
};

struct beside;

struct beside *beside_new(struct lost *lost, const struct beside_sink *sink); /* NULL: ENOMEM */
void beside_free(struct beside *b);					      /* what waits is not told any more */
void beside_push(struct beside *b, const struct call *c);
/* The process was busy for so long in that time. */
void beside_push_load(struct beside *b, const struct proc_key *process, const struct interval *at, uint64_t busy_ns);
/* A call with tools began in this process. */
void beside_main(struct beside *b, const struct proc_key *process);
/* The process, whichever program it was, is over. */
void beside_gone(struct beside *b, const struct proc_key *process);
void beside_tick(struct beside *b, uint64_t now_ns);
void beside_finish(struct beside *b); /* tells all that wait */
/* What waits, as it seems to be; for a snapshot. */
void beside_each(const struct beside *b, void (*fn)(void *ctx, const struct call *c), void *ctx);
/* When the first of those that wait began; UNKNOWN_NS: none does. */
uint64_t beside_first_ns(const struct beside *b);

#endif
