/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_ATTEMPTS_H
#define FLOW_ATTEMPTS_H

/*
 * TCP connections that a program tried to make in vain. One that another connection of the process to the same port
 * came right after, or went on beside, is that one's (programs try the addresses of a name), and is told with it: the
 * first one right before it is when it began. One that the program left within ATTEMPT_GIVEN_UP_NS is not told either:
 * it took another way.
 *
 * TLS that was begun on a connection and not completed is in vain too, and so is a connection to a proxy that makes no
 * tunnel: what the wire and `tunnels` tell of that is passed on.
 */

#include "base/lost.h"
#include "record.h"

/* Remembered; past it the oldest that was told goes, or the oldest: told, if it has failed. */
#define ATTEMPTS_MAX	    256
#define ATTEMPT_NEXT_NS	    10000000ull	  /* the next address is tried so soon */
#define ATTEMPT_SETTLE_NS   1000000000ull /* so long after it failed it is known whether one follows */
#define ATTEMPT_GIVEN_UP_NS 1000000000ull
#define ATTEMPTS_DRAWN	    100 /* that ended in one second: a storm drops no calls from the trace */

enum attempt_what {
	ATTEMPT_TCP,
	/* TCP was made, and TLS not: */
	ATTEMPT_TLS_UNANSWERED, /* the greeting has no answer */
	ATTEMPT_TLS_LOCAL,	/* the client ended it: it does not trust the certificate, more often than not */
	ATTEMPT_TLS_REMOTE,	/* the server did */
	ATTEMPT_TLS,		/* who did is not known */
	ATTEMPT_TLS_LEFT,	/* TLS was made, and the client left at once */
	/* TCP was made to a proxy, and no tunnel: */
	ATTEMPT_TUNNEL_REFUSED,	   /* it answered `status` */
	ATTEMPT_TUNNEL_CLOSED,	   /* it closed without an answer */
	ATTEMPT_TUNNEL_UNANSWERED, /* the program left it */
};

struct attempt {
	uint32_t tgid;
	struct sock_addr remote;
	enum attempt_what what;
	int status;	  /* of ATTEMPT_TUNNEL_REFUSED */
	const char *host; /* as it was greeted, or asked for; borrowed; NULL: not known */
	uint64_t begin_ns, end_ns;
	uint64_t tls_begin_ns; /* of TLS: the greeting; what came before it, if anything, is the connect; UNKNOWN_NS */
	int error;	       /* errno of the kernel; 0: the program left it, or it goes on */
	bool unfinished;       /* at the end it went on */
	bool drawn;	       /* false: to be counted alone, see ATTEMPTS_DRAWN */
};

/* Why it was not made, in a few words; NULL: the program left it, or it goes on. */
#define ATTEMPT_ERROR_BYTES 48
const char *attempt_error(const struct attempt *a, char text[ATTEMPT_ERROR_BYTES]);

struct attempts_sink {
	void *ctx;
	/* ATTEMPT_SETTLE_NS after it failed, or at the end; what others tell at once. */
	void (*on_attempt)(void *ctx, const struct attempt *a);
};

struct attempts;

struct attempts *attempts_new(const struct attempts_sink *sink); /* NULL: ENOMEM */
void attempts_free(struct attempts *t);				 /* NULL is fine */
/* When it began: what is said of a connection that was made (SOCK_CONNECTED) with the attempts right before it; else
 * what the record says. */
uint64_t attempts_push_sock(struct attempts *t, const struct rec_sock *r);
/* Of TLS, or of a tunnel: it is told. */
void attempts_push(struct attempts *t, const struct attempt *a);
/* The first of the process to this port that began from `since_ns` on, before `before_ns`, and ended, at an address
 * that `is_one` says yes to: when it began; before_ns: there is none. */
uint64_t attempts_first(const struct attempts *t, uint32_t tgid, uint16_t port, uint64_t since_ns, uint64_t before_ns,
			bool (*is_one)(const void *ctx, const struct sock_addr *remote), const void *ctx);
/* One of the process at such an address, that began from `since_ns` on, goes on or is still to be told. */
bool attempts_wait(const struct attempts *t, uint32_t tgid, uint64_t since_ns,
		   bool (*is_one)(const void *ctx, const struct sock_addr *remote), const void *ctx);
void attempts_tick(struct attempts *t, uint64_t now_ns);
void attempts_finish(struct attempts *t, uint64_t now_ns); /* what has waited for long then is told, too */

#endif
