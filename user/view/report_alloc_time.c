/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When allocations were: reading it, what samples of a part of the time stand for, and what was asked for in it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "report_data.h"

#define OWN_MIN 0.05 /* as flow/profile_alloc.c: of its processor time in windows a process had for itself at least */

/* False: it is less, or no number. */
static bool take_number(const cJSON *item, double least, double *out)
{
	*out = json_number(item);
	return *out >= least && *out <= REPORT_NUMBER_MAX;
}

static bool is_place(double n, size_t count)
{
	return n < (double)count && n == floor(n);
}

/* Five numbers a sample, see doc/trace-format.md. */
int report_allocations_row(struct report *r, const cJSON *row)
{
	double at_us = 0, n[5];
	unsigned have = 0;
	const cJSON *item;

	cJSON_ArrayForEach (item, row) {
		if (!take_number(item, 0, &n[have]))
			return -EBADMSG;
		have++;
		if (have < 5)
			continue;
		have = 0;
		at_us += n[0];
		if (at_us > 1e15 || !is_place(n[1], UINT32_MAX) || !is_place(n[2], r->memory_count) ||
		    r->memory[(size_t)n[2]].fault || r->allocation_count == REPORT_SAMPLES_MAX)
			return -EBADMSG;
		if (!array_grow(&r->allocations, r->allocation_count, &r->allocation_room, sizeof(*r->allocations)))
			return -ENOMEM;
		r->allocations[r->allocation_count++] =
			(struct report_allocation){at_us, (uint32_t)n[1], (uint32_t)n[2], (float)n[3], (float)n[4]};
	}
	return have ? -EBADMSG : 0;
}

int report_window_row(struct report *r, const cJSON *row)
{
	struct report_allocator *a;
	double n[7];
	unsigned have = 0;
	const cJSON *item;

	cJSON_ArrayForEach (item, row) {
		/* Traps may be taken for more than there was. */
		bool is_signed = have == 3 || have == 4;

		if (have == 7 || !take_number(item, is_signed ? -REPORT_NUMBER_MAX : 0, &n[have]))
			return -EBADMSG;
		have++;
	}
	if (have != 7 || !is_place(n[1], r->allocator_count) || r->window_count == REPORT_SAMPLES_MAX)
		return -EBADMSG;
	if (!array_grow(&r->windows, r->window_count, &r->window_room, sizeof(*r->windows)))
		return -ENOMEM;
	a = &r->allocators[(size_t)n[1]];
	r->windows[r->window_count++] = (struct report_window){.at_us = n[0],
							       .before_us = a->window_us,
							       .allocator = (uint32_t)n[1],
							       .cpu_ns = n[2],
							       .own_ns = n[3],
							       .whole_ns = n[4],
							       .bytes = n[5],
							       .count = n[6]};
	a->window_us = n[0];
	return 0;
}

static int compare_allocators(const void *a, const void *b)
{
	const struct report_allocator *x = *(const struct report_allocator *const *)a;
	const struct report_allocator *y = *(const struct report_allocator *const *)b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* The first one of this pid; their number: there is none. `sorted` is by pid, then by place. */
static uint32_t first_of(const struct report *r, struct report_allocator *const *sorted, uint32_t pid)
{
	size_t from = 0, to = r->allocator_count;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (sorted[mid]->pid < pid)
			from = mid + 1;
		else
			to = mid;
	}
	if (from == r->allocator_count || sorted[from]->pid != pid)
		return (uint32_t)r->allocator_count;
	return (uint32_t)(sorted[from] - r->allocators);
}

int report_join_allocators(struct report *r)
{
	struct report_allocator **sorted = calloc(r->allocator_count + 1, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < r->allocator_count; i++)
		sorted[i] = &r->allocators[i];
	qsort(sorted, r->allocator_count, sizeof(*sorted), compare_allocators);
	for (size_t i = 0; i < r->memory_count; i++)
		r->memory[i].allocator = first_of(r, sorted, r->threads[r->memory[i].stack.thread].pid);
	/* A pid that was used again is one. */
	for (size_t i = 0; i < r->allocator_count; i++)
		r->allocators[i].first = first_of(r, sorted, r->allocators[i].pid);
	free(sorted);
	return 0;
}

/* What the windows of each process that ended after from_us come to. */
static void sum_windows(const struct report *r, double from_us, struct report_scale *scales)
{
	for (size_t i = 0; i < r->window_count; i++) {
		const struct report_window *w = &r->windows[i];
		struct report_scale *s = &scales[r->allocators[w->allocator].first];
		/* Of the time since the one before what is looked at. */
		double part = w->before_us < from_us && w->at_us > w->before_us
				      ? (w->at_us - from_us) / (w->at_us - w->before_us)
				      : 1;

		if (w->at_us < from_us)
			continue;
		s->windows += w->cpu_ns > 0;
		s->cpu_ns += w->cpu_ns;
		s->own_ns += w->own_ns;
		s->whole_ns += part * w->whole_ns;
		s->bytes += w->bytes;
		s->count += w->count;
	}
}

/* What one byte of the samples stands for. NAN: that is not known. */
static double factor_of(const struct report *r, double from_us, const struct report_scale *s)
{
	bool is_all = from_us <= 0 && r->from_ms <= 0;
	double told = is_all ? s->told_bytes : NAN;

	if (s->windows <= 0 || s->own_ns <= 0 || s->sampled <= 0)
		return NAN;
	return (isnan(told) ? s->bytes * s->whole_ns / s->own_ns : told) / s->sampled;
}

struct report_scale *report_alloc_scales(const struct report *r, double from_us)
{
	struct report_scale *scales = calloc(r->allocator_count + 1, sizeof(*scales));

	if (!scales)
		return NULL;
	sum_windows(r, from_us, scales);
	for (size_t i = 0; i < r->allocation_count; i++) {
		const struct report_allocation *a = &r->allocations[i];

		if (a->at_us >= from_us)
			scales[r->memory[a->memory].allocator].sampled += (double)a->bytes;
	}
	for (size_t i = 0; i < r->allocator_count; i++)
		scales[r->allocators[i].first].told_bytes += r->allocators[i].bytes;
	for (size_t i = 0; i < r->allocator_count; i++) {
		struct report_scale *s = &scales[i];

		s->own_ns = fmax(s->own_ns, OWN_MIN * s->cpu_ns);
		s->whole_ns = fmax(s->whole_ns, s->own_ns);
		s->factor = factor_of(r, from_us, s);
	}
	scales[r->allocator_count].factor = NAN; /* of samples of a process that is not told */
	return scales;
}

bool report_allocations_known(const struct report *r)
{
	return r->from_ms <= 0 || (r->alloc_timed && r->alloc_from_us <= 1000 * r->from_ms);
}

void report_add_allocation(const struct report *r, const struct report_scale *scales, size_t at,
			   struct report_alloc_sum *sums)
{
	const struct report_allocation *a = &r->allocations[at];
	struct report_alloc_sum *s = &sums[a->memory];
	double factor = scales[r->memory[a->memory].allocator].factor;

	s->bytes += factor * (double)a->bytes;
	s->count += factor * (double)a->count;
	s->samples++;
}

/* The processes, as far as it is known of a part of the time. */
static void cut_allocators(struct report *r, const struct report_scale *scales)
{
	for (size_t i = 0; i < r->allocator_count; i++) {
		struct report_allocator *a = &r->allocators[i];
		const struct report_scale *s = &scales[i];
		bool known = a->first == i && s->windows > 0 && s->own_ns > 0;

		a->windows = s->windows;
		a->share = known ? s->own_ns / s->whole_ns : NAN;
		a->bytes = known ? s->bytes / a->share : NAN;
		a->count = known ? s->count / a->share : NAN;
		a->error = NAN;
	}
}

int report_cut_allocations(struct report *r)
{
	double from_us = 1000 * r->from_ms;
	struct report_alloc_sum *sums;
	struct report_scale *scales;

	if (r->from_ms <= 0 || !r->alloc_timed || !report_allocations_known(r))
		return 0;
	report_cut_sampling(r);
	scales = report_alloc_scales(r, from_us);
	sums = calloc(r->memory_count + 1, sizeof(*sums));
	for (size_t i = 0; scales && sums && i < r->allocation_count; i++)
		if (r->allocations[i].at_us >= from_us)
			report_add_allocation(r, scales, i, sums);
	for (size_t i = 0; scales && sums && i < r->memory_count; i++) {
		struct report_memory *m = &r->memory[i];

		if (m->fault)
			continue;
		m->bytes = sums[i].bytes;
		m->count = sums[i].count;
		m->stack.samples = sums[i].samples;
		m->error = m->kept_bytes = m->kept_count = NAN;
	}
	if (scales && sums)
		cut_allocators(r, scales);
	free(sums);
	free(scales);
	return scales && sums ? 0 : -ENOMEM;
}
