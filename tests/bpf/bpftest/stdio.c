/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* JSON-RPC with a child over its standard input and output, which are pipes or Unix sockets. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpftest.h"

static bool stdio_sockets; /* which kind of ends */
static const char *stdio_first;

#define PING   "{\"method\":\"ping\",\"jsonrpc\":\"2.0\"}"
#define RESULT "{\"jsonrpc\":\"2.0\",\"result\":{}}"

#define EXEC_LINE "exec /proc/self/exe bpftest|serve-stdio\n"
#define SEEN_BY	  "BPFTEST_SEEN" /* which descriptor says that the program's exec was looked at */

static int seen = -1; /* the end that is written to */

/* A server that a shell could be: a program that reads its input and answers each piece. Real ones take some time to
 * start, in which their exec is looked at; this one waits for that. */
int serve_stdio(void)
{
	char buf[4096];
	const char *at = getenv(SEEN_BY);
	ssize_t n;

	if (!at || read(atoi(at), buf, 1) < 0)
		return 1;
	while ((n = read(0, buf, sizeof(buf))) > 0)
		if (write(1, buf[0] == '{' ? RESULT : "words", buf[0] == '{' ? sizeof(RESULT) - 1 : 5) < 0)
			return 1;
	return 0;
}

static void stdio_pair(int ends[2], bool child_reads)
{
	int sv[2];

	if (!stdio_sockets) {
		need(pipe2(ends, O_CLOEXEC), 0);
		return;
	}
	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	ends[0] = sv[!child_reads];
	ends[1] = sv[child_reads];
}

/* in and out are the parent's ends. It may speak before the child runs its program. */
static pid_t start_server(int *in, int *out)
{
	int to[2], from[2];
	pid_t pid;

	stdio_pair(to, true);
	stdio_pair(from, false);
	pid = fork();
	if (pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		execl("/proc/self/exe", "bpftest", "serve-stdio", (char *)NULL);
		_exit(99);
	}
	close(to[0]);
	close(from[1]);
	*in = to[1];
	*out = from[0];
	return pid;
}

static void ask(int in, int out, const char *what, const char *answer)
{
	char buf[64];

	need(write(in, what, strlen(what)), (ssize_t)strlen(what));
	need(read(out, buf, sizeof(buf)), (ssize_t)strlen(answer));
}

static void say_seen(void)
{
	if (seen < 0 || !got || !strstr(got, EXEC_LINE))
		return;
	need(write(seen, "g", 1), 1);
	close(seen);
	seen = -1;
}

/* Its server starts to read when its exec was seen, or fn has ended. */
static void run_parent(void (*fn)(void))
{
	char number[16];
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) || fcntl(ends[0], F_SETFD, 0))
		abort();
	snprintf(number, sizeof(number), "%d", ends[0]);
	if (setenv(SEEN_BY, number, 1))
		abort();
	seen = ends[1];
	after_consuming = say_seen;
	run_child(fn, true);
	after_consuming = NULL;
	close(ends[0]);
	if (seen >= 0)
		close(seen);
	seen = -1;
}

/* What is written before the exec nobody sees. */
static void wait_for_exec(pid_t pid)
{
	char path[32], line[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	for (int i = 0; i < 5000 && !memmem(line, sizeof(line), "serve-stdio", 11); i++) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		usleep(2000);
		if (fd >= 0 && read(fd, line, sizeof(line)) < 0)
			line[0] = '\0';
		close(fd);
	}
	usleep(2000);
}

static void case_stdio(void)
{
	struct iovec parts[2] = {IOV(PING, sizeof(PING) - 1), IOV("\n", 1)};
	int in, out, status;
	pid_t pid = start_server(&in, &out);
	char buf[64];

	if (*stdio_first != '{')
		wait_for_exec(pid);
	ask(in, out, stdio_first, *stdio_first == '{' ? RESULT : "words");
	usleep(50000);
	need(read(out, buf, 0), 0); /* is not the end */
	ask(in, out, PING "\n", RESULT);
	need(writev(in, parts, 2), sizeof(PING));
	need(read(out, buf, 10), 10);
	need(read(out, buf, sizeof(buf)), sizeof(RESULT) - 11);
	fcntl(out, F_SETFL, O_NONBLOCK);
	need(read(out, buf, sizeof(buf)), -1);
	fcntl(out, F_SETFL, 0);
	close(in);
	need(read(out, buf, sizeof(buf)), 0);
	close(out);
	waitpid(pid, &status, 0);
}

static void case_silent(void)
{
	int in, out;

	start_server(&in, &out);
	usleep(50000);
}

#define STDIO_BEGIN "fork\n" EXEC_LINE
#define STDIO_END   "exit child 0 signal 0\nexit 0 signal 0\n"

static const char golden_stdio[] = STDIO_BEGIN "open x1 fresh stdio\n"
					       "data x1 tx 0+33 '" PING "'\n"
					       "data x1 rx 0+29 '" RESULT "'\n"
					       "data x1 tx 33+34 '" PING "\n'\n"
					       "data x1 rx 29+29 '" RESULT "'\n"
					       "data x1 tx 67+33 '" PING "'\n"
					       "data x1 tx 100+1 '\n'\n"
					       "data x1 rx 58+10 '{\"jsonrpc\"'\n"
					       "data x1 rx 68+19 ':\"2.0\",\"result\":{}}'\n"
					       "close x1 tx=101 rx=87\n" STDIO_END;

/* The exit of the child and the end of the file are told in either order. */
static void sort_end(void)
{
	char *exit_at = got ? strstr(got, "exit child 0 signal 0\nclose x1") : NULL, *close_at;
	char line[64];
	size_t len;

	if (!exit_at)
		return;
	close_at = strstr(exit_at, "close");
	len = strcspn(close_at, "\n") + 1;
	if (len >= sizeof(line))
		return;
	memcpy(line, close_at, len);
	memmove(exit_at + len, exit_at, (size_t)(close_at - exit_at));
	memcpy(exit_at, line, len);
}

/* A parent that writes at once may do so before its child's exec is through. */
static void sort_begin(void)
{
	static const char exec_line[] = EXEC_LINE, fork_line[] = "fork\n";
	char *at = got && !strncmp(got, fork_line, strlen(fork_line)) ? strstr(got, exec_line) : NULL;
	char *to = got ? got + strlen(fork_line) : NULL;

	if (!at)
		return;
	memmove(to + strlen(exec_line), to, (size_t)(at - to));
	memcpy(to, exec_line, strlen(exec_line));
}

void stdio_tests(void)
{
	const bool with_syscalls = !probes_features(probes)->sock_length;

	for (int sockets = 0; sockets <= 1; sockets++) {
		stdio_sockets = sockets;
		stdio_first = PING;
		run_parent(case_stdio);
		sort_begin();
		sort_end();
		expect(sockets ? "JSON-RPC with a child over Unix sockets" : "JSON-RPC with a child over pipes",
		       golden_stdio);
		stdio_first = "hello";
		run_parent(case_stdio);
		expect(sockets ? "other words over Unix sockets stay unseen" : "other words over pipes stay unseen",
		       STDIO_BEGIN STDIO_END);
	}
	if (with_syscalls)
		return;
	probes_tick(probes, clock_boot_ns() + 10000000000ull);
	verdict(!probes_sees_syscalls(probes), "and system calls cost nothing any more");
	stdio_sockets = false;
	run_parent(case_silent);
	probes_tick(probes, clock_boot_ns());
	verdict(probes_sees_syscalls(probes), "a child that is not spoken to is waited for");
	probes_tick(probes, clock_boot_ns() + 65000000000ull);
	verdict(!probes_sees_syscalls(probes), "but not for ever");
	/* It outlives its parent: its end is not the next case's. */
	for (int i = 0; i < 1000 && !count_of("exit child"); i++) {
		usleep(2000);
		probes_consume(probes);
	}
}
