/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the state of a connection needs done out of line: see conn.bpf.h. */
#include "conn.bpf.h"

__noinline int conn_emit_open(const struct conn_map_key *key, __u32 gen, __u64 ts_ns, __u32 flags)
{
	struct ev_conn_open *r;

	if (!key)
		return 0;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	emit_head(&r->h, sizeof(*r), EV_CONN_OPEN, flags, ts_ns, key->tgid, conn_tid());
	conn_fill(&r->conn, key, gen);
	emit_submit(r, sizeof(*r));
	return 0;
}

__noinline int conn_make(const struct conn_map_key *key, __u64 ts_ns, __u32 flags)
{
	struct conn_state state = {};
	struct conn_map_key own; /* before 6.2 a map takes no key by a global function's argument */
	long err;

	if (!key)
		return 0;
	own = *key;
	calm_forget();
	state.used_ns = ts_ns;
	state.flags = flags;
	state.gen = __sync_fetch_and_add(&last_gen, 1) + 1;
	err = bpf_map_update_elem(&conns, &own, &state, BPF_NOEXIST);
	if (!err)
		conn_emit_open(key, state.gen, ts_ns, conn_record_flags(flags));
	else if (err != -17) /* EEXIST */
		stat_add(ST_STATE_FULL, 1);
	return 0;
}

__noinline int conn_renew(struct conn_state *state, const struct conn_map_key *key, __u64 ts_ns, bool fresh)
{
	__u32 gen = __sync_fetch_and_add(&last_gen, 1) + 1;

	if (!state || !key)
		return 0;
	calm_forget();
	state->pos[0] = 0;
	state->pos[1] = 0;
	state->request_bytes = 0;
	state->first_call_ns = 0;
	state->last_fail_ns = 0;
	state->used_ns = ts_ns;
	state->cookie[0] = 0;
	state->cookie[1] = 0;
	state->votes = 0;
	state->skip_from = 0;
	state->skip_end = 0;
	state->gen = gen;
	state->flags = (state->flags & (CONN_F_HALF | CONN_F_UNFREED)) | (fresh ? CONN_F_FRESH : 0);
	conn_emit_open(key, gen, ts_ns, conn_record_flags(state->flags));
	return 0;
}

__noinline int conn_emit_close(const struct conn_state *state, const struct conn_map_key *key, __u64 ts_ns)
{
	struct ev_conn_close *r;

	if (!state || !key)
		return 0;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	emit_head(&r->h, sizeof(*r), EV_CONN_CLOSE, 0, ts_ns, key->tgid, conn_tid());
	conn_fill(&r->conn, key, state->gen);
	r->pos[0] = state->pos[0];
	r->pos[1] = state->pos[1];
	emit_submit(r, sizeof(*r));
	return 0;
}

__noinline int conn_emit_gap(struct conn_state *state, const struct conn_map_key *key, __u32 dir, __u64 ts_ns)
{
	struct ev_gap *r;

	if (!state || !key)
		return 0;
	r = emit_reserve(sizeof(*r));
	dir &= 1;
	if (!r) {
		__sync_fetch_and_or(&state->flags, CONN_F_GAP(dir));
		return 0;
	}
	emit_head(&r->h, sizeof(*r), EV_GAP, conn_record_flags(state->flags), ts_ns, key->tgid, conn_tid());
	conn_fill(&r->conn, key, state->gen);
	r->pos = state->pos[dir];
	r->dir = dir;
	__builtin_memset(r->pad, 0, sizeof(r->pad));
	emit_submit(r, sizeof(*r));
	return 0;
}

__noinline int conn_emit_sock(const struct conn_map_key *key, const struct ev_conn_sock *what)
{
	struct ev_conn_sock *r;

	if (!key || !what)
		return 0;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	__builtin_memcpy(r, what, sizeof(*r));
	emit_head(&r->h, sizeof(*r), EV_CONN_SOCK, what->h.flags, bpf_ktime_get_boot_ns(), key->tgid, conn_tid());
	emit_submit(r, sizeof(*r));
	return 0;
}
