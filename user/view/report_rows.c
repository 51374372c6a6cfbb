/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What was called: models, tools, MCP, databases. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "report_axis.h"

static struct report_row *row_at(const struct report_context *c, size_t at)
{
	return c->r->row_list[c->axis->table][at];
}

static struct report_entry *list(const struct report_context *c, size_t *count)
{
	struct report_entry *e;

	*count = HASH_COUNT(c->r->rows[c->axis->table]);
	e = calloc(*count + 1, sizeof(*e));
	for (size_t i = 0; e && i < *count; i++)
		e[i] = (struct report_entry){row_at(c, i)->total_ms, i};
	return e;
}

static void name(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	snprintf(out, REPORT_TEXT_BYTES, "%s", row_at(c, at)->name);
}

void report_json_row_name(struct json *j, const struct report_row *row, const char *of_key)
{
	struct sv what = {row->name, row->what_len}, of = sv_of(row->name + row->what_len);

	json_string(j, "name", sv_eq(what, SV("(unnamed)")) ? SV_NONE : what);
	if (of_key)
		json_string(j, of_key, of.len > 3 ? (struct sv){of.ptr + 3, of.len - 3} : SV_NONE);
}

static void put_identity(const struct report_context *c, size_t at, struct json *j)
{
	report_json_row_name(j, row_at(c, at), c->axis->of);
}

static int measure(const struct report_context *c, size_t at, size_t which, struct report_measure *m)
{
	struct report_row *row = row_at(c, at);

	if (c->axis->compared[which].unit == REPORT_COUNT) {
		m->value = (double)row->count;
		return 0;
	}
	m->values = which ? &row->ttft_ms : &row->ms;
	m->value = report_quantile(m->values, 0.5);
	return 0;
}

static const struct report_column columns[] = {
	{"count", "count", REPORT_COUNT}, {NULL, "partial", REPORT_COUNT}, {"errors", "errors", REPORT_COUNT},
	{"total", "total_ms", REPORT_MS}, {"p50", "p50_ms", REPORT_MS},	   {"p95", "p95_ms", REPORT_MS},
	{NULL, "p99_ms", REPORT_MS},	  {"max", "max_ms", REPORT_MS},	   {0}};

static void cells(const struct report_context *c, size_t at, double out[REPORT_COLUMNS_MAX])
{
	struct report_row *row = row_at(c, at);

	out[0] = (double)row->count;
	out[1] = (double)row->partial;
	out[2] = (double)row->errors;
	out[3] = row->count > row->partial ? row->total_ms : NAN;
	out[4] = report_quantile(&row->ms, 0.5);
	out[5] = report_quantile(&row->ms, 0.95);
	out[6] = report_quantile(&row->ms, 0.99);
	out[7] = row->ms.seen ? row->ms.largest : NAN;
}

static const struct report_compared compared[] = {
	{", median", "p50_ms", REPORT_MS, false, false}, {"count", "count", REPORT_COUNT, true, true}, {0}};

#define ROWS_AXIS .list = list, .cells = cells, .name = name, .json = put_identity, .measure = measure

const struct report_axis report_axis_tool = {
	.title = "tools", .table = TABLE_TOOL, .columns = columns, .compared = compared, ROWS_AXIS};
const struct report_axis report_axis_mcp = {.title = "MCP requests",
					    .table = TABLE_MCP,
					    .of = "server",
					    .columns = columns,
					    .compared = compared,
					    ROWS_AXIS};
const struct report_axis report_axis_db = {.title = "database commands",
					   .table = TABLE_DB,
					   .of = "system",
					   .columns = columns,
					   .compared = compared,
					   ROWS_AXIS};

/* Whose: the host that was asked, or "served". */
const struct report_axis report_axis_http = {.title = "HTTP requests",
					     .table = TABLE_HTTP,
					     .of = "whose",
					     .columns = columns,
					     .compared = compared,
					     ROWS_AXIS};
const struct report_axis report_axis_connect = {.title = "connections not made",
						.table = TABLE_CONNECT,
						.of = "peer",
						.columns = columns,
						.compared = compared,
						ROWS_AXIS};
const struct report_axis report_axis_func = {.title = "functions traced by name",
					     .table = TABLE_FUNC,
					     .of = "binary",
					     .columns = columns,
					     .compared = compared,
					     ROWS_AXIS};

/* --- models ------------------------------------------------------------------------------------------------------ */

static const struct report_column model_columns[] = {{"count", "count", REPORT_COUNT},
						     {NULL, "partial", REPORT_COUNT},
						     {"errors", "errors", REPORT_COUNT},
						     {"total", "total_ms", REPORT_MS},
						     {"p50", "p50_ms", REPORT_MS},
						     {"p95", "p95_ms", REPORT_MS},
						     {NULL, "p99_ms", REPORT_MS},
						     {"max", "max_ms", REPORT_MS},
						     {"ttft p50", "ttft_p50_ms", REPORT_MS},
						     {NULL, "ttft_p95_ms", REPORT_MS},
						     {"in", "input_tokens", REPORT_COUNT},
						     {"out", "output_tokens", REPORT_COUNT},
						     {0}};

static void model_cells(const struct report_context *c, size_t at, double out[REPORT_COLUMNS_MAX])
{
	struct report_row *row = row_at(c, at);

	cells(c, at, out);
	out[8] = report_quantile(&row->ttft_ms, 0.5);
	out[9] = report_quantile(&row->ttft_ms, 0.95);
	out[10] = row->in_tokens;
	out[11] = row->out_tokens;
}

static void model_json(const struct report_context *c, size_t at, struct json *j)
{
	put_identity(c, at, j);
	json_uint(j, "uncounted", row_at(c, at)->uncounted);
	report_json_parts(j, row_at(c, at)->parts_ms);
}

static int model_more(const struct report_context *c, size_t at, struct buf *out)
{
	const struct report_row *row = row_at(c, at);
	bool any = !isnan(row->in_tokens) || !isnan(row->out_tokens);
	char n[FORMAT_BYTES];
	int err = report_put_parts_line(row->parts_ms, out);

	if (err || !row->uncounted || !any)
		return err;
	return buf_printf(out, "%28stokens: %s call%s without a count\n", "",
			  report_format(n, REPORT_COUNT, (double)row->uncounted),
			  format_plural((double)row->uncounted));
}

static const struct report_compared model_compared[] = {{", median", "p50_ms", REPORT_MS, false, false},
							{"time to first token", "ttft_p50_ms", REPORT_MS, false, false},
							{"count", "count", REPORT_COUNT, true, true},
							{0}};

const struct report_axis report_axis_model = {
	.title = "model calls",
	.table = TABLE_MODEL,
	.of = "host",
	.columns = model_columns,
	.list = list,
	.cells = model_cells,
	.name = name,
	.json = model_json,
	.more = model_more,
	.compared = model_compared,
	.measure = measure,
};
