/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Processes: what they ran, what they waited for, what they called. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "report_axis.h"

/* By what ran; without samples by what is known of those that ended, then by their calls. */
static double weight_of(const struct report *r, const struct report_process *p)
{
	double known = isnan(p->exit_cpu_ms) ? 0 : p->exit_cpu_ms;

	return r->period_ns && report_window_known(r) ? p->cpu_ns / 1e6 : known > 0 ? known : p->call_ms / 1e9;
}

static struct report_entry *list(const struct report_context *c, size_t *count)
{
	struct report_entry *e = calloc(c->r->process_count + 1, sizeof(*e));

	*count = 0;
	for (size_t i = 0; e && i < c->r->process_count; i++) {
		const struct report_process *p = c->r->process_list[i];

		if (p->calls || p->sampled || !isnan(p->exit_cpu_ms))
			e[(*count)++] = (struct report_entry){weight_of(c->r, p), i};
	}
	return e;
}

static const struct report_column columns[] = {{"cpu", "cpu_ms", REPORT_MS},
					       {"share", "cpu_share", REPORT_SHARE},
					       {"blocked", "blocked_ms", REPORT_MS},
					       {"run queue", "run_queue_ms", REPORT_MS},
					       {"cpu in all", "exit_cpu_ms", REPORT_MS},
					       {"calls", "calls", REPORT_COUNT},
					       {"in calls", "call_ms", REPORT_MS},
					       {NULL, "input_tokens", REPORT_COUNT},
					       {NULL, "output_tokens", REPORT_COUNT},
					       {0}};

static void cells(const struct report_context *c, size_t at, double out[REPORT_COLUMNS_MAX])
{
	const struct report_process *p = c->r->process_list[at];
	bool all = report_window_known(c->r), cpu = c->r->period_ns > 0 && all, off = c->r->off_cpu_min_ns > 0 && all;
	double total = c->sums.kind_ns[KIND_CPU];

	out[0] = cpu ? p->cpu_ns / 1e6 : NAN;
	out[1] = cpu && total > 0 ? p->cpu_ns / total : NAN;
	out[2] = off ? p->blocked_ns / 1e6 : NAN;
	out[3] = off ? p->queue_ns / 1e6 : NAN;
	out[4] = p->exit_cpu_ms;
	out[5] = (double)p->calls;
	out[6] = p->timed ? p->call_ms : NAN;
	out[7] = p->in_tokens;
	out[8] = p->out_tokens;
}

static void name(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	const struct report_process *p = c->r->process_list[at];

	snprintf(out, REPORT_TEXT_BYTES, "%.200s[%u]", p->name ? p->name : "", p->pid);
}

static void put_json(const struct report_context *c, size_t at, struct json *j)
{
	const struct report_process *p = c->r->process_list[at];

	json_uint(j, "pid", p->pid);
	json_string(j, "process", sv_of(p->name));
}

static int foot(const struct report_context *c, struct buf *out)
{
	char count[FORMAT_BYTES];

	if (!c->r->unlisted)
		return 0;
	return buf_printf(out, "  without room for %s calls, ends and samples of processes that are not listed\n",
			  report_format(count, REPORT_COUNT, (double)c->r->unlisted));
}

static void foot_json(const struct report_context *c, struct json *j)
{
	json_uint(j, "dropped", c->r->unlisted);
}

/* Not compared: the next run has other processes. */
const struct report_axis report_axis_process = {
	.title = "processes",
	.columns = columns,
	.list = list,
	.cells = cells,
	.name = name,
	.json = put_json,
	.foot = foot,
	.foot_json = foot_json,
};
