/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Response bytes behind a head that waits for its request. */
#include "http1_state.h"

bool http1_park_takes(const struct http1 *h, size_t len, const struct stamp *at)
{
	return h->response.head.len + len <= queue_room(&h->park, at, false);
}

/* An upgrade may have been among what was parked. */
static void tell_gap(struct http1 *h, const struct queue_run *run)
{
	if (!h->upgrade)
		message_gap(&h->response, run->gap, run->why, &run->at);
	else
		http1_raw_gap(h, dir_other(h->client_dir), run->gap, run->why, &run->at);
}

/* Feeds parked bytes on, until a head waits again. */
static int park_drain(struct http1 *h)
{
	struct queue *p = &h->park;

	while (!queue_is_empty(p) && h->response.state != MESSAGE_WAIT && !h->err) {
		const struct queue_run *run = queue_front(p);
		long n;

		http1_advance(h, &run->at);
		if (run->gap) {
			tell_gap(h, run);
			queue_drop_gap(p);
			continue;
		}
		n = message_push(&h->response, queue_bytes(p), run->len, &run->at);
		if (n < 0)
			return (int)n;
		queue_drop(p, (size_t)n);
	}
	if (queue_is_empty(p))
		queue_release(p);
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
