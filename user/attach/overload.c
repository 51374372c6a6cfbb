/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "overload.h"

const char *overload_text(uint32_t level)
{
	static const char *const texts[] = {
		[OVERLOAD_NONE] = "everything is copied again",
		[OVERLOAD_PAYLOAD] = "of large requests and reads only the beginning is copied",
		[OVERLOAD_HEADS] = "only heads of requests and answers are copied",
		[OVERLOAD_CONNECTIONS] = "the oldest connections are not looked at",
	};

	return texts[level];
}

static void change(struct overload *o, uint32_t level, uint64_t now_ns)
{
	if (o->level)
		o->spent_ns += now_ns - o->changed_ns;
	o->changed_ns = now_ns;
	o->level = level;
	if (level > o->highest)
		o->highest = level;
	if (level < OVERLOAD_CONNECTIONS)
		o->dropped = 0;
	o->full_ns = o->calm_ns = now_ns;
}

/* Generations are numbered in the order of their connections. */
static bool drop_more(struct overload *o, uint32_t last_gen)
{
	uint32_t before = o->dropped;

	if (o->dropped < last_gen)
		o->dropped += (last_gen - o->dropped + 1) / 2;
	return o->dropped != before;
}

bool overload_look(struct overload *o, uint64_t used, uint64_t size, bool draining, uint32_t last_gen, uint64_t now_ns)
{
	bool full = used >= OVERLOAD_FULL(size), calm = used < size / 8, changed = false;

	/* That it becomes empty then says nothing: how full it becomes in between does. */
	if (draining && !full)
		return false;
	if (!full)
		o->full_ns = 0;
	else if (!o->full_ns)
		o->full_ns = now_ns;
	if (!calm)
		o->calm_ns = 0;
	else if (!o->calm_ns)
		o->calm_ns = now_ns;
	if (full && now_ns - o->full_ns >= OVERLOAD_FULL_NS) {
		changed = o->level < OVERLOAD_CONNECTIONS;
		change(o, changed ? o->level + 1 : o->level, now_ns);
		if (o->level == OVERLOAD_CONNECTIONS)
			changed |= drop_more(o, last_gen);
	} else if (o->level && calm && now_ns - o->calm_ns >= OVERLOAD_CALM_NS) {
		change(o, o->level - 1, now_ns);
		changed = true;
	}
	return changed;
}

uint64_t overload_spent_ns(const struct overload *o, uint64_t now_ns)
{
	return o->spent_ns + (o->level ? now_ns - o->changed_ns : 0);
}
