/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_GO_BPF_H
#define PERFBPF_GO_BPF_H

/*
 * Calls of Go programs: (*Conn).Read and (*Conn).Write of crypto/tls, by the register ABI of Go 1.17 and later
 * (cmd/compile/abi-internal.md). A call may return on another thread than it began on, and on another stack: what stays
 * is the goroutine (g), and the distance of everything on its stack from the stack's end. So a call's place is that
 * distance, and a buffer on the stack is looked for again at the return.
 *
 * A buffer that is handed to Write need not outlive it: the collector may give the memory of a []byte(text) to somebody
 * else as soon as Write has done with it, before it returns. Then what lies there is of another write, perhaps of
 * another connection. (Seen with 64 goroutines on two busy processors, once in some 600,000 writes.) Its first and last
 * bytes tell, which are marked at the entry.
 */

#include "calls.bpf.h"

/* Receiver and slice at the entry; g. The result is in the first register, as PT_REGS_RC() has it on arm64 too. */
#if defined(__TARGET_ARCH_x86)
#define GO_ARG1(x)   ((x)->ax)
#define GO_ARG2(x)   ((x)->bx)
#define GO_ARG3(x)   ((x)->cx)
#define GO_G(x)	     ((x)->r14)
#define GO_G_CORE(x) BPF_CORE_READ(x, r14)
#elif defined(__TARGET_ARCH_arm64)
#define GO_ARG1(x)   (((const struct user_pt_regs *)(x))->regs[0])
#define GO_ARG2(x)   (((const struct user_pt_regs *)(x))->regs[1])
#define GO_ARG3(x)   (((const struct user_pt_regs *)(x))->regs[2])
#define GO_G(x)	     (((const struct user_pt_regs *)(x))->regs[28])
#define GO_G_CORE(x) BPF_CORE_READ(x, regs[28])
#endif

/* Of a buffer's first and last bytes. */
__u32 go_mark(__u64 buf, __u64 len);

struct go_stack { /* the beginning of a g: runtime/runtime2.go */
	__u64 lo, hi;
};

/* Of the current process. */
static __always_inline void go_key_fill(struct go_key *key, __u64 g)
{
	key->g = g;
	key->tgid = bpf_get_current_pid_tgid() >> 32;
	key->run = (__u32)own_start_ns() + (own_exec_id() << 24);
}

static __always_inline bool go_stack_read(__u64 g, struct go_stack *stack)
{
	return !bpf_probe_read_user(stack, sizeof(*stack), (const void *)g);
}

static __always_inline struct open_calls *go_calls_of(const struct go_key *key)
{
	struct open_calls *open = bpf_map_lookup_elem(&go_calls, key);

	if (open)
		return open;
	bpf_map_update_elem(&go_calls, key, &no_calls, BPF_NOEXIST);
	return bpf_map_lookup_elem(&go_calls, key);
}

static __always_inline void go_call_begin(struct pt_regs *ctx, __u64 cookie)
{
	struct tls_call call = {};
	struct open_calls *open;
	struct go_stack stack;
	struct go_key key;

	go_key_fill(&key, GO_G(ctx));
	call.ip = PT_REGS_IP(ctx);
	call.entry_ns = bpf_ktime_get_boot_ns();
	call.role = TLS_COOKIE_ROLE(cookie);
	call.file = TLS_COOKIE_FILE(cookie);
	call.flags = CALL_GO | CALL_UNFREED;
	call.obj = GO_ARG1(ctx);
	call.buf = GO_ARG2(ctx);
	call.len_ptr = GO_ARG3(ctx);
	if (call.role == TLS_ROLE_WRITE)
		call.mark = go_mark(call.buf, call.len_ptr);
	if (!go_stack_read(key.g, &stack)) {
		call_refused(&call, ST_FAULT);
		return;
	}
	hint(key.tgid, HINT_GO);
	if (!cfg.sock_length)
		sockets_ns = call.entry_ns;
	call.sp = PT_REGS_SP(ctx) - stack.hi;
	if (call.buf >= stack.lo && call.buf < stack.hi) {
		call.buf = stack.hi - call.buf;
		call.flags |= CALL_ON_STACK;
	}
	open = go_calls_of(&key);
	if (open)
		call_add(open, &call);
	else
		call_refused(&call, ST_STATE_FULL);
}

/* At a RET: takes the call off. NULL: its entry was not seen. */
static __always_inline struct open_calls *go_call_end(struct pt_regs *ctx, __u32 role, struct go_key *key,
						      struct tls_call *call)
{
	struct open_calls *open;
	struct go_stack stack;

	go_key_fill(key, GO_G(ctx));
	open = bpf_map_lookup_elem(&go_calls, key);
	if (!open || !go_stack_read(key->g, &stack) || !call_pop(open, PT_REGS_SP(ctx) - stack.hi, role, call))
		return NULL;
	if (call->flags & CALL_ON_STACK)
		call->buf = stack.hi - call->buf;
	if (call->role == TLS_ROLE_WRITE && call->mark != go_mark(call->buf, call->len_ptr))
		call->flags |= CALL_OVERWRITTEN;
	return open;
}

/* The call that the current thread's goroutine is inside of, in a system call. */
static __always_inline struct tls_call *go_call_around(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct open_calls *open;
	struct tls_call *call;
	struct go_stack stack;
	struct go_key key;

	if (!is_hinted(task->tgid, HINT_GO))
		return NULL;
	go_key_fill(&key, GO_G_CORE(regs));
	open = bpf_map_lookup_elem(&go_calls, &key);
	if (!open || !open->depth || !go_stack_read(key.g, &stack))
		return NULL;
	call = call_at(open, open->depth - 1);
	return PT_REGS_SP_CORE(regs) - stack.hi > call->sp ? NULL : call;
}

#endif
