/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How tables look: text and JSON. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "format.h"
#include "report_axis.h"

const struct report_axis *const report_axes[REPORT_BYS] = {
	[REPORT_OP] = &report_axis_op,
	[REPORT_OP_FUNCTION] = &report_axis_op_function,
	[REPORT_OP_ALLOC] = &report_axis_op_alloc,
	[REPORT_MODEL] = &report_axis_model,
	[REPORT_CALL] = &report_axis_call,
	[REPORT_TOOL] = &report_axis_tool,
	[REPORT_MCP] = &report_axis_mcp,
	[REPORT_HTTP] = &report_axis_http,
	[REPORT_CONNECT] = &report_axis_connect,
	[REPORT_FUNC] = &report_axis_func,
	[REPORT_DB] = &report_axis_db,
	[REPORT_PROCESS] = &report_axis_process,
	[REPORT_FUNCTION] = &report_axis_function,
	[REPORT_STACK] = &report_axis_stack,
	[REPORT_WAIT] = &report_axis_wait,
	[REPORT_WAIT_STACK] = &report_axis_wait_stack,
	[REPORT_ALLOC] = &report_axis_alloc,
	[REPORT_FAULT] = &report_axis_fault,
};

int report_context_init(struct report_context *c, const struct report *r, const struct report_view *v)
{
	*c = (struct report_context){.r = r, .v = v};
	c->of_stack = calloc(r->stack_count + 1, sizeof(*c->of_stack));
	return c->of_stack ? report_sum(r, &c->sums) : -ENOMEM;
}

void report_context_release(struct report_context *c)
{
	report_sums_release(&c->sums);
	free(c->of_stack);
}

struct report_entry *report_list(const struct report_context *c, size_t *count)
{
	struct report_entry *e = c->axis->list(c, count);

	if (e)
		report_sort(e, *count);
	return e;
}

static bool is_wanted(const struct report_view *v, enum report_by by)
{
	if (v->by == REPORT_ALL && v->operations)
		return report_axes[by]->operations;
	return v->by == by || (v->by == REPORT_ALL && !report_axes[by]->on_request);
}

static const char *missing(const struct report *r, const struct report_axis *axis)
{
	return axis->missing ? axis->missing(r) : NULL;
}

/* --- parts of a time --------------------------------------------------------------------------------------------- */

int report_put_parts_line(const double parts_ms[PARTS], struct buf *out)
{
	struct report_entry e[PARTS];
	char share[FORMAT_BYTES];
	double all = 0;
	int err;

	for (int i = 0; i < PARTS; i++) {
		e[i] = (struct report_entry){parts_ms[i], (size_t)i};
		all += parts_ms[i];
	}
	if (all <= 0)
		return 0;
	report_sort(e, PARTS);
	err = buf_printf(out, "  %31s", "time:");
	for (int i = 0; i < PARTS && e[i].weight > 0 && !err; i++)
		err = buf_printf(out, " %s %s", report_part_names[e[i].at], format_percent(share, e[i].weight / all));
	return err ? err : buf_putc(out, '\n');
}

void report_json_parts(struct json *j, const double parts_ms[PARTS])
{
	json_object(j, "parts_ms");
	for (int i = 0; i < PARTS; i++)
		if (parts_ms[i] > 0)
			json_double(j, report_part_names[i], parts_ms[i], 3);
	json_end_object(j);
}

/* --- text -------------------------------------------------------------------------------------------------------- */

static int width_of(const struct report_column *column)
{
	static const int widths[] = {[REPORT_MS] = 8, [REPORT_COUNT] = 6, [REPORT_SHARE] = 5, [REPORT_BYTES] = 7};
	int head = (int)strlen(column->head);

	return head > widths[column->unit] ? head : widths[column->unit];
}

const char *report_format(char out[FORMAT_BYTES], enum report_unit unit, double n)
{
	switch (unit) {
	case REPORT_MS:
		return format_ms(out, n);
	case REPORT_SHARE:
		return format_percent(out, n);
	default:
		return format_count(out, isnan(n) || n > 1e18 ? -1 : (int64_t)n);
	}
}

static int put_heads(const struct report_axis *axis, struct buf *out)
{
	int err = buf_puts(out, " ");

	for (const struct report_column *c = axis->columns; c->key && !err; c++)
		if (c->head)
			err = buf_printf(out, " %*s", width_of(c), c->head);
	return err ? err : buf_putc(out, '\n');
}

static int put_row(const struct report_context *c, size_t at, struct buf *out)
{
	char cell[FORMAT_BYTES], name[REPORT_TEXT_BYTES], safe[REPORT_TEXT_BYTES];
	double cells[REPORT_COLUMNS_MAX];
	int err = buf_puts(out, " ");

	c->axis->cells(c, at, cells);
	for (size_t i = 0; c->axis->columns[i].key && !err; i++) {
		const struct report_column *column = &c->axis->columns[i];

		if (column->head)
			err = buf_printf(out, " %*s", width_of(column), report_format(cell, column->unit, cells[i]));
	}
	c->axis->name(c, at, name);
	if (!err)
		err = buf_printf(out, "  %s\n", log_safe(safe, sizeof(safe), sv_of(name)));
	return err || !c->axis->more ? err : c->axis->more(c, at, out);
}

static int put_title(const struct report_context *c, struct buf *out)
{
	int err = buf_puts(out, c->axis->title);

	if (!err && c->axis->heading)
		err = c->axis->heading(c, out);
	if (!err)
		err = buf_putc(out, '\n');
	return err ? err : put_heads(c->axis, out);
}

static int put_table(const struct report_context *c, struct buf *out)
{
	size_t count;
	struct report_entry *e = report_list(c, &count);
	int err = e ? 0 : -ENOMEM;

	if (!err && !count && c->axis->empty)
		err = c->axis->empty(c, out);
	else if (!err && !count)
		err = c->v->by == REPORT_ALL ? 0 : buf_puts(out, "there is none in this trace\n");
	if (!err && count)
		err = put_title(c, out);
	for (size_t i = 0; i < count && i < c->v->top && !err; i++)
		err = put_row(c, e[i].at, out);
	if (!err && count > c->v->top)
		err = buf_printf(out, "  … and %zu more (--top)\n", count - c->v->top);
	if (!err && count && c->axis->foot)
		err = c->axis->foot(c, out);
	free(e);
	return err;
}

static int put_profile_head(const struct report_context *c, struct buf *out)
{
	char count[FORMAT_BYTES], deep[FORMAT_BYTES], lost[FORMAT_BYTES], period[FORMAT_BYTES], broken[FORMAT_BYTES];
	const struct report *r = c->r;
	double all = c->sums.kind_ns[KIND_CPU];

	return buf_printf(out,
			  "%s sample%s on a processor, one every %s; %s of their time has a broken stack, %s sample%s "
			  "deeper than is kept; %s lost\n",
			  report_format(count, REPORT_COUNT, r->cpu_samples), format_plural(r->cpu_samples),
			  format_ms(period, r->period_ns / 1e6),
			  format_percent(broken, all > 0 ? r->broken_ns / all : NAN),
			  report_format(deep, REPORT_COUNT, r->deep_samples), r->deep_samples == 1 ? " is" : "s are",
			  report_format(lost, REPORT_COUNT, r->lost_samples));
}

static int put_head(const struct report_context *c, struct buf *out)
{
	char text[512], losses[sizeof(c->r->losses)];
	int err = 0;

	if (c->r->verdict && !(c->r->from_ms > 0)) /* it is of all of it */
		err = buf_printf(out, "%s\n", log_safe(text, sizeof(text), sv_of(c->r->verdict)));
	if (!err && c->r->lost > 0)
		err = buf_printf(out, "this trace is not whole (metadata.lost): %s\n",
				 log_safe(losses, sizeof(losses), sv_of(c->r->losses)));
	return err || missing(c->r, &report_axis_function) ? err : put_profile_head(c, out);
}

static int render_text(struct report_context *c, struct buf *out)
{
	int err = put_head(c, out);
	size_t before = out->len;

	for (enum report_by by = REPORT_ALL + 1; by < REPORT_BYS && !err; by++) {
		const char *without = missing(c->r, report_axes[by]);

		c->axis = report_axes[by];
		if (!is_wanted(c->v, by))
			continue;
		if (!without)
			err = put_table(c, out);
		else if (c->v->by == by)
			err = buf_printf(out, "this trace was taken without %s\n", without);
	}
	if (!err && out->len == before)
		err = buf_printf(out, "there is nothing to report in this trace%s%s\n",
				 c->r->from_ms > 0 ? ", of the time that was asked for" : "",
				 c->v->operations ? ": no operation of that name" : "");
	return err;
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

/* 0 is not known. */
static double known(double n)
{
	return n > 0 ? n : NAN;
}

void report_json_trace(struct json *j, const struct report *r)
{
	bool cpu = r->period_ns > 0;

	json_double(j, "duration_ms", known(r->duration_ms), 3);
	json_double(j, "from_ms", r->from_ms, 3);
	json_double(j, "lost", r->lost, 0);
	json_string(j, "verdict", r->from_ms > 0 ? SV_NONE : sv_of(r->verdict));
	json_double(j, "sampling_ms", known(r->window_ns / 1e6), 3);
	json_double(j, "cpu_period_ms", known(r->period_ns / 1e6), 6);
	json_double(j, "cpu_samples", cpu ? r->cpu_samples : NAN, 0);
	json_double(j, "cpu_broken_ms", cpu ? r->broken_ns / 1e6 : NAN, 3);
	json_double(j, "cpu_deep_samples", cpu ? r->deep_samples : NAN, 0);
	json_double(j, "off_cpu_min_ms", known(r->off_cpu_min_ns / 1e6), 6);
	json_double(j, "alloc_bytes_per_sample", known(r->alloc_bytes), 0);
	json_double(j, "lost_samples", cpu || r->off_cpu_min_ns > 0 || r->alloc_bytes > 0 ? r->lost_samples : NAN, 0);
}

static void json_row(struct json *j, const struct report_context *c, size_t at)
{
	static const int decimals[] = {[REPORT_MS] = 3, [REPORT_COUNT] = 0, [REPORT_SHARE] = 4, [REPORT_BYTES] = 0};
	double cells[REPORT_COLUMNS_MAX];

	json_object(j, NULL);
	c->axis->json(c, at, j);
	c->axis->cells(c, at, cells);
	for (size_t i = 0; c->axis->columns[i].key; i++)
		json_double(j, c->axis->columns[i].key, cells[i], decimals[c->axis->columns[i].unit]);
	json_end_object(j);
}

static void json_table(struct json *j, const struct report_context *c)
{
	size_t count = 0;
	struct report_entry *e = report_list(c, &count);

	if (!e) {
		j->err = j->err ? j->err : -ENOMEM;
		return;
	}
	json_uint(j, "row_count", count);
	json_array(j, "rows");
	for (size_t i = 0; i < count && i < c->v->top; i++)
		json_row(j, c, e[i].at);
	json_end_array(j);
	if (c->axis->foot_json)
		c->axis->foot_json(c, j);
	free(e);
}

static int render_json(struct report_context *c, struct buf *out)
{
	struct json j;

	json_init(&j, out);
	json_object(&j, NULL);
	json_uint(&j, "format", 1);
	json_object(&j, "trace");
	report_json_trace(&j, c->r);
	json_end_object(&j);
	json_object(&j, "tables");
	for (enum report_by by = REPORT_ALL + 1; by < REPORT_BYS; by++) {
		c->axis = report_axes[by];
		if (c->v->by != REPORT_ALL ? c->v->by != by : c->v->operations && !c->axis->operations)
			continue;
		if (missing(c->r, c->axis)) {
			json_null(&j, report_by_word(by));
			continue;
		}
		json_object(&j, report_by_word(by));
		json_table(&j, c);
		json_end_object(&j);
	}
	json_end_object(&j);
	json_end_object(&j);
	return j.err ? j.err : buf_putc(out, '\n');
}

int report_render(const struct report *r, const struct report_view *v, struct buf *out)
{
	struct report_context c;
	int err = report_context_init(&c, r, v);

	if (!err)
		err = v->json ? render_json(&c, out) : render_text(&c, out);
	report_context_release(&c);
	return err;
}
