/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP: which socket a connection uses, by calls inside of its own or next to them, and how a socket lives and ends. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpftest.h"

static void case_inside(void)
{
	int first = connect_to(port), second;
	char buf[64];

	fake_new(A);
	inside_fd = first;
	script.inside = send_inside;
	do_handshake(A, 1);
	script.inside = recv_inside;
	do_read(A, text, 1);
	script.inside = send_inside;
	do_write(A, text, 2);
	if (recv(first, buf, sizeof(buf), 0) < 0)
		_exit(97);
	close_and_settle(first);
	/* SSL_clear: the same object, another socket */
	second = connect_to(port);
	inside_fd = second;
	script.inside = send_inside;
	do_handshake(A, 1);
	script.inside = recv_inside;
	do_read(A, text, 3);
	close_and_settle(second);
}

static const char golden_inside[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				    "open A1 fresh\n"
				    "inside A1 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
				    "handshake A1\n"
				    "data A1 rx 0+1 'a'\n"
				    "data A1 tx 0+2 'ab'\n"
				    "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				    "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				    "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				    "open A2 fresh\n"
				    "inside A2 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
				    "handshake A2\n"
				    "data A2 rx 0+3 'abc'\n"
				    "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				    "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				    "exit 0 signal 0\n";

#define HANDSHAKE 0x16
#define DATA	  0x17
#define OVERHEAD  22 /* of a record of TLS 1.3 */

/* So many bytes that begin as a record of this type does. */
static void send_record(int fd, uint8_t type, size_t len)
{
	uint8_t record[1024] = {type, 3, 3};

	if (send(fd, record, len, 0) != (ssize_t)len)
		_exit(97);
}

static void echo_record(int fd, uint8_t type, size_t len)
{
	uint8_t record[1024];

	send_record(fd, type, len);
	if (recv(fd, record, len, MSG_WAITALL) != (ssize_t)len)
		_exit(97);
}

static void case_votes(void)
{
	int fd = connect_to(port), i;

	do_write(A, text, 2);
	do_write(A, text, 3);
	echo_record(fd, DATA, 5 + OVERHEAD);
	do_read(A, text, -1);
	do_read(A, text, 4);
	do_read(A, text, 1); /* no new receive: no vote */
	quiet_data = true;
	for (i = 0; i < 2 * LIMIT_SOCK_VOTES; i++) {
		do_write(A, text, 1);
		echo_record(fd, DATA, 1 + OVERHEAD);
	}
	close_and_settle(fd);
}

/* An event loop that encrypts for several connections before it sends for the first. */
static void case_waiting(void)
{
	int fd = connect_to(port);

	do_write(A, text, 10);
	do_write(B, text, 21);
	do_write(C, text, 35);
	echo_record(fd, HANDSHAKE, 10 + OVERHEAD); /* a greeting that is as long */
	echo_record(fd, DATA, 103 + OVERHEAD);
	echo_record(fd, DATA, 21 + OVERHEAD);
	echo_record(fd, DATA, 21 + OVERHEAD); /* is not waiting any more */
	echo_record(fd, DATA, 35 + OVERHEAD);
	echo_record(fd, DATA, 10 + OVERHEAD);
	/* Two of one size: nobody knows whose it is, until one of them writes another one, or is answered. */
	do_write(A, text, 15);
	do_write(B, text, 15);
	echo_record(fd, DATA, 15 + OVERHEAD);
	do_write(A, text, 25);
	echo_record(fd, DATA, 25 + OVERHEAD);
	do_write(A, text, 15);
	echo_record(fd, DATA, 15 + OVERHEAD);
	do_read(A, text, 1);
	echo_record(fd, DATA, 15 + OVERHEAD);
	close_and_settle(fd);
}

static const char golden_waiting[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				     "open A1\n"
				     "data A1 tx 0+10 'abcdefghij'\n"
				     "open B2\n"
				     "data B2 tx 0+21 'abcdefghijklmnopqrstu'\n"
				     "open C3\n"
				     "data C3 tx 0+35 'abcdefghijklmnopqrstuvwxyzabcdefghi'\n"
				     "after B2 tx wire=43 plain=21 127.0.0.1:L>127.0.0.1:R\n"
				     "after C3 tx wire=57 plain=35 127.0.0.1:L>127.0.0.1:R\n"
				     "after A1 tx wire=32 plain=10 127.0.0.1:L>127.0.0.1:R\n"
				     "data A1 tx 10+15 'abcdefghijklmno'\n"
				     "data B2 tx 21+15 'abcdefghijklmno'\n"
				     "data A1 tx 25+25 'abcdefghijklmnopqrstuvwxy'\n"
				     "after A1 tx wire=47 plain=25 127.0.0.1:L>127.0.0.1:R\n"
				     "data A1 tx 50+15 'abcdefghijklmno'\n"
				     "data A1 rx 0+1 'a'\n"
				     "before A1 rx wire=453 plain=1 127.0.0.1:L>127.0.0.1:R\n"
				     "after B2 tx wire=37 plain=15 127.0.0.1:L>127.0.0.1:R\n"
				     "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				     "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				     "exit 0 signal 0\n";

/* Four records behind the end of a handshake: as many bytes as eight records of another cipher. */
static void case_large_first(void)
{
	static uint8_t record[50000 + 4 * 22 + 80] = {0x14, 3, 3, 0, 1};
	int fd = connect_to(port);

	do_write(A, record, 50000);
	if (send(fd, record, sizeof(record), 0) != (ssize_t)sizeof(record) ||
	    recv(fd, record, sizeof(record), MSG_WAITALL) != (ssize_t)sizeof(record))
		_exit(97);
	close_and_settle(fd);
}

static const char golden_large_first[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
					 "open A1\n"
					 "after A1 tx wire=50168 plain=50000 127.0.0.1:L>127.0.0.1:R\n"
					 "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
					 "sock closed 127.0.0.1:L>127.0.0.1:R\n"
					 "exit 0 signal 0\n";

static void test_large_first(void)
{
	quiet_data = true;
	check_served("a large first request, behind the end of the handshake", golden_large_first, case_large_first,
		     serve_echo, 1);
	quiet_data = false;
}

/* More than are remembered: the oldest is forgotten, the others are not. */
static void case_waiting_many(void)
{
	static char many[LIMIT_WRITES + 1][16];
	int fd = connect_to(port);

	for (size_t i = 0; i < LIMIT_WRITES + 1; i++)
		do_write(&many[i], text, 40 + 37 * (int)i); /* no size is another's with other records */
	for (size_t i = 0; i < LIMIT_WRITES + 1; i++)
		echo_record(fd, DATA, 40 + 37 * i + OVERHEAD);
	close_and_settle(fd);
}

/* node: inside a call on one connection, a callback writes to another one in memory and sends. */
static void write_and_send(void)
{
	do_write(B, text, 2);
	send_record(inside_fd, DATA, 2 + OVERHEAD);
}

static void case_callback_sends(void)
{
	inside_fd = connect_to(port);
	script.inside = write_and_send;
	do_read(A, text, 1);
	recv_inside();
	close_and_settle(inside_fd);
}

static const char golden_callback_sends[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
					    "open B1\n"
					    "data B1 tx 0+2 'ab'\n"
					    "after B1 tx wire=24 plain=2 127.0.0.1:L>127.0.0.1:R\n"
					    "open A2\n"
					    "data A2 rx 0+1 'a'\n"
					    "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
					    "sock closed 127.0.0.1:L>127.0.0.1:R\n"
					    "exit 0 signal 0\n";

static void test_votes(void)
{
	unsigned votes;
	static const char begin[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				    "open A1\n"
				    "data A1 tx 0+2 'ab'\n"
				    "data A1 tx 2+3 'abc'\n"
				    "after A1 tx wire=27 plain=5 127.0.0.1:L>127.0.0.1:R\n"
				    "data A1 rx 0+4 'abcd'\n"
				    "before A1 rx wire=27 plain=4 127.0.0.1:L>127.0.0.1:R\n"
				    "data A1 rx 4+1 'a'\n"
				    "data A1 tx 5+1 'a'\n"
				    "after A1 tx wire=23 plain=1 127.0.0.1:L>127.0.0.1:R\n";
	pid_t server = fork();

	if (server == 0) {
		serve_echo(1);
		_exit(0);
	}
	run_child(case_votes, true);
	end_server(server);
	votes = count_of("after A1") + count_of("before A1");
	verdict(strncmp(got, begin, sizeof(begin) - 1) == 0, "socket calls next to TLS calls vote");
	if (strncmp(got, begin, sizeof(begin) - 1) != 0)
		print_lines("got", got);
	verdict(votes == LIMIT_SOCK_VOTES, "at most LIMIT_SOCK_VOTES times");
	if (votes != LIMIT_SOCK_VOTES)
		printf("# %u votes\n", votes);
}

static void test_waiting_many(void)
{
	pid_t server = fork();
	bool ok;

	if (server == 0) {
		serve_echo(1);
		_exit(0);
	}
	run_child(case_waiting_many, true);
	end_server(server);
	ok = count_of("after x") == LIMIT_WRITES && count_of(" plain=40 ") == 0;
	verdict(ok, "of more connections than are remembered the oldest is forgotten");
	if (!ok)
		print_lines("got", got);
}

static void case_sockets(void)
{
	struct linger reset = {.l_onoff = 1, .l_linger = 0};
	char buf[64];
	int fd;

	/* refused: a port that nobody listens on */
	fd = connect_to(1);
	if (fd >= 0)
		_exit(97);
	/* the peer closes first */
	fd = connect_to(port);
	if (send(fd, "bye", 3, 0) != 3 || recv(fd, buf, 3, MSG_WAITALL) != 3)
		_exit(97);
	if (recv(fd, buf, 1, 0) != 0)
		_exit(96);
	close_and_settle(fd);
	/* we reset */
	fd = connect_to(port);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close_and_settle(fd);
	/* the peer resets */
	fd = connect_to(port);
	if (send(fd, "rst", 3, 0) != 3)
		_exit(97);
	while (recv(fd, buf, 1, 0) > 0)
		;
	close_and_settle(fd);
}

static const char golden_sockets[] = "sock reset-received 127.0.0.1:L>127.0.0.1:R\n"
				     "sock connect-failed 127.0.0.1:L>127.0.0.1:R ECONNREFUSED\n"
				     "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				     "sock close-remote 127.0.0.1:L>127.0.0.1:R\n"
				     "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				     "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				     "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				     "sock reset-sent 127.0.0.1:L>127.0.0.1:R\n"
				     "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				     "sock reset-received 127.0.0.1:L>127.0.0.1:R\n"
				     "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				     "exit 0 signal 0\n";

/* The other end of case_sockets: answers, closes first; resets when it is told to. */
static void serve_sockets(unsigned connections)
{
	struct linger reset = {.l_onoff = 1, .l_linger = 0};
	char buf[4] = "";

	while (connections--) {
		int fd = accept(listener, NULL, NULL);
		ssize_t n = read(fd, buf, 3);

		if (n == 3 && memcmp(buf, "rst", 3) == 0)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		else if (n == 3 && write(fd, buf, 3) != 3)
			break;
		close(fd);
	}
}

/* BR-121: the peer closes, in softirqs, while a stranger keeps the CPUs busy. */
#define MANY_SOCKETS 300

static void case_many_sockets(void)
{
	char buf[4];
	int i;

	for (i = 0; i < MANY_SOCKETS; i++) {
		int fd = connect_to(port);

		if (send(fd, "bye", 3, 0) != 3 || recv(fd, buf, 3, MSG_WAITALL) != 3 || recv(fd, buf, 1, 0) != 0)
			_exit(97);
		close(fd);
	}
	usleep(100000);
}

static void test_owners(void)
{
	pid_t server = fork(), stranger;
	bool ok;

	if (server == 0) {
		serve_sockets(MANY_SOCKETS);
		_exit(0);
	}
	stranger = fork();
	if (stranger == 0)
		for (;;)
			getppid();
	run_child(case_many_sockets, true);
	kill(server, SIGKILL);
	kill(stranger, SIGKILL);
	waitpid(server, NULL, 0);
	waitpid(stranger, NULL, 0);
	ok = count_of("sock connected ") == MANY_SOCKETS && count_of("sock close-remote ") == MANY_SOCKETS &&
	     count_of("sock closed ") == MANY_SOCKETS && count_of("WRONGOWNER") == 0;
	verdict(ok, "sockets that the peer closes keep their owner (BR-121)");
	if (!ok)
		printf("# %u connected, %u closed by the peer, %u closed, %u of a wrong owner\n",
		       count_of("sock connected "), count_of("sock close-remote "), count_of("sock closed "),
		       count_of("WRONGOWNER"));
}

/* A connection of TLS that no probe sees goes down to a child, and outlives its owner. */
static void case_handed_on(void)
{
	int fd = connect_to(port), go[2];
	char c;

	need(pipe(go), 0);
	echo_record(fd, HANDSHAKE, 100);
	if (fork() == 0) {
		echo_record(fd, DATA, 100);
		close(go[1]);
		need(read(go[0], &c, 1), 0); /* the parent has ended */
		usleep(20000);
		echo_record(fd, DATA, 100);
		close_and_settle(fd);
		_exit(0);
	}
	usleep(50000);
}

static void test_handed_on(void)
{
	static const char want[] =
		"sock connected" PEER "fork\n"
		"exit 0 signal 0\n"
		"sock close-local WRONGOWNER" PEER "sock closed WRONGOWNER" PEER "wire closed child tx=300 rx=300\n";
	pid_t server = fork();
	bool ok;

	if (server == 0) {
		serve_echo(1);
		_exit(0);
	}
	note_wires = true;
	run_child(case_handed_on, true);
	usleep(200000);
	probes_consume(probes);
	note_wires = false;
	ok = got && strncmp(got, want, sizeof(want) - 1) == 0;
	verdict(ok, "a socket that outlives its owner is his who uses it");
	if (!ok)
		print_lines("got", got);
	end_server(server);
}

void socket_tests(void)
{
	if (probes_features(probes)->sock_length)
		test_handed_on();
	check_served("socket calls inside TLS calls bind", golden_inside, case_inside, serve_echo, 2);
	check_served("a callback's send is not the call's around it", golden_callback_sends, case_callback_sends,
		     serve_echo, 1);
	test_votes();
	check_served("a send votes for the connection that wrote as much", golden_waiting, case_waiting, serve_echo, 1);
	test_large_first();
	test_waiting_many();
	check_served("a socket's life has one owner (BR-121)", golden_sockets, case_sockets, serve_sockets, 3);
	test_owners();
}

void socket_tests_unstored(void)
{
	check_served("unstored: socket calls inside TLS calls bind", golden_inside, case_inside, serve_echo, 2);
}
