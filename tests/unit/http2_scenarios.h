/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_HTTP2_SCENARIOS_H
#define TEST_HTTP2_SCENARIOS_H

/* What connections carry, and what must be told of it. */

#include "http2_wire.h"

#include "flow/proto/http2.h"

struct scenario {
	const char *name;
	void (*build)(struct wire *w);
	bool middle;
	enum http2_client client;
	unsigned errors;
	const char *golden;
};

static void build_simple(struct wire *w)
{
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_TX, 10);
	wire_headers(w, 0, 1, WIRE_POST("/v1/messages"));
	wire_at(w, DIR_TX, 11);
	wire_data(w, 0, 1, "{\"a\":");
	wire_data(w, F_END, 1, "1}");
	wire_at(w, DIR_RX, 100);
	wire_headers(w, 0, 1, WIRE_OK);
	wire_data(w, 0, 1, "data: a\n\n");
	wire_at(w, DIR_RX, 150);
	wire_data(w, 0, 1, "data: b\n\n");
	wire_at(w, DIR_RX, 200);
	wire_data(w, F_END, 1, "");
	wire_at(w, DIR_TX, 300);
	wire_headers(w, F_END, 3, ":method: GET\n:scheme: https\n:path: /v1/models\nhost: api.test\nx-a: \n");
	wire_at(w, DIR_RX, 400);
	wire_headers(w, F_END, 3, ":status: 204\n");
}

static void build_framing(struct wire *w)
{
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_TX, 10);
	wire_headers_cut(w, F_PADDED | F_PRIORITY, 1, WIRE_POST("/p") "x-long: abcdefghijklmnopqrstuvwxyz0123456789\n",
			 9);
	wire_frame(w, 0xfe, 0xff, 77, "grease", 6);
	wire_padded_data(w, 0, 1, "abc", 20);
	wire_frame(w, W_PING, 0, 0, "pingpong", 8);
	wire_data(w, 0, 1, "");
	wire_padded_data(w, 0, 1, "", 0);
	wire_frame(w, W_PRIORITY, 0, 1, "\0\0\0\3\4", 5);
	wire_padded_data(w, F_END, 1, "d", 1);
	wire_at(w, DIR_RX, 50);
	wire_headers(w, 0, 1, ":status: 103\nlink: x\n");
	wire_at(w, DIR_RX, 60);
	wire_headers_cut(w, F_PRIORITY, 1, WIRE_OK, 0);
	wire_number(w, W_WINDOW, 1, 100);
	wire_data(w, 0, 1, "body");
	wire_at(w, DIR_RX, 70);
	wire_headers(w, F_END, 1, "x-checksum: 1\nx-b: 2\n");
}

static void build_multiplex(struct wire *w)
{
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_TX, 10);
	wire_headers(w, 0, 1, WIRE_POST("/m?a"));
	wire_headers(w, 0, 3, WIRE_POST("/m?b"));
	wire_data(w, F_END, 1, "A");
	wire_headers(w, F_END, 5, WIRE_POST("/m?c"));
	wire_data(w, F_END, 3, "B");
	wire_headers(w, F_END, 7, WIRE_POST("/m?d"));
	wire_at(w, DIR_RX, 100);
	wire_headers(w, 0, 5, WIRE_OK);
	wire_headers(w, 0, 1, WIRE_OK);
	wire_data(w, 0, 5, "c1");
	wire_headers(w, 0, 3, WIRE_OK);
	wire_data(w, F_END, 1, "a1");
	wire_data(w, 0, 3, "b1");
	wire_at(w, DIR_TX, 150);
	wire_number(w, W_RST, 3, 8);
	wire_at(w, DIR_RX, 200);
	wire_data(w, F_END, 3, "late");
	wire_data(w, F_END, 5, "c2");
	wire_goaway(w, 5);
	wire_at(w, DIR_TX, 300);
	wire_goaway(w, 0);
}

/* The answer is read before the write of its request returned; and one that never gets a request. */
static void build_response_first(struct wire *w)
{
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_RX, 20);
	wire_headers(w, 0, 1, WIRE_OK);
	wire_data(w, F_END, 1, "early");
	wire_at(w, DIR_TX, 30);
	w->steps[w->count - 1].entry_ms = 10;
	wire_headers(w, 0, 1, WIRE_POST("/late"));
	wire_data(w, F_END, 1, "q");
	wire_at(w, DIR_RX, 100);
	wire_headers(w, 0, 3, WIRE_OK);
	wire_data(w, F_END, 3, "nobody's");
	wire_at(w, DIR_RX, 1200);
	wire_frame(w, W_PING, 0, 0, "pingpong", 8);
	wire_at(w, DIR_TX, 1300);
	wire_headers(w, F_END, 3, WIRE_POST("/too-late"));
	wire_headers(w, F_END, 5, WIRE_POST("/next"));
	wire_at(w, DIR_RX, 1400);
	wire_headers(w, F_END, 5, ":status: 404\n");
}

/* The program is the server; the peer resets, and the program refuses. */
static void build_server(struct wire *w)
{
	wire_open(w, DIR_RX, 0);
	wire_at(w, DIR_RX, 10);
	wire_headers(w, F_END, 1, WIRE_POST("/served"));
	wire_headers(w, F_END, 3, WIRE_POST("/reset"));
	wire_headers(w, 0, 5, WIRE_POST("/refused"));
	wire_at(w, DIR_TX, 20);
	wire_headers(w, 0, 1, WIRE_OK);
	wire_data(w, F_END, 1, "x");
	wire_number(w, W_RST, 5, 7);
	wire_at(w, DIR_RX, 30);
	wire_number(w, W_RST, 3, 8);
	wire_data(w, F_END, 5, "still sent");
}

/* A whole answer before the request is at its end; a reset without an error is none. Push is passed over. */
static void build_early_answer(struct wire *w)
{
	uint8_t block[200];
	size_t n;

	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_TX, 10);
	wire_headers(w, 0, 1, WIRE_POST("/early"));
	wire_data(w, 0, 1, "part");
	wire_at(w, DIR_RX, 20);
	n = wire_block(w, ":method: GET\n:path: /pushed\nx-pushed: 1\n", block, sizeof(block));
	wire_header(w, W_PUSH, F_END_HEADERS, 1, n + 4);
	wire_raw(w, "\0\0\0\2", 4);
	wire_raw(w, block, n);
	wire_headers(w, F_END, 1, ":status: 413\nx-pushed: 1\n");
	wire_headers(w, 0, 2, WIRE_OK);
	wire_data(w, F_END, 2, "pushed");
	wire_number(w, W_RST, 1, 0);
	wire_at(w, DIR_TX, 30);
	wire_data(w, F_END, 1, "ial");
	wire_headers(w, 0, 3, WIRE_POST("/trailers"));
	wire_data(w, 0, 3, "body");
	wire_headers(w, F_END, 3, "x-t: 1\n");
	wire_at(w, DIR_RX, 40);
	wire_headers(w, F_END, 3, WIRE_OK);
	wire_at(w, DIR_TX, 50);
	wire_headers(w, 0, 5, WIRE_POST("/waits"));
	wire_at(w, DIR_RX, 60);
	wire_headers(w, F_END, 5, WIRE_OK);
	wire_at(w, DIR_TX, 2000);
	wire_data(w, 0, 5, "y");
}

static void build_connect(struct wire *w)
{
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_TX, 10);
	wire_headers(
		w, 0, 1,
		":method: CONNECT\n:protocol: websocket\n:scheme: https\n:path: /ws\n:authority: api.test\nx-a: 1\n");
	wire_headers(w, 0, 3, ":method: CONNECT\n:authority: far.test:443\n");
	wire_at(w, DIR_RX, 20);
	wire_headers(w, 0, 1, WIRE_OK);
	wire_data(w, 0, 1, "f1");
	wire_headers(w, F_END, 3, ":status: 403\n");
	wire_at(w, DIR_TX, 30);
	wire_data(w, F_END, 3, "");
	wire_data(w, 0, 1, "f2");
	wire_data(w, F_END, 1, "f3");
	wire_at(w, DIR_RX, 40);
	wire_data(w, F_END, 1, "f4");
}

/* Encoders shrink, clear and enlarge their tables. */
static void build_table_size(struct wire *w)
{
	wire_open(w, DIR_TX, 0);
	for (uint32_t i = 0; i < 6; i++) {
		static const size_t sizes[] = {4096, 0, 100, 4096, 50, 1000};

		nghttp2_hd_deflate_change_table_size(w->deflater[DIR_TX], sizes[i]);
		if (i == 3)
			nghttp2_hd_deflate_change_table_size(w->deflater[DIR_RX], 0);
		wire_at(w, DIR_TX, 10 + 10 * i);
		wire_headers(w, F_END, 1 + 2 * i, WIRE_POST("/size") "x-same: 1\n");
		wire_at(w, DIR_RX, 15 + 10 * i);
		wire_headers(w, F_END, 1 + 2 * i, WIRE_OK "x-other: 2\n");
	}
}

/* Met in the middle: a response under way, then a call. */
static void build_middle(struct wire *w)
{
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_TX, 1);
	wire_headers(w, F_END, 1, WIRE_POST("/before"));
	wire_at(w, DIR_RX, 2);
	wire_headers(w, 0, 1, WIRE_OK);
	w->count = 0; /* none of that is seen */
	wire_at(w, DIR_RX, 10);
	wire_text(w, "rest of a frame\n\n");
	wire_data(w, 0, 1, "data: x\n\n");
	wire_at(w, DIR_RX, 20);
	wire_data(w, 0, 1, "data: y\n\n");
	wire_at(w, DIR_TX, 30);
	wire_number(w, W_WINDOW, 0, 20);
	wire_at(w, DIR_RX, 40);
	wire_data(w, F_END, 1, "data: z\n\n");
	wire_at(w, DIR_TX, 50);
	wire_headers(w, 0, 3, WIRE_POST("/before") "x-new: 1\n");
	wire_data(w, F_END, 3, "{}");
	wire_at(w, DIR_RX, 60);
	wire_headers(w, 0, 3, WIRE_OK "x-new: 2\n");
	wire_data(w, F_END, 3, "{}");
	wire_at(w, DIR_TX, 70);
	wire_headers(w, F_END, 5, WIRE_POST("/after") "x-new: 1\n");
	wire_at(w, DIR_RX, 80);
	wire_headers(w, F_END, 5, WIRE_OK "x-new: 2\n");
}

/* The same of a server whose role is not known. */
static void build_middle_server(struct wire *w)
{
	wire_open(w, DIR_RX, 0);
	w->count = 0;
	wire_at(w, DIR_RX, 5);
	wire_data(w, F_END, 1, "{\"old\":1}");
	wire_at(w, DIR_TX, 8);
	wire_data(w, F_END, 1, "old answer");
	wire_at(w, DIR_RX, 10);
	wire_headers(w, 0, 3, WIRE_POST("/served"));
	wire_data(w, F_END, 3, "q");
	wire_at(w, DIR_TX, 20);
	wire_headers(w, 0, 3, WIRE_OK);
	wire_data(w, F_END, 3, "a");
}

/* Of statuses that the table holds from before, the first of two is a 1xx; whether the only one is, the next frame
 * says. */
static void build_doubtful(struct wire *w)
{
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_RX, 2);
	wire_headers(w, 0, 1, ":status: 103\n");
	wire_headers(w, F_END, 1, ":status: 207\n");
	w->count = 0; /* none of that is seen */
	wire_at(w, DIR_TX, 10);
	wire_headers(w, F_END, 3, WIRE_POST("/one"));
	wire_headers(w, F_END, 5, WIRE_POST("/two"));
	wire_headers(w, F_END, 7, WIRE_POST("/three"));
	wire_headers(w, F_END, 9, WIRE_POST("/four"));
	wire_at(w, DIR_RX, 20);
	wire_headers(w, 0, 3, ":status: 103\n");
	wire_headers(w, 0, 5, ":status: 103\n");
	wire_headers(w, 0, 5, ":status: 103\n");
	wire_headers(w, 0, 7, ":status: 207\nx-new: 1\n");
	wire_headers(w, 0, 9, ":status: 207\n");
	wire_at(w, DIR_RX, 30);
	wire_headers(w, 0, 3, ":status: 200\n");
	wire_data(w, F_END, 3, "one");
	wire_headers(w, 0, 5, ":status: 207\nx-new: 1\n");
	wire_data(w, F_END, 5, "two");
	wire_headers(w, F_END, 7, "x-trailer: 1\n");
	wire_at(w, DIR_RX, 40);
	wire_data(w, F_END, 9, "four");
}

/* The length that was announced came, END_STREAM did not: to the end, until a reset, and one byte less. */
static void build_length(struct wire *w)
{
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_TX, 10);
	wire_headers(w, F_END, 1, WIRE_POST("/one"));
	wire_headers(w, F_END, 3, WIRE_POST("/two"));
	wire_headers(w, F_END, 5, WIRE_POST("/three"));
	wire_at(w, DIR_RX, 20);
	wire_headers(w, 0, 1, ":status: 200\ncontent-length: 4\n");
	wire_headers(w, 0, 3, ":status: 200\ncontent-length: 4\n");
	wire_headers(w, 0, 5, ":status: 200\ncontent-length: 4\n");
	wire_data(w, 0, 1, "bo");
	wire_padded_data(w, 0, 3, "body", 7);
	wire_data(w, 0, 5, "bod");
	wire_at(w, DIR_RX, 30);
	wire_data(w, 0, 1, "dy");
	wire_at(w, DIR_TX, 40);
	wire_number(w, W_RST, 3, 8);
}

/* A gap inside one DATA frame; then one that hides framing, in each direction. */
static void build_lost(struct wire *w)
{
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_TX, 10);
	wire_headers(w, F_END, 1, WIRE_POST("/one"));
	wire_headers(w, F_END, 3, WIRE_POST("/two"));
	wire_headers(w, 0, 5, WIRE_POST("/three"));
	wire_at(w, DIR_RX, 20);
	wire_headers(w, 0, 1, WIRE_OK);
	wire_header(w, W_DATA, F_END, 1, 10);
	wire_text(w, "abc");
	wire_gap(w, DIR_RX, 21, 5);
	wire_at(w, DIR_RX, 22);
	wire_text(w, "xy");
	wire_headers(w, 0, 3, WIRE_OK);
	wire_data(w, 0, 3, "before");
	wire_gap(w, DIR_RX, 30, 1000);
	wire_at(w, DIR_RX, 40);
	wire_data(w, 0, 3, "behind");
	wire_headers(w, 0, 5, WIRE_OK "x-new: 2\n");
	wire_at(w, DIR_RX, 50);
	wire_data(w, F_END, 5, "three");
	wire_gap(w, DIR_TX, 60, UNKNOWN_BYTES);
	wire_at(w, DIR_TX, 70);
	wire_headers(w, F_END, 11, WIRE_POST("/one") "x-new: 1\n");
	wire_at(w, DIR_RX, 80);
	wire_headers(w, F_END, 9, ":status: 500\n");
	wire_headers(w, F_END, 9, ":status: 500\n");
	wire_headers(w, F_END, 11, ":status: 200\n");
}

/*
 * What a server wrote in one call, over the limit: with its frames' headers, and without. Who has as much as
 * content-length says may reset the stream before it is ended; and who resets one whose end may have gone by is not
 * known to have cut it.
 */
static void build_capped(struct wire *w)
{
	wire_open(w, DIR_RX, 0);
	wire_at(w, DIR_RX, 10);
	wire_headers(w, F_END, 1, WIRE_POST("/whole"));
	wire_headers(w, F_END, 3, WIRE_POST("/ended"));
	wire_headers(w, F_END, 5, WIRE_POST("/hidden"));
	wire_headers(w, F_END, 7, WIRE_POST("/reset"));
	wire_at(w, DIR_TX, 20);
	wire_headers(w, 0, 1, WIRE_OK "content-length: 40\n");
	wire_header(w, W_DATA, 0, 1, 20);
	wire_text(w, "before");
	wire_capped(w, DIR_TX, 20, 14);
	wire_at(w, DIR_TX, 20);
	wire_header(w, W_DATA, 0, 1, 20);
	wire_capped(w, DIR_TX, 20, 20);
	wire_at(w, DIR_TX, 30);
	wire_headers(w, 0, 3, WIRE_OK);
	wire_header(w, W_DATA, F_END, 3, 70000);
	wire_capped(w, DIR_TX, 30, 70000);
	wire_at(w, DIR_RX, 40);
	wire_number(w, W_RST, 1, 5);
	wire_at(w, DIR_TX, 50);
	wire_headers(w, 0, 5, WIRE_OK "content-length: 100\n");
	wire_header(w, W_DATA, 0, 5, 50);
	wire_capped(w, DIR_TX, 50, 109);
	wire_at(w, DIR_RX, 60);
	wire_number(w, W_RST, 5, 5);
	wire_at(w, DIR_TX, 70);
	wire_headers(w, 0, 7, WIRE_OK);
	wire_data(w, 0, 7, "part");
	wire_at(w, DIR_RX, 80);
	wire_number(w, W_RST, 7, 8);
}

static const struct scenario scenarios[] = {
	{
		.name = "simple",
		.build = build_simple,
		.golden = "1 POST /v1/messages host=api.test n=1 @10/10\n"
			  "1 > @11 {\"a\":1}\n"
			  "1 > end 68 @11\n"
			  "1 < 200 n=1 @100\n"
			  "1 < @100 data: a\\x0a\\x0a\n"
			  "1 < @150 data: b\\x0a\\x0a\n"
			  "1 < end 69 @200\n"
			  "2 GET /v1/models host=api.test n=2 @300/300\n"
			  "2 > end 35 @300\n"
			  "2 < 204 n=0 @400\n"
			  "2 < end 10 @400\n",
	},
	{
		.name = "framing",
		.build = build_framing,
		.golden = "1 POST /p host=api.test n=2 @10/10\n"
			  "1 > @10 abcd\n"
			  "1 > end 202 @10\n"
			  "1 < 200 n=1 @60\n"
			  "1 < @60 body\n"
			  "1 < end 79 @70\n",
	},
	{
		.name = "multiplex",
		.build = build_multiplex,
		.golden = "1 POST /m?a host=api.test n=1 @10/10\n"
			  "2 POST /m?b host=api.test n=1 @10/10\n"
			  "1 > @10 A\n"
			  "1 > end 48 @10\n"
			  "3 POST /m?c host=api.test n=1 @10/10\n"
			  "3 > end 19 @10\n"
			  "2 > @10 B\n"
			  "2 > end 29 @10\n"
			  "4 POST /m?d host=api.test n=1 @10/10\n"
			  "4 > end 19 @10\n"
			  "3 < 200 n=1 @100\n"
			  "1 < 200 n=1 @100\n"
			  "3 < @100 c1\n"
			  "2 < 200 n=1 @100\n"
			  "1 < @100 a1\n"
			  "1 < end 22 @100\n"
			  "2 < @100 b1\n"
			  "2 abort client 22 @150\n"
			  "3 < @200 c2\n"
			  "3 < end 46 @200\n"
			  "4 abort server 0 @200\n",
	},
	{
		.name = "response first",
		.build = build_response_first,
		.golden = "1 POST /late host=api.test n=1 @10/30\n"
			  "1 < 200 n=1 @20\n"
			  "1 < @20 early\n"
			  "1 > @30 q\n"
			  "1 > end 48 @30\n"
			  "1 < end 38 @20\n"
			  "2 unseen @100\n"
			  "2 < 200 n=1 @100\n"
			  "2 < @100 nobody's\n"
			  "2 < end 28 @100\n"
			  "3 POST /next host=api.test n=1 @1300/1300\n"
			  "3 > end 19 @1300\n"
			  "3 < 404 n=0 @1400\n"
			  "3 < end 10 @1400\n",
	},
	{
		.name = "server",
		.build = build_server,
		.client = HTTP2_CLIENT_RX,
		.golden = "1 POST /served host=api.test n=1 @10/10\n"
			  "1 > end 39 @10\n"
			  "2 POST /reset host=api.test n=1 @10/10\n"
			  "2 > end 19 @10\n"
			  "3 POST /refused host=api.test n=1 @10/10\n"
			  "1 < 200 n=1 @20\n"
			  "1 < @20 x\n"
			  "1 < end 34 @20\n"
			  "3 abort client 0 @20\n"
			  "2 abort server 0 @30\n",
	},
	{
		.name = "early answer",
		.build = build_early_answer,
		.golden = "1 POST /early host=api.test n=1 @10/10\n"
			  "1 > @10 part\n"
			  "1 < 413 n=1 @20\n"
			  "1 < end 15 @20\n"
			  "2 POST /trailers host=api.test n=1 @30/30\n"
			  "2 > @30 body\n"
			  "2 > end 51 @30\n"
			  "2 < 200 n=1 @40\n"
			  "2 < end 11 @40\n"
			  "3 POST /waits host=api.test n=1 @50/50\n"
			  "3 < 200 n=1 @60\n"
			  "3 > @2000 y\n"
			  "3 < end 11 @60\n",
	},
	{
		.name = "connect",
		.build = build_connect,
		.golden = "1 CONNECT /ws host=api.test n=2 @10/10\n"
			  "2 CONNECT far.test:443 host=far.test:443 n=0 @10/10\n"
			  "1 < 200 n=1 @20\n"
			  "1 abort upgrade 24 @20\n"
			  "1001 < @20 f1\n"
			  "2 < 403 n=0 @20\n"
			  "2 > end 30 @30\n"
			  "2 < end 14 @20\n"
			  "1001 > @30 f2f3\n"
			  "1001 < @40 f4\n"
			  "1001 abort closed 0 @40\n",
	},
	{
		.name = "table size",
		.build = build_table_size,
		.golden = "1 POST /size host=api.test n=2 @10/10\n"
			  "1 > end 50 @10\n"
			  "1 < 200 n=2 @15\n"
			  "1 < end 33 @15\n"
			  "2 POST /size host=api.test n=2 @20/20\n"
			  "2 > end 49 @20\n"
			  "2 < 200 n=2 @25\n"
			  "2 < end 12 @25\n"
			  "3 POST /size host=api.test n=2 @30/30\n"
			  "3 > end 49 @30\n"
			  "3 < 200 n=2 @35\n"
			  "3 < end 12 @35\n"
			  "4 POST /size host=api.test n=2 @40/40\n"
			  "4 > end 30 @40\n"
			  "4 < 200 n=2 @45\n"
			  "4 < end 35 @45\n"
			  "5 POST /size host=api.test n=2 @50/50\n"
			  "5 > end 43 @50\n"
			  "5 < 200 n=2 @55\n"
			  "5 < end 34 @55\n"
			  "6 POST /size host=api.test n=2 @60/60\n"
			  "6 > end 43 @60\n"
			  "6 < 200 n=2 @65\n"
			  "6 < end 34 @65\n",
	},
	{
		.name = "middle",
		.build = build_middle,
		.middle = true,
		.client = HTTP2_CLIENT_UNKNOWN,
		.golden = "1 unseen @10\n"
			  "1 < gap -1\n"
			  "1 < @10 data: x\\x0a\\x0a\n"
			  "1 < @20 data: y\\x0a\\x0a\n"
			  "1 < @40 data: z\\x0a\\x0a\n"
			  "1 < end 54 @40\n"
			  "2 POST /before host= n=1 @50/50\n"
			  "2 > @50 {}\n"
			  "2 > end 39 @50\n"
			  "2 < 200 n=1 @60\n"
			  "2 < @60 {}\n"
			  "2 < end 30 @60\n"
			  "3 POST /after host= n=1 @70/70\n"
			  "3 > end 21 @70\n"
			  "3 < 200 n=1 @80\n"
			  "3 < end 12 @80\n",
	},
	{
		.name = "middle server",
		.build = build_middle_server,
		.middle = true,
		.client = HTTP2_CLIENT_UNKNOWN,
		.golden = "1 unseen @5\n"
			  "1 < gap -1\n"
			  "1 < @5 {\"old\":1}\n"
			  "1 < end 18 @5\n"
			  "2 POST /served host=api.test n=1 @10/10\n"
			  "2 > @10 q\n"
			  "2 > end 49 @10\n"
			  "2 < 200 n=1 @20\n"
			  "2 < @20 a\n"
			  "2 < end 34 @20\n",
	},
	{
		.name = "doubtful",
		.build = build_doubtful,
		.middle = true,
		.client = HTTP2_CLIENT_UNKNOWN,
		.golden = "1 POST /one host=api.test n=1 @10/10\n"
			  "1 > end 37 @10\n"
			  "2 POST /two host=api.test n=1 @10/10\n"
			  "2 > end 18 @10\n"
			  "3 POST /three host=api.test n=1 @10/10\n"
			  "3 > end 20 @10\n"
			  "4 POST /four host=api.test n=1 @10/10\n"
			  "4 > end 19 @10\n"
			  "1 < 200 n=0 @30\n"
			  "1 < @30 one\n"
			  "1 < end 22 @30\n"
			  "2 < 0 n=1 @30\n"
			  "2 < @30 two\n"
			  "2 < end 23 @30\n"
			  "3 < 0 n=1 @20\n"
			  "3 < end 38 @30\n"
			  "4 < 0 n=0 @20\n"
			  "4 < @40 four\n"
			  "4 < end 23 @40\n",
	},
	{
		.name = "length",
		.build = build_length,
		.golden = "1 POST /one host=api.test n=1 @10/10\n"
			  "1 > end 37 @10\n"
			  "2 POST /two host=api.test n=1 @10/10\n"
			  "2 > end 18 @10\n"
			  "3 POST /three host=api.test n=1 @10/10\n"
			  "3 > end 20 @10\n"
			  "1 < 200 n=1 @20\n"
			  "2 < 200 n=1 @20\n"
			  "3 < 200 n=1 @20\n"
			  "1 < @20 bo\n"
			  "2 < @20 body\n"
			  "3 < @20 bod\n"
			  "1 < @30 dy\n"
			  "2 < end 35 @20\n"
			  "1 < end 36 @30\n"
			  "3 abort closed 26 @5000\n",
	},
	{
		.name = "lost",
		.build = build_lost,
		.golden = "1 POST /one host=api.test n=1 @10/10\n"
			  "1 > end 37 @10\n"
			  "2 POST /two host=api.test n=1 @10/10\n"
			  "2 > end 18 @10\n"
			  "3 POST /three host=api.test n=1 @10/10\n"
			  "1 < 200 n=1 @20\n"
			  "1 < @20 abc\n"
			  "1 < gap 5\n"
			  "1 < @22 xy\n"
			  "1 < end 43 @22\n"
			  "2 < 200 n=1 @22\n"
			  "2 < @22 before\n"
			  "2 < gap -1\n"
			  "2 < @40 behind\n"
			  "3 < 200 n=1 @40\n"
			  "3 < @50 three\n"
			  "3 > gap -1\n"
			  "3 < end 33 @50\n"
			  "4 POST /one host= n=1 @70/70\n"
			  "4 > end 26 @70\n"
			  "5 unseen @80\n"
			  "5 < 500 n=0 @80\n"
			  "5 < end 10 @80\n"
			  "4 < 200 n=0 @80\n"
			  "4 < end 10 @80\n"
			  "2 abort loss 41 @40\n",
	},
	{
		.name = "writes of a server, over the limit",
		.build = build_capped,
		.client = HTTP2_CLIENT_RX,
		.golden = "1 POST /whole host=api.test n=1 @10/10\n"
			  "1 > end 39 @10\n"
			  "2 POST /ended host=api.test n=1 @10/10\n"
			  "2 > end 20 @10\n"
			  "3 POST /hidden host=api.test n=1 @10/10\n"
			  "3 > end 20 @10\n"
			  "4 POST /reset host=api.test n=1 @10/10\n"
			  "4 > end 19 @10\n"
			  "1 < 200 n=2 @20\n"
			  "1 < @20 before\n"
			  "1 < gap 14 capped\n"
			  "1 < gap 20 capped\n"
			  "2 < 200 n=1 @30\n"
			  "2 < gap 70000 capped\n"
			  "2 < end 70020 @30\n"
			  "1 < end 87 @20\n"
			  "3 < 200 n=2 @50\n"
			  "3 < gap -1 capped\n"
			  "3 abort loss 25 @50\n"
			  "4 < 200 n=0 @70\n"
			  "4 < @70 part\n"
			  "4 abort server 24 @80\n",
	},
};
static const size_t scenario_count = ARRAY_SIZE(scenarios);

#endif
