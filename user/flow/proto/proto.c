/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proto.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "http1.h"

/*
 * The first bytes of each direction tell. What came before that is held, with its stamps, and then given to the parser.
 *
 *   requests in TX, or "HTTP/1." in RX	    HTTP/1, the traced program is the client
 *   requests in RX, or "HTTP/1." in TX	    HTTP/1, it is the server
 *   the HTTP/2 preface			    HTTP/2
 *   a connection met in the middle, else   an HTTP/1 client out of step: it looks for messages and says nothing until
 *it finds some. Bytes that prove the server role, in the other direction, change it. anything else, in both directions
 *or   unknown: counted by the owner, not read further HOLD_BYTES of it in one
 *
 * A parser is a row of `parsers`; another one (http2, ws) is another row and a way to be chosen: decide() by first
 *bytes, or http1_upgraded() together with http1_set_raw() for what follows an upgrade.
 */

#define FIRST_BYTES 24 /* of the HTTP/2 preface */
#define HOLD_BYTES  65536
#define HOLD_RUNS   1024

static const char preface[FIRST_BYTES + 1] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum look { LOOK_NONE, LOOK_OPEN, LOOK_REQUEST, LOOK_RESPONSE, LOOK_PREFACE, LOOK_ALIEN };

struct parser {
	int (*push)(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
	int (*gap)(void *parser, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at);
	void (*tick)(void *parser, uint64_t now_ns);
	void (*finish)(void *parser, enum http_abort why, uint64_t ts_ns);
	void (*release)(void *parser);
};

/* A gap is a run with gap != 0. */
struct hold_run {
	struct stamp at;
	enum dir dir;
	size_t len;
	uint64_t gap;
	enum http_gap why;
};

struct proto {
	struct http_sink sink;
	enum proto_kind kind; /* decided; see proto_kind() for what is said */
	bool fresh, server;
	const struct parser *parser;
	struct http1 *http1;
	char first[2][FIRST_BYTES];
	size_t first_len[2];
	bool first_lost[2]; /* bytes are missing in them */
	uint64_t bytes;
	struct buf held;
	struct hold_run *runs;
	size_t run_count, run_size;
};

static int http1_push_any(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	return http1_push(parser, dir, ptr, len, at);
}

static int http1_gap_any(void *parser, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	return http1_gap(parser, dir, len, why, at);
}

static void http1_tick_any(void *parser, uint64_t now_ns)
{
	http1_tick(parser, now_ns);
}

static void http1_finish_any(void *parser, enum http_abort why, uint64_t ts_ns)
{
	http1_finish(parser, why, ts_ns);
}

static void http1_free_any(void *parser)
{
	http1_free(parser);
}

static const struct parser parsers[] = {
	[PROTO_HTTP1] = {http1_push_any, http1_gap_any, http1_tick_any, http1_finish_any, http1_free_any},
};

struct proto *proto_new(bool fresh, const struct http_sink *sink)
{
	struct proto *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->sink = *sink;
	p->fresh = fresh;
	buf_init(&p->held, HOLD_BYTES);
	return p;
}

static void hold_release(struct proto *p)
{
	buf_release(&p->held);
	free(p->runs);
	p->runs = NULL;
	p->run_count = p->run_size = 0;
}

static void parser_release(struct proto *p)
{
	if (p->parser)
		p->parser->release(p->http1);
	p->parser = NULL;
	p->http1 = NULL;
}

void proto_free(struct proto *p)
{
	if (!p)
		return;
	parser_release(p);
	hold_release(p);
	free(p);
}

static int hold(struct proto *p, const uint8_t *ptr, struct hold_run run)
{
	int err = run.gap ? 0 : buf_push(&p->held, ptr, run.len);

	if (err)
		return err;
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

static int start_http1(struct proto *p, bool server)
{
	p->http1 = http1_new(p->fresh, server ? DIR_RX : DIR_TX, &p->sink);
	if (!p->http1)
		return -ENOMEM;
	p->parser = &parsers[PROTO_HTTP1];
	p->server = server;
	return 0;
}

static int hand_on(struct proto *p, const uint8_t *ptr, const struct hold_run *run)
{
	if (run->gap)
		return p->parser->gap(p->http1, run->dir, run->gap, run->why, &run->at);
	return p->parser->push(p->http1, run->dir, ptr, run->len, &run->at);
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

static void decide_unread(struct proto *p, enum proto_kind kind)
{
	parser_release(p);
	hold_release(p);
	p->kind = kind;
}

/* Nothing proves HTTP/1 yet on a connection met in the middle: it is tried, and the first bytes are still looked at. */
static int attempt(struct proto *p)
{
	int err = p->parser ? 0 : start_http1(p, false);

	return err ? err : replay(p);
}

static bool open_still(const struct proto *p)
{
	return look(p, DIR_TX) == LOOK_OPEN || look(p, DIR_RX) == LOOK_OPEN;
}

static int decide(struct proto *p)
{
	enum look tx = look(p, DIR_TX), rx = look(p, DIR_RX);

	if (p->parser && http1_requests(p->http1)) {
		p->kind = PROTO_HTTP1;
		return replay(p);
	}
	if (tx == LOOK_PREFACE || rx == LOOK_PREFACE) {
		decide_unread(p, PROTO_HTTP2);
		p->server = rx == LOOK_PREFACE;
		return 0;
	}
	if (tx == LOOK_REQUEST || rx == LOOK_REQUEST || tx == LOOK_RESPONSE || rx == LOOK_RESPONSE) {
		bool server = tx != LOOK_REQUEST && (rx == LOOK_REQUEST || tx == LOOK_RESPONSE);

		if (p->parser && !server) { /* it is being tried as such */
			p->kind = PROTO_HTTP1;
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
		if (run.len <= HOLD_BYTES - p->held.len && p->run_count < HOLD_RUNS)
			return hold(p, ptr, run);
		if (p->fresh) {
			decide_unread(p, PROTO_OTHER);
			return 0;
		}
		p->first_lost[DIR_TX] = p->first_lost[DIR_RX] = true; /* no answer from them */
		err = decide(p);
	}
	return err || !p->parser ? err : hand_on(p, ptr, &run);
}

int proto_push(struct proto *p, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	if (!len)
		return 0;
	p->bytes += len;
	if (p->kind != PROTO_UNDECIDED)
		return p->parser ? p->parser->push(p->http1, dir, ptr, len, at) : 0;
	first_add(p, dir, ptr, len);
	return push_undecided(p, ptr, (struct hold_run){*at, dir, len, 0, HTTP_GAP_LOST});
}

int proto_gap(struct proto *p, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	if (!len)
		return 0;
	if (p->kind != PROTO_UNDECIDED)
		return p->parser ? p->parser->gap(p->http1, dir, len, why, at) : 0;
	if (p->first_len[dir] < FIRST_BYTES) { /* the beginning is not to be had */
		p->fresh = false;
		p->first_lost[dir] = true;
	}
	return push_undecided(p, NULL, (struct hold_run){*at, dir, 0, len, why});
}

void proto_tick(struct proto *p, uint64_t now_ns)
{
	if (p->parser)
		p->parser->tick(p->http1, now_ns);
}

void proto_finish(struct proto *p, enum http_abort why, uint64_t ts_ns)
{
	if (p->parser)
		p->parser->finish(p->http1, why, ts_ns);
	hold_release(p);
}

enum proto_kind proto_kind(const struct proto *p)
{
	if (p->kind == PROTO_UNDECIDED && p->parser) {
		if (http1_requests(p->http1))
			return PROTO_HTTP1;
		return p->bytes > HOLD_BYTES ? PROTO_OTHER : PROTO_UNDECIDED;
	}
	if (p->kind == PROTO_HTTP1 && http1_upgraded(p->http1) == HTTP1_WEBSOCKET)
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
	default:
		return p->bytes ? "unknown protocol" : "no data";
	}
}

bool proto_is_server(const struct proto *p)
{
	return p->server;
}

unsigned proto_errors(const struct proto *p)
{
	return p->http1 ? http1_errors(p->http1) : 0;
}

unsigned proto_requests(const struct proto *p)
{
	return p->http1 ? http1_requests(p->http1) : 0;
}
