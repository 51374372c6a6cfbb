/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PERFBPF_WIRE_BPF_H
#define PERFBPF_WIRE_BPF_H

/*
 * What TCP alone tells of a connection that carries TLS: when which direction moved, how much, how long it was silent.
 * sock.bpf.c asks; no byte is read but the types of records, and the greeting that names the host.
 */

#include "plain.bpf.h"

/* sock_info.tls */
#define TLS_NO	   0
#define TLS_YES	   1 /* its bytes are TLS records */
#define TLS_INSIDE 2 /* ... and a probed TLS function moved them */
#define TLS_TUNNEL 3 /* a proxy was asked for a tunnel: what follows is yet to be seen */

/* The first TLS bytes of a socket that perfbpf sees: who they are from, and the greeting. */
int wire_begin(struct wire *w, const struct plain_move *m);
/* The current process uses the socket, and is not whose wire it is: it is, if that one has ended. */
int wire_inherit(struct wire *w);
int wire_moved(struct wire *w, struct plain_move *m);
/* What moved while nothing was told of the socket (sock_info.calm_bytes). now 0: when is not known. */
int wire_catch_up(struct wire *w, struct sock_info *info, __u64 now);
/* Tells where it stands. flags: EV_WIRE_* */
int wire_tell(const struct wire *w, __u32 flags);

#endif
