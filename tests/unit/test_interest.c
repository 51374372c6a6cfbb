/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "flow/interest.h"

struct world {
	struct tlog log;
	struct interest i;
	struct interest_view v;
};

static void on_word(void *ctx, enum interest_word word)
{
	static const char *const text[] = {"wanted", "ignored", "never"};

	tlog_printf(&((struct world *)ctx)->log, "%s\n", text[word]);
}

static void open_world(struct world *w)
{
	*w = (struct world){0};
	interest_init(&w->i, &(struct interest_sink){w, on_word});
}

/* In pieces: the sum counts. */
static void push(struct world *w, enum dir dir, uint64_t len)
{
	while (len) {
		uint64_t n = len < 1000 ? len : 1000;

		interest_push(&w->i, &w->v, dir, n);
		len -= n;
	}
}

static void downloads_are_ignored(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, DIR_TX, 100);
	push(&w, DIR_RX, INTEREST_READ_BYTES - 1);
	assert_log(&w.log, "");
	push(&w, DIR_RX, 1);
	assert_log(&w.log, "ignored\n");
	push(&w, DIR_RX, INTEREST_AGAIN_BYTES - 1);
	assert_log(&w.log, "ignored\n");
	push(&w, DIR_RX, 1); /* the kernel took it back */
	assert_log(&w.log, "ignored\nignored\n");
	interest_finish(&w.i);
	assert_log(&w.log, "ignored\nignored\nwanted\n");
	interest_finish(&w.i);
	assert_log(&w.log, "ignored\nignored\nwanted\n");
	tlog_free(&w.log);
}

static void uploads_too(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, DIR_TX, INTEREST_WRITTEN_BYTES - 1);
	assert_log(&w.log, "");
	push(&w, DIR_TX, 1);
	assert_log(&w.log, "ignored\n");
	tlog_free(&w.log);
}

static void a_call_is_wanted(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, DIR_RX, INTEREST_READ_BYTES - 1);
	w.v.calls = w.v.open_calls = 1;
	push(&w, DIR_TX, 1);
	push(&w, DIR_RX, 10 * INTEREST_READ_BYTES); /* its answer */
	assert_log(&w.log, "");
	w.v.open_calls = 0;
	push(&w, DIR_RX, INTEREST_READ_BYTES - 1);
	assert_log(&w.log, "");
	push(&w, DIR_RX, 1);
	assert_log(&w.log, "ignored\n");
	w.v.calls = 2;
	w.v.open_calls = 1;
	push(&w, DIR_TX, 1); /* of the first 4 KiB of a write */
	assert_log(&w.log, "ignored\nwanted\n");
	w.v.open_calls = 0;
	push(&w, DIR_RX, INTEREST_READ_BYTES);
	assert_log(&w.log, "ignored\nwanted\nignored\n");
	w.v.calls = 3; /* begun and ended in one piece */
	push(&w, DIR_RX, 1);
	assert_log(&w.log, "ignored\nwanted\nignored\nwanted\n");
	w.v.calls = 2; /* it was none: its body said so */
	push(&w, DIR_RX, 1);
	assert_log(&w.log, "ignored\nwanted\nignored\nwanted\n");
	tlog_free(&w.log);
}

static void unread_protocols_are_ignored_at_once(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	w.v.hopeless = true;
	push(&w, DIR_TX, 1);
	assert_log(&w.log, "ignored\n");
	push(&w, DIR_TX, INTEREST_AGAIN_BYTES);
	assert_log(&w.log, "ignored\n");
	tlog_free(&w.log);
}

static void it_may_be_for_good(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	w.v.hopeless = w.v.for_good = true;
	push(&w, DIR_RX, 1);
	push(&w, DIR_RX, 10);
	assert_log(&w.log, "never\n");
	interest_finish(&w.i);
	assert_log(&w.log, "never\nwanted\n");
	tlog_free(&w.log);
	open_world(&w);
	w.v.hopeless = true;
	push(&w, DIR_RX, 1);
	w.v.for_good = true; /* it was not certain before */
	push(&w, DIR_RX, 1);
	assert_log(&w.log, "ignored\nnever\n");
	tlog_free(&w.log);
}

/* Messages of a WebSocket are compressed with what came before. */
static void websockets_with_calls_stay(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	w.v.messages = true;
	w.v.calls = 1;
	push(&w, DIR_RX, 10 * INTEREST_READ_BYTES);
	assert_log(&w.log, "");
	tlog_free(&w.log);
	open_world(&w);
	w.v.messages = true;
	push(&w, DIR_RX, INTEREST_READ_BYTES);
	assert_log(&w.log, "ignored\n");
	tlog_free(&w.log);
}

/* Heads are wanted, so that nothing is ignored; what is no use any more are bodies. */
static void heads_are_wanted(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push(&w, DIR_RX, INTEREST_READ_BYTES); /* not known yet what it is */
	assert_log(&w.log, "ignored\n");
	w.v.heads = true;
	push(&w, DIR_TX, 1);
	assert_log(&w.log, "ignored\nwanted\n");
	assert_false(w.i.no_bodies);
	push(&w, DIR_RX, INTEREST_READ_BYTES);
	assert_true(w.i.no_bodies);
	w.v.calls = w.v.open_calls = 1;
	push(&w, DIR_TX, 1);
	assert_false(w.i.no_bodies);
	w.v.open_calls = 0;
	w.v.hopeless = true; /* a server's */
	push(&w, DIR_TX, 1);
	assert_true(w.i.no_bodies);
	interest_finish(&w.i);
	assert_log(&w.log, "ignored\nwanted\n");
	tlog_free(&w.log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(downloads_are_ignored),      cmocka_unit_test(uploads_too),
		cmocka_unit_test(a_call_is_wanted),	      cmocka_unit_test(unread_protocols_are_ignored_at_once),
		cmocka_unit_test(websockets_with_calls_stay), cmocka_unit_test(heads_are_wanted),
		cmocka_unit_test(it_may_be_for_good),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
