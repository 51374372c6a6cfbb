/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "coverage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct row_key {
	uint64_t start_ns;
	uint32_t tgid;
	uint32_t zero;
};

struct row {
	struct row_key key;
	struct coverage_row row;
	UT_hash_handle hh;
};

struct coverage {
	struct lost *lost;
	bool callers_only;
	struct row *rows;
	struct row *names; /* by row.process, of later processes */
};

struct coverage *coverage_new(struct lost *lost)
{
	struct coverage *t = calloc(1, sizeof(*t));

	if (t)
		t->lost = lost;
	return t;
}

void coverage_free(struct coverage *t)
{
	struct row *r, *tmp;

	if (!t)
		return;
	HASH_ITER (hh, t->rows, r, tmp) {
		HASH_DEL(t->rows, r);
		free(r);
	}
	HASH_ITER (hh, t->names, r, tmp) {
		HASH_DEL(t->names, r);
		free(r);
	}
	free(t);
}

/* The row of all later processes of that name. NULL: no memory. */
static struct row *find_name(struct coverage *t, const char *process)
{
	char name[sizeof(((struct coverage_row *)NULL)->process)];
	struct row *r;

	snprintf(name, sizeof(name), "%s", process);
	HASH_FIND_STR(t->names, name, r);
	if (!r && HASH_COUNT(t->names) >= COVERAGE_NAMES_MAX) {
		snprintf(name, sizeof(name), "(others)");
		HASH_FIND_STR(t->names, name, r);
	}
	if (r)
		return r;
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	memcpy(r->row.process, name, sizeof(name));
	HASH_ADD_STR(t->names, row.process, r);
	if (r->hh.tbl)
		return r;
	free(r);
	return NULL;
}

/* NULL: no memory. */
static struct row *find(struct coverage *t, const struct proc *p)
{
	struct row_key key = {.start_ns = p->key.start_ns, .tgid = p->key.tgid};
	struct row *r;

	HASH_FIND(hh, t->rows, &key, sizeof(key), r);
	if (r)
		return r;
	if (HASH_COUNT(t->rows) >= COVERAGE_ROWS_MAX)
		return find_name(t, p->name);
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->key = key;
	r->row.pid = key.tgid;
	r->row.processes = 1;
	HASH_ADD(hh, t->rows, key, sizeof(key), r);
	if (r->hh.tbl)
		return r;
	free(r);
	return NULL;
}

/* NULL: counted as lost. The last name that a process had is the one people know it by. */
static struct coverage_row *row_of(struct coverage *t, const struct proc *p)
{
	struct row *r = find(t, p);

	if (!r) {
		t->lost->n[LOST_NO_MEMORY]++;
		return NULL;
	}
	if (r->row.processes)
		snprintf(r->row.process, sizeof(r->row.process), "%s", p->name);
	return &r->row;
}

/* Both tables, in the order in which they were filled. */
static const struct row *first_row(const struct coverage *t)
{
	return t->rows ? t->rows : t->names;
}

static const struct row *next_row(const struct coverage *t, const struct row *r)
{
	return r->hh.next ? r->hh.next : r->row.processes ? t->names : NULL;
}

void coverage_push_conn(struct coverage *t, const struct proc *p, enum coverage_kind kind, const char *reason)
{
	struct coverage_row *r = row_of(t, p);

	if (!r)
		return;
	r->connections++;
	r->kinds[kind]++;
	if (reason)
		snprintf(r->reason, sizeof(r->reason), "%s", reason);
}

void coverage_push_call(struct coverage *t, const struct proc *p)
{
	struct coverage_row *r = row_of(t, p);

	if (r)
		r->calls++;
}

struct group {
	struct coverage_row row;
	UT_hash_handle hh; /* by row.process */
};

static void groups_free(struct group *groups)
{
	struct group *g, *tmp;

	HASH_ITER (hh, groups, g, tmp) {
		HASH_DEL(groups, g);
		free(g);
	}
}

static void group_add(struct coverage_row *to, const struct coverage_row *r)
{
	to->processes += r->processes;
	to->connections += r->connections;
	to->calls += r->calls;
	for (int i = 0; i < COVERAGE_KINDS; i++)
		to->kinds[i] += r->kinds[i];
	if (r->reason[0])
		memcpy(to->reason, r->reason, sizeof(to->reason));
}

void coverage_set_callers_only(struct coverage *t, bool on)
{
	t->callers_only = on;
}

static bool is_other(const struct coverage *t, const struct coverage_row *r)
{
	return t->callers_only && !r->calls;
}

static size_t count_rows(const struct coverage *t)
{
	size_t n = 0, others = 0;

	for (const struct row *r = first_row(t); r; r = next_row(t, r)) {
		n += !is_other(t, &r->row);
		others += is_other(t, &r->row);
	}
	return n + (others > 0);
}

/* One row for all that made no call, if they are not to be shown. */
static void tell_others(const struct coverage *t, void (*fn)(void *ctx, const struct coverage_row *r), void *ctx)
{
	struct coverage_row others = {.process = "(others)"};
	bool any = false;

	for (const struct row *r = first_row(t); r; r = next_row(t, r)) {
		if (!is_other(t, &r->row))
			continue;
		group_add(&others, &r->row);
		any = true;
	}
	others.reason[0] = '\0'; /* of one of them, of which nobody would know */
	if (any)
		fn(ctx, &others);
}

void coverage_each(const struct coverage *t, void (*fn)(void *ctx, const struct coverage_row *r), void *ctx)
{
	for (const struct row *r = first_row(t); r; r = next_row(t, r))
		if (!is_other(t, &r->row))
			fn(ctx, &r->row);
	tell_others(t, fn, ctx);
}

/* NULL: no memory. */
static struct group *group_by_name(const struct coverage *t)
{
	struct group *groups = NULL, *g;

	for (const struct row *r = first_row(t); r; r = next_row(t, r)) {
		if (is_other(t, &r->row)) /* added up by the caller */
			continue;
		HASH_FIND_STR(groups, r->row.process, g);
		if (g) {
			group_add(&g->row, &r->row);
			continue;
		}
		g = calloc(1, sizeof(*g));
		if (!g)
			goto no_memory;
		g->row = r->row;
		HASH_ADD_STR(groups, row.process, g);
		if (!g->hh.tbl) {
			free(g);
			goto no_memory;
		}
	}
	return groups;
no_memory:
	groups_free(groups);
	return NULL;
}

int coverage_each_grouped(const struct coverage *t, size_t max_rows,
			  void (*fn)(void *ctx, const struct coverage_row *r), void *ctx)
{
	struct group *groups;

	if (count_rows(t) <= max_rows) {
		coverage_each(t, fn, ctx);
		return 0;
	}
	groups = group_by_name(t);
	if (!groups)
		return -ENOMEM;
	for (struct group *g = groups; g; g = g->hh.next)
		fn(ctx, &g->row);
	tell_others(t, fn, ctx);
	groups_free(groups);
	return 0;
}
