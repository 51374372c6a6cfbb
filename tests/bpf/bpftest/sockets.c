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

static void case_votes(void)
{
	char buf[64];
	int fd = connect_to(port), i;

	do_write(A, text, 2);
	do_write(A, text, 3);
	if (send(fd, "1234567", 7, 0) != 7 || recv(fd, buf, sizeof(buf), 0) != 7)
		_exit(97);
	do_read(A, text, -1);
	do_read(A, text, 4);
	do_read(A, text, 1); /* no new receive: no vote */
	/* two connections wait for one send: nobody knows whose it is */
	do_write(A, text, 1);
	do_write(B, text, 1);
	if (send(fd, "12", 2, 0) != 2)
		_exit(97);
	quiet_data = true;
	for (i = 0; i < 2 * LIMIT_SOCK_VOTES; i++) {
		do_write(A, text, 1);
		if (send(fd, "1", 1, 0) != 1)
			_exit(97);
	}
	close_and_settle(fd);
}

/* node: inside a call on one connection, a callback writes to another one in memory and sends. */
static void write_and_send(void)
{
	do_write(B, text, 2);
	send_inside();
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
					    "after B1 tx wire=6 plain=2 127.0.0.1:L>127.0.0.1:R\n"
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
				    "after A1 tx wire=7 plain=5 127.0.0.1:L>127.0.0.1:R\n"
				    "data A1 rx 0+4 'abcd'\n"
				    "before A1 rx wire=7 plain=4 127.0.0.1:L>127.0.0.1:R\n"
				    "data A1 rx 4+1 'a'\n"
				    "data A1 tx 5+1 'a'\n"
				    "open B2\n"
				    "data B2 tx 0+1 'a'\n"
				    "data A1 tx 6+1 'a'\n"
				    "after A1 tx wire=1 plain=1 127.0.0.1:L>127.0.0.1:R\n";
	pid_t server = fork();

	if (server == 0) {
		serve_echo(1);
		_exit(0);
	}
	run_child(case_votes, true);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	votes = count_of("after A1") + count_of("before A1");
	verdict(strncmp(got, begin, sizeof(begin) - 1) == 0, "socket calls next to TLS calls vote");
	if (strncmp(got, begin, sizeof(begin) - 1) != 0)
		print_lines("got", got);
	verdict(votes == LIMIT_SOCK_VOTES, "at most LIMIT_SOCK_VOTES times");
	if (votes != LIMIT_SOCK_VOTES)
		printf("# %u votes\n", votes);
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
				     "sock connect-failed 127.0.0.1:L>127.0.0.1:R\n"
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

void socket_tests(void)
{
	check_served("socket calls inside TLS calls bind", golden_inside, case_inside, serve_echo, 2);
	check_served("a callback's send is not the call's around it", golden_callback_sends, case_callback_sends,
		     serve_echo, 1);
	test_votes();
	check_served("a socket's life has one owner (BR-121)", golden_sockets, case_sockets, serve_sockets, 3);
	test_owners();
}

void socket_tests_unstored(void)
{
	check_served("unstored: socket calls inside TLS calls bind", golden_inside, case_inside, serve_echo, 2);
}
