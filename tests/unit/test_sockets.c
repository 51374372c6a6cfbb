/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* WebSockets as a connection carries them: the handshake, and the messages that follow it, by exchange and side. */

#include "harness.h"

#include "base/err.h"
#include "flow/proto/proto.h"

#define AT(ms) ((struct stamp){(ms)*1000000ull, (ms)*1000000ull, 7, 0})

struct step {
	enum dir dir;
	uint64_t ms;
	const char *text; /* NULL: a gap of len bytes */
	size_t len;
};
#define TX(ms, text)                                                                                                   \
	{                                                                                                              \
		DIR_TX, ms, text, sizeof(text) - 1                                                                     \
	}
#define RX(ms, text)                                                                                                   \
	{                                                                                                              \
		DIR_RX, ms, text, sizeof(text) - 1                                                                     \
	}
#define GAP(dir, ms, n)                                                                                                \
	{                                                                                                              \
		dir, ms, NULL, n                                                                                       \
	}

#define ASK	"GET /v1/responses HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
#define GRANT	"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
#define DEFLATE "Sec-WebSocket-Extensions: permessage-deflate\r\n"
#define END	"\r\n"
#define MASKED	"\x81\x87\0\0\0\0" /* and 7 bytes of text */
#define TOLD	"\x81\x07"
/* "hello", by the example of RFC 7692 section 7.2.3.1; and once more, out of the shared window */
#define HELLO	    "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00"
#define HELLO_AGAIN "\xc1\x05\xf2\x00\x11\x00\x00"
#define ASK_AGAIN   "\xc1\x85\0\0\0\0\xf2\x00\x11\x00\x00" /* the same, from a client */

/* A header block with literals: CONNECT with :protocol websocket. */
#define H2_FRAME(len, type, flags, stream) "\0\0" len type flags "\0\0\0" stream
#define H2_OPEN				   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" H2_FRAME("\0", "\4", "\0", "\0")
#define H2_ASK                                                                                                         \
	H2_FRAME("\x29", "\1", "\4", "\1")                                                                             \
	"\x02\x07"                                                                                                     \
	"CONNECT\x00\x09:protocol\x09websocket\x87\x04\x05/chat\x01\x01h"
#define H2_GRANT H2_FRAME("\1", "\1", "\4", "\1") "\x88"

struct rig {
	struct tlog log;
	struct proto *proto;
	struct guard guard;
	int err;
};

/* --- what is said ------------------------------------------------------------------------------------------------ */

static void say(struct rig *r, const char *what, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	tlog_printf(&r->log, "%llu %s%s%s ", (unsigned long long)xid, side == HTTP_REQUEST ? ">" : "<", what,
		    m->compressed ? "z" : "");
	tlog_escaped(&r->log, m->data.ptr, m->data.len);
	tlog_printf(&r->log, " %llu @%llu-%llu\n", (unsigned long long)m->carried,
		    (unsigned long long)(m->first.ts_ns / 1000000), (unsigned long long)(m->last.ts_ns / 1000000));
}

static void on_message(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	say(ctx, "", xid, side, m);
}

static void on_opaque(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	say(ctx, "?", xid, side, m);
}

static void on_undecoded(void *ctx, uint64_t xid, enum http_side side, const struct stamp *at)
{
	struct rig *r = ctx;

	tlog_printf(&r->log, "%llu %sundecoded @%llu\n", (unsigned long long)xid, side == HTTP_REQUEST ? ">" : "<",
		    (unsigned long long)(at->ts_ns / 1000000));
}

static void on_close(void *ctx, uint64_t xid, enum http_side side, const struct stamp *at)
{
	struct rig *r = ctx;

	tlog_printf(&r->log, "%llu %sclose @%llu\n", (unsigned long long)xid, side == HTTP_REQUEST ? ">" : "<",
		    (unsigned long long)(at->ts_ns / 1000000));
}

static void on_lost(void *ctx, uint64_t xid, enum http_side side, uint64_t len, bool all, const struct stamp *at)
{
	struct rig *r = ctx;

	tlog_printf(&r->log, "%llu %slost %lld%s @%llu\n", (unsigned long long)xid, side == HTTP_REQUEST ? ">" : "<",
		    (long long)len, all ? " and all" : "", (unsigned long long)(at->ts_ns / 1000000));
}

static bool on_found(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	say(ctx, "found", xid, side, m);
	return true;
}

static void on_end(void *ctx, uint64_t xid, enum http_abort why, uint64_t ts_ns)
{
	struct rig *r = ctx;

	tlog_printf(&r->log, "%llu end %d @%llu\n", (unsigned long long)xid, why,
		    (unsigned long long)(ts_ns / 1000000));
}

static void http_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	(void)ctx;
	(void)xid;
	(void)h;
	(void)first;
}

static void http_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
		      const struct stamp *at)
{
	(void)ctx;
	(void)xid;
	(void)side;
	(void)ptr;
	(void)len;
	(void)at;
}

static void http_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
		     const struct stamp *at)
{
	(void)why;
	http_body(ctx, xid, side, NULL, len, at);
}

static void http_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	(void)carried;
	http_request(ctx, xid, NULL, at);
}

static void http_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	struct rig *r = ctx;

	(void)carried;
	(void)ts_ns;
	if (why == HTTP_ABORT_UPGRADE)
		tlog_printf(&r->log, "%llu upgraded\n", (unsigned long long)xid);
}

/* --- playing ----------------------------------------------------------------------------------------------------- */

static bool rig_open(struct rig *r, bool fresh)
{
	const struct http_sink http = {.ctx = r,
				       .on_request = http_request,
				       .on_body = http_body,
				       .on_body_gap = http_gap,
				       .on_request_end = http_end,
				       .on_response = http_request,
				       .on_response_end = http_end,
				       .on_abort = http_abort};
	const struct socket_sink sockets = {r,	      on_message, on_opaque, on_undecoded,
					    on_close, on_end,	  on_lost,   on_found};

	*r = (struct rig){0};
	r->proto = proto_new(fresh, &http);
	if (r->proto)
		proto_set_sockets(r->proto, &sockets);
	return r->proto != NULL;
}

static void rig_close(struct rig *r)
{
	proto_free(r->proto);
	guard_free(&r->guard);
	tlog_free(&r->log);
}

static void push(struct rig *r, const struct step *s, size_t from, size_t to)
{
	if (from < to && !r->err)
		r->err = proto_push(r->proto, s->dir, guard_copy(&r->guard, s->text + from, to - from), to - from,
				    &AT(s->ms));
}

/* Cut at two places of all bytes. */
static void play(struct rig *r, const struct step *steps, size_t count, size_t a, size_t b)
{
	size_t base = 0;

	for (size_t i = 0; i < count; i++) {
		const struct step *s = &steps[i];
		size_t from = a > base && a < base + s->len ? a - base : 0;
		size_t to = b > base && b < base + s->len ? b - base : s->len;

		if (!s->text) {
			proto_gap(r->proto, s->dir, s->len, HTTP_GAP_LOST, &AT(s->ms));
			continue;
		}
		push(r, s, 0, from);
		push(r, s, from, to);
		push(r, s, to, s->len);
		base += s->len;
	}
	proto_finish(r->proto, HTTP_ABORT_SERVER, AT(99).ts_ns);
}

struct script {
	const char *name;
	bool attached; /* in the middle */
	struct step steps[10];
	const char *golden;
	enum proto_kind kind;
};

static const struct script scripts[] = {
	{"plain",
	 false,
	 {TX(0, ASK), RX(5, GRANT END TOLD "welcome"), TX(10, MASKED "{\"a\":1}"), RX(20, "\x01\x03{\"b\x89\0"),
	  RX(30, "\x80\x03\":2\x81\1}"), TX(40, "\x88\x80\0\0\0\0"), RX(50, "\x88\0junk")},
	 "1 upgraded\n1 < welcome 7 @5-5\n1 > {\"a\":1} 7 @10-10\n1 < {\"b\":2 6 @20-30\n1 < } 1 @30-30\n1 >close @40\n"
	 "1 <close @50\n1 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"seen before its handshake's answer",
	 false,
	 {TX(0, ASK), TX(7, MASKED "{\"a\":1}"), TX(8, MASKED "{\"b"), RX(5, GRANT END TOLD "welcome"), TX(9, "\":2}")},
	 "1 upgraded\n1 > {\"a\":1} 7 @7-7\n1 < welcome 7 @5-5\n1 > {\"b\":2} 7 @8-9\n1 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"compressed",
	 false,
	 {TX(0, ASK), RX(5, GRANT DEFLATE END HELLO), RX(10, HELLO_AGAIN)},
	 "1 upgraded\n1 <z Hello 7 @5-5\n1 <z Hello 5 @10-10\n1 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"a server's side",
	 false,
	 {RX(0, ASK), TX(5, GRANT END), RX(10, MASKED "{\"a\":1}"), TX(20, TOLD "welcome")},
	 "1 upgraded\n1 > {\"a\":1} 7 @10-10\n1 < welcome 7 @20-20\n1 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"with a gap",
	 false,
	 {TX(0, ASK), RX(5, GRANT END), RX(6, TOLD "we"), GAP(DIR_RX, 7, 3), RX(8, "me" TOLD "again.."),
	  GAP(DIR_TX, 9, UINT64_MAX), TX(10, MASKED "{\"a\":1}")},
	 "1 upgraded\n1 <lost 3 @7\n1 <? we 7 @6-8\n1 < again.. 7 @8-8\n1 >lost -1 and all @9\n1 >undecoded @9\n"
	 "1 >found {\"a\":1} 7 @10-10\n1 > {\"a\":1} 7 @10-10\n1 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"with a gap, and found again",
	 false,
	 {TX(0, ASK), RX(5, GRANT END), GAP(DIR_RX, 6, 3), RX(7, "lcome"), GAP(DIR_TX, 8, UINT64_MAX),
	  TX(9, MASKED "{\"a\":1}"), RX(10, TOLD "{\"b\":2}")},
	 "1 upgraded\n1 <lost 3 and all @6\n1 <undecoded @6\n1 >lost -1 and all @8\n1 >undecoded @8\n"
	 "1 >found {\"a\":1} 7 @9-9\n1 > {\"a\":1} 7 @9-9\n1 <found {\"b\":2} 7 @10-10\n1 < {\"b\":2} 7 @10-10\n"
	 "1 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"a message under way",
	 false,
	 {TX(0, ASK), RX(5, GRANT END), RX(6, TOLD "we")},
	 "1 upgraded\n1 <? we 2 @6-6\n1 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"met in the middle",
	 true,
	 {TX(0, MASKED "{\"a\":1}"), RX(5, TOLD "welcome")},
	 "0 > {\"a\":1} 7 @0-0\n0 < welcome 7 @5-5\n0 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"met in the middle, by a server",
	 true,
	 {RX(0, MASKED "{\"a\":1}"), TX(5, TOLD "welcome")},
	 "0 > {\"a\":1} 7 @0-0\n0 < welcome 7 @5-5\n0 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"met in the middle, compressed",
	 true,
	 {TX(0, "\x8a\x80\0\0\0\0" ASK_AGAIN ASK_AGAIN ASK_AGAIN), TX(1, ASK_AGAIN), RX(5, HELLO_AGAIN),
	  RX(6, HELLO HELLO_AGAIN)},
	 "0 >undecoded @0\n0 >?z  5 @0-0\n0 >?z  5 @0-0\n0 >?z  5 @0-0\n0 >?z  5 @1-1\n0 <undecoded @5\n"
	 "0 <?z  5 @5-5\n0 <z Hello 7 @6-6\n0 <z Hello 5 @6-6\n0 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"met in the middle of compressed messages, server first",
	 true,
	 {RX(0, HELLO_AGAIN), RX(1, HELLO_AGAIN HELLO_AGAIN), GAP(DIR_TX, 2, UINT64_MAX), RX(3, HELLO_AGAIN),
	  TX(4, ASK_AGAIN)},
	 "0 <undecoded @0\n0 <?z  5 @0-0\n0 <?z  5 @1-1\n0 <?z  5 @1-1\n0 >lost -1 and all @2\n"
	 "0 >undecoded @2\n0 <?z  5 @3-3\n0 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"met in the middle, each side likely",
	 true,
	 {TX(0, "\xc1\x90\0\0\0\0\xf2\x48\xcd\xc9\xc9\xd7\x51\x30\x34\x32\x36\x31\x35\x33\x07\x00"), RX(5, HELLO_AGAIN),
	  RX(6, HELLO HELLO_AGAIN)},
	 "0 >z Hello, 1234567 16 @0-0\n0 <undecoded @5\n0 <?z  5 @5-5\n0 <z Hello 7 @6-6\n0 <z Hello 5 @6-6\n"
	 "0 end 1 @99\n",
	 PROTO_WEBSOCKET},
	{"met in the middle, something like it",
	 true,
	 {RX(0, "\xc1\x05\x07zzzz"), TX(5, "\x89\x82\0\0\0\0hi\x88\x80")},
	 "",
	 PROTO_UNDECIDED},
	{"a stream of http/2",
	 false,
	 {TX(0, H2_OPEN H2_ASK), RX(5, H2_FRAME("\0", "\4", "\0", "\0") H2_GRANT),
	  TX(10, H2_FRAME("\x0d", "\0", "\0", "\1") MASKED "{\"a\":1}"),
	  RX(20, H2_FRAME("\x04", "\0", "\0", "\1") TOLD "we"), RX(30, H2_FRAME("\x05", "\0", "\1", "\1") "lcome"),
	  TX(40, H2_FRAME("\0", "\0", "\1", "\1"))},
	 "1 upgraded\n1 > {\"a\":1} 7 @10-10\n1 < welcome 7 @20-30\n1 end ",
	 PROTO_HTTP2},
	{"something else",
	 false,
	 {TX(0, "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n"), RX(5, "HTTP/1.1 200 OK\r\n\r\n" TOLD "welcome")},
	 "1 upgraded\n1 end 1 @99\n",
	 PROTO_HTTP1},
};

struct cut_run {
	const struct script *script;
	struct rig rig;
};

static void check(struct rig *r, const struct script *s)
{
	const char *have = r->log.text ? r->log.text : "";

	/* the way in which the stream of http/2 ends is that protocol's */
	if (s->kind == PROTO_HTTP2 ? strncmp(have, s->golden, strlen(s->golden)) != 0 : strcmp(have, s->golden) != 0)
		fail_msg("%s: want\n%s\nhave\n%s", s->name, s->golden, have);
}

static void play_cut(void *ctx, size_t a, size_t b)
{
	struct cut_run *c = ctx;

	assert_true(rig_open(&c->rig, !c->script->attached));
	play(&c->rig, c->script->steps, ARRAY_SIZE(c->script->steps), a, b);
	assert_int_equal(c->rig.err, 0);
	check(&c->rig, c->script);
	rig_close(&c->rig);
}

static size_t script_len(const struct script *s)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(s->steps); i++)
		n += s->steps[i].text ? s->steps[i].len : 0;
	return n;
}

static void test_scripts(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
		struct cut_run c = {.script = &scripts[i]};

		assert_true(rig_open(&c.rig, !c.script->attached));
		play(&c.rig, c.script->steps, ARRAY_SIZE(c.script->steps), 0, 0);
		check(&c.rig, c.script);
		assert_int_equal(proto_kind(c.rig.proto), c.script->kind);
		rig_close(&c.rig);
		every_cut(script_len(c.script), 24, play_cut, &c);
	}
}

/* Many streams, each a socket of its own, and more than are read. */
static void test_many(void **state)
{
	struct http_sink http = {.on_request = http_request, .on_response = http_request, .on_abort = http_abort};
	struct http_head granted = {.status = 200};
	struct http_sink watched;
	struct sockets *s;
	struct rig r = {0};

	(void)state;
	http.ctx = &r;
	s = sockets_new(&http);
	assert_non_null(s);
	sockets_set_sink(
		s, &(struct socket_sink){&r, on_message, on_opaque, on_undecoded, on_close, on_end, on_lost, NULL});
	watched = sockets_http_sink(s);
	for (uint64_t xid = 1; xid <= SOCKETS_MAX + 5; xid++) {
		watched.on_response(watched.ctx, xid, &granted, &AT(0));
		watched.on_abort(watched.ctx, xid, HTTP_ABORT_UPGRADE, 0, 0);
		/* another one's upgrade, without its response */
		watched.on_abort(watched.ctx, xid + 1000, HTTP_ABORT_UPGRADE, 0, 0);
	}
	tlog_free(&r.log);
	for (uint64_t xid = SOCKETS_MAX; xid <= SOCKETS_MAX + 1; xid++)
		assert_int_equal(sockets_push(s, xid, DIR_TX, DIR_RX, (const uint8_t *)TOLD "welcome", 9, &AT(1)), 0);
	sockets_push(s, 1000 + SOCKETS_MAX, DIR_TX, DIR_RX, (const uint8_t *)TOLD "welcome", 9, &AT(1));
	sockets_push(s, 5, DIR_RX, DIR_RX, (const uint8_t *)MASKED "{\"a\":1}", 13, &AT(2));
	/* the first bytes of one are missing: there is no way into it that nobody wants to know of */
	assert_int_equal(sockets_gap(s, 6, DIR_RX, DIR_TX, 3, HTTP_GAP_LOST, &AT(3)), 0);
	sockets_push(s, 6, DIR_RX, DIR_TX, (const uint8_t *)TOLD "welcome", 9, &AT(4));
	sockets_end(s, 5, HTTP_ABORT_CLIENT, AT(5).ts_ns);
	sockets_end(s, 5, HTTP_ABORT_CLIENT, AT(5).ts_ns);
	assert_log(&r.log, "256 < welcome 7 @1-1\n5 > {\"a\":1} 7 @2-2\n6 <lost 3 and all @3\n6 <undecoded @3\n5 end 0 "
			   "@5\n5 end 0 @5\n");
	tlog_free(&r.log);
	sockets_free(s);
}

static void test_no_memory(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
		for (unsigned n = 1;; n++) {
			struct rig r;
			bool hit;

			fail_nth(n);
			if (rig_open(&r, !scripts[i].attached))
				play(&r, scripts[i].steps, ARRAY_SIZE(scripts[i].steps), 0, 0);
			hit = fail_nth_hit();
			fail_nth(0);
			assert_true(!hit || !r.proto || r.err == -ENOMEM || r.err == 0);
			rig_close(&r);
			if (!hit)
				break;
			assert_true(n < 500);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scripts),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
