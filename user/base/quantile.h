/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_QUANTILE_H
#define BASE_QUANTILE_H

/*
 * Percentiles: of values at hand, exact; and of durations in fixed memory, counts in buckets that grow by 8 %, so a
 * value read back is within 4 %, and never beyond the least or the most of them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QUANTILE_BUCKETS 400 /* 1 us to 6 hours; what is outside counts in the first or the last one */

struct quantile {
	uint64_t count;
	uint64_t least, most; /* of all */
	uint32_t latest;      /* index of the bucket that the latest one counts in */
	uint32_t bucket[QUANTILE_BUCKETS];
};

void quantile_add(struct quantile *q, uint64_t ns);
/* The smallest duration with at least share * count values at or below it; 0 <= share <= 1. 0 when nothing was added.
 */
uint64_t quantile_ns(const struct quantile *q, double share);

/* Not without values, and above the median not where none of so few lies beyond it: the 95th percentile of fewer than
 * 20 values, and the 99th of fewer than 100, would be their largest by another name. */
bool quantile_is_known(uint64_t count, double share);
/* Of values in ascending order, by linear interpolation between the two nearest ranks; share 1 is the largest. NAN: not
 * known. */
double quantile_of_floats(const float *sorted, size_t count, double share);
double quantile_of_times(const uint64_t *sorted, size_t count, double share);

#endif
