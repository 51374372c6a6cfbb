/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <unistd.h>

#include "targets.h"

static struct rec_exec exec_of(uint32_t tgid, const char *exe)
{
	return (struct rec_exec){
		.proc = {.tgid = tgid}, .filename = sv_of(exe), .args = sv_of(exe), .comm = sv_of("c")};
}

static void follows_fork_exec_exit(void **state)
{
	struct targets *t = targets_new();
	struct rec_fork ours = {.parent_tgid = 10, .child_tgid = 11}, foreign = {.parent_tgid = 20, .child_tgid = 21};
	struct rec_exec e = exec_of(11, "/bin/sh"), other = exec_of(21, "/bin/sh");

	(void)state;
	assert_int_equal(targets_add(t, 10, 5), 0);
	assert_int_equal(targets_add(t, 10, 5), 0);
	assert_int_equal(targets_count(t), 1);
	assert_true(targets_fork(t, &ours));
	assert_false(targets_fork(t, &foreign));
	assert_int_equal(targets_exec(t, &e), TARGETS_OLD);
	assert_int_equal(targets_exec(t, &other), TARGETS_OTHER);
	targets_remove(t, 10);
	targets_remove(t, 99);
	assert_false(targets_has(t, 10));
	assert_true(targets_has(t, 11));
	targets_free(t);
}

static void filter_takes_new_programs(void **state)
{
	struct targets *t = targets_new();
	struct target_filter f;
	struct rec_exec match = exec_of(4000001, "/usr/bin/curl"), no = exec_of(4000002, "/usr/bin/wget");
	char why[128];

	(void)state;
	assert_int_equal(target_filter_init(&f, "^curl$", why, sizeof(why)), 0);
	targets_set_filter(t, &f);
	assert_int_equal(targets_exec(t, &match), TARGETS_NEW);
	assert_int_equal(targets_exec(t, &match), TARGETS_OLD);
	assert_int_equal(targets_exec(t, &no), TARGETS_OTHER);
	target_filter_release(&f);
	targets_free(t);
}

static void everybody(void **state)
{
	struct targets *t = targets_new();
	struct rec_exec e = exec_of(21, "/bin/sh");
	struct rec_fork foreign = {.parent_tgid = 20, .child_tgid = 22};

	(void)state;
	targets_set_all(t);
	assert_int_equal(targets_exec(t, &e), TARGETS_NEW);
	assert_true(targets_fork(t, &foreign));
	assert_true(targets_has(t, 21) && targets_has(t, 22) && !targets_has(t, 20));
	targets_free(t);
}

static void files_and_ends(void **state)
{
	struct targets *t = targets_new();
	struct rec_fork fork = {.parent_tgid = 10, .child_tgid = 11};
	struct rec_exec e = exec_of(11, "/bin/sh");

	(void)state;
	assert_int_equal(targets_add(t, 10, 5), 0);
	targets_files(t, 10)->probed_ns = 5;
	assert_true(targets_fork(t, &fork));
	assert_int_equal(targets_files(t, 11)->probed_ns, 5); /* its mappings are its parent's */
	targets_exec(t, &e);
	assert_int_equal(targets_files(t, 11)->probed_ns, 0);
	assert_null(targets_files(t, 12));
	assert_false(targets_had(t, 11));
	for (uint32_t i = 0; i < TARGETS_ENDED_MAX; i++) {
		targets_add(t, 1000 + i, 0);
		targets_remove(t, 1000 + i);
	}
	targets_remove(t, 11);
	assert_true(targets_had(t, 11) && targets_had(t, 1001));
	assert_false(targets_had(t, 1000)); /* too long ago */
	targets_free(t);
}

static void without_memory(void **state)
{
	struct targets *t;

	(void)state;
	fail_nth(1);
	assert_null(targets_new());
	fail_nth(0);
	t = targets_new();
	for (unsigned n = 1;; n++) {
		int err;

		fail_nth(n);
		err = targets_add(t, 7, 0);
		fail_nth(0);
		if (!fail_nth_hit())
			break;
		assert_int_equal(err, -ENOMEM);
		assert_false(targets_has(t, 7));
	}
	assert_true(targets_has(t, 7));
	targets_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(follows_fork_exec_exit),
		cmocka_unit_test(filter_takes_new_programs),
		cmocka_unit_test(everybody),
		cmocka_unit_test(files_and_ends),
		cmocka_unit_test(without_memory),
	};

	return cmocka_run_group_tests_name("targets", tests, NULL, NULL);
}
