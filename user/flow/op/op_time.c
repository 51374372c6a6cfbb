/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the time of operations went: what their calls cover, and what their threads did in the rest. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "op_data.h"

/* States by their end. */
struct list {
	uint32_t *at; /* owned */
	size_t count;
	bool by_thread; /* within a thread, else within a process */
};

struct times {
	struct ops *o;
	enum op_family family;
	struct op_charge *charges;   /* by operation and begin */
	size_t count, at;	     /* at: the next operation's first one */
	struct op_interval *covered; /* of one operation: what calls cover; disjoint, in order */
	size_t covered_count;
	uint64_t covered_ns;
	struct list waits, cpu, process_cpu, allocs, process_allocs;
};

static const struct ops *sorting; /* for qsort() */

#define ORDER(a, b)                                                                                                    \
	if ((a) != (b))                                                                                                \
	return (a) < (b) ? -1 : 1

/* --- calls ------------------------------------------------------------------------------------------------------- */

static int compare_charges(const void *a, const void *b)
{
	const struct op_charge *x = a, *y = b;
	const struct op_call *c = &sorting->calls[x->call], *d = &sorting->calls[y->call];

	ORDER(x->op, y->op);
	ORDER(c->begin_ns, d->begin_ns);
	ORDER(d->end_ns, c->end_ns);
	ORDER(c->kind, d->kind);
	ORDER(c->shape, d->shape);
	ORDER(c->function, d->function);
	return 0;
}

static int compare_shapes(const void *a, const void *b)
{
	const struct op_charge *x = a, *y = b;
	const struct op_call *c = &sorting->calls[x->call], *d = &sorting->calls[y->call];

	ORDER(c->kind, d->kind);
	ORDER(c->shape, d->shape);
	return compare_charges(a, b);
}

static const struct op_call *call_of(const struct times *t, size_t i)
{
	return &t->o->calls[t->charges[i].call];
}

/* A request of MCP over HTTP is one of HTTP too, with the same beginning. */
static void silence_carriers(struct times *t, size_t from, size_t to)
{
	for (size_t i = from, next; i < to; i = next) {
		bool mcp = false;

		for (next = i; next < to && call_of(t, next)->begin_ns == call_of(t, i)->begin_ns; next++)
			mcp |= call_of(t, next)->kind == OP_MCP;
		for (size_t k = i; mcp && k < next; k++)
			t->charges[k].silent |= call_of(t, k)->kind == OP_HTTP;
	}
}

/* A library's function, and what it did, is one thing: whichever lies in the other. */
static void silence_functions(struct times *t, size_t from, size_t to)
{
	uint64_t latest[OP_KINDS] = {0}, earliest[OP_KINDS];

	memset(earliest, 0xff, sizeof(earliest));
	for (size_t i = from; i < to; i++) {
		const struct op_call *c = call_of(t, i);

		if (c->function)
			t->charges[i].silent |= latest[c->kind] >= c->end_ns;
		else if (c->end_ns > latest[c->kind])
			latest[c->kind] = c->end_ns;
	}
	for (size_t i = to; i-- > from;) {
		const struct op_call *c = call_of(t, i);

		if (c->function)
			t->charges[i].silent |= earliest[c->kind] <= c->end_ns;
		else if (c->end_ns < earliest[c->kind])
			earliest[c->kind] = c->end_ns;
	}
}

/* What an interval adds to a union whose latest end is *end_ns, given in order of begins. */
static uint64_t add_union(uint64_t *end_ns, uint64_t from, uint64_t to)
{
	uint64_t begin = from > *end_ns ? from : *end_ns;

	if (to <= begin)
		return 0;
	*end_ns = to;
	return to - begin;
}

static void cover(struct times *t, uint64_t from, uint64_t to)
{
	struct op_interval *last = t->covered_count ? &t->covered[t->covered_count - 1] : NULL;

	if (last && from <= last->end_ns) {
		t->covered_ns += to > last->end_ns ? to - last->end_ns : 0;
		last->end_ns = to > last->end_ns ? to : last->end_ns;
		return;
	}
	t->covered[t->covered_count++] = (struct op_interval){from, to, t->covered_ns};
	t->covered_ns += to - from;
}

static void add_calls(struct times *t, size_t from, size_t to, const struct op_operation *p, struct op_group *g)
{
	uint64_t ends[OP_KINDS] = {0};

	silence_carriers(t, from, to);
	silence_functions(t, from, to);
	t->covered_count = 0;
	t->covered_ns = 0;
	for (size_t i = from; i < to; i++) {
		const struct op_call *c = call_of(t, i);
		uint64_t end = c->end_ns < p->end_ns ? c->end_ns : p->end_ns;
		/* What carries a request of MCP is its time. */
		enum op_kind kind = t->charges[i].silent && !c->function ? OP_MCP : c->kind;

		cover(t, c->begin_ns, end);
		g->kinds[kind].count += !t->charges[i].silent;
		g->kinds[kind].union_ns += (double)add_union(&ends[kind], c->begin_ns, end);
	}
	g->told_ns += (double)(p->end_ns - p->begin_ns);
	g->in_proc_ns += (double)(p->end_ns - p->begin_ns - t->covered_ns);
}

/* --- repeated calls ---------------------------------------------------------------------------------------------- */

/* Of an agent, many model calls and tools are what a turn is. */
static bool may_repeat(const struct times *t, const struct op_call *c)
{
	return c->shape && !(t->family == OP_TURN && (c->kind == OP_LLM || c->kind == OP_TOOL));
}

static int add_pattern(struct times *t, size_t from, size_t to)
{
	const struct operation *p = &t->o->operations[t->charges[from].op];
	const struct op_call *first = call_of(t, from);
	struct op_pattern n = {.group = p->group, .kind = first->kind, .shape = first->shape, .operations = 1};
	uint64_t end = 0;

	for (size_t i = from; i < to; i++) {
		const struct op_call *c = call_of(t, i);

		n.usage.union_ns +=
			(double)add_union(&end, c->begin_ns, c->end_ns < p->is.end_ns ? c->end_ns : p->is.end_ns);
	}
	n.most = n.usage.count = to - from;
	if (!array_grow(&t->o->patterns, t->o->pattern_count, &t->o->pattern_room, sizeof(n)))
		return -ENOMEM;
	t->o->patterns[t->o->pattern_count++] = n;
	return 0;
}

/* The charges of one operation, sorted by shape from here on. */
static int add_repeats(struct times *t, size_t from, size_t to)
{
	size_t kept = from;
	int err = 0;

	for (size_t i = from; i < to; i++)
		if (!t->charges[i].silent && may_repeat(t, call_of(t, i)))
			t->charges[kept++] = t->charges[i];
	if (kept - from < OP_REPEATS)
		return 0;
	qsort(&t->charges[from], kept - from, sizeof(*t->charges), compare_shapes);
	for (size_t i = from, next; i < kept && !err; i = next) {
		for (next = i + 1; next < kept && call_of(t, next)->kind == call_of(t, i)->kind &&
				   call_of(t, next)->shape == call_of(t, i)->shape;)
			next++;
		if (next - i >= OP_REPEATS)
			err = add_pattern(t, i, next);
	}
	return err;
}

/* --- states ------------------------------------------------------------------------------------------------------ */

static int compare_ends(const struct op_state *x, const struct op_state *y)
{
	ORDER(x->end_ns, y->end_ns);
	ORDER(x->begin_ns, y->begin_ns);
	ORDER(x->what, y->what);
	ORDER(x->weight_ns, y->weight_ns);
	return 0;
}

static int compare_by_thread(const void *a, const void *b)
{
	const struct op_state *x = &sorting->states[*(const uint32_t *)a], *y = &sorting->states[*(const uint32_t *)b];

	ORDER(x->pid, y->pid);
	ORDER(x->tid, y->tid);
	return compare_ends(x, y);
}

static int compare_by_process(const void *a, const void *b)
{
	const struct op_state *x = &sorting->states[*(const uint32_t *)a], *y = &sorting->states[*(const uint32_t *)b];

	ORDER(x->pid, y->pid);
	return compare_ends(x, y);
}

/* A thread waits once at a time. */
static void part_waits(struct times *t)
{
	for (size_t i = 1; i < t->waits.count; i++) {
		struct op_state *s = &t->o->states[t->waits.at[i]];
		const struct op_state *before = &t->o->states[t->waits.at[i - 1]];

		if (before->pid == s->pid && before->tid == s->tid && s->begin_ns < before->end_ns)
			s->begin_ns = before->end_ns;
	}
}

/* What waits is one list. */
static enum op_what listed_as(enum op_what what)
{
	return what == OP_QUEUE ? OP_BLOCKED : what;
}

static int list_states(struct times *t, struct list *l, enum op_what what, bool by_thread)
{
	l->at = calloc(t->o->state_count + 1, sizeof(*l->at));
	if (!l->at)
		return -ENOMEM;
	l->by_thread = by_thread;
	for (size_t i = 0; i < t->o->state_count; i++)
		if (listed_as(t->o->states[i].what) == what)
			l->at[l->count++] = (uint32_t)i;
	sorting = t->o;
	qsort(l->at, l->count, sizeof(*l->at), by_thread ? compare_by_thread : compare_by_process);
	return 0;
}

static int sort_states(struct times *t)
{
	size_t n = t->o->state_count;
	uint32_t *owners = malloc((n + 1) * sizeof(*owners));

	t->o->owners[t->family] = owners;
	if (!owners || list_states(t, &t->waits, OP_BLOCKED, true) || list_states(t, &t->cpu, OP_CPU, true) ||
	    list_states(t, &t->process_cpu, OP_CPU, false) || list_states(t, &t->allocs, OP_ALLOC, true) ||
	    list_states(t, &t->process_allocs, OP_ALLOC, false))
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		owners[i] = NO_OP;
	part_waits(t);
	return 0;
}

/* How much of the operation calls cover before an instant; *within: it is covered itself. */
static uint64_t covered_before(const struct times *t, uint64_t at, bool *within)
{
	size_t low = 0, high = t->covered_count;
	const struct op_interval *c;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (t->covered[mid].begin_ns <= at)
			low = mid + 1;
		else
			high = mid;
	}
	*within = false;
	if (!low)
		return 0;
	c = &t->covered[low - 1];
	*within = at < c->end_ns;
	return c->before_ns + (*within ? at : c->end_ns) - c->begin_ns;
}

static void add_state(struct times *t, uint32_t at, uint32_t op, const struct op_operation *p, struct op_group *g)
{
	const struct op_state *s = &t->o->states[at];
	uint64_t from = s->begin_ns > p->begin_ns ? s->begin_ns : p->begin_ns;
	uint64_t to = s->end_ns < p->end_ns ? s->end_ns : p->end_ns;
	bool within;

	if (s->what == OP_ALLOC) {
		t->o->owners[t->family][at] = op;
	} else if (s->what == OP_CPU) {
		g->samples++;
		t->o->owners[t->family][at] = op;
		covered_before(t, s->begin_ns, &within);
		g->state_ns[OP_CPU] += within ? 0 : (double)s->weight_ns;
	} else if (from < to) {
		uint64_t calls = covered_before(t, to, &within) - covered_before(t, from, &within);

		g->state_ns[s->what] += (double)(to - from - calls);
	}
}

/* The first one of an operation's thread, or process, that ends after its begin. */
static size_t first_state(const struct times *t, const struct list *l, const struct op_operation *p)
{
	size_t low = 0, high = l->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct op_state *s = &t->o->states[l->at[mid]];
		bool before = s->pid != p->pid			 ? s->pid < p->pid
			      : l->by_thread && s->tid != p->tid ? s->tid < p->tid
								 : s->end_ns < p->begin_ns;

		if (before)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void add_list(struct times *t, const struct list *l, uint32_t op, const struct op_operation *p,
		     struct op_group *g)
{
	for (size_t i = first_state(t, l, p); i < l->count; i++) {
		const struct op_state *s = &t->o->states[l->at[i]];

		if (s->pid != p->pid || (l->by_thread && s->tid != p->tid) || s->begin_ns >= p->end_ns)
			return;
		add_state(t, l->at[i], op, p, g);
	}
}

static void add_states(struct times *t, uint32_t op, const struct operation *p, struct op_group *g)
{
	double in_proc = (double)(p->is.end_ns - p->is.begin_ns - t->covered_ns);
	bool own_thread = p->view == VIEW_THREAD;

	if (p->view == VIEW_NONE)
		return;
	add_list(t, own_thread ? &t->allocs : &t->process_allocs, op, &p->is, g);
	if (p->is.begin_ns < t->o->from_ns || (!t->o->has_cpu && !t->o->has_waits))
		return;
	g->split_ns += in_proc;
	add_list(t, own_thread ? &t->cpu : &t->process_cpu, op, &p->is, g);
	if (!own_thread || !t->o->has_waits)
		return;
	g->waits_ns += in_proc;
	add_list(t, &t->waits, op, &p->is, g);
}

/* --- all of it --------------------------------------------------------------------------------------------------- */

static int add_operation(struct times *t, uint32_t op)
{
	const struct operation *p = &t->o->operations[op];
	struct op_group *g = &t->o->groups[p->group];
	size_t from = t->at;

	while (t->at < t->count && t->charges[t->at].op == op)
		t->at++;
	add_calls(t, from, t->at, &p->is, g);
	add_states(t, op, p, g);
	sorting = t->o;
	return add_repeats(t, from, t->at);
}

/* Sums that follow from others; samples are rough, and never more than there is. */
static void finish_groups(struct times *t)
{
	for (size_t i = 0; i < t->o->group_count; i++) {
		struct op_group *g = &t->o->groups[i];
		double sum = g->in_proc_ns, most = g->split_ns - g->state_ns[OP_BLOCKED] - g->state_ns[OP_QUEUE];

		if (g->family != t->family)
			continue;
		for (int k = 0; k < OP_KINDS; k++)
			sum += g->kinds[k].union_ns;
		g->overlap_ns = sum - g->told_ns;
		if (g->state_ns[OP_CPU] > most)
			g->state_ns[OP_CPU] = most > 0 ? most : 0;
	}
}

int op_add_times(struct ops *o, enum op_family family, struct op_charge *charges, size_t count)
{
	struct times t = {.o = o, .family = family, .charges = charges, .count = count};
	int err;

	t.covered = calloc(count + 1, sizeof(*t.covered));
	err = t.covered ? sort_states(&t) : -ENOMEM;
	sorting = o;
	qsort(charges, count, sizeof(*charges), compare_charges);
	for (uint32_t i = 0; i < o->operation_count && !err; i++)
		if (o->operations[i].is.family == family && o->operations[i].told)
			err = add_operation(&t, i);
	if (!err)
		finish_groups(&t);
	free(t.covered);
	free(t.waits.at);
	free(t.cpu.at);
	free(t.process_cpu.at);
	free(t.allocs.at);
	free(t.process_allocs.at);
	return err;
}
