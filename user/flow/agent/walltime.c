/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "walltime.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct piece {
	struct interval at;
	uint8_t rank, part;
};

struct walltime {
	uint64_t begin_ns;
	uint64_t mark_ns; /* all before is in `done` */
	struct walltime_report done;
	struct piece *pieces;
	size_t count, size;
};

/* What starts or ends where, while a stretch of time is charged. */
struct edge {
	uint64_t ns;
	uint8_t rank, part;
	bool begin;
};

const char *time_part_name(enum time_part p)
{
	static const char *const names[PART_COUNT] = {
		[PART_CONNECT] = "connect",
		[PART_NETWORK] = "network",
		[PART_FIRST_TOKEN] = "first_token",
		[PART_GENERATION] = "generation",
		[PART_STALL] = "stall",
		[PART_TOOL] = "tool",
		[PART_RETRY_WAIT] = "retry_wait",
		[PART_CLIENT] = "client",
		[PART_AGENT_GAP] = "agent_gap",
		[PART_USER] = "user",
		[PART_UNKNOWN] = "unknown",
	};

	return names[p];
}

struct walltime *walltime_new(uint64_t begin_ns)
{
	struct walltime *w = calloc(1, sizeof(*w));

	if (w)
		w->begin_ns = w->mark_ns = begin_ns;
	return w;
}

void walltime_free(struct walltime *w)
{
	if (!w)
		return;
	free(w->pieces);
	free(w);
}

static int by_time(const void *a, const void *b)
{
	const struct edge *x = a, *y = b;

	return (x->ns > y->ns) - (x->ns < y->ns);
}

/* The pieces' edges inside [from, to), in order. Returns their number, or -ENOMEM. */
static long edges_of(const struct walltime *w, uint64_t from, uint64_t to, struct edge **out)
{
	struct edge *edges = malloc((2 * w->count + 1) * sizeof(*edges));
	size_t n = 0;

	if (!edges)
		return -ENOMEM;
	for (size_t i = 0; i < w->count; i++) {
		const struct piece *p = &w->pieces[i];
		uint64_t begin = p->at.begin_ns > from ? p->at.begin_ns : from;
		uint64_t end = p->at.end_ns < to ? p->at.end_ns : to;

		if (begin >= end)
			continue;
		edges[n++] = (struct edge){begin, p->rank, p->part, true};
		edges[n++] = (struct edge){end, p->rank, p->part, false};
	}
	qsort(edges, n, sizeof(*edges), by_time);
	*out = edges;
	return (long)n;
}

/* Adds [from, to) to the report. */
static int charge(const struct walltime *w, uint64_t from, uint64_t to, struct walltime_report *r)
{
	unsigned active[RANK_COUNT][PART_COUNT] = {{0}};
	unsigned of_rank[RANK_COUNT] = {0}, all = 0;
	struct edge *edges;
	long n = edges_of(w, from, to, &edges);
	uint64_t at = from;

	if (n < 0)
		return (int)n;
	for (long i = 0; i <= n; i++) {
		uint64_t next = i < n ? edges[i].ns : to;
		enum time_part part = PART_UNKNOWN;
		unsigned rank = 0;

		if (next > at) {
			while (rank < RANK_COUNT && !of_rank[rank])
				rank++;
			for (unsigned p = 0; rank < RANK_COUNT && p < PART_COUNT; p++)
				if (active[rank][p])
					part = p < part ? p : part;
			r->part_ns[part] += next - at;
			r->overlap_ns += all > 1 ? (all - 1) * (next - at) : 0;
			at = next;
		}
		if (i < n) {
			int step = edges[i].begin ? 1 : -1;

			active[edges[i].rank][edges[i].part] += step;
			of_rank[edges[i].rank] += step;
			all += step;
		}
	}
	r->total_ns += to - from;
	free(edges);
	return 0;
}

void walltime_advance(struct walltime *w, uint64_t watermark_ns)
{
	size_t kept = 0;

	if (watermark_ns <= w->mark_ns)
		return;
	if (charge(w, w->mark_ns, watermark_ns, &w->done))
		return; /* no memory: the pieces wait, to be charged later */
	w->mark_ns = watermark_ns;
	for (size_t i = 0; i < w->count; i++)
		if (w->pieces[i].at.end_ns > watermark_ns)
			w->pieces[kept++] = w->pieces[i];
	w->count = kept;
}

static int by_end(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return (x->at.end_ns > y->at.end_ns) - (x->at.end_ns < y->at.end_ns);
}

/* Half of the waiting pieces become final, so that the cost of sorting them is spread over as many pushes. */
static int make_room(struct walltime *w)
{
	size_t size = w->size ? 2 * w->size : 8;
	struct piece *more;

	if (w->count < w->size)
		return 0;
	if (w->size == WALLTIME_MAX) {
		qsort(w->pieces, w->count, sizeof(*w->pieces), by_end);
		walltime_advance(w, w->pieces[w->count / 2].at.end_ns);
		return w->count < w->size ? 0 : -ENOMEM;
	}
	more = realloc(w->pieces, size * sizeof(*more));
	if (!more)
		return -ENOMEM;
	w->pieces = more;
	w->size = size;
	return 0;
}

int walltime_push(struct walltime *w, unsigned rank, enum time_part part, uint64_t begin_ns, uint64_t end_ns)
{
	int err = make_room(w);

	if (rank >= RANK_COUNT || part >= PART_COUNT)
		BUG("no such rank or part of wall time");
	if (begin_ns < w->begin_ns)
		begin_ns = w->begin_ns;
	if (end_ns <= begin_ns)
		return 0;
	if (err) {
		w->done.pushed_late_ns += end_ns - begin_ns;
		return err;
	}
	if (begin_ns < w->mark_ns) {
		w->done.pushed_late_ns += (end_ns < w->mark_ns ? end_ns : w->mark_ns) - begin_ns;
		begin_ns = w->mark_ns;
	}
	if (begin_ns < end_ns)
		w->pieces[w->count++] = (struct piece){{begin_ns, end_ns}, (uint8_t)rank, (uint8_t)part};
	return 0;
}

int walltime_report(const struct walltime *w, uint64_t end_ns, struct walltime_report *out)
{
	*out = w->done;
	return end_ns > w->mark_ns ? charge(w, w->mark_ns, end_ns, out) : 0;
}
