/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "beside.h"

#include <stdlib.h>

#include <utlist.h>

struct waiting {
	struct call call; /* a copy; class_open_ns 0: only its order keeps it */
	uint64_t until_ns;
	struct waiting *prev, *next;
};

struct beside {
	struct lost *lost;
	struct beside_sink sink;
	struct waiting *first; /* in the order of their ends */
	size_t count;
};

struct beside *beside_new(struct lost *lost, const struct beside_sink *sink)
{
	struct beside *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->lost = lost;
	b->sink = *sink;
	return b;
}

static void drop(struct beside *b, struct waiting *w)
{
	DL_DELETE(b->first, w);
	b->count--;
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
	b->sink.on_call(b->sink.ctx, &w->call);
	drop(b, w);
}

static bool same_process(const struct call *c, uint32_t tgid, uint64_t start_ns)
{
	return c->conn.tgid == tgid && c->conn.start_ns == start_ns;
}

/* The last one of its process that waits; NULL: none does. */
static const struct waiting *before(const struct beside *b, const struct call *c)
{
	const struct waiting *w, *found = NULL;

	DL_FOREACH (b->first, w)
		if (same_process(&w->call, c->conn.tgid, c->conn.start_ns))
			found = w;
	return found;
}

void beside_push(struct beside *b, const struct call *c)
{
	const struct waiting *last = before(b, c);
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
	w->until_ns = c->class_open_ns;
	if (last && w->until_ns < last->until_ns)
		w->until_ns = last->until_ns;
	DL_APPEND(b->first, w);
	if (++b->count > BESIDE_MAX)
		tell(b, b->first);
}

static void settle(struct beside *b, const struct proc_key *process, bool aux)
{
	struct waiting *w, *next;

	DL_FOREACH_SAFE (b->first, w, next) {
		if (!same_process(&w->call, process->tgid, process->start_ns))
			continue;
		if (aux && w->call.class_open_ns)
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

	DL_FOREACH_SAFE (b->first, w, next)
		if (w->until_ns <= now_ns)
			tell(b, w);
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
		fn(ctx, &w->call);
}

uint64_t beside_first_ns(const struct beside *b)
{
	uint64_t first_ns = UNKNOWN_NS, begin_ns, end_ns;
	const struct waiting *w;

	DL_FOREACH (b->first, w) {
		call_bounds(&w->call, &begin_ns, &end_ns);
		first_ns = begin_ns < first_ns ? begin_ns : first_ns;
	}
	return first_ns;
}
