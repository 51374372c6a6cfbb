/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What ran and what waited: tables of samples, and input of flame graphs. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "report_axis.h"
#include "report_op.h"

#define STACK_SHOWN	  6  /* frames of a stack in a table */
#define STACK_FRAME_SHOWN 64 /* bytes of each */

/* Samples that carry no time cannot be told to be late ones. */
static const char *without_cpu(const struct report *r)
{
	return !r->period_ns ? "--cpu" : report_window_known(r) ? NULL : "times of samples (--last)";
}

static const char *without_off_cpu(const struct report *r)
{
	return !r->off_cpu_min_ns ? "--off-cpu" : report_window_known(r) ? NULL : "times of samples (--last)";
}

static double share(double part, double all)
{
	return all > 0 ? part / all : NAN;
}

static double kinds_ns(const struct report_context *c, int from, int to)
{
	double all = 0;

	for (int k = from; k < to; k++)
		all += c->sums.kind_ns[k];
	return all;
}

/* --- functions --------------------------------------------------------------------------------------------------- */

static const struct report_sums *sums_of(const struct report_context *c)
{
	const struct report_sums *sums = &c->sums;

	if (c->axis == &report_axis_op_function)
		report_ops_expensive(c->r->ops, &sums);
	return sums;
}

static struct report_entry *list_functions(const struct report_context *c, size_t *count)
{
	const struct report_sums *sums = sums_of(c);
	const double *weight = c->v->total ? sums->total_ns : sums->self_ns;
	struct report_entry *e = calloc(c->r->frame_count + 1, sizeof(*e));

	*count = 0;
	for (size_t i = 0; e && weight && i < c->r->frame_count; i++)
		if (weight[i] > 0)
			e[(*count)++] = (struct report_entry){weight[i], i};
	return e;
}

static const struct report_column function_columns[] = {{"self", "self_ms", REPORT_MS},
							{"share", "self_share", REPORT_SHARE},
							{"total", "total_ms", REPORT_MS},
							{"share", "total_share", REPORT_SHARE},
							{NULL, "self_samples", REPORT_COUNT},
							{NULL, "total_samples", REPORT_COUNT},
							{0}};

static void function_cells(const struct report_context *c, size_t at, double out[REPORT_COLUMNS_MAX])
{
	const struct report_sums *sums = sums_of(c);
	double all = sums->kind_ns[KIND_CPU];

	out[0] = sums->self_ns[at] / 1e6;
	out[1] = share(sums->self_ns[at], all);
	out[2] = sums->total_ns[at] / 1e6;
	out[3] = share(sums->total_ns[at], all);
	out[4] = (double)sums->self_samples[at];
	out[5] = (double)sums->total_samples[at];
}

static void function_name(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	report_frame_name(c->r, (uint32_t)at, out, REPORT_NAME_BYTES);
}

static void function_whole(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	report_frame_name(c->r, (uint32_t)at, out, REPORT_TEXT_BYTES);
}

static void put_frame(const struct report *r, size_t at, struct json *j)
{
	const struct report_frame *f = &r->frames[at];

	json_string(j, "function", f->name[0] ? sv_of(f->name) : SV_NONE);
	json_string(j, "file", f->module[0] ? sv_of(f->module) : SV_NONE);
}

static void function_json(const struct report_context *c, size_t at, struct json *j)
{
	put_frame(c->r, at, j);
}

static bool is_of_function(const struct report_context *c, const struct report_stack *s, size_t at)
{
	uint32_t depth = c->v->total ? s->depth : s->depth > 0;

	for (uint32_t i = 0; s->kind == KIND_CPU && i < depth; i++)
		if (c->r->frames[s->frames[i]].first == at)
			return true;
	return false;
}

static int function_measure(const struct report_context *c, size_t at, size_t which, struct report_measure *m)
{
	(void)which;
	m->value = (c->v->total ? c->sums.total_ns : c->sums.self_ns)[at] / 1e6 / report_sampled_s(c->r);
	m->samples = (double)(c->v->total ? c->sums.total_samples : c->sums.self_samples)[at];
	for (size_t i = 0; i < c->r->stack_count; i++)
		c->of_stack[i] = is_of_function(c, &c->r->stacks[i], at);
	return report_slices(c->r, c->of_stack, &m->slices);
}

static const struct report_compared a_second[] = {{", a second", "ms_per_s", REPORT_MS, true, false}, {0}};

const struct report_axis report_axis_function = {
	.title = "functions on a processor",
	.columns = function_columns,
	.missing = without_cpu,
	.list = list_functions,
	.cells = function_cells,
	.name = function_name,
	.json = function_json,
	.compared_name = function_whole,
	.compared = a_second,
	.measure = function_measure,
};

/* Whose functions. */
static int put_operation(const struct report_context *c, struct buf *out)
{
	const struct report_sums *sums;

	return report_put_operation(c->r, report_ops_expensive(c->r->ops, &sums), out);
}

static void operation_json(const struct report_context *c, struct json *j)
{
	const struct report_sums *sums;

	report_json_operation(c->r, report_ops_expensive(c->r->ops, &sums), j);
}

const struct report_axis report_axis_op_function = {
	.title = "functions of the most expensive operation",
	.operations = true,
	.columns = function_columns,
	.missing = without_cpu,
	.list = list_functions,
	.cells = function_cells,
	.name = function_name,
	.json = function_json,
	.heading = put_operation,
	.foot_json = operation_json,
};

/* --- stacks ------------------------------------------------------------------------------------------------------ */

static bool is_wait(const struct report_context *c)
{
	return c->axis == &report_axis_wait_stack;
}

static struct report_entry *list_stacks(const struct report_context *c, size_t *count)
{
	struct report_entry *e = calloc(c->sums.joined_count + 1, sizeof(*e));

	*count = 0;
	for (size_t i = 0; e && i < c->sums.joined_count; i++) {
		const struct report_stack *s = &c->sums.joined[i];

		if ((is_wait(c) ? s->kind > KIND_QUEUE : s->kind == KIND_CPU) && s->ns > 0)
			e[(*count)++] = (struct report_entry){s->ns, i};
	}
	return e;
}

static const struct report_column stack_columns[] = {
	{"time", "ms", REPORT_MS}, {"share", "share", REPORT_SHARE}, {"samples", "samples", REPORT_COUNT}, {0}};

static void stack_cells(const struct report_context *c, size_t at, double out[REPORT_COLUMNS_MAX])
{
	const struct report_stack *s = &c->sums.joined[at];

	out[0] = s->ns / 1e6;
	out[1] = share(s->ns, is_wait(c) ? kinds_ns(c, KIND_QUEUE + 1, KINDS) : c->sums.kind_ns[KIND_CPU]);
	out[2] = (double)s->samples;
}

/* Without the kernel's own where the program's follow: how it waits is the reason's business. */
static uint32_t first_shown(const struct report *r, const struct report_stack *s)
{
	uint32_t from = 0;

	while (s->kind != KIND_CPU && from < s->depth && !strcmp(r->frames[s->frames[from]].module, "[kernel]"))
		from++;
	return from == s->depth ? 0 : from;
}

/* Innermost first. */
/* Behind the len bytes that out holds. */
static void put_frames(const struct report *r, const struct report_stack *s, char out[REPORT_TEXT_BYTES], size_t len)
{
	uint32_t from = first_shown(r, s), shown = 0;
	char name[REPORT_NAME_BYTES], cut[STACK_FRAME_SHOWN];

	for (uint32_t i = from; i < s->depth && shown < STACK_SHOWN; i++, shown++)
		len += (size_t)snprintf(
			out + len, REPORT_TEXT_BYTES - len, "%s%s", shown ? " < " : "",
			log_safe(cut, sizeof(cut), sv_of(report_frame_name(r, s->frames[i], name, sizeof(name)))));
	snprintf(out + len, REPORT_TEXT_BYTES - len, "%s%s", s->depth > from + shown ? " < …" : "",
		 s->depth ? s->broken ? " (broken)" : "" : "(stack not kept)");
}

void report_stack_name(const struct report *r, const struct report_stack *s, const char *before,
		       char out[REPORT_TEXT_BYTES])
{
	const struct report_thread *t = &r->threads[s->thread];

	put_frames(r, s, out,
		   (size_t)snprintf(out, REPORT_TEXT_BYTES, "%s%s%.40s[%u]: ", before, *before ? " " : "", t->process,
				    t->pid));
}

void report_stack_code(const struct report *r, const struct report_stack *s, char out[REPORT_TEXT_BYTES])
{
	put_frames(r, s, out, (size_t)snprintf(out, REPORT_TEXT_BYTES, "%.40s: ", r->threads[s->thread].process));
}

bool report_stacks_alike(const struct report *r, const struct report_stack *a, const struct report_stack *b)
{
	uint32_t i = first_shown(r, a), k = first_shown(r, b);

	if (strncmp(r->threads[a->thread].process, r->threads[b->thread].process, 40) || a->broken != b->broken ||
	    !a->depth != !b->depth)
		return false;
	for (unsigned shown = 0; shown < STACK_SHOWN && i < a->depth && k < b->depth; shown++, i++, k++)
		if (r->frames[a->frames[i]].first != r->frames[b->frames[k]].first)
			return false;
	return (i < a->depth) == (k < b->depth);
}

void report_stack_json(const struct report *r, const struct report_stack *s, struct json *j)
{
	const struct report_thread *t = &r->threads[s->thread];

	json_uint(j, "pid", t->pid);
	json_string(j, "process", sv_of(t->process));
	json_string(j, "state", !s->depth ? SV_NONE : s->broken ? SV("broken") : s->deep ? SV("deep") : SV("whole"));
	json_array(j, "frames");
	for (uint32_t i = 0; i < s->depth; i++) {
		json_object(j, NULL);
		put_frame(r, s->frames[i], j);
		json_end_object(j);
	}
	json_end_array(j);
}

static void stack_name(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	const struct report_stack *s = &c->sums.joined[at];

	report_stack_name(c->r, s, is_wait(c) ? report_kind_names[s->kind] : "", out);
}

static void stack_json(const struct report_context *c, size_t at, struct json *j)
{
	const struct report_stack *s = &c->sums.joined[at];

	if (is_wait(c))
		json_string(j, "reason", sv_of(report_kind_names[s->kind]));
	report_stack_json(c->r, s, j);
}

const struct report_axis report_axis_stack = {
	.title = "stacks on a processor",
	.on_request = true,
	.columns = stack_columns,
	.missing = without_cpu,
	.list = list_stacks,
	.cells = stack_cells,
	.name = stack_name,
	.json = stack_json,
};

const struct report_axis report_axis_wait_stack = {
	.title = "stacks that waited, summed over threads",
	.columns = stack_columns,
	.missing = without_off_cpu,
	.list = list_stacks,
	.cells = stack_cells,
	.name = stack_name,
	.json = stack_json,
};

/* --- waits ------------------------------------------------------------------------------------------------------- */

static struct report_entry *list_waits(const struct report_context *c, size_t *count)
{
	struct report_entry *e = calloc(KINDS, sizeof(*e));

	*count = 0;
	for (size_t k = KIND_QUEUE; e && k < KINDS; k++)
		if (c->sums.kind_samples[k])
			e[(*count)++] = (struct report_entry){c->sums.kind_ns[k], k};
	return e;
}

static void wait_cells(const struct report_context *c, size_t at, double out[REPORT_COLUMNS_MAX])
{
	out[0] = c->sums.kind_ns[at] / 1e6;
	out[1] = share(c->sums.kind_ns[at], kinds_ns(c, KIND_QUEUE, KINDS));
	out[2] = (double)c->sums.kind_samples[at];
}

static void wait_name(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	(void)c;
	snprintf(out, REPORT_TEXT_BYTES, "%s", report_kind_names[at]);
}

static void wait_json(const struct report_context *c, size_t at, struct json *j)
{
	(void)c;
	json_string(j, "reason", sv_of(report_kind_names[at]));
}

static int wait_measure(const struct report_context *c, size_t at, size_t which, struct report_measure *m)
{
	(void)which;
	m->value = c->sums.kind_ns[at] / 1e6 / report_sampled_s(c->r);
	m->samples = (double)c->sums.kind_samples[at];
	for (size_t i = 0; i < c->r->stack_count; i++)
		c->of_stack[i] = c->r->stacks[i].kind == at;
	return report_slices(c->r, c->of_stack, &m->slices);
}

const struct report_axis report_axis_wait = {
	.title = "waiting, summed over threads",
	.columns = stack_columns,
	.missing = without_off_cpu,
	.list = list_waits,
	.cells = wait_cells,
	.name = wait_name,
	.json = wait_json,
	.compared = a_second,
	.measure = wait_measure,
};

/* --- flame graphs ------------------------------------------------------------------------------------------------ */

/* A frame's name in the folded form, where ; separates and a blank precedes the number. */
static int put_folded(struct buf *out, const char *name)
{
	char safe[REPORT_FRAME_BYTES];

	log_safe(safe, sizeof(safe), sv_of(name));
	for (char *c = safe; *c; c++)
		*c = *c == ';' ? ':' : *c;
	return buf_puts(out, safe);
}

/* before: what stands between the process and its outermost function; "": nothing. What weighs nothing is left out. */
static int put_folded_stack(const struct report *r, const struct report_stack *s, const char *before, double weight,
			    struct buf *out)
{
	char name[REPORT_FRAME_BYTES];
	int err;

	if (!(weight > 0))
		return 0;
	err = put_folded(out, r->threads[s->thread].process);
	if (!err && *before)
		err = buf_printf(out, ";[%s]", before);
	if (!err && s->broken)
		err = buf_puts(out, ";[broken stack]");
	if (!err && !s->depth && s->kind != KIND_QUEUE)
		err = buf_puts(out, ";[stack not kept]");
	for (uint32_t k = s->depth; k-- > 0 && !err;) {
		err = buf_putc(out, ';');
		if (!err)
			err = put_folded(out, report_frame_name(r, s->frames[k], name, sizeof(name)));
	}
	return err ? err : buf_printf(out, " %.0f\n", weight);
}

static int folded_memory(const struct report *r, bool faults, struct buf *out)
{
	int err = 0;

	for (size_t i = 0; i < r->memory_count && !err; i++)
		if (r->memory[i].fault == faults)
			err = put_folded_stack(r, &r->memory[i].stack, "", r->memory[i].bytes, out);
	return err;
}

static bool is_of_waits(enum report_by by)
{
	return by == REPORT_WAIT || by == REPORT_WAIT_STACK;
}

static bool is_of_memory(enum report_by by)
{
	return by == REPORT_ALLOC || by == REPORT_FAULT;
}

const char *report_no_samples(const struct report *r, enum report_by by)
{
	return report_axes[is_of_waits(by) || is_of_memory(by) ? by : REPORT_FUNCTION]->missing(r);
}

int report_folded(const struct report *r, enum report_by by, struct buf *out)
{
	bool wait = is_of_waits(by);
	int err = 0;

	if (report_no_samples(r, by))
		return -ENODATA;
	if (is_of_memory(by))
		return folded_memory(r, by == REPORT_FAULT, out);
	for (size_t i = 0; i < r->stack_count && !err; i++) {
		const struct report_stack *s = &r->stacks[i];

		if (wait == (s->kind != KIND_CPU))
			err = put_folded_stack(r, s, wait ? report_kind_names[s->kind] : "", s->ns, out);
	}
	return err;
}
