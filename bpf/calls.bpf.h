/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_CALLS_BPF_H
#define PERFBPF_CALLS_BPF_H

/*
 * Open TLS calls of a thread, or of a goroutine, are a stack, as the calls are: a write nests in a read (node),
 * callbacks nest deeper, a wrapper calls the function that does the work. A return finds its entry by the stack pointer
 * and the role; what lies above it there returned without us (longjmp, or a return probe that the kernel missed), is
 * counted and marks its connection.
 */

#include "conn.bpf.h"

/* A call whose return was not seen: its bytes, if any, are lost. */
int call_missed(const struct tls_call *call);
/* A call that could not be put on the stack: the same, under another counter. */
int call_refused(const struct tls_call *call, __u32 stat);

/* Takes the entries off that cannot be callers of a call made now; the new depth. */
static __always_inline __u32 calls_still_open(struct open_calls *open, const struct tls_call *call)
{
	__u32 depth = open->depth;
	int i;

	for (i = 0; i < LIMIT_NEST; i++) {
		struct tls_call *top;

		if (!depth)
			break;
		top = call_at(open, depth - 1);
		if (top->sp > call->sp)
			break;
		/* The same depth of stack: only a tail call (SSL_write_ex to SSL_write_ex2) leaves its caller open. */
		if (top->sp == call->sp && top->ip != call->ip && top->role == call->role)
			break;
		/* Go enters a function again when it had to make room on the stack first. */
		if (!(call->flags & CALL_GO) || top->sp != call->sp || top->obj != call->obj || top->role != call->role)
			call_missed(top);
		depth--;
	}
	return depth;
}

/* 0: its return is wanted; 1: it is not. */
static __always_inline int call_add(struct open_calls *open, struct tls_call *call)
{
	__u32 depth = calls_still_open(open, call);

	if (depth >= LIMIT_NEST) {
		open->depth = LIMIT_NEST;
		call_refused(call, ST_NEST_OVERFLOW);
		return 1;
	}
	*call_at(open, depth) = *call;
	open->depth = depth + 1;
	return 0;
}

/* A call of another kind on the same object is open around this one: this is a callback's. */
static __always_inline bool call_is_nested(struct open_calls *open, const struct tls_call *call)
{
	__u32 depth = open->depth, i;

	for (i = 0; i < LIMIT_NEST; i++) {
		const struct tls_call *outer = &open->calls[i];

		if (i >= depth)
			break;
		if (outer->obj == call->obj && outer->role != call->role)
			return true;
	}
	return false;
}

/* Takes the entry of this return off the stack; false: it has none. */
static __always_inline bool call_pop(struct open_calls *open, __u64 sp, __u32 role, struct tls_call *out)
{
	__u32 depth = open->depth, at = depth, found = 0;
	int i;

	for (i = 0; i < LIMIT_NEST; i++) {
		const struct tls_call *call;

		if (!at)
			break;
		at--;
		call = call_at(open, at);
		if (call->sp == sp && call->role == role) {
			*out = *call;
			found = 1;
			break;
		}
	}
	if (!found)
		return false;
	for (i = 0; i < LIMIT_NEST; i++) {
		if (depth <= at + 1)
			break;
		depth--;
		call_missed(call_at(open, depth));
	}
	open->depth = at;
	return true;
}

/*
 * These bytes were reported: no open caller may report them again. A caller is a wrapper if it works on the same object
 * in the same direction and the bytes go on where its own reported bytes end (a loop around partial writes does that
 * too). A callback that reads into another buffer is not.
 */
static __always_inline void calls_tell_wrappers(struct open_calls *open, const struct tls_call *done, __u64 len)
{
	__u32 depth = open->depth, i;

	for (i = 0; i < LIMIT_NEST; i++) {
		struct tls_call *outer = &open->calls[i];

		if (i >= depth)
			break;
		if (outer->obj == done->obj && outer->role == done->role &&
		    outer->buf + outer->inner == done->buf + done->inner)
			outer->inner += len;
	}
}

#endif
