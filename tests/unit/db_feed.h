/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_DB_FEED_H
#define TEST_DB_FEED_H

/* A connection of a database fed with segments; what it tells as a log: "start+duration system rows error shape". */

#include "feed.h"

#include "base/err.h"
#include "flow/db/db.h"

struct db_feed_arg {
	bool fresh;
};

static const struct db_feed_arg fresh = {true}, met = {false};

static inline void db_feed_command(void *ctx, const struct db_command *c)
{
	assert_int_equal(c->proc.tgid, 42);
	assert_int_equal(c->tid, 1);
	assert_true(c->end_ns >= c->start_ns);
	tlog_printf(ctx, "%llu+%llu %s ", (unsigned long long)c->start_ns,
		    (unsigned long long)(c->end_ns - c->start_ns), c->system);
	tlog_printf(ctx, c->rows < 0 ? "- " : "%lld ", (long long)c->rows);
	tlog_printf(ctx, "%s%s ", *c->error ? c->error : "-", c->unfinished ? " unfinished" : "");
	if (c->shape.ptr)
		tlog_escaped(ctx, c->shape.ptr, c->shape.len);
	else
		tlog_printf(ctx, "-");
	tlog_printf(ctx, "\n");
}

static inline void *db_feed_open(struct tlog *log, const void *arg)
{
	const struct db_feed_arg *a = arg;

	return db_new(a->fresh, &(struct proc_key){.tgid = 42}, &(struct db_sink){log, db_feed_command});
}

static inline int db_feed_push(void *d, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	return db_push(d, dir, ptr, len, at);
}

static inline void db_feed_gap(void *d, enum dir dir, uint64_t len, const struct stamp *at)
{
	db_gap(d, dir, len, at);
}

static inline void db_feed_close(void *d, struct tlog *log)
{
	db_finish(d, 1000000);
	if (db_status(d) == DB_SERVED)
		tlog_printf(log, "served\n");
	if (db_status(d) == DB_NONE)
		tlog_printf(log, "none\n");
	if (db_errors(d))
		tlog_printf(log, "errors\n");
	if (db_dropped(d))
		tlog_printf(log, "dropped %u\n", db_dropped(d));
	assert_int_equal(db_open(d), 0);
	db_free(d);
}

#define TX(ts, text)   FEED_SEGMENT(DIR_TX, ts, text)
#define RX(ts, text)   FEED_SEGMENT(DIR_RX, ts, text)
#define LOST_TX(ts, n) FEED_GAP(DIR_TX, ts, n)
#define LOST_RX(ts, n) FEED_GAP(DIR_RX, ts, n)
#define FEED(how, ...)                                                                                                 \
	{                                                                                                              \
		FEED_OF(db_feed_open, db_feed_push, db_feed_gap, db_feed_close, __VA_ARGS__), .arg = &(how)            \
	}

static inline void db_expect(struct feed f, size_t full, const char *golden)
{
	feed_golden(&f, full, golden);
	feed_release(&f);
}

static inline void db_no_memory(struct feed f)
{
	feed_no_memory(&f);
	feed_release(&f);
}

/* The shapes that may be told at all, whatever is missing; each is a line's end. */
static const char *const *db_feed_shapes;

static inline void db_feed_check(struct feed *f, const struct feed_run *r)
{
	char *rest = f->log.text ? f->log.text : "", *line;
	static char copy[65536];

	assert_true(strlen(rest) < sizeof(copy));
	strcpy(copy, rest);
	rest = copy;
	while ((line = strsep(&rest, "\n")) && rest) {
		bool known = !strcmp(line, "errors") || !strncmp(line, "dropped ", 8) || !strcmp(line, "none") ||
			     !strcmp(line, "served");

		for (const char *const *s = db_feed_shapes; *s && !known; s++)
			known = strlen(line) > strlen(*s) && !strcmp(line + strlen(line) - strlen(*s), *s);
		if (!known)
			print_error("gap %zu..%zu%s: %s\n", r->gap_from, r->gap_to, r->unknown ? " unknown" : "", line);
		assert_true(known);
	}
}

/* step: see feed_gaps() */
static inline void db_every_gap(struct feed f, size_t step, const char *const *shapes)
{
	db_feed_shapes = shapes;
	feed_gaps(&f, step, db_feed_check);
	feed_release(&f);
}

#endif
