/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "counters.h"

#include <errno.h>
#include <stdlib.h>

#include <utlist.h>

#include "base/hash.h"

#define RING_FIRST 256 /* samples */

struct series {
	uint64_t key; /* pid and kind */
	uint64_t ts_ns, value;
	struct series *prev, *next;
	UT_hash_handle hh;
};

struct counters {
	struct series *series, *lru; /* lru: told longest ago first */
	struct counter_sample *ring;
	size_t size, first, count; /* size: allocated, grows to max */
	size_t max;
	bool forgot; /* a series: a new one may be that one, whose value is not known */
};

struct counters *counters_new(uint64_t max)
{
	struct counters *t = calloc(1, sizeof(*t));

	if (!t) {
		errno = ENOMEM;
		return NULL;
	}
	t->max = max == 0 ? 1 : max < COUNTERS_MAX ? max : COUNTERS_MAX;
	return t;
}

static void forget(struct counters *t, struct series *s)
{
	HASH_DEL(t->series, s);
	DL_DELETE(t->lru, s);
	free(s);
}

void counters_free(struct counters *t)
{
	if (!t)
		return;
	while (t->lru)
		forget(t, t->lru);
	free(t->ring);
	free(t);
}

/* NULL: no memory. */
static struct series *series_of(struct counters *t, uint64_t key)
{
	struct series *s;

	HASH_FIND(hh, t->series, &key, sizeof(key), s);
	if (s) {
		DL_DELETE(t->lru, s);
		DL_APPEND(t->lru, s);
		return s;
	}
	if (HASH_COUNT(t->series) >= COUNTERS_SERIES_MAX) {
		forget(t, t->lru);
		t->forgot = true;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->key = key;
	HASH_ADD(hh, t->series, key, sizeof(s->key), s);
	if (!s->hh.tbl) {
		free(s);
		return NULL;
	}
	DL_APPEND(t->lru, s);
	return s;
}

static int make_room(struct counters *t)
{
	size_t size = t->size ? 2 * t->size : RING_FIRST;
	struct counter_sample *more;

	if (t->count < t->size)
		return 0;
	if (t->size == t->max) {
		t->first = (t->first + 1) % t->size;
		t->count--;
		return 0;
	}
	if (size > t->max)
		size = t->max;
	more = realloc(t->ring, size * sizeof(*more)); /* it has not wrapped yet */
	if (!more)
		return -ENOMEM;
	t->ring = more;
	t->size = size;
	return 0;
}

int counters_push(struct counters *t, enum counter_kind kind, uint32_t pid, uint64_t ts_ns, uint64_t value)
{
	struct series *s = series_of(t, (uint64_t)pid * COUNTER_KINDS + kind);
	bool is_same = s && value == s->value && (s->ts_ns || !t->forgot);

	if (!s)
		return -ENOMEM;
	if (is_same || ts_ns < s->ts_ns || (s->ts_ns && ts_ns - s->ts_ns < COUNTERS_GAP_NS))
		return 0;
	if (make_room(t))
		return -ENOMEM;
	s->ts_ns = ts_ns;
	s->value = value;
	t->ring[(t->first + t->count++) % t->size] = (struct counter_sample){ts_ns, value, pid, kind};
	return 0;
}

size_t counters_count(const struct counters *t)
{
	return t->count;
}

const struct counter_sample *counters_at(const struct counters *t, size_t i)
{
	return &t->ring[(t->first + i) % t->size];
}
