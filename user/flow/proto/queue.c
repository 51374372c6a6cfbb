/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "queue.h"

#include <stdlib.h>

#include "base/err.h"

void queue_init(struct queue *q, size_t bytes_max, size_t runs_max)
{
	*q = (struct queue){.bytes_max = bytes_max, .runs_max = runs_max};
	buf_init(&q->bytes, 2 * bytes_max);
}

void queue_release(struct queue *q)
{
	buf_release(&q->bytes);
	free(q->runs);
	queue_init(q, q->bytes_max, q->runs_max);
}

bool queue_is_empty(const struct queue *q)
{
	return q->run_used == q->run_count;
}

/* Bytes of that stamp are more of the last run. */
static bool goes_on(const struct queue *q, const struct stamp *at, bool start)
{
	const struct queue_run *last = queue_is_empty(q) ? NULL : &q->runs[q->run_count - 1];

	return last && !start && !last->gap && memcmp(&last->at, at, sizeof(*at)) == 0;
}

bool queue_takes_gap(const struct queue *q)
{
	return q->run_count - q->run_used < q->runs_max;
}

size_t queue_room(const struct queue *q, const struct stamp *at, bool start)
{
	if (q->run_count - q->run_used >= q->runs_max && !goes_on(q, at, start))
		return 0;
	return q->bytes_max - (q->bytes.len - q->used);
}

/* Gives back what was taken from the front; seldom enough that all moves together are linear in the bytes. */
static void compact(struct queue *q)
{
	if (queue_is_empty(q)) {
		q->bytes.len = q->used = 0;
		q->run_count = q->run_used = 0;
	}
	if (q->used >= q->bytes_max / 2) {
		buf_drop_front(&q->bytes, q->used);
		q->used = 0;
	}
	if (q->run_used >= q->runs_max / 2) {
		q->run_count -= q->run_used;
		memmove(q->runs, q->runs + q->run_used, q->run_count * sizeof(q->runs[0]));
		q->run_used = 0;
	}
}

static int add_run(struct queue *q, struct queue_run run)
{
	if (q->run_count == q->run_size) {
		size_t size = q->run_size ? q->run_size * 2 : 8;
		struct queue_run *runs = realloc(q->runs, size * sizeof(*runs));

		if (!runs)
			return -ENOMEM;
		q->runs = runs;
		q->run_size = size;
	}
	q->runs[q->run_count++] = run;
	return 0;
}

int queue_add(struct queue *q, const uint8_t *ptr, size_t len, const struct stamp *at, bool start)
{
	int err;

	compact(q);
	err = buf_push(&q->bytes, ptr, len);
	if (err)
		return err;
	if (goes_on(q, at, start)) {
		q->runs[q->run_count - 1].len += len;
		return 0;
	}
	err = add_run(q, (struct queue_run){*at, len, 0, HTTP_GAP_LOST, start});
	if (err)
		q->bytes.len -= len;
	return err;
}

int queue_add_gap(struct queue *q, uint64_t len, enum http_gap why, const struct stamp *at)
{
	int err;

	compact(q);
	err = add_run(q, (struct queue_run){*at, 0, len, why, false});
	q->gaps += !err;
	return err;
}

const struct queue_run *queue_front(const struct queue *q)
{
	return &q->runs[q->run_used];
}

const uint8_t *queue_bytes(const struct queue *q)
{
	return (const uint8_t *)q->bytes.ptr + q->used;
}

void queue_drop(struct queue *q, size_t len)
{
	while (len) {
		struct queue_run *run = &q->runs[q->run_used];
		size_t n = len < run->len ? len : run->len;

		run->len -= n;
		run->start = false;
		q->used += n;
		len -= n;
		if (!run->len)
			q->run_used++;
	}
}

void queue_drop_gap(struct queue *q)
{
	q->gaps--;
	q->run_used++;
}

size_t queue_plain(const struct queue *q)
{
	size_t n = 0;

	if (!q->gaps)
		return q->bytes.len - q->used;
	for (size_t i = q->run_used; i < q->run_count && !q->runs[i].gap; i++)
		n += q->runs[i].len;
	return n;
}

bool queue_starts_at(const struct queue *q, size_t offset)
{
	size_t at = 0;

	for (size_t i = q->run_used; i < q->run_count && at <= offset; i++) {
		if (at == offset && !q->runs[i].gap)
			return q->runs[i].start;
		at += q->runs[i].len;
	}
	return false;
}
