/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where threads of targets spend their time. On a processor: a software clock of each one fires, and who runs there is
 * looked at (--cpu). Off it: the scheduler tells who leaves and who comes, and a wait that was long enough is told with
 * the stack that it began with (--off-cpu). Nobody else is slowed, nor any other profiler: clocks and tracepoints have
 * as many users as they like.
 */
#include "callregs.bpf.h"
#include "sample.bpf.h"

#define TASK_UNINTERRUPTIBLE 2
#define TASK_DEAD	     0x80
#define TASK_NOLOAD	     0x400 /* TASK_IDLE: uninterruptible, and not counted as such */

#define KERNEL_BYTES (LIMIT_KERNEL_FRAMES * sizeof(__u64))

#define SAMPLE_ROOM (sizeof(struct ev_sample) + KERNEL_BYTES + USER_BYTES)

/* --- on a processor ---------------------------------------------------------------------------------------------- */

/* Stacks of the thread that runs here now, by frame pointers. */
static __always_inline void take_stacks(void *ctx, struct ev_sample *ev)
{
	void *frames = (void *)ev + sizeof(*ev);
	/* Of a thread that was interrupted in user mode there is no kernel stack: an error. */
	long kernel = bpf_get_stack(ctx, frames, KERNEL_BYTES, 0), user;

	if (kernel < 0)
		kernel = 0;
	user = bpf_get_stack(ctx, frames + kernel, USER_BYTES, BPF_F_USER_STACK);
	if (user < 0)
		user = 0;
	set_stacks(ev, kernel, user);
}

static __always_inline int sample_here(void *ctx, __u8 what, __u64 weight)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ev_sample *ev;

	if (!target_of(task))
		return 0;
	ev = sample_reserve(SAMPLE_ROOM);
	if (!ev)
		return 0;
	sample_begin(ev, task, what);
	ev->weight_ns = weight;
	take_stacks(ctx, ev);
	emit_submit(ev, SAMPLE_ROOM);
	return 0;
}

SEC("perf_event")
int sample_cpu(void *ctx)
{
	return sample_here(ctx, EV_SAMPLE_CPU, cfg.period_ns);
}

/* Memory that a program touches for the first time (--alloc): where it grows, whoever hands it out. */
SEC("perf_event")
int sample_fault(void *ctx)
{
	return sample_here(ctx, EV_SAMPLE_FAULT, cfg.fault_period);
}

/* --- off it ------------------------------------------------------------------------------------------------------ */

/* A thread of a target: from its first wait to its end. */
struct waiting {
	__u64 woken_ns; /* 0: not yet */
	__u64 user_len; /* of user, bytes */
	struct ev_head head;
	__u64 rest[(sizeof(struct ev_sample) - sizeof(struct ev_head)) / sizeof(__u64)];
	__u64 user[LIMIT_USER_FRAMES];
};

struct waits_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LIMIT_WAITING);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* tid */
	__type(value, struct waiting);
};

struct waits_map waits SEC(".maps");

/* Too large for the stack of a program. */
static const struct waiting no_wait = {};

static __always_inline struct ev_sample *sample_of(struct waiting *w)
{
	return (void *)&w->head;
}

/* NULL: no room, counted. */
static __always_inline struct waiting *waiting_of(__u32 tid)
{
	struct waiting *w = bpf_map_lookup_elem(&waits, &tid);

	if (w)
		return w;
	if (!bpf_map_update_elem(&waits, &tid, &no_wait, BPF_ANY))
		w = bpf_map_lookup_elem(&waits, &tid);
	if (!w)
		stat_add(ST_SAMPLES, 1);
	return w;
}

static __always_inline void describe_wait(struct ev_sample *ev, struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u32 state = task->__state;

	if (!is_32_bit(task, regs))
		ev->syscall = call_number(regs);
	if (state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD))
		ev->state |= EV_SAMPLE_DISK;
	if (BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait))
		ev->state |= EV_SAMPLE_IOWAIT;
}

/* It leaves. The program's stack can be read only now, before anybody knows how long it will be away. */
static __always_inline void wait_begin(void *ctx, struct task_struct *task, bool preempted)
{
	__u32 state = task->__state, tid = task->pid;
	bool queued = preempted || !state;
	struct ev_sample *ev;
	struct waiting *w;
	long user;

	if (!queued && state & TASK_DEAD) {
		bpf_map_delete_elem(&waits, &tid);
		return;
	}
	w = waiting_of(tid);
	if (!w)
		return;
	ev = sample_of(w);
	sample_begin(ev, task, queued ? EV_SAMPLE_QUEUED : EV_SAMPLE_OFF);
	w->woken_ns = 0;
	w->user_len = 0;
	if (queued)
		return;
	describe_wait(ev, task);
	user = bpf_get_stack(ctx, w->user, USER_BYTES, BPF_F_USER_STACK);
	if (user > 0)
		w->user_len = user;
}

/* The kernel's stack of a thread that is about to come back lies as it left it. */
static __always_inline void tell_wait(struct task_struct *task, struct waiting *w)
{
	struct ev_sample *ev = sample_reserve(SAMPLE_ROOM);
	void *frames = (void *)ev + sizeof(*ev);
	__u64 user = w->user_len;
	long kernel = 0;

	if (!ev)
		return;
	__builtin_memcpy(ev, sample_of(w), sizeof(*ev));
	if (ev->what == EV_SAMPLE_OFF)
		kernel = bpf_get_task_stack(task, frames, KERNEL_BYTES, 0);
	if (kernel < 0)
		kernel = 0;
	asm volatile("" : "+r"(user));
	if (user > USER_BYTES || (user && bpf_probe_read_kernel(frames + kernel, user, w->user)))
		user = 0;
	set_stacks(ev, kernel, user);
	emit_submit(ev, SAMPLE_ROOM);
}

static __always_inline void wait_end(struct task_struct *task)
{
	__u64 now = bpf_ktime_get_boot_ns(), woken;
	__u32 tid = task->pid;
	struct waiting *w = bpf_map_lookup_elem(&waits, &tid);
	struct ev_sample *ev;

	if (!w)
		return;
	ev = sample_of(w);
	/* 0: it came back already. Another start: what a thread of this number, of another process, left behind. */
	if (!ev->what || ev->h.tgid != (__u32)task->tgid || ev->start_ns != task->group_leader->start_boottime)
		return;
	woken = ev->what == EV_SAMPLE_QUEUED ? ev->h.ts_ns : w->woken_ns ? w->woken_ns : now;
	ev->weight_ns = woken - ev->h.ts_ns;
	ev->queue_ns = now - woken;
	ev->h.ts_ns = now;
	if (ev->weight_ns >= cfg.off_cpu_min_ns || ev->queue_ns >= cfg.off_cpu_min_ns)
		tell_wait(task, w);
	ev->what = 0;
}

/*
 * Who was named (-n) may fall asleep before user space has decided that it is meant: it counts from its exec on, and
 * what is told of others is nobody's there. They leave their last wait behind when they are let go, until they end; and
 * so does the last thread of every process, which is no target any more when it leaves for good.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(sample_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 tid = prev->pid;

	if (target_of(prev))
		wait_begin(ctx, prev, preempt);
	else if (prev->__state & TASK_DEAD)
		bpf_map_delete_elem(&waits, &tid);
	if (target_of(next))
		wait_end(next);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sample_wakeup, struct task_struct *task)
{
	__u32 tid = task->pid;
	struct waiting *w;

	if (!target_of(task))
		return 0;
	w = bpf_map_lookup_elem(&waits, &tid);
	if (w && !w->woken_ns)
		w->woken_ns = bpf_ktime_get_boot_ns();
	return 0;
}
