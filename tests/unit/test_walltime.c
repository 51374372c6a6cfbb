/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "flow/agent/walltime.h"

static void check_sum(const struct walltime_report *r, uint64_t total)
{
	uint64_t sum = 0;

	for (unsigned p = 0; p < PART_COUNT; p++)
		sum += r->part_ns[p];
	assert_int_equal(r->total_ns, total);
	assert_int_equal(sum, total);
}

static void test_ranks(void **state)
{
	struct walltime *w = walltime_new(100);
	struct walltime_report r;

	(void)state;
	assert_int_equal(walltime_push(w, RANK_CALL_PHASE, PART_FIRST_TOKEN, 200, 500), 0);
	assert_int_equal(walltime_push(w, RANK_CALL_PHASE, PART_GENERATION, 500, 900), 0);
	assert_int_equal(walltime_push(w, RANK_CALL_STALL, PART_STALL, 600, 700), 0);
	assert_int_equal(walltime_push(w, RANK_CALL_LATE, PART_CLIENT, 680, 720), 0);
	assert_int_equal(walltime_push(w, RANK_TOOL, PART_TOOL, 850, 1000), 0);
	assert_int_equal(walltime_push(w, RANK_CALLS + RANK_CALL_PHASE, PART_GENERATION, 950, 1100), 0);
	assert_int_equal(walltime_report(w, 1200, &r), 0);
	check_sum(&r, 1100);
	assert_int_equal(r.part_ns[PART_UNKNOWN], 100 + 100);
	assert_int_equal(r.part_ns[PART_FIRST_TOKEN], 300);
	assert_int_equal(r.part_ns[PART_STALL], 80);
	assert_int_equal(r.part_ns[PART_CLIENT], 40);
	assert_int_equal(r.part_ns[PART_GENERATION], 100 + 180 + 150);
	assert_int_equal(r.part_ns[PART_TOOL], 50);
	assert_int_equal(r.overlap_ns, 100 + 40 + 50 + 50);
	assert_int_equal(r.pushed_late_ns, 0);
	walltime_free(w);
}

/* Wherever the watermark moves in between, the parts are the same as at once. */
static void test_watermarks(void **state)
{
	struct walltime *once = walltime_new(0), *often = walltime_new(0);
	struct walltime_report a, b;
	unsigned seed = 7;

	(void)state;
	for (uint64_t t = 0; t < 3000; t++) {
		uint64_t begin = t * 10 + (seed = seed * 1103515245 + 12345) % 50;
		uint64_t end = begin + (seed >> 8) % 200;
		unsigned rank = (seed >> 4) % RANK_COUNT, part = (seed >> 12) % PART_COUNT;

		assert_int_equal(walltime_push(once, rank, part, begin, end), 0);
		assert_int_equal(walltime_push(often, rank, part, begin, end), 0);
		if (t % 3 == 0)
			walltime_advance(often, t * 10);
	}
	assert_int_equal(walltime_report(once, 40000, &a), 0);
	assert_int_equal(walltime_report(often, 40000, &b), 0);
	check_sum(&a, 40000);
	assert_memory_equal(&a, &b, sizeof(a));
	walltime_free(once);
	walltime_free(often);
}

static void test_late_and_early(void **state)
{
	struct walltime *w = walltime_new(100);
	struct walltime_report r;

	(void)state;
	walltime_push(w, RANK_TOOL, PART_TOOL, 50, 150);
	walltime_advance(w, 200);
	walltime_advance(w, 120); /* not back */
	walltime_push(w, RANK_USER, PART_USER, 150, 260);
	walltime_push(w, RANK_USER, PART_USER, 10, 20);
	walltime_push(w, RANK_USER, PART_USER, 300, 300);
	assert_int_equal(walltime_report(w, 300, &r), 0);
	check_sum(&r, 200);
	assert_int_equal(r.part_ns[PART_TOOL], 50);
	assert_int_equal(r.part_ns[PART_USER], 60);
	assert_int_equal(r.pushed_late_ns, 50); /* what lies before the begin is no part of it */
	/* A report before the watermark cannot be told any more: it is what is final. */
	assert_int_equal(walltime_report(w, 150, &r), 0);
	check_sum(&r, 100);
	walltime_free(w);
}

/* An owner that never moves the watermark: memory stays bounded, and nothing is lost while pieces come in order. */
static void test_cap(void **state)
{
	struct walltime *w = walltime_new(0);
	struct walltime_report r;

	(void)state;
	for (uint64_t t = 0; t < 10 * WALLTIME_MAX; t++)
		assert_int_equal(walltime_push(w, RANK_TOOL, PART_TOOL, t * 10, t * 10 + 5), 0);
	assert_int_equal(walltime_report(w, 100ull * WALLTIME_MAX, &r), 0);
	check_sum(&r, 100ull * WALLTIME_MAX);
	assert_int_equal(r.part_ns[PART_TOOL], 50ull * WALLTIME_MAX);
	assert_int_equal(r.pushed_late_ns, 0);
	walltime_free(w);
}

/* One allocation fails: what was not taken is counted, the parts still add up. */
static void push_much(struct walltime *w)
{
	struct walltime_report r;
	uint64_t pushed = 0;

	for (uint64_t t = 0; t < 200; t++) {
		if (!walltime_push(w, RANK_TOOL, PART_TOOL, t * 10, t * 10 + 10))
			pushed += 10;
		walltime_advance(w, t * 5);
	}
	if (walltime_report(w, 2000, &r))
		return;
	check_sum(&r, 2000);
	assert_int_equal(r.part_ns[PART_TOOL], pushed);
	assert_int_equal(r.part_ns[PART_TOOL] + r.pushed_late_ns, 2000);
}

static void test_no_memory(void **state)
{
	bool hit = true;

	(void)state;
	for (unsigned n = 1; hit; n++) {
		struct walltime *w;

		fail_nth(n);
		w = walltime_new(0);
		if (w)
			push_much(w);
		hit = fail_nth_hit();
		fail_nth(0);
		walltime_free(w);
	}
}

static void test_names(void **state)
{
	(void)state;
	for (unsigned p = 0; p < PART_COUNT; p++)
		for (unsigned q = 0; q < p; q++)
			assert_string_not_equal(time_part_name(p), time_part_name(q));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks), cmocka_unit_test(test_watermarks), cmocka_unit_test(test_late_and_early),
		cmocka_unit_test(test_cap),   cmocka_unit_test(test_no_memory),	 cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
