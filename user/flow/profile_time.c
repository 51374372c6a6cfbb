/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When samples were. */
#include <stdlib.h>
#include <string.h>

#include "profile_data.h"

static void drop(struct timeline *t, uint64_t end_ns)
{
	t->dropped++;
	if (end_ns > t->from_ns)
		t->from_ns = end_ns;
}

static uint64_t end_of(const void *timed)
{
	return *(const uint64_t *)timed; /* the first member of each */
}

void profile_keep_time(struct timeline *t, const void *timed)
{
	size_t more = t->room ? 2 * t->room : 1024;
	void *p;

	if (t->count == t->room && t->room < t->max) {
		more = more < t->max ? more : t->max;
		p = realloc(t->ring, more * t->size);
		if (!p)
			t->max = t->room; /* goes on with what there is */
		t->ring = p ? p : t->ring;
		t->room = p ? more : t->room;
	}
	if (!t->room) {
		drop(t, end_of(timed));
		return;
	}
	p = (char *)t->ring + t->size * (t->count < t->room ? t->count : t->next);
	if (t->count == t->room) {
		drop(t, end_of(p));
		t->next = (t->next + 1) % t->room;
	} else {
		t->count++;
	}
	memcpy(p, timed, t->size);
}

uint64_t profile_begin_of(const struct timed *t)
{
	if (t->stack->words[WORD_KIND] == PROFILE_CPU)
		return t->end_ns;
	return t->end_ns > t->ns ? t->end_ns - t->ns : 0;
}

int profile_compare_timed(const void *a, const void *b)
{
	const struct timed *x = a, *y = b;
	uint64_t p = profile_begin_of(x), q = profile_begin_of(y);

	if (p != q)
		return p < q ? -1 : 1;
	if (x->stack->row != y->stack->row)
		return x->stack->row < y->stack->row ? -1 : 1;
	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

int profile_compare_allocs(const void *a, const void *b)
{
	const struct timed_alloc *x = a, *y = b;

	if (x->end_ns != y->end_ns)
		return x->end_ns < y->end_ns ? -1 : 1;
	if (x->stack->row != y->stack->row)
		return x->stack->row < y->stack->row ? -1 : 1;
	if (x->tid != y->tid)
		return x->tid < y->tid ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

int profile_compare_windows(const void *a, const void *b)
{
	const struct timed_window *x = a, *y = b;

	if (x->end_ns != y->end_ns)
		return x->end_ns < y->end_ns ? -1 : 1;
	return x->allocator->row < y->allocator->row ? -1 : x->allocator->row > y->allocator->row;
}

void *profile_by_time(const struct timeline *t, int (*compare)(const void *a, const void *b))
{
	void *sorted = calloc(t->count + 1, t->size);

	if (sorted && t->count) {
		memcpy(sorted, t->ring, t->count * t->size);
		qsort(sorted, t->count, t->size, compare);
	}
	return sorted;
}
