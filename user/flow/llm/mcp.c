/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Requests, answers and sessions, wherever the messages come from. */

#include "mcp_table.h"

#include <stdlib.h>

#include "base/err.h"
#include "text.h"

#define VERSION_BYTES_MAX 64

char *mcp_copy(struct mcp *t, struct sv text, size_t max)
{
	char *out = text_dup(text, max);

	if (!out && text.len && text.ptr[0])
		t->lost->n[LOST_NO_MEMORY]++;
	return out;
}

/* --- sessions ---------------------------------------------------------------------------------------------------- */

struct mcp_session *mcp_session_new(struct mcp *t)
{
	struct mcp_session *s = calloc(1, sizeof(*s));

	if (s)
		s->refs = 1;
	else
		t->lost->n[LOST_NO_MEMORY]++;
	return s;
}

static void session_free(struct mcp *t, struct mcp_session *s)
{
	if (s->by_key) {
		HASH_DEL(t->by_key, s);
		DL_DELETE(t->sessions, s);
		t->session_count--;
	}
	free(s->server);
	free(s->server_version);
	free(s->protocol_version);
	free(s);
}

/* Those of HTTP are remembered: connections come and go. */
void mcp_session_release(struct mcp *t, struct mcp_session *s)
{
	if (s && !--s->refs && !s->by_key)
		session_free(t, s);
}

static void forget_one_session(struct mcp *t)
{
	struct mcp_session *s;

	DL_FOREACH (t->sessions, s) {
		if (!s->refs) {
			session_free(t, s);
			return;
		}
	}
}

struct mcp_session *mcp_session_get(struct mcp *t, const struct conn_key *conn, uint64_t name)
{
	struct mcp_session_key key = {.start_ns = conn->start_ns, .name = name, .tgid = conn->tgid};
	struct mcp_session *s;

	HASH_FIND(hh, t->by_key, &key, sizeof(key), s);
	if (s) {
		DL_DELETE(t->sessions, s);
		DL_APPEND(t->sessions, s);
		s->refs++;
		return s;
	}
	if (t->session_count >= MCP_SESSIONS_MAX)
		forget_one_session(t);
	s = mcp_session_new(t);
	if (!s)
		return NULL;
	s->key = key;
	HASH_ADD(hh, t->by_key, key, sizeof(s->key), s);
	if (!s->hh.tbl) {
		free(s);
		t->lost->n[LOST_NO_MEMORY]++;
		return NULL;
	}
	s->by_key = true;
	DL_APPEND(t->sessions, s);
	t->session_count++;
	return s;
}

static void replace(struct mcp *t, char **at, const char *text, size_t max)
{
	char *copy;

	if (!*text)
		return;
	copy = mcp_copy(t, sv_of(text), max);
	if (!copy)
		return;
	free(*at);
	*at = copy;
}

static void session_note_server(struct mcp *t, struct mcp_session *s, const struct mcp_message *m)
{
	replace(t, &s->server, m->peer, MCP_TEXT_BYTES);
	replace(t, &s->server_version, m->peer_version, MCP_TEXT_BYTES);
	replace(t, &s->protocol_version, m->protocol_version, VERSION_BYTES_MAX);
}

/* --- methods ----------------------------------------------------------------------------------------------------- */

/* Requests that only MCP has, by the schema of its versions. `ping` and `initialize` others have too. */
static bool is_method(const char *method)
{
	static const char *const methods[] = {
		"tools/call",	       "tools/list",	     "resources/read",	       "resources/list",
		"resources/subscribe", "prompts/get",	     "prompts/list",	       "resources/templates/list",
		"completion/complete", "logging/setLevel",   "sampling/createMessage", "resources/unsubscribe",
		"roots/list",	       "elicitation/create",
	};

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		if (!strcmp(method, methods[i]))
			return true;
	}
	return false;
}

static bool proves(const struct mcp_message *m)
{
	return is_method(m->method) || (!strcmp(m->method, "initialize") && m->protocol_version[0]);
}

static bool has_target(const char *method)
{
	return !strcmp(method, "tools/call") || !strcmp(method, "prompts/get");
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

/* What the session says is added: borrowed. */
static struct mcp_call report(const struct mcp_request *r)
{
	struct mcp_call c = r->call;
	const struct mcp_session *s = r->session;

	c.server = s->server ? s->server : c.host;
	c.server_version = s->server_version;
	c.protocol_version = s->protocol_version;
	return c;
}

static void request_free(struct mcp *t, struct mcp_request *r)
{
	mcp_session_release(t, r->session);
	mcp_call_release(&r->call);
	free(r);
}

static void tell(struct mcp *t, struct mcp_request *r)
{
	struct mcp_call c = report(r);

	if (t->sink.on_mcp)
		t->sink.on_mcp(t->sink.ctx, &c);
}

/* --- both ends of one connection --------------------------------------------------------------------------------- */

static void lonely_take(struct mcp *t, struct mcp_request *r)
{
	DL_DELETE(t->lonely, r);
	t->lonely_count--;
}

static void lonely_tell(struct mcp *t, struct mcp_request *r)
{
	lonely_take(t, r);
	tell(t, r);
	request_free(t, r);
}

/* This end is asked: by somebody who was seen? Each request that was made is one that is answered. */
static void look_for_asker(struct mcp *t, struct mcp_request *r)
{
	for (size_t i = 0; i < MCP_RECENT_MAX && r->hash && !r->mirrored; i++) {
		if (t->recent[i].hash != r->hash || t->recent[i].conn_id == r->call.conn_id)
			continue;
		t->recent[i] = (struct mcp_recent){0};
		r->session->mirrored++;
		r->mirrored = true;
	}
}

/* This end asks. The other one may have been seen before, where its process was faster. */
static void note_asked(struct mcp *t, const struct mcp_request *r)
{
	struct mcp_request *other;

	DL_FOREACH (t->lonely, other) {
		if (other->hash == r->hash && other->call.conn_id != r->call.conn_id)
			break;
	}
	if (other) {
		other->session->mirrored++;
		lonely_take(t, other);
		request_free(t, other);
		return;
	}
	t->recent[t->recent_at++ % MCP_RECENT_MAX] = (struct mcp_recent){r->hash, r->call.conn_id};
}

/* --- the end of a request ---------------------------------------------------------------------------------------- */

/* It is not open any more. */
static void take_off(struct mcp *t, struct mcp_request *r)
{
	if (r->hashed)
		HASH_DEL(t->requests, r);
	r->hashed = false;
	DL_DELETE(t->open, r);
	t->open_count--;
	if (r->exchange)
		DL_DELETE2(r->exchange->requests, r, of_exchange_prev, of_exchange);
	r->exchange = NULL;
	if (r->flow) {
		r->flow->requests--;
		r->flow->open -= r->counted;
	}
	r->flow = NULL;
}

void mcp_request_end(struct mcp *t, struct mcp_request *r, enum end_reason end, uint64_t ns)
{
	struct mcp_call *c = &r->call;

	if (end != END_COMPLETE && r->lossy_ns != UNKNOWN_NS) { /* the answer is what is missing, perhaps */
		end = END_CAPTURE_LOSS;
		ns = r->lossy_ns;
	}
	c->end = end;
	c->end_ns = ns > c->start_ns ? ns : c->start_ns;
	c->unfinished = end == END_CAPTURE_END;
	if (end == END_EVICTED && r->session->proven)
		t->lost->evicted_calls++;
	take_off(t, r);
	if (r->mirror)
		look_for_asker(t, r);
	if (!r->session->proven || r->mirrored) {
		request_free(t, r);
	} else if (r->mirror) {
		if (t->lonely_count == MCP_LONELY_MAX)
			lonely_tell(t, t->lonely);
		DL_APPEND(t->lonely, r);
		t->lonely_count++;
	} else {
		tell(t, r);
		request_free(t, r);
	}
}

void mcp_request_lossy(struct mcp_request *r, uint64_t ns)
{
	r->call.lossy = true;
	if (r->lossy_ns == UNKNOWN_NS)
		r->lossy_ns = ns;
}

static void key_of(struct mcp_request_key *key, const struct mcp_session *s, uint64_t exchange, enum dir asker,
		   const struct mcp_id *id)
{
	memset(key, 0, sizeof(*key));
	key->session = s;
	key->exchange = exchange;
	key->asker = asker;
	key->id.type = id->type;
	memcpy(key->id.text, id->text, sizeof(id->text));
}

static struct mcp_request *find(struct mcp *t, const struct mcp_session *s, uint64_t exchange, enum dir asker,
				const struct mcp_id *id)
{
	struct mcp_request_key key;
	struct mcp_request *r;

	key_of(&key, s, exchange, asker, id);
	HASH_FIND(hh, t->requests, &key, sizeof(key), r);
	return r;
}

/* An answer is looked for where it came, then in its session. */
static struct mcp_request *find_asked(struct mcp *t, const struct mcp_place *at, enum dir asker,
				      const struct mcp_id *id)
{
	const struct mcp_exchange *e = at->exchange;
	struct mcp_request *r = find(t, at->session, 0, asker, id);

	if (!r && e && e->session)
		r = find(t, e->session, e->serial, asker, id);
	if (!r && e && e->session)
		r = find(t, e->session, 0, asker, id);
	if (!r && e)
		r = find(t, at->session, e->serial, asker, id);
	return r;
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

static void fill_call(struct mcp *t, struct mcp_call *c, const struct mcp_place *at, const struct mcp_message *m)
{
	const struct mcp_exchange *e = at->exchange;

	*c = (struct mcp_call){
		.conn = at->flow->conn->key,
		.conn_id = at->flow->conn->conn_id,
		.tid = at->first.tid,
		.start_ns = at->dir == DIR_TX ? at->first.entry_ns : at->first.ts_ns,
		.end_ns = UNKNOWN_NS,
		.transport = e ? MCP_HTTP : MCP_STDIO,
		.answerer = at->dir == DIR_RX,
		.peer = at->flow->conn->peer,
	};
	c->method = mcp_copy(t, sv_of(m->method), MCP_TEXT_BYTES);
	c->id = mcp_copy(t, sv_of(m->id.text), MCP_TEXT_BYTES);
	if (has_target(m->method))
		c->target = mcp_copy(t, sv_of(m->name), MCP_TEXT_BYTES);
	if (e)
		c->host = mcp_copy(t, sv_of(e->host), MCP_TEXT_BYTES);
}

static void make_room(struct mcp *t)
{
	if (t->open_count < MCP_OPEN_MAX)
		return;
	t->lost->n[LOST_NO_MEMORY]++;
	mcp_request_end(t, t->open, END_EVICTED, t->now_ns);
}

static struct mcp_request *request_new(struct mcp *t, const struct mcp_place *at, const struct mcp_message *m)
{
	struct mcp_request *r = calloc(1, sizeof(*r));
	bool own_ids = !at->exchange || at->session->shared;

	if (!r)
		goto fail;
	key_of(&r->key, at->session, own_ids ? 0 : at->exchange->serial, at->dir, &m->id);
	HASH_ADD(hh, t->requests, key, sizeof(r->key), r);
	if (!r->hh.tbl)
		goto fail;
	r->hashed = true;
	r->session = at->session;
	r->session->refs++;
	r->flow = at->flow;
	r->flow->requests++;
	r->token = m->token;
	r->hash = at->hash;
	r->lossy_ns = UNKNOWN_NS;
	r->mirror = !at->exchange && at->dir == DIR_RX;
	DL_APPEND(t->open, r);
	t->open_count++;
	fill_call(t, &r->call, at, m);
	return r;
fail:
	free(r);
	t->lost->n[LOST_NO_MEMORY]++;
	return NULL;
}

/* The first thing to ask a new server is `initialize`: else that, at least, was asked before anybody saw it. */
static void note_begin(struct mcp *t, const struct mcp_place *at, const struct mcp_message *m)
{
	if (!at->session->begun && !at->exchange && at->flow->conn->fresh && is_method(m->method))
		t->lost->n[LOST_LATE]++;
	at->session->begun = true;
}

static void on_request(struct mcp *t, const struct mcp_place *at, const struct mcp_message *m)
{
	struct mcp_request *r;

	note_begin(t, at, m);
	at->session->proven |= proves(m);
	make_room(t);
	/* Of two with one id the first was answered where nobody saw it, or never will be. */
	r = find(t, at->session, 0, at->dir, &m->id);
	if (r)
		mcp_request_end(t, r, END_CAPTURE_LOSS, at->first.entry_ns);
	r = request_new(t, at, m);
	if (!r)
		return;
	if (at->exchange) {
		r->exchange = at->exchange;
		DL_APPEND2(at->exchange->requests, r, of_exchange_prev, of_exchange);
	}
	r->counted = at->session->proven;
	at->flow->begun += r->counted;
	at->flow->open += r->counted;
	if (!r->mirror && !at->exchange && r->hash)
		note_asked(t, r);
	else if (r->mirror)
		look_for_asker(t, r);
}

static void note_failure(struct mcp *t, struct mcp_call *c, const struct mcp_message *m)
{
	if (m->failed)
		c->error = mcp_copy(t, sv_of(m->error_code[0] ? m->error_code : "error"), MCP_TEXT_BYTES);
	else if (m->tool_error)
		c->error = mcp_copy(t, SV("tool_error"), MCP_TEXT_BYTES);
	if (m->failed && t->cfg.content)
		c->error_message = mcp_copy(t, sv_of(m->error_message), MCP_MESSAGE_BYTES);
}

static void on_response(struct mcp *t, const struct mcp_place *at, const struct mcp_message *m)
{
	struct mcp_request *r = find_asked(t, at, dir_other(at->dir), &m->id);

	if (!r) {
		if (m->peer[0] && m->protocol_version[0]) /* of an initialize that was not seen */
			session_note_server(t, at->session, m);
		return;
	}
	if (!strcmp(r->call.method ? r->call.method : "", "initialize") && !m->failed) {
		session_note_server(t, r->session, m);
		if (at->exchange && at->exchange->answer_session) {
			at->exchange->answer_session->proven |= r->session->proven;
			session_note_server(t, at->exchange->answer_session, m);
		}
	}
	note_failure(t, &r->call, m);
	mcp_request_end(t, r, END_COMPLETE, at->last.ts_ns);
}

/* Progress comes from the one who was asked, and names its request by a token: known where that is the id, as in most
 * clients. */
static void on_progress(struct mcp *t, const struct mcp_place *at, const struct mcp_message *m)
{
	struct mcp_request *r;

	if (!m->token.type)
		return;
	r = find_asked(t, at, dir_other(at->dir), &m->token);
	if (r && !memcmp(&r->token, &m->token, sizeof(r->token)))
		r->call.progress++;
}

/* The one who asked does not want the answer any more; it may come yet, and is nobody's then. */
static void on_cancelled(struct mcp *t, const struct mcp_place *at, const struct mcp_message *m)
{
	struct mcp_request *r = m->cancelled.type ? find_asked(t, at, at->dir, &m->cancelled) : NULL;

	if (!r)
		return;
	r->call.cancelled = true;
	mcp_request_end(t, r, END_CLIENT_ABORT, at->last.ts_ns);
}

void mcp_message(struct mcp *t, const struct mcp_place *at, const struct mcp_message *m)
{
	switch (m->kind) {
	case MCP_REQUEST:
		if (m->id.type && m->method[0]) /* one without a name is none */
			on_request(t, at, m);
		break;
	case MCP_RESPONSE:
		on_response(t, at, m);
		break;
	case MCP_NOTIFICATION:
		if (!strcmp(m->method, "notifications/progress"))
			on_progress(t, at, m);
		else if (!strcmp(m->method, "notifications/cancelled"))
			on_cancelled(t, at, m);
		break;
	default:
		break;
	}
}

/* --- time -------------------------------------------------------------------------------------------------------- */

static void tell_lonely(struct mcp *t, uint64_t until_ns)
{
	struct mcp_request *r, *next;

	DL_FOREACH_SAFE (t->lonely, r, next) {
		if (r->call.end_ns <= until_ns)
			lonely_tell(t, r);
	}
}

void mcp_advance(struct mcp *t, uint64_t ns)
{
	uint64_t every = t->cfg.sweep_ns ? t->cfg.sweep_ns : 1, at;

	if (ns == UNKNOWN_NS || ns <= t->now_ns)
		return;
	t->now_ns = ns;
	if (t->lonely && ns > MCP_MIRROR_NS)
		tell_lonely(t, ns - MCP_MIRROR_NS);
	if (!t->next_sweep_ns)
		t->next_sweep_ns = ns + every;
	if (ns < t->next_sweep_ns)
		return;
	at = t->next_sweep_ns + (ns - t->next_sweep_ns) / every * every;
	t->next_sweep_ns = at + every;
	while (t->open && t->open->call.start_ns <= at && at - t->open->call.start_ns >= t->cfg.stale_ns)
		mcp_request_end(t, t->open, END_EVICTED, at);
}

void mcp_tick(struct mcp *t, uint64_t now_ns)
{
	mcp_advance(t, now_ns);
}

void mcp_finish(struct mcp *t, uint64_t now_ns)
{
	mcp_advance(t, now_ns);
	while (t->open)
		mcp_request_end(t, t->open, END_CAPTURE_END, now_ns);
	tell_lonely(t, UINT64_MAX);
}

void mcp_exit(struct mcp *t, const struct proc_key *proc, int32_t code, int32_t signal, uint64_t ts_ns)
{
	struct mcp_request *r, *next;

	mcp_advance(t, ts_ns);
	DL_FOREACH_SAFE (t->open, r, next) {
		if (r->call.conn.tgid != proc->tgid || r->call.conn.start_ns != proc->start_ns)
			continue;
		r->call.exit_code = code;
		r->call.exit_signal = signal;
		mcp_request_end(t, r, END_PROCESS_EXIT, ts_ns);
	}
}

void mcp_each_open(struct mcp *t, uint64_t now_ns, void (*fn)(void *ctx, const struct mcp_call *c), void *ctx)
{
	struct mcp_request *r;
	struct mcp_call c;

	DL_FOREACH (t->lonely, r) {
		c = report(r);
		fn(ctx, &c);
	}
	DL_FOREACH (t->open, r) {
		if (!r->session->proven || r->mirrored)
			continue;
		c = report(r);
		c.end_ns = now_ns > c.start_ns ? now_ns : c.start_ns;
		c.unfinished = true;
		fn(ctx, &c);
	}
}

/* --- life -------------------------------------------------------------------------------------------------------- */

struct mcp *mcp_new(const struct mcp_config *cfg, struct lost *lost, const struct mcp_sink *sink)
{
	struct mcp *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->cfg = *cfg;
	t->lost = lost;
	t->sink = *sink;
	return t;
}

void mcp_free(struct mcp *t)
{
	struct mcp_request *r, *next;

	if (!t)
		return;
	DL_FOREACH_SAFE (t->open, r, next) {
		take_off(t, r);
		request_free(t, r);
	}
	DL_FOREACH_SAFE (t->lonely, r, next) {
		lonely_take(t, r);
		request_free(t, r);
	}
	while (t->sessions)
		session_free(t, t->sessions);
	free(t);
}

struct mcp_flow *mcp_conn_new(struct mcp *t, const struct exchange_conn *conn)
{
	struct mcp_flow *f = calloc(1, sizeof(*f));

	if (!f) {
		t->lost->n[LOST_NO_MEMORY]++;
		return NULL;
	}
	f->table = t;
	f->conn = conn;
	return f;
}

/* Of HTTP something may be open still: its answer comes on another connection. */
void mcp_conn_free(struct mcp_flow *f)
{
	struct mcp_request *r;

	if (!f)
		return;
	mcp_stdio_end(f, HTTP_ABORT_CLOSED, f->table->now_ns);
	mcp_exchanges_free(f);
	for (r = f->requests ? f->table->open : NULL; r; r = r->next) {
		if (r->flow == f)
			r->flow = NULL;
	}
	free(f);
}

void mcp_conn_forget(struct mcp_flow *f)
{
	struct mcp_request *r, *next;

	for (r = f->requests ? f->table->open : NULL; r; r = next) {
		next = r->next;
		if (r->flow != f)
			continue;
		take_off(f->table, r);
		request_free(f->table, r);
	}
}

void mcp_conn_warm(const struct mcp_flow *f, struct warm *w)
{
	warm_add(w, f, offsetof(struct mcp_flow, session));
}

unsigned mcp_conn_begun(const struct mcp_flow *f)
{
	return f->begun;
}

unsigned mcp_conn_open(const struct mcp_flow *f)
{
	return f->open + f->streams;
}
