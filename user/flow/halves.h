/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_HALVES_H
#define FLOW_HALVES_H

/*
 * Halves of connections, put together. Some programs (rustls) keep their TLS to themselves: what the kernel side sees
 * is a cipher, one direction of a connection until its next key. Records of these (`half`) come here; out go records of
 * whole connections, which the conn stage takes as any other's. Which halves belong together, their socket tells.
 *
 *   - A half is held until its socket is known, which is when the records that the program sealed went out, or when
 *     those that it received were opened. Past HALVES_HELD_BYTES of one half, or HALVES_HELD_ALL_BYTES, it becomes a
 *     hole.
 *   - The first half on a socket begins the connection: its object is the socket (cookie), its generation the half's.
 *   - A later half of the same direction goes on where the one before ended, without a gap. One that is older than what
 *     was told of its direction already (its socket was learned too late) is given up.
 *   - A half on two sockets is a contradiction: from then on it is given up.
 *   - What is given up is counted (LOST_UNPAIRED_BYTES) and told once a half.
 *   - A connection of no interest is so with all its halves, also those that come later.
 */

#include "record.h"

#define HALVES_MAX	      65536 /* halves at once; past it the oldest is given up */
#define HALVES_SOCKS_MAX      65536 /* sockets at once; past it the oldest is forgotten with its halves */
#define HALVES_HELD_BYTES     (2u << 20)
#define HALVES_HELD_ALL_BYTES (32u << 20)
#define HALVES_POS_MAX	      (1ull << 57) /* no direction carries so much: positions stay numbers that mean something */
#define HALVES_LINGER_NS      2000000000ull /* a closed socket is remembered so long: bytes may still be read */

struct halves_sink {
	void *ctx;
	/* As those of record_sink, of whole connections; never NULL. Opened once, before anything else of it. */
	void (*on_open)(void *ctx, const struct rec_open *r);
	void (*on_data)(void *ctx, const struct rec_data *r);
	void (*on_gap)(void *ctx, const struct rec_gap *r);
	void (*on_pos)(void *ctx, const struct rec_pos *r);
	void (*on_handshake)(void *ctx, const struct rec_handshake *r);
	void (*on_conn_sock)(void *ctx, const struct rec_conn_sock *r);
	/* A half that carried data was given up, with all that follows on it. `key` is the half's. */
	void (*on_unpaired)(void *ctx, const struct conn_key *key, enum dir dir);
	/* The half is ignored from now on, or is not any more; NULL: nobody wants to know. Its answers come on the half
	 * `answers`, a generation: 0 not known, or it is no request's. May be said again. */
	void (*on_ignored)(void *ctx, const struct conn_key *key, uint32_t answers, bool ignored);
};

struct halves;

struct halves *halves_new(struct lost *lost, const struct halves_sink *sink); /* NULL: ENOMEM. `lost` is borrowed */
void halves_free(struct halves *t);					      /* without callbacks; NULL is fine */

/* Records of a half (r->half). */
void halves_push_data(struct halves *t, const struct rec_data *r);
void halves_push_gap(struct halves *t, const struct rec_gap *r);
void halves_push_pos(struct halves *t, const struct rec_pos *r);
void halves_push_handshake(struct halves *t, const struct rec_handshake *r);
void halves_push_conn_sock(struct halves *t, const struct rec_conn_sock *r);
/* What the connection on this socket carries is of no interest any more, or is again. */
void halves_ignore(struct halves *t, uint64_t cookie, bool ignored);
/* Any. */
void halves_push_sock(struct halves *t, const struct rec_sock *r);
void halves_push_exec(struct halves *t, const struct rec_exec *r); /* the program before is gone, with its halves */
void halves_push_exit(struct halves *t, const struct rec_exit *r);
void halves_tick(struct halves *t, uint64_t now_ns);
void halves_finish(struct halves *t); /* what is still held is given up */

#endif
