/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of operations. */
#include "report_op.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "flow/op/op.h"
#include "format.h"
#include "report_axis.h"

#define PATTERNS_SHOWN 5
#define SHAPE_SHOWN    100 /* bytes of one */

#define MS(ns)	    format_ms((char[FORMAT_BYTES]){0}, (ns) / 1e6)
#define COUNT(n)    format_count((char[FORMAT_BYTES]){0}, (int64_t)(n))
#define SHARE(a, b) format_percent((char[FORMAT_BYTES]){0}, part((a), (b)))

static const char *const kind_names[OP_KINDS] = {[OP_LLM] = "model", [OP_HTTP] = "http", [OP_DB] = "db",
						 [OP_TOOL] = "tool", [OP_MCP] = "mcp",	 [OP_CONNECT] = "connect"};
static const char *const family_names[OP_FAMILIES] = {
	[OP_REQUEST] = "request", [OP_TURN] = "turn", [OP_NAMED] = "named"};

static double part(double a, double b)
{
	return b > 0 ? a / b : NAN;
}

static const struct op_group *group_at(const struct report_context *c, size_t at)
{
	size_t count;

	return &ops_groups(report_ops_engine(c->r->ops), &count)[at];
}

static const struct op_pattern *pattern_at(const struct report_context *c, size_t at)
{
	size_t count;

	return &ops_patterns(report_ops_engine(c->r->ops), &count)[at];
}

static struct report_entry *list(const struct report_context *c, size_t *count)
{
	const struct op_group *g;
	struct report_entry *e;
	size_t all;

	g = ops_groups(report_ops_engine(c->r->ops), &all);
	e = calloc(all + 1, sizeof(*e));
	*count = 0;
	for (size_t i = 0; e && i < all; i++)
		if (report_ops_chosen(c->r->ops, g[i].name))
			e[(*count)++] = (struct report_entry){g[i].wall_ns, i};
	return e;
}

static const struct report_column columns[] = {{"calls", "calls", REPORT_COUNT},
					       {"refused", "refused", REPORT_COUNT},
					       {NULL, "partial", REPORT_COUNT},
					       {"total", "total_ms", REPORT_MS},
					       {"p50", "p50_ms", REPORT_MS},
					       {"p95", "p95_ms", REPORT_MS},
					       {"p99", "p99_ms", REPORT_MS},
					       {NULL, "max_ms", REPORT_MS},
					       {NULL, "told_ms", REPORT_MS},
					       {"in-proc", "in_proc_share", REPORT_SHARE},
					       {0}};

static void cells(const struct report_context *c, size_t at, double out[REPORT_COLUMNS_MAX])
{
	const struct op_group *g = group_at(c, at);
	bool any = g->calls > 0;

	out[0] = (double)g->calls;
	out[1] = (double)g->refused;
	out[2] = (double)g->partial;
	out[3] = any ? g->wall_ns / 1e6 : NAN;
	out[4] = g->p50_ns / 1e6;
	out[5] = g->p95_ns / 1e6;
	out[6] = g->p99_ns / 1e6;
	out[7] = g->max_ns / 1e6;
	out[8] = g->told_ns / 1e6;
	out[9] = part(g->in_proc_ns, g->told_ns);
}

static void name(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	snprintf(out, REPORT_TEXT_BYTES, "%s", report_ops_text(c->r->ops, group_at(c, at)->name));
}

/* --- in the process ---------------------------------------------------------------------------------------------- */

/*
 * What is known of a part of the operations stands for all of them: waits are of those that have a thread of their own,
 * all states of those that began after what is kept. NAN: not known.
 */
struct split {
	double on_cpu_ns, blocked_ns, queue_ns, rest_ns;
};

static struct split split_of(const struct report *r, const struct op_group *g)
{
	double all = part(g->in_proc_ns, g->split_ns), waits = part(g->in_proc_ns, g->waits_ns);
	struct split s = {.on_cpu_ns = r->period_ns ? g->state_ns[OP_CPU] * all : NAN,
			  .blocked_ns = g->state_ns[OP_BLOCKED] * waits,
			  .queue_ns = g->state_ns[OP_QUEUE] * waits};

	s.rest_ns = g->in_proc_ns - s.on_cpu_ns - s.blocked_ns - s.queue_ns;
	if (s.rest_ns < 0)
		s.rest_ns = 0;
	return s;
}

static int put_in_proc(const struct report *r, const struct op_group *g, struct buf *out)
{
	struct split s = split_of(r, g);
	int err = buf_printf(out, "          in-proc %s", SHARE(g->in_proc_ns, g->told_ns));

	if (!err && !isnan(s.on_cpu_ns))
		err = buf_printf(out, ": on a processor %s (%s sample%s)", SHARE(s.on_cpu_ns, g->told_ns),
				 COUNT(g->samples), format_plural((double)g->samples));
	if (!err && !isnan(s.blocked_ns))
		err = buf_printf(out, "%s blocked %s, run queue %s", isnan(s.on_cpu_ns) ? ":" : ",",
				 SHARE(s.blocked_ns, g->told_ns), SHARE(s.queue_ns, g->told_ns));
	if (!err && !isnan(s.rest_ns))
		err = buf_printf(out, ", not seen %s", SHARE(s.rest_ns, g->told_ns));
	return err ? err : buf_putc(out, '\n');
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

static int put_calls(const struct op_group *g, struct buf *out)
{
	struct report_entry e[OP_KINDS];
	int err = 0;

	for (size_t k = 0; k < OP_KINDS; k++)
		e[k] = (struct report_entry){g->kinds[k].union_ns, k};
	report_sort(e, OP_KINDS);
	if (e[0].weight <= 0)
		return 0;
	for (int k = 0; k < OP_KINDS && e[k].weight > 0 && !err; k++)
		err = buf_printf(out, "%s%s %s (%s call%s, %s)", k ? ", " : "          calls: ", kind_names[e[k].at],
				 SHARE(e[k].weight, g->told_ns), COUNT(g->kinds[e[k].at].count),
				 format_plural((double)g->kinds[e[k].at].count), MS(e[k].weight));
	if (!err && g->overlap_ns > 0.005 * g->told_ns)
		err = buf_printf(out, "; %s at the same time", SHARE(g->overlap_ns, g->told_ns));
	return err ? err : buf_putc(out, '\n');
}

static int put_patterns(const struct report_context *c, const struct op_group *g, struct buf *out)
{
	char shape[SHAPE_SHOWN + 8];
	int err = 0;

	for (size_t i = 0; i < g->patterns && i < PATTERNS_SHOWN && !err; i++) {
		const struct op_pattern *p = pattern_at(c, g->pattern + i);
		struct sv text = sv_of(report_ops_text(c->r->ops, p->shape));

		text.len = text.len < SHAPE_SHOWN ? text.len : SHAPE_SHOWN;
		err = buf_printf(out, "          N+1: %s, %s times each, %s at most, in %s call%s, %s: %s\n",
				 kind_names[p->kind], COUNT((p->usage.count + p->operations / 2) / p->operations),
				 COUNT(p->most), COUNT(p->operations), format_plural((double)p->operations),
				 SHARE(p->usage.union_ns, g->told_ns), log_safe(shape, sizeof(shape), text));
	}
	if (!err && g->patterns > PATTERNS_SHOWN)
		err = buf_printf(out, "          N+1: and %zu more\n", g->patterns - PATTERNS_SHOWN);
	return err;
}

static int more(const struct report_context *c, size_t at, struct buf *out)
{
	const struct op_group *g = group_at(c, at);
	int err = 0;

	if (g->told_ns > 0) {
		err = put_calls(g, out);
		if (!err)
			err = put_in_proc(c->r, g, out);
		if (!err)
			err = put_patterns(c, g, out);
	}
	if (!err && g->clouded)
		err = buf_printf(
			out,
			"          %s of them may have made more calls, which are charged to none: in-proc is at "
			"most that\n",
			COUNT(g->clouded));
	if (!err && g->refused)
		err = buf_printf(out,
				 "          %s of %s overlapped others, and nobody can tell whose time it was: not in "
				 "these shares\n",
				 COUNT(g->refused), COUNT(g->calls));
	if (!err && g->partial)
		err = buf_printf(out, "          %s more %s not seen whole\n", COUNT(g->partial),
				 g->partial == 1 ? "was" : "were");
	return err;
}

/* --- below ------------------------------------------------------------------------------------------------------- */

static bool is_family_shown(const struct report_context *c, enum op_family family)
{
	const struct op_group *g;
	size_t count;

	g = ops_groups(report_ops_engine(c->r->ops), &count);
	for (size_t i = 0; i < count; i++)
		if (g[i].family == family && report_ops_chosen(c->r->ops, g[i].name))
			return true;
	return false;
}

/* What became of the calls. */
static int put_totals(const struct report_context *c, enum op_family family, struct buf *out)
{
	static const char *const names[OP_FAMILIES] = {
		[OP_REQUEST] = "requests", [OP_TURN] = "turns", [OP_NAMED] = "what --op names"};
	const struct op_totals *t = ops_totals(report_ops_engine(c->r->ops), family);
	uint64_t unclear = t->unclear + t->overlapped;
	int err = 0;

	if (!is_family_shown(c, family))
		return 0;
	if (t->by_thread + t->by_lane + t->by_time + unclear)
		err = buf_printf(out,
				 "  calls of %s: told by thread %s, by agent %s, by time %s; may be of several, "
				 "charged to none: %s\n",
				 names[family], COUNT(t->by_thread), COUNT(t->by_lane), COUNT(t->by_time),
				 COUNT(unclear));
	return err;
}

static int foot(const struct report_context *c, struct buf *out)
{
	const struct ops *o = report_ops_engine(c->r->ops);
	int err = 0;

	for (int f = 0; f < OP_FAMILIES && !err; f++)
		err = put_totals(c, (enum op_family)f, out);
	if (!err && ops_dropped(o))
		err = buf_printf(out, "  without room for %s operations, calls and samples\n", COUNT(ops_dropped(o)));
	if (!err && c->r->timeline_from_us > 0)
		err = buf_printf(out, "  in-proc time is split of what began %s after the start: see --max-events\n",
				 MS(c->r->timeline_from_us * 1000));
	return err;
}

static void foot_json(const struct report_context *c, struct json *j)
{
	const struct ops *o = report_ops_engine(c->r->ops);

	json_object(j, "charged");
	for (int f = 0; f < OP_FAMILIES; f++) {
		const struct op_totals *t = ops_totals(o, (enum op_family)f);

		json_object(j, family_names[f]);
		json_uint(j, "by_thread", t->by_thread);
		json_uint(j, "by_agent", t->by_lane);
		json_uint(j, "by_time", t->by_time);
		json_uint(j, "unclear", t->unclear);
		json_uint(j, "refused", t->overlapped);
		json_uint(j, "outside", t->outside);
		json_end_object(j);
	}
	json_end_object(j);
	json_uint(j, "dropped", ops_dropped(o));
}

int report_put_operation(const struct report *r, const struct op_group *g, struct buf *out)
{
	char name[REPORT_NAME_BYTES];

	return g ? buf_printf(out, ": %s", log_safe(name, sizeof(name), sv_of(report_ops_text(r->ops, g->name)))) : 0;
}

void report_json_operation(const struct report *r, const struct op_group *g, struct json *j)
{
	json_string(j, "operation", g ? sv_of(report_ops_text(r->ops, g->name)) : SV_NONE);
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

static void put_ms(struct json *j, const char *key, double ns)
{
	json_double(j, key, ns / 1e6, 3);
}

static void json_calls(struct json *j, const struct op_group *g)
{
	json_object(j, "downstream");
	for (int k = 0; k < OP_KINDS; k++) {
		if (!g->kinds[k].count)
			continue;
		json_object(j, kind_names[k]);
		json_uint(j, "count", g->kinds[k].count);
		put_ms(j, "union_ms", g->kinds[k].union_ns);
		json_double(j, "share", part(g->kinds[k].union_ns, g->told_ns), 4);
		json_end_object(j);
	}
	json_end_object(j);
	put_ms(j, "overlap_ms", g->overlap_ns);
}

static void json_in_proc(struct json *j, const struct report *r, const struct op_group *g)
{
	struct split s = split_of(r, g);

	put_ms(j, "in_proc_ms", g->in_proc_ns);
	put_ms(j, "on_cpu_ms", s.on_cpu_ns);
	put_ms(j, "blocked_ms", s.blocked_ns);
	put_ms(j, "run_queue_ms", s.queue_ns);
	put_ms(j, "not_seen_ms", s.rest_ns);
	if (isnan(s.on_cpu_ns))
		json_null(j, "samples");
	else
		json_uint(j, "samples", g->samples);
	json_uint(j, "clouded", g->clouded);
}

/* Where all were refused. */
static void json_untold(struct json *j)
{
	static const char *const keys[] = {"downstream",   "overlap_ms",  "in_proc_ms", "on_cpu_ms", "blocked_ms",
					   "run_queue_ms", "not_seen_ms", "samples",	"clouded",   "n_plus_1"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		json_null(j, keys[i]);
}

static void put_json(const struct report_context *c, size_t at, struct json *j)
{
	const struct op_group *g = group_at(c, at);

	json_string(j, "name", sv_of(report_ops_text(c->r->ops, g->name)));
	json_string(j, "kind", sv_of(family_names[g->family]));
	if (g->told_ns <= 0) {
		json_untold(j);
		return;
	}
	json_calls(j, g);
	json_in_proc(j, c->r, g);
	json_array(j, "n_plus_1");
	for (size_t i = 0; i < g->patterns; i++) {
		const struct op_pattern *p = pattern_at(c, g->pattern + i);

		json_object(j, NULL);
		json_string(j, "kind", sv_of(kind_names[p->kind]));
		json_string(j, "shape", sv_of(report_ops_text(c->r->ops, p->shape)));
		json_uint(j, "operations", p->operations);
		json_uint(j, "count", p->usage.count);
		json_uint(j, "most", p->most);
		put_ms(j, "union_ms", p->usage.union_ns);
		json_end_object(j);
	}
	json_end_array(j);
}

/* --- two traces -------------------------------------------------------------------------------------------------- */

static const struct report_compared compared[] = {{", median", "p50_ms", REPORT_MS, false, false},
						  {"in-proc share", "in_proc_share", REPORT_SHARE, false, true},
						  {"count", "count", REPORT_COUNT, true, true},
						  {0}};

static int measure(const struct report_context *c, size_t at, size_t which, struct report_measure *m)
{
	const struct op_group *g = group_at(c, at);

	if (which) {
		m->value = which == 1 ? part(g->in_proc_ns, g->told_ns) : (double)g->calls;
		return 0;
	}
	m->values = report_ops_values(c->r->ops, g->name);
	m->value = report_quantile(m->values, 0.5);
	return 0;
}

const struct report_axis report_axis_op = {
	.title = "operations",
	.operations = true,
	.columns = columns,
	.list = list,
	.cells = cells,
	.name = name,
	.json = put_json,
	.more = more,
	.foot = foot,
	.foot_json = foot_json,
	.compared = compared,
	.measure = measure,
};
