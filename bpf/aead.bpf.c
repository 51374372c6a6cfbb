/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records that ciphers seal and open: see aead.bpf.h. */
#include "aead.bpf.h"

struct inner {
	__u64 buf;
	__u64 len; /* of what has not been looked at */
	__u32 type;
	__u32 fault;
};

static __noinline long inner_step(__u32 index, struct inner *inner)
{
	__u8 c = 0;

	(void)index;
	if (!inner->len)
		return 1;
	inner->len--;
	if (bpf_probe_read_user(&c, 1, (const void *)(inner->buf + inner->len)))
		inner->fault = 1;
	inner->type = c;
	return c || inner->fault;
}

/* The type at the end of a plaintext of TLS 1.3, and the length of its content. 0: it could not be read. */
static __noinline __u32 inner_type(__u64 buf, __u64 *len)
{
	struct inner inner = {.buf = buf, .len = *len};

	if (!inner_step(0, &inner))
		bpf_loop(RECORD_MAX, inner_step, &inner, 0);
	*len = inner.len;
	if (inner.fault)
		stat_add(ST_FAULT, 1);
	return inner.fault ? 0 : inner.type;
}

/* The state of a cipher with this key. */
static __always_inline struct conn_state *half_of_call(const struct conn_map_key *key, const struct tls_call *call)
{
	struct conn_state *state = conn_find_or_make(key, call->entry_ns, CONN_F_HALF | CONN_F_UNFREED);

	if (!state)
		return NULL;
	if (state->first_call_ns && state->salt != call->salt)
		conn_renew(state, key, call->entry_ns, false);
	state->salt = call->salt;
	if (!state->first_call_ns)
		state->first_call_ns = call->entry_ns;
	return state;
}

/* --- whose socket ------------------------------------------------------------------------------------------------ */

/* A socket next to which records were sealed or opened. */
struct record_sock {
	const struct ev_addr *addr;
	__u64 cookie, begin_ns, established_ns;
	__u32 file;
	__u32 dir;
	__u32 wire, bytes;
};

static __always_inline bool sum_agrees(const struct record_sum *sum)
{
	return sum->wire == sum->bytes || (sum->old && sum->wire == sum->bytes + RECORD_NONCE * sum->old);
}

static __noinline int half_handshake(struct conn_state *state, const struct conn_map_key *key, __u64 begin_ns)
{
	__u32 before = __sync_fetch_and_or(&state->flags, CONN_F_SHAKEN);
	struct ev_handshake *r;

	if ((before & CONN_F_SHAKEN) || begin_ns > state->last_fail_ns)
		return 0;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	emit_head(&r->h, sizeof(*r), EV_HANDSHAKE, EV_F_APPROX | EV_F_HALF, state->last_fail_ns, key->tgid, conn_tid());
	conn_fill(&r->conn, key, state->gen);
	r->begin_ns = begin_ns;
	emit_submit(r, sizeof(*r));
	return 0;
}

static __noinline int half_tied(struct conn_state *state, const struct conn_map_key *key, const struct record_sock *s)
{
	struct ev_conn_sock what = {};

	if (state->votes >= LIMIT_HALF_VOTES)
		return 0;
	state->votes++;
	what.h.flags = EV_F_HALF | (conn_is_new(s->begin_ns, s->file) ? EV_F_FRESH : 0);
	conn_fill(&what.conn, key, state->gen);
	what.cookie = s->cookie;
	what.addr = *s->addr;
	what.wire_len = s->wire;
	what.plain_len = s->bytes;
	what.how = EV_SOCK_RECORDS;
	what.dir = s->dir;
	conn_emit_sock(key, &what);
	if (state->last_fail_ns && s->established_ns)
		half_handshake(state, key, s->established_ns);
	return 0;
}

static __always_inline void record_add(struct record_sum *sum, const struct tls_call *call)
{
	sum->bytes += call->wire;
	sum->old += !(call->flags & CALL_INNER);
}

/* The thread opened a record. */
static __noinline int opened_note(struct thread *t, struct conn_state *state, const struct conn_map_key *key,
				  const struct tls_call *call)
{
	struct record_sock s = {.addr = &t->recv.addr, .file = call->file, .dir = EV_DIR_RX};
	struct opened *o = &t->opened;

	o->opening = 1;
	record_add(&o->turn, call);
	record_add(&o->total, call);
	if (!o->cookie || o->cookie != t->recv.cookie || (!sum_agrees(&o->turn) && !sum_agrees(&o->total)))
		return 0;
	s.cookie = o->cookie;
	s.begin_ns = t->recv.begin_ns;
	s.established_ns = t->recv.established_ns;
	s.wire = o->turn.wire;
	s.bytes = o->turn.bytes;
	__builtin_memset(&o->turn, 0, sizeof(o->turn));
	__builtin_memset(&o->total, 0, sizeof(o->total));
	return half_tied(state, key, &s);
}

int records_sent(struct thread *t, struct sock_info *info, __u32 len)
{
	struct record_sock s = {.dir = EV_DIR_TX};
	struct record_sum sum;
	struct conn_state *state;
	struct conn_map_key key;
	struct sealed *sealed;
	__u32 gen;

	if (!t || !info)
		return 0;
	sealed = &t->sealed;
	sum = sealed->sum;
	gen = sealed->gen;
	s.addr = &info->addr;
	if (t->opened.cookie == info->cookie) { /* a new turn: what was received before was opened, or never will be */
		__builtin_memset(&t->opened.turn, 0, sizeof(t->opened.turn));
		__builtin_memset(&t->opened.total, 0, sizeof(t->opened.total));
	}
	if (!sealed->obj || len == RECORD_CCS) /* that by itself: no sealed record is as short */
		return 0;
	conn_key(&key, sealed->obj);
	s.file = sealed->file;
	__builtin_memset(sealed, 0, sizeof(*sealed));
	sum.wire = len;
	s.wire = len;
	s.bytes = sum.bytes;
	if (!sum_agrees(&sum)) {
		sum.bytes += RECORD_CCS;
		if (!sum_agrees(&sum))
			return 0;
	}
	info->tied = 1;
	state = bpf_map_lookup_elem(&conns, &key);
	if (!state || state->gen != gen)
		return 0;
	s.cookie = info->cookie;
	s.begin_ns = info->begin_ns;
	s.established_ns = info->established_ns;
	return half_tied(state, &key, &s);
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

/* A handshake ends with the client's last record of TLS 1.3, which has a key of its own, and with the server's of 1.2.
 */
static __always_inline void note_handshake(struct conn_state *state, const struct tls_call *call)
{
	bool last = call->flags & CALL_INNER ? call->role == TLS_ROLE_WRITE : call->role == TLS_ROLE_READ;

	if (call->type == RECORD_HANDSHAKE && last && !state->pos[0] && !state->pos[1] && !state->last_fail_ns)
		state->last_fail_ns = bpf_ktime_get_boot_ns();
}

int record_sealed(struct tls_call *call, __u64 len)
{
	struct thread *t = thread_of(bpf_get_current_task_btf(), BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct target *target = target_current();
	struct conn_state *state;
	struct conn_map_key key;

	if (!call)
		return 0;
	conn_key(&key, call->obj);
	state = half_of_call(&key, call);
	if (!state || !target)
		return 0;
	if (call->flags & CALL_INNER)
		call->type = inner_type(call->buf, &len);
	note_handshake(state, call);
	/* A new request: answers came. Whose they were is not known here; copying more than the limit does no harm. */
	if (target->opened_ns > state->used_ns)
		state->request_bytes = 0;
	state->used_ns = call->entry_ns;
	if (call->type == RECORD_DATA && len)
		call_data(state, &key, call, len, bpf_ktime_get_boot_ns());
	if (!t) {
		stat_add(ST_STATE_FULL, 1);
		return 0;
	}
	t->sealed.obj = call->obj;
	t->sealed.gen = state->gen;
	t->sealed.file = call->file;
	record_add(&t->sealed.sum, call);
	return 0;
}

int record_opened(struct thread *t, struct tls_call *call)
{
	struct target *target = target_current();
	struct conn_state *state;
	struct conn_map_key key;
	__u64 len = 0;

	if (!t || !call)
		return 0;
	conn_key(&key, call->obj);
	state = half_of_call(&key, call);
	if (!state || !target)
		return 0;
	state->used_ns = bpf_ktime_get_boot_ns();
	if (bpf_probe_read_user(&len, sizeof(len), (const void *)call->len_ptr)) {
		stat_add(ST_FAULT, 1);
		return conn_emit_gap(state, &key, EV_DIR_RX, state->used_ns);
	}
	if (call->flags & CALL_INNER)
		call->type = inner_type(call->buf, &len);
	note_handshake(state, call);
	opened_note(t, state, &key, call);
	if (READ_AGAIN(call->type) != RECORD_DATA || !len)
		return 0;
	target->opened_ns = state->used_ns;
	return call_data(state, &key, call, len, state->used_ns);
}
