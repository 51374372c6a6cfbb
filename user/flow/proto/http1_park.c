/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Response bytes behind a head that waits for its request. */
#include "http1_state.h"

#include <errno.h>
#include <stdlib.h>

#define PARK_RUNS_MAX 1024

void http1_park_release(struct park *p)
{
	buf_release(&p->bytes);
	free(p->runs);
	p->runs = NULL;
	p->used = p->run_count = p->run_used = p->run_size = 0;
}

/* Gives back what was taken from the front; seldom enough that all moves together are linear in the bytes. */
static void park_compact(struct park *p)
{
	if (p->used > HTTP1_PARK_BYTES / 2) {
		buf_drop_front(&p->bytes, p->used);
		p->used = 0;
	}
	if (p->run_used > PARK_RUNS_MAX / 2) {
		p->run_count -= p->run_used;
		memmove(p->runs, p->runs + p->run_used, p->run_count * sizeof(p->runs[0]));
		p->run_used = 0;
	}
}

int http1_park_add(struct park *p, const uint8_t *ptr, struct park_run run)
{
	struct park_run *last;
	int err;

	park_compact(p);
	last = p->run_count > p->run_used ? &p->runs[p->run_count - 1] : NULL;
	err = ptr ? buf_push(&p->bytes, ptr, run.len) : 0;
	if (err)
		return err;
	if (ptr && last && !last->gap && memcmp(&last->at, &run.at, sizeof(run.at)) == 0) {
		last->len += run.len;
		return 0;
	}
	if (p->run_count == p->run_size) {
		size_t size = p->run_size ? p->run_size * 2 : 8;
		struct park_run *runs = realloc(p->runs, size * sizeof(*runs));

		if (!runs)
			return -ENOMEM;
		p->runs = runs;
		p->run_size = size;
	}
	p->runs[p->run_count++] = run;
	return 0;
}

bool http1_park_full(const struct http1 *h, size_t more)
{
	return h->response.head.len + h->park.bytes.len - h->park.used + more > HTTP1_PARK_BYTES ||
	       h->park.run_count - h->park.run_used >= PARK_RUNS_MAX;
}

/* Feeds parked bytes on, until a head waits again. */
static int park_drain(struct http1 *h)
{
	struct park *p = &h->park;

	while (p->run_used < p->run_count && h->response.state != MESSAGE_WAIT && !h->err) {
		struct park_run *run = &p->runs[p->run_used];
		long n;

		http1_advance(h, &run->at);
		if (run->gap) {
			message_gap(&h->response, run->gap, run->why, &run->at);
			p->run_used++;
			continue;
		}
		n = message_push(&h->response, (const uint8_t *)p->bytes.ptr + p->used, run->len, &run->at);
		if (n < 0)
			return (int)n;
		p->used += (size_t)n;
		run->len -= (size_t)n;
		if (!run->len)
			p->run_used++;
	}
	if (p->run_used == p->run_count)
		http1_park_release(p);
	return h->err;
}

int http1_unpark(struct http1 *h, bool force)
{
	while (h->response.state == MESSAGE_WAIT && !h->err) {
		struct message *m = &h->response;
		uint64_t length = 0;
		enum message_next next = http1_pair(h, &length, force);
		int err;

		if (next == NEXT_WAIT)
			break;
		force = false;
		message_begin(m, next, length, &m->head_end);
		err = park_drain(h);
		if (err)
			return err;
	}
	return h->err;
}
