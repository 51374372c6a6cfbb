/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Plain HTTP over Unix sockets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpftest.h"

static int unix_listener;
static struct sockaddr_un unix_at = {.sun_family = AF_UNIX};

static void case_unix(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), other;
	char buf[64];

	need(connect(fd, (void *)&unix_at, sizeof(unix_at)), 0);
	need(write(fd, "GET /1 ", 7), 7);
	need(read(fd, buf, sizeof(buf)), 7);
	need(write(fd, "close", 5), 5);
	usleep(50000);
	need(recv(fd, buf, 0, 0), 0); /* is not the end */
	need(read(fd, buf, sizeof(buf)), 3);
	need(read(fd, buf, sizeof(buf)), 0);
	close(fd);
	/* what is no stream, and what is no HTTP */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	need(bind(fd, (void *)&unix_at, sizeof(sa_family_t)), 0); /* any name */
	other = (int)sizeof(unix_at);
	need(getsockname(fd, (void *)&unix_at, (socklen_t *)&other), 0);
	need(sendto(fd, "GET /1 ", 7, 0, (void *)&unix_at, (socklen_t)other), 7);
	need(recv(fd, buf, sizeof(buf), 0), 7);
	close(fd);
}

static const char golden_unix[] = "open x1 plain\n"
				  "itself x1 tx wire=0 plain=0 :0>:0\n"
				  "data x1 tx 0+7 'GET /1 '\n"
				  "data x1 rx 0+7 'GET /1 '\n"
				  "data x1 tx 7+5 'close'\n"
				  "data x1 rx 7+3 'bye'\n"
				  "close x1 tx=12 rx=10\n"
				  "exit 0 signal 0\n";

/* Echoes, until it is told to close. */
static void serve_unix(unsigned connections)
{
	while (connections--) {
		int fd = accept(unix_listener, NULL, NULL);
		char buf[64];
		ssize_t n;

		while ((n = read(fd, buf, sizeof(buf))) > 0 && memcmp(buf, "close", 5) != 0)
			if (write(fd, buf, (size_t)n) != n)
				break;
		if (n > 0 && write(fd, "bye", 3) != 3)
			break;
		close(fd);
	}
}

static void listen_unix(void)
{
	snprintf(unix_at.sun_path + 1, sizeof(unix_at.sun_path) - 1, "perfbpf-bpftest-%d", getpid());
	unix_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (unix_listener < 0 || bind(unix_listener, (void *)&unix_at, sizeof(unix_at)) || listen(unix_listener, 8))
		abort();
}

/* Many connections that the program closes itself: nothing tells, but they do not stay for ever. */
static void case_unix_closed(void)
{
	int fd[3], i;
	char buf[64];

	for (i = 0; i < 3; i++) {
		fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		need(connect(fd[i], (void *)&unix_at, sizeof(unix_at)), 0);
		need(write(fd[i], "GET /1 ", 7), 7);
		need(read(fd[i], buf, sizeof(buf)), 7);
		if (i < 2)
			close(fd[i]);
	}
	rest();
	need(write(fd[2], "GET /2 ", 7), 7);
	need(read(fd[2], buf, sizeof(buf)), 7);
}

static void test_unix_closed(void)
{
	pid_t server = fork();
	uint64_t now_ns;
	unsigned kept;
	bool ok;

	if (server == 0) {
		serve_unix(3);
		_exit(0);
	}
	start_child(case_unix_closed);
	probes_consume(probes);
	now_ns = clock_boot_ns() + 10000000000ull; /* its time has come */
	probes_tick(probes, now_ns);
	ok = count_of("open x") == 3 && count_of("close x1 tx=0 rx=0") == 1 && count_of("close x2 tx=0 rx=0") == 1 &&
	     count_of("close x3") == 0;
	probes_tick(probes, now_ns + 600000000000ull); /* that of sweeping */
	kept = entries_of("called");
	end_child();
	probes_consume(probes);
	ok = ok && count_of("data x3 tx 7+7 'GET /2 '") == 1 && count_of("data x3 rx 7+7 'GET /2 '") == 1;
	verdict(kept == (probes_features(probes)->sock_length ? 0 : 1), "and nothing is kept of them");
	verdict(ok, "Unix sockets that a program closed itself are found");
	if (!ok)
		print_lines("got", got);
	end_server(server);
}

void unix_tests(void)
{
	listen_unix();
	check_served("Unix stream sockets", golden_unix, case_unix, serve_unix, 1);
	test_unix_closed();
}
