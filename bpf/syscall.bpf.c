/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bytes that only system calls show: pipes to and from a child (stdio.bpf.h), and sockets where the kernel has no
 * sock_send_length and sock_recv_length. User space attaches this while there is such a thing, and detaches it after.
 *
 * One program at the end of every system call: the registers that it began with are there still, with the result. A
 * tracepoint of each call by name would cost calls of other kinds half of this, but those that are asked for more, and
 * to detach one takes the kernel some 80 ms, in which nobody drains the ring.
 */
#include "emit.bpf.h"
#include "callregs.bpf.h"
#include "plain.bpf.h"
#include "stdio.bpf.h"

/* Which direction the call moves bytes in; -1: none of ours. */
static __always_inline int call_dir(__u64 nr)
{
	if (nr == NR_WRITE || nr == NR_WRITEV || nr == NR_SENDTO || nr == NR_SENDMSG)
		return EV_DIR_TX;
	if (nr == NR_READ || nr == NR_READV || nr == NR_RECVFROM || nr == NR_RECVMSG)
		return EV_DIR_RX;
	return -1;
}

static __always_inline struct file *file_of(struct task_struct *task, __u64 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **fds = BPF_CORE_READ(table, fd), *file = NULL;

	if (fd >= BPF_CORE_READ(table, max_fds) || bpf_probe_read_kernel(&file, sizeof(file), fds + fd))
		return NULL;
	return file;
}

static __always_inline void call_moved(struct plain_move *m, __u64 fd)
{
	struct file *file = file_of(bpf_get_current_task_btf(), fd);
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	__u32 type = BPF_CORE_READ(inode, i_mode) & S_IFMT;

	if (type == S_IFSOCK && !cfg.sock_length) {
		sock_called((__u64)file, m);
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
	if (dir < 0 || !target_of(task) || is_32_bit(task, regs))
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
