/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <nghttp2/nghttp2.h>

#include "base/err.h"
#include "flow/proto/hpack.h"

/* --- helpers ----------------------------------------------------------------------------------------------------- */

static size_t unhex(const char *text, uint8_t *out)
{
	size_t n = 0;
	unsigned byte;

	for (; *text; text++) {
		if (*text == ' ')
			continue;
		assert_int_equal(sscanf(text, "%2x", &byte), 1);
		out[n++] = (uint8_t)byte;
		text++;
	}
	return n;
}

static void log_sv(struct tlog *l, const char *name, struct sv s)
{
	if (!s.ptr)
		return;
	tlog_printf(l, "%s=", name);
	tlog_escaped(l, s.ptr, s.len);
	tlog_printf(l, "\n");
}

static void log_head(struct tlog *l, const struct hpack_head *h)
{
	log_sv(l, ":method", h->method);
	log_sv(l, ":scheme", h->scheme);
	log_sv(l, ":path", h->path);
	log_sv(l, ":authority", h->authority);
	log_sv(l, ":protocol", h->protocol);
	if (h->status)
		tlog_printf(l, ":status=%d\n", h->status);
	for (size_t i = 0; i < h->header_count; i++) {
		tlog_escaped(l, h->headers[i].name.ptr, h->headers[i].name.len);
		log_sv(l, "", h->headers[i].value);
	}
	if (h->unknown)
		tlog_printf(l, "unknown %u\n", h->unknown);
	if (h->too_long)
		tlog_printf(l, "too long\n");
}

/* Decodes blocks, in hex, one after the other; each ends at a guard page. */
static void assert_blocks(bool known, const char *const *blocks, size_t count, const char *golden)
{
	struct hpack *p = hpack_new(known);
	struct guard g = {0};
	struct tlog l = {0};
	struct hpack_head head;
	uint8_t bytes[4096];

	for (size_t i = 0; i < count; i++) {
		size_t n = unhex(blocks[i], bytes);
		int err = hpack_decode(p, guard_copy(&g, bytes, n), n, &head);

		if (err)
			tlog_printf(&l, "error %d\n", err);
		log_head(&l, &head);
		tlog_printf(&l, "--\n");
		hpack_head_release(&head);
	}
	assert_log(&l, golden);
	tlog_free(&l);
	guard_free(&g);
	hpack_free(p);
}

#define BLOCKS(...) ((const char *const[]){__VA_ARGS__}), ARRAY_SIZE(((const char *const[]){__VA_ARGS__}))

/* --- RFC 7541 appendix C ----------------------------------------------------------------------------------------- */

#define C3_GOLDEN                                                                                                      \
	":method=GET\n:scheme=http\n:path=/\n:authority=www.example.com\n--\n"                                         \
	":method=GET\n:scheme=http\n:path=/\n:authority=www.example.com\ncache-control=no-cache\n--\n"                 \
	":method=GET\n:scheme=https\n:path=/index.html\n:authority=www.example.com\ncustom-key=custom-value\n--\n"

static void test_rfc_requests(void **state)
{
	(void)state;
	assert_blocks(true,
		      BLOCKS("828684410f7777772e6578616d706c652e636f6d", "828684be58086e6f2d6361636865",
			     "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565"),
		      C3_GOLDEN);
	assert_blocks(true,
		      BLOCKS("828684418cf1e3c2e5f23a6ba0ab90f4ff", "828684be5886a8eb10649cbf",
			     "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"),
		      C3_GOLDEN);
}

#define SIZE_256 "3fe101"
#define C6_1                                                                                                           \
	"488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3"
#define C6_3                                                                                                           \
	"88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af2708" \
	"7"                                                                                                            \
	"f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007"

/* A table of 256 bytes: entries are evicted. */
static void test_rfc_responses(void **state)
{
	(void)state;
	assert_blocks(true, BLOCKS(SIZE_256 C6_1, "4883640effc1c0bf", C6_3),
		      ":status=302\ncache-control=private\ndate=Mon, 21 Oct 2013 20:13:21 GMT\n"
		      "location=https://www.example.com\n--\n"
		      ":status=307\ncache-control=private\ndate=Mon, 21 Oct 2013 20:13:21 GMT\n"
		      "location=https://www.example.com\n--\n"
		      ":status=200\ncache-control=private\ndate=Mon, 21 Oct 2013 20:13:22 GMT\n"
		      "location=https://www.example.com\ncontent-encoding=gzip\n"
		      "set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n--\n");
}

/* The same, met at the second and at the third block: what refers to entries from before is left out. */
static void test_rfc_middle(void **state)
{
	(void)state;
	assert_blocks(false, BLOCKS("4883640effc1c0bf", C6_3),
		      ":status=307\nunknown 3\n--\n"
		      ":status=200\ndate=Mon, 21 Oct 2013 20:13:22 GMT\ncontent-encoding=gzip\n"
		      "set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\nunknown 2\n--\n");
	assert_blocks(false, BLOCKS(C6_3),
		      ":status=200\ndate=Mon, 21 Oct 2013 20:13:22 GMT\ncontent-encoding=gzip\n"
		      "set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\nunknown 2\n--\n");
}

/* --- unknown entries --------------------------------------------------------------------------------------------- */

/* An unknown name with a new value takes its place in the table; with other new entries around it, all stay in order.
 */
/* Encoders that spell out names that the static table has: they mean the same. */
static void test_spelled_out_names(void **state)
{
	(void)state;
	assert_blocks(true,
		      BLOCKS("00073a6d6574686f64 04504f5354"  /* :method: POST, not indexed */
			     "40053a70617468 022f70"	      /* :path: /p, indexed */
			     "100a3a617574686f72697479 0161", /* :authority: a, never indexed */
			     "be"			      /* the path by its number */
			     "40073a737461747573 03313033",   /* :status: 103 */
			     "be"),
		      ":method=POST\n:path=/p\n:authority=a\n--\n"
		      ":path=/p\n:status=103\n--\n"
		      ":status=103\n--\n");
}

static void test_unknown_name_keeps_order(void **state)
{
	(void)state;
	assert_blocks(false,
		      BLOCKS("4001610141",	    /* a: A, new */
			     "c0",		    /* an entry from before */
			     "7f00 0142",	    /* a name from before, with a new value */
			     "bf be",		    /* a: A is the older one of the two now */
			     "0f2f 0143",	    /* that name again */
			     "4001620144 be bf c0", /* b: D, new, and all three */
			     "20 3fe11f 4001630145 be bf"),
		      "a=A\n--\n"
		      "unknown 1\n--\n"
		      "unknown 1\n--\n"
		      "a=A\nunknown 1\n--\n"
		      "unknown 1\n--\n"
		      "b=D\nb=D\na=A\nunknown 1\n--\n"
		      "c=E\nc=E\nunknown 1\n--\n");
}

static void test_unknown_becomes_known(void **state)
{
	struct hpack *p = hpack_new(false);
	struct hpack_head head;
	static const uint8_t clear[] = {0x20, 0x3f, 0xe1, 0x1f}, large[] = {0x3f, 0xe2, 0xff, 0x03};

	(void)state;
	assert_false(hpack_is_known(p));
	assert_int_equal(hpack_decode(p, clear, sizeof(clear), &head), 0);
	hpack_head_release(&head);
	assert_true(hpack_is_known(p));
	assert_int_equal(hpack_decode(p, large, sizeof(large), &head), 0);
	hpack_head_release(&head);
	assert_false(hpack_is_known(p));
	hpack_free(p);
}

/* --- malformed --------------------------------------------------------------------------------------------------- */

static void test_malformed(void **state)
{
	static const char *const bad[] = {
		"80",			/* index 0 */
		"ff",			/* cut integer */
		"ffffffffffffffffffff", /* integer without end */
		"ffffffffff7f",		/* and one that is too large */
		"40",			/* no name */
		"400161",		/* no value */
		"40016105aa",		/* value cut short */
		"4001617fffffffff0f",	/* value of gigabytes */
		"4001618100",		/* Huffman padding that is none */
		"8220",			/* size update behind a field */
		"00",
		"0f",
		"5f",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		for (int known = 0; known < 2; known++) {
			struct hpack *p = hpack_new(known);
			struct guard g = {0};
			struct hpack_head head;
			uint8_t bytes[64];
			size_t n = unhex(bad[i], bytes);

			assert_int_equal(hpack_decode(p, guard_copy(&g, bytes, n), n, &head), -EPROTO);
			assert_int_equal(head.header_count, 0);
			assert_false(hpack_is_known(p));
			hpack_head_release(&head);
			n = unhex("8840016b0176", bytes); /* and goes on */
			assert_int_equal(hpack_decode(p, guard_copy(&g, bytes, n), n, &head), 0);
			assert_int_equal(head.status, 200);
			assert_int_equal(head.header_count, 1);
			hpack_head_release(&head);
			hpack_free(p);
			guard_free(&g);
		}
	}
}

/* Values that no head may have are left out; so are names. Empty values stay. */
static void test_fields_left_out(void **state)
{
	(void)state;
	assert_blocks(true,
		      BLOCKS("00016101 0d", "000161 03 610a62", "0001 20 0141", "000161 00", "000000",
			     "00 03 3a6162 0141", "08 03 313030 08 03 323030", "0803 303939", "0804 32303030", "0200"),
		      "--\n--\n--\na=\n--\n--\n--\n:status=100\n--\n--\n--\n--\n");
}

/* --- limits ------------------------------------------------------------------------------------------------------ */

static void test_too_long(void **state)
{
	struct hpack *p = hpack_new(true);
	static uint8_t block[HPACK_BLOCK_MAX];
	struct hpack_head head;
	size_t n = 0;

	(void)state;
	/* One entry of 2 KiB, then 60000 references to it: 120 MiB of fields. */
	n += unhex("40016e 7f d10f", block);
	memset(block + n, 'v', 2000 + 128);
	n += 127 + 0x51 + (0x0f << 7);
	memset(block + n, 0xbe, 60000);
	n += 60000;
	assert_int_equal(hpack_decode(p, block, n, &head), 0);
	assert_true(head.too_long);
	assert_in_range(head.text.len, 1, HTTP_HEAD_BYTES_MAX);
	hpack_head_release(&head);
	assert_int_equal(hpack_decode(p, (const uint8_t *)"\xbe", 1, &head), 0); /* the table is as it was */
	assert_int_equal(head.header_count, 1);
	hpack_head_release(&head);
	hpack_free(p);
}

static void test_many_fields(void **state)
{
	struct hpack *p = hpack_new(true);
	struct hpack_head head;
	uint8_t block[3000];
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 300; i++)
		n += unhex("0001610142", block + n);
	block[n++] = 0x88;
	assert_int_equal(hpack_decode(p, block, n, &head), 0);
	assert_int_equal(head.header_count, HTTP_HEADERS_MAX);
	assert_int_equal(head.status, 200);
	assert_false(head.too_long);
	hpack_head_release(&head);
	hpack_free(p);
}

/* --- against the library's own encoder --------------------------------------------------------------------------- */

#define POOL   40
#define FIELDS 12
#define HEADS  120

static uint32_t seed;

static uint32_t draw(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

struct field {
	char name[24], value[200];
};

struct truth {
	struct field fields[FIELDS];
	size_t count;
	uint8_t block[8192];
	size_t len;
};

static void draw_field(struct field *f)
{
	size_t n = draw(4) == 0 ? draw(190) : draw(12);

	if (draw(4) == 0) { /* of the static table */
		snprintf(f->name, sizeof(f->name), "%s", draw(2) ? "content-type" : "cookie");
	} else {
		snprintf(f->name, sizeof(f->name), "x-%u", draw(POOL));
	}
	for (size_t i = 0; i < n; i++)
		f->value[i] = draw(3) ? (char)('a' + draw(26)) : (char)(0x80 + draw(0x7f));
	f->value[n] = '\0';
}

static void draw_heads(struct truth *heads, size_t first_size, bool changes)
{
	static struct field pool[POOL];
	nghttp2_hd_deflater *d;

	for (size_t i = 0; i < POOL; i++)
		draw_field(&pool[i]);
	assert_int_equal(nghttp2_hd_deflate_new(&d, first_size > 4096 ? first_size : 4096), 0);
	if (first_size != 4096)
		assert_int_equal(nghttp2_hd_deflate_change_table_size(d, first_size), 0);
	for (size_t i = 0; i < HEADS; i++) {
		struct truth *t = &heads[i];
		nghttp2_nv nv[FIELDS];
		ssize_t n;

		t->count = 1 + draw(FIELDS - 1);
		for (size_t k = 0; k < t->count; k++) {
			struct field *f = &t->fields[k];

			*f = pool[draw(POOL)];
			if (draw(5) == 0)
				draw_field(f);
			nv[k] = (nghttp2_nv){(uint8_t *)f->name, (uint8_t *)f->value, strlen(f->name), strlen(f->value),
					     draw(6) ? NGHTTP2_NV_FLAG_NONE : NGHTTP2_NV_FLAG_NO_INDEX};
		}
		if (changes && draw(10) == 0)
			nghttp2_hd_deflate_change_table_size(d, draw(3) ? draw(3000) : 0);
		n = nghttp2_hd_deflate_hd(d, t->block, sizeof(t->block), nv, t->count);
		assert_true(n >= 0);
		t->len = (size_t)n;
	}
	nghttp2_hd_deflate_del(d);
}

/* Every field that is told is a field of the head, in order; what is missing is counted. */
static bool is_true(const struct hpack_head *head, const struct truth *t)
{
	size_t k = 0;

	for (size_t i = 0; i < head->header_count; i++) {
		while (k < t->count && (!sv_eq(head->headers[i].name, sv_of(t->fields[k].name)) ||
					!sv_eq(head->headers[i].value, sv_of(t->fields[k].value))))
			k++;
		if (k++ == t->count)
			return false;
	}
	return head->header_count + head->unknown == t->count;
}

/* From every block on, with blocks lost in between: never wrong; and exact where nothing was missed. */
static void test_every_attach(void **state)
{
	static const size_t sizes[] = {4096, 0, 100, 1000, 30000, 65536, 200000};
	static struct truth heads[HEADS];
	struct guard g = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes) * 2; i++) {
		seed = (uint32_t)i;
		draw_heads(heads, sizes[i / 2], i & 1);
		for (size_t from = 0; from < HEADS; from += from < 10 ? 1 : 7) {
			struct hpack *p = hpack_new(from == 0);
			size_t all = 0, unknown = 0, lost_at = from ? from + draw(HEADS) : SIZE_MAX;

			for (size_t k = from; k < HEADS; k++) {
				struct truth *t = &heads[k];
				struct hpack_head head;

				if (k == lost_at) {
					hpack_lose(p);
					continue;
				}
				assert_int_equal(hpack_decode(p, guard_copy(&g, t->block, t->len), t->len, &head), 0);
				assert_true(is_true(&head, t));
				all += t->count;
				unknown += head.unknown;
				hpack_head_release(&head);
			}
			if (from == 0 && sizes[i / 2] <= HPACK_TABLE_MAX)
				assert_int_equal(unknown, 0);
			assert_true(unknown < all || HEADS - from < 20);
			hpack_free(p);
		}
	}
	guard_free(&g);
}

static void test_no_memory(void **state)
{
	static struct truth heads[HEADS];
	bool hit = true;

	(void)state;
	seed = 3;
	draw_heads(heads, 4096, true);
	for (unsigned n = 1; hit; n++) {
		struct hpack *p;
		struct hpack_head head;

		fail_nth(n);
		p = hpack_new(true);
		for (size_t k = 0; p && k < 8; k++) {
			int err = hpack_decode(p, heads[k].block, heads[k].len, &head);

			assert_true(err == 0 || err == -ENOMEM);
			if (!err)
				assert_true(is_true(&head, &heads[k]));
			hpack_head_release(&head);
		}
		hit = fail_nth_hit();
		fail_nth(0);
		hpack_free(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rfc_requests),
		cmocka_unit_test(test_rfc_responses),
		cmocka_unit_test(test_rfc_middle),
		cmocka_unit_test(test_spelled_out_names),
		cmocka_unit_test(test_unknown_name_keeps_order),
		cmocka_unit_test(test_unknown_becomes_known),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_fields_left_out),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_many_fields),
		cmocka_unit_test(test_every_attach),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
