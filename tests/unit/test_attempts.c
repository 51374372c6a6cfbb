/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>

#include "flow/attempts.h"

#define MS 1000000ull

static void on_attempt(void *ctx, const struct attempt *a)
{
	tlog_printf(ctx, "%u :%u %llu-%llu error %d%s\n", a->tgid, a->remote.port,
		    (unsigned long long)(a->begin_ns / MS), (unsigned long long)(a->end_ns / MS), a->error,
		    a->unfinished ? " unfinished"
		    : a->drawn	  ? ""
				  : " not drawn");
}

static struct attempts *open_table(struct tlog *log)
{
	const struct attempts_sink sink = {log, on_attempt};
	struct attempts *t = attempts_new(&sink);

	assert_non_null(t);
	return t;
}

static void push(struct attempts *t, enum sock_what what, uint64_t cookie, uint16_t port, uint64_t begin_ms,
		 uint64_t ms, int error)
{
	struct rec_sock r = {
		.ts_ns = ms * MS,
		.begin_ns = begin_ms * MS,
		.cookie = cookie,
		.tgid = 7,
		.remote = {.family = AF_INET, .port = port},
		.what = what,
		.error = error,
	};

	attempts_push_sock(t, &r);
}

static void assert_told(struct tlog *log, const char *golden)
{
	assert_string_equal(log->text ? log->text : "", golden);
	tlog_free(log);
}

/* Told when nothing has followed for a second. */
static void failed(void **state)
{
	struct tlog log = {0};
	struct attempts *t = open_table(&log);

	(void)state;
	push(t, SOCK_CONNECTING, 1, 443, 0, 10, 0);
	push(t, SOCK_CONNECT_FAILED, 1, 443, 10, 20, ECONNREFUSED);
	attempts_tick(t, 1019 * MS);
	assert_told(&log, "");
	attempts_tick(t, 1020 * MS);
	assert_told(&log, "7 :443 10-20 error 111\n");
	/* the program's patience: long, it failed; short, it took another way */
	push(t, SOCK_CONNECTING, 2, 443, 0, 2000, 0);
	push(t, SOCK_CONNECT_FAILED, 2, 443, 2000, 3000, 0);
	push(t, SOCK_CONNECTING, 3, 443, 0, 3000, 0);
	push(t, SOCK_CONNECT_FAILED, 3, 443, 3000, 3999, 0);
	attempts_finish(t, 4000 * MS);
	assert_told(&log, "7 :443 2000-3000 error 0\n");
	attempts_free(t);
}

/* What the connection tells that was made in the end is told once. */
static void next_address(void **state)
{
	struct tlog log = {0};
	struct attempts *t = open_table(&log);

	(void)state;
	push(t, SOCK_CONNECT_FAILED, 1, 443, 10, 20, ECONNREFUSED); /* right before it */
	push(t, SOCK_CONNECT_FAILED, 2, 443, 25, 45, EHOSTUNREACH); /* beside it */
	push(t, SOCK_CONNECT_FAILED, 3, 80, 25, 30, ECONNREFUSED);  /* another port */
	push(t, SOCK_CONNECT_FAILED, 4, 443, 1, 5, ETIMEDOUT);	    /* long before */
	push(t, SOCK_CONNECTED, 5, 443, 30, 50, 0);
	attempts_finish(t, 60 * MS);
	assert_told(&log, "7 :80 25-30 error 111\n7 :443 1-5 error 110\n");
	attempts_free(t);
}

/* What goes on at the end is told if it has done so for long; what was made is not. */
static void goes_on(void **state)
{
	struct tlog log = {0};
	struct attempts *t = open_table(&log);

	(void)state;
	push(t, SOCK_CONNECTING, 1, 443, 0, 100, 0);
	push(t, SOCK_CONNECTING, 2, 443, 0, 200, 0);
	push(t, SOCK_CONNECTED, 2, 443, 200, 300, 0);
	push(t, SOCK_CONNECTING, 3, 443, 0, 4500, 0);
	attempts_tick(t, 5000 * MS);
	assert_told(&log, "");
	attempts_finish(t, 5000 * MS);
	assert_told(&log, "7 :443 100-5000 error 0 unfinished\n");
	attempts_free(t);
}

/* A full table lets the oldest one go, and loses none that failed; times that cannot be are left out. */
static void many(void **state)
{
	struct tlog log = {0};
	struct attempts *t = open_table(&log);

	(void)state;
	push(t, SOCK_CONNECT_FAILED, 1, 443, 9, 8, ECONNREFUSED);
	push(t, SOCK_CONNECT_FAILED, 2, 443, 0, 8, ECONNREFUSED);
	for (uint64_t i = 0; i < ATTEMPTS_MAX; i++)
		push(t, SOCK_CONNECTING, 10 + i, 443, 0, 1 + i, 0);
	push(t, SOCK_CONNECT_FAILED, 10, 443, 1, 2000, ETIMEDOUT);
	push(t, SOCK_CONNECTING, 5, 443, 0, 2001, 0);
	for (uint64_t i = 1; i < ATTEMPTS_MAX; i++)
		push(t, SOCK_CONNECTED, 10 + i, 443, 0, 2002, 0);
	attempts_finish(t, 2003 * MS);
	assert_told(&log, "7 :443 1-2000 error 110\n");
	attempts_free(t);
}

/* A storm of them: each is told, so many of a second are drawn. */
static void storm(void **state)
{
	struct tlog log = {0};
	struct attempts *t = open_table(&log);
	unsigned drawn = 0, all = 0;

	(void)state;
	for (uint64_t i = 0; i < 2 * ATTEMPTS_MAX; i++)
		push(t, SOCK_CONNECT_FAILED, i + 1, 443, 3000 + i, 3000 + i, ECONNREFUSED);
	push(t, SOCK_CONNECT_FAILED, 9999, 443, 4000, 4000, ECONNREFUSED);
	attempts_finish(t, 5000 * MS);
	for (const char *line = log.text, *end; *line; line = end + 1, all++) {
		end = strchr(line, '\n');
		drawn += !memmem(line, (size_t)(end - line), " not drawn", 10);
	}
	assert_int_equal(all, 2 * ATTEMPTS_MAX + 1);
	assert_int_equal(drawn, ATTEMPTS_DRAWN + 1);
	tlog_free(&log);
	attempts_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(failed), cmocka_unit_test(next_address), cmocka_unit_test(goes_on),
		cmocka_unit_test(many),	  cmocka_unit_test(storm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
