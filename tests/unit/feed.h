/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_FEED_H
#define TEST_FEED_H

/* A parser fed with segments of bytes, each with its time: whole, in pieces, cut at every pair of places, with every
 * range of bytes missing, and with every allocation failing. */

#include "harness.h"

#include <errno.h>

#include "base/err.h"
#include "base/types.h"

struct feed_segment {
	const void *ptr; /* NULL: a gap of len bytes */
	uint64_t len;
	uint64_t ts; /* entry_ns is one less */
	enum dir dir;
};

struct feed {
	const struct feed_segment *segments;
	size_t count;
	const void *arg;
	void *(*open)(struct tlog *log, const void *arg);
	int (*push)(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
	void (*gap)(void *parser, enum dir dir, uint64_t len, const struct stamp *at);
	void (*close)(void *parser, struct tlog *log); /* finishes, frees, logs counters */
	struct guard guard;
	struct tlog log;
	const char *golden;
};

#define FEED_SEGMENT(way, at, text)                                                                                    \
	{                                                                                                              \
		.ptr = (text), .len = sizeof(text) - 1, .ts = (at), .dir = (way)                                       \
	}
#define FEED_GAP(way, at, bytes)                                                                                       \
	{                                                                                                              \
		.ptr = NULL, .len = (bytes), .ts = (at), .dir = (way)                                                  \
	}
/* Of a struct feed, without its braces: the parser's functions, and its segments. */
#define FEED_OF(open_it, push_it, gap_it, close_it, ...)                                                               \
	.segments = (const struct feed_segment[]){__VA_ARGS__},                                                        \
	.count = ARRAY_SIZE(((const struct feed_segment[]){__VA_ARGS__})), .open = open_it, .push = push_it,           \
	.gap = gap_it, .close = close_it

/* One run: cuts, a piece size (0: none), a range of bytes that is a gap, told with its length or without. */
struct feed_run {
	size_t cut1, cut2, piece, gap_from, gap_to;
	bool unknown;
};
#define FEED_WHOLE ((struct feed_run){SIZE_MAX, SIZE_MAX, 0, SIZE_MAX, SIZE_MAX, false})

static inline size_t feed_next(const struct feed_run *r, size_t from)
{
	if (from < r->gap_from && r->piece == 0 && r->cut1 == SIZE_MAX)
		return r->gap_from;
	if (from >= r->gap_from && from < r->gap_to)
		return r->gap_to;
	if (r->piece)
		return from + r->piece;
	return from < r->cut1 ? r->cut1 : from < r->cut2 ? r->cut2 : SIZE_MAX;
}

static inline int feed_segment_play(struct feed *f, void *parser, const struct feed_run *r,
				    const struct feed_segment *s, size_t base)
{
	struct stamp at = {s->ts - 1, s->ts, 1, 0};
	int err = 0;

	if (!s->ptr) {
		f->gap(parser, s->dir, s->len, &at);
		return 0;
	}
	for (size_t done = 0; done < s->len && !err;) {
		size_t from = base + done, n = feed_next(r, from) - from;

		n = n < s->len - done ? n : (size_t)s->len - done;
		if (from >= r->gap_from && from < r->gap_to)
			f->gap(parser, s->dir, r->unknown ? UINT64_MAX : n, &at);
		else
			err = f->push(parser, s->dir, guard_copy(&f->guard, (const uint8_t *)s->ptr + done, n), n, &at);
		done += n;
	}
	return err;
}

static inline size_t feed_len(const struct feed *f)
{
	size_t len = 0;

	for (size_t i = 0; i < f->count; i++)
		len += f->segments[i].ptr ? (size_t)f->segments[i].len : 0;
	return len;
}

/* The log of the run is in f->log. */
static inline int feed_play(struct feed *f, const struct feed_run *r)
{
	void *parser;
	size_t base = 0;
	int err = 0;

	f->log.len = 0;
	if (f->log.text)
		f->log.text[0] = '\0';
	parser = f->open(&f->log, f->arg);
	if (!parser)
		return -ENOMEM;
	for (size_t i = 0; i < f->count && !err; i++) {
		err = feed_segment_play(f, parser, r, &f->segments[i], base);
		base += f->segments[i].ptr ? (size_t)f->segments[i].len : 0;
	}
	f->close(parser, &f->log);
	return err;
}

static inline void feed_expect(struct feed *f, const struct feed_run *r)
{
	assert_int_equal(feed_play(f, r), 0);
	if (strcmp(f->log.text ? f->log.text : "", f->golden)) {
		print_error("cuts %zu %zu, pieces of %zu:\n%s--- is not\n%s", r->cut1, r->cut2, r->piece, f->log.text,
			    f->golden);
		fail();
	}
}

static inline void feed_cut(void *ctx, size_t cut1, size_t cut2)
{
	struct feed_run r = FEED_WHOLE;

	r.cut1 = cut1;
	r.cut2 = cut2;
	feed_expect(ctx, &r);
}

static inline void feed_release(struct feed *f)
{
	guard_free(&f->guard);
	tlog_free(&f->log);
}

/* Every cut gives `golden`; `full`: see every_cut. */
static inline void feed_golden(struct feed *f, size_t full, const char *golden)
{
	struct feed_run r = FEED_WHOLE;

	f->golden = golden;
	feed_expect(f, &r);
	for (r.piece = 1; r.piece < 6; r.piece++)
		feed_expect(f, &r);
	every_cut(feed_len(f), full, feed_cut, f);
}

/* Every allocation fails once: no crash and no leak, and -ENOMEM is told. */
static inline void feed_no_memory(struct feed *f)
{
	struct feed_run r = FEED_WHOLE;
	bool hit = true;

	r.piece = 7;
	for (unsigned n = 1; hit; n++) {
		int err;

		fail_nth(n);
		err = feed_play(f, &r);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
	}
}

/* Every range of bytes is a gap; check() looks at f->log. */
static inline void feed_gaps(struct feed *f, size_t step, void (*check)(struct feed *f, const struct feed_run *r))
{
	size_t len = feed_len(f);
	struct feed_run r = FEED_WHOLE;

	for (r.gap_from = 0; r.gap_from < len; r.gap_from++)
		for (r.gap_to = r.gap_from + 1; r.gap_to <= len; r.gap_to += r.gap_to > r.gap_from + 40 ? step : 1)
			for (int unknown = 0; unknown < 2; unknown++) {
				r.unknown = unknown;
				assert_int_equal(feed_play(f, &r), 0);
				check(f, &r);
			}
}

#endif
