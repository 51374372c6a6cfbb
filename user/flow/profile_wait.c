/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile_wait.h"

#include <sys/syscall.h>

#include "base/err.h"

/* Beginnings of names in the kernel's stacks (Linux 5.15 to 6.18), the more telling ones first. */
static const struct {
	struct sv begin;
	enum profile_kind kind;
} functions[] = {
	{{"futex_", 6}, PROFILE_FUTEX},
	{{"do_futex", 8}, PROFILE_FUTEX},
	{{"ep_poll", 7}, PROFILE_POLL},
	{{"do_epoll_wait", 13}, PROFILE_POLL},
	{{"do_sys_poll", 11}, PROFILE_POLL},
	{{"do_select", 9}, PROFILE_POLL},
	{{"io_cqring_wait", 14}, PROFILE_POLL},
	{{"sock_", 5}, PROFILE_SOCKET},
	{{"tcp_", 4}, PROFILE_SOCKET},
	{{"inet_", 5}, PROFILE_SOCKET},
	{{"unix_", 5}, PROFILE_SOCKET},
	{{"__skb_", 6}, PROFILE_SOCKET},
	{{"pipe_", 5}, PROFILE_PIPE},
	{{"anon_pipe_", 10}, PROFILE_PIPE},
	{{"io_schedule", 11}, PROFILE_DISK},
	{{"folio_wait", 10}, PROFILE_DISK},
	{{"wait_on_page", 12}, PROFILE_DISK},
	{{"blk_", 4}, PROFILE_DISK},
	{{"submit_bio", 10}, PROFILE_DISK},
	{{"jbd2_", 5}, PROFILE_DISK},
	{{"do_nanosleep", 12}, PROFILE_SLEEP},
	{{"hrtimer_nanosleep", 17}, PROFILE_SLEEP},
	{{"do_wait", 7}, PROFILE_CHILD},
	{{"kernel_wait4", 12}, PROFILE_CHILD},
	{{"kernel_clone", 12}, PROFILE_CHILD}, /* of vfork: until it execs */
	/* Of the process's memory, with nothing further in that waits for a disk: its lock (mmap_lock), as a rule. */
	{{"do_user_addr_fault", 18}, PROFILE_OTHER},
	{{"do_page_fault", 13}, PROFILE_OTHER},
	{{"vm_mmap_pgoff", 13}, PROFILE_OTHER},
	{{"__vm_munmap", 11}, PROFILE_OTHER},
	{{"do_mprotect_pkey", 16}, PROFILE_OTHER},
	{{"do_madvise", 10}, PROFILE_OTHER},
};

enum profile_kind profile_wait_of_function(struct sv name)
{
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
		if (sv_starts(name, functions[i].begin))
			return functions[i].kind;
	return PROFILE_KINDS;
}

bool profile_is_scheduler(struct sv name)
{
	return sv_starts(name, SV("bpf_")) || sv_starts(name, SV("__bpf_")) || sv_starts(name, SV("__traceiter_")) ||
	       sv_eq(name, SV("__schedule")) || sv_eq(name, SV("schedule"));
}

static enum profile_kind of_number(int32_t number)
{
	switch (number) {
	case SYS_futex:
		return PROFILE_FUTEX;
	case SYS_epoll_pwait:
	case SYS_ppoll:
	case SYS_pselect6:
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
	case SYS_poll:
	case SYS_select:
#endif
		return PROFILE_POLL;
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_connect:
	case SYS_accept:
	case SYS_accept4:
		return PROFILE_SOCKET;
	case SYS_nanosleep:
	case SYS_clock_nanosleep:
		return PROFILE_SLEEP;
	case SYS_wait4:
	case SYS_waitid:
#ifdef SYS_vfork
	case SYS_vfork:
#endif
		return PROFILE_CHILD;
	case SYS_fsync:
	case SYS_fdatasync:
	case SYS_pread64:
	case SYS_pwrite64:
	case SYS_openat:
		return PROFILE_DISK;
	}
	return PROFILE_OTHER;
}

enum profile_kind profile_wait_of_call(const struct rec_sample *r)
{
	enum profile_kind kind = of_number(r->syscall);

	return kind == PROFILE_OTHER && (r->iowait || r->disk) ? PROFILE_DISK : kind;
}
