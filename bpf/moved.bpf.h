/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_MOVED_BPF_H
#define PERFBPF_MOVED_BPF_H

/*
 * Whose bytes a socket carries: those of a TLS connection, plain HTTP, or JSON-RPC with a child. sock.bpf.c has them
 * from the socket's own tracepoints, with what is known of it in its storage (struct sock_info, struct plain);
 * syscall.bpf.c from the end of system calls, which do not hand over the socket: `sk` is an address then, read by CO-RE
 * only, and what is known is in struct called. Inline: calls nest eight deep at most, with 512 bytes of stack together.
 */

#include "aead.bpf.h"
#include "conn.bpf.h"
#include "go.bpf.h"
#include "plain.bpf.h"
#include "run.bpf.h"
#include "stdio.bpf.h"
#include "wire.bpf.h"
#include <bpf/bpf_endian.h>

/* IPv4 in an IPv6 socket is reported as IPv4. The socket may be a mere address. */
static __always_inline void addr_read(struct ev_addr *a, struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	__builtin_memset(a, 0, sizeof(*a));
	a->lport = BPF_CORE_READ(sk, __sk_common.skc_num);
	a->rport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (family == AF_INET6 && bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
		__u32 *r = (__u32 *)a->raddr;

		bpf_probe_read_kernel(a->laddr, sizeof(a->laddr), &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_probe_read_kernel(a->raddr, sizeof(a->raddr), &sk->__sk_common.skc_v6_daddr);
		a->family = AF_INET6;
		if (r[0] || r[1] || r[2] != bpf_htonl(0xffff))
			return;
		__builtin_memset(a->laddr, 0, sizeof(a->laddr));
		__builtin_memset(a->raddr, 0, sizeof(a->raddr));
	} else if (family != AF_INET && family != AF_INET6) {
		return;
	}
	a->family = AF_INET;
	*(__u32 *)a->laddr = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
	*(__u32 *)a->raddr = BPF_CORE_READ(sk, __sk_common.skc_daddr);
}

/* --- plain HTTP -------------------------------------------------------------------------------------------------- */

static __always_inline bool is_tcp(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_TCP && sk->__sk_common.skc_family != AF_UNIX;
}

static __always_inline bool is_unix_stream(const struct sock *sk)
{
	return sk->__sk_common.skc_family == AF_UNIX && sk->sk_type == SOCK_STREAM;
}

/* A connection of plain HTTP begins, or goes to another process because its owner is gone. */
int plain_begin(struct plain *plain, struct sock_info *info, __u64 ts_ns, __u32 fresh);
/* The same of a socket that has no storage. */
int plain_make_called(struct called *c, __u64 ts_ns, bool fresh);
/* The socket may have come down from a process that has ended, or that was another program then. */
int plain_inherit(struct plain *plain, struct sock_info *info, __u64 ts_ns);
/* A socket that nobody knows yet what it carries was asked something, and answered: a proxy, which makes the way on.
 * What comes then begins there. */
int proxy_answered(struct sock_info *info, __u64 now);
/* What is said before there is a tunnel. */
int tunnel_tell(const struct sock_info *info, const struct plain_move *m);

/* m->dir. only: a constant; the one direction that there is, so that the verifier is spared the other's code, or -1. */
static __always_inline __u32 moved_dir(const struct plain_move *m, int only)
{
	return only < 0 ? m->dir : (__u32)only;
}

/* Nothing but these bytes has moved over the socket yet. Only TCP keeps count (of a SYN and a FIN too). */
static __always_inline bool is_fresh(struct tcp_sock *tp, const struct plain_move *m)
{
	__u64 tx, rx;

	if (!tp)
		return false;
	tx = BPF_CORE_READ(tp, bytes_acked) + (__u32)(BPF_CORE_READ(tp, write_seq) - BPF_CORE_READ(tp, snd_una));
	rx = BPF_CORE_READ(tp, bytes_received) - (__u32)(BPF_CORE_READ(tp, rcv_nxt) - BPF_CORE_READ(tp, copied_seq));
	if (m->dir == EV_DIR_TX)
		tx -= m->len;
	else
		rx -= m->len;
	return tx + 1 <= 2 && rx + 1 <= 2;
}

/* Not inline: its stack is not needed any more when bytes are copied. */
static __noinline int plain_make(struct sock *sk, struct sock_info *info, __u64 ts_ns, bool fresh)
{
	struct plain init = {}, *plain;

	conn_key(&init.key, info->cookie);
	init.conn.gen = __sync_fetch_and_add(&last_gen, 1) + 1;
	init.conn.flags = fresh ? CONN_F_FRESH : 0;
	plain = bpf_sk_storage_get(&plains, sk, &init, BPF_SK_STORAGE_GET_F_CREATE);
	if (!plain) {
		stat_add(ST_STATE_FULL, 1);
		return 0;
	}
	info->plain = PLAIN_HTTP;
	if (plain->conn.gen == init.conn.gen) /* else another thread was faster */
		plain_begin(plain, info, ts_ns, fresh);
	return 0;
}

/* `c` in the place of the socket's storage, else NULL. */
static __always_inline struct plain *plain_of(struct sock *sk, struct called *c)
{
	return c ? &c->plain : bpf_sk_storage_get(&plains, sk, NULL, 0);
}

static __always_inline void plain_end(struct plain *plain)
{
	if (!plain)
		return;
	skip_tell(&plain->conn, &plain->key);
	conn_emit_close(&plain->conn, &plain->key, bpf_ktime_get_boot_ns());
}

static __always_inline __u64 ino_of(struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
}

/* Perhaps it is a parent's end of the standard input or output of a child. (Some runtimes give these Unix sockets.) */
static __always_inline void look_for_stdio(struct sock_info *info, __u64 ino)
{
	struct stdio_end *end = bpf_map_lookup_elem(&stdio_ends, &ino);

	if (!end)
		return;
	info->plain = end->which == STDIO_CHILD ? PLAIN_CHILD : PLAIN_STDIO;
	info->stdio = end->obj;
}

static __always_inline struct tcp_sock *tcp_of(struct sock *sk, struct called *c)
{
	return c ? (struct tcp_sock *)sk : bpf_skc_to_tcp_sock(sk);
}

/* No tracepoint and no register tells of bytes that a splice took out of a TCP socket: what was read by then does. (Two
 * threads that read the same socket at once would look like that, but nobody can follow those anyway.) `len`: of this
 * read; 0 of the first write, which says where the answers begin: the first of them may be spliced too. */
static __noinline int plain_spliced(struct plain *plain, struct tcp_sock *tp, __u32 len)
{
	__u32 now, hole;

	if (!tp)
		return 0;
	now = BPF_CORE_READ(tp, copied_seq);
	hole = now - plain->copied_seq - len;
	/* The end of the stream takes a number too, in the read of the last bytes or in one that brings nothing. */
	if (hole == 1 && BPF_CORE_READ((struct sock *)tp, sk_shutdown) & RCV_SHUTDOWN)
		hole = 0;
	if (plain->copied && hole && hole < 0x80000000) {
		stat_add(ST_UNSEEN, hole);
		__sync_fetch_and_add(&plain->conn.pos[EV_DIR_RX], hole);
	}
	plain->copied_seq = now;
	plain->copied = 1;
	return 0;
}

/* What they are, if that was not known. */
static __always_inline void plain_decide(struct sock *sk, struct called *c, struct sock_info *info,
					 const struct plain_move *m)
{
	struct tcp_sock *tp = m->tcp ? tcp_of(sk, c) : NULL;
	bool fresh = !info->looks[0] && !info->looks[1] && is_fresh(tp, m);
	__u32 looks = info->looks[EV_DIR_RX];

	info->plain = plain_look(info, m, fresh);
	/* What cannot be looked at may as well be TLS. */
	if (m->tcp && m->found && (info->looks[EV_DIR_TX] || info->tls == TLS_TUNNEL) &&
	    info->looks[EV_DIR_RX] != looks)
		proxy_answered(info, m->now);
	if (m->tcp && m->found && info->tls == TLS_TUNNEL && (m->dir == EV_DIR_TX || info->looks[EV_DIR_RX] != looks))
		tunnel_tell(info, m);
	if (info->plain != PLAIN_HTTP)
		return;
	if (c)
		plain_make_called(c, m->now, fresh);
	else
		plain_make(sk, info, m->now, fresh);
}

/* Bytes that moved over the socket, if they are plain HTTP or JSON-RPC with a child. */
static __always_inline void plain_moved(struct sock *sk, struct called *c, struct sock_info *info, struct plain_move *m,
					int only)
{
	struct plain *plain;
	bool rx;

	if (info->plain == PLAIN_NEVER)
		return;
	m->cookie = info->cookie;
	plain_find(m);
	if (info->plain == PLAIN_UNDECIDED && stdio_any && !m->tcp)
		look_for_stdio(info, c ? c->ino : ino_of(sk));
	if (info->plain == PLAIN_STDIO || info->plain == PLAIN_CHILD) {
		if (stdio_moved(info->stdio, m, info->plain == PLAIN_CHILD) == STDIO_NEVER)
			info->plain = PLAIN_NEVER;
		stdio_copy(m);
		return;
	}
	if (info->plain == PLAIN_UNDECIDED)
		plain_decide(sk, c, info, m);
	plain = info->plain == PLAIN_HTTP ? plain_of(sk, c) : NULL;
	if (!plain)
		return;
	plain_inherit(plain, info, m->now);
	rx = moved_dir(m, only) == EV_DIR_RX;
	if (m->tcp && (rx || !plain->copied))
		plain_spliced(plain, tcp_of(sk, c), rx ? m->len : 0);
	plain_copy(plain, m);
}

/* --- sockets without tracepoints of their own -------------------------------------------------------------------- */

/* It is closed, or carries nothing that is wanted. */
static __always_inline void sockets_closed(struct called *c)
{
	if (__sync_lock_test_and_set(&c->counted, 0))
		__sync_fetch_and_add(&sockets_open, -1);
}

/* info: what is known of it already, or NULL. The new entry is filled in its place: it is too large for the stack. */
static __noinline int called_make(__u64 at, __u64 ino, const struct sock_info *info, __u32 tcp)
{
	struct called *c = bpf_map_lookup_elem(&called, &at);

	if (c)
		sockets_closed(c);
	if (bpf_map_update_elem(&called, &at, no_called, BPF_ANY)) {
		stat_add(ST_STATE_FULL, 1);
		return 0;
	}
	c = bpf_map_lookup_elem(&called, &at);
	if (!c)
		return 0;
	if (tcp) {
		c->counted = 1;
		__sync_fetch_and_add(&sockets_open, 1);
	}
	if (info) {
		c->info = *info;
	} else {
		c->info.tgid = bpf_get_current_pid_tgid() >> 32;
		c->info.cookie = BPF_CORE_READ((struct sock *)at, __sk_common.skc_cookie.counter);
		if (!c->info.cookie) /* nobody can give it one here: no cookie is as large */
			c->info.cookie = 1ull << 63 | ino;
	}
	c->ino = ino;
	return 0;
}

static __noinline int called_closed(__u64 at)
{
	struct called *c = bpf_map_lookup_elem(&called, &at);

	if (!c)
		return 0;
	if (c->info.plain == PLAIN_HTTP)
		plain_end(&c->plain);
	sockets_closed(c);
	bpf_map_delete_elem(&called, &at);
	return 0;
}

/* A reason to look at system calls, for user space. */
static __always_inline void sockets_wanted(void)
{
	sockets_ns = bpf_ktime_get_boot_ns();
}

/* --- which connection uses it ------------------------------------------------------------------------------------ */

/* The TLS call that the current thread is inside of. An entry that longjmp left behind is not deeper than this. */
static __always_inline struct tls_call *call_around(struct task_struct *task, struct thread *t)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct tls_call *call;

	if (!t->open.depth)
		return NULL;
	call = call_at(&t->open, t->open.depth - 1);
	if (call->role == TLS_ROLE_NEW || PT_REGS_SP_CORE(regs) > call->sp)
		return NULL;
	return call;
}

/* Tells that the connection of the call uses the socket, and what follows from it. 1: nothing more is to be learned
 * from its calls (sock_info.steady). */
int bind_look(struct tls_call *call, struct sock_info *info, __u32 dir, __u32 wire_len);
/* A send whose size is that of one waiting write, and of no other, carries it, as a rule: a vote. */
int vote_send(struct thread *t, struct sock_info *info, struct plain_move *m);

/* The socket was used inside the call. What is known since an earlier use in it is not looked for again. */
static __always_inline void bind_inside(struct tls_call *call, struct sock_info *info, __u32 dir, __u32 wire_len,
					__u64 now)
{
	__u32 bit = 1u << (dir & 1), epoch = READ_AGAIN(calm_epoch);

	if (dir == EV_DIR_RX)
		call->recv_ns = now;
	if ((call->inside & bit) && call->bound == (__u32)info->cookie && info->tls == TLS_INSIDE && info->tied)
		return;
	info->plain = PLAIN_NEVER;
	info->tls = TLS_INSIDE;
	call->inside |= bit;
	info->steady = bind_look(call, info, dir, wire_len) ? epoch : 0;
	call->bound = (__u32)info->cookie;
}

static __always_inline void note_recv(struct thread *t, struct sock_info *info, __u32 wire_len)
{
	if (t->recv.cookie != info->cookie)
		t->recv.wire_len = 0;
	t->recv.cookie = info->cookie;
	t->recv.addr = info->addr;
	t->recv.wire_len += wire_len;
	t->recv.fresh = 1;
	t->recv.begin_ns = info->begin_ns;
	t->recv.established_ns = info->established_ns;
	records_received(&t->opened, info->cookie, wire_len);
}

/* Bytes of a TLS connection, perhaps. */
static __always_inline void tls_moved(struct task_struct *task, struct thread *t, struct sock_info *info,
				      struct plain_move *m, int only)
{
	struct tls_call *call = call_around(task, t);

	/* A callback inside this call wrote to a connection in memory: the send is that one's (node writes inside
	 * reads). */
	if (call && moved_dir(m, only) == EV_DIR_TX && t->wrote_ns > call->entry_ns)
		call = NULL;
	if (call) {
		bind_inside(call, info, moved_dir(m, only), m->len, m->now);
	} else if (moved_dir(m, only) == EV_DIR_TX) {
		records_sent(t, info, m->len);
		vote_send(t, info, m);
	} else {
		note_recv(t, info, m->len);
	}
}

/* Bytes of a TLS connection, if it is one. */
static __always_inline void tls_or_nothing(struct sock_info *info, struct plain_move *m, int only)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct tls_call *call = go_call_around(task);
	struct thread *t =
		call ? NULL : thread_of(task, moved_dir(m, only) == EV_DIR_RX ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);

	if (call)
		bind_inside(call, info, moved_dir(m, only), m->len, m->now);
	else if (t)
		tls_moved(task, t, info, m, only);
	if (!info->tied && info->established_ns)
		info->moved_ns = m->now;
}

/* HTTP that turns to TLS: the library's probes see what follows. */
static __always_inline bool turns_to_tls(struct task_struct *task, const struct plain_move *m)
{
	struct thread *t = thread_of(task, 0);

	return t && call_around(task, t) && plain_is_tls(m);
}

/* Bytes moved over a socket of a target in a system call of the current thread, at m->now. */
static __always_inline void bytes_moved(struct sock *sk, struct called *c, struct sock_info *info, struct plain_move *m,
					int only)
{
	if (info->plain == PLAIN_NEVER && !m->tcp)
		return;
	if (!info->addr.family && m->tcp)
		addr_read(&info->addr, sk);
	plain_moved(sk, c, info, m, only);
	if (info->plain == PLAIN_HTTP && turns_to_tls(bpf_get_current_task_btf(), m)) {
		plain_end(plain_of(sk, c));
		info->plain = PLAIN_NEVER;
		info->tls = TLS_YES;
	}
	if (info->plain == PLAIN_HTTP)
		info->established_ns = 0;
	else if (m->tcp)
		tls_or_nothing(info, m, only);
}

#endif
