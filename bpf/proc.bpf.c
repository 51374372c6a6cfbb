/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Processes: children of targets become targets, programs are named, ends are told. Threads are no news.
 */
#include "conn.bpf.h"
#include "stdio.bpf.h"

#define PF_KTHREAD	  0x00200000 /* task_struct.flags: no program */
#define SIGNAL_GROUP_EXIT 4	     /* signal_struct.flags: group_exit_code is the process's */
#define SIGCHLD		  17

/* --- fork -------------------------------------------------------------------------------------------------------- */

/* System-wide, children of those that user space has not listed yet are as good. */
static __always_inline bool is_born_target(struct task_struct *parent, struct task_struct *child)
{
	return cfg.all && (__u32)parent->tgid != cfg.self_tgid && !(child->flags & PF_KTHREAD);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(proc_fork, struct task_struct *parent, struct task_struct *child)
{
	struct target *t = target_current(), born = {};
	__u32 tgid = child->tgid;
	struct ev_fork *r;

	if (child->pid != child->tgid || !(t || is_born_target(parent, child)))
		return 0;
	born.start_ns = child->start_boottime;
	born.provisional = t ? t->provisional : 0;
	if (target_add(tgid, &born))
		stat_add(ST_STATE_FULL, 1);
	if (is_hinted(parent->tgid, HINT_CHILD))
		hint(tgid, HINT_CHILD);
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	emit_head(&r->h, sizeof(*r), EV_FORK, 0, bpf_ktime_get_boot_ns(), parent->tgid, parent->pid);
	r->child_start_ns = born.start_ns;
	r->child_tgid = tgid;
	r->pad = 0;
	emit_submit(r, sizeof(*r));
	return 0;
}

/* --- exec -------------------------------------------------------------------------------------------------------- */

#define EXEC_ROOM (sizeof(struct ev_exec) + LIMIT_FILENAME_BYTES + LIMIT_ARGS_BYTES)

/* The argument vector of a new program, at `to`; its length without the last NUL. */
static __always_inline __u32 read_args(struct task_struct *task, void *to)
{
	unsigned long begin = BPF_CORE_READ(task, mm, arg_start);
	__u64 len = BPF_CORE_READ(task, mm, arg_end) - begin;
	bool whole = len <= LIMIT_ARGS_BYTES;

	asm volatile("" : "+r"(len));
	if (len > LIMIT_ARGS_BYTES)
		len = LIMIT_ARGS_BYTES;
	if (!len)
		return 0;
	if (bpf_probe_read_user(to, len, (const void *)begin)) {
		stat_add(ST_FAULT, 1);
		return 0;
	}
	return whole ? len - 1 : len;
}

static __always_inline void emit_exec(struct task_struct *task, const char *filename, bool pipes)
{
	struct ev_exec *r = emit_reserve(EXEC_ROOM);
	__u64 filename_len;
	long got;

	if (!r)
		return;
	r->start_ns = own_start_ns();
	r->exec_id = own_exec_id();
	r->ppid = BPF_CORE_READ(task, real_parent, tgid);
	bpf_get_current_comm(r->comm, sizeof(r->comm));
	got = bpf_probe_read_kernel_str(r->bytes, LIMIT_FILENAME_BYTES, filename);
	filename_len = got > 0 ? got - 1 : 0;
	asm volatile("" : "+r"(filename_len));
	if (filename_len > LIMIT_FILENAME_BYTES)
		filename_len = LIMIT_FILENAME_BYTES;
	r->filename_len = filename_len;
	r->args_len = read_args(task, (void *)r + sizeof(*r) + filename_len);
	emit_head(&r->h, (sizeof(*r) + r->filename_len + r->args_len + 7) & ~7u, EV_EXEC, 0, bpf_ktime_get_boot_ns(),
		  task->tgid, task->pid);
	/* Urgent: user space has to look at the new program's files before it speaks. System-wide it looks at mappings
	 * as they come, and nothing has to be decided, but what comes over pipes needs its help. */
	bpf_ringbuf_submit(r, cfg.all && !pipes ? emit_wake(EXEC_ROOM) : BPF_RB_FORCE_WAKEUP);
}

/* The child of a target: perhaps it speaks to its parent over its standard input and output. true: over pipes.
 * System-wide every process is a target, or is about to be one. */
static __always_inline bool look_at_stdio(struct task_struct *task, __u32 running)
{
	struct task_struct *parent = BPF_CORE_READ(task, real_parent), *leader = BPF_CORE_READ(parent, group_leader);
	struct conn_map_key key = {};
	struct target *t;

	key.start_ns = BPF_CORE_READ(leader, start_boottime);
	key.exec_id = BPF_CORE_READ(leader, self_exec_id);
	key.tgid = BPF_CORE_READ(parent, tgid);
	t = target_find(key.tgid);
	if (!cfg.all && (!t || t->start_ns != key.start_ns || t->provisional))
		return false;
	if (key.tgid == (__u32)task->tgid || key.tgid == cfg.self_tgid)
		return false;
	return stdio_note((__u64)BPF_CORE_READ(task, files), (__u64)BPF_CORE_READ(parent, files), &key, running);
}

/* Linux 6.10. An exec that has not failed yet, before descriptors close: the parent may wait for one that does (as node
 * does), and writes as soon as it has. */
SEC("tp_btf/sched_prepare_exec")
int BPF_PROG(proc_prepare_exec, struct task_struct *task)
{
	look_at_stdio(task, 0);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(proc_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	struct target provisional = {};
	__u32 tgid = task->tgid;
	struct thread *thread;

	if (tgid == cfg.self_tgid)
		return 0;
	if (!target_current()) {
		if (!cfg.follow_exec && !cfg.all)
			return 0;
		provisional.start_ns = own_start_ns();
		provisional.provisional = !cfg.all;
		if (target_add(tgid, &provisional))
			stat_add(ST_STATE_FULL, 1);
	}
	/* The thread lives on, its calls do not. */
	thread = thread_of(task, 0);
	if (thread) {
		thread->open.depth = 0;
		thread->waiting = 0;
		thread->wrote_ns = 0;
		thread->recv.cookie = 0;
	}
	emit_exec(task, bprm->filename, look_at_stdio(task, 0));
	return 0;
}

/* --- exit -------------------------------------------------------------------------------------------------------- */

/* Start times of processes that ended, by number. Where no parent is told they stay, until others need the room. */
struct leaving_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, LIMIT_LEAVING);
	__type(key, __u32);
	__type(value, __u64);
};
struct leaving_map leaving SEC(".maps");

/* Of a process whose last thread this is. */
static __always_inline __u64 cpu_time(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	__u64 ns = task->signal->sum_sched_runtime + task->se.sum_exec_runtime;

	return leader == task ? ns : ns + leader->se.sum_exec_runtime;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(proc_exit, struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	struct signal_struct *signal = task->signal;
	__u64 start_ns = leader->start_boottime;
	__u32 tgid = task->tgid;
	struct ev_exit *r;
	int code;

	thread_ends(task);
	if (signal->live.counter || !target_current())
		return 0;
	/* Two last threads may both find none alive: the one that deletes reports. */
	if (bpf_map_delete_elem(&targets, &tgid))
		return 0;
	bpf_map_update_elem(&leaving, &tgid, &start_ns, BPF_ANY);
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	code = signal->flags & SIGNAL_GROUP_EXIT ? signal->group_exit_code : leader->exit_code;
	emit_head(&r->h, sizeof(*r), EV_EXIT, 0, bpf_ktime_get_boot_ns(), tgid, task->pid);
	r->start_ns = start_ns;
	r->exec_id = leader->self_exec_id;
	r->code = (code >> 8) & 0xff;
	r->signal = code & 0x7f;
	r->max_rss_kib = signal->maxrss * cfg.page_kib;
	r->cpu_ns = cpu_time(task);
	emit_submit(r, sizeof(*r));
	return 0;
}

/* Its last thread tells its parent, or a tracer. */
SEC("tp_btf/signal_generate")
int BPF_PROG(proc_gone, int sig)
{
	struct task_struct *task;
	__u64 *start_ns;
	struct ev_gone *r;
	__u32 tgid;

	if (sig != SIGCHLD)
		return 0;
	task = bpf_get_current_task_btf();
	tgid = task->tgid;
	start_ns = bpf_map_lookup_elem(&leaving, &tgid);
	if (!start_ns || *start_ns != task->group_leader->start_boottime || bpf_map_delete_elem(&leaving, &tgid))
		return 0;
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	emit_head(&r->h, sizeof(*r), EV_GONE, 0, bpf_ktime_get_boot_ns(), tgid, task->pid);
	r->start_ns = task->group_leader->start_boottime;
	r->cpu_ns = cpu_time(task);
	emit_submit(r, sizeof(*r));
	return 0;
}

/* --- who is there already ---------------------------------------------------------------------------------------- */

/* Read by probes_identify() and probes_add_all(): processes as the kernel knows them. /proc has their start to 10 ms
 * only. Parents are targets before their children are asked for. */
SEC("iter/task")
int proc_list(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct proc_identity id = {};

	if (!task || task->pid != task->tgid || task->flags & PF_KTHREAD || !task->signal->live.counter)
		return 0;
	id.start_ns = task->start_boottime;
	id.exec_id = task->self_exec_id;
	id.tgid = task->tgid;
	bpf_seq_write(ctx->meta->seq, &id, sizeof(id));
	look_at_stdio(task, 1);
	return 0;
}
