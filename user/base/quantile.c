/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "quantile.h"

#include <math.h>

#define FIRST_NS 1000.0 /* upper bound of the first bucket */
#define GROWTH	 1.08

void quantile_add(struct quantile *q, uint64_t ns)
{
	double at = (double)ns <= FIRST_NS ? 0 : ceil(log((double)ns / FIRST_NS) / log(GROWTH));
	unsigned bucket = at >= QUANTILE_BUCKETS ? QUANTILE_BUCKETS - 1 : (unsigned)at;

	if (q->bucket[bucket] < UINT32_MAX)
		q->bucket[bucket]++;
	q->count++;
}

uint64_t quantile_ns(const struct quantile *q, double share)
{
	double wanted = share * (double)q->count;
	uint64_t seen = 0;

	for (unsigned i = 0; i < QUANTILE_BUCKETS; i++) {
		seen += q->bucket[i];
		if (q->bucket[i] && (double)seen >= wanted)
			/* the bucket's middle, by ratio */
			return (uint64_t)(FIRST_NS * pow(GROWTH, (double)i - 0.5));
	}
	return 0;
}
