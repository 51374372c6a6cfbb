/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is pushed, and the groups that come of it. */
#include "op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/quantile.h"
#include "op_data.h"

struct ops *ops_new(void)
{
	return calloc(1, sizeof(struct ops));
}

void ops_free(struct ops *o)
{
	if (!o)
		return;
	free(o->operations);
	free(o->calls);
	free(o->states);
	free(o->groups);
	free(o->patterns);
	for (int f = 0; f < OP_FAMILIES; f++)
		free(o->owners[f]);
	free(o);
}

/* An interval has some length, so that there is an instant that it lies at. */
static void set_times(uint64_t *begin_ns, uint64_t *end_ns)
{
	if (*begin_ns >= OP_TIME_MAX)
		*begin_ns = OP_TIME_MAX - 1;
	if (*end_ns > OP_TIME_MAX)
		*end_ns = OP_TIME_MAX;
	if (*end_ns <= *begin_ns)
		*end_ns = *begin_ns + 1;
}

static int drop(struct ops *o)
{
	o->dropped++;
	return -ENOSPC;
}

int ops_push_operation(struct ops *o, const struct op_operation *p)
{
	struct operation n = {.is = *p};

	if (o->operation_count == OP_SPANS_MAX)
		return drop(o);
	if (!array_grow(&o->operations, o->operation_count, &o->operation_room, sizeof(n)))
		return -ENOMEM;
	set_times(&n.is.begin_ns, &n.is.end_ns);
	o->operations[o->operation_count++] = n;
	return 0;
}

int ops_push_call(struct ops *o, const struct op_call *c)
{
	struct op_call n = *c;

	if (o->call_count == OP_SPANS_MAX)
		return drop(o);
	if (!array_grow(&o->calls, o->call_count, &o->call_room, sizeof(n)))
		return -ENOMEM;
	set_times(&n.begin_ns, &n.end_ns);
	o->calls[o->call_count++] = n;
	return 0;
}

int ops_push_state(struct ops *o, const struct op_state *s)
{
	struct op_state n = *s;

	if (o->state_count == OP_STATES_MAX)
		return drop(o);
	if (!array_grow(&o->states, o->state_count, &o->state_room, sizeof(n)))
		return -ENOMEM;
	set_times(&n.begin_ns, &n.end_ns);
	if (n.what == OP_CPU || n.what == OP_ALLOC)
		n.end_ns = n.begin_ns;
	o->states[o->state_count++] = n;
	return 0;
}

uint64_t ops_dropped(const struct ops *o)
{
	return o->dropped;
}

void ops_states(struct ops *o, bool cpu, bool waits, uint64_t from_ns)
{
	o->has_cpu = cpu;
	o->has_waits = waits;
	o->from_ns = from_ns;
}

/* --- groups ------------------------------------------------------------------------------------------------------ */

#define ORDER(a, b)                                                                                                    \
	if ((a) != (b))                                                                                                \
	return (a) < (b) ? -1 : 1

/* All that two can differ in: the same result for the same set of them. */
static int compare_operations(const void *a, const void *b)
{
	const struct op_operation *x = &((const struct operation *)a)->is, *y = &((const struct operation *)b)->is;

	ORDER(x->family, y->family);
	ORDER(x->name, y->name);
	ORDER(x->begin_ns, y->begin_ns);
	ORDER(x->end_ns, y->end_ns);
	ORDER(x->pid, y->pid);
	ORDER(x->tid, y->tid);
	ORDER(x->answer_tid, y->answer_tid);
	ORDER(x->lane, y->lane);
	ORDER(x->partial, y->partial);
	return 0;
}

static int compare_times(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int compare_groups(const void *a, const void *b)
{
	const struct op_group *x = a, *y = b;

	ORDER(x->family, y->family);
	ORDER(y->wall_ns, x->wall_ns);
	ORDER(y->calls, x->calls);
	ORDER(x->name, y->name);
	return 0;
}

/* Of the operations [from, to), which are of one name. */
static void make_group(struct ops *o, size_t from, size_t to, uint64_t *times, struct op_group *g)
{
	*g = (struct op_group){.name = o->operations[from].is.name, .family = o->operations[from].is.family};
	for (size_t i = from; i < to; i++) {
		const struct op_operation *p = &o->operations[i].is;

		if (p->partial) {
			g->partial++;
			continue;
		}
		times[g->calls++] = p->end_ns - p->begin_ns;
		g->wall_ns += (double)(p->end_ns - p->begin_ns);
	}
	qsort(times, g->calls, sizeof(*times), compare_times);
	g->p50_ns = quantile_of_times(times, g->calls, 0.5);
	g->p95_ns = quantile_of_times(times, g->calls, 0.95);
	g->p99_ns = quantile_of_times(times, g->calls, 0.99);
	g->max_ns = quantile_of_times(times, g->calls, 1);
}

static bool same_group(const struct op_operation *a, const struct op_operation *b)
{
	return a->family == b->family && a->name == b->name;
}

static int compare_names(const void *a, const void *b)
{
	const struct op_group *x = a, *y = b;

	ORDER(x->family, y->family);
	ORDER(x->name, y->name);
	return 0;
}

struct place {
	struct op_group key; /* only family and name */
	uint32_t at;
};

/* The operations lie by name, the groups by weight: which is whose. */
static int link_groups(struct ops *o)
{
	struct place *places = calloc(o->group_count + 1, sizeof(*places));
	size_t at = 0;

	if (!places)
		return -ENOMEM;
	for (size_t i = 0; i < o->group_count; i++)
		places[i] = (struct place){{.family = o->groups[i].family, .name = o->groups[i].name}, (uint32_t)i};
	qsort(places, o->group_count, sizeof(*places), compare_names);
	for (size_t i = 0; i < o->operation_count; i++) {
		if (i && !same_group(&o->operations[i - 1].is, &o->operations[i].is))
			at++;
		o->operations[i].group = places[at].at;
	}
	free(places);
	return 0;
}

static int make_groups(struct ops *o)
{
	uint64_t *times = calloc(o->operation_count + 1, sizeof(*times));
	size_t from = 0, n = 1;

	if (o->operation_count)
		qsort(o->operations, o->operation_count, sizeof(*o->operations), compare_operations);
	for (size_t i = 1; i < o->operation_count; i++)
		n += !same_group(&o->operations[i - 1].is, &o->operations[i].is);
	o->groups = calloc(n, sizeof(*o->groups));
	if (!times || !o->groups) {
		free(times);
		return -ENOMEM;
	}
	for (size_t i = 1; i <= o->operation_count; i++) {
		if (i < o->operation_count && same_group(&o->operations[from].is, &o->operations[i].is))
			continue;
		make_group(o, from, i, times, &o->groups[o->group_count++]);
		from = i;
	}
	free(times);
	qsort(o->groups, o->group_count, sizeof(*o->groups), compare_groups);
	return link_groups(o);
}

static int compare_patterns(const void *a, const void *b)
{
	const struct op_pattern *x = a, *y = b;

	ORDER(x->group, y->group);
	ORDER(x->kind, y->kind);
	ORDER(x->shape, y->shape);
	ORDER(x->most, y->most);
	return 0;
}

static int compare_costs(const void *a, const void *b)
{
	const struct op_pattern *x = a, *y = b;

	ORDER(x->group, y->group);
	ORDER(y->usage.union_ns, x->usage.union_ns);
	ORDER(y->usage.count, x->usage.count);
	ORDER(x->kind, y->kind);
	ORDER(x->shape, y->shape);
	return 0;
}

/* Those of single operations, as those of groups. */
static void join_patterns(struct ops *o)
{
	size_t kept = 0;

	if (!o->pattern_count)
		return;
	qsort(o->patterns, o->pattern_count, sizeof(*o->patterns), compare_patterns);
	for (size_t i = 1; i < o->pattern_count; i++) {
		struct op_pattern *p = &o->patterns[kept], *q = &o->patterns[i];

		if (p->group != q->group || p->kind != q->kind || p->shape != q->shape) {
			o->patterns[++kept] = *q;
			continue;
		}
		p->operations += q->operations;
		p->most = q->most > p->most ? q->most : p->most;
		p->usage.count += q->usage.count;
		p->usage.union_ns += q->usage.union_ns;
	}
	o->pattern_count = kept + 1;
	qsort(o->patterns, o->pattern_count, sizeof(*o->patterns), compare_costs);
	for (size_t i = o->pattern_count; i-- > 0;) {
		o->groups[o->patterns[i].group].pattern = i;
		o->groups[o->patterns[i].group].patterns++;
	}
}

int ops_solve(struct ops *o)
{
	int err = op_drop_parts(o);

	if (!err)
		err = make_groups(o);

	for (int f = 0; f < OP_FAMILIES && !err; f++) {
		struct op_charge *charges = NULL;
		size_t count = 0;

		err = op_charge_calls(o, (enum op_family)f, &charges, &count);
		if (!err)
			err = op_add_times(o, (enum op_family)f, charges, count);
		free(charges);
	}
	if (!err)
		join_patterns(o);
	return err;
}

/* --- results ----------------------------------------------------------------------------------------------------- */

const struct op_group *ops_groups(const struct ops *o, size_t *count)
{
	*count = o->group_count;
	return o->groups;
}

const struct op_pattern *ops_patterns(const struct ops *o, size_t *count)
{
	*count = o->pattern_count;
	return o->patterns;
}

const struct op_totals *ops_totals(const struct ops *o, enum op_family family)
{
	return &o->totals[family];
}

void ops_each_sample(const struct ops *o, size_t group, enum op_what what,
		     void (*fn)(void *ctx, uint32_t stack, uint64_t weight_ns), void *ctx)
{
	const uint32_t *owners = o->owners[o->groups[group].family];

	for (size_t i = 0; owners && i < o->state_count; i++)
		if (owners[i] != NO_OP && o->states[i].what == what && o->operations[owners[i]].group == group)
			fn(ctx, o->states[i].stack, o->states[i].weight_ns);
}
