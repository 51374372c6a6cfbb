/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/quantile.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/lost.h"
#include "base/warm.h"
#include "base/writefd.h"

static void buffer_grows_to_its_cap(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, 100);
	assert_int_equal(buf_push(&b, "0123456789", 10), 0);
	for (int i = 0; i < 9; i++)
		assert_int_equal(buf_push(&b, "0123456789", 10), 0);
	assert_int_equal(buf_putc(&b, 'x'), -ENOSPC);
	assert_int_equal(b.len, 100);
	assert_int_equal(strlen(buf_cstr(&b)), 100);
	buf_drop_front(&b, 95);
	assert_string_equal(buf_cstr(&b), "56789");
	buf_clear(&b);
	assert_int_equal(buf_printf(&b, "%s-%d", "a", 7), 0);
	assert_string_equal(buf_cstr(&b), "a-7");
	assert_int_equal(buf_printf(&b, "%0200d", 1), -ENOSPC);
	assert_string_equal(buf_cstr(&b), "a-7");
	buf_release(&b);
	assert_string_equal(buf_cstr(&b), "");
	buf_release(&b);
	buf_init(&b, 0);
	assert_int_equal(buf_printf(&b, "%0300d", 1), 0);
	assert_int_equal(b.len, 300);
	assert_int_equal(buf_reserve(&b, SIZE_MAX - 10), -ENOMEM);
	buf_release(&b);
}

static void buffer_without_memory(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, 0);
	fail_nth(1);
	assert_int_equal(buf_puts(&b, "x"), -ENOMEM);
	fail_nth(0);
	assert_int_equal(b.len, 0);
	assert_int_equal(buf_puts(&b, "x"), 0);
	buf_release(&b);
}

static void json_text(void **state)
{
	struct buf b;
	struct json j;

	(void)state;
	buf_init(&b, 0);
	json_init(&j, &b);
	json_object(&j, NULL);
	json_string(&j, "s", SV("a\"b\\c\n\x01\x7f\xff\xf0\x9f\x99\x82\xed\xa0\x80z"));
	json_string(&j, "c1", SV("\xc2\x9b\xe2\x80\xae\xc3\xa9")); /* what drives or misleads a terminal */
	json_string(&j, "nul", SV("a\0b"));
	json_string(&j, "none", SV_NONE);
	json_array(&j, "a");
	json_int(&j, NULL, -5);
	json_uint(&j, NULL, UINT64_MAX);
	json_double(&j, NULL, 1.5, 3);
	json_double(&j, NULL, NAN, 3);
	json_double(&j, NULL, INFINITY, 3);
	json_end_array(&j);
	json_object(&j, "o");
	json_bool(&j, "t", true);
	json_end_object(&j);
	json_raw(&j, "r", SV("[1]"));
	json_end_object(&j);
	assert_int_equal(j.err, 0);
	assert_string_equal(buf_cstr(&b),
			    "{\"s\":\"a\\\"b\\\\c\\n\\u0001\\u007f\xef\xbf\xbd\xf0\x9f\x99\x82"
			    "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\",\"c1\":\"\\u009b\\u202e\xc3\xa9\",\"nul\":\"ab\","
			    "\"none\":null,"
			    "\"a\":[-5,\"18446744073709551615\",1.500,null,null],\"o\":{\"t\":true},\"r\":[1]}");
	buf_release(&b);
}

static void json_reads(void **state)
{
	cJSON *doc = cJSON_Parse("{\"n\":5,\"neg\":-1,\"f\":1.5,\"big\":1e300,\"s\":\"x\",\"t\":true,\"z\":null,"
				 "\"large\":\"18446744073709551615\",\"larger\":\"184467440737095516150\"}");

	(void)state;
	assert_non_null(doc);
	assert_int_equal(json_get_count(doc, "n"), 5);
	assert_int_equal(json_get_count(doc, "neg"), -1);
	assert_int_equal(json_get_count(doc, "f"), -1);
	assert_int_equal(json_get_count(doc, "big"), -1);
	assert_int_equal(json_get_count(doc, "s"), -1);
	assert_int_equal(json_get_count(doc, "z"), -1);
	assert_int_equal(json_get_count(NULL, "n"), -1);
	assert_true(json_get_number(doc, "neg") < 0);
	assert_true(isnan(json_get_number(doc, "s")) && isnan(json_get_number(NULL, "n")));
	assert_true(json_number(json_get(doc, "neg")) < 0 && isnan(json_number(json_get(doc, "s"))));
	assert_true(json_number(json_get(doc, "large")) == 18446744073709551616.0);
	assert_true(isnan(json_number(json_get(doc, "larger"))) && isnan(json_number(NULL)));
	assert_true(sv_eq(json_get_string(doc, "s"), SV("x")));
	assert_null(json_get_string(doc, "n").ptr);
	assert_true(json_get_true(doc, "t"));
	assert_false(json_get_true(doc, "n"));
	assert_null(json_get(doc, "N"));
	cJSON_Delete(doc);
}

static void text_for_terminals(void **state)
{
	char out[64], small[8];

	(void)state;
	assert_string_equal(log_safe(out, sizeof(out),
				     SV("a\x1b[2Jb\xc2\x9b"
					"1m\xe2\x80\xaex\x7f\xff")),
			    "a\xef\xbf\xbd[2Jb\xef\xbf\xbd"
			    "1m\xef\xbf\xbdx\xef\xbf\xbd\xef\xbf\xbd");
	assert_string_equal(log_safe(out, sizeof(out), SV_NONE), "-");
	assert_string_equal(log_safe(out, sizeof(out), SV("")), "");
	assert_string_equal(log_safe(small, sizeof(small), SV("1234567")), "1234567");
	assert_string_equal(log_safe(small, sizeof(small), SV("12345678")), "1234\xe2\x80\xa6");
	assert_string_equal(log_safe(small, sizeof(small), SV("\xf0\x9f\x99\x82\xf0\x9f\x99\x82")),
			    "\xf0\x9f\x99\x82\xe2\x80\xa6");
}

static void times_as_text(void **state)
{
	char out[CLOCK_RFC3339_BYTES];

	(void)state;
	assert_string_equal(clock_rfc3339(out, 1000, 1764429600123455789), "2025-11-29T15:20:00.123456789Z");
	assert_string_equal(clock_rfc3339(out, 0, -1), "1969-12-31T23:59:59.999999999Z");
	assert_string_equal(clock_rfc3339(out, 0, INT64_MIN), "1677-09-21T00:12:43.145224192Z");
	assert_null(clock_rfc3339(out, 1000, 0));
	assert_null(clock_rfc3339(out, INT64_MAX, 1));
	assert_null(clock_rfc3339(out, UINT64_MAX, 1));
}

/* As the kernel writes it: "%-10s %10lld %9ld". */
static void clocks_of_a_namespace(void **state)
{
	(void)state;
	assert_int_equal(clock_parse_shift(SV("monotonic           0         0\nboottime            0         0\n")),
			 0);
	assert_int_equal(clock_parse_shift(SV("monotonic          -5         0\nboottime         3600         7\n")),
			 3600000000007);
	assert_int_equal(clock_parse_shift(SV("monotonic           5         0\nboottime           -7 500000000")),
			 -6500000000);
	assert_int_equal(clock_parse_shift(SV("boottime 9")), 0);
	assert_int_equal(clock_parse_shift(SV("\n\nboottime x 1\n")), 0);
	assert_int_equal(clock_parse_shift(SV("")), 0);
}

static void views_of_strings(void **state)
{
	struct sv rest;

	(void)state;
	assert_true(sv_eq(sv_cut(SV("a=b=c"), '=', &rest), SV("a")));
	assert_true(sv_eq(rest, SV("b=c")));
	assert_true(sv_eq(sv_cut(SV("abc"), '=', &rest), SV("abc")));
	assert_null(rest.ptr);
	assert_true(sv_ieq(SV("Content-Type"), SV("content-type")));
	assert_true(sv_eq(sv_trim(SV(" \t x ")), SV("x")));
	assert_true(sv_ends(SV("/v1/messages"), SV("/messages")));
	assert_false(sv_ends(SV("s"), SV("/messages")));
}

static void every_loss_has_a_name(void **state)
{
	struct lost l = {0};

	(void)state;
	assert_int_equal(lost_total(&l), 0);
	for (int i = 0; i < LOST_COUNT; i++) {
		assert_non_null(lost_name(i));
		assert_non_null(lost_text(i));
		for (int k = 0; k < i; k++)
			assert_string_not_equal(lost_name(i), lost_name(k));
		l.n[i] = 2;
	}
	assert_int_equal(lost_total(&l), 2 * LOST_COUNT);
}

/* Within 4 % of the exact percentile, whatever the spread; what is outside counts at the ends. */
static void test_quantile(void **state)
{
	static struct quantile q;

	(void)state;
	q = (struct quantile){0};
	assert_int_equal(quantile_ns(&q, 0.5), 0);
	for (uint64_t i = 1; i <= 10000; i++)
		quantile_add(&q, i * 1000000);
	for (double share = 0.01; share <= 1; share += 0.01) {
		double exact = share * 10000 * 1e6, is = (double)quantile_ns(&q, share);

		assert_true(is > exact * 0.955 && is < exact * 1.045);
	}
	q = (struct quantile){0};
	quantile_add(&q, 0);
	quantile_add(&q, UINT64_MAX);
	assert_int_equal(q.count, 2);
	assert_true(quantile_ns(&q, 0.5) <= 1000);
	assert_true(quantile_ns(&q, 1) > 3600000000000ull);
	/* None is below the smallest, or above the largest: values that are alike are told as they are. */
	q = (struct quantile){0};
	for (int i = 0; i < 3; i++)
		quantile_add(&q, 200000000);
	assert_int_equal(quantile_ns(&q, 0.01), 200000000);
	assert_int_equal(quantile_ns(&q, 0.5), 200000000);
	assert_int_equal(quantile_ns(&q, 1), 200000000);
	quantile_add(&q, 207000000);
	assert_int_equal(quantile_ns(&q, 1), 207000000);
	q = (struct quantile){0};
	quantile_add(&q, 5);
	assert_int_equal(quantile_ns(&q, 0.5), 5);
}

static double floats(const float *v, size_t count, double share)
{
	uint64_t times[200];
	double is = quantile_of_floats(v, count, share), too;

	for (size_t i = 0; i < count; i++)
		times[i] = (uint64_t)v[i];
	too = quantile_of_times(times, count, share);
	assert_true(isnan(is) ? isnan(too) : is == too);
	return is;
}

/* numpy.percentile of 1..200 gives 100.5, 190.05, 198.01; a tail in which nothing lies is not known. */
static void test_quantile_of_values(void **state)
{
	float v[200];

	(void)state;
	for (int i = 0; i < 200; i++)
		v[i] = (float)(i + 1);
	assert_true(fabs(floats(v, 200, 0.5) - 100.5) < 1e-9);
	assert_true(fabs(floats(v, 200, 0.95) - 190.05) < 1e-9);
	assert_true(fabs(floats(v, 200, 0.99) - 198.01) < 1e-9);
	assert_true(floats(v, 200, 1) == 200 && floats(v, 200, 0) == 1);
	for (double share = 0; share <= 1; share += 0.25)
		assert_true(isnan(floats(v, 0, share)));
	assert_true(floats(v, 1, 0.5) == 1 && floats(v, 1, 1) == 1 && floats(v, 2, 0.5) == 1.5);
	assert_true(isnan(floats(v, 9, 0.9)) && !isnan(floats(v, 10, 0.9)));
	assert_true(isnan(floats(v, 19, 0.95)) && floats(v, 20, 0.95) < 20);
	assert_true(isnan(floats(v, 99, 0.99)) && floats(v, 100, 0.99) < 100);
}

static void places_to_be_warm(void **state)
{
	char *memory = aligned_alloc(WARM_LINE_BYTES, 64 * WARM_LINE_BYTES);
	struct warm w = {0};

	(void)state;
	assert_non_null(memory);
	warm_add(&w, NULL, 10);
	warm_add(&w, memory, 0);
	assert_int_equal(w.count, 0);
	warm_add(&w, memory, 1);
	warm_add(&w, memory + 63, 1);
	warm_add(&w, memory + 63, 2);
	warm_add(&w, memory + 64, 65);
	warm_add(&w, memory + 1, 64 * WARM_LINE_BYTES - 1);
	assert_int_equal(w.count, 5);
	assert_true(w.at[0] == memory && w.lines[0] == 1);
	assert_true(w.at[1] == memory && w.lines[1] == 1);
	assert_true(w.at[2] == memory && w.lines[2] == 2);
	assert_true(w.at[3] == memory + 64 && w.lines[3] == 2);
	assert_true(w.at[4] == memory && w.lines[4] == WARM_PLACE_LINES);
	for (unsigned i = 0; i < WARM_PLACES_MAX; i++)
		warm_add(&w, memory, 1);
	assert_int_equal(w.count, WARM_PLACES_MAX);
	free(memory);
	warm_fetch(&w); /* what is gone is not read */
}

struct entry {
	uint64_t key;
	UT_hash_handle hh;
};

/* A table that keeps so many, while others come and go; then as many as there are at most. */
static void tables_stop_growing(void **state)
{
	enum { KEPT = 16384, MOST = 65536 };
	static struct entry entries[MOST];
	struct entry *table = NULL, *found;

	(void)state;
	memset(entries, 0, sizeof(entries));
	for (uint64_t i = 0; i < 400000; i++) {
		struct entry *e = &entries[i % KEPT];

		if (i >= KEPT)
			HASH_DEL(table, e);
		e->key = i * 0x9e3779b97f4a7c15ull;
		HASH_ADD(hh, table, key, sizeof(e->key), e);
		assert_non_null(e->hh.tbl);
	}
	assert_int_equal(HASH_COUNT(table), KEPT);
	assert_int_equal(table->hh.tbl->num_buckets, HASH_BUCKETS_ENOUGH);
	for (uint64_t i = KEPT; i < MOST; i++) {
		entries[i].key = i;
		HASH_ADD(hh, table, key, sizeof(entries[i].key), &entries[i]);
	}
	for (unsigned i = 0; i < MOST; i++) {
		HASH_FIND(hh, table, &entries[i].key, sizeof(entries[i].key), found);
		assert_ptr_equal(found, &entries[i]);
	}
	HASH_CLEAR(hh, table);
}

/* --- a pipe that nobody reads ------------------------------------------------------------------------------------- */

struct waiting {
	int asked, until; /* until: asked so often, no more is waited */
	int read_from;	  /* >= 0: then somebody reads at last */
	size_t got;
};

static bool waits(void *ctx)
{
	struct waiting *w = ctx;
	char room[1 << 16];
	ssize_t n;

	w->asked++;
	if (w->read_from >= 0) {
		n = read(w->read_from, room, sizeof(room));
		assert_true(n > 0);
		w->got += (size_t)n;
	}
	return w->until && w->asked >= w->until;
}

static void nobody_reads(void **state)
{
	static const char bytes[3 << 16]; /* more than a pipe holds */
	struct waiting w = {.until = 2, .read_from = -1};
	int ends[2], held;

	(void)state;
	for (int flags = 0;; flags = O_NONBLOCK) {
		assert_int_equal(pipe2(ends, flags), 0);
		w = (struct waiting){.until = 2, .read_from = -1};
		writefd_on_wait(waits, &w);
		assert_int_equal(writefd_all(ends[1], bytes, sizeof(bytes)), -EINTR);
		assert_int_equal(w.asked, 2);
		assert_int_equal(writefd_all(ends[1], bytes, 1), -EINTR);
		assert_int_equal(w.asked, 2);
		assert_int_equal(ioctl(ends[0], FIONREAD, &held), 0);
		assert_int_equal(held, 1 << 16); /* what there was room for is there */
		/* Who reads late gets all. */
		w = (struct waiting){.read_from = ends[0]};
		writefd_on_wait(waits, &w);
		assert_int_equal(writefd_all(ends[1], bytes, sizeof(bytes)), 0);
		assert_int_equal(ioctl(ends[0], FIONREAD, &held), 0);
		assert_int_equal(w.got + (size_t)held, sizeof(bytes) + (1 << 16));
		/* One that went away is no reason to wait. */
		close(ends[0]);
		signal(SIGPIPE, SIG_IGN);
		w = (struct waiting){.until = 1, .read_from = -1};
		assert_int_equal(writefd_all(ends[1], bytes, 1), -EPIPE);
		assert_int_equal(w.asked, 0);
		close(ends[1]);
		writefd_on_wait(NULL, NULL);
		if (flags)
			break;
	}
	assert_int_equal(writefd_all(-1, bytes, 1), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quantile),
		cmocka_unit_test(test_quantile_of_values),
		cmocka_unit_test(buffer_grows_to_its_cap),
		cmocka_unit_test(buffer_without_memory),
		cmocka_unit_test(json_text),
		cmocka_unit_test(json_reads),
		cmocka_unit_test(text_for_terminals),
		cmocka_unit_test(times_as_text),
		cmocka_unit_test(clocks_of_a_namespace),
		cmocka_unit_test(views_of_strings),
		cmocka_unit_test(every_loss_has_a_name),
		cmocka_unit_test(places_to_be_warm),
		cmocka_unit_test(tables_stop_growing),
		cmocka_unit_test(nobody_reads),
	};

	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
