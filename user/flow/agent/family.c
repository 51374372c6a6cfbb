/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/err.h"
#include "base/hash.h"

/* One incarnation of a pid. The start time is part of the identity, the exec count is not. */
struct birth_key {
	uint64_t start_ns;
	uint32_t tgid;
	uint32_t zero;
};

struct birth {
	struct birth_key key, parent; /* parent: start_ns 0 when it is not known */
	struct family_member member;
	struct birth *prev, *next; /* in order of birth */
	UT_hash_handle hh, hh_pid;
};

struct family {
	struct birth *by_key;
	struct birth *by_pid; /* the latest of each pid */
	struct birth *oldest;
};

struct family *family_new(void)
{
	return calloc(1, sizeof(struct family));
}

static void forget(struct family *f, struct birth *b)
{
	HASH_DEL(f->by_key, b);
	if (b->hh_pid.tbl)
		HASH_DELETE(hh_pid, f->by_pid, b);
	DL_DELETE(f->oldest, b);
	free(b);
}

void family_free(struct family *f)
{
	if (!f)
		return;
	while (f->oldest)
		forget(f, f->oldest);
	free(f);
}

static struct birth *find(const struct family *f, const struct birth_key *key)
{
	struct birth *b;

	HASH_FIND(hh, f->by_key, key, sizeof(*key), b);
	return b;
}

static struct birth_key key_of(const struct proc_key *k)
{
	return (struct birth_key){.start_ns = k->start_ns, .tgid = k->tgid};
}

/* The parent at birth: the latest process of that pid, if it was born before. */
static struct birth_key parent_at_birth(const struct family *f, uint32_t ppid, uint64_t begin_ns)
{
	struct birth *b;

	HASH_FIND(hh_pid, f->by_pid, &ppid, sizeof(ppid), b);
	return b && b->key.start_ns <= begin_ns ? b->key : (struct birth_key){.tgid = ppid};
}

static int begun_before(const struct birth *a, const struct birth *b)
{
	return (a->member.at.begin_ns > b->member.at.begin_ns) - (a->member.at.begin_ns < b->member.at.begin_ns);
}

/* Puts it into both indexes; false without memory. */
static bool index_birth(struct family *f, struct birth *b)
{
	struct birth *before;

	HASH_ADD(hh, f->by_key, key, sizeof(b->key), b);
	if (!b->hh.tbl)
		return false;
	HASH_FIND(hh_pid, f->by_pid, &b->key.tgid, sizeof(b->key.tgid), before);
	if (before) {
		HASH_DELETE(hh_pid, f->by_pid, before);
		before->hh_pid.tbl = NULL;
	}
	HASH_ADD(hh_pid, f->by_pid, key.tgid, sizeof(b->key.tgid), b);
	if (b->hh_pid.tbl)
		return true;
	HASH_DEL(f->by_key, b);
	return false;
}

/* The oldest that has ended, since one that runs may still have children; of so many that run, the oldest. */
static void make_room(struct family *f)
{
	struct birth *b = f->oldest;

	if (HASH_COUNT(f->by_key) <= FAMILY_MAX)
		return;
	while (b && b->member.at.end_ns == UNKNOWN_NS)
		b = b->next;
	forget(f, b ? b : f->oldest);
}

static struct birth *make(struct family *f, const struct proc *p)
{
	struct birth *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->key = key_of(&p->key);
	b->parent = parent_at_birth(f, p->ppid, p->begin_ns);
	b->member.key = (struct proc_key){.tgid = p->key.tgid, .start_ns = p->key.start_ns};
	b->member.at = (struct interval){p->begin_ns, UNKNOWN_NS};
	if (!index_birth(f, b)) {
		free(b);
		return NULL;
	}
	/* Births are told in order, nearly always. */
	if (f->oldest && begun_before(f->oldest->prev, b) > 0)
		DL_INSERT_INORDER(f->oldest, b, begun_before);
	else
		DL_APPEND(f->oldest, b);
	make_room(f);
	return b;
}

int family_push(struct family *f, const struct proc *p)
{
	struct birth_key key = key_of(&p->key);
	struct birth *b = find(f, &key);

	if (!b)
		b = make(f, p);
	if (!b)
		return -ENOMEM;
	snprintf(b->member.program, sizeof(b->member.program), "%s", p->name);
	if (p->tool_call_id)
		snprintf(b->member.tool_id, sizeof(b->member.tool_id), "%s", p->tool_call_id);
	b->member.shown_pid = p->shown_pid;
	b->member.at.end_ns = p->end_ns;
	b->member.code = p->code;
	b->member.signal = p->signal;
	b->member.cpu_ns = p->cpu_ns;
	return 0;
}

static bool descends(const struct family *f, const struct birth *b, const struct birth_key *agent)
{
	for (unsigned i = 0; b && i < FAMILY_DEPTH; i++) {
		if (!memcmp(&b->parent, agent, sizeof(*agent)))
			return true;
		b = find(f, &b->parent);
	}
	return false;
}

size_t family_born(const struct family *f, const struct proc_key *agent, uint64_t from, uint64_t to,
		   const struct family_member **out, size_t max)
{
	struct birth_key key = key_of(agent);
	struct birth *b = f->oldest ? f->oldest->prev : NULL;
	size_t n = 0;

	if (!b)
		return 0;
	while (b != f->oldest && b->member.at.begin_ns >= from)
		b = b->prev;
	for (; b && n < max && b->member.at.begin_ns < to; b = b->next) {
		struct birth *parent;

		if (b->member.at.begin_ns < from)
			continue;
		parent = find(f, &b->parent);
		if (parent && parent->member.at.begin_ns >= from)
			continue;
		if (descends(f, b, &key))
			out[n++] = &b->member;
	}
	return n;
}

void family_claim(struct family *f, const struct family_member *m, bool disputed)
{
	struct birth_key key = key_of(&m->key);
	struct birth *b = find(f, &key);

	if (b && disputed)
		b->member.disputed = true;
	else if (b)
		b->member.claimed = true;
}

uint64_t family_end(const struct family *f, const struct proc_key *k)
{
	struct birth_key key = key_of(k);
	const struct birth *b = find(f, &key);

	return b ? b->member.at.end_ns : UNKNOWN_NS;
}

bool family_ancestor(const struct family *f, const struct proc_key *of, bool (*is)(void *ctx, const struct proc_key *k),
		     void *ctx, struct proc_key *out)
{
	struct birth_key key = key_of(of);
	struct birth *b = find(f, &key);

	for (unsigned i = 0; b && i < FAMILY_DEPTH; i++) {
		struct proc_key parent = {.tgid = b->parent.tgid, .start_ns = b->parent.start_ns};

		if (!parent.start_ns)
			return false;
		if (is(ctx, &parent)) {
			*out = parent;
			return true;
		}
		b = find(f, &b->parent);
	}
	return false;
}
