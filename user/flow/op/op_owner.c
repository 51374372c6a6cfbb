/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which operations can be told apart, and whose each call is. */
#include <errno.h>
#include <stdlib.h>

#include "op_data.h"

enum { BY_THREAD, BY_LANE, BY_PROCESS, BYS };

struct owners {
	struct ops *o;
	enum op_family family;
	struct op_index by[BYS];
	struct op_process *processes; /* by pid */
	size_t process_count;
	bool *beside[BYS];		     /* by operation: another one was going on there */
	struct op_index others[OP_FAMILIES]; /* by process: what these may be a part of */
	struct op_index unclear;	     /* calls, by process */
};

/* --- an index ---------------------------------------------------------------------------------------------------- */

static uint64_t key_of(int by, uint32_t pid, uint32_t tid, uint32_t lane)
{
	return (uint64_t)pid << 32 | (by == BY_THREAD ? tid : by == BY_LANE ? lane : 0);
}

static int compare_entries(const void *a, const void *b)
{
	const struct op_entry *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	if (x->begin_ns != y->begin_ns)
		return x->begin_ns < y->begin_ns ? -1 : 1;
	return x->op < y->op ? -1 : x->op > y->op;
}

static void sort_entries(struct op_index *index)
{
	qsort(index->e, index->count, sizeof(*index->e), compare_entries);
	for (size_t i = 0; i < index->count; i++) {
		struct op_entry *e = &index->e[i];
		const struct op_entry *before = i && e[-1].key == e->key ? e - 1 : NULL;
		uint64_t end = e->last_end_ns;

		e->last = e->op;
		e->next_end_ns = before ? before->last_end_ns : 0;
		if (before && before->last_end_ns >= end) {
			e->last = before->last;
			e->last_end_ns = before->last_end_ns;
			e->next_end_ns = before->next_end_ns > end ? before->next_end_ns : end;
		}
	}
}

static int index_build(const struct ops *o, struct op_index *index, enum op_family family, int by)
{
	index->e = calloc(o->operation_count + 1, sizeof(*index->e));
	if (!index->e)
		return -ENOMEM;
	for (size_t i = 0; i < o->operation_count; i++) {
		const struct op_operation *p = &o->operations[i].is;

		if (p->family != family || (by == BY_THREAD && !p->tid) || (by == BY_LANE && !p->lane))
			continue;
		index->e[index->count++] = (struct op_entry){.key = key_of(by, p->pid, p->tid, p->lane),
							     .begin_ns = p->begin_ns,
							     .last_end_ns = p->end_ns,
							     .op = (uint32_t)i};
	}
	sort_entries(index);
	return 0;
}

/* What was going on between two instants; *op: which one, where it is one. */
static enum op_found index_find(const struct op_index *index, uint64_t key, uint64_t from_ns, uint64_t to_ns,
				uint32_t *op)
{
	size_t low = 0, high = index->count;
	const struct op_entry *e;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		e = &index->e[mid];
		if (e->key < key || (e->key == key && e->begin_ns < to_ns))
			low = mid + 1;
		else
			high = mid;
	}
	e = low ? &index->e[low - 1] : NULL;
	if (!e || e->key != key || e->last_end_ns <= from_ns)
		return FOUND_NONE;
	*op = e->last;
	return e->next_end_ns > from_ns ? FOUND_SEVERAL : FOUND_ONE;
}

/* Which operations have another one beside them. */
static int mark_beside(struct owners *w, int by)
{
	const struct op_index *index = &w->by[by];
	const struct operation *all = w->o->operations;
	bool *beside = calloc(w->o->operation_count + 1, sizeof(*beside));

	w->beside[by] = beside;
	if (!beside)
		return -ENOMEM;
	for (size_t i = 1; i < index->count; i++) {
		const struct op_entry *e = &index->e[i], *before = e - 1;

		if (before->key != e->key)
			continue;
		beside[e->op] |= before->last_end_ns > e->begin_ns;
		beside[before->op] |= all[before->op].is.end_ns > e->begin_ns;
	}
	return 0;
}

/* --- processes --------------------------------------------------------------------------------------------------- */

static int compare_pids(const void *a, const void *b)
{
	uint32_t x = ((const struct op_process *)a)->pid, y = ((const struct op_process *)b)->pid;

	return x < y ? -1 : x > y;
}

static struct op_process *process_of(const struct owners *w, uint32_t pid)
{
	const struct op_process key = {.pid = pid};

	return w->process_count ? bsearch(&key, w->processes, w->process_count, sizeof(key), compare_pids) : NULL;
}

/* Its threads do one operation at a time, from begin to end. */
static bool is_bound(const struct op_process *p)
{
	return p && !p->shared && !p->moves;
}

/* A thread that has two of them at a time: one whose end was not seen says nothing. */
static void find_shared(struct owners *w)
{
	const struct op_index *index = &w->by[BY_THREAD];
	uint64_t key = 0, end = 0;

	for (size_t i = 0; i < index->count; i++) {
		const struct op_entry *e = &index->e[i];
		const struct op_operation *p = &w->o->operations[e->op].is;

		if (p->partial)
			continue;
		if (e->key == key && end > p->begin_ns)
			process_of(w, p->pid)->shared = true;
		end = e->key == key && end > p->end_ns ? end : p->end_ns;
		key = e->key;
	}
}

static int find_processes(struct owners *w)
{
	const struct op_index *index = &w->by[BY_PROCESS];

	w->processes = calloc(index->count + 1, sizeof(*w->processes));
	if (!w->processes)
		return -ENOMEM;
	for (size_t i = 0; i < index->count; i++) {
		const struct op_operation *p = &w->o->operations[index->e[i].op].is;

		if (!i || index->e[i - 1].key != index->e[i].key)
			w->processes[w->process_count++] = (struct op_process){.pid = p->pid};
		w->processes[w->process_count - 1].moves |= p->tid && p->answer_tid && p->tid != p->answer_tid;
	}
	find_shared(w);
	return 0;
}

static bool contains(const struct op_operation *a, const struct op_operation *b)
{
	return a->begin_ns <= b->begin_ns && a->end_ns >= b->end_ns;
}

/* Is what went on in its process between two instants its own? Not where requests are served that it may not be a part
 * of. A request is what it is: a turn that goes on meanwhile may only wait for the next one. */
static bool is_only_one(const struct owners *w, const struct op_operation *p, uint64_t from_ns, uint64_t to_ns)
{
	for (int f = 0; f < OP_FAMILIES; f++) {
		const struct op_operation *q;
		uint32_t op;

		switch (index_find(&w->others[f], key_of(BY_PROCESS, p->pid, 0, 0), from_ns, to_ns, &op)) {
		case FOUND_NONE:
			continue;
		case FOUND_SEVERAL:
			return false;
		case FOUND_ONE:
			q = &w->o->operations[op].is;
			if (!contains(q, p))
				return false;
		}
	}
	return true;
}

static void tell_apart(struct owners *w)
{
	struct ops *o = w->o;

	for (size_t i = 0; i < o->operation_count; i++) {
		struct operation *p = &o->operations[i];
		bool alone = !w->beside[BY_PROCESS][i], own_thread;
		const struct op_process *process;

		if (p->is.family != w->family || p->is.partial)
			continue;
		process = process_of(w, p->is.pid);
		own_thread = p->is.tid && is_bound(process) && !w->beside[BY_THREAD][i];
		p->told = alone || own_thread || (p->is.lane && !w->beside[BY_LANE][i]);
		if (own_thread)
			p->view = VIEW_THREAD;
		else if (alone && is_only_one(w, &p->is, p->is.begin_ns, p->is.end_ns))
			p->view = p->is.tid && !process->moves ? VIEW_THREAD : VIEW_PROCESS;
		o->groups[p->group].refused += !p->told;
	}
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

static bool serves(const struct owners *w, const struct op_call *c)
{
	uint32_t op;

	return index_find(&w->by[BY_THREAD], key_of(BY_THREAD, c->pid, c->tid, 0), 0, UINT64_MAX, &op) != FOUND_NONE;
}

static uint32_t unclear(struct owners *w, const struct op_call *c)
{
	w->o->totals[w->family].unclear++;
	w->unclear.e[w->unclear.count++] = (struct op_entry){
		.key = key_of(BY_PROCESS, c->pid, 0, 0), .begin_ns = c->begin_ns, .last_end_ns = c->end_ns};
	return NO_OP;
}

/* NO_OP: nobody's, and counted. */
static uint32_t owner_of(struct owners *w, const struct op_call *c)
{
	struct op_totals *t = &w->o->totals[w->family];
	bool bound = c->tid && is_bound(process_of(w, c->pid));
	enum op_found found = FOUND_NONE;
	uint64_t *way = &t->by_thread;
	uint32_t op = NO_OP;

	if (bound)
		found = index_find(&w->by[BY_THREAD], key_of(BY_THREAD, c->pid, c->tid, 0), c->begin_ns,
				   c->begin_ns + 1, &op);
	/* A thread that serves, and served nothing just then: what it did was for none. Others may help any. */
	if (bound && found == FOUND_NONE && serves(w, c)) {
		t->outside++;
		return NO_OP;
	}
	if (found == FOUND_NONE && c->lane) {
		way = &t->by_lane;
		found = index_find(&w->by[BY_LANE], key_of(BY_LANE, c->pid, 0, c->lane), c->begin_ns, c->begin_ns + 1,
				   &op);
	}
	if (found == FOUND_NONE) {
		way = &t->by_time;
		found = index_find(&w->by[BY_PROCESS], key_of(BY_PROCESS, c->pid, 0, 0), c->begin_ns, c->end_ns, &op);
	}
	if (found == FOUND_SEVERAL)
		return unclear(w, c);
	if (found == FOUND_NONE ||
	    ((way == &t->by_time || c->inside) &&
	     (w->o->operations[op].is.begin_ns > c->begin_ns || w->o->operations[op].is.end_ns < c->end_ns))) {
		t->outside++;
		return NO_OP;
	}
	if (way == &t->by_time && !is_only_one(w, &w->o->operations[op].is, c->begin_ns, c->end_ns))
		return unclear(w, c);
	if (!w->o->operations[op].told) {
		t->overlapped++;
		return NO_OP;
	}
	++*way;
	return op;
}

static int charge(struct owners *w, struct op_charge **charges, size_t *count)
{
	const struct ops *o = w->o;

	*charges = calloc(o->call_count + 1, sizeof(**charges));
	w->unclear.e = calloc(o->call_count + 1, sizeof(*w->unclear.e));
	if (!*charges || !w->unclear.e)
		return -ENOMEM;
	for (size_t i = 0; i < o->call_count; i++) {
		const struct op_call *c = &o->calls[i];
		uint32_t op;

		if ((w->family == OP_NAMED && c->named) || (w->family == OP_TURN && c->no_turn))
			continue;
		op = owner_of(w, c);
		if (op != NO_OP)
			(*charges)[(*count)++] = (struct op_charge){.op = op, .call = (uint32_t)i};
	}
	return 0;
}

/* Operations that calls may belong to, which are charged to none. */
static void find_clouded(struct owners *w)
{
	struct ops *o = w->o;
	uint32_t call;

	sort_entries(&w->unclear);
	for (size_t i = 0; i < o->operation_count; i++) {
		const struct op_operation *p = &o->operations[i].is;

		if (p->family == w->family && o->operations[i].told)
			o->groups[o->operations[i].group].clouded +=
				index_find(&w->unclear, key_of(BY_PROCESS, p->pid, 0, 0), p->begin_ns, p->end_ns,
					   &call) != FOUND_NONE;
	}
}

static bool is_part(const struct ops *o, const struct op_index *requests, const struct op_operation *p)
{
	uint32_t op;

	/* Of requests that began by then, the one that ends last. */
	return p->single && p->family == OP_TURN &&
	       index_find(requests, key_of(BY_PROCESS, p->pid, 0, 0), p->begin_ns, p->begin_ns + 1, &op) !=
		       FOUND_NONE &&
	       contains(&o->operations[op].is, p);
}

/* What such a turn was is no other turn's. */
static void take_calls(struct ops *o, const struct op_index *turns)
{
	for (size_t i = 0; i < o->call_count; i++) {
		struct op_call *c = &o->calls[i];
		uint32_t op;

		if (c->lane && index_find(turns, key_of(BY_LANE, c->pid, 0, c->lane), c->begin_ns, c->begin_ns + 1,
					  &op) == FOUND_ONE)
			c->no_turn |= o->operations[op].is.single;
	}
}

int op_drop_parts(struct ops *o)
{
	struct op_index requests = {0}, turns = {0};
	size_t kept = 0;
	int err;

	err = index_build(o, &requests, OP_REQUEST, BY_PROCESS);
	if (!err)
		err = index_build(o, &turns, OP_TURN, BY_LANE);
	if (!err) {
		for (size_t i = 0; i < o->operation_count; i++)
			o->operations[i].is.single = is_part(o, &requests, &o->operations[i].is);
		take_calls(o, &turns);
		for (size_t i = 0; i < o->operation_count; i++)
			if (!o->operations[i].is.single)
				o->operations[kept++] = o->operations[i];
		o->operation_count = kept;
	}
	free(requests.e);
	free(turns.e);
	return err;
}

int op_charge_calls(struct ops *o, enum op_family family, struct op_charge **charges, size_t *count)
{
	struct owners w = {.o = o, .family = family};
	int err = 0;

	for (int by = 0; by < BYS && !err; by++) {
		err = index_build(o, &w.by[by], family, by);
		if (!err)
			err = mark_beside(&w, by);
	}
	for (int f = 0; f < OP_FAMILIES && !err; f++)
		if (family != OP_REQUEST && f != (int)family && f != OP_NAMED)
			err = index_build(o, &w.others[f], (enum op_family)f, BY_PROCESS);
	if (!err)
		err = find_processes(&w);
	if (!err) {
		tell_apart(&w);
		err = charge(&w, charges, count);
	}
	if (!err)
		find_clouded(&w);
	for (int by = 0; by < BYS; by++) {
		free(w.by[by].e);
		free(w.beside[by]);
	}
	for (int f = 0; f < OP_FAMILIES; f++)
		free(w.others[f].e);
	free(w.unclear.e);
	free(w.processes);
	return err;
}
