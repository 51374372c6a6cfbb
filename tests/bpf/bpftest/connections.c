/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A connection's beginning, handshake and end, and how long the kernel keeps what it knows of it. */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpftest.h"

static void case_generations(void)
{
	fake_new(A);
	do_handshake(A, -1);
	do_handshake(A, 1);
	do_handshake(A, 1); /* some programs ask before every read */
	do_write(A, text, 4);
	do_read(A, text, 3);
	do_handshake(A, 1);
	fake_free(A);
	fake_free(A);	     /* the second reference */
	do_read(A, text, 1); /* late: freeing is only a hint */
	fake_new(A);	     /* the same memory */
	do_handshake(A, 1);
	do_write(A, text, 2);
	fake_free(A);
	do_handshake(A, -1); /* the same memory, and nobody saw SSL_new */
	do_handshake(A, 1);
	do_write(A, text, 1);
	fake_new(NULL);
}

static const char golden_generations[] = "open A1 fresh\n"
					 "handshake A1\n"
					 "data A1 tx 0+4 'abcd'\n"
					 "data A1 rx 0+3 'abc'\n"
					 "close A1 tx=4 rx=3\n"
					 "data A1 rx 3+1 'a'\n"
					 "open A2 fresh\n"
					 "handshake A2\n"
					 "data A2 tx 0+2 'ab'\n"
					 "close A2 tx=2 rx=0\n"
					 "open A3 fresh\n"
					 "handshake A3\n"
					 "data A3 tx 0+1 'a'\n"
					 "exit 0 signal 0\n";

static void case_handshakes(void)
{
	/* never calls it: the last failure before the first success */
	fake_new(A);
	do_read(A, text, -1);
	do_read(A, text, -1);
	do_write(A, text, 2);
	do_read(A, text, -1);
	do_read(A, text, 1);
	/* GnuTLS: 0 is success */
	script.ret = -28;
	fake_handshake_zero(B);
	script.ret = 0;
	fake_handshake_zero(B);
	do_read(B, text, 1);
	/* Asked before every read, on a connection that is older than the tracer: no handshake, not fresh. */
	do_handshake(C, 1);
	do_read(C, text, 1);
	do_handshake(C, 1);
}

static const char golden_handshakes[] = "open A1 fresh\n"
					"handshake A1 approx\n"
					"data A1 tx 0+2 'ab'\n"
					"data A1 rx 0+1 'a'\n"
					"open B2 fresh\n"
					"handshake B2\n"
					"data B2 rx 0+1 'a'\n"
					"open C3\n"
					"data C3 rx 0+1 'a'\n"
					"exit 0 signal 0\n";

/* As node does: the read that finished it has not returned yet when the program writes. */
static void write_after_handshake(void)
{
	usleep(2000);
	do_write(A, text, 4);
}

static void case_handshake_in_read(void)
{
	fake_new(A);
	do_read(A, text, -1);
	usleep(2000);
	script.inside = write_after_handshake;
	do_read(A, text, -1);
	do_write(A, text, 2);
}

static const char golden_handshake_in_read[] = "open A1 fresh\n"
					       "handshake A1 approx\n"
					       "data A1 tx 0+4 'abcd' after the handshake\n"
					       "data A1 tx 4+2 'ab'\n"
					       "exit 0 signal 0\n";

static unsigned conns_in_kernel(void)
{
	return entries_of("conns");
}

static void case_closing(void)
{
	fake_new(A);
	do_write(A, text, 1);
	fake_new(B);
	do_write(B, text, 1);
	fake_free(A);
	rest();
}

/* State of closed connections goes 1 s later, of ended processes at once. fn leaves `with` of them when it rests. */
void test_reclaim(const char *name, void (*fn)(void), unsigned with)
{
	unsigned before = conns_in_kernel(), resting, after;

	start_child(fn);
	usleep(20000); /* softirq events of its sockets */
	probes_consume(probes);
	probes_tick(probes, clock_boot_ns() + 1200000000ull);
	resting = conns_in_kernel();
	end_child();
	probes_consume(probes);
	probes_tick(probes, clock_boot_ns());
	after = conns_in_kernel();
	verdict(before == 0 && resting == with && after == 0, name);
	if (before || resting != with || after)
		printf("# %u before, %u after the close, %u after the exit\n", before, resting, after);
}

void connection_tests(void)
{
	check("generations (BR-106)", golden_generations, case_generations);
	check("handshakes", golden_handshakes, case_handshakes);
	check("a handshake that a read finished before its callback wrote", golden_handshake_in_read,
	      case_handshake_in_read);
	test_reclaim("kernel state is reclaimed", case_closing, 1);
}
