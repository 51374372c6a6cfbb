/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "db_feed.h"

#define GET		   "*2\r\n$3\r\nGET\r\n$6\r\nsecret\r\n"
#define CONFIG		   "*3\r\n$6\r\nCONFIG\r\n$3\r\nset\r\n$1\r\nx\r\n"
#define PING		   "*1\r\n$4\r\nPING\r\n"
#define COMMAND(name, len) "*1\r\n$" len "\r\n" name "\r\n"

static void test_commands(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(fresh, TX(11, GET), RX(13, "$5\r\nsec"), RX(14, "re\r\n"), TX(21, CONFIG PING GET),
				    RX(22, "+OK\r\n+PONG\r\n"), RX(25, "-WRONGTYPE Operation secret\r\n")),
		  60,
		  "10+4 redis - - GET ?\n"
		  "20+2 redis - - CONFIG SET ?\n"
		  "20+2 redis - - PING\n"
		  "20+5 redis - WRONGTYPE GET ?\n");
	/* Inline, of any case; what is no command is no name. */
	db_expect((struct feed)FEED(fresh, TX(11, "PING\r\nset  a secret\r\n\r\nsecret x\r\n"),
				    RX(12, "+PONG\r\n+OK\r\n-ERR unknown command 'secret'\r\n")),
		  60,
		  "10+2 redis - - PING\n"
		  "10+2 redis - - SET ?\n"
		  "10+2 redis - ERR -\n");
	/* Nor is what is no subcommand, in the words of Redis 6 and 7. */
	db_expect((struct feed)FEED(
			  fresh, TX(11, PING "MEMORY secret\r\nOBJECT secret x\r\nMEMORY usage x\r\n"),
			  RX(12, "+PONG\r\n-ERR Unknown subcommand or wrong number of arguments for 'secret'. Try\r\n"),
			  RX(13, "-ERR unknown subcommand 'secret'. Try OBJECT HELP.\r\n"), RX(14, ":1\r\n")),
		  60,
		  "10+2 redis - - PING\n"
		  "10+2 redis - ERR MEMORY ?\n"
		  "10+3 redis - ERR OBJECT ?\n"
		  "10+4 redis - - MEMORY USAGE ?\n");
	db_expect((struct feed)FEED(fresh, TX(11, PING "*1\r\n$7\r\nse cret\r\n"), RX(12, "+PONG\r\n-ERR x\r\n")), 60,
		  "10+2 redis - - PING\n10+2 redis - ERR -\n");
	db_expect((struct feed)FEED(fresh, TX(11, PING), RX(12, "+PO")), 60, "10+999990 redis - - unfinished PING\n");
}

static void test_nested(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(fresh, TX(11, GET), RX(12, "*3\r\n*0\r\n*2\r\n:1\r\n$-1\r\n"), RX(15, "$0\r\n\r\n"),
				    TX(21, GET), RX(22, "*-1\r\n"), TX(31, GET), RX(32, "*0\r\n")),
		  60, "10+5 redis - - GET ?\n20+2 redis - - GET ?\n30+2 redis - - GET ?\n");
	db_expect((struct feed)FEED(fresh, TX(11, "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"),
				    RX(12, "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n+proto\r\n:3\r\n"),
				    TX(21, "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n" GET),
				    RX(22, ">3\r\n+subscribe\r\n+c\r\n:1\r\n|1\r\n+ttl\r\n,1.5\r\n"),
				    RX(23, "~2\r\n#t\r\n|1\r\n+a\r\n(12\r\n_\r\n"), TX(31, GET),
				    RX(32, "!9\r\nERR secre\r\n")),
		  60,
		  "10+2 redis - - HELLO ?\n"
		  "20+3 redis - - GET ?\n"
		  "30+2 redis - ERR GET ?\n");
}

static void test_out_of_order(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(
			  fresh, TX(11, PING), RX(12, "+PONG\r\n"), TX(21, "*2\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n"),
			  RX(22, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"), TX(31, PING), RX(32, "+PONG\r\n")),
		  60, "10+2 redis - - PING\n");
	db_expect((struct feed)FEED(fresh, TX(11, "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n" PING)), 60, "");
	/* What was asked before that is answered. */
	db_expect((struct feed)FEED(fresh, TX(11, PING GET COMMAND("MONITOR", "7") PING), RX(12, "+PONG\r\n"),
				    RX(13, "$1\r\nx\r\n+OK\r\n+1 [0] ping\r\n"), TX(21, PING), RX(22, "+PONG\r\n")),
		  60, "10+2 redis - - PING\n10+3 redis - - GET ?\n");
}

#define HELLO_3	  "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"
#define WELCOME_3 "%1\r\n+proto\r\n:3\r\n"
#define SUBSCRIBE "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n"

/* Which version is spoken: RESET goes back to the second, where one that subscribes has no answers in order. */
static void test_versions(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(fresh, TX(11, HELLO_3), RX(12, WELCOME_3), TX(21, "*1\r\n$5\r\nRESET\r\n"),
				    RX(22, "+RESET\r\n"), TX(31, SUBSCRIBE), RX(32, "*3\r\n+subscribe\r\n+c\r\n:1\r\n"),
				    TX(41, PING), RX(42, "*2\r\n+pong\r\n+\r\n")),
		  60,
		  "10+2 redis - - HELLO ?\n"
		  "20+2 redis - - RESET\n");
	db_expect((struct feed)FEED(fresh, TX(11, HELLO_3), RX(12, WELCOME_3),
				    TX(21, "*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n"), RX(22, "*2\r\n+proto\r\n:2\r\n"),
				    TX(31, SUBSCRIBE), RX(32, "*3\r\n+subscribe\r\n+c\r\n:1\r\n"), TX(41, PING),
				    RX(42, "*2\r\n+pong\r\n+\r\n")),
		  60,
		  "10+2 redis - - HELLO ?\n"
		  "20+2 redis - - HELLO ?\n");
	/* Met in the middle: who pushes speaks the third. */
	db_expect((struct feed)FEED(met, TX(11, PING), RX(12, ">2\r\n+invalidate\r\n_\r\n+PONG\r\n"),
				    TX(21, SUBSCRIBE GET), RX(22, ">3\r\n+subscribe\r\n+c\r\n:1\r\n"),
				    RX(24, "$1\r\nx\r\n")),
		  60, "20+4 redis - - GET ?\n");
	/* Keys that changed are told in between, and are no answers. */
	db_expect((struct feed)FEED(fresh, TX(11, HELLO_3), RX(12, WELCOME_3),
				    TX(21, "*3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\non\r\n" GET),
				    RX(22, "+OK\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"),
				    RX(24, "$1\r\nx\r\n"), RX(26, ">2\r\n$10\r\ninvalidate\r\n_\r\n"), TX(31, GET),
				    RX(32, "_\r\n")),
		  60,
		  "10+2 redis - - HELLO ?\n"
		  "20+2 redis - - CLIENT TRACKING ?\n"
		  "20+4 redis - - GET ?\n"
		  "30+2 redis - - GET ?\n");
	/* What one that was refused to subscribe is told is an answer, and not the next command's. */
	db_expect((struct feed)FEED(fresh, TX(11, HELLO_3), RX(12, WELCOME_3), TX(21, SUBSCRIBE GET),
				    RX(22, "-NOPERM no\r\n"), RX(24, "$1\r\nx\r\n"), TX(31, SUBSCRIBE GET),
				    RX(32, ">3\r\n+subscribe\r\n+c\r\n:1\r\n-WRONGTYPE x\r\n")),
		  60,
		  "10+2 redis - - HELLO ?\n"
		  "20+2 redis - NOPERM SUBSCRIBE ?\n"
		  "20+4 redis - - GET ?\n"
		  "30+2 redis - WRONGTYPE GET ?\n");
}

/* Each command of a transaction has an answer of its own, and EXEC one for all. */
static void test_transaction(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(fresh, TX(11, COMMAND("MULTI", "5") GET CONFIG COMMAND("EXEC", "4") PING),
				    RX(12, "+OK\r\n+QUEUED\r\n+QUEUED\r\n"),
				    RX(15, "*2\r\n$1\r\nx\r\n-ERR x\r\n+PONG\r\n"),
				    TX(21, COMMAND("MULTI", "5") COMMAND("DISCARD", "7") COMMAND("EXEC", "4")),
				    RX(23, "+OK\r\n+OK\r\n-EXECABORT x\r\n")),
		  60,
		  "10+2 redis - - MULTI\n"
		  "10+2 redis - - GET ?\n"
		  "10+2 redis - - CONFIG SET ?\n"
		  "10+5 redis - - EXEC\n"
		  "10+5 redis - - PING\n"
		  "20+3 redis - - MULTI\n"
		  "20+3 redis - - DISCARD\n"
		  "20+3 redis - EXECABORT EXEC\n");
}

/* Until one round is known to belong together. */
static void test_met(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(met, RX(1, "+OK\r\n"), TX(11, GET), RX(12, "$-1\r\n"), TX(21, PING),
				    RX(22, "+PONG\r\n")),
		  60, "20+2 redis - - PING\n");
	/* An answer more than was asked: what was seen first was an earlier one's. */
	db_expect((struct feed)FEED(met, TX(11, GET), RX(12, "+OK\r\n"), RX(13, "$-1\r\n"), TX(21, PING),
				    RX(22, "+PONG\r\n"), TX(31, GET), RX(32, "$-1\r\n")),
		  60, "30+2 redis - - GET ?\n");
	db_expect((struct feed)FEED(fresh, TX(11, GET), RX(12, "+OK\r\n+OK\r\n"), TX(21, PING), RX(22, "+PONG\r\n"),
				    TX(31, GET), RX(32, "$-1\r\n"), TX(41, PING), RX(42, "+PONG\r\n")),
		  60, "10+2 redis - - GET ?\n40+2 redis - - PING\nerrors\n");
}

static void test_who(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(fresh, RX(1, PING), TX(2, "+PONG\r\n")), 60, "served\n");
	db_expect((struct feed)FEED(met, RX(1, PING), TX(2, "+PONG\r\n")), 60, "none\n");
	db_expect((struct feed)FEED(fresh, TX(1, "*x\r\n$1")), 60, "none\n");
	db_expect((struct feed)FEED(fresh, TX(1, "*12345678\r\n$")), 60, "none\n");
}

static void test_lost(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(fresh, TX(11, "*2\r\n$3\r\nGET\r\n$6\r\n"), LOST_TX(11, 6), TX(11, "\r\n"),
				    RX(12, "$5\r\n"), LOST_RX(12, 5), RX(14, "\r\n")),
		  60, "10+4 redis - - GET ?\n");
	db_expect((struct feed)FEED(fresh, TX(11, GET), LOST_RX(12, UINT64_MAX), TX(21, GET), RX(22, "+OK\r\n"),
				    TX(31, GET), RX(32, "+OK\r\n"), TX(41, PING), RX(42, "+PONG\r\n")),
		  60, "10+2 redis - - unfinished GET ?\n40+2 redis - - PING\n");
	/* Of all that waits no end is seen, nor whether what has lost its name has an answer. */
	db_expect((struct feed)FEED(fresh, TX(11, PING GET), TX(13, "*1\r\n$4\r\n"), LOST_TX(14, 4), TX(14, "\r\n")),
		  60,
		  "10+3 redis - - unfinished PING\n"
		  "10+3 redis - - unfinished GET ?\n"
		  "12+1 redis - - unfinished -\n");
	db_expect((struct feed)FEED(met, TX(11, PING), LOST_RX(12, UINT64_MAX)), 60, "");
}

#define SESSION                                                                                                        \
	TX(11, PING), RX(12, "+PONG\r\n"), TX(21, GET CONFIG), RX(23, "$5\r\nsec\r\n\r\n-ERR x\r\n"), TX(31, GET),     \
		RX(32, "*2\r\n:1\r\n$1\r\n2\r\n"), TX(41, PING), RX(42, "+PONG\r\n")

static void test_every_gap(void **state)
{
	static const char *const shapes[] = {" GET ?", " CONFIG SET ?", " PING", " -", NULL};

	(void)state;
	db_every_gap((struct feed)FEED(fresh, SESSION), 9, shapes);
}

static void test_no_memory(void **state)
{
	(void)state;
	db_no_memory((struct feed)FEED(fresh, SESSION));
}

static void test_bounds(void **state)
{
	struct feed_run whole = FEED_WHOLE;
	char text[8 * 40 + 64];
	struct feed_segment segments[] = {{PING, sizeof(PING) - 1, 11, DIR_TX}, {text, 0, 12, DIR_RX}};
	struct feed f = FEED(fresh, TX(1, PING));

	(void)state;
	text[0] = '\0';
	for (int i = 0; i < 40; i++)
		strcat(text, "*1\r\n");
	segments[1].len = strlen(text);
	f.segments = segments;
	f.count = 2;
	assert_int_equal(feed_play(&f, &whole), 0);
	assert_log(&f.log, "errors\ndropped 1\n");
	feed_release(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_commands),     cmocka_unit_test(test_nested),
		cmocka_unit_test(test_out_of_order), cmocka_unit_test(test_versions),
		cmocka_unit_test(test_transaction),  cmocka_unit_test(test_met),
		cmocka_unit_test(test_who),	     cmocka_unit_test(test_lost),
		cmocka_unit_test(test_every_gap),    cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
