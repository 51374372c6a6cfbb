/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "report_chance.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Two-sided. */
static double chance_of_z(double z)
{
	return erfc(fabs(z) / sqrt(2));
}

double chance_of_ranks(const float *x, size_t x_count, const float *y, size_t y_count)
{
	double n = (double)x_count, m = (double)y_count, all = n + m, u = 0, ties = 0, variance, distance;
	size_t i = 0, k = 0;

	if (x_count < CHANCE_VALUES_MIN || y_count < CHANCE_VALUES_MIN)
		return NAN;
	/* By groups of equal values: of each y, how many x lie below, those beside it count half. */
	while (i < x_count || k < y_count) {
		float v = k == y_count || (i < x_count && x[i] < y[k]) ? x[i] : y[k];
		size_t from_i = i, from_k = k;
		double group;

		while (i < x_count && x[i] <= v)
			i++;
		while (k < y_count && y[k] <= v)
			k++;
		u += (double)(k - from_k) * ((double)from_i + (double)(i - from_i) / 2);
		group = (double)(i - from_i + k - from_k);
		ties += group * group * group - group;
	}
	variance = n * m / 12 * (all + 1 - ties / (all * (all - 1)));
	distance = fabs(u - n * m / 2) - 0.5; /* u moves in steps */
	return variance > 0 && distance > 0 ? chance_of_z(distance / sqrt(variance)) : 1;
}

/* x ln(x / expected), which is 0 at 0. */
static double deviance(double x, double expected)
{
	return x > 0 ? x * log(x / expected) : 0;
}

double chance_of_rates(double x, double y, double x_seconds, double y_seconds)
{
	double all = x + y, seconds = x_seconds + y_seconds, square;

	if (!(all >= CHANCE_SAMPLES_MIN) || !(x_seconds > 0) || !(y_seconds > 0))
		return NAN;
	square = 2 * (deviance(x, all * x_seconds / seconds) + deviance(y, all * y_seconds / seconds));
	return square > 0 ? chance_of_z(sqrt(square)) : 1;
}

struct test {
	double p;
	size_t at;
};

static int compare(const void *a, const void *b)
{
	const struct test *x = a, *y = b;

	if (x->p != y->p)
		return x->p < y->p ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

int chance_find(const double *p, size_t count, double level, _Bool *found)
{
	struct test *t = calloc(count + 1, sizeof(*t));
	size_t n = 0;

	if (!t)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		found[i] = false;
		if (!isnan(p[i]))
			t[n++] = (struct test){p[i], i};
	}
	qsort(t, n, sizeof(*t), compare);
	for (size_t i = 0; i < n && t[i].p * (double)(n - i) <= level; i++)
		found[t[i].at] = true;
	free(t);
	return 0;
}
