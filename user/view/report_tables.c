/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of a report. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"
#include "format.h"
#include "report_data.h"

#define STACK_SHOWN	  6  /* frames of a stack in a table */
#define STACK_FRAME_SHOWN 64 /* bytes of each */

struct printing {
	const struct report *r;
	const struct report_view *v;
	struct report_sums sums;
	struct buf *out;
	int err;
};

__attribute__((format(printf, 2, 3))) static void say(struct printing *p, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (p->err)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	p->err = buf_puts(p->out, text);
}

#define MS(p)	    format_ms((char[FORMAT_BYTES]){0}, (p))
#define COUNT(n)    format_count((char[FORMAT_BYTES]){0}, (int64_t)(n))
#define SHARE(a, b) format_percent((char[FORMAT_BYTES]){0}, (b) > 0 ? (a) / (b) : NAN)

static void say_rest(struct printing *p, size_t count)
{
	if (count > p->v->top)
		say(p, "  … and %zu more (--top)\n", count - p->v->top);
}

/* --- what ran ---------------------------------------------------------------------------------------------------- */

static void put_functions(struct printing *p)
{
	const double *weight = p->v->total ? p->sums.total_ns : p->sums.self_ns;
	struct report_entry *e = calloc(p->r->frame_count + 1, sizeof(*e));
	double all = p->sums.kind_ns[KIND_CPU];
	char name[REPORT_NAME_BYTES];
	size_t n = 0;

	if (!e) {
		p->err = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < p->r->frame_count; i++)
		if (weight[i] > 0)
			e[n++] = (struct report_entry){weight[i], i};
	report_sort(e, n);
	say(p, "functions on a processor (by %s; %s in all)\n  %8s %5s  %8s %5s\n", p->v->total ? "total" : "self",
	    MS(all / 1e6), "self", "", "total", "");
	for (size_t i = 0; i < n && i < p->v->top; i++)
		say(p, "  %8s %5s  %8s %5s  %s\n", MS(p->sums.self_ns[e[i].at] / 1e6),
		    SHARE(p->sums.self_ns[e[i].at], all), MS(p->sums.total_ns[e[i].at] / 1e6),
		    SHARE(p->sums.total_ns[e[i].at], all), report_frame_name(p->r, (uint32_t)e[i].at, name));
	say_rest(p, n);
	free(e);
}

static void put_processes(struct printing *p)
{
	struct sums {
		double cpu, queue, blocked;
	} *by_thread = calloc(p->r->thread_count + 1, sizeof(*by_thread));
	struct report_entry *e = calloc(p->r->thread_count + 1, sizeof(*e));
	size_t n = 0;
	char name[80];

	if (!by_thread || !e)
		p->err = -ENOMEM;
	for (size_t i = 0; !p->err && i < p->r->stack_count; i++) {
		const struct report_stack *s = &p->r->stacks[i];
		uint32_t k = p->r->threads[s->thread].first;

		by_thread[k].cpu += s->kind == KIND_CPU ? s->ns : 0;
		by_thread[k].queue += s->kind == KIND_QUEUE ? s->ns : 0;
		by_thread[k].blocked += s->kind > KIND_QUEUE ? s->ns : 0;
	}
	for (size_t i = 0; !p->err && i < p->r->thread_count; i++)
		if (p->r->threads[i].first == i)
			e[n++] = (struct report_entry){by_thread[i].cpu, i};
	if (!p->err)
		report_sort(e, n);
	say(p, "processes\n  %8s %5s  %8s  %9s\n", "cpu", "", "blocked", "run queue");
	for (size_t i = 0; i < n && i < p->v->top && !p->err; i++) {
		const struct sums *s = &by_thread[e[i].at];
		const struct report_thread *t = &p->r->threads[e[i].at];

		say(p, "  %8s %5s  %8s  %9s  %s[%u]\n", MS(p->r->period_ns ? s->cpu / 1e6 : NAN),
		    SHARE(s->cpu, p->sums.kind_ns[KIND_CPU]), MS(p->r->off_cpu_min_ns ? s->blocked / 1e6 : NAN),
		    MS(p->r->off_cpu_min_ns ? s->queue / 1e6 : NAN), log_safe(name, sizeof(name), sv_of(t->process)),
		    t->pid);
	}
	say_rest(p, n);
	free(by_thread);
	free(e);
}

/* Innermost first, the kernel's own left out where the program's follow. */
static void put_stack(struct printing *p, const struct report_stack *s)
{
	char name[REPORT_NAME_BYTES], cut[STACK_FRAME_SHOWN];
	uint32_t from = 0, shown = 0;

	while (s->kind != KIND_CPU && from < s->depth && !strcmp(p->r->frames[s->frames[from]].module, "[kernel]"))
		from++;
	if (from == s->depth)
		from = 0;
	for (uint32_t i = from; i < s->depth && shown < STACK_SHOWN; i++, shown++)
		say(p, "%s%s", shown ? " < " : "",
		    log_safe(cut, sizeof(cut), sv_of(report_frame_name(p->r, s->frames[i], name))));
	say(p, "%s%s\n", s->depth > from + shown ? " < …" : "",
	    s->depth ? s->broken ? " (broken)" : "" : "(stack not kept)");
}

static void put_stacks(struct printing *p, bool waits)
{
	struct report_stack *stacks;
	struct report_entry *e;
	double all = 0;
	size_t count, n = 0;
	char name[80];

	stacks = report_join_stacks(p->r, &count);
	e = calloc(count + 1, sizeof(*e));
	if (!stacks || !e) {
		free(stacks);
		free(e);
		p->err = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < count; i++) {
		const struct report_stack *s = &stacks[i];

		if (waits ? s->kind <= KIND_QUEUE : s->kind != KIND_CPU)
			continue;
		e[n++] = (struct report_entry){s->ns, i};
		all += s->ns;
	}
	report_sort(e, n);
	say(p, "%s\n", waits ? "stacks that waited" : "stacks on a processor");
	for (size_t i = 0; i < n && i < p->v->top; i++) {
		const struct report_stack *s = &stacks[e[i].at];

		say(p, "  %8s %5s %6s  %-7s %s[%u]: ", MS(s->ns / 1e6), SHARE(s->ns, all), COUNT(s->samples),
		    waits ? report_kind_names[s->kind] : "",
		    log_safe(name, sizeof(name), sv_of(p->r->threads[s->thread].process)),
		    p->r->threads[s->thread].pid);
		put_stack(p, s);
	}
	say_rest(p, n);
	free(stacks);
	free(e);
}

static void put_waits(struct printing *p)
{
	double all = 0;

	for (int k = KIND_QUEUE; k < KINDS; k++)
		all += p->sums.kind_ns[k];
	say(p, "waiting, %s or more at a time, summed over threads\n", MS(p->r->off_cpu_min_ns / 1e6));
	for (int k = KIND_QUEUE; k < KINDS; k++)
		if (p->sums.kind_samples[k])
			say(p, "  %8s %5s %6s  %s\n", MS(p->sums.kind_ns[k] / 1e6), SHARE(p->sums.kind_ns[k], all),
			    COUNT(p->sums.kind_samples[k]), report_kind_names[k]);
	put_stacks(p, true);
}

/* --- what was called --------------------------------------------------------------------------------------------- */

/* Where the time of calls went, the largest parts first. */
static void put_parts(struct printing *p, const struct report_row *row)
{
	struct report_entry e[PARTS];
	double all = 0;

	for (int i = 0; i < PARTS; i++) {
		e[i] = (struct report_entry){row->parts_ms[i], (size_t)i};
		all += row->parts_ms[i];
	}
	if (all <= 0)
		return;
	report_sort(e, PARTS);
	say(p, "  %31s", "time:");
	for (int i = 0; i < PARTS && e[i].weight > 0; i++)
		say(p, " %s %s", report_part_names[e[i].at], SHARE(e[i].weight, all));
	say(p, "\n");
}

static void put_calls(struct printing *p, enum report_table table, const char *title)
{
	struct report_row **rows;
	size_t count;
	char name[REPORT_NAME_BYTES];

	rows = report_rows(p->r, table, &count);
	if (!rows && count)
		p->err = -ENOMEM;
	if (!rows)
		return;
	say(p, "%s\n  %6s %6s  %8s  %8s %8s %8s%s\n", title, "count", "errors", "total", "p50", "p95", "max",
	    table == TABLE_MODEL ? "  ttft p50     in    out" : "");
	for (size_t i = 0; i < count && i < p->v->top; i++) {
		struct report_row *row = rows[i];

		say(p, "  %6s %6s  %8s  %8s %8s %8s", COUNT(row->count), COUNT(row->errors), MS(row->total_ms),
		    MS(report_quantile(&row->ms, 0.5)), MS(report_quantile(&row->ms, 0.95)),
		    MS(report_quantile(&row->ms, 1)));
		if (table == TABLE_MODEL)
			say(p, "  %8s %6s %6s", MS(report_quantile(&row->ttft_ms, 0.5)), COUNT(row->in_tokens),
			    COUNT(row->out_tokens));
		say(p, "  %s\n", log_safe(name, sizeof(name), sv_of(row->name)));
		put_parts(p, row);
	}
	say_rest(p, count);
	free(rows);
}

/* --- all of it --------------------------------------------------------------------------------------------------- */

static void put_head(struct printing *p)
{
	char text[512];

	if (p->r->verdict)
		say(p, "%s\n", log_safe(text, sizeof(text), sv_of(p->r->verdict)));
	if (p->r->lost > 0)
		say(p, "this trace is not whole: %s losses of some kind are counted in it (metadata.lost)\n",
		    COUNT(p->r->lost));
	if (p->r->period_ns)
		say(p,
		    "%s samples on a processor, one every %s; %s of their time has a broken stack, %s samples are "
		    "deeper "
		    "than is kept; %s lost\n",
		    COUNT(p->r->cpu_samples), MS(p->r->period_ns / 1e6),
		    SHARE(p->r->broken_ns, p->sums.kind_ns[KIND_CPU]), COUNT(p->r->deep_samples),
		    COUNT(p->r->lost_samples));
}

static bool wants(const struct printing *p, enum report_by by)
{
	return p->v->by == by || p->v->by == REPORT_ALL;
}

/* A table that was asked for and is empty says why. */
static void put_missing(struct printing *p)
{
	static const char *const axis[REPORT_BYS] = {[REPORT_PROCESS] = "--cpu or --off-cpu",
						     [REPORT_FUNCTION] = "--cpu",
						     [REPORT_STACK] = "--cpu",
						     [REPORT_WAIT] = "--off-cpu"};
	enum report_by by = p->v->by;
	const struct report *r = p->r;
	bool none = by == REPORT_WAIT	   ? !r->off_cpu_min_ns
		    : by == REPORT_PROCESS ? !r->period_ns && !r->off_cpu_min_ns
					   : !r->period_ns;

	if (axis[by] && none)
		say(p, "this trace was taken without %s\n", axis[by]);
	if ((by == REPORT_MODEL && !r->rows[TABLE_MODEL]) || (by == REPORT_TOOL && !r->rows[TABLE_TOOL]) ||
	    (by == REPORT_MCP && !r->rows[TABLE_MCP]) || (by == REPORT_DB && !r->rows[TABLE_DB]))
		say(p, "there is none in this trace\n");
}

int report_render(const struct report *r, const struct report_view *v, struct buf *out)
{
	struct printing p = {.r = r, .v = v, .out = out};

	p.err = report_sum(r, &p.sums);
	if (p.err)
		return p.err;
	put_head(&p);
	if (wants(&p, REPORT_MODEL))
		put_calls(&p, TABLE_MODEL, "model calls");
	if (wants(&p, REPORT_TOOL))
		put_calls(&p, TABLE_TOOL, "tools");
	if (wants(&p, REPORT_MCP))
		put_calls(&p, TABLE_MCP, "MCP requests");
	if (wants(&p, REPORT_DB))
		put_calls(&p, TABLE_DB, "database commands");
	if (wants(&p, REPORT_PROCESS) && (r->period_ns || r->off_cpu_min_ns))
		put_processes(&p);
	if (wants(&p, REPORT_FUNCTION) && r->period_ns)
		put_functions(&p);
	if (v->by == REPORT_STACK && r->period_ns)
		put_stacks(&p, false);
	if (wants(&p, REPORT_WAIT) && r->off_cpu_min_ns)
		put_waits(&p);
	put_missing(&p);
	report_sums_release(&p.sums);
	return p.err;
}

/* A frame's name in the folded form, where ; separates and a blank precedes the number. */
static int put_folded(struct buf *out, const char *name)
{
	char safe[REPORT_NAME_BYTES];

	log_safe(safe, sizeof(safe), sv_of(name));
	for (char *c = safe; *c; c++)
		*c = *c == ';' ? ':' : *c;
	return buf_puts(out, safe);
}

int report_folded(const struct report *r, bool wait, struct buf *out)
{
	char name[REPORT_NAME_BYTES];
	int err = 0;

	for (size_t i = 0; i < r->stack_count && !err; i++) {
		const struct report_stack *s = &r->stacks[i];

		if (wait ? s->kind == KIND_CPU : s->kind != KIND_CPU)
			continue;
		err = put_folded(out, r->threads[s->thread].process);
		if (!err && wait)
			err = buf_printf(out, ";[%s]", report_kind_names[s->kind]);
		if (!err && s->broken)
			err = buf_puts(out, ";[broken stack]");
		if (!err && !s->depth && s->kind != KIND_QUEUE)
			err = buf_puts(out, ";[stack not kept]");
		for (uint32_t k = s->depth; k-- > 0 && !err;) {
			err = buf_putc(out, ';');
			if (!err)
				err = put_folded(out, report_frame_name(r, s->frames[k], name));
		}
		if (!err)
			err = buf_printf(out, " %.0f\n", s->ns);
	}
	return err;
}
