/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Two traces side by side. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "format.h"
#include "report_axis.h"
#include "report_chance.h"

#define DURATIONS_MAX 2.0 /* times as long: another class of run */

/* What one row is in both traces, by one of its measures. */
struct pair {
	enum report_by by;
	size_t which;		      /* measure of the axis */
	char name[REPORT_TEXT_BYTES]; /* of the row */
	double value[2], p;	      /* p: of chance; NAN: nothing can be said */
	bool beyond, regressed;
};

struct diff {
	struct report_context c[2];
	const struct report_view *v;
	double fail; /* share; negative: never */
	struct pair *pairs;
	size_t count, room;
	bool more[REPORT_BYS]; /* rows that --top leaves out */
};

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
	if (a->alloc_bytes != b->alloc_bytes)
		return refuse(why, "--alloc", a->alloc_bytes, b->alloc_bytes, " bytes");
	if (a->axes_told && b->axes_told && strcmp(a->axes, b->axes)) {
		char x[60], y[60];

		snprintf(why, 160, "their knobs differ: taken with %s and %s",
			 a->axes[0] ? log_safe(x, sizeof(x), sv_of(a->axes)) : "calls only",
			 b->axes[0] ? log_safe(y, sizeof(y), sv_of(b->axes)) : "calls only");
		return -EINVAL;
	}
	if (!a->duration_ms || !b->duration_ms)
		return refuse(why, "how long they took is not told:", a->duration_ms / 1e3, b->duration_ms / 1e3, " s");
	if (a->duration_ms > DURATIONS_MAX * b->duration_ms || b->duration_ms > DURATIONS_MAX * a->duration_ms)
		return refuse(why, "duration", a->duration_ms / 1e3, b->duration_ms / 1e3, " s");
	return 0;
}

/* --- rows of both ------------------------------------------------------------------------------------------------ */

/* A row of either trace, or of both. */
struct joint {
	char name[REPORT_TEXT_BYTES]; /* hash key */
	size_t at[2];		      /* + 1; 0: it has none */
	double weight;
	UT_hash_handle hh;
};

static void name_row(const struct report_context *c, size_t at, char out[REPORT_TEXT_BYTES])
{
	(c->axis->compared_name ? c->axis->compared_name : c->axis->name)(c, at, out);
}

static int add_side(struct diff *d, struct joint **all, int side)
{
	size_t count = 0;
	struct report_entry *e = report_list(&d->c[side], &count);
	int err = e ? 0 : -ENOMEM;
	char name[REPORT_TEXT_BYTES];

	for (size_t i = 0; i < count && !err; i++) {
		struct joint *j;

		name_row(&d->c[side], e[i].at, name);
		HASH_FIND_STR(*all, name, j);
		if (!j) {
			j = calloc(1, sizeof(*j));
			if (j) {
				memcpy(j->name, name, sizeof(name));
				HASH_ADD_STR(*all, name, j);
			}
			if (!j || !j->hh.tbl) {
				free(j);
				err = -ENOMEM;
				break;
			}
		}
		if (j->at[side])
			continue; /* names that were cut, and rows that measure() adds up */
		j->at[side] = e[i].at + 1;
		j->weight = fmax(j->weight, e[i].weight);
	}
	free(e);
	return err;
}

/* How sure it is that the two differ. A side without the row has no slices, but was idle in each of them. */
static double chance_of(const struct report_measure m[2], const double seconds[2])
{
	static float idle[REPORT_SLICES];
	const struct report_values none = {.v = NULL}, quiet = {.v = idle, .count = REPORT_SLICES};
	const struct report_values *x = m[0].values ? m[0].values : &none, *y = m[1].values ? m[1].values : &none;

	if (m[0].values || m[1].values)
		return chance_of_ranks(x->v, x->count, y->v, y->count);
	x = m[0].slices.count ? &m[0].slices : m[0].samples > 0 ? &none : &quiet;
	y = m[1].slices.count ? &m[1].slices : m[1].samples > 0 ? &none : &quiet;
	if (m[0].slices.count + m[1].slices.count && x->count && y->count)
		return m[0].samples + m[1].samples < CHANCE_SAMPLES_MIN
			       ? NAN
			       : chance_of_ranks(x->v, x->count, y->v, y->count);
	return chance_of_rates(m[0].samples, m[1].samples, seconds[0], seconds[1]);
}

static int add_measures(struct diff *d, enum report_by by, const struct joint *j, size_t which,
			const struct report_measure m[2])
{
	const struct report_compared *compared = &report_axes[by]->compared[which];
	const double seconds[2] = {report_sampled_s(d->c[0].r), report_sampled_s(d->c[1].r)};
	struct pair *pair;

	if (isnan(m[0].value) && isnan(m[1].value))
		return 0;
	if (!array_grow(&d->pairs, d->count, &d->room, sizeof(*d->pairs)))
		return -ENOMEM;
	pair = &d->pairs[d->count++];
	*pair = (struct pair){.by = by, .which = which, .value = {m[0].value, m[1].value}};
	memcpy(pair->name, j->name, sizeof(pair->name));
	pair->p = compared->untested ? NAN : chance_of(m, seconds);
	return 0;
}

static int add_pair(struct diff *d, enum report_by by, const struct joint *j, size_t which)
{
	struct report_measure m[2] = {{.samples = 0}, {.samples = 0}};
	int err = 0;

	for (int side = 0; side < 2 && !err; side++) {
		m[side].value = report_axes[by]->compared[which].nothing_is_0 ? 0 : NAN;
		if (j->at[side])
			err = report_axes[by]->measure(&d->c[side], j->at[side] - 1, which, &m[side]);
	}
	if (!err)
		err = add_measures(d, by, j, which, m);
	free(m[0].slices.v);
	free(m[1].slices.v);
	return err;
}

/* The heaviest rows of either side. */
static int add_pairs(struct diff *d, enum report_by by, struct joint *all)
{
	size_t count = HASH_COUNT(all), n = 0;
	struct report_entry *e = calloc(count + 1, sizeof(*e));
	struct joint **list = calloc(count + 1, sizeof(*list)), *j, *next;
	int err = e && list ? 0 : -ENOMEM;

	HASH_ITER (hh, all, j, next) {
		if (err)
			break;
		list[n] = j;
		e[n] = (struct report_entry){j->weight, n};
		n++;
	}
	if (!err)
		report_sort(e, n);
	for (size_t i = 0; i < n && i < d->v->top && !err; i++)
		for (size_t which = 0; report_axes[by]->compared[which].key && !err; which++)
			err = add_pair(d, by, list[e[i].at], which);
	d->more[by] = n > d->v->top;
	free(e);
	free(list);
	return err;
}

static int compare_axis(struct diff *d, enum report_by by)
{
	struct joint *all = NULL, *j, *next;
	int err;

	d->c[0].axis = d->c[1].axis = report_axes[by];
	err = add_side(d, &all, 0);
	if (!err)
		err = add_side(d, &all, 1);
	if (!err)
		err = add_pairs(d, by, all);
	HASH_ITER (hh, all, j, next) {
		HASH_DEL(all, j);
		free(j);
	}
	return err;
}

static bool both_have(const struct diff *d, const struct report_axis *axis)
{
	return !axis->missing || (!axis->missing(d->c[0].r) && !axis->missing(d->c[1].r));
}

/* NAN: not known; INFINITY: there was nothing before. */
static double change_of(const struct pair *p)
{
	if (isnan(p->value[0]) || isnan(p->value[1]))
		return NAN;
	return p->value[0] > 0 ? p->value[1] / p->value[0] - 1 : p->value[1] > 0 ? INFINITY : 0;
}

/* What is beyond chance, and of that what is worse: more is worse. */
static int judge(struct diff *d, bool *regressed)
{
	double *p = calloc(d->count + 1, sizeof(*p));
	bool *found = calloc(d->count + 1, sizeof(*found));
	int err = p && found ? 0 : -ENOMEM;

	for (size_t i = 0; i < d->count && !err; i++)
		p[i] = d->pairs[i].p;
	if (!err)
		err = chance_find(p, d->count, REPORT_CHANCE, found);
	for (size_t i = 0; i < d->count && !err; i++) {
		d->pairs[i].beyond = found[i];
		d->pairs[i].regressed = found[i] && d->fail >= 0 && change_of(&d->pairs[i]) > d->fail;
		*regressed = *regressed || d->pairs[i].regressed;
	}
	free(p);
	free(found);
	return err;
}

/* --- text -------------------------------------------------------------------------------------------------------- */

static const char *format_change(char out[32], const struct pair *p, bool untested)
{
	double change = change_of(p);
	const char *mark = untested ? "" : p->regressed ? " !" : p->beyond ? "" : " ~";

	if (isnan(change))
		snprintf(out, 32, "%s", isnan(p->value[0]) ? "new" : "gone");
	else if (isinf(change))
		snprintf(out, 32, "new%s", mark);
	else
		snprintf(out, 32, "%+.1f%%%s", 100 * change, mark);
	return out;
}

static int put_pair(const struct pair *p, struct buf *out)
{
	const struct report_compared *compared = &report_axes[p->by]->compared[p->which];
	char before[FORMAT_BYTES], after[FORMAT_BYTES], change[32], safe[REPORT_TEXT_BYTES];

	return buf_printf(out, "  %8s %8s  %-12s %s%s\n", report_format(before, compared->unit, p->value[0]),
			  report_format(after, compared->unit, p->value[1]),
			  format_change(change, p, compared->untested), p->which ? "  " : "",
			  p->which ? compared->text : log_safe(safe, sizeof(safe), sv_of(p->name)));
}

static int render_text(const struct diff *d, struct buf *out)
{
	enum report_by at = REPORT_ALL;
	int err;

	if (!d->count)
		return buf_puts(out, "there is nothing to compare in these traces\n");
	err = buf_printf(out, "  %8s %8s  %-12s (~: may be chance%s)\n", "before", "after", "change",
			 d->fail >= 0 ? "; !: worse than allowed" : "");

	for (size_t i = 0; i < d->count && !err; i++) {
		const struct pair *p = &d->pairs[i];

		if (p->by != at)
			err = buf_printf(out, "%s%s\n", report_axes[p->by]->title,
					 report_axes[p->by]->compared[0].text);
		at = p->by;
		if (!err)
			err = put_pair(p, out);
		if (!err && d->more[at] && (i + 1 == d->count || d->pairs[i + 1].by != at))
			err = buf_puts(out, "  … and more (--top)\n");
	}
	return err;
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

static void json_pair(struct json *j, const struct pair *p)
{
	const struct report_compared *compared = &report_axes[p->by]->compared[p->which];

	json_object(j, NULL);
	json_string(j, "name", sv_of(p->name));
	json_string(j, "measure", sv_of(compared->key));
	json_double(j, "before", p->value[0], 3);
	json_double(j, "after", p->value[1], 3);
	json_double(j, "change_share", change_of(p), 4);
	json_double(j, "chance", p->p, 6);
	json_bool(j, "beyond_chance", p->beyond);
	json_bool(j, "regressed", p->regressed);
	json_end_object(j);
}

static void json_tables(struct json *j, const struct diff *d)
{
	size_t i = 0;

	json_object(j, "tables");
	for (enum report_by by = REPORT_ALL + 1; by < REPORT_BYS; by++) {
		if (!report_axes[by]->compared || (d->v->by != REPORT_ALL && d->v->by != by))
			continue;
		if (!both_have(d, report_axes[by])) {
			json_null(j, report_by_word(by));
			continue;
		}
		json_array(j, report_by_word(by));
		for (; i < d->count && d->pairs[i].by == by; i++)
			json_pair(j, &d->pairs[i]);
		json_end_array(j);
	}
	json_end_object(j);
}

static int render_json(const struct diff *d, struct buf *out)
{
	static const char *const sides[2] = {"before", "after"};
	struct json j;

	json_init(&j, out);
	json_object(&j, NULL);
	json_uint(&j, "format", 1);
	for (int side = 0; side < 2; side++) {
		json_object(&j, sides[side]);
		report_json_trace(&j, d->c[side].r);
		json_end_object(&j);
	}
	json_tables(&j, d);
	json_end_object(&j);
	return j.err ? j.err : buf_putc(out, '\n');
}

/* --- all of it --------------------------------------------------------------------------------------------------- */

static int compare_all(struct diff *d, bool *regressed)
{
	int err = 0;

	for (enum report_by by = REPORT_ALL + 1; by < REPORT_BYS && !err; by++)
		if (report_axes[by]->compared && (d->v->by == REPORT_ALL || d->v->by == by) &&
		    both_have(d, report_axes[by]))
			err = compare_axis(d, by);
	return err ? err : judge(d, regressed);
}

int report_diff(const struct report *before, const struct report *after, const struct report_view *v,
		double fail_percent, struct buf *out, bool *regressed, char why[160])
{
	struct diff d = {.v = v, .fail = fail_percent / 100};
	int err = check_knobs(before, after, why);

	*regressed = false;
	if (!err && v->by != REPORT_ALL && !report_axes[v->by]->compared) {
		snprintf(why, 160, "--by %s: that table cannot be compared", report_by_word(v->by));
		err = -EINVAL;
	}
	if (err)
		return err;
	err = report_context_init(&d.c[0], before, v);
	if (!err)
		err = report_context_init(&d.c[1], after, v);
	if (!err)
		err = compare_all(&d, regressed);
	if (!err)
		err = v->json ? render_json(&d, out) : render_text(&d, out);
	report_context_release(&d.c[0]);
	report_context_release(&d.c[1]);
	free(d.pairs);
	return err;
}
