/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>

#include "flow/stream.h"

#define MS 1000000ull

struct world {
	struct tlog log;
	struct guard guard;
	struct stream s;
	uint64_t told; /* bytes and known holes, to be compared with the position */
};

static void on_bytes(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct world *w = ctx;

	assert_true(len > 0);
	w->told += len;
	tlog_printf(&w->log, "%llu:", (unsigned long long)(at->ts_ns / MS));
	tlog_escaped(&w->log, ptr, len);
	tlog_printf(&w->log, " ");
}

static void on_gap(void *ctx, uint64_t len, enum gap_why why, const struct stamp *at)
{
	struct world *w = ctx;

	if (len == UINT64_MAX)
		tlog_printf(&w->log, "%llu:[?] ", (unsigned long long)(at->ts_ns / MS));
	else
		tlog_printf(&w->log, "%llu:[%llu%s] ", (unsigned long long)(at->ts_ns / MS), (unsigned long long)len,
			    why == GAP_CAPPED ? " capped" : "");
	if (len != UINT64_MAX)
		w->told += len;
}

static void open_world(struct world *w)
{
	*w = (struct world){0};
	stream_init(&w->s, &(struct stream_sink){w, on_bytes, on_gap});
}

static void close_world(struct world *w)
{
	stream_release(&w->s);
	guard_free(&w->guard);
	tlog_free(&w->log);
}

static struct stamp at_ms(uint64_t ms)
{
	return (struct stamp){.entry_ns = ms * MS, .ts_ns = ms * MS, .tid = 1};
}

static int push_more(struct world *w, uint64_t pos, const char *text, uint32_t orig_len, enum gap_why why, uint64_t ms)
{
	struct stamp at = at_ms(ms);
	size_t len = strlen(text);

	return stream_push(&w->s, pos, guard_copy(&w->guard, text, len), (uint32_t)len, orig_len, why, &at);
}

static int push(struct world *w, uint64_t pos, const char *text, uint64_t ms)
{
	return push_more(w, pos, text, (uint32_t)strlen(text), GAP_LOST, ms);
}

static void gap(struct world *w, uint64_t pos, uint64_t ms)
{
	struct stamp at = at_ms(ms);

	assert_int_equal(stream_gap(&w->s, pos, &at), 0);
}

static void finish(struct world *w, uint64_t final_pos, uint64_t ms)
{
	struct stamp at = at_ms(ms);

	stream_finish(&w->s, final_pos, &at);
}

static void in_order(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, 0, "ab", 1);
	push(&w, 2, "cd", 2);
	push(&w, 4, "e", 3);
	assert_null(w.s.held);
	assert_log(&w.log, "1:ab 2:cd 3:e ");
	close_world(&w);
}

static void reordered(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, 4, "e", 5);
	push(&w, 2, "cd", 4);
	push(&w, 5, "f", 6);
	assert_int_equal(w.s.held_count, 3);
	push(&w, 0, "ab", 1);
	assert_int_equal(w.s.held_count, 0);
	assert_int_equal(w.s.held_bytes, 0);
	push(&w, 6, "g", 7);
	assert_log(&w.log, "1:ab 4:cd 5:e 6:f 7:g ");
	close_world(&w);
}

/* Every order of six records gives the same text. */
static void every_order(void **state)
{
	static const char *const text[] = {"a", "bc", "def", "g", "hi", "j"};
	static const unsigned pos[] = {0, 1, 3, 6, 7, 9};

	(void)state;
	for (unsigned order = 0; order < 720; order++) {
		unsigned left[] = {0, 1, 2, 3, 4, 5}, n = 6, rest = order;
		struct world w;

		open_world(&w);
		while (n) {
			unsigned k = rest % n, i = left[k];

			rest /= n;
			memmove(&left[k], &left[k + 1], (--n - k) * sizeof(left[0]));
			push(&w, pos[i], text[i], i);
		}
		assert_log(&w.log, "0:a 1:bc 2:def 3:g 4:hi 5:j ");
		close_world(&w);
	}
}

static void duplicates_are_dropped(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, 0, "abcd", 1);
	push(&w, 0, "abcd", 2);
	push(&w, 2, "cdef", 3); /* half of it is known */
	push(&w, 8, "i", 4);
	push(&w, 8, "i", 5);
	push(&w, 6, "gh", 6);
	assert_log(&w.log, "1:abcd 3:ef 6:gh 4:i ");
	assert_int_equal(w.told, 9);
	close_world(&w);
}

static void hole_is_given_up_in_time(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, 0, "ab", 1);
	push(&w, 5, "f", 100);
	stream_tick(&w.s, 599 * MS);
	assert_log(&w.log, "1:ab ");
	stream_tick(&w.s, 600 * MS);
	assert_log(&w.log, "1:ab 100:[3] 100:f ");
	push(&w, 2, "cde", 601); /* too late: told as a gap */
	push(&w, 6, "g", 602);
	assert_log(&w.log, "1:ab 100:[3] 100:f 602:g ");
	close_world(&w);
}

/* A later record before the one that waits does not make it wait longer. */
static void oldest_waiter_decides(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, 0, "a", 1);
	push(&w, 6, "g", 100);
	push(&w, 3, "d", 590);
	push(&w, 9, "j", 595);
	stream_tick(&w.s, 600 * MS);
	assert_log(&w.log, "1:a 590:[2] 590:d 100:[2] 100:g ");
	assert_int_equal(w.s.held_count, 1);
	close_world(&w);
}

static void first_record_missing(void **state)
{
	struct world w;

	(void)state;
	open_world(&w); /* met in the middle: how many were missed is not known */
	push(&w, 7, "x", 1);
	stream_tick(&w.s, 501 * MS);
	assert_log(&w.log, "1:[?] 1:x ");
	close_world(&w);

	open_world(&w);
	stream_start_fresh(&w.s);
	push(&w, 7, "x", 1);
	stream_tick(&w.s, 501 * MS);
	assert_log(&w.log, "1:[7] 1:x ");
	close_world(&w);

	open_world(&w);
	stream_start_at(&w.s, 7);
	push(&w, 7, "x", 1);
	assert_log(&w.log, "1:x ");
	close_world(&w);
}

static void capped_and_lost_tails(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push_more(&w, 0, "abc", 10, GAP_CAPPED, 1);
	push_more(&w, 10, "", 5, GAP_LOST, 2);
	push(&w, 15, "d", 3);
	push_more(&w, 20, "xy", 4, GAP_CAPPED, 4); /* waits with its hole */
	push(&w, 24, "z", 5);
	push(&w, 16, "efgh", 6);
	assert_log(&w.log, "1:abc 1:[7 capped] 2:[5] 3:d 6:efgh 4:xy 4:[2 capped] 5:z ");
	assert_int_equal(w.told, 25);
	close_world(&w);
}

static void unknown_gaps(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	gap(&w, 0, 1); /* at the very start */
	push(&w, 0, "ab", 2);
	gap(&w, 2, 3);
	push(&w, 2, "cd", 4);
	gap(&w, 6, 5); /* ahead: waits for "ef" */
	gap(&w, 6, 6);
	push(&w, 6, "g", 7);
	assert_log(&w.log, "1:[?] 2:ab 3:[?] 4:cd ");
	push(&w, 4, "ef", 8);
	assert_log(&w.log, "1:[?] 2:ab 3:[?] 4:cd 8:ef 5:[?] 6:[?] 7:g ");
	push(&w, 7, "h", 9);
	gap(&w, 7, 10); /* late, but told */
	assert_log(&w.log, "1:[?] 2:ab 3:[?] 4:cd 8:ef 5:[?] 6:[?] 7:g 9:h 10:[?] ");
	close_world(&w);
}

static void finish_tells_the_missing_end(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, 0, "ab", 1);
	push(&w, 4, "e", 2);
	finish(&w, 8, 3);
	assert_log(&w.log, "1:ab 2:[2] 2:e 3:[3] ");
	finish(&w, 8, 4);
	finish(&w, 0, 5);
	assert_log(&w.log, "1:ab 2:[2] 2:e 3:[3] ");
	close_world(&w);

	open_world(&w);
	finish(&w, 8, 3);
	assert_log(&w.log, "3:[?] ");
	close_world(&w);
}

static void holding_is_bounded(void **state)
{
	static char big[65536 + 1];
	struct world w;

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	open_world(&w);
	for (unsigned i = 0; i < 3 * STREAM_HOLD_RECORDS; i++)
		push(&w, 2 * i + 1, "x", 1);
	assert_in_range(w.s.held_count, 1, STREAM_HOLD_RECORDS);
	finish(&w, 0, 2);
	assert_int_equal(w.told, 6 * STREAM_HOLD_RECORDS - 1); /* the first byte: hole of unknown length */
	close_world(&w);

	open_world(&w);
	stream_start_fresh(&w.s);
	for (unsigned i = 0; i < 40; i++) {
		push(&w, 1 + 65537ull * i, big, 1);
		assert_in_range(w.s.held_bytes, 0, STREAM_HOLD_BYTES);
	}
	finish(&w, 0, 2);
	assert_int_equal(w.told, 65537 * 40);
	close_world(&w);
}

static void positions_at_the_end_of_the_number_line(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, UINT64_MAX - 1, "abc", 1);
	assert_null(w.s.held);
	push(&w, UINT64_MAX - 3, "abc", 1);
	push(&w, 0, "a", 2);
	finish(&w, UINT64_MAX, 3);
	assert_int_equal(w.told, UINT64_MAX);
	close_world(&w);
}

static void without_memory(void **state)
{
	(void)state;
	for (unsigned n = 1;; n++) {
		struct world w;
		int err = 0;
		bool hit;

		open_world(&w);
		fail_nth(n);
		err |= push(&w, 0, "a", 1);
		err |= push(&w, 5, "f", 2);
		err |= push(&w, 3, "d", 3);
		err |= push(&w, 1, "b", 4);
		hit = fail_nth_hit();
		fail_nth(0);
		finish(&w, 6, 5);
		assert_int_equal(err, hit ? -ENOMEM : 0);
		assert_int_equal(w.told, 6);
		if (!hit)
			assert_log(&w.log, "1:a 4:b 3:[1] 3:d 2:[1] 2:f ");
		if (n == 1) /* "f" could not wait: it went on, and what came later for before it is too late */
			assert_log(&w.log, "1:a 2:[4] 2:f ");
		if (n == 2) /* "d" could not wait, "f" still does */
			assert_log(&w.log, "1:a 3:[2] 3:d 2:[1] 2:f ");
		close_world(&w);
		if (!hit)
			break;
	}
}

/* A text cut anywhere twice, the pieces in every order: one text. */
static void run_cut(void *ctx, size_t a, size_t b)
{
	static const char text[] = "the quick brown fox jumps";
	static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	size_t from[] = {0, a, b}, to[] = {a, b, sizeof(text) - 1};
	struct stamp at = at_ms(1);

	(void)ctx;
	for (int o = 0; o < 6; o++) {
		struct world w;
		char *out;

		open_world(&w);
		for (int k = 0; k < 3; k++) {
			int i = orders[o][k];
			size_t len = to[i] - from[i];

			stream_push(&w.s, from[i], guard_copy(&w.guard, text + from[i], len), (uint32_t)len,
				    (uint32_t)len, GAP_LOST, &at);
		}
		out = w.log.text;
		for (const char *p = text; *p;) { /* the log without stamps and separators */
			if (strncmp(out, "1:", 2) == 0)
				out += 2;
			else if (out[0] == ' ' && strncmp(out + 1, "1:", 2) == 0)
				out++;
			else
				assert_int_equal(*out++, *p++);
		}
		assert_int_equal(w.told, sizeof(text) - 1);
		close_world(&w);
	}
}

static void cut_and_shuffled(void **state)
{
	(void)state;
	every_cut(25, 25, run_cut, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_order),
		cmocka_unit_test(reordered),
		cmocka_unit_test(every_order),
		cmocka_unit_test(duplicates_are_dropped),
		cmocka_unit_test(hole_is_given_up_in_time),
		cmocka_unit_test(oldest_waiter_decides),
		cmocka_unit_test(first_record_missing),
		cmocka_unit_test(capped_and_lost_tails),
		cmocka_unit_test(unknown_gaps),
		cmocka_unit_test(finish_tells_the_missing_end),
		cmocka_unit_test(holding_is_bounded),
		cmocka_unit_test(positions_at_the_end_of_the_number_line),
		cmocka_unit_test(without_memory),
		cmocka_unit_test(cut_and_shuffled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
