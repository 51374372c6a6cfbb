/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>

#include "flow/attempts.h"

#define MS 1000000ull

static void on_attempt(void *ctx, const struct attempt *a)
{
	char words[ATTEMPT_ERROR_BYTES];
	const char *error = attempt_error(a, words);

	assert_true(a->what != ATTEMPT_TCP || a->tls_begin_ns == UNKNOWN_NS);

	tlog_printf(ctx, "%u :%u %llu-%llu %s%s\n", a->tgid, a->remote.port, (unsigned long long)(a->begin_ns / MS),
		    (unsigned long long)(a->end_ns / MS), error ? error : "-",
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

static uint64_t push(struct attempts *t, enum sock_what what, uint64_t cookie, uint16_t port, uint64_t begin_ms,
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

	return attempts_push_sock(t, &r) / MS;
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
	assert_told(&log, "7 :443 10-20 ECONNREFUSED\n");
	/* the program's patience: long, it failed; short, it took another way */
	push(t, SOCK_CONNECTING, 2, 443, 0, 2000, 0);
	push(t, SOCK_CONNECT_FAILED, 2, 443, 2000, 3000, 0);
	push(t, SOCK_CONNECTING, 3, 443, 0, 3000, 0);
	push(t, SOCK_CONNECT_FAILED, 3, 443, 3000, 3999, 0);
	attempts_finish(t, 4000 * MS);
	assert_told(&log, "7 :443 2000-3000 -\n");
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
	assert_int_equal(push(t, SOCK_CONNECTED, 5, 443, 30, 50, 0), 10);
	attempts_finish(t, 60 * MS);
	assert_told(&log, "7 :80 25-30 ECONNREFUSED\n7 :443 1-5 ETIMEDOUT\n");
	attempts_free(t);
}

/* Several that failed one after the other are the way of the one that was made next, however long they took, and of no
 * second one. */
static void one_after_the_other(void **state)
{
	struct tlog log = {0};
	struct attempts *t = open_table(&log);

	(void)state;
	push(t, SOCK_CONNECT_FAILED, 1, 443, 10, 30, ECONNREFUSED);
	push(t, SOCK_CONNECT_FAILED, 2, 443, 31, 331, 0); /* the program's patience was short */
	push(t, SOCK_CONNECT_FAILED, 3, 80, 331, 332, ECONNREFUSED);
	assert_int_equal(push(t, SOCK_CONNECTED, 4, 443, 335, 350, 0), 10);
	assert_int_equal(push(t, SOCK_CONNECTED, 5, 443, 336, 351, 0), 336);
	push(t, SOCK_CONNECT_FAILED, 6, 443, 362, 370, ECONNREFUSED);
	assert_int_equal(push(t, SOCK_CONNECTED, 7, 443, 381, 390, 0), 381); /* much later */
	assert_int_equal(push(t, SOCK_CONNECTED, 8, 443, 399, 398, 0), 399);
	attempts_finish(t, 400 * MS);
	assert_told(&log, "7 :80 331-332 ECONNREFUSED\n7 :443 362-370 ECONNREFUSED\n");
	attempts_free(t);
}

static bool is_first(const void *ctx, const struct sock_addr *remote)
{
	return remote->ip[3] == *(const uint8_t *)ctx;
}

/* What was told, or was another's way, is still known. */
static void first_of(void **state)
{
	struct tlog log = {0};
	struct attempts *t = open_table(&log);
	uint8_t mine = 0, other = 1;

	(void)state;
	push(t, SOCK_CONNECT_FAILED, 1, 443, 10, 30, ECONNREFUSED);
	push(t, SOCK_CONNECT_FAILED, 2, 443, 20, 40, 0);
	push(t, SOCK_CONNECT_FAILED, 3, 80, 11, 12, ECONNREFUSED);
	push(t, SOCK_CONNECTING, 4, 443, 0, 15, 0);
	attempts_tick(t, 2000 * MS);
	assert_told(&log, "7 :443 10-30 ECONNREFUSED\n7 :80 11-12 ECONNREFUSED\n");
	assert_int_equal(attempts_first(t, 7, 443, 5 * MS, 50 * MS, is_first, &mine), 10 * MS);
	assert_int_equal(attempts_first(t, 7, 443, 11 * MS, 50 * MS, is_first, &mine), 20 * MS);
	assert_int_equal(attempts_first(t, 7, 443, 11 * MS, 20 * MS, is_first, &mine), 20 * MS);
	assert_int_equal(attempts_first(t, 7, 443, 5 * MS, 50 * MS, is_first, &other), 50 * MS);
	assert_int_equal(attempts_first(t, 8, 443, 5 * MS, 50 * MS, is_first, &mine), 50 * MS);
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
	assert_told(&log, "7 :443 100-5000 - unfinished\n");
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
	assert_told(&log, "7 :443 1-2000 ETIMEDOUT\n");
	attempts_free(t);
}

/* Told at once, and why: who ended it. */
static void of_tls(void **state)
{
	static const enum attempt_what all[] = {ATTEMPT_TLS_UNANSWERED, ATTEMPT_TLS_LOCAL, ATTEMPT_TLS_REMOTE,
						ATTEMPT_TLS, ATTEMPT_TLS_LEFT};
	struct tlog log = {0};
	struct attempts *t = open_table(&log);

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		attempts_push(t, &(struct attempt){
					 .tgid = 7,
					 .remote = {.port = 443},
					 .what = all[i],
					 .begin_ns = 1 * MS,
					 .tls_begin_ns = 2 * MS,
					 .end_ns = 3 * MS,
				 });
	assert_told(&log, "7 :443 1-3 TLS not answered\n7 :443 1-3 TLS not completed by the client\n"
			  "7 :443 1-3 TLS not completed by the server\n7 :443 1-3 TLS not completed\n"
			  "7 :443 1-3 TLS completed and left by the client\n");
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
		cmocka_unit_test(failed),   cmocka_unit_test(next_address), cmocka_unit_test(one_after_the_other),
		cmocka_unit_test(first_of), cmocka_unit_test(goes_on),	    cmocka_unit_test(many),
		cmocka_unit_test(of_tls),   cmocka_unit_test(storm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
