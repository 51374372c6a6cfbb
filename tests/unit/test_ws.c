/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "feed.h"

#include "ws_wire.h"

#include "base/buf.h"
#include "base/err.h"
#include "flow/proto/decode.h"
#include "flow/proto/ws.h"

/* --- the log ----------------------------------------------------------------------------------------------------- */

struct setup {
	enum dir client;
	struct ws_params *params;
};

static void log_message(struct tlog *l, const char *what, enum dir dir, const struct ws_message *m)
{
	tlog_printf(l, "%s %s %d%s%s %llu %llu-%llu ", dir == DIR_TX ? "tx" : "rx", what, m->opcode,
		    m->compressed ? " compressed" : "",
		    m->complete ? ""
		    : m->ended	? " ended"
				: " incomplete",
		    (unsigned long long)m->carried, (unsigned long long)m->first.ts_ns,
		    (unsigned long long)m->last.ts_ns);
	tlog_escaped(l, m->data.ptr, m->data.len < 40 ? m->data.len : 40);
	if (m->data.len > 40)
		tlog_printf(l, "... %zu", m->data.len);
	tlog_printf(l, "\n");
}

static void on_message(void *ctx, enum dir dir, const struct ws_message *m)
{
	log_message(ctx, "message", dir, m);
}

static void on_opaque(void *ctx, enum dir dir, const struct ws_message *m)
{
	log_message(ctx, "opaque", dir, m);
}

static void on_close(void *ctx, enum dir dir, int code, const struct stamp *at)
{
	tlog_printf(ctx, "%s close %d %llu\n", dir == DIR_TX ? "tx" : "rx", code, (unsigned long long)at->ts_ns);
}

static void on_undecoded(void *ctx, enum dir dir, const char *reason, const struct stamp *at)
{
	tlog_printf(ctx, "%s undecoded: %s %llu\n", dir == DIR_TX ? "tx" : "rx", reason, (unsigned long long)at->ts_ns);
}

static bool on_found(void *ctx, enum dir dir, const struct ws_message *m)
{
	bool found = sv_starts(m->data, SV("{\"type\":"));

	if (found)
		tlog_printf(ctx, "%s found\n", dir == DIR_TX ? "tx" : "rx");
	return found;
}

static void *open_parser(struct tlog *log, const void *arg)
{
	const struct setup *s = arg;

	return ws_new(s->client, s->params,
		      &(struct ws_sink){log, on_message, on_opaque, on_close, on_undecoded, on_found});
}

static int push(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	return ws_push(parser, dir, ptr, len, at);
}

static void gap(void *parser, enum dir dir, uint64_t len, const struct stamp *at)
{
	ws_gap(parser, dir, len, at);
}

static void close_parser(void *parser, struct tlog *log)
{
	ws_finish(parser);
	for (int i = 0; i < 2; i++) {
		const struct ws_counts *c = ws_counts(parser, (enum dir)i);

		if (c->bytes || c->gaps)
			tlog_printf(log, "%s %llu bytes, %llu frames (%llu), %llu messages, %llu opaque",
				    i == DIR_TX ? "tx" : "rx", (unsigned long long)c->bytes,
				    (unsigned long long)c->frames, (unsigned long long)c->control,
				    (unsigned long long)c->messages, (unsigned long long)c->opaque);
		if (c->gaps)
			tlog_printf(log, ", %llu gaps (%llu)", (unsigned long long)c->gaps,
				    (unsigned long long)c->hidden);
		if (c->bytes || c->gaps)
			tlog_printf(log, "%s\n", ws_given_up(parser, (enum dir)i) ? ", given up" : "");
	}
	ws_free(parser);
}

static struct feed feed_of(const struct setup *setup, const struct feed_segment *segments, size_t count)
{
	return (struct feed){.segments = segments,
			     .count = count,
			     .arg = setup,
			     .open = open_parser,
			     .push = push,
			     .gap = gap,
			     .close = close_parser};
}

static struct ws_params params_of(const char *extensions)
{
	struct ws_params p = {0};

	ws_params_add(&p, sv_of(extensions));
	return p;
}

static void check_feed(const struct setup *setup, const struct feed_segment *segments, size_t count, size_t full,
		       const char *golden)
{
	struct feed f = feed_of(setup, segments, count);

	feed_golden(&f, full, golden);
	feed_release(&f);
}

/* One direction's bytes in one segment at time 5. */
static void check_bytes(const char *extensions, bool client, const void *ptr, size_t len, const char *golden)
{
	struct ws_params params = params_of(extensions);
	struct setup setup = {DIR_TX, &params};
	struct feed_segment segment = {ptr, len, 5, client ? DIR_TX : DIR_RX};

	check_feed(&setup, &segment, 1, 120, golden);
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

static void test_params(void **state)
{
	struct ws_params p = params_of(NULL);

	(void)state;
	assert_true(p.known && !p.deflate && !p.other);
	p = params_of("permessage-deflate");
	assert_true(p.deflate && !p.client_no_context_takeover && !p.server_no_context_takeover && !p.other);
	p = params_of(" Permessage-Deflate ;server_no_context_takeover;client_max_window_bits=\"10\" ; "
		      "server_max_window_bits = 9");
	assert_true(p.deflate && p.server_no_context_takeover && !p.client_no_context_takeover);
	assert_int_equal(p.client_max_window_bits, 10);
	assert_int_equal(p.server_max_window_bits, 9);
	p = params_of("permessage-deflate; client_no_context_takeover; client_max_window_bits; "
		      "server_max_window_bits=99");
	assert_true(p.client_no_context_takeover);
	assert_int_equal(p.client_max_window_bits, 0);
	assert_int_equal(p.server_max_window_bits, 0);
	p = params_of("x-mux; a=\"b\", permessage-deflate");
	assert_true(p.other && p.deflate);
	p = params_of("permessage-deflate; server_max_window_bits=\"");
	assert_int_equal(p.server_max_window_bits, 0);
	p = params_of(NULL);
	ws_params_add(&p, SV("permessage-deflate;"));
	assert_true(p.deflate && !p.other);
}

/* The samples of RFC 6455 section 5.7. */
static void test_samples(void **state)
{
	(void)state;
	check_bytes(NULL, false, "\x81\x05Hello", 7,
		    "rx message 1 5 5-5 Hello\nrx 7 bytes, 1 frames (0), 1 messages, 0 opaque\n");
	check_bytes(NULL, true, "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", 11,
		    "tx message 1 5 5-5 Hello\ntx 11 bytes, 1 frames (0), 1 messages, 0 opaque\n");
	check_bytes(NULL, false, "\x01\x03Hel\x80\x02lo", 9,
		    "rx message 1 5 5-5 Hello\nrx 9 bytes, 2 frames (0), 1 messages, 0 opaque\n");
	check_bytes(NULL, true, "\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", 11,
		    "tx 11 bytes, 1 frames (1), 0 messages, 0 opaque\n");
	/* And of RFC 7692 section 7.2.3: one block, shared window, no compression, a final block, several blocks. */
	check_bytes("permessage-deflate", false, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00", 16,
		    "rx message 1 compressed 7 5-5 Hello\nrx message 1 compressed 5 5-5 Hello\n"
		    "rx 16 bytes, 2 frames (0), 2 messages, 0 opaque\n");
	check_bytes("permessage-deflate", false, "\xc1\x0b\x00\x05\x00\xfa\xffHello\x00", 13,
		    "rx message 1 compressed 11 5-5 Hello\nrx 13 bytes, 1 frames (0), 1 messages, 0 opaque\n");
	check_bytes(
		"permessage-deflate", false,
		"\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00\xc1\x07\xf3\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00"
		"\x00",
		26,
		"rx message 1 compressed 8 5-5 Hello\nrx message 1 compressed 7 5-5 Hello\n"
		"rx message 1 compressed 5 5-5 Hello\nrx 26 bytes, 3 frames (0), 3 messages, 0 opaque\n");
	check_bytes("permessage-deflate", false, "\xc1\x0d\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", 15,
		    "rx message 1 compressed 13 5-5 Hello\nrx 15 bytes, 1 frames (0), 1 messages, 0 opaque\n");
	/* Empty ones, as the RFC has them and as a sender may get it wrong. */
	check_bytes("permessage-deflate", false, "\xc1\x01\x00\xc2\x00\x82\x00", 7,
		    "rx message 1 compressed 1 5-5 \nrx message 2 compressed 0 5-5 \nrx message 2 0 5-5 \n"
		    "rx 7 bytes, 3 frames (0), 3 messages, 0 opaque\n");
}

/* Two calls on one socket: both directions compressed, shared windows, a fragmented answer with a ping in it, a close.
 */
struct conversation {
	struct buf tx, rx;
	struct feed_segment segments[12];
	size_t count;
};

static void add(struct conversation *c, struct buf *b, enum dir dir, size_t from, uint64_t ts)
{
	c->segments[c->count++] = (struct feed_segment){(void *)from, b->len - from, ts, dir};
}

static void converse(struct conversation *c, bool takeover)
{
	struct packer client, server;

	*c = (struct conversation){0};
	packer_init(&client, 15);
	packer_init(&server, 15);
	put_packed(&c->tx, &client, true, "{\"type\":\"response.create\"}");
	add(c, &c->tx, DIR_TX, 0, 10);
	put_packed(&c->rx, &server, false, "{\"type\":\"response.created\"}");
	add(c, &c->rx, DIR_RX, 0, 20);
	if (!takeover)
		deflateReset(&server.z);
	pack(&server, "{\"type\":\"response.created\",\"delta\":\"h\xc3\xa9\"}", 41, Z_SYNC_FLUSH);
	put_frame(&c->rx, false, COMPRESSED | WS_TEXT, server.out, 9);
	add(c, &c->rx, DIR_RX, c->segments[1].len, 30);
	put_frame(&c->rx, false, FIN | WS_PING, "p", 1);
	put_frame(&c->rx, false, WS_CONTINUATION, server.out + 9, 0);
	add(c, &c->rx, DIR_RX, c->rx.len - 5, 40);
	put_frame(&c->tx, true, FIN | WS_PONG, "p", 1);
	add(c, &c->tx, DIR_TX, c->segments[0].len, 41);
	put_frame(&c->rx, false, FIN | WS_CONTINUATION, server.out + 9, server.len - 9);
	put_text(&c->rx, false, "plain");
	add(c, &c->rx, DIR_RX, (size_t)c->segments[3].ptr + c->segments[3].len, 50);
	if (!takeover)
		deflateReset(&client.z);
	put_packed(&c->tx, &client, true, "{\"type\":\"response.create\",\"n\":2}");
	put_frame(&c->tx, true, FIN | WS_CLOSE,
		  "\x03\xe8"
		  "bye",
		  5);
	add(c, &c->tx, DIR_TX, (size_t)c->segments[4].ptr + c->segments[4].len, 60);
	put_frame(&c->rx, false, FIN | WS_CLOSE, "", 0);
	add(c, &c->rx, DIR_RX, (size_t)c->segments[5].ptr + c->segments[5].len, 70);
	for (size_t i = 0; i < c->count; i++) {
		struct feed_segment *s = &c->segments[i];

		s->ptr = (s->dir == DIR_TX ? c->tx.ptr : c->rx.ptr) + (size_t)s->ptr;
	}
	packer_release(&client);
	packer_release(&server);
}

static void conversation_release(struct conversation *c)
{
	buf_release(&c->tx);
	buf_release(&c->rx);
}

static const char *conversation_log(const struct conversation *c, bool takeover)
{
	static char text[2000];
	size_t first = c->segments[0].len - 6, second = (uint8_t)c->rx.ptr[1];
	/* 9 bytes in the first one; the heads of the last one and of "plain", and that, are 9 too. */
	size_t fragments = 9 + c->segments[5].len - 9;

	snprintf(text, sizeof(text),
		 "tx message 1 compressed %zu 10-10 {\"type\":\"response.create\"}\n"
		 "rx message 1 compressed %zu 20-20 {\"type\":\"response.created\"}\n"
		 "rx message 1 compressed %zu 30-50 {\"type\":\"response.created\",\"delta\":\"h\\xc3\\xa9\"... 41\n"
		 "rx message 1 5 50-50 plain\n"
		 "tx message 1 compressed %zu 60-60 {\"type\":\"response.create\",\"n\":2}\n"
		 "tx close 1000 60\n"
		 "rx close -1 70\n"
		 "tx %zu bytes, 4 frames (2), 2 messages, 0 opaque\n"
		 "rx %zu bytes, 7 frames (2), 3 messages, 0 opaque\n",
		 first, second, fragments, (size_t)c->segments[6].len - 6 - 11, c->tx.len, c->rx.len);
	assert_true(takeover ? c->segments[6].len < 35 : c->segments[6].len > 35);
	return text;
}

static void test_conversation(void **state)
{
	static const char *const extensions[] = {
		"permessage-deflate", "permessage-deflate; client_no_context_takeover; server_no_context_takeover"};

	(void)state;
	for (int i = 0; i < 4; i++) {
		bool takeover = i == 0 || i == 2;
		/* Unknown parameters: all the same, as nothing was missed. */
		struct ws_params params = params_of(extensions[!takeover]);
		struct setup setup = {DIR_TX, i < 2 ? &params : NULL};
		struct conversation c;

		converse(&c, takeover);
		check_feed(&setup, c.segments, c.count, i == 0 ? 250 : 20, conversation_log(&c, takeover));
		if (i == 0) {
			struct feed f = feed_of(&setup, c.segments, c.count);

			feed_no_memory(&f);
			feed_release(&f);
		}
		conversation_release(&c);
	}
}

/* The traced program is the server. */
static void test_server_side(void **state)
{
	struct ws_params params = params_of(NULL);
	struct setup setup = {DIR_RX, &params};
	struct buf rx = {0}, tx = {0};

	(void)state;
	put_text(&rx, true, "question");
	put_text(&tx, false, "answer");
	struct feed_segment segments[] = {{rx.ptr, rx.len, 1, DIR_RX}, {tx.ptr, tx.len, 2, DIR_TX}};

	check_feed(&setup, segments, 2, 100,
		   "rx message 1 8 1-1 question\ntx message 1 6 2-2 answer\n"
		   "tx 8 bytes, 1 frames (0), 1 messages, 0 opaque\nrx 14 bytes, 1 frames (0), 1 messages, 0 opaque\n");
	buf_release(&rx);
	buf_release(&tx);
}

static void test_lengths(void **state)
{
	static const size_t lengths[] = {0, 1, 125, 126, 65535, 65536};
	struct ws_params params = params_of(NULL);
	struct setup setup = {DIR_TX, &params};

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i / 2];
		char *payload = calloc(1, len + 1), golden[200];
		struct buf b = {0};
		struct feed_run r = FEED_WHOLE;

		memset(payload, 'x', len);
		put_frame(&b, i & 1, FIN | WS_BINARY, payload, len);
		struct feed_segment s = {b.ptr, b.len, 3, i & 1 ? DIR_TX : DIR_RX};
		struct feed f = feed_of(&setup, &s, 1);

		snprintf(golden, sizeof(golden), "%s message 2 %zu 3-3 %.*s", i & 1 ? "tx" : "rx", len,
			 (int)(len < 40 ? len : 40), payload);
		for (r.piece = 0; r.piece < 14; r.piece += 13) {
			assert_int_equal(feed_play(&f, &r), 0);
			assert_int_equal(strncmp(f.log.text, golden, strlen(golden)), 0);
			assert_non_null(strstr(f.log.text, "1 frames (0), 1 messages, 0 opaque\n"));
		}
		feed_release(&f);
		buf_release(&b);
		free(payload);
	}
}

/* What no peer may send ends its direction, with the message that was open; the other direction goes on. */
static void test_invalid(void **state)
{
	static const struct {
		const char *extensions, *bytes;
		size_t len;
		bool client;
	} invalid[] = {
		{NULL, "\x81\x85\x01\x02\x03\x04Hello", 11, false}, /* a server that masks */
		{NULL, "\x81\x05Hello", 7, true},		    /* a client that does not */
		{NULL, "\xc1\x05Hello", 7, false},		    /* compressed, which was not agreed on */
		{"permessage-deflate", "\xa1\x05Hello", 7, false},  /* reserved bits */
		{"permessage-deflate", "\x91\x05Hello", 7, false},
		{"permessage-deflate", "\xc9\x00", 2, false}, /* a compressed ping */
		{NULL, "\x83\x00", 2, false},		      /* opcodes that are not defined */
		{NULL, "\x87\x00", 2, false},
		{NULL, "\x8b\x00", 2, false},
		{NULL, "\x8f\x00", 2, false},
		{NULL, "\x09\x00", 2, false},				       /* a fragmented ping */
		{NULL, "\x89\x7e\x00\x7e", 4, false},			       /* one too long */
		{NULL, "\x80\x01x", 3, false},				       /* no message to continue */
		{NULL, "\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00", 10, false}, /* a length of 2^63 */
	};
	struct buf golden = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(invalid); i++) {
		const char *dir = invalid[i].client ? "tx" : "rx";

		buf_clear(&golden);
		buf_printf(&golden,
			   "%s undecoded: no valid WebSocket frame 5\n"
			   "%s %zu bytes, 0 frames (0), 0 messages, 0 opaque, given up\n",
			   dir, dir, invalid[i].len);
		check_bytes(invalid[i].extensions, invalid[i].client, invalid[i].bytes, invalid[i].len,
			    buf_cstr(&golden));
	}
	check_bytes(NULL, false, "\x01\x03Hel\x81\x02lo\x81\x01x", 12,
		    "rx opaque 1 incomplete 3 5-5 Hel\nrx undecoded: no valid WebSocket frame 5\n"
		    "rx 12 bytes, 1 frames (0), 0 messages, 1 opaque, given up\n");
	buf_release(&golden);
}

static void test_close(void **state)
{
	(void)state;
	check_bytes(NULL, false, "\x88\x02\x03\xf3\x81\x01x", 7,
		    "rx close 1011 5\nrx 7 bytes, 1 frames (1), 0 messages, 0 opaque\n");
	check_bytes(NULL, false, "\x88\x01\x03", 3, "rx close -1 5\nrx 3 bytes, 1 frames (1), 0 messages, 0 opaque\n");
	check_bytes(NULL, false, "\x01\x01x\x88\x00", 5,
		    "rx opaque 1 incomplete 1 5-5 x\nrx close -1 5\nrx 5 bytes, 2 frames (1), 0 messages, 1 opaque\n");
	check_bytes(NULL, false, "\x81\x05He", 4,
		    "rx opaque 1 ended 2 5-5 He\nrx 4 bytes, 0 frames (0), 0 messages, 1 opaque\n");
}

/* Joined while a window is in use: what refers to it is told as sizes, what does not is told as it is. */
static void test_joined_in_the_middle(void **state)
{
	static const char *const texts[] = {"{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}",
					    "{\"type\":\"response.output_text.delta\",\"delta\":\"bcd\"}",
					    "stored 0123456789", "stored 0123456789 again"};
	struct setup setup = {DIR_TX, NULL};
	struct packer p;
	struct buf b = {0}, golden = {0};
	size_t lens[4];

	(void)state;
	packer_init(&p, 15);
	pack(&p, texts[0], strlen(texts[0]), Z_SYNC_FLUSH); /* not seen */
	for (int i = 0; i < 4; i++) {
		put_packed(&b, &p, false, texts[i]);
		lens[i] = p.len;
	}
	put_text(&b, false, "plain");
	struct feed_segment s = {b.ptr, b.len, 9, DIR_RX};

	buf_printf(&golden,
		   "rx undecoded: permessage-deflate 9\n"
		   "rx opaque 1 compressed %zu 9-9 \nrx opaque 1 compressed %zu 9-9 \n"
		   "rx message 1 compressed %zu 9-9 %s\nrx message 1 compressed %zu 9-9 %s\n"
		   "rx message 1 5 9-9 plain\nrx %zu bytes, 5 frames (0), 3 messages, 2 opaque\n",
		   lens[0], lens[1], lens[2], texts[2], lens[3], texts[3], b.len);
	check_feed(&setup, &s, 1, 150, buf_cstr(&golden));
	packer_release(&p);
	buf_release(&b);
	buf_release(&golden);
}

/* Bytes that end like a block of raw deflate, but are no text. */
static void test_chance(void **state)
{
	struct setup setup = {DIR_TX, NULL};
	static const uint8_t bytes[] = {0xc1, 0x08, 0x00, 0x02, 0x00, 0xfd, 0xff, 0xff, 0xfe, 0x00};
	struct feed_segment s = {bytes, sizeof(bytes), 9, DIR_RX};

	(void)state;
	check_feed(&setup, &s, 1, 50,
		   "rx undecoded: permessage-deflate 9\nrx opaque 1 compressed 8 9-9 \n"
		   "rx 10 bytes, 1 frames (0), 0 messages, 1 opaque\n");
}

static void test_corrupt(void **state)
{
	(void)state;
	/* A block of the type that does not exist; what follows refers to nothing, and is right again. */
	check_bytes("permessage-deflate", false, "\xc1\x03\x07\x00\x00\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", 14,
		    "rx undecoded: corrupt permessage-deflate 5\nrx opaque 1 compressed 3 5-5 \n"
		    "rx message 1 compressed 7 5-5 Hello\nrx 14 bytes, 2 frames (0), 1 messages, 1 opaque\n");
	/* It ends inside of a block. */
	check_bytes("permessage-deflate", false, "\xc1\x05\xf2\x48\xcd\xc9\xc9", 7,
		    "rx undecoded: corrupt permessage-deflate 5\nrx opaque 1 compressed 5 5-5 \n"
		    "rx 7 bytes, 1 frames (0), 0 messages, 1 opaque\n");
	/* A reference past what was sent, although all of it was seen. */
	check_bytes("permessage-deflate", false, "\xc1\x05\xf2\x00\x11\x00\x00", 7,
		    "rx undecoded: corrupt permessage-deflate 5\nrx opaque 1 compressed 5 5-5 \n"
		    "rx 7 bytes, 1 frames (0), 0 messages, 1 opaque\n");
	/* ... or across messages where that was excluded. */
	check_bytes("permessage-deflate; server_no_context_takeover", false,
		    "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00\x81\x01x", 19,
		    "rx message 1 compressed 7 5-5 Hello\nrx undecoded: corrupt permessage-deflate 5\n"
		    "rx opaque 1 compressed 5 5-5 \nrx message 1 1 5-5 x\n"
		    "rx 19 bytes, 3 frames (0), 2 messages, 1 opaque\n");
}

static void test_other_extension(void **state)
{
	(void)state;
	check_bytes("x-mux", false, "\xa1\x02hi\xe1\x01h\xd9\x00\x81\x02ok\x01\x01z\xc0\x01z", 19,
		    "rx undecoded: WebSocket extension 5\nrx opaque 1 2 5-5 \nrx opaque 1 compressed 1 5-5 \n"
		    "rx message 1 2 5-5 ok\nrx opaque 1 2 5-5 \nrx 19 bytes, 6 frames (1), 1 messages, 3 opaque\n");
}

/* --- gaps -------------------------------------------------------------------------------------------------------- */

static void test_gap_inside(void **state)
{
	struct ws_params params = params_of("permessage-deflate");
	struct setup setup = {DIR_TX, &params};
	struct packer p;
	struct buf b = {0}, golden = {0};
	size_t lens[3];

	(void)state;
	packer_init(&p, 15);
	for (int i = 0; i < 3; i++) {
		put_packed(&b, &p, true,
			   i < 2 ? "{\"type\":\"response.create\",\"model\":\"gpt-test\"}" : "0123456789");
		lens[i] = p.len;
	}
	put_text(&b, true, "abcdefgh");
	put_frame(&b, true, FIN | WS_CLOSE, "\x03\xe8", 2);
	size_t text = b.len - 14 - 8;
	struct feed_segment s[] = {
		{b.ptr, 20, 1, DIR_TX},
		{NULL, 9, 2, DIR_TX},
		{b.ptr + 29, text + 9 - 29, 3, DIR_TX},
		{NULL, 3, 4, DIR_TX},
		{b.ptr + text + 12, 8, 5, DIR_TX},
		{NULL, 2, 6, DIR_TX},
		{"never looked at", 15, 7, DIR_TX},
	};

	buf_printf(&golden,
		   "tx opaque 1 compressed %zu 1-3 {\"type\":\"resp\n"
		   "tx undecoded: permessage-deflate 3\ntx opaque 1 compressed %zu 3-3 \n"
		   "tx message 1 compressed %zu 3-3 0123456789\n"
		   "tx opaque 1 8 3-5 abc\ntx close -1 6\n"
		   "tx %zu bytes, 5 frames (1), 1 messages, 3 opaque, 3 gaps (14)\n",
		   lens[0], lens[1], lens[2], b.len - 14 + 15);
	check_feed(&setup, s, ARRAY_SIZE(s), 150, buf_cstr(&golden));
	packer_release(&p);
	buf_release(&b);
	buf_release(&golden);
}

static void test_gap_that_loses_step(void **state)
{
	struct ws_params params = params_of(NULL);
	struct setup setup = {DIR_TX, &params};
	struct feed_segment unknown[] = {{"\x81\x05He", 4, 1, DIR_RX},
					 {NULL, UINT64_MAX, 2, DIR_RX},
					 {"\x81", 1, 3, DIR_RX}},
			    across[] = {{"\x81\x05He", 4, 1, DIR_RX}, {NULL, 4, 2, DIR_RX}, {"\x81", 1, 3, DIR_RX}},
			    between[] = {{"\x81\x01H", 3, 1, DIR_RX}, {NULL, 4, 2, DIR_RX}, {"\x81", 1, 3, DIR_RX}},
			    exact[] = {{"\x81\x05He", 4, 1, DIR_RX}, {NULL, 3, 2, DIR_RX}, {"\x81\x01x", 3, 3, DIR_RX}};

	(void)state;
	check_feed(&setup, unknown, 3, 10,
		   "rx opaque 1 incomplete 2 1-1 He\nrx undecoded: WebSocket: lost step 2\n"
		   "rx 5 bytes, 0 frames (0), 0 messages, 1 opaque, 1 gaps (0), given up\n");
	check_feed(&setup, across, 3, 10,
		   "rx opaque 1 incomplete 2 1-1 He\nrx undecoded: WebSocket: lost step 2\n"
		   "rx 5 bytes, 0 frames (0), 0 messages, 1 opaque, 1 gaps (4), given up\n");
	check_feed(&setup, between, 3, 10,
		   "rx message 1 1 1-1 H\nrx undecoded: WebSocket: lost step 2\n"
		   "rx 4 bytes, 1 frames (0), 1 messages, 0 opaque, 1 gaps (4), given up\n");
	check_feed(&setup, exact, 3, 10,
		   "rx opaque 1 5 1-2 He\nrx message 1 1 3-3 x\n"
		   "rx 7 bytes, 2 frames (0), 1 messages, 1 opaque, 1 gaps (3)\n");
}

#define KNOWN "{\"type\":\"a\"}"

/* Behind a gap: a frame is found where a call of the program's begins, and its message has to be a known one. */
static void test_step_regained(void **state)
{
	struct ws_params params = params_of(NULL);
	struct setup setup = {DIR_TX, &params};
	struct feed_segment s[] = {
		{"\x81\x05He", 4, 1, DIR_RX},
		{NULL, UINT64_MAX, 2, DIR_RX},
		/* the rest of a frame, and in the same call a whole one */
		{"llo\x81\x0c" KNOWN, 17, 3, DIR_RX},
		/* no known message; what would be one is in the same call */
		{"\x81\x07{\"a\":1}\x81\x0c" KNOWN, 23, 4, DIR_RX},
		/* frames that nobody sends, no object, a message that goes on too long, and one that has a gap */
		{"\x8b\0\x81\x0c" KNOWN, 16, 5, DIR_RX},
		{"\x81\x8c\0\0\0\0" KNOWN, 18, 6, DIR_RX},
		{"\x81\x7e\0\x0c" KNOWN, 16, 7, DIR_RX},
		{"\x81\x0c"
		 "[" KNOWN,
		 15, 8, DIR_RX},
		{"\x88\0\x81\x0c" KNOWN, 16, 9, DIR_RX},
		{"\x81\x0c{\"type", 8, 10, DIR_RX},
		{NULL, 1, 11, DIR_RX},
		{":\"a\"}", 5, 12, DIR_RX},
		/* a ping before it, and in pieces */
		{"\x89\1p\1\7{\"type\"", 12, 13, DIR_RX},
		{"\x80\5:\"a\"}\x81\1x", 10, 14, DIR_RX},
		{NULL, 100, 15, DIR_RX},
		/* right behind a gap */
		{"\x81\x0c" KNOWN "\x88\0", 16, 15, DIR_RX},
	};

	(void)state;
	check_feed(&setup, s, ARRAY_SIZE(s), 10,
		   "rx opaque 1 incomplete 2 1-1 He\nrx undecoded: WebSocket: lost step 2\n"
		   "rx found\nrx message 1 12 13-14 {\"type\":\"a\"}\nrx message 1 1 14-14 x\n"
		   "rx undecoded: WebSocket: lost step 15\n"
		   "rx found\nrx message 1 12 15-15 {\"type\":\"a\"}\nrx close -1 15\n"
		   "rx 176 bytes, 4 frames (1), 3 messages, 1 opaque, 3 gaps (101)\n");
}

/* ... compressed, if what it refers to is known. */
static void test_step_regained_compressed(void **state)
{
	struct buf b = {0};
	size_t len[3];

	(void)state;
	for (int fresh = 0; fresh < 2; fresh++) {
		struct ws_params params =
			params_of(fresh ? "permessage-deflate; server_no_context_takeover" : "permessage-deflate");
		struct setup setup = {DIR_TX, &params};
		struct packer p;

		buf_clear(&b);
		packer_init(&p, 15);
		for (int i = 0; i < 3; i++) {
			put_packed(&b, &p, false, "{\"type\":\"response.created\"}");
			len[i] = b.len;
			if (fresh)
				deflateReset(&p.z);
		}
		packer_release(&p);
		struct feed_segment s[] = {
			{NULL, len[0], 1, DIR_RX},
			{b.ptr + len[0], len[1] - len[0], 2, DIR_RX},
			{b.ptr + len[1], len[2] - len[1], 3, DIR_RX},
		};
		struct feed f = feed_of(&setup, s, ARRAY_SIZE(s));

		feed_no_memory(&f);
		assert_int_equal(!!strstr(f.log.text, "rx found\nrx message 1 compressed"), fresh);
		assert_int_equal(!!strstr(f.log.text, "2 messages, 0 opaque"), fresh);
		feed_release(&f);
	}
	buf_release(&b);
}

static char *conversation_golden;

/* Every whole message that is told was sent like that, and in that order. */
static void check_messages(struct feed *f, const struct feed_run *r)
{
	char *p = conversation_golden;

	for (char *line = f->log.text, *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		if (!strstr(line, " message "))
			continue;
		p = strstr(p, line + 3);
		if (!p)
			print_error("gap %zu..%zu: %s\n", r->gap_from, r->gap_to, line);
		assert_non_null(p);
		p++;
	}
}

static void test_every_gap(void **state)
{
	struct ws_params params = params_of("permessage-deflate");
	struct setup setup = {DIR_TX, &params};
	struct conversation c;
	struct feed f;

	(void)state;
	converse(&c, true);
	conversation_golden = strdup(conversation_log(&c, true));
	f = feed_of(&setup, c.segments, c.count);
	feed_gaps(&f, 5, check_messages);
	setup.params = NULL;
	feed_gaps(&f, 15, check_messages);
	feed_release(&f);
	free(conversation_golden);
	conversation_release(&c);
}

/* --- caps -------------------------------------------------------------------------------------------------------- */

static void check_long(const char *extensions, struct buf *b, const char *golden)
{
	struct ws_params params = params_of(extensions);
	struct setup setup = {DIR_TX, &params};
	struct feed_segment s = {b->ptr, b->len, 5, DIR_RX};
	struct feed f = feed_of(&setup, &s, 1);
	struct feed_run r = FEED_WHOLE;

	f.golden = golden;
	for (size_t i = 0; i < 3; i++, r.piece = i == 1 ? 1000 : 65536)
		feed_expect(&f, &r);
	feed_release(&f);
}

static void test_message_cap(void **state)
{
	size_t len = WS_MESSAGE_MAX + 1;
	uint8_t *payload = malloc(len);
	struct buf b = {0}, golden = {0};
	struct packer p;
	size_t packed;

	(void)state;
	memset(payload, 'x', len);
	put_frame(&b, false, FIN | WS_TEXT, payload, len - 1);
	put_frame(&b, false, FIN | WS_TEXT, payload, len);
	put_text(&b, false, "next");
	buf_printf(&golden,
		   "rx message 1 8388608 5-5 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx... 8388608\n"
		   "rx opaque 1 8388609 5-5 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx... 65536\n"
		   "rx message 1 4 5-5 next\nrx %zu bytes, 3 frames (0), 2 messages, 1 opaque\n",
		   b.len);
	check_long(NULL, &b, buf_cstr(&golden));

	/* Compressed, it still fills the window that the next one refers to. Noise: the ratio is no matter here. */
	for (size_t i = 0, x = 1; i < len; i++, x = x * 1103515245 + 12345)
		payload[i] = (uint8_t)('a' + (x >> 16) % 16);
	buf_clear(&b);
	buf_clear(&golden);
	packer_init(&p, 15);
	pack(&p, payload, len, Z_SYNC_FLUSH);
	packed = p.len;
	put_frame(&b, false, FIN | COMPRESSED | WS_TEXT, p.out, p.len);
	pack(&p, payload + len - 100, 100, Z_SYNC_FLUSH);
	put_frame(&b, false, FIN | COMPRESSED | WS_TEXT, p.out, p.len);
	assert_in_range(p.len, 2, 20);
	buf_printf(&golden,
		   "rx opaque 1 compressed %zu 5-5 %.40s... 65536\nrx message 1 compressed %zu 5-5 %.40s... 100\n"
		   "rx %zu bytes, 2 frames (0), 1 messages, 1 opaque\n",
		   packed, payload, p.len, payload + len - 100, b.len);
	check_long("permessage-deflate", &b, buf_cstr(&golden));
	packer_release(&p);
	buf_release(&b);
	buf_release(&golden);
	free(payload);
}

static void test_bomb(void **state)
{
	size_t len = 64u << 20;
	uint8_t *payload = calloc(1, len);
	struct buf b = {0}, golden = {0};
	struct packer p;
	size_t packed;

	(void)state;
	packer_init(&p, 15);
	pack(&p, payload, len, Z_SYNC_FLUSH);
	packed = p.len;
	put_frame(&b, false, FIN | COMPRESSED | WS_TEXT, p.out, p.len);
	deflateReset(&p.z);
	pack(&p, "after", 5, Z_SYNC_FLUSH);
	put_frame(&b, false, FIN | COMPRESSED | WS_TEXT, p.out, p.len);
	buf_printf(&golden,
		   "rx undecoded: permessage-deflate over the limit 5\nrx opaque 1 compressed %zu 5-5 \n"
		   "rx message 1 compressed %zu 5-5 after\nrx %zu bytes, 2 frames (0), 1 messages, 1 opaque\n",
		   packed, p.len, b.len);
	check_long("permessage-deflate", &b, buf_cstr(&golden));
	packer_release(&p);
	buf_release(&b);
	buf_release(&golden);
	free(payload);
}

/* --- connections whose handshake was missed ---------------------------------------------------------------------- */

static int detect(const void *ptr, size_t len)
{
	struct guard g = {0};
	int r = ws_detect(guard_copy(&g, ptr, len), len);

	guard_free(&g);
	return r;
}

static void test_detect(void **state)
{
	char text[70000];
	struct buf b = {0};

	(void)state;
	assert_int_equal(detect("", 0), -1);
	put_text(&b, true, "{\"type\":\"response.create\"}");
	for (size_t i = 0; i < WS_DETECT_BYTES; i++)
		assert_int_equal(detect(b.ptr, i), -1);
	for (size_t i = WS_DETECT_BYTES; i < b.len; i++)
		assert_int_equal(detect(b.ptr, i), 1);
	for (size_t len = 126; len < sizeof(text); len += 65536 - 126) {
		buf_clear(&b);
		memset(text, '{', sizeof(text));
		put_frame(&b, true, FIN | WS_TEXT, text, len);
		assert_int_equal(detect(b.ptr, len == 126 ? 8 : 14), -1);
		assert_int_equal(detect(b.ptr, 30), 1);
	}
	buf_clear(&b);
	put_text(&b, true,
		 "\xe4\xbd\xa0\xc3\xa9"); /* shorter: the whole of it tells, and not the byte that might be good */
	for (size_t i = 7; i < b.len; i++)
		assert_int_equal(detect(b.ptr, i), -1);
	assert_int_equal(detect(b.ptr, b.len), 1);
	buf_clear(&b);
	put_text(&b, true,
		 "{\"type\":\"response\xe4\xbd\xa0\"}"); /* the last of the 24 bytes is the first of a character's */
	assert_int_equal(detect(b.ptr, WS_DETECT_BYTES), 1);
	buf_clear(&b);
	put_text(&b, true, "\xe4x");
	assert_int_equal(detect(b.ptr, b.len), 0);
	buf_clear(&b);
	put_text(&b, true, "a\x01");
	assert_int_equal(detect(b.ptr, b.len), 0);
	buf_clear(&b);
	put_frame(&b, true, COMPRESSED | WS_TEXT, "\xf2\x48", 2);
	assert_int_equal(detect(b.ptr, b.len), 1);
	buf_clear(&b);
	put_frame(&b, true, COMPRESSED | WS_TEXT, "\x07\x48", 2);
	assert_int_equal(detect(b.ptr, b.len), 0);
	assert_int_equal(detect("\x81\x05{\"ab\"", 7), 0); /* not masked */
	assert_int_equal(detect("\x81\x80"
				"1234",
				6),
			 0); /* empty */
	assert_int_equal(detect("\x81\xfe\x00\x05"
				"1234xxxxx",
				13),
			 0); /* a length that fits in 7 bits */
	assert_int_equal(detect("\x81\xff\x00\x00\x00\x00\x00\x00\xff\xff"
				"1234xxxxx",
				19),
			 0);
	assert_int_equal(detect("\x81\xff\x00\x00\x00\x01\x00\x00\xff\xff"
				"1234xxxxx",
				19),
			 0);
	assert_int_equal(detect("\x82", 1), 0);
	assert_int_equal(detect("GET / HTTP/1.1\r\n", 16), 0);
	assert_int_equal(detect("POST / HTTP/1.1\r\n", 17), 0);
	assert_int_equal(detect("PRI * HTTP/2.0\r\n", 16), 0);
	assert_int_equal(detect("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), 0);
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_params),
		cmocka_unit_test(test_samples),
		cmocka_unit_test(test_conversation),
		cmocka_unit_test(test_server_side),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_invalid),
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_joined_in_the_middle),
		cmocka_unit_test(test_chance),
		cmocka_unit_test(test_corrupt),
		cmocka_unit_test(test_other_extension),
		cmocka_unit_test(test_gap_inside),
		cmocka_unit_test(test_gap_that_loses_step),
		cmocka_unit_test(test_step_regained),
		cmocka_unit_test(test_step_regained_compressed),
		cmocka_unit_test(test_every_gap),
		cmocka_unit_test(test_message_cap),
		cmocka_unit_test(test_bomb),
		cmocka_unit_test(test_detect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
