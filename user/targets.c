/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "targets.h"

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"

struct entry {
	uint32_t tgid;
	uint64_t start_ns; /* 0: not known */
	struct target_files files;
	UT_hash_handle hh;
};

struct targets {
	bool all;
	const struct target_filter *filter;
	struct entry *entries;
	uint32_t ended[TARGETS_ENDED_MAX]; /* a ring */
	unsigned ended_count;		   /* ever */
};

struct targets *targets_new(void)
{
	return calloc(1, sizeof(struct targets));
}

void targets_free(struct targets *t)
{
	struct entry *e, *tmp;

	if (!t)
		return;
	HASH_ITER (hh, t->entries, e, tmp) {
		HASH_DEL(t->entries, e);
		free(e);
	}
	free(t);
}

void targets_set_all(struct targets *t)
{
	t->all = true;
}

void targets_set_filter(struct targets *t, const struct target_filter *f)
{
	t->filter = f;
}

static struct entry *find(const struct targets *t, uint32_t tgid)
{
	struct entry *e;

	HASH_FIND(hh, t->entries, &tgid, sizeof(tgid), e);
	return e;
}

int targets_add(struct targets *t, uint32_t tgid, uint64_t start_ns)
{
	struct entry *e;

	if (find(t, tgid))
		return 0;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->tgid = tgid;
	e->start_ns = start_ns;
	HASH_ADD(hh, t->entries, tgid, sizeof(e->tgid), e);
	if (!e->hh.tbl) {
		free(e);
		return -ENOMEM;
	}
	return 0;
}

void targets_remove(struct targets *t, uint32_t tgid)
{
	struct entry *e = find(t, tgid);

	if (!e)
		return;
	HASH_DEL(t->entries, e);
	free(e);
	t->ended[t->ended_count++ % TARGETS_ENDED_MAX] = tgid;
}

bool targets_had(const struct targets *t, uint32_t tgid)
{
	for (unsigned i = 0; i < TARGETS_ENDED_MAX && i < t->ended_count; i++)
		if (t->ended[i] == tgid)
			return true;
	return false;
}

uint64_t targets_start(const struct targets *t, uint32_t tgid)
{
	const struct entry *e = find(t, tgid);

	return e ? e->start_ns : 0;
}

bool targets_has(const struct targets *t, uint32_t tgid)
{
	return find(t, tgid) != NULL;
}

size_t targets_count(const struct targets *t)
{
	return HASH_COUNT(t->entries);
}

void targets_each(const struct targets *t, void (*fn)(void *ctx, uint32_t tgid), void *ctx)
{
	struct entry *e, *tmp;

	HASH_ITER (hh, t->entries, e, tmp)
		fn(ctx, e->tgid);
}

struct target_files *targets_files(struct targets *t, uint32_t tgid)
{
	struct entry *e = find(t, tgid);

	return e ? &e->files : NULL;
}

enum targets_verdict targets_exec(struct targets *t, const struct rec_exec *r)
{
	struct entry *e = find(t, r->proc.tgid);

	if (e && !r->already_running)
		e->files = (struct target_files){0};
	if (e)
		return TARGETS_OLD;
	if (!t->all && (!t->filter || !target_filter_match(t->filter, (pid_t)r->proc.tgid, r->filename, r->args)))
		return TARGETS_OTHER;
	return targets_add(t, r->proc.tgid, r->proc.start_ns) ? TARGETS_OTHER : TARGETS_NEW;
}

bool targets_fork(struct targets *t, const struct rec_fork *r)
{
	const struct entry *parent = find(t, r->parent_tgid);
	struct entry *child;

	if ((!t->all && !parent) || targets_add(t, r->child_tgid, r->child_start_ns))
		return false;
	child = find(t, r->child_tgid);
	if (parent && child) {
		child->files = parent->files;
		child->files.gone = false;
	}
	return true;
}
