/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_AEAD_BPF_H
#define PERFBPF_AEAD_BPF_H

/*
 * Ciphers under TLS (TLS_ABI_AEAD): rustls keeps the connection to itself, but each record goes through
 * EVP_AEAD_CTX_seal() or EVP_AEAD_CTX_open() of aws-lc. Which of their calls are TLS, the additional data says:
 *   TLS 1.3 (RFC 8446 section 5.2): the header of the record, 17 03 03 and the length of what is sealed; the plaintext
 *     is the content, its type, and zeros.
 *   TLS 1.2 (RFC 5246 section 6.2.3.3): sequence number, type, 03 03, length of the plaintext; which is the content.
 * All other users (QUIC, tickets, tokens) are let through unseen. Only application data is passed on.
 *
 * A cipher has one direction and one key, and nobody says when it goes: another key in the same memory has another IV,
 * whose first 4 bytes no sequence number touches (RFC 8446 section 5.3; RFC 5288 section 3).
 *
 * Its socket: a program that does its TLS by itself seals some records and sends them, or receives and opens what is
 * complete, on one thread. When the lengths agree to the byte, these were those.
 */

#include "calls.bpf.h"
#include "run.bpf.h"

#define RECORD_HEADER	 5
#define RECORD_MAX	 (16384 + 256) /* RFC 8446 section 5.2 */
#define RECORD_TAG_MAX	 32
#define RECORD_HANDSHAKE 22
#define RECORD_DATA	 23
#define RECORD_NONCE	 8 /* explicit, TLS 1.2 with AES-GCM */
#define RECORD_CCS	 6 /* change_cipher_spec, which no cipher sees (RFC 8446 appendix D.4) */
#define AD_TLS13	 5
#define AD_TLS12	 13

struct aead_args { /* arguments 7 to 10 */
	__u64 in, in_len, ad, ad_len;
};

static __always_inline bool aead_args_read(struct pt_regs *ctx, struct aead_args *a)
{
#if defined(__TARGET_ARCH_x86)
	return !bpf_probe_read_user(a, sizeof(*a), (const void *)(PT_REGS_SP(ctx) + 8));
#elif defined(__TARGET_ARCH_arm64)
	a->in = ((const struct user_pt_regs *)ctx)->regs[6];
	a->in_len = ((const struct user_pt_regs *)ctx)->regs[7];
	return !bpf_probe_read_user(&a->ad, 2 * sizeof(a->ad), (const void *)PT_REGS_SP(ctx));
#endif
}

/* Whether these two lengths of one record are plaintext (inner type included) and ciphertext. */
static __always_inline bool is_sealed_len(__u64 plain, __u64 sealed)
{
	return sealed <= RECORD_MAX && plain < sealed && sealed - plain <= RECORD_TAG_MAX;
}

/* The record that the call works on, into call->wire, type, flags. false: it is no TLS record. */
static __always_inline bool record_read(const struct aead_args *a, struct tls_call *call)
{
	bool seals = call->role == TLS_ROLE_WRITE;
	__u8 ad[AD_TLS12];
	__u32 len;

	if (a->ad_len == AD_TLS13) {
		if (bpf_probe_read_user(ad, AD_TLS13, (const void *)a->ad))
			return false;
		len = ad[3] << 8 | ad[4];
		if (ad[0] != RECORD_DATA || ad[1] != 3 || ad[2] != 3)
			return false;
		call->flags |= CALL_INNER;
		call->wire = RECORD_HEADER + len;
		return seals ? is_sealed_len(a->in_len, len) : a->in_len == len && len <= RECORD_MAX;
	}
	if (a->ad_len != AD_TLS12 || bpf_probe_read_user(ad, AD_TLS12, (const void *)a->ad))
		return false;
	len = ad[11] << 8 | ad[12];
	call->type = ad[8];
	if (ad[8] < 20 || ad[8] > 24 || ad[9] != 3 || ad[10] != 3)
		return false;
	call->wire = RECORD_HEADER + (seals ? len + 16 : a->in_len); /* 16: every AEAD cipher that is in use */
	return seals ? a->in_len == len && len <= RECORD_MAX : is_sealed_len(len, a->in_len);
}

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

/* The thread received `len` bytes. */
static __always_inline void records_received(struct opened *o, __u64 cookie, __u32 len)
{
	if (o->cookie != cookie) {
		__builtin_memset(o, 0, sizeof(*o));
		o->cookie = cookie;
	}
	if (o->opening)
		__builtin_memset(&o->turn, 0, sizeof(o->turn));
	o->opening = 0;
	o->turn.wire += len;
	o->total.wire += len;
}

static __always_inline void record_add(struct record_sum *sum, const struct tls_call *call)
{
	sum->bytes += call->wire;
	sum->old += !(call->flags & CALL_INNER);
}

/* The thread opened a record. */
static __noinline int record_opened(struct thread *t, struct conn_state *state, const struct conn_map_key *key,
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

/* The thread sent `len` bytes: what it sealed before, or not. */
static __noinline int records_sent(struct thread *t, struct sock_info *info, __u32 len)
{
	struct record_sock s = {.addr = &info->addr, .dir = EV_DIR_TX};
	struct sealed *sealed = &t->sealed;
	struct record_sum sum = sealed->sum;
	struct conn_state *state;
	struct conn_map_key key;
	__u32 gen = sealed->gen;

	if (t->opened.cookie == info->cookie) { /* a new turn: what was received before was opened, or never will be */
		__builtin_memset(&t->opened.turn, 0, sizeof(t->opened.turn));
		__builtin_memset(&t->opened.total, 0, sizeof(t->opened.total));
	}
	if (!sealed->obj)
		return 0;
	conn_key(&key, bpf_get_current_task_btf(), sealed->obj);
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

/* `len` bytes of content in a record that was sealed or opened. */
static __always_inline int record_moved(struct conn_state *state, const struct conn_map_key *key,
					const struct tls_call *call, __u64 len)
{
	struct run run = {};

	emit_head(&run.head.h, 0, EV_DATA, 0, bpf_ktime_get_boot_ns(), key->tgid, conn_tid());
	conn_fill(&run.head.conn, key, state->gen);
	run.head.entry_ns = call->entry_ns;
	run.head.dir = role_dir(call->role) & 1;
	run.buf = call->buf;
	return data_moved(state, key, &run, len);
}

/* A handshake ends with the client's last record of TLS 1.3, which has a key of its own, and with the server's of 1.2.
 */
static __always_inline void note_handshake(struct conn_state *state, const struct tls_call *call)
{
	bool last = call->flags & CALL_INNER ? call->role == TLS_ROLE_WRITE : call->role == TLS_ROLE_READ;

	if (call->type == RECORD_HANDSHAKE && last && !state->pos[0] && !state->pos[1] && !state->last_fail_ns)
		state->last_fail_ns = bpf_ktime_get_boot_ns();
}

/* A plaintext is in its place only until it is sealed: now. */
static __noinline int record_sealed(struct task_struct *task, struct tls_call *call, __u64 len)
{
	struct thread *t = thread_of(task, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct target *target = target_of(task);
	struct conn_state *state;
	struct conn_map_key key;

	conn_key(&key, task, call->obj);
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
		record_moved(state, &key, call, len);
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

/* At the entry. true: the return is wanted. */
static __always_inline bool aead_entered(struct pt_regs *ctx, struct task_struct *task, struct tls_call *call)
{
	struct aead_args a;

	if (!aead_args_read(ctx, &a)) {
		stat_add(ST_FAULT, 1);
		return false;
	}
	call->flags |= CALL_HALF | CALL_UNFREED;
	if (!record_read(&a, call))
		return false;
	if (!cfg.sock_length) /* its socket has to be seen */
		sockets_ns = call->entry_ns;
	if (bpf_probe_read_user(&call->salt, sizeof(call->salt), (const void *)PT_REGS_PARM5(ctx)))
		stat_add(ST_FAULT, 1);
	if (call->role == TLS_ROLE_READ)
		return true;
	call->obj = PT_REGS_PARM1(ctx);
	call->buf = a.in;
	record_sealed(task, call, a.in_len);
	return false;
}

/* EVP_AEAD_CTX_open() has returned. */
static __always_inline int aead_returned(struct pt_regs *ctx, struct task_struct *task, struct thread *t,
					 struct tls_call *call)
{
	struct target *target = target_of(task);
	struct conn_state *state;
	struct conn_map_key key;
	__u64 len = 0;

	if ((int)PT_REGS_RC(ctx) != 1)
		return 0;
	conn_key(&key, task, call->obj);
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
	record_opened(t, state, &key, call);
	if (call->type != RECORD_DATA || !len)
		return 0;
	target->opened_ns = state->used_ns;
	return record_moved(state, &key, call, len);
}

#endif
