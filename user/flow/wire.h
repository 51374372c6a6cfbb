/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_WIRE_H
#define FLOW_WIRE_H

/*
 * TLS connections as TCP sees them, held against the plaintext that came of them: what of them nobody could read, why,
 * and what is known all the same. A connection is
 *
 *   - decoded when plaintext of a connection that is bound to its socket came; its turns before that were missed
 *     (WIRE_LATE);
 *   - served when the other side greeted;
 *   - unsure when plaintext of its process came that is bound to no socket: it may be this one's, nothing is claimed;
 *   - else undecoded.
 *
 * That is decided for a turn WIRE_SETTLE_NS after its last byte: until then plaintext may still come, or a vote bind
 * it. Handshakes are no turns (their first record says what it is). A connection that was open before is one of a
 * client only if its remote port is one of TLS (443, 8443): nothing else tells who asks whom.
 *
 * An answer of which only the end, or nothing but the wire, was seen, because it was asked for before tracing began:
 * who waited in a read then is not heard when that returns. It is missed if no plaintext of it came.
 *
 * A handshake is one that a client of ours began and did not complete where the connection ended, or goes on for
 * WIRE_HANDSHAKE_NS at the end, and behind its greeting nothing but an alert went out: of TLS 1.3 its Finished is
 * longer than WIRE_ALERT_BYTES, and before that there are keys to exchange. One that was completed, and whose client
 * left within WIRE_LEFT_NS of the server's first word without another one, is told too: some (Bun's fetch) look at the
 * certificate only then. Not where the process ended: it had opened the connection beforehand.
 *
 * Watchdog: a connection of a client that had a whole turn and no plaintext WIRE_SILENT_NS after, or that had plaintext
 * and then WIRE_SILENT_BYTES without, is told once a process and state of its files.
 */

#include "base/warm.h"
#include "record.h"

#define WIRE_MAX	   16384 /* connections; past it the longest silent one is forgotten, and counted */
#define WIRE_TURNS_MAX	   32	 /* of one connection that wait; past it the oldest is decided at once */
#define WIRE_RETRANSMITS   32	 /* latest ones of a connection, kept for its turns */
#define WIRE_PROCESSES_MAX 16384 /* past it the oldest is forgotten */
#define WIRE_REASON_BYTES  96
#define WIRE_SETTLE_NS	   1000000000ull
#define WIRE_LATE_NS	   5000000ull /* plaintext that much after the last byte of a turn is not that turn's */
#define WIRE_SILENT_NS	   3000000000ull
#define WIRE_SILENT_BYTES  65536
#define WIRE_LINGER_NS	   5000000000ull  /* after the process, or the socket, ended: last words come later */
#define WIRE_ORPHAN_NS	   60000000000ull /* after the process ended: a silent connection of it is over too */
#define WIRE_HANDSHAKE_NS  1000000000ull
#define WIRE_ANSWER_BYTES  128 /* less than that is no answer: a ticket, a PING, an alert */
/* change_cipher_spec and an encrypted alert of TLS 1.3: 6 bytes, and 5 + 2 + 1 + 16 (RFC 8446 sections 5.2, 6, D.4) */
#define WIRE_ALERT_BYTES 30
/* TLS 1.3's Finished of SHA-256, alone; of SHA-384 behind a change_cipher_spec and before an alert. TLS 1.2's are
 * between, where its keys are (x25519). */
#define WIRE_FINISHED_BYTES    58
#define WIRE_LEFT_BYTES	       104
#define WIRE_LEFT_NS	       250000000ull
#define WIRE_ALERT_PLAIN_BYTES 7 /* before there are keys; alone it is the first word of who does not want to */

enum wire_why {
	WIRE_NO_FUNCTIONS,  /* none of the process's files has TLS functions that we know */
	WIRE_REFUSED,	    /* ... or none that can be probed: `reason` */
	WIRE_NOT_RUN,	    /* probed functions, which did not run: TLS of another library */
	WIRE_NOT_RUN_AGAIN, /* ... nor after they were probed a second time */
	WIRE_LATE,	    /* the functions were probed after the connection began */
};

struct wire_conn {
	struct proc_key proc;
	uint64_t cookie;
	const char *host; /* as the client named it; "" unknown */
	struct sock_addr remote;
	uint64_t bytes[2]; /* on the wire, by direction */
	enum wire_why why;
	const char *reason; /* WIRE_REFUSED; else "" */
	uint64_t turns;	    /* that could not be read */
	bool served;	    /* the process is the server */
	bool probed;	    /* it maps files that are probed */
};

/* A turn that could not be read. begin <= send_end <= first <= end. */
struct wire_turn {
	struct wire_conn conn;
	uint64_t begin_ns, send_end_ns, first_ns, end_ns;
	uint64_t gap_ns;
	uint64_t bytes[2];
	bool merged; /* many in one */
	uint64_t connect_begin_ns, connect_end_ns,
		tls_begin_ns;	       /* of the connection, at its first turn; else UNKNOWN_NS */
	const uint64_t *retransmit_ns; /* during the turn */
	unsigned retransmits;
};

/* A handshake that came to nothing. */
struct wire_handshake {
	struct wire_conn conn;
	uint64_t connect_begin_ns; /* UNKNOWN_NS */
	uint64_t begin_ns, end_ns; /* the greeting; who ended the connection, or now */
	enum sock_closer closer;   /* of the handshake; NONE: not known */
	bool unanswered;
	bool completed;	 /* and left at once */
	bool unfinished; /* it goes on */
};

struct wire_sink {
	void *ctx;
	/* Called when it is certain that a turn was not read. Pointers are borrowed. */
	void (*on_turn)(void *ctx, const struct wire_turn *t);
	/* Called when a connection ends that was served, or had undecoded turns and no plaintext at all. */
	void (*on_conn)(void *ctx, const struct wire_conn *c);
	/* Called when a connection ends that had an answer which was missed. */
	void (*on_missed)(void *ctx, const struct wire_conn *c);
	/* Called when a connection ends, or all do. */
	void (*on_handshake)(void *ctx, const struct wire_handshake *h);
	/* Called when plaintext should come and does not. */
	void (*on_silent)(void *ctx, const struct wire_conn *c);
};

/* Nothing else tells of a connection that was open before who asks whom. */
static inline bool wire_is_tls_port(uint16_t port)
{
	return port == 443 || port == 8443;
}

struct wires;

struct wires *wires_new(struct lost *lost, const struct wire_sink *sink); /* NULL: ENOMEM */
void wires_free(struct wires *t);

void wires_push(struct wires *t, const struct rec_wire *r);
void wires_push_hello(struct wires *t, const struct rec_hello *r);
void wires_push_files(struct wires *t, const struct rec_files *r);
void wires_push_sock(struct wires *t, const struct rec_sock *r);
void wires_push_exec(struct wires *t, const struct rec_exec *r);
void wires_push_exit(struct wires *t, const struct rec_exit *r);
/* Plaintext of a connection of this process: bound to the socket `cookie`, or to none that is known (0). The
 * connection's first one came in a call that began at first_ns, this one's call returned at ts_ns. */
void wires_push_plain(struct wires *t, uint32_t tgid, uint64_t cookie, uint64_t first_ns, uint64_t ts_ns);
/* Adds what wires_push_plain() of that socket looks at. */
void wires_warm(const struct wires *t, uint64_t cookie, struct warm *w);
/* It was greeted on that socket, and on_handshake follows as far as is known now. */
bool wires_greeted(struct wires *t, uint64_t cookie);
/* From now on its plaintext is not copied: silence means nothing. */
void wires_ignore(struct wires *t, uint64_t cookie, bool on);
void wires_tick(struct wires *t, uint64_t now_ns);
void wires_finish(struct wires *t, uint64_t now_ns); /* decides and ends all */

#endif
