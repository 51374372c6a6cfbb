/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bytes that only system calls show: pipes to and from a child (stdio.bpf.h), and sockets where the kernel has no
 * sock_send_length and sock_recv_length. User space attaches this while there is such a thing, and detaches it after.
 *
 * One program at the end of every system call: the registers that it began with are there still, with the result. A
 * tracepoint of each call by name would cost calls of other kinds half of this, but those that are asked for more, and
 * to detach one takes the kernel some 80 ms, in which nobody drains the ring.
 */
#include "callregs.bpf.h"
#include "moved.bpf.h"

/* Which direction the call moves bytes in; -1: none of ours. */
static __always_inline int call_dir(__u64 nr)
{
	if (nr == NR_WRITE || nr == NR_WRITEV || nr == NR_SENDTO || nr == NR_SENDMSG)
		return EV_DIR_TX;
	if (nr == NR_READ || nr == NR_READV || nr == NR_RECVFROM || nr == NR_RECVMSG)
		return EV_DIR_RX;
	return -1;
}

/* Of a call that moved none: that is no end of a file. Its third argument is how many, or how many buffers. */
static __always_inline bool asked_for_none(struct pt_regs *regs)
{
	return call_number(regs) != NR_RECVMSG && !CALL_ARG3(regs);
}

static __always_inline struct file *file_of(struct task_struct *task, __u64 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **fds = BPF_CORE_READ(table, fd), *file = NULL;

	if (fd >= BPF_CORE_READ(table, max_fds) || bpf_probe_read_kernel(&file, sizeof(file), fds + fd))
		return NULL;
	return file;
}

/* The end of the file: the other end of a Unix socket is gone, if that is one. */
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

static __always_inline int sock_called(struct file *file, struct plain_move *m)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	__u64 at = (__u64)sk, ino = BPF_CORE_READ(file, f_inode, i_ino);
	struct called *c;

	if (m->dir == EV_DIR_RX && (m->flags & MSG_NOT_TAKEN))
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
	m->now = bpf_ktime_get_boot_ns();
	bytes_moved(sk, c, &c->info, m, -1);
	if (c->info.plain != PLAIN_NEVER)
		sockets_wanted();
	else
		sockets_closed(c);
	return 0;
}

static __always_inline void call_moved(struct plain_move *m, __u64 fd)
{
	struct file *file = file_of(bpf_get_current_task_btf(), fd);
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	__u32 type = BPF_CORE_READ(inode, i_mode) & S_IFMT;

	if (type == S_IFSOCK && !cfg.sock_length) {
		sock_called(file, m);
	} else if (type == S_IFIFO && stdio_any) {
		plain_find(m);
		stdio_pipe_moved(BPF_CORE_READ(inode, i_ino), m);
		stdio_copy(m);
	}
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call_returned, struct pt_regs *regs, long ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plain_move m = {};
	int dir;

	if (ret < 0)
		return 0;
	dir = call_dir(call_number(regs));
	if (dir < 0 || (!ret && asked_for_none(regs)) ||
	    (cfg.sock_length && !is_hinted(task->tgid, HINT_PARENT | HINT_CHILD)) || !target_current() ||
	    is_32_bit(task, regs))
		return 0;
	m.len = ret;
	m.dir = dir;
	m.returned = 1;
	if (call_number(regs) == NR_RECVFROM)
		m.flags = CALL_ARG4(regs);
	else if (call_number(regs) == NR_RECVMSG)
		m.flags = CALL_ARG3(regs);
	call_moved(&m, CALL_ARG1(regs));
	return 0;
}

/* Run by probes_tick(): of Unix sockets nothing tells that they are closed, so what is known of them would stay. (Of
 * TCP sock_state() tells.) A number of an inode is not given away again. */
SEC("iter/bpf_map_elem")
int called_sweep(struct bpf_iter__bpf_map_elem *ctx)
{
	const struct called *c = ctx->value;
	const __u64 *key = ctx->key;
	__u64 at;

	if (!key || !c || c->info.addr.family)
		return 0;
	at = *key;
	if (ino_of((struct sock *)at) != c->ino)
		bpf_map_delete_elem(&called, &at);
	return 0;
}
