/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a socket call costs: one thread writes 100 bytes into a TCP connection over loopback and reads them at its other
 * end, again and again; and for comparison calls that touch no socket.
 *
 *   sockbench KIND PAIRS ROUNDS     KIND: other (no HTTP), http, unix (no HTTP)
 *
 * Prints its pid, waits for a line, then prints a line a round: nanoseconds of a write and a read, and of a getppid.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void tcp_pair(int fd[2])
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(listener, (void *)&a, sizeof(a)) || listen(listener, 1) || getsockname(listener, (void *)&a, &len))
		die("listen");
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd[0], (void *)&a, sizeof(a)))
		die("connect");
	fd[1] = accept(listener, NULL, NULL);
	setsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	close(listener);
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* other programs run too */
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double pairs_ns(const int fd[2], const char *text, long pairs)
{
	double begin = now_ns();
	char buf[128];

	for (long i = 0; i < pairs; i++)
		if (write(fd[0], text, 100) != 100 || read(fd[1], buf, sizeof(buf)) != 100)
			die("move");
	return (now_ns() - begin) / (double)pairs;
}

static double getppid_ns(long count)
{
	double begin = now_ns();

	for (long i = 0; i < count; i++)
		syscall(SYS_getppid);
	return (now_ns() - begin) / (double)count;
}

int main(int argc, char **argv)
{
	char text[101] = "x", line[16];
	int fd[2];

	if (argc != 4)
		return 2;
	memset(text, 'x', 100);
	if (strcmp(argv[1], "http") == 0)
		memcpy(text, "GET /1 HTTP/1.1\r\n\r\n", 19);
	printf("pid %d\n", getpid());
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 3;
	if (strcmp(argv[1], "unix") == 0) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
			die("socketpair");
	} else {
		tcp_pair(fd);
	}
	pairs_ns(fd, text, 1000);
	for (int i = 0; i < atoi(argv[3]); i++) {
		printf("%.1f %.1f\n", pairs_ns(fd, text, atol(argv[2])), getppid_ns(10 * atol(argv[2])));
		fflush(stdout);
	}
	return 0;
}
