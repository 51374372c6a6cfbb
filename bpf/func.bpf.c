/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls of functions that the user named (-f). The open ones of a thread are a stack. An entry is found again by the
 * stack pointer: at a RET or a jump into another function it is what it was at the entry, at a return probe the return
 * address is gone. What lies above it there was left by longjmp or an exception.
 *
 * Every call is counted; spans are told up to a rate (LIMIT_FUNC_SPANS), so that a hot function cannot push everything
 * else out. User space tells where the functions are, and takes the probes away from one that is called too often.
 */
#include "conn.bpf.h"

struct func_call {
	__u64 sp;
	__u64 begin_ns;
	__u32 func;
	__u32 pad;
};

struct func_calls {
	struct func_call calls[LIMIT_FUNC_NEST];
	__u32 depth;
	__u32 exec_id; /* of the program whose calls these are */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct func_calls);
} func_threads SEC(".maps");

struct func_rate func_rates[LIMIT_FUNCS] = {};

static __always_inline struct func_call *func_call_at(struct func_calls *c, __u64 i)
{
	asm volatile("" : "+r"(i)); /* the mask stays right before its use */
	return &c->calls[i & (LIMIT_FUNC_NEST - 1)];
}
EV_ASSERT((LIMIT_FUNC_NEST & (LIMIT_FUNC_NEST - 1)) == 0);

struct func_search {
	struct func_calls *open;
	__u64 sp;
	__u32 func;
	__u32 depth;
	__u32 left; /* calls that nobody will see the end of */
	__u32 entry;
};

/* One call from the top: 1: the search is over. */
static __noinline long func_search_step(__u32 index, struct func_search *s)
{
	const struct func_call *top;

	(void)index;
	if (!s->depth)
		return 1;
	top = func_call_at(s->open, s->depth - 1);
	if (top->sp > s->sp)
		return 1;
	/* The same place: a tail call into another function leaves its caller open. Else an entry means that the call
	 * there was left, and an end that what it called last was. */
	if (top->sp == s->sp && (top->func == s->func) != s->entry)
		return 1;
	s->left++;
	s->depth--;
	return 0;
}

static __always_inline __u32 func_search(struct func_calls *open, __u64 sp, __u32 func, __u32 entry)
{
	struct func_search s = {.open = open, .sp = sp, .func = func, .depth = open->depth, .entry = entry};

	bpf_loop(LIMIT_FUNC_NEST, func_search_step, &s, 0);
	if (s.left)
		stat_add(ST_MISSED_RETURN, s.left);
	return s.depth;
}

/* Whether the span of this call is told. Two processors at once may tell one more: no harm. */
static __always_inline bool func_may_tell(struct func_rate *rate, __u64 now)
{
	__u64 window = now / FUNC_WINDOW_NS;

	if (rate->window != window) {
		rate->window = window;
		rate->in_window = 0;
	}
	return __sync_fetch_and_add(&rate->in_window, 1) < LIMIT_FUNC_SPANS;
}

static __noinline int func_tell(const struct func_call *call, __u32 depth, __u64 now)
{
	struct func_rate *rate = &func_rates[call->func & (LIMIT_FUNCS - 1)];
	struct conn_map_key key;
	struct ev_func_call *r;

	if (!func_may_tell(rate, now)) {
		__sync_fetch_and_add(&rate->untold, 1);
		return 0;
	}
	r = emit_reserve(sizeof(*r));
	if (!r)
		return 0;
	conn_key(&key, 0);
	emit_head(&r->h, sizeof(*r), EV_FUNC_CALL, 0, now, key.tgid, conn_tid());
	r->start_ns = key.start_ns;
	r->begin_ns = call->begin_ns;
	r->exec_id = key.exec_id;
	r->func = call->func;
	r->depth = depth;
	r->pad = 0;
	emit_submit(r, sizeof(*r));
	return 0;
}

SEC("uprobe")
int func_entry(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 func = TLS_COOKIE_LEN_ARG(bpf_get_attach_cookie(ctx)) & (LIMIT_FUNCS - 1), depth, exec_id;
	struct func_call call = {.begin_ns = bpf_ktime_get_boot_ns(), .sp = PT_REGS_SP(ctx), .func = func};
	struct func_calls *open;

	if (func_rates[func].stopped || !target_current())
		return 0;
	__sync_fetch_and_add(&func_rates[func].calls, 1);
	open = bpf_task_storage_get(&func_threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!open) {
		stat_add(ST_STATE_FULL, 1);
		return 0;
	}
	exec_id = own_exec_id();
	if (open->exec_id != exec_id) { /* the thread lives on, its calls do not */
		open->exec_id = exec_id;
		open->depth = 0;
	}
	depth = func_search(open, call.sp, func, 1);
	if (depth >= LIMIT_FUNC_NEST) {
		stat_add(ST_NEST_OVERFLOW, 1);
		return 0;
	}
	*func_call_at(open, depth) = call;
	open->depth = depth + 1;
	return 0;
}

/* At a return probe, a RET, or a jump into another function. */
SEC("uprobe")
int func_exit(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct func_calls *open = bpf_task_storage_get(&func_threads, task, NULL, 0);
	__u64 cookie = bpf_get_attach_cookie(ctx), sp = PT_REGS_SP(ctx), now = bpf_ktime_get_boot_ns();
	__u32 func = TLS_COOKIE_LEN_ARG(cookie) & (LIMIT_FUNCS - 1), depth;
	struct func_call call;

	if (!open || !target_current())
		return 0;
	if (TLS_COOKIE_ROLE(cookie) == FUNC_ROLE_CALL)
		sp -= RETURN_SP_SHIFT;
	depth = func_search(open, sp, func, 0);
	open->depth = depth;
	if (!depth)
		return 0; /* it was entered before it was probed */
	call = *func_call_at(open, depth - 1);
	if (call.sp != sp || call.func != func)
		return 0;
	open->depth = depth - 1;
	func_tell(&call, depth - 1, now);
	return 0;
}
