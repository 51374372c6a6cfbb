/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "feed.h"

#include "base/err.h"
#include "flow/proto/jsonarray.h"

static void on_element(void *ctx, const struct jsonarray_element *e)
{
	tlog_printf(ctx, "%llu ", (unsigned long long)e->at.ts_ns);
	tlog_escaped(ctx, e->text.ptr, e->text.len < 200 ? e->text.len : 200);
	tlog_printf(ctx, "%s%s\n", e->text.len > 200 ? "..." : "", e->after_gap ? " after gap" : "");
}

static void *open_parser(struct tlog *log, const void *arg)
{
	(void)arg;
	return jsonarray_new(&(struct jsonarray_sink){log, on_element});
}

static int push(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	(void)dir;
	return jsonarray_push(parser, ptr, len, at);
}

static void gap(void *parser, enum dir dir, uint64_t len, const struct stamp *at)
{
	(void)dir, (void)len, (void)at;
	jsonarray_gap(parser);
}

static void close_parser(void *parser, struct tlog *log)
{
	if (jsonarray_oversize(parser))
		tlog_printf(log, "oversize %u\n", jsonarray_oversize(parser));
	tlog_printf(log, "%s%s\n", jsonarray_closed(parser) ? "closed" : "open",
		    jsonarray_is_json(parser) ? "" : ", no json");
	jsonarray_free(parser);
}

#define SEGMENT(text, ts) FEED_SEGMENT(DIR_RX, ts, text)
#define GAP(ts)		  FEED_GAP(DIR_RX, ts, 9)
#define FEED(...)                                                                                                      \
	{                                                                                                              \
		FEED_OF(open_parser, push, gap, close_parser, __VA_ARGS__)                                             \
	}

/* As Gemini's servers write it, with what must not be taken for brackets. */
#define STREAM                                                                                                         \
	SEGMENT("\xef\xbb\xbf[{\n  \"a\": [\n    {\"t\": \"}]\\\"{\"}\n  ]\n}", 10), SEGMENT("\n,\r\n{\n  \"b\"", 20), \
		SEGMENT(": \"\\\\\"\n}", 30), SEGMENT(",\r\n{\"c\":{}},[1,[2]]", 40),                                  \
		SEGMENT(", 7, \"{\\\"\" ]\r\n", 50)

static const char *const elements[] = {
	"10 {\\x0a  \"a\": [\\x0a    {\"t\": \"}]\\x5c\"{\"}\\x0a  ]\\x0a}",
	"30 {\\x0a  \"b\": \"\\x5c\\x5c\"\\x0a}",
	"40 {\"c\":{}}",
	"40 [1,[2]]",
};

static void test_elements(void **state)
{
	struct feed f = FEED(STREAM);
	struct tlog golden = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(elements); i++)
		tlog_printf(&golden, "%s\n", elements[i]);
	tlog_printf(&golden, "closed\n");
	feed_golden(&f, 200, golden.text);
	feed_no_memory(&f);
	feed_release(&f);
	tlog_free(&golden);
}

static void check(const char *text, const char *golden)
{
	const struct feed_segment segment = {text, strlen(text), 1, DIR_RX};
	struct feed f = FEED(GAP(0));

	f.segments = &segment;
	feed_golden(&f, 100, golden);
	feed_release(&f);
}

static void test_shapes(void **state)
{
	(void)state;
	check("", "open\n");
	check(" []", "closed\n");
	check("[{}]", "1 {}\nclosed\n");
	check("[{}] {}", "1 {}\nclosed\n");
	check("[{}", "1 {}\nopen\n");
	check("[[]", "1 []\nopen\n");
	check("[{\"a\":", "open\n");
	check("[1,\"]\",true,null,-1e3,{}", "1 {}\nopen\n");
	check("[\"\\\\\",{\"x\":\"\\\\\"}]", "1 {\"x\":\"\\x5c\\x5c\"}\nclosed\n");
	/* An error body that is no array, and objects one after another. */
	check("{\"error\":{\"code\":429}}", "1 {\"error\":{\"code\":429}}\nopen\n");
	check("{}\n]\n{\"a\":[{}]}\r\n", "1 {}\n1 {\"a\":[{}]}\nopen\n");
	check("data: {}\n", "open, no json\n");
	check("<html>[{}]", "open, no json\n");
	check("\"[{}]\"", "open, no json\n");
	/* Brackets that do not match are for the reader of the element to refuse. */
	check("[{]{}}]", "1 {]\n1 {}\nclosed\n");
	check("]", "open, no json\n");
}

static void test_gap(void **state)
{
	struct feed inside = FEED(SEGMENT("[{\n  \"a\": [\n", 1), GAP(2), SEGMENT("x\"\n  }\n,\n{\"b\":1}\n]", 3)),
		    between = FEED(SEGMENT("[{}", 1), GAP(2), SEGMENT(",\n{\"b\":1},{\"c\":2},\n{}]", 3)),
		    nothing = FEED(SEGMENT("[{\"a\":\"", 1), GAP(2), SEGMENT("{},{}\",{}]", 3)),
		    first = FEED({NULL, UINT64_MAX, 1, DIR_RX}, SEGMENT("\"}]}\n,\r\n{\"a\":[]}]", 2)),
		    after = FEED(SEGMENT("[{}]", 1), GAP(2), SEGMENT("\n{}", 3));

	(void)state;
	feed_golden(&inside, 100, "3 {\"b\":1} after gap\nopen\n");
	feed_golden(&between, 100, "1 {}\n3 {\"b\":1} after gap\n3 {\"c\":2} after gap\n3 {} after gap\nopen\n");
	feed_golden(&nothing, 100, "open\n");
	feed_golden(&first, 100, "2 {\"a\":[]} after gap\nopen\n");
	feed_golden(&after, 100, "1 {}\nclosed\n");
	feed_release(&inside);
	feed_release(&between);
	feed_release(&nothing);
	feed_release(&first);
	feed_release(&after);
}

/* Each element is one that was sent: the indented ones inside of others are not taken for elements. */
static void check_elements(struct feed *f, const struct feed_run *r)
{
	const char *p = f->log.text;

	for (size_t i = 0; i < ARRAY_SIZE(elements); i++) {
		size_t len = strlen(elements[i]);

		if (strncmp(p, elements[i], len))
			continue;
		p += len;
		p += strncmp(p, " after gap\n", 11) ? strlen("\n") : strlen(" after gap\n");
	}
	if (strcmp(p, "open\n") && strcmp(p, "closed\n") && strcmp(p, "open, no json\n")) {
		print_error("gap %zu..%zu:\n%s", r->gap_from, r->gap_to, f->log.text);
		fail();
	}
	if (r->gap_to <= 60) { /* where the line of the third one begins */
		assert_non_null(strstr(f->log.text, elements[2]));
		assert_non_null(strstr(f->log.text, elements[3]));
	}
}

static void test_every_gap(void **state)
{
	struct feed f = FEED(STREAM);

	(void)state;
	feed_gaps(&f, 1, check_elements);
	feed_release(&f);
}

static void test_long_elements(void **state)
{
	size_t len = 1 + JSONARRAY_ELEMENT_MAX + 5;
	char *text = malloc(len);
	struct feed_segment segment = {text, len, 5, DIR_RX};
	struct feed f = FEED(GAP(0));
	struct feed_run r = FEED_WHOLE;

	(void)state;
	f.segments = &segment;
	memset(text, ' ', len);
	memcpy(text, "[{", 2);
	memcpy(text + JSONARRAY_ELEMENT_MAX, "},{}]", 5);
	for (r = FEED_WHOLE; r.cut2; r.cut1 = 7, r.cut2 = r.cut2 == SIZE_MAX ? len - 2 : 0) {
		assert_int_equal(feed_play(&f, &r), 0);
		assert_non_null(strstr(f.log.text, "...\n5 {}\nclosed\n"));
	}
	memset(text, ' ', len);
	memcpy(text, "[{", 2);
	memcpy(text + JSONARRAY_ELEMENT_MAX + 1, "},{}]", 5);
	f.golden = "5 {}\noversize 1\nclosed\n";
	for (r = FEED_WHOLE; r.cut2; r.cut1 = 7, r.cut2 = r.cut2 == SIZE_MAX ? len - 2 : 0)
		feed_expect(&f, &r);
	free(text);
	feed_release(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_elements),  cmocka_unit_test(test_shapes),	cmocka_unit_test(test_gap),
		cmocka_unit_test(test_every_gap), cmocka_unit_test(test_long_elements),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
