/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_CONN_BPF_H
#define PERFBPF_CONN_BPF_H

/*
 * Kernel state of a TLS connection: an object of one program run of one process, and which generation of it lives now.
 * tls.bpf.c and sock.bpf.c both need it. State is made when a call on an unknown object returns (or a socket call runs
 * inside it), or by SSL_new; user space deletes it (struct conn_map_key in event.h says when).
 *
 * What is not inline, here and in the headers of its users, is a global function: the verifier looks at it once a
 * program, knowing nothing of its arguments. A static one it follows from each place that calls it, in each state that
 * this is in, which made loading some times slower.
 */

#include "calm.bpf.h"
#include "thread.bpf.h"

#define NO_DIR 2

static __always_inline __u32 role_dir(__u32 role)
{
	return role == TLS_ROLE_WRITE ? EV_DIR_TX : role == TLS_ROLE_READ ? EV_DIR_RX : NO_DIR;
}

/* Of an object of the current process. */
static __always_inline void conn_key(struct conn_map_key *key, __u64 obj)
{
	__builtin_memset(key, 0, sizeof(*key)); /* older verifiers want it */
	own_key(key);
	key->obj = obj;
}

static __always_inline void conn_fill(struct ev_conn *c, const struct conn_map_key *key, __u32 gen)
{
	c->obj = key->obj;
	c->start_ns = key->start_ns;
	c->exec_id = key->exec_id;
	c->gen = gen;
}

static __always_inline __u32 conn_tid(void)
{
	return (__u32)bpf_get_current_pid_tgid();
}

/* What the flags of a state (CONN_F_*) say in its records (EV_F_*). Without branches: the verifier follows each. */
static __always_inline __u32 conn_record_flags(__u32 state_flags)
{
	return (state_flags & CONN_F_FRESH) / CONN_F_FRESH * EV_F_FRESH |
	       (state_flags & CONN_F_HALF) / CONN_F_HALF * EV_F_HALF;
}

/* flags: EV_F_FRESH, EV_F_HALF, EV_F_PLAIN */
int conn_emit_open(const struct conn_map_key *key, __u32 gen, __u64 ts_ns, __u32 flags);
int conn_emit_close(const struct conn_state *state, const struct conn_map_key *key, __u64 ts_ns);
/* Bytes of a direction were lost, how many is unknown. What the ring refuses is owed and paid by conn_pay_gap(). */
int conn_emit_gap(struct conn_state *state, const struct conn_map_key *key, __u32 dir, __u64 ts_ns);
/* Evidence that the connection uses this socket. what->h.flags: those of the record. */
int conn_emit_sock(const struct conn_map_key *key, const struct ev_conn_sock *what);
/* Makes the state of an object that has none; another thread may win the race, which is as good. flags: CONN_F_* */
int conn_make(const struct conn_map_key *key, __u64 ts_ns, __u32 flags);
/* The object begins a new life: positions start again at 0. */
int conn_renew(struct conn_state *state, const struct conn_map_key *key, __u64 ts_ns, bool fresh);

static __always_inline struct conn_state *conn_find_or_make(const struct conn_map_key *key, __u64 ts_ns, __u32 flags)
{
	struct conn_state *state = bpf_map_lookup_elem(&conns, key);

	if (state)
		return state;
	conn_make(key, ts_ns, flags);
	return bpf_map_lookup_elem(&conns, key);
}

/*
 * The state that an open call works on. `begins`: the call is a handshake that did something, or the first on a socket
 * that is new, so that a connection begins with it. (Some programs call SSL_do_handshake before every read: that
 * succeeds at once and means nothing.) NULL: no state could be made (counted).
 */
static __always_inline struct conn_state *conn_of_call(const struct conn_map_key *key, const struct tls_call *call,
						       bool begins)
{
	__u32 flags = (begins ? CONN_F_FRESH : 0) | (call->flags & CALL_UNFREED ? CONN_F_UNFREED : 0) |
		      (call->flags & CALL_HALF ? CONN_F_HALF : 0);
	struct conn_state *state = conn_find_or_make(key, call->entry_ns, flags);

	if (!state)
		return NULL;
	/* SSL_free fires before the last reference drops, so that later calls may be the same connection's. A handshake
	 * is not: the address was given to a new object whose making no probe saw. */
	if ((state->flags & CONN_F_FREED) && call->entry_ns > state->used_ns) {
		if (begins)
			conn_renew(state, key, call->entry_ns, true);
		else
			__sync_fetch_and_and(&state->flags, ~CONN_F_FREED);
	}
	if (!state->first_call_ns)
		state->first_call_ns = call->entry_ns;
	return state;
}

static __always_inline void conn_pay_gap(struct conn_state *state, const struct conn_map_key *key, __u32 dir,
					 __u64 ts_ns)
{
	if (!(state->flags & CONN_F_GAP(dir & 1)))
		return;
	__sync_fetch_and_and(&state->flags, ~CONN_F_GAP(dir & 1));
	conn_emit_gap(state, key, dir, ts_ns);
}

/*
 * Nothing of the TLS on a socket was missed: all probes of this file were set when its connect() began. Says so of
 * files whose functions do not tell where a connection begins.
 */
static __always_inline bool conn_is_new(__u64 connect_begin_ns, __u32 file)
{
	__u64 since = attached_ns[file & (LIMIT_PROBED_FILES - 1)];

	return since && connect_begin_ns > since;
}
EV_ASSERT((LIMIT_PROBED_FILES & (LIMIT_PROBED_FILES - 1)) == 0);

/* The barrier keeps the mask right before its use: older verifiers forget bounds of a register that was spilled. */
static __always_inline struct tls_call *call_at(struct open_calls *open, __u64 i)
{
	asm volatile("" : "+r"(i));
	return &open->calls[i & (LIMIT_NEST - 1)];
}
EV_ASSERT((LIMIT_NEST & (LIMIT_NEST - 1)) == 0);

#endif
