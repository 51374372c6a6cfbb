/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/hash.h"
#include "hello.h"

#define RECORD_HANDSHAKE 0x16
#define CHECK_NS	 100000000ull /* how often, in event time, what waits is looked at */

struct turn {
	struct proc_key proc;
	uint64_t tx_begin_ns, tx_end_ns, rx_begin_ns, rx_end_ns, gap_ns;
	uint64_t bytes[2];
	uint32_t number;
	bool merged;
};

struct process {
	uint32_t tgid;
	bool probed, refused;
	uint64_t probed_ns;
	bool again; /* since again_ns */
	uint64_t again_ns;
	bool told; /* of silence, with these files */
	bool gone; /* it has ended, at gone_ns */
	bool held; /* ... and a connection of it may have not */
	uint64_t gone_ns;
	uint64_t unbound_ns; /* latest plaintext that is bound to no socket; 0: none */
	char reason[WIRE_REASON_BYTES];
	UT_hash_handle hh;
};

struct entry {
	/* What each piece of plaintext looks at lies together. */
	uint64_t cookie;
	UT_hash_handle hh;
	uint64_t first_plain_ns, last_plain_ns; /* entry of the first call, return of the latest; UNKNOWN_NS: none */
	uint64_t plain_bytes;			/* of the wire, when it came */
	uint64_t moved;				/* on the wire, both ways, by the latest word */
	struct rec_wire now;			/* latest word; turn 0: none yet */
	char *host;				/* owned; NULL: not known */
	uint64_t connect_begin_ns, connect_end_ns;
	uint64_t retransmits[WIRE_RETRANSMITS];
	unsigned retransmit_count; /* ever */
	struct turn *turns;	   /* owned; those that wait, oldest first */
	unsigned turn_count, turn_room;
	uint32_t kept;			   /* number of the latest one that ever waited */
	uint64_t undecoded;		   /* turns, so far */
	uint64_t latest_ns, latest_end_ns; /* of the latest of them */
	uint64_t unread;		   /* of them, while probes were set */
	uint64_t unread_ns;		   /* first byte of the answer of the first of these */
	bool ignored, drawn;
	bool closed; /* at closed_ns: decided WIRE_SETTLE_NS later */
	uint64_t closed_ns;
	bool watched; /* it is in wires.watched */
	struct entry *watch_prev, *watch_next;
	uint64_t answer_end_ns; /* of one that was asked for before anything was seen; UNKNOWN_NS: none */
	uint32_t hello_bytes;	/* of the greeting, on the wire; 0: not seen */
	enum sock_closer closer;
	uint64_t closer_ns;	   /* UNKNOWN_NS */
	uint64_t sock_closed_ns;   /* its socket was; the kernel's last word should follow. 0: not */
	struct entry *prev, *next; /* longest silent first */
};

struct wires {
	struct lost *lost;
	struct wire_sink sink;
	struct entry *entries, *lru;
	struct entry *watched; /* those that time may tell something of, as in lru */
	struct process *processes;
	uint64_t now_ns, check_ns;
};

/* --- tables ------------------------------------------------------------------------------------------------------ */

struct wires *wires_new(struct lost *lost, const struct wire_sink *sink)
{
	struct wires *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->lost = lost;
	t->sink = *sink;
	return t;
}

static void entry_free(struct wires *t, struct entry *e)
{
	HASH_DEL(t->entries, e);
	DL_DELETE(t->lru, e);
	if (e->watched)
		DL_DELETE2(t->watched, e, watch_prev, watch_next);
	free(e->host);
	free(e->turns);
	free(e);
}

void wires_free(struct wires *t)
{
	struct process *p, *tmp;

	if (!t)
		return;
	while (t->lru)
		entry_free(t, t->lru);
	HASH_ITER (hh, t->processes, p, tmp) {
		HASH_DEL(t->processes, p);
		free(p);
	}
	free(t);
}

/* Of one that goes on as plaintext nothing is to be said, until the wire moves without. */
static bool needs_watch(const struct entry *e)
{
	return e->turn_count || e->closed || e->sock_closed_ns || e->last_plain_ns == UNKNOWN_NS ||
	       e->moved - e->plain_bytes >= WIRE_SILENT_BYTES;
}

static void watch_for(struct wires *t, struct entry *e)
{
	if (e->watched || !needs_watch(e))
		return;
	e->watched = true;
	DL_APPEND2(t->watched, e, watch_prev, watch_next);
}

static void unwatch(struct wires *t, struct entry *e)
{
	e->watched = false;
	DL_DELETE2(t->watched, e, watch_prev, watch_next);
}

static void touch(struct wires *t, struct entry *e)
{
	DL_DELETE(t->lru, e);
	DL_APPEND(t->lru, e);
	if (!e->watched)
		return;
	DL_DELETE2(t->watched, e, watch_prev, watch_next);
	DL_APPEND2(t->watched, e, watch_prev, watch_next);
}

static struct entry *find(struct wires *t, uint64_t cookie)
{
	struct entry *e;

	HASH_FIND(hh, t->entries, &cookie, sizeof(cookie), e);
	return e;
}

static void end(struct wires *t, struct entry *e);

/* NULL: no memory, counted. */
static struct entry *get(struct wires *t, uint64_t cookie)
{
	struct entry *e = find(t, cookie);

	if (e) {
		touch(t, e);
		return e;
	}
	if (HASH_COUNT(t->entries) >= WIRE_MAX) {
		t->lost->n[LOST_NO_MEMORY] += t->lru->now.turn > 0; /* of one without TLS nothing is lost */
		end(t, t->lru);
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		goto no_memory;
	e->cookie = cookie;
	e->connect_begin_ns = e->connect_end_ns = e->first_plain_ns = e->last_plain_ns = e->closer_ns =
		e->answer_end_ns = UNKNOWN_NS;
	HASH_ADD(hh, t->entries, cookie, sizeof(e->cookie), e);
	if (!e->hh.tbl) {
		free(e);
		goto no_memory;
	}
	DL_APPEND(t->lru, e);
	watch_for(t, e);
	return e;
no_memory:
	t->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

static struct process *process_find(struct wires *t, uint32_t tgid)
{
	struct process *p;

	HASH_FIND(hh, t->processes, &tgid, sizeof(tgid), p);
	return p;
}

static void process_forget(struct wires *t, uint32_t tgid)
{
	struct process *p = process_find(t, tgid);

	if (!p)
		return;
	HASH_DEL(t->processes, p);
	free(p);
}

static struct process *process_get(struct wires *t, uint32_t tgid)
{
	struct process *p = process_find(t, tgid);

	if (p)
		return p;
	if (HASH_COUNT(t->processes) >= WIRE_PROCESSES_MAX)
		process_forget(t, t->processes->tgid); /* the first is the oldest */
	p = calloc(1, sizeof(*p));
	if (!p)
		goto no_memory;
	p->tgid = tgid;
	HASH_ADD(hh, t->processes, tgid, sizeof(p->tgid), p);
	if (!p->hh.tbl) {
		free(p);
		goto no_memory;
	}
	return p;
no_memory:
	t->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

/* --- what is to be said of a connection -------------------------------------------------------------------------- */

static bool known(uint64_t ns)
{
	return ns != UNKNOWN_NS;
}

static bool is_client(const struct entry *e)
{
	return e->now.turn && !e->now.server && (e->now.hello || wire_is_tls_port(e->now.remote.port));
}

/* end_ns: of what was not read. */
static enum wire_why why_of(const struct entry *e, const struct process *p, uint64_t end_ns)
{
	if (known(e->first_plain_ns) || (p && p->probed && end_ns < p->probed_ns))
		return WIRE_LATE;
	if (p && p->probed)
		return p->again && e->latest_ns > p->again_ns ? WIRE_NOT_RUN_AGAIN : WIRE_NOT_RUN;
	return p && p->refused ? WIRE_REFUSED : WIRE_NO_FUNCTIONS;
}

/* who: its process; the socket may have gone to another one since. */
static struct wire_conn describe(struct wires *t, const struct entry *e, const struct proc_key *who, uint64_t end_ns)
{
	const struct process *p = process_find(t, who->tgid);

	return (struct wire_conn){
		.proc = *who,
		.cookie = e->cookie,
		.host = e->host ? e->host : "",
		.remote = e->now.remote,
		.bytes = {e->now.bytes[0], e->now.bytes[1]},
		.why = why_of(e, p, end_ns),
		.reason = p ? p->reason : "",
		.turns = e->undecoded,
		.served = e->now.server,
		.probed = p && p->probed,
	};
}

/* Plaintext of the process came, since this turn began, that may be this connection's. */
static bool is_unsure(struct wires *t, const struct entry *e, uint64_t since_ns)
{
	const struct process *p = process_find(t, e->now.proc.tgid);

	return !known(e->first_plain_ns) && p && p->unbound_ns >= since_ns;
}

/* --- turns ------------------------------------------------------------------------------------------------------- */

static bool is_turn(const struct rec_wire *r)
{
	/* Of what was sent before anything was seen nobody knows what it was: see WIRE_ANSWER_BYTES. */
	if (!r->turn_bytes[DIR_TX] && r->turn_bytes[DIR_RX] < WIRE_ANSWER_BYTES)
		return false;
	return r->first_type != RECORD_HANDSHAKE && known(r->tx_begin_ns) && known(r->tx_end_ns) &&
	       known(r->rx_begin_ns) && known(r->rx_end_ns) && r->tx_begin_ns <= r->tx_end_ns &&
	       r->tx_end_ns <= r->rx_begin_ns && r->rx_begin_ns <= r->rx_end_ns;
}

static void tell_turn(struct wires *t, struct entry *e, const struct turn *u)
{
	uint64_t retransmits[WIRE_RETRANSMITS];
	struct wire_turn out = {
		.begin_ns = u->tx_begin_ns,
		.send_end_ns = u->tx_end_ns,
		.first_ns = u->rx_begin_ns,
		.end_ns = u->rx_end_ns,
		.gap_ns = u->gap_ns,
		.bytes = {u->bytes[0], u->bytes[1]},
		.merged = u->merged,
		.connect_begin_ns = e->drawn ? UNKNOWN_NS : e->connect_begin_ns,
		.connect_end_ns = e->drawn ? UNKNOWN_NS : e->connect_end_ns,
		.tls_begin_ns = !e->drawn && e->now.hello ? e->now.began_ns : UNKNOWN_NS,
		.retransmit_ns = retransmits,
	};
	unsigned kept = e->retransmit_count < WIRE_RETRANSMITS ? e->retransmit_count : WIRE_RETRANSMITS;

	for (unsigned i = 0; i < kept; i++) {
		uint64_t ns = e->retransmits[(e->retransmit_count - kept + i) % WIRE_RETRANSMITS];

		if (ns >= u->tx_begin_ns && ns <= u->rx_end_ns)
			retransmits[out.retransmits++] = ns;
	}
	e->undecoded++;
	e->latest_ns = u->tx_begin_ns;
	e->latest_end_ns = u->rx_end_ns;
	e->drawn = true;
	out.conn = describe(t, e, &u->proc, u->rx_end_ns);
	if (out.conn.why != WIRE_LATE && !e->unread++)
		e->unread_ns = u->rx_begin_ns;
	if (t->sink.on_turn)
		t->sink.on_turn(t->sink.ctx, &out);
}

/* The oldest of those that wait. */
static void decide(struct wires *t, struct entry *e)
{
	struct turn u = e->turns[0];
	bool read = known(e->first_plain_ns) && u.rx_end_ns + WIRE_LATE_NS >= e->first_plain_ns;

	memmove(e->turns, e->turns + 1, --e->turn_count * sizeof(u));
	if (is_client(e) && !read && !is_unsure(t, e, u.tx_begin_ns))
		tell_turn(t, e, &u);
}

static void keep_turn(struct wires *t, struct entry *e, const struct rec_wire *r)
{
	struct turn *more;

	if (e->turn_count && e->turns[e->turn_count - 1].number == r->turn)
		e->turn_count--; /* told again: the later word counts */
	else if (r->turn <= e->kept)
		return; /* decided already */
	if (e->turn_count == WIRE_TURNS_MAX)
		decide(t, e);
	if (e->turn_count == e->turn_room) {
		unsigned room = e->turn_room ? WIRE_TURNS_MAX : 4;

		more = realloc(e->turns, room * sizeof(*more));
		if (!more) {
			t->lost->n[LOST_NO_MEMORY]++;
			return;
		}
		e->turns = more;
		e->turn_room = room;
	}
	e->kept = r->turn;
	e->turns[e->turn_count++] = (struct turn){
		.proc = r->proc,
		.tx_begin_ns = r->tx_begin_ns,
		.tx_end_ns = r->tx_end_ns,
		.rx_begin_ns = r->rx_begin_ns,
		.rx_end_ns = r->rx_end_ns,
		.gap_ns = r->gap_ns,
		.bytes = {r->turn_bytes[0], r->turn_bytes[1]},
		.number = r->turn,
		.merged = r->merged,
	};
}

/* --- what was asked for before ----------------------------------------------------------------------------------- */

static void note_answer(struct entry *e, const struct rec_wire *r)
{
	if (r->turn == 1 && !r->hello && !known(r->tx_begin_ns) && known(r->rx_end_ns) &&
	    r->turn_bytes[DIR_RX] >= WIRE_ANSWER_BYTES)
		e->answer_end_ns = r->rx_end_ns;
}

static bool is_missed(struct wires *t, const struct entry *e)
{
	const struct process *p = process_find(t, e->now.proc.tgid);

	return known(e->answer_end_ns) && is_client(e) && p && p->probed && !is_unsure(t, e, e->now.began_ns) &&
	       !(known(e->first_plain_ns) && e->first_plain_ns <= e->answer_end_ns + WIRE_LATE_NS);
}

/* --- handshakes -------------------------------------------------------------------------------------------------- */

/* It greeted, and so many bytes at least, and at most, followed; nothing else. */
static bool greeted(const struct entry *e, unsigned least, unsigned most)
{
	uint64_t sent = e->now.bytes[DIR_TX];

	return e->hello_bytes && e->now.turn == 1 && e->now.hello && !e->now.server && !known(e->first_plain_ns) &&
	       sent >= (uint64_t)e->hello_bytes + least && sent <= (uint64_t)e->hello_bytes + most;
}

static bool is_begun(const struct entry *e)
{
	return greeted(e, 0, WIRE_ALERT_BYTES);
}

static bool is_left(struct wires *t, const struct entry *e)
{
	const struct process *p;

	if (e->closer != SOCK_CLOSER_LOCAL || !greeted(e, WIRE_FINISHED_BYTES, WIRE_LEFT_BYTES) ||
	    !known(e->now.rx_begin_ns) || e->closer_ns > e->now.rx_begin_ns + WIRE_LEFT_NS)
		return false;
	p = process_find(t, e->now.proc.tgid);
	return !(p && p->gone && p->gone_ns <= e->closer_ns);
}

/* An alert, if there was one, is its end; else who closed first. */
static enum sock_closer closer_of(const struct entry *e)
{
	if (e->now.bytes[DIR_RX] == WIRE_ALERT_PLAIN_BYTES)
		return SOCK_CLOSER_REMOTE;
	if (e->now.bytes[DIR_TX] >= e->hello_bytes + WIRE_ALERT_PLAIN_BYTES)
		return SOCK_CLOSER_LOCAL;
	return e->closer;
}

static void tell_handshake(struct wires *t, const struct entry *e)
{
	struct wire_handshake h = {
		.conn = describe(t, e, &e->now.proc, e->now.ts_ns),
		.connect_begin_ns = e->connect_begin_ns,
		.begin_ns = e->now.began_ns,
		.closer = closer_of(e),
		.unanswered = !e->now.bytes[DIR_RX],
		.completed = !is_begun(e),
		.unfinished = !e->closed,
	};

	if (e->sock_closed_ns && !e->closed)
		return; /* the last word is lost: more may have been sent */
	h.end_ns = !e->closed ? t->now_ns : known(e->closer_ns) ? e->closer_ns : e->now.ts_ns;
	if (h.end_ns < h.begin_ns || (h.unfinished && h.end_ns - h.begin_ns < WIRE_HANDSHAKE_NS))
		return;
	if (t->sink.on_handshake)
		t->sink.on_handshake(t->sink.ctx, &h);
}

static void note_closer(struct entry *e, const struct rec_sock *r)
{
	if (known(e->closer_ns) && e->closer_ns <= r->ts_ns)
		return;
	e->closer = sock_closer_of(r->what);
	e->closer_ns = r->ts_ns;
}

bool wires_greeted(struct wires *t, uint64_t cookie)
{
	const struct entry *e = cookie ? find(t, cookie) : NULL;

	return e && (is_begun(e) || is_left(t, e));
}

/* The turn that is not over may go on: it is kept only when the connection ends. */
static void end(struct wires *t, struct entry *e)
{
	struct wire_conn c;

	if (e->now.turn && is_turn(&e->now))
		keep_turn(t, e, &e->now);
	while (e->turn_count)
		decide(t, e);
	if (is_begun(e) || is_left(t, e))
		tell_handshake(t, e);
	c = describe(t, e, &e->now.proc, e->latest_end_ns);
	if (t->sink.on_missed && is_missed(t, e))
		t->sink.on_missed(t->sink.ctx, &c);
	if (t->sink.on_conn && !known(e->first_plain_ns) &&
	    (c.turns || (c.served && !is_unsure(t, e, e->now.began_ns))))
		t->sink.on_conn(t->sink.ctx, &c);
	entry_free(t, e);
}

/* --- verbs ------------------------------------------------------------------------------------------------------- */

static void advance(struct wires *t, uint64_t ts_ns)
{
	if (ts_ns > t->now_ns)
		t->now_ns = ts_ns;
}

/* What was asked for before anything was seen: when is known of probes_asked(). */
static struct rec_wire with_question(const struct rec_wire *asked, const struct rec_wire *r)
{
	struct rec_wire whole = *r;

	if (asked->turn == 1 && r->turn == 1 && known(asked->tx_end_ns) && !known(r->tx_begin_ns) &&
	    known(r->rx_begin_ns) && asked->tx_end_ns <= r->rx_begin_ns && asked->proc.tgid == r->proc.tgid) {
		whole.tx_begin_ns = asked->tx_begin_ns;
		whole.tx_end_ns = asked->tx_end_ns;
	}
	return whole;
}

void wires_push(struct wires *t, const struct rec_wire *r)
{
	struct entry *e;

	advance(t, r->ts_ns);
	/* The last word about a socket may be told twice: do not begin it again. */
	e = r->closed ? find(t, r->cookie) : get(t, r->cookie);
	if (!e || e->closed || r->turn < e->now.turn)
		return;
	if (e->now.turn && !r->turn_bytes[DIR_TX] && !r->turn_bytes[DIR_RX])
		return; /* what it stood at before says less than what was seen */
	if (r->turn > e->now.turn && e->now.turn && is_turn(&e->now))
		keep_turn(t, e, &e->now); /* its end was lost: as far as is known */
	if (!e->now.turn || e->now.proc.tgid != r->proc.tgid)
		process_get(t, r->proc.tgid); /* that it ends has to be known */
	e->now = with_question(&e->now, r);
	r = &e->now;
	e->moved = r->bytes[0] + r->bytes[1];
	note_answer(e, r);
	/* It is not told at each byte: what moved up to here was that plaintext's. */
	if (known(e->last_plain_ns) && r->ts_ns <= e->last_plain_ns + WIRE_SETTLE_NS)
		e->plain_bytes = e->moved;
	if (r->ended && is_turn(r))
		keep_turn(t, e, r);
	e->closed = r->closed;
	e->closed_ns = t->now_ns;
	watch_for(t, e);
}

void wires_push_hello(struct wires *t, const struct rec_hello *r)
{
	struct sv host = hello_host(r->bytes);
	struct entry *e;

	advance(t, r->ts_ns);
	if (r->dir == DIR_RX)
		return;
	e = get(t, r->cookie);
	if (!e)
		return;
	if (!e->hello_bytes)
		e->hello_bytes = hello_record_bytes(r->bytes);
	if (e->host || !host.len)
		return;
	e->host = strndup(host.ptr, host.len);
	if (!e->host)
		t->lost->n[LOST_NO_MEMORY]++;
}

void wires_push_files(struct wires *t, const struct rec_files *r)
{
	struct process *p = process_get(t, r->tgid);
	size_t len = r->reason.len < sizeof(p->reason) - 1 ? r->reason.len : sizeof(p->reason) - 1;

	advance(t, r->ts_ns);
	if (!p)
		return;
	p->gone = false;
	p->told = p->told && (p->probed || !r->probed) && p->again == r->again;
	p->probed = r->probed;
	p->probed_ns = r->probed_ns;
	p->refused = r->refused;
	if (r->again && !p->again)
		p->again_ns = r->ts_ns;
	p->again = r->again;
	if (len)
		memcpy(p->reason, r->reason.ptr, len);
	p->reason[len] = '\0';
}

void wires_push_sock(struct wires *t, const struct rec_sock *r)
{
	struct entry *e;

	advance(t, r->ts_ns);
	if (r->what == SOCK_CONNECTED) {
		e = get(t, r->cookie);
		if (e && r->begin_ns && r->begin_ns <= r->ts_ns) {
			e->connect_begin_ns = r->begin_ns;
			e->connect_end_ns = r->ts_ns;
		}
	} else if (r->what == SOCK_PROXY) {
		e = find(t, r->cookie);
		if (e && e->connect_end_ns != UNKNOWN_NS && r->ts_ns > e->connect_end_ns)
			e->connect_end_ns = r->ts_ns;
	} else if (sock_closer_of(r->what)) {
		e = find(t, r->cookie);
		if (e)
			note_closer(e, r);
	} else if (r->what == SOCK_RETRANSMIT) {
		e = find(t, r->cookie);
		if (e)
			e->retransmits[e->retransmit_count++ % WIRE_RETRANSMITS] = r->ts_ns;
	} else if (r->what == SOCK_CLOSED) {
		e = find(t, r->cookie);
		/* One without TLS; of one with it the kernel has a last word, if that is not lost. */
		if (e && !e->now.turn && !e->hello_bytes) {
			entry_free(t, e);
		} else if (e) {
			e->sock_closed_ns = r->ts_ns;
			watch_for(t, e);
		}
	}
}

/* Of a process that had this pid before. */
static void end_earlier(struct wires *t, const struct proc_key *now)
{
	struct entry *e, *next;

	for (e = t->lru; e; e = next) {
		next = e->next;
		if (e->now.turn && e->now.proc.tgid == now->tgid && e->now.proc.start_ns != now->start_ns)
			end(t, e);
	}
}

void wires_push_exec(struct wires *t, const struct rec_exec *r)
{
	const struct process *p = process_find(t, r->proc.tgid);

	advance(t, r->ts_ns);
	if (r->already_running)
		return;
	if (p && p->gone)
		end_earlier(t, &r->proc);
	process_forget(t, r->proc.tgid);
}

/* Its sockets close after it, or live on in a child. */
void wires_push_exit(struct wires *t, const struct rec_exit *r)
{
	struct process *p = process_find(t, r->proc.tgid);

	advance(t, r->ts_ns);
	if (!p)
		return;
	p->gone = true;
	p->gone_ns = r->ts_ns;
}

void wires_push_plain(struct wires *t, uint32_t tgid, uint64_t cookie, uint64_t first_ns, uint64_t ts_ns)
{
	struct entry *e = cookie ? find(t, cookie) : NULL;
	struct process *p;

	advance(t, ts_ns);
	if (!cookie) {
		p = process_get(t, tgid);
		if (p)
			p->unbound_ns = ts_ns;
		return;
	}
	if (!e)
		return;
	if (!known(e->first_plain_ns))
		e->first_plain_ns = first_ns;
	e->last_plain_ns = ts_ns;
	e->plain_bytes = e->moved;
}

void wires_warm(const struct wires *t, uint64_t cookie, struct warm *w)
{
	const UT_hash_bucket *bucket;
	unsigned hash;

	if (!cookie || !t->entries)
		return;
	HASH_VALUE(&cookie, sizeof(cookie), hash);
	bucket = hash_bucket(t->entries->hh.tbl, hash);
	warm_add(w, bucket, sizeof(*bucket));
	/* The search passes by those before it. */
	for (const UT_hash_handle *h = bucket->hh_head; h; h = h->hh_next) {
		bool found = h->hashv == hash;

		warm_add(w, (const char *)h - offsetof(struct entry, hh), offsetof(struct entry, now));
		if (found)
			break;
	}
}

void wires_ignore(struct wires *t, uint64_t cookie, bool on)
{
	struct entry *e = cookie ? find(t, cookie) : NULL;

	if (e)
		e->ignored = on;
}

/* --- the watchdog ------------------------------------------------------------------------------------------------ */

static bool is_silent(struct wires *t, const struct entry *e)
{
	if (!is_client(e) || e->ignored)
		return false;
	if (known(e->last_plain_ns))
		return e->moved - e->plain_bytes >= WIRE_SILENT_BYTES &&
		       e->now.ts_ns > e->last_plain_ns + WIRE_SILENT_NS;
	if (is_unsure(t, e, e->now.began_ns))
		return false;
	if (e->unread)
		return t->now_ns >= e->unread_ns + WIRE_SILENT_NS;
	return is_turn(&e->now) && t->now_ns >= e->now.rx_begin_ns + WIRE_SILENT_NS &&
	       why_of(e, process_find(t, e->now.proc.tgid), e->now.rx_end_ns) != WIRE_LATE;
}

static void watch(struct wires *t, const struct entry *e)
{
	struct process *p;
	struct wire_conn c;

	if (!is_silent(t, e))
		return;
	p = process_get(t, e->now.proc.tgid);
	if (!p || p->told || p->gone)
		return;
	/* That it helped may still be seen. */
	if (p->again && e->latest_ns <= p->again_ns)
		return;
	p->told = true;
	c = describe(t, e, &e->now.proc, e->now.ts_ns);
	if (t->sink.on_silent)
		t->sink.on_silent(t->sink.ctx, &c);
}

static bool is_due(const struct wires *t, const struct process *p)
{
	return p->gone && t->now_ns >= p->gone_ns + WIRE_LINGER_NS;
}

/* Its connections are told with what is known of the process; a child may go on with them. */
static void hold_owner(struct wires *t, struct entry *e)
{
	struct process *p = e->now.turn ? process_find(t, e->now.proc.tgid) : NULL;

	if (!p || !is_due(t, p))
		return;
	if (t->now_ns >= p->gone_ns + WIRE_ORPHAN_NS && t->now_ns >= e->now.ts_ns + WIRE_ORPHAN_NS)
		end(t, e);
	else
		p->held = true;
}

static void forget_gone(struct wires *t)
{
	struct process *p, *tmp;
	struct entry *e, *next;
	bool due = false;

	for (p = t->processes; p; p = p->hh.next) {
		p->held = false;
		due |= is_due(t, p);
	}
	for (e = due ? t->lru : NULL; e; e = next) {
		next = e->next;
		hold_owner(t, e);
	}
	HASH_ITER (hh, t->processes, p, tmp)
		if (is_due(t, p) && !p->held)
			process_forget(t, p->tgid);
}

void wires_tick(struct wires *t, uint64_t now_ns)
{
	struct entry *e, *next;

	advance(t, now_ns);
	if (now_ns < t->check_ns)
		return;
	t->check_ns = now_ns + CHECK_NS;
	for (e = t->watched; e; e = next) {
		next = e->watch_next;
		while (e->turn_count && now_ns >= e->turns[0].rx_end_ns + WIRE_SETTLE_NS)
			decide(t, e);
		if ((e->closed && now_ns >= e->closed_ns + WIRE_SETTLE_NS) ||
		    (e->sock_closed_ns && now_ns >= e->sock_closed_ns + WIRE_LINGER_NS))
			end(t, e);
		else if (needs_watch(e))
			watch(t, e);
		else
			unwatch(t, e);
	}
	forget_gone(t);
}

void wires_finish(struct wires *t, uint64_t now_ns)
{
	advance(t, now_ns);
	while (t->lru)
		end(t, t->lru);
}
