/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Calls that are WebSocket messages: Responses and Realtime. */

#include "exchange_rig.h"

#define OPENAI "host: api.openai.com\nupgrade: websocket\n"
#define CREATED                                                                                                        \
	"{\"type\":\"response.created\",\"response\":{\"id\":\"r1\",\"model\":\"gpt-x-1\",\"status\":\"in_progress\"}" \
	"}"
#define DELTA_TEXT(t) "{\"type\":\"response.output_text.delta\",\"delta\":\"" t "\"}"
#define COMPLETED(i, o)                                                                                                \
	"{\"type\":\"response.completed\",\"response\":{\"id\":\"r1\",\"status\":\"completed\",\"usage\":{"            \
	"\"input_tokens\":" i ",\"input_tokens_details\":{\"cached_tokens\":8},\"output_tokens\":" o "}}}"
#define CREATE(more) "{\"type\":\"response.create\",\"model\":\"gpt-x\",\"input\":[{\"role\":\"user\"}]" more "}"

/* A message of which the first byte came at `first` and the last one at `last`. */
static struct ws_message message(const char *text, uint64_t first, uint64_t last)
{
	return (struct ws_message){
		.opcode = WS_TEXT,
		.complete = true,
		.data = sv_of(text),
		.carried = text ? strlen(text) : 100,
		.first = AT(first),
		.last = AT(last),
	};
}

static void say(struct rig *r, uint64_t xid, enum http_side side, const char *text, uint64_t first, uint64_t last)
{
	struct ws_message m = message(text, first, last);

	exchanges_ws_message(r->flow, xid, side, &m);
}

static void hide(struct rig *r, uint64_t xid, enum http_side side, const char *prefix, bool compressed, uint64_t ms)
{
	struct ws_message m = message(prefix, ms, ms);

	m.compressed = compressed;
	exchanges_ws_opaque(r->flow, xid, side, &m);
}

static void hide_end(struct rig *r, uint64_t xid, uint64_t ms)
{
	struct ws_message m = message("{\"type\":\"resp", ms, ms);

	m.complete = false;
	m.ended = true;
	exchanges_ws_opaque(r->flow, xid, HTTP_RESPONSE, &m);
}

static void ask(struct rig *r, uint64_t xid, const char *text, uint64_t ms)
{
	say(r, xid, HTTP_REQUEST, text, ms, ms);
}

static void tell(struct rig *r, uint64_t xid, const char *text, uint64_t ms)
{
	say(r, xid, HTTP_RESPONSE, text, ms, ms);
}

static void upgrade_to(struct rig *r, uint64_t xid, const char *target, const char *headers, uint64_t ms)
{
	req_head(r, xid, "GET", target, headers, ms);
	req_end(r, xid, 90, ms);
	abort_at(r, xid, HTTP_ABORT_UPGRADE, ms + 5);
}

static void upgrade(struct rig *r, uint64_t xid, uint64_t ms)
{
	upgrade_to(r, xid, "/v1/responses", OPENAI, ms);
}

static void end_at(struct rig *r, uint64_t xid, enum http_abort why, uint64_t ms)
{
	exchanges_ws_end(r->flow, xid, why, AT(ms).ts_ns);
}

/* --- Responses --------------------------------------------------------------------------------------------------- */

static void test_responses(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade(&r, 1, 0);
	assert_int_equal(exchanges_conn_calls(r.flow), 0);
	assert_int_equal(exchanges_open_count(r.table), 0);
	say(&r, 1, HTTP_REQUEST, CREATE(",\"tools\":[{},{}],\"max_output_tokens\":9"), 100, 105);
	assert_int_equal(exchanges_conn_calls(r.flow), 1);
	assert_int_equal(exchanges_open_count(r.table), 1);
	tell(&r, 1, "{\"type\":\"codex.rate_limits\",\"rate_limits\":{}}", 110);
	say(&r, 1, HTTP_RESPONSE, CREATED, 149, 150);
	tell(&r, 1, "no json", 151);
	say(&r, 1, HTTP_RESPONSE, DELTA_TEXT("hel"), 300, 310);
	tell(&r, 1, DELTA_TEXT("lo"), 400);
	tell(&r, 1, COMPLETED("20", "6"), 500);
	assert_log(&r.log,
		   "call 2 proto=websocket method=POST path=/v1/responses host=api.openai.com status=200 "
		   "api=openai.responses provider=openai op=chat class=main stream=1\n"
		   "  model=gpt-x-1 asked=gpt-x stop=completed\n"
		   "   start=100 send=105 ttfb=149 first=310 visible=310 last=400 end=500 kind=text chunks=2 stalls=0 "
		   "gap=90 decode=55.56\n"
		   "  request messages=1 tools=2 system=0 max=9 sent=106 got=354\n"
		   "  usage=reported uncached=12 read=8 write=0 input=20 output=6\n"
		   "  text=hello\n");
	assert_int_equal(exchanges_open_count(r.table), 0);
	tlog_free(&r.log);
	/* the next one on it, with what is new only; and one that prepares */
	ask(&r, 1, "{\"type\":\"response.create\",\"model\":\"gpt-x\",\"previous_response_id\":\"r1\",\"input\":[]}",
	    1000);
	tell(&r, 1, DELTA_TEXT("yo"), 1200);
	tell(&r, 1, COMPLETED("30", "2"), 1300);
	expect(&r, "call 3 ");
	expect(&r, "  start=1000 send=1000 ttfb=1200 first=1200 visible=1200 last=1200 end=1300 ");
	expect(&r, "text=yo\n");
	tlog_free(&r.log);
	ask(&r, 1, CREATE(",\"generate\":false"), 1400);
	tell(&r, 1, CREATED, 1410);
	tell(&r, 1, COMPLETED("30", "0"), 1420);
	expect(&r, "class=prewarm");
	tlog_free(&r.log);
	/* messages that begin and answer nothing */
	ask(&r, 1, "{\"type\":\"response.steer\",\"input\":[]}", 1500);
	tell(&r, 1, "{\"type\":\"response.steer.accepted\",\"previous_response_id\":\"r1\"}", 1510);
	ask(&r, 1, "[]", 1520);
	end_at(&r, 1, HTTP_ABORT_CLIENT, 2000);
	assert_log(&r.log, "");
	assert_int_equal(lost_total(&r.lost), 0);
	rig_close(&r);
}

/* What the handshake says of its first request holds for that one only. */
static void test_identity(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade_to(&r, 1, "/backend-api/codex/responses",
		   OPENAI "session-id: s1\nthread-id: t2\nx-codex-turn-metadata: {\"request_kind\":\"prewarm\"}\n", 0);
	ask(&r, 1,
	    CREATE(",\"client_metadata\":{\"x-codex-turn-metadata\":\"{\\\"request_kind\\\":\\\"compaction\\\"}\"}"),
	    10);
	tell(&r, 1, COMPLETED("9", "1"), 20);
	expect(&r, "class=aux stream=1\n  model=gpt-x asked=gpt-x session=s1 agent=t2 ");
	tlog_free(&r.log);
	ask(&r, 1, CREATE(""), 30);
	tell(&r, 1, COMPLETED("9", "1"), 40);
	expect(&r, "class=subagent");
	end_at(&r, 1, HTTP_ABORT_SERVER, 50);
	rig_close(&r);
}

/* Lanes: each has its own order. */
static void test_lanes(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(",\"stream_id\":\"a\""), 10);
	ask(&r, 1, CREATE(",\"stream_id\":\"b\""), 20);
	ask(&r, 1, CREATE(",\"stream_id\":\"a\""), 30);
	tell(&r, 1, "{\"type\":\"response.output_text.delta\",\"delta\":\"B\",\"stream_id\":\"b\"}", 40);
	tell(&r, 1, "{\"type\":\"response.output_text.delta\",\"delta\":\"A\",\"stream_id\":\"a\"}", 50);
	tell(&r, 1, "{\"type\":\"response.completed\",\"response\":{},\"stream_id\":\"a\"}", 60);
	expect(&r, "call 2 ");
	expect(&r, "first=50 visible=50 last=50 end=60 ");
	expect(&r, "text=A\n");
	tlog_free(&r.log);
	tell(&r, 1, "{\"type\":\"response.output_text.delta\",\"delta\":\"AA\",\"stream_id\":\"a\"}", 70);
	tell(&r, 1, "{\"type\":\"error\",\"status\":429,\"error\":{\"type\":\"rate_limit_error\"},\"stream_id\":\"b\"}",
	     80);
	expect(&r, "call 3 proto=websocket method=POST path=/v1/responses host=api.openai.com status=429 ");
	expect(&r, " error=rate_limit_error\n");
	expect(&r, "text=B\n");
	tlog_free(&r.log);
	exchanges_ws_close(r.flow, 1, HTTP_RESPONSE, &AT(90));
	expect(&r, "call 4 ");
	expect(&r, " end=server_abort\n");
	expect(&r, "end=90 ");
	tlog_free(&r.log);
	end_at(&r, 1, HTTP_ABORT_CLIENT, 95);
	assert_log(&r.log, "");
	rig_close(&r);
}

static void test_ends(void **state)
{
	static const struct {
		enum http_abort why;
		const char *text;
	} rows[] = {
		{HTTP_ABORT_CLIENT, " end=client_abort\n"},
		{HTTP_ABORT_SERVER, " end=server_abort\n"},
		{HTTP_ABORT_CLOSED, " end=connection_closed\n"},
		{HTTP_ABORT_EXIT, " end=process_exit exit=0/0\n"},
		{HTTP_ABORT_LOSS, " end=capture_loss\n"},
		{HTTP_ABORT_CAPTURE_END, " end=capture_end unfinished\n"},
	};
	struct rig r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rig_open(&r);
		upgrade(&r, 1, 0);
		ask(&r, 1, CREATE(""), 10);
		tell(&r, 1, DELTA_TEXT("a"), 20);
		end_at(&r, 1, rows[i].why, 30);
		expect(&r, rows[i].text);
		expect(&r, "first=20 visible=20 last=20 end=30 ");
		end_at(&r, 1, rows[i].why, 40);
		rig_close(&r);
	}
	/* in the middle of a message: no event of it came, and nothing is missing of those that did */
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(""), 10);
	tell(&r, 1, DELTA_TEXT("a"), 20);
	hide_end(&r, 1, 25);
	end_at(&r, 1, HTTP_ABORT_CLIENT, 30);
	expect(&r, "first=20 visible=20 last=20 end=30 kind=text chunks=1 stalls=0");
	assert_null(strstr(r.log.text, "undecoded"));
	assert_int_equal(lost_total(&r.lost), 0);
	rig_close(&r);
	/* the client closes, and reads on until the server has closed, too: that is no other call */
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(""), 10);
	tell(&r, 1, DELTA_TEXT("a"), 20);
	exchanges_ws_close(r.flow, 1, HTTP_REQUEST, &AT(30));
	expect(&r, " end=client_abort\n");
	expect(&r, "first=20 visible=20 last=20 end=30 ");
	tlog_free(&r.log);
	tell(&r, 1, DELTA_TEXT("b"), 40);
	tell(&r, 1, CREATED, 41);
	hide(&r, 1, HTTP_RESPONSE, NULL, true, 42);
	tell(&r, 1, COMPLETED("9", "2"), 43);
	exchanges_ws_close(r.flow, 1, HTTP_RESPONSE, &AT(50));
	end_at(&r, 1, HTTP_ABORT_SERVER, 60);
	assert_log(&r.log, "");
	assert_int_equal(exchanges_open_count(r.table), 0);
	rig_close(&r);
	/* nobody says that it ended */
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(""), 10);
	exchanges_conn_free(r.flow);
	r.flow = NULL;
	expect(&r, " end=connection_closed\n");
	rig_close(&r);
	/* it was refused: no message, but a failure */
	rig_open(&r);
	req_head(&r, 1, "GET", "/v1/responses", OPENAI, 0);
	req_end(&r, 1, 90, 0);
	resp_head(&r, 1, 426, JSON, 10);
	resp_end(&r, 1, 9, 10);
	expect(&r, "call 1 proto=http/1.1 method=GET path=/v1/responses host=api.openai.com status=426 ");
	tlog_free(&r.log);
	req_head(&r, 2, "GET", "/v1/responses", OPENAI, 0);
	req_end(&r, 2, 90, 0);
	resp_head(&r, 2, 200, JSON, 10);
	resp_end(&r, 2, 9, 10);
	/* sockets of something else */
	upgrade_to(&r, 3, "/chat-room", OPENAI, 0);
	ask(&r, 3, "{\"type\":\"hello\"}", 10);
	tell(&r, 3, "{\"type\":\"error\",\"error\":{\"type\":\"x\"}}", 20);
	hide(&r, 3, HTTP_RESPONSE, NULL, true, 25);
	end_at(&r, 3, HTTP_ABORT_CLOSED, 30);
	assert_log(&r.log, "");
	assert_int_equal(exchanges_conn_calls(r.flow), 1);
	rig_close(&r);
}

/* --- not all of it can be read ----------------------------------------------------------------------------------- */

static void test_opaque(void **state)
{
	struct rig r;

	(void)state;
	/* nothing came: one record that says so */
	rig_open(&r);
	upgrade(&r, 1, 0);
	hide(&r, 1, HTTP_REQUEST, NULL, true, 10);
	end_at(&r, 1, HTTP_ABORT_CLOSED, 30);
	assert_log(&r.log, "call 3 proto=websocket method=POST path=/v1/responses host=api.openai.com status=0 "
			   "api=openai.responses provider=openai op=chat class=main stream=-1\n"
			   "  end=connection_closed undecoded=permessage-deflate\n"
			   "   start=0 end=30\n"
			   "  request sent=100 got=0\n");
	rig_close(&r);
	/* a piece of an answer: its tokens are not sure any more */
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(""), 10);
	tell(&r, 1, CREATED, 20);
	hide(&r, 1, HTTP_RESPONSE, NULL, false, 30);
	tell(&r, 1, DELTA_TEXT("b"), 40);
	tell(&r, 1, COMPLETED("20", "6"), 50);
	expect(&r,
	       " undecoded=websocket\n   start=10 send=10 ttfb=20 seen=40 last=40 end=50\n  request messages=1 tools=0 "
	       "system=0 sent=68 got=402\n");
	tlog_free(&r.log);
	/* the same, told for all that follows */
	ask(&r, 1, CREATE(""), 60);
	exchanges_ws_undecoded(r.flow, 1, HTTP_REQUEST, &AT(65));
	exchanges_ws_undecoded(r.flow, 1, HTTP_RESPONSE, &AT(70));
	exchanges_ws_undecoded(r.flow, 77, HTTP_RESPONSE, &AT(71));
	tell(&r, 1, DELTA_TEXT("b"), 80);
	tell(&r, 1, COMPLETED("20", "6"), 90);
	expect(&r, " undecoded=websocket\n   start=60 send=60 ttfb=80 seen=80 last=80 end=90\n");
	tlog_free(&r.log);
	/* its end: the next one's beginning tells */
	ask(&r, 1, CREATE(""), 100);
	tell(&r, 1, CREATED, 110);
	hide(&r, 1, HTTP_RESPONSE, NULL, true, 120);
	ask(&r, 1, CREATE(""), 200);
	tell(&r, 1, "{\"type\":\"response.created\",\"response\":{\"id\":\"r2\"}}", 210);
	expect(&r, "call 4 ");
	expect(&r, " end=capture_loss lossy lost=-1 undecoded=permessage-deflate\n");
	tlog_free(&r.log);
	tell(&r, 1, DELTA_TEXT("c"), 220);
	tell(&r, 1, COMPLETED("20", "6"), 230);
	expect(&r, "call 5 ");
	expect(&r, "  start=200 send=200 ttfb=210 first=220 visible=220 last=220 end=230 ");
	tlog_free(&r.log);
	/* what asked for it: its start is not known */
	hide(&r, 1, HTTP_REQUEST, NULL, true, 300);
	tell(&r, 1, CREATED, 310);
	tell(&r, 1, DELTA_TEXT("d"), 320);
	tell(&r, 1, COMPLETED("20", "6"), 330);
	expect(&r, " mid_attach\n   start=310 seen=320 last=320 end=330 chunks=1 stalls=0\n");
	tlog_free(&r.log);
	/* a request that is too long is known by its beginning */
	hide(&r, 1, HTTP_REQUEST,
	     "{\"type\":\"response.create\",\"model\":\"gpt-x\",\"input\":[{\"role\":\"user\",\"con", false, 400);
	tell(&r, 1, DELTA_TEXT("e"), 410);
	tell(&r, 1, COMPLETED("20", "6"), 420);
	expect(&r, " truncated\n   start=400 send=400 ttfb=410 first=410 ");
	tlog_free(&r.log);
	end_at(&r, 1, HTTP_ABORT_CLOSED, 500);
	assert_log(&r.log, "");
	rig_close(&r);
}

#define UNREAD "proto=websocket method=POST status=0 class=main stream=-1\n "

static void hide_cut(struct rig *r, uint64_t xid, uint64_t ms)
{
	struct ws_message m = message(NULL, ms, ms);

	m.complete = false;
	exchanges_ws_opaque(r->flow, xid, HTTP_RESPONSE, &m);
}

/* What a call that cannot be read to its end was asked is answered by no later one. */
static void test_doubted(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(""), 10);
	hide(&r, 1, HTTP_RESPONSE, NULL, true, 20);
	hide(&r, 1, HTTP_REQUEST, NULL, true, 30);
	expect(&r, "asked=gpt-x undecoded=permessage-deflate\n   start=10 send=10 ttfb=20 end=20\n");
	tlog_free(&r.log);
	tell(&r, 1, COMPLETED("30", "2"), 40);
	assert_null(strstr(r.log.text, "start=10 "));
	tlog_free(&r.log);
	/* one that was read in part */
	ask(&r, 1, CREATE(""), 50);
	tell(&r, 1, CREATED, 60);
	hide(&r, 1, HTTP_RESPONSE, NULL, true, 70);
	ask(&r, 1, CREATE(""), 80);
	expect(&r,
	       " end=capture_loss lossy lost=-1 undecoded=permessage-deflate\n   start=50 send=50 ttfb=60 end=80\n");
	tlog_free(&r.log);
	tell(&r, 1, COMPLETED("40", "3"), 90);
	expect(&r, "start=80 send=80 ttfb=90 end=90 ");
	rig_close(&r);
}

/* Lost bytes are the open calls'; where the way into what follows is lost with them, they are of every later one, too.
 */
static void test_lost_bytes(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(""), 10);
	exchanges_ws_lost(r.flow, 1, HTTP_RESPONSE, 7, false, &AT(20));
	tell(&r, 1, COMPLETED("20", "6"), 30);
	expect(&r, " lossy lost=7\n");
	tlog_free(&r.log);
	ask(&r, 1, CREATE(""), 40);
	tell(&r, 1, COMPLETED("20", "6"), 50);
	assert_null(strstr(r.log.text, "lossy"));
	tlog_free(&r.log);
	exchanges_ws_lost(r.flow, 1, HTTP_RESPONSE, UINT64_MAX, true, &AT(60));
	exchanges_ws_lost(r.flow, 2, HTTP_RESPONSE, UINT64_MAX, true, &AT(60));
	ask(&r, 1, CREATE(""), 70);
	end_at(&r, 1, HTTP_ABORT_CLOSED, 80);
	expect(&r, " lossy lost=-1\n");
	tlog_free(&r.log);
	rig_close(&r);
	/* of a request, which is known to be over when its answer has come: nothing else answers it */
	rig_open(&r);
	upgrade(&r, 1, 0);
	tell(&r, 1, CREATED, 20);
	tell(&r, 1, COMPLETED("20", "6"), 30);
	expect(&r, " lossy lost=-1\n   start=20 end=30 ");
	tlog_free(&r.log);
	exchanges_ws_lost(r.flow, 1, HTTP_REQUEST, 7, false, &AT(40));
	hide(&r, 1, HTTP_REQUEST, CREATE(""), false, 10);
	assert_int_equal(exchanges_open_count(r.table), 0);
	/* and what is missing of one is no choice */
	exchanges_ws_lost(r.flow, 1, HTTP_REQUEST, 7, false, &AT(45));
	hide(&r, 1, HTTP_REQUEST, CREATE(""), false, 50);
	tell(&r, 1, COMPLETED("30", "2"), 60);
	expect(&r, "start=50 ");
	expect(&r, " lossy lost=-1\n");
	assert_null(strstr(r.log.text, "truncated"));
	rig_close(&r);
}

static bool find(struct rig *r, enum http_side side, const char *text, uint64_t ms)
{
	struct ws_message m = message(text, ms, ms);
	bool found = exchanges_ws_found(r->flow, 1, side, &m);

	if (found)
		say(r, 1, side, text, ms, ms);
	return found;
}

static void lose_all(struct rig *r, enum http_side side, uint64_t ms)
{
	exchanges_ws_lost(r->flow, 1, side, UINT64_MAX, true, &AT(ms));
	exchanges_ws_undecoded(r->flow, 1, side, &AT(ms));
}

static void expect_whole(struct rig *r, uint64_t ms)
{
	tlog_free(&r->log);
	ask(r, 1, CREATE(""), ms);
	assert_null(r->log.text);
	tell(r, 1, CREATED, ms + 1);
	tell(r, 1, COMPLETED("20", "75"), ms + 2);
	assert_null(strstr(r->log.text, "lossy"));
	assert_null(strstr(r->log.text, "capture_loss"));
	expect(r, "output=75");
}

/* The way into a server's messages was lost, and is found again. */
static void test_server_found(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(""), 10);
	tell(&r, 1, CREATED, 12);
	lose_all(&r, HTTP_RESPONSE, 20);
	assert_false(find(&r, HTTP_RESPONSE, "{\"a\":1}", 21));
	assert_false(find(&r, HTTP_RESPONSE, "{\"type\":\"response.created\"", 21));
	/* what began in the hole is another one's by now, and has no numbers */
	ask(&r, 1, CREATE(""), 30);
	expect(&r, " end=capture_loss lossy");
	tlog_free(&r.log);
	assert_true(find(&r, HTTP_RESPONSE, DELTA_TEXT("a"), 40));
	tell(&r, 1, DELTA_TEXT("a"), 40);
	assert_null(r.log.text);
	tell(&r, 1, COMPLETED("20", "99"), 41); /* it is over, whatever it was */
	expect(&r, " end=capture_loss lossy");
	expect(&r, "end=41 ");
	assert_null(strstr(r.log.text, "output=99"));
	tlog_free(&r.log);
	ask(&r, 1, CREATE(""), 50);
	assert_null(r.log.text);
	tell(&r, 1, CREATED, 51);
	tlog_free(&r.log);
	tell(&r, 1, COMPLETED("20", "64"), 52);
	assert_null(strstr(r.log.text, "lossy"));
	expect(&r, "output=64");
	/* an answer that begins there is that of what was asked last */
	lose_all(&r, HTTP_RESPONSE, 60);
	ask(&r, 1, CREATE(""), 61);
	assert_true(find(&r, HTTP_RESPONSE, CREATED, 70));
	tlog_free(&r.log);
	tell(&r, 1, COMPLETED("20", "84"), 71);
	expect(&r, " lossy");
	expect(&r, "output=84");
	expect_whole(&r, 80);
	/* ... though the hole was known late */
	tlog_free(&r.log);
	ask(&r, 1, CREATE(""), 90);
	ask(&r, 1, CREATE(""), 100);
	lose_all(&r, HTTP_RESPONSE, 101);
	assert_true(find(&r, HTTP_RESPONSE, CREATED, 101));
	expect(&r, "start=90");
	expect(&r, " end=capture_loss lossy");
	tlog_free(&r.log);
	tell(&r, 1, COMPLETED("20", "14"), 102);
	expect(&r, "start=100");
	expect(&r, "output=14");
	expect_whole(&r, 110);
	rig_close(&r);
}

/* ... into a client's, and into both. */
static void test_client_found(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade(&r, 1, 0);
	lose_all(&r, HTTP_REQUEST, 10);
	tell(&r, 1, CREATED, 12);
	tell(&r, 1, COMPLETED("20", "99"), 13);
	expect(&r, " lossy");
	tlog_free(&r.log);
	assert_false(find(&r, HTTP_REQUEST, "{\"type\":\"response.cancel\"}", 20));
	assert_true(find(&r, HTTP_REQUEST, CREATE(""), 21));
	tell(&r, 1, CREATED, 22);
	tell(&r, 1, COMPLETED("20", "75"), 23);
	expect(&r, "output=75");
	assert_null(strstr(r.log.text, "lossy"));
	tlog_free(&r.log);
	/* of both: what the server begins may answer what is hidden */
	ask(&r, 1, CREATE(""), 30);
	lose_all(&r, HTTP_REQUEST, 31);
	lose_all(&r, HTTP_RESPONSE, 31);
	assert_true(find(&r, HTTP_RESPONSE, CREATED, 40));
	expect(&r, "start=30");
	expect(&r, " end=capture_loss lossy");
	assert_null(strstr(r.log.text, "output="));
	tlog_free(&r.log);
	tell(&r, 1, COMPLETED("20", "64"), 41);
	expect(&r, "output=64");
	expect(&r, " lossy");
	assert_null(strstr(r.log.text, "start=30"));
	/* an answer to it came before it */
	tell(&r, 1, CREATED, 43);
	assert_false(find(&r, HTTP_REQUEST, CREATE(""), 42));
	tell(&r, 1, COMPLETED("20", "64"), 44);
	assert_true(find(&r, HTTP_REQUEST, CREATE(""), 45));
	tell(&r, 1, CREATED, 46);
	tell(&r, 1, COMPLETED("20", "64"), 47);
	expect_whole(&r, 50);
	rig_close(&r);
}

/* What comes behind a hole is told when nobody waits for the hole any more: the client has gone on by then. No message
 * answers what was asked after it. */
static void test_told_late(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(""), 10);
	tell(&r, 1, CREATED, 12);
	ask(&r, 1, CREATE(""), 20);
	ask(&r, 1, CREATE(""), 30);
	ask(&r, 1, CREATE(""), 40);
	lose_all(&r, HTTP_RESPONSE, 22);
	assert_true(find(&r, HTTP_RESPONSE, CREATED, 22));
	expect(&r, " end=capture_loss lossy");
	expect(&r, "start=10 ");
	assert_null(strstr(r.log.text, "start=20"));
	tlog_free(&r.log);
	tell(&r, 1, COMPLETED("20", "72"), 23);
	expect(&r, "start=20 send=20 ttfb=22 ");
	expect(&r, " lossy");
	expect(&r, "output=72");
	for (unsigned ms = 30; ms <= 40; ms += 10) { /* of these nothing is missing */
		tlog_free(&r.log);
		tell(&r, 1, CREATED, ms + 2);
		hide(&r, 1, HTTP_RESPONSE, "{", false, 5);
		exchanges_ws_undecoded(r.flow, 1, HTTP_RESPONSE, &AT(5));
		tell(&r, 1, COMPLETED("20", "33"), ms + 3);
		expect(&r, ms == 30 ? "start=30 send=30 ttfb=32 " : "start=40 send=40 ttfb=42 ");
		assert_null(strstr(r.log.text, "lossy"));
		assert_null(strstr(r.log.text, "undecoded"));
		expect(&r, "got=254\n");
	}
	/* a message that cannot be read is the first one's */
	tlog_free(&r.log);
	ask(&r, 1, CREATE(""), 60);
	ask(&r, 1, CREATE(""), 70);
	hide(&r, 1, HTTP_RESPONSE, "{", false, 62);

	tell(&r, 1, COMPLETED("20", "71"), 63);
	expect(&r, "start=60 send=60 ttfb=62 ");
	/* its end may be in a hole of which more was known before */
	tlog_free(&r.log);
	exchanges_ws_lost(r.flow, 1, HTTP_RESPONSE, UINT64_MAX, true, &AT(72));
	ask(&r, 1, CREATE(""), 80);
	expect(&r, "start=70 ");
	expect(&r, " end=capture_loss lossy");
	rig_close(&r);
}

/* The write of what asks returns when the answer has been read. */
static void test_asked_late(void **state)
{
	struct ws_message m = message(CREATE(""), 25, 25);
	struct rig r;

	(void)state;
	m.first.entry_ns = AT(10).ts_ns;
	rig_open(&r);
	upgrade(&r, 1, 0);
	tell(&r, 1, CREATED, 20);
	exchanges_ws_message(r.flow, 1, HTTP_REQUEST, &m);
	tell(&r, 1, COMPLETED("20", "71"), 30);
	expect(&r, "asked=gpt-x stop=completed\n   start=10 send=20 ttfb=20 end=30 ");
	expect(&r, "output=71");
	assert_int_equal(exchanges_open_count(r.table), 0);
	tlog_free(&r.log);
	expect_whole(&r, 40);
	tlog_free(&r.log);
	/* or is told even later: it asks for nothing more, and the next one has its own answer */
	m = message(CREATE(""), 75, 75);
	m.first.entry_ns = AT(60).ts_ns;
	tell(&r, 1, CREATED, 70);
	tell(&r, 1, COMPLETED("20", "72"), 72);
	expect(&r, " lossy lost=-1\n   start=70 end=72 ");
	exchanges_ws_message(r.flow, 1, HTTP_REQUEST, &m);
	assert_int_equal(exchanges_open_count(r.table), 0);
	expect_whole(&r, 80);
	/* of two the first asked for the one that is over */
	tell(&r, 1, CREATED, 100);
	tell(&r, 1, COMPLETED("20", "73"), 101);
	tell(&r, 1, CREATED, 110);
	m.first.entry_ns = AT(95).ts_ns;
	exchanges_ws_message(r.flow, 1, HTTP_REQUEST, &m);
	m.first.entry_ns = AT(105).ts_ns;
	exchanges_ws_message(r.flow, 1, HTTP_REQUEST, &m);
	tlog_free(&r.log);
	tell(&r, 1, COMPLETED("20", "74"), 111);
	expect(&r, "   start=105 ");
	/* of some that are lost: which ones nobody can tell */
	tell(&r, 1, CREATED, 130);
	tell(&r, 1, COMPLETED("20", "75"), 131);
	tell(&r, 1, CREATED, 140);
	exchanges_ws_lost(r.flow, 1, HTTP_REQUEST, 7, false, &AT(135));
	m.first.entry_ns = AT(132).ts_ns;
	exchanges_ws_message(r.flow, 1, HTTP_REQUEST, &m);
	tlog_free(&r.log);
	tell(&r, 1, COMPLETED("20", "76"), 141);
	expect(&r, "   start=140 ");
	rig_close(&r);
}

/* Where answers are not one after the other nothing says whose a message is. */
static void test_never_found(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	assert_false(find(&r, HTTP_REQUEST, CREATE(""), 1));
	upgrade_to(&r, 1, "/v1/realtime?model=gpt-realtime", OPENAI, 2);
	lose_all(&r, HTTP_REQUEST, 10);
	assert_false(find(&r, HTTP_REQUEST, CREATE(""), 20));
	rig_close(&r);
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(",\"stream_id\":\"a\""), 10);
	lose_all(&r, HTTP_REQUEST, 11);
	assert_false(find(&r, HTTP_REQUEST, CREATE(""), 20));
	end_at(&r, 1, HTTP_ABORT_CLOSED, 30);
	rig_close(&r);
	rig_open(&r);
	upgrade(&r, 1, 0);
	lose_all(&r, HTTP_REQUEST, 11);
	assert_false(find(&r, HTTP_REQUEST, CREATE(",\"stream_id\":\"a\""), 20));
	rig_close(&r);
}

/* Nothing can be read: who spoke, and when. */
static void test_unread(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	r.conn.fresh = false;
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 5); /* the rest of an answer */
	hide(&r, 9, HTTP_REQUEST, NULL, true, 10);
	hide(&r, 9, HTTP_REQUEST, NULL, true, 11);
	exchanges_each_open(r.table, AT(15).ts_ns, on_call, &r);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 20);
	exchanges_ws_undecoded(r.flow, 9, HTTP_RESPONSE, &AT(20));
	tell(&r, 9, "{\"type\":\"ping\"}", 30);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 40);
	assert_log(&r.log, "");
	exchanges_each_open(r.table, AT(45).ts_ns, on_call, &r);
	expect(&r, " unfinished mid_attach undecoded=permessage-deflate\n   start=10 send=11 ttfb=20 end=45\n");
	tlog_free(&r.log);
	hide(&r, 9, HTTP_REQUEST, NULL, true, 100);
	assert_log(&r.log, "call 1 " UNREAD " mid_attach undecoded=permessage-deflate\n"
			   "   start=10 send=11 ttfb=20 end=40\n"
			   "  request sent=200 got=215\n");
	tlog_free(&r.log);
	/* in the middle of a message */
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 120);
	hide_cut(&r, 9, 130);
	end_at(&r, 9, HTTP_ABORT_SERVER, 140);
	expect(&r,
	       " end=server_abort mid_attach undecoded=permessage-deflate\n   start=100 send=100 ttfb=120 end=140\n");
	tlog_free(&r.log);
	/* whole messages, then the end: of the last of them */
	hide(&r, 9, HTTP_REQUEST, NULL, true, 200);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 220);
	exchanges_ws_close(r.flow, 9, HTTP_REQUEST, &AT(300));
	expect(&r, UNREAD " mid_attach undecoded=permessage-deflate\n   start=200 send=200 ttfb=220 end=220\n");
	tlog_free(&r.log);
	/* one that is not answered is none */
	hide(&r, 9, HTTP_REQUEST, NULL, true, 400);
	end_at(&r, 9, HTTP_ABORT_CLOSED, 500);
	assert_log(&r.log, "");
	assert_int_equal(exchanges_open_count(r.table), 0);
	assert_int_equal(lost_total(&r.lost), 0);
	rig_close(&r);
}

/* ... until something can. */
static void test_unread_and_read(void **state)
{
	const struct exchange_config cfg = {.stale_ns = 2000 * MS, .sweep_ns = 1000 * MS};
	struct rig r;

	(void)state;
	rig_open(&r);
	r.conn.fresh = false;
	/* a call that can be read ends it */
	hide(&r, 9, HTTP_REQUEST, NULL, true, 10);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 20);
	ask(&r, 9, CREATE(""), 30);
	expect(&r, UNREAD);
	tlog_free(&r.log);
	tell(&r, 9, DELTA_TEXT("a"), 40);
	tell(&r, 9, COMPLETED("9", "2"), 41);
	tlog_free(&r.log);
	/* one that is asked for so that it can be read, and not answered so: as the next one is asked for, or at the
	 * end */
	ask(&r, 9, CREATE(",\"top_p\":1"), 42);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 43);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 44);
	ask(&r, 9, CREATE(",\"top_p\":2"), 45);
	expect(&r, "status=0 api=openai.responses ");
	expect(&r, "asked=gpt-x mid_attach undecoded=permessage-deflate\n   start=42 send=42 ttfb=43 end=44\n");
	tlog_free(&r.log);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 46);
	exchanges_ws_close(r.flow, 9, HTTP_RESPONSE, &AT(47));
	expect(&r, " undecoded=permessage-deflate\n   start=45 send=45 ttfb=46 end=46\n");
	tlog_free(&r.log);
	/* what is said beside it is not another one */
	ask(&r, 9, CREATE(""), 30);
	tell(&r, 9, DELTA_TEXT("a"), 40);
	hide(&r, 9, HTTP_REQUEST, NULL, true, 45);
	tell(&r, 9, COMPLETED("9", "2"), 50);
	expect(&r, "api=openai.responses ");
	expect(&r, "  start=30 send=30 ttfb=40 first=40 visible=40 last=40 end=50 ");
	tlog_free(&r.log);
	/* an answer that can be read is one of its own */
	hide(&r, 9, HTTP_REQUEST, NULL, true, 60);
	tell(&r, 9, CREATED, 70);
	tell(&r, 9, COMPLETED("9", "2"), 80);
	expect(&r, " mid_attach\n   start=70 end=80 ");
	assert_null(strstr(r.log.text, "undecoded"));
	tlog_free(&r.log);
	/* the window of a known one was lost */
	hide(&r, 9, HTTP_REQUEST, NULL, true, 90);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 95);
	ask(&r, 9, "{\"type\":\"response.processed\"}", 100);
	expect(&r, "api=openai.responses ");
	expect(&r, " mid_attach undecoded=permessage-deflate\n   start=90 send=90 ttfb=95 end=95\n");
	tlog_free(&r.log);
	end_at(&r, 9, HTTP_ABORT_CLOSED, 110);
	assert_log(&r.log, "");
	/* something else */
	hide(&r, 10, HTTP_REQUEST, NULL, true, 200);
	tell(&r, 10, "{\"op\":\"event\"}", 210);
	hide(&r, 10, HTTP_RESPONSE, NULL, true, 220);
	hide(&r, 10, HTTP_REQUEST, NULL, true, 230);
	hide(&r, 10, HTTP_RESPONSE, NULL, true, 240);
	end_at(&r, 10, HTTP_ABORT_CLOSED, 250);
	/* its handshake names no model's path */
	upgrade_to(&r, 11, "/chat-room", OPENAI, 300);
	hide(&r, 11, HTTP_REQUEST, NULL, true, 310);
	hide(&r, 11, HTTP_RESPONSE, NULL, true, 320);
	end_at(&r, 11, HTTP_ABORT_CLOSED, 330);
	assert_log(&r.log, "");
	rig_close(&r);
	/* silent: its record goes out, the next one is right */
	assert_true(rig_try(&r, &cfg));
	r.conn.fresh = false;
	hide(&r, 9, HTTP_REQUEST, NULL, true, 10);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 20);
	exchanges_tick(r.table, AT(10000).ts_ns);
	expect(&r, " end=evicted mid_attach undecoded=");
	tlog_free(&r.log);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 10010);
	assert_int_equal(r.lost.late_bytes, 100);
	hide(&r, 9, HTTP_REQUEST, NULL, true, 10020);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 10030);
	end_at(&r, 9, HTTP_ABORT_CLOSED, 10040);
	expect(&r, "  start=10020 send=10020 ttfb=10030 end=10030\n");
	rig_close(&r);
}

/* System-wide any program's socket is seen: one that cannot be read is nobody's call, unless its handshake said so. */
static void test_unread_of_anybody(void **state)
{
	struct exchange_config cfg = default_config;
	struct rig r;

	(void)state;
	cfg.anybody = true;
	assert_true(rig_try(&r, &cfg));
	r.conn.fresh = false;
	hide(&r, 9, HTTP_REQUEST, NULL, true, 10);
	hide(&r, 9, HTTP_RESPONSE, NULL, true, 20);
	end_at(&r, 9, HTTP_ABORT_CLOSED, 30);
	assert_log(&r.log, "");
	upgrade_to(&r, 11, "/v1/responses", OPENAI, 300);
	hide(&r, 11, HTTP_REQUEST, NULL, true, 310);
	hide(&r, 11, HTTP_RESPONSE, NULL, true, 320);
	end_at(&r, 11, HTTP_ABORT_CLOSED, 330);
	expect(&r, " undecoded=permessage-deflate\n");
	rig_close(&r);
}

/* Met in the middle: the messages say what it is. */
static void test_unseen_handshake(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	r.conn.fresh = false;
	tell(&r, 9, DELTA_TEXT("x"), 5);
	ask(&r, 9, CREATE(""), 10);
	tell(&r, 9, CREATED, 15);
	expect(&r, "call 1 proto=websocket method=POST status=200 api=openai.responses ");
	expect(&r, " end=capture_loss lossy mid_attach lost=-1\n");
	tlog_free(&r.log);
	tell(&r, 9, DELTA_TEXT("a"), 20);
	tell(&r, 9, COMPLETED("9", "2"), 30);
	expect(&r,
	       "call 2 proto=websocket method=POST status=200 api=openai.responses provider=openai op=chat class=main "
	       "stream=1\n  model=gpt-x-1 asked=gpt-x stop=completed mid_attach\n   start=10 send=10 ttfb=15 "
	       "first=20 ");
	tlog_free(&r.log);
	end_at(&r, 9, HTTP_ABORT_CLOSED, 40);
	/* and something else */
	ask(&r, 10, "{\"op\":\"subscribe\"}", 50);
	hide(&r, 10, HTTP_RESPONSE, NULL, true, 60);
	end_at(&r, 10, HTTP_ABORT_CLOSED, 70);
	assert_log(&r.log, "");
	/* the connection was seen from its first byte: the handshake is lost */
	r.conn.fresh = true;
	ask(&r, 11, CREATE(""), 80);
	tell(&r, 11, CREATED, 85);
	tell(&r, 11, COMPLETED("9", "2"), 90);
	expect(&r, "stop=completed lossy lost=-1\n   start=80 send=80 ttfb=85 ");
	rig_close(&r);
}

/* --- Realtime ---------------------------------------------------------------------------------------------------- */

static void test_realtime(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade_to(&r, 1, "/v1/realtime?model=gpt-realtime%2D2", OPENAI, 0);
	tell(&r, 1, "{\"type\":\"session.created\",\"session\":{\"model\":\"gpt-realtime-2\"}}", 10);
	ask(&r, 1, "{\"type\":\"session.update\",\"session\":{}}", 20);
	ask(&r, 1, "{\"type\":\"response.create\"}", 100);
	tell(&r, 1, "{\"type\":\"response.created\",\"response\":{\"id\":\"A\",\"status\":\"in_progress\"}}", 150);
	tell(&r, 1, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"event_id\":\"e\"}}", 160);
	tell(&r, 1, "{\"type\":\"response.output_audio.delta\",\"response_id\":\"A\",\"delta\":\"AAAA\"}", 200);
	tell(&r, 1,
	     "{\"type\":\"response.done\",\"response\":{\"id\":\"A\",\"status\":\"completed\",\"usage\":{\"input_"
	     "tokens\":30,"
	     "\"input_token_details\":{\"cached_tokens\":10},\"output_tokens\":5}}}",
	     300);
	expect(&r, "path=/v1/realtime?model=gpt-realtime%2D2 host=api.openai.com status=200 api=openai.realtime "
		   "provider=openai op=chat class=main stream=1\n"
		   "  model=gpt-realtime-2 asked=gpt-realtime-2 stop=completed error=invalid_request_error\n"
		   "   start=100 send=100 ttfb=150 first=200 last=200 end=300 kind=audio ");
	expect(&r, "usage=reported uncached=20 read=10 write=0 input=30 output=5\n");
	tlog_free(&r.log);
	/* the server heard the end of the user's turn: nobody asks */
	tell(&r, 1, "{\"type\":\"input_audio_buffer.speech_started\"}", 400);
	tell(&r, 1, "{\"type\":\"input_audio_buffer.speech_stopped\"}", 500);
	tell(&r, 1, "{\"type\":\"input_audio_buffer.committed\"}", 510);
	tell(&r, 1, "{\"type\":\"response.created\",\"response\":{\"id\":\"B\"}}", 520);
	tell(&r, 1, "{\"type\":\"response.output_text.delta\",\"response_id\":\"B\",\"delta\":\"hi\"}", 600);
	tell(&r, 1, "{\"type\":\"response.done\",\"response\":{\"id\":\"B\",\"status\":\"cancelled\"}}", 700);
	expect(&r, "stop=cancelled\n   start=500 ttfb=520 first=600 ");
	tlog_free(&r.log);
	/* two at once */
	ask(&r, 1, "{\"type\":\"response.create\"}", 800);
	ask(&r, 1, "{\"type\":\"response.create\",\"response\":{\"conversation\":\"none\"}}", 810);
	tell(&r, 1, "{\"type\":\"response.created\",\"response\":{\"id\":\"C\"}}", 820);
	tell(&r, 1, "{\"type\":\"response.created\",\"response\":{\"id\":\"D\"}}", 830);
	tell(&r, 1, "{\"type\":\"response.output_text.delta\",\"response_id\":\"D\",\"delta\":\"dd\"}", 840);
	tell(&r, 1, "{\"type\":\"response.done\",\"response\":{\"id\":\"D\",\"status\":\"completed\"}}", 850);
	expect(&r, "  start=810 send=810 ttfb=830 first=840 ");
	tlog_free(&r.log);
	end_at(&r, 1, HTTP_ABORT_CLIENT, 900);
	expect(&r, "  start=800 send=800 ttfb=820 end=900 chunks=0 stalls=0\n");
	rig_close(&r);
}

/* --- Gemini Live ------------------------------------------------------------------------------------------------- */

#define LIVE   "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=secret"
#define GOOGLE "host: generativelanguage.googleapis.com\nupgrade: websocket\n"
#define SETUP                                                                                                          \
	"{\"setup\":{\"model\":\"models/gemini-live-1\",\"generationConfig\":{\"maxOutputTokens\":99},"                \
	"\"systemInstruction\":{\"parts\":[{\"text\":\"be kind\"}]},\"tools\":[{\"functionDeclarations\":[{},{}]}]}}"
#define TURN(ended)                                                                                                    \
	"{\"clientContent\":{\"turns\":[{\"role\":\"user\",\"parts\":[{\"text\":\"hi\"}]}],\"turnComplete\":" ended "}}"
#define MODEL_TEXT(t) "{\"serverContent\":{\"modelTurn\":{\"parts\":[{\"text\":\"" t "\"}]}}}"
#define TURN_DONE                                                                                                      \
	"{\"serverContent\":{\"turnComplete\":true},\"usageMetadata\":{\"promptTokenCount\":30,"                       \
	"\"responseTokenCount\":6,\"totalTokenCount\":36}}"

static void tell_binary(struct rig *r, uint64_t xid, const char *text, uint64_t ms)
{
	struct ws_message m = message(text, ms, ms);

	m.opcode = WS_BINARY;
	exchanges_ws_message(r->flow, xid, HTTP_RESPONSE, &m);
}

static void test_live(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade_to(&r, 1, LIVE, GOOGLE, 0);
	ask(&r, 1, SETUP, 10);
	tell_binary(&r, 1, "{\"setupComplete\":{}}", 20);
	/* a turn of two messages, the second of which ends it */
	ask(&r, 1, TURN("false"), 90);
	ask(&r, 1, TURN("true"), 100);
	tell_binary(&r, 1, "{\"sessionResumptionUpdate\":{}}", 120);
	tell_binary(&r, 1, MODEL_TEXT("hel"), 200);
	tell_binary(&r, 1, MODEL_TEXT("lo"), 250);
	tell_binary(&r, 1, "{\"serverContent\":{\"generationComplete\":true}}", 260);
	assert_log(&r.log, "");
	tell_binary(&r, 1, TURN_DONE, 300);
	assert_log(&r.log,
		   "call 2 proto=websocket method=POST "
		   "path=/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=* "
		   "host=generativelanguage.googleapis.com status=200 api=gemini.live provider=gcp.gemini "
		   "op=generate_content class=main stream=1\n"
		   "  model=gemini-live-1 asked=gemini-live-1\n"
		   "   start=100 send=100 ttfb=200 first=200 visible=200 last=250 end=300 kind=text chunks=2 stalls=0 "
		   "gap=50 decode=100\n"
		   "  request messages=1 tools=2 system=7 max=99 sent=89 got=283\n"
		   "  usage=reported uncached=30 read=0 write=0 input=30 output=6\n"
		   "  text=hello\n");
	tlog_free(&r.log);
	/* tools: the turn waits for their results, which are asked anew */
	ask(&r, 1, TURN("true"), 1000);
	tell(&r, 1, "{\"toolCall\":{\"functionCalls\":[{\"id\":\"f1\",\"name\":\"lamp\"}]}}", 1100);
	ask(&r, 1, "{\"toolResponse\":{\"functionResponses\":[{\"id\":\"f1\"}]}}", 1500);
	expect(&r, "call 3 ");
	expect(&r, "  start=1000 send=1000 ttfb=1100 first=1100 last=1100 end=1100 kind=tool ");
	expect(&r, " tool=f1 name=lamp\n");
	tlog_free(&r.log);
	tell(&r, 1, MODEL_TEXT("on"), 1600);
	tell(&r, 1, TURN_DONE, 1700);
	expect(&r, "call 4 ");
	expect(&r, "  start=1500 send=1500 ttfb=1600 first=1600 ");
	tlog_free(&r.log);
	/* the user goes on before the answer, and into it */
	ask(&r, 1, TURN("true"), 2000);
	ask(&r, 1, TURN("true"), 2010);
	tell(&r, 1, MODEL_TEXT("a"), 2100);
	ask(&r, 1, TURN("true"), 2150);
	tell(&r, 1, "{\"serverContent\":{\"interrupted\":true}}", 2160);
	tell(&r, 1, "{\"serverContent\":{\"turnComplete\":true}}", 2170);
	expect(&r, " stop=interrupted\n   start=2000 send=2010 ttfb=2100 ");
	tlog_free(&r.log);
	tell(&r, 1, MODEL_TEXT("b"), 2200);
	end_at(&r, 1, HTTP_ABORT_SERVER, 2300);
	expect(&r, " end=server_abort\n   start=2150 send=2150 ttfb=2200 first=2200 ");
	rig_close(&r);
}

/* As test_asked_late(). */
static void test_others_asked_late(void **state)
{
	struct ws_message m = message(TURN("true"), 35, 35);
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade_to(&r, 1, LIVE, GOOGLE, 0);
	ask(&r, 1, SETUP, 10);
	m.first.entry_ns = AT(20).ts_ns;
	tell(&r, 1, MODEL_TEXT("a"), 30);
	exchanges_ws_message(r.flow, 1, HTTP_REQUEST, &m);
	tell(&r, 1, TURN_DONE, 40);
	expect(&r, "   start=20 send=30 ttfb=30 first=30 ");
	assert_int_equal(exchanges_open_count(r.table), 0);
	tlog_free(&r.log);
	ask(&r, 1, TURN("true"), 50);
	tell(&r, 1, MODEL_TEXT("b"), 60);
	tell(&r, 1, TURN_DONE, 70);
	expect(&r, "   start=50 send=50 ttfb=60 ");
	rig_close(&r);
	rig_open(&r);
	upgrade_to(&r, 1, "/v1/realtime?model=gpt-realtime", OPENAI, 2);
	m = message("{\"type\":\"response.create\"}", 35, 35);
	m.first.entry_ns = AT(20).ts_ns;
	tell(&r, 1, CREATED, 30);
	exchanges_ws_message(r.flow, 1, HTTP_REQUEST, &m);
	tell(&r, 1, "{\"type\":\"response.done\",\"response\":{\"id\":\"r1\"}}", 40);
	expect(&r, "   start=20 send=30 ttfb=30 ");
	assert_int_equal(exchanges_open_count(r.table), 0);
	tlog_free(&r.log);
	/* one that the server began by itself, and one that was asked for */
	tell(&r, 1, "{\"type\":\"input_audio_buffer.speech_stopped\"}", 50);
	tell(&r, 1, CREATED, 60);
	m.first.entry_ns = AT(55).ts_ns;
	exchanges_ws_message(r.flow, 1, HTTP_REQUEST, &m);
	assert_int_equal(exchanges_open_count(r.table), 2);
	rig_close(&r);
}

/* What is spoken has no end that anybody says. */
static void test_live_speech(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade_to(&r, 1, LIVE, GOOGLE, 0);
	ask(&r, 1, SETUP, 10);
	ask(&r, 1, "{\"realtimeInput\":{\"audio\":{\"data\":\"AAAA\",\"mimeType\":\"audio/pcm\"}}}", 20);
	tell(&r, 1, "{\"serverContent\":{\"inputTranscription\":{\"text\":\"hello\"}}}", 50);
	tell(&r, 1, "{\"serverContent\":{\"outputTranscription\":{\"text\":\"hi\"}}}", 100);
	tell(&r, 1,
	     "{\"serverContent\":{\"modelTurn\":{\"parts\":[{\"inlineData\":{\"mimeType\":\"audio/pcm\",\"data\":"
	     "\"AA\"}}]}}}",
	     110);
	tell(&r, 1, TURN_DONE, 200);
	expect(&r, "  model=gemini-live-1 asked=gemini-live-1\n   start=100 seen=100 last=110 end=200 chunks=2 ");
	tlog_free(&r.log);
	/* ... unless the program does */
	ask(&r, 1, "{\"realtimeInput\":{\"activityEnd\":{}}}", 1000);
	tell(&r, 1, MODEL_TEXT("yes"), 1100);
	tell(&r, 1, TURN_DONE, 1200);
	expect(&r, "   start=1000 ttfb=1100 first=1100 ");
	tlog_free(&r.log);
	ask(&r, 1, "{\"realtimeInput\":{\"text\":\"and now?\"}}", 2000);
	tell(&r, 1, MODEL_TEXT("yes"), 2100);
	tell(&r, 1, TURN_DONE, 2200);
	expect(&r, "   start=2000 ttfb=2100 first=2100 ");
	tlog_free(&r.log);
	/* nothing but an end; and met in the middle */
	tell(&r, 1, TURN_DONE, 3000);
	end_at(&r, 1, HTTP_ABORT_CLIENT, 3100);
	assert_log(&r.log, "");
	r.conn.fresh = false;
	tell_binary(&r, 9, MODEL_TEXT("x"), 4000);
	tell_binary(&r, 9, TURN_DONE, 4100);
	expect(&r, "api=gemini.live provider=gcp.gemini op=generate_content class=main stream=1\n  mid_attach\n   "
		   "start=4000 seen=4000 last=4000 end=4100 ");
	rig_close(&r);
}

/* --- attempts ---------------------------------------------------------------------------------------------------- */

static void test_fallback(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	upgrade(&r, 1, 0);
	ask(&r, 1, CREATE(""), 100);
	end_at(&r, 1, HTTP_ABORT_SERVER, 200);
	expect(&r, "call 2 ");
	tlog_free(&r.log);
	/* over HTTP, with another body */
	req(&r, 2, "/v1/responses", HOST, "{\"model\":\"gpt-x\",\"stream\":true,\"input\":[{}]}", 700);
	resp_head(&r, 2, 200, STREAM, 800);
	resp_end(&r, 2, 9, 900);
	expect(&r, " attempt=2 retry_of=2 wait=500\n");
	tlog_free(&r.log);
	/* only once; not of another model; not later; not after a token */
	req(&r, 3, "/v1/responses", HOST, "{\"model\":\"gpt-x\",\"stream\":true,\"input\":[{}]}", 950);
	resp_end(&r, 3, 9, 960);
	upgrade(&r, 4, 1000);
	ask(&r, 4, CREATE(""), 1000);
	end_at(&r, 4, HTTP_ABORT_SERVER, 1100);
	req(&r, 5, "/v1/responses", HOST, "{\"model\":\"gpt-y\",\"stream\":true,\"input\":[{}]}", 1200);
	resp_end(&r, 5, 9, 1300);
	req(&r, 6, "/v1/responses", HOST, "{\"model\":\"gpt-x\",\"stream\":true,\"input\":[{}]}", 2101);
	resp_end(&r, 6, 9, 2300);
	upgrade(&r, 7, 3000);
	ask(&r, 7, CREATE(",\"temperature\":1"), 3000);
	tell(&r, 7, DELTA_TEXT("a"), 3050);
	end_at(&r, 7, HTTP_ABORT_SERVER, 3100);
	req(&r, 8, "/v1/responses", HOST, "{\"model\":\"gpt-x\",\"stream\":true,\"input\":[{}]}", 3200);
	resp_end(&r, 8, 9, 3300);
	assert_null(strstr(r.log.text, "attempt="));
	tlog_free(&r.log);
	/* over another WebSocket, with the same body */
	upgrade(&r, 9, 4000);
	ask(&r, 9, CREATE(""), 4000);
	end_at(&r, 9, HTTP_ABORT_SERVER, 4100);
	upgrade(&r, 10, 9000);
	tlog_free(&r.log);
	ask(&r, 10, CREATE(""), 9100);
	tell(&r, 10, COMPLETED("9", "1"), 9200);
	expect(&r, " attempt=3 retry_of=6 wait=5000\n");
	rig_close(&r);
}

/* --- bounds ------------------------------------------------------------------------------------------------------ */

static void test_bounds(void **state)
{
	const struct exchange_config cfg = {.stale_ns = 2000 * MS, .sweep_ns = 1000 * MS, .content = true};
	struct ws_message binary = message("\x01\x02", 5, 5);
	struct rig r;

	(void)state;
	assert_true(rig_try(&r, &cfg));
	upgrade(&r, 1, 0);
	binary.opcode = WS_BINARY;
	exchanges_ws_message(r.flow, 1, HTTP_REQUEST, &binary);
	for (int i = 0; i < EXCHANGE_WS_MAX + 10; i++)
		ask(&r, 1, CREATE(""), 10);
	assert_int_equal(exchanges_open_count(r.table), EXCHANGE_WS_MAX);
	assert_int_equal(r.lost.n[LOST_NO_MEMORY], 10);
	end_at(&r, 1, HTTP_ABORT_CLOSED, 20);
	assert_int_equal(exchanges_open_count(r.table), 0);
	tlog_free(&r.log);
	/* a call that is silent is evicted; what comes of it later is passed over, the next one is right */
	upgrade(&r, 2, 100);
	ask(&r, 2, CREATE(",\"temperature\":1"), 110);
	exchanges_tick(r.table, AT(10000).ts_ns);
	expect(&r, " end=evicted\n");
	tlog_free(&r.log);
	tell(&r, 2, DELTA_TEXT("late"), 10010);
	tell(&r, 2, COMPLETED("9", "1"), 10020);
	assert_log(&r.log, "");
	assert_true(r.lost.late_bytes > 0);
	ask(&r, 2, CREATE(""), 10100);
	exchanges_each_open(r.table, AT(10150).ts_ns, on_call, &r);
	expect(&r, " unfinished ");
	tlog_free(&r.log);
	tell(&r, 2, DELTA_TEXT("now"), 10200);
	tell(&r, 2, COMPLETED("9", "1"), 10300);
	expect(&r, "text=now\n");
	rig_close(&r);
}

/* --- without memory ---------------------------------------------------------------------------------------------- */

static void play_all(struct rig *r)
{
	upgrade(r, 1, 0);
	ask(r, 1, CREATE(",\"stream_id\":\"a\""), 10);
	tell(r, 1, CREATED, 20);
	tell(r, 1, DELTA_TEXT("a"), 30);
	hide(r, 1, HTTP_RESPONSE, NULL, true, 35);
	tell(r, 1, COMPLETED("9", "1"), 40);
	hide(r, 1, HTTP_REQUEST, "{\"type\":\"response.create\"", false, 45);
	end_at(r, 1, HTTP_ABORT_CLOSED, 50);
	upgrade_to(r, 2, "/v1/realtime?model=x", OPENAI "session-id: s\n", 60);
	hide(r, 2, HTTP_REQUEST, NULL, true, 70);
	end_at(r, 2, HTTP_ABORT_CLOSED, 80);
	ask(r, 3, CREATE(""), 90);
	exchanges_ws_close(r->flow, 3, HTTP_REQUEST, &AT(95));
	tell(r, 3, CREATED, 96);
	upgrade_to(r, 5, LIVE, GOOGLE, 97);
	ask(r, 5, SETUP, 97);
	ask(r, 5, TURN("true"), 98);
	tell(r, 5, "{\"toolCall\":{\"functionCalls\":[{\"id\":\"f\",\"name\":\"n\"}]}}", 98);
	ask(r, 5, "{\"toolResponse\":{}}", 98);
	tell(r, 5, TURN_DONE, 99);
	tell(r, 5, MODEL_TEXT("x"), 99);
	end_at(r, 5, HTTP_ABORT_CLOSED, 99);
	hide(r, 4, HTTP_REQUEST, NULL, true, 100);
	hide(r, 4, HTTP_RESPONSE, NULL, true, 110);
	hide(r, 4, HTTP_REQUEST, NULL, true, 120);
	end_at(r, 4, HTTP_ABORT_CLOSED, 130);
}

static void test_no_memory(void **state)
{
	(void)state;
	rig_every_allocation(play_all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_responses),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_lanes),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_opaque),
		cmocka_unit_test(test_unseen_handshake),
		cmocka_unit_test(test_lost_bytes),
		cmocka_unit_test(test_server_found),
		cmocka_unit_test(test_client_found),
		cmocka_unit_test(test_told_late),
		cmocka_unit_test(test_asked_late),
		cmocka_unit_test(test_never_found),
		cmocka_unit_test(test_doubted),
		cmocka_unit_test(test_unread),
		cmocka_unit_test(test_unread_of_anybody),
		cmocka_unit_test(test_unread_and_read),
		cmocka_unit_test(test_live),
		cmocka_unit_test(test_live_speech),
		cmocka_unit_test(test_others_asked_late),
		cmocka_unit_test(test_realtime),
		cmocka_unit_test(test_fallback),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
