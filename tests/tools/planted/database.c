/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A stub of a database, in a process of its own: commands of Redis as arrays (RESP2), each answered after a planted
 * time. The answer says for how long the command was here: whoever asked it waited at least that long. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "planted.h"

static unsigned get_us, hgetall_us;

static void wait_us(unsigned us)
{
	struct timespec ts = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};

	nanosleep(&ts, NULL);
}

/* Where the command at the front ends: "*2", and two strings with their lengths. NULL: it is not whole. */
static char *end_of_command(char *at)
{
	for (int line = 0; line < 5; line++) {
		at = strstr(at, "\r\n");
		if (!at)
			return NULL;
		at += 2;
	}
	return at;
}

static bool reply(int fd, const char *command, uint64_t read_ns)
{
	static const char hgetall[] = "*2\r\n$7\r\nHGETALL\r\n";
	bool many = strncasecmp(command, hgetall, sizeof(hgetall) - 1) == 0;
	char text[64];
	uint64_t ns;
	int len;

	wait_us(many ? hgetall_us : get_us);
	ns = now_ns(CLOCK_BOOTTIME) - read_ns;
	if (ns > SERVED_MAX_NS)
		ns = SERVED_MAX_NS;
	len = snprintf(text, sizeof(text), "%s$%d\r\n%0*" PRIu64 "\r\n", many ? "*2\r\n$1\r\na\r\n" : "", SERVED_DIGITS,
		       SERVED_DIGITS, ns);
	return write_all(fd, text, (size_t)len);
}

static void *serve(void *arg)
{
	char commands[16384], *at, *end;
	int fd = (int)(intptr_t)arg;
	uint64_t read_ns;
	size_t have = 0;
	ssize_t n;

	while (have < sizeof(commands) - 1 && (n = recv(fd, commands + have, sizeof(commands) - 1 - have, 0)) > 0) {
		read_ns = now_ns(CLOCK_BOOTTIME);
		have += (size_t)n;
		commands[have] = '\0';
		for (at = commands; (end = end_of_command(at)); at = end)
			if (!reply(fd, at, read_ns))
				goto out;
		have -= (size_t)(at - commands);
		memmove(commands, at, have);
	}
out:
	close(fd);
	return NULL;
}

static void accept_all(int listener)
{
	pthread_t thread;
	int fd;

	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
		if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd))
			exit(1);
		pthread_detach(thread);
	}
	exit(1);
}

int database_start(unsigned get, unsigned hgetall)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(at);
	pid_t parent = getpid(), pid;

	get_us = get;
	hgetall_us = hgetall;
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 256) ||
	    getsockname(listener, (struct sockaddr *)&at, &len))
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_TIMERSLACK, 1);
		if (getppid() != parent)
			exit(1);
		accept_all(listener);
	}
	close(listener);
	return pid < 0 ? -1 : ntohs(at.sin_port);
}
