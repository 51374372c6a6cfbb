/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "span.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* --- the ring ---------------------------------------------------------------------------------------------------- */

/* A span as it is kept: one allocation, so that 100,000 events stay small. The texts are behind the struct. */
struct kept {
	uint64_t begin_ns, end_ns, first_token_ns, last_token_ns;
	double output_tok_s, input_tok_s;
	const char *cat;
	uint32_t pid;
	uint32_t bytes;	   /* of the whole allocation */
	uint32_t args_len; /* 0: no args */
	uint32_t agent;
	uint64_t flow_out, flow_in;
	uint16_t instant_count;
	uint8_t phase_count, detail_count;
	uint8_t track;
	bool is_call;
	/* phases, details, instants, name NUL, args NUL */
	struct span_phase phases[];
};

struct spans {
	struct lost *lost;
	uint64_t max_events, max_bytes;
	uint64_t events, bytes;
	struct kept **ring; /* size is 0 or a power of two */
	size_t size, head, count;
	size_t hidden; /* of the oldest, not shown by spans_each() */
};

struct spans *spans_new(uint64_t max_events, struct lost *lost)
{
	struct spans *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->lost = lost;
	t->max_events = max_events;
	t->max_bytes =
		max_events > UINT64_MAX / SPANS_BYTES_PER_EVENT ? UINT64_MAX : max_events * SPANS_BYTES_PER_EVENT;
	if (t->max_bytes < SPANS_BYTES_MIN)
		t->max_bytes = SPANS_BYTES_MIN;
	return t;
}

void spans_free(struct spans *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->count; i++)
		free(t->ring[(t->head + i) & (t->size - 1)]);
	free(t->ring);
	free(t);
}

void span_release(struct span *s)
{
	free(s->name);
	free(s->args);
	free(s->details);
	free(s->instants);
	*s = (struct span){0};
}

static uint64_t events_of(const struct kept *k)
{
	return 1ull + k->phase_count + k->detail_count + k->instant_count + (k->flow_out != 0) + (k->flow_in != 0);
}

static struct kept *pack(const struct span *s)
{
	unsigned instants = s->instant_count < SPAN_INSTANTS_MAX ? s->instant_count : SPAN_INSTANTS_MAX;
	unsigned details = s->detail_count < SPAN_DETAILS_MAX ? s->detail_count : SPAN_DETAILS_MAX;
	size_t name_len = s->name ? strlen(s->name) : 0;
	size_t args_len = s->args ? strlen(s->args) : 0;
	size_t phase_bytes = s->phase_count * sizeof(s->phases[0]);
	size_t detail_bytes = details * sizeof(s->details[0]);
	size_t instant_bytes = instants * sizeof(s->instants[0]);
	size_t bytes = sizeof(struct kept) + phase_bytes + detail_bytes + instant_bytes + name_len + 1 + args_len + 1;
	struct kept *k = bytes < UINT32_MAX ? malloc(bytes) : NULL;
	char *at;

	if (!k)
		return NULL;
	*k = (struct kept){
		.begin_ns = s->begin_ns,
		.end_ns = s->end_ns,
		.first_token_ns = s->first_token_ns,
		.last_token_ns = s->last_token_ns,
		.output_tok_s = s->output_tok_s,
		.input_tok_s = s->input_tok_s,
		.cat = s->cat,
		.pid = s->pid,
		.bytes = (uint32_t)bytes,
		.args_len = (uint32_t)args_len,
		.instant_count = (uint16_t)instants,
		.phase_count = (uint8_t)s->phase_count,
		.detail_count = (uint8_t)details,
		.agent = s->agent,
		.flow_out = s->flow_out,
		.flow_in = s->flow_in,
		.track = (uint8_t)s->track,
		.is_call = s->is_call,
	};
	at = (char *)k->phases;
	memcpy(at, s->phases, phase_bytes);
	at += phase_bytes;
	if (detail_bytes)
		memcpy(at, s->details, detail_bytes);
	at += detail_bytes;
	if (instant_bytes)
		memcpy(at, s->instants, instant_bytes);
	at += instant_bytes;
	memcpy(at, s->name ? s->name : "", name_len + 1);
	memcpy(at + name_len + 1, s->args ? s->args : "", args_len + 1);
	return k;
}

static void unpack(struct kept *k, struct span *out)
{
	char *at = (char *)(k->phases + k->phase_count + k->detail_count);

	*out = (struct span){
		.begin_ns = k->begin_ns,
		.end_ns = k->end_ns,
		.pid = k->pid,
		.track = k->track,
		.cat = k->cat,
		.phase_count = k->phase_count,
		.details = k->phases + k->phase_count,
		.detail_count = k->detail_count,
		.agent = k->agent,
		.flow_out = k->flow_out,
		.flow_in = k->flow_in,
		.instants = (struct span_instant *)at,
		.instant_count = k->instant_count,
		.output_tok_s = k->output_tok_s,
		.input_tok_s = k->input_tok_s,
		.first_token_ns = k->first_token_ns,
		.last_token_ns = k->last_token_ns,
		.is_call = k->is_call,
	};
	memcpy(out->phases, k->phases, k->phase_count * sizeof(k->phases[0]));
	out->name = at + k->instant_count * sizeof(struct span_instant);
	out->args = k->args_len ? out->name + strlen(out->name) + 1 : NULL;
}

static int grow(struct spans *t)
{
	size_t size = t->size ? t->size * 2 : 64;
	struct kept **ring;

	if (t->count < t->size)
		return 0;
	ring = malloc(size * sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	for (size_t i = 0; i < t->count; i++)
		ring[i] = t->ring[(t->head + i) & (t->size - 1)];
	free(t->ring);
	t->ring = ring;
	t->size = size;
	t->head = 0;
	return 0;
}

static void drop_oldest(struct spans *t)
{
	struct kept *k = t->ring[t->head];
	uint64_t events = events_of(k);

	t->head = (t->head + 1) & (t->size - 1);
	t->count--;
	t->hidden -= t->hidden > 0;
	t->events -= events;
	t->bytes -= k->bytes;
	t->lost->n[LOST_SPANS]++;
	t->lost->n[LOST_SPAN_EVENTS] += events;
	free(k);
}

int spans_push(struct spans *t, struct span *s)
{
	uint64_t events;
	struct kept *k;
	int err = 0;

	if (s->track == SPAN_PROCESS || s->phase_count > SPAN_PHASES_MAX) {
		span_release(s);
		return -EINVAL;
	}
	k = pack(s);
	span_release(s);
	if (!k)
		return -ENOMEM;
	events = events_of(k);
	if (events > t->max_events || k->bytes > t->max_bytes) {
		t->lost->n[LOST_SPANS]++;
		t->lost->n[LOST_SPAN_EVENTS] += events;
		free(k);
		return 0;
	}
	while (t->events + events > t->max_events || t->bytes + k->bytes > t->max_bytes)
		drop_oldest(t);
	err = grow(t);
	if (err) {
		free(k);
		return err;
	}
	t->ring[(t->head + t->count++) & (t->size - 1)] = k;
	t->events += events;
	t->bytes += k->bytes;
	return 0;
}

void spans_show(struct spans *t, uint64_t max_events)
{
	uint64_t events = t->events;

	for (t->hidden = 0; events > max_events; t->hidden++) {
		const struct kept *k = t->ring[(t->head + t->hidden) & (t->size - 1)];

		events -= events_of(k);
	}
}

void spans_each(const struct spans *t, void (*fn)(void *ctx, const struct span *s), void *ctx)
{
	for (size_t i = t->hidden; i < t->count; i++) {
		struct span s;

		unpack(t->ring[(t->head + i) & (t->size - 1)], &s);
		fn(ctx, &s);
	}
}

uint64_t spans_count(const struct spans *t)
{
	return t->count;
}

uint64_t spans_events(const struct spans *t)
{
	return t->events;
}
