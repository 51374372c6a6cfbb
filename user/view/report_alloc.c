/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory: what was asked for, and what was touched first, by stack. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "format.h"
#include "report_axis.h"

static const char *without_alloc(const struct report *r)
{
	return r->alloc_bytes <= 0 ? "--alloc" : report_allocations_known(r) ? NULL : "times of allocations (--last)";
}

static const char *without_faults(const struct report *r)
{
	return r->alloc_bytes <= 0 ? "--alloc" : r->from_ms > 0 ? "times of page faults (--last)" : NULL;
}

static bool is_faults(const struct report_context *c)
{
	return c->axis == &report_axis_fault;
}

/* Bytes of all rows. */
static double sum_of(const struct report_context *c)
{
	double sum = 0;

	for (size_t i = 0; i < c->r->memory_count; i++)
		if (c->r->memory[i].fault == is_faults(c) && !isnan(c->r->memory[i].bytes))
			sum += c->r->memory[i].bytes;
	return sum;
}

static struct report_entry *list_memory(const struct report_context *c, size_t *count)
{
	struct report_entry *e = calloc(c->r->memory_count + 1, sizeof(*e));

	*count = 0;
	for (size_t i = 0; e && i < c->r->memory_count; i++) {
		const struct report_memory *m = &c->r->memory[i];

		/* Of what is looked at there may be none. */
		if (m->fault == is_faults(c) && (m->stack.samples || c->r->from_ms <= 0))
			e[(*count)++] = (struct report_entry){isnan(m->bytes) ? 0 : m->bytes, i};
	}
	return e;
}

static const struct report_column alloc_columns[] = {
	{"bytes", "bytes", REPORT_BYTES},	  {"error", "error_bytes", REPORT_BYTES},
	{"share", "share", REPORT_SHARE},	  {"count", "count", REPORT_COUNT},
	{"kept max", "kept_bytes", REPORT_BYTES}, {NULL, "kept_count", REPORT_COUNT},
	{"samples", "samples", REPORT_COUNT},	  {0}};
static const struct report_column fault_columns[] = {
	{"bytes", "bytes", REPORT_BYTES},  {"error", "error_bytes", REPORT_BYTES}, {"share", "share", REPORT_SHARE},
	{"faults", "count", REPORT_COUNT}, {"samples", "samples", REPORT_COUNT},   {0}};

static void memory_cells(const struct report_context *c, size_t at, double out[REPORT_COLUMNS_MAX])
{
	const struct report_memory *m = &c->r->memory[at];
	double sum = sum_of(c);
	size_t n = 0;

	out[n++] = m->bytes;
	out[n++] = m->error;
	out[n++] = sum > 0 ? m->bytes / sum : NAN;
	out[n++] = m->count;
	if (!m->fault) {
		out[n++] = m->kept_bytes;
		out[n++] = m->kept_count;
	}
	out[n] = (double)m->stack.samples;
}

static void memory_name(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	report_stack_name(c->r, &c->r->memory[at].stack, "", out);
}

static void memory_json(const struct report_context *c, size_t at, struct json *j)
{
	report_stack_json(c->r, &c->r->memory[at].stack, j);
}

static int put_libraries(const struct report_allocator *a, struct buf *out)
{
	char name[24];
	int err = 0;

	for (unsigned i = 0; i < REPORT_LIBRARIES_MAX && a->libraries[i][0] && !err; i++)
		err = buf_printf(out, "%s%s", i ? ", " : " of ", log_safe(name, sizeof(name), sv_of(a->libraries[i])));
	return err;
}

/* What share of each process was looked at, and how sure that makes its sum. */
static int alloc_foot(const struct report_context *c, struct buf *out)
{
	char share[FORMAT_BYTES], bytes[FORMAT_BYTES], error[FORMAT_BYTES], count[FORMAT_BYTES], name[72];
	int err = 0;

	for (size_t i = 0; i < c->r->allocator_count && i < c->v->top && !err; i++) {
		const struct report_allocator *a = &c->r->allocators[i];

		err = buf_printf(out, "  %s[%u]: %s bytes ± %s (95 %%) in %s allocation%s",
				 log_safe(name, sizeof(name), sv_of(a->name)), a->pid,
				 report_format(bytes, REPORT_COUNT, a->bytes),
				 report_format(error, REPORT_COUNT, a->error),
				 report_format(count, REPORT_COUNT, a->count), format_plural(a->count));
		if (!err)
			err = put_libraries(a, out);
		if (!err)
			err = buf_printf(out, ", by %s window%s on %s of its own processor time\n",
					 report_format(count, REPORT_COUNT, a->windows), format_plural(a->windows),
					 format_percent(share, a->share));
	}
	if (!err && c->r->allocator_count > c->v->top)
		err = buf_printf(out, "  … and %zu more processes (--top)\n", c->r->allocator_count - c->v->top);
	return err ? err
		   : buf_puts(out, "  kept: not seen freed in a window; what is freed outside of them is not known. "
				   "Only native allocators: memory that\n  V8, the JVM, Go, and Python for its small "
				   "objects, manage themselves shows as page faults (--by fault)\n");
}

/* Too short a run has no windows; that is not the same as a program that allocates nothing. */
static int alloc_empty(const struct report_context *c, struct buf *out)
{
	double windows = 0;

	for (size_t i = 0; i < c->r->allocator_count; i++)
		windows += isnan(c->r->allocators[i].windows) ? 0 : c->r->allocators[i].windows;
	if (!c->r->allocator_count)
		return buf_puts(
			out, "memory asked for: no allocator was looked at (too short a run, or a runtime that manages "
			     "its own memory: --by fault)\n");
	return buf_printf(out, "memory asked for: none was seen, by %.0f window%s on %zu process%s\n", windows,
			  format_plural(windows), c->r->allocator_count, c->r->allocator_count == 1 ? "" : "es");
}

static void alloc_foot_json(const struct report_context *c, struct json *j)
{
	json_array(j, "processes");
	for (size_t i = 0; i < c->r->allocator_count; i++) {
		const struct report_allocator *a = &c->r->allocators[i];

		json_object(j, NULL);
		json_uint(j, "pid", a->pid);
		json_string(j, "process", sv_of(a->name));
		json_array(j, "allocators");
		for (unsigned k = 0; k < REPORT_LIBRARIES_MAX && a->libraries[k][0]; k++)
			json_string(j, NULL, sv_of(a->libraries[k]));
		json_end_array(j);
		json_double(j, "bytes", a->bytes, 0);
		json_double(j, "error_bytes", a->error, 0);
		json_double(j, "count", a->count, 0);
		json_double(j, "windows", a->windows, 0);
		json_double(j, "seen_share", a->share, 6);
		json_end_object(j);
	}
	json_end_array(j);
}

/* --- two traces -------------------------------------------------------------------------------------------------- */

static void memory_code(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	report_stack_code(c->r, &c->r->memory[at].stack, out);
}

/* The bound is of what was estimated of one run: it does not say how runs differ, so nothing is judged. */
static int memory_measure(const struct report_context *c, size_t at, size_t which, struct report_measure *m)
{
	const struct report *r = c->r;
	const struct report_memory *row = &r->memory[at];
	double seconds = report_sampled_s(r), bytes = 0, error = 0;

	for (size_t i = 0; i < r->memory_count; i++) {
		const struct report_memory *same = &r->memory[i];

		if (same->fault != row->fault || !report_stacks_alike(r, &row->stack, &same->stack))
			continue;
		bytes += same->bytes;
		error = hypot(error, same->error);
	}
	m->value = (which ? error : bytes) / seconds;
	return 0;
}

static const struct report_compared memory_compared[] = {{", a second", "bytes_per_s", REPORT_BYTES, true, true},
							 {"± (95 %)", "error_bytes_per_s", REPORT_BYTES, false, true},
							 {0}};

const struct report_axis report_axis_alloc = {
	.title = "memory asked for, estimated",
	.columns = alloc_columns,
	.missing = without_alloc,
	.list = list_memory,
	.cells = memory_cells,
	.name = memory_name,
	.json = memory_json,
	.compared = memory_compared,
	.compared_name = memory_code,
	.measure = memory_measure,
	.empty = alloc_empty,
	.foot = alloc_foot,
	.foot_json = alloc_foot_json,
};

const struct report_axis report_axis_fault = {
	.title = "memory touched first (page faults, 4 KiB each)",
	.columns = fault_columns,
	.missing = without_faults,
	.list = list_memory,
	.cells = memory_cells,
	.name = memory_name,
	.json = memory_json,
	.compared = memory_compared,
	.compared_name = memory_code,
	.measure = memory_measure,
};
