/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "exchange_table.h"

#include <stdlib.h>

#include "base/err.h"
#include "text.h"

/* --- life -------------------------------------------------------------------------------------------------------- */

void pending_free(struct exchanges *t, struct pending *p)
{
	DL_DELETE(t->silent, p);
	t->pending_count--;
	t->open_calls -= p->dialect != NULL;
	t->held -= p->held;
	p->entry->pending = NULL;
	request_free(p->request);
	answer_free(p->answer);
	call_release(&p->call);
	free(p);
}

void entry_free(struct exchanges *t, struct entry *e)
{
	if (e->pending)
		pending_free(t, e->pending);
	if (e->session)
		ws_session_free(t, e);
	HASH_DEL(t->entries, e);
	DL_DELETE(e->key.flow->entries, e);
	if (e->key.flow->latest == e)
		e->key.flow->latest = NULL;
	free(e);
}

struct entry *entry_find(struct exchange_flow *f, uint64_t xid)
{
	struct entry_key key = {f, xid};
	struct entry *e = NULL;

	/* Mostly it is the same one again, and the table's chains lie all over the memory. */
	if (f->latest && f->latest->key.xid == xid)
		return f->latest;
	if (f->entries)
		HASH_FIND(hh, f->table->entries, &key, sizeof(key), e);
	f->latest = e ? e : f->latest;
	return e;
}

void pending_touch(struct exchanges *t, struct pending *p)
{
	p->last_ns = t->now_ns;
	DL_DELETE(t->silent, p);
	DL_APPEND(t->silent, p);
}

struct pending *pending_new(struct exchange_flow *f, uint64_t xid)
{
	struct exchanges *t = f->table;
	struct entry *e = calloc(1, sizeof(*e));
	struct pending *p = e ? calloc(1, sizeof(*p)) : NULL;

	if (!p)
		goto fail;
	e->key = (struct entry_key){f, xid};
	HASH_ADD(hh, t->entries, key, sizeof(e->key), e);
	if (!e->hh.tbl)
		goto fail;
	DL_APPEND(f->entries, e);
	e->pending = p;
	p->entry = e;
	call_init(&p->call);
	p->call.xid = xid;
	p->facts = (struct request_facts){.counts = {-1, -1, -1, -1, -1}, .stream = -1};
	p->path = DIALECT_PATH_NONE;
	p->client = (struct client){.retry_count = -1, .interactive = -1};
	p->last_ns = t->now_ns;
	DL_APPEND(t->silent, p);
	t->pending_count++;
	return p;
fail:
	free(p);
	free(e);
	t->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

void pending_begin(struct pending *p, const struct dialect *d)
{
	struct exchange_flow *f = p->entry->key.flow;

	p->dialect = d;
	p->first_call = f->calls == 0;
	p->call.id = ++f->table->last_id;
	f->calls++;
	f->table->open_calls++;
	exchanges_note_caller(f->table, &p->call);
}

void pending_note_unseen(struct pending *p, bool unseen)
{
	bool fresh = p->entry->key.flow->conn->fresh;

	p->call.start_known = unseen;
	p->call.mid_attach = unseen && !fresh;
	if (unseen && fresh)
		call_note_lost(&p->call, UINT64_MAX);
}

void pending_conn(struct pending *p, const struct stamp *first)
{
	struct exchange_flow *f = p->entry->key.flow;
	struct call *c = &p->call;

	c->conn = f->conn->key;
	c->conn_id = f->conn->conn_id;
	c->tid = first->tid;
	/* Not yet bound, but seen from its first byte: all that the socket will have counted counts here. */
	p->retransmits_known = f->conn->bound || (f->conn->fresh && !f->used);
	p->retransmits = f->conn->bound ? f->conn->retransmits : 0;
	f->used = true;
}

char *exchanges_copy(struct exchanges *t, struct sv text, size_t max)
{
	char *out = text_dup(text, max);

	if (!out && text.len && text.ptr[0])
		t->lost->n[LOST_NO_MEMORY]++;
	return out;
}

/* --- the request's end ------------------------------------------------------------------------------------------- */

/* It could be read whole, or is no JSON, and has none of the keys that such a call has. */
static bool lacks_marks(const struct pending *p)
{
	const unsigned any = MARK_MESSAGES | MARK_INPUT | MARK_RESPONSES;
	unsigned marks = p->facts.marks, required = p->dialect->required;

	return required ? (marks & required) != required : !(marks & any);
}

/* What the request alone says of an exchange whose path nobody claims. The answer has to agree, unless the request is
 * sure of itself; one that is none at all is not waited for. */
static void judge_shape(struct pending *p, bool readable)
{
	const struct dialect *d;
	bool sure;

	d = dialect_by_marks(p->facts.marks, &sure);
	request_set_dialect(p->request, d);
	p->denied = readable && !d;
	if (sure && !p->dialect)
		pending_begin(p, d);
	/* of tools that are lists only the one who knew it beforehand has the count */
	if (d == &dialect_gemini)
		p->facts.counts.tools = UNKNOWN_COUNT;
}

void pending_request_done(struct pending *p, bool ended)
{
	struct request_facts *f = &p->facts;
	bool readable;

	if (!p->request)
		return;
	request_report(p->request, ended, f);
	f->marks |= p->anthropic_head ? MARK_ANTHROPIC : 0;
	readable = ended && !f->truncated && !f->lossy && !f->undecoded[0];
	p->rpc = f->marks & MARK_JSONRPC;
	if (p->by_shape) {
		judge_shape(p, readable);
		request_report(p->request, ended, f);
	} else if (!p->upgrade) {
		p->denied = readable && !p->dialect->path_sure && lacks_marks(p);
	}
	request_take_suffix(p->request, &p->call);
	request_free(p->request);
	p->request = NULL;
	if (!p->denied && p->dialect)
		pending_note_main(p);
}

void pending_finish(struct exchanges *t, struct entry *e, enum end_reason end, uint64_t end_ns)
{
	if (e->pending)
		pending_emit(e->pending, end, end_ns);
	entry_free(t, e);
}

/* --- eviction ---------------------------------------------------------------------------------------------------- */

/* The record goes out now; the stub stays until the protocol says that the exchange ended. */
static void evict(struct exchanges *t, struct pending *p, uint64_t at_ns)
{
	pending_request_done(p, false);
	if (pending_is_call(p))
		t->lost->evicted_calls++;
	pending_emit(p, END_EVICTED, at_ns);
	pending_free(t, p);
}

/* Event time only: a sweep happens at the times it is due, whatever comes between them, live and in a replay. */
void exchanges_advance(struct exchanges *t, uint64_t ns)
{
	uint64_t every = t->cfg.sweep_ns ? t->cfg.sweep_ns : 1, at;

	if (ns == UNKNOWN_NS || ns <= t->now_ns)
		return;
	t->now_ns = ns;
	if (!t->next_sweep_ns)
		t->next_sweep_ns = ns + every;
	if (ns < t->next_sweep_ns)
		return;
	at = t->next_sweep_ns + (ns - t->next_sweep_ns) / every * every;
	t->next_sweep_ns = at + every;
	while (t->silent && t->silent->last_ns <= at && at - t->silent->last_ns >= t->cfg.stale_ns)
		evict(t, t->silent, at);
}

void exchanges_make_room(struct exchanges *t)
{
	if (t->pending_count < EXCHANGE_MAX)
		return;
	t->lost->n[LOST_NO_MEMORY]++;
	evict(t, t->silent, t->now_ns);
}

static void note_held(struct exchanges *t, struct pending *p)
{
	t->held -= p->held;
	p->held = (p->request ? request_held(p->request) : 0) + (p->answer ? answer_held(p->answer) : 0);
	t->held += p->held;
}

static struct pending *heaviest(struct exchanges *t)
{
	struct pending *p, *most = NULL;

	DL_FOREACH (t->silent, p) {
		if (!most || p->held > most->held)
			most = p;
	}
	return most;
}

/* The one looked for gives back as much as the average at least, so that looking for it stays cheap by the byte. */
void exchanges_weigh(struct exchanges *t, struct pending *p)
{
	note_held(t, p);
	while (t->held > EXCHANGE_HELD_MAX) {
		size_t before;

		p = heaviest(t);
		before = p->held;
		note_held(t, p);
		if (p->held < before)
			continue; /* it had let go of some by itself */
		if (p->request && request_held(p->request))
			request_gap(p->request, UINT64_MAX, false);
		if (p->answer)
			answer_give_up(p->answer, SV("over 128 MiB at once"));
		note_held(t, p);
	}
}

void call_note_lost(struct call *c, uint64_t len)
{
	c->lossy = true;
	if (len > INT64_MAX || c->lost_bytes < 0 || (uint64_t)c->lost_bytes > INT64_MAX - len)
		c->lost_bytes = UNKNOWN_COUNT;
	else
		c->lost_bytes += (int64_t)len;
}

/* --- the table --------------------------------------------------------------------------------------------------- */

struct exchanges *exchanges_new(const struct exchange_config *cfg, struct lost *lost, const struct exchange_sink *sink)
{
	struct exchanges *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->cfg = *cfg;
	t->lost = lost;
	t->sink = *sink;
	return t;
}

void exchanges_free(struct exchanges *t)
{
	struct entry *e, *next;

	if (!t)
		return;
	HASH_ITER (hh, t->entries, e, next)
		entry_free(t, e);
	exchanges_free_callers(t);
	free(t);
}

void exchanges_conn_closing(struct exchange_flow *f, uint64_t ts_ns)
{
	struct entry *e;

	DL_FOREACH (f->entries, e) {
		if (e->pending)
			pending_note_left(e->pending, ts_ns);
	}
}

void exchanges_tick(struct exchanges *t, uint64_t now_ns)
{
	exchanges_advance(t, now_ns);
}

void exchanges_each_open(struct exchanges *t, uint64_t now_ns, void (*fn)(void *ctx, const struct call *c), void *ctx)
{
	struct pending *p;

	DL_FOREACH (t->silent, p) {
		struct call c;

		if (!pending_is_call(p))
			continue;
		if (p->request)
			request_report(p->request, false, &p->facts);
		pending_take_delays(p, now_ns);
		pending_report(p, END_COMPLETE, now_ns, &c);
		c.unfinished = true;
		retry_link(&t->retries, &c, retry_identity(&c, p->facts.identity), p->client.retry_count, false);
		fn(ctx, &c);
	}
}

uint64_t exchanges_first_open_ns(const struct exchanges *t, uint64_t now_ns)
{
	uint64_t first_ns = UNKNOWN_NS;
	const struct pending *p;

	DL_FOREACH (t->silent, p) {
		uint64_t begin_ns = pending_is_call(p) ? pending_begin_ns(p, now_ns) : UNKNOWN_NS;

		first_ns = begin_ns < first_ns ? begin_ns : first_ns;
	}
	return first_ns;
}

unsigned exchanges_open_count(const struct exchanges *t)
{
	return t->open_calls;
}
