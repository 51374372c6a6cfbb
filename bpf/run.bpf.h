/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_RUN_BPF_H
#define PERFBPF_RUN_BPF_H

/*
 * Bytes of the traced program on their way out, as DATA records: run_begin() takes the position and says how many are
 * to be copied, the caller steps through its buffer or buffers, run_rest() tells what was left out. tls.bpf.c and
 * plain.bpf.c both need it.
 */

#include "conn.bpf.h"

/* A run of bytes on its way out: the head of the next record, and what is left. */
struct run {
	__u64 buf;
	__u64 left;
	__u32 rest_flags; /* of the record that tells what was left out */
	__u32 skip;	  /* 1: that is told later, see struct conn_state */
	struct ev_data head;
};

/* A record of head.len bytes at buf, and one without bytes that says how many there were: run.bpf.c. */
int run_put(struct run *run);
int run_put_head(struct run *run);
/* No record of them at all: only that something is missing up to there. */
int run_drop(struct run *run);

/* One record; 1 when the run is at its end. */
static __always_inline long run_turn(struct run *run)
{
	__u64 n = run->left;

	if (n > LIMIT_CHUNK_BYTES)
		n = LIMIT_CHUNK_BYTES;
	if (!n)
		return 1;
	run->head.len = n;
	run->head.orig_len = n;
	run_put(run);
	run->left -= n;
	run->buf += n;
	run->head.pos += n;
	return run->left == 0;
}

/* The same, called directly or by bpf_loop(). */
static __noinline long run_step(__u32 index, struct run *run)
{
	(void)index;
	return run_turn(run);
}

/* --- connections that carry nothing of interest ------------------------------------------------------------------ */

static __always_inline bool conn_ignored(__u32 gen)
{
	return ignored[gen & (LIMIT_IGNORED - 1)] == gen;
}
EV_ASSERT((LIMIT_IGNORED & (LIMIT_IGNORED - 1)) == 0);

static __noinline int conn_want(__u32 gen)
{
	__u32 answers = ignored_answers[gen & (LIMIT_IGNORED - 1)];

	__sync_val_compare_and_swap(&ignored[gen & (LIMIT_IGNORED - 1)], gen, 0);
	if (answers)
		__sync_val_compare_and_swap(&ignored[answers & (LIMIT_IGNORED - 1)], answers, 0);
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
		if (size > H2_LOOK_LENGTH || head[3] > 9 || head[5] & 0x80)
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

/* A request that may call a model. User space would see it too, but after its answer may have begun. */
static __noinline bool may_call(__u64 buf, __u64 len)
{
	char begin[5] = {};

	if (len < sizeof(begin) || bpf_probe_read_user(begin, sizeof(begin), (const void *)buf))
		return false;
	if (begin[0] == 'P' && begin[1] == 'O' && begin[2] == 'S' && begin[3] == 'T' && begin[4] == ' ')
		return true;
	return may_call_h2(buf, len);
}

/* A hole that user space asked for. */
static __noinline int skip_emit(const struct conn_state *state, const struct conn_map_key *key, __u64 from, __u64 end)
{
	struct ev_data *r = bpf_ringbuf_reserve(&rb, sizeof(*r), 0);

	if (!r) {
		stat_add(ST_RING_RECORDS, 1);
		return 0;
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
	return 0;
}

/* Tells what was not copied of the reads so far. Any thread, at any time: see struct conn_state. */
static __noinline int skip_tell(struct conn_state *state, const struct conn_map_key *key)
{
	__u64 from = state->skip_from, end = *(volatile __u64 *)&state->skip_end;

	if (from >= end || __sync_val_compare_and_swap(&state->skip_from, from, end) != from)
		return 0;
	return skip_emit(state, key, from, end);
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

/* How many of `copy` bytes are copied while more comes than user space drains, see user/attach/overload.h. */
static __noinline __u64 overload_cut(struct conn_state *state, __u32 dir, __u64 len, __u64 copy)
{
	__u32 level = overload.level;
	__u64 limit = level == OVERLOAD_PAYLOAD ? LIMIT_OVERLOAD_REQUEST_BYTES : LIMIT_OVERLOAD_HEAD_BYTES, before;

	if (level == OVERLOAD_CONNECTIONS && state->gen <= overload.dropped) {
		limit = before = 0;
	} else if (dir == EV_DIR_TX) {
		before = state->request_bytes - len; /* added already */
	} else if (level == OVERLOAD_PAYLOAD) {
		before = 0;
		limit = LIMIT_OVERLOAD_READ_BYTES;
	} else {
		before = __sync_fetch_and_add(&state->answer_bytes, copy);
	}
	limit = before < limit ? limit - before : 0;
	if (copy <= limit)
		return copy;
	stat_add(ST_OVERLOAD, copy - limit);
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
	limit = before < limit ? limit - before : 0;
	return len < limit ? len : limit;
}

/*
 * `len` bytes moved, the first of them at run->buf. The position is taken once for all of them, so that what gets lost
 * leaves a hole. How many of them to copy; with run_rest() the others.
 */
static __noinline __u64 run_begin(struct conn_state *state, const struct conn_map_key *key, struct run *run, __u64 len)
{
	__u32 dir = run->head.dir & 1;
	__u64 copy = copy_budget(state, dir, len);
	bool skip = conn_ignored(state->gen), passed = false;

	run->head.h.flags |= conn_record_flags(state->flags);
	conn_pay_gap(state, key, dir, run->head.h.ts_ns);
	if (skip && dir == EV_DIR_TX && may_call(run->buf, len)) {
		conn_want(state->gen);
		skip = false;
	}
	run->head.pos = __sync_fetch_and_add(&state->pos[dir], len);
	if (!skip)
		skip = passed = conn_passed(state->gen, dir, run->head.pos + len);
	if (skip && dir == EV_DIR_RX) {
		skip_add(state, key, run->head.pos, len, run->head.h.ts_ns);
		run->skip = 1;
		return 0;
	}
	/* Before what comes next in this direction, and before the request that comes after these answers. */
	skip_tell(state, key);
	if (passed)
		copy = 0;
	else if (skip && copy > LIMIT_IGNORED_WRITE_BYTES)
		copy = LIMIT_IGNORED_WRITE_BYTES;
	run->rest_flags = skip ? EV_F_IGNORED : EV_F_CAPPED;
	if (overload.level && !skip) {
		__u64 cut = overload_cut(state, dir, len, copy);

		if (cut < copy)
			run->rest_flags = 0;
		copy = cut;
		if (!copy && overload.level == OVERLOAD_CONNECTIONS && state->gen <= overload.dropped) {
			run->skip = 1;
			run->head.orig_len = len;
			run_drop(run);
		}
	}
	return copy;
}

/* The last `len` bytes of a run were left out by choice. */
static __always_inline void run_rest(struct run *run, __u64 len)
{
	if (!len || run->skip)
		return;
	run->head.orig_len = len < 0x80000000 ? len : 0x80000000; /* beyond: a hole in the positions */
	run->head.h.flags |= run->rest_flags;
	run_put_head(run);
}

/* `len` bytes at `buf` moved. */
static __noinline int data_moved(struct conn_state *state, const struct conn_map_key *key, struct run *run, __u64 len)
{
	__u64 copy = run_begin(state, key, run, len);

	run->left = copy;
	if (copy > LIMIT_CHUNK_BYTES)
		bpf_loop(LIMIT_CHUNKS_PER_CALL, run_step, run, 0);
	else if (copy)
		run_step(0, run);
	run_rest(run, len - copy);
	return 0;
}

#endif
