/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proto.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "http1.h"
#include "http2.h"
#include "http_parser.h"
#include "ws_probe.h"

/*
 * The first bytes of each direction tell. What came before that is held, with its stamps, and then given to the parser.
 *
 *   requests in TX, or "HTTP/1." in RX: HTTP/1, the traced program is the client
 *   requests in RX, or "HTTP/1." in TX: HTTP/1, it is the server
 *   the HTTP/2 preface: HTTP/2, its direction is the client's
 *   frames of WebSocket, on a connection met in the middle: that; the direction of masked ones is the client's.
 * Compressed ones have to prove it (ws_probe.h)
 *   else, on a connection met in the middle: an HTTP/1 client and HTTP/2, both out of step, look for messages and
 * frames and say nothing until they find some; the first that does is it. Bytes that prove an HTTP/1 server change it.
 *   else, in both directions, or HOLD_BYTES of it in one: unknown, counted by the owner, not read further
 *
 * A parser is a row of `parsers`; another one (ws) is another row and a way to be chosen: decide() by first bytes, or
 * http1_upgraded() together with http1_set_raw() for what follows an upgrade, as h2c does.
 */

#define FIRST_BYTES 24 /* of the HTTP/2 preface */
#define HOLD_BYTES  65536
#define HOLD_RUNS   1024

static const char preface[FIRST_BYTES + 1] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum look { LOOK_NONE, LOOK_OPEN, LOOK_REQUEST, LOOK_RESPONSE, LOOK_PREFACE, LOOK_ALIEN };

/* A gap is a run with gap != 0. Bytes of one stamp and direction are one run, as in a queue (queue.h). */
struct hold_run {
	struct stamp at;
	enum dir dir;
	size_t len;
	uint64_t gap;
	enum http_gap why;
};

struct proto {
	/* First what each piece of bytes looks at. */
	enum proto_kind kind; /* decided; see proto_kind() for what is said */
	bool fresh, server;
	const struct http_parser *parser;
	void *state;	     /* the parser's */
	struct http2 *trial; /* tried beside it */
	struct http2 *next;  /* made by an h2c upgrade: the parser from the end of this push on */
	int next_err;	     /* of what follows an upgrade, in this push */
	uint64_t bytes;
	struct sockets *sockets;		 /* what follows WebSocket handshakes */
	struct http_sink sink;			 /* the one of `sockets`, which hands on to the owner's */
	struct proto_line_sink lines;		 /* of PROTO_JSONRPC */
	unsigned errors_before, requests_before; /* of the one before the upgrade */
	char first[2][FIRST_BYTES];
	size_t first_len[2];
	bool first_lost[2]; /* bytes are missing in them */
	bool probed[2];	    /* a probe was begun there, or will not be */
	struct ws_probe *probe[2];
	enum ws_probe_status socket[2]; /* what it found */
	struct buf held;
	struct hold_run *runs;
	size_t run_count, run_size;
};

HTTP_PARSER_FUNCTIONS(http1)
HTTP_PARSER_FUNCTIONS(http2)

/* A WebSocket whose handshake was not seen; the state is the proto. */
#define UNSEEN_XID 0

static enum dir client_dir(const struct proto *p)
{
	return p->server ? DIR_RX : DIR_TX;
}

static int socket_push_any(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct proto *p = parser;

	return sockets_push(p->sockets, UNSEEN_XID, client_dir(p), dir, ptr, len, at);
}

static int socket_gap_any(void *parser, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct proto *p = parser;

	return sockets_gap(p->sockets, UNSEEN_XID, client_dir(p), dir, len, why, at);
}

static void socket_tick_any(void *parser, uint64_t now_ns)
{
	(void)parser;
	(void)now_ns;
}

static bool socket_waits_any(const void *parser)
{
	(void)parser;
	return false;
}

static void socket_finish_any(void *parser, enum http_abort why, uint64_t ts_ns)
{
	struct proto *p = parser;

	sockets_finish(p->sockets, why, ts_ns);
}

static void socket_release_any(void *parser)
{
	(void)parser;
}

static unsigned socket_none_any(const void *parser)
{
	(void)parser;
	return 0;
}

/* Lines of JSON-RPC; the state is the proto. */
static int line_push_any(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct proto *p = parser;

	p->lines.on_bytes(p->lines.ctx, dir, ptr, len, at);
	return 0;
}

static int line_gap_any(void *parser, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct proto *p = parser;

	(void)len;
	p->lines.on_gap(p->lines.ctx, dir, why, at);
	return 0;
}

/* Messages are few, and what they look at is not noted. */
static void socket_warm_any(const void *parser, struct warm *w)
{
	(void)parser;
	(void)w;
}

static void line_finish_any(void *parser, enum http_abort why, uint64_t ts_ns)
{
	struct proto *p = parser;

	p->lines.on_end(p->lines.ctx, why, ts_ns);
}

static const struct http_parser parsers[] = {
	[PROTO_HTTP1] = HTTP_PARSER(http1),
	[PROTO_HTTP2] = HTTP_PARSER(http2),
	[PROTO_WEBSOCKET] = {socket_push_any, socket_gap_any, socket_tick_any, socket_waits_any, socket_warm_any,
			     socket_finish_any, socket_release_any, socket_none_any, socket_none_any},
	[PROTO_JSONRPC] = {line_push_any, line_gap_any, socket_tick_any, socket_waits_any, socket_warm_any,
			   line_finish_any, socket_release_any, socket_none_any, socket_none_any},
};

struct proto *proto_new(bool fresh, const struct http_sink *sink)
{
	struct proto *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->sockets = sockets_new(sink);
	if (!p->sockets) {
		free(p);
		return NULL;
	}
	p->sink = sockets_http_sink(p->sockets);
	p->fresh = fresh;
	buf_init(&p->held, HOLD_BYTES);
	return p;
}

void proto_set_sockets(struct proto *p, const struct socket_sink *sink)
{
	sockets_set_sink(p->sockets, sink);
}

void proto_set_lines(struct proto *p, const struct proto_line_sink *sink)
{
	p->lines = *sink;
	p->parser = &parsers[PROTO_JSONRPC];
	p->state = p;
	p->kind = PROTO_JSONRPC;
}

static void hold_release(struct proto *p)
{
	buf_release(&p->held);
	free(p->runs);
	p->runs = NULL;
	p->run_count = p->run_size = 0;
}

static void trial_release(struct proto *p)
{
	http2_free(p->trial);
	p->trial = NULL;
}

static void probe_release(struct proto *p, enum dir dir)
{
	ws_probe_free(p->probe[dir]);
	p->probe[dir] = NULL;
	p->probed[dir] = true;
}

static void probes_release(struct proto *p)
{
	probe_release(p, DIR_TX);
	probe_release(p, DIR_RX);
}

static void parser_release(struct proto *p)
{
	if (p->parser)
		p->parser->release(p->state);
	p->parser = NULL;
	p->state = NULL;
	trial_release(p);
}

void proto_free(struct proto *p)
{
	if (!p)
		return;
	parser_release(p);
	probes_release(p);
	http2_free(p->next);
	sockets_free(p->sockets);
	hold_release(p);
	free(p);
}

/* Its bytes are more of the last run. */
static bool hold_goes_on(const struct proto *p, const struct hold_run *run)
{
	const struct hold_run *last = p->run_count ? &p->runs[p->run_count - 1] : NULL;

	return last && !run->gap && !last->gap && last->dir == run->dir &&
	       memcmp(&last->at, &run->at, sizeof(run->at)) == 0;
}

static bool hold_takes(const struct proto *p, const struct hold_run *run)
{
	return run->len <= HOLD_BYTES - p->held.len && (p->run_count < HOLD_RUNS || hold_goes_on(p, run));
}

/* How many of its bytes are looked at together: what can be held, or one that cannot. Bytes behind that one come too
 * late to tell what this is, wherever they were cut. */
static size_t hold_piece(const struct proto *p, const struct hold_run *run)
{
	size_t room = HOLD_BYTES - p->held.len;
	struct hold_run one = *run;

	one.len = 1;
	if (!hold_takes(p, &one))
		return 1;
	return run->len < room ? run->len : room;
}

static int hold(struct proto *p, const uint8_t *ptr, struct hold_run run)
{
	int err = run.gap ? 0 : buf_push(&p->held, ptr, run.len);

	if (err)
		return err;
	if (hold_goes_on(p, &run)) {
		p->runs[p->run_count - 1].len += run.len;
		return 0;
	}
	if (p->run_count == p->run_size) {
		size_t size = p->run_size ? p->run_size * 2 : 4;
		struct hold_run *runs = realloc(p->runs, size * sizeof(*runs));

		if (!runs)
			return -ENOMEM;
		p->runs = runs;
		p->run_size = size;
	}
	p->runs[p->run_count++] = run;
	return 0;
}

static enum look look_at(const char *ptr, size_t len)
{
	struct sv text = {ptr, len};
	int n;

	if (!len)
		return LOOK_NONE;
	if (memcmp(ptr, preface, len) == 0)
		return len == FIRST_BYTES ? LOOK_PREFACE : LOOK_OPEN;
	if (memcmp(ptr, "HTTP/1.", len < 7 ? len : 7) == 0)
		return len < 7 ? LOOK_OPEN : LOOK_RESPONSE;
	n = http_method_prefix(text);
	return n > 0 ? LOOK_REQUEST : n < 0 ? LOOK_OPEN : LOOK_ALIEN;
}

static enum look look(const struct proto *p, enum dir dir)
{
	return p->first_lost[dir] ? LOOK_ALIEN : look_at(p->first[dir], p->first_len[dir]);
}

static void first_add(struct proto *p, enum dir dir, const uint8_t *ptr, size_t len)
{
	size_t room = FIRST_BYTES - p->first_len[dir], n = len < room ? len : room;

	memcpy(p->first[dir] + p->first_len[dir], ptr, n);
	p->first_len[dir] += n;
}

/* What follows an upgrade of HTTP/1: HTTP/2, or a WebSocket. */
static void on_raw(void *ctx, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct proto *p = ctx;
	int err = 0;

	if (p->next && !p->next_err)
		err = http2_push(p->next, dir, ptr, len, at);
	else if (http1_upgraded(p->state) == HTTP1_WEBSOCKET)
		err = sockets_push(p->sockets, sockets_latest(p->sockets), client_dir(p), dir, ptr, len, at);
	p->next_err = p->next_err ? p->next_err : err;
}

static void on_raw_gap(void *ctx, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct proto *p = ctx;
	int err = 0;

	if (http1_upgraded(p->state) == HTTP1_WEBSOCKET)
		err = sockets_gap(p->sockets, sockets_latest(p->sockets), client_dir(p), dir, len, why, at);
	p->next_err = p->next_err ? p->next_err : err;
}

static struct http2 *stream_parser(const struct proto *p)
{
	return p->next ? p->next : p->trial ? p->trial : p->state;
}

static enum dir stream_client(const struct proto *p)
{
	return http2_is_server(stream_parser(p)) ? DIR_RX : DIR_TX;
}

/* What follows a CONNECT on a stream of HTTP/2. */
static void on_stream_bytes(void *ctx, uint64_t xid, enum dir dir, const uint8_t *ptr, size_t len,
			    const struct stamp *at)
{
	struct proto *p = ctx;
	int err = 0;

	if (http2_upgraded(stream_parser(p), xid) == HTTP2_WEBSOCKET)
		err = sockets_push(p->sockets, xid, stream_client(p), dir, ptr, len, at);
	p->next_err = p->next_err ? p->next_err : err;
}

static void on_stream_gap(void *ctx, uint64_t xid, enum dir dir, uint64_t len, enum http_gap why,
			  const struct stamp *at)
{
	struct proto *p = ctx;
	int err = sockets_gap(p->sockets, xid, stream_client(p), dir, len, why, at);

	p->next_err = p->next_err ? p->next_err : err;
}

static void on_stream_end(void *ctx, uint64_t xid, enum http_abort why, uint64_t ts_ns)
{
	struct proto *p = ctx;

	sockets_end(p->sockets, xid, why, ts_ns);
}

static struct http2 *new_http2(struct proto *p, bool fresh, enum http2_client client)
{
	const struct http2_raw raw = {p, on_stream_bytes, on_stream_gap, on_stream_end};
	struct http2 *http2 = http2_new(fresh, client, &p->sink);

	if (http2)
		http2_set_raw(http2, &raw);
	return http2;
}

/* The exchange goes on as stream 1 (RFC 7540 section 3.2; gone from RFC 9113, but spoken). */
static int on_h2c(void *ctx, uint64_t xid)
{
	struct proto *p = ctx;

	p->next = new_http2(p, true, p->server ? HTTP2_CLIENT_RX : HTTP2_CLIENT_TX);
	if (!p->next)
		return -ENOMEM;
	if (!http2_adopt(p->next, xid))
		return 0;
	http2_free(p->next);
	p->next = NULL;
	return -ENOMEM;
}

static int start_http1(struct proto *p, bool server)
{
	struct http1 *http1 = http1_new(p->fresh, server ? DIR_RX : DIR_TX, &p->sink);

	if (!http1)
		return -ENOMEM;
	http1_set_raw(http1, p, on_raw, on_raw_gap);
	http1_set_h2c(http1, p, on_h2c);
	p->state = http1;
	p->parser = &parsers[PROTO_HTTP1];
	p->server = server;
	return 0;
}

static int start_http2(struct proto *p, bool server)
{
	p->state = new_http2(p, p->fresh, server ? HTTP2_CLIENT_RX : HTTP2_CLIENT_TX);
	if (!p->state)
		return -ENOMEM;
	p->parser = &parsers[PROTO_HTTP2];
	p->server = server;
	return 0;
}

/* One of those that are tried found something: it is that. */
static void prove(struct proto *p)
{
	if (p->kind != PROTO_UNDECIDED || !p->parser)
		return;
	if (p->parser->requests(p->state)) {
		p->kind = PROTO_HTTP1;
		trial_release(p);
	} else if (p->trial && http2_found(p->trial)) {
		p->kind = PROTO_HTTP2;
		p->parser->release(p->state);
		p->parser = &parsers[PROTO_HTTP2];
		p->state = p->trial;
		p->trial = NULL;
	}
}

/* Goes on with the parser that an upgrade made. */
static int follow_upgrade(struct proto *p)
{
	int err = p->next_err;

	p->next_err = 0;
	if (!p->next)
		return err;
	p->errors_before = p->parser->errors(p->state);
	p->requests_before = p->parser->requests(p->state);
	parser_release(p);
	p->parser = &parsers[PROTO_HTTP2];
	p->state = p->next;
	p->next = NULL;
	p->kind = PROTO_HTTP2;
	return err;
}

/* The same to the parser and to the one that is tried beside it. */
static int hand_both(struct proto *p, const uint8_t *ptr, const struct hold_run *run)
{
	int err, next_err;

	if (run->gap)
		err = p->parser->gap(p->state, run->dir, run->gap, run->why, &run->at);
	else
		err = p->parser->push(p->state, run->dir, ptr, run->len, &run->at);
	next_err = follow_upgrade(p);
	err = err ? err : next_err;
	next_err = sockets_take_error(p->sockets);
	err = err ? err : next_err;
	prove(p);
	if (err || !p->trial)
		return err;
	if (run->gap)
		err = http2_gap(p->trial, run->dir, run->gap, run->why, &run->at);
	else
		err = http2_push(p->trial, run->dir, ptr, run->len, &run->at);
	prove(p);
	return err;
}

/*
 * While two are tried the first to find something is it, to the byte: where the input is cut must not decide that.
 * HTTP/1 finds at the end of a line, HTTP/2 at any byte: so lines without their end go to both, and then the end does.
 */
static int hand_on(struct proto *p, const uint8_t *ptr, const struct hold_run *run)
{
	struct hold_run rest = *run;
	int err = 0;

	while (p->trial && rest.len > 1 && !err) {
		const uint8_t *end = memchr(ptr, '\n', rest.len);
		struct hold_run piece = rest;

		if (end)
			piece.len = end > ptr ? (size_t)(end - ptr) : 1;
		err = hand_both(p, ptr, &piece);
		ptr += piece.len;
		rest.len -= piece.len;
	}
	return err || (!rest.len && !rest.gap) ? err : hand_both(p, ptr, &rest);
}

/* Gives what is held to the parser. */
static int replay(struct proto *p)
{
	const uint8_t *ptr = (const uint8_t *)p->held.ptr;
	int err = 0;

	for (size_t i = 0; i < p->run_count && !err; i++) {
		err = hand_on(p, ptr, &p->runs[i]);
		ptr += p->runs[i].len;
	}
	hold_release(p);
	return err;
}

static int decide_http1(struct proto *p, bool server)
{
	int err;

	parser_release(p);
	err = start_http1(p, server);
	p->kind = err ? PROTO_OTHER : PROTO_HTTP1;
	return err ? err : replay(p);
}

static int decide_http2(struct proto *p, bool server)
{
	int err;

	parser_release(p);
	err = start_http2(p, server);
	p->kind = err ? PROTO_OTHER : PROTO_HTTP2;
	return err ? err : replay(p);
}

/* Whether the bytes of a connection met in the middle are frames of a WebSocket, from the first one seen on. */
static int probe_push(struct proto *p, enum dir dir, const uint8_t *ptr, size_t len)
{
	if (p->fresh || p->first_lost[dir])
		probe_release(p, dir);
	if (!p->probed[dir] && ws_probe_begins(ptr[0])) {
		p->probe[dir] = ws_probe_new();
		if (!p->probe[dir])
			return -ENOMEM;
	}
	p->probed[dir] = true;
	if (!p->probe[dir])
		return 0;
	p->socket[dir] = ws_probe_push(p->probe[dir], ptr, len);
	if (p->socket[dir] == WS_PROBE_OPEN)
		return 0;
	probe_release(p, dir);
	return p->socket[dir] == WS_PROBE_NO_MEMORY ? -ENOMEM : 0;
}

/* Each direction alone proves nothing yet, both together do. */
static bool likely_socket(const struct proto *p, bool *server)
{
	bool tx_client, rx_client;

	if (!p->probe[DIR_TX] || !p->probe[DIR_RX] || !ws_probe_likely(p->probe[DIR_TX], &tx_client) ||
	    !ws_probe_likely(p->probe[DIR_RX], &rx_client))
		return false;
	*server = rx_client;
	return tx_client != rx_client;
}

/* True: it is a WebSocket; *server: it is the traced program that answers there. */
static bool is_socket(const struct proto *p, bool *server)
{
	bool tx = p->socket[DIR_TX] == WS_PROBE_CLIENT || p->socket[DIR_RX] == WS_PROBE_SERVER;
	bool rx = p->socket[DIR_RX] == WS_PROBE_CLIENT || p->socket[DIR_TX] == WS_PROBE_SERVER;

	if (!tx && !rx)
		return likely_socket(p, server);
	*server = rx;
	return tx != rx;
}

/* A client's text frame begins what was seen first: a WebSocket met in the middle. */
static int socket_begins(const struct proto *p, enum dir dir)
{
	const uint8_t *first = (const uint8_t *)p->first[dir];

	if (p->fresh || p->first_lost[dir] || !p->first_len[dir] || first[0] != 0x81)
		return 0;
	return ws_detect(first, p->first_len[dir]);
}

static int decide_socket(struct proto *p, bool server)
{
	int err = sockets_adopt(p->sockets, UNSEEN_XID);

	parser_release(p);
	probes_release(p);
	p->server = server;
	p->parser = err ? NULL : &parsers[PROTO_WEBSOCKET];
	p->state = err ? NULL : p;
	p->kind = err ? PROTO_OTHER : PROTO_WEBSOCKET;
	return err ? err : replay(p);
}

static void decide_unread(struct proto *p, enum proto_kind kind)
{
	parser_release(p);
	hold_release(p);
	p->kind = kind;
}

/* Nothing proves a protocol yet on a connection met in the middle: they are tried, and the first bytes are still looked
 * at. */
static int attempt(struct proto *p)
{
	int err = p->parser ? 0 : start_http1(p, false);

	if (!err && !p->trial) {
		p->trial = new_http2(p, false, HTTP2_CLIENT_UNKNOWN);
		err = p->trial ? 0 : -ENOMEM;
	}
	return err ? err : replay(p);
}

static bool open_still(const struct proto *p)
{
	return look(p, DIR_TX) == LOOK_OPEN || look(p, DIR_RX) == LOOK_OPEN || socket_begins(p, DIR_TX) < 0 ||
	       socket_begins(p, DIR_RX) < 0 || p->probe[DIR_TX] || p->probe[DIR_RX];
}

static int decide(struct proto *p)
{
	enum look tx = look(p, DIR_TX), rx = look(p, DIR_RX);
	bool socket_server;

	prove(p);
	if (p->kind != PROTO_UNDECIDED)
		return replay(p);
	if (tx == LOOK_PREFACE || rx == LOOK_PREFACE)
		return decide_http2(p, rx == LOOK_PREFACE);
	if (is_socket(p, &socket_server))
		return decide_socket(p, socket_server);
	if (socket_begins(p, DIR_TX) > 0 || socket_begins(p, DIR_RX) > 0)
		return decide_socket(p, socket_begins(p, DIR_RX) > 0);
	if (tx == LOOK_REQUEST || rx == LOOK_REQUEST || tx == LOOK_RESPONSE || rx == LOOK_RESPONSE) {
		bool server = tx != LOOK_REQUEST && (rx == LOOK_REQUEST || tx == LOOK_RESPONSE);

		if (p->parser && !server) { /* it is being tried as such */
			p->kind = PROTO_HTTP1;
			trial_release(p);
			return replay(p);
		}
		return decide_http1(p, server);
	}
	if (open_still(p))
		return 0;
	if (!p->fresh)
		return attempt(p);
	if (tx == LOOK_ALIEN && rx == LOOK_ALIEN)
		decide_unread(p, PROTO_OTHER);
	return 0;
}

/* Held while first bytes may still become anything: the parser that is tried may not be the one that gets them. */
static int push_undecided(struct proto *p, const uint8_t *ptr, struct hold_run run)
{
	int err = decide(p);

	if (!err && p->kind == PROTO_UNDECIDED && (!p->parser || open_still(p))) {
		if (hold_takes(p, &run))
			return hold(p, ptr, run);
		if (p->fresh) {
			decide_unread(p, PROTO_OTHER);
			return 0;
		}
		p->first_lost[DIR_TX] = p->first_lost[DIR_RX] = true; /* no answer from them */
		probes_release(p);
		err = decide(p);
	}
	return err || !p->parser ? err : hand_on(p, ptr, &run);
}

int proto_push(struct proto *p, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct hold_run run = {*at, dir, len, 0, HTTP_GAP_LOST};
	int err = 0;

	p->bytes += len;
	while (run.len && p->kind == PROTO_UNDECIDED && !err) {
		struct hold_run piece = run;

		piece.len = hold_piece(p, &run);
		first_add(p, dir, ptr, piece.len);
		err = probe_push(p, dir, ptr, piece.len);
		err = err ? err : push_undecided(p, ptr, piece);
		ptr += piece.len;
		run.len -= piece.len;
	}
	return err || !run.len || !p->parser ? err : hand_on(p, ptr, &run);
}

int proto_gap(struct proto *p, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct hold_run run = {*at, dir, 0, len, why};

	if (!len)
		return 0;
	if (p->kind != PROTO_UNDECIDED)
		return p->parser ? hand_on(p, NULL, &run) : 0;
	if (p->first_len[dir] < FIRST_BYTES) { /* the beginning is not to be had */
		p->fresh = false;
		p->first_lost[dir] = true;
	}
	probe_release(p, dir);
	return push_undecided(p, NULL, run);
}

void proto_tick(struct proto *p, uint64_t now_ns)
{
	if (p->parser)
		p->parser->tick(p->state, now_ns);
	if (p->trial)
		http2_tick(p->trial, now_ns);
}

void proto_warm(const struct proto *p, struct warm *w)
{
	warm_add(w, p, offsetof(struct proto, sink));
	sockets_warm(p->sockets, w);
	if (p->parser)
		p->parser->warm(p->state, w);
}

bool proto_waits(const struct proto *p)
{
	return (p->parser && p->parser->waits(p->state)) || (p->trial && http2_waits(p->trial));
}

void proto_finish(struct proto *p, enum http_abort why, uint64_t ts_ns)
{
	if (p->parser)
		p->parser->finish(p->state, why, ts_ns);
	if (p->trial)
		http2_finish(p->trial, why, ts_ns);
	prove(p);
	sockets_finish(p->sockets, why, ts_ns);
	hold_release(p);
}

enum proto_kind proto_kind(const struct proto *p)
{
	if (p->kind == PROTO_UNDECIDED && p->parser) {
		if (p->parser->requests(p->state))
			return PROTO_HTTP1;
		if (p->trial && http2_found(p->trial))
			return PROTO_HTTP2;
		return p->bytes > HOLD_BYTES ? PROTO_OTHER : PROTO_UNDECIDED;
	}
	if (p->kind == PROTO_HTTP1 && http1_upgraded(p->state) == HTTP1_WEBSOCKET)
		return PROTO_WEBSOCKET;
	return p->kind;
}

const char *proto_name(const struct proto *p)
{
	switch (proto_kind(p)) {
	case PROTO_HTTP1:
		return "http/1.1";
	case PROTO_HTTP2:
		return "http/2";
	case PROTO_WEBSOCKET:
		return "websocket";
	case PROTO_JSONRPC:
		return "json-rpc";
	default:
		return p->bytes ? "unknown protocol" : "no data";
	}
}

const char *proto_undecoded(const struct proto *p)
{
	switch (proto_kind(p)) {
	case PROTO_HTTP1:
	case PROTO_HTTP2:
		return proto_requests(p) ? NULL : proto_name(p);
	case PROTO_WEBSOCKET:
		return sockets_undecoded(p->sockets);
	default:
		return proto_name(p);
	}
}

bool proto_is_idle(const struct proto *p)
{
	const struct http2 *h = p->trial ? p->trial : p->parser == &parsers[PROTO_HTTP2] ? p->state : NULL;

	return h && !p->requests_before && http2_is_idle(h);
}

bool proto_is_server(const struct proto *p)
{
	if (p->trial && http2_is_server(p->trial))
		return true;
	return p->parser == &parsers[PROTO_HTTP2] ? http2_is_server(p->state) : p->server;
}

bool proto_is_hopeless(const struct proto *p)
{
	return p->kind == PROTO_OTHER || ((p->kind == PROTO_HTTP1 || p->kind == PROTO_HTTP2) && proto_is_server(p));
}

unsigned proto_errors(const struct proto *p)
{
	return p->errors_before + (p->parser ? p->parser->errors(p->state) : 0);
}

unsigned proto_requests(const struct proto *p)
{
	unsigned tried = p->trial ? http2_requests(p->trial) : 0;

	return p->requests_before + tried + (p->parser ? p->parser->requests(p->state) : 0);
}

uint64_t proto_body_left(const struct proto *p, enum dir dir)
{
	return p->kind == PROTO_HTTP1 && p->parser == &parsers[PROTO_HTTP1] ? http1_body_left(p->state, dir) : 0;
}
