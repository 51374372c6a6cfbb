/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "halves.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/hash.h"

/* A record of a half whose socket is not known yet. */
struct held {
	struct held *next;
	enum { HELD_DATA, HELD_GAP, HELD_POS } kind;
	union {
		struct rec_data data; /* ptr: bytes */
		struct rec_gap gap;
		struct rec_pos pos;
	} r;
	uint8_t bytes[];
};

struct half {
	struct conn_key key;
	enum dir dir; /* of its data */
	struct sock *sock;
	uint64_t base;	     /* position of its first byte in the connection */
	uint64_t end;	     /* its bytes so far: the highest position that was told */
	uint64_t unpaired;   /* up to where they were told, or counted as lost */
	bool given_up, told; /* told: on_unpaired was called */
	struct held *held, *held_last;
	uint64_t held_bytes;
	struct half *prev, *next; /* of its socket */
	UT_hash_handle hh;	  /* uthash keeps the order of insertion: oldest first */
};

/* A socket, and the connection on it: of the process that was seen first. */
struct sock {
	uint64_t cookie;
	struct conn_key conn;
	uint64_t end[2];    /* positions of the connection that were told */
	uint32_t newest[2]; /* generation of the half that told data last */
	uint64_t forget_ns; /* 0: open */
	bool ignored;
	struct half *halves;
	UT_hash_handle hh;
};

struct halves {
	struct lost *lost;
	struct halves_sink sink;
	struct half *halves;
	struct sock *socks;
	uint64_t held_bytes;
};

/* --- what is held ------------------------------------------------------------------------------------------------ */

static void drop_held(struct halves *t, struct half *h)
{
	struct held *e;

	while ((e = h->held)) {
		h->held = e->next;
		free(e);
	}
	h->held_last = NULL;
	t->held_bytes -= h->held_bytes;
	h->held_bytes = 0;
}

/* Room for `len` bytes behind the record. NULL: it becomes a hole. */
static struct held *hold(struct halves *t, struct half *h, size_t len)
{
	struct held *e;

	if (h->held_bytes + len > HALVES_HELD_BYTES || t->held_bytes + len > HALVES_HELD_ALL_BYTES)
		return NULL;
	e = malloc(sizeof(*e) + len);
	if (!e) {
		t->lost->n[LOST_NO_MEMORY]++;
		return NULL;
	}
	e->next = NULL;
	if (h->held_last)
		h->held_last->next = e;
	else
		h->held = e;
	h->held_last = e;
	h->held_bytes += sizeof(*e) + len;
	t->held_bytes += sizeof(*e) + len;
	return e;
}

/* --- out --------------------------------------------------------------------------------------------------------- */

static void tell_data(struct halves *t, struct half *h, struct rec_data r)
{
	struct sock *s = h->sock;

	r.conn = s->conn;
	r.half = false;
	r.pos += h->base;
	if (r.pos + r.orig_len > s->end[r.dir])
		s->end[r.dir] = r.pos + r.orig_len;
	t->sink.on_data(t->sink.ctx, &r);
}

static void tell_gap(struct halves *t, struct half *h, struct rec_gap r)
{
	r.conn = h->sock->conn;
	r.half = false;
	r.pos += h->base;
	t->sink.on_gap(t->sink.ctx, &r);
}

static void tell_pos(struct halves *t, struct half *h, const struct rec_pos *r)
{
	struct sock *s = h->sock;
	struct rec_pos out = {.conn = s->conn, .ts_ns = r->ts_ns};

	out.pos[h->dir] = h->base + r->pos[h->dir];
	if (out.pos[h->dir] > s->end[h->dir])
		s->end[h->dir] = out.pos[h->dir];
	t->sink.on_pos(t->sink.ctx, &out);
}

static void tell_held(struct halves *t, struct half *h)
{
	for (struct held *e = h->held; e; e = e->next) {
		if (e->kind == HELD_DATA)
			tell_data(t, h, e->r.data);
		else if (e->kind == HELD_GAP)
			tell_gap(t, h, e->r.gap);
		else
			tell_pos(t, h, &e->r.pos);
	}
	drop_held(t, h);
}

/* --- halves ------------------------------------------------------------------------------------------------------ */

static void count_unpaired(struct halves *t, struct half *h)
{
	if (h->end <= h->unpaired)
		return;
	t->lost->n[LOST_UNPAIRED_BYTES] += h->end - h->unpaired;
	h->unpaired = h->end;
	if (!h->told)
		t->sink.on_unpaired(t->sink.ctx, &h->key, h->dir);
	h->told = true;
}

/* All that was not told until now, and what is still to come. */
static void give_up(struct halves *t, struct half *h)
{
	if (h->sock)
		h->unpaired = h->end;
	h->given_up = true;
	drop_held(t, h);
	count_unpaired(t, h);
}

static void half_free(struct halves *t, struct half *h)
{
	drop_held(t, h);
	if (h->sock)
		DL_DELETE(h->sock->halves, h);
	HASH_DEL(t->halves, h);
	free(h);
}

/* The last word about a half. */
static void half_end(struct halves *t, struct half *h)
{
	if (!h->sock && !h->given_up)
		give_up(t, h);
	half_free(t, h);
}

static struct half *half_find(struct halves *t, const struct conn_key *key)
{
	struct half *h;

	HASH_FIND(hh, t->halves, key, sizeof(*key), h);
	return h;
}

/* NULL: no memory, counted. */
static struct half *half_get(struct halves *t, const struct conn_key *key, enum dir dir)
{
	struct half *h = half_find(t, key);

	if (h)
		return h;
	if (HASH_COUNT(t->halves) >= HALVES_MAX)
		half_end(t, t->halves);
	h = calloc(1, sizeof(*h));
	if (!h)
		goto no_memory;
	h->key = *key;
	h->dir = dir;
	HASH_ADD(hh, t->halves, key, sizeof(h->key), h);
	if (h->hh.tbl)
		return h;
	free(h);
no_memory:
	t->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

/* --- sockets ----------------------------------------------------------------------------------------------------- */

/* Each direction's latest half: the ones before carry nothing any more. */
static void tell_ignored(struct halves *t, const struct sock *s, bool ignored)
{
	struct half *h;

	if (!t->sink.on_ignored)
		return;
	DL_FOREACH (s->halves, h) {
		if (h->key.gen == s->newest[h->dir])
			t->sink.on_ignored(t->sink.ctx, &h->key, h->dir == DIR_TX ? s->newest[DIR_RX] : 0, ignored);
	}
}

/* Without a word: a connection on it is the conn stage's business. */
static void sock_forget(struct halves *t, struct sock *s)
{
	if (s->ignored)
		tell_ignored(t, s, false);
	while (s->halves)
		half_end(t, s->halves);
	HASH_DEL(t->socks, s);
	free(s);
}

/* The connection begins with the half that `r` ties to it. */
static void sock_open(struct halves *t, struct sock *s, const struct rec_conn_sock *r)
{
	struct rec_open open = {.conn = s->conn, .ts_ns = r->ts_ns, .fresh = r->fresh, .half = true};
	struct rec_conn_sock itself = *r;

	itself.conn = s->conn;
	itself.half = false;
	itself.how = SOCK_ITSELF;
	t->sink.on_open(t->sink.ctx, &open);
	t->sink.on_conn_sock(t->sink.ctx, &itself);
}

static struct sock *sock_find(struct halves *t, uint64_t cookie)
{
	struct sock *s;

	HASH_FIND(hh, t->socks, &cookie, sizeof(cookie), s);
	return s;
}

/* NULL: no memory, counted. */
static struct sock *sock_get(struct halves *t, const struct rec_conn_sock *r)
{
	struct sock *s = sock_find(t, r->cookie);

	if (s)
		return s;
	if (HASH_COUNT(t->socks) >= HALVES_SOCKS_MAX)
		sock_forget(t, t->socks);
	s = calloc(1, sizeof(*s));
	if (!s)
		goto no_memory;
	s->cookie = r->cookie;
	s->conn = r->conn;
	s->conn.obj = r->cookie;
	HASH_ADD(hh, t->socks, cookie, sizeof(s->cookie), s);
	if (!s->hh.tbl) {
		free(s);
		goto no_memory;
	}
	sock_open(t, s, r);
	return s;
no_memory:
	t->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

static bool same_program(const struct conn_key *a, const struct conn_key *b)
{
	return a->tgid == b->tgid && a->start_ns == b->start_ns && a->exec_id == b->exec_id;
}

void halves_ignore(struct halves *t, uint64_t cookie, bool ignored)
{
	struct sock *s = sock_find(t, cookie);

	if (!s)
		return;
	s->ignored = ignored;
	tell_ignored(t, s, ignored);
}

/* The half's bytes are the next ones of their direction. */
static void take_place(struct halves *t, struct half *h, struct sock *s)
{
	if (s->ignored)
		tell_ignored(t, s, false);
	h->sock = s;
	DL_APPEND(s->halves, h);
	s->newest[h->dir] = h->key.gen;
	h->base = s->end[h->dir];
	if (s->ignored)
		tell_ignored(t, s, true);
	tell_held(t, h);
}

/* --- verbs ------------------------------------------------------------------------------------------------------- */

struct halves *halves_new(struct lost *lost, const struct halves_sink *sink)
{
	struct halves *t = calloc(1, sizeof(*t));

	if (!t) {
		errno = ENOMEM;
		return NULL;
	}
	t->lost = lost;
	t->sink = *sink;
	return t;
}

void halves_free(struct halves *t)
{
	struct sock *s, *next;

	if (!t)
		return;
	while (t->halves)
		half_free(t, t->halves);
	HASH_ITER (hh, t->socks, s, next) {
		HASH_DEL(t->socks, s);
		free(s);
	}
	free(t);
}

void halves_push_data(struct halves *t, const struct rec_data *r)
{
	struct half *h = half_get(t, &r->conn, r->dir);
	struct held *e;

	if (!h) {
		t->lost->n[LOST_UNPAIRED_BYTES] += r->orig_len;
		return;
	}
	if (r->dir != h->dir) /* a cipher has one */
		return;
	if (r->pos + r->orig_len > h->end)
		h->end = r->pos + r->orig_len;
	if (h->given_up) {
		count_unpaired(t, h);
	} else if (h->sock) {
		tell_data(t, h, *r);
	} else if ((e = hold(t, h, r->len))) {
		e->kind = HELD_DATA;
		e->r.data = *r;
		e->r.data.ptr = e->bytes;
		if (r->len)
			memcpy(e->bytes, r->ptr, r->len);
	}
}

void halves_push_gap(struct halves *t, const struct rec_gap *r)
{
	struct half *h = half_get(t, &r->conn, r->dir);
	struct held *e;

	if (!h || h->given_up || r->dir != h->dir)
		return;
	if (h->sock) {
		tell_gap(t, h, *r);
	} else if ((e = hold(t, h, 0))) {
		e->kind = HELD_GAP;
		e->r.gap = *r;
	}
}

void halves_push_pos(struct halves *t, const struct rec_pos *r)
{
	struct half *h = half_get(t, &r->conn, r->pos[DIR_RX] ? DIR_RX : DIR_TX);
	struct held *e;

	if (!h)
		return;
	if (r->pos[h->dir] > h->end)
		h->end = r->pos[h->dir];
	if (h->given_up) {
		count_unpaired(t, h);
	} else if (h->sock) {
		tell_pos(t, h, r);
	} else if ((e = hold(t, h, 0))) {
		e->kind = HELD_POS;
		e->r.pos = *r;
	}
}

/* One whose socket is not known is not worth holding: it comes after the word about that. */
void halves_push_handshake(struct halves *t, const struct rec_handshake *r)
{
	struct half *h = half_find(t, &r->conn);
	struct rec_handshake out = *r;

	if (!h || !h->sock)
		return;
	out.conn = h->sock->conn;
	out.half = false;
	t->sink.on_handshake(t->sink.ctx, &out);
}

void halves_push_conn_sock(struct halves *t, const struct rec_conn_sock *r)
{
	struct half *h = r->how == SOCK_RECORDS && r->cookie ? half_get(t, &r->conn, r->dir) : NULL;
	struct sock *s;

	if (!h || h->given_up || r->dir != h->dir)
		return;
	if (h->sock) {
		if (h->sock->cookie != r->cookie)
			give_up(t, h);
		return;
	}
	s = sock_get(t, r);
	if (!s)
		return;
	/* Another process may hold the socket too, but not the keys. */
	if (!same_program(&s->conn, &h->key) || h->key.gen < s->newest[h->dir] || s->end[h->dir] > HALVES_POS_MAX)
		give_up(t, h);
	else
		take_place(t, h, s);
}

void halves_push_sock(struct halves *t, const struct rec_sock *r)
{
	struct sock *s = r->what == SOCK_CLOSED ? sock_find(t, r->cookie) : NULL;

	if (s && !s->forget_ns)
		s->forget_ns = r->ts_ns + HALVES_LINGER_NS;
}

static bool is_older(const struct conn_key *k, const struct proc_key *p, uint32_t before_exec)
{
	return k->tgid == p->tgid && k->start_ns == p->start_ns && k->exec_id < before_exec;
}

/* All of a process, of its programs before this one. */
static void forget_process(struct halves *t, const struct proc_key *p, uint32_t before_exec)
{
	struct half *h, *hnext;
	struct sock *s, *snext;

	HASH_ITER (hh, t->socks, s, snext) {
		if (is_older(&s->conn, p, before_exec))
			sock_forget(t, s);
	}
	HASH_ITER (hh, t->halves, h, hnext) {
		if (is_older(&h->key, p, before_exec))
			half_end(t, h);
	}
}

void halves_push_exec(struct halves *t, const struct rec_exec *r)
{
	if (!r->already_running)
		forget_process(t, &r->proc, r->proc.exec_id);
}

void halves_push_exit(struct halves *t, const struct rec_exit *r)
{
	forget_process(t, &r->proc, UINT32_MAX);
}

void halves_tick(struct halves *t, uint64_t now_ns)
{
	struct sock *s, *next;

	HASH_ITER (hh, t->socks, s, next) {
		if (s->forget_ns && s->forget_ns <= now_ns)
			sock_forget(t, s);
	}
}

void halves_finish(struct halves *t)
{
	while (t->halves)
		half_end(t, t->halves);
}
