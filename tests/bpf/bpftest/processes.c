/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Processes, threads and many of them; who a process is, and which file one has mapped. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpftest.h"

static void case_processes(void)
{
	char *const args[] = {"/bin/sh", "-c", "exit 7", "one two", NULL};
	pid_t pid = fork();

	if (pid == 0) {
		do_write(B, text, 2);
		execv("/bin/sh", args);
		_exit(98);
	}
	waitpid(pid, NULL, 0);
	pid = fork();
	if (pid == 0) {
		kill(getpid(), SIGKILL);
		pause();
	}
	waitpid(pid, NULL, 0);
	do_write(A, text, 1);
	_exit(3);
}

static const char golden_processes[] = "fork\n"
				       "open B1 child\n"
				       "data B1 child tx 0+2 'ab'\n"
				       "exec /bin/sh /bin/sh|-c|exit 7|one two\n"
				       "exit child 7 signal 0\n"
				       "gone\n"
				       "fork\n"
				       "exit child 0 signal 9\n"
				       "gone\n"
				       "open A2\n"
				       "data A2 tx 0+1 'a'\n"
				       "exit 3 signal 0\n";

static void *thread_writes(void *ctx)
{
	(void)ctx;
	do_write(A, text, 3);
	return NULL;
}

static void case_threads(void)
{
	pthread_t t;

	do_write(A, text, 1);
	pthread_create(&t, NULL, thread_writes, NULL);
	pthread_join(t, NULL);
	do_write(A, text, 2);
}

static const char golden_threads[] = "open A1\n"
				     "data A1 tx 0+1 'a'\n"
				     "data A1 tx 1+3 'abc'\n"
				     "data A1 tx 4+2 'ab'\n"
				     "exit 0 signal 0\n";

/* BR-039: many threads wait inside a read, then all return. */
#define CROWD	    200
#define CROWD_CALLS 20

static void doze(void)
{
	usleep(2000);
}

static void *crowd_member(void *ctx)
{
	int i;

	(void)ctx;
	for (i = 0; i < CROWD_CALLS; i++) {
		script.inside = doze;
		do_read(A, text, 100);
	}
	return NULL;
}

static void case_crowd(void)
{
	pthread_t threads[CROWD];
	int i;

	fake_new(A);
	for (i = 0; i < CROWD; i++)
		if (pthread_create(&threads[i], NULL, crowd_member, NULL))
			_exit(97);
	for (i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	fake_free(A);
}

static void test_crowd(const char *name)
{
	char golden[128];

	snprintf(golden, sizeof(golden), "open A1 fresh\nclose A1 tx=0 rx=%u\nexit 0 signal 0\n",
		 CROWD * CROWD_CALLS * 100);
	quiet_data = true;
	run_child(case_crowd, true);
	quiet_data = false;
	if (data_bytes + 100 * (stat_of(ST_MISSED_RETURN) + stat_of(ST_STATE_FULL)) < CROWD * CROWD_CALLS * 100)
		note("UNCOUNTED LOSS: %llu bytes\n", (unsigned long long)data_bytes);
	expect(name, golden);
}

/* BR-038: thousands of connections lie idle, and the state of the one that goes on stays. */
#define IDLE	   10000
#define IDLE_STEPS 100

static void case_idle_crowd(void)
{
	static char idle[IDLE][16];
	int i;

	fake_new(A);
	for (i = 0; i < IDLE; i++) {
		do_read(idle[i], text, 1);
		if (i % (IDLE / IDLE_STEPS) == 0)
			do_write(A, text, 10);
	}
	do_write(A, text, 7);
	fake_free(A);
}

static void test_idle_crowd(void)
{
	uint64_t full = stat_of(ST_STATE_FULL), lost = stat_of(ST_RING_RECORDS);
	char closed[64];
	bool ok;

	snprintf(closed, sizeof(closed), "close A1 tx=%u rx=0\n", 10 * IDLE_STEPS + 7);
	quiet_data = true;
	run_child(case_idle_crowd, true);
	quiet_data = false;
	ok = data_bytes == IDLE + 10 * IDLE_STEPS + 7 && strstr(got, closed) && !strstr(got, "gap") &&
	     stat_of(ST_STATE_FULL) == full && stat_of(ST_RING_RECORDS) == lost;
	verdict(ok, "10,000 idle connections cost the busy one nothing (BR-038)");
	if (!ok)
		printf("# %llu bytes, %llu without state, %llu lost\n", (unsigned long long)data_bytes,
		       (unsigned long long)(stat_of(ST_STATE_FULL) - full),
		       (unsigned long long)(stat_of(ST_RING_RECORDS) - lost));
}

static void test_identity(void)
{
	uint64_t start_ns = 0, self_ns = 0;
	uint32_t exec_id = 0, self_exec_id = 0;
	int self = probes_identify(probes, getpid(), &self_ns, &self_exec_id);
	int parent = probes_identify(probes, getppid(), &start_ns, &exec_id);
	int nobody = probes_identify(probes, 0x3fffff, &start_ns, &exec_id);
	int add_self = probes_add_target(probes, getpid(), 0);
	int add_other = probes_add_target(probes, getppid(), self_ns + 1000000000); /* another process by now */
	bool ok = !self && self_ns && self_ns < clock_boot_ns() && self_exec_id > 0 && !parent && start_ns < self_ns &&
		  nobody == -ESRCH && add_self == -EINVAL && add_other == -ESRCH;

	verdict(ok, "processes are identified");
	if (!ok)
		printf("# %d %d %d %d %d, start %llu, exec %u\n", self, parent, nobody, add_self, add_other,
		       (unsigned long long)self_ns, self_exec_id);
}

/* The kernel's numbers of a file are those of stat(2) where no file system puts a view over another one. */
static void test_real_file(void)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = memfd_create("bpftest", MFD_CLOEXEC);
	char path[64];
	struct stat st;
	struct elf e;
	bool ok;

	if (from < 0 || to < 0 || fstat(from, &st) || sendfile(to, from, NULL, (size_t)st.st_size) != st.st_size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
	if (elf_map(&e, path) || stat(path, &st))
		abort();
	e.dev = e.ino = 0;
	probes_real_file(probes, &e);
	ok = e.dev == st.st_dev && e.ino == st.st_ino;
	if (!ok)
		printf("# %llx %llu, not %llx %llu\n", (unsigned long long)e.dev, (unsigned long long)e.ino,
		       (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	verdict(ok, "the inode of a mapped file");
	elf_unmap(&e);
	close(from);
	close(to);
}

static void case_exec(void)
{
	char *const args[] = {"/bin/true", "argument", NULL};

	execv("/bin/true", args);
	_exit(98);
}

static bool exec_was_told(void)
{
	const char *exec = got ? strstr(got, "exec /bin/true /bin/true|argument\n") : NULL;

	return exec && strstr(exec, "exit 0 signal 0\n");
}

void follow_exec_tests(void)
{
	bool good;

	run_child(case_exec, false);
	/* Other programs of this machine start and end meanwhile; a record that one of them is at holds up those behind
	 * it. */
	for (int i = 0; i < 500 && !exec_was_told(); i++) {
		usleep(20000);
		probes_consume(probes);
	}
	good = exec_was_told();
	verdict(good, "with follow_exec every exec is reported and provisionally traced");
	if (!good)
		print_lines("got", got);
}

void process_tests(void)
{
	check("threads share a connection", golden_threads, case_threads);
	note_gone = true;
	check("fork, exec, exit", golden_processes, case_processes);
	note_gone = false;
	test_crowd("200 threads wait in one connection (BR-039)");
	test_idle_crowd();
	test_identity();
	test_real_file();
}

void process_tests_unstored(void)
{
	check("unstored: threads share a connection", golden_threads, case_threads);
	test_crowd("unstored: 200 threads wait in one connection");
}
