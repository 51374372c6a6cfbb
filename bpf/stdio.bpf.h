/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_STDIO_BPF_H
#define PERFBPF_STDIO_BPF_H

/*
 * A child that speaks JSON-RPC (an MCP server) over its standard input and output: one connection of its parent. When a
 * child of a target runs a program, its descriptors 0 and 1 are looked at; if they are pipes or Unix sockets whose
 * other ends its parent holds, both are noted by their inode numbers. What moves first decides: it begins with '{' and
 * holds "jsonrpc", or the pair is never looked at again.
 *
 * Only the parent's calls are told, so that nothing is told twice. But system calls are not seen until user space has
 * attached syscall.bpf.c, and a parent may write its first message before that. So the child's reads are told in the
 * place of the parent's writes, until the parent has read an answer and the child's pipe is empty: what was written
 * before was told then. (A parent that writes on another thread at that very moment may have those bytes told twice or
 * not at all; before the answer to its first message it has nothing to say.)
 */

#include "plain.bpf.h"

/* A child runs a program, as the current process (running: is found to do so). Both descriptor tables (struct
 * files_struct *), and the identity of the parent, obj left out. 1: a pair that needs syscall.bpf.c. */
int stdio_note(__u64 files, __u64 parent_files, const struct conn_map_key *parent, __u32 running);
/* The current thread moved bytes over a socket that is the parent's end, or the child's (by_child). STDIO_*: what is
 * known of the pair then, STDIO_NEVER: the socket is of no interest any more. m->cookie: they are to be copied. */
int stdio_moved(__u64 obj, struct plain_move *m, __u32 by_child);
/* A call of the current thread on a pipe has ended: m->len 0 is the end of the file. Sets m->cookie too. */
int stdio_pipe_moved(__u64 ino, struct plain_move *m);
/* The parent read the end of the child's output. */
int stdio_ended(__u64 obj);

/* After those two. In the program itself: calls nest eight deep at most, and there are seven below this. */
static __always_inline void stdio_copy(const struct plain_move *m)
{
	__u64 obj = m->cookie;
	struct stdio *s = obj ? bpf_map_lookup_elem(&stdios, &obj) : NULL;

	if (s && s->plain.conn.gen)
		plain_copy(&s->plain, m);
}

#endif
