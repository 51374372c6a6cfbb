/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_HTTP1_SCENARIOS_H
#define TEST_HTTP1_SCENARIOS_H

#include "http_run.h"

/* Conversations and what must be told of them, however they are cut. Included by test_http1.c alone. */

struct scenario {
	const char *name;
	bool middle, server;
	enum http_abort why;
	uint64_t end_ms;
	unsigned errors;
	const struct script_step *steps;
	size_t count;
	const char *golden;
};

#define STEPS(...)                                                                                                     \
	.steps = (const struct script_step[]){__VA_ARGS__},                                                            \
	.count = ARRAY_SIZE(((const struct script_step[]){__VA_ARGS__}))

#define SSE_HEAD  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
#define POST(n)	  "POST /v1/messages HTTP/1.1\r\nHost: api.test\r\nContent-Length: " #n "\r\n\r\n"
#define OK(n)	  "HTTP/1.1 200 OK\r\nContent-Length: " #n "\r\n\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

static const struct scenario scenarios[] = {
	{
		.name = "keep-alive, chunked with extensions and trailers",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, POST(9) "{\"a\":\"b\"}"), RX(100, SSE_HEAD "7;n=\"v;\\\"x\\\"\";f\r\ndata: "),
		      RX(110, "x\r\n00A\r\n0123456789\r\n0;end\r\nX-Sum: 1\r\nX-Two: 2\r\n\r\n"), TX(200, GET("/two")),
		      RX(300, "HTTP/1.1 200 OK\r\ncOnTeNt-LeNgTh: 4, 4\r\nContent-Length: 4\r\n\r\nbody")),
		.golden = "1 POST /v1/messages host=api.test n=2 @0/0\n"
			  "1 > @0 {\"a\":\"b\"}\n"
			  "1 > end 74 @0\n"
			  "1 < 200 n=2 @100\n"
			  "1 < @100 data: \n"
			  "1 < @110 x0123456789\n"
			  "1 < end 152 @110\n"
			  "2 GET /two host=h n=1 @200/200\n"
			  "2 > end 30 @200\n"
			  "2 < 200 n=2 @300\n"
			  "2 < @300 body\n"
			  "2 < end 64 @300\n",
	},
	{
		.name = "no body: HEAD, 304, 204; then one with a body",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, "HEAD /m HTTP/1.1\r\n\r\n"), RX(10, OK(12345)), TX(20, GET("/m")),
		      RX(30, "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"), TX(40, POST(0)),
		      RX(50, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"), TX(60, GET("/m")),
		      RX(70, OK(2) "hi")),
		.golden = "1 HEAD /m host= n=0 @0/0\n"
			  "1 > end 20 @0\n"
			  "1 < 200 n=1 @10\n"
			  "1 < end 42 @10\n"
			  "2 GET /m host=h n=1 @20/20\n"
			  "2 > end 28 @20\n"
			  "2 < 304 n=1 @30\n"
			  "2 < end 57 @30\n"
			  "3 POST /v1/messages host=api.test n=2 @40/40\n"
			  "3 > end 65 @40\n"
			  "3 < 204 n=1 @50\n"
			  "3 < end 46 @50\n"
			  "4 GET /m host=h n=1 @60/60\n"
			  "4 > end 28 @60\n"
			  "4 < 200 n=1 @70\n"
			  "4 < @70 hi\n"
			  "4 < end 40 @70\n",
	},
	{
		.name = "interim responses; a response before the request's end",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, POST(4)), RX(30, "HTTP/1.1 100 Continue\r\n\r\n"), TX(40, "ab"),
		      RX(60, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: "
			     "2\r\n\r\nok"),
		      TX2(50, 70, "cd")),
		.golden = "1 POST /v1/messages host=api.test n=2 @0/0\n"
			  "1 > @40 ab\n"
			  "1 < 200 n=1 @60\n"
			  "1 < @60 ok\n"
			  "1 > @70 cd\n"
			  "1 > end 69 @70\n"
			  "1 < end 40 @60\n",
	},
	{
		.name = "early error, the rest of the request is never sent",
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 9000,
		STEPS(TX(0, POST(400) "ab"), RX(60, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"),
		      TICK(1059), TICK(1060), TX(1100, "late")),
		.golden = "1 POST /v1/messages host=api.test n=2 @0/0\n"
			  "1 > @0 ab\n"
			  "1 < 413 n=1 @60\n"
			  "1 < @60 no\n"
			  "1 < end 47 @60\n",
	},
	{
		.name = "no body after a final response to Expect, but the next request",
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 9000,
		STEPS(TX(0, "POST /a HTTP/1.1\r\nContent-Length: 40\r\nExpect: 100-continue\r\n\r\n"),
		      RX(60, "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"), TX(100, POST(2) "ab"),
		      RX(160, OK(2) "ok")),
		.golden = "1 POST /a host= n=2 @0/0\n"
			  "1 < 417 n=1 @60\n"
			  "1 > end 62 @0\n"
			  "1 < end 38 @60\n"
			  "2 POST /v1/messages host=api.test n=2 @100/100\n"
			  "2 > @100 ab\n"
			  "2 > end 67 @100\n"
			  "2 < 200 n=1 @160\n"
			  "2 < @160 ok\n"
			  "2 < end 40 @160\n",
	},
	{
		.name = "the next request, long after a final response to Expect",
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 9000,
		STEPS(TX(0, "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"),
		      RX(60, "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"), TICK(1100), TX(3000, POST(2) "ab"),
		      RX(3060, OK(2) "ok")),
		.golden = "1 POST /a host= n=2 @0/0\n"
			  "1 < 417 n=1 @60\n"
			  "1 > end 70 @0\n"
			  "1 < end 38 @60\n"
			  "2 POST /v1/messages host=api.test n=2 @3000/3000\n"
			  "2 > @3000 ab\n"
			  "2 > end 67 @3000\n"
			  "2 < 200 n=1 @3060\n"
			  "2 < @3060 ok\n"
			  "2 < end 40 @3060\n",
	},
	{
		.name = "a final response behind 100 Continue, before the body that this let go",
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 9000,
		STEPS(TX(0, "POST /a HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"),
		      RX(60, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"),
		      TX(70, "body"), TX(100, POST(2) "ab"), RX(160, OK(2) "ok")),
		.golden = "1 POST /a host= n=2 @0/0\n"
			  "1 < 401 n=1 @60\n"
			  "1 > @70 body\n"
			  "1 > end 65 @70\n"
			  "1 < end 38 @60\n"
			  "2 POST /v1/messages host=api.test n=2 @100/100\n"
			  "2 > @100 ab\n"
			  "2 > end 67 @100\n"
			  "2 < 200 n=1 @160\n"
			  "2 < @160 ok\n"
			  "2 < end 40 @160\n",
	},
	{
		.name = "a body that was on its way when the final response to Expect came; one that came after it",
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 9000,
		STEPS(TX(0, "POST /a HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"),
		      RX(60, OK(2) "ok"), TX2(50, 70, "body"),
		      TX(100, "POST /b HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"),
		      RX(160, "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"), TX(170, "body"), TX(200, POST(2) "ab"),
		      RX(260, OK(2) "ok")),
		.golden = "1 POST /a host= n=2 @0/0\n"
			  "1 < 200 n=1 @60\n"
			  "1 < @60 ok\n"
			  "1 > @70 body\n"
			  "1 > end 65 @70\n"
			  "1 < end 40 @60\n"
			  "2 POST /b host= n=2 @100/100\n"
			  "2 < 401 n=1 @160\n"
			  "2 < end 38 @160\n"
			  "3 POST /v1/messages host=api.test n=2 @200/200\n"
			  "3 > @200 ab\n"
			  "3 > end 67 @200\n"
			  "3 < 200 n=1 @260\n"
			  "3 < @260 ok\n"
			  "3 < end 40 @260\n",
	},
	{
		.name = "pipelined in one write, answered in one read",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, POST(2) "ab" GET("/2") POST(1) "c"),
		      RX(100, OK(1) "1"
				    "HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n" OK(3) "333")),
		.golden = "1 POST /v1/messages host=api.test n=2 @0/0\n"
			  "1 > @0 ab\n"
			  "1 > end 67 @0\n"
			  "2 GET /2 host=h n=1 @0/0\n"
			  "2 > end 28 @0\n"
			  "3 POST /v1/messages host=api.test n=2 @0/0\n"
			  "3 > @0 c\n"
			  "3 > end 66 @0\n"
			  "1 < 200 n=1 @100\n"
			  "1 < @100 1\n"
			  "1 < end 39 @100\n"
			  "2 < 404 n=1 @100\n"
			  "2 < end 45 @100\n"
			  "3 < 200 n=1 @100\n"
			  "3 < @100 333\n"
			  "3 < end 41 @100\n",
	},
	{
		.name = "until close",
		.why = HTTP_ABORT_SERVER,
		.end_ms = 9000,
		STEPS(TX(0, GET("/")), RX(10, "HTTP/1.0 200 OK\r\nServer: x\r\n\r\nall of"), RX(20, " it")),
		.golden = "1 GET / host=h n=1 @0/0\n"
			  "1 > end 27 @0\n"
			  "1 < 200 n=1 @10\n"
			  "1 < @10 all of\n"
			  "1 < @20  it\n"
			  "1 < end 39 @20\n",
	},
	{
		.name = "until close, but the program closed",
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 9000,
		STEPS(TX(0, GET("/")), RX(10, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\nall of"),
		      RX(20, " it")),
		.golden = "1 GET / host=h n=1 @0/0\n"
			  "1 > end 27 @0\n"
			  "1 < 200 n=1 @10\n"
			  "1 < @10 all of\n"
			  "1 < @20  it\n"
			  "1 abort client 62 @9000\n",
	},
	{
		.name = "until close, by the program that answers",
		.server = true,
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 9000,
		STEPS(RX(0, GET("/")), TX(10, "HTTP/1.0 200 OK\r\nServer: x\r\n\r\nall of"), TX(20, " it")),
		.golden = "1 GET / host=h n=1 @0/0\n"
			  "1 > end 27 @0\n"
			  "1 < 200 n=1 @10\n"
			  "1 < @10 all of\n"
			  "1 < @20  it\n"
			  "1 < end 39 @20\n",
	},
	{
		.name = "until close, bytes lost",
		.why = HTTP_ABORT_SERVER,
		.end_ms = 9000,
		STEPS(TX(0, GET("/")), RX(10, "HTTP/1.0 200 OK\n\nall of"), GAP(DIR_RX, 20, UNKNOWN_BYTES),
		      RX(20, " it")),
		.golden = "1 GET / host=h n=1 @0/0\n"
			  "1 > end 27 @0\n"
			  "1 < 200 n=0 @10\n"
			  "1 < @10 all of\n"
			  "1 < gap -1\n"
			  "1 < @20  it\n"
			  "1 abort loss 26 @20\n",
	},
	{
		.name = "until close, over the limit of a call",
		.server = true,
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 9000,
		STEPS(RX(0, GET("/")), TX(10, "HTTP/1.0 200 OK\n\nall of"), CAPPED(DIR_TX, 10, 1000), TX(10, " it")),
		.golden = "1 GET / host=h n=1 @0/0\n"
			  "1 > end 27 @0\n"
			  "1 < 200 n=0 @10\n"
			  "1 < @10 all of\n"
			  "1 < gap 1000 capped\n"
			  "1 < @10  it\n"
			  "1 < end 1026 @10\n",
	},
	{
		.name = "ends in the middle of a chunk, with the process",
		.why = HTTP_ABORT_EXIT,
		.end_ms = 9000,
		STEPS(TX(0, GET("/")), RX(10, SSE_HEAD "64\r\npart")),
		.golden = "1 GET / host=h n=1 @0/0\n"
			  "1 > end 27 @0\n"
			  "1 < 200 n=2 @10\n"
			  "1 < @10 part\n"
			  "1 abort exit 88 @9000\n",
	},
	{
		.name = "userinfo in a Host header is nobody's to see",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, "GET /x HTTP/1.1\r\nHost: user:p@ss@h:80\r\n\r\n"), RX(5, OK(2) "hi")),
		.golden = "1 GET /x host=h:80 n=1 @0/0\n"
			  "1 > end 41 @0\n"
			  "1 < 200 n=1 @5\n"
			  "1 < @5 hi\n"
			  "1 < end 40 @5\n",
	},
	{
		.name = "bare LF, folded header, empty lines between",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, "\r\n\r\nGET /x HTTP/1.1\nHost:\tfold\n\t ed\n\n"),
		      RX(5, "\r\nHTTP/1.1 200\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n")),
		.golden = "1 GET /x host=fold 	 ed n=1 @0/0\n"
			  "1 > end 33 @0\n"
			  "1 < 200 n=1 @5\n"
			  "1 < @5 abc\n"
			  "1 < end 50 @5\n",
	},
	{
		.name = "response seen before the write returned",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(RX(10, OK(4) "a"), RX(15, "b"), TX2(0, 20, POST(2) "ab"), RX(200, "cd")),
		.golden = "1 POST /v1/messages host=api.test n=2 @0/20\n"
			  "1 < 200 n=1 @10\n"
			  "1 < @10 a\n"
			  "1 < @15 b\n"
			  "1 > @20 ab\n"
			  "1 > end 67 @20\n"
			  "1 < @200 cd\n"
			  "1 < end 42 @200\n",
	},
	{
		.name = "older response is not the request's",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(RX(10, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 1\r\n\r\nx" OK(1) "q"), TX(20, GET("/")),
		      RX(30, OK(2) "ok")),
		.golden = "1 GET / host=h n=1 @20/20\n"
			  "2 unseen @10\n"
			  "2 < 408 n=1 @10\n"
			  "2 < @10 x\n"
			  "2 < end 52 @10\n"
			  "3 unseen @10\n"
			  "3 < 200 n=1 @10\n"
			  "3 < @10 q\n"
			  "3 < end 39 @10\n"
			  "1 > end 27 @20\n"
			  "1 < 200 n=1 @30\n"
			  "1 < @30 ok\n"
			  "1 < end 40 @30\n",
	},
	{
		.name = "response of nobody, after a while",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(RX(10, OK(1) "x"), TICK(1009), TX(1009, GET("/1")), RX(1010, OK(1) "1"), RX(1020, OK(1) "2"),
		      RX(2020, OK(1) "3"), RX(2030, OK(1) "4")),
		.golden = "1 GET /1 host=h n=1 @1009/1009\n"
			  "2 unseen @10\n"
			  "2 < 200 n=1 @10\n"
			  "2 < @10 x\n"
			  "2 < end 39 @10\n"
			  "1 > end 28 @1009\n"
			  "1 < 200 n=1 @1010\n"
			  "1 < @1010 1\n"
			  "1 < end 39 @1010\n"
			  "3 unseen @1020\n"
			  "3 < 200 n=1 @1020\n"
			  "3 < @1020 2\n"
			  "3 < end 39 @1020\n"
			  "4 unseen @2020\n"
			  "4 < 200 n=1 @2020\n"
			  "4 < @2020 3\n"
			  "4 < end 39 @2020\n"
			  "5 unseen @2030\n"
			  "5 < 200 n=1 @2030\n"
			  "5 < @2030 4\n"
			  "5 < end 39 @2030\n",
	},
	{
		.name = "met in the middle of a chunked stream",
		.middle = true,
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(RX(0, "nt: delta\ndata: {}\n\n\r\n"), RX(100, "5\r\nhello\r\n"), RX(200, "3\r\nbye\r\n0\r\n\r\n"),
		      TX(1000, GET("/1")), RX(1100, OK(2) "ok")),
		.golden = "1 unseen @0\n"
			  "1 < gap -1\n"
			  "1 < @100 hello\n"
			  "1 < @200 bye\n"
			  "1 < end 45 @200\n"
			  "2 GET /1 host=h n=1 @1000/1000\n"
			  "2 > end 28 @1000\n"
			  "2 < 200 n=1 @1100\n"
			  "2 < @1100 ok\n"
			  "2 < end 40 @1100\n",
	},
	{
		.name = "met in the middle, at a chunk line, and cut off",
		.middle = true,
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(RX(0, "5\r\nhello\r\n"), RX(200, "30\r\nbye"), TX(1000, GET("/1")), RX(1100, OK(2) "ok")),
		.golden = "1 unseen @0\n"
			  "1 < gap -1\n"
			  "1 < @0 hello\n"
			  "1 < @200 bye\n"
			  "2 GET /1 host=h n=1 @1000/1000\n"
			  "2 > end 28 @1000\n"
			  "1 abort loss 17 @200\n"
			  "2 < 200 n=1 @1100\n"
			  "2 < @1100 ok\n"
			  "2 < end 40 @1100\n",
	},
	{
		.name = "met in the middle of a body of known length",
		.middle = true,
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(RX(0, "...rest of {\"json\":1}"), RX(10, "more"), TX(1000, GET("/1")), RX(1100, OK(2) "ok")),
		.golden = "1 unseen @0\n"
			  "1 < gap -1\n"
			  "1 abort loss 25 @10\n"
			  "2 GET /1 host=h n=1 @1000/1000\n"
			  "2 > end 28 @1000\n"
			  "2 < 200 n=1 @1100\n"
			  "2 < @1100 ok\n"
			  "2 < end 40 @1100\n",
	},
	{
		.name = "met in the middle of a request",
		.middle = true,
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, "xxx POST is /not HTTP/1.1 a line\"}]}"), RX(50, OK(2) "r0"),
		      TX(100, "tail}POST /v1/messages HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"), RX(200, OK(2) "r1")),
		.golden = "1 POST /v1/messages host= n=1 @100/100\n"
			  "2 unseen @50\n"
			  "2 < 200 n=1 @50\n"
			  "2 < @50 r0\n"
			  "2 < end 40 @50\n"
			  "1 > @100 ab\n"
			  "1 > end 51 @100\n"
			  "1 < 200 n=1 @200\n"
			  "1 < @200 r1\n"
			  "1 < end 40 @200\n",
	},
	{
		.name = "met while idle",
		.middle = true,
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, POST(2) "ab"), RX(200, OK(2) "r1")),
		.golden = "1 POST /v1/messages host=api.test n=2 @0/0\n"
			  "1 > @0 ab\n"
			  "1 > end 67 @0\n"
			  "1 < 200 n=1 @200\n"
			  "1 < @200 r1\n"
			  "1 < end 40 @200\n",
	},
	{
		.name = "met in the middle of something else",
		.middle = true,
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, "\x01\x02SELECT 1"), RX(1, "\x03\x04 1 row"), RX(3000, "x")),
		.golden = "",
	},
	{
		.name = "capped request body, the next request is exact",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, POST(300) "head of it"), CAPPED(DIR_TX, 0, 290), RX(100, OK(1) "1"), TX(200, GET("/2")),
		      RX(300, OK(1) "2")),
		.golden = "1 POST /v1/messages host=api.test n=2 @0/0\n"
			  "1 > @0 head of it\n"
			  "1 > gap 290 capped\n"
			  "1 > end 367 @0\n"
			  "1 < 200 n=1 @100\n"
			  "1 < @100 1\n"
			  "1 < end 39 @100\n"
			  "2 GET /2 host=h n=1 @200/200\n"
			  "2 > end 28 @200\n"
			  "2 < 200 n=1 @300\n"
			  "2 < @300 2\n"
			  "2 < end 39 @300\n",
	},
	{
		.name = "unknown loss in a chunked response, next chunk line at once",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, GET("/1")), RX(100, SSE_HEAD "3\r\none\r\n"), GAP(DIR_RX, 300, UNKNOWN_BYTES),
		      RX(300, "5\r\nthree\r\n0\r\n\r\n"), TX(1000, GET("/2")), RX(1100, OK(1) "2")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 < 200 n=2 @100\n"
			  "1 < @100 one\n"
			  "1 < gap -1\n"
			  "1 < @300 three\n"
			  "1 < end 103 @300\n"
			  "2 GET /2 host=h n=1 @1000/1000\n"
			  "2 > end 28 @1000\n"
			  "2 < 200 n=1 @1100\n"
			  "2 < @1100 2\n"
			  "2 < end 39 @1100\n",
	},
	{
		.name = "unknown loss swallows the end of a response",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, GET("/1")), RX(100, SSE_HEAD "3\r\none\r\n"), GAP(DIR_RX, 1100, UNKNOWN_BYTES),
		      TX(1000, GET("/2")), RX(1100, OK(1) "2"), TX(1200, GET("/3")), RX(1300, OK(1) "3")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 < 200 n=2 @100\n"
			  "1 < @100 one\n"
			  "1 < gap -1\n"
			  "2 GET /2 host=h n=1 @1000/1000\n"
			  "2 > end 28 @1000\n"
			  "1 abort loss 88 @100\n"
			  "2 < 200 n=1 @1100\n"
			  "2 < @1100 2\n"
			  "2 < end 39 @1100\n"
			  "3 GET /3 host=h n=1 @1200/1200\n"
			  "3 > end 28 @1200\n"
			  "3 < 200 n=1 @1300\n"
			  "3 < @1300 3\n"
			  "3 < end 39 @1300\n",
	},
	{
		.name = "known loss inside a chunk keeps step",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, GET("/1")), RX(100, SSE_HEAD "a\r\n01"), GAP(DIR_RX, 100, 6), RX(110, "89\r\n3\r\n"),
		      GAP(DIR_RX, 120, 3), RX(130, "\r\n0\r\n\r\n")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 < 200 n=2 @100\n"
			  "1 < @100 01\n"
			  "1 < gap 6\n"
			  "1 < @110 89\n"
			  "1 < gap 3\n"
			  "1 < end 108 @130\n",
	},
	{
		.name = "known loss over the end of a body into the next head",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, GET("/1")), RX(100, OK(4) "ab"), GAP(DIR_RX, 200, 10), TX(150, GET("/2")),
		      RX(200, "th: 1\r\n\r\n2"), TX(300, GET("/3")), RX(400, OK(1) "3")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 < 200 n=1 @100\n"
			  "1 < @100 ab\n"
			  "1 < gap 2\n"
			  "1 < end 42 @100\n"
			  "2 GET /2 host=h n=1 @150/150\n"
			  "2 > end 28 @150\n"
			  "2 < gap -1\n"
			  "3 GET /3 host=h n=1 @300/300\n"
			  "3 > end 28 @300\n"
			  "2 abort loss 0 @200\n"
			  "3 < 200 n=1 @400\n"
			  "3 < @400 3\n"
			  "3 < end 39 @400\n",
	},
	{
		.name = "a head is lost: what follows is its exchange's, and that ends with it",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, GET("/1")), GAP(DIR_RX, 100, UNKNOWN_BYTES), RX(200, "th: 9\r\n\r\n1"), TX(300, GET("/2")),
		      GAP(DIR_RX, 400, UNKNOWN_BYTES), RX(450, "more"), RX(500, "and more")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 < gap -1\n"
			  "2 GET /2 host=h n=1 @300/300\n"
			  "2 > end 28 @300\n"
			  "1 abort loss 0 @200\n"
			  "2 abort loss 0 @500\n",
	},
	{
		.name = "a head is lost where several responses are awaited: whose bytes follow is not known",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, GET("/1") GET("/2")), GAP(DIR_RX, 100, UNKNOWN_BYTES), RX(200, "th: 9\r\n\r\n1")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "2 GET /2 host=h n=1 @0/0\n"
			  "2 > end 28 @0\n"
			  "1 < gap -1\n"
			  "1 abort loss 0 @0\n"
			  "2 abort loss 0 @0\n",
	},
	{
		.name = "a request is hidden by a loss: its response is nobody's",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, GET("/1")), RX(100, OK(1) "1"), GAP(DIR_TX, 500, UNKNOWN_BYTES), RX(300, OK(1) "2"),
		      TX(500, GET("/3")), RX(600, OK(1) "3")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 < 200 n=1 @100\n"
			  "1 < @100 1\n"
			  "1 < end 39 @100\n"
			  "2 GET /3 host=h n=1 @500/500\n"
			  "3 unseen @300\n"
			  "3 < 200 n=1 @300\n"
			  "3 < @300 2\n"
			  "3 < end 39 @300\n"
			  "2 > end 28 @500\n"
			  "2 < 200 n=1 @600\n"
			  "2 < @600 3\n"
			  "2 < end 39 @600\n",
	},
	{
		.name = "the same, requests told first",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, GET("/1")), GAP(DIR_TX, 500, 40), TX(500, GET("/3")), RX(100, OK(1) "1"),
		      RX(300, OK(1) "2"), RX(600, OK(1) "3")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "2 GET /3 host=h n=1 @500/500\n"
			  "2 > end 28 @500\n"
			  "1 < 200 n=1 @100\n"
			  "1 < @100 1\n"
			  "1 < end 39 @100\n"
			  "3 unseen @300\n"
			  "3 < 200 n=1 @300\n"
			  "3 < @300 2\n"
			  "3 < end 39 @300\n"
			  "2 < 200 n=1 @600\n"
			  "2 < @600 3\n"
			  "2 < end 39 @600\n",
	},
	{
		.name = "loss in a request body: the response still ends it",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, "POST /1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"),
		      GAP(DIR_TX, 10, UNKNOWN_BYTES), TX(10, "zz 0\r\n\r\n"), RX(100, OK(1) "1"), TX(200, GET("/2")),
		      RX(300, OK(1) "2")),
		.golden = "1 POST /1 host= n=1 @0/0\n"
			  "1 > @0 abcd\n"
			  "1 > gap -1\n"
			  "1 < 200 n=1 @100\n"
			  "1 < @100 1\n"
			  "1 < end 39 @100\n"
			  "2 GET /2 host=h n=1 @200/200\n"
			  "2 > end 28 @200\n"
			  "2 < 200 n=1 @300\n"
			  "2 < @300 2\n"
			  "2 < end 39 @300\n",
	},
	{
		.name = "after a loss, text that looks like a request gets no response",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, POST(200)), GAP(DIR_TX, 1, UNKNOWN_BYTES), TX(1, "say \nGET /phantom HTTP/1.1\r\n\r\n"),
		      RX(100, OK(1) "1"), TX(200, GET("/2")), RX(300, OK(1) "2")),
		.golden = "1 POST /v1/messages host=api.test n=2 @0/0\n"
			  "1 > gap -1\n"
			  "2 GET /phantom host= n=0 @1/1\n"
			  "2 > end 25 @1\n"
			  "1 < 200 n=1 @100\n"
			  "1 < @100 1\n"
			  "1 < end 39 @100\n"
			  "3 GET /2 host=h n=1 @200/200\n"
			  "3 > end 28 @200\n"
			  "2 abort loss 0 @1\n"
			  "3 < 200 n=1 @300\n"
			  "3 < @300 2\n"
			  "3 < end 39 @300\n",
	},
	{
		.name = "loss of responses on a connection that pipelines",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, GET("/1") GET("/2") GET("/3")), RX(100, OK(1) "1"), GAP(DIR_RX, 110, UNKNOWN_BYTES),
		      RX(110, OK(1) "?"), TX(200, GET("/4")), RX(300, OK(1) "4")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "2 GET /2 host=h n=1 @0/0\n"
			  "2 > end 28 @0\n"
			  "3 GET /3 host=h n=1 @0/0\n"
			  "3 > end 28 @0\n"
			  "1 < 200 n=1 @100\n"
			  "1 < @100 1\n"
			  "1 < end 39 @100\n"
			  "2 < gap -1\n"
			  "2 abort loss 0 @0\n"
			  "3 abort loss 0 @0\n"
			  "4 GET /4 host=h n=1 @200/200\n"
			  "5 unseen @110\n"
			  "5 < 200 n=1 @110\n"
			  "5 < @110 ?\n"
			  "5 < end 39 @110\n"
			  "4 > end 28 @200\n"
			  "4 < 200 n=1 @300\n"
			  "4 < @300 4\n"
			  "4 < end 39 @300\n",
	},
	{
		.name = "loss of requests on a connection that pipelines",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, GET("/1") GET("/2")), GAP(DIR_TX, 10, UNKNOWN_BYTES), TX(10, GET("/4")),
		      RX(100, OK(1) "1" OK(1) "2")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "2 GET /2 host=h n=1 @0/0\n"
			  "2 > end 28 @0\n"
			  "1 < 200 n=1 @100\n"
			  "1 < @100 1\n"
			  "1 < end 39 @100\n"
			  "2 < 200 n=1 @100\n"
			  "2 < @100 2\n"
			  "2 < end 39 @100\n",
	},
	{
		.name = "garbage where a response should be",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		.errors = 1,
		STEPS(TX(0, GET("/1")), RX(10, "junk that is no HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"),
		      TX(20, GET("/2")), RX(30, OK(1) "2")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 < gap -1\n"
			  "1 < 200 n=1 @10\n"
			  "1 < @10 1\n"
			  "1 < end 39 @10\n"
			  "2 GET /2 host=h n=1 @20/20\n"
			  "2 > end 28 @20\n"
			  "2 < 200 n=1 @30\n"
			  "2 < @30 2\n"
			  "2 < end 39 @30\n",
	},
	{
		.name = "chunk size that is none; then the next call",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		.errors = 1,
		STEPS(TX(0, GET("/1")), RX(10, SSE_HEAD "5\r\nhello\r\nxyz\r\n"), TX(20, GET("/2")), RX(30, OK(1) "2")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 < 200 n=2 @10\n"
			  "1 < @10 hello\n"
			  "1 abort parse 90 @10\n"
			  "2 GET /2 host=h n=1 @20/20\n"
			  "2 > end 28 @20\n"
			  "2 < 200 n=1 @30\n"
			  "2 < @30 2\n"
			  "2 < end 39 @30\n",
	},
	{
		.name = "lengths that differ",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		.errors = 2,
		STEPS(TX(0, "POST /1 HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
		      RX(10, "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab"), TX(20, GET("/2")),
		      RX(30, OK(1) "2")),
		.golden = "1 POST /1 host= n=2 @0/0\n"
			  "1 > gap -1\n"
			  "1 < 200 n=1 @10\n"
			  "1 abort parse 41 @10\n"
			  "2 GET /2 host=h n=1 @20/20\n"
			  "2 > end 28 @20\n"
			  "2 < 200 n=1 @30\n"
			  "2 < @30 2\n"
			  "2 < end 39 @30\n",
	},
	{
		.name = "coding beats length, in whatever order",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, "POST /1 HTTP/1.1\r\nContent-Length: 99\r\nTransfer-Encoding: "
			    "chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
		      RX(10, "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: "
			     "2\r\n\r\n1\r\nx\r\n0\r\n\r\n")),
		.golden = "1 POST /1 host= n=2 @0/0\n"
			  "1 > @0 ab\n"
			  "1 > end 80 @0\n"
			  "1 < 200 n=2 @10\n"
			  "1 < @10 x\n"
			  "1 < end 77 @10\n",
	},
	{
		.name = "header line that is none",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		.errors = 1,
		STEPS(TX(0, "GET /1 HTTP/1.1\r\nHost: a\r\nno colon here\r\n\r\n" GET("/2")), RX(30, OK(1) "2")),
		.golden = "1 unreadable GET /1 @0\n"
			  "2 GET /2 host=h n=1 @0/0\n"
			  "2 > end 28 @0\n"
			  "1 < 200 n=1 @30\n"
			  "1 < @30 2\n"
			  "1 < end 39 @30\n"
			  "2 abort closed 0 @9000\n",
	},
	{
		.name = "a head that does not end, and is answered",
		.server = true,
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 12000,
		STEPS(RX(0, GET("/1")), TX(10, OK(0)), RX(20, "POST /2 HTTP/1.1\r\nHost: a\r\nCook"),
		      TX(9000, "HTTP/1.1 408 Late\r\nContent-Length: 0\r\n\r\n")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 < 200 n=1 @10\n"
			  "1 < end 38 @10\n"
			  "2 unreadable POST /2 @20\n"
			  "2 < 408 n=1 @9000\n"
			  "2 < end 40 @9000\n",
	},
	{
		.name = "not even its first line",
		.server = true,
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 9500,
		STEPS(RX(0, GET("/1")), TX(10, OK(0)), RX(20, "POST /2 HT"),
		      TX(9000, "HTTP/1.1 408 Late\r\nContent-Length: 0\r\n\r\n")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 < 200 n=1 @10\n"
			  "1 < end 38 @10\n"
			  "2 unseen @9000\n"
			  "2 < 408 n=1 @9000\n"
			  "2 < end 40 @9000\n",
	},
	{
		.name = "header line of a response that is none",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		.errors = 1,
		STEPS(TX(0, GET("/1")), RX(30, "HTTP/1.1 200 OK\r\nno colon here\r\n\r\nabc"), TX(40, GET("/2")),
		      RX(50, OK(1) "2")),
		.golden = "1 GET /1 host=h n=1 @0/0\n"
			  "1 > end 28 @0\n"
			  "1 abort parse 0 @30\n"
			  "2 GET /2 host=h n=1 @40/40\n"
			  "2 > end 28 @40\n"
			  "2 < 200 n=1 @50\n"
			  "2 < @50 2\n"
			  "2 < end 39 @50\n",
	},
	{
		.name = "upgrade to another protocol",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, "GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
		      TX(5, "\xc1\x80"
			    "early"),
		      RX(50, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x02hi"),
		      TX(60, GET("/not"))),
		.golden = "1 GET /ws host= n=2 @0/0\n"
			  "1 > end 61 @0\n"
			  "1 < 101 n=1 @50\n"
			  "1 abort upgrade 56 @50\n",
	},
	{
		.name = "CONNECT granted, and not",
		.why = HTTP_ABORT_CLOSED,
		.end_ms = 9000,
		STEPS(TX(0, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"),
		      RX(10, "HTTP/1.1 407 Auth\r\nContent-Length: 2\r\n\r\nno"),
		      TX(20, "CONNECT a:443 HTTP/1.1\r\n\r\n"),
		      RX(30, "HTTP/1.1 200 Yes\r\nContent-Length: 2\r\n\r\n\x16\x03"), TX(40, "\x16\x03" GET("/"))),
		.golden = "1 CONNECT a:443 host=a:443 n=1 @0/0\n"
			  "1 > end 39 @0\n"
			  "1 < 407 n=1 @10\n"
			  "1 < @10 no\n"
			  "1 < end 42 @10\n"
			  "2 CONNECT a:443 host= n=0 @20/20\n"
			  "2 > end 26 @20\n"
			  "2 < 200 n=1 @30\n"
			  "2 abort upgrade 39 @30\n",
	},
	{
		.name = "the traced program is the server",
		.server = true,
		.why = HTTP_ABORT_CLIENT,
		.end_ms = 9000,
		STEPS({DIR_RX, 0, 100, POST(2) "ab", 0, HTTP_GAP_LOST, 0},
		      {DIR_TX, 150, 151, OK(2) "ok", 0, HTTP_GAP_LOST, 0}),
		.golden = "1 POST /v1/messages host=api.test n=2 @0/100\n"
			  "1 > @100 ab\n"
			  "1 > end 67 @100\n"
			  "1 < 200 n=1 @151\n"
			  "1 < @151 ok\n"
			  "1 < end 40 @151\n",
	},
};
static const size_t scenario_count = ARRAY_SIZE(scenarios);

#endif
