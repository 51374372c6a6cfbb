/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "conn_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/warm.h"

/* The key up to `obj` names the object, whichever its generation; `gen` and a hole follow. */
#define OBJ_KEY_BYTES offsetof(struct conn_key, gen)
_Static_assert(OBJ_KEY_BYTES == 24 && sizeof(struct conn_key) == 32, "conn_key has no holes");

/* --- streams to downstream --------------------------------------------------------------------------------------- */

static void on_bytes(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct way *w = ctx;
	struct entry *e = w->entry;

	e->c.bytes[w->dir] = e->stream[w->dir].next;
	if (e->table->sink.on_conn_bytes)
		e->table->sink.on_conn_bytes(e->table->sink.ctx, &e->c, w->dir, ptr, len, at);
}

static void on_gap(void *ctx, uint64_t len, enum gap_why why, const struct stamp *at)
{
	struct way *w = ctx;
	struct entry *e = w->entry;

	if (why == GAP_LOST) {
		e->table->lost->n[LOST_EVENTS]++;
		if (len != UINT64_MAX)
			e->table->lost->n[LOST_BYTES] += len;
	}
	e->c.bytes[w->dir] = e->stream[w->dir].next;
	if (e->table->sink.on_conn_gap)
		e->table->sink.on_conn_gap(e->table->sink.ctx, &e->c, w->dir, len, why, at);
}

void conn_changed(struct entry *e)
{
	if (e->table->sink.on_conn_change)
		e->table->sink.on_conn_change(e->table->sink.ctx, &e->c);
}

/* --- life of an entry -------------------------------------------------------------------------------------------- */

static void wait_for(struct entry *e)
{
	if (e->waiting)
		return;
	e->waiting = true;
	DL_APPEND2(e->table->waiting, e, wait_prev, wait_next);
}

/* Who closed first, and when. UNKNOWN: nobody is known to have. */
static enum conn_end first_closer(const struct entry *e, uint64_t *ts_ns)
{
	const struct sock *s = e->sock;
	enum conn_end who = e->closer;

	*ts_ns = who == CONN_END_UNKNOWN ? UNKNOWN_NS : e->closer_ns;
	if (s && s->closer != CONN_END_UNKNOWN && (who == CONN_END_UNKNOWN || s->closer_ns < *ts_ns)) {
		who = s->closer;
		*ts_ns = s->closer_ns;
	}
	return who;
}

static void tell_closing(struct entry *e, uint64_t ts_ns)
{
	uint64_t closer_ns;

	first_closer(e, &closer_ns);
	if (closer_ns < ts_ns)
		ts_ns = closer_ns;
	if (e->table->sink.on_conn_closing)
		e->table->sink.on_conn_closing(e->table->sink.ctx, &e->c, ts_ns < e->last_ns ? e->last_ns : ts_ns);
}

void conn_begin_close(struct entry *e, enum conn_end why, uint64_t ts_ns, uint64_t linger)
{
	uint64_t until = ts_ns > UINT64_MAX - linger ? UINT64_MAX : ts_ns + linger;
	bool gone = why == CONN_END_EXIT || why == CONN_END_EXEC;

	if (e->closing) {
		/* Freed by a program that ends: its end says more than "nobody knows". */
		if (gone && e->why == CONN_END_UNKNOWN) {
			e->why = why;
			e->gone_ns = ts_ns;
		}
		if (until < e->linger_ns)
			e->linger_ns = until;
		return;
	}
	e->closing = true;
	e->why = why;
	e->hint_ns = ts_ns;
	e->gone_ns = gone ? ts_ns : UNKNOWN_NS;
	e->linger_ns = until;
	wait_for(e);
	if (!gone)
		tell_closing(e, ts_ns);
}

static struct entry *find(struct conns *t, const struct conn_key *k)
{
	struct entry *e;

	HASH_FIND(hh, t->by_key, k, sizeof(*k), e);
	return e;
}

static struct group *group_get(struct conns *t, uint32_t tgid, uint64_t start_ns, bool make)
{
	struct group *g, want = {.key = {.start_ns = start_ns, .tgid = tgid}};

	HASH_FIND(hh, t->groups, &want.key, sizeof(want.key), g);
	if (g || !make)
		return g;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->key = want.key;
	HASH_ADD(hh, t->groups, key, sizeof(g->key), g);
	if (!g->hh.tbl) {
		free(g);
		return NULL;
	}
	return g;
}

static void group_drop_empty(struct conns *t, struct group *g)
{
	if (!g || g->entries)
		return;
	HASH_DEL(t->groups, g);
	free(g);
}

static void remember_end(struct conns *t, const struct entry *e, bool final)
{
	struct ended *d;

	if (HASH_COUNT(t->ended) >= CONN_ENDED_MAX) {
		d = t->ended; /* uthash keeps the order of insertion: the oldest */
		HASH_DEL(t->ended, d);
		free(d);
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return;
	d->key = e->c.key;
	d->pos[DIR_TX] = e->stream[DIR_TX].next;
	d->pos[DIR_RX] = e->stream[DIR_RX].next;
	d->final = final;
	HASH_ADD(hh, t->ended, key, sizeof(d->key), d);
	if (!d->hh.tbl)
		free(d);
}

static struct ended *find_ended(struct conns *t, const struct conn_key *k)
{
	struct ended *d;

	HASH_FIND(hh, t->ended, k, sizeof(*k), d);
	return d;
}

static void entry_free(struct entry *e)
{
	struct conns *t = e->table;

	if (e->sock && e->sock->closed_ns != UNKNOWN_NS)
		conn_sock_free(t, e->sock);
	else if (e->sock)
		conn_sock_detach(e->sock);
	if (e->waiting)
		DL_DELETE2(t->waiting, e, wait_prev, wait_next);
	DL_DELETE2(t->lru, e, lru_prev, lru_next);
	conn_rival_forget(e);
	DL_DELETE2(e->group->entries, e, group_prev, group_next);
	group_drop_empty(t, e->group);
	if (e->hh_obj.tbl)
		HASH_DELETE(hh_obj, t->by_obj, e);
	HASH_DELETE(hh, t->by_key, e);
	stream_release(&e->stream[DIR_TX]);
	stream_release(&e->stream[DIR_RX]);
	free(e);
}

/* The last word. `why` and `ts_ns` where nobody closed before. */
static void end(struct entry *e, enum conn_end why, uint64_t ts_ns)
{
	struct conns *t = e->table;
	struct stamp at = {.entry_ns = ts_ns, .ts_ns = ts_ns};
	uint64_t closer_ns;
	enum conn_end closer = first_closer(e, &closer_ns);
	bool object_lives = why == CONN_END_UNKNOWN || why == CONN_END_LIMIT;

	if (closer != CONN_END_UNKNOWN &&
	    (why == CONN_END_UNKNOWN || closer_ns < (e->gone_ns == UNKNOWN_NS ? ts_ns : e->gone_ns)))
		why = closer;
	if (closer_ns < ts_ns)
		ts_ns = closer_ns;
	stream_finish(&e->stream[DIR_TX], e->final_pos[DIR_TX], &at);
	stream_finish(&e->stream[DIR_RX], e->final_pos[DIR_RX], &at);
	if (ts_ns < e->last_ns)
		ts_ns = e->last_ns;
	if (why != CONN_END_EXIT)
		e->c.exit_code = e->c.exit_signal = 0;
	conn_changed(e);
	if (t->sink.on_conn_end)
		t->sink.on_conn_end(t->sink.ctx, &e->c, why, ts_ns);
	if (why != CONN_END_CAPTURE)
		remember_end(t, e, !object_lives);
	entry_free(e);
}

/* A new generation of an object means that the one before is over, whether or not that was seen. */
static void take_object(struct entry *e, uint64_t ts_ns)
{
	struct conns *t = e->table;
	struct entry *old;

	HASH_FIND(hh_obj, t->by_obj, &e->c.key, OBJ_KEY_BYTES, old);
	if (old && old->c.key.gen > e->c.key.gen) { /* late news of an earlier generation */
		conn_begin_close(e, CONN_END_REPLACED, ts_ns, CONN_CLOSE_LINGER_NS);
		return;
	}
	if (old) {
		HASH_DELETE(hh_obj, t->by_obj, old);
		old->hh_obj.tbl = NULL;
		conn_begin_close(old, CONN_END_REPLACED, ts_ns, CONN_CLOSE_LINGER_NS);
	}
	HASH_ADD(hh_obj, t->by_obj, c.key, OBJ_KEY_BYTES, e);
}

static struct entry *entry_new(struct conns *t, const struct conn_key *k)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->table = t;
	e->c.key = *k;
	e->c.setup = (struct conn_setup){UNKNOWN_NS, UNKNOWN_NS, UNKNOWN_NS, UNKNOWN_NS, false, -1, 0};
	e->closer_ns = e->gone_ns = e->c.reset_ns = UNKNOWN_NS;
	for (int d = DIR_TX; d <= DIR_RX; d++) {
		e->way[d] = (struct way){e, (enum dir)d};
		stream_init(&e->stream[d], &(struct stream_sink){&e->way[d], on_bytes, on_gap});
	}
	e->group = group_get(t, k->tgid, k->start_ns, true);
	if (!e->group) {
		free(e);
		return NULL;
	}
	HASH_ADD(hh, t->by_key, c.key, sizeof(e->c.key), e);
	if (!e->hh.tbl) {
		group_drop_empty(t, e->group);
		free(e);
		return NULL;
	}
	e->c.id = ++t->last_id;
	DL_APPEND2(e->group->entries, e, group_prev, group_next);
	DL_APPEND2(t->lru, e, lru_prev, lru_next);
	return e;
}

/* A connection that ended but whose object lived on speaks again: it goes on where it was. */
static void revive(struct entry *e, struct ended *d)
{
	stream_start_at(&e->stream[DIR_TX], d->pos[DIR_TX]);
	stream_start_at(&e->stream[DIR_RX], d->pos[DIR_RX]);
	HASH_DEL(e->table->ended, d);
	free(d);
}

static struct entry *make(struct conns *t, const struct conn_key *k, uint64_t ts_ns, bool fresh)
{
	struct ended *d = find_ended(t, k);
	struct entry *e;

	if (d && d->final)
		return NULL;
	if (HASH_COUNT(t->by_key) >= CONN_MAX) {
		t->lost->n[LOST_NO_MEMORY]++;
		end(t->lru, CONN_END_LIMIT, t->now_ns);
		d = find_ended(t, k);
	}
	e = entry_new(t, k);
	if (!e) {
		t->lost->n[LOST_NO_MEMORY]++;
		return NULL;
	}
	e->c.fresh = fresh && !d;
	e->c.open_ns = ts_ns;
	if (d) {
		revive(e, d);
	} else if (fresh) {
		stream_start_fresh(&e->stream[DIR_TX]);
		stream_start_fresh(&e->stream[DIR_RX]);
	}
	take_object(e, ts_ns);
	if (t->sink.on_conn_open)
		t->sink.on_conn_open(t->sink.ctx, &e->c);
	return e;
}

static void touch(struct entry *e)
{
	DL_DELETE2(e->table->lru, e, lru_prev, lru_next);
	DL_APPEND2(e->table->lru, e, lru_prev, lru_next);
}

/* Bytes of this direction are missing: what came behind them waits, or nothing came. */
static bool misses(const struct entry *e, enum dir dir)
{
	return e->stream[dir].held || e->final_pos[dir] > e->stream[dir].next;
}

/* So far the direction went by then: what does not come of it was lost, also when nothing comes behind it. */
static void reach(struct entry *e, enum dir dir, uint64_t pos, uint64_t ts_ns)
{
	if (pos <= e->final_pos[dir])
		return;
	e->final_pos[dir] = pos;
	e->final_ns[dir] = ts_ns;
	if (misses(e, dir))
		wait_for(e);
}

/* What is missing does not come any more. */
static void give_up(struct entry *e, enum dir dir, const struct stamp *at)
{
	stream_finish(&e->stream[dir], e->final_pos[dir], at);
}

static void expire_way(struct entry *e, enum dir dir, uint64_t now_ns)
{
	struct stamp at = {.entry_ns = e->final_ns[dir], .ts_ns = e->final_ns[dir]};

	stream_tick(&e->stream[dir], now_ns);
	if (!e->stream[dir].held && misses(e, dir) && now_ns > at.ts_ns && now_ns - at.ts_ns >= STREAM_HOLD_NS)
		give_up(e, dir, &at);
}

/* Ends what has lingered, gives up what has waited. */
static void expire(struct conns *t, uint64_t now_ns)
{
	struct entry *e, *tmp;

	DL_FOREACH_SAFE2(t->waiting, e, tmp, wait_next)
	{
		if (e->closing && e->linger_ns <= now_ns) {
			end(e, e->why, e->hint_ns);
			continue;
		}
		expire_way(e, DIR_TX, now_ns);
		expire_way(e, DIR_RX, now_ns);
		if (!e->closing && !misses(e, DIR_TX) && !misses(e, DIR_RX)) {
			DL_DELETE2(t->waiting, e, wait_prev, wait_next);
			e->waiting = false;
		}
	}
}

bool conn_advance(struct conns *t, uint64_t now_ns)
{
	if (now_ns > t->now_ns)
		t->now_ns = now_ns;
	if (!t->waiting || t->now_ns < t->check_ns)
		return false;
	t->check_ns = t->now_ns + CONN_CHECK_NS;
	expire(t, t->now_ns);
	return true;
}

/*
 * The entry that a record of k speaks of (e: as found), made when it is the first of it; NULL: none (counted, or of an
 * ended one). Time passes for all others first, so that downstream hears of an end before it hears of what came later.
 */
static struct entry *enter_found(struct conns *t, struct entry *e, const struct conn_key *k, uint64_t ts_ns,
				 bool speaks, bool fresh)
{
	if (e && e->closing && speaks && ts_ns > e->hint_ns) {
		uint64_t linger = ts_ns > UINT64_MAX - CONN_CLOSE_LINGER_NS ? UINT64_MAX : ts_ns + CONN_CLOSE_LINGER_NS;

		if (linger > e->linger_ns && e->why == CONN_END_UNKNOWN)
			e->linger_ns = linger;
	}
	if (conn_advance(t, ts_ns))
		e = find(t, k);
	if (!e && !speaks && find_ended(t, k))
		return NULL;
	if (!e)
		e = make(t, k, ts_ns, fresh);
	if (e)
		touch(e);
	return e;
}

static struct entry *enter(struct conns *t, const struct conn_key *k, uint64_t ts_ns, bool speaks, bool fresh)
{
	return enter_found(t, find(t, k), k, ts_ns, speaks, fresh);
}

/* --- verbs ------------------------------------------------------------------------------------------------------- */

struct conns *conns_new(struct lost *lost, const struct conn_sink *sink)
{
	struct conns *t = calloc(1, sizeof(*t));

	if (!t) {
		errno = ENOMEM;
		return NULL;
	}
	t->lost = lost;
	t->sink = *sink;
	return t;
}

void conns_free(struct conns *t)
{
	struct ended *d, *dtmp;

	if (!t)
		return;
	t->sink = (struct conn_sink){0};
	while (t->lru)
		entry_free(t->lru);
	while (t->sock_lru)
		conn_sock_free(t, t->sock_lru);
	HASH_ITER (hh, t->ended, d, dtmp) {
		HASH_DEL(t->ended, d);
		free(d);
	}
	free(t);
}

static void count_lost(struct conns *t, uint64_t bytes)
{
	t->lost->n[LOST_EVENTS]++;
	t->lost->n[LOST_BYTES] += bytes;
}

/* Bytes of an ended connection that were delivered, or said to be lost, before its end. */
static bool already_told(struct conns *t, const struct rec_data *r)
{
	const struct ended *d = find_ended(t, &r->conn);

	return d && r->pos + r->orig_len <= d->pos[r->dir];
}

/* r is of a connection whose other direction may wait for what will not come. */
static void keep_up(struct entry *e, const struct rec_data *r)
{
	enum dir other = dir_other(r->dir);

	if (!misses(e, other)) {
		e->ahead[r->dir] = 0;
		return;
	}
	e->ahead[r->dir] += r->orig_len;
	if (e->ahead[r->dir] > CONN_AHEAD_BYTES)
		give_up(e, other, &r->at);
}

/* Something else came first: its bytes are the first ones all the same when they begin at 0. */
static void begin_fresh(struct entry *e)
{
	e->c.fresh = true;
	stream_start_fresh(&e->stream[DIR_TX]);
	stream_start_fresh(&e->stream[DIR_RX]);
}

bool conn_waits(const struct conn *c, enum dir dir)
{
	return misses((const struct entry *)c, dir); /* its first member */
}

/* Pass by pass: what one of them needs of memory comes for all connections at once. */
void conns_soon(const struct conns *t, const struct conn_key *keys, unsigned count, struct conn *found[])
{
	const UT_hash_bucket *buckets[CONN_SOON_MAX];
	unsigned hashes[CONN_SOON_MAX];
	struct entry *e;

	for (unsigned i = 0; i < count; i++)
		found[i] = NULL;
	if (!t->by_key)
		return;
	for (unsigned i = 0; i < count; i++) {
		HASH_VALUE(&keys[i], sizeof(keys[i]), hashes[i]);
		buckets[i] = hash_bucket(t->by_key->hh.tbl, hashes[i]);
		__builtin_prefetch(buckets[i]);
	}
	for (unsigned i = 0; i < count; i++) {
		const char *first = (const char *)buckets[i]->hh_head;

		if (first)
			warm_fetch_lines(first - offsetof(struct entry, hh), offsetof(struct entry, gone_ns));
	}
	for (unsigned i = 0; i < count; i++) {
		HASH_FIND_BYHASHVALUE(hh, t->by_key, &keys[i], sizeof(keys[i]), hashes[i], e);
		if (e)
			found[i] = &e->c;
	}
}

void conns_push_data(struct conns *t, const struct rec_data *r)
{
	struct entry *e = find(t, &r->conn);
	struct stream *s;

	if (!e && already_told(t, r)) { /* none that lives has ended */
		conn_advance(t, r->at.ts_ns);
		return;
	}
	e = enter_found(t, e, &r->conn, r->at.ts_ns, true, r->fresh);
	if (!e) {
		if (r->orig_len)
			count_lost(t, r->orig_len);
		return;
	}
	if (r->fresh && !e->c.fresh && !e->last_ns && !find_ended(t, &r->conn)) {
		begin_fresh(e);
		conn_changed(e);
	}
	if (r->at.entry_ns && r->at.entry_ns < e->c.open_ns)
		e->c.open_ns = r->at.entry_ns;
	if (r->at.ts_ns > e->last_ns)
		e->last_ns = r->at.ts_ns;
	keep_up(e, r);
	if (!r->half)
		conn_rival_data(e, r->dir, r->orig_len, r->at.ts_ns);
	s = &e->stream[r->dir];
	if (stream_push(s, r->pos, r->ptr, r->len, r->orig_len, r->capped ? GAP_CAPPED : GAP_LOST, &r->at))
		t->lost->n[LOST_NO_MEMORY]++;
	if (s->held)
		wait_for(e);
}

void conns_push_gap(struct conns *t, const struct rec_gap *r)
{
	struct stamp at = {.entry_ns = r->ts_ns, .ts_ns = r->ts_ns};
	struct entry *e = enter(t, &r->conn, r->ts_ns, true, false);
	struct stream *s;

	if (!e) {
		count_lost(t, 0);
		return;
	}
	s = &e->stream[r->dir];
	if (stream_gap(s, r->pos, &at))
		t->lost->n[LOST_NO_MEMORY]++;
	if (s->held)
		wait_for(e);
}

void conns_push_open(struct conns *t, const struct rec_open *r)
{
	struct entry *e = enter(t, &r->conn, r->ts_ns, false, r->fresh);

	if (!e)
		return;
	if (r->fresh && !e->c.fresh)
		begin_fresh(e);
	if (r->ts_ns < e->c.open_ns)
		e->c.open_ns = r->ts_ns;
	e->c.plain = r->plain;
	e->c.halves = r->half;
	e->c.stdio = r->stdio;
	conn_changed(e);
}

void conns_push_close(struct conns *t, const struct rec_close *r)
{
	struct entry *e;

	/* Nothing was ever seen of it and it carried nothing: there is nothing to say. */
	if (!find(t, &r->conn) && !r->pos[DIR_TX] && !r->pos[DIR_RX]) {
		conn_advance(t, r->ts_ns);
		return;
	}
	e = enter(t, &r->conn, r->ts_ns, false, false);
	if (!e)
		return;
	for (int d = DIR_TX; d <= DIR_RX; d++)
		reach(e, (enum dir)d, r->pos[d], r->ts_ns);
	if (r->local && e->closer == CONN_END_UNKNOWN) {
		e->closer = CONN_END_LOCAL;
		e->closer_ns = r->ts_ns;
	}
	conn_begin_close(e, CONN_END_UNKNOWN, r->ts_ns, CONN_CLOSE_LINGER_NS);
}

/* Of one that has ended: it is too late to tell whose bytes they were, but not that they were lost. */
static void pos_of_ended(struct conns *t, const struct rec_pos *r)
{
	struct ended *d = find_ended(t, &r->conn);

	for (int i = DIR_TX; d && i <= DIR_RX; i++) {
		if (r->pos[i] <= d->pos[i])
			continue;
		count_lost(t, r->pos[i] - d->pos[i]);
		d->pos[i] = r->pos[i];
	}
}

/* The bytes before it were lost; it does not make them come. */
void conns_push_pos(struct conns *t, const struct rec_pos *r)
{
	struct entry *e = enter(t, &r->conn, r->ts_ns, false, false);

	if (!e) {
		pos_of_ended(t, r);
		return;
	}
	for (int d = DIR_TX; d <= DIR_RX; d++)
		reach(e, (enum dir)d, r->pos[d], r->ts_ns);
}

void conns_push_handshake(struct conns *t, const struct rec_handshake *r)
{
	struct entry *e = enter(t, &r->conn, r->end_ns, false, false);

	if (!e)
		return;
	/* The first counts; later ones are renegotiations or post-handshake messages. */
	if (e->c.setup.tls_end_ns == UNKNOWN_NS) {
		e->c.setup.tls_begin_ns = r->begin_ns;
		e->c.setup.tls_end_ns = r->end_ns;
		e->c.setup.tls_approximate = r->approximate;
		conn_changed(e);
	}
	if (r->begin_ns < e->c.open_ns)
		e->c.open_ns = r->begin_ns;
}

void conns_push_conn_sock(struct conns *t, const struct rec_conn_sock *r)
{
	struct entry *e = enter(t, &r->conn, r->ts_ns, false, false);

	if (!e || !r->cookie)
		return;
	if (r->how == SOCK_INSIDE || r->how == SOCK_ITSELF)
		conn_sock_prove(e, r);
	else
		conn_sock_vote(e, r);
}

void conns_push_exec(struct conns *t, const struct rec_exec *r)
{
	struct group *g;
	struct entry *e;

	conn_advance(t, r->ts_ns);
	g = r->already_running ? NULL : group_get(t, r->proc.tgid, r->proc.start_ns, false);
	if (!g)
		return;
	DL_FOREACH2(g->entries, e, group_next)
	if (e->c.key.exec_id < r->proc.exec_id)
		conn_begin_close(e, CONN_END_EXEC, r->ts_ns, CONN_CLOSE_LINGER_NS);
}

void conns_push_exit(struct conns *t, const struct rec_exit *r)
{
	struct group *g;
	struct entry *e;

	conn_advance(t, r->ts_ns);
	g = group_get(t, r->proc.tgid, r->proc.start_ns, false);
	if (!g)
		return;
	DL_FOREACH2(g->entries, e, group_next)
	{
		e->c.exit_code = r->code;
		e->c.exit_signal = r->signal;
		conn_changed(e);
		conn_begin_close(e, CONN_END_EXIT, r->ts_ns, CONN_CLOSE_LINGER_NS);
	}
}

void conns_tick(struct conns *t, uint64_t now_ns)
{
	conn_advance(t, now_ns);
}

void conns_finish(struct conns *t, uint64_t now_ns)
{
	struct entry *e, *tmp;

	HASH_ITER (hh, t->by_key, e, tmp)
		end(e, e->closing ? e->why : CONN_END_CAPTURE, e->closing ? e->hint_ns : now_ns);
}

void conns_each(struct conns *t, void (*fn)(void *ctx, struct conn *c), void *ctx)
{
	struct entry *e, *tmp;

	HASH_ITER (hh, t->by_key, e, tmp)
		fn(ctx, &e->c);
}
