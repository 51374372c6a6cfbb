/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sockets.h"

#include <errno.h>
#include <stdlib.h>

struct socket {
	struct socket *next;
	struct sockets *owner;
	uint64_t xid;
	struct ws_params params;
	struct ws *ws; /* NULL until its first byte, or gap */
	enum dir client;
	bool failed; /* out of memory: nothing more is read */
};

struct sockets {
	int err; /* of a handshake, not told yet */
	struct http_sink http;
	struct socket_sink sink;
	struct socket *list;
	unsigned count;
	uint64_t latest;
	bool read;	    /* a message could be */
	const char *reason; /* ... and why the first one that could not was not */
	/* of the latest response: what a handshake agreed on, if it is one */
	uint64_t answered;
	struct ws_params agreed;
};

static struct socket *socket_find(struct sockets *s, uint64_t xid)
{
	struct socket *x = s->list;

	while (x && x->xid != xid)
		x = x->next;
	return x;
}

static int socket_add(struct sockets *s, uint64_t xid, const struct ws_params *params)
{
	struct socket *x;

	if (s->count >= SOCKETS_MAX || socket_find(s, xid))
		return 0;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	*x = (struct socket){.next = s->list, .owner = s, .xid = xid, .params = *params};
	s->list = x;
	s->count++;
	return 0;
}

static void socket_remove(struct sockets *s, struct socket *x)
{
	struct socket **at = &s->list;

	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	s->count--;
	ws_free(x->ws);
	free(x);
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

static enum http_side side_of(const struct socket *x, enum dir dir)
{
	return dir == x->client ? HTTP_REQUEST : HTTP_RESPONSE;
}

static void on_message(void *ctx, enum dir dir, const struct ws_message *m)
{
	struct socket *x = ctx;
	const struct socket_sink *sink = &x->owner->sink;

	x->owner->read = true;
	if (sink->on_message)
		sink->on_message(sink->ctx, x->xid, side_of(x, dir), m);
}

static void on_opaque(void *ctx, enum dir dir, const struct ws_message *m)
{
	struct socket *x = ctx;
	const struct socket_sink *sink = &x->owner->sink;

	if (sink->on_opaque)
		sink->on_opaque(sink->ctx, x->xid, side_of(x, dir), m);
}

static void on_undecoded(void *ctx, enum dir dir, const char *reason, const struct stamp *at)
{
	struct socket *x = ctx;
	const struct socket_sink *sink = &x->owner->sink;

	if (!x->owner->reason)
		x->owner->reason = reason;
	if (sink->on_undecoded)
		sink->on_undecoded(sink->ctx, x->xid, side_of(x, dir), at);
}

static void on_close(void *ctx, enum dir dir, int code, const struct stamp *at)
{
	struct socket *x = ctx;
	const struct socket_sink *sink = &x->owner->sink;

	(void)code;
	if (sink->on_close)
		sink->on_close(sink->ctx, x->xid, side_of(x, dir), at);
}

static bool on_found(void *ctx, enum dir dir, const struct ws_message *m)
{
	struct socket *x = ctx;
	const struct socket_sink *sink = &x->owner->sink;

	return sink->on_found && sink->on_found(sink->ctx, x->xid, side_of(x, dir), m);
}

/* --- handshakes -------------------------------------------------------------------------------------------------- */

static void note_agreement(struct sockets *s, uint64_t xid, const struct http_head *h)
{
	bool any = false;

	s->answered = xid;
	s->agreed = (struct ws_params){0};
	if (!h || (h->status != 101 && h->status / 100 != 2))
		return;
	for (size_t i = 0; i < h->header_count; i++) {
		/* a field that is not known (HTTP/2 met in the middle) could be that one */
		if (!h->headers[i].name.ptr)
			goto unknown;
		if (!sv_ieq(h->headers[i].name, SV("sec-websocket-extensions")))
			continue;
		if (!h->headers[i].value.ptr)
			goto unknown;
		ws_params_add(&s->agreed, h->headers[i].value);
		any = true;
	}
	if (!any)
		ws_params_add(&s->agreed, SV_NONE);
	return;
unknown:
	s->agreed = (struct ws_params){0};
}

static void on_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct sockets *s = ctx;

	note_agreement(s, xid, h);
	s->http.on_response(s->http.ctx, xid, h, first);
}

static void on_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	struct sockets *s = ctx;

	if (why == HTTP_ABORT_UPGRADE && s->answered == xid) {
		s->latest = xid;
		/* without memory its bytes are passed over, and the exchange says that it was not read */
		if (socket_add(s, xid, &s->agreed))
			s->err = -ENOMEM;
	}
	s->http.on_abort(s->http.ctx, xid, why, carried, ts_ns);
}

static void on_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct sockets *s = ctx;

	s->http.on_request(s->http.ctx, xid, h, first);
}

static void on_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
		    const struct stamp *at)
{
	struct sockets *s = ctx;

	s->http.on_body(s->http.ctx, xid, side, ptr, len, at);
}

static void on_body_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
			const struct stamp *at)
{
	struct sockets *s = ctx;

	s->http.on_body_gap(s->http.ctx, xid, side, len, why, at);
}

static void on_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct sockets *s = ctx;

	s->http.on_request_end(s->http.ctx, xid, carried, at);
}

static void on_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct sockets *s = ctx;

	s->http.on_response_end(s->http.ctx, xid, carried, at);
}

struct http_sink sockets_http_sink(struct sockets *s)
{
	return (struct http_sink){
		.ctx = s,
		.on_request = on_request,
		.on_body = on_body,
		.on_body_gap = on_body_gap,
		.on_request_end = on_request_end,
		.on_response = on_response,
		.on_response_end = on_response_end,
		.on_abort = on_abort,
	};
}

/* --- the stage --------------------------------------------------------------------------------------------------- */

struct sockets *sockets_new(const struct http_sink *http)
{
	struct sockets *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->http = *http;
	s->answered = s->latest = UINT64_MAX;
	return s;
}

void sockets_free(struct sockets *s)
{
	while (s && s->list)
		socket_remove(s, s->list);
	free(s);
}

void sockets_set_sink(struct sockets *s, const struct socket_sink *sink)
{
	s->sink = *sink;
}

int sockets_adopt(struct sockets *s, uint64_t xid)
{
	s->latest = xid;
	return socket_add(s, xid, &(struct ws_params){0});
}

int sockets_take_error(struct sockets *s)
{
	int err = s->err;

	s->err = 0;
	return err;
}

uint64_t sockets_latest(const struct sockets *s)
{
	return s->latest;
}

/* NULL: it is not to be read, or *err. */
static struct ws *ws_of(struct socket *x, enum dir client, int *err)
{
	const struct ws_sink sink = {x, on_message, on_opaque, on_close, on_undecoded, on_found};

	*err = 0;
	if (x->failed || x->ws)
		return x->failed ? NULL : x->ws;
	x->client = client;
	x->ws = ws_new(client, x->params.known ? &x->params : NULL, &sink);
	if (!x->ws) {
		x->failed = true;
		*err = -ENOMEM;
	}
	return x->ws;
}

int sockets_push(struct sockets *s, uint64_t xid, enum dir client, enum dir dir, const uint8_t *ptr, size_t len,
		 const struct stamp *at)
{
	struct socket *x = socket_find(s, xid);
	struct ws *ws;
	int err;

	if (!x)
		return 0;
	ws = ws_of(x, client, &err);
	if (!ws)
		return err;
	err = ws_push(ws, dir, ptr, len, at);
	x->failed |= err != 0;
	return err;
}

int sockets_gap(struct sockets *s, uint64_t xid, enum dir client, enum dir dir, uint64_t len, enum http_gap why,
		const struct stamp *at)
{
	struct socket *x = socket_find(s, xid);
	struct ws *ws;
	int err;

	if (!x || !len)
		return 0;
	ws = ws_of(x, client, &err);
	if (why != HTTP_GAP_CAPPED && s->sink.on_lost)
		s->sink.on_lost(s->sink.ctx, xid, side_of(x, dir), len, !ws || ws_gap_loses_step(ws, dir, len), at);
	if (ws)
		ws_gap(ws, dir, len, at);
	return err;
}

void sockets_end(struct sockets *s, uint64_t xid, enum http_abort why, uint64_t ts_ns)
{
	struct socket *x = socket_find(s, xid);

	if (x && x->ws)
		ws_finish(x->ws);
	if (s->sink.on_end)
		s->sink.on_end(s->sink.ctx, xid, why, ts_ns);
	if (x)
		socket_remove(s, x);
}

const char *sockets_undecoded(const struct sockets *s)
{
	return s->read ? NULL : s->reason ? s->reason : "websocket";
}

void sockets_warm(const struct sockets *s, struct warm *w)
{
	warm_add(w, &s->http, sizeof(s->http));
}

void sockets_finish(struct sockets *s, enum http_abort why, uint64_t ts_ns)
{
	while (s->list)
		sockets_end(s, s->list->xid, why, ts_ns);
}
