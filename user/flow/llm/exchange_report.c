/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a pending exchange comes to: its class, and the record of its call. */

#include "exchange_table.h"

#include <stdlib.h>

#define SETUP_MAX_AGE_NS 50000000ull /* a connection opened longer before its first call was not opened for it */
#define CALLERS_MAX	 4096

/* --- class ------------------------------------------------------------------------------------------------------- */

static struct caller *find_caller(const struct exchanges *t, const struct call *c)
{
	struct caller_key key = {c->conn.tgid, c->conn.exec_id, c->conn.start_ns};
	struct caller *found;

	HASH_FIND(hh, t->callers, &key, sizeof(key), found);
	return found;
}

void exchanges_note_caller(struct exchanges *t, const struct call *c)
{
	struct caller *new;

	if (find_caller(t, c))
		return;
	if (HASH_COUNT(t->callers) >= CALLERS_MAX) {
		new = t->callers;
		HASH_DEL(t->callers, new);
		free(new);
	}
	new = calloc(1, sizeof(*new));
	if (!new)
		return; /* at worst an auxiliary call is shown as a main one */
	new->key = (struct caller_key){c->conn.tgid, c->conn.exec_id, c->conn.start_ns};
	new->first_ns = c->start_ns != UNKNOWN_NS ? c->start_ns : t->now_ns;
	HASH_ADD(hh, t->callers, key, sizeof(new->key), new);
	if (!new->hh.tbl)
		free(new);
}

static bool has_main_session(const struct exchanges *t, const struct call *c)
{
	const struct caller *caller = find_caller(t, c);

	return caller && caller->main;
}

static void note_main_session(struct exchanges *t, const struct call *c)
{
	const struct proc_key process = proc_key_of(&c->conn);
	struct caller *caller;

	exchanges_note_caller(t, c);
	caller = find_caller(t, c);
	if (!caller || caller->main)
		return;
	caller->main = true;
	if (t->sink.on_main)
		t->sink.on_main(t->sink.ctx, &process);
}

void exchanges_free_callers(struct exchanges *t)
{
	struct caller *c, *next;

	HASH_ITER (hh, t->callers, c, next) {
		HASH_DEL(t->callers, c);
		free(c);
	}
}

/* Ollama: a call without a question, that loads a model or throws it out. */
static bool only_loads(const struct call *c)
{
	return c->stop_reason && (strcmp(c->stop_reason, "load") == 0 || strcmp(c->stop_reason, "unload") == 0);
}

/* As titles are asked for, and the like. */
static bool is_small(const struct pending *p, const struct call *c)
{
	return c->request.tools == 0 &&
	       (p->facts.json_schema || (c->request.messages >= 0 && c->request.messages <= 3));
}

/* In the order of the contract: path, prewarm, the client's word, agent ids, shape. */
static enum call_class classify(struct exchanges *t, const struct pending *p, const struct call *c)
{
	const struct request_facts *f = &p->facts;
	enum call_class stated;

	if (p->path.class == CALL_COUNT)
		return CALL_COUNT;
	if (f->no_generate || c->request.max_tokens == 0 || only_loads(c))
		return CALL_PREWARM;
	if (p->client.class_stated)
		return p->client.class;
	if (client_class_of_kind(sv_of(f->kind), &stated))
		return stated;
	if (p->client.subagent)
		return CALL_SUBAGENT;
	if (is_small(p, c) &&
	    (p->client.brings_tools || (p->client.asks_for_no_schema && f->json_schema) || has_main_session(t, c)))
		return CALL_AUX;
	return CALL_MAIN;
}

/* The session beside which it is auxiliary may not have begun yet: so it is for some time from the process's first call
 * on. What had begun and ended before that is a step, as far as anyone can tell. */
static uint64_t class_open_ns(const struct exchanges *t, const struct pending *p, const struct call *c)
{
	const struct caller *caller = find_caller(t, c);
	enum call_class stated;

	if (c->class != CALL_MAIN || !caller || caller->main || !is_small(p, c) || p->client.class_stated ||
	    client_class_of_kind(sv_of(p->facts.kind), &stated) || c->end_ns >= caller->first_ns + EXCHANGE_BESIDE_NS)
		return 0;
	return caller->first_ns + EXCHANGE_BESIDE_NS;
}

/* --- report ------------------------------------------------------------------------------------------------------ */

/* Set-up of the connection, when this call is its first one and it was opened for it. */
static void report_setup(const struct pending *p, const struct exchange_conn *conn, struct call *c)
{
	bool connect = conn->connect_begin_ns != UNKNOWN_NS && conn->connect_end_ns != UNKNOWN_NS;
	bool tls = conn->tls_begin_ns != UNKNOWN_NS && conn->tls_end_ns != UNKNOWN_NS;
	uint64_t end = tls ? conn->tls_end_ns : conn->connect_end_ns;

	if (!p->first_call || c->mid_attach || c->request_lost || (!connect && !tls))
		return;
	if (end < c->start_ns && c->start_ns - end > SETUP_MAX_AGE_NS)
		return;
	if (connect) {
		c->connect_begin_ns = conn->connect_begin_ns;
		c->connect_end_ns = conn->connect_end_ns;
		c->dns_begin_ns = conn->dns_begin_ns;
		c->dns_end_ns = conn->dns_end_ns;
	}
	if (tls) {
		c->tls_begin_ns = conn->tls_begin_ns;
		c->tls_end_ns = conn->tls_end_ns;
		c->tls_approximate = conn->tls_approximate;
		c->tls_resumed = conn->tls_resumed;
	}
}

static void report_socket(const struct pending *p, const struct exchange_conn *conn, struct call *c)
{
	c->peer = conn->peer;
	if (!conn->bound)
		return;
	if (conn->srtt_us)
		c->srtt_us = conn->srtt_us;
	if (conn->rtt_min_us)
		c->rtt_min_us = conn->rtt_min_us;
	if (conn->reset_ns != UNKNOWN_NS && conn->reset_ns >= c->start_ns && conn->reset_ns <= c->end_ns) {
		c->reset_ns = conn->reset_ns;
		c->reset_sent = conn->reset_sent;
	}
	if (c->connect_begin_ns != UNKNOWN_NS) /* it paid for the set-up, and what was lost in it is its own */
		c->retransmits = conn->retransmits;
	else if (p->retransmits_known && conn->retransmits >= p->retransmits)
		c->retransmits = conn->retransmits - p->retransmits;
}

/* What of these lies in the call, as its own. */
static void copy_delays(struct exchanges *t, const struct interval *at, size_t count, const struct interval *call,
			struct interval **out, size_t *out_count)
{
	struct interval *copy = count ? malloc(count * sizeof(*copy)) : NULL;
	size_t n = 0;

	t->lost->n[LOST_NO_MEMORY] += count && !copy;
	for (size_t i = 0; copy && i < count; i++) {
		copy[n] = at[i];
		if (copy[n].begin_ns < call->begin_ns)
			copy[n].begin_ns = call->begin_ns;
		if (copy[n].end_ns > call->end_ns)
			copy[n].end_ns = call->end_ns;
		n += copy[n].begin_ns < copy[n].end_ns;
	}
	free(*out);
	*out = copy;
	*out_count = n;
}

/* What comes before the request was sent (session tickets of TLS, settings of HTTP/2) is none of its answer. */
void pending_take_delays(struct pending *p, uint64_t end_ns)
{
	const struct exchange_conn *conn = p->entry->key.flow->conn;
	struct exchanges *t = p->entry->key.flow->table;
	struct call *c = &p->call;
	uint64_t sent_ns = c->send_end_ns < c->ttfb_ns ? c->send_end_ns : c->ttfb_ns;
	const struct interval whole = {c->start_ns, end_ns}, answer = {sent_ns, end_ns};

	copy_delays(t, conn->network_at, conn->network_count, &whole, &c->network_at, &c->network_count);
	copy_delays(t, conn->late_at, conn->late_count, &answer, &c->late_at, &c->late_count);
}

static void report_request(const struct pending *p, struct call *c)
{
	const struct request_facts *f = &p->facts;

	c->request = f->counts;
	c->stream = p->path.stream >= 0 ? p->path.stream : f->stream;
	c->request_truncated = f->truncated;
	if (f->undecoded[0])
		c->undecoded = (char *)f->undecoded;
	if (f->model[0])
		c->model = c->request_model = (char *)f->model;
	else if (p->path_model[0])
		c->model = c->request_model = (char *)p->path_model;
	if (!c->session_id && f->session[0])
		c->session_id = (char *)f->session;
}

static void report_turn(const struct pending *p, struct call *c)
{
	const struct client *client = &p->client;

	if (client->agent_name[0])
		c->agent_name = (char *)client->agent_name;
	if (p->facts.turn[0])
		c->turn_id = (char *)p->facts.turn;
	else if (client->turn[0])
		c->turn_id = (char *)client->turn;
	if (client->tool_durations[0])
		c->tool_durations = (char *)client->tool_durations;
	c->interactive = client->interactive;
	if (client->trigger != CALL_TRIGGER_UNKNOWN && c->trigger != CALL_TRIGGER_TOOL_RESULTS)
		c->trigger = client->trigger;
}

/* A guess by the request's shape may have been told better. */
static const struct dialect *dialect_of(const struct pending *p)
{
	const struct dialect *told = p->by_shape && p->answer ? answer_dialect(p->answer) : NULL;

	return told ? told : p->dialect;
}

static void report_what(const struct pending *p, struct call *c)
{
	const struct dialect *d = dialect_of(p);
	const char *told = p->answer ? answer_provider(p->answer) : NULL;
	struct sv rest, path = c->path ? sv_cut(sv_of(c->path), '?', &rest) : SV_NONE;

	c->api = d->api;
	c->operation = p->path.operation ? p->path.operation : d->operation;
	c->provider = d->api ? dialect_provider(d, sv_of(c->host), path, told) : NULL;
}

/* Without any head: model APIs are posted to. */
static void report_unseen(const struct exchange_conn *conn, struct call *c)
{
	static char post[] = "POST";

	if (c->start_known || (!c->mid_attach && !c->request_lost))
		return;
	if (!c->protocol)
		c->protocol = conn->protocol;
	if (!c->method && c->mid_attach)
		c->method = post;
}

static void report_times(struct call *c)
{
	if (c->ttfb_ns != UNKNOWN_NS && c->send_end_ns != UNKNOWN_NS && c->send_end_ns > c->ttfb_ns)
		c->send_end_ns = c->ttfb_ns;
	if (!call_has_start(c))
		c->first_token_ns = c->first_visible_ns = c->ttfb_ns = UNKNOWN_NS;
	if (c->first_token_ns == UNKNOWN_NS)
		c->first_kind = TOKEN_NONE;
}

void pending_report(const struct pending *p, enum end_reason end, uint64_t end_ns, struct call *out)
{
	const struct exchange_conn *conn = p->entry->key.flow->conn;

	*out = p->call;
	out->end = end;
	out->end_ns = end_ns;
	if (out->request_lost)
		call_note_lost(out, UINT64_MAX);
	report_what(p, out);
	report_unseen(conn, out);
	report_request(p, out);
	report_turn(p, out);
	if (p->answer) {
		answer_report(p->answer, out);
		out->whole = answer_ended(p->answer);
	}
	report_times(out);
	out->class = classify(p->entry->key.flow->table, p, out);
	out->class_open_ns = class_open_ns(p->entry->key.flow->table, p, out);
	report_setup(p, conn, out);
	report_socket(p, conn, out);
	if (end == END_PROCESS_EXIT) {
		out->exit_code = conn->exit_code;
		out->exit_signal = conn->exit_signal;
	}
}

uint64_t pending_begin_ns(const struct pending *p, uint64_t now_ns)
{
	uint64_t begin_ns, end_ns;
	struct call c;

	call_init(&c);
	c.start_ns = p->call.start_ns;
	c.ttfb_ns = p->call.ttfb_ns;
	c.mid_attach = p->call.mid_attach;
	c.request_lost = p->call.request_lost;
	c.unasked = p->call.unasked;
	c.start_known = p->call.start_known;
	c.end_ns = now_ns;
	report_times(&c);
	report_setup(p, p->entry->key.flow->conn, &c);
	call_bounds(&c, &begin_ns, &end_ns);
	return begin_ns;
}

/* Is it a model call? A path alone proposes it; a body that says otherwise, and an answer that says nothing, deny it.
 * So does the answer to a request that only looks like one: unless it failed, it has to be a model's. */
bool pending_is_call(const struct pending *p)
{
	bool confirmed = p->answer && answer_confirmed(p->answer);

	if (!p->dialect || p->rpc)
		return false;
	if (p->by_shape && p->answer && answer_contradicts(p->answer) && p->call.status < 400)
		return confirmed;
	return !p->denied || confirmed;
}

/* What is missing may hold the answer's end: that it was left is then not so. */
static enum end_reason end_of_lost(struct pending *p, enum end_reason end)
{
	bool left = end == END_CLIENT_ABORT || end == END_SERVER_ABORT || end == END_CONNECTION_CLOSED;

	if (!left || !p->entry->key.flow->conn->answers_wait || (p->answer && answer_ended(p->answer)))
		return end;
	call_note_lost(&p->call, UINT64_MAX);
	return END_CAPTURE_LOSS;
}

/* When an answer is whole and its framing is not, what ended that (programs close a stream whose terminal event they
 * read, or keep it open for long) says nothing of the call. */
static uint64_t end_of_whole(const struct pending *p, enum end_reason end, uint64_t end_ns)
{
	uint64_t ended_ns = p->answer ? answer_ended_ns(p->answer) : UNKNOWN_NS;

	return end != END_COMPLETE && ended_ns < end_ns ? ended_ns : end_ns;
}

void pending_emit(struct pending *p, enum end_reason end, uint64_t end_ns)
{
	struct exchange_flow *f = p->entry->key.flow;
	struct exchanges *t = f->table;
	uint64_t identity;
	struct call c;

	if (!pending_is_call(p)) {
		f->calls -= p->dialect != NULL;
		/* Neither its request nor the head of its answer: what it was nobody knows. */
		t->lost->n[LOST_LATE] += p->call.mid_attach && !p->dialect && !p->call.status;
		return;
	}
	end = end_of_lost(p, end);
	end_ns = end_of_whole(p, end, end_ns);
	pending_take_delays(p, end_ns);
	pending_report(p, end, end_ns, &c);
	/* Not always for a gap that was counted: a response may have come before what it answers. What came before the
	 * attach was not lost. */
	if (c.lossy && !c.mid_attach && !t->lost->n[LOST_EVENTS])
		t->lost->n[LOST_EVENTS]++;
	identity = retry_identity(&c, p->facts.identity);
	retry_link(&t->retries, &c, identity, p->client.retry_count, true);
	if (c.attempt == 1 && p->client.retry_count > 0)
		c.attempt = p->client.retry_count + 1; /* the first ones were not seen */
	t->sink.on_call(t->sink.ctx, &c);
	retry_note(&t->retries, &c, identity);
}

void pending_note_left(struct pending *p, uint64_t ts_ns)
{
	struct exchanges *t = p->entry->key.flow->table;
	struct call c;

	/* an answer that ends with its connection may be whole */
	if (!pending_is_call(p) || (p->call.ttfb_ns != UNKNOWN_NS && p->call.status < 400))
		return;
	pending_report(p, p->call.ttfb_ns == UNKNOWN_NS ? END_CONNECTION_CLOSED : END_COMPLETE, ts_ns, &c);
	retry_link(&t->retries, &c, retry_identity(&c, p->facts.identity), p->client.retry_count, false);
	retry_note(&t->retries, &c, retry_identity(&c, p->facts.identity));
}

void pending_note_main(struct pending *p)
{
	struct exchanges *t = p->entry->key.flow->table;
	struct call c = p->call;

	report_request(p, &c);
	if (c.request.tools > 0 && classify(t, p, &c) == CALL_MAIN)
		note_main_session(t, &c);
}
