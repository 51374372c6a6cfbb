/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VIEW_REPORT_CHANCE_H
#define VIEW_REPORT_CHANCE_H

/*
 * Is it chance? Tests of two samples, without any assumption of how durations are distributed, and without random
 * numbers: the same traces always give the same answer. Private to report*.c.
 */

#include <stddef.h>

#define CHANCE_VALUES_MIN  5  /* of each side, for ranks to say anything */
#define CHANCE_SAMPLES_MIN 20 /* of both sides together */

/* Each: how often two samples of one distribution differ that much or more, from 0 to 1; NAN: too few to tell. */

/* Durations, sorted: the rank test of Mann and Whitney, with ties, by the normal distribution. */
double chance_of_ranks(const float *x, size_t x_count, const float *y, size_t y_count);
/* Events that were counted in two windows: whether their rates are the same (Poisson, by likelihood). */
double chance_of_rates(double x, double y, double x_seconds, double y_seconds);

/*
 * Many tests at once find something somewhere: which of these are so unlikely that the chance of even one false find
 * among all stays below `level` (Holm)? NAN members are no tests. found[i]: p[i] is one. 0 or -ENOMEM.
 */
int chance_find(const double *p, size_t count, double level, _Bool *found);

#endif
