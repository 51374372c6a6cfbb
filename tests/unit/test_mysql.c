/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "db_feed.h"

/* Packets: length, number, body. */
#define GREETING                                                                                                       \
	"\x3a\0\0\0\x0a"                                                                                               \
	"5.5.5-10.11.19-MariaDB\0"                                                                                     \
	"\1\0\0\0"                                                                                                     \
	"abcdefgh\0\xfe\xf7\x2d\2\0\xff\x81\x15\0\0\0\0\0\0\x0f\0\0\0"                                                 \
	"ijk"
#define LOGIN(number, caps)                                                                                            \
	"\x2a\0\0" number caps "\0\0\0\1\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"                            \
	"me\0secret\0"
#define CAPS_41	       "\x0d\xa2\3\0"
#define CAPS_MARIA     "\x0c\xa2\3\0"
#define CAPS_TLS       "\x0d\xaa\3\0"
#define OK(number)     "\7\0\0" number "\0\0\0\2\0\0\0"
#define QUERY	       "\x10\0\0\0\3SELECT 'secret'"
#define COLUMNS(n)     "\1\0\0\1" n
#define COLUMN(number) "\5\0\0" number "\3def1"
#define EOF_(number)   "\5\0\0" number "\xfe\0\0\2\0"
#define ROW(number)    "\2\0\0" number "\1x"
#define END(number)    "\7\0\0" number "\xfe\0\0\2\0\0\0"
#define ERROR	       "\x0f\0\0\1\xff\x28\4#42000secret"

static void test_queries(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(fresh, RX(1, GREETING), TX(2, LOGIN("\1", CAPS_41)), RX(3, OK("\2")), TX(11, QUERY),
				    RX(12, COLUMNS("\1") COLUMN("\2") EOF_("\3") ROW("\4")),
				    RX(15, ROW("\5") EOF_("\6")), TX(21, QUERY), RX(22, ERROR),
				    TX(31, "\x0c\0\0\0\3DELETE FROM"), RX(33, "\7\0\0\1\0\5\0\2\0\0\0")),
		  40,
		  "10+5 mariadb 2 - SELECT ?\n"
		  "20+2 mariadb - 1064 SELECT ?\n"
		  "30+3 mariadb 5 - DELETE FROM\n");
	/* Inside of TLS only the client tells who it is. No EOF between columns and rows; no rows at all. */
	db_expect((struct feed)FEED(fresh, TX(2, LOGIN("\2", CAPS_MARIA)), RX(3, OK("\3")), TX(11, QUERY),
				    RX(12, COLUMNS("\2") COLUMN("\2") COLUMN("\3") ROW("\4") END("\5")), TX(21, QUERY),
				    RX(22, COLUMNS("\1") COLUMN("\2") END("\3")), TX(31, QUERY),
				    RX(32, COLUMNS("\1") COLUMN("\2") EOF_("\3") EOF_("\4"))),
		  40, "10+2 mariadb 1 - SELECT ?\n20+2 mariadb 0 - SELECT ?\n30+2 mariadb 0 - SELECT ?\n");
	/* Two results; rows that are not described again; attributes of a query. */
	db_expect((struct feed)FEED(met, TX(11, QUERY),
				    RX(12, "\7\0\0\1\0\2\0\x0a\0\0\0"
					   "\1\0\0\2\1" COLUMN("\3") EOF_("\4")),
				    RX(14, ROW("\5") EOF_("\6")), TX(21, "\x0b\0\0\0\3\0\1SELECT 1"),
				    RX(22, "\2\0\0\1\1\0" ROW("\2") END("\3")),
				    TX(31, "\x0b\0\0\0\3\1\1\0\1\xfe\0sec;"), RX(32, OK("\1"))),
		  40, "10+4 mysql 3 - SELECT ?\n20+2 mysql 1 - SELECT ?\n30+2 mysql 0 - -\n");
	db_expect((struct feed)FEED(met, TX(11, QUERY)), 40, "10+999990 mysql - - unfinished SELECT ?\n");
}

#define PREPARE	 "\x0f\0\0\0\x16SELECT ?, 'ab'"
#define EXECUTE	 "\x11\0\0\0\x17\7\0\0\0\0\1\0\0\0\0\1\3\0sec"
#define LATEST	 "\x0a\0\0\0\x17\xff\xff\xff\xff\0\1\0\0\0"
#define PREPARED "\x0c\0\0\1\0\7\0\0\0\1\0\1\0\0\0\0"

static void test_prepared(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(
			  met, TX(11, PREPARE), RX(12, PREPARED COLUMN("\2") EOF_("\3") COLUMN("\4") EOF_("\5")),
			  TX(21, EXECUTE), RX(23, COLUMNS("\1") COLUMN("\2") EOF_("\3") ROW("\4") EOF_("\5")),
			  TX(31, "\5\0\0\0\x19\7\0\0\0" EXECUTE), RX(34, ERROR), TX(41, PREPARE), RX(42, ERROR)),
		  40,
		  "20+3 mysql 1 - SELECT ?, ?\n"
		  "30+4 mysql - 1064 -\n"
		  "40+2 mysql - 1064 SELECT ?, ?\n");
	/* Without ends of definitions; a cursor, whose rows come later. */
	db_expect((struct feed)FEED(met, TX(11, PREPARE), RX(12, PREPARED COLUMN("\2") COLUMN("\3")), TX(21, EXECUTE),
				    RX(22, COLUMNS("\1") COLUMN("\2") "\5\0\0\3\xfe\0\0\x42\0"),
				    TX(31, "\x09\0\0\0\x1c\7\0\0\0\2\0\0\0"),
				    RX(32, "\3\0\0\1\0\0x"
					   "\3\0\0\2\0\0y" EOF_("\3")),
				    TX(41, "\1\0\0\0\x0e"), RX(42, OK("\1")), TX(51, QUERY), RX(52, OK("\1"))),
		  40, "20+2 mysql - - SELECT ?, ?\n50+2 mysql 0 - SELECT ?\n");
}

/* MariaDB: at once with its preparation, by the number that stands for the latest one. */
static void test_prepared_latest(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(met, TX(11, PREPARE), RX(12, PREPARED COLUMN("\2") COLUMN("\3")),
				    TX(21, "\6\0\0\0\x16TABLE" LATEST), RX(22, "\x0c\0\0\1\0\x08\0\0\0\0\0\0\0\0\0\0"),
				    RX(24, OK("\1")), TX(31, "\6\0\0\0\x16OTHER" LATEST), RX(32, ERROR), RX(33, ERROR)),
		  40,
		  "20+4 mysql 0 - TABLE\n"
		  "30+2 mysql - 1064 OTHER\n"
		  "30+3 mysql - 1064 OTHER\n");
}

static void test_other(void **state)
{
	(void)state;
	/* A file of the client; the backslash by the server's setting; leaving. */
	db_expect((struct feed)FEED(met, TX(11, "\x0a\0\0\0\3LOAD DATA"),
				    RX(12, "\4\0\0\1\xfb"
					   "abc"),
				    TX(13, "\6\0\0\2secret\0\0\0\3"), RX(14, "\7\0\0\4\0\1\0\0\2\0\0"),
				    TX(21, "\x12\0\0\0\3SELECT 'a\\','b',c"), RX(22, OK("\1")),
				    TX(31, "\x13\0\0\0\3SELECT 'a\\'secret'"), RX(32, OK("\1")), TX(41, "\1\0\0\0\1")),
		  40, "10+4 mysql 1 - LOAD DATA\n20+2 mysql 0 - SELECT ?,?,c\n30+2 mysql 0 - SELECT ?\n");
	/* TLS follows; compression. */
	db_expect((struct feed)FEED(
			  fresh, RX(1, GREETING),
			  TX(2, "\x20\0\0\1" CAPS_TLS "\0\0\0\1\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
			  TX(3, "\x16\3\1\2\0"), RX(4, "\x16\3\3\0\0")),
		  40, "");
	db_expect((struct feed)FEED(fresh, RX(1, GREETING), TX(2, LOGIN("\1", "\x2d\xa2\3\0")), RX(3, OK("\2")),
				    TX(4, "xxxx")),
		  40, "");
	db_expect((struct feed)FEED(fresh, TX(1, GREETING), RX(2, LOGIN("\1", CAPS_41))), 40, "served\n");
	db_expect((struct feed)FEED(fresh, RX(1, LOGIN("\2", CAPS_41)), TX(2, OK("\3"))), 40, "served\n");
}

static void test_lost(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(met, TX(11, "\x10\0\0\0\3SELECT "), LOST_TX(11, 8), RX(12, OK("\1")), TX(21, QUERY),
				    RX(22, COLUMNS("\1") COLUMN("\2") END("\3") "\7\0\0"), LOST_RX(22, UINT64_MAX),
				    RX(23, "xyz"), TX(31, QUERY), RX(32, OK("\1"))),
		  40, "10+2 mysql 0 - -\n20+2 mysql 0 - SELECT ?\n30+2 mysql 0 - SELECT ?\n");
	/* A query of more than one packet: the answer's number is the one behind its last. */
	db_expect((struct feed)FEED(met, TX(11, QUERY), RX(12, OK("\1")), TX(21, "\xff\xff\xff\0\3INSERT"),
				    LOST_TX(21, 0xffffff - 7), TX(21, "\1\0\0\1)"), RX(22, OK("\2")), TX(31, QUERY),
				    RX(32, OK("\1"))),
		  40, "10+2 mysql 0 - SELECT ?\n20+2 mysql 0 - -\n30+2 mysql 0 - SELECT ?\n");
	/* No end is seen of what waits; what makes no sense is counted. */
	db_expect((struct feed)FEED(met, TX(11, QUERY), RX(12, COLUMNS("\1")), LOST_RX(13, UINT64_MAX), RX(14, "xyz"),
				    TX(21, QUERY), RX(22, OK("\1")), TX(31, QUERY), RX(32, OK("\7"))),
		  40, "10+3 mysql - - unfinished SELECT ?\n20+2 mysql 0 - SELECT ?\nerrors\ndropped 1\n");
}

#define SESSION                                                                                                        \
	RX(1, GREETING), TX(2, LOGIN("\1", CAPS_41)), RX(3, OK("\2")), TX(11, QUERY),                                  \
		RX(12, COLUMNS("\1") COLUMN("\2") EOF_("\3") ROW("\4") ROW("\5") EOF_("\6")), TX(21, PREPARE),         \
		RX(22, PREPARED COLUMN("\2") EOF_("\3") COLUMN("\4") EOF_("\5")), TX(31, EXECUTE), RX(32, ERROR),      \
		TX(41, QUERY), RX(42, OK("\1"))

static void test_every_gap(void **state)
{
	static const char *const shapes[] = {" SELECT ?", " SELECT ?, ?", " -", NULL};

	(void)state;
	db_every_gap((struct feed)FEED(fresh, SESSION), 9, shapes);
}

static void test_no_memory(void **state)
{
	(void)state;
	db_no_memory((struct feed)FEED(fresh, SESSION));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_queries),
		cmocka_unit_test(test_prepared),
		cmocka_unit_test(test_prepared_latest),
		cmocka_unit_test(test_other),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_every_gap),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
