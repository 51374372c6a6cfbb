/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_SOCK_BPF_H
#define PERFBPF_SOCK_BPF_H

/* A socket's storage, and what is told of it: for the programs that its own tracepoints run. */

#include "moved.bpf.h"

/* Added to a socket's cookie when it connects again. The kernel counts sockets, and has not made as many. */
#define SOCK_AGAIN (1ull << 48)

/* The socket is used by a process that is not its owner: by the next one, if that has ended. */
int sock_inherit(struct sock_info *info, __u32 tgid);

/* A socket that a target uses: its storage, made at the first sight. The first owner stays, as long as it is there. */
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
	} else if (info->tgid != tgid) {
		sock_inherit(info, tgid);
	}
	return info;
}

static __always_inline __u32 sock_srtt_us(struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	return tp ? tp->srtt_us >> 3 : 0;
}

/* Without what the other side takes to acknowledge, which is in most others: the kernel keeps it for some minutes. */
static __always_inline __u32 rtt_min_us(struct tcp_sock *tp)
{
	__u32 us = tp->rtt_min.s[0].v;

	return us == ~0u ? 0 : us;
}

/* System-wide, what becomes of a socket is told once it is known to carry what may be a model's call; that it came and
 * went always, so that nobody remembers it for ever. */
static __always_inline bool is_told(const struct sock_info *info, __u32 what)
{
	return !cfg.all || !cfg.sock_length || info->tls || info->plain == PLAIN_HTTP || what == EV_SK_CONNECTING ||
	       what == EV_SK_CONNECTED || what == EV_SK_CONNECT_FAILED || what == EV_SK_CLOSED;
}

/* begin_ns: 0 where `what` is a moment. */
static __always_inline void emit_sock_at(struct sock_info *info, struct sock *sk, __u32 what, __u64 begin_ns,
					 __u64 ts_ns, __u32 srtt_us)
{
	struct ev_sock *r;

	if (!is_told(info, what))
		return;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return;
	emit_head(&r->h, sizeof(*r), EV_SOCK, 0, ts_ns, info->tgid, info->connector);
	r->cookie = info->cookie;
	r->begin_ns = begin_ns;
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

static __always_inline void emit_sock(struct sock_info *info, struct sock *sk, __u32 what, __u64 begin_ns,
				      __u32 srtt_us)
{
	emit_sock_at(info, sk, what, begin_ns, bpf_ktime_get_boot_ns(), srtt_us);
}

#endif
