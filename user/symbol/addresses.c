/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "addresses.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t *slot_of(const struct addresses *a, uint64_t addr)
{
	size_t i = (size_t)((addr * 0x9e3779b97f4a7c15ull) >> 20) & (a->room - 1);

	while (a->slots[i] && a->slots[i] != addr)
		i = (i + 1) & (a->room - 1);
	return &a->slots[i];
}

static int grow(struct addresses *a)
{
	struct addresses more = {.room = a->room ? 2 * a->room : 256};

	more.slots = calloc(more.room, sizeof(*more.slots));
	if (!more.slots)
		return -ENOMEM;
	for (size_t i = 0; i < a->room; i++)
		if (a->slots[i])
			*slot_of(&more, a->slots[i]) = a->slots[i];
	more.count = a->count;
	free(a->slots);
	*a = more;
	return 0;
}

bool addresses_have(const struct addresses *a, uint64_t addr)
{
	return a->room && addr && *slot_of(a, addr) == addr;
}

void addresses_add(struct addresses *a, uint64_t addr)
{
	uint64_t *slot;

	if (!addr || (2 * a->count >= a->room && grow(a)))
		return;
	slot = slot_of(a, addr);
	a->count += !*slot;
	*slot = addr;
}

void addresses_release(struct addresses *a)
{
	free(a->slots);
	*a = (struct addresses){0};
}

void addresses_add_bounded(struct addresses *a, uint64_t addr, size_t max)
{
	if (a->count >= max)
		addresses_release(a);
	addresses_add(a, addr);
}
