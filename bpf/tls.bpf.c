/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TLS library calls. One pair of handlers serves every function of every library: the attach cookie says what the
 * function is and where the moved length will be. What counts is what was moved, never what was asked.
 */
#include "aead.bpf.h"
#include "calls.bpf.h"
#include "go.bpf.h"
#include "run.bpf.h"

extern bool bpf_session_is_return(void) __ksym __weak;

/* Argument n, from 1. The barriers keep clang from computing an address inside ctx, which the verifier refuses. */
static __always_inline __u64 call_arg(struct pt_regs *ctx, __u32 n)
{
	__u64 value = 0;

#define ARG(i)                                                                                                         \
	if (n == (i)) {                                                                                                \
		value = PT_REGS_PARM##i(ctx);                                                                          \
		asm volatile("" : "+r"(value));                                                                        \
	}
	ARG(1)
	ARG(2)
	ARG(3)
	ARG(4)
	ARG(5)
#undef ARG
	return value;
}

/* --- handshakes -------------------------------------------------------------------------------------------------- */

/* Once for a connection that was seen from its first byte. end_ns 0: not known, nothing is said. */
__noinline int handshake_done(struct conn_state *state, const struct conn_map_key *key, __u64 end_ns, __u32 flags)
{
	struct ev_handshake *r;
	__u32 before;

	if (!state || !key)
		return 0;
	before = __sync_fetch_and_or(&state->flags, CONN_F_SHAKEN);
	if ((before & CONN_F_SHAKEN) || !(before & CONN_F_FRESH) || !end_ns)
		return 0;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	emit_head(&r->h, sizeof(*r), EV_HANDSHAKE, flags, end_ns, key->tgid, conn_tid());
	conn_fill(&r->conn, key, state->gen);
	r->begin_ns = state->first_call_ns;
	emit_submit(r, sizeof(*r));
	return 0;
}

/*
 * Programs that only read and write: the handshake was over when the last call failed before the first one succeeded
 * (non-blocking), when the first write had received the last of it (blocking), or when a callback of the call that
 * drove it wrote (node: a read finishes the handshake and tells the program, which writes its request before the read
 * returns). A blocking read does not tell.
 */
static __always_inline void handshake_guess(struct open_calls *open, struct conn_state *state,
					    const struct conn_map_key *key, const struct tls_call *call)
{
	__u64 end_ns = state->last_fail_ns;

	if (state->flags & CONN_F_SHAKEN)
		return;
	if (call->role == TLS_ROLE_WRITE && call->recv_ns)
		end_ns = call->recv_ns;
	else if (call->role == TLS_ROLE_WRITE && call_is_nested(open, call))
		end_ns = call->entry_ns;
	handshake_done(state, key, end_ns, EV_F_APPROX);
}

/* --- votes for a socket, where the library writes to memory ------------------------------------------------------ */

/* The slot for what is written to the object: its own, a free one, or that of the oldest write. */
__noinline int write_slot(struct thread *t, __u64 obj, __u64 now)
{
	__u32 slot = 0, i;
	__u64 least = ~0ull;

	if (!t)
		return 0;
	for (i = 0; i < LIMIT_WRITES; i++) {
		const struct waiting_write *w = &t->writes[i];
		__u64 age_ns = 0;

		if (t->waiting & (1u << i)) {
			if (w->obj == obj)
				return i;
			if (now - w->ts_ns < WRITE_WAITS_NS)
				age_ns = w->ts_ns;
		}
		if (age_ns < least) {
			least = age_ns;
			slot = i;
		}
	}
	return slot;
}

/* Functions, as what is below the caller needs its stack. */
__noinline int vote_after_write(struct thread *t, __u64 obj, __u32 gen, __u64 len, __u64 now)
{
	struct waiting_write *w;
	__u32 slot;

	if (!t)
		return 0;
	slot = t->waiting ? write_slot(t, obj, now) : 0;
	w = write_at(t, slot);
	if (!(t->waiting & (1u << slot)) || w->obj != obj || w->gen != gen || now - w->ts_ns >= WRITE_WAITS_NS)
		w->len = 0;
	w->obj = obj;
	w->gen = gen;
	w->ts_ns = now;
	w->last_len = len;
	w->len += len;
	t->waiting |= 1u << slot;
	t->wrote_ns = now;
	return 0;
}

/* The connection is answered: what was written to it has been sent. */
__noinline int write_answered(struct thread *t, __u64 obj, __u64 now)
{
	__u32 slot;

	if (!t)
		return 0;
	slot = write_slot(t, obj, now);
	if (write_at(t, slot)->obj == obj)
		t->waiting &= ~(1u << slot);
	return 0;
}

__noinline int vote_before_read(struct thread *t, struct conn_state *state, const struct conn_map_key *key, __u64 len)
{
	struct ev_conn_sock what = {};

	if (!t || !state || !key || !t->recv.cookie || !t->recv.fresh || state->votes >= LIMIT_SOCK_VOTES)
		return 0;
	t->recv.fresh = 0;
	state->votes++;
	conn_fill(&what.conn, key, state->gen);
	what.cookie = t->recv.cookie;
	what.addr = t->recv.addr;
	what.wire_len = t->recv.wire_len;
	what.plain_len = len;
	what.how = EV_SOCK_BEFORE;
	what.dir = EV_DIR_RX;
	t->recv.wire_len = 0;
	return conn_emit_sock(key, &what);
}

/* 0: the return is wanted; 1: it is not. */
static __always_inline int call_push(struct pt_regs *ctx, struct task_struct *task, struct thread *t, __u64 cookie)
{
	__u32 role = TLS_COOKIE_ROLE(cookie);
	struct tls_call call = {};

	call.sp = PT_REGS_SP(ctx) + RETURN_SP_SHIFT;
	call.ip = PT_REGS_IP(ctx);
	call.entry_ns = bpf_ktime_get_boot_ns();
	call.role = role;
	call.file = TLS_COOKIE_FILE(cookie);
	call.flags = TLS_COOKIE_UNFREED(cookie) ? CALL_UNFREED : 0;
	if (TLS_COOKIE_ABI(cookie) == TLS_ABI_AEAD && !aead_entered(ctx, &call))
		return 1;
	if (role != TLS_ROLE_NEW)
		call.obj = PT_REGS_PARM1(ctx);
	if (role == TLS_ROLE_READ || role == TLS_ROLE_WRITE) {
		call.buf = PT_REGS_PARM2(ctx);
		call.len_ptr = call_arg(ctx, TLS_COOKIE_ABI(cookie) == TLS_ABI_AEAD ? 3 : TLS_COOKIE_LEN_ARG(cookie));
	}
	if (!t)
		t = thread_of(task, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		call_refused(&call, ST_STATE_FULL);
		return 1;
	}
	return call_add(&t->open, &call);
}

/* --- returns ----------------------------------------------------------------------------------------------------- */

/* What the function returned. */
static __always_inline __s64 call_result(struct pt_regs *ctx, __u64 cookie)
{
	if (TLS_COOKIE_ABI(cookie) == TLS_ABI_GO_RETURN)
		return PT_REGS_RC(ctx);
	return (int)PT_REGS_RC(ctx); /* an int: the upper half of the register is anything */
}

/* Bytes that the call moved. *fault: it moved some, but how many could not be read. */
static __always_inline __u64 moved_len(struct pt_regs *ctx, const struct tls_call *call, __u64 cookie, bool *fault)
{
	__s64 ret = call_result(ctx, cookie);
	__u64 len = 0;

	if (ret <= 0)
		return 0;
	if (TLS_COOKIE_LEN_ARG(cookie) == TLS_LEN_RET)
		return ret;
	if (bpf_probe_read_user(&len, sizeof(len), (const void *)call->len_ptr)) {
		stat_add(ST_FAULT, 1);
		*fault = true;
	}
	return len;
}

/* t: where it may vote; NULL: there is no need to. */
static __always_inline void call_moved(struct open_calls *open, struct thread *t, struct conn_state *state,
				       const struct conn_map_key *key, const struct tls_call *call, __u64 len,
				       __u64 now)
{
	handshake_guess(open, state, key, call);
	if (len <= call->inner)
		return;
	len -= call->inner;
	calls_tell_wrappers(open, call, len);
	call_data(state, key, call, len, now);
	if (!t || call->inside || (state->flags & CONN_F_INSIDE))
		return;
	if (call->role == TLS_ROLE_WRITE) {
		vote_after_write(t, call->obj, state->gen, len, now);
		return;
	}
	if (t->waiting)
		write_answered(t, call->obj, now);
	vote_before_read(t, state, key, len);
}

static __always_inline void handshake_returned(struct pt_regs *ctx, const struct conn_map_key *key,
					       const struct tls_call *call, __u64 cookie, __u64 now)
{
	bool ok = call_result(ctx, cookie) == (TLS_COOKIE_LEN_ARG(cookie) == TLS_HANDSHAKE_ZERO ? 0 : 1);
	struct conn_state *state = conn_of_call(key, call, !ok || call->inside);

	if (!state)
		return;
	if (ok)
		handshake_done(state, key, now, 0);
	state->used_ns = now;
}

/* --- calls of ignored connections: see calm.bpf.h ---------------------------------------------------------------- */

/* After a call of the connection. One whose library writes to memory is not remembered: its calls vote for sockets of
 * others too. */
static __always_inline void calm_note(struct calm *calm, const struct conn_map_key *key, const struct conn_state *state)
{
	const __u32 not = CONN_F_HALF | CONN_F_FREED | CONN_F_GAP(0) | CONN_F_GAP(1);

	if (!conn_ignored(state->gen) || (state->flags & not ) || !(state->flags & CONN_F_INSIDE) ||
	    !state->cookie[0] || state->cookie[0] != state->cookie[1])
		return;
	calm->epoch = calm_epoch;
	calm->obj = key->obj;
	calm->gen = state->gen;
	calm->exec_id = key->exec_id;
	calm->closed = !(state->flags & CONN_F_UNFREED);
}

#define CALM_NOT   0 /* it is a call like others */
#define CALM_CALL  1 /* its return is wanted */
#define CALM_LEAVE 2 /* it is not */

static __always_inline int calm_enter(struct pt_regs *ctx, struct task_struct *task, struct thread *t, __u64 cookie)
{
	const struct calm *calm = &t->calm;
	__u32 role = TLS_COOKIE_ROLE(cookie), entry;
	struct tls_call *call = &t->open.calls[0];
	__u64 obj = PT_REGS_PARM1(ctx);

	if (!obj || calm->obj != obj || t->open.depth || calm->epoch != calm_epoch ||
	    calm->exec_id != task->group_leader->self_exec_id || TLS_COOKIE_ABI(cookie) != TLS_ABI_C ||
	    (role != TLS_ROLE_READ && role != TLS_ROLE_WRITE))
		return CALM_NOT;
	entry = ignored_entry(calm->gen);
	if ((entry & IGNORED_FOR_GOOD) && calm->closed && cfg.sock_length)
		return CALM_LEAVE;
	if (!entry || role == TLS_ROLE_WRITE)
		return CALM_NOT;
	__builtin_memset(call, 0, sizeof(*call));
	call->sp = PT_REGS_SP(ctx) + RETURN_SP_SHIFT;
	call->ip = PT_REGS_IP(ctx);
	call->obj = obj;
	call->buf = PT_REGS_PARM2(ctx);
	call->len_ptr = call_arg(ctx, TLS_COOKIE_LEN_ARG(cookie));
	call->entry_ns = bpf_ktime_get_boot_ns();
	call->role = role;
	call->file = TLS_COOKIE_FILE(cookie);
	call->flags = CALL_CALM | (TLS_COOKIE_UNFREED(cookie) ? CALL_UNFREED : 0);
	t->open.depth = 1;
	return CALM_CALL;
}

/* false: much may have happened since its entry, it returns like others. */
static __always_inline bool calm_return(struct pt_regs *ctx, struct thread *t, __u64 cookie)
{
	const struct tls_call *call = &t->open.calls[0];
	struct conn_state *state;
	struct conn_map_key key;
	bool fault = false;
	__u64 len, now;

	if (t->open.depth != 1 || !(call->flags & CALL_CALM) || call->sp != PT_REGS_SP(ctx) || call->inner ||
	    call->role != TLS_COOKIE_ROLE(cookie) || call->obj != t->calm.obj || !conn_ignored(t->calm.gen))
		return false;
	conn_key(&key, call->obj);
	state = bpf_map_lookup_elem(&conns, &key);
	if (!state || state->gen != t->calm.gen || (state->flags & (CONN_F_FREED | CONN_F_GAP(EV_DIR_RX))))
		return false;
	len = moved_len(ctx, call, cookie, &fault);
	if (fault)
		return false;
	t->open.depth = 0;
	now = bpf_ktime_get_boot_ns();
	state->used_ns = now;
	if (!len) {
		state->last_fail_ns = now;
		return true;
	}
	skip_read(state, &key, len, now);
	return true;
}

/* --- returns of the others --------------------------------------------------------------------------------------- */

static __always_inline void call_done(struct pt_regs *ctx, struct open_calls *open, struct thread *t,
				      const struct tls_call *call, __u64 cookie)
{
	__u64 len, now = bpf_ktime_get_boot_ns();
	struct conn_state *state;
	struct conn_map_key key;
	bool fault = false;

	conn_key(&key, call->obj);
	if (call->role == TLS_ROLE_HANDSHAKE) {
		handshake_returned(ctx, &key, call, cookie, now);
		return;
	}
	state = conn_of_call(&key, call, false);
	if (!state)
		return;
	len = moved_len(ctx, call, cookie, &fault);
	if (len)
		call_moved(open, t, state, &key, call, len, now);
	else if (fault)
		conn_emit_gap(state, &key, role_dir(call->role), now);
	else
		state->last_fail_ns = now;
	state->used_ns = now;
	if (t)
		calm_note(&t->calm, &key, state);
}

/* --- objects ----------------------------------------------------------------------------------------------------- */

/* SSL_new: the returned address is a new object, whatever it was before. */
static __always_inline void object_made(struct pt_regs *ctx, const struct tls_call *call)
{
	struct conn_state *state;
	struct conn_map_key key;
	__u64 obj = PT_REGS_RC(ctx);

	if (!obj)
		return;
	conn_key(&key, obj);
	state = bpf_map_lookup_elem(&conns, &key);
	if (state)
		conn_renew(state, &key, call->entry_ns, true);
	else
		conn_make(&key, call->entry_ns, CONN_F_FRESH);
}

static __always_inline void object_freed(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_boot_ns();
	struct conn_state *state;
	struct conn_map_key key;

	conn_key(&key, PT_REGS_PARM1(ctx));
	state = bpf_map_lookup_elem(&conns, &key);
	if (!state || (__sync_fetch_and_or(&state->flags, CONN_F_FREED) & CONN_F_FREED))
		return;
	state->used_ns = now;
	calm_forget();
	skip_tell(state, &key);
	conn_emit_close(state, &key, now);
}

/* --- the programs ------------------------------------------------------------------------------------------------ */

static __always_inline int tls_enter(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t;
	__u64 cookie;
	int calm;

	if (!is_hinted(task->tgid, HINT_TARGET))
		return 1;
	cookie = bpf_get_attach_cookie(ctx);
	t = thread_of(task, 0);
	calm = t ? calm_enter(ctx, task, t, cookie) : CALM_NOT;
	if (calm != CALM_NOT)
		return calm == CALM_LEAVE;
	if (!thread_is_target(t))
		return 1;
	if (TLS_COOKIE_ROLE(cookie) == TLS_ROLE_FREE) {
		object_freed(ctx);
		return 1;
	}
	return call_push(ctx, task, t, cookie);
}

static __always_inline int tls_leave(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	struct thread *t = thread_of(bpf_get_current_task_btf(), 0);
	struct tls_call call;

	if (t && calm_return(ctx, t, cookie))
		return 0;
	/* No state: the process is no target, or became one during the call. */
	if (!t || !call_pop(&t->open, PT_REGS_SP(ctx), TLS_COOKIE_ROLE(cookie), &call) || !thread_is_target(t))
		return 0;
	if (!(call.flags & CALL_HALF)) {
		if (call.role == TLS_ROLE_NEW)
			object_made(ctx, &call);
		else
			call_done(ctx, &t->open, t, &call, cookie);
	} else if ((int)PT_REGS_RC(ctx) == 1) {
		record_opened(t, &call);
	}
	return 0;
}

__noinline int session_returns(void)
{
	return bpf_session_is_return && bpf_session_is_return();
}

/* Linux 6.13 and later: entry and return in one; returning 1 at the entry spares the return probe. */
SEC("uprobe")
int tls_session(struct pt_regs *ctx)
{
	if (bpf_session_is_return && bpf_session_is_return())
		return tls_leave(ctx);
	return tls_enter(ctx);
}

/* Older: two links, by uprobe_multi (6.6) or perf events. Here the value returned means nothing. */
SEC("uprobe")
int tls_entry(struct pt_regs *ctx)
{
	tls_enter(ctx);
	return 0;
}

SEC("uretprobe")
int tls_return(struct pt_regs *ctx)
{
	return tls_leave(ctx);
}

/* --- Go ---------------------------------------------------------------------------------------------------------- */

#define GO_MARK_WORDS 8

static __always_inline __u64 go_mark_part(__u64 mark, __u64 at, __u64 len)
{
	__u64 words[GO_MARK_WORDS] = {};
	__u32 n = len < sizeof(words) ? len : sizeof(words), i;

	asm volatile("" : "+r"(n));
	if (n > sizeof(words))
		n = sizeof(words);
	bpf_probe_read_user(words, n, (const void *)at);
	for (i = 0; i < GO_MARK_WORDS; i++)
		mark = ((mark ^ words[i]) * 0x9e3779b97f4a7c15ull) ^ (mark >> 29);
	return mark;
}

__noinline __u32 go_mark(__u64 buf, __u64 len)
{
	__u64 mark = go_mark_part(len, buf, len);

	if (len > GO_MARK_WORDS * 8)
		mark = go_mark_part(mark, buf + len - GO_MARK_WORDS * 8, len);
	return mark ^ mark >> 32;
}

static __always_inline void go_returned(struct pt_regs *ctx, __u64 cookie)
{
	struct open_calls *open;
	struct tls_call call;
	struct go_key key;

	open = go_call_end(ctx, TLS_COOKIE_ROLE(cookie), &key, &call);
	if (!open)
		return;
	if (target_current())
		call_done(ctx, open, NULL, &call, cookie);
	if (!open->depth)
		bpf_map_delete_elem(&go_calls, &key);
}

/* Go: the entry of a function and each of its RETs. Never more than that: a return probe would break its stacks. */
SEC("uprobe")
int tls_go(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);

	if (TLS_COOKIE_ABI(cookie) == TLS_ABI_GO_RETURN)
		go_returned(ctx, cookie);
	else if (target_current())
		go_call_begin(ctx, cookie);
	return 0;
}
