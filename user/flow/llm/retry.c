/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "retry.h"

#include <string.h>

#include "text.h"

uint64_t retry_identity(const struct call *c, uint64_t body)
{
	uint64_t hash = body;

	if (!hash || !c->path)
		return 0;
	/* Codex sends the members of its query in another order each time */
	hash = text_hash(text_hash(hash, c->path, strcspn(c->path, "?")), "?", 1);
	return c->request_model ? text_hash(hash, c->request_model, strlen(c->request_model)) : hash;
}

static bool same_process(const struct conn_key *a, const struct conn_key *b)
{
	return a->tgid == b->tgid && a->exec_id == b->exec_id && a->start_ns == b->start_ns;
}

static bool is_websocket(const struct call *c)
{
	return c->protocol && strcmp(c->protocol, "websocket") == 0;
}

/* What stays the same where a client goes from WebSocket to HTTP. */
static uint64_t switch_identity(const struct call *c)
{
	uint64_t hash = text_hash(0, c->api, strlen(c->api) + 1);

	if (c->request_model)
		hash = text_hash(hash, c->request_model, strlen(c->request_model) + 1);
	return c->session_id ? text_hash(hash, c->session_id, strlen(c->session_id)) : hash;
}

static struct retry_failed *find_websocket(struct retries *r, const struct call *c)
{
	uint64_t switching = is_websocket(c) ? 0 : switch_identity(c);
	struct retry_failed *best = NULL;

	for (unsigned i = 0; i < RETRY_MAX && switching; i++) {
		struct retry_failed *f = &r->failed[i];

		if (f->switching != switching || !same_process(&f->proc, &c->conn) || f->end_ns > c->start_ns ||
		    c->start_ns - f->end_ns > RETRY_SWITCH_NS)
			continue;
		if (!best || f->end_ns > best->end_ns)
			best = f;
	}
	return best;
}

/* Is `f` the one that was repeated, rather than `best`? By what the client counts, else the latest. */
static bool is_nearer(const struct retry_failed *f, const struct retry_failed *best, int stated)
{
	bool counted = stated > 0 && f->attempt == stated;

	if (!best || counted != (stated > 0 && best->attempt == stated))
		return !best || counted;
	return f->end_ns > best->end_ns;
}

static struct retry_failed *find(struct retries *r, const struct call *c, uint64_t identity, int stated)
{
	struct retry_failed *best = NULL;
	uint64_t begin_ns, end_ns;

	call_bounds(c, &begin_ns, &end_ns); /* a connection that was opened for it has begun it */
	for (unsigned i = 0; i < RETRY_MAX; i++) {
		struct retry_failed *f = &r->failed[i];

		if (f->identity != identity || !same_process(&f->proc, &c->conn) || f->end_ns > c->start_ns ||
		    f->refused_ns > begin_ns || c->start_ns - f->end_ns > RETRY_WINDOW_NS)
			continue;
		if (is_nearer(f, best, stated))
			best = f;
	}
	return best;
}

void retry_link(struct retries *r, struct call *c, uint64_t identity, int stated, bool take)
{
	struct retry_failed *f = identity ? find(r, c, identity, stated) : NULL;

	if (!f)
		f = find_websocket(r, c);
	if (!f)
		return;
	c->attempt = f->attempt + 1;
	c->retry_of = f->first_id;
	c->retry_wait_ns = (int64_t)(c->start_ns - f->end_ns);
	if (take)
		f->identity = f->switching = 0;
}

/* SDKs repeat 408, 409, 429 and server errors, a broken transport, an error in the stream. Agents repeat more by
 * themselves: any status (Codex), what was refused until their token is a new one. That it is the same body says that
 * they did. */
static bool failed(const struct call *c)
{
	switch (c->whole ? END_COMPLETE : c->end) {
	case END_COMPLETE:
		return c->status >= 400 || c->error;
	case END_CLIENT_ABORT: /* the program's own timeout looks like this */
	case END_SERVER_ABORT:
	case END_CONNECTION_CLOSED:
		return true;
	default:
		return false;
	}
}

static struct retry_failed *find_call(struct retries *r, uint64_t id)
{
	for (unsigned i = 0; i < RETRY_MAX; i++) {
		if (r->failed[i].id == id)
			return &r->failed[i];
	}
	return NULL;
}

void retry_note(struct retries *r, const struct call *c, uint64_t identity)
{
	struct retry_failed *f = find_call(r, c->id);

	/* what a WebSocket brought at least the beginning of is not asked for again in another way */
	bool nothing_came = c->first_token_ns == UNKNOWN_NS && !c->undecoded && c->api;
	uint64_t switching = is_websocket(c) && nothing_came ? switch_identity(c) : 0;

	if (f && !f->identity && !f->switching)
		return;
	if ((!identity && !switching) || !failed(c)) {
		if (f)
			f->identity = f->switching = 0;
		return;
	}
	if (!f)
		f = &r->failed[r->next++ % RETRY_MAX];
	*f = (struct retry_failed){
		.proc = c->conn,
		.id = c->id,
		.identity = identity,
		.switching = switching,
		.first_id = c->retry_of ? c->retry_of : c->id,
		.attempt = c->attempt,
		.end_ns = c->end_ns,
		.refused_ns = c->status >= 400 && c->ttfb_ns != UNKNOWN_NS ? c->ttfb_ns : 0,
	};
}
