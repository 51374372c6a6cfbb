/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ws_wire.h"

#include "base/err.h"
#include "flow/proto/ws_probe.h"

#define SHORT_JSON "{\"type\":\"x\"}"
#define LONG_JSON  "{\"type\":\"response.output_text.delta\",\"delta\":\"some words, 1234\",\"sequence_number\":17}"

/* What comes of the first `len` bytes in pieces; each piece ends at a guard page. */
static enum ws_probe_status probe(const void *ptr, size_t len, size_t piece)
{
	struct ws_probe *p = ws_probe_new();
	enum ws_probe_status status = WS_PROBE_OPEN;
	struct guard g = {0};

	assert_non_null(p);
	for (size_t done = 0; done < len; done += piece) {
		size_t n = len - done < piece ? len - done : piece;

		status = ws_probe_push(p, guard_copy(&g, (const uint8_t *)ptr + done, n), n);
	}
	/* a verdict is final */
	if (status != WS_PROBE_OPEN)
		assert_int_equal(ws_probe_push(p, (const uint8_t *)"GET / HTTP/1.1\r\n", 16), status);
	ws_probe_free(p);
	guard_free(&g);
	return status;
}

/* Every cut gives the same. */
static void expect_probe(const struct buf *b, enum ws_probe_status want)
{
	for (size_t piece = 1; piece < 40; piece++)
		assert_int_equal(probe(b->ptr, b->len, piece), want);
	assert_int_equal(probe(b->ptr, b->len, b->len), want);
}

/* Messages of a sender whose window was filled before, from the second one on. */
static void put_late(struct buf *b, bool client, const char *text, unsigned count)
{
	struct packer p;

	packer_init(&p, 15);
	pack(&p, LONG_JSON, strlen(LONG_JSON), Z_SYNC_FLUSH);
	while (count--)
		put_packed(b, &p, client, text);
	packer_release(&p);
}

static void test_compressed(void **state)
{
	struct buf b = {0};

	(void)state;
	for (int client = 0; client < 2; client++) {
		enum ws_probe_status proven = client ? WS_PROBE_CLIENT : WS_PROBE_SERVER;

		/* refers to what nobody saw */
		put_late(&b, client, LONG_JSON, 1);
		expect_probe(&b, WS_PROBE_OPEN);
		buf_clear(&b);
		put_late(&b, client, LONG_JSON, 12);
		expect_probe(&b, proven);
		buf_clear(&b);
		/* short ones: one is not enough */
		put_late(&b, client, LONG_JSON " and something that is new, 0123456789 abcdefghijk", 1);
		assert_true(b.len > WS_PROBE_LEAST);
		expect_probe(&b, WS_PROBE_OPEN);
		put_late(&b, client, LONG_JSON " and something that is new, 0123456789 abcdefghijk", 1);
		for (size_t len = 0; len < b.len; len++)
			assert_int_equal(probe(b.ptr, len, 5), WS_PROBE_OPEN);
		expect_probe(&b, proven);
		buf_clear(&b);
		/* after a ping, and in pieces around another */
		put_frame(&b, client, FIN | WS_PING, "hi", 2);
		put_late(&b, client, LONG_JSON "some more, to be sure 9876543210", 3);
		expect_probe(&b, proven);
		buf_clear(&b);
	}
	buf_release(&b);
}

static void test_fragments(void **state)
{
	struct packer p;
	struct buf b = {0};

	(void)state;
	packer_init(&p, 15);
	pack(&p, LONG_JSON, strlen(LONG_JSON), Z_SYNC_FLUSH);
	put_frame(&b, true, COMPRESSED | WS_TEXT, p.out, 9);
	put_frame(&b, true, FIN | WS_PONG, "", 0);
	put_frame(&b, true, WS_CONTINUATION, p.out + 9, 0);
	put_frame(&b, true, FIN | WS_CONTINUATION, p.out + 9, p.len - 9);
	expect_probe(&b, WS_PROBE_OPEN);
	put_packed(&b, &p, true, LONG_JSON "and more");
	expect_probe(&b, WS_PROBE_CLIENT);
	pack(&p, LONG_JSON LONG_JSON "01234567890abcdefgh", strlen(LONG_JSON LONG_JSON) + 19, Z_SYNC_FLUSH);
	assert_true(p.len > 9);
	/* a new message inside of one */
	buf_clear(&b);
	put_frame(&b, true, COMPRESSED | WS_TEXT, p.out, 9);
	put_frame(&b, true, FIN | COMPRESSED | WS_TEXT, p.out + 9, p.len - 9);
	expect_probe(&b, WS_PROBE_DENIED);
	/* not masked any more */
	buf_clear(&b);
	put_frame(&b, true, COMPRESSED | WS_TEXT, p.out, 9);
	put_frame(&b, false, FIN | WS_CONTINUATION, p.out + 9, p.len - 9);
	expect_probe(&b, WS_PROBE_DENIED);
	packer_release(&p);
	buf_release(&b);
}

static uint8_t noise(void)
{
	static uint64_t random = 88172645463325252ull;

	random ^= random << 13;
	random ^= random >> 7;
	random ^= random << 17;
	return (uint8_t)(random >> 24);
}

/* A long message proves it before its end. */
static void test_long(void **state)
{
	static char text[1 << 16];
	struct packer p;
	struct buf b = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)('0' + noise() % 70);
	packer_init(&p, 15);
	pack(&p, text, sizeof(text), Z_SYNC_FLUSH);
	assert_true(p.len > 3000);
	put_frame(&b, false, FIN | COMPRESSED | WS_BINARY, p.out, p.len);
	assert_int_equal(probe(b.ptr, 4 + WS_PROBE_ENOUGH, 100), WS_PROBE_SERVER);
	expect_probe(&b, WS_PROBE_SERVER);
	/* one bit of the block's tables is another one */
	b.ptr[6] ^= 0x10;
	assert_int_equal(probe(b.ptr, b.len, b.len), WS_PROBE_DENIED);
	packer_release(&p);
	buf_release(&b);
}

static void test_text(void **state)
{
	struct buf b = {0};

	(void)state;
	put_text(&b, false, LONG_JSON);
	expect_probe(&b, WS_PROBE_SERVER);
	buf_clear(&b);
	put_text(&b, true, LONG_JSON);
	expect_probe(&b, WS_PROBE_CLIENT);
	buf_clear(&b);
	put_text(&b, false, SHORT_JSON);
	expect_probe(&b, WS_PROBE_OPEN);
	put_text(&b, false, SHORT_JSON);
	expect_probe(&b, WS_PROBE_SERVER);
	buf_clear(&b);
	put_text(&b, false, "no json, however long");
	expect_probe(&b, WS_PROBE_DENIED);
	buf_clear(&b);
	put_text(&b, false, "{\"a\":\"not to its end\"");
	expect_probe(&b, WS_PROBE_DENIED);
	buf_clear(&b);
	put_text(&b, false, "{\"a\":\"\x01 control characters\"}");
	expect_probe(&b, WS_PROBE_DENIED);
	buf_release(&b);
}

static void test_others(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} rows[] = {
#define ROW(t) {t, sizeof(t) - 1}
		ROW("GET / HTTP/1.1\r\n"),
		ROW("HTTP/1.1 200 OK\r\n"),
		ROW("PRI * HTTP/2.0\r\n"),
		ROW("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
		ROW("\x88\x02\x03\xe8"), /* close */
		ROW("\x89PNG\r\n\x1a\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"
		    "f"),
		ROW("\xb1\x05"),			     /* other reserved bits */
		ROW("\x82\x05"),			     /* binary, not compressed: anything */
		ROW("\xc9\x05"),			     /* a compressed ping */
		ROW("\x09\x05"),			     /* a piece of a ping */
		ROW("\x89\x7e\x00\x7e"),		     /* a ping that is too long */
		ROW("\xc1\x7e\x00\x05\xca\x48\xcd\xc9\xc9"), /* a length that fits in 7 bits */
		ROW("\xc1\x7f\x00\x00\x00\x00\x00\x00\xff\xff"),
		ROW("\xc1\x7f\x00\x00\x00\x00\x7f\x00\x00\x00"), /* longer than any */
		ROW("\xc1\x05\x07\x48\xcd\xc9\xc9"),		 /* block type 3 */
		ROW("\xc1\x03\xca\x48\xcd\xc1\x03\xca\x48\xcd"), /* not to the end of a block */
#undef ROW
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (size_t piece = 1; piece <= rows[i].len; piece++) {
			if (probe(rows[i].text, rows[i].len, piece) != WS_PROBE_DENIED)
				fail_msg("row %zu, pieces of %zu", i, piece);
		}
	}
	assert_int_equal(probe("", 0, 1), WS_PROBE_OPEN);
}

/* Noise with a good head is never taken for it. */
static void test_chance(void **state)
{
	unsigned proven = 0;

	(void)state;
	for (unsigned round = 0; round < 20000; round++) {
		uint8_t bytes[64] = {0xc1, 40};

		for (size_t i = 2; i < sizeof(bytes); i++)
			bytes[i] = noise();
		proven += probe(bytes, sizeof(bytes), sizeof(bytes)) == WS_PROBE_SERVER;
	}
	assert_int_equal(proven, 0);
}

static void test_no_memory(void **state)
{
	struct buf b = {0};
	bool hit = true;

	(void)state;
	put_late(&b, true, LONG_JSON "some more, to be sure 9876543210", 3);
	for (unsigned n = 1; hit; n++) {
		enum ws_probe_status status = WS_PROBE_NO_MEMORY;
		struct ws_probe *p;

		fail_nth(n);
		p = ws_probe_new();
		if (p)
			status = ws_probe_push(p, (const uint8_t *)b.ptr, b.len);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(status, hit ? WS_PROBE_NO_MEMORY : WS_PROBE_CLIENT);
		ws_probe_free(p);
	}
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compressed), cmocka_unit_test(test_fragments), cmocka_unit_test(test_long),
		cmocka_unit_test(test_text),	   cmocka_unit_test(test_others),    cmocka_unit_test(test_chance),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
