/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_WARM_H
#define BASE_WARM_H

/*
 * Where the memory is that something will look at, so that all of it is on its way into the caches before its turn,
 * at once and beside other work, instead of one line after the other when it is needed.
 *
 * Addresses are hints, and nothing is ever read through them: what was there may be gone. A list that is old costs
 * time, no more.
 */

#include <stddef.h>
#include <stdint.h>

#define WARM_LINE_BYTES	 64 /* another size costs time, no more */
#define WARM_PLACES_MAX	 24 /* more are left out */
#define WARM_PLACE_LINES 8  /* of one place; what lies behind them is left out */

struct warm {
	const char *at[WARM_PLACES_MAX];
	uint8_t lines[WARM_PLACES_MAX];
	uint8_t count;
};

static inline void warm_add(struct warm *w, const void *at, size_t bytes)
{
	size_t before = (uintptr_t)at % WARM_LINE_BYTES;
	size_t lines = (before + bytes + WARM_LINE_BYTES - 1) / WARM_LINE_BYTES;

	if (!at || !bytes || w->count == WARM_PLACES_MAX)
		return;
	w->at[w->count] = (const char *)at - before;
	w->lines[w->count++] = (uint8_t)(lines < WARM_PLACE_LINES ? lines : WARM_PLACE_LINES);
}

static inline void warm_fetch_lines(const void *at, size_t bytes)
{
	const char *line = (const char *)at - (uintptr_t)at % WARM_LINE_BYTES;

	for (; line < (const char *)at + bytes; line += WARM_LINE_BYTES)
		__builtin_prefetch(line);
}

static inline void warm_fetch(const struct warm *w)
{
	for (unsigned i = 0; i < w->count; i++)
		for (unsigned n = 0; n < w->lines[i]; n++)
			__builtin_prefetch(w->at[i] + (size_t)n * WARM_LINE_BYTES);
}

#endif
