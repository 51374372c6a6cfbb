/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bytes: which calls moved how many, when calls nest, when one never returns, when memory cannot be read. */
#include <setjmp.h>
#include <stdio.h>

#include "bpftest.h"

/* BR-024: what the functions return, and where the length is. */
static void case_lengths(void)
{
	do_read(A, text, 5);
	do_read(A, text, -1);
	do_read(A, text, 0);
	do_read_ex(A, text, 1, 33);
	do_read_ex(A, text, 0, 777);
	do_read_ex(A, text, 1, 0);
	script.ret = 40;
	fake_peek(A, text, 40);
	do_write(A, text, 7);
	do_write_ex(A, text, 1, 12);
	do_write_ex(A, text, -1, 12);
	do_handshake(A, 1);
}

static const char golden_lengths[] = "open A1\n"
				     "data A1 rx 0+5 'abcde'\n"
				     "data A1 rx 5+33 'abcdefghijklmnopqrstuvwxyzabcdefg'\n"
				     "data A1 tx 0+7 'abcdefg'\n"
				     "data A1 tx 7+12 'abcdefghijkl'\n"
				     "exit 0 signal 0\n";

static void write_inside(void)
{
	do_write(A, text + 1, 3);
	script.ret = 6; /* of the call around */
}

/* BR-040, and node: a write in a read on the same object; a read in a read into another buffer. */
static void read_inside(void)
{
	do_read(A, text + 10, 2);
}

static void case_nested(void)
{
	script.inside = write_inside;
	do_read(A, text, 6);
	script.inside = read_inside;
	do_read(A, text, 4);
}

static const char golden_nested[] = "open A1\n"
				    "data A1 tx 0+3 'bcd'\n"
				    "data A1 rx 0+6 'abcdef'\n"
				    "data A1 rx 6+2 'kl'\n"
				    "data A1 rx 8+4 'abcd'\n"
				    "exit 0 signal 0\n";

static void case_wrapper(void)
{
	fake_write_all(A, text, 10);
	do_write_ex(A, text, 1, 5); /* a tail call: both probes, one record */
	do_write(A, text, 2);
}

static const char golden_wrapper[] = "open A1\n"
				     "data A1 tx 0+4 'abcd'\n"
				     "data A1 tx 4+4 'efgh'\n"
				     "data A1 tx 8+2 'ij'\n"
				     "data A1 tx 10+5 'abcde'\n"
				     "data A1 tx 15+2 'ab'\n"
				     "exit 0 signal 0\n";

static jmp_buf jump;

static void jump_out(void)
{
	longjmp(jump, 1);
}

static void case_missed(void)
{
	do_read(A, text, 5);
	script.inside = jump_out;
	if (setjmp(jump) == 0)
		do_read(A, text, 9);
	do_read(A, text, 3);
	/* and below another call, which finds it at its return */
	do_write(B, text, 1);
}

static const char golden_missed[] = "open A1\n"
				    "data A1 rx 0+5 'abcde'\n"
				    "gap A1 rx at 5\n"
				    "data A1 rx 5+3 'abc'\n"
				    "open B2\n"
				    "data B2 tx 0+1 'a'\n"
				    "exit 0 signal 0\n";

static int deep;

static void deeper(void)
{
	if (deep++ < LIMIT_NEST) {
		script.inside = deeper;
		do_write(A, text + 26 * deep, 1); /* another buffer each: no wrappers */
	}
}

static void case_overflow(void)
{
	script.inside = deeper;
	do_write(A, text, 1); /* LIMIT_NEST + 1 deep: the last is refused */
	do_write(A, text, 2);
}

static void case_fault(void)
{
	do_read(A, (void *)128, 5);
	do_read(A, text, 2);
}

static const char golden_fault[] = "open A1\n"
				   "data A1 rx 0+0/5 fault\n"
				   "data A1 rx 5+2 'ab'\n"
				   "exit 0 signal 0\n";

static void case_len_fault(void)
{
	do_read(A, text, 2);
	script.ret = 1;
	fake_read_ex(A, text, 9, NULL); /* perform() writes nothing, the program reads address 0 */
	do_read(A, text, 2);
}

static const char golden_len_fault[] = "open A1\n"
				       "data A1 rx 0+2 'ab'\n"
				       "gap A1 rx at 2\n"
				       "data A1 rx 2+2 'ab'\n"
				       "exit 0 signal 0\n";

void check_lengths(const char *name)
{
	check(name, golden_lengths, case_lengths);
}

static void test_overflow(void)
{
	static char golden[8192];
	size_t len = (size_t)snprintf(golden, sizeof(golden), "open A1\ngap A1 tx at 0\n");
	unsigned i;

	for (i = 0; i < LIMIT_NEST; i++)
		len += (size_t)snprintf(golden + len, sizeof(golden) - len, "data A1 tx %u+1 'a'\n", i);
	snprintf(golden + len, sizeof(golden) - len, "data A1 tx %u+2 'ab'\nexit 0 signal 0\n", i);
	test_stats("too deep nesting is counted and marked", case_overflow, golden, ST_NEST_OVERFLOW, 1);
}

void data_tests(void)
{
	check_lengths("lengths are what was moved (BR-024, BR-025, BR-026)");
	check("calls nest (BR-040)", golden_nested, case_nested);
	check("a wrapper's bytes are told once", golden_wrapper, case_wrapper);
	test_stats("a missed return is counted and marked (BR-039)", case_missed, golden_missed, ST_MISSED_RETURN, 1);
	test_overflow();
	test_stats("unreadable bytes are counted and marked", case_fault, golden_fault, ST_FAULT, 1);
	test_stats("an unreadable length is counted and marked", case_len_fault, golden_len_fault, ST_FAULT, 1);
	run_child(case_lengths, false);
	expect("a process that is no target stays unseen", "");
}

void data_tests_unstored(void)
{
	check_lengths("unstored: lengths are what was moved");
	check("unstored: calls nest", golden_nested, case_nested);
	check("unstored: a wrapper's bytes are told once", golden_wrapper, case_wrapper);
	test_stats("unstored: a missed return is counted and marked", case_missed, golden_missed, ST_MISSED_RETURN, 1);
}
