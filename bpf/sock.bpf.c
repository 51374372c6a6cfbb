/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP sockets of targets: life, resets, retransmits, round trip; and whose bytes a socket carries: those of a TLS
 * connection, or plain HTTP (Unix stream sockets too). BTF tracepoints only: they hand over the socket itself, on every
 * kernel, whatever its trace record looks like.
 *
 * Most of these run in a softirq, in whatever task happens to be current. The owner is what connect() or the first send
 * or receive of a target wrote into the socket's storage.
 */
#include "aead.bpf.h"
#include "conn.bpf.h"
#include "go.bpf.h"
#include "plain.bpf.h"
#include "run.bpf.h"
#include "stdio.bpf.h"
#include <bpf/bpf_endian.h>

#define MSG_OOB		    1
#define MSG_PEEK	    2
#define MSG_ERRQUEUE	    0x2000
#define RTT_MIN_INTERVAL_NS 100000000ull

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

/* A socket that a target uses: its storage, made at the first sight. The first owner stays. */
static __always_inline struct sock_info *sock_own(struct sock *sk, __u32 tgid)
{
	struct sock_info *info = bpf_sk_storage_get(&socks, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (!info) {
		stat_add(ST_STATE_FULL, 1);
		return NULL;
	}
	if (!info->cookie) {
		info->cookie = bpf_get_socket_cookie(sk);
		info->tgid = tgid;
	}
	return info;
}

static __always_inline __u32 sock_srtt_us(struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	return tp ? tp->srtt_us >> 3 : 0;
}

/* System-wide, what becomes of a socket is told once it is known to carry what may be a model's call. */
static __always_inline bool is_told(const struct sock_info *info, __u32 what)
{
	return !cfg.all || !cfg.sock_length || info->tls || info->plain == PLAIN_HTTP || what == EV_SK_CONNECTED;
}

static __always_inline void emit_sock(struct sock_info *info, struct sock *sk, __u32 what, __u32 srtt_us)
{
	bool connect = what == EV_SK_CONNECTED || what == EV_SK_CONNECT_FAILED;
	struct ev_sock *r;

	if (!is_told(info, what))
		return;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return;
	emit_head(&r->h, sizeof(*r), EV_SOCK, 0, bpf_ktime_get_boot_ns(), info->tgid, 0);
	r->cookie = info->cookie;
	r->begin_ns = connect ? info->begin_ns : 0;
	r->what = what;
	r->srtt_us = srtt_us;
	/* A dying socket has given its port back already: what is complete is kept. */
	if (!info->addr.family && sk->__sk_common.skc_num)
		addr_read(&info->addr, sk);
	if (info->addr.family)
		r->addr = info->addr;
	else
		addr_read(&r->addr, sk);
	emit_submit(r, sizeof(*r));
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

/* A connection of plain HTTP begins, or goes to another process because its owner is gone. */
static __noinline int plain_begin(struct plain *plain, struct sock_info *info, __u64 ts_ns, __u32 fresh)
{
	struct ev_conn_sock what = {};

	conn_emit_open(&plain->key, plain->conn.gen, ts_ns, EV_F_PLAIN | (fresh ? EV_F_FRESH : 0));
	conn_fill(&what.conn, &plain->key, plain->conn.gen);
	what.cookie = info->cookie;
	what.addr = info->addr;
	what.how = EV_SOCK_ITSELF;
	return conn_emit_sock(&plain->key, &what);
}

/* The same of a socket that has no storage. */
static __noinline int plain_make_called(struct called *c, __u64 ts_ns, bool fresh)
{
	__u32 gen = __sync_fetch_and_add(&last_gen, 1) + 1;

	conn_key(&c->plain.key, bpf_get_current_task_btf(), c->info.cookie);
	c->plain.conn.flags = fresh ? CONN_F_FRESH : 0;
	c->info.plain = PLAIN_HTTP;
	if (!__sync_val_compare_and_swap(&c->plain.conn.gen, 0, gen)) /* else another thread was faster */
		plain_begin(&c->plain, &c->info, ts_ns, fresh);
	return 0;
}

/* Not inline: its stack is not needed any more when bytes are copied. */
static __noinline int plain_make(struct sock *sk, struct sock_info *info, __u64 ts_ns, bool fresh)
{
	struct plain init = {}, *plain;

	conn_key(&init.key, bpf_get_current_task_btf(), info->cookie);
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

/* The socket may have come down from a process that has ended, or that was another program then. */
static __noinline int plain_inherit(struct plain *plain, struct sock_info *info, __u64 ts_ns)
{
	struct conn_map_key key;
	struct target *owner;

	conn_key(&key, bpf_get_current_task_btf(), info->cookie);
	if (plain->key.tgid == key.tgid && plain->key.start_ns == key.start_ns && plain->key.exec_id == key.exec_id)
		return 0;
	if (plain->key.tgid != key.tgid) {
		owner = bpf_map_lookup_elem(&targets, &plain->key.tgid);
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

/* Perhaps it is a parent's end of the standard input or output of a child. (Some runtimes give these Unix sockets.) */
static __always_inline void look_for_stdio(struct sock_info *info, __u64 ino)
{
	struct stdio_end *end = bpf_map_lookup_elem(&stdio_ends, &ino);

	if (!end)
		return;
	info->plain = PLAIN_STDIO;
	info->stdio = end->obj;
}

/* What they are, if that was not known. */
static __always_inline void plain_decide(struct sock *sk, struct called *c, struct sock_info *info,
					 const struct plain_move *m)
{
	struct tcp_sock *tp = c ? (m->tcp ? (struct tcp_sock *)sk : NULL) : bpf_skc_to_tcp_sock(sk);
	bool fresh = !info->looks[0] && !info->looks[1] && is_fresh(tp, m);

	info->plain = plain_look(info, m, fresh);
	if (info->plain != PLAIN_HTTP)
		return;
	if (c)
		plain_make_called(c, m->now, fresh);
	else
		plain_make(sk, info, m->now, fresh);
}

/* Bytes that moved over the socket, if they are plain HTTP or JSON-RPC with a child. */
static __always_inline void plain_moved(struct sock *sk, struct called *c, struct sock_info *info, struct plain_move *m)
{
	struct plain *plain;

	if (info->plain == PLAIN_NEVER)
		return;
	m->now = bpf_ktime_get_boot_ns();
	m->cookie = info->cookie;
	plain_find(m);
	if (info->plain == PLAIN_UNDECIDED && stdio_any && !m->tcp)
		look_for_stdio(info, c ? c->ino : sk->sk_socket->file->f_inode->i_ino);
	if (info->plain == PLAIN_STDIO) {
		if (stdio_moved(info->stdio, m) == STDIO_NEVER)
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
	plain_copy(plain, m);
}

/* --- sockets without tracepoints of their own ----------------------------------------------------------------------
 */

static __always_inline __u64 ino_of(struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
}

static __always_inline void sockets_closed(const struct called *c, bool tcp)
{
	if (tcp && c->info.plain != PLAIN_NEVER)
		__sync_fetch_and_add(&sockets_open, -1);
}

/* info: what is known of it already, or NULL. */
static __noinline int called_make(__u64 at, __u64 ino, const struct sock_info *info, __u32 tcp)
{
	struct called init = {}, *stale = bpf_map_lookup_elem(&called, &at);

	if (stale)
		sockets_closed(stale, tcp);
	init.ino = ino;
	if (info) {
		init.info = *info;
	} else {
		init.info.tgid = bpf_get_current_pid_tgid() >> 32;
		init.info.cookie = BPF_CORE_READ((struct sock *)at, __sk_common.skc_cookie.counter);
		if (!init.info.cookie) /* nobody can give it one here: no cookie is as large */
			init.info.cookie = 1ull << 63 | ino;
	}
	if (bpf_map_update_elem(&called, &at, &init, BPF_ANY))
		stat_add(ST_STATE_FULL, 1);
	else if (tcp)
		__sync_fetch_and_add(&sockets_open, 1);
	return 0;
}

static __noinline int called_closed(__u64 at)
{
	struct called *c = bpf_map_lookup_elem(&called, &at);

	if (!c)
		return 0;
	if (c->info.plain == PLAIN_HTTP)
		plain_end(&c->plain);
	sockets_closed(c, true);
	bpf_map_delete_elem(&called, &at);
	return 0;
}

/* A reason to look at system calls, for user space. */
static __always_inline void sockets_wanted(void)
{
	sockets_ns = bpf_ktime_get_boot_ns();
}

/* --- life -------------------------------------------------------------------------------------------------------- */

static __always_inline void connect_began(struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct sock_info *info;

	if (!target_of(task))
		return;
	info = sock_own(sk, task->tgid);
	if (!info)
		return;
	info->tgid = task->tgid; /* a socket may connect again, in another process */
	info->begin_ns = bpf_ktime_get_boot_ns();
	info->established_ns = 0;
	info->moved_ns = 0;
	info->tied = 0;
	info->srtt_us = 0;
	info->addr.family = 0;
	if (!cfg.sock_length)
		sockets_wanted();
}

static __always_inline void state_changed(struct sock *sk, struct sock_info *info, int old, int new)
{
	if (old == TCP_SYN_SENT && new == TCP_ESTABLISHED) {
		info->srtt_us = sock_srtt_us(sk);
		info->rtt_ns = bpf_ktime_get_boot_ns();
		info->established_ns = info->rtt_ns;
		addr_read(&info->addr, sk);
		emit_sock(info, sk, EV_SK_CONNECTED, info->srtt_us);
		if (!cfg.sock_length)
			called_make((__u64)sk, ino_of(sk), info, 1);
	} else if (old == TCP_SYN_SENT && new == TCP_CLOSE) {
		emit_sock(info, sk, EV_SK_CONNECT_FAILED, 0);
	} else if (old == TCP_ESTABLISHED && new == TCP_FIN_WAIT1) {
		emit_sock(info, sk, EV_SK_CLOSE_LOCAL, sock_srtt_us(sk));
	} else if (old == TCP_ESTABLISHED && new == TCP_CLOSE_WAIT) {
		emit_sock(info, sk, EV_SK_CLOSE_REMOTE, sock_srtt_us(sk));
	} else if (new == TCP_CLOSE && old != TCP_CLOSE) {
		emit_sock(info, sk, EV_SK_CLOSED, sock_srtt_us(sk));
		if (info->plain == PLAIN_HTTP)
			plain_end(plain_of(sk, NULL));
	}
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(sock_state, struct sock *sk, int old, int new)
{
	struct sock_info *info;

	if (!sk || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (old == TCP_CLOSE && new == TCP_SYN_SENT) {
		connect_began(sk);
		return 0;
	}
	info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	if (info)
		state_changed(sk, info, old, new);
	if (new == TCP_CLOSE && !cfg.sock_length)
		called_closed((__u64)sk);
	return 0;
}

static __always_inline int sock_event(struct sock *sk, __u32 what)
{
	struct sock_info *info;

	if (!sk)
		return 0;
	info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	if (info)
		emit_sock(info, sk, what, sock_srtt_us(sk));
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(sock_retransmit, struct sock *sk)
{
	return sock_event(sk, EV_SK_RETRANSMIT);
}

SEC("tp_btf/tcp_send_reset")
int BPF_PROG(sock_reset_sent, struct sock *sk)
{
	return sock_event(sk, EV_SK_RESET_SENT);
}

SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(sock_reset_received, struct sock *sk)
{
	return sock_event(sk, EV_SK_RESET_RECEIVED);
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

static __noinline int bind_inside(struct tls_call *call, struct sock_info *info, __u32 dir, __u32 wire_len)
{
	__u64 now = bpf_ktime_get_boot_ns();
	struct ev_conn_sock what = {};
	struct conn_state *state;
	struct conn_map_key key;
	bool known, begins;

	dir &= 1;
	info->tls = 1;
	call->inside |= 1u << dir;
	if (dir == EV_DIR_RX)
		call->recv_ns = now;
	begins = call->role == TLS_ROLE_HANDSHAKE || (!info->tied && conn_is_new(info->begin_ns, call->file));
	conn_key(&key, bpf_get_current_task_btf(), call->obj);
	state = conn_of_call(&key, call, begins);
	if (!state || state->cookie[dir] == info->cookie)
		return 0;
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
	state->cookie[dir] = info->cookie;
	__sync_fetch_and_or(&state->flags, CONN_F_INSIDE);
	if (known)
		return 0;
	conn_fill(&what.conn, &key, state->gen);
	what.cookie = info->cookie;
	what.addr = info->addr;
	what.wire_len = wire_len;
	what.how = EV_SOCK_INSIDE;
	what.dir = dir;
	return conn_emit_sock(&key, &what);
}

/* The first send after a TLS write carries it, as a rule: a vote. */
static __noinline int vote_send(struct thread *t, struct sock_info *info, __u32 wire_len)
{
	struct last_write w = t->write;
	struct ev_conn_sock what = {};
	struct conn_state *state;
	struct conn_map_key key;

	t->write.obj = 0;
	if (!w.obj || w.obj == LAST_WRITE_MIXED)
		return 0;
	conn_key(&key, bpf_get_current_task_btf(), w.obj);
	state = bpf_map_lookup_elem(&conns, &key);
	if (!state || state->gen != w.gen || (state->flags & CONN_F_INSIDE) || state->votes >= LIMIT_SOCK_VOTES)
		return 0;
	state->votes++;
	conn_fill(&what.conn, &key, w.gen);
	what.cookie = info->cookie;
	what.addr = info->addr;
	what.wire_len = wire_len;
	what.plain_len = w.plain_len;
	what.how = EV_SOCK_AFTER;
	what.dir = EV_DIR_TX;
	return conn_emit_sock(&key, &what);
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
static __always_inline void tls_moved(struct task_struct *task, struct thread *t, struct sock_info *info, __u32 dir,
				      __u32 wire_len)
{
	struct tls_call *call = call_around(task, t);

	/* A callback inside this call wrote to a connection in memory: the send is that one's (node writes inside
	 * reads). */
	if (call && dir == EV_DIR_TX && t->write.obj && t->write.ts_ns > call->entry_ns)
		call = NULL;
	if (call) {
		info->plain = PLAIN_NEVER;
		bind_inside(call, info, dir, wire_len);
	} else if (dir == EV_DIR_TX) {
		records_sent(t, info, wire_len);
		vote_send(t, info, wire_len);
	} else {
		note_recv(t, info, wire_len);
	}
}

/* HTTP that turns to TLS: the library's probes see what follows. */
static __always_inline bool turns_to_tls(struct task_struct *task, const struct plain_move *m)
{
	struct thread *t = thread_of(task, 0);

	return t && call_around(task, t) && plain_is_tls(m);
}

/* Bytes moved over a socket of a target in a system call of the current thread. */
static __always_inline void bytes_moved(struct sock *sk, struct called *c, struct sock_info *info, struct plain_move *m)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct tls_call *call;
	struct thread *t;

	if (info->plain == PLAIN_NEVER && !m->tcp)
		return;
	if (!info->addr.family && m->tcp)
		addr_read(&info->addr, sk);
	if (m->len)
		plain_moved(sk, c, info, m);
	if (info->plain == PLAIN_HTTP && turns_to_tls(task, m)) {
		plain_end(plain_of(sk, c));
		info->plain = PLAIN_NEVER;
	}
	if (info->plain == PLAIN_HTTP)
		info->established_ns = 0;
	if (info->plain == PLAIN_HTTP || !m->tcp)
		return;
	call = go_call_around(task);
	t = call ? NULL : thread_of(task, m->dir == EV_DIR_RX ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (call) {
		info->plain = PLAIN_NEVER;
		bind_inside(call, info, m->dir, m->len);
	} else if (t) {
		tls_moved(task, t, info, m->dir, m->len);
	}
	if (!info->tied && info->established_ns)
		info->moved_ns = bpf_ktime_get_boot_ns();
}

/* As the tracepoints of the socket tell it. */
static __always_inline void sock_moved(struct sock *sk, __u32 dir, __u32 len, __u32 flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plain_move m = {.len = len, .dir = dir, .flags = flags, .tcp = is_tcp(sk)};
	struct sock_info *info;

	if (!target_of(task))
		return;
	info = sock_own(sk, task->tgid);
	if (info)
		bytes_moved(sk, NULL, info, &m);
}

/* The other end of a Unix socket is gone: its last bytes were read, and nothing can be written any more. */
static __always_inline void unix_ended(struct sock *sk)
{
	struct sock_info *info;

	if (!is_unix_stream(sk) || sk->sk_shutdown != SHUTDOWN_MASK)
		return;
	info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	if (info && info->plain == PLAIN_HTTP)
		plain_end(plain_of(sk, NULL));
	if (info && info->plain == PLAIN_STDIO)
		stdio_ended(info->stdio);
}

static __always_inline int called_ended(struct sock *sk, struct called *c, const struct plain_move *m)
{
	if (m->tcp || m->dir != EV_DIR_RX || BPF_CORE_READ(sk, sk_shutdown) != SHUTDOWN_MASK)
		return 0;
	if (c->info.plain == PLAIN_HTTP)
		plain_end(&c->plain);
	if (c->info.plain == PLAIN_STDIO)
		stdio_ended(c->info.stdio);
	return 0;
}

int sock_called(__u64 file, struct plain_move *m)
{
	struct socket *socket = BPF_CORE_READ((struct file *)file, private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	__u64 at = (__u64)sk, ino = BPF_CORE_READ((struct file *)file, f_inode, i_ino);
	struct called *c;
	__u32 before;

	if (!m || (m->dir == EV_DIR_RX && (m->flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE))))
		return 0;
	m->tcp = family != AF_UNIX && BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP;
	if (!m->tcp && (family != AF_UNIX || BPF_CORE_READ(sk, sk_type) != SOCK_STREAM))
		return 0;
	c = bpf_map_lookup_elem(&called, &at);
	if (!c || c->ino != ino) {
		called_make(at, ino, NULL, m->tcp);
		c = bpf_map_lookup_elem(&called, &at);
	}
	if (!c)
		return 0;
	if (!m->len)
		return called_ended(sk, c, m);
	before = c->info.plain;
	bytes_moved(sk, c, &c->info, m);
	if (c->info.plain != PLAIN_NEVER)
		sockets_wanted();
	else if (before != PLAIN_NEVER && m->tcp)
		__sync_fetch_and_add(&sockets_open, -1);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sock_sent, struct sock *sk, int ret)
{
	if (!sk)
		return 0;
	if (ret <= 0)
		plain_call_ended();
	else if (is_tcp(sk) || is_unix_stream(sk))
		sock_moved(sk, EV_DIR_TX, ret, 0);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(sock_received, struct sock *sk, int ret, int flags)
{
	if (!sk || (flags & (MSG_PEEK | MSG_OOB)))
		return 0;
	if (ret <= 0)
		plain_call_ended();
	if (ret == 0)
		unix_ended(sk);
	else if (ret > 0 && (is_tcp(sk) || is_unix_stream(sk)))
		sock_moved(sk, EV_DIR_RX, ret, flags);
	return 0;
}

/* --- who is there still ------------------------------------------------------------------------------------------ */

/* The parent's ends of what a child has as standard input and output. */
static __noinline __u64 stdio_held(__u64 ino, __u32 tgid)
{
	struct stdio_end *end = bpf_map_lookup_elem(&stdio_ends, &ino);
	struct stdio *s = end ? bpf_map_lookup_elem(&stdios, &end->obj) : NULL;

	return s && s->head.tgid == tgid ? end->obj : 0;
}

static __always_inline struct plain *called_plain(__u64 at)
{
	struct called *c = bpf_map_lookup_elem(&called, &at);

	return c && c->info.plain == PLAIN_HTTP ? &c->plain : NULL;
}

/* Read by probes_tick(): ev_conn.obj of the connections over Unix sockets and pipes that a target holds. No tracepoint
 * tells when one is closed. */
SEC("iter/task_file")
int plain_list(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct plain *plain;
	struct sock *sk;
	__u64 obj;

	if (!task || !file || !target_of(task))
		return 0;
	obj = stdio_any ? stdio_held(BPF_CORE_READ(file, f_inode, i_ino), task->tgid) : 0;
	if (obj)
		bpf_seq_write(ctx->meta->seq, &obj, sizeof(obj));
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk || !is_unix_stream(sk))
		return 0;
	plain = cfg.sock_length ? bpf_sk_storage_get(&plains, sk, NULL, 0) : called_plain((__u64)sk);
	if (plain)
		bpf_seq_write(ctx->meta->seq, &plain->key.obj, sizeof(plain->key.obj));
	return 0;
}

/* --- round trip -------------------------------------------------------------------------------------------------- */

/* At least receives bind; and user space should look at system calls again. */
static __always_inline void received_unseen(struct sock *sk)
{
	__u64 at = (__u64)sk;
	struct called *c = bpf_map_lookup_elem(&called, &at);

	if (target_of(bpf_get_current_task_btf()) && (!c || c->info.plain != PLAIN_NEVER))
		sockets_wanted();
	sock_moved(sk, EV_DIR_RX, 0, 0);
}

/* Runs in the reader's own context, once a receive: rarer than tcp_probe, which runs once a packet. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(sock_rtt, struct sock *sk)
{
	struct sock_info *info;
	__u32 srtt_us, before;
	__u64 now;

	if (!sk)
		return 0;
	if (!cfg.sock_length && !syscalls_seen && sk->sk_protocol == IPPROTO_TCP)
		received_unseen(sk);
	info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	if (!info)
		return 0;
	now = bpf_ktime_get_boot_ns();
	srtt_us = sock_srtt_us(sk);
	before = info->srtt_us;
	if (!srtt_us || now - info->rtt_ns < RTT_MIN_INTERVAL_NS)
		return 0;
	if (before && (srtt_us > before ? srtt_us - before : before - srtt_us) < before / 10 + 1)
		return 0;
	info->srtt_us = srtt_us;
	info->rtt_ns = now;
	emit_sock(info, sk, EV_SK_RTT, srtt_us);
	return 0;
}
