/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/ahead.h"
#include "base/clock.h"

#define SWAPPED_NS 1000000000ull /* most runs meet the moment between two looks at a name */
#define LIB	   "/usr/lib/x86_64-linux-gnu/libssl.so.3"

static char path[] = "/tmp/perfbpf-test-ahead-XXXXXX";

static void write_file(const char *from, off_t size)
{
	char bytes[65536];
	ssize_t n;
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(out, bytes, (size_t)n), n);
	assert_true(!size || !ftruncate(out, size));
	close(in);
	close(out);
}

/* What is said of the file now. */
static int ask(const struct ahead *a, struct tls_finds *found)
{
	struct elf e;
	int err;

	assert_int_equal(elf_map(&e, path), 0);
	err = ahead_find(a, &e, found);
	elf_unmap(&e);
	return err;
}

static int setup(void **state)
{
	(void)state;
	if (access(LIB, R_OK))
		return 0;
	close(mkstemp(path));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

static void skip_without_library(void)
{
	if (access(LIB, R_OK))
		skip();
}

/* Another program in its place, of the same size and time: only what was kept can still know the library. */
static void test_is_not_looked_at_again(void **state)
{
	struct ahead *a = ahead_new();
	struct timespec times[2];
	struct tls_finds found, first;
	struct stat before;

	(void)state;
	skip_without_library();
	write_file(LIB, 0);
	assert_int_equal(ask(NULL, &first), 0);
	assert_int_equal(first.count, 1);
	ahead_look(a, path);
	ahead_look(a, path);
	assert_int_equal(stat(path, &before), 0);
	write_file("/bin/true", before.st_size);
	times[0] = before.st_atim;
	times[1] = before.st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	assert_int_equal(ask(a, &found), 0);
	assert_int_equal(found.count, 1);
	assert_memory_equal(&found.stacks[0], &first.stacks[0], sizeof(found.stacks[0]));
	assert_int_equal(ask(NULL, &found), -ENOENT);

	times[1].tv_nsec ^= 1; /* a changed file */
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	assert_int_equal(ask(a, &found), -ENOENT);
	assert_int_equal(found.count, 0);
	ahead_free(a);
}

/* The name leads to another file at any moment: what is said of a file was found in that very file. */
static void test_swapped(void **state)
{
	char other[sizeof(path) + 8], kept[sizeof(path) + 8];
	struct tls_finds found;
	unsigned wrong = 0;
	pid_t swaps;

	(void)state;
	skip_without_library();
	write_file("/bin/true", 0);
	snprintf(other, sizeof(other), "%s-other", path);
	snprintf(kept, sizeof(kept), "%s-kept", path);
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(link(other, kept), 0);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	write_file(LIB, 0);
	swaps = fork();
	while (!swaps)
		renameat2(AT_FDCWD, path, AT_FDCWD, other, RENAME_EXCHANGE);
	for (uint64_t end_ns = clock_boot_ns() + SWAPPED_NS; clock_boot_ns() < end_ns;) {
		struct ahead *a = ahead_new();
		struct elf e;

		ahead_look(a, path);
		assert_int_equal(elf_map(&e, kept), 0);
		wrong += ahead_find(a, &e, &found) != -ENOENT;
		elf_unmap(&e);
		ahead_free(a);
	}
	kill(swaps, SIGKILL);
	waitpid(swaps, NULL, 0);
	unlink(other);
	unlink(kept);
	assert_int_equal(wrong, 0);
}

static void test_none(void **state)
{
	struct ahead *a = ahead_new();
	struct tls_finds found;

	(void)state;
	skip_without_library();
	write_file("/bin/true", 0);
	ahead_look(a, path);
	assert_int_equal(ask(a, &found), -ENOENT);
	assert_int_equal(found.count, 0);
	ahead_look(a, "/nowhere");
	ahead_look(a, "/dev/zero");
	ahead_look(a, "/etc/passwd");
	ahead_free(a);
	ahead_free(NULL);
}

/* No memory ahead: it is looked at when it is asked for. */
static void test_no_memory(void **state)
{
	struct tls_finds found;

	(void)state;
	skip_without_library();
	write_file(LIB, 0);
	for (unsigned n = 1; n < 40; n++) {
		struct ahead *a = ahead_new();

		fail_nth(n);
		ahead_look(a, path);
		fail_nth(0);
		assert_int_equal(ask(a, &found), 0);
		assert_int_equal(found.count, 1);
		ahead_free(a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_is_not_looked_at_again),
		cmocka_unit_test(test_swapped),
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
