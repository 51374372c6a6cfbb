/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <arpa/inet.h>

#include "flow/tunnels.h"

#define MS 1000000ull

static void on_attempt(void *ctx, const struct attempt *a)
{
	char words[ATTEMPT_ERROR_BYTES];

	assert_true(a->tls_begin_ns == UNKNOWN_NS);
	tlog_printf(ctx, "%u :%u %llu-%llu %s %s%s\n", a->tgid, a->remote.port, (unsigned long long)(a->begin_ns / MS),
		    (unsigned long long)(a->end_ns / MS), a->host ? a->host : "-", attempt_error(a, words),
		    a->unfinished ? " unfinished" : "");
}

static struct attempts *attempts;

static struct tunnels *open_table(struct tlog *log)
{
	struct tunnels *t;

	attempts = attempts_new(&(struct attempts_sink){log, on_attempt});
	assert_non_null(attempts);
	t = tunnels_new(attempts);
	assert_non_null(t);
	return t;
}

static void close_table(struct tunnels *t)
{
	tunnels_free(t);
	attempts_free(attempts);
}

static void say(struct tunnels *t, uint64_t cookie, enum dir dir, uint64_t ms, const char *bytes)
{
	tunnels_push(t, &(struct rec_tunnel){.ts_ns = ms * MS,
					     .cookie = cookie,
					     .begin_ns = 1 * MS,
					     .tgid = 7,
					     .remote = {.family = AF_INET, .port = 3128},
					     .dir = dir,
					     .bytes = sv_of(bytes)});
}

static void ask(struct tunnels *t, uint64_t cookie, uint64_t ms)
{
	say(t, cookie, DIR_TX, ms, "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n");
}

static void sock(struct tunnels *t, uint64_t cookie, enum sock_what what, uint64_t ms)
{
	tunnels_push_sock(t, &(struct rec_sock){.ts_ns = ms * MS, .cookie = cookie, .tgid = 7, .what = what});
}

static void assert_told(struct tlog *log, const char *golden)
{
	assert_string_equal(log->text ? log->text : "", golden);
	tlog_free(log);
}

/* Told when its connection is closed, or when it is not asked for again. */
static void refused(void **state)
{
	struct tlog log = {0};
	struct tunnels *t = open_table(&log);

	(void)state;
	ask(t, 1, 5);
	say(t, 1, DIR_RX, 10, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
	say(t, 1, DIR_RX, 11, "HTTP/1.1 200 a body that looks like it");
	assert_told(&log, "");
	sock(t, 1, SOCK_CLOSE_LOCAL, 20);
	sock(t, 1, SOCK_CLOSED, 21);
	assert_told(&log, "7 :3128 1-10 api.test proxy answered 407\n");
	ask(t, 2, 30);
	say(t, 2, DIR_RX, 40, "HTTP/1.0 502 Bad Gateway\r\n\r\n");
	tunnels_tick(t, 1039 * MS);
	assert_told(&log, "");
	tunnels_tick(t, 1040 * MS);
	assert_told(&log, "7 :3128 1-40 api.test proxy answered 502\n");
	ask(t, 3, 2000);
	say(t, 3, DIR_RX, 2001, "HTTP/1.1 403 Forbidden\r\n\r\n");
	tunnels_finish(t, 2002 * MS);
	assert_told(&log, "7 :3128 1-2001 api.test proxy answered 403\n");
	close_table(t);
}

/* curl asks for each byte by itself. */
static void byte_by_byte(void **state)
{
	static const char line[] = "HTTP/1.1 407 Proxy";
	struct tlog log = {0};
	struct tunnels *t = open_table(&log);

	(void)state;
	ask(t, 1, 5);
	for (size_t i = 0; line[i]; i++)
		say(t, 1, DIR_RX, 10 + i, (char[]){line[i], '\0'});
	sock(t, 1, SOCK_CLOSE_LOCAL, 50);
	assert_told(&log, "7 :3128 1-21 api.test proxy answered 407\n");
	/* the kernel tells of so many reads: what they are is not known then */
	ask(t, 2, 60);
	say(t, 2, DIR_RX, 61, "HTTP/1.1 4");
	sock(t, 2, SOCK_CLOSE_LOCAL, 62);
	tunnels_finish(t, 5000 * MS);
	assert_told(&log, "");
	close_table(t);
}

/* Nothing is told of one that is made: also with credentials, or behind an interim answer; nor of what is no answer. */
static void made(void **state)
{
	struct tlog log = {0};
	struct tunnels *t = open_table(&log);

	(void)state;
	ask(t, 1, 5);
	say(t, 1, DIR_RX, 10, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
	ask(t, 1, 15);
	say(t, 1, DIR_RX, 20, "HTTP/1.1 100 Continue\r\n\r\n");
	say(t, 1, DIR_RX, 25, "HTTP/1.1 200 Connection established\r\n\r\n");
	sock(t, 1, SOCK_CLOSE_REMOTE, 30);
	ask(t, 2, 5);
	say(t, 2, DIR_RX, 10, "SSH-2.0-x");
	sock(t, 2, SOCK_CLOSE_REMOTE, 30);
	say(t, 3, DIR_TX, 5, "\x16\x03\x01");
	say(t, 3, DIR_RX, 6, "HTTP/1.1 407 x");
	sock(t, 3, SOCK_CLOSE_REMOTE, 30);
	tunnels_finish(t, 5000 * MS);
	assert_told(&log, "");
	close_table(t);
}

/* An answer that the program reads after the proxy closed. */
static void closed_behind_its_answer(void **state)
{
	struct tlog log = {0};
	struct tunnels *t = open_table(&log);

	(void)state;
	ask(t, 1, 5);
	sock(t, 1, SOCK_CLOSE_REMOTE, 10);
	say(t, 1, DIR_RX, 11, "HTTP/1.1 407 x\r\n\r\n");
	sock(t, 1, SOCK_CLOSE_LOCAL, 12);
	assert_told(&log, "7 :3128 1-11 api.test proxy answered 407\n");
	close_table(t);
}

static void unanswered(void **state)
{
	struct tlog log = {0};
	struct tunnels *t = open_table(&log);

	(void)state;
	ask(t, 1, 5);
	sock(t, 1, SOCK_RTT, 6);
	sock(t, 1, SOCK_CLOSE_REMOTE, 10);
	sock(t, 1, SOCK_CLOSED, 12);
	ask(t, 2, 5);
	sock(t, 2, SOCK_RESET_RECEIVED, 20);
	sock(t, 2, SOCK_CLOSED, 20);
	ask(t, 3, 5);
	sock(t, 3, SOCK_CLOSE_LOCAL, 1004); /* the program took another way */
	ask(t, 4, 5);
	sock(t, 4, SOCK_CLOSE_LOCAL, 1005);
	ask(t, 5, 2000);
	ask(t, 6, 3000);
	tunnels_finish(t, 3500 * MS);
	assert_told(&log, "7 :3128 1-10 api.test proxy closed without an answer\n"
			  "7 :3128 1-20 api.test proxy closed without an answer\n"
			  "7 :3128 1-1005 api.test proxy did not answer\n"
			  "7 :3128 1-3500 api.test proxy did not answer unfinished\n");
	close_table(t);
}

/* Lines that were cut, or are none, have no name; nor do credentials become one. */
static void names(void **state)
{
	static const char *const lines[] = {"CONNECT api.test:443 HT",	  "CONNECT api.te",
					    "CONNECT [::1]:443 HTTP/1.1", "CONNECT a:b@api.test:443 HTTP/1.1",
					    "CONNECT a@b:443 HTTP/1.1",	  "CONNECT :443 HTTP/1.1",
					    "CONNECT api.test HTTP/1.1",  "CONNECT \x1b[m:1 HTTP/1.1"};
	struct tlog log = {0};
	struct tunnels *t = open_table(&log);

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		say(t, 1, DIR_TX, 5, lines[i]);
		sock(t, 1, SOCK_CLOSE_REMOTE, 10);
		sock(t, 1, SOCK_CLOSE_LOCAL, 11);
		assert_told(&log, "7 :3128 1-10 - proxy closed without an answer\n");
	}
	close_table(t);
}

/* A full table forgets the oldest. */
static void many(void **state)
{
	struct tlog log = {0};
	struct tunnels *t = open_table(&log);

	(void)state;
	for (uint64_t i = 0; i <= TUNNELS_MAX; i++)
		ask(t, i + 1, 5);
	sock(t, 1, SOCK_CLOSE_REMOTE, 10);
	assert_told(&log, "");
	sock(t, TUNNELS_MAX + 1, SOCK_CLOSE_REMOTE, 10);
	sock(t, 2, SOCK_CLOSE_REMOTE, 11);
	assert_told(&log, "");
	tunnels_finish(t, 12 * MS);
	assert_told(&log, "7 :3128 1-11 api.test proxy closed without an answer\n"
			  "7 :3128 1-10 api.test proxy closed without an answer\n");
	close_table(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refused),    cmocka_unit_test(byte_by_byte),
		cmocka_unit_test(made),	      cmocka_unit_test(closed_behind_its_answer),
		cmocka_unit_test(unanswered), cmocka_unit_test(names),
		cmocka_unit_test(many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
