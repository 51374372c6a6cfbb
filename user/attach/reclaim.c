/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "reclaim.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <linux/types.h>

#include <utlist.h>

#include "base/hash.h"
#include "bpf/event.h"

/* A connection whose state the kernel holds, as far as its CONN_OPEN came through. */
struct known {
	struct conn_map_key key;
	uint32_t gen;
	bool on_unix;	    /* a plain connection, in the list of those on Unix sockets */
	bool half;	    /* EV_F_HALF */
	uint64_t closed_ns; /* 0: not in the queue */
	UT_hash_handle hh;
	struct known *prev, *next;   /* of its process */
	struct known *qprev, *qnext; /* in the queue of closed ones, oldest first */
	struct known *uprev, *unext; /* in the list of those on Unix sockets */
	struct socket *socket;	     /* that it is known to use; NULL: none */
	struct known *sprev, *snext; /* of that socket */
};

/* TCP, with TLS connections on it. */
struct socket {
	uint64_t cookie;
	struct known *conns;
	UT_hash_handle hh;
};

struct process {
	uint32_t tgid;
	struct known *conns;
	UT_hash_handle hh;
};

struct reclaim {
	int conns_fd, targets_fd, go_calls_fd;
	struct known *conns;
	struct process *processes;
	struct socket *sockets;
	struct known *closed;
	struct known *on_unix;
	unsigned unix_count;
};

struct reclaim *reclaim_new(int conns_fd, int targets_fd, int go_calls_fd)
{
	struct reclaim *r = calloc(1, sizeof(*r));

	if (r) {
		r->conns_fd = conns_fd;
		r->targets_fd = targets_fd;
		r->go_calls_fd = go_calls_fd;
	}
	return r;
}

static struct known *find(struct reclaim *r, const struct conn_map_key *key)
{
	struct known *k;

	HASH_FIND(hh, r->conns, key, sizeof(*key), k);
	return k;
}

static struct process *process_of(struct reclaim *r, uint32_t tgid)
{
	struct process *p;

	HASH_FIND(hh, r->processes, &tgid, sizeof(tgid), p);
	return p;
}

static void unix_remove(struct reclaim *r, struct known *k)
{
	if (!k->on_unix)
		return;
	k->on_unix = false;
	DL_DELETE2(r->on_unix, k, uprev, unext);
	r->unix_count--;
}

static void socket_leave(struct reclaim *r, struct known *k)
{
	struct socket *s = k->socket;

	if (!s)
		return;
	k->socket = NULL;
	DL_DELETE2(s->conns, k, sprev, snext);
	if (s->conns)
		return;
	HASH_DEL(r->sockets, s);
	free(s);
}

static struct socket *socket_find(struct reclaim *r, uint64_t cookie)
{
	struct socket *s;

	HASH_FIND(hh, r->sockets, &cookie, sizeof(cookie), s);
	return s;
}

/* Without memory it stays unknown, and the state stays until the process ends. */
static void socket_enter(struct reclaim *r, struct known *k, uint64_t cookie)
{
	struct socket *s = socket_find(r, cookie);

	if (k->socket && k->socket == s)
		return;
	socket_leave(r, k);
	s = socket_find(r, cookie);
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return;
		s->cookie = cookie;
		HASH_ADD(hh, r->sockets, cookie, sizeof(s->cookie), s);
		if (!s->hh.tbl) {
			free(s);
			return;
		}
	}
	k->socket = s;
	DL_APPEND2(s->conns, k, sprev, snext);
}

/* Out of our tables, not out of the kernel. The process entry goes with its last connection. */
static void forget(struct reclaim *r, struct known *k)
{
	struct process *p = process_of(r, k->key.tgid);

	unix_remove(r, k);
	socket_leave(r, k);
	if (k->closed_ns)
		DL_DELETE2(r->closed, k, qprev, qnext);
	if (p) {
		DL_DELETE(p->conns, k);
		if (!p->conns) {
			HASH_DEL(r->processes, p);
			free(p);
		}
	}
	HASH_DEL(r->conns, k);
	free(k);
}

static void drop(struct reclaim *r, struct known *k)
{
	bpf_map_delete_elem(r->conns_fd, &k->key);
	forget(r, k);
}

void reclaim_free(struct reclaim *r)
{
	struct known *k, *next;

	if (!r)
		return;
	HASH_ITER (hh, r->conns, k, next) {
		forget(r, k);
	}
	free(r);
}

static struct process *process_add(struct reclaim *r, uint32_t tgid)
{
	struct process *p = process_of(r, tgid);

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->tgid = tgid;
	HASH_ADD(hh, r->processes, tgid, sizeof(p->tgid), p);
	if (!p->hh.tbl) {
		free(p);
		return NULL;
	}
	return p;
}

/* Without memory it stays unknown: reclaim_sweep() finds it when its process is gone. */
static void add(struct reclaim *r, const struct conn_map_key *key, uint32_t gen, bool half)
{
	struct known *k = find(r, key);
	struct process *p;

	if (k) { /* the object lives again */
		if (k->closed_ns)
			DL_DELETE2(r->closed, k, qprev, qnext);
		k->closed_ns = 0;
		k->gen = gen;
		socket_leave(r, k);
		return;
	}
	k = calloc(1, sizeof(*k));
	if (!k)
		return;
	k->key = *key;
	k->gen = gen;
	k->half = half;
	p = process_add(r, key->tgid);
	if (!p) {
		free(k);
		return;
	}
	HASH_ADD(hh, r->conns, key, sizeof(k->key), k);
	if (!k->hh.tbl) {
		if (!p->conns) {
			HASH_DEL(r->processes, p);
			free(p);
		}
		free(k);
		return;
	}
	DL_APPEND(p->conns, k);
}

static void closed(struct reclaim *r, const struct conn_map_key *key, uint64_t ts_ns)
{
	struct known *k = find(r, key);

	if (!k || k->closed_ns)
		return;
	unix_remove(r, k);
	k->closed_ns = ts_ns ? ts_ns : 1;
	DL_APPEND2(r->closed, k, qprev, qnext);
}

void reclaim_process(struct reclaim *r, uint32_t tgid)
{
	struct process *p;

	while ((p = process_of(r, tgid)))
		drop(r, p->conns);
}

/* The process runs another program: the connections of the one before are unreachable. */
static void program_ended(struct reclaim *r, uint32_t tgid, uint32_t exec_id)
{
	struct process *p = process_of(r, tgid);
	struct known *k = p ? p->conns : NULL, *next;

	for (; k; k = next) {
		next = k->next;
		if (k->key.exec_id != exec_id)
			drop(r, k);
	}
}

static struct conn_map_key key_of(const struct ev_head *h, const struct ev_conn *c)
{
	return (struct conn_map_key){.obj = c->obj, .start_ns = c->start_ns, .tgid = h->tgid, .exec_id = c->exec_id};
}

/* Unix sockets, and standard input and output of children. */
static void note_untold(struct reclaim *r, const struct conn_map_key *key)
{
	struct known *k = find(r, key);

	if (!k || k->on_unix)
		return;
	k->on_unix = true;
	DL_APPEND2(r->on_unix, k, uprev, unext);
	r->unix_count++;
}

unsigned reclaim_unix_count(const struct reclaim *r)
{
	return r->unix_count;
}

static int compare_cookies(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void reclaim_unix_sweep(struct reclaim *r, const uint64_t *cookies, size_t count, uint64_t now_ns,
			void (*fn)(void *ctx, const void *bytes, size_t len), void *ctx)
{
	struct known *k, *next;

	DL_FOREACH_SAFE2(r->on_unix, k, next, unext)
	{
		struct ev_conn_close c = {
			.h = {.size = sizeof(c), .kind = EV_CONN_CLOSE, .ts_ns = now_ns, .tgid = k->key.tgid},
			.conn = {.obj = k->key.obj,
				 .start_ns = k->key.start_ns,
				 .exec_id = k->key.exec_id,
				 .gen = k->gen},
		};
		uint64_t cookie = k->key.obj;

		if (count && bsearch(&cookie, cookies, count, sizeof(cookie), compare_cookies))
			continue;
		closed(r, &k->key, now_ns);
		fn(ctx, &c, sizeof(c));
	}
}

static void note_sock(struct reclaim *r, const struct ev_conn_sock *s)
{
	struct conn_map_key key = key_of(&s->h, &s->conn);
	struct known *k = s->how == EV_SOCK_INSIDE || s->how == EV_SOCK_RECORDS ? find(r, &key) : NULL;

	if (k)
		socket_enter(r, k, s->cookie);
	if (s->how == EV_SOCK_ITSELF && !s->addr.family)
		note_untold(r, &key);
}

/* Nothing more comes over it. What a library still holds of it, its own functions tell. */
static void socket_closed(struct reclaim *r, const struct ev_sock *s)
{
	struct socket *socket = s->what == EV_SK_CLOSED ? socket_find(r, s->cookie) : NULL;
	struct known *k = socket ? socket->conns : NULL;

	for (; k; k = k->snext)
		closed(r, &k->key, s->h.ts_ns);
}

void reclaim_note(struct reclaim *r, const void *bytes, size_t len)
{
	const struct ev_head *h = bytes;
	struct conn_map_key key;

	if (len < sizeof(*h))
		return;
	switch (h->kind) {
	case EV_CONN_OPEN:
		key = key_of(h, &((const struct ev_conn_open *)bytes)->conn);
		add(r, &key, ((const struct ev_conn_open *)bytes)->conn.gen, h->flags & EV_F_HALF);
		if (h->flags & EV_F_STDIO)
			note_untold(r, &key);
		break;
	case EV_CONN_CLOSE:
		key = key_of(h, &((const struct ev_conn_close *)bytes)->conn);
		closed(r, &key, h->ts_ns);
		break;
	case EV_CONN_SOCK:
		note_sock(r, bytes);
		break;
	case EV_SOCK:
		socket_closed(r, bytes);
		break;
	case EV_EXEC:
		program_ended(r, h->tgid, ((const struct ev_exec *)bytes)->exec_id);
		break;
	case EV_EXIT:
		reclaim_process(r, h->tgid);
		break;
	}
}

/* No call will use it any more: it was freed, or its socket was closed and nothing frees it. */
static bool is_over(const struct conn_state *state)
{
	return state->flags & (CONN_F_FREED | CONN_F_UNFREED);
}

void reclaim_tick(struct reclaim *r, uint64_t now_ns)
{
	struct conn_state state;
	struct known *k;

	while ((k = r->closed) && k->closed_ns + RECLAIM_AFTER_NS <= now_ns) {
		if (bpf_map_lookup_elem(r->conns_fd, &k->key, &state)) {
			forget(r, k);
			continue;
		}
		if (is_over(&state) && state.used_ns + RECLAIM_AFTER_NS <= now_ns) {
			/* Between the look and the deletion the address can be given to a new connection, within a
			 * microsecond after a second of rest: that one would be seen as a connection without a
			 * beginning. */
			drop(r, k);
			continue;
		}
		DL_DELETE2(r->closed, k, qprev, qnext);
		k->closed_ns = 0;
		if (is_over(&state))
			closed(r, &k->key, now_ns);
	}
}

static bool is_target(struct reclaim *r, uint32_t tgid)
{
	struct target t;

	return bpf_map_lookup_elem(r->targets_fd, &tgid, &t) == 0;
}

/* Ciphers that nobody knows a socket of, and that did nothing for long. If one does again, it begins anew. */
static void sweep_halves(struct reclaim *r, uint64_t now_ns)
{
	struct conn_state state;
	struct known *k, *next;

	HASH_ITER (hh, r->conns, k, next) {
		if (!k->half || k->socket)
			continue;
		if (bpf_map_lookup_elem(r->conns_fd, &k->key, &state))
			forget(r, k);
		else if (state.used_ns + RECLAIM_IDLE_NS <= now_ns)
			drop(r, k);
	}
}

/* Goroutines that waited for an answer when their process ended. */
static void sweep_goroutines(struct reclaim *r)
{
	struct go_key key, next;
	bool more = bpf_map_get_next_key(r->go_calls_fd, NULL, &next) == 0;

	while (more) {
		key = next;
		more = bpf_map_get_next_key(r->go_calls_fd, &key, &next) == 0;
		if (!is_target(r, key.tgid))
			bpf_map_delete_elem(r->go_calls_fd, &key);
	}
}

void reclaim_sweep_map(struct reclaim *r, int fd)
{
	struct conn_map_key key, next;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	/* A key that is deleted before its successor was asked for would start the walk again. */
	while (more) {
		key = next;
		more = bpf_map_get_next_key(fd, &key, &next) == 0;
		if (!is_target(r, key.tgid))
			bpf_map_delete_elem(fd, &key);
	}
}

void reclaim_sweep(struct reclaim *r, uint64_t now_ns)
{
	struct process *p, *after;

	HASH_ITER (hh, r->processes, p, after) {
		if (!is_target(r, p->tgid))
			reclaim_process(r, p->tgid);
	}
	sweep_halves(r, now_ns);
	sweep_goroutines(r);
	reclaim_sweep_map(r, r->conns_fd);
}
