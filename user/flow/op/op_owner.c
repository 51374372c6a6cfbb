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
	bool *beside[BYS]; /* by operation: another one was going on there */
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

static void set_ends(const struct owners *w, struct op_index *index)
{
	for (size_t i = 0; i < index->count; i++) {
		struct op_entry *e = &index->e[i];
		const struct op_entry *before = i && e[-1].key == e->key ? e - 1 : NULL;
		uint64_t end = w->o->operations[e->op].is.end_ns;

		e->last = e->op;
		e->last_end_ns = end;
		e->next_end_ns = before ? before->last_end_ns : 0;
		if (before && before->last_end_ns >= end) {
			e->last = before->last;
			e->last_end_ns = before->last_end_ns;
			e->next_end_ns = before->next_end_ns > end ? before->next_end_ns : end;
		}
	}
}

static int index_build(struct owners *w, int by)
{
	struct op_index *index = &w->by[by];
	const struct ops *o = w->o;

	index->e = calloc(o->operation_count + 1, sizeof(*index->e));
	if (!index->e)
		return -ENOMEM;
	for (size_t i = 0; i < o->operation_count; i++) {
		const struct op_operation *p = &o->operations[i].is;

		if (p->family != w->family || (by == BY_THREAD && !p->tid) || (by == BY_LANE && !p->lane))
			continue;
		index->e[index->count++] = (struct op_entry){
			.key = key_of(by, p->pid, p->tid, p->lane), .begin_ns = p->begin_ns, .op = (uint32_t)i};
	}
	qsort(index->e, index->count, sizeof(*index->e), compare_entries);
	set_ends(w, index);
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
		if (own_thread || (alone && p->is.tid && !process->moves))
			p->view = VIEW_THREAD;
		else if (alone)
			p->view = VIEW_PROCESS;
		o->groups[p->group].refused += !p->told;
	}
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

static bool serves(const struct owners *w, const struct op_call *c)
{
	uint32_t op;

	return index_find(&w->by[BY_THREAD], key_of(BY_THREAD, c->pid, c->tid, 0), 0, UINT64_MAX, &op) != FOUND_NONE;
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
	if (found == FOUND_SEVERAL) {
		t->unclear++;
		return NO_OP;
	}
	if (found == FOUND_NONE ||
	    ((way == &t->by_time || c->inside) &&
	     (w->o->operations[op].is.begin_ns > c->begin_ns || w->o->operations[op].is.end_ns < c->end_ns))) {
		t->outside++;
		return NO_OP;
	}
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
	if (!*charges)
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

int op_charge_calls(struct ops *o, enum op_family family, struct op_charge **charges, size_t *count)
{
	struct owners w = {.o = o, .family = family};
	int err = 0;

	for (int by = 0; by < BYS && !err; by++) {
		err = index_build(&w, by);
		if (!err)
			err = mark_beside(&w, by);
	}
	if (!err)
		err = find_processes(&w);
	if (!err) {
		tell_apart(&w);
		err = charge(&w, charges, count);
	}
	for (int by = 0; by < BYS; by++) {
		free(w.by[by].e);
		free(w.beside[by]);
	}
	free(w.processes);
	return err;
}
