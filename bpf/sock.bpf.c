/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP sockets of targets: life, resets, retransmits, round trip; and whose bytes a socket carries: those of a TLS
 * connection, or plain HTTP (Unix stream sockets too). BTF tracepoints only: they hand over the socket itself, on every
 * kernel, whatever its trace record looks like.
 *
 * Most of these run in a softirq, in whatever task happens to be current. The owner is what connect() or the first send
 * or receive of a target wrote into the socket's storage.
 */
#include "moved.bpf.h"
#include "delay.bpf.h"
#include "dns.bpf.h"
#include "wire.bpf.h"

#define RTT_MIN_INTERVAL_NS 100000000ull

/* --- the wire under TLS ------------------------------------------------------------------------------------------ */

static __noinline int wire_make(struct sock *sk, struct sock_info *info, const struct plain_move *m)
{
	struct wire init = {}, *w;

	emit_head(&init.ev.h, sizeof(init.ev), EV_WIRE, 0, m->now, bpf_get_current_pid_tgid() >> 32, 0);
	init.ev.cookie = info->cookie;
	init.ev.start_ns = own_start_ns();
	init.ev.exec_id = own_exec_id();
	init.ev.began_ns = m->now;
	init.ev.addr = info->addr;
	w = bpf_sk_storage_get(&wires, sk, &init, BPF_SK_STORAGE_GET_F_CREATE);
	if (w)
		wire_begin(w, m);
	else
		stat_add(ST_STATE_FULL, 1);
	return 0;
}

/* A tunnel that a proxy was asked for carries TLS, if its first bytes are. */
static __always_inline bool tunnel_is_tls(struct plain_move *m)
{
	if (m->dir != EV_DIR_TX)
		return false;
	plain_find(m);
	return plain_is_tls(m);
}

static __always_inline void wire_note(struct sock *sk, struct sock_info *info, struct plain_move *m)
{
	struct wire *w;

	if (info->tls == TLS_TUNNEL && tunnel_is_tls(m))
		info->tls = TLS_YES;
	if (!info->tls || info->tls == TLS_TUNNEL || !m->len)
		return;
	w = bpf_sk_storage_get(&wires, sk, NULL, 0);
	if (!w) {
		wire_make(sk, info, m);
		w = bpf_sk_storage_get(&wires, sk, NULL, 0);
	}
	if (!w)
		return;
	if (w->ev.h.tgid != bpf_get_current_pid_tgid() >> 32)
		wire_inherit(w);
	w->quiet = info->tls == TLS_INSIDE;
	if (info->calm_bytes[0] || info->calm_bytes[1])
		wire_catch_up(w, info, m->now);
	wire_moved(w, m);
}

/* What has moved is told when the program closes too: the other side may take its time. */
static __always_inline void wire_end(struct sock *sk, struct sock_info *info, int state)
{
	struct wire *w;

	if (state != TCP_CLOSE && state != TCP_FIN_WAIT1 && state != TCP_LAST_ACK)
		return;
	w = bpf_sk_storage_get(&wires, sk, NULL, 0);
	if (!w)
		return;
	wire_catch_up(w, info, 0);
	wire_tell(w, state == TCP_CLOSE ? EV_WIRE_CLOSED : 0);
}

/* --- life -------------------------------------------------------------------------------------------------------- */

/* A socket that was used before connects again: after a failure, or after connect(AF_UNSPEC). Nothing of what it
 * carried is of the new connection; and so that nobody takes one for the other, its cookie is a new one. */
static __noinline int sock_again(struct sock *sk, struct sock_info *info)
{
	__u64 cookie = info->cookie + SOCK_AGAIN;

	__builtin_memset(info, 0, sizeof(*info));
	info->cookie = cookie;
	bpf_sk_storage_delete(&plains, sk);
	bpf_sk_storage_delete(&wires, sk);
	return 0;
}

static __always_inline void connect_began(struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct sock_info *info;

	if (!target_current())
		return;
	info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	if (info)
		sock_again(sk, info);
	else
		info = sock_own(sk, task->tgid);
	if (!info)
		return;
	info->tgid = task->tgid; /* perhaps not the one that used it before */
	info->connector = task->pid;
	info->begin_ns = bpf_ktime_get_boot_ns();
	emit_sock_at(info, sk, EV_SK_CONNECTING, 0, info->begin_ns, 0);
	if (!cfg.sock_length)
		sockets_wanted();
}

static __always_inline void state_changed(struct sock *sk, struct sock_info *info, int old, int new)
{
	if (old == TCP_SYN_SENT && new == TCP_ESTABLISHED) {
		info->srtt_us = sock_srtt_us(sk);
		info->rtt_min_us = info->srtt_us;
		info->rtt_ns = bpf_ktime_get_boot_ns();
		info->established_ns = info->rtt_ns;
		addr_read(&info->addr, sk);
		emit_sock(info, sk, EV_SK_CONNECTED, info->begin_ns, info->srtt_us);
		if (!cfg.sock_length)
			called_make((__u64)sk, ino_of(sk), info, 1);
	} else if (old == TCP_SYN_SENT && new == TCP_CLOSE) {
		emit_sock(info, sk, EV_SK_CONNECT_FAILED, info->begin_ns, (__u32)sk->sk_err);
	} else if (old == TCP_ESTABLISHED && new == TCP_FIN_WAIT1) {
		emit_sock(info, sk, EV_SK_CLOSE_LOCAL, 0, sock_srtt_us(sk));
	} else if (old == TCP_ESTABLISHED && new == TCP_CLOSE_WAIT) {
		emit_sock(info, sk, EV_SK_CLOSE_REMOTE, 0, sock_srtt_us(sk));
	} else if (new == TCP_CLOSE && old != TCP_CLOSE) {
		emit_sock(info, sk, EV_SK_CLOSED, 0, sock_srtt_us(sk));
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
	if (info && info->tls)
		wire_end(sk, info, new);
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
		emit_sock(info, sk, what, 0, sock_srtt_us(sk));
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(sock_retransmit, struct sock *sk)
{
	if (sk)
		delay_resent(sk);
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

/* --- round trip -------------------------------------------------------------------------------------------------- */

static __always_inline bool differs(__u32 now, __u32 before)
{
	return !before || (now > before ? now - before : before - now) >= before / 10 + 1;
}

/* Tells a change that is worth it. */
static __always_inline void rtt_look(struct sock *sk, struct sock_info *info, struct tcp_sock *tp)
{
	__u32 srtt_us = tp->srtt_us >> 3, min_us = rtt_min_us(tp);
	__u64 now;

	if (min_us && differs(min_us, info->rtt_min_us)) {
		info->rtt_min_us = min_us;
		emit_sock(info, sk, EV_SK_RTT_MIN, 0, min_us);
	}
	if (!srtt_us || !differs(srtt_us, info->srtt_us))
		return;
	now = bpf_ktime_get_boot_ns();
	if (now - info->rtt_ns < RTT_MIN_INTERVAL_NS)
		return;
	info->srtt_us = srtt_us;
	info->rtt_ns = now;
	emit_sock(info, sk, EV_SK_RTT, 0, srtt_us);
}

/* At least receives bind; and user space should look at system calls again. */
static __always_inline void received_unseen(struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plain_move m = {.dir = EV_DIR_RX, .tcp = 1};
	__u64 at = (__u64)sk;
	struct sock_info *info;
	struct called *c;

	if (!target_current())
		return;
	c = bpf_map_lookup_elem(&called, &at);
	if (!c || c->info.plain != PLAIN_NEVER)
		sockets_wanted();
	info = sock_own(sk, task->tgid);
	if (!info)
		return;
	if (!info->addr.family)
		addr_read(&info->addr, sk);
	m.now = bpf_ktime_get_boot_ns();
	tls_or_nothing(info, &m, EV_DIR_RX);
}

/* Where sock_received does not see receives. Runs in the reader's own context too, and is rarer than tcp_probe, which
 * runs once a packet. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(sock_rtt, struct sock *sk)
{
	struct sock_info *info;
	struct tcp_sock *tp;

	if (!sk)
		return 0;
	if (!syscalls_seen && sk->sk_protocol == IPPROTO_TCP)
		received_unseen(sk);
	info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	tp = info ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (tp)
		rtt_look(sk, info, tp);
	return 0;
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

/* As the tracepoints of the socket tell it. */
static __always_inline void sock_moved(struct sock *sk, __u32 dir, __u32 len, __u32 flags, bool tcp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plain_move m = {.len = len, .dir = dir, .flags = flags, .tcp = tcp};
	struct sock_info *info;

	if (!target_current())
		return;
	info = sock_own(sk, task->tgid);
	if (!info)
		return;
	m.now = bpf_ktime_get_boot_ns();
	if (tcp && dir == EV_DIR_TX)
		delay_sent(info, bpf_skc_to_tcp_sock(sk), len);
	bytes_moved(sk, NULL, info, &m, dir);
	if (tcp)
		wire_note(sk, info, &m);
}

/* It carries the connection that it did, and the process is the one that used it first. */
static __always_inline bool is_steady(const struct sock_info *info)
{
	return info->steady && info->steady == calm_epoch && info->tgid == (__u32)bpf_get_current_task_btf()->tgid;
}

/*
 * The socket of an ignored connection: a look, and the bytes are counted. Until a request comes that is so only of
 * receives; sends are looked at, since one may carry a request.
 */
static __always_inline bool calm_moved(struct sock_info *info, __u32 dir, int ret)
{
	__u32 entry = info->gen && info->tls == TLS_INSIDE ? ignored_entry(info->gen) : 0;

	if (entry && !(entry & IGNORED_FOR_GOOD) && (dir == EV_DIR_TX || !is_steady(info)))
		entry = 0;
	if (!entry) {
		if (info->calm)
			info->calm = 0;
		return false;
	}
	if (!info->calm) {
		info->calm = 1;
		info->unread_us = 0;
		info->hole_ns = 0;
		info->sent_us = 0;
		info->queued_us = 0;
		info->resent_ns = 0;
	}
	if (ret <= 0)
		return true;
	__sync_fetch_and_add(&info->calm_bytes[dir & 1], ret);
	if (entry & IGNORED_FOR_GOOD && __sync_fetch_and_add(&info->unread_bytes, ret) >= LIMIT_IGNORED_READ_BYTES)
		stat_add(ST_IGNORED_BYTES, __sync_lock_test_and_set(&info->unread_bytes, 0));
	return true;
}

/* The same of a connection that is decoded: what there is to tell its calls tell. Bytes are added up, with the time of
 * the latest. */
static __always_inline bool steady_moved(struct tcp_sock *tp, struct sock_info *info, __u32 dir, int len)
{
	if (!is_steady(info))
		return false;
	if (dir == EV_DIR_TX)
		delay_sent(info, tp, len);
	info->steady_us = tp->tcp_mstamp;
	__sync_fetch_and_add(&info->calm_bytes[dir & 1], len);
	return true;
}

/* The other end of a Unix socket is gone: its last bytes were read (none were asked for, if there are some), and
 * nothing can be written any more. */
static __always_inline void unix_ended(struct sock *sk, struct sock_info *info)
{
	if (!is_unix_stream(sk) || sk->sk_shutdown != SHUTDOWN_MASK || sk->sk_receive_queue.qlen)
		return;
	if (info && info->plain == PLAIN_HTTP)
		plain_end(plain_of(sk, NULL));
	if (info && info->plain == PLAIN_STDIO)
		stdio_ended(info->stdio);
}

/* A send of a TCP socket ended. True: that is all. */
static __always_inline bool tcp_sent(struct sock *sk, struct sock_info *info, int ret)
{
	struct tcp_sock *tp = ret > 0 ? bpf_skc_to_tcp_sock(sk) : NULL;

	return tp && steady_moved(tp, info, EV_DIR_TX, ret);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sock_sent, struct sock *sk, int ret)
{
	struct sock_info *info;
	bool tcp;

	if (!sk)
		return 0;
	tcp = is_tcp(sk);
	info = tcp ? bpf_sk_storage_get(&socks, sk, NULL, 0) : NULL;
	if (info && (calm_moved(info, EV_DIR_TX, ret) || tcp_sent(sk, info, ret)))
		return 0;
	if (ret <= 0)
		plain_call_ended();
	else if (tcp || is_unix_stream(sk))
		sock_moved(sk, EV_DIR_TX, ret, 0, tcp);
	else if (is_udp(sk))
		dns_moved(sk, EV_DIR_TX, ret);
	return 0;
}

/* A receive of a TCP socket ended. True: that is all. */
static __always_inline bool tcp_received(struct sock *sk, struct sock_info *info, int ret)
{
	struct tcp_sock *tp = info ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (!tp)
		return false;
	delay_read(sk, info, tp, ret > 0);
	if (ret <= 0)
		return false;
	rtt_look(sk, info, tp);
	return steady_moved(tp, info, EV_DIR_RX, ret);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(sock_received, struct sock *sk, int ret, int flags)
{
	struct sock_info *info;
	bool tcp;

	if (!sk || (flags & MSG_NOT_TAKEN))
		return 0;
	tcp = is_tcp(sk);
	info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	if (tcp && info && calm_moved(info, EV_DIR_RX, ret))
		return 0;
	if (tcp && tcp_received(sk, info, ret))
		return 0;
	if (ret <= 0)
		plain_call_ended();
	if (ret == 0)
		unix_ended(sk, info);
	else if (ret > 0 && (tcp || is_unix_stream(sk)))
		sock_moved(sk, EV_DIR_RX, ret, flags, tcp);
	else if (ret > 0 && is_udp(sk))
		dns_moved(sk, EV_DIR_RX, ret);
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

/* Two ticks of the clock at CONFIG_HZ=250: an answer that took longer than the way there and back does not come in the
 * tick in which was asked. */
#define SAME_TICK_RTT_US 8000u

/* Data went out since the last came in, and has arrived. */
static __always_inline bool is_asked(struct sock *sk, struct tcp_sock *tp)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	__s32 later = (__s32)(BPF_CORE_READ(tp, lsndtime) - BPF_CORE_READ(icsk, icsk_ack.lrcvtime));

	return tp->snd_una == tp->write_seq && (later > 0 || (later == 0 && tp->srtt_us >> 3 > SAME_TICK_RTT_US));
}

/* When the last of it went out; of what was sent more than once, the last time. */
static __always_inline __u64 last_sent_ns(struct tcp_sock *tp)
{
	if (BPF_CORE_READ(tp, rack.end_seq) == tp->snd_una)
		return socket_clock_boot_ns(BPF_CORE_READ(tp, rack.mstamp));
	return socket_clock_boot_ns(BPF_CORE_READ(tp, tcp_wstamp_ns) / 1000);
}

/* Read by probes_asked(): connections of targets over which something was asked, it seems, before anybody looked: a
 * turn of which no more is known than when the last of it went out. */
SEC("iter/task_file")
int asked_list(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct ev_wire ev = {};
	struct socket *socket;
	struct tcp_sock *tp;
	struct sock *sk;
	__u64 sent_ns;

	if (!task || !file || !target_of(task))
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk || !is_tcp(sk) || sk->__sk_common.skc_state != TCP_ESTABLISHED)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !is_asked(sk, tp))
		return 0;
	sent_ns = last_sent_ns(tp);
	emit_head(&ev.h, sizeof(ev), EV_WIRE, 0, sent_ns, task->tgid, 0);
	ev.cookie = bpf_get_socket_cookie(sk);
	ev.start_ns = task->group_leader->start_boottime;
	ev.exec_id = task->group_leader->self_exec_id;
	ev.began_ns = ev.tx_begin_ns = ev.tx_end_ns = sent_ns;
	ev.turn = 1;
	addr_read(&ev.addr, sk);
	bpf_seq_write(ctx->meta->seq, &ev, sizeof(ev));
	return 0;
}
