/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How long bytes of a target's TCP socket waited, and for whom: received ones for the program, sent ones for the
 * network or a retransmission, received ones for others before them. Only whole waits are told, and only long ones
 * (LIMIT_DELAY_NS).
 *
 * Not seen: an answer's last bytes that were lost on the way, which nothing tells of before they come.
 */
#include "delay.bpf.h"

/* enum tcp_ca_state: from here on something that was sent is thought to be lost. */
#define TCP_CA_RECOVERY 3

/* --- sent, and sent again ---------------------------------------------------------------------------------------- */

/*
 * What was sent again is acknowledged. It had arrived a round trip after it was sent the last time: the acknowledgement
 * itself may be late, since it may wait for the answer. Where the other side says that it had those bytes already (a
 * probe that was sent because they were not acknowledged for long), nothing was lost. It says so within that round
 * trip.
 */
static __always_inline void settle(struct sock *sk, struct sock_info *info, struct tcp_sock *tp)
{
	__u64 since = info->resent_ns, there;

	if (!since || info->ca_state >= TCP_CA_RECOVERY || tp->snd_una == info->resent_una)
		return;
	there = info->again_ns + (__u64)rtt_min_us(tp) * 1000;
	if (bpf_ktime_get_boot_ns() < there)
		return;
	info->resent_ns = 0;
	if (tp->dsack_dups == info->dsack_dups && there - since >= LIMIT_DELAY_NS)
		emit_sock_at(info, sk, EV_SK_RESENT, since, there, sock_srtt_us(sk));
}

/*
 * What the network did not take at once is acknowledged, all of it: the last of it was on the way a round trip longer.
 * A request larger than the congestion window, or than a slow link, is in the kernel long after the program wrote it.
 */
static __always_inline void settle_queue(struct sock *sk, struct sock_info *info, struct tcp_sock *tp)
{
	__u64 since = info->queued_us, sent = tp->rack.mstamp;

	if (!since || tp->snd_una != tp->write_seq)
		return;
	info->queued_us = 0;
	if (tp->rack.end_seq == tp->snd_una && (__s64)(sent - since) >= (__s64)LIMIT_DELAY_NS / 1000)
		emit_sock_at(info, sk, EV_SK_QUEUED, socket_clock_boot_ns(since),
			     socket_clock_boot_ns(sent) + (__u64)rtt_min_us(tp) * 1000, sock_srtt_us(sk));
}

/* The kernel enters its recovery, or leaves it, because of an acknowledgement. */
SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(delay_repaired, struct sock *sk, __u8 state)
{
	struct sock_info *info = sk ? bpf_sk_storage_get(&socks, sk, NULL, 0) : NULL;
	struct tcp_sock *tp = info ? bpf_skc_to_tcp_sock(sk) : NULL;

	if (!tp)
		return 0;
	info->ca_state = state;
	settle(sk, info, tp);
	return 0;
}

/* --- received, and not read -------------------------------------------------------------------------------------- */

/* A system call that reads right now looks itself at what it left (delay_read()). Where one was not seen (splice), the
 * socket has been read further than at the mark. */
static __always_inline void unread(struct sock *sk, struct sock_info *info, struct tcp_sock *tp)
{
	__u32 copied = tp->copied_seq;

	if (info->unread_us && (info->unread_seq == copied || sk->sk_lock.owned))
		return;
	if (copied == tp->rcv_nxt)
		return;
	info->unread_seq = copied;
	info->unread_us = tp->tcp_mstamp;
}

/* --- received, and something before it missing ------------------------------------------------------------------- */

/* Before the packet is put where it belongs. Nearly each one is the next: that is asked first, of what the kernel has
 * at hand. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(delay_hole, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	struct sock_info *info;

	if (!tp || !skb || (__s32)(*(__u32 *)skb->cb - tp->rcv_nxt) <= 0)
		return 0;
	info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	if (info && !info->calm && !info->hole_ns)
		info->hole_ns = bpf_ktime_get_boot_ns();
	return 0;
}

/* Bytes can be read, so none is missing before them. */
static __always_inline void hole_filled(struct sock *sk, struct sock_info *info, struct tcp_sock *tp)
{
	__u64 since = info->hole_ns;

	if (!since || tp->out_of_order_queue.rb_node)
		return;
	info->hole_ns = 0;
	delay_tell(sk, info, EV_SK_HOLE, since);
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(delay_ready, struct sock *sk)
{
	struct sock_info *info;
	struct tcp_sock *tp;

	if (!sk || !is_tcp(sk))
		return 0;
	info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	if (!info || info->calm)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	settle(sk, info, tp);
	settle_queue(sk, info, tp);
	unread(sk, info, tp);
	hole_filled(sk, info, tp);
	return 0;
}
