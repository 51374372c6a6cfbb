/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_CONN_H
#define FLOW_CONN_H

/*
 * Connections: joins the records of one connection generation (of a TLS object, or of a socket that carries plain
 * HTTP), owns its two streams, binds it to a TCP socket, and knows when and by whom it ended. Downstream sees bytes in
 * order.
 */

#include "record.h"
#include "stream.h"

/*
 * To which socket a connection belongs. A socket call inside the TLS call is proof. Programs that do their TLS in
 * memory (asyncio, node) only give votes: the first send on the thread that fits the size of one TLS write there, and
 * of no other that waits; the last receive before a TLS read. (A plain one is its socket: bound at once, with a peer
 * unless that is a Unix socket's.) A vote is confirmed when the socket call moved exactly what TLS makes of the
 * plaintext: bpf/overhead.h. Before the first send of a connection seen from its start may be the end of a TLS 1.3
 * handshake. All else (part of a record, several reads in one) says nothing. A connection is bound by votes when
 *   - one socket has two confirmed votes, or
 *   - it is the only socket that ever got a vote, and has one for a write of at least CONN_VOTE_SINGLE_BYTES,
 * and no other socket has a confirmed one. A vote is not confirmed where another connection of the process may have
 * moved the same bytes: it encrypted as much, and was not seen to send it; or it decrypts as much with no receive
 * before it. Sockets that are bound to another open connection do not stand for election. Anything else is not known,
 * and stays so: contradicting proof or votes unbind.
 *
 * Who ended it: the first that closed at the TCP level (or by the program's own word in the close record), whenever the
 * library's object goes; nobody when neither is known. Its time is that of the first of close and hint, or of the last
 * bytes.
 */

#define CONN_MAX	       65536 /* open at once; past it the longest silent one is closed and counted */
#define CONN_SOCKS_MAX	       65536 /* sockets remembered; past it the longest silent one is forgotten */
#define CONN_ENDED_MAX	       4096  /* ended connections remembered, to know late records from new connections */
#define CONN_CANDIDATES_MAX    8     /* sockets that may get votes of one connection */
#define CONN_VOTE_SINGLE_BYTES 128
#define CONN_CLOSE_LINGER_NS   100000000ull /* SSL_free fires before the last reference drops: bytes may still follow */
#define CONN_SOCK_LINGER_NS                                                                                            \
	1000000000ull /* the socket is closed but the object lives: the library may still hold bytes */
/*
 * A hole in one direction, or at its end, is given up once so many bytes of the other one went by: a response is not
 * read on while its request is waited for (less than HTTP1_PARK_BYTES and a read, or it would be nobody's); and after
 * STREAM_HOLD_NS.
 */
#define CONN_AHEAD_BYTES 32768
#define CONN_DELAYS_MAX	 64	     /* newest delays of each kind that are kept of a socket */
#define CONN_CHECK_NS	 10000000ull /* how often, in event time, waiting things are looked at */

enum conn_end {
	CONN_END_UNKNOWN,  /* object freed, nobody knows who closed */
	CONN_END_LOCAL,	   /* the program closed */
	CONN_END_REMOTE,   /* the peer closed or reset */
	CONN_END_EXIT,	   /* the process ended */
	CONN_END_EXEC,	   /* the process ran another program */
	CONN_END_REPLACED, /* the object was reused for a new connection */
	CONN_END_CAPTURE,  /* tracing ended */
	CONN_END_LIMIT,	   /* CONN_MAX */
};

struct conn_setup {
	uint64_t connect_begin_ns, connect_end_ns; /* TCP, and up to a proxy's answer; UNKNOWN_NS when not seen */
	uint64_t tls_begin_ns, tls_end_ns;	   /* UNKNOWN_NS when not seen */
	bool tls_approximate;
	int tls_resumed; /* -1 unknown */
	uint32_t tid;	 /* that called connect(); 0: not seen */
};

/* When bytes of a socket waited, in order of time: borrowed, valid until anything is pushed. */
struct conn_delays {
	struct interval *at;
	size_t count;
};

/* Plain data that downstream may read; owned by the conn stage, valid until on_conn_end returned. */
struct conn {
	struct conn_key key;
	uint64_t id;	   /* unique in the run, from 1 */
	bool fresh;	   /* seen from its first byte; else attached in the middle */
	bool plain;	   /* no TLS */
	bool halves;	   /* put together of halves: the kernel knows it by other names than its key */
	bool stdio;	   /* plain, and JSON-RPC with a child over its standard input and output: never bound */
	bool bound;	   /* to a socket: the fields of it are proven */
	uint64_t cookie;   /* the socket's */
	void *ctx;	   /* downstream's own */
	uint64_t bytes[2]; /* plaintext positions reached, by direction */
	uint64_t open_ns;
	struct conn_setup setup;
	struct sock_addr local, remote;
	uint32_t srtt_us, rtt_min_us;	/* last known, 0 unknown */
	uint32_t retransmits;		/* so far, on this socket */
	uint64_t reset_ns;		/* the first reset, UNKNOWN_NS: none */
	bool reset_sent;		/* by the program's side */
	struct conn_delays late;	/* received bytes lay in the kernel, and the program did not read */
	struct conn_delays network;	/* bytes that were lost were waited for, in either direction */
	int32_t exit_code, exit_signal; /* when end is CONN_END_EXIT */
};

struct conn_sink {
	void *ctx;
	/* First record of a connection. */
	void (*on_conn_open)(void *ctx, struct conn *c);
	void (*on_conn_bytes)(void *ctx, struct conn *c, enum dir dir, const uint8_t *ptr, size_t len,
			      const struct stamp *at);
	void (*on_conn_gap)(void *ctx, struct conn *c, enum dir dir, uint64_t len, enum gap_why why,
			    const struct stamp *at);
	/* Other things than bytes changed in c; what its delays were is gone. */
	void (*on_conn_change)(void *ctx, struct conn *c);
	/* Retransmit, reset, close, RTT on the bound socket of c. */
	void (*on_conn_sock)(void *ctx, struct conn *c, const struct rec_sock *r);
	/* It was left, as far as is known now at ts_ns, but bytes of it may still be on their way here: on_conn_end
	 * follows, within CONN_CLOSE_LINGER_NS or CONN_SOCK_LINGER_NS. Not where its process ends. NULL is skipped. */
	void (*on_conn_closing)(void *ctx, struct conn *c, uint64_t ts_ns);
	/* Last word about c; c->ctx must be released by the callee. */
	void (*on_conn_end)(void *ctx, struct conn *c, enum conn_end why, uint64_t ts_ns);
};

struct conns;

/* Which connections data will be pushed of soon, up to CONN_SOON_MAX at once: what is known of them is fetched into the
 * caches. found[i]: the connection of keys[i]; NULL: none is known. */
#define CONN_SOON_MAX 8
void conns_soon(const struct conns *t, const struct conn_key *keys, unsigned count, struct conn *found[]);

/* NULL with errno ENOMEM. `lost` is borrowed. */
struct conns *conns_new(struct lost *lost, const struct conn_sink *sink);
void conns_free(struct conns *t); /* without callbacks; conns_finish() first */

void conns_push_data(struct conns *t, const struct rec_data *r);
void conns_push_gap(struct conns *t, const struct rec_gap *r);
void conns_push_open(struct conns *t, const struct rec_open *r);
void conns_push_close(struct conns *t, const struct rec_close *r);
void conns_push_pos(struct conns *t, const struct rec_pos *r);
void conns_push_handshake(struct conns *t, const struct rec_handshake *r);
void conns_push_conn_sock(struct conns *t, const struct rec_conn_sock *r);
void conns_push_sock(struct conns *t, const struct rec_sock *r);
void conns_push_hello(struct conns *t, const struct rec_hello *r);
/* Of this direction bytes are missing, and what came behind them waits; or nothing came yet. */
bool conn_waits(const struct conn *c, enum dir dir);
void conns_push_exec(struct conns *t, const struct rec_exec *r); /* ends the connections of the program before */
void conns_push_exit(struct conns *t, const struct rec_exit *r); /* ends those of the process */
void conns_tick(struct conns *t, uint64_t now_ns);
void conns_finish(struct conns *t, uint64_t now_ns); /* ends all with CONN_END_CAPTURE */

/* For coverage and snapshots: every connection that is open. */
void conns_each(struct conns *t, void (*fn)(void *ctx, struct conn *c), void *ctx);

#endif
