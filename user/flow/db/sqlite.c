/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sqlite.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "names.h"
#include "shape.h"

#define SQLITE_OK   0
#define SQLITE_DONE 101

struct process {
	uint32_t tgid;
	struct proc_key key;
	struct names statements; /* by address */
	UT_hash_handle hh;
};

struct sqlite {
	struct lost *lost;
	struct db_sink sink;
	struct process *processes;
	struct shape shape;
};

struct sqlite *sqlite_new(struct lost *lost, const struct db_sink *sink)
{
	struct sqlite *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->lost = lost;
	t->sink = *sink;
	return t;
}

static void process_free(struct sqlite *t, struct process *p)
{
	HASH_DEL(t->processes, p);
	names_clear(&p->statements);
	free(p);
}

void sqlite_free(struct sqlite *t)
{
	if (!t)
		return;
	while (t->processes)
		process_free(t, t->processes);
	free(t);
}

static bool is_same(const struct proc_key *a, const struct proc_key *b)
{
	return a->tgid == b->tgid && a->exec_id == b->exec_id && a->start_ns == b->start_ns;
}

static struct process *find(const struct sqlite *t, const struct proc_key *key)
{
	struct process *p;

	HASH_FIND(hh, t->processes, &key->tgid, sizeof(key->tgid), p);
	return p && is_same(&p->key, key) ? p : NULL;
}

void sqlite_forget(struct sqlite *t, uint32_t tgid)
{
	struct process *p;

	HASH_FIND(hh, t->processes, &tgid, sizeof(tgid), p);
	if (p)
		process_free(t, p);
}

static struct process *find_or_make(struct sqlite *t, const struct proc_key *key)
{
	struct process *p = find(t, key);

	if (p)
		return p;
	sqlite_forget(t, key->tgid);
	if (HASH_COUNT(t->processes) >= SQLITE_PROCESSES_MAX)
		process_free(t, t->processes); /* the first is the oldest */
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->tgid = key->tgid;
	p->key = *key;
	HASH_ADD(hh, t->processes, tgid, sizeof(p->tgid), p);
	if (p->hh.tbl)
		return p;
	free(p);
	return NULL;
}

static void tell(struct sqlite *t, struct db_command *c, int32_t result)
{
	c->system = "sqlite";
	if (result != SQLITE_OK && result != SQLITE_DONE)
		snprintf(c->error, sizeof(c->error), "%d", result);
	t->sink.on_command(t->sink.ctx, c);
}

/* Of a text that goes on the rest may be anything: the shape says that it does. */
static struct sv shape_of(struct sqlite *t, const struct sqlite_text *e, char out[SHAPE_MAX + 4])
{
	const char *nul = e->text.len ? memchr(e->text.ptr, 0, e->text.len) : NULL;
	size_t len = nul ? (size_t)(nul - e->text.ptr) : e->text.len;
	struct sv shape;

	shape_init(&t->shape, SHAPE_SQLITE, SHAPE_BACKSLASH_PLAIN);
	shape_push(&t->shape, e->text.ptr, len);
	shape = shape_finish(&t->shape);
	memcpy(out, shape.ptr, shape.len);
	if (e->cut && !nul && (shape.len < 3 || memcmp(out + shape.len - 3, "...", 3))) {
		memcpy(out + shape.len, "...", 3);
		shape.len += 3;
	}
	return (struct sv){out, shape.len};
}

void sqlite_push_text(struct sqlite *t, const struct sqlite_text *e)
{
	struct process *p = e->stmt ? find_or_make(t, &e->proc) : NULL;
	bool known = e->text.len || !e->cut;
	struct shape_ref *ref = NULL;
	char text[SHAPE_MAX + 4];
	struct sv shape = known ? shape_of(t, e, text) : SV_NONE;

	if (!e->stmt) {
		tell(t,
		     &(struct db_command){.proc = e->proc,
					  .shape = shape,
					  .start_ns = e->entry_ns,
					  .end_ns = e->ts_ns,
					  .rows = UNKNOWN_COUNT,
					  .tid = e->tid},
		     e->result);
		return;
	}
	if (known)
		ref = shape_ref_new(shape);
	/* Without a text the address is no one's any more. */
	if (!p || (known && !ref) || names_set(&p->statements, &e->stmt, sizeof(e->stmt), ref))
		t->lost->n[LOST_NO_MEMORY]++;
	shape_ref_drop(ref);
}

void sqlite_push_run(struct sqlite *t, const struct sqlite_run *e)
{
	struct process *p = find(t, &e->proc);
	struct shape_ref *ref = p ? names_get(&p->statements, &e->stmt, sizeof(e->stmt)) : NULL;
	bool failed = e->result != SQLITE_OK && e->result != SQLITE_DONE;

	tell(t,
	     &(struct db_command){.proc = e->proc,
				  .shape = shape_ref_text(ref),
				  .start_ns = e->begin_ns,
				  .end_ns = e->end_ns,
				  .rows = failed ? UNKNOWN_COUNT : (int64_t)(e->rows & INT64_MAX),
				  .tid = e->tid},
	     e->result);
}
