/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Exchanges as WebSocket messages: OpenAI's Responses and Realtime, and what cannot be read. */

#include "exchange_ws.h"

#include <stdlib.h>

#include "base/err.h"
#include "text.h"

#define MESSAGE_XID (1ull << 63) /* calls that are messages: numbers that no protocol gives */

/* Of a call that cannot be read on a WebSocket whose handshake was not seen. */
static const struct dialect dialect_unread = {0};

/* --- life -------------------------------------------------------------------------------------------------------- */

static struct ws_session *session_new(struct exchange_flow *f, struct entry *e)
{
	struct exchanges *t = f->table;
	struct ws_session *s = t->session_count < EXCHANGE_MAX ? calloc(1, sizeof(*s)) : NULL;

	if (!s) {
		t->lost->n[LOST_NO_MEMORY]++;
		return NULL;
	}
	s->turn_ns = s->start_ns = s->unasked_ns = UNKNOWN_NS;
	s->client.retry_count = -1;
	e->session = s;
	t->session_count++;
	return s;
}

void ws_session_free(struct exchanges *t, struct entry *e)
{
	struct ws_session *s = e->session;
	struct ws_call *c, *next;

	DL_FOREACH_SAFE (s->calls, c, next)
		free(c); /* the entries are the connection's */
	free(s->path);
	free(s->host);
	free(s);
	e->session = NULL;
	t->session_count--;
}

/* Codex says in the handshake what its first request is; later ones are others. */
static void keep_client(struct ws_session *s, const struct client *client)
{
	s->client = *client;
	if (client->class_of_turn)
		s->client.class_stated = false;
	s->client.retry_count = -1;
}

void ws_session_start(struct exchange_flow *f, struct entry *e, uint64_t ts_ns)
{
	struct pending *p = e->pending;
	struct ws_session *s = session_new(f, e);

	if (s) {
		s->dialect = p->dialect;
		s->handshake_seen = true;
		s->path = p->call.path;
		s->host = p->call.host;
		p->call.path = p->call.host = NULL;
		memcpy(s->model, p->path_model, sizeof(s->model));
		keep_client(s, &p->client);
		s->start_ns = p->call.start_ns;
		s->last_ns = ts_ns;
		s->tid = p->call.tid;
	}
	/* no call by itself; the next one is the connection's first */
	f->calls -= p->dialect != NULL;
	pending_free(f->table, p);
	if (!s)
		entry_free(f->table, e);
}

/* The session of a WebSocket whose handshake was not seen begins with its first message. */
static struct ws_session *session_of(struct exchange_flow *f, uint64_t xid)
{
	struct entry *e = entry_find(f, xid);
	struct pending *p;

	if (e)
		return e->session;
	p = pending_new(f, xid);
	if (!p)
		return NULL;
	e = p->entry;
	pending_free(f->table, p);
	if (!session_new(f, e)) {
		entry_free(f->table, e);
		return NULL;
	}
	return e->session;
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

static char *copy_text(struct exchanges *t, const char *text)
{
	return text ? exchanges_copy(t, sv_of(text), strlen(text)) : NULL;
}

static struct pending *new_pending(struct exchange_flow *f, struct ws_session *s, const struct stamp *first)
{
	struct exchanges *t = f->table;
	struct pending *p;

	exchanges_make_room(t);
	p = pending_new(f, MESSAGE_XID | ++f->last_message_call);
	if (!p)
		return NULL;
	pending_conn(p, first);
	p->path.stream = 1;
	p->upgrade = true; /* as it began with one: its request's keys need not prove it */
	p->client = s->client;
	p->call.protocol = "websocket";
	p->call.method = exchanges_copy(t, SV("POST"), 4);
	p->call.path = copy_text(t, s->path);
	p->call.host = copy_text(t, s->host);
	p->call.session_id = copy_text(t, s->client.session);
	p->call.agent_id = copy_text(t, s->client.agent);
	p->call.parent_agent_id = copy_text(t, s->client.parent_agent);
	p->call.start_ns = first->entry_ns;
	pending_note_unseen(p, !s->handshake_seen);
	p->call.start_known = true;
	if (s->lost[HTTP_REQUEST] || s->lost[HTTP_RESPONSE] || s->request_lost)
		call_note_lost(&p->call, UINT64_MAX);
	memcpy(p->path_model, s->model, sizeof(p->path_model));
	return p;
}

struct ws_call *ws_call_begin(struct exchange_flow *f, struct ws_session *s, const struct stamp *first)
{
	struct exchanges *t = f->table;
	struct answer_config cfg = {.dialect = s->dialect, .content = t->cfg.content, .messages = true};
	struct ws_call *c = s->call_count < EXCHANGE_WS_MAX ? calloc(1, sizeof(*c)) : NULL;
	struct pending *p = c ? new_pending(f, s, first) : NULL;

	if (!p) {
		t->lost->n[LOST_NO_MEMORY]++;
		free(c);
		return NULL;
	}
	p->answer = answer_new(&cfg, NULL, t->lost);
	t->lost->n[LOST_NO_MEMORY] += !p->answer;
	pending_begin(p, s->dialect ? s->dialect : &dialect_unread);
	c->entry = p->entry;
	c->since_ns = first->entry_ns;
	c->doubted = s->lost[HTTP_RESPONSE];
	DL_APPEND(s->calls, c);
	s->call_count++;
	return c;
}

void ws_call_end(struct exchange_flow *f, struct ws_session *s, struct ws_call *c, enum end_reason end, uint64_t ts_ns)
{
	struct pending *p = c->entry->pending;

	if (p)
		p->call.unfinished = end == END_CAPTURE_END;
	if (p && c->bytes_unsure)
		p->call.response_bytes = UNKNOWN_COUNT;
	s->asked_late += c->unasked;
	pending_finish(f->table, c->entry, end, ts_ns);
	DL_DELETE(s->calls, c);
	s->call_count--;
	free(c);
}

static void heard(struct exchange_flow *f, struct ws_session *s, enum http_side side, const struct ws_message *m)
{
	exchanges_advance(f->table, m->last.ts_ns);
	s->last_ns = m->last.ts_ns;
	*(side == HTTP_REQUEST ? &s->sent : &s->got) += m->carried;
	if (!s->tid)
		s->tid = m->first.tid;
	if (s->start_ns == UNKNOWN_NS)
		s->start_ns = m->first.ts_ns;
}

/* --- calls that cannot be read ----------------------------------------------------------------------------------- */

static struct ws_call *unread_call(struct ws_session *s)
{
	struct ws_call *c;

	DL_FOREACH (s->calls, c) {
		if (c->unread)
			return c;
	}
	return NULL;
}

/* Its end is its answer's last byte; that it is whole is all that is known of it. One without an answer was none. */
static void end_unread(struct exchange_flow *f, struct ws_session *s)
{
	struct ws_call *c = unread_call(s);

	if (!c)
		return;
	s->told |= c->answered;
	ws_call_end(f, s, c, END_COMPLETE, c->last_ns);
}

/* Of its answer nothing could be read: it ends with that. A message that was cut is no end. */
static bool ends_unread(const struct ws_call *c)
{
	return c->answered && !c->read && !c->cut;
}

static void end_calls(struct exchange_flow *f, struct ws_session *s, enum end_reason end, uint64_t ts_ns)
{
	while (s->calls) {
		struct ws_call *c = s->calls;

		s->told |= c->unread && c->answered;
		if (ends_unread(c))
			ws_call_end(f, s, c, END_COMPLETE, c->last_ns);
		else
			ws_call_end(f, s, c, end, ts_ns);
	}
}

/* Messages tell what it is. */
static void forget_unread(struct exchange_flow *f, struct ws_session *s)
{
	struct ws_call *c = unread_call(s);

	if (!c)
		return;
	if (c->entry->pending)
		c->entry->pending->denied = true;
	ws_call_end(f, s, c, END_COMPLETE, s->last_ns);
}

static struct ws_call *begin_unread(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m)
{
	struct ws_call *c = ws_call_begin(f, s, &m->first);
	struct pending *p;

	if (!c)
		return NULL;
	p = c->entry->pending;
	answer_free(p->answer);
	p->answer = NULL;
	p->denied = true; /* until it is answered */
	p->path.stream = -1;
	p->call.undecoded = exchanges_copy(f->table, m->compressed ? SV("permessage-deflate") : SV("websocket"), 32);
	p->call.request_bytes = 0;
	c->unread = true;
	return c;
}

/* Its end was missed. */
static void end_unseen(struct exchange_flow *f, struct ws_session *s, struct ws_call *c, uint64_t ts_ns)
{
	if (c->entry->pending && !c->entry->pending->call.lossy)
		call_note_lost(&c->entry->pending->call, UINT64_MAX);
	ws_call_end(f, s, c, END_CAPTURE_LOSS, ts_ns);
}

/*
 * Responses has one answer at a time on a lane, and its client speaks when that is over. The end of one of which
 * messages could not be read may be among those: what is answered from here on is not it.
 */
static void end_doubted(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m)
{
	struct ws_call *c, *tmp;

	DL_FOREACH_SAFE (s->calls, c, tmp) {
		if (!c->doubted || c->lane[0] || s->dialect != &dialect_openai_responses)
			continue;
		if (ends_unread(c))
			ws_call_end(f, s, c, END_COMPLETE, c->last_ns);
		else
			end_unseen(f, s, c, m->first.ts_ns);
	}
}

/* The client says something, and nobody knows what. Beside a call that is known it is a part of that one, maybe. */
static void unread_from_client(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m)
{
	struct ws_call *c = unread_call(s);
	struct pending *p;

	s->unheard = true;
	end_doubted(f, s, m);
	if (c && (c->answered || !c->entry->pending)) {
		end_unread(f, s);
		c = NULL;
	}
	if (s->foreign || ((s->handshake_seen || f->table->cfg.anybody) && !s->dialect) || (!c && s->calls))
		return;
	if (!c)
		c = begin_unread(f, s, m);
	p = c ? c->entry->pending : NULL;
	if (!p)
		return;
	pending_touch(f->table, p);
	p->call.send_end_ns = m->last.ts_ns;
	p->call.request_bytes += (int64_t)m->carried;
}

/* --- from the client --------------------------------------------------------------------------------------------- */

static bool lane_is(const struct ws_call *c, struct sv lane)
{
	return sv_eq(sv_of(c->lane), (struct sv){lane.ptr, text_cut(lane, REQUEST_NAME_BYTES - 1)});
}

/* response.create of Responses has the request's keys, Realtime's has them, if at all, inside of "response". */
static const struct dialect *dialect_of_create(const struct ws_session *s, const struct request_facts *f)
{
	if (s->dialect)
		return s->dialect;
	return f->marks & (MARK_INPUT | MARK_MODEL) ? &dialect_openai_responses : &dialect_openai_realtime;
}

void ws_call_asked(struct ws_call *c, const struct ws_message *m, const struct request_facts *facts, bool again)
{
	struct pending *p = c->entry->pending;

	p->facts = *facts;
	if (again)
		p->facts.identity = 0;
	p->call.send_end_ns = m->last.ts_ns;
	p->call.request_bytes = (p->call.request_bytes < 0 ? 0 : p->call.request_bytes) + (int64_t)m->carried;
	pending_note_main(p);
}

bool ws_call_came_before(struct ws_session *s, const struct ws_message *m, struct ws_call **late)
{
	struct call *call;
	struct ws_call *c;

	*late = NULL;
	if (s->unasked_ns == UNKNOWN_NS || s->unasked_ns < m->first.entry_ns) {
		s->asked_late = 0;
		return false;
	}
	if (s->asked_late) { /* they are told in the order of their answers */
		s->asked_late--;
		return true;
	}
	DL_FOREACH (s->calls, c) {
		call = c->entry->pending ? &c->entry->pending->call : NULL;
		if (!call || !c->unasked || c->never_asked || c->lane[0])
			continue;
		c->unasked = call->unasked = call->request_lost = false;
		call->mid_attach = !s->handshake_seen && !c->entry->key.flow->conn->fresh;
		call->start_known = true;
		call->start_ns = m->first.entry_ns;
		*late = c;
		return true;
	}
	return s->dialect == &dialect_openai_responses; /* others answer what is spoken, too */
}

static void ask(const struct ws_session *s, struct ws_call *c, const struct ws_message *m, struct request *r,
		const struct request_facts *facts)
{
	request_take_suffix(r, &c->entry->pending->call);
	/* what Realtime is asked was said before, in other messages */
	ws_call_asked(c, m, facts, s->dialect == &dialect_openai_realtime);
}

static void create(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m, struct request *r,
		   const struct request_facts *facts)
{
	struct ws_call *c;

	if (!facts->lane[0] && s->dialect && ws_call_came_before(s, m, &c)) {
		if (c)
			ask(s, c, m, r, facts);
		return;
	}
	if (!facts->lane[0])
		end_doubted(f, s, m);
	if (s->behind && !facts->lane[0]) /* the answer that was under way is over */
		s->behind = s->lost[HTTP_RESPONSE] = false;
	c = s->calls;
	/* without a lane there is one at a time */
	if (c && !facts->lane[0] && !c->lane[0] && s->call_count == 1 && ends_unread(c))
		ws_call_end(f, s, c, END_COMPLETE, c->last_ns);
	s->dialect = dialect_of_create(s, facts);
	s->understood = true;
	s->unheard = false;
	c = ws_call_begin(f, s, &m->first);
	if (!c)
		return;
	memcpy(c->lane, facts->lane, sizeof(c->lane));
	ask(s, c, m, r, facts);
}

/* A message that lost bytes is known to be over only when others come: by then it may have been answered. */
static bool answered_already(const struct ws_session *s, const struct ws_message *m)
{
	return s->request_lost && s->unasked_ns != UNKNOWN_NS && s->unasked_ns >= m->first.ts_ns;
}

/* `whole`: the data is all of the message. */
static void read_from_client(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m, bool whole)
{
	struct request *r = request_new(s->dialect, NULL, f->table->lost);
	struct request_facts facts;

	if (!r) {
		f->table->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	request_push(r, (const uint8_t *)m->data.ptr, m->data.len, &m->last);
	if (!whole)
		request_gap(r, UINT64_MAX, !s->request_lost);
	request_report(r, whole, &facts);
	if (s->dialect == &dialect_gemini_live && facts.type[0]) {
		end_unread(f, s);
		ws_live_from_client(f, s, m, &facts);
	} else if (strcmp(facts.type, "response.create") == 0) {
		end_unread(f, s);
		create(f, s, m, r, &facts);
	} else if (!whole && !facts.marks && !facts.type[0]) {
		unread_from_client(f, s, m);
	} else if (unread_call(s) && unread_call(s)->answered) {
		end_unread(f, s);
	}
	request_free(r);
	s->compressed |= !whole && m->compressed;
}

static void from_client(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m, bool whole)
{
	s->request_lost = s->request_lost && !whole;
	if (!answered_already(s, m))
		read_from_client(f, s, m, whole);
	s->request_lost = false;
}

/* --- from the server --------------------------------------------------------------------------------------------- */

/* What a server's message says of where it belongs. */
struct server_event {
	const struct ws_message *message;
	const cJSON *doc;
	struct sv type, lane, response;
};

static bool is_terminal(const struct ws_session *s, struct sv type)
{
	static const struct sv types[] = {SV("response.completed"), SV("response.incomplete"), SV("response.failed"),
					  SV("response.cancelled")};

	if (s->dialect == &dialect_openai_realtime)
		return sv_eq(type, SV("response.done"));
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (sv_eq(type, types[i]))
			return true;
	}
	return false;
}

static struct ws_call *by_response(struct ws_session *s, struct sv response)
{
	struct ws_call *c;

	DL_FOREACH (s->calls, c) {
		if (response.len && sv_eq(sv_of(c->response), response))
			return c;
	}
	return NULL;
}

/* The oldest of its lane, of those that begin now the oldest that has not begun. */
static struct ws_call *by_lane(struct ws_session *s, const struct server_event *v, bool begins)
{
	struct ws_call *c;

	DL_FOREACH (s->calls, c) {
		if (lane_is(c, v->lane) && !(begins && c->created) && ws_call_could_get(c, &v->message->first))
			return c;
	}
	return NULL;
}

/* Responses of one lane follow each other: another one begins, thus this one's end was missed. */
static void end_missed(struct exchange_flow *f, struct ws_session *s, const struct server_event *v)
{
	struct ws_call *c = by_lane(s, v, false);

	if (!c || !c->created || s->dialect == &dialect_openai_realtime)
		return;
	end_unseen(f, s, c, v->message->first.ts_ns);
}

/* The server heard the user speak; else what asked for it was missed, or was never said. */
struct ws_call *ws_call_begin_unasked(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m)
{
	struct ws_call *c = ws_call_begin(f, s, &m->first);
	struct call *call;

	if (!c)
		return NULL;
	s->unasked_ns = m->first.ts_ns;
	call = &c->entry->pending->call;
	if (s->turn_ns != UNKNOWN_NS) {
		call->start_ns = s->turn_ns;
		return c;
	}
	c->unasked = true;
	call->start_ns = m->first.ts_ns;
	call->start_known = false;
	/* Responses answers what it is asked only */
	if (s->dialect != &dialect_openai_responses)
		call->unasked = s->handshake_seen;
	else
		call->request_lost = !s->unheard && (s->handshake_seen || f->conn->fresh);
	call->mid_attach = !call->unasked && !call->request_lost && (s->handshake_seen || !f->conn->fresh);
	return c;
}

static struct ws_call *begin_unasked(struct exchange_flow *f, struct ws_session *s, const struct server_event *v)
{
	struct ws_call *c = ws_call_begin_unasked(f, s, v->message);

	if (!c)
		return NULL;
	text_copy(c->lane, sizeof(c->lane), v->lane);
	c->created = !sv_eq(v->type, SV("response.created")); /* else it is about to be */
	return c;
}

static struct ws_call *call_of(struct exchange_flow *f, struct ws_session *s, const struct server_event *v)
{
	bool begins = sv_eq(v->type, SV("response.created"));
	struct ws_call *c = by_response(s, v->response);

	if (c)
		return c;
	if (begins)
		end_missed(f, s, v);
	c = by_lane(s, v, begins);
	if (!c && sv_starts(v->type, SV("response.")))
		c = begin_unasked(f, s, v);
	if (c && begins) {
		c->created = true;
		text_copy(c->response, sizeof(c->response), v->response);
		s->turn_ns = UNKNOWN_NS;
	}
	return c;
}

static int status_of(const cJSON *doc)
{
	int64_t status = json_get_count(doc, "status");

	return status >= 100 && status <= 599 ? (int)status : 200;
}

static void count_bytes(struct pending *p, const struct ws_message *m)
{
	int64_t *bytes = &p->call.response_bytes;

	*bytes = (*bytes < 0 ? 0 : *bytes) + (int64_t)m->carried;
}

void ws_call_answer(struct exchange_flow *f, struct ws_call *c, const struct ws_message *m, struct sv type,
		    const cJSON *doc, int status)
{
	struct pending *p = c->entry->pending;

	c->read = true;
	if (!p) {
		f->table->lost->late_bytes += m->carried;
		return;
	}
	pending_touch(f->table, p);
	p->call.status = status;
	if (p->call.ttfb_ns == UNKNOWN_NS)
		p->call.ttfb_ns = m->first.ts_ns;
	count_bytes(p, m);
	if (p->answer)
		answer_event(p->answer, type, doc, m->data, &m->last);
	exchanges_weigh(f->table, p);
}

static void deliver(struct exchange_flow *f, struct ws_session *s, struct ws_call *c, const struct server_event *v)
{
	bool error = sv_eq(v->type, SV("error"));

	ws_call_answer(f, c, v->message, v->type, v->doc, status_of(error ? v->doc : NULL));
	/* Realtime tells of errors that end nothing */
	if (is_terminal(s, v->type) || (error && (!c->created || s->dialect != &dialect_openai_realtime)))
		ws_call_end(f, s, c, END_COMPLETE, v->message->last.ts_ns);
}

/*
 * The server was lost and is read again. An answer that was under way then is not: what of it came before is not known.
 * One that begins is that of the client's latest message, unless later ones may have been lost; others are over. (A
 * hole is told with the bytes behind it: by then the client may have gone on.) Return: v is to be told.
 */
static bool catch_up(struct exchange_flow *f, struct ws_session *s, const struct server_event *v)
{
	struct ws_call *c, *tmp;

	if (!s->behind)
		return true;
	if (is_terminal(s, v->type)) { /* it is over */
		DL_FOREACH_SAFE (s->calls, c, tmp) {
			if (ws_call_could_get(c, &v->message->first))
				end_unseen(f, s, c, v->message->last.ts_ns);
		}
		s->behind = s->lost[HTTP_RESPONSE] = false;
	}
	if (!sv_eq(v->type, SV("response.created")))
		return false;
	DL_FOREACH_SAFE (s->calls, c, tmp) {
		bool later = c->next && ws_call_could_get(c->next, &v->message->first);

		if (later || (c->followed && ws_call_could_get(c, &v->message->first)))
			end_unseen(f, s, c, v->message->first.ts_ns);
	}
	return true;
}

/* What the server hears: the end of the user's turn is what its answer is measured from. */
static void listen(struct ws_session *s, const struct server_event *v)
{
	if (sv_eq(v->type, SV("input_audio_buffer.speech_started")))
		s->turn_ns = UNKNOWN_NS;
	else if ((sv_eq(v->type, SV("input_audio_buffer.speech_stopped")) ||
		  sv_eq(v->type, SV("input_audio_buffer.committed"))) &&
		 s->turn_ns == UNKNOWN_NS)
		s->turn_ns = v->message->last.ts_ns;
}

/* Steering has events of its own, which are no part of a response. */
static bool is_of_response(struct sv type)
{
	return (sv_starts(type, SV("response.")) && !sv_starts(type, SV("response.steer."))) ||
	       sv_eq(type, SV("error"));
}

/* A message that cannot be read, of the one call there is. */
static void answer_hidden(struct exchange_flow *f, struct ws_call *c, const struct ws_message *m)
{
	struct pending *p = c->entry->pending;

	c->answered = true;
	c->cut = !m->complete;
	c->last_ns = m->last.ts_ns;
	if (!p) {
		f->table->lost->late_bytes += m->carried;
		return;
	}
	pending_touch(f->table, p);
	if (p->call.ttfb_ns == UNKNOWN_NS)
		p->call.ttfb_ns = m->first.ts_ns;
	count_bytes(p, m);
}

/* A message that belongs to the call that cannot be read, if there is one. */
static void answer_unread(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m)
{
	struct ws_call *c = unread_call(s);

	if (!c || !ws_call_could_get(c, &m->first))
		return;
	answer_hidden(f, c, m);
	if (c->entry->pending)
		c->entry->pending->denied = false;
}

/* No dialect tells what it is: is it at all like a model's? */
static void note_foreign(struct exchange_flow *f, struct ws_session *s, const cJSON *doc)
{
	if (s->dialect || json_get_string(doc, "type").len)
		return;
	s->foreign = true;
	forget_unread(f, s);
}

static void from_server(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m)
{
	bool too_many;
	cJSON *doc = dialect_parse(m->data, &too_many);
	struct server_event v = {m, doc, json_get_string(doc, "type"), json_get_string(doc, "stream_id"),
				 json_get_string(doc, "response_id")};
	struct ws_call *c;

	if (!v.response.len)
		v.response = json_get_string(json_get(doc, "response"), "id");
	if (!s->dialect)
		s->dialect = dialect_by_document(SV_NONE, doc);
	if (s->dialect) {
		s->understood |= doc != NULL;
		listen(s, &v);
	}
	note_foreign(f, s, doc);
	if (s->dialect == &dialect_gemini_live && ws_live_is_answer(doc)) {
		forget_unread(f, s);
		ws_live_from_server(f, s, m, doc);
	} else if (s->dialect && s->dialect != &dialect_gemini_live && is_of_response(v.type)) {
		forget_unread(f, s);
		c = catch_up(f, s, &v) ? call_of(f, s, &v) : NULL;
		if (c && s->behind)
			s->behind = s->lost[HTTP_RESPONSE] = false;
		if (c)
			deliver(f, s, c, &v);
	} else {
		answer_unread(f, s, m);
	}
	cJSON_Delete(doc);
}

/* --- what comes -------------------------------------------------------------------------------------------------- */

void exchanges_ws_message(struct exchange_flow *f, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	struct ws_session *s = session_of(f, xid);

	if (!s)
		return;
	heard(f, s, side, m);
	/* Google's servers write JSON into binary messages */
	if (m->opcode != WS_TEXT && !sv_starts(m->data, SV("{")))
		return;
	if (side == HTTP_REQUEST)
		from_client(f, s, m, true);
	else if (!s->left)
		from_server(f, s, m);
}

/* It may have been of any of the open calls: their tokens, counts and ends are not sure from here on. */
static void doubt_calls(struct exchange_flow *f, struct ws_session *s, struct sv why, const struct stamp *at)
{
	struct ws_call *c;

	DL_FOREACH (s->calls, c) {
		struct pending *p = c->entry->pending;

		if (!p || !ws_call_could_get(c, at))
			continue;
		c->doubted = true;
		pending_touch(f->table, p);
		if (p->answer)
			answer_undecoded(p->answer, why);
		/* what came before the attach was not lost, and what refers to it is not either */
		f->table->lost->n[LOST_DECODE_ERRORS] += s->handshake_seen;
	}
}

/* The one that bytes of that time can be of. */
static struct ws_call *only_call(struct ws_session *s, const struct stamp *at)
{
	struct ws_call *c, *only = NULL;

	DL_FOREACH (s->calls, c) {
		if (!ws_call_could_get(c, at))
			continue;
		if (only)
			return NULL;
		only = c;
	}
	return only;
}

static void hide(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m)
{
	struct ws_call *c;

	s->compressed |= m->compressed;
	answer_unread(f, s, m);
	if (unread_call(s))
		return;
	/* one that the end of the connection cut short hides nothing: no event is in it */
	if (!m->ended)
		doubt_calls(f, s, m->compressed ? SV("permessage-deflate") : SV("websocket"), &m->first);
	c = only_call(s, &m->first);
	if (c) {
		answer_hidden(f, c, m);
		return;
	}
	DL_FOREACH (s->calls, c) {
		if (!ws_call_could_get(c, &m->first))
			continue;
		if (c->entry->pending)
			count_bytes(c->entry->pending, m);
		c->bytes_unsure = true;
	}
}

void exchanges_ws_opaque(struct exchange_flow *f, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	struct ws_session *s = session_of(f, xid);

	if (!s)
		return;
	heard(f, s, side, m);
	if (side == HTTP_REQUEST)
		from_client(f, s, m, false);
	else if (!s->left)
		hide(f, s, m);
}

void exchanges_ws_undecoded(struct exchange_flow *f, uint64_t xid, enum http_side side, const struct stamp *at)
{
	struct entry *e = entry_find(f, xid);

	exchanges_advance(f->table, at->ts_ns);
	if (e && e->session && side == HTTP_RESPONSE)
		doubt_calls(f, e->session, e->session->compressed ? SV("permessage-deflate") : SV("websocket"), at);
}

void exchanges_ws_lost(struct exchange_flow *f, uint64_t xid, enum http_side side, uint64_t len, bool all,
		       const struct stamp *at)
{
	struct entry *e = entry_find(f, xid);
	struct ws_call *c;

	exchanges_advance(f->table, at->ts_ns);
	if (!e || !e->session)
		return;
	e->session->lost[side] |= all;
	e->session->behind &= !(all && side == HTTP_RESPONSE);
	e->session->request_lost |= side == HTTP_REQUEST;
	if (side == HTTP_REQUEST)
		e->session->asked_late = 0;
	/* by those of the client's a call may have been stopped */
	DL_FOREACH (e->session->calls, c) {
		c->never_asked |= side == HTTP_REQUEST;
		if (!ws_call_could_get(c, at)) /* asked for when it was over */
			continue;
		c->followed |= all && side == HTTP_REQUEST;
		c->cut |= all && side == HTTP_RESPONSE;
		c->doubted |= all && side == HTTP_RESPONSE;
		if (c->entry->pending)
			call_note_lost(&c->entry->pending->call, len);
	}
}

static bool is_resumable(const struct ws_session *s)
{
	const struct ws_call *c;

	DL_FOREACH (s->calls, c) {
		if (c->lane[0])
			return false;
	}
	return s->dialect == &dialect_openai_responses;
}

bool exchanges_ws_found(struct exchange_flow *f, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	struct entry *e = entry_find(f, xid);
	struct ws_session *s = e ? e->session : NULL;
	bool too_many, found;
	struct sv type;
	cJSON *doc;

	if (!s || !is_resumable(s))
		return false;
	doc = dialect_parse(m->data, &too_many);
	type = json_get_string(doc, "type");
	/* Inside of a longer message the bytes of a text could be made to look like a frame; but a piece of JSON that
	 * is JSON has its strings turned inside out: what lies between the longer one's, its commas, is the names. */
	found = type.len && !json_get(doc, "stream_id");
	if (side == HTTP_REQUEST) /* an answer to it that was seen before it has been told as nobody's */
		found = found && sv_eq(type, SV("response.create")) &&
			(s->unasked_ns == UNKNOWN_NS || s->unasked_ns < m->first.ts_ns);
	cJSON_Delete(doc);
	s->lost[side] &= side == HTTP_RESPONSE || !found;
	s->behind |= side == HTTP_RESPONSE && found;
	return found;
}

void exchanges_ws_close(struct exchange_flow *f, uint64_t xid, enum http_side side, const struct stamp *at)
{
	struct entry *e = entry_find(f, xid);

	exchanges_advance(f->table, at->ts_ns);
	if (!e || !e->session)
		return;
	e->session->left |= side == HTTP_REQUEST;
	end_calls(f, e->session, side == HTTP_REQUEST ? END_CLIENT_ABORT : END_SERVER_ABORT, at->ts_ns);
}

/* A WebSocket to a model of which nothing could be read: one record, that says so. */
static void tell_undecoded(struct exchange_flow *f, struct ws_session *s, enum end_reason end, uint64_t ts_ns)
{
	struct stamp first = {s->start_ns, s->start_ns, s->tid, 0};
	struct pending *p = new_pending(f, s, &first);

	if (!p)
		return;
	pending_begin(p, s->dialect);
	p->path.stream = -1;
	p->call.request_bytes = (int64_t)s->sent;
	p->call.response_bytes = (int64_t)s->got;
	p->call.undecoded = exchanges_copy(f->table, s->compressed ? SV("permessage-deflate") : SV("websocket"), 32);
	p->call.unfinished = end == END_CAPTURE_END;
	pending_finish(f->table, p->entry, end, ts_ns);
}

void exchanges_ws_end(struct exchange_flow *f, uint64_t xid, enum http_abort why, uint64_t ts_ns)
{
	struct entry *e = entry_find(f, xid);
	struct ws_session *s = e ? e->session : NULL;

	exchanges_advance(f->table, ts_ns);
	if (!s)
		return;
	end_calls(f, s, end_of_abort(why), ts_ns);
	if (s->dialect && !s->understood && !s->told)
		tell_undecoded(f, s, end_of_abort(why), ts_ns);
	entry_free(f->table, e);
}
