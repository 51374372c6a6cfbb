/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http2_ids.h"

#include <string.h>

void ids_init(struct ids *ids, bool fresh)
{
	*ids = (struct ids){.next = 1, .lossy = !fresh};
}

static unsigned find(const struct ids *ids, uint32_t id)
{
	unsigned i = 0;

	while (i < ids->count && (id < ids->unseen[i].first || id > ids->unseen[i].last))
		i++;
	return i;
}

static void remove_range(struct ids *ids, unsigned i)
{
	ids->count--;
	memmove(&ids->unseen[i], &ids->unseen[i + 1], (ids->count - i) * sizeof(ids->unseen[0]));
}

/* At the cap the oldest one is forgotten: its streams will not be told. */
static void add_range(struct ids *ids, uint32_t first, uint32_t last)
{
	if (first > last)
		return;
	if (ids->count == HTTP2_RANGES_MAX)
		remove_range(ids, 0);
	ids->unseen[ids->count++] = (struct ids_range){first, last};
}

bool ids_is_unseen(const struct ids *ids, uint32_t id)
{
	return id >= ids->next ? ids->lossy : find(ids, id) < ids->count;
}

bool ids_take(struct ids *ids, uint32_t id, bool request)
{
	struct ids_range r;
	unsigned i;

	if (id >= ids->next) {
		if (ids->lossy)
			add_range(ids, ids->next, id - 1);
		ids->next = id + 1;
		if (request)
			ids->lossy = false;
		return true;
	}
	i = find(ids, id);
	if (i == ids->count)
		return false;
	r = ids->unseen[i];
	remove_range(ids, i);
	add_range(ids, r.first, id - 1);
	add_range(ids, id + 1, r.last);
	return true;
}

void ids_lose(struct ids *ids)
{
	ids->lossy = true;
}
