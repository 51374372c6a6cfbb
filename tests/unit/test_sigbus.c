/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A mapped file that becomes shorter while it is read. */
#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sigbus.h"

static const volatile char *cut; /* a page behind the end of its file */

static int read_cut(void *ctx)
{
	(void)ctx;
	return cut[0];
}

static int read_nothing(void *ctx)
{
	(void)ctx;
	return 7;
}

static int read_inside(void *ctx)
{
	(void)ctx;
	assert_int_equal(sigbus_guard(read_cut, NULL), -EIO);
	assert_int_equal(sigbus_guard(read_nothing, NULL), 7);
	return read_cut(ctx);
}

static void reading_ends(void **state)
{
	char path[] = "/tmp/perfbpf-sigbus-XXXXXX";
	int fd = mkstemp(path);
	struct sigaction before, after;
	void *map;

	(void)state;
	assert_int_equal(sigaction(SIGBUS, NULL, &before), 0);
	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(ftruncate(fd, 4096), 0);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	cut = map;
	assert_int_equal(sigbus_guard(read_cut, NULL), 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(sigbus_guard(read_cut, NULL), -EIO);
	assert_int_equal(sigbus_guard(read_inside, NULL), -EIO);
	assert_int_equal(sigaction(SIGBUS, NULL, &after), 0);
	assert_ptr_equal(after.sa_handler, before.sa_handler);
	munmap(map, 4096);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reading_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
