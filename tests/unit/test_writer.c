/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "flow/writer.h"

#define OTHER_UID 65533 /* nobody's, for files of "another user"; needs root */

static char dir[64];
static uid_t me;
static gid_t my_group;

static int setup(void **state)
{
	(void)state;
	me = geteuid();
	my_group = getegid();
	umask(022);
	snprintf(dir, sizeof(dir), "/tmp/perfbpf-writer-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0); /* other users have folders in it */
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static const char *in_dir(const char *name)
{
	static char path[4][512];
	static int n;

	snprintf(path[n = (n + 1) % 4], sizeof(path[0]), "%s/%s", dir, name);
	return path[n];
}

static void put_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void assert_file(const char *path, const char *text)
{
	char buf[256] = "";
	FILE *f = fopen(path, "r");
	size_t n;

	assert_non_null(f);
	n = fread(buf, 1, sizeof(buf) - 1, f);
	buf[n] = '\0';
	fclose(f);
	assert_string_equal(buf, text);
}

static void assert_no_temp(const char *name)
{
	char temp[256];

	snprintf(temp, sizeof(temp), ".%s.perfbpf-tmp", name);
	assert_int_equal(access(in_dir(temp), F_OK), -1);
}

/* Both doors say the same, say why, and leave nothing behind. */
static void assert_refused(const char *path, int err)
{
	const char *why = NULL, *again = NULL;
	struct writer w;

	assert_int_equal(writer_check(path, me, my_group, &why), err);
	assert_non_null(why);
	assert_int_equal(writer_open(&w, path, me, my_group, &again), err);
	assert_string_equal(why, again);
	assert_int_equal(w.fd, -1);
	assert_int_equal(writer_write(&w, "x", 1), -EBADF);
	writer_abort(&w);
}

static void write_file(const char *path, const char *text)
{
	const char *why = NULL;
	struct writer w;

	assert_int_equal(writer_check(path, me, my_group, &why), 0);
	assert_int_equal(writer_open(&w, path, me, my_group, &why), 0);
	assert_int_equal(writer_write(&w, text, strlen(text)), 0);
	assert_int_equal(writer_commit(&w), 0);
	writer_abort(&w); /* nothing to do after commit */
	assert_file(path, text);
}

static void new_file_is_private(void **state)
{
	struct stat st;

	(void)state;
	umask(0);
	write_file(in_dir("new"), "one");
	umask(022);
	assert_int_equal(stat(in_dir("new"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_uid, me);
	assert_no_temp("new");
}

/* A new file, not the old one written into: who has the old one open keeps reading it, and its mode is not taken over.
 */
static void own_file_is_replaced(void **state)
{
	struct stat before, after;

	(void)state;
	put_file(in_dir("old"), "old");
	assert_int_equal(chmod(in_dir("old"), 0666), 0);
	assert_int_equal(stat(in_dir("old"), &before), 0);
	write_file(in_dir("old"), "new");
	assert_int_equal(stat(in_dir("old"), &after), 0);
	assert_true(before.st_ino != after.st_ino);
	assert_int_equal(after.st_mode & 07777, 0600);
}

static void nothing_changes_before_commit(void **state)
{
	const char *why;
	struct writer w;

	(void)state;
	put_file(in_dir("kept"), "old");
	assert_int_equal(writer_open(&w, in_dir("kept"), me, my_group, &why), 0);
	assert_int_equal(writer_write(&w, "new", 3), 0);
	assert_int_equal(writer_flush(&w), 0);
	assert_file(in_dir("kept"), "old");
	writer_abort(&w);
	writer_abort(&w);
	assert_file(in_dir("kept"), "old");
	assert_no_temp("kept");
}

static void links_and_specials_are_refused(void **state)
{
	(void)state;
	put_file(in_dir("target"), "untouched");
	assert_int_equal(symlink(in_dir("target"), in_dir("link")), 0);
	assert_refused(in_dir("link"), -ELOOP);
	assert_int_equal(symlink(in_dir("nowhere"), in_dir("dangling")), 0);
	assert_refused(in_dir("dangling"), -ELOOP);
	assert_int_equal(access(in_dir("nowhere"), F_OK), -1);
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	assert_refused(in_dir("fifo"), -EEXIST);
	assert_int_equal(link(in_dir("target"), in_dir("hard")), 0);
	assert_refused(in_dir("hard"), -EMLINK);
	assert_int_equal(mkdir(in_dir("sub"), 0700), 0);
	assert_refused(in_dir("sub"), -EISDIR);
	assert_refused(in_dir("sub/"), -EISDIR);
	assert_refused(in_dir("sub/.."), -EISDIR);
	assert_refused("", -EISDIR);
	assert_refused("/dev/null", me ? -EACCES : -EEXIST);
	assert_refused(in_dir("missing/file"), -ENOENT);
	assert_refused(in_dir("target/file"), -ENOTDIR);
	assert_file(in_dir("target"), "untouched");
}

static void directories_of_others_are_refused(void **state)
{
	(void)state;
	assert_int_equal(mkdir(in_dir("open"), 0700), 0);
	assert_int_equal(chmod(in_dir("open"), 0777), 0);
	assert_refused(in_dir("open/file"), -EACCES);
	assert_int_equal(chmod(in_dir("open"), 01777), 0); /* sticky: nobody can swap our file */
	write_file(in_dir("open/file"), "one");
	write_file(in_dir("open/file"), "two");
	if (me)
		return;
	assert_int_equal(mkdir(in_dir("group"), 0700), 0);
	assert_int_equal(chmod(in_dir("group"), 0775), 0);
	assert_int_equal(chown(in_dir("group"), 0, OTHER_UID), 0);
	assert_refused(in_dir("group/file"), -EACCES);
	assert_int_equal(mkdir(in_dir("theirs"), 0755), 0);
	assert_int_equal(chown(in_dir("theirs"), OTHER_UID, OTHER_UID), 0);
	assert_refused(in_dir("theirs/file"), -EPERM);
}

static void files_of_others_are_refused(void **state)
{
	(void)state;
	if (me)
		skip();
	put_file(in_dir("foreign"), "untouched");
	assert_int_equal(chown(in_dir("foreign"), OTHER_UID, OTHER_UID), 0);
	assert_refused(in_dir("foreign"), -EPERM);
	assert_file(in_dir("foreign"), "untouched");
}

/* Under sudo the file is the invoking user's, in a directory of theirs that their own group may write. */
static void file_is_given_to_the_invoking_user(void **state)
{
	const char *why;
	struct writer w;
	struct stat st;

	(void)state;
	if (me)
		skip();
	assert_int_equal(mkdir(in_dir("home"), 0700), 0);
	assert_int_equal(chown(in_dir("home"), OTHER_UID, OTHER_UID), 0);
	assert_int_equal(chmod(in_dir("home"), 0775), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(writer_open(&w, in_dir("home/file"), OTHER_UID, OTHER_UID, &why), 0);
		assert_int_equal(writer_write(&w, "x", 1), 0);
		assert_int_equal(writer_commit(&w), 0);
		assert_int_equal(stat(in_dir("home/file"), &st), 0);
		assert_int_equal(st.st_uid, OTHER_UID);
		assert_int_equal(st.st_gid, OTHER_UID);
		assert_int_equal(st.st_mode & 07777, 0600);
	}
}

/* Root's own rights are none of the invoking user's: what he may not write is not written for him. */
static void the_invoking_user_gets_no_more_than_he_could(void **state)
{
	static const mode_t modes[] = {0755, 0700};
	const char *why;
	struct writer w;

	(void)state;
	if (me)
		skip();
	assert_int_equal(mkdir(in_dir("roots"), 0755), 0);
	put_file(in_dir("roots/file"), "untouched");
	assert_int_equal(chown(in_dir("roots/file"), OTHER_UID, OTHER_UID), 0);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(chmod(in_dir("roots"), modes[i]), 0);
		assert_int_equal(writer_check(in_dir("roots/new"), OTHER_UID, OTHER_UID, &why), -EACCES);
		assert_int_equal(writer_open(&w, in_dir("roots/new"), OTHER_UID, OTHER_UID, &why), -EACCES);
		assert_int_equal(writer_open(&w, in_dir("roots/file"), OTHER_UID, OTHER_UID, &why), -EACCES);
	}
	assert_int_equal(access(in_dir("roots/new"), F_OK), -1);
	assert_file(in_dir("roots/file"), "untouched");
	/* A folder that ceases to be his meanwhile. */
	assert_int_equal(mkdir(in_dir("his"), 0755), 0);
	assert_int_equal(chown(in_dir("his"), OTHER_UID, OTHER_UID), 0);
	assert_int_equal(writer_open(&w, in_dir("his/file"), OTHER_UID, OTHER_UID, &why), 0);
	assert_int_equal(chown(in_dir("his"), 0, 0), 0);
	assert_int_equal(writer_commit(&w), -EACCES);
	assert_int_equal(access(in_dir("his/file"), F_OK), -1);
	/* And we are ourselves again. */
	write_file(in_dir("roots/own"), "own");
}

static void killed_runs_leave_nothing_in_the_way(void **state)
{
	(void)state;
	put_file(in_dir(".out.perfbpf-tmp"), "half a tra");
	write_file(in_dir("out"), "whole");
	assert_no_temp("out");
	/* What is not ours stays, and is said. */
	put_file(in_dir("victim"), "untouched");
	assert_int_equal(symlink(in_dir("victim"), in_dir(".out.perfbpf-tmp")), 0);
	{
		const char *why = NULL;
		struct writer w;

		assert_int_equal(writer_open(&w, in_dir("out"), me, my_group, &why), -ELOOP);
		assert_non_null(why);
		assert_int_equal(unlink(in_dir(".out.perfbpf-tmp")), 0);
		assert_int_equal(mkfifo(in_dir(".out.perfbpf-tmp"), 0600), 0);
		assert_int_equal(writer_open(&w, in_dir("out"), me, my_group, &why), -EPERM);
		assert_int_equal(unlink(in_dir(".out.perfbpf-tmp")), 0);
		assert_int_equal(link(in_dir("victim"), in_dir(".out.perfbpf-tmp")), 0);
		assert_int_equal(writer_open(&w, in_dir("out"), me, my_group, &why), -EPERM);
		assert_int_equal(unlink(in_dir(".out.perfbpf-tmp")), 0);
	}
	assert_file(in_dir("victim"), "untouched");
	assert_file(in_dir("out"), "whole");
}

static void two_runs_do_not_mix(void **state)
{
	const char *why = NULL;
	struct writer a, b;

	(void)state;
	assert_int_equal(writer_open(&a, in_dir("shared"), me, my_group, &why), 0);
	assert_int_equal(writer_open(&b, in_dir("shared"), me, my_group, &why), -EBUSY);
	assert_int_equal(writer_write(&a, "a", 1), 0);
	assert_int_equal(writer_commit(&a), 0);
	assert_file(in_dir("shared"), "a");
	/* Nor when it has its name already: the second one would take it away, and the first write into nothing. */
	assert_int_equal(writer_open(&a, in_dir("shared"), me, my_group, &why), 0);
	assert_int_equal(writer_publish(&a), 0);
	assert_refused(in_dir("shared"), -EBUSY);
	assert_int_equal(writer_write(&a, "b", 1), 0);
	assert_int_equal(writer_commit(&a), 0);
	assert_file(in_dir("shared"), "b");
	write_file(in_dir("shared"), "c");
}

static void full_disk_leaves_whole_lines(void **state)
{
	struct rlimit limit, before;
	const char *why = NULL;
	struct writer w;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(writer_open(&w, in_dir("lines"), me, my_group, &why), 0);
	assert_int_equal(writer_publish(&w), 0);
	limit = before;
	limit.rlim_cur = 8; /* a disk of that size */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(writer_write(&w, "first\n", 6), 0);
	assert_int_equal(writer_flush(&w), 0);
	assert_int_equal(writer_write(&w, "second\n", 7), 0);
	assert_int_equal(writer_flush(&w), -EFBIG);
	writer_abort(&w);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_file(in_dir("lines"), "first\n");
}

/* Somebody put another file in the temp file's place: it is neither renamed nor removed. */
static void swapped_temp_is_not_renamed(void **state)
{
	const char *why = NULL;
	struct writer w;

	(void)state;
	put_file(in_dir("swap"), "old");
	assert_int_equal(writer_open(&w, in_dir("swap"), me, my_group, &why), 0);
	assert_int_equal(writer_write(&w, "new", 3), 0);
	assert_int_equal(unlink(in_dir(".swap.perfbpf-tmp")), 0);
	put_file(in_dir(".swap.perfbpf-tmp"), "planted");
	assert_int_equal(writer_commit(&w), -ESTALE);
	assert_file(in_dir("swap"), "old");
	assert_file(in_dir(".swap.perfbpf-tmp"), "planted");
}

static void full_disk_is_sticky_and_harmless(void **state)
{
	struct rlimit limit, before;
	static char block[200000];
	const char *why = NULL;
	struct writer w;

	(void)state;
	put_file(in_dir("full"), "old");
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(writer_open(&w, in_dir("full"), me, my_group, &why), 0);
	limit = before;
	limit.rlim_cur = 100000; /* a disk of that size */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(writer_write(&w, block, sizeof(block)), -EFBIG);
	assert_int_equal(writer_write(&w, "x", 1), -EFBIG);
	assert_int_equal(writer_commit(&w), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_file(in_dir("full"), "old");
	assert_no_temp("full");
}

static void large_and_small_writes_keep_their_order(void **state)
{
	static const size_t sizes[] = {1, 65535, 1, 65536, 65537, 3, 200000, 0, 7};
	static char block[200000];
	const char *why = NULL;
	struct writer w;
	size_t at = 0;
	FILE *f;
	int c;

	(void)state;
	assert_int_equal(writer_open(&w, in_dir("order"), me, my_group, &why), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t n = 0; n < sizes[i]; n++)
			block[n] = (char)((at + n) % 251);
		assert_int_equal(writer_write(&w, block, sizes[i]), 0);
		at += sizes[i];
	}
	assert_int_equal(writer_commit(&w), 0);
	f = fopen(in_dir("order"), "r");
	assert_non_null(f);
	for (size_t n = 0; (c = fgetc(f)) != EOF; n++, at--)
		assert_int_equal(c, n % 251);
	assert_int_equal(at, 0);
	fclose(f);
}

static void long_names_fit(void **state)
{
	char name[257];

	(void)state;
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	write_file(in_dir(name), "x");
	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	assert_refused(in_dir(name), -ENAMETOOLONG);
}

/* A pipe whose reader is slow and whose end is non-blocking still gets every byte; one without a reader is an error. */
static void standard_output(void **state)
{
	static char block[300000];
	int fds[2], saved = dup(STDOUT_FILENO), status;
	const char *why = NULL;
	struct writer w;
	pid_t child;
	int err;

	(void)state;
	assert_int_equal(writer_check("-", me, my_group, &why), 0);
	assert_int_equal(pipe(fds), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		static char got[65536];
		size_t total = 0;
		ssize_t n;

		close(fds[1]);
		usleep(50000);
		while ((n = read(fds[0], got, sizeof(got))) > 0)
			total += (size_t)n;
		_exit(total == sizeof(block) ? 0 : 1);
	}
	close(fds[0]);
	assert_int_equal(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
	fflush(stdout);
	dup2(fds[1], STDOUT_FILENO);
	close(fds[1]);
	err = writer_open(&w, "-", me, my_group, &why);
	if (!err)
		err = writer_write(&w, block, sizeof(block));
	if (!err)
		err = writer_commit(&w);
	dup2(saved, STDOUT_FILENO);
	assert_int_equal(err, 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);

	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe(fds), 0);
	close(fds[0]);
	dup2(fds[1], STDOUT_FILENO);
	close(fds[1]);
	err = writer_open(&w, "-", me, my_group, &why);
	if (!err)
		err = writer_write(&w, "x", 1);
	if (!err)
		err = writer_flush(&w);
	writer_abort(&w);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	assert_int_equal(err, -EPIPE);
}

static void no_memory_leaves_nothing(void **state)
{
	bool done = false;

	(void)state;
	for (unsigned n = 1; !done; n++) {
		const char *why = NULL;
		struct writer w;
		int err;

		fail_nth(n);
		err = writer_open(&w, in_dir("memory"), me, my_group, &why);
		done = !fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, done ? 0 : -ENOMEM);
		writer_abort(&w);
		assert_no_temp("memory");
		assert_true(n < 10);
	}
}

static void a_zeroed_writer_may_be_aborted(void **state)
{
	struct writer w = {0};
	int before = fcntl(STDIN_FILENO, F_GETFD);

	(void)state;
	writer_abort(&w);
	assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), before); /* descriptor 0 was not taken for ours */
	assert_int_equal(w.fd, -1);
	assert_int_equal(writer_commit(&w), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(new_file_is_private),
		cmocka_unit_test(own_file_is_replaced),
		cmocka_unit_test(nothing_changes_before_commit),
		cmocka_unit_test(links_and_specials_are_refused),
		cmocka_unit_test(directories_of_others_are_refused),
		cmocka_unit_test(files_of_others_are_refused),
		cmocka_unit_test(file_is_given_to_the_invoking_user),
		cmocka_unit_test(the_invoking_user_gets_no_more_than_he_could),
		cmocka_unit_test(killed_runs_leave_nothing_in_the_way),
		cmocka_unit_test(two_runs_do_not_mix),
		cmocka_unit_test(full_disk_leaves_whole_lines),
		cmocka_unit_test(swapped_temp_is_not_renamed),
		cmocka_unit_test(full_disk_is_sticky_and_harmless),
		cmocka_unit_test(large_and_small_writes_keep_their_order),
		cmocka_unit_test(long_names_fit),
		cmocka_unit_test(standard_output),
		cmocka_unit_test(no_memory_leaves_nothing),
		cmocka_unit_test(a_zeroed_writer_may_be_aborted),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
