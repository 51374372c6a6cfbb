/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tunnels.h"

#include <stdlib.h>
#include <string.h>

#define STATUS_BEHIND 9			  /* bytes of "HTTP/1.1 " */
#define STATUS_LINE   (STATUS_BEHIND + 3) /* of the line, up to the end of the status */

struct entry {
	uint64_t cookie;
	uint64_t asked_ns, closed_ns; /* closed: by the proxy, whose answer may lie unread; UNKNOWN_NS: not */
	struct attempt a;	      /* status 0: no answer yet */
	char line[STATUS_LINE];	      /* of the answer, so far: some clients read it byte by byte */
	size_t line_len;
	char host[TUNNEL_HOST_MAX + 1];
};

struct tunnels {
	struct attempts *attempts;
	struct entry entries[TUNNELS_MAX]; /* the oldest first */
	size_t count;
};

struct tunnels *tunnels_new(struct attempts *attempts)
{
	struct tunnels *t = calloc(1, sizeof(*t));

	if (t)
		t->attempts = attempts;
	return t;
}

void tunnels_free(struct tunnels *t)
{
	free(t);
}

static void take_out(struct tunnels *t, size_t i)
{
	t->count--;
	memmove(&t->entries[i], &t->entries[i + 1], (t->count - i) * sizeof(t->entries[0]));
}

/* count: there is none. */
static size_t find(const struct tunnels *t, uint64_t cookie)
{
	size_t i = 0;

	while (i < t->count && t->entries[i].cookie != cookie)
		i++;
	return i;
}

static void tell(struct tunnels *t, struct entry *e, enum attempt_what what, uint64_t end_ns)
{
	e->a.what = what;
	e->a.end_ns = end_ns;
	e->a.host = *e->host ? e->host : NULL;
	attempts_push(t->attempts, &e->a);
}

/* "HOST:PORT HTTP/1.1"; no name where that is cut, or it is an address in brackets. */
static void note_host(struct entry *e, struct sv line)
{
	struct sv rest, target = sv_cut(line, ' ', &rest), port;
	struct sv host = sv_cut(target, ':', &port);

	if (!sv_starts(rest, SV("HTTP/1.")) || !port.len || memchr(port.ptr, '@', port.len) || !host.len ||
	    host.len > TUNNEL_HOST_MAX)
		return;
	for (size_t i = 0; i < host.len; i++)
		if (host.ptr[i] <= ' ' || host.ptr[i] > '~' || host.ptr[i] == '[' || host.ptr[i] == '@')
			return;
	memcpy(e->host, host.ptr, host.len);
}

static void ask(struct tunnels *t, const struct rec_tunnel *r)
{
	const struct sv method = SV("CONNECT ");
	size_t i = find(t, r->cookie);
	struct entry *e;

	if (!sv_starts(r->bytes, method))
		return;
	if (i == t->count && t->count == TUNNELS_MAX) {
		take_out(t, 0);
		i = t->count;
	}
	e = &t->entries[i];
	t->count += i == t->count;
	*e = (struct entry){.cookie = r->cookie,
			    .asked_ns = r->ts_ns,
			    .closed_ns = UNKNOWN_NS,
			    .a = {.tgid = r->tgid,
				  .remote = r->remote,
				  .begin_ns = r->begin_ns <= r->ts_ns ? r->begin_ns : r->ts_ns,
				  .tls_begin_ns = UNKNOWN_NS}};
	note_host(e, (struct sv){r->bytes.ptr + method.len, r->bytes.len - method.len});
}

/* Of a status line; 0: it is none. */
static int status_of(const char line[STATUS_LINE])
{
	int status = 0;

	if (!sv_starts((struct sv){line, STATUS_LINE}, SV("HTTP/1.")) || line[STATUS_BEHIND - 1] != ' ')
		return 0;
	for (size_t i = STATUS_BEHIND; i < STATUS_LINE; i++) {
		if (line[i] < '0' || line[i] > '9')
			return 0;
		status = status * 10 + line[i] - '0';
	}
	return status;
}

static void answer(struct tunnels *t, const struct rec_tunnel *r)
{
	size_t i = find(t, r->cookie), n;
	struct entry *e = &t->entries[i];
	int status;

	if (i == t->count || e->a.status)
		return;
	n = STATUS_LINE - e->line_len < r->bytes.len ? STATUS_LINE - e->line_len : r->bytes.len;
	if (n)
		memcpy(e->line + e->line_len, r->bytes.ptr, n);
	e->line_len += n;
	if (e->line_len < STATUS_LINE)
		return;
	status = status_of(e->line);
	if (status / 100 == 1) {
		e->line_len = 0;
	} else if (!status || status / 100 == 2) { /* what that is nobody knows, or there it is */
		take_out(t, i);
	} else {
		e->a.status = status;
		e->a.end_ns = r->ts_ns;
	}
}

void tunnels_push(struct tunnels *t, const struct rec_tunnel *r)
{
	if (r->dir == DIR_TX)
		ask(t, r);
	else
		answer(t, r);
}

/* The connection is over, or all is: nothing more will be read. */
static void settle(struct tunnels *t, struct entry *e, uint64_t now_ns)
{
	if (e->a.status)
		tell(t, e, ATTEMPT_TUNNEL_REFUSED, e->a.end_ns);
	else if (!e->line_len && e->closed_ns != UNKNOWN_NS)
		tell(t, e, ATTEMPT_TUNNEL_CLOSED, e->closed_ns);
	else if (!e->line_len && e->asked_ns + ATTEMPT_GIVEN_UP_NS <= now_ns)
		tell(t, e, ATTEMPT_TUNNEL_UNANSWERED, now_ns);
}

void tunnels_push_sock(struct tunnels *t, const struct rec_sock *r)
{
	enum sock_closer closer = sock_closer_of(r->what);
	size_t i = closer || r->what == SOCK_CLOSED ? find(t, r->cookie) : t->count;
	struct entry *e = &t->entries[i];

	if (i == t->count)
		return;
	if (closer == SOCK_CLOSER_REMOTE) {
		e->closed_ns = e->closed_ns == UNKNOWN_NS ? r->ts_ns : e->closed_ns;
		return;
	}
	settle(t, e, r->ts_ns);
	take_out(t, i);
}

void tunnels_tick(struct tunnels *t, uint64_t now_ns)
{
	for (size_t i = 0; i < t->count;) {
		struct entry *e = &t->entries[i];

		if (e->a.status && e->a.end_ns + TUNNEL_SETTLE_NS <= now_ns) {
			tell(t, e, ATTEMPT_TUNNEL_REFUSED, e->a.end_ns);
			take_out(t, i);
		} else {
			i++;
		}
	}
}

void tunnels_finish(struct tunnels *t, uint64_t now_ns)
{
	for (size_t i = 0; i < t->count; i++) {
		struct entry *e = &t->entries[i];

		e->a.unfinished = !e->a.status && e->closed_ns == UNKNOWN_NS;
		settle(t, e, now_ns);
	}
	t->count = 0;
}
