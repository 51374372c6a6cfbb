/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "keeper.h"

#include <errno.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "privilege.h"
#include "sandbox.h"

static int keeper_fd = -1;
static pid_t keeper_pid = -1;

static int enable_stats(void)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.enable_stats.type = BPF_STATS_RUN_TIME;
	return (int)syscall(SYS_bpf, BPF_ENABLE_STATS, &attr, sizeof(attr));
}

/* One byte, and the descriptor beside it. Without one the byte alone says that there is none. */
static ssize_t hand_over(int to, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char byte = 0;
	struct iovec piece = {&byte, 1};
	struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};

	if (fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control.room);
		control.head = (struct cmsghdr){
			.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	return sendmsg(to, &m, MSG_NOSIGNAL);
}

/* In the child. Never returns: the end of perfbpf, however it comes, is the end of its socket. Ctrl-C goes to all
 * programs of a terminal, and is not meant for this one. */
static void serve(int fd)
{
	sigset_t all;
	char byte;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, "perfbpf-keeper");
	if (dup2(fd, 3) != 3 || syscall(SYS_close_range, 4u, ~0u, 0u) || syscall(SYS_close_range, 0u, 2u, 0u))
		_exit(1);
	privilege_keep_stats();
	sandbox_enter_keeper();
	while (read(3, &byte, 1) == 1) {
		int stats = enable_stats();

		if (hand_over(3, stats) != 1)
			break;
		if (stats >= 0)
			close(stats);
	}
	_exit(0);
}

int keeper_start(void)
{
	int ends[2], err;

	if (!privilege_has(CAP_SYS_ADMIN))
		return -EPERM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	keeper_pid = fork();
	err = keeper_pid < 0 ? -errno : 0;
	if (!keeper_pid)
		serve(ends[1]);
	close(ends[1]);
	if (err)
		close(ends[0]);
	else
		keeper_fd = ends[0];
	return err;
}

int keeper_stats(void)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	char byte = 0;
	struct iovec piece = {&byte, 1};
	struct msghdr m = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.room)};
	int fd;

	if (keeper_fd < 0 || write(keeper_fd, &byte, 1) != 1 || recvmsg(keeper_fd, &m, MSG_CMSG_CLOEXEC) != 1)
		return -EPERM;
	if (m.msg_controllen < CMSG_LEN(sizeof(int)) || control.head.cmsg_type != SCM_RIGHTS)
		return -EPERM;
	memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}

void keeper_stop(void)
{
	if (keeper_fd < 0)
		return;
	close(keeper_fd);
	keeper_fd = -1;
	waitpid(keeper_pid, NULL, 0);
}
