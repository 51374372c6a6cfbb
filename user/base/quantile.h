/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_QUANTILE_H
#define BASE_QUANTILE_H

/* Percentiles of durations in fixed memory: counts in buckets that grow by 8 %, so a value read back is within 4 %. */

#include <stdint.h>

#define QUANTILE_BUCKETS 400 /* 1 us to 6 hours; what is outside counts in the first or the last one */

struct quantile {
	uint64_t count;
	uint32_t bucket[QUANTILE_BUCKETS];
};

void quantile_add(struct quantile *q, uint64_t ns);
/* The smallest duration with at least share * count values at or below it; 0 <= share <= 1. 0 when nothing was added.
 */
uint64_t quantile_ns(const struct quantile *q, double share);

#endif
