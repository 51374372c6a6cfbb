/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When samples were: reading them, a window of them, and slices of time. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "report_data.h"

#define TIME_MAX_US 1e15

/* Three numbers a sample, see doc/trace-format.md. */
int report_timeline_row(struct report *r, const cJSON *row)
{
	double at_us = 0, n[3];
	unsigned have = 0;
	const cJSON *item;

	cJSON_ArrayForEach (item, row) {
		struct report_sample s;

		n[have] = json_number(item);
		if (!(n[have] >= 0) || n[have] > TIME_MAX_US)
			return -EBADMSG;
		have++;
		if (have < 3)
			continue;
		have = 0;
		at_us += n[0];
		if (at_us > TIME_MAX_US || n[2] >= (double)r->stack_count || n[2] != floor(n[2]) ||
		    r->sample_count == REPORT_SAMPLES_MAX)
			return -EBADMSG;
		s = (struct report_sample){at_us, (float)n[1], (uint32_t)n[2]};
		if (!array_grow(&r->samples, r->sample_count, &r->sample_room, sizeof(*r->samples)))
			return -ENOMEM;
		r->samples[r->sample_count++] = s;
	}
	return have ? -EBADMSG : 0;
}

/* How much of it lies in a window: of a processor all or nothing, of a wait what is in it. */
static double part_us(const struct report *r, const struct report_sample *s, double from_us, double to_us)
{
	double from, to;

	if (r->stacks[s->stack].kind == KIND_CPU)
		return s->at_us >= from_us && s->at_us < to_us ? (double)s->us : 0;
	from = fmax(s->at_us, from_us);
	to = fmin(s->at_us + (double)s->us, to_us);
	return to > from ? to - from : 0;
}

bool report_window_known(const struct report *r)
{
	return r->from_ms <= 0 || (r->timed && r->timeline_from_us <= 1000 * r->from_ms);
}

void report_cut_sampling(struct report *r)
{
	double until_ms = r->duration_ms > 0 ? r->duration_ms : r->from_ms;

	r->window_ns = fmin(r->window_ns, 1e6 * (until_ms - r->from_ms));
}

double report_sampled_s(const struct report *r)
{
	return r->window_ns > 0 ? r->window_ns / 1e9 : r->duration_ms / 1e3;
}

void report_cut_to_window(struct report *r)
{
	if (r->from_ms <= 0 || !report_window_known(r))
		return;
	for (size_t i = 0; i < r->stack_count; i++)
		r->stacks[i].ns = 0, r->stacks[i].samples = 0;
	for (size_t i = 0; i < r->sample_count; i++) {
		struct report_stack *s = &r->stacks[r->samples[i].stack];
		double us = part_us(r, &r->samples[i], 1000 * r->from_ms, INFINITY);

		s->ns += 1000 * us;
		s->samples += us > 0;
	}
	r->cpu_samples = r->broken_ns = r->deep_samples = 0;
	for (size_t i = 0; i < r->stack_count; i++) {
		const struct report_stack *s = &r->stacks[i];

		r->cpu_samples += s->kind == KIND_CPU ? (double)s->samples : 0;
		r->broken_ns += s->kind == KIND_CPU && s->broken ? s->ns : 0;
		r->deep_samples += s->kind == KIND_CPU && s->deep ? (double)s->samples : 0;
	}
	report_cut_sampling(r);
}

int report_slices(const struct report *r, const bool *of_stack, struct report_values *out)
{
	double until_us = 1000 * r->duration_ms, from_us = until_us - r->window_ns / 1000;
	double sums[REPORT_SLICES] = {0}, slice_us = (until_us - from_us) / REPORT_SLICES;

	out->count = 0;
	if (!r->timed || !(slice_us > 0) || r->timeline_from_us > from_us)
		return 0;
	if (out->room < REPORT_SLICES) {
		free(out->v);
		out->v = calloc(REPORT_SLICES, sizeof(*out->v));
		out->room = out->v ? REPORT_SLICES : 0;
		if (!out->v)
			return -ENOMEM;
	}
	for (size_t i = 0; i < r->sample_count; i++) {
		const struct report_sample *s = &r->samples[i];
		double first = (s->at_us - from_us) / slice_us, last = (s->at_us + (double)s->us - from_us) / slice_us;

		if (!of_stack[s->stack] || last < 0 || first >= REPORT_SLICES)
			continue;
		if (r->stacks[s->stack].kind == KIND_CPU)
			last = first;
		for (int k = (int)fmax(first, 0); k < REPORT_SLICES && k <= last; k++)
			sums[k] += part_us(r, s, from_us + k * slice_us, from_us + (k + 1) * slice_us);
	}
	for (int k = 0; k < REPORT_SLICES; k++)
		out->v[k] = (float)(1000 * sums[k] / slice_us); /* ms a second */
	out->count = REPORT_SLICES;
	report_quantile(out, 0.5); /* sorted */
	return 0;
}
