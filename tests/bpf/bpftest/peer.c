/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sockets between a child and the untraced process at their other end: bpftest.h. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bpftest.h"

int listener, inside_fd;
uint16_t port;

void listen_somewhere(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (void *)&a, sizeof(a)) || listen(listener, 64) ||
	    getsockname(listener, (void *)&a, &len))
		abort();
	port = ntohs(a.sin_port);
}

static struct sockaddr_in this_machine(uint16_t to)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(to)};
}

int connect_to(uint16_t to)
{
	struct sockaddr_in a = this_machine(to);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (void *)&a, sizeof(a))) {
		close(fd);
		return -1;
	}
	return fd;
}

void connect_again(int fd, uint16_t to)
{
	struct sockaddr_in a = this_machine(to);
	struct sockaddr none = {.sa_family = AF_UNSPEC};

	need(connect(fd, &none, sizeof(none)), 0);
	need(connect(fd, (void *)&a, sizeof(a)), 0);
}

void close_and_settle(int fd)
{
	close(fd);
	usleep(100000);
}

void send_inside(void)
{
	if (send(inside_fd, "123456", 6, 0) != 6)
		_exit(97);
}

void recv_inside(void)
{
	char buf[64];

	if (recv(inside_fd, buf, sizeof(buf), 0) < 0)
		_exit(97);
}

/* An untraced process is the other end. */
void serve_echo(unsigned connections)
{
	char buf[4096];

	while (connections--) {
		int fd = accept(listener, NULL, NULL);
		ssize_t n;

		while ((n = read(fd, buf, sizeof(buf))) > 0)
			if (write(fd, buf, (size_t)n) != n)
				break;
		close(fd);
	}
}

/* Nobody reads at the other end. */
void serve_nothing(unsigned connections)
{
	while (connections--)
		accept(listener, NULL, NULL);
	pause();
}

void send_bytes(int fd, size_t len)
{
	if (send(fd, big, len, 0) != (ssize_t)len)
		_exit(97);
}

void recv_bytes(int fd, size_t len)
{
	static char buf[20000];

	if (recv(fd, buf, len, MSG_WAITALL) != (ssize_t)len)
		_exit(97);
}

void need(ssize_t got_bytes, ssize_t want)
{
	if (got_bytes != want) {
		fprintf(stderr, "# moved %zd, not %zd (%m)\n", got_bytes, want);
		_exit(97);
	}
}
