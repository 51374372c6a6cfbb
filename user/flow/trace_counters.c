/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "trace_parts.h"

#include <stdlib.h>

#define SAMPLE_GAP_NS 100000000u /* at most ten samples a second of one counter */

/* --- of spans ---------------------------------------------------------------------------------------------------- */

struct change {
	uint64_t ts;
	int64_t in, out, calls;
};

/* One counter of one process: a sample at a change, but not sooner than SAMPLE_GAP_NS after the last one. */
struct sampler {
	struct writing *w;
	const char *name;
	bool rates; /* keys in and out, else n */
	uint32_t pid;
	bool any;
	uint64_t last_ts;
	int64_t last[2]; /* as written */
};

static int compare_changes(const void *a, const void *b)
{
	const struct change *x = a, *y = b;

	return x->ts < y->ts ? -1 : x->ts > y->ts;
}

static void put_sample(struct sampler *s, uint64_t ts, const int64_t value[2])
{
	struct writing *w = s->w;

	s->any = true;
	s->last_ts = ts;
	s->last[0] = value[0];
	s->last[1] = value[1];
	if (w->samples++ < w->skipped)
		return;
	trace_begin_event(w);
	trace_put(w, "{\"ph\":\"C\",\"pid\":%u,\"ts\":" US_FORMAT ",\"cat\":\"llm\",\"name\":\"%s\",\"args\":{", s->pid,
		  US(ts), s->name);
	if (s->rates)
		trace_put(w, "\"in\":%" PRId64 ".%03d,\"out\":%" PRId64 ".%03d}}", value[0] / 1000,
			  (int)(value[0] % 1000), value[1] / 1000, (int)(value[1] % 1000));
	else
		trace_put(w, "\"n\":%" PRId64 "}}", value[0]);
	w->timed++;
}

static bool same(const struct sampler *s, const int64_t value[2])
{
	return s->any ? s->last[0] == value[0] && s->last[1] == value[1] : !value[0] && !value[1];
}

/* The value was `before` until `ts`, where it becomes `now`. */
static void sample(struct sampler *s, uint64_t ts, const int64_t before[2], const int64_t now[2], bool final)
{
	uint64_t due = s->last_ts + SAMPLE_GAP_NS;

	if (s->any && due < ts && !same(s, before))
		put_sample(s, due, before);
	due = s->last_ts + SAMPLE_GAP_NS;
	if (same(s, now) || (s->any && ts < due && !final) || (s->any && ts == s->last_ts))
		return;
	put_sample(s, ts, now);
}

static void put_counters_of(struct writing *w, uint32_t pid, const struct change *changes, size_t count)
{
	struct sampler rate = {.w = w, .name = "tokens/s", .rates = true, .pid = pid};
	struct sampler flight = {.w = w, .name = "calls in flight", .pid = pid};
	int64_t rates[2] = {0}, calls[2] = {0};

	for (size_t i = 0; i < count && !w->err;) {
		int64_t rates_before[2] = {rates[0], rates[1]}, calls_before[2] = {calls[0]};
		uint64_t ts = changes[i].ts;

		for (; i < count && changes[i].ts == ts; i++) {
			rates[0] += changes[i].in;
			rates[1] += changes[i].out;
			calls[0] += changes[i].calls;
		}
		sample(&rate, ts, rates_before, rates, i == count);
		sample(&flight, ts, calls_before, calls, i == count);
	}
}

#define CHANGES_OF_CALL 4
static size_t changes_of(const struct item *it, struct change out[CHANGES_OF_CALL])
{
	uint64_t end = it->end > it->begin ? it->end : it->begin + 1;
	uint64_t first = it->first < end ? it->first : end;
	uint64_t last = it->last < end ? it->last : end;

	out[0] = (struct change){it->begin, it->in_rate, 0, 1};
	out[1] = (struct change){first, -it->in_rate, it->out_rate, 0};
	out[2] = (struct change){last, 0, -it->out_rate, 0};
	out[3] = (struct change){end, 0, 0, -1};
	return CHANGES_OF_CALL;
}

static void put_counters(struct writing *w)
{
	struct change *changes;
	size_t from = 0;

	if (w->err || !w->item_count)
		return;
	changes = calloc(w->item_count, CHANGES_OF_CALL * sizeof(*changes));
	if (!changes) {
		w->err = -ENOMEM;
		return;
	}
	while (from < w->item_count && !w->err) {
		uint32_t pid = w->items[from].pid;
		size_t n = 0;

		for (; from < w->item_count && w->items[from].pid == pid; from++) {
			if (w->items[from].is_call)
				n += changes_of(&w->items[from], changes + n);
		}
		if (n)
			qsort(changes, n, sizeof(*changes), compare_changes);
		put_counters_of(w, pid, changes, n);
	}
	free(changes);
}

/* A sample tells all by itself, so that those that are kept stay true. */
void trace_put_newest_counters(struct writing *w)
{
	uint64_t max = w->meta->max_events, room = max > w->timed ? max - w->timed : 0;

	if (max) {
		w->skipped = UINT64_MAX; /* only counted */
		put_counters(w);
		w->skipped = w->samples > room ? w->samples - room : 0;
		w->samples = 0;
	}
	put_counters(w);
}

/* --- measured ---------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name, *key;
	unsigned scale; /* what is kept of one of the key's unit */
} measured[COUNTER_KINDS] = {
	[COUNTER_CPU] = {"cpu", "percent", 10},
	[COUNTER_SRTT] = {"srtt", "us", 1},
	[COUNTER_LOST] = {"lost events", "n", 1},
};

static bool is_measured(const struct writing *w, const struct counter_sample *s)
{
	return !s->pid || trace_find_shown(w, w->shown_count, trace_viewer_pid(s->pid));
}

static void put_measured_sample(struct writing *w, const struct counter_sample *s)
{
	uint32_t pid = s->pid ? trace_viewer_pid(s->pid) : SELF_PID;

	trace_begin_event(w);
	trace_put(w,
		  "{\"ph\":\"C\",\"pid\":%u,\"ts\":" US_FORMAT
		  ",\"cat\":\"perfbpf\",\"name\":\"%s\",\"args\":{\"%s\":%" PRIu64,
		  pid, US(trace_relative(w, s->ts_ns)), measured[s->kind].name, measured[s->kind].key,
		  s->value / measured[s->kind].scale);
	if (measured[s->kind].scale > 1)
		trace_put(w, ".%" PRIu64, s->value % measured[s->kind].scale);
	trace_put(w, "}}");
	w->timed++;
}

/* The newest that there is room for. */
void trace_put_measured(struct writing *w)
{
	uint64_t max = w->meta->max_events, room = max > w->timed ? max - w->timed : 0;
	size_t count = w->meta->counters ? counters_count(w->meta->counters) : 0;
	size_t from = max && count > room ? count - (size_t)room : 0;
	bool named = false;

	for (size_t i = from; i < count && !w->err; i++) {
		const struct counter_sample *s = counters_at(w->meta->counters, i);

		if (!is_measured(w, s))
			continue;
		if (!s->pid && !named)
			trace_put_own_name(w);
		named |= !s->pid;
		put_measured_sample(w, s);
	}
}
