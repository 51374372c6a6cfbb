/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_DELAY_BPF_H
#define PERFBPF_DELAY_BPF_H

/* How long bytes of a target's TCP socket waited: what sock.bpf.c knows of it. delay.bpf.c says more. */

#include "sock.bpf.h"

static __always_inline void delay_tell(struct sock *sk, struct sock_info *info, __u32 what, __u64 begin_ns)
{
	if (begin_ns && bpf_ktime_get_boot_ns() - begin_ns >= LIMIT_DELAY_NS)
		emit_sock(info, sk, what, begin_ns, sock_srtt_us(sk));
}

/* A receive ended; it brought bytes, or did not. What it leaves waits from its end on: the program was there. */
static __always_inline void delay_read(struct sock *sk, struct sock_info *info, struct tcp_sock *tp, bool brought,
				       __u64 now)
{
	__u64 since = info->unread_ns;

	info->unread_ns = 0;
	if (tp->copied_seq != tp->rcv_nxt) {
		info->unread_seq = tp->copied_seq;
		info->unread_ns = now;
	}
	if (brought && since && (__s64)(now - since) >= (__s64)LIMIT_DELAY_NS)
		delay_tell(sk, info, EV_SK_LATE, since);
}

/* The program sent `len` bytes. */
static __always_inline void delay_sent(struct sock *sk, struct sock_info *info, __u32 len, __u64 now)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (!tp || (__s32)(tp->snd_una - (tp->write_seq - len)) < 0)
		return;
	info->sent_ns = now;
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
	info->resent_ns = info->sent_ns;
	info->resent_una = tp->snd_una;
	info->dsack_dups = tp->dsack_dups;
}

#endif
