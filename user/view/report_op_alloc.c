/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the most expensive operation allocated, by stack. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "flow/op/op.h"
#include "report_axis.h"
#include "format.h"
#include "report_op.h"

#define SAMPLES_MIN 20 /* fewer say nothing */

struct summing {
	const struct report *r;
	const struct report_scale *scales;
	struct report_op_allocs *out;
};

static void add_sample(void *ctx, uint32_t at, uint64_t weight_ns)
{
	struct summing *s = ctx;

	(void)weight_ns;
	report_add_allocation(s->r, s->scales, at, s->out->sums);
	s->out->samples++;
}

int report_op_allocs_sum(const struct report *r, const struct op_group *g, struct report_op_allocs *out)
{
	const struct ops *engine = report_ops_engine(r->ops);
	struct report_scale *scales;
	size_t count;

	out->group = g;
	if (!g || !r->alloc_timed)
		return 0;
	scales = report_alloc_scales(r, r->alloc_from_us);
	out->sums = calloc(r->memory_count + 1, sizeof(*out->sums));
	if (scales && out->sums)
		ops_each_sample(engine, (size_t)(g - ops_groups(engine, &count)), OP_ALLOC, add_sample,
				&(struct summing){r, scales, out});
	free(scales);
	return scales && out->sums ? 0 : -ENOMEM;
}

/* --- the table --------------------------------------------------------------------------------------------------- */

static const char *without_times(const struct report *r)
{
	return r->alloc_bytes <= 0 ? "--alloc" : r->alloc_timed ? NULL : "times of allocations";
}

static bool is_too_few(const struct report_op_allocs *a)
{
	return a->group && a->samples < SAMPLES_MIN;
}

static struct report_entry *list(const struct report_context *c, size_t *count)
{
	const struct report_op_allocs *a = report_ops_allocs(c->r->ops);
	struct report_entry *e = calloc(c->r->memory_count + 1, sizeof(*e));

	*count = 0;
	for (size_t i = 0; e && a->sums && !is_too_few(a) && i < c->r->memory_count; i++)
		if (a->sums[i].samples)
			e[(*count)++] = (struct report_entry){isnan(a->sums[i].bytes) ? 0 : a->sums[i].bytes, i};
	return e;
}

static const struct report_column columns[] = {{"bytes", "bytes", REPORT_BYTES},
					       {"share", "share", REPORT_SHARE},
					       {"count", "count", REPORT_COUNT},
					       {"samples", "samples", REPORT_COUNT},
					       {0}};

static void cells(const struct report_context *c, size_t at, double out[REPORT_COLUMNS_MAX])
{
	const struct report_op_allocs *a = report_ops_allocs(c->r->ops);
	double all = 0;

	for (size_t i = 0; i < c->r->memory_count; i++)
		all += isnan(a->sums[i].bytes) ? 0 : a->sums[i].bytes;
	out[0] = a->sums[at].bytes;
	out[1] = all > 0 ? a->sums[at].bytes / all : NAN;
	out[2] = a->sums[at].count;
	out[3] = (double)a->sums[at].samples;
}

static void name(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	report_stack_name(c->r, &c->r->memory[at].stack, "", out);
}

static void put_json(const struct report_context *c, size_t at, struct json *j)
{
	report_stack_json(c->r, &c->r->memory[at].stack, j);
}

static int heading(const struct report_context *c, struct buf *out)
{
	return report_put_operation(c->r, report_ops_allocs(c->r->ops)->group, out);
}

static int empty(const struct report_context *c, struct buf *out)
{
	const struct report_op_allocs *a = report_ops_allocs(c->r->ops);
	int err;

	if (!is_too_few(a))
		return c->v->by == REPORT_ALL ? 0 : buf_puts(out, "there is none in this trace\n");
	err = buf_puts(out, c->axis->title);
	if (!err)
		err = heading(c, out);
	return err ? err
		   : buf_printf(out, "\n  %llu sample%s in its time: too few to tell\n", (unsigned long long)a->samples,
				format_plural((double)a->samples));
}

static int foot(const struct report_context *c, struct buf *out)
{
	char from[FORMAT_BYTES];

	if (c->r->alloc_from_us <= 0)
		return 0;
	return buf_printf(out, "  of what was asked for later than %s after the start: see --max-events\n",
			  format_ms(from, c->r->alloc_from_us / 1000));
}

static void foot_json(const struct report_context *c, struct json *j)
{
	const struct report_op_allocs *a = report_ops_allocs(c->r->ops);

	report_json_operation(c->r, a->group, j);
	json_uint(j, "operation_samples", a->samples);
	json_bool(j, "too_few", is_too_few(a));
	json_double(j, "from_ms", c->r->alloc_from_us / 1000, 3);
}

const struct report_axis report_axis_op_alloc = {
	.title = "memory that the most expensive operation asked for, estimated",
	.operations = true,
	.columns = columns,
	.missing = without_times,
	.list = list,
	.cells = cells,
	.name = name,
	.json = put_json,
	.heading = heading,
	.empty = empty,
	.foot = foot,
	.foot_json = foot_json,
};
