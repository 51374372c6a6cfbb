/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a process allocates (--alloc), while its window is open: user space attaches this to the functions of its
 * allocators for some milliseconds now and then, tells whose window it is, and takes it away again
 * (attach/allocwatch.h). Every call is counted, with its bytes; of some the stack is told, and their address is
 * followed up to their free(), as far as that comes in a window.
 *
 * Which ones: each byte has the same chance, whatever came before it, so that no rhythm of the program can hide from
 * it. The distance to the next one is drawn anew with each sample.
 *
 * A function may hand on to another one (operator new, a wrapper that was preloaded): what is called from within
 * LIMIT_ALLOC_FRAME bytes of code behind the first probe, for as many bytes or more, is the same allocation.
 */
#include "conn.bpf.h"
#include "sample.bpf.h"

#define ALLOC_ROOM     (sizeof(struct ev_sample) + USER_BYTES)
#define SIZE_MAX_ASKED (1ull << 47) /* more is an error of the program, and fails */

/* Written by user space. */
__u32 alloc_process = 0; /* whose functions are probed; 0: nobody's */
__u32 alloc_open = 0;	 /* not 0: its window is open, and this is its number */
__u32 alloc_period = 0;	 /* bytes from one sample to the next, in the mean */
__u32 alloc_follows = 0; /* not 0: what is freed is probed too */
struct alloc_sums alloc_sums[LIMIT_ALLOC_SLOTS] = {};
__u32 alloc_layers = 0; /* not 0: who calls which function is counted */
struct alloc_site alloc_sites[LIMIT_ALLOC_SITES] = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LIMIT_FOLLOWED);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct conn_map_key); /* obj: the address */
	__type(value, __u64);		  /* nothing of meaning */
} followed SEC(".maps");

struct alloc_thread {
	/* The last call. */
	__u64 sp, ip, size, ret;
	__u64 first; /* of those that handed on to it: where that one was probed */
	__u32 open;  /* and in which window that was */
	__u32 told;  /* not 0: which of two calls in the same place called the other one can be told */
	/* A sampled call that has not returned. */
	__u64 sampled_sp; /* that the return will see; 0: none */
	__u64 sampled_size;
	__u64 at;	  /* where its address will be; 0: it is returned */
	__u64 trampoline; /* return address of calls whose return is wanted; 0: not known yet */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct alloc_thread);
} alloc_threads SEC(".maps");

static __always_inline struct alloc_sums *sums_here(void)
{
	return &alloc_sums[bpf_get_smp_processor_id() & (LIMIT_ALLOC_SLOTS - 1)];
}

/* By a number of the cookie; 0: none. */
static __always_inline __u64 register_of(struct pt_regs *ctx, __u32 n)
{
	__u64 value = 0;

	/* Read at constant places, as the verifier wants it; what a compiler makes one load of is refused. */
#define CASE(number, place)                                                                                            \
	case number:                                                                                                   \
		value = (place);                                                                                       \
		asm volatile("" : "+r"(value));                                                                        \
		break
	switch (n) {
#if defined(__TARGET_ARCH_x86)
		CASE(1 + 0, ctx->ax);
		CASE(1 + 1, ctx->cx);
		CASE(1 + 2, ctx->dx);
		CASE(1 + 6, ctx->si);
		CASE(1 + 7, ctx->di);
		CASE(1 + 8, ctx->r8);
		CASE(1 + 9, ctx->r9);
		CASE(1 + 10, ctx->r10);
		CASE(1 + 11, ctx->r11);
#else
		CASE(1, PT_REGS_PARM1(ctx));
		CASE(2, PT_REGS_PARM2(ctx));
		CASE(3, PT_REGS_PARM3(ctx));
#endif
	}
#undef CASE
	return value;
}

/* -ln(u / 2^32) of a random u, in 65536ths: log2 by its highest bit, and a parabola for the bits below it. */
static __always_inline __u64 draw(void)
{
	__u64 u = bpf_get_prandom_u32(), high = 0, x, bits;

	u |= 1;
	x = u;
	if (x >> 16) {
		high += 16;
		x >>= 16;
	}
	if (x >> 8) {
		high += 8;
		x >>= 8;
	}
	if (x >> 4) {
		high += 4;
		x >>= 4;
	}
	if (x >> 2) {
		high += 2;
		x >>= 2;
	}
	high += x >> 1;
	bits = ((u << (32 - high)) & 0xffffffff) >> 16;
	bits += 22525 * ((bits * (65536 - bits)) >> 16) >> 16;
	return ((((32 - high) << 16) - bits) * 45426) >> 16; /* ln 2 */
}

/* Whether the next sample lies in these bytes. */
static __always_inline bool is_sampled(struct alloc_sums *sums, __s64 size)
{
	__s64 before = __sync_fetch_and_add(&sums->left, -size);

	if (before > size)
		return false;
	sums->left = (draw() * alloc_period) >> 16;
	return true;
}

/* perfbpf measures what this costs, with functions of its own. */
static __always_inline bool is_self(struct task_struct *task)
{
	return task->tgid == (int)cfg.self_tgid;
}

/* --- the end of an allocation ------------------------------------------------------------------------------------ */

static __always_inline void forget(struct task_struct *task, __u64 addr)
{
	struct conn_map_key key;
	struct ev_alloc_free *ev;

	if (!addr)
		return;
	conn_key(&key, addr);
	if (!bpf_map_lookup_elem(&followed, &key) || bpf_map_delete_elem(&followed, &key))
		return;
	ev = bpf_ringbuf_reserve(&rb, sizeof(*ev), 0);
	if (!ev) {
		stat_add(ST_SAMPLES, 1);
		return;
	}
	emit_head(&ev->h, sizeof(*ev), EV_ALLOC_FREE, 0, bpf_ktime_get_boot_ns(), task->tgid, task->pid);
	ev->start_ns = key.start_ns;
	ev->addr = addr;
	ev->exec_id = key.exec_id;
	ev->pad = 0;
	emit_submit(ev, sizeof(*ev));
}

/* --- a sample ---------------------------------------------------------------------------------------------------- */

/* caller: its return address, where the registers are those of the function's entry: the stack begins in the function
 * then, and has no frame of its caller yet. 0: the function has returned. */
static __always_inline void tell(struct pt_regs *ctx, struct task_struct *task, __u64 size, __u64 addr, __u64 caller)
{
	struct ev_sample *ev = bpf_ringbuf_reserve(&rb, ALLOC_ROOM, 0);
	long user;

	if (!ev) {
		stat_add(ST_SAMPLES, is_self(task) ? 0 : 1);
		return;
	}
	sample_begin(ev, task, EV_SAMPLE_ALLOC);
	ev->weight_ns = size;
	ev->queue_ns = addr;
	ev->period = alloc_period;
	user = bpf_get_stack(ctx, ev->frames, USER_BYTES, BPF_F_USER_STACK);
	/* Kernels from 6.11 on find the caller themselves, where the function begins with push %rbp or endbr64. */
	if (caller && user >= 2 * (long)sizeof(ev->frames[0]) && ev->frames[1] == caller)
		user = bpf_get_stack(ctx, ev->frames, USER_BYTES, BPF_F_USER_STACK | 1);
	else if (caller)
		ev->frames[0] = caller;
	if (user < 0)
		user = 0;
	/* The call, not what follows it. */
	if (user)
		ev->frames[0]--;
	set_stacks(ev, 0, user);
	emit_submit(ev, ALLOC_ROOM);
}

static __always_inline void follow(struct alloc_sums *sums, struct task_struct *task, __u64 addr)
{
	struct conn_map_key key;
	__u64 value = 0;

	if (!addr)
		return;
	forget(task, addr); /* it was freed where nobody looked, and is handed out again */
	conn_key(&key, addr);
	if (bpf_map_update_elem(&followed, &key, &value, BPF_ANY))
		__sync_fetch_and_add(&sums->unfollowed, 1);
	else if (is_self(task))
		bpf_map_delete_elem(&followed, &key);
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

/* The registers that matter, read at constant places, as the verifier wants it. */
struct alloc_call {
	__u64 sp, ip, size;
	__u64 ret; /* return address; 0: not known */
};

static __always_inline void read_call(struct pt_regs *ctx, __u64 cookie, struct alloc_call *call)
{
	__u64 sp = PT_REGS_SP(ctx), ip = PT_REGS_IP(ctx);

	asm volatile("" : "+r"(sp), "+r"(ip));
	call->sp = sp;
	call->ip = ip;
	call->size = register_of(ctx, ALLOC_COOKIE_SIZE(cookie));
	if (ALLOC_COOKIE_TIMES(cookie))
		call->size *= register_of(ctx, ALLOC_COOKIE_TIMES(cookie));
		/* On x86 the stack holds it, while nothing else was pushed; elsewhere a register does. */
#if defined(__TARGET_ARCH_x86)
	if (bpf_probe_read_user(&call->ret, sizeof(call->ret), (void *)sp))
		call->ret = 0;
#else
	call->ret = ((struct user_pt_regs *)ctx)->regs[30];
#endif
}

/* It was called by the function of the call before it, which hands on to it. */
static __always_inline bool is_handed_on(const struct alloc_thread *t, const struct alloc_call *call)
{
	if (!t->sp || call->size < t->size || call->sp > t->sp || t->sp - call->sp > LIMIT_ALLOC_FRAME ||
	    call->ip == t->ip || call->ip == t->first)
		return false;
	return call->ret == t->ret ? call->sp == t->sp : call->ret > t->ip && call->ret - t->ip < LIMIT_ALLOC_FRAME;
}

static __always_inline void note_library(struct alloc_sums *sums, __u64 cookie)
{
	__u64 bit = 1ull << (ALLOC_COOKIE_LIBRARY(cookie) & 31);

	if (!(sums->libraries & bit))
		__sync_fetch_and_or(&sums->libraries, bit);
}

static __always_inline void note_caller(__u64 cookie, bool handed_on, __u64 size)
{
	__u32 n = ALLOC_COOKIE_SITE(cookie) - 1;

	if (n >= LIMIT_ALLOC_SITES)
		return;
	if (handed_on) {
		alloc_sites[n].handed++;
		alloc_sites[n].handed_bytes += size;
	} else {
		alloc_sites[n].direct++;
		alloc_sites[n].direct_bytes += size;
	}
}

/* address: that is taken back; of ALLOC_ROLE_AT where it will be. True: its return is wanted. */
static __always_inline bool asked(struct pt_regs *ctx, struct task_struct *task, struct alloc_sums *sums, __u64 cookie,
				  __u64 address, bool returns)
{
	struct alloc_thread *t = bpf_task_storage_get(&alloc_threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u32 open = alloc_open;
	struct alloc_call call;
	bool handed_on;

	if (!t) {
		stat_add(ST_STATE_FULL, 1);
		return false;
	}
	read_call(ctx, cookie, &call);
	if (t->open != open)
		t->sampled_sp = 0; /* its return is not to be seen any more */
	/* A return that is wanted has another address there, for one that jumps on to the next too: of a sample, and of
	 * every call while somebody else has probes with returns there, for whatever process. */
	else if (t->sampled_sp == call.sp && t->sp == call.sp)
		t->trampoline = call.ret;
	if (t->sp == call.sp && call.ret == t->trampoline)
		call.ret = t->ret;
	/* Who made the first call of a window is not known: it may have been called just before. Where a loop goes on
	 * with calls that jump on to each other, nor is who makes the next ones: until one comes from elsewhere. */
	if (t->open != open)
		t->told = 0;
	else if (t->sp != call.sp || t->ret != call.ret)
		t->told = 1;
	handed_on = t->open == open && is_handed_on(t, &call);
	/* It may hand on in its turn: operator new to a wrapper, that to the C library. */
	t->first = handed_on ? t->first : call.ip;
	t->sp = call.sp;
	t->ip = call.ip;
	t->size = call.size;
	t->ret = call.ret;
	if (alloc_layers && t->told)
		note_caller(cookie, handed_on, call.size);
	t->open = open;
	if (handed_on)
		return false;
	if (call.size > SIZE_MAX_ASKED || (!call.size && ALLOC_COOKIE_ROLE(cookie) == ALLOC_ROLE_RENEW))
		return false; /* realloc() to 0 bytes is free() */
	__sync_fetch_and_add(&sums->count, 1);
	__sync_fetch_and_add(&sums->bytes, call.size);
	if (!is_sampled(sums, call.size))
		return false;
	__sync_fetch_and_add(&sums->samples, 1);
	if (!returns) {
		tell(ctx, task, call.size, 0, call.ret);
		return false;
	}
	t->sampled_sp = call.sp;
	t->sampled_size = call.size;
	t->at = ALLOC_COOKIE_ROLE(cookie) == ALLOC_ROLE_AT ? address : 0;
	return true;
}

/* 0: its return is wanted. */
static __always_inline int alloc_enter(struct pt_regs *ctx, bool returns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct alloc_sums *sums = sums_here();
	__u64 cookie, address;

	if (task->tgid != (int)alloc_process)
		return 1;
	cookie = bpf_get_attach_cookie(ctx);
	if (ALLOC_COOKIE_SLOW(cookie))
		__sync_fetch_and_add(&sums->slow_hits, 1);
	else if (ALLOC_COOKIE_ROLE(cookie) == ALLOC_ROLE_FREE)
		__sync_fetch_and_add(&sums->takes, 1);
	else
		__sync_fetch_and_add(&sums->hits, 1);
	address = register_of(ctx, ALLOC_COOKIE_ADDRESS(cookie));
	/* Also when the window was just closed: what is freed at once must not look kept. */
	if (ALLOC_COOKIE_ROLE(cookie) == ALLOC_ROLE_FREE || ALLOC_COOKIE_ROLE(cookie) == ALLOC_ROLE_RENEW)
		forget(task, address);
	if (ALLOC_COOKIE_ROLE(cookie) == ALLOC_ROLE_FREE || !alloc_open)
		return 1;
	note_library(sums, cookie);
	return asked(ctx, task, sums, cookie, address, returns) ? 0 : 1;
}

#if defined(__TARGET_ARCH_x86)
#define ENTRY_SP(ctx) (PT_REGS_SP(ctx) - 8) /* the return address has gone */
#else
#define ENTRY_SP(ctx) PT_REGS_SP(ctx)
#endif

static __always_inline int alloc_leave(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct alloc_thread *t = bpf_task_storage_get(&alloc_threads, task, NULL, 0);
	__u64 addr = PT_REGS_RC(ctx);

	if (!t || t->sampled_sp != ENTRY_SP(ctx))
		return 0;
	t->sampled_sp = 0;
	if (t->at && bpf_probe_read_user(&addr, sizeof(addr), (void *)t->at))
		addr = 0;
	if (!addr)
		return 0; /* there was no memory */
	/* First: the end of what had this address before it. */
	if (alloc_follows)
		follow(sums_here(), task, addr);
	tell(ctx, task, t->sampled_size, alloc_follows ? addr : 0, 0);
	return 0;
}

SEC("uprobe")
int alloc_session(struct pt_regs *ctx)
{
	if (session_returns())
		return alloc_leave(ctx);
	return alloc_enter(ctx, true);
}

/* Of windows in which nobody is followed: no return is wanted, and the kernel takes none. Before sessions (6.13) there
 * are no others: a return probe of every call would cost too much, and what becomes of memory is not known. */
SEC("uprobe")
int alloc_entry(struct pt_regs *ctx)
{
	alloc_enter(ctx, false);
	return 0;
}
