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

void profile_keep_time(struct timeline *t, struct stack *s, uint64_t end_ns, uint64_t ns)
{
	size_t more = t->room ? 2 * t->room : 1024;
	struct timed *p;

	if (!s)
		return;
	if (t->count == t->room && t->room < t->max) {
		more = more < t->max ? more : t->max;
		p = realloc(t->ring, more * sizeof(*p));
		if (!p)
			t->max = t->room; /* goes on with what there is */
		t->ring = p ? p : t->ring;
		t->room = p ? more : t->room;
	}
	if (!t->room) {
		drop(t, end_ns);
		return;
	}
	p = &t->ring[t->count < t->room ? t->count : t->next];
	if (t->count == t->room) {
		drop(t, p->end_ns);
		t->next = (t->next + 1) % t->room;
	} else {
		t->count++;
	}
	*p = (struct timed){end_ns, ns, s};
}

uint64_t profile_begin_of(const struct timed *t)
{
	if (t->stack->words[WORD_KIND] == PROFILE_CPU)
		return t->end_ns;
	return t->end_ns > t->ns ? t->end_ns - t->ns : 0;
}

static int compare(const void *a, const void *b)
{
	const struct timed *x = a, *y = b;
	uint64_t p = profile_begin_of(x), q = profile_begin_of(y);

	if (p != q)
		return p < q ? -1 : 1;
	if (x->stack->row != y->stack->row)
		return x->stack->row < y->stack->row ? -1 : 1;
	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

struct timed *profile_by_time(const struct timeline *t)
{
	struct timed *sorted = calloc(t->count + 1, sizeof(*sorted));

	if (sorted && t->count) {
		memcpy(sorted, t->ring, t->count * sizeof(*sorted));
		qsort(sorted, t->count, sizeof(*sorted), compare);
	}
	return sorted;
}
