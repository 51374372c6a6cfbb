/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DATA records with bytes of the traced program, and which bytes are copied. libbpf 1.1 cannot link two objects that
 * name the same kernel function.
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
	else
		__sync_fetch_and_add(&tails_noted, 1);
}

static __noinline int run_lost(struct run *run)
{
	stat_add(ST_RING_RECORDS, 1);
	stat_add(ST_RING_BYTES, run->head.orig_len);
	tail_note(&run->head);
	return 0;
}

__noinline int run_drop(struct run *run)
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
__noinline int run_put_head(struct run *run)
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
 * Else a reserve has a constant size: the smallest class that holds the bytes. (A per-CPU scratch buffer is no way out,
 * because a program on a user thread can be preempted.) Short records are put like this on every kernel: that is four
 * calls of its functions less.
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
		/* What follows up to a multiple of 8. */                                                              \
		*(__u64 *)(r + sizeof(*head) + (len & ((bytes)-8))) = 0;                                               \
		if (bpf_probe_read_user(r + sizeof(*head), len, (const void *)run->buf))                               \
			run_fault(head);                                                                               \
		else if (run->look)                                                                                    \
			run->before = *(__u32 *)(r + sizeof(*head));                                                   \
		emit_submit(r, sizeof(*head) + (bytes));                                                               \
		return 0;                                                                                              \
	}
RUN_PUT_CLASS(128)
RUN_PUT_CLASS(256)
RUN_PUT_CLASS(512)
RUN_PUT_CLASS(1024)
RUN_PUT_CLASS(4096)
RUN_PUT_CLASS(16384)
EV_ASSERT(LIMIT_CHUNK_BYTES == 16384);

__noinline int run_put(struct run *run)
{
	__u32 len;

	if (!run)
		return 0;
	len = run->head.len;
	if (len <= 128)
		return run_put_128(run);
	if (len <= 256)
		return run_put_256(run);
	if (len <= 512)
		return run_put_512(run);
	if (len <= 1024)
		return run_put_1024(run);
	if (cfg.read_dynptr) {
		if (bpf_probe_read_user_dynptr)
			return run_put_dynptr(run);
	}
	if (len <= 4096)
		return run_put_4096(run);
	return run_put_16384(run);
}

/* --- connections that carry nothing of interest ------------------------------------------------------------------ */

static __always_inline void heed(__u32 gen)
{
	__u32 entry = ignored_entry(gen);

	if (entry)
		__sync_val_compare_and_swap(&ignored[gen & (LIMIT_IGNORED - 1)], entry, 0);
}

/* It is of interest again, and so are its answers. */
static __noinline int conn_want(__u32 gen)
{
	__u32 answers = ignored_answers[gen & (LIMIT_IGNORED - 1)];

	heed(gen);
	if (answers)
		heed(answers);
	return 0;
}

/* Bytes before `end` are of a body that nobody wants. The slot may be given to another one meanwhile. */
static __always_inline bool conn_passed(__u32 gen, __u32 dir, __u64 end)
{
	volatile struct passed *p = &passed[gen & (LIMIT_PASSED - 1)];

	if (!cfg.http || p->gen != gen)
		return false;
	return end <= p->until[dir & 1] && p->gen == gen;
}
EV_ASSERT((LIMIT_PASSED & (LIMIT_PASSED - 1)) == 0);

#define H2_FRAME_HEADER 9     /* RFC 9113 section 4.1 */
#define H2_TYPE_MAX	9     /* CONTINUATION */
#define H2_LOOK_LENGTH	16384 /* no client begins a request with a longer frame */
#define H2_LOOK_FRAMES	4     /* a window update or two, a ping, then the request */

/* HEADERS of a request that has a body (no END_STREAM), perhaps behind other frames. */
static __noinline bool may_call_h2(__u64 buf, __u64 len)
{
	int i;

	for (i = 0; i < H2_LOOK_FRAMES; i++) {
		__u8 head[H2_FRAME_HEADER] = {};
		__u64 size;

		if (len < sizeof(head) || bpf_probe_read_user(head, sizeof(head), (const void *)buf))
			return false;
		size = (__u64)head[0] << 16 | head[1] << 8 | head[2];
		if (size > H2_LOOK_LENGTH || head[3] > H2_TYPE_MAX || head[5] & 0x80)
			return false;
		if (head[3] == 1)
			return !(head[4] & 1) && head[8] & 1;
		size += sizeof(head);
		if (len < size)
			return false;
		buf += size;
		len -= size;
	}
	return false;
}

__noinline bool may_call(__u64 buf, __u64 len)
{
	char begin[5] = {};

	if (len < sizeof(begin) || bpf_probe_read_user(begin, sizeof(begin), (const void *)buf))
		return false;
	if (begin[0] == 'P' && begin[1] == 'O' && begin[2] == 'S' && begin[3] == 'T' && begin[4] == ' ')
		return true;
	return may_call_h2(buf, len);
}

#define POST_WORD      0x54534f50 /* as a little-endian number */
#define RUN_LOOK_BYTES 1024	  /* longer writes are looked at before: they are copied in part only, or in pieces */

/* All that was written lies in a record. Its first bytes there say of nearly all writes that they begin no call: to ask
 * for the program's memory once more costs more than all that. (0: it was not copied.) */
static __always_inline void run_look(struct run *run, __u64 buf, __u64 len)
{
	__u32 word = run->before, size = (word & 0xff) << 16 | (word & 0xff00) | (word >> 16 & 0xff);

	run->before = 0;
	if (word != POST_WORD && (size > H2_LOOK_LENGTH || word >> 24 > H2_TYPE_MAX))
		return;
	if (may_call(buf, len))
		conn_want(run->head.conn.gen);
}

/* --- framing past the limit of a call ---------------------------------------------------------------------------- */

#define H2_TYPES_WITH_STREAM	0x22f /* DATA, HEADERS, PRIORITY, RST_STREAM, PUSH_PROMISE, CONTINUATION */
#define H2_TYPES_WITHOUT_STREAM 0x0d0 /* SETTINGS, PING, GOAWAY; WINDOW_UPDATE may have one */

__noinline __u64 frame_at(__u64 buf, __u64 *want)
{
	__u8 head[H2_FRAME_HEADER] = {};
	__u32 type, stream;
	__u64 size;

	if (!want || bpf_probe_read_user(head, sizeof(head), (const void *)buf))
		return 0;
	type = head[3];
	stream = head[5] | head[6] | head[7] | head[8];
	if (type > H2_TYPE_MAX || head[5] & 0x80 ||
	    (stream ? H2_TYPES_WITHOUT_STREAM : H2_TYPES_WITH_STREAM) >> type & 1)
		return 0;
	size = sizeof(head) + ((__u64)head[0] << 16 | head[1] << 8 | head[2]);
	*want = size < LIMIT_CHUNK_BYTES ? size : LIMIT_CHUNK_BYTES;
	if (!type && size > sizeof(head)) /* DATA: the header, and how much of it is padding */
		*want = sizeof(head) + (head[4] >> 3 & 1);
	return size;
}

struct frames_walk {
	__u64 at;
	__u64 left; /* up to the limit */
};

static __noinline long frames_walk_step(__u32 index, struct frames_walk *w)
{
	__u64 want = 0, size = frame_at(w->at, &want);

	(void)index;
	if (!size || size > w->left)
		return 1;
	w->at += size;
	w->left -= size;
	return w->left == 0;
}

__noinline __s64 frames_cut(__u64 end, __u64 copied)
{
	struct frames_walk w = {.at = end - copied, .left = copied};
	__u64 want = 0;

	if (copied)
		bpf_loop(LIMIT_CAPPED_FRAMES, frames_walk_step, &w, 0);
	return frame_at(w.at, &want) > w.left ? (__s64)w.left : -1;
}

/* --- reads that are told later ----------------------------------------------------------------------------------- */

/* A hole that user space asked for. */
static __always_inline void skip_emit(const struct conn_state *state, const struct conn_map_key *key, __u64 from,
				      __u64 end)
{
	struct ev_data *r = bpf_ringbuf_reserve(&rb, sizeof(*r), 0);

	if (!r) {
		stat_add(ST_RING_RECORDS, 1);
		return;
	}
	emit_head(&r->h, sizeof(*r), EV_DATA, EV_F_IGNORED | conn_record_flags(state->flags), state->skip_ns, key->tgid,
		  conn_tid());
	conn_fill(&r->conn, key, state->gen);
	r->pos = from;
	r->entry_ns = state->skip_ns;
	r->len = 0;
	r->orig_len = end - from;
	r->dir = EV_DIR_RX;
	__builtin_memset(r->pad, 0, sizeof(r->pad));
	emit_submit(r, sizeof(*r));
}

__noinline int skip_tell(struct conn_state *state, const struct conn_map_key *key)
{
	__u64 from, end;

	if (!state || !key)
		return 0;
	from = state->skip_from;
	end = *(volatile __u64 *)&state->skip_end;
	if (from >= end || __sync_val_compare_and_swap(&state->skip_from, from, end) != from)
		return 0;
	skip_emit(state, key, from, end);
	return 0;
}

/* A read of `len` bytes at `pos` that is not copied. */
static __always_inline void skip_add(struct conn_state *state, const struct conn_map_key *key, __u64 pos, __u64 len,
				     __u64 ts_ns)
{
	if (state->skip_end != pos)
		__sync_lock_test_and_set(&state->skip_from, pos);
	state->skip_ns = ts_ns;
	__sync_lock_test_and_set(&state->skip_end, pos + len);
	if (pos + len - state->skip_from >= LIMIT_IGNORED_READ_BYTES)
		skip_tell(state, key);
}

/* --- how much is copied ------------------------------------------------------------------------------------------ */

static __always_inline bool is_dropped(const struct conn_state *state)
{
	return overload.level == OVERLOAD_CONNECTIONS && state->gen <= overload.dropped;
}

/* How many of `copy` bytes are copied while more comes than user space drains, see user/attach/overload.h. */
static __always_inline __u64 overload_limit(struct conn_state *state, __u32 dir, __u64 len, __u64 copy)
{
	__u32 level = overload.level;
	__u64 limit = level == OVERLOAD_PAYLOAD ? LIMIT_OVERLOAD_REQUEST_BYTES : LIMIT_OVERLOAD_HEAD_BYTES, before;

	if (is_dropped(state)) {
		limit = before = 0;
	} else if (dir == EV_DIR_TX) {
		before = state->request_bytes - len; /* added already */
	} else if (level == OVERLOAD_PAYLOAD) {
		before = 0;
		limit = LIMIT_OVERLOAD_READ_BYTES;
	} else {
		before = __sync_fetch_and_add(&state->answer_bytes, copy);
	}
	return before < limit ? limit - before : 0;
}

/* The same with what is to be told of the rest. Apart: what is on the stack here is not below run_begin(). */
static __noinline __u64 overload_cut(struct conn_state *state, struct run *run, __u64 len, __u64 copy)
{
	__u64 limit = overload_limit(state, run->head.dir & 1, len, copy);

	if (copy <= limit)
		return copy;
	stat_add(ST_OVERLOAD, copy - limit);
	run->rest_flags = 0;
	run->framed = 0;
	if (is_dropped(state)) {
		run->skip = RUN_DROPPED;
		run->head.orig_len = len;
	}
	return limit;
}

/* Requests are copied up to a limit each; a read is a chunk or a few. */
static __always_inline __u64 copy_budget(struct conn_state *state, __u32 dir, __u64 len)
{
	__u64 limit = LIMIT_REQUEST_BYTES, before = 0;

	if (dir == EV_DIR_RX) {
		state->request_bytes = 0;
	} else {
		limit = cfg.request_bytes;
		if (limit > LIMIT_REQUEST_BYTES)
			limit = LIMIT_REQUEST_BYTES;
		before = __sync_fetch_and_add(&state->request_bytes, len);
		state->answer_bytes = 0;
		if (cfg.http) /* framing is wanted to the end: the limit is of each call */
			before = 0;
	}
	limit = before + LIMIT_CAPPED_END_BYTES < limit ? limit - before : LIMIT_CAPPED_END_BYTES;
	return len < limit ? len : limit;
}

__noinline int skip_read(struct conn_state *state, const struct conn_map_key *key, __u64 len, __u64 ts_ns)
{
	if (!state || !key)
		return 0;
	copy_budget(state, EV_DIR_RX, len);
	skip_add(state, key, __sync_fetch_and_add(&state->pos[EV_DIR_RX], len), len, ts_ns);
	return 0;
}

__noinline __u64 run_begin(struct conn_state *state, const struct conn_map_key *key, struct run *run, __u64 len)
{
	__u64 copy;
	__u32 dir;
	bool passed = false, may;
	__u32 skip;

	if (!state || !key || !run)
		return 0;
	dir = run->head.dir & 1;
	copy = copy_budget(state, dir, len);
	skip = ignored_entry(state->gen);
	may = skip && !(skip & IGNORED_FOR_GOOD) && dir == EV_DIR_TX;
	run->look = run->look && may && len <= RUN_LOOK_BYTES;
	run->head.h.flags |= conn_record_flags(state->flags);
	conn_pay_gap(state, key, dir, run->head.h.ts_ns);
	if (may && !run->look && may_call(run->buf, len)) {
		conn_want(state->gen);
		skip = 0;
	}
	run->head.pos = __sync_fetch_and_add(&state->pos[dir], len);
	if (!skip)
		skip = passed = conn_passed(state->gen, dir, run->head.pos + len);
	if (skip && dir == EV_DIR_RX) {
		skip_add(state, key, run->head.pos, len, run->head.h.ts_ns);
		run->skip = RUN_LATER;
		return 0;
	}
	/* Before what comes next in this direction, and before the request that comes after these answers. */
	skip_tell(state, key);
	if (passed || skip & IGNORED_FOR_GOOD)
		copy = 0;
	else if (skip && copy > LIMIT_IGNORED_WRITE_BYTES)
		copy = LIMIT_IGNORED_WRITE_BYTES;
	run->rest_flags = skip ? EV_F_IGNORED : EV_F_CAPPED;
	if (!skip)
		run->framed = cfg.http || dir == EV_DIR_RX ? RUN_FRAMED_CALL : RUN_FRAMED;
	return overload.level && !skip ? overload_cut(state, run, len, copy) : copy;
}

/* The same, called directly or by bpf_loop(). */
static __noinline long run_step(__u32 index, struct run *run)
{
	(void)index;
	return run_turn(run);
}

static __noinline long frame_step(__u32 index, struct run *run)
{
	(void)index;
	return frame_turn(run);
}

/* What comes behind the bytes that were copied. */
static __always_inline void run_behind(struct run *run, __u64 copied, __u64 rest)
{
	__u64 tail;

	if (frames_begin(run, copied, rest)) {
		bpf_loop(LIMIT_CAPPED_FRAMES, frame_step, run, 0);
		rest = frames_end(run);
	}
	tail = run_tail(run, rest);
	run_rest(run, rest - tail);
	run->buf += rest - tail;
	run->left = tail;
	if (tail)
		bpf_loop(LIMIT_CAPPED_TAIL_BYTES / LIMIT_CHUNK_BYTES, run_step, run, 0);
}

int call_data(struct conn_state *state, const struct conn_map_key *key, const struct tls_call *call, __u64 len,
	      __u64 now)
{
	struct run run = {};
	__u64 copy;

	if (!state || !key || !call)
		return 0;
	emit_head(&run.head.h, 0, EV_DATA, 0, now, key->tgid, conn_tid());
	conn_fill(&run.head.conn, key, state->gen);
	run.head.entry_ns = call->entry_ns;
	run.head.dir = role_dir(call->role) & 1;
	run.buf = call->buf + call->inner;
	run.look = 1; /* all bytes lie there */
	copy = run_begin(state, key, &run, len);
	if (copy && call->flags & CALL_OVERWRITTEN) {
		stat_add(ST_FAULT, 1);
		run.rest_flags = EV_F_FAULT;
		run_rest(&run, len);
		return 0;
	}
	run.left = copy;
	if (copy > LIMIT_CHUNK_BYTES)
		bpf_loop(LIMIT_CHUNKS_PER_CALL, run_step, &run, 0);
	else if (copy)
		run_step(0, &run);
	if (run.look)
		run_look(&run, call->buf + call->inner, len);
	run_behind(&run, copy, len - copy);
	return 0;
}
