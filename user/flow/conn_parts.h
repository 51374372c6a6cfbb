/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_CONN_PARTS_H
#define FLOW_CONN_PARTS_H

/*
 * What the files of the connection stage share. Private to them: conn.c joins the records of a connection and knows
 * when it ended, conn_sock.c which socket it belongs to and what that went through, conn_rival.c when a vote for a
 * socket may be another connection's.
 */

#include "conn.h"

#include "base/hash.h"
#include "hello.h"

#define CONN_UNSENT_MAX 4 /* pieces whose sizes are kept */

struct candidate {
	uint64_t cookie;
	struct sock_addr local, remote;
	unsigned confirmed;
	bool single; /* one of them is a large enough write */
};

/* What is known of a TCP socket, whether or not a connection is bound to it yet. */
struct sock {
	uint64_t cookie;
	uint64_t connect_begin_ns, connect_end_ns;
	uint32_t connect_tid;
	struct sock_addr local, remote;
	uint32_t srtt_us, rtt_min_us, retransmits;
	char session[HELLO_SESSION_MAX]; /* that the client would go on with */
	size_t session_len;
	int tls_resumed; /* -1 unknown */
	uint64_t reset_ns;
	bool reset_sent;
	struct conn_delays late, network; /* owned */
	enum conn_end closer;		  /* LOCAL or REMOTE: who closed first; UNKNOWN: nobody did */
	uint64_t closer_ns;
	uint64_t closed_ns;	  /* UNKNOWN_NS: lives */
	struct entry *owner;	  /* the connection that is bound to it */
	struct sock *prev, *next; /* longest silent first */
	UT_hash_handle hh;
};

/* The connections of one process, all its execs. */
struct group {
	struct {
		uint64_t start_ns;
		uint32_t tgid, zero;
	} key;
	struct entry *entries;
	struct entry *unsent; /* those that encrypted something which may not be sent yet */
	/* The latest vote of a receive that counts, and who may have read that, too. */
	struct {
		struct entry *of, *rival;
		uint64_t cookie;
		uint32_t wire_len;
	} heard;
	UT_hash_handle hh;
};

/* A connection that ended: late records of it must not make a new one. */
struct ended {
	struct conn_key key;
	uint64_t pos[2];
	bool final; /* process or generation gone; else the object lives, and bytes from pos on are the connection's */
	UT_hash_handle hh;
};

struct way { /* sink context of one stream */
	struct entry *entry;
	enum dir dir;
};

struct entry {
	struct conn c; /* first: what downstream sees */
	/* Then what each piece of bytes looks at. */
	UT_hash_handle hh; /* by key */
	struct conns *table;
	struct entry *lru_prev, *lru_next;
	uint64_t last_ns; /* latest bytes */
	bool waiting;	  /* in table->waiting: closing, or bytes of a stream are missing */
	bool proven;	  /* bound from inside */
	bool closing;	  /* ends at linger_ns: */
	enum conn_end why;
	uint64_t hint_ns, linger_ns;
	uint64_t ahead[2]; /* bytes of this direction since the other one began to hold records */
	struct way way[2];
	struct stream stream[2];
	uint64_t
		gone_ns; /* the program ended (EXIT, EXEC): what happens to its sockets from then on is not its doing */
	enum conn_end closer; /* as in sock, but of the close record */
	uint64_t closer_ns;
	uint64_t final_pos[2], final_ns[2]; /* as far as the direction went, by a record's word, and when */

	struct candidate candidates[CONN_CANDIDATES_MAX];
	unsigned candidate_count;
	bool sent;	/* a send after a write was seen */
	bool contested; /* proof for two sockets: never bound again */
	struct sock *sock;
	/* conn_rival.c: plaintext that was encrypted, and not seen to be sent; the sizes of some pieces */
	uint32_t unsent[CONN_UNSENT_MAX];
	unsigned unsent_count;
	uint64_t unsent_bytes, unsent_ns;
	struct entry *unsent_prev, *unsent_next;

	struct group *group;
	struct entry *wait_prev, *wait_next;
	struct entry *group_prev, *group_next;
	UT_hash_handle hh_obj; /* the newest generation of an object */
};

struct conns {
	struct lost *lost;
	struct conn_sink sink;
	struct entry *by_key, *by_obj;
	struct entry *lru;     /* longest silent first */
	struct entry *waiting; /* looked at by expire() */
	struct group *groups;
	struct sock *socks, *sock_lru;
	struct ended *ended;
	uint64_t last_id, now_ns, check_ns;
};

/* conn.c */
void conn_changed(struct entry *e);
/* The connection is about to end: because of `why` (unless a closer is known by then), at `ts_ns`. The first hint
 * stays. */
void conn_begin_close(struct entry *e, enum conn_end why, uint64_t ts_ns, uint64_t linger);
/* Time passes. True: connections may have ended. */
bool conn_advance(struct conns *t, uint64_t now_ns);

/* conn_sock.c: the connection keeps what it knows of the socket, but hears no more of it; */
void conn_sock_detach(struct sock *s);
void conn_sock_free(struct conns *t, struct sock *s); /* detached */
/* ... a socket call inside the TLS call, and one beside it. */
void conn_sock_prove(struct entry *e, const struct rec_conn_sock *r);
void conn_sock_vote(struct entry *e, const struct rec_conn_sock *r);
/* One vote for that socket was another connection's, maybe. */
void conn_sock_take_back(struct entry *e, uint64_t cookie);
/* wire = plain + n records' overhead, after a handshake + its end: see conn.h. */
bool conn_sizes_match(uint32_t wire, uint32_t plain, bool after_handshake);

/* conn_rival.c: bytes of the connection moved through TLS; */
void conn_rival_data(struct entry *e, enum dir dir, uint32_t len, uint64_t ts_ns);
/* ... another connection may have sent what this vote is about; */
bool conn_rival_sends(const struct entry *e, const struct rec_conn_sock *r);
/* ... what it encrypted was sent; */
void conn_rival_sent(struct entry *e);
/* ... it voted for a receive; */
void conn_rival_heard(struct entry *e, const struct rec_conn_sock *r, bool confirmed);
void conn_rival_forget(struct entry *e);

#endif
