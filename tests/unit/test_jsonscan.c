/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "base/err.h"
#include "flow/llm/jsonscan.h"

static const char *const type_names[] = {"null", "false", "true", "number", "string", "object", "array"};

static void log_path(struct tlog *l, const struct jsonscan_value *v)
{
	for (unsigned i = 0; i < v->depth; i++) {
		if (v->path[i].key.ptr) {
			tlog_printf(l, ".");
			tlog_escaped(l, v->path[i].key.ptr, v->path[i].key.len);
		} else {
			tlog_printf(l, "[%llu]", (unsigned long long)v->path[i].index);
		}
	}
}

static void on_value(void *ctx, const struct jsonscan_value *v)
{
	struct tlog *l = ctx;

	log_path(l, v);
	tlog_printf(l, " %s", type_names[v->type]);
	if (v->text.ptr) {
		tlog_printf(l, " ");
		tlog_escaped(l, v->text.ptr, v->text.len);
	}
	if (v->type == JSON_STRING)
		tlog_printf(l, " %llu", (unsigned long long)v->bytes);
	tlog_printf(l, "\n");
}

static void on_end(void *ctx, const struct jsonscan_value *v)
{
	struct tlog *l = ctx;

	log_path(l, v);
	tlog_printf(l, " end %s %llu\n", type_names[v->type], (unsigned long long)v->bytes);
}

static struct jsonscan *scan_new(struct tlog *l)
{
	const struct jsonscan_sink sink = {.ctx = l, .on_value = on_value, .on_end = on_end};

	return jsonscan_new(&sink);
}

/* Whole text at once; the log, "bad" or "done" or "open" at its end. */
static void scan_all(struct tlog *l, const char *text, size_t len)
{
	struct jsonscan *s = scan_new(l);
	int err;

	assert_non_null(s);
	err = jsonscan_push(s, (const uint8_t *)text, len);
	tlog_printf(l, "%s\n", err == -EBADMSG ? "bad" : jsonscan_done(s) ? "done" : "open");
	jsonscan_free(s);
}

static void check(const char *text, const char *golden)
{
	struct tlog l = {0};

	scan_all(&l, text, strlen(text));
	assert_log(&l, golden);
	tlog_free(&l);
}

static const char everything[] =
	" {\"model\" : \"m\\u00e9\\ud83d\\ude42\\n\\\"\",\r\n\t\"n\":[-0.5e+10,0,17,true,false,null,[],{}],"
	"\"o\":{\"a\":{\"b\":[\"x\",{\"c\":\"\xc3\xa9\"}]},\"\":1e9},\"lone\":\"\\ud83dx\\ude42\\/\"} trailing {";

static const char everything_golden[] = " object\n"
					".model string m\\xc3\\xa9\\xf0\\x9f\\x99\\x82\\x0a\" 9\n"
					".n array\n"
					".n[0] number -0.5e+10\n"
					".n[1] number 0\n"
					".n[2] number 17\n"
					".n[3] true\n"
					".n[4] false\n"
					".n[5] null\n"
					".n[6] array\n"
					".n[6] end array 0\n"
					".n[7] object\n"
					".n[7] end object 0\n"
					".n end array 8\n"
					".o object\n"
					".o.a object\n"
					".o.a.b array\n"
					".o.a.b[0] string x 1\n"
					".o.a.b[1] object\n"
					".o.a.b[1].c string \\xc3\\xa9 2\n"
					".o.a.b[1] end object 1\n"
					".o.a.b end array 2\n"
					".o.a end object 1\n"
					".o. number 1e9\n"
					".o end object 2\n"
					".lone string \\xef\\xbf\\xbdx\\xef\\xbf\\xbd/ 8\n"
					" end object 4\n"
					"done\n";

static void test_everything(void **state)
{
	(void)state;
	check(everything, everything_golden);
}

struct cuts {
	struct guard guard[3];
	const char *text;
	size_t len;
	const char *golden;
};

static void run_cut(void *ctx, size_t a, size_t b)
{
	struct cuts *c = ctx;
	const size_t at[4] = {0, a, b, c->len};
	struct tlog l = {0};
	struct jsonscan *s = scan_new(&l);
	int err = 0;

	for (int i = 0; i < 3; i++) {
		size_t n = at[i + 1] - at[i];

		err = jsonscan_push(s, guard_copy(&c->guard[i], c->text + at[i], n), n);
	}
	tlog_printf(&l, "%s\n", err ? "bad" : jsonscan_done(s) ? "done" : "open");
	jsonscan_free(s);
	assert_log(&l, c->golden);
	tlog_free(&l);
}

static void cut_everywhere(const char *text, size_t len, const char *golden)
{
	struct cuts c = {.text = text, .len = len, .golden = golden};

	every_cut(len, 300, run_cut, &c);
	for (int i = 0; i < 3; i++)
		guard_free(&c.guard[i]);
}

static void feed_bytes(const char *text, size_t len, const char *golden)
{
	struct tlog l = {0};
	struct jsonscan *s = scan_new(&l);
	struct guard g = {0};
	int err = 0;

	for (size_t i = 0; i < len; i++)
		err = jsonscan_push(s, guard_copy(&g, text + i, 1), 1);
	tlog_printf(&l, "%s\n", err ? "bad" : jsonscan_done(s) ? "done" : "open");
	assert_log(&l, golden);
	jsonscan_free(s);
	guard_free(&g);
	tlog_free(&l);
}

static void test_every_cut(void **state)
{
	(void)state;
	cut_everywhere(everything, sizeof(everything) - 1, everything_golden);
	feed_bytes(everything, sizeof(everything) - 1, everything_golden);
}

/* A gap: what came before was reported, nothing after it is. */
static void test_every_gap(void **state)
{
	size_t len = sizeof(everything) - 1;

	(void)state;
	for (size_t a = 0; a <= len; a++) {
		struct tlog before = {0}, all = {0};
		struct jsonscan *s = scan_new(&all), *t = scan_new(&before);

		jsonscan_push(t, (const uint8_t *)everything, a);
		jsonscan_push(s, (const uint8_t *)everything, a);
		jsonscan_gap(s);
		assert_int_equal(jsonscan_push(s, (const uint8_t *)everything, len), -EBADMSG);
		assert_false(jsonscan_done(s));
		assert_log(&all, before.text ? before.text : "");
		jsonscan_free(s);
		jsonscan_free(t);
		tlog_free(&before);
		tlog_free(&all);
	}
}

static void test_not_json(void **state)
{
	static const char *const bad[] = {
		"x",
		"}",
		"]",
		",",
		"{]",
		"[}",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\" 1}",
		"[1,]",
		"{,",
		"{\"a\":1,}",
		"{1:2}",
		"[01]",
		"[1.]",
		"[.5]",
		"[-]",
		"[1e]",
		"[1e+]",
		"[--1]",
		"[+1]",
		"[truE]",
		"[nul]",
		"[\"\\x\"]",
		"[\"\\u12g4\"]",
		"[\"\n\"]",
		"[1 2]",
		"[\"a\"\"b\"]",
		"{\"a\":1 \"b\":2}",
		"[tru e]",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct tlog l = {0};
		struct jsonscan *s = scan_new(&l);

		if (jsonscan_push(s, (const uint8_t *)bad[i], strlen(bad[i])) != -EBADMSG)
			fail_msg("taken for JSON: %s", bad[i]);
		assert_int_equal(jsonscan_push(s, (const uint8_t *)"[]", 2), -EBADMSG); /* sticky */
		assert_false(jsonscan_done(s));
		jsonscan_free(s);
		tlog_free(&l);
	}
}

static void test_scalars(void **state)
{
	(void)state;
	check("\"a\"", " string a 1\ndone\n");
	check("true x", " true\ndone\n");
	check("[\"\\u0000\"]", " array\n[0] string \\x00 1\n end array 1\ndone\n");
	check("12", "open\n");
	check("12 ", " number 12\ndone\n");
	check("", "open\n");
}

/* Below JSONSCAN_DEPTH containers are counted and stepped over, whatever is in them. */
static void test_deep(void **state)
{
	struct tlog text = {0}, l = {0};
	struct jsonscan *s = scan_new(&l);
	const char *last;

	(void)state;
	for (int i = 0; i < JSONSCAN_DEPTH; i++)
		tlog_printf(&text, "[");
	tlog_printf(&text, "[1,\"]\\\"]\",{\"a\":[[[2]]]}],");
	for (int i = 0; i < 100000; i++)
		tlog_printf(&text, "[");
	for (int i = 0; i < 100000; i++)
		tlog_printf(&text, "]");
	tlog_printf(&text, ",[ ],7");
	for (int i = 0; i < JSONSCAN_DEPTH; i++)
		tlog_printf(&text, "]");
	assert_int_equal(jsonscan_push(s, (const uint8_t *)text.text, text.len), 0);
	assert_true(jsonscan_done(s));
	assert_non_null(strstr(l.text, "[0] end array 3\n"));
	assert_non_null(strstr(l.text, "[0][1] end array 1\n"));
	assert_non_null(strstr(l.text, "[0][2] end array 0\n"));
	assert_non_null(strstr(l.text, "[0][3] number 7\n"));
	last = " end array 1\n";
	assert_string_equal(l.text + l.len - strlen(last), last);
	jsonscan_free(s);
	tlog_free(&text);
	tlog_free(&l);
}

/* Long strings: whole length, a prefix of whole characters. Long keys are cut, long numbers have no text. */
static void test_long(void **state)
{
	struct tlog text = {0}, l = {0};
	struct cuts c;

	(void)state;
	tlog_printf(&text, "{\"k\":\"");
	for (int i = 0; i < 300; i++)
		tlog_printf(&text, "\xe4\xbd\xa0"); /* 512 is no multiple of 3 */
	tlog_printf(&text, "\",\"");
	for (int i = 0; i < 100; i++)
		tlog_printf(&text, "k");
	tlog_printf(&text, "\":1");
	for (int i = 0; i < 600; i++)
		tlog_printf(&text, "0");
	tlog_printf(&text, "}");
	scan_all(&l, text.text, text.len);
	assert_non_null(strstr(l.text, "\\xe4\\xbd\\xa0 900\n"));
	assert_null(strstr(l.text, "\\xe4 900"));
	assert_null(strstr(l.text, "\\xbd 900"));
	assert_non_null(strstr(l.text, "."
				       "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk number\n"));
	assert_non_null(strstr(l.text, "done\n"));
	c = (struct cuts){.text = text.text, .len = text.len, .golden = l.text};
	for (size_t a = 0; a + 2 <= text.len; a++) {
		run_cut(&c, a, a + 1);
		run_cut(&c, a, a + 2);
	}
	for (int i = 0; i < 3; i++)
		guard_free(&c.guard[i]);
	feed_bytes(text.text, text.len, l.text);
	tlog_free(&text);
	tlog_free(&l);
}

static void test_no_memory(void **state)
{
	const struct jsonscan_sink sink = {.on_value = on_value};

	(void)state;
	fail_nth(1);
	assert_null(jsonscan_new(&sink));
	assert_true(fail_nth_hit());
	fail_nth(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_everything), cmocka_unit_test(test_every_cut), cmocka_unit_test(test_every_gap),
		cmocka_unit_test(test_not_json),   cmocka_unit_test(test_scalars),   cmocka_unit_test(test_deep),
		cmocka_unit_test(test_long),	   cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
