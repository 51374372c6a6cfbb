/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_ATTEMPTS_H
#define FLOW_ATTEMPTS_H

/*
 * TCP connections that a program tried to make in vain. One that another connection of the process to the same port
 * came right after, or went on beside, is that one's (programs try the addresses of a name), and is told with it. One
 * that the program left within ATTEMPT_GIVEN_UP_NS is not told either: it took another way.
 */

#include "base/lost.h"
#include "record.h"

#define ATTEMPTS_MAX	    256		  /* that wait; past it the oldest goes: told, if it has failed */
#define ATTEMPT_NEXT_NS	    10000000ull	  /* the next address is tried so soon */
#define ATTEMPT_SETTLE_NS   1000000000ull /* so long after it failed it is known whether one follows */
#define ATTEMPT_GIVEN_UP_NS 1000000000ull
#define ATTEMPTS_DRAWN	    100 /* that ended in one second: a storm drops no calls from the trace */

struct attempt {
	uint32_t tgid;
	struct sock_addr remote;
	uint64_t begin_ns, end_ns;
	int error;	 /* errno of the kernel; 0: the program left it, or it goes on */
	bool unfinished; /* at the end it went on */
	bool drawn;	 /* false: to be counted alone, see ATTEMPTS_DRAWN */
};

struct attempts_sink {
	void *ctx;
	/* ATTEMPT_SETTLE_NS after it failed, or at the end. */
	void (*on_attempt)(void *ctx, const struct attempt *a);
};

struct attempts;

struct attempts *attempts_new(const struct attempts_sink *sink); /* NULL: ENOMEM */
void attempts_free(struct attempts *t);				 /* NULL is fine */
void attempts_push_sock(struct attempts *t, const struct rec_sock *r);
void attempts_tick(struct attempts *t, uint64_t now_ns);
void attempts_finish(struct attempts *t, uint64_t now_ns); /* what has waited for long then is told, too */

#endif
