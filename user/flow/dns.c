/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "dns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/err.h"

struct query {
	uint64_t cookie;
	uint64_t answered_ns; /* UNKNOWN_NS: not yet */
	uint32_t tid;
	uint16_t id, type;
	bool truncated; /* so was the answer */
};

#define DNS_PORT 53

struct lookup {
	struct proc_key proc;
	uint32_t tid;
	char name[DNS_NAME_MAX + 1];
	uint64_t begin_ns, answered_ns;	       /* first question, last answer; UNKNOWN_NS: none */
	uint64_t tried_ns;		       /* its addresses were still being tried then; begin_ns: not seen */
	struct query queries[DNS_QUERIES_MAX]; /* the first of them */
	unsigned query_count;		       /* asked */
	struct sock_addr addrs[DNS_ADDRS_MAX];
	size_t addr_count;
	uint64_t tcp_cookie; /* of the socket that it goes on over, 0 none */
	uint64_t joined_ns;  /* when the first connection began that followed, UNKNOWN_NS: none did */
	struct lookup *prev, *next;
};

struct dns {
	struct lost *lost;
	struct dns_sink sink;
	struct lookup *lookups; /* oldest first */
	unsigned count;
	const struct attempts *attempts;
};

struct dns *dns_new(struct lost *lost, const struct dns_sink *sink, const struct attempts *attempts)
{
	struct dns *t = calloc(1, sizeof(*t));

	if (!t) {
		errno = ENOMEM;
		return NULL;
	}
	t->lost = lost;
	t->attempts = attempts;
	if (sink)
		t->sink = *sink;
	return t;
}

static void forget(struct dns *t, struct lookup *l)
{
	DL_DELETE(t->lookups, l);
	t->count--;
	free(l);
}

void dns_free(struct dns *t)
{
	if (!t)
		return;
	while (t->lookups)
		forget(t, t->lookups);
	free(t);
}

static bool same_ip(const struct sock_addr *a, const struct sock_addr *b)
{
	return a->family == b->family && !memcmp(a->ip, b->ip, sizeof(a->ip));
}

static bool has_address(const void *lookup, const struct sock_addr *a)
{
	const struct lookup *l = lookup;

	for (size_t i = 0; i < l->addr_count; i++)
		if (same_ip(&l->addrs[i], a))
			return true;
	return false;
}

static unsigned kept_queries(const struct lookup *l)
{
	return l->query_count < DNS_QUERIES_MAX ? l->query_count : DNS_QUERIES_MAX;
}

static unsigned unanswered_queries(const struct lookup *l)
{
	unsigned n = 0;

	for (unsigned i = 0; i < kept_queries(l); i++)
		n += l->queries[i].answered_ns == UNKNOWN_NS;
	return n;
}

static void tell_and_forget(struct dns *t, struct lookup *l)
{
	const struct dns_lookup told = {
		.proc = l->proc,
		.name = l->name,
		.begin_ns = l->begin_ns,
		.end_ns = l->answered_ns,
		.queries = l->query_count,
		.unanswered = unanswered_queries(l),
		.addr_count = l->addr_count,
	};

	if (l->joined_ns == UNKNOWN_NS && t->sink.on_lookup)
		t->sink.on_lookup(t->sink.ctx, &told);
	forget(t, l);
}

void dns_tick(struct dns *t, uint64_t now_ns)
{
	struct lookup *l, *next;

	for (l = t->lookups; l && now_ns > l->begin_ns && now_ns - l->begin_ns >= DNS_TELL_NS; l = next) {
		next = l->next;
		/* An address that is silent takes minutes to fail, and only then is the next one tried. */
		if (attempts_wait(t->attempts, l->proc.tgid, l->begin_ns, has_address, l))
			l->tried_ns = now_ns;
		if (now_ns - l->tried_ns >= DNS_TELL_NS)
			tell_and_forget(t, l);
	}
}

void dns_finish(struct dns *t)
{
	while (t->lookups)
		tell_and_forget(t, t->lookups);
}

/* --- questions and answers --------------------------------------------------------------------------------------- */

/* A question of it, asked by then, had no answer by then. */
static bool is_open(const struct lookup *l, uint64_t at_ns)
{
	for (unsigned i = 0; i < kept_queries(l); i++)
		if (l->queries[i].answered_ns == UNKNOWN_NS || l->queries[i].answered_ns > at_ns)
			return true;
	return false;
}

static bool follows(uint64_t before_ns, uint64_t ns)
{
	return before_ns != UNKNOWN_NS && (ns <= before_ns || ns - before_ns <= DNS_NEXT_NS);
}

/* Made of the same name, with several domains or none behind it. */
static bool is_searched(const char *a, const char *b)
{
	size_t label = strcspn(a, ".");

	return label == strcspn(b, ".") && !memcmp(a, b, label);
}

/* What this question belongs to; NULL: to nothing before. */
static struct lookup *asked_before(struct dns *t, const struct rec_dns *r, const char *name)
{
	struct lookup *l = t->lookups;

	for (unsigned i = 0; i < t->count; i++) {
		l = l->prev; /* from the newest on: the first one's is the last */
		if (l->proc.tgid != r->proc.tgid || l->proc.start_ns != r->proc.start_ns || l->joined_ns != UNKNOWN_NS)
			continue;
		if (!strcmp(l->name, name) && (is_open(l, r->ts_ns) || follows(l->answered_ns, r->ts_ns)))
			return l;
		if (l->tid == r->tid && !l->addr_count && follows(l->answered_ns, r->ts_ns) &&
		    is_searched(l->name, name))
			return l;
	}
	return NULL;
}

static struct lookup *lookup_new(struct dns *t, const struct rec_dns *r)
{
	struct lookup *l = calloc(1, sizeof(*l));

	if (!l) {
		t->lost->n[LOST_NO_MEMORY]++;
		return NULL;
	}
	if (t->count == DNS_LOOKUPS_MAX)
		tell_and_forget(t, t->lookups);
	l->proc = r->proc;
	l->tid = r->tid;
	l->begin_ns = l->tried_ns = r->ts_ns;
	l->answered_ns = l->joined_ns = UNKNOWN_NS;
	DL_APPEND(t->lookups, l);
	t->count++;
	return l;
}

static void push_question(struct dns *t, const struct rec_dns *r, const struct dns_message *m)
{
	struct lookup *l = asked_before(t, r, m->name);

	if (!l)
		l = lookup_new(t, r);
	if (!l)
		return;
	memcpy(l->name, m->name, sizeof(l->name));
	if (l->query_count < DNS_QUERIES_MAX)
		l->queries[l->query_count] = (struct query){r->cookie, UNKNOWN_NS, r->tid, m->id, m->type, false};
	l->query_count++;
}

/* What the thread had asked before it asked again, of another server perhaps, is not waited for any more. */
static void give_up_before(struct lookup *l, unsigned answered)
{
	const struct query *later = &l->queries[answered];

	for (unsigned i = 0; i < answered; i++) {
		struct query *q = &l->queries[i];

		if (q->answered_ns == UNKNOWN_NS && q->tid == later->tid && q->type == later->type)
			q->answered_ns = later->answered_ns;
	}
}

/* Asked again on the same socket, it may have the same number: both are answered. */
static bool answer_to(struct lookup *l, const struct rec_dns *r, const struct dns_message *m)
{
	bool mine = false;

	for (unsigned i = 0; i < kept_queries(l); i++) {
		struct query *q = &l->queries[i];

		if (q->cookie != r->cookie || q->id != m->id)
			continue;
		mine = true;
		if (q->answered_ns == UNKNOWN_NS) {
			q->answered_ns = r->ts_ns;
			q->truncated = m->truncated;
		}
		if (m->settles)
			give_up_before(l, i);
	}
	return mine;
}

static void push_answer(struct dns *t, const struct rec_dns *r, const struct dns_message *m)
{
	struct lookup *l = t->lookups;
	unsigned i;

	for (i = 0; i < t->count; i++) {
		l = l->prev;
		if (!strcmp(l->name, m->name) && answer_to(l, r, m))
			break;
	}
	if (i == t->count)
		return;
	l->answered_ns = r->ts_ns;
	for (size_t k = 0; k < m->addr_count && l->addr_count < DNS_ADDRS_MAX; k++)
		if (!has_address(l, &m->addrs[k]))
			l->addrs[l->addr_count++] = m->addrs[k];
}

void dns_push(struct dns *t, const struct rec_dns *r)
{
	struct dns_message m;

	if (dns_parse(&m, r->bytes, r->len) || m.response != (r->dir == DIR_RX))
		return;
	if (m.response)
		push_answer(t, r, &m);
	else
		push_question(t, r, &m);
}

/* --- connections ------------------------------------------------------------------------------------------------- */

/* A thread whose answer was truncated asks for it over TCP, where nothing is read: it has not been answered yet. */
static void goes_on(struct dns *t, const struct rec_sock *r)
{
	struct lookup *l = t->lookups;

	for (unsigned i = 0; i < t->count; i++) {
		l = l->prev; /* the newest first */
		if (l->proc.tgid != r->tgid || l->joined_ns != UNKNOWN_NS)
			continue;
		for (unsigned k = 0; k < kept_queries(l); k++) {
			struct query *q = &l->queries[k];

			if (q->tid != r->tid || !q->truncated)
				continue;
			q->answered_ns = UNKNOWN_NS;
			l->tcp_cookie = r->cookie;
		}
		if (l->tcp_cookie == r->cookie)
			return;
	}
}

/* And has when that socket is closed; what else it had asked it asked there too. */
static void has_gone_on(struct dns *t, const struct rec_sock *r)
{
	struct lookup *l;

	DL_FOREACH (t->lookups, l) {
		if (l->tcp_cookie != r->cookie)
			continue;
		for (unsigned k = 0; k < kept_queries(l); k++)
			if (l->queries[k].answered_ns == UNKNOWN_NS)
				l->queries[k].answered_ns = r->ts_ns;
		l->answered_ns = r->ts_ns;
		l->tcp_cookie = 0;
	}
}

void dns_push_sock(struct dns *t, const struct rec_sock *r)
{
	if (r->what == SOCK_CONNECTED && r->remote.port == DNS_PORT)
		goes_on(t, r);
	if (r->cookie && (r->what == SOCK_CLOSE_LOCAL || r->what == SOCK_CLOSE_REMOTE || r->what == SOCK_CLOSED))
		has_gone_on(t, r);
}

/* The newest look-up of the process that gave this address before then. */
static struct lookup *lookup_of(struct dns *t, uint32_t tgid, const struct sock_addr *remote, uint64_t before_ns)
{
	struct lookup *l = t->lookups;

	for (unsigned i = 0; i < t->count; i++) {
		l = l->prev;
		if (l->proc.tgid == tgid && l->begin_ns <= before_ns && has_address(l, remote))
			return l;
	}
	return NULL;
}

const char *dns_name(struct dns *t, uint32_t tgid, const struct sock_addr *remote, uint64_t connect_begin_ns)
{
	struct lookup *l = lookup_of(t, tgid, remote, connect_begin_ns);

	return l ? l->name : "";
}

/* The last answer by then; while one is open that the first connection did not wait for, then. UNKNOWN_NS: none. */
static uint64_t answered_by(const struct lookup *l, uint64_t at_ns)
{
	uint64_t last_ns = UNKNOWN_NS;

	for (unsigned i = 0; i < kept_queries(l); i++) {
		uint64_t ns = l->queries[i].answered_ns;

		if (ns <= at_ns && (last_ns == UNKNOWN_NS || ns > last_ns))
			last_ns = ns;
	}
	if ((last_ns != UNKNOWN_NS || l->tcp_cookie) && is_open(l, at_ns) && at_ns <= l->joined_ns)
		return at_ns;
	return last_ns;
}

struct dns_setup dns_find(struct dns *t, uint32_t tgid, const struct sock_addr *remote, uint64_t connect_begin_ns)
{
	struct dns_setup s = {UNKNOWN_NS, UNKNOWN_NS, connect_begin_ns};
	struct lookup *l = lookup_of(t, tgid, remote, connect_begin_ns);
	uint64_t end_ns;

	if (!l)
		return s;
	s.connect_begin_ns =
		attempts_first(t->attempts, tgid, remote->port, l->begin_ns, connect_begin_ns, has_address, l);
	end_ns = answered_by(l, s.connect_begin_ns);
	if (end_ns == UNKNOWN_NS || s.connect_begin_ns - end_ns > DNS_AGE_NS)
		return s;
	if (l->joined_ns == UNKNOWN_NS)
		l->joined_ns = s.connect_begin_ns;
	s.dns_begin_ns = l->begin_ns;
	s.dns_end_ns = end_ns;
	return s;
}
