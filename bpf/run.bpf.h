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

/* A run of bytes on its way out: the head of the next record, and what is left. */
struct run {
	__u64 buf;
	__u64 left;
	__u32 rest_flags; /* of the record that tells what was left out */
	__u32 skip;	  /* RUN_* */
	struct ev_data head;
};

/* A record of head.len bytes at buf, and one without bytes that says how many there were: run.bpf.c. */
int run_put(struct run *run);
int run_put_head(struct run *run);
/* No record of them at all: only that something is missing up to there. */
int run_drop(struct run *run);
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

/* The last `len` bytes of a run were left out by choice. */
static __always_inline void run_rest(struct run *run, __u64 len)
{
	if (run->skip == RUN_DROPPED)
		run_drop(run);
	if (!len || run->skip)
		return;
	run->head.orig_len = len < 0x80000000 ? len : 0x80000000; /* beyond: a hole in the positions */
	run->head.h.flags |= run->rest_flags;
	run_put_head(run);
}

#endif
