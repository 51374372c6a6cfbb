/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "attempts.h"

#include <stdlib.h>
#include <string.h>

struct entry {
	uint64_t cookie;
	struct attempt a;
};

struct attempts {
	struct attempts_sink sink;
	struct entry entries[ATTEMPTS_MAX]; /* the oldest first */
	size_t count;
	uint64_t second; /* of the last one that was told, and how many were of it */
	unsigned told;
};

struct attempts *attempts_new(const struct attempts_sink *sink)
{
	struct attempts *t = calloc(1, sizeof(*t));

	if (t)
		t->sink = *sink;
	return t;
}

void attempts_free(struct attempts *t)
{
	free(t);
}

static void take_out(struct attempts *t, size_t i)
{
	t->count--;
	memmove(&t->entries[i], &t->entries[i + 1], (t->count - i) * sizeof(t->entries[0]));
}

static void tell(struct attempts *t, size_t i)
{
	struct attempt a = t->entries[i].a;

	take_out(t, i);
	if (a.end_ns / 1000000000 != t->second)
		t->told = 0;
	t->second = a.end_ns / 1000000000;
	a.drawn = t->told++ < ATTEMPTS_DRAWN;
	t->sink.on_attempt(t->sink.ctx, &a);
}

static void add(struct attempts *t, const struct rec_sock *r, bool goes_on)
{
	if (t->count == ATTEMPTS_MAX) {
		if (t->entries[0].a.unfinished)
			take_out(t, 0);
		else
			tell(t, 0);
	}
	t->entries[t->count++] = (struct entry){.cookie = r->cookie,
						.a = {.tgid = r->tgid,
						      .remote = r->remote,
						      .begin_ns = goes_on ? r->ts_ns : r->begin_ns,
						      .end_ns = r->ts_ns,
						      .error = r->error,
						      .unfinished = goes_on}};
}

/* It does not go on any more. */
static void forget(struct attempts *t, uint64_t cookie)
{
	for (size_t i = t->count; i > 0; i--)
		if (t->entries[i - 1].cookie == cookie && t->entries[i - 1].a.unfinished) {
			take_out(t, i - 1);
			return;
		}
}

/* A connection was made: those that failed right before it, or beside it, were on its way. */
static void join(struct attempts *t, const struct rec_sock *r)
{
	for (size_t i = t->count; i > 0; i--) {
		const struct attempt *a = &t->entries[i - 1].a;

		if (!a->unfinished && a->tgid == r->tgid && a->remote.port == r->remote.port &&
		    a->end_ns + ATTEMPT_NEXT_NS >= r->begin_ns)
			take_out(t, i - 1);
	}
}

void attempts_push_sock(struct attempts *t, const struct rec_sock *r)
{
	bool timed = r->begin_ns && r->begin_ns <= r->ts_ns;

	switch (r->what) {
	case SOCK_CONNECTING:
		add(t, r, true);
		break;
	case SOCK_CONNECTED:
		forget(t, r->cookie);
		if (timed)
			join(t, r);
		break;
	case SOCK_CONNECT_FAILED:
		forget(t, r->cookie);
		if (timed && (r->error || r->ts_ns - r->begin_ns >= ATTEMPT_GIVEN_UP_NS))
			add(t, r, false);
		break;
	default:
		break;
	}
}

void attempts_tick(struct attempts *t, uint64_t now_ns)
{
	for (size_t i = 0; i < t->count;) {
		const struct attempt *a = &t->entries[i].a;

		if (!a->unfinished && a->end_ns + ATTEMPT_SETTLE_NS <= now_ns)
			tell(t, i);
		else
			i++;
	}
}

void attempts_finish(struct attempts *t, uint64_t now_ns)
{
	while (t->count) {
		struct attempt *a = &t->entries[0].a;

		if (a->unfinished && a->begin_ns + ATTEMPT_GIVEN_UP_NS > now_ns) {
			take_out(t, 0);
			continue;
		}
		a->end_ns = a->unfinished ? now_ns : a->end_ns;
		tell(t, 0);
	}
}
