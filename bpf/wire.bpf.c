/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The wire under a TLS connection: see wire.bpf.h. A turn is what goes out, and what comes back until something goes
 * out again; a send of a few bytes while an answer comes (an acknowledgement of HTTP/2, a Finished) begins none.
 */
#include "clock.bpf.h"
#include "wire.bpf.h"

#define TURN_CREDIT   16u /* so many turns may follow each other at once, then one each: */
#define TURN_LEAST_NS 10000000ull

#define RECORD_HANDSHAKE 0x16 /* RFC 8446 section 5.1 */
#define RECORD_HEADER	 5
#define CLIENT_HELLO	 1 /* section 4: the byte behind the record's header */
#define SERVER_HELLO	 2

int wire_tell(const struct wire *w, __u32 flags)
{
	struct ev_wire *r;

	if (!w)
		return 0;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	*r = w->ev;
	r->flags |= flags;
	emit_submit(r, sizeof(*r));
	return 0;
}

/* The greeting, as far as it lies in one buffer. */
static __noinline int tell_hello(const struct wire *w, const struct plain_move *m)
{
	struct ev_hello *r = emit_reserve(sizeof(*r) + LIMIT_HELLO_BYTES);
	__u64 n;

	if (!r)
		return 0;
	n = copy_head(r->bytes, m, LIMIT_HELLO_BYTES);
	emit_head(&r->h, (sizeof(*r) + n + 7) & ~7u, EV_HELLO, 0, m->now, w->ev.h.tgid, 0);
	r->cookie = w->ev.cookie;
	r->len = n;
	r->dir = m->dir;
	emit_submit(r, sizeof(*r) + LIMIT_HELLO_BYTES);
	return 0;
}

int wire_begin(struct wire *w, const struct plain_move *m)
{
	__u8 begin[6] = {};

	if (!w || !m)
		return 0;
	w->credit = TURN_CREDIT;
	if (!m->found || bpf_probe_read_user(begin, 1, (const void *)m->buf) || begin[0] != RECORD_HANDSHAKE)
		return 0;
	/* Who is heard before he was spoken to is the client. */
	if (m->dir == EV_DIR_RX) {
		w->ev.flags |= EV_WIRE_SERVER;
		return 0;
	}
	if (m->part_len < sizeof(begin) || m->len < sizeof(begin) ||
	    bpf_probe_read_user(begin, sizeof(begin), (const void *)m->buf) || begin[5] != CLIENT_HELLO)
		return 0;
	w->ev.flags |= EV_WIRE_HELLO;
	return tell_hello(w, m);
}

int wire_inherit(struct wire *w)
{
	struct target *owner;
	__u32 tgid;

	if (!w)
		return 0;
	tgid = w->ev.h.tgid;
	owner = bpf_map_lookup_elem(&targets, &tgid);
	if (owner && owner->start_ns == w->ev.start_ns)
		return 0;
	w->ev.h.tgid = bpf_get_current_pid_tgid() >> 32;
	w->ev.start_ns = own_start_ns();
	w->ev.exec_id = own_exec_id();
	return 0;
}

static __always_inline bool may_turn(struct wire *w, __u64 now)
{
	if (now - w->ev.tx_begin_ns >= TURN_LEAST_NS)
		w->credit = TURN_CREDIT;
	if (!w->credit)
		return false;
	w->credit--;
	return true;
}

static __always_inline void turn_begin(struct wire *w, struct plain_move *m)
{
	struct ev_wire *ev = &w->ev;
	__u8 type = 0;

	if (ev->turn && !w->quiet)
		wire_tell(w, EV_WIRE_ENDED);
	ev->turn++;
	ev->flags &= ~EV_WIRE_MERGED;
	ev->tx_begin_ns = m->now;
	ev->rx_begin_ns = 0;
	ev->rx_end_ns = 0;
	ev->gap_ns = 0;
	ev->turn_bytes[0] = 0;
	ev->turn_bytes[1] = 0;
	if (!m->found)
		plain_find(m);
	if (m->found)
		bpf_probe_read_user(&type, 1, (const void *)m->buf);
	ev->first_type = type;
}

static __always_inline void sent(struct wire *w, struct plain_move *m)
{
	struct ev_wire *ev = &w->ev;

	if (!ev->turn || (ev->rx_begin_ns && m->len > LIMIT_WIRE_SMALL)) {
		if (!ev->turn || may_turn(w, m->now))
			turn_begin(w, m);
		else
			ev->flags |= EV_WIRE_MERGED;
	}
	if (!ev->rx_begin_ns)
		ev->tx_end_ns = m->now;
}

static __always_inline void received(struct ev_wire *ev, __u64 now)
{
	__u64 last = ev->rx_end_ns ? ev->rx_end_ns : ev->tx_end_ns;

	if (!ev->turn)
		ev->turn = 1;
	if (last && now > last && now - last > ev->gap_ns)
		ev->gap_ns = now - last;
	if (!ev->rx_begin_ns)
		ev->rx_begin_ns = now;
	ev->rx_end_ns = now;
}

/* What the server answers the greeting with. Its header may be read by itself. */
static __always_inline void greeted(struct wire *w, struct plain_move *m)
{
	__u8 type = 0;

	if (!m->found)
		plain_find(m);
	if (w->greeted == GREETED_NOT && m->len == RECORD_HEADER) {
		w->greeted = GREETED_HEADER;
		return;
	}
	if (m->found)
		bpf_probe_read_user(&type, 1, (const void *)m->buf);
	if (type == (w->greeted == GREETED_HEADER ? SERVER_HELLO : RECORD_HANDSHAKE))
		tell_hello(w, m);
	w->greeted = GREETED_ALL;
}

int wire_moved(struct wire *w, struct plain_move *m)
{
	__u32 dir;

	if (!w || !m)
		return 0;
	dir = m->dir & 1;
	if (dir == EV_DIR_TX)
		sent(w, m);
	else
		received(&w->ev, m->now);
	if (dir == EV_DIR_RX && w->greeted != GREETED_ALL && w->ev.flags & EV_WIRE_HELLO)
		greeted(w, m);
	w->ev.bytes[dir] += m->len;
	w->ev.turn_bytes[dir] += m->len;
	w->ev.h.ts_ns = m->now;
	return 0;
}

/* Of what moved while the connection was calm the end is not known: no silence is made of that. */
int wire_catch_up(struct wire *w, struct sock_info *info, __u64 now)
{
	__u64 bytes, us;
	__u32 dir;

	if (!w || !info)
		return 0;
	us = __sync_lock_test_and_set(&info->steady_us, 0);
	if (us) {
		now = socket_clock_boot_ns(us);
		if (now > w->ev.h.ts_ns)
			w->ev.h.ts_ns = now;
	}
#pragma unroll
	for (dir = 0; dir < 2; dir++) {
		bytes = __sync_lock_test_and_set(&info->calm_bytes[dir], 0);
		w->ev.bytes[dir] += bytes;
		w->ev.turn_bytes[dir] += bytes;
		if (bytes && dir == EV_DIR_RX && w->ev.rx_end_ns && now)
			w->ev.rx_end_ns = now;
	}
	bytes = __sync_lock_test_and_set(&info->unread_bytes, 0);
	if (bytes)
		stat_add(ST_IGNORED_BYTES, bytes);
	return 0;
}

/* Read by probes_wires(): where every TLS connection of a target stands. */
SEC("iter/bpf_sk_storage_map")
int wire_list(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;
	struct wire *w = sk ? bpf_sk_storage_get(&wires, sk, NULL, 0) : NULL;
	struct sock_info *info = w ? bpf_sk_storage_get(&socks, sk, NULL, 0) : NULL;

	if (info && info->steady_us)
		wire_catch_up(w, info, 0);
	if (w && w->ev.h.ts_ns > wire_since_ns)
		bpf_seq_write(ctx->meta->seq, &w->ev, sizeof(w->ev));
	return 0;
}
