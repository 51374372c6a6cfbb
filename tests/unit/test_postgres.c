/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "db_feed.h"

/* Messages: type, length, body. */
#define STARTUP	   "\0\0\0\x11\0\3\0\0user\0me\0\0"
#define WELCOME	   "R\0\0\0\x08\0\0\0\0S\0\0\0\x23standard_conforming_strings\0on\0K\0\0\0\x0c\0\0\0\1\0\0\0\2" READY
#define READY	   "Z\0\0\0\5I"
#define READY_FAIL "Z\0\0\0\5E"
#define SYNC	   "S\0\0\0\4"
#define SELECT_1   "Q\0\0\0\x16SELECT 'secret 1'\0"
#define ROW	   "D\0\0\0\x0b\0\1\0\0\0\1x"
#define COLUMNS	   "T\0\0\0\x06\0\0"
#define DONE(n)	   "C\0\0\0\x0dSELECT " n "\0"
#define ERROR	   "E\0\0\0\x22SERROR\0VERROR\0C42P01\0Msecret\0\0"

static void test_simple(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(fresh, TX(1, STARTUP), RX(2, WELCOME), TX(11, SELECT_1), RX(15, COLUMNS ROW),
				    RX(20, ROW DONE("2") READY), TX(31, "Q\0\0\0\x0bSELEC\0\0"), RX(32, ERROR READY)),
		  60,
		  "10+10 postgresql 2 - SELECT ?\n"
		  "30+2 postgresql - 42P01 SELEC\n");
	/* Two statements in one: rows together, up to the last one's end. */
	db_expect((struct feed)FEED(met,
				    TX(11, "Q\0\0\0\x1c"
					   "BEGIN;SELECT 1;SELECT 2\0"),
				    RX(12, "C\0\0\0\x0a"
					   "BEGIN\0" COLUMNS ROW DONE("1") COLUMNS),
				    RX(14, ROW ROW DONE("2")), RX(15, READY)),
		  60, "10+4 postgresql 3 - BEGIN;SELECT ?;SELECT ?\n");
	/* The server closes with its last error; the connection ends during a command. */
	db_expect((struct feed)FEED(met, TX(11, SELECT_1), RX(12, ERROR)), 60, "10+2 postgresql - 42P01 SELECT ?\n");
	db_expect((struct feed)FEED(met, TX(11, SELECT_1), RX(12, COLUMNS)), 60,
		  "10+999990 postgresql - - unfinished SELECT ?\n");
}

#define PARSE_S1 "P\0\0\0\x15s1\0SELECT 7+$1\0\0\0"
#define BIND_S1                                                                                                        \
	"B\0\0\0\x14\0s1\0\0\0\0\1\0\0\0\2"                                                                            \
	"42\0\0"
#define TAKEN	 "E\0\0\0\x13SERROR\0C42P05\0\0"
#define BIND_S9	 "B\0\0\0\x0e\0s9\0\0\0\0\0\0\0"
#define EXECUTE	 "E\0\0\0\x09\0\0\0\0\0"
#define DESCRIBE "D\0\0\0\x06P\0"

static void test_extended(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(met, TX(11, PARSE_S1 BIND_S1 DESCRIBE EXECUTE SYNC),
				    RX(13, "1\0\0\0\4"
					   "2\0\0\0\4" COLUMNS ROW),
				    RX(19, DONE("1") READY), TX(31, BIND_S1 EXECUTE SYNC),
				    RX(35, "2\0\0\0\4" DONE("0") READY), TX(41, BIND_S9 EXECUTE SYNC),
				    RX(46, "2\0\0\0\4" ERROR READY)),
		  60,
		  "10+9 postgresql 1 - SELECT ?+$1\n"
		  "30+5 postgresql 0 - SELECT ?+$1\n"
		  "40+6 postgresql - 42P01 -\n");
	/* Pipelined, the second fails: the third is passed over by the server. Then a portal in two parts. */
	db_expect((struct feed)FEED(
			  met,
			  TX(11, PARSE_S1 BIND_S1 EXECUTE BIND_S1 EXECUTE BIND_S1 EXECUTE SYNC BIND_S1 EXECUTE SYNC),
			  RX(13, "1\0\0\0\4"
				 "2\0\0\0\4" DONE("1") "2\0\0\0\4"),
			  RX(15, ERROR READY_FAIL "2\0\0\0\4"), RX(17, ROW ROW "s\0\0\0\4" READY),
			  TX(21, "C\0\0\0\x08Ss1\0" SYNC), RX(22, "3\0\0\0\4" READY)),
		  60,
		  "10+3 postgresql 1 - SELECT ?+$1\n"
		  "10+5 postgresql - 42P01 SELECT ?+$1\n"
		  "10+7 postgresql 2 - SELECT ?+$1\n");
	/* Prepared in one round trip, which fails in another; a name made anew. */
	db_expect((struct feed)FEED(met, TX(11, PARSE_S1 "D\0\0\0\x08Ss1\0" SYNC), RX(12, ERROR READY),
				    TX(21, "P\0\0\0\x0fs1\0TABLE\0\0\0"
					   "H\0\0\0\4"),
				    RX(22, "1\0\0\0\4"), TX(31, BIND_S1 EXECUTE SYNC),
				    RX(33, "2\0\0\0\4" DONE("3") READY)),
		  60,
		  "10+2 postgresql - 42P01 SELECT ?+$1\n"
		  "30+3 postgresql 3 - TABLE\n");
	/* A name that is taken: it goes on to be another statement's, behind a pool perhaps another client's. */
	db_expect((struct feed)FEED(met, TX(11, PARSE_S1 SYNC), RX(12, TAKEN READY), TX(21, BIND_S1 EXECUTE SYNC),
				    RX(22, "2\0\0\0\4" DONE("1") READY)),
		  60,
		  "10+2 postgresql - 42P05 SELECT ?+$1\n"
		  "20+2 postgresql 1 - -\n");
}

#define PARSE_COPY                                                                                                     \
	"P\0\0\0\x19\0"                                                                                                \
	"COPY t FROM STDIN\0\0\0"
#define BIND_ANY "B\0\0\0\x0c\0\0\0\0\0\0\0\0"

static void test_copy(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(met,
				    TX(11, "Q\0\0\0\x16"
					   "COPY t FROM STDIN\0"),
				    RX(12, "G\0\0\0\x07\0\0\0"),
				    TX(15, "d\0\0\0\x0csecret\n\n"
					   "c\0\0\0\4"),
				    RX(17, "C\0\0\0\x0b"
					   "COPY 2\0" READY),
				    TX(21, "Q\0\0\0\x15"
					   "COPY t TO STDOUT\0"),
				    RX(22, "H\0\0\0\x07\0\0\0"
					   "d\0\0\0\x06x\n"
					   "c\0\0\0\4"
					   "C\0\0\0\x0b"
					   "COPY 1\0" READY)),
		  60,
		  "10+7 postgresql 2 - COPY t FROM STDIN\n"
		  "20+2 postgresql 1 - COPY t TO STDOUT\n");
	/* Of an extended query: the server passes over a Sync while it copies, and answers the one behind the data. */
	db_expect((struct feed)FEED(met, TX(11, PARSE_COPY BIND_ANY EXECUTE SYNC),
				    RX(12, "1\0\0\0\4"
					   "2\0\0\0\4"
					   "G\0\0\0\x07\0\0\0"),
				    TX(15, "d\0\0\0\x0csecret\n\n"
					   "c\0\0\0\4" SYNC),
				    RX(17, "C\0\0\0\x0b"
					   "COPY 2\0" READY),
				    TX(21, PARSE_S1 BIND_S1 EXECUTE SYNC),
				    RX(22, "1\0\0\0\4"
					   "2\0\0\0\4" DONE("1") READY)),
		  60,
		  "10+7 postgresql 2 - COPY t FROM STDIN\n"
		  "20+2 postgresql 1 - SELECT ?+$1\n");
	/* The client gives up; the server did, before the client knew. */
	db_expect((struct feed)FEED(met, TX(11, PARSE_COPY BIND_ANY EXECUTE SYNC),
				    RX(12, "1\0\0\0\4"
					   "2\0\0\0\4"
					   "G\0\0\0\x07\0\0\0"),
				    TX(15, "f\0\0\0\x05\0" SYNC), RX(17, ERROR READY), TX(21, SELECT_1),
				    RX(22, DONE("1") READY), TX(31, PARSE_COPY BIND_ANY EXECUTE SYNC),
				    RX(32, "1\0\0\0\4"
					   "2\0\0\0\4"
					   "G\0\0\0\x07\0\0\0"),
				    RX(34, ERROR), TX(35, "c\0\0\0\4" SYNC), RX(37, READY), TX(41, SELECT_1),
				    RX(42, DONE("1") READY)),
		  60,
		  "10+7 postgresql - 42P01 COPY t FROM STDIN\n"
		  "20+2 postgresql 1 - SELECT ?\n"
		  "30+4 postgresql - 42P01 COPY t FROM STDIN\n"
		  "40+2 postgresql 1 - SELECT ?\n");
}

#define DEFERRED "E\0\0\0\x13SERROR\0C23503\0\0"
#define BEHIND_BIND                                                                                                    \
	"2\0\0\0\4"                                                                                                    \
	"C\0\0\0\x0fINSERT 0 1\0"

/* What is committed at its Sync may fail there, though each of its commands was complete. */
static void test_commit(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(met, TX(11, BIND_S9 EXECUTE SYNC), RX(13, BEHIND_BIND), RX(19, DEFERRED READY),
				    TX(21, BIND_S9 EXECUTE SYNC), RX(23, BEHIND_BIND READY)),
		  60,
		  "10+9 postgresql - 23503 -\n"
		  "20+3 postgresql 1 - -\n");
	/* As in the simple protocol. */
	db_expect((struct feed)FEED(met, TX(11, SELECT_1), RX(13, DONE("1")), RX(19, DEFERRED READY)), 60,
		  "10+9 postgresql - 23503 SELECT ?\n");
	/* The last one of several; what comes by itself changes nothing. */
	db_expect((struct feed)FEED(met, TX(11, BIND_S9 EXECUTE BIND_S9 EXECUTE SYNC),
				    RX(13, BEHIND_BIND BEHIND_BIND "N\0\0\0\x05\0"), RX(19, DEFERRED READY)),
		  60,
		  "10+3 postgresql 1 - -\n"
		  "10+9 postgresql - 23503 -\n");
	/* Of the next command, and not of the Sync behind it. */
	db_expect(
		(struct feed)FEED(met, TX(11, BIND_S9 EXECUTE PARSE_S1 SYNC), RX(13, BEHIND_BIND), RX(19, ERROR READY)),
		60,
		"10+3 postgresql 1 - -\n"
		"10+9 postgresql - 42P01 SELECT ?+$1\n");
	/* A Sync that came later has no command. */
	db_expect((struct feed)FEED(met, TX(11, BIND_S9 EXECUTE "H\0\0\0\4"), RX(13, BEHIND_BIND), TX(21, SYNC),
				    RX(23, DEFERRED READY)),
		  60,
		  "10+3 postgresql 1 - -\n"
		  "20+3 postgresql - 23503 -\n");
	/* The connection ends before it is known. */
	db_expect((struct feed)FEED(met, TX(11, BIND_S9 EXECUTE SYNC), RX(13, BEHIND_BIND)), 60,
		  "10+3 postgresql 1 - -\n");
}

/* Statements that are closed take no room from one that is not. */
static void test_closed(void **state)
{
	static const char parse[] = "P\0\0\0\x0en0000\0X\0\0\0", close[] = "C\0\0\0\x0bSn0000\0";
	static char asked[5000 * (sizeof(parse) + sizeof(close))], answered[5000 * 10];
	char name[16];
	struct feed_segment segments[] = {
		{PARSE_S1 SYNC, sizeof(PARSE_S1 SYNC) - 1, 11, DIR_TX},
		{"1\0\0\0\4" READY, sizeof("1\0\0\0\4" READY) - 1, 12, DIR_RX},
		{asked, 0, 21, DIR_TX},
		{answered, 0, 22, DIR_RX},
		{BIND_S1 EXECUTE SYNC, sizeof(BIND_S1 EXECUTE SYNC) - 1, 31, DIR_TX},
		{"2\0\0\0\4" DONE("1") READY, sizeof("2\0\0\0\4" DONE("1") READY) - 1, 32, DIR_RX}};
	struct feed_run whole = FEED_WHOLE;
	struct feed f = FEED(met, TX(1, SYNC));

	(void)state;
	for (int i = 0; i < 5000; i++) {
		char *p = asked + segments[2].len, *c = p + sizeof(parse) - 1;

		snprintf(name, sizeof(name), "n%04d", i);
		memcpy(p, parse, sizeof(parse) - 1);
		memcpy(p + 5, name, 5);
		memcpy(c, close, sizeof(close) - 1);
		memcpy(c + 6, name, 5);
		segments[2].len += sizeof(parse) + sizeof(close) - 2;
		memcpy(answered + segments[3].len,
		       "1\0\0\0\4"
		       "3\0\0\0\4",
		       10);
		segments[3].len += 10;
	}
	f.segments = segments;
	f.count = 6;
	assert_int_equal(feed_play(&f, &whole), 0);
	assert_log(&f.log, "20+12 postgresql 1 - SELECT ?+$1\n");
	feed_release(&f);
}

static void test_encryption(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(fresh, TX(1, "\0\0\0\x08\x04\xd2\x16\x2f"), RX(2, "N"), TX(3, STARTUP),
				    RX(4, WELCOME), TX(11, SELECT_1), RX(12, DONE("1") READY)),
		  60, "10+2 postgresql 1 - SELECT ?\n");
	db_expect((struct feed)FEED(fresh, TX(1, "\0\0\0\x08\x04\xd2\x16\x2f"), RX(2, "S"), TX(3, "\x16\x03\x01Qxxxx"),
				    RX(4, "\x16\x03\x03")),
		  60, "");
	db_expect((struct feed)FEED(fresh, TX(1, "\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\1\0\0\0\2")), 60, "");
}

static void test_who(void **state)
{
	(void)state;
	db_expect((struct feed)FEED(fresh, RX(1, STARTUP), TX(2, WELCOME)), 60, "served\n");
	db_expect((struct feed)FEED(met, RX(1, SELECT_1), TX(2, DONE("1") READY)), 60, "served\n");
	db_expect((struct feed)FEED(met, RX(1, "xyz" READY), TX(11, SELECT_1), RX(12, DONE("1") READY)), 60,
		  "10+2 postgresql 1 - SELECT ?\n");
	db_expect((struct feed)FEED(fresh, TX(1, "GET / HTTP/1.1\r\n")), 60, "none\n");
	db_expect((struct feed)FEED(fresh, TX(1, SELECT_1)), 60, "none\n");
	db_expect((struct feed)FEED(fresh, RX(1, "220 mail\r\n"), TX(2, "EHLO\r\n")), 60, "none\n");
	db_expect((struct feed)FEED(met, TX(1, "\0\0\0\0\0\3\0\0")), 60, "none\n");
}

static void test_lost(void **state)
{
	(void)state;
	/* In a text, a row, a tag: that is unknown. */
	db_expect((struct feed)FEED(met, TX(11, "Q\0\0\0\x16SELECT "), LOST_TX(11, 11),
				    RX(12, COLUMNS "D\0\0\0\x0b\0\1"), LOST_RX(12, 5), RX(13, DONE("1") READY),
				    TX(21, SELECT_1), RX(22, "C\0\0\0\x0d"), LOST_RX(22, 9), RX(23, READY)),
		  60,
		  "10+3 postgresql 1 - -\n"
		  "20+2 postgresql - - SELECT ?\n");
	/* Elsewhere: read on behind the next ReadyForQuery that the client answers to; names are forgotten. */
	db_expect((struct feed)FEED(met, TX(11, PARSE_S1 BIND_S1 EXECUTE SYNC), RX(12, "1\0\0\0\4"),
				    LOST_RX(12, UINT64_MAX), RX(13, ROW DONE("1") READY), TX(21, BIND_S1 EXECUTE SYNC),
				    RX(22, "2\0\0\0\4" DONE("1") READY), TX(31, SELECT_1), RX(32, DONE("1") READY)),
		  60,
		  "10+2 postgresql - - unfinished SELECT ?+$1\n"
		  "20+2 postgresql 1 - -\n"
		  "30+2 postgresql 1 - SELECT ?\n");
	/* All that waits is told, what has an end with it. */
	db_expect((struct feed)FEED(met, TX(11, BIND_S9 EXECUTE BIND_S9 EXECUTE SYNC SELECT_1),
				    RX(12, "2\0\0\0\4" DONE("7") "2\0\0\0\4" DONE("1")), LOST_RX(13, UINT64_MAX)),
		  60,
		  "10+2 postgresql 7 - -\n"
		  "10+2 postgresql 1 - -\n"
		  "10+3 postgresql - - unfinished SELECT ?\n");
	/* What was asked before the client's bytes went missing is still answered. */
	db_expect((struct feed)FEED(met,
				    TX(11, "Q\0\0\0\x16"
					   "COPY t FROM STDIN\0"),
				    RX(12, "G\0\0\0\x07\0\0\0"), TX(13, "d\0\0\0\x0csec"), LOST_TX(14, 100000),
				    TX(15, "xxS\0\0\0\4"),
				    RX(17, "C\0\0\0\x0b"
					   "COPY 9\0" READY),
				    TX(21, SELECT_1), RX(22, DONE("1") READY)),
		  60, "10+7 postgresql 9 - COPY t FROM STDIN\n20+2 postgresql 1 - SELECT ?\n");
	db_expect((struct feed)FEED(met, LOST_TX(9, 10), TX(11, SELECT_1), LOST_TX(12, UINT64_MAX),
				    RX(13, DONE("1") READY), RX(14, DONE("1") READY), TX(21, SELECT_1),
				    RX(22, DONE("1") READY)),
		  60, "10+3 postgresql 1 - SELECT ?\n20+2 postgresql 1 - SELECT ?\n");
	/* What makes no sense is not told, and counted, but for what was complete before. */
	db_expect((struct feed)FEED(met, TX(11, SELECT_1 "x\0\0\0\4"), RX(12, DONE("1") READY), TX(21, SELECT_1),
				    RX(22, DONE("1") READY)),
		  60, "20+2 postgresql 1 - SELECT ?\nerrors\ndropped 1\n");
	db_expect((struct feed)FEED(met, TX(11, BIND_S9 EXECUTE SYNC SELECT_1),
				    RX(12, "2\0\0\0\4" DONE("1") "x\0\0\0\4")),
		  60, "10+2 postgresql 1 - -\nerrors\ndropped 1\n");
}

#define SESSION                                                                                                        \
	TX(1, STARTUP), RX(2, WELCOME), TX(11, SELECT_1), RX(20, COLUMNS ROW ROW DONE("2") READY),                     \
		TX(31, PARSE_S1 BIND_S1 DESCRIBE EXECUTE SYNC),                                                        \
		RX(33, "1\0\0\0\4"                                                                                     \
		       "2\0\0\0\4" COLUMNS ROW DONE("1") READY),                                                       \
		TX(41, BIND_S1 EXECUTE SYNC), RX(45, "2\0\0\0\4" DONE("1") READY)

static void test_every_gap(void **state)
{
	static const char *const shapes[] = {" SELECT ?", " SELECT ?+$1", " -", NULL};

	(void)state;
	db_every_gap((struct feed)FEED(fresh, SESSION), 15, shapes);
}

static void test_no_memory(void **state)
{
	(void)state;
	db_no_memory((struct feed)FEED(fresh, SESSION));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_simple),	  cmocka_unit_test(test_extended), cmocka_unit_test(test_copy),
		cmocka_unit_test(test_commit),	  cmocka_unit_test(test_closed),   cmocka_unit_test(test_encryption),
		cmocka_unit_test(test_who),	  cmocka_unit_test(test_lost),	   cmocka_unit_test(test_every_gap),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
