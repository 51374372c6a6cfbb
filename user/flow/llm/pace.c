/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "pace.h"

#include <stdlib.h>

#include "base/err.h"

void pace_warm(const struct pace *p, struct warm *w)
{
	if (p->gaps) {
		warm_add(w, p->gaps, sizeof(p->gaps->count));
		warm_add(w, &p->gaps->bucket[p->gaps->latest], 1); /* silences are alike */
	}
	if (p->segment_count)
		warm_add(w, &p->segments[p->segment_count - 1], sizeof(*p->segments));
}

void pace_release(struct pace *p)
{
	free(p->gaps);
	free(p->stall_at);
	free(p->segments);
	*p = (struct pace){0};
}

/* Room for one more stall: how an answer ends is told without changing it. */
static int make_room(struct pace *p)
{
	struct interval *more;

	if (p->stall_room > p->stall_count || p->stall_count == CALL_STALLS_MAX)
		return 0;
	more = realloc(p->stall_at, (p->stall_count + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	p->stall_at = more;
	p->stall_room = p->stall_count + 1;
	return 0;
}

static int push_stall(struct pace *p, uint64_t end_ns)
{
	if (p->stall_count == p->stall_room)
		return p->stall_count == CALL_STALLS_MAX ? 0 : -ENOMEM;
	p->stall_at[p->stall_count++] = (struct interval){p->last_ns, end_ns};
	return make_room(p);
}

static int push_gap(struct pace *p, uint64_t ts_ns)
{
	uint64_t gap = ts_ns > p->last_ns ? ts_ns - p->last_ns : 0;
	int err = 0;

	if (!p->gaps) {
		p->gaps = calloc(1, sizeof(*p->gaps));
		p->max_gap_ns = 0;
	}
	if (p->gaps)
		quantile_add(p->gaps, gap);
	else
		err = -ENOMEM;
	if ((int64_t)gap > p->max_gap_ns)
		p->max_gap_ns = (int64_t)gap;
	if (gap > CALL_STALL_NS) {
		p->stalls++;
		err = push_stall(p, ts_ns) ? -ENOMEM : err;
	}
	return err;
}

static int push_segment(struct pace *p, enum token_kind kind, uint64_t ts_ns)
{
	struct call_segment *last = p->segment_count ? &p->segments[p->segment_count - 1] : NULL, *more;
	bool same = kind == p->kind;

	p->kind = kind;
	if (p->segments_left_out) {
		p->segments_left_out += !same;
		return 0;
	}
	if (last && same) {
		last->at.end_ns = ts_ns > last->at.end_ns ? ts_ns : last->at.end_ns;
		last->chunks++;
		return 0;
	}
	if (p->segment_count == CALL_SEGMENTS_MAX) {
		p->segments_left_out++;
		return 0;
	}
	more = realloc(p->segments, (p->segment_count + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	p->segments = more;
	more[p->segment_count++] = (struct call_segment){kind, {ts_ns, ts_ns}, 1};
	return 0;
}

int pace_push(struct pace *p, enum token_kind kind, uint64_t ts_ns, bool new_chunk)
{
	int err = 0;

	if (new_chunk) {
		err = p->chunks++ && !p->missing ? push_gap(p, ts_ns) : make_room(p);
		p->missing = false;
		p->last_ns = ts_ns;
	}
	return push_segment(p, kind, ts_ns) ? -ENOMEM : err;
}

void pace_missing(struct pace *p)
{
	p->missing = true;
}

void pace_report_stalls(const struct pace *p, struct call *c)
{
	c->stall_at = p->stall_at;
	c->stall_count = p->stall_count;
}

void pace_report(const struct pace *p, struct call *c)
{
	pace_report_stalls(p, c);
	c->chunks = p->chunks;
	c->stalls = p->stalls;
	c->max_gap_ns = p->chunks > 1 ? p->max_gap_ns : UNKNOWN_COUNT;
	if (p->gaps) {
		c->gap_p50_ns = (int64_t)quantile_ns(p->gaps, 0.5);
		if (quantile_is_known(p->gaps->count, 0.95))
			c->gap_p95_ns = (int64_t)quantile_ns(p->gaps, 0.95);
	}
	c->segments = p->segments;
	c->segment_count = p->segment_count;
	c->segments_left_out = p->segments_left_out;
}

void pace_report_end(const struct pace *p, struct call *c)
{
	if (!p->chunks || c->end_ns == UNKNOWN_NS || c->end_ns <= p->last_ns ||
	    c->end_ns - p->last_ns <= (uint64_t)CALL_STALL_NS)
		return;
	c->stalls++;
	if (p->stall_count < p->stall_room)
		p->stall_at[c->stall_count++] = (struct interval){p->last_ns, c->end_ns};
}
