/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One DATA record with bytes of the traced program. Global functions, once for all programs: libbpf 1.1 cannot link two
 * objects that name the same kernel function.
 */
#include "run.bpf.h"

extern int bpf_probe_read_user_dynptr(struct bpf_dynptr *ptr, __u64 off, __u64 size, const void *from) __ksym __weak;

/* Nothing may come after these bytes whose position would tell that they are missing. */
static __always_inline void tail_note(const struct ev_data *head)
{
	__u64 key = TAIL_KEY(head->conn.gen, head->dir & 1);
	struct lost_tail tail = {};

	tail.conn = head->conn;
	tail.pos = head->pos + head->orig_len;
	tail.ts_ns = head->h.ts_ns;
	tail.tgid = head->h.tgid;
	tail.dir = head->dir & 1;
	tail.flags = head->h.flags & EV_F_HALF;
	if (bpf_map_update_elem(&tails, &key, &tail, BPF_ANY))
		stat_add(ST_STATE_FULL, 1);
}

static __noinline int run_lost(struct run *run)
{
	stat_add(ST_RING_RECORDS, 1);
	stat_add(ST_RING_BYTES, run->head.orig_len);
	tail_note(&run->head);
	return 0;
}

int run_drop(struct run *run)
{
	if (run)
		tail_note(&run->head);
	return 0;
}

static __always_inline void run_fault(struct ev_data *head)
{
	stat_add(ST_FAULT, 1);
	head->len = 0;
	head->h.flags |= EV_F_FAULT;
	head->h.size = sizeof(*head);
}

/* A record without bytes that says how many there were. */
int run_put_head(struct run *run)
{
	struct ev_data *r;

	if (!run)
		return 0;
	r = bpf_ringbuf_reserve(&rb, sizeof(*r), 0);
	if (!r)
		return run_lost(run);
	run->head.len = 0;
	run->head.h.size = sizeof(*r);
	__builtin_memcpy(r, &run->head, sizeof(*r));
	emit_submit(r, sizeof(*r));
	return 0;
}

static const __u8 padding[8] = {};

/* Exactly as long as the bytes: kernels with bpf_probe_read_user_dynptr. Without a head of its own: the stack of all
 * frames together is 512 bytes, and this is the deepest. */
static __noinline int run_put_dynptr(struct run *run)
{
	__u32 len = run->head.len;
	__u32 size = sizeof(run->head) + ((len + 7) & ~7u);
	__u16 flags = run->head.h.flags;
	struct bpf_dynptr ptr;

	if (bpf_ringbuf_reserve_dynptr(&rb, size, 0, &ptr)) {
		bpf_ringbuf_discard_dynptr(&ptr, 0); /* the verifier wants it even so */
		return run_lost(run);
	}
	run->head.h.size = size;
	if (len & 7)
		bpf_dynptr_write(&ptr, size - 8, (void *)padding, 8, 0);
	if (bpf_probe_read_user_dynptr(&ptr, sizeof(run->head), len, (const void *)run->buf))
		run_fault(&run->head);
	bpf_dynptr_write(&ptr, 0, &run->head, sizeof(run->head), 0);
	bpf_ringbuf_submit_dynptr(&ptr, emit_wake(size));
	run->head.h.flags = flags;
	return 0;
}

/*
 * Elsewhere a reserve must have a constant size: the smallest class that holds the bytes. A per-CPU scratch buffer is
 * no way out, because a program on a user thread can be preempted.
 */
#define RUN_PUT_CLASS(bytes)                                                                                           \
	static __noinline int run_put_##bytes(struct run *run)                                                         \
	{                                                                                                              \
		void *r = bpf_ringbuf_reserve(&rb, sizeof(struct ev_data) + (bytes), 0);                               \
		struct ev_data *head = r;                                                                              \
		__u64 len = run->head.len;                                                                             \
                                                                                                                       \
		if (!r)                                                                                                \
			return run_lost(run);                                                                          \
		__builtin_memcpy(r, &run->head, sizeof(*head));                                                        \
		head->h.size = sizeof(*head) + ((len + 7) & ~7u);                                                      \
		/* Unsigned, in one register, right before use: or some verifier calls it negative. */                 \
		asm volatile("" : "+r"(len));                                                                          \
		if (len > (bytes))                                                                                     \
			len = (bytes);                                                                                 \
		if (bpf_probe_read_user(r + sizeof(*head), len, (const void *)run->buf))                               \
			run_fault(head);                                                                               \
		emit_submit(r, sizeof(*head) + (bytes));                                                               \
		return 0;                                                                                              \
	}
RUN_PUT_CLASS(256)
RUN_PUT_CLASS(1024)
RUN_PUT_CLASS(4096)
RUN_PUT_CLASS(16384)
EV_ASSERT(LIMIT_CHUNK_BYTES == 16384);

int run_put(struct run *run)
{
	__u32 len;

	if (!run)
		return 0;
	len = run->head.len;
	if (cfg.read_dynptr) {
		if (bpf_probe_read_user_dynptr)
			return run_put_dynptr(run);
	}
	if (len <= 256)
		return run_put_256(run);
	if (len <= 1024)
		return run_put_1024(run);
	if (len <= 4096)
		return run_put_4096(run);
	return run_put_16384(run);
}
