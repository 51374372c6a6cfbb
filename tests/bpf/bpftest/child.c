/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Running a child, and holding what came of it against what was expected: bpftest.h. */
#include <bpf/bpf.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpftest.h"

const char *flavour;
struct probes *probes;
bool consume_while_running = true, woken_before_reading;
void (*after_consuming)(void);

static unsigned test_number, failures;

bool reader_is_woken(void)
{
	struct pollfd fd = {.fd = probes_fd(probes), .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

void run_child(void (*fn)(void), bool target)
{
	int go[2], status;
	char c = 0;

	if (pipe(go))
		abort();
	forget_records();
	child_pid = fork();
	if (child_pid < 0)
		abort();
	if (child_pid == 0) {
		close(go[1]);
		if (read(go[0], &c, 1) != 1)
			_exit(99);
		fn();
		_exit(0);
	}
	close(go[0]);
	if (target && probes_add_target(probes, child_pid, 0))
		note("ADD TARGET FAILED\n");
	if (write(go[1], "g", 1) != 1)
		abort();
	close(go[1]);
	while (waitpid(child_pid, &status, consume_while_running ? WNOHANG : 0) == 0) {
		probes_consume(probes);
		if (after_consuming)
			after_consuming();
		usleep(2000);
	}
	usleep(20000); /* softirq events of its sockets */
	woken_before_reading = reader_is_woken();
	probes_consume(probes);
}

static int to_child[2], to_parent[2];

static void go_on(const int way[2])
{
	if (write(way[1], "g", 1) != 1)
		abort();
}

static void wait_for_word(const int way[2])
{
	char c;

	if (read(way[0], &c, 1) != 1)
		_exit(99);
}

void rest(void)
{
	go_on(to_parent);
	wait_for_word(to_child);
}

void start_child(void (*fn)(void))
{
	if (pipe(to_child) || pipe(to_parent))
		abort();
	forget_records();
	child_pid = fork();
	if (child_pid < 0)
		abort();
	if (child_pid == 0) {
		wait_for_word(to_child);
		fn();
		_exit(0);
	}
	if (probes_add_target(probes, child_pid, 0))
		note("ADD TARGET FAILED\n");
	go_on(to_child);
	wait_for_word(to_parent);
}

void end_child(void)
{
	go_on(to_child);
	waitpid(child_pid, NULL, 0);
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(to_parent[i]);
	}
}

void verdict(bool ok, const char *name)
{
	test_number++;
	printf("%s %u - %s: %s\n", ok ? "ok" : "not ok", test_number, flavour, name);
	if (!ok)
		failures++;
}

int print_plan(void)
{
	printf("1..%u\n", test_number);
	return failures ? 1 : 0;
}

void print_lines(const char *title, const char *lines)
{
	printf("# %s\n", title);
	while (*lines) {
		int len = (int)strcspn(lines, "\n");

		printf("#   %.*s\n", len, lines);
		lines += len + (lines[len] == '\n');
	}
}

void expect(const char *name, const char *golden)
{
	bool ok = strcmp(got ? got : "", golden) == 0;

	verdict(ok, name);
	if (!ok) {
		print_lines("expected", golden);
		print_lines("got", got ? got : "");
	}
	fflush(stdout);
}

void check(const char *name, const char *golden, void (*fn)(void))
{
	run_child(fn, true);
	expect(name, golden);
}

void check_served(const char *name, const char *golden, void (*fn)(void), void (*serve)(unsigned), unsigned n)
{
	pid_t server = fork();

	if (server == 0) {
		serve(n);
		_exit(0);
	}
	run_child(fn, true);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	expect(name, golden);
}

uint64_t stat_of(enum ev_stat id)
{
	uint64_t stats[ST_COUNT];

	probes_stats(probes, stats);
	return stats[id];
}

void test_stats(const char *name, void (*fn)(void), const char *golden, enum ev_stat id, uint64_t add)
{
	uint64_t before = stat_of(id);

	run_child(fn, true);
	if (stat_of(id) - before != add)
		note("COUNTED %llu, not %llu\n", (unsigned long long)(stat_of(id) - before), (unsigned long long)add);
	expect(name, golden);
}

unsigned count_of(const char *line)
{
	unsigned count = 0;
	char *p;

	for (p = got; p && (p = strstr(p, line)); p++)
		count++;
	return count;
}

unsigned entries_of(const char *map)
{
	unsigned count = 0;
	int fd;

	for (fd = 3; fd < 256; fd++) {
		struct bpf_map_info info = {0};
		uint64_t key[8], *at = NULL;
		uint32_t len = sizeof(info);
		char path[64], target[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) < 0 || !strstr(target, "bpf-map"))
			continue;
		if (bpf_obj_get_info_by_fd(fd, &info, &len) || strcmp(info.name, map) != 0)
			continue;
		for (; bpf_map_get_next_key(fd, at, key) == 0; at = key)
			count++;
		break; /* others are of the same map */
	}
	return count;
}

void end_server(pid_t server)
{
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	usleep(100000);
	probes_consume(probes);
}

void *shared_page(void)
{
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		abort();
	return page;
}
