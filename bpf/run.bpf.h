/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_RUN_BPF_H
#define PERFBPF_RUN_BPF_H

/*
 * Bytes of the traced program on their way out, as DATA records: run_begin() takes the position and says how many are
 * to be copied, the caller steps through its buffer or buffers, run_rest() tells what was left out. tls.bpf.c and
 * plain.bpf.c both need it.
 */

#include "conn.bpf.h"

#define RUN_LATER   1 /* what was left out is told later, see struct conn_state */
#define RUN_DROPPED 2 /* only that something is missing is told, see user/attach/overload.h */

#define RUN_FRAMED	1
#define RUN_FRAMED_CALL 2 /* ... and the limit is of each call */

/* A run of bytes on its way out: the head of the next record, and what is left. */
struct run {
	__u64 buf;
	__u64 left;
	__u16 rest_flags; /* of the record that tells what was left out */
	__u8 skip;	  /* RUN_* */
	__u8 framed : 7;  /* RUN_FRAMED*: of what is left out the framing is wanted */
	__u8 look : 1;	  /* by run_begin(): the caller has to look whether a call begins (run_look()) */
	__u32 before;	  /* bytes of the frame at hand that are told; with `look`: the first bytes of the record */
	struct ev_data head;
};

/* A record of head.len bytes at buf, and one without bytes that says how many there were: run.bpf.c. */
int run_put(struct run *run);
int run_put_head(struct run *run);
/* No record of them at all: only that something is missing up to there. */
int run_drop(struct run *run);
/* Size of the frame of HTTP/2 whose header is at buf; 0: none can be. *want: its first bytes that are looked at.
 * Whatever this is wrong about, the bytes that are copied are those at their position. */
__u64 frame_at(__u64 buf, __u64 *want);
/* How many of the `copied` bytes before `end` are of a frame that goes on behind them; -1: they are no frames. */
__s64 frames_cut(__u64 end, __u64 copied);
/*
 * `len` bytes moved, the first of them at run->buf. The position is taken once for all of them, so that what gets lost
 * leaves a hole. How many of them to copy; with run_rest() the others.
 */
__u64 run_begin(struct conn_state *state, const struct conn_map_key *key, struct run *run, __u64 len);
/* `len` bytes moved in a call, behind those that calls inside of it reported. */
int call_data(struct conn_state *state, const struct conn_map_key *key, const struct tls_call *call, __u64 len,
	      __u64 now);
/* Tells what was not copied of the reads so far. Any thread, at any time: see struct conn_state. */
int skip_tell(struct conn_state *state, const struct conn_map_key *key);
/* A read of `len` bytes of an ignored connection, of which no more is to be known. */
int skip_read(struct conn_state *state, const struct conn_map_key *key, __u64 len, __u64 ts_ns);
/* A request that may call a model. User space would see it too, but after its answer may have begun. */
bool may_call(__u64 buf, __u64 len);

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

/* `len` bytes of a run are left out by choice. */
static __always_inline void run_rest(struct run *run, __u64 len)
{
	if (run->skip == RUN_DROPPED)
		run_drop(run);
	if (!len || run->skip)
		return;
	run->head.orig_len = len < 0x80000000 ? len : 0x80000000; /* beyond: a hole in the positions */
	run->head.h.flags |= run->rest_flags;
	run_put_head(run);
	run->head.h.flags &= ~run->rest_flags;
	run->head.pos += len;
}

/* Of the `rest` bytes that come behind the copied ones, which end at run->buf, the framing is told frame by frame, by
 * frame_turn(). False: the copied ones do not begin with a frame, or there is no need to. */
static __always_inline bool frames_begin(struct run *run, __u64 copied, __u64 rest)
{
	__s64 before = run->framed && rest ? frames_cut(run->buf, copied) : -1;

	if (before < 0)
		return false;
	run->before = before;
	run->left = rest;
	run->head.h.flags |= EV_F_CAPPED;
	return true;
}

/* One record of what is left of a frame; 1 when there is none, or nothing more. */
static __always_inline long frame_turn(struct run *run)
{
	__u64 before = run->before, want = 0, size = frame_at(run->buf - before, &want);

	if (size <= before)
		return 1;
	size -= before;
	if (size > run->left)
		size = run->left;
	want = want > before ? want - before : 0;
	if (want > size)
		want = size;
	run->head.len = want;
	run->head.orig_len = size;
	if (want)
		run_put(run);
	else
		run_put_head(run);
	run->before = 0;
	run->buf += size;
	run->head.pos += size;
	run->left -= size;
	return run->left == 0;
}

/* How many bytes are not told yet. */
static __always_inline __u64 frames_end(struct run *run)
{
	run->head.h.flags &= ~EV_F_CAPPED;
	return run->left;
}

/* Of the `rest` bytes that were not copied so many, the last ones, are copied all the same. */
static __always_inline __u64 run_tail(const struct run *run, __u64 rest)
{
	__u64 tail = run->framed == RUN_FRAMED_CALL ? LIMIT_CAPPED_TAIL_BYTES : LIMIT_CAPPED_END_BYTES;

	if (!run->framed)
		return 0;
	return rest < tail ? rest : tail;
}

#endif
