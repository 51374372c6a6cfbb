/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Two traces side by side. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "format.h"
#include "report_data.h"

#define DURATIONS_MAX 2.0  /* times as long: another class of run */
#define CHANCE_Z      2.58 /* two-sided, 1 % */
#define VALUES_MIN    5	   /* of each side, for the rank test to say anything */
#define SAMPLES_MIN   20   /* of both sides together */

struct diff {
	const struct report *a, *b;
	const struct report_view *v;
	double seconds[2];
	double fail; /* share; negative: never */
	bool regressed;
	struct buf *out;
	int err;
};

__attribute__((format(printf, 2, 3))) static void say(struct diff *d, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (d->err)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	d->err = buf_puts(d->out, text);
}

/* --- knobs ------------------------------------------------------------------------------------------------------- */

static int refuse(char why[160], const char *what, double a, double b, const char *unit)
{
	snprintf(why, 160, "their knobs differ: %s %.6g%s and %.6g%s", what, a, unit, b, unit);
	return -EINVAL;
}

static int check_knobs(const struct report *a, const struct report *b, char why[160])
{
	if (a->period_ns != b->period_ns)
		return refuse(why, "--cpu", a->period_ns ? 1e9 / a->period_ns : 0,
			      b->period_ns ? 1e9 / b->period_ns : 0, " Hz");
	if (a->off_cpu_min_ns != b->off_cpu_min_ns)
		return refuse(why, "--off-cpu, shortest wait", a->off_cpu_min_ns / 1e6, b->off_cpu_min_ns / 1e6, " ms");
	if (!a->duration_ms || !b->duration_ms)
		return refuse(why, "how long they took is not told:", a->duration_ms / 1e3, b->duration_ms / 1e3, " s");
	if (a->duration_ms > DURATIONS_MAX * b->duration_ms || b->duration_ms > DURATIONS_MAX * a->duration_ms)
		return refuse(why, "duration", a->duration_ms / 1e3, b->duration_ms / 1e3, " s");
	return 0;
}

/* --- chance ------------------------------------------------------------------------------------------------------ */

/* Rank test (Mann-Whitney, normal approximation, ties shared) of two sorted lists: its z; 0: too few to tell. */
static double rank_test(const struct report_values *x, const struct report_values *y)
{
	double n = (double)x->count, m = (double)y->count, u = 0, sd = sqrt(n * m * (n + m + 1) / 12);
	size_t below = 0, upto = 0;

	if (x->count < VALUES_MIN || y->count < VALUES_MIN)
		return 0;
	for (size_t i = 0; i < y->count; i++) {
		while (below < x->count && x->v[below] < y->v[i])
			below++;
		while (upto < x->count && x->v[upto] <= y->v[i])
			upto++;
		u += ((double)below + (double)upto) / 2;
	}
	return (u - n * m / 2) / sd;
}

/* Counts of samples in two windows: how far the rates are apart, in standard deviations. */
static double rate_test(double a, double b, const double seconds[2])
{
	double pooled = (a + b) / (seconds[0] + seconds[1]);

	if (a + b < SAMPLES_MIN)
		return 0;
	return (b / seconds[1] - a / seconds[0]) / sqrt(pooled / seconds[0] + pooled / seconds[1]);
}

/* Worse is more. */
static void judge(struct diff *d, double a, double b, double z, char out[32])
{
	double change = a > 0 ? b / a - 1 : b > 0 ? INFINITY : 0;
	bool chance = fabs(z) < CHANCE_Z;

	if (isnan(a) || isnan(b)) {
		snprintf(out, 32, "-");
		return;
	}
	if (isinf(change))
		snprintf(out, 32, "new%s", chance ? " ~" : "");
	else
		snprintf(out, 32, "%+.1f%%%s", 100 * change, chance ? " ~" : "");
	if (!chance && d->fail >= 0 && change > d->fail) {
		d->regressed = true;
		strcat(out, " !");
	}
}

static void put_row(struct diff *d, double a_ms, double b_ms, double z, const char *name)
{
	char before[FORMAT_BYTES], after[FORMAT_BYTES], change[32], safe[REPORT_NAME_BYTES];

	judge(d, a_ms, b_ms, z, change);
	say(d, "  %8s %8s  %-12s %s\n", format_ms(before, a_ms), format_ms(after, b_ms), change,
	    log_safe(safe, sizeof(safe), sv_of(name)));
}

/* --- axes -------------------------------------------------------------------------------------------------------- */

static void diff_row(struct diff *d, struct report_row *x, struct report_row *y, const char *name)
{
	static struct report_row nothing;
	double before, after;

	x = x ? x : &nothing;
	y = y ? y : &nothing;
	before = report_quantile(&x->ms, 0.5); /* sorted by it: the test wants that */
	after = report_quantile(&y->ms, 0.5);
	put_row(d, before, after, rank_test(&x->ms, &y->ms), name);
	if (x->ttft_ms.count && y->ttft_ms.count) {
		before = report_quantile(&x->ttft_ms, 0.5);
		after = report_quantile(&y->ttft_ms, 0.5);
		put_row(d, before, after, rank_test(&x->ttft_ms, &y->ttft_ms), "  time to first token");
	}
	say(d, "  %8llu %8llu  %-12s   count\n", (unsigned long long)x->count, (unsigned long long)y->count, "");
}

static void diff_table(struct diff *d, enum report_table table, const char *title)
{
	size_t count[2];
	struct report_row **before = report_rows(d->a, table, &count[0]), **after = report_rows(d->b, table, &count[1]);
	struct report_row *other;
	size_t shown = 0;

	if ((count[0] && !before) || (count[1] && !after))
		d->err = -ENOMEM;
	if (count[0] + count[1])
		say(d, "%s, median\n", title);
	for (size_t i = 0; !d->err && i < count[1] && shown < d->v->top; i++, shown++) {
		HASH_FIND_STR(d->a->rows[table], after[i]->name, other);
		diff_row(d, other, after[i], after[i]->name);
	}
	for (size_t i = 0; !d->err && i < count[0] && shown < d->v->top; i++) {
		HASH_FIND_STR(d->b->rows[table], before[i]->name, other);
		if (other)
			continue;
		diff_row(d, before[i], NULL, before[i]->name);
		shown++;
	}
	free(before);
	free(after);
}

/* A function of both traces. */
struct function {
	char name[REPORT_NAME_BYTES]; /* hash key */
	double ns[2], samples[2];
	UT_hash_handle hh;
};

static int add_functions(struct function **all, const struct report *r, const struct report_sums *sums, int side)
{
	char name[REPORT_NAME_BYTES];
	struct function *f;

	for (size_t i = 0; i < r->frame_count; i++) {
		if (!sums->self_samples[i])
			continue;
		report_frame_name(r, (uint32_t)i, name);
		HASH_FIND_STR(*all, name, f);
		if (!f) {
			f = calloc(1, sizeof(*f));
			if (!f)
				return -ENOMEM;
			memcpy(f->name, name, sizeof(name));
			HASH_ADD_STR(*all, name, f);
			if (!f->hh.tbl) {
				free(f);
				return -ENOMEM;
			}
		}
		f->ns[side] += sums->self_ns[i];
		f->samples[side] += (double)sums->self_samples[i];
	}
	return 0;
}

static double larger(const struct diff *d, const struct function *f)
{
	return fmax(f->ns[0] / d->seconds[0], f->ns[1] / d->seconds[1]);
}

static void put_functions(struct diff *d, struct function *all)
{
	size_t count = HASH_COUNT(all), n = 0;
	struct report_entry *e = calloc(count + 1, sizeof(*e));
	struct function **list = calloc(count + 1, sizeof(*list)), *f, *next;

	if (!e || !list)
		d->err = -ENOMEM;
	HASH_ITER (hh, all, f, next) {
		if (d->err)
			break;
		list[n] = f;
		e[n] = (struct report_entry){larger(d, f), n};
		n++;
	}
	if (!d->err)
		report_sort(e, n);
	say(d, "functions on a processor, self, a second\n");
	for (size_t i = 0; i < n && i < d->v->top && !d->err; i++) {
		f = list[e[i].at];
		put_row(d, f->ns[0] / 1e6 / d->seconds[0], f->ns[1] / 1e6 / d->seconds[1],
			rate_test(f->samples[0], f->samples[1], d->seconds), f->name);
	}
	free(e);
	free(list);
}

static void diff_functions(struct diff *d, const struct report_sums sums[2])
{
	struct function *all = NULL, *f, *next;

	if (!d->err)
		d->err = add_functions(&all, d->a, &sums[0], 0);
	if (!d->err)
		d->err = add_functions(&all, d->b, &sums[1], 1);
	if (!d->err)
		put_functions(d, all);
	HASH_ITER (hh, all, f, next) {
		HASH_DEL(all, f);
		free(f);
	}
}

static void diff_kinds(struct diff *d, const struct report_sums sums[2], int from, int to, const char *title)
{
	say(d, "%s, a second\n", title);
	for (int k = from; k < to; k++)
		if (sums[0].kind_samples[k] + sums[1].kind_samples[k])
			put_row(d, sums[0].kind_ns[k] / 1e6 / d->seconds[0], sums[1].kind_ns[k] / 1e6 / d->seconds[1],
				rate_test((double)sums[0].kind_samples[k], (double)sums[1].kind_samples[k], d->seconds),
				report_kind_names[k]);
}

static double sampled_seconds(const struct report *r)
{
	return r->window_ns ? r->window_ns / 1e9 : r->duration_ms / 1e3;
}

int report_diff(const struct report *before, const struct report *after, const struct report_view *v,
		double fail_percent, struct buf *out, bool *regressed, char why[160])
{
	struct diff d = {.a = before, .b = after, .v = v, .fail = fail_percent / 100, .out = out};
	struct report_sums sums[2];

	*regressed = false;
	memset(sums, 0, sizeof(sums));
	d.err = check_knobs(before, after, why);
	if (d.err)
		return d.err;
	d.seconds[0] = sampled_seconds(before);
	d.seconds[1] = sampled_seconds(after);
	d.err = report_sum(before, &sums[0]);
	if (!d.err)
		d.err = report_sum(after, &sums[1]);
	say(&d, "  %8s %8s  %-12s (~: may be chance%s)\n", "before", "after", "change",
	    fail_percent >= 0 ? "; !: worse than allowed" : "");
	diff_table(&d, TABLE_MODEL, "model calls");
	diff_table(&d, TABLE_TOOL, "tools");
	diff_table(&d, TABLE_MCP, "MCP requests");
	diff_table(&d, TABLE_DB, "database commands");
	if (before->period_ns && !d.err) {
		diff_kinds(&d, sums, KIND_CPU, KIND_CPU + 1, "processor time");
		diff_functions(&d, sums);
	}
	if (before->off_cpu_min_ns && !d.err)
		diff_kinds(&d, sums, KIND_QUEUE, KINDS, "waiting, summed over threads");
	report_sums_release(&sums[0]);
	report_sums_release(&sums[1]);
	*regressed = d.regressed;
	return d.err;
}
