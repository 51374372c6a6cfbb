/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_TUNNELS_H
#define FLOW_TUNNELS_H

/*
 * Tunnels that a proxy was asked for (CONNECT, RFC 9110 section 9.3.6), until there is one: nothing else is told of one
 * that comes to be. Of another the connection is one that was not made: the proxy refused it, or closed, or
 * the program left it after ATTEMPT_GIVEN_UP_NS. One that is asked for again over the same connection, with credentials
 * then, was not refused.
 */

#include "attempts.h"
#include "record.h"

#define TUNNELS_MAX	 256	       /* at once; past it the oldest is forgotten */
#define TUNNEL_HOST_MAX	 253	       /* of a DNS name */
#define TUNNEL_SETTLE_NS 1000000000ull /* so long after a refusal it may be asked for again */

struct tunnels;

/* `attempts` is borrowed, and told when its connection was closed, TUNNEL_SETTLE_NS after it was refused, or at the
 * end. NULL: ENOMEM. */
struct tunnels *tunnels_new(struct attempts *attempts);
void tunnels_free(struct tunnels *t); /* NULL is fine */
void tunnels_push(struct tunnels *t, const struct rec_tunnel *r);
void tunnels_push_sock(struct tunnels *t, const struct rec_sock *r);
void tunnels_tick(struct tunnels *t, uint64_t now_ns);
void tunnels_finish(struct tunnels *t, uint64_t now_ns);

#endif
