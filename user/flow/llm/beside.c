/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "beside.h"

#include <stdlib.h>

#include <utlist.h>

struct waiting {
	struct proc_key process;
	bool is_call;	      /* else a load */
	struct call call;     /* a copy; class_open_ns 0: only its order keeps it */
	struct interval load; /* when, */
	uint64_t busy_ns;     /* and how much */
	uint64_t until_ns;
	struct waiting *prev, *next;
};

struct beside {
	struct lost *lost;
	struct beside_sink sink;
	struct waiting *first; /* in the order of their ends */
	size_t count;
	uint64_t next_ns; /* nobody's time is up before; it may be that of one who is gone */
};

struct beside *beside_new(struct lost *lost, const struct beside_sink *sink)
{
	struct beside *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->lost = lost;
	b->sink = *sink;
	b->next_ns = UNKNOWN_NS;
	return b;
}

static void drop(struct beside *b, struct waiting *w)
{
	DL_DELETE(b->first, w);
	b->count--;
	if (w->is_call)
		call_release(&w->call);
	free(w);
}

void beside_free(struct beside *b)
{
	if (!b)
		return;
	while (b->first)
		drop(b, b->first);
	free(b);
}

static void tell(struct beside *b, struct waiting *w)
{
	if (w->is_call)
		b->sink.on_call(b->sink.ctx, &w->call);
	else
		b->sink.on_load(b->sink.ctx, &w->process, &w->load, w->busy_ns);
	drop(b, w);
}

/* The last of a process that waits; NULL: none does. From the end: a process that has many there has the latest, too.
 */
static const struct waiting *before(const struct beside *b, const struct proc_key *process)
{
	const struct waiting *w = b->first ? b->first->prev : NULL; /* the last */

	while (w && !proc_key_same_process(&w->process, process))
		w = w == b->first ? NULL : w->prev;
	return w;
}

static void wait_behind(struct beside *b, struct waiting *w, const struct waiting *last, uint64_t until_ns)
{
	w->until_ns = last && until_ns < last->until_ns ? last->until_ns : until_ns;
	if (w->until_ns < b->next_ns)
		b->next_ns = w->until_ns;
	DL_APPEND(b->first, w);
	if (++b->count > BESIDE_MAX)
		tell(b, b->first);
}

void beside_push(struct beside *b, const struct call *c)
{
	const struct proc_key process = proc_key_of(&c->conn);
	const struct waiting *last = before(b, &process);
	struct waiting *w = c->class_open_ns || last ? calloc(1, sizeof(*w)) : NULL;

	if (w && call_copy(&w->call, c)) {
		free(w);
		w = NULL;
	}
	if (!w) {
		b->lost->n[LOST_NO_MEMORY] += c->class_open_ns || last;
		b->sink.on_call(b->sink.ctx, c);
		return;
	}
	w->process = process;
	w->is_call = true;
	wait_behind(b, w, last, c->class_open_ns);
}

void beside_push_load(struct beside *b, const struct proc_key *process, const struct interval *at, uint64_t busy_ns)
{
	const struct waiting *last = before(b, process);
	struct waiting *w = last ? calloc(1, sizeof(*w)) : NULL;

	if (!w) {
		b->lost->n[LOST_NO_MEMORY] += last != NULL;
		b->sink.on_load(b->sink.ctx, process, at, busy_ns);
		return;
	}
	w->process = *process;
	w->load = *at;
	w->busy_ns = busy_ns;
	wait_behind(b, w, last, 0);
}

static void settle(struct beside *b, const struct proc_key *process, bool aux)
{
	struct waiting *w, *next;

	DL_FOREACH_SAFE (b->first, w, next) {
		if (!proc_key_same_process(&w->process, process))
			continue;
		if (aux && w->is_call && w->call.class_open_ns)
			w->call.class = CALL_AUX;
		tell(b, w);
	}
}

void beside_main(struct beside *b, const struct proc_key *process)
{
	settle(b, process, true);
}

void beside_gone(struct beside *b, const struct proc_key *process)
{
	settle(b, process, false);
}

void beside_tick(struct beside *b, uint64_t now_ns)
{
	struct waiting *w, *next;

	if (now_ns < b->next_ns)
		return;
	b->next_ns = UNKNOWN_NS;
	DL_FOREACH_SAFE (b->first, w, next)
		if (w->until_ns <= now_ns)
			tell(b, w);
		else if (w->until_ns < b->next_ns)
			b->next_ns = w->until_ns;
}

void beside_finish(struct beside *b)
{
	while (b->first)
		tell(b, b->first);
}

void beside_each(const struct beside *b, void (*fn)(void *ctx, const struct call *c), void *ctx)
{
	const struct waiting *w;

	DL_FOREACH (b->first, w)
		if (w->is_call)
			fn(ctx, &w->call);
}

uint64_t beside_first_ns(const struct beside *b)
{
	uint64_t first_ns = UNKNOWN_NS, begin_ns, end_ns;
	const struct waiting *w;

	DL_FOREACH (b->first, w) {
		if (!w->is_call)
			continue;
		call_bounds(&w->call, &begin_ns, &end_ns);
		first_ns = begin_ns < first_ns ? begin_ns : first_ns;
	}
	return first_ns;
}
