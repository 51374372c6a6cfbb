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
	if (!q->count || ns < q->least)
		q->least = ns;
	if (ns > q->most)
		q->most = ns;
	q->count++;
	q->latest = bucket;
}

static uint64_t limited(const struct quantile *q, uint64_t ns)
{
	return ns < q->least ? q->least : ns > q->most ? q->most : ns;
}

uint64_t quantile_ns(const struct quantile *q, double share)
{
	double wanted = share * (double)q->count;
	uint64_t seen = 0;

	for (unsigned i = 0; i < QUANTILE_BUCKETS; i++) {
		seen += q->bucket[i];
		if (q->bucket[i] && (double)seen >= wanted)
			/* the bucket's middle, by ratio */
			return limited(q, (uint64_t)(FIRST_NS * pow(GROWTH, (double)i - 0.5)));
	}
	return 0;
}

bool quantile_is_known(uint64_t count, double share)
{
	double beyond = (1 - share) * (double)count;

	return count && (share <= 0.5 || share >= 1 || beyond > 1 - 1e-6);
}

/* Which of the sorted values it is, from 0 on, with the way to the next one; NAN: not known. */
static double rank_of(size_t count, double share)
{
	return quantile_is_known(count, share) ? share * (double)(count - 1) : NAN;
}

static size_t next_of(size_t at, size_t count)
{
	return at + 1 < count ? at + 1 : at;
}

static double between(double a, double b, double rank)
{
	return a + (b - a) * (rank - floor(rank));
}

double quantile_of_floats(const float *sorted, size_t count, double share)
{
	double rank = rank_of(count, share);
	size_t at = isnan(rank) ? 0 : (size_t)rank;

	return isnan(rank) ? NAN : between(sorted[at], sorted[next_of(at, count)], rank);
}

double quantile_of_times(const uint64_t *sorted, size_t count, double share)
{
	double rank = rank_of(count, share);
	size_t at = isnan(rank) ? 0 : (size_t)rank;

	return isnan(rank) ? NAN : between((double)sorted[at], (double)sorted[next_of(at, count)], rank);
}
