/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "load.h"

static bool is_full(const struct load *l)
{
	return l->busy_ns >= (l->at.end_ns - l->at.begin_ns) / 10 * 8;
}

struct interval load_busy(const struct load *before, const struct load *l, const struct load *after)
{
	uint64_t whole_ns = l->at.end_ns - l->at.begin_ns, busy_ns = l->busy_ns < whole_ns ? l->busy_ns : whole_ns;
	bool follows = before->at.end_ns == l->at.begin_ns && is_full(before);
	bool goes_on = after->at.begin_ns == l->at.end_ns && is_full(after);

	if (is_full(l) || (follows && goes_on))
		return l->at;
	if (!follows && !goes_on && busy_ns < whole_ns / 2)
		return (struct interval){0};
	if (goes_on)
		return (struct interval){l->at.end_ns - busy_ns, l->at.end_ns};
	return (struct interval){l->at.begin_ns, l->at.begin_ns + busy_ns};
}
