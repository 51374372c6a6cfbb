/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>

#include "base/err.h"
#include "flow/counters.h"

#define MS 1000000ull

static void print(struct tlog *l, const struct counters *t)
{
	for (size_t i = 0; i < counters_count(t); i++) {
		const struct counter_sample *s = counters_at(t, i);

		tlog_printf(l, "%llu: %u %d %llu\n", (unsigned long long)(s->ts_ns / MS), s->pid, s->kind,
			    (unsigned long long)s->value);
	}
}

static void changes(void **state)
{
	struct counters *t = counters_new(COUNTERS_MAX);
	struct tlog log = {0};

	(void)state;
	assert_int_equal(counters_push(t, COUNTER_CPU, 7, 1000 * MS, 0), 0); /* nothing, and was nothing */
	assert_int_equal(counters_push(t, COUNTER_CPU, 7, 1250 * MS, 500), 0);
	assert_int_equal(counters_push(t, COUNTER_CPU, 7, 1500 * MS, 500), 0);
	assert_int_equal(counters_push(t, COUNTER_SRTT, 7, 1550 * MS, 90), 0);
	assert_int_equal(counters_push(t, COUNTER_SRTT, 7, 1649 * MS, 91), 0); /* too soon */
	assert_int_equal(counters_push(t, COUNTER_SRTT, 8, 1649 * MS, 91), 0);
	assert_int_equal(counters_push(t, COUNTER_SRTT, 7, 1650 * MS, 92), 0);
	assert_int_equal(counters_push(t, COUNTER_SRTT, 7, 1200 * MS, 93), 0); /* before */
	assert_int_equal(counters_push(t, COUNTER_CPU, 7, 1750 * MS, 0), 0);
	print(&log, t);
	assert_log(&log, "1250: 7 0 500\n1550: 7 1 90\n1649: 8 1 91\n1650: 7 1 92\n1750: 7 0 0\n");
	tlog_free(&log);
	counters_free(t);
}

/* The newest: what is asked for, whether or not rings double to it, and COUNTERS_MAX where it is more than that. */
static void at_most(void **state)
{
	static const uint64_t asked[] = {0, 1, 5, 256, 1000, COUNTERS_MAX, UINT64_MAX};

	(void)state;
	for (size_t a = 0; a < ARRAY_SIZE(asked); a++) {
		uint64_t max = asked[a] < COUNTERS_MAX ? asked[a] + !asked[a] : COUNTERS_MAX;
		struct counters *t = counters_new(asked[a]);

		for (uint64_t i = 1; i <= 2 * max + 5; i++) {
			assert_int_equal(counters_push(t, COUNTER_LOST, 0, i * 100 * MS, i), 0);
			assert_int_equal(counters_count(t), i < max ? i : max);
		}
		for (uint64_t i = 0; i < max; i++)
			assert_int_equal(counters_at(t, i)->value, max + 6 + i);
		counters_free(t);
	}
}

static void series_are_bounded(void **state)
{
	struct counters *t = counters_new(COUNTERS_MAX);

	(void)state;
	for (uint32_t pid = 1; pid <= COUNTERS_SERIES_MAX + 5; pid++)
		assert_int_equal(counters_push(t, COUNTER_CPU, pid, MS, 1), 0);
	/* One that was forgotten is nothing now: that is told, or it would stay what it was. */
	assert_int_equal(counters_push(t, COUNTER_CPU, 2, 2000 * MS, 0), 0);
	assert_int_equal(counters_at(t, counters_count(t) - 1)->pid, 2);
	assert_int_equal(counters_at(t, counters_count(t) - 1)->value, 0);
	assert_int_equal(counters_push(t, COUNTER_CPU, 2, 3000 * MS, 0), 0);
	assert_int_equal(counters_count(t), COUNTERS_SERIES_MAX + 6);
	/* The first one was forgotten: its value is told again. The latest is known. */
	assert_int_equal(counters_push(t, COUNTER_CPU, 1, 2000 * MS, 1), 0);
	assert_int_equal(counters_push(t, COUNTER_CPU, COUNTERS_SERIES_MAX + 5, 2000 * MS, 1), 0);
	assert_int_equal(counters_count(t), COUNTERS_SERIES_MAX + 7);
	counters_free(t);
}

static void without_memory(void **state)
{
	bool hit = true;

	(void)state;
	for (unsigned n = 1; hit; n++) {
		struct counters *t;
		int err = -ENOMEM;

		fail_nth(n);
		t = counters_new(COUNTERS_MAX);
		if (t)
			err = counters_push(t, COUNTER_CPU, 7, MS, 1);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
		counters_free(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changes),
		cmocka_unit_test(at_most),
		cmocka_unit_test(series_are_bounded),
		cmocka_unit_test(without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
