/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lost.h"

#include "err.h"

static const struct {
	const char *name, *text;
} counters[] = {
#define X(id, name, text) [id] = {name, text},
	LOST_COUNTERS(X)
#undef X
};

const char *lost_name(enum lost_id id)
{
	return counters[id].name;
}

const char *lost_text(enum lost_id id)
{
	return counters[id].text;
}

uint64_t lost_total(const struct lost *l)
{
	uint64_t total = 0;

	for (size_t i = 0; i < ARRAY_SIZE(l->n); i++)
		total += l->n[i];
	return total;
}
