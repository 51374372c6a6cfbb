/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_PLAIN_BPF_H
#define PERFBPF_PLAIN_BPF_H

/* What sock.bpf.c asks plain.bpf.c: where the bytes of a socket call are, what they look like, to copy them. */

#include "emit.bpf.h"

#define MSG_OOB	     1
#define MSG_PEEK     2
#define MSG_TRUNC    0x20
#define MSG_ERRQUEUE 0x2000 /* what comes from there was sent, not received */
/* Receives with one of these take nothing of what the other side sent, in its order. */
#define MSG_NOT_TAKEN (MSG_OOB | MSG_PEEK | MSG_ERRQUEUE)

/* Bytes that a system call of the current thread moved over a socket. */
struct plain_move {
	__u64 len;
	__u64 now;
	__u64 cookie; /* of the socket; by stdio.bpf.c: key of `stdios`, 0: not to be copied */
	__u32 flags;  /* MSG_*, receives only */
	__u32 tid;    /* 0: the current thread's */
	__u8 dir;
	__u8 tcp;      /* 1: over TCP, 0: over a Unix socket or a pipe */
	__u8 returned; /* 1: the system call is over, and has its result */
	/* By plain_find(): */
	__u8 found;	 /* 0: no probe sees these bytes */
	__u32 iov_count; /* elements of the caller's iovec that are left */
	__u64 iov;	 /* the first of them */
	__u64 buf;	 /* where the bytes begin */
	__u64 part_len;	 /* size of that buffer: some of them may be elsewhere */
};

/* Finds the user's buffers. */
int plain_find(struct plain_move *m);
/* The bytes from their beginning, as far as that lies in one buffer, `max` (a constant) at most: how many. */
static __always_inline __u64 copy_head(__u8 *to, const struct plain_move *m, __u64 max)
{
	__u64 n = m->len < m->part_len ? m->len : m->part_len;

	asm volatile("" : "+r"(n));
	if (n > max)
		n = max;
	return bpf_probe_read_user(to, n, (const void *)m->buf) ? 0 : n;
}

/* Whether these bytes begin a message of HTTP: PLAIN_*. Counts in `info` what they do not tell. fresh: they are the
 * first of the connection. */
int plain_look(struct sock_info *info, const struct plain_move *m, int fresh);
/* 1: they look like the beginning of a TLS record. */
int plain_is_tls(const struct plain_move *m);
/* 1: they begin with a TLS record of data; or, if it may be so, with the end of a client's handshake before it. */
int plain_is_data(struct plain_move *m, int finished);
int plain_copy(struct plain *plain, const struct plain_move *m);
/* A call of the current thread ended with an error or at the end of the file. */
int plain_call_ended(void);

#endif
