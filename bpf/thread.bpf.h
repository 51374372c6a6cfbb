/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_THREAD_BPF_H
#define PERFBPF_THREAD_BPF_H

/*
 * What is kept of a thread. The kernel makes no task storage while, on the same processor, another thread that it
 * interrupted is in the middle of that or of giving it back (bpf_task_storage_trylock() in
 * kernel/bpf/bpf_task_storage.c): where kernels preempt themselves, and above all on PREEMPT_RT, that meets one in some
 * hundred threads that begin at once. What is kept of such a thread is in `unstored`, for its life.
 *
 * Before Linux 6.2 storage that is there may not be found at such a moment either, and nobody can tell the one from the
 * other. There what is refused is counted, and marked where bytes are lost by it.
 */

#include "emit.bpf.h"

/* Of the current thread. NULL: there is nothing yet, or nothing could be made (BPF_LOCAL_STORAGE_GET_F_CREATE). Apart:
 * its key is not on the stack of a program, whose calls go deep. */
static __noinline struct thread *thread_of(struct task_struct *task, __u64 flags)
{
	__u64 key = (__u64)task;
	struct thread *t = NULL;

	if (is_hinted(task->tgid, HINT_UNSTORED)) {
		t = bpf_map_lookup_elem(&unstored, &key);
		if (t)
			return t;
	}
	if (cfg.unstored != UNSTORED_ALL)
		t = bpf_task_storage_get(&threads, task, NULL, flags);
	if (t || !flags || cfg.unstored == UNSTORED_LOST)
		return t;
	hint(task->tgid, HINT_UNSTORED);
	bpf_map_update_elem(&unstored, &key, &no_thread, BPF_NOEXIST);
	return bpf_map_lookup_elem(&unstored, &key);
}

/* The barrier keeps clang from knowing what a function returns: it would leave out the bounds that the verifier needs.
 */
static __always_inline struct waiting_write *write_at(struct thread *t, __u32 slot)
{
	asm volatile("" : "+r"(slot));
	return &t->writes[slot & (LIMIT_WRITES - 1)];
}

/* The current thread ends. */
static __always_inline void thread_ends(struct task_struct *task)
{
	__u64 key = (__u64)task;

	if (is_hinted(task->tgid, HINT_UNSTORED))
		bpf_map_delete_elem(&unstored, &key);
}

#endif
