/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_SAMPLE_BPF_H
#define PERFBPF_SAMPLE_BPF_H

/* What all samples begin with: of where a thread runs or waits (sample.bpf.c), and of what it allocates (alloc.bpf.c).
 */

#include "emit.bpf.h"

#define USER_BYTES (LIMIT_USER_FRAMES * sizeof(__u64))

static __always_inline void sample_begin(struct ev_sample *ev, struct task_struct *task, __u8 what)
{
	emit_head(&ev->h, sizeof(*ev), EV_SAMPLE, 0, bpf_ktime_get_boot_ns(), task->tgid, task->pid);
	ev->start_ns = task->group_leader->start_boottime;
	ev->weight_ns = 0;
	ev->queue_ns = 0;
	ev->exec_id = task->group_leader->self_exec_id;
	ev->syscall = -1;
	ev->what = what;
	ev->state = 0;
	ev->kernel_frames = 0;
	ev->user_frames = 0;
	ev->period = 0;
	bpf_get_current_comm(ev->comm, sizeof(ev->comm));
}

/* Samples may fill half of the ring: what is said in calls is not lost, nor copied in part only (attach/overload.h),
 * for their sake. NULL: no room, counted. */
static __always_inline void *sample_reserve(__u64 size)
{
	void *room = NULL;

	if (bpf_ringbuf_query(&rb, BPF_RB_AVAIL_DATA) < cfg.ring_bytes / 2)
		room = bpf_ringbuf_reserve(&rb, size, 0);
	if (!room)
		stat_add(ST_SAMPLES, 1);
	return room;
}

/* What a stack was read into, once it is known how long both are. */
static __always_inline void set_stacks(struct ev_sample *ev, long kernel, long user)
{
	ev->kernel_frames = kernel / sizeof(__u64);
	ev->user_frames = user / sizeof(__u64);
	ev->state |= user == USER_BYTES ? EV_SAMPLE_DEEP : 0;
	ev->h.size = sizeof(*ev) + kernel + user;
}

#endif
