/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The least that a tracer can do at the places that perfbpf probes: nothing (empty_*, but for whose call it is); or
 * what it takes to tell of a call and nothing else (record_*): which thread it is, what the call was given, how long
 * the returned bytes are, the time, and a record with the bytes in a ring; and with it two empty programs at a socket's
 * sends and receives (socket_*). Not part of perfbpf: these follow no nested calls, no connections, and prove nothing.
 */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define RING_BYTES (8 * 1024 * 1024) /* as perfbpf's */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __u32 target = 0; /* process whose calls are told */
__u64 told = 0, lost = 0;	 /* records */

struct open_call {
	__u64 obj, buf, length_at, entry_ns;
};

struct record { /* as long as perfbpf's head of bytes */
	__u64 obj, entry_ns, end_ns, length, thread, zero[5];
	__u8 bytes[];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct open_call);
} calls SEC(".maps");

extern bool bpf_session_is_return(void) __ksym __weak;

static __always_inline bool is_target(void)
{
	return (__u32)bpf_get_current_task_btf()->tgid == target;
}

/* 1: the return is not wanted. */
static __always_inline int record_enter(struct pt_regs *ctx)
{
	struct open_call *call;

	if (!is_target())
		return 1;
	call = bpf_task_storage_get(&calls, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!call)
		return 1;
	call->obj = PT_REGS_PARM1(ctx);
	call->buf = PT_REGS_PARM2(ctx);
	call->length_at = bpf_get_attach_cookie(ctx) ? PT_REGS_PARM4(ctx) : 0;
	call->entry_ns = bpf_ktime_get_boot_ns();
	return 0;
}

#define RECORD_PUT(size)                                                                                               \
	static __noinline int record_put_##size(const struct open_call *call, __u64 length)                            \
	{                                                                                                              \
		struct record *r = bpf_ringbuf_reserve(&ring, sizeof(*r) + (size), 0);                                 \
                                                                                                                       \
		if (!r) {                                                                                              \
			lost++;                                                                                        \
			return 0;                                                                                      \
		}                                                                                                      \
		told++;                                                                                                \
		r->obj = call->obj;                                                                                    \
		r->entry_ns = call->entry_ns;                                                                          \
		r->end_ns = bpf_ktime_get_boot_ns();                                                                   \
		r->length = length;                                                                                    \
		r->thread = bpf_get_current_pid_tgid();                                                                \
		__builtin_memset(r->zero, 0, sizeof(r->zero));                                                         \
		asm volatile("" : "+r"(length));                                                                       \
		if (length > (size))                                                                                   \
			length = (size);                                                                               \
		bpf_probe_read_user(r->bytes, length, (const void *)call->buf);                                        \
		bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);                                                               \
		return 0;                                                                                              \
	}
RECORD_PUT(512)
RECORD_PUT(16384)

static __always_inline void record_leave(struct pt_regs *ctx)
{
	struct open_call *call = bpf_task_storage_get(&calls, bpf_get_current_task_btf(), NULL, 0);
	__s64 result = (int)PT_REGS_RC(ctx);
	__u64 length = result;

	if (!call || result <= 0)
		return;
	if (call->length_at && bpf_probe_read_user(&length, sizeof(length), (const void *)call->length_at))
		return;
	if (length <= 512)
		record_put_512(call, length);
	else
		record_put_16384(call, length);
}

/* Entry and return in one. 1 at the entry spares processes that are not looked at the return. */
SEC("uprobe")
int empty_session(struct pt_regs *ctx)
{
	return !is_target();
}

SEC("uprobe")
int record_session(struct pt_regs *ctx)
{
	if (!bpf_session_is_return || !bpf_session_is_return())
		return record_enter(ctx);
	record_leave(ctx);
	return 0;
}

/* Before Linux 6.13 each by itself. */
SEC("uprobe")
int empty_entry(struct pt_regs *ctx)
{
	return 0;
}

SEC("uprobe")
int empty_return(struct pt_regs *ctx)
{
	return 0;
}

SEC("uprobe")
int record_entry(struct pt_regs *ctx)
{
	record_enter(ctx);
	return 0;
}

SEC("uprobe")
int record_return(struct pt_regs *ctx)
{
	record_leave(ctx);
	return 0;
}

SEC("tp_btf/sock_send_length")
int socket_sent(__u64 *ctx)
{
	return 0;
}

SEC("tp_btf/sock_recv_length")
int socket_received(__u64 *ctx)
{
	return 0;
}
