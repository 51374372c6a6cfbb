/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "base/err.h"
#include "flow/proto/sse.h"

struct run {
	const char *text;
	size_t len;
	const char *golden;
	size_t cut1, cut2;
	struct guard guard;
	struct tlog log;
	int err;
};

static void on_event(void *ctx, const struct sse_event *e)
{
	struct run *r = ctx;

	assert_int_equal(e->data.ptr[e->data.len], '\0');
	tlog_printf(&r->log, "%.*s@%d%s=", (int)e->type.len, e->type.ptr, (int)e->at.ts_ns, e->unterminated ? "?" : "");
	tlog_escaped(&r->log, e->data.ptr, e->data.len);
	tlog_printf(&r->log, ";");
}

static void on_comment(void *ctx, const struct stamp *at)
{
	struct run *r = ctx;

	tlog_printf(&r->log, ":@%d;", (int)at->ts_ns);
}

static struct sse *new_sse(struct run *r)
{
	struct sse_sink sink = {r, on_event, on_comment};

	return sse_new(&sink);
}

/* Each byte's stamp is its place, so that the byte that completes an event shows. */
static int push_bytes(struct run *r, struct sse *s, size_t from, size_t to)
{
	const uint8_t *p = guard_copy(&r->guard, r->text + from, to - from);
	int err = 0;

	for (size_t i = from; i < to && !err; i++) {
		struct stamp at = {i, i, 1, 0};

		err = sse_push(s, p + (i - from), 1, &at);
	}
	return err;
}

static void check(struct run *r)
{
	if (strcmp(r->log.text ? r->log.text : "", r->golden)) {
		print_error("cuts %zu %zu of: ", r->cut1, r->cut2);
		print_error("%s\n is: %s\nnot: %s\n", r->text, r->log.text, r->golden);
		fail();
	}
	r->log.len = 0;
	if (r->log.text)
		r->log.text[0] = '\0';
}

static void run_bytewise(struct run *r)
{
	struct sse *s = new_sse(r);

	r->err = s ? push_bytes(r, s, 0, r->len) : -ENOMEM;
	if (s)
		sse_finish(s);
	sse_free(s);
}

/* Pieces of one stamp: the whole, whatever the cuts; times are 0. */
static void run_cut(void *ctx, size_t cut1, size_t cut2)
{
	struct run *r = ctx;
	struct stamp at = {0};
	struct sse *s = new_sse(r);
	size_t cuts[4] = {0, cut1, cut2, r->len};

	r->cut1 = cut1;
	r->cut2 = cut2;
	for (int i = 0; i < 3; i++)
		sse_push(s, guard_copy(&r->guard, r->text + cuts[i], cuts[i + 1] - cuts[i]), cuts[i + 1] - cuts[i],
			 &at);
	sse_finish(s);
	sse_free(s);
	check(r);
}

struct example {
	const char *text, *timed, *untimed;
};

static const struct example examples[] = {
	{"data: a\n\ndata:b\n\n", "message@8=a;message@16=b;", "message@0=a;message@0=b;"},
	/* at the CR of the blank line; its LF begins nothing */
	{"event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", "x@19=a;message@30=b;", "x@0=a;message@0=b;"},
	{"data: a\r\rdata: b\r\r", "message@8=a;message@17=b;", "message@0=a;message@0=b;"},
	/* LF CRLF, CRLF LF, CR CR, CR CRLF, LF CR */
	{"data:1\n\r\ndata:2\r\n\ndata:3\r\rdata:4\r\r\ndata:5\n\r",
	 "message@7=1;message@17=2;message@25=3;message@33=4;message@42=5;",
	 "message@0=1;message@0=2;message@0=3;message@0=4;message@0=5;"},
	{"\xef\xbb\xbf"
	 "data: bom\n\n",
	 "message@13=bom;", "message@0=bom;"},
	{"\xef\xbb"
	 "data: no bom\n\ndata: y\n\n",
	 "message@24=y;", "message@0=y;"},
	{"\n\xef\xbb\xbf"
	 "data: late bom\n\ndata: y\n\n",
	 "message@28=y;", "message@0=y;"},
	{"data: a\ndata\ndata:  b\ndata:\n\n", "message@28=a\\x0a\\x0a b\\x0a;", "message@0=a\\x0a\\x0a b\\x0a;"},
	{"data\n\n", "message@5=;", "message@0=;"},
	/* JSON without a field name */
	{"data: a\n\n{\"error\":1}\n\ndata: b\n\n", "message@8=a;message@21={\"error\":1};message@30=b;",
	 "message@0=a;message@0={\"error\":1};message@0=b;"},
	{"event: e\n{\n  \"error\": {\r\n\"data\":1}}\ndata: b\n\n",
	 "e@43={\\x0a  \"error\": {\\x0a\"data\":1}};message@44=b;",
	 "e@0={\\x0a  \"error\": {\\x0a\"data\":1}};message@0=b;"},
	{"data: a\n\n{\n \"error\":1}", "message@8=a;message@21?={\\x0a \"error\":1};",
	 "message@0=a;message@0?={\\x0a \"error\":1};"},
	{"data: a\n{\"not\":1}\n\n", "message@18=a;", "message@0=a;"},
	{": hi\n\n:\nretry: 10\n\nid: 7\n\nevent: ping\n\ndata: a\n\n", ":@4;:@7;message@47=a;",
	 ":@0;:@0;message@0=a;"},
	{"event: a\nevent: b\nfoo: bar\ndata: x:y: z\nid\n\n", "b@43=x:y: z;", "b@0=x:y: z;"},
	{"event: a\n\ndata: x\n\n", "message@18=x;", "message@0=x;"},
	{"Data: no\n data: no\ndata : no\n\n", "", ""},
	/* the end of the stream: complete lines count, what is cut in a line does not */
	{"data: a\ndata: b", "message@7?=a;", "message@0?=a;"},
	{"event: e\ndata: a\r", "e@16?=a;", "e@0?=a;"},
	{"data: cut", "", ""},
	{"event: only\n", "", ""},
	{"data: \xe4\xbd\xa0\xf0\x9f\x99\x82\n\n", "message@14=\\xe4\\xbd\\xa0\\xf0\\x9f\\x99\\x82;",
	 "message@0=\\xe4\\xbd\\xa0\\xf0\\x9f\\x99\\x82;"},
	{"", "", ""},
};

static void test_examples(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(examples); i++) {
		struct run r = {.text = examples[i].text, .len = strlen(examples[i].text), .golden = examples[i].timed};

		run_bytewise(&r);
		check(&r);
		r.golden = examples[i].untimed;
		every_cut(r.len, r.len, run_cut, &r);
		tlog_free(&r.log);
		guard_free(&r.guard);
	}
}

static void test_no_comment_sink(void **state)
{
	struct run r = {.text = ": c\n\ndata: a\n\n", .len = 14, .golden = "message@13=a;"};
	struct sse_sink sink = {&r, on_event, NULL};
	struct sse *s = sse_new(&sink);

	(void)state;
	assert_int_equal(push_bytes(&r, s, 0, r.len), 0);
	sse_free(s);
	check(&r);
	tlog_free(&r.log);
	guard_free(&r.guard);
}

/* Every byte range is lost. What is told afterwards is never an event that was not sent; the last one always is. */
static void test_every_gap(void **state)
{
	static const char text[] = "data: 1\n\nevent: e\r\ndata: 2\r\ndata: 3\r\n\r\n: c\n\ndata: 4\n\n";
	size_t len = sizeof(text) - 1;

	(void)state;
	for (size_t from = 0; from <= len; from++) {
		for (size_t to = from; to <= len; to++) {
			struct run r = {.text = text, .len = len};
			struct sse *s = new_sse(&r);
			struct stamp at = {0};

			push_bytes(&r, s, 0, from);
			sse_gap(s);
			push_bytes(&r, s, to, len);
			sse_push(s, (const uint8_t *)"\n\ndata: end\n\n", 13, &at);
			sse_finish(s);
			sse_free(s);
			for (char *p = r.log.text, *end; p && *p; p = end + 1) {
				const char *data = strchr(p, '=');

				end = strchr(p, ';');
				if (*p == ':')
					continue;
				*end = '\0';
				assert_non_null(data);
				assert_true(!strcmp(data, "=1") || !strcmp(data, "=2\\x0a3") || !strcmp(data, "=4") ||
					    !strcmp(data, "=end"));
				assert_int_equal(!strncmp(p, "e@", 2), !strcmp(data, "=2\\x0a3"));
				*end = ';';
			}
			assert_non_null(strstr(r.log.text, "message@0=end;"));
			tlog_free(&r.log);
			guard_free(&r.guard);
		}
	}
}

static void test_gap_between_events(void **state)
{
	struct run r = {.text = "data: a\n\ndata: b\n\ndata: c\n\n", .len = 27, .golden = "message@8=a;message@26=c;"};
	struct sse *s = new_sse(&r);

	(void)state;
	push_bytes(&r, s, 0, 9);
	sse_gap(s); /* where it ended in a line is not known, so b is not believed */
	push_bytes(&r, s, 9, 27);
	sse_finish(s);
	sse_free(s);
	check(&r);
	tlog_free(&r.log);
	guard_free(&r.guard);
}

static size_t big_len;

static void on_big(void *ctx, const struct sse_event *e)
{
	(void)ctx;
	big_len = e->data.len;
}

static void push_many(struct sse *s, char c, size_t n, size_t piece)
{
	static char block[1 << 16];
	struct stamp at = {0};

	memset(block, c, sizeof(block));
	while (n) {
		size_t k = n < piece ? n : piece;

		assert_int_equal(sse_push(s, (uint8_t *)block, k, &at), 0);
		n -= k;
	}
}

static void test_oversize(void **state)
{
	static const struct sse_sink sink = {NULL, on_big, NULL};
	struct stamp at = {0};

	(void)state;
	for (int over = 0; over < 2; over++) {
		struct sse *s = sse_new(&sink);

		big_len = 0;
		sse_push(s, (const uint8_t *)"data: ", 6, &at);
		push_many(s, 'x', SSE_EVENT_MAX + (unsigned)over, 65536);
		sse_push(s, (const uint8_t *)"\n\n", 2, &at);
		assert_int_equal(sse_oversize(s), over);
		assert_int_equal(big_len, over ? 0 : SSE_EVENT_MAX);
		sse_push(s, (const uint8_t *)"data: ab\n\n", 10, &at);
		assert_int_equal(big_len, 2);
		sse_free(s);
	}
}

/* Many lines, one line without an end, a comment without an end: counted once each, and the next event is there. */
static void test_oversize_shapes(void **state)
{
	static const struct sse_sink sink = {NULL, on_big, NULL};
	struct stamp at = {0};
	struct sse *s = sse_new(&sink);

	(void)state;
	for (int i = 0; i < 2000; i++) {
		sse_push(s, (const uint8_t *)"data:", 5, &at);
		push_many(s, 'y', 8000, 8000);
		sse_push(s, (const uint8_t *)"\n", 1, &at);
	}
	assert_int_equal(sse_oversize(s), 1);
	sse_push(s, (const uint8_t *)"\n", 1, &at);
	push_many(s, 'z', 2 * SSE_EVENT_MAX, 65536);
	assert_int_equal(sse_oversize(s), 2);
	sse_push(s, (const uint8_t *)"\n\n:", 3, &at);
	push_many(s, 'c', 2 * SSE_EVENT_MAX, 65536);
	assert_int_equal(sse_oversize(s), 2);
	big_len = 0;
	sse_push(s, (const uint8_t *)"\ndata: abc\n\n", 12, &at);
	assert_int_equal(big_len, 3);
	sse_free(s);
}

/* A line that is too long is that also where it comes at once, with its end, and no field of it would be kept. */
static void test_oversize_at_once(void **state)
{
	static char text[SSE_EVENT_MAX + 128];
	static const struct sse_sink sink = {NULL, on_big, NULL};
	struct stamp at = {0};

	(void)state;
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\n';
	for (size_t piece = 65536; piece <= sizeof(text); piece += sizeof(text) - 65536) {
		struct sse *s = sse_new(&sink);

		for (size_t n = 0; n < sizeof(text); n += piece)
			sse_push(s, (uint8_t *)text + n, piece < sizeof(text) - n ? piece : sizeof(text) - n, &at);
		assert_int_equal(sse_oversize(s), 1);
		sse_free(s);
	}
}

/* A megabyte byte by byte, and one of CRs in a single piece: linear, so this ends. */
static void test_linear(void **state)
{
	static const struct sse_sink sink = {NULL, on_big, NULL};
	struct stamp at = {0};
	struct sse *s = sse_new(&sink);
	char *text = malloc(8u << 20);

	(void)state;
	sse_push(s, (const uint8_t *)"data:", 5, &at);
	push_many(s, 'x', 1 << 20, 1);
	sse_push(s, (const uint8_t *)"\n\n", 2, &at);
	assert_int_equal(big_len, 1 << 20);
	for (size_t i = 0; i < 8u << 20; i++)
		text[i] = "a\r"[i % 2];
	assert_int_equal(sse_push(s, (uint8_t *)text, 8u << 20, &at), 0);
	sse_free(s);
	free(text);
}

static void test_no_memory(void **state)
{
	bool hit = true;

	(void)state;
	for (unsigned n = 1; hit; n++) {
		struct run r = {.text = "event: ab\ndata: 1\ndata: 2\n\n: c\ndata: x\n", .len = 40};

		fail_nth(n);
		run_bytewise(&r);
		hit = fail_nth_hit();
		fail_nth(0);
		if (hit)
			assert_int_equal(r.err, -ENOMEM);
		else
			assert_log(&r.log, "ab@26=1\\x0a2;:@30;message@38?=x;");
		tlog_free(&r.log);
		guard_free(&r.guard);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_examples),	 cmocka_unit_test(test_no_comment_sink),
		cmocka_unit_test(test_every_gap),	 cmocka_unit_test(test_gap_between_events),
		cmocka_unit_test(test_oversize),	 cmocka_unit_test(test_oversize_shapes),
		cmocka_unit_test(test_oversize_at_once), cmocka_unit_test(test_linear),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
