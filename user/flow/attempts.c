/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "attempts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	uint64_t cookie;
	bool settled; /* told, or another connection's, or never to be */
	bool joined;  /* a connection that was made began with it */
	struct attempt a;
};

struct attempts {
	struct attempts_sink sink;
	struct entry entries[ATTEMPTS_MAX]; /* the oldest first */
	size_t count;
	uint64_t second; /* of the last one that was told, and how many were of it */
	unsigned told;
};

const char *attempt_error(const struct attempt *a, char text[ATTEMPT_ERROR_BYTES])
{
	static const char *const of_others[] = {
		[ATTEMPT_TLS_UNANSWERED] = "TLS not answered",
		[ATTEMPT_TLS_LOCAL] = "TLS not completed by the client",
		[ATTEMPT_TLS_REMOTE] = "TLS not completed by the server",
		[ATTEMPT_TLS] = "TLS not completed",
		[ATTEMPT_TLS_LEFT] = "TLS completed and left by the client",
		[ATTEMPT_TUNNEL_CLOSED] = "proxy closed without an answer",
		[ATTEMPT_TUNNEL_UNANSWERED] = "proxy did not answer",
	};

	if (a->what == ATTEMPT_TUNNEL_REFUSED) {
		snprintf(text, ATTEMPT_ERROR_BYTES, "proxy answered %d", a->status);
		return text;
	}
	if (a->what != ATTEMPT_TCP)
		return of_others[a->what];
	return a->error ? strerrorname_np(a->error) : NULL;
}

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

void attempts_push(struct attempts *t, const struct attempt *a)
{
	struct attempt told = *a;

	if (a->end_ns / 1000000000 != t->second)
		t->told = 0;
	t->second = a->end_ns / 1000000000;
	told.drawn = t->told++ < ATTEMPTS_DRAWN;
	t->sink.on_attempt(t->sink.ctx, &told);
}

static void tell(struct attempts *t, size_t i)
{
	t->entries[i].settled = true;
	attempts_push(t, &t->entries[i].a);
}

static void make_room(struct attempts *t)
{
	size_t i = 0;

	while (i < t->count && !t->entries[i].settled)
		i++;
	if (i == t->count)
		i = 0;
	if (!t->entries[i].settled && !t->entries[i].a.unfinished)
		tell(t, i);
	take_out(t, i);
}

static void add(struct attempts *t, const struct rec_sock *r, bool goes_on)
{
	if (t->count == ATTEMPTS_MAX)
		make_room(t);
	t->entries[t->count++] =
		(struct entry){.cookie = r->cookie,
			       .settled = !goes_on && !r->error && r->ts_ns - r->begin_ns < ATTEMPT_GIVEN_UP_NS,
			       .a = {.tgid = r->tgid,
				     .remote = r->remote,
				     .begin_ns = goes_on ? r->ts_ns : r->begin_ns,
				     .end_ns = r->ts_ns,
				     .tls_begin_ns = UNKNOWN_NS,
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

static bool is_of(const struct entry *e, uint32_t tgid, uint16_t port)
{
	return !e->a.unfinished && e->a.tgid == tgid && e->a.remote.port == port;
}

/* A connection was made: those that failed one after the other right before it, or beside it, were on its way. When the
 * first of the former began; each is the way of one. */
static uint64_t join(struct attempts *t, const struct rec_sock *r)
{
	uint64_t begin_ns = r->begin_ns;

	for (size_t i = t->count; i > 0; i--) { /* the latest first */
		struct entry *e = &t->entries[i - 1];

		if (e->joined || !is_of(e, r->tgid, r->remote.port) || e->a.end_ns + ATTEMPT_NEXT_NS < begin_ns)
			continue;
		e->settled = true;
		if (e->a.end_ns > begin_ns)
			continue;
		e->joined = true;
		begin_ns = e->a.begin_ns;
	}
	return begin_ns;
}

uint64_t attempts_first(const struct attempts *t, uint32_t tgid, uint16_t port, uint64_t since_ns, uint64_t before_ns,
			bool (*is_one)(const void *ctx, const struct sock_addr *remote), const void *ctx)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct attempt *a = &t->entries[i].a;

		if (is_of(&t->entries[i], tgid, port) && a->begin_ns >= since_ns && a->begin_ns < before_ns &&
		    is_one(ctx, &a->remote))
			before_ns = a->begin_ns;
	}
	return before_ns;
}

bool attempts_wait(const struct attempts *t, uint32_t tgid, uint64_t since_ns,
		   bool (*is_one)(const void *ctx, const struct sock_addr *remote), const void *ctx)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct attempt *a = &t->entries[i].a;

		if (!t->entries[i].settled && a->tgid == tgid && a->begin_ns >= since_ns && is_one(ctx, &a->remote))
			return true;
	}
	return false;
}

uint64_t attempts_push_sock(struct attempts *t, const struct rec_sock *r)
{
	bool timed = r->begin_ns && r->begin_ns <= r->ts_ns;

	switch (r->what) {
	case SOCK_CONNECTING:
		add(t, r, true);
		break;
	case SOCK_CONNECTED:
		forget(t, r->cookie);
		if (timed)
			return join(t, r);
		break;
	case SOCK_CONNECT_FAILED:
		forget(t, r->cookie);
		if (timed)
			add(t, r, false);
		break;
	default:
		break;
	}
	return r->begin_ns;
}

void attempts_tick(struct attempts *t, uint64_t now_ns)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct entry *e = &t->entries[i];

		if (!e->settled && !e->a.unfinished && e->a.end_ns + ATTEMPT_SETTLE_NS <= now_ns)
			tell(t, i);
	}
}

void attempts_finish(struct attempts *t, uint64_t now_ns)
{
	for (size_t i = 0; i < t->count; i++) {
		struct entry *e = &t->entries[i];

		if (e->settled || (e->a.unfinished && e->a.begin_ns + ATTEMPT_GIVEN_UP_NS > now_ns))
			continue;
		e->a.end_ns = e->a.unfinished ? now_ns : e->a.end_ns;
		tell(t, i);
	}
}
