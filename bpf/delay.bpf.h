/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_DELAY_BPF_H
#define PERFBPF_DELAY_BPF_H

/* How long bytes of a target's TCP socket waited: what sock.bpf.c knows of it. delay.bpf.c says more. */

#include "clock.bpf.h"
#include "sock.bpf.h"

static __always_inline void delay_tell(struct sock *sk, struct sock_info *info, __u32 what, __u64 begin_ns)
{
	if (begin_ns && bpf_ktime_get_boot_ns() - begin_ns >= LIMIT_DELAY_NS)
		emit_sock(info, sk, what, begin_ns, sock_srtt_us(sk));
}

/*
 * A receive ended; it brought bytes, or did not. What it leaves waits from its end on: the program was there. To ask
 * for the time costs as much as all else here: a receive that brought bytes has set the socket's clock
 * (tcp_rcv_space_adjust()), as the packets had that brought them.
 */
static __always_inline void delay_read(struct sock *sk, struct sock_info *info, struct tcp_sock *tp, bool brought)
{
	__u64 since = info->unread_us, now = tp->tcp_mstamp;

	info->unread_us = 0;
	if (tp->copied_seq != tp->rcv_nxt) {
		info->unread_seq = tp->copied_seq;
		info->unread_us = brought ? now : socket_clock_us();
	}
	if (brought && since && (__s64)(now - since) >= (__s64)LIMIT_DELAY_NS / 1000)
		emit_sock(info, sk, EV_SK_LATE, socket_clock_boot_ns(since), sock_srtt_us(sk));
}

/* The program sent `len` bytes. If they are on their way, the socket's clock was set for them (tcp_write_xmit()). */
static __always_inline void delay_sent(struct sock_info *info, struct tcp_sock *tp, __u32 len)
{
	bool none_before = tp && (__s32)(tp->snd_una - (tp->write_seq - len)) >= 0;

	if (!tp)
		return;
	if (none_before)
		info->queued_us = 0;
	if (!info->queued_us && tp->snd_nxt != tp->write_seq)
		info->queued_us = socket_clock_us();
	if (!none_before)
		return;
	info->sent_us = tp->snd_nxt == tp->write_seq ? tp->tcp_mstamp : socket_clock_us();
	if (info->resent_ns)
		info->resent_ns = 0;
}

/* The kernel sends some again. */
static __always_inline void delay_resent(struct sock *sk)
{
	struct sock_info *info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (!info || !tp)
		return;
	info->again_ns = bpf_ktime_get_boot_ns();
	if (info->resent_ns)
		return;
	if (info->sent_us)
		info->resent_ns = socket_clock_boot_ns(info->sent_us);
	info->resent_una = tp->snd_una;
	info->dsack_dups = tp->dsack_dups;
}

#endif
