/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_HASH_H
#define BASE_HASH_H

/*
 * uthash as it is used here. An insertion that finds no memory leaves hh.tbl of the element NULL: whoever inserts
 * looks, and drops the element.
 *
 * A bucket holds up to five elements before there are twice as many of them, not nine: elements of a stage are
 * kilobytes apart, and each one that a search passes by costs more than all that is done with the one it finds.
 * 1,000 elements have 2,048 buckets of 16 bytes.
 *
 * Where elements come and go for hours, there is a bucket of six sometime however many there are: past
 * HASH_BUCKETS_ENOUGH there will be no more of them once they are twice as many as elements are. (It is for good: with
 * 65,536 elements, more than a stage keeps, a bucket then holds two or three.)
 */
#define HASH_NONFATAL_OOM   1
#define HASH_BUCKETS_ENOUGH 32768
#include <uthash.h>

#undef uthash_expand_fyi
#define uthash_expand_fyi(tbl)                                                                                         \
	do {                                                                                                           \
		if ((tbl)->num_buckets >= HASH_BUCKETS_ENOUGH && (tbl)->num_buckets / 2 >= (tbl)->num_items)           \
			(tbl)->noexpand = 1;                                                                           \
	} while (0)

#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 6U

/* Where an element of that hash is looked for first. */
static inline UT_hash_bucket *hash_bucket(const UT_hash_table *table, unsigned hash)
{
	return &table->buckets[hash & (table->num_buckets - 1)];
}

#endif
