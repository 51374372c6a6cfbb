/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "feed.h"

#include "base/err.h"
#include "flow/proto/ndjson.h"

static void on_line(void *ctx, const struct ndjson_line *line)
{
	tlog_printf(ctx, "%llu ", (unsigned long long)line->at.ts_ns);
	tlog_escaped(ctx, line->text.ptr, line->text.len < 200 ? line->text.len : 200);
	tlog_printf(ctx, "%s%s\n", line->text.len > 200 ? "..." : "", line->unterminated ? " unterminated" : "");
}

static void *open_parser(struct tlog *log, const void *arg)
{
	(void)arg;
	return ndjson_new(&(struct ndjson_sink){log, on_line});
}

static int push(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	(void)dir;
	return ndjson_push(parser, ptr, len, at);
}

static void gap(void *parser, enum dir dir, uint64_t len, const struct stamp *at)
{
	(void)dir, (void)len, (void)at;
	ndjson_gap(parser);
}

static void close_parser(void *parser, struct tlog *log)
{
	ndjson_finish(parser);
	if (ndjson_oversize(parser))
		tlog_printf(log, "oversize %u\n", ndjson_oversize(parser));
	ndjson_free(parser);
}

#define SEGMENT(text, ts) FEED_SEGMENT(DIR_RX, ts, text)
#define FEED(...)                                                                                                      \
	{                                                                                                              \
		FEED_OF(open_parser, push, gap, close_parser, __VA_ARGS__)                                             \
	}

#define STREAM                                                                                                         \
	SEGMENT("\xef\xbb\xbf{\"a\":1}\n{\"b\"", 10), SEGMENT(":\"\xe4\xbd\xa0\"}\r\n\r\n\n  \t\n", 20),               \
		SEGMENT(" {\"c\":\"\\n\"} \r", 30), SEGMENT("\n{\"d\":{}}\n{\"done\"", 40), SEGMENT(":true}", 50)

static void test_lines(void **state)
{
	struct feed f = FEED(STREAM);

	(void)state;
	feed_golden(&f, 200,
		    "10 {\"a\":1}\n"
		    "20 {\"b\":\"\\xe4\\xbd\\xa0\"}\n"
		    "40 {\"c\":\"\\x5cn\"}\n"
		    "40 {\"d\":{}}\n"
		    "50 {\"done\":true} unterminated\n");
	feed_no_memory(&f);
	feed_release(&f);
}

static void test_ends(void **state)
{
	struct feed terminated = FEED(SEGMENT("{}\n", 1)), blank = FEED(SEGMENT("\r\n \n", 1), SEGMENT("  ", 2)),
		    mark = FEED(SEGMENT("\xef\xbb\xbf", 1), SEGMENT("\n1\n\xef\xbb\xbf\n", 2)),
		    text = FEED(SEGMENT("error\n", 1));

	(void)state;
	feed_golden(&terminated, 10, "1 {}\n");
	feed_golden(&blank, 10, "");
	/* A byte order mark is one at the very beginning only. */
	feed_golden(&mark, 10, "2 1\n2 \\xef\\xbb\\xbf\n");
	feed_golden(&text, 10, "1 error\n");
	feed_release(&terminated);
	feed_release(&blank);
	feed_release(&mark);
	feed_release(&text);
}

static void test_gap_costs_its_line(void **state)
{
	struct feed f = FEED(SEGMENT("{\"a\":1}\n{\"b\":", 10), FEED_GAP(DIR_RX, 11, 5), SEGMENT("}\n{\"c\":3}\n", 20)),
		    last = FEED(SEGMENT("{}\n{\"b\":", 10), FEED_GAP(DIR_RX, 11, 5), SEGMENT("1}", 20)),
		    first = FEED({NULL, UINT64_MAX, 1, DIR_RX}, SEGMENT("1}\n{}\n", 20));

	(void)state;
	feed_golden(&f, 100, "10 {\"a\":1}\n20 {\"c\":3}\n");
	feed_golden(&last, 100, "10 {}\n");
	feed_golden(&first, 100, "20 {}\n");
	feed_release(&f);
	feed_release(&last);
	feed_release(&first);
}

/* Each line is one that was sent. */
static void check_lines(struct feed *f, const struct feed_run *r)
{
	static const char *const lines[] = {"10 {\"a\":1}\n", "20 {\"b\":\"\\xe4\\xbd\\xa0\"}\n",
					    "40 {\"c\":\"\\x5cn\"}\n", "40 {\"d\":{}}\n",
					    "50 {\"done\":true} unterminated\n"};
	const char *p = f->log.text ? f->log.text : "";

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		if (!strncmp(p, lines[i], strlen(lines[i])))
			p += strlen(lines[i]);
	if (*p)
		print_error("gap %zu..%zu:\n%s", r->gap_from, r->gap_to, f->log.text);
	assert_string_equal(p, "");
	/* A gap in the first lines leaves the last one alone. */
	if (r->gap_to < 50)
		assert_non_null(strstr(f->log.text, lines[4]));
}

static void test_every_gap(void **state)
{
	struct feed f = FEED(STREAM);

	(void)state;
	feed_gaps(&f, 1, check_lines);
	feed_release(&f);
}

static void test_long_lines(void **state)
{
	size_t len = NDJSON_LINE_MAX + 1 + 3;
	char *text = malloc(len);
	struct feed_segment segment = {text, len, 5, DIR_RX};
	struct feed f = FEED(FEED_GAP(DIR_RX, 0, 0));
	struct feed_run r = FEED_WHOLE;

	(void)state;
	f.segments = &segment;
	memset(text, 'x', len);
	memcpy(text + NDJSON_LINE_MAX, "\n{}\n", 4);
	for (int cut = 0; cut < 2; cut++, r.cut1 = r.cut2 = 1000) {
		assert_int_equal(feed_play(&f, &r), 0);
		assert_int_equal(f.log.len, 2 + 200 + 4 + 5);
	}
	memset(text, 'x', len);
	memcpy(text + len - 3, "\n{}", 3);
	f.golden = "5 {} unterminated\noversize 1\n";
	for (r = FEED_WHOLE; r.cut2; r.cut1 = 7, r.cut2 = r.cut2 == SIZE_MAX ? len - 2 : 0)
		feed_expect(&f, &r);
	free(text);
	feed_release(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_gap_costs_its_line),
		cmocka_unit_test(test_every_gap),
		cmocka_unit_test(test_long_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
