/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DNS_H
#define FLOW_DNS_H

/*
 * What a connection took before it could be made: the look-up of the name, and addresses that did not answer.
 *
 * A look-up is what a process asks for one name, for every kind of address, again and on several sockets, until it is
 * answered. Names that a resolver makes of one (search domains) are one look-up, of one thread. It belongs to the
 * connections to one of its addresses that begin at most DNS_AGE_NS after its last answer; while a question of it is
 * open, whoever connects has waited until then. A question that its thread asked again, and got an answer to, is not.
 *
 * Attempts at other addresses of the look-up, that failed, belong to the connection, also where they went on beside it.
 *
 * Where an answer is truncated, and its thread connects to port 53 then, it has its answer when that connection ends:
 * what is said over TCP is not read, so that addresses which no datagram held are not known.
 *
 * Only port 53 is seen: not DNS over TLS or HTTPS, nor what nscd or systemd-resolved is asked through its
 * socket.
 */

#include "attempts.h"
#include "base/lost.h"
#include "dns_message.h"
#include "record.h"

#define DNS_LOOKUPS_MAX 512	    /* remembered; past it the oldest one is told and forgotten */
#define DNS_QUERIES_MAX 16	    /* of one look-up; later ones only count as asked */
#define DNS_AGE_NS	50000000ull /* an answer that old was not waited for */
#define DNS_NEXT_NS	10000000ull /* what follows so soon belongs to what came before */
#define DNS_TELL_NS	10000000000ull

/* Before a connection. Times UNKNOWN_NS where not known. */
struct dns_setup {
	uint64_t dns_begin_ns, dns_end_ns;
	uint64_t connect_begin_ns; /* of the first attempt; always known */
};

/* A look-up that no connection was seen to follow. */
struct dns_lookup {
	struct proc_key proc;
	const char *name;
	uint64_t begin_ns, end_ns;    /* end: its last answer, UNKNOWN_NS: there was none */
	unsigned queries, unanswered; /* asked; of the first DNS_QUERIES_MAX, those that no answer came to */
	size_t addr_count;
};

struct dns_sink {
	void *ctx;
	/* DNS_TELL_NS after it began, and after its addresses were last tried, when it has to make room, or at the end.
	 */
	void (*on_lookup)(void *ctx, const struct dns_lookup *l);
};

struct dns;

/* NULL: ENOMEM. `lost` and `attempts` are borrowed. */
struct dns *dns_new(struct lost *lost, const struct dns_sink *sink, const struct attempts *attempts);
void dns_free(struct dns *t);
void dns_push(struct dns *t, const struct rec_dns *r);	     /* what is no question and no answer is ignored */
void dns_push_sock(struct dns *t, const struct rec_sock *r); /* TCP to a name server */
/* Of a connection of this process to `remote`, whose own attempt began then. */
struct dns_setup dns_find(struct dns *t, uint32_t tgid, const struct sock_addr *remote, uint64_t connect_begin_ns);
/* The name that this address was given for, "": none. Valid until the next record. */
const char *dns_name(struct dns *t, uint32_t tgid, const struct sock_addr *remote, uint64_t connect_begin_ns);
void dns_tick(struct dns *t, uint64_t now_ns);
void dns_finish(struct dns *t);

#endif
