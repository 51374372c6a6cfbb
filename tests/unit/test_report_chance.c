/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tests of chance, with samples whose distribution is known: how often they are wrong, and what they find. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "harness.h"

#include "view/report_chance.h"

#define PAIRS 4000

static uint64_t seed;

/* Even, above 0 and below 1 (splitmix64). */
static double even(void)
{
	uint64_t z = seed += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(even())) * cos(6.283185307179586 * even());
}

/* By adding up waits: exact, and slow. */
static double poisson(double mean)
{
	double n = -1;

	for (double at = 0; at < mean; n++)
		at -= log(even());
	return n;
}

/* --- durations --------------------------------------------------------------------------------------------------- */

enum shape { NORMAL, HEAVY, TWO_HEAPS, WHOLE_MS, SHAPES };

static float draw(enum shape shape, double times)
{
	switch (shape) {
	case NORMAL:
		return (float)(times * (100 + 10 * normal()));
	case HEAVY: /* as waits for a first token are */
		return (float)(times * exp(6 + 1.2 * normal()));
	case TWO_HEAPS: /* cached or not */
		return (float)(times * (even() < 0.7 ? 5 + even() : 400 + 100 * even()));
	default: /* ties */
		return (float)(times * floor(1 + 6 * even()));
	}
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

#define VALUES_MAX 400

static double chance_of(enum shape shape, size_t n, size_t m, double times)
{
	float x[VALUES_MAX], y[VALUES_MAX];

	for (size_t i = 0; i < n; i++)
		x[i] = draw(shape, 1);
	for (size_t i = 0; i < m; i++)
		y[i] = draw(shape, times);
	qsort(x, n, sizeof(x[0]), compare);
	qsort(y, m, sizeof(y[0]), compare);
	return chance_of_ranks(x, n, y, m);
}

/* Of many pairs, the share that looks different at this level. */
static double found_share(enum shape shape, size_t n, size_t m, double times, double level)
{
	unsigned found = 0;

	seed = 1;
	for (int i = 0; i < PAIRS; i++)
		found += chance_of(shape, n, m, times) <= level;
	return found / (double)PAIRS;
}

static void equal_durations(void **state)
{
	static const size_t sizes[][2] = {{5, 5}, {8, 30}, {50, 40}, {300, 400}};

	(void)state;
	for (int shape = 0; shape < SHAPES; shape++)
		for (size_t i = 0; i < 4; i++) {
			double five = found_share((enum shape)shape, sizes[i][0], sizes[i][1], 1, 0.05);
			double one = found_share((enum shape)shape, sizes[i][0], sizes[i][1], 1, 0.01);

			print_message("shape %d, %zu and %zu: %.4f at 0.05, %.4f at 0.01\n", shape, sizes[i][0],
				      sizes[i][1], five, one);
			/* never more than it says, by more than four deviations of what 4000 pairs can tell */
			assert_true(five < 0.05 + 4 * sqrt(0.05 * 0.95 / PAIRS));
			assert_true(one < 0.01 + 4 * sqrt(0.01 * 0.99 / PAIRS));
			assert_true(five > (sizes[i][0] < 8 ? 0.01 : 0.03)); /* nor so careful that it finds nothing */
		}
}

static void longer_durations(void **state)
{
	(void)state;
	assert_true(found_share(NORMAL, 20, 20, 1.2, 0.001) > 0.9);
	assert_true(found_share(HEAVY, 100, 100, 2, 0.01) > 0.9);
	assert_true(found_share(NORMAL, 300, 400, 1.03, 0.01) > 0.7);
}

static void few_durations(void **state)
{
	static const float low[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, high[] = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
	static const float same[] = {3, 3, 3, 3, 3, 3};

	(void)state;
	assert_true(isnan(chance_of_ranks(low, 4, high, 10)));
	assert_true(isnan(chance_of_ranks(low, 10, NULL, 0)));
	assert_true(chance_of_ranks(low, 5, high, 5) > 0.0079); /* exact: 2 of 252 orders */
	assert_true(chance_of_ranks(low, 10, high, 10) < 0.0003);
	assert_true(chance_of_ranks(low, 10, high, 10) == chance_of_ranks(high, 10, low, 10));
	assert_true(chance_of_ranks(low, 10, low, 10) == 1);
	assert_true(chance_of_ranks(same, 6, same, 6) == 1);
}

/* --- rates ------------------------------------------------------------------------------------------------------- */

static double found_rates(double before, double after, double seconds, double level)
{
	unsigned found = 0;

	seed = 2;
	for (int i = 0; i < PAIRS; i++)
		found += chance_of_rates(poisson(before), poisson(after), 1, seconds) <= level;
	return found / (double)PAIRS;
}

static void rates(void **state)
{
	static const double means[] = {15, 40, 300};

	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (double seconds = 1; seconds < 2; seconds += 0.7) {
			double five = found_rates(means[i], means[i] * seconds, seconds, 0.05);
			double one = found_rates(means[i], means[i] * seconds, seconds, 0.01);

			print_message("%g a second, 1 and %g s: %.4f at 0.05, %.4f at 0.01\n", means[i], seconds, five,
				      one);
			assert_true(five < 0.05 + 4 * sqrt(0.05 * 0.95 / PAIRS) + 0.01);
			assert_true(one < 0.01 + 4 * sqrt(0.01 * 0.99 / PAIRS) + 0.003);
		}
	assert_true(found_rates(300, 450, 1, 0.001) > 0.95);
	assert_true(isnan(chance_of_rates(10, 9, 1, 1)));
	assert_true(isnan(chance_of_rates(100, 90, 0, 1)));
	assert_true(isnan(chance_of_rates(NAN, 90, 1, 1)));
	assert_true(chance_of_rates(40, 40, 1, 1) == 1);
	assert_true(chance_of_rates(0, 30, 1, 1) < 1e-8);
}

/* --- many tests -------------------------------------------------------------------------------------------------- */

/* A whole diff of equal traces: forty rows, of all shapes. */
static void many_rows(void **state)
{
	unsigned wrong = 0, whole = 1500;
	double p[42];
	bool found[42];

	(void)state;
	seed = 3;
	for (unsigned i = 0; i < whole; i++) {
		bool any = false;

		for (int k = 0; k < 40; k++)
			p[k] = k < 20 ? chance_of((enum shape)(k % SHAPES), 30, 25, 1)
				      : chance_of_rates(poisson(40), poisson(40), 1, 1);
		p[40] = p[41] = NAN;
		assert_int_equal(chance_find(p, 42, 0.01, found), 0);
		for (int k = 0; k < 42; k++)
			any = any || found[k];
		wrong += any;
	}
	print_message("%u of %u diffs of equal traces find something\n", wrong, whole);
	assert_true(wrong <= whole / 100 + 4 * (unsigned)sqrt(whole / 100.0));
}

static void found_among_others(void **state)
{
	static const double p[] = {0.5, 1e-9, NAN, 0.004, 0.9, 0.0021, 0.003};
	bool found[7];

	(void)state;
	assert_int_equal(chance_find(p, 7, 0.01, found), 0);
	assert_true(found[1]);
	/* 0.0021 is the second of six: it would have to be below 0.01 / 5 */
	assert_false(found[0] || found[2] || found[3] || found[4] || found[5] || found[6]);
	assert_int_equal(chance_find(p, 7, 0.02, found), 0);
	assert_true(found[1] && found[5] && found[6] && found[3]);
	assert_false(found[0] || found[2] || found[4]);
	assert_int_equal(chance_find(NULL, 0, 0.01, found), 0);
	fail_nth(1);
	assert_int_equal(chance_find(p, 7, 0.01, found), -ENOMEM);
	fail_nth(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_durations), cmocka_unit_test(longer_durations),
		cmocka_unit_test(few_durations),   cmocka_unit_test(rates),
		cmocka_unit_test(many_rows),	   cmocka_unit_test(found_among_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
