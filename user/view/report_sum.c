/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What stacks add up to, and the order of tables. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/quantile.h"
#include "report_data.h"

void report_sums_release(struct report_sums *s)
{
	free(s->self_ns);
	free(s->total_ns);
	free(s->self_samples);
	free(s->total_samples);
	free(s->joined);
	*s = (struct report_sums){0};
}

/* A recursive function is on a stack once. */
static void sum_functions(const struct report *r, const struct report_stack *s, size_t number, size_t *seen,
			  struct report_sums *out)
{
	for (uint32_t i = 0; i < s->depth; i++) {
		uint32_t frame = r->frames[s->frames[i]].first;

		if (!i) {
			out->self_ns[frame] += s->ns;
			out->self_samples[frame] += s->samples;
		}
		if (seen[frame] != number) {
			seen[frame] = number;
			out->total_ns[frame] += s->ns;
			out->total_samples[frame] += s->samples;
		}
	}
}

static const struct report *joined; /* for qsort() */

/* The same process, reason and functions. */
static int compare_stacks(const void *a, const void *b)
{
	const struct report_stack *x = a, *y = b;
	uint32_t p = joined->threads[x->thread].first, q = joined->threads[y->thread].first;

	if (p != q)
		return p < q ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->broken != y->broken)
		return x->broken ? -1 : 1;
	if (x->depth != y->depth)
		return x->depth < y->depth ? -1 : 1;
	for (uint32_t i = 0; i < x->depth; i++) {
		uint32_t f = joined->frames[x->frames[i]].first, g = joined->frames[y->frames[i]].first;

		if (f != g)
			return f < g ? -1 : 1;
	}
	return 0;
}

/* 0 or -ENOMEM. */
static int join_stacks(const struct report *r, struct report_sums *out)
{
	struct report_stack *all = calloc(r->stack_count + 1, sizeof(*all));
	size_t kept = 0;

	out->joined = all;
	if (!all || !r->stack_count)
		return all ? 0 : -ENOMEM;
	memcpy(all, r->stacks, r->stack_count * sizeof(*all));
	joined = r;
	qsort(all, r->stack_count, sizeof(*all), compare_stacks);
	for (size_t i = 1; i < r->stack_count; i++) {
		if (compare_stacks(&all[i], &all[kept])) {
			all[++kept] = all[i];
			continue;
		}
		all[kept].ns += all[i].ns;
		all[kept].samples += all[i].samples;
	}
	out->joined_count = kept + 1;
	return 0;
}

int report_sum(const struct report *r, struct report_sums *out)
{
	size_t *seen = calloc(r->frame_count + 1, sizeof(*seen));
	int err = -ENOMEM;

	*out = (struct report_sums){0};
	out->self_ns = calloc(r->frame_count + 1, sizeof(*out->self_ns));
	out->total_ns = calloc(r->frame_count + 1, sizeof(*out->total_ns));
	out->self_samples = calloc(r->frame_count + 1, sizeof(*out->self_samples));
	out->total_samples = calloc(r->frame_count + 1, sizeof(*out->total_samples));
	if (seen && out->self_ns && out->total_ns && out->self_samples && out->total_samples)
		err = join_stacks(r, out);
	for (size_t i = 0; !err && i < r->stack_count; i++) {
		const struct report_stack *s = &r->stacks[i];

		out->kind_ns[s->kind] += s->ns;
		out->kind_samples[s->kind] += s->samples;
		if (s->kind == KIND_CPU)
			sum_functions(r, s, i + 1, seen, out);
	}
	free(seen);
	if (err)
		report_sums_release(out);
	return err;
}

static int compare_entries(const void *a, const void *b)
{
	const struct report_entry *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

void report_sort(struct report_entry *e, size_t count)
{
	qsort(e, count, sizeof(*e), compare_entries);
}

static int compare_floats(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

double report_quantile(struct report_values *v, double share)
{
	if (v->count)
		qsort(v->v, v->count, sizeof(*v->v), compare_floats);
	return quantile_of_floats(v->v, v->count, share);
}

const char *report_frame_name(const struct report *r, uint32_t frame, char *out, size_t size)
{
	const struct report_frame *f = &r->frames[frame];
	char text[REPORT_FRAME_BYTES];
	bool bracket = f->module[0] == '[';

	if (!f->module[0])
		snprintf(text, sizeof(text), "%.511s", f->name[0] ? f->name : "[unknown]");
	else
		snprintf(text, sizeof(text), bracket ? "%.511s%s%.64s" : "%.511s%s[%.64s]", f->name,
			 f->name[0] ? " " : "", f->module);
	return log_safe(out, size, sv_of(text));
}
