/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When the bytes that a vote is about may be another connection's. An event loop that does its TLS in memory may
 * encrypt for many connections before it sends for the first of them, and receive for many before it decrypts: then the
 * send after a write, and the receive before a read, are of any of them, and where their sizes are alike nothing tells.
 */
#include "conn_parts.h"

#include <utlist.h>

#define RIVAL_NS   1000000000ull /* what was encrypted so long ago has been sent */
#define RIVALS_MAX 64		 /* looked at for a vote; more: it is not believed */

static void sent(struct entry *e)
{
	if (!e->unsent_count)
		return;
	DL_DELETE2(e->group->unsent, e, unsent_prev, unsent_next);
	e->unsent_count = 0;
	e->unsent_bytes = 0;
}

static bool is_old(const struct entry *e, uint64_t now_ns)
{
	return now_ns > e->unsent_ns && now_ns - e->unsent_ns > RIVAL_NS;
}

static void encrypted(struct entry *e, uint32_t len, uint64_t ts_ns)
{
	if (e->unsent_count && is_old(e, ts_ns))
		sent(e);
	if (!e->unsent_count)
		DL_APPEND2(e->group->unsent, e, unsent_prev, unsent_next);
	e->unsent[e->unsent_count % CONN_UNSENT_MAX] = len;
	e->unsent_count++;
	e->unsent_bytes += len;
	e->unsent_ns = ts_ns;
}

/* What it encrypted, in one piece or all at once, makes so many bytes. */
static bool may_send(const struct entry *e, uint32_t wire_len)
{
	bool first = e->c.fresh && !e->sent;

	if (e->unsent_bytes <= UINT32_MAX && conn_sizes_match(wire_len, (uint32_t)e->unsent_bytes, first))
		return true;
	for (unsigned i = 0; i < e->unsent_count && i < CONN_UNSENT_MAX; i++)
		if (conn_sizes_match(wire_len, e->unsent[i], first))
			return true;
	return false;
}

static bool is_elsewhere(const struct entry *e, uint64_t cookie)
{
	return e->c.bound && e->c.cookie != cookie;
}

bool conn_rival_sends(const struct entry *e, const struct rec_conn_sock *r)
{
	struct entry *x, *next;
	unsigned n = 0;

	DL_FOREACH_SAFE2(e->group->unsent, x, next, unsent_next)
	{
		if (x != e && is_old(x, r->ts_ns))
			sent(x); /* so that the next vote does not look at it again */
		else if (x != e && !is_elsewhere(x, r->cookie) && (++n > RIVALS_MAX || may_send(x, r->wire_len)))
			return true;
	}
	return false;
}

void conn_rival_sent(struct entry *e)
{
	sent(e);
}

/* Somebody else read what may have been received then, and no receive was before that read. */
static void take_back(struct group *g)
{
	struct entry *e = g->heard.of;

	g->heard.of = g->heard.rival = NULL;
	conn_sock_take_back(e, g->heard.cookie);
}

void conn_rival_heard(struct entry *e, const struct rec_conn_sock *r, bool confirmed)
{
	struct group *g = e->group;

	if (g->heard.rival && g->heard.rival != e)
		take_back(g);
	g->heard.rival = NULL;
	g->heard.of = confirmed ? e : NULL;
	g->heard.cookie = r->cookie;
	g->heard.wire_len = r->wire_len;
}

void conn_rival_data(struct entry *e, enum dir dir, uint32_t len, uint64_t ts_ns)
{
	struct group *g;

	if (e->proven || !len)
		return;
	g = e->group;
	if (g->heard.rival)
		take_back(g);
	if (dir == DIR_RX)
		sent(e); /* it is answered */
	if (dir == DIR_TX)
		encrypted(e, len, ts_ns);
	else if (g->heard.of && g->heard.of != e && !is_elsewhere(e, g->heard.cookie) &&
		 conn_sizes_match(g->heard.wire_len, len, false))
		g->heard.rival = e; /* unless its own vote follows */
}

void conn_rival_forget(struct entry *e)
{
	struct group *g = e->group;

	sent(e);
	if (g->heard.of == e)
		g->heard.of = g->heard.rival = NULL;
	if (g->heard.rival == e)
		g->heard.rival = NULL;
}
