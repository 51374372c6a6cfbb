/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_HASH_H
#define BASE_HASH_H

/*
 * uthash as it is used here. An insertion that finds no memory leaves hh.tbl of the element NULL: whoever inserts
 * looks, and drops the element.
 *
 * A bucket holds up to five elements before there are twice as many of them, not nine: elements of a stage are
 * kilobytes apart, and each one that a search passes by costs more than all that is done with the one it finds.
 * 1,000 elements have 2,048 buckets of 16 bytes, 100,000 up to 524,288.
 */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#undef HASH_BKT_CAPACITY_THRESH
#define HASH_BKT_CAPACITY_THRESH 6U

/* Where an element of that hash is looked for first. */
static inline UT_hash_bucket *hash_bucket(const UT_hash_table *table, unsigned hash)
{
	return &table->buckets[hash & (table->num_buckets - 1)];
}

#endif
