/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Single calls of models, slowest first. */
#include <stdio.h>
#include <stdlib.h>

#include "report_axis.h"

#include "base/err.h"

static struct report_entry *list(const struct report_context *c, size_t *count)
{
	struct report_entry *e = calloc(c->r->call_count + 1, sizeof(*e));

	*count = c->r->call_count;
	for (size_t i = 0; e && i < *count; i++)
		e[i] = (struct report_entry){c->r->calls[i].ms, i};
	return e;
}

static const struct report_column columns[] = {
	{"took", "duration_ms", REPORT_MS},	{"at", "start_ms", REPORT_MS},
	{NULL, "setup_ms", REPORT_MS},		{"ttft", "ttft_ms", REPORT_MS},
	{"in", "input_tokens", REPORT_COUNT},	{"cached", "cache_read_tokens", REPORT_COUNT},
	{"out", "output_tokens", REPORT_COUNT}, {NULL, "status", REPORT_COUNT},
	{NULL, "call_id", REPORT_COUNT},	{0}};

static void cells(const struct report_context *c, size_t at, double out[REPORT_COLUMNS_MAX])
{
	const struct report_call *call = &c->r->calls[at];
	const double all[] = {call->ms,		call->start_ms,	 call->setup_ms,
			      call->ttft_ms,	call->in_tokens, call->cached_tokens,
			      call->out_tokens, call->status,	 call->id};

	_Static_assert(ARRAY_SIZE(all) + 1 == ARRAY_SIZE(columns), "a cell a column");
	memcpy(out, all, sizeof(all));
}

static const char *process_name(const struct report_context *c, uint32_t pid)
{
	struct report_process *p;

	HASH_FIND(hh, c->r->processes, &pid, sizeof(pid), p);
	return p ? p->name : NULL;
}

static void name(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	const struct report_call *call = &c->r->calls[at];
	const char *process = process_name(c, call->pid);

	snprintf(out, REPORT_TEXT_BYTES, "%.400s, %.64s[%u]%s%.100s%s", call->row->name, process ? process : "",
		 call->pid, call->end ? ": " : "", call->end ? call->end : "",
		 call->partial ? " (it took longer)" : "");
}

static void put_json(const struct report_context *c, size_t at, struct json *j)
{
	const struct report_call *call = &c->r->calls[at];

	report_json_row_name(j, call->row, "host");
	json_uint(j, "pid", call->pid);
	json_string(j, "process", sv_of(process_name(c, call->pid)));
	json_bool(j, "failed", call->failed);
	json_bool(j, "partial", call->partial);
	json_string(j, "ending", sv_of(call->end));
	report_json_parts(j, call->parts_ms);
}

static int more(const struct report_context *c, size_t at, struct buf *out)
{
	return report_put_parts_line(c->r->calls[at].parts_ms, out);
}

/* Traces are compared by model: a single call has no counterpart. */
const struct report_axis report_axis_call = {
	.title = "calls of models, slowest first",
	.columns = columns,
	.on_request = true,
	.list = list,
	.cells = cells,
	.name = name,
	.json = put_json,
	.more = more,
};
