/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "slice.h"

#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS	   100000ull /* the least that the kernel takes (kernel/sched/syscalls.c) */
#define FLAG_RESET_ON_FORK 1ull /* SCHED_FLAG_RESET_ON_FORK of linux/sched.h, which does not go with libc's sched.h */

void slice_shorten(void)
{
	struct sched_attr attr = {.size = sizeof(attr)};

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0))
		return;
	if (attr.sched_policy) /* SCHED_OTHER is 0: whoever chose another knows why */
		return;
	attr.sched_runtime = SLICE_NS;
	attr.sched_flags |= FLAG_RESET_ON_FORK;
	(void)!syscall(SYS_sched_setattr, 0, &attr, 0);
}
