/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sockets, and which of them a connection is bound to: see conn.h. */
#include "conn_parts.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/err.h"
#include "bpf/overhead.h"

/* --- the table --------------------------------------------------------------------------------------------------- */

void conn_sock_detach(struct sock *s)
{
	if (s->owner) {
		s->owner->sock = NULL;
		s->owner->c.late = s->owner->c.network = (struct conn_delays){0};
		conn_changed(s->owner);
	}
	s->owner = NULL;
}

void conn_sock_free(struct conns *t, struct sock *s)
{
	conn_sock_detach(s);
	HASH_DEL(t->socks, s);
	DL_DELETE(t->sock_lru, s);
	free(s->late.at);
	free(s->network.at);
	free(s);
}

static struct sock *sock_find(struct conns *t, uint64_t cookie)
{
	struct sock *s;

	HASH_FIND(hh, t->socks, &cookie, sizeof(cookie), s);
	return s;
}

/* The longest silent one goes; one that a connection is bound to gets a few reprieves. */
static void sock_forget_one(struct conns *t)
{
	for (int i = 0; i < 64 && t->sock_lru->owner; i++) {
		struct sock *s = t->sock_lru;

		DL_DELETE(t->sock_lru, s);
		DL_APPEND(t->sock_lru, s);
	}
	conn_sock_free(t, t->sock_lru);
}

static struct sock *sock_get(struct conns *t, uint64_t cookie)
{
	struct sock *s = sock_find(t, cookie);

	if (s) {
		DL_DELETE(t->sock_lru, s);
		DL_APPEND(t->sock_lru, s);
		return s;
	}
	if (HASH_COUNT(t->socks) >= CONN_SOCKS_MAX)
		sock_forget_one(t);
	s = calloc(1, sizeof(*s));
	if (!s)
		goto no_memory;
	s->cookie = cookie;
	s->tls_resumed = -1;
	s->connect_begin_ns = s->connect_end_ns = s->closer_ns = s->closed_ns = s->reset_ns = UNKNOWN_NS;
	HASH_ADD(hh, t->socks, cookie, sizeof(s->cookie), s);
	if (!s->hh.tbl) {
		free(s);
		goto no_memory;
	}
	DL_APPEND(t->sock_lru, s);
	return s;
no_memory:
	t->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

/* --- bound, and not any more ------------------------------------------------------------------------------------- */

static void unbind(struct entry *e)
{
	if (e->sock)
		conn_sock_detach(e->sock);
	e->c.bound = false;
	e->c.cookie = 0;
	e->c.local = e->c.remote = (struct sock_addr){0};
	e->c.srtt_us = e->c.rtt_min_us = e->c.retransmits = 0;
	e->c.setup.connect_begin_ns = e->c.setup.connect_end_ns = UNKNOWN_NS;
	e->c.setup.tls_resumed = -1;
	e->c.setup.tid = 0;
	e->c.reset_ns = UNKNOWN_NS;
	conn_changed(e);
}

/* What the socket has gone through so far becomes the connection's. */
static void take_sock(struct entry *e)
{
	const struct sock *s = e->sock;

	e->c.srtt_us = s->srtt_us;
	e->c.rtt_min_us = s->rtt_min_us;
	e->c.retransmits = s->retransmits;
	e->c.reset_ns = s->reset_ns;
	e->c.reset_sent = s->reset_sent;
	e->c.late = s->late;
	e->c.network = s->network;
	e->c.setup.connect_begin_ns = s->connect_begin_ns;
	e->c.setup.connect_end_ns = s->connect_end_ns;
	e->c.setup.tls_resumed = s->tls_resumed;
	e->c.setup.tid = s->connect_tid;
	conn_changed(e);
	if (s->closed_ns != UNKNOWN_NS)
		conn_begin_close(e, CONN_END_UNKNOWN, s->closed_ns, CONN_SOCK_LINGER_NS);
}

static void bind_to(struct entry *e, uint64_t cookie, const struct sock_addr *local, const struct sock_addr *remote,
		    bool proven)
{
	struct sock *s = sock_get(e->table, cookie);

	e->proven = proven;
	e->c.bound = true;
	e->c.cookie = cookie;
	e->c.local = *local;
	e->c.remote = *remote;
	conn_changed(e);
	if (!s)
		return;
	conn_sock_detach(s);
	s->owner = e;
	e->sock = s;
	take_sock(e);
}

/* --- votes and proof --------------------------------------------------------------------------------------------- */

static bool owned_by_other(const struct entry *e, uint64_t cookie)
{
	const struct sock *s = sock_find(e->table, cookie);

	return s && s->owner && s->owner != e && !s->owner->closing;
}

static struct candidate *candidate_get(struct entry *e, const struct rec_conn_sock *r)
{
	struct candidate *c;

	for (unsigned i = 0; i < e->candidate_count; i++)
		if (e->candidates[i].cookie == r->cookie)
			return &e->candidates[i];
	if (e->candidate_count == CONN_CANDIDATES_MAX)
		return NULL;
	c = &e->candidates[e->candidate_count++];
	*c = (struct candidate){.cookie = r->cookie, .local = r->local, .remote = r->remote};
	return c;
}

bool conn_sizes_match(uint32_t wire, uint32_t plain, bool after_handshake)
{
	return overhead_matches(wire, plain) || (after_handshake && overhead_matches_finished(wire, plain));
}

/* Counts the votes: the socket that they elect, NULL: none. */
static const struct candidate *elect(const struct entry *e)
{
	const struct candidate *best = NULL;

	for (unsigned i = 0; i < e->candidate_count; i++) {
		const struct candidate *c = &e->candidates[i];

		if (!c->confirmed)
			continue;
		if (best)
			return NULL;
		best = c;
	}
	if (!best || owned_by_other(e, best->cookie))
		return NULL;
	return best->confirmed >= 2 || (e->candidate_count == 1 && best->single) ? best : NULL;
}

/* Whose votes they are may have changed. */
static void elect_again(struct entry *e)
{
	const struct candidate *winner = elect(e);

	if (e->c.bound && (!winner || winner->cookie != e->c.cookie))
		unbind(e);
	if (winner && !e->c.bound)
		bind_to(e, winner->cookie, &winner->local, &winner->remote, false);
}

/* Nobody else can have moved these bytes. */
static bool is_confirmed(struct entry *e, const struct rec_conn_sock *r, bool first)
{
	bool confirmed = conn_sizes_match(r->wire_len, r->plain_len, first);

	if (r->how == SOCK_BEFORE_READ) {
		conn_rival_heard(e, r, confirmed);
		return confirmed;
	}
	if (!confirmed || conn_rival_sends(e, r))
		return false;
	conn_rival_sent(e);
	return true;
}

void conn_sock_vote(struct entry *e, const struct rec_conn_sock *r)
{
	bool first = e->c.fresh && !e->sent && r->how == SOCK_AFTER_WRITE;
	bool confirmed = is_confirmed(e, r, first);
	struct candidate *c;

	e->sent = e->sent || r->how == SOCK_AFTER_WRITE;
	if (e->proven || e->contested)
		return;
	c = candidate_get(e, r);
	if (c && confirmed) {
		c->confirmed++;
		c->single = c->single || (r->how == SOCK_AFTER_WRITE && r->plain_len >= CONN_VOTE_SINGLE_BYTES);
	}
	elect_again(e);
}

void conn_sock_take_back(struct entry *e, uint64_t cookie)
{
	if (e->proven || e->contested)
		return;
	for (unsigned i = 0; i < e->candidate_count; i++) {
		if (e->candidates[i].cookie != cookie || !e->candidates[i].confirmed)
			continue;
		e->candidates[i].confirmed--;
		elect_again(e);
	}
}

void conn_sock_prove(struct entry *e, const struct rec_conn_sock *r)
{
	struct sock *s;

	conn_rival_forget(e);
	if (e->contested || (e->proven && e->c.cookie == r->cookie))
		return;
	if (e->proven) {
		unbind(e);
		e->proven = false;
		e->contested = true;
		return;
	}
	if (e->c.bound)
		unbind(e);
	s = sock_find(e->table, r->cookie);
	if (s && s->owner && !s->owner->proven) /* its votes were wrong */
		unbind(s->owner);
	bind_to(e, r->cookie, &r->local, &r->remote, true);
}

/* --- what it goes through ---------------------------------------------------------------------------------------- */

static void first_to_close(struct sock *s, enum conn_end who, uint64_t ts_ns)
{
	if (s->closer != CONN_END_UNKNOWN && s->closer_ns <= ts_ns)
		return;
	s->closer = who;
	s->closer_ns = ts_ns;
}

static void add_delay(struct conns *t, struct conn_delays *d, const struct rec_sock *r)
{
	struct interval *at, new = {r->begin_ns, r->ts_ns};

	if (!r->begin_ns || r->begin_ns > r->ts_ns)
		return;
	for (; d->count && d->at[d->count - 1].end_ns > new.begin_ns; d->count--) { /* what overlaps is one */
		at = &d->at[d->count - 1];
		new.begin_ns = at->begin_ns < new.begin_ns ? at->begin_ns : new.begin_ns;
		new.end_ns = at->end_ns > new.end_ns ? at->end_ns : new.end_ns;
	}
	if (d->count == CONN_DELAYS_MAX) {
		memmove(d->at, d->at + 1, (CONN_DELAYS_MAX - 1) * sizeof(*d->at));
		d->count--;
	} else if (!(d->count & (d->count - 1))) { /* 0, or a power of two: it is full */
		at = realloc(d->at, (d->count ? 2 * d->count : 1) * sizeof(*at));
		if (!at) {
			t->lost->n[LOST_NO_MEMORY]++;
			return;
		}
		d->at = at;
	}
	d->at[d->count++] = new;
}

static void sock_note(struct conns *t, struct sock *s, const struct rec_sock *r)
{
	if (r->remote.family) {
		s->local = r->local;
		s->remote = r->remote;
	}
	if (r->srtt_us && r->what != SOCK_RTT_MIN)
		s->srtt_us = r->srtt_us;
	if ((r->what == SOCK_RESET_SENT || r->what == SOCK_RESET_RECEIVED) && s->reset_ns == UNKNOWN_NS) {
		s->reset_ns = r->ts_ns;
		s->reset_sent = r->what == SOCK_RESET_SENT;
	}
	switch (r->what) {
	case SOCK_CONNECTED:
		if (r->begin_ns && r->begin_ns <= r->ts_ns) {
			s->connect_begin_ns = r->begin_ns;
			s->connect_end_ns = r->ts_ns;
			s->connect_tid = r->tid;
		}
		s->rtt_min_us = r->srtt_us;
		break;
	case SOCK_CLOSE_LOCAL:
	case SOCK_RESET_SENT:
		first_to_close(s, CONN_END_LOCAL, r->ts_ns);
		break;
	case SOCK_CLOSE_REMOTE:
	case SOCK_RESET_RECEIVED:
		first_to_close(s, CONN_END_REMOTE, r->ts_ns);
		break;
	case SOCK_CONNECT_FAILED:
	case SOCK_CLOSED:
		if (s->closed_ns == UNKNOWN_NS)
			s->closed_ns = r->ts_ns;
		break;
	case SOCK_RETRANSMIT:
		s->retransmits++;
		break;
	case SOCK_LATE:
		add_delay(t, &s->late, r);
		break;
	case SOCK_RESENT:
	case SOCK_QUEUED:
	case SOCK_HOLE:
		add_delay(t, &s->network, r);
		break;
	case SOCK_CONNECTING:
	case SOCK_RTT:
		break;
	case SOCK_RTT_MIN:
		s->rtt_min_us = r->srtt_us;
		break;
	case SOCK_PROXY:
		if (s->connect_end_ns != UNKNOWN_NS && r->ts_ns > s->connect_end_ns)
			s->connect_end_ns = r->ts_ns;
		break;
	}
}

void conns_push_sock(struct conns *t, const struct rec_sock *r)
{
	struct sock *s;

	conn_advance(t, r->ts_ns);
	if (!r->cookie)
		return;
	s = sock_get(t, r->cookie);
	if (!s)
		return;
	sock_note(t, s, r);
	if (!s->owner)
		return;
	take_sock(s->owner);
	if (t->sink.on_conn_sock)
		t->sink.on_conn_sock(t->sink.ctx, &s->owner->c, r);
}

void conns_push_hello(struct conns *t, const struct rec_hello *r)
{
	struct sv session = r->dir == DIR_TX ? hello_session(r->bytes) : SV_NONE;
	struct sock *s;

	conn_advance(t, r->ts_ns);
	s = r->cookie ? sock_get(t, r->cookie) : NULL;
	if (!s)
		return;
	if (r->dir == DIR_RX) {
		s->tls_resumed = hello_resumed(r->bytes, (struct sv){s->session, s->session_len});
	} else {
		s->session_len = session.len;
		if (session.len)
			memcpy(s->session, session.ptr, session.len);
	}
	if (s->owner)
		take_sock(s->owner);
}
