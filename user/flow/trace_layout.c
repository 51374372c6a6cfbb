/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "trace_parts.h"

#include <math.h>
#include <stdlib.h>

#define SUB_AGENT_ORDER 350000u

/* Room for one more of w->WHATs. 0 or -ENOMEM. */
#define MORE(w, what)                                                                                                  \
	(array_grow(&(w)->what##s, (w)->what##_count, &(w)->what##_size, sizeof(*(w)->what##s)) ? 0 : -ENOMEM)

/* --- collecting -------------------------------------------------------------------------------------------------- */

static int64_t milli_rate(double per_s)
{
	return isfinite(per_s) && per_s > 0 && per_s < 1e12 ? (int64_t)(per_s * 1000) : 0;
}

static int compare_pids(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

bool trace_is_quiet(const struct writing *w, const struct span *s)
{
	uint32_t pid = trace_viewer_pid(s->pid);

	return w->quiet_count && bsearch(&pid, w->quiets, w->quiet_count, sizeof(pid), compare_pids);
}

static void collect_span(void *ctx, const struct span *s)
{
	struct writing *w = ctx;
	struct item *i;

	if (w->err || trace_is_quiet(w, s))
		return;
	w->err = MORE(w, item);
	if (w->err)
		return;
	i = &w->items[w->item_count];
	*i = (struct item){
		.begin = trace_relative(w, s->begin_ns),
		.end = trace_relative(w, s->end_ns),
		.pid = trace_viewer_pid(s->pid),
		.index = (uint32_t)w->item_count,
		.agent = s->agent,
		.flow_out = s->flow_out,
		.flow_in = s->flow_in,
		.track = (uint8_t)s->track,
		.is_call = s->is_call,
	};
	w->item_count++;
	if (i->end < i->begin)
		i->end = i->begin;
	i->first = i->last = i->end;
	if (s->first_token_ns != UNKNOWN_NS) {
		uint64_t first = trace_relative(w, s->first_token_ns);

		if (first > i->begin && first <= i->end) {
			i->first = first;
			i->in_rate = milli_rate(s->input_tok_s);
			i->out_rate = milli_rate(s->output_tok_s);
			if (i->out_rate && trace_relative(w, s->last_token_ns) < i->end)
				i->last = trace_relative(w, s->last_token_ns);
		}
	}
	if (i->end > w->latest)
		w->latest = i->end;
}

static void collect_proc(void *ctx, const struct proc *p)
{
	struct writing *w = ctx;

	if (w->err)
		return;
	if (w->meta->callers_only && !p->shown) {
		w->err = MORE(w, quiet);
		if (!w->err)
			w->quiets[w->quiet_count++] = trace_viewer_pid(p->shown_pid);
		return;
	}
	w->err = array_grow(&w->shown, w->shown_count, &w->shown_size, sizeof(*w->shown)) ? 0 : -ENOMEM;
	if (w->err)
		return;
	w->shown[w->shown_count++] = (struct shown){.pid = trace_viewer_pid(p->shown_pid), .proc = p};
	if (p->end_ns != UNKNOWN_NS && trace_relative(w, p->end_ns) > w->latest)
		w->latest = trace_relative(w, p->end_ns);
}

static int compare_shown(const void *a, const void *b)
{
	const struct shown *x = a, *y = b;

	return x->pid != y->pid ? (x->pid < y->pid ? -1 : 1) : (x->proc != NULL) < (y->proc != NULL) ? 1 : -1;
}

/* Among the first `count`, which are sorted. */
struct shown *trace_find_shown(const struct writing *w, size_t count, uint32_t pid)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (w->shown[mid].pid < pid)
			low = mid + 1;
		else
			high = mid;
	}
	return low < count && w->shown[low].pid == pid ? &w->shown[low] : NULL;
}

static void sort_shown(struct writing *w)
{
	size_t kept = 0;

	if (w->shown_count)
		qsort(w->shown, w->shown_count, sizeof(*w->shown), compare_shown);
	for (size_t i = 0; i < w->shown_count; i++) {
		if (!kept || w->shown[kept - 1].pid != w->shown[i].pid)
			w->shown[kept++] = w->shown[i];
	}
	w->shown_count = kept;
}

/* Marks the processes that have spans. Those that the table no longer knows still get a row: their calls were made. */
static void mark_shown(struct writing *w)
{
	size_t known = w->shown_count;

	for (size_t i = 0; i < w->row_count && !w->err; i++) {
		struct shown *s = trace_find_shown(w, known, w->rows[i].pid);

		if (s) {
			s->has_spans = true;
			continue;
		}
		if (i && w->rows[i - 1].pid == w->rows[i].pid)
			continue;
		w->err = array_grow(&w->shown, w->shown_count, &w->shown_size, sizeof(*w->shown)) ? 0 : -ENOMEM;
		if (!w->err)
			w->shown[w->shown_count++] = (struct shown){.pid = w->rows[i].pid, .has_spans = true};
	}
	sort_shown(w);
}

/* --- lanes ------------------------------------------------------------------------------------------------------- */

static int compare_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->track != y->track)
		return x->track < y->track ? -1 : 1;
	if (x->agent != y->agent)
		return x->agent < y->agent ? -1 : 1;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end > y->end ? -1 : 1;
	return x->index < y->index ? -1 : 1;
}

/* A binary heap of (key, lane), smallest first: busy lanes by their end, free lanes by their number. */
struct heap {
	struct heap_node {
		uint64_t key;
		uint32_t lane;
	} * nodes; /* room for every lane that can be */
	size_t count;
};

static void heap_push(struct heap *h, uint64_t key, uint32_t lane)
{
	size_t i = h->count++;

	while (i && h->nodes[(i - 1) / 2].key > key) {
		h->nodes[i] = h->nodes[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	h->nodes[i] = (struct heap_node){key, lane};
}

static uint32_t heap_pop(struct heap *h)
{
	uint32_t lane = h->nodes[0].lane;
	struct heap_node last = h->nodes[--h->count];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < h->count) {
		if (child + 1 < h->count && h->nodes[child + 1].key < h->nodes[child].key)
			child++;
		if (h->nodes[child].key >= last.key)
			break;
		h->nodes[i] = h->nodes[child];
		i = child;
	}
	h->nodes[i] = last;
	return lane;
}

/* Lanes of one agent of a process and track, from `first` on, whose items lie at [from, to) in order of their begin.
 * Returns how many. */
static uint32_t give_lanes(struct writing *w, size_t from, size_t to, uint32_t first, struct heap *busy,
			   struct heap *free_lanes)
{
	uint32_t lanes = 0;

	busy->count = free_lanes->count = 0;
	for (size_t i = from; i < to; i++) {
		const struct item *it = &w->items[i];
		/* A slice without length still has its place for itself. */
		uint64_t end = it->end > it->begin ? it->end : it->begin + 1;
		uint32_t lane;

		while (busy->count && busy->nodes[0].key <= it->begin) {
			uint32_t done = heap_pop(busy);

			heap_push(free_lanes, done, done);
		}
		lane = free_lanes->count ? heap_pop(free_lanes) : lanes++;
		heap_push(busy, end + 1, lane); /* see put_phases() */
		w->lanes[it->index] = first + lane;
	}
	return lanes;
}

static void lay_out(struct writing *w)
{
	struct heap busy = {0}, free_lanes = {0};
	size_t n = w->item_count, from = 0;

	if (w->err || !n)
		return;
	w->lanes = calloc(n, sizeof(*w->lanes));
	busy.nodes = calloc(n, sizeof(*busy.nodes));
	free_lanes.nodes = calloc(n, sizeof(*free_lanes.nodes));
	if (!w->lanes || !busy.nodes || !free_lanes.nodes)
		w->err = -ENOMEM;
	else
		qsort(w->items, n, sizeof(*w->items), compare_items);
	while (from < n && !w->err) {
		const struct item *first = &w->items[from];
		size_t to = from + 1;

		while (to < n && w->items[to].pid == first->pid && w->items[to].track == first->track &&
		       w->items[to].agent == first->agent)
			to++;
		w->err = MORE(w, row);
		if (!w->err) {
			struct row *r = &w->rows[w->row_count];
			const struct row *before = w->row_count ? r - 1 : NULL;

			*r = (struct row){.pid = first->pid, .track = first->track, .agent = first->agent};
			if (before && before->pid == r->pid && before->track == r->track)
				r->first_lane = before->first_lane + before->lanes;
			r->lanes = give_lanes(w, from, to, r->first_lane, &busy, &free_lanes);
			w->row_count++;
		}
		from = to;
	}
	free(busy.nodes);
	free(free_lanes.nodes);
}

static int compare_rows(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->agent != y->agent)
		return x->agent < y->agent ? -1 : 1;
	return (int)trace_track_order(x->track) - (int)trace_track_order(y->track);
}

/* What belongs to one agent stands together: the rows of the process itself, then those of each sub-agent. */
static void order_rows(struct writing *w)
{
	uint32_t next = 0;

	if (w->row_count)
		qsort(w->rows, w->row_count, sizeof(*w->rows), compare_rows);
	for (size_t i = 0; i < w->row_count; i++) {
		struct row *r = &w->rows[i];

		if (!i || r[-1].pid != r->pid)
			next = SUB_AGENT_ORDER;
		r->order = trace_track_order(r->track);
		if (r->agent) {
			r->order = next;
			next += r->lanes;
		}
	}
}

/* --- arrows ------------------------------------------------------------------------------------------------------ */

static int compare_arrows(const void *a, const void *b)
{
	const struct arrow *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* The first one of that id; NULL: none. */
const struct arrow *trace_find_arrow(const struct arrow *arrows, size_t count, uint64_t id)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (arrows[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < count && arrows[low].id == id ? &arrows[low] : NULL;
}

bool trace_draws_life(const struct writing *w, const struct shown *s);
uint64_t trace_life_end(const struct writing *w, const struct proc *p);

/* Whether the slice that an arrow goes to will be drawn, and does not end before the arrow begins. */
static bool has_target(const struct writing *w, const struct arrow *ends, size_t count, const struct arrow *from)
{
	const struct arrow *end = trace_find_arrow(ends, count, from->id);
	const struct shown *s;

	if (end)
		return end->at >= from->at;
	if (from->id >> 40 != SPAN_FLOW_PROCESS(0) >> 40)
		return false;
	s = trace_find_shown(w, w->shown_count, trace_viewer_pid((uint32_t)from->id));
	return s && trace_draws_life(w, s) && trace_life_end(w, s->proc) >= from->at;
}

/* An arrow with one end only is an error to viewers, and so is one with two beginnings: the earliest has it. */
static void collect_arrows(struct writing *w)
{
	struct arrow *ends;
	size_t n = 0, kept = 0;

	if (w->err || !w->item_count)
		return;
	ends = calloc(w->item_count, sizeof(*ends));
	w->arrows = calloc(w->item_count, sizeof(*w->arrows));
	if (!ends || !w->arrows) {
		w->err = -ENOMEM;
		free(ends);
		return;
	}
	for (size_t i = 0; i < w->item_count; i++)
		if (w->items[i].flow_in)
			ends[n++] = (struct arrow){w->items[i].flow_in, w->items[i].end, w->items[i].index};
	qsort(ends, n, sizeof(*ends), compare_arrows);
	for (size_t i = 0; i < w->item_count; i++) {
		const struct item *it = &w->items[i];
		const struct arrow from = {it->flow_out, it->begin, it->index};

		if (from.id && has_target(w, ends, n, &from))
			w->arrows[w->arrow_count++] = from;
	}
	qsort(w->arrows, w->arrow_count, sizeof(*w->arrows), compare_arrows);
	for (size_t i = 0; i < w->arrow_count; i++)
		if (!kept || w->arrows[kept - 1].id != w->arrows[i].id)
			w->arrows[kept++] = w->arrows[i];
	w->arrow_count = kept;
	free(ends);
}

void trace_lay_out(struct writing *w, const struct spans *spans, const struct spans *extra, struct procs *procs)
{
	if (procs)
		procs_each(procs, collect_proc, w);
	if (w->quiet_count)
		qsort(w->quiets, w->quiet_count, sizeof(*w->quiets), compare_pids);
	spans_each(spans, collect_span, w);
	if (extra)
		spans_each(extra, collect_span, w);
	lay_out(w);
	order_rows(w);
	sort_shown(w);
	mark_shown(w);
	collect_arrows(w);
}
