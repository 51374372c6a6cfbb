/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_DNS_BPF_H
#define PERFBPF_DNS_BPF_H

/* What targets ask name servers over UDP, and what they answer. */

#include "callregs.bpf.h"
#include "plain.bpf.h"
#include "sock.bpf.h"

#define DNS_PORT 53

static __always_inline bool is_udp(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_UDP &&
	       (sk->__sk_common.skc_family == AF_INET || sk->__sk_common.skc_family == AF_INET6);
}

/* Where the system call of the current thread sends to, if the call says so: a port, 0 none. Several messages of one
 * call go to the same place. */
static __always_inline __u16 named_port(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 nr, name = 0;
	__be16 to[2] = {}; /* struct sockaddr_in, and _in6: family, port */

	if (!in_call(task, regs))
		return 0;
	nr = call_number(regs);
	if (nr == NR_SENDTO)
		name = CALL_ARG5(regs);
	else if (nr == NR_SENDMSG || nr == NR_SENDMMSG)
		bpf_probe_read_user(&name, sizeof(name), (const void *)CALL_ARG2(regs));
	if (!name || bpf_probe_read_user(to, sizeof(to), (const void *)name))
		return 0;
	return bpf_ntohs(to[1]);
}

static __always_inline void emit_dns(struct sock_info *info, const struct plain_move *m)
{
	struct ev_dns *r = emit_reserve(sizeof(*r) + LIMIT_DNS_BYTES);
	__u64 n;

	if (!r)
		return;
	n = copy_head(r->bytes, m, LIMIT_DNS_BYTES);
	emit_head(&r->h, (sizeof(*r) + n + 7) & ~7u, EV_DNS, 0, m->now, bpf_get_current_pid_tgid() >> 32, conn_tid());
	r->start_ns = own_start_ns();
	r->cookie = info->cookie;
	r->exec_id = own_exec_id();
	r->len = n;
	r->dir = m->dir;
	__builtin_memset(r->pad, 0, sizeof(r->pad));
	emit_submit(r, sizeof(*r) + LIMIT_DNS_BYTES);
}

/* A datagram moved over a UDP socket. */
static __always_inline void dns_moved(struct sock *sk, __u32 dir, __u32 len)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plain_move m = {.len = len, .dir = dir};
	struct sock_info *info;

	if (!target_current())
		return;
	if (dir == EV_DIR_TX) {
		__u16 port = bpf_ntohs(sk->__sk_common.skc_dport);

		if ((port ? port : named_port()) != DNS_PORT)
			return;
		info = sock_own(sk, task->tgid);
		if (info)
			info->dns = 1;
	} else {
		info = bpf_sk_storage_get(&socks, sk, NULL, 0);
	}
	if (!info || !info->dns)
		return;
	m.now = bpf_ktime_get_boot_ns();
	m.cookie = info->cookie;
	plain_find(&m);
	if (m.found)
		emit_dns(info, &m);
}

#endif
