/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose bytes a socket carries, what is done out of line: see moved.bpf.h. */
#include "sock.bpf.h"
#include "overhead.h"

__noinline int plain_begin(struct plain *plain, struct sock_info *info, __u64 ts_ns, __u32 fresh)
{
	struct ev_conn_sock what = {};

	if (!plain || !info)
		return 0;
	conn_emit_open(&plain->key, plain->conn.gen, ts_ns, EV_F_PLAIN | (fresh ? EV_F_FRESH : 0));
	conn_fill(&what.conn, &plain->key, plain->conn.gen);
	what.cookie = info->cookie;
	what.addr = info->addr;
	what.how = EV_SOCK_ITSELF;
	return conn_emit_sock(&plain->key, &what);
}

int plain_make_called(struct called *c, __u64 ts_ns, bool fresh)
{
	__u32 gen;

	if (!c)
		return 0;
	gen = __sync_fetch_and_add(&last_gen, 1) + 1;
	conn_key(&c->plain.key, c->info.cookie);
	c->plain.conn.flags = fresh ? CONN_F_FRESH : 0;
	c->info.plain = PLAIN_HTTP;
	if (!__sync_val_compare_and_swap(&c->plain.conn.gen, 0, gen)) /* else another thread was faster */
		plain_begin(&c->plain, &c->info, ts_ns, fresh);
	return 0;
}

int plain_inherit(struct plain *plain, struct sock_info *info, __u64 ts_ns)
{
	struct conn_map_key key;
	struct target *owner;
	__u32 tgid;

	if (!plain || !info)
		return 0;
	conn_key(&key, info->cookie);
	if (plain->key.tgid == key.tgid && plain->key.start_ns == key.start_ns && plain->key.exec_id == key.exec_id)
		return 0;
	tgid = plain->key.tgid;
	if (tgid != key.tgid) {
		owner = bpf_map_lookup_elem(&targets, &tgid);
		if (owner && owner->start_ns == plain->key.start_ns)
			return 0;
	}
	plain->key = key;
	plain->conn.pos[0] = 0;
	plain->conn.pos[1] = 0;
	plain->conn.skip_from = 0;
	plain->conn.skip_end = 0;
	plain->conn.flags = 0;
	plain->conn.gen = __sync_fetch_and_add(&last_gen, 1) + 1;
	return plain_begin(plain, info, ts_ns, 0);
}

__noinline int sock_inherit(struct sock_info *info, __u32 tgid)
{
	__u32 owner;

	if (!info)
		return 0;
	owner = info->tgid;
	if (bpf_map_lookup_elem(&targets, &owner))
		return 0;
	info->tgid = tgid;
	info->connector = 0; /* a thread of that one */
	return 0;
}

int proxy_answered(struct sock_info *info, __u64 now)
{
	struct ev_sock *r;

	if (!info || !info->begin_ns)
		return 0;
	if (info->established_ns)
		info->established_ns = now;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	emit_head(&r->h, sizeof(*r), EV_SOCK, 0, now, info->tgid, info->connector);
	r->cookie = info->cookie;
	r->begin_ns = 0;
	r->addr = info->addr;
	r->what = EV_SK_PROXY;
	r->srtt_us = 0;
	emit_submit(r, sizeof(*r));
	return 0;
}

int tunnel_tell(const struct sock_info *info, const struct plain_move *m)
{
	struct ev_tunnel *r;
	__u64 n;

	if (!info || !m)
		return 0;
	r = emit_reserve(sizeof(*r) + LIMIT_TUNNEL_BYTES);
	if (!r)
		return 0;
	n = copy_head(r->bytes, m, LIMIT_TUNNEL_BYTES);
	emit_head(&r->h, (sizeof(*r) + n + 7) & ~7u, EV_TUNNEL, 0, m->now, info->tgid, info->connector);
	r->cookie = info->cookie;
	r->begin_ns = info->begin_ns;
	r->addr = info->addr;
	r->len = n;
	r->dir = m->dir & 1;
	emit_submit(r, sizeof(*r) + LIMIT_TUNNEL_BYTES);
	return 0;
}

/* Where no probe sees the handshake: it was over when the last bytes moved before the first call. */
static __noinline int handshake_before(struct conn_state *state, const struct conn_map_key *key,
				       const struct sock_info *info)
{
	__u32 before = __sync_fetch_and_or(&state->flags, CONN_F_SHAKEN);
	struct ev_handshake *r;

	if (before & CONN_F_SHAKEN)
		return 0;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	emit_head(&r->h, sizeof(*r), EV_HANDSHAKE, EV_F_APPROX, info->moved_ns, key->tgid, conn_tid());
	conn_fill(&r->conn, key, state->gen);
	r->begin_ns = info->established_ns;
	emit_submit(r, sizeof(*r));
	return 0;
}

static __noinline int bind_tell(const struct conn_state *state, const struct conn_map_key *key,
				const struct sock_info *info, __u32 dir, __u32 wire_len)
{
	struct ev_conn_sock what = {};

	conn_fill(&what.conn, key, state->gen);
	what.cookie = info->cookie;
	what.addr = info->addr;
	what.wire_len = wire_len;
	what.how = EV_SOCK_INSIDE;
	what.dir = dir;
	return conn_emit_sock(key, &what);
}

int bind_look(struct tls_call *call, struct sock_info *info, __u32 dir, __u32 wire_len)
{
	struct conn_state *state;
	struct conn_map_key key;
	bool known, begins;

	if (!call || !info)
		return 0;
	dir &= 1;
	begins = call->role == TLS_ROLE_HANDSHAKE || (!info->tied && conn_is_new(info->begin_ns, call->file));
	conn_key(&key, call->obj);
	state = conn_of_call(&key, call, begins);
	if (!state)
		return 0;
	if (state->cookie[dir] == info->cookie) {
		info->gen = state->cookie[!dir] == info->cookie ? state->gen : 0;
		return info->gen && info->tied && (state->flags & CONN_F_SHAKEN) && call->role != TLS_ROLE_HANDSHAKE;
	}
	/* Another socket after data went over the first one: SSL_clear, or a new connection in the same memory. Before
	 * any data it is a callback's own business (OCSP), or a connect that was tried again. */
	if (state->cookie[dir] && (state->pos[0] || state->pos[1])) {
		conn_renew(state, &key, call->entry_ns, begins);
		state->first_call_ns = call->entry_ns;
	}
	if (!info->tied && (state->flags & (CONN_F_FRESH | CONN_F_UNFREED)) == (CONN_F_FRESH | CONN_F_UNFREED) &&
	    call->role != TLS_ROLE_HANDSHAKE && info->moved_ns && info->established_ns)
		handshake_before(state, &key, info);
	info->tied = 1;
	known = state->cookie[!dir] == info->cookie;
	info->gen = known ? state->gen : 0;
	state->cookie[dir] = info->cookie;
	__sync_fetch_and_or(&state->flags, CONN_F_INSIDE);
	return known ? 0 : bind_tell(state, &key, info, dir, wire_len);
}

/* How a size fits waiting plaintext. A function that is verified once: the verifier would follow each of its ways
 * through all slots. */
#define FITS	      1
#define FITS_FINISHED 2 /* with the end of a handshake before it */
__noinline int write_fits(__u32 wire_len, __u32 last_len, __u64 len)
{
	__u32 all = len >> 32 ? 0 : len, fits = 0;

	if (overhead_matches(wire_len, all) || overhead_matches(wire_len, last_len))
		fits = FITS;
	/* Both: four records and that end are as long as eight records of another cipher. */
	return overhead_matches_finished(wire_len, all) ? fits | FITS_FINISHED : fits;
}

/* The slot of the only waiting write that fits; -1: there is none, or nobody can tell. What nobody can tell goes on
 * waiting: a later piece of another size may. */
__noinline int write_of(struct thread *t, __u32 wire_len, __u64 now)
{
	__u32 fit = 0, finished = 0, fits, i;

	if (!t)
		return -1;
	for (i = 0; i < LIMIT_WRITES; i++) {
		const struct waiting_write *w = &t->writes[i];

		if (!(t->waiting & (1u << i)) || now - w->ts_ns >= WRITE_WAITS_NS)
			continue;
		fits = write_fits(wire_len, w->last_len, w->len);
		fit |= (fits & FITS) << i;
		finished |= (fits & FITS_FINISHED) / FITS_FINISHED << i;
	}
	if (!fit)
		fit = finished;
	for (i = 0; i < LIMIT_WRITES; i++)
		if (fit == 1u << i)
			return i;
	return -1;
}

static __noinline int vote_tell(const struct waiting_write *w, const struct sock_info *info, __u32 wire_len)
{
	struct ev_conn_sock what = {};
	struct conn_state *state;
	struct conn_map_key key;

	conn_key(&key, w->obj);
	state = bpf_map_lookup_elem(&conns, &key);
	if (!state || state->gen != w->gen || (state->flags & CONN_F_INSIDE) || state->votes >= LIMIT_SOCK_VOTES)
		return 0;
	state->votes++;
	conn_fill(&what.conn, &key, w->gen);
	what.cookie = info->cookie;
	what.addr = info->addr;
	what.wire_len = wire_len;
	what.plain_len = overhead_matches(wire_len, w->last_len) ? w->last_len : w->len;
	what.how = EV_SOCK_AFTER;
	what.dir = EV_DIR_TX;
	return conn_emit_sock(&key, &what);
}

int vote_send(struct thread *t, struct sock_info *info, struct plain_move *m)
{
	struct waiting_write *w;
	int slot;

	if (!t || !info || !m)
		return 0;
	t->wrote_ns = 0;
	if (!t->waiting)
		return 0;
	slot = write_of(t, m->len, m->now);
	if (slot < 0)
		return 0;
	w = write_at(t, slot);
	/* The greeting of another connection may have the size, too. */
	if (!plain_is_data(m, write_fits(m->len, w->last_len, w->len) & FITS_FINISHED))
		return 0;
	t->waiting &= ~(1u << slot);
	return vote_tell(w, info, m->len);
}
