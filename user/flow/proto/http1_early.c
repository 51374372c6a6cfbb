/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a client sends behind a request for an upgrade, when it is seen before the answer. */
#include "http1_state.h"
#include "ws_frame.h"

/* The last request, if it is for an upgrade, all of it is there, and no answer. */
static struct exchange *open_upgrade(const struct http1 *h)
{
	struct exchange *x = h->list ? h->list->prev : NULL;

	while (x && x->orphan)
		x = x == h->list ? NULL : x->prev;
	return x && x->upgrade && !x->begun && x->request_done ? x : NULL;
}

static bool is_open(const struct http1 *h)
{
	return open_upgrade(h) != NULL;
}

/* As no request does. */
static bool begins(const struct http1 *h, char first, const struct stamp *at)
{
	return h->request.state == MESSAGE_START && !http_is_token((struct sv){&first, 1}) && first != '\r' &&
	       first != '\n' && memcmp(&h->request_end, at, sizeof(*at)) != 0;
}

bool http1_early_takes(const struct http1 *h, uint8_t first, const struct stamp *at)
{
	return is_open(h) && (h->early_lost || !queue_is_empty(&h->early) || begins(h, (char)first, at));
}

bool http1_early_takes_gap(const struct http1 *h)
{
	return is_open(h) && (h->early_lost || !queue_is_empty(&h->early));
}

/* So many of the client's bytes are read before it is asked again whether they wait: empty lines come before anything.
 */
static size_t asks(const struct http1 *h, const uint8_t *ptr, size_t len)
{
	size_t n = 0;

	while (n < len && (ptr[n] == '\r' || ptr[n] == '\n'))
		n++;
	return n && h->request.state == MESSAGE_START && is_open(h) ? n : len;
}

static int add(struct http1 *h, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	if (!h->early_lost && len <= queue_room(&h->early, at, false))
		return queue_add(&h->early, ptr, len, at, false);
	h->early_lost = true;
	queue_release(&h->early);
	return 0;
}

static int add_gap(struct http1 *h, uint64_t len, enum http_gap why, const struct stamp *at)
{
	if (!h->early_lost && queue_takes_gap(&h->early))
		return queue_add_gap(&h->early, len, why, at);
	h->early_lost = true;
	queue_release(&h->early);
	return 0;
}

void http1_early_tell(struct http1 *h, bool asks_now, const struct stamp *at)
{
	/* else what came behind the request was taken for another one, or lost */
	if (h->early_lost || (h->request.state != MESSAGE_START && !asks_now))
		http1_raw_gap(h, h->client_dir, UINT64_MAX, HTTP_GAP_LOST, at);
	while (!queue_is_empty(&h->early)) {
		struct queue_run run = *queue_front(&h->early);

		if (run.gap) {
			http1_raw_gap(h, h->client_dir, run.gap, run.why, &run.at);
			queue_drop_gap(&h->early);
			continue;
		}
		if (h->raw)
			h->raw(h->raw_ctx, h->client_dir, queue_bytes(&h->early), run.len, &run.at);
		queue_drop(&h->early, run.len);
	}
	queue_release(&h->early);
	h->early_lost = false;
}

/* The answer is lost, and the client speaks as one does whose request was granted. */
static struct exchange *granted(const struct http1 *h)
{
	const struct queue *q = &h->early;
	struct exchange *x = open_upgrade(h);
	size_t plain;

	if (!x || !x->websocket || !x->lost || h->response.state != MESSAGE_SEARCH || h->early_lost)
		return NULL;
	plain = queue_is_empty(q) ? 0 : queue_plain(q);
	return plain && ws_detect(queue_bytes(q), plain) > 0 ? x : NULL;
}

void http1_early_look(struct http1 *h, const struct stamp *at)
{
	struct exchange *x = granted(h);

	if (x)
		http1_upgrade_unseen(h, x, at);
}

int http1_early_push(struct http1 *h, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	while (len && !h->err) {
		long n;

		if (http1_early_takes(h, ptr[0], at)) {
			int err = add(h, ptr, len, at);

			http1_early_look(h, at);
			return err;
		}
		n = message_push(&h->request, ptr, asks(h, ptr, len), at);
		if (n < 0)
			return (int)n;
		ptr += n;
		len -= (size_t)n;
	}
	return h->err;
}

int http1_early_gap(struct http1 *h, uint64_t len, enum http_gap why, const struct stamp *at)
{
	if (http1_early_takes_gap(h))
		return add_gap(h, len, why, at);
	message_gap(&h->request, len, why, at);
	return h->err;
}

int http1_early_release(struct http1 *h)
{
	struct queue q = h->early;
	int err = 0;

	if (is_open(h))
		return 0;
	if (h->early_lost)
		message_search(&h->request, false);
	h->early_lost = false;
	/* Among it there may be another upgrade, which is granted while we are here, or has early bytes of its own. */
	queue_init(&h->early, q.bytes_max, q.runs_max);
	while (!queue_is_empty(&q) && !err) {
		struct queue_run run = *queue_front(&q);

		if (run.gap) {
			err = http1_early_gap(h, run.gap, run.why, &run.at);
			queue_drop_gap(&q);
		} else {
			err = http1_early_push(h, queue_bytes(&q), run.len, &run.at);
			queue_drop(&q, run.len);
		}
	}
	queue_release(&q);
	return err ? err : h->err;
}
