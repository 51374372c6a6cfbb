/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/maps.h"

static struct map_entry entry; /* large */

static void show(struct tlog *log, const char *line)
{
	struct guard g = {0};
	size_t len = strlen(line);
	int kind = maps_parse_line((const char *)guard_copy(&g, line, len), len, &entry);

	if (kind == 1) {
		tlog_printf(log, "%llx-%llx +%llx %02x:%02x %llu %s", (unsigned long long)entry.begin,
			    (unsigned long long)entry.end, (unsigned long long)entry.offset, entry.dev_major,
			    entry.dev_minor, (unsigned long long)entry.ino, entry.deleted ? "deleted " : "");
		tlog_escaped(log, entry.path, strlen(entry.path));
		tlog_printf(log, "\n");
	} else {
		tlog_printf(log, "%s\n", kind == 0 ? "-" : kind == -EBADMSG ? "bad" : "?");
	}
	guard_free(&g);
}

static void lines_of_every_kind(void **state)
{
	static const char *const lines[] = {
		"7fd2a4036000-7fd2a4091000 r-xp 0001d000 08:02 1311770                    /usr/lib/libgnutls.so.30",
		"7fd2a4036000-7fd2a4091000 r-xp 0001d000 08:02 1311770                    /usr/lib/libgnutls.so.30 "
		"(deleted)",
		"7fd2a4100000-7fd2a4110000 r-xp 00000000 00:31 42                         /srv/two words/lib (x).so",
		"7fd2a4200000-7fd2a4210000 rwxp 00000000 00:01 1026                       /memfd:code cache (deleted)",
		"7fd2a4300000-7fd2a4310000 r-xp 00000000 00:00 0 ",
		"7fd2a4300000-7fd2a4310000 r-xp 00000000 00:00 0",
		"7ffc12300000-7ffc12302000 r-xp 00000000 00:00 0                          [vdso]",
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
		"7fd2a4300000-7fd2a4310000 rwxp 00000000 00:00 0                          [anon:js code]",
		"5600aa000000-5600aa100000 r-xs 00003000 103:05 9                         /opt/a\\012b/c\\134d",
		"7fd2a4400000-7fd2a4410000 r--p 00000000 08:02 1311770                    /usr/lib/libgnutls.so.30",
		"7fd2a4400000-7fd2a4410000 rw-p 00000000 08:02 1311770                    /usr/lib/libgnutls.so.30",
		"ffff-10000000000000000 r-xp 0 08:02 1 /x",
		"7fd2a4400000 r-xp 00000000 08:02 1311770 /x",
		"7fd2a4400000-7fd2a4410000 r-x 00000000 08:02 1311770 /x",
		"7fd2a4400000-7fd2a4410000 r-xp 00000000 0802 1311770 /x",
		"7fd2a4400000-7fd2a4410000 r-xp 00000000 08:02 12a4 /x",
		"",
		" ",
		"7fd2a4400000-7fd2a4410000 r-xp",
	};
	struct tlog log = {0};

	(void)state;
	for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		show(&log, lines[i]);
	assert_log(&log, "7fd2a4036000-7fd2a4091000 +1d000 08:02 1311770 /usr/lib/libgnutls.so.30\n"
			 "7fd2a4036000-7fd2a4091000 +1d000 08:02 1311770 deleted /usr/lib/libgnutls.so.30\n"
			 "7fd2a4100000-7fd2a4110000 +0 00:31 42 /srv/two words/lib (x).so\n"
			 "7fd2a4200000-7fd2a4210000 +0 00:01 1026 deleted /memfd:code cache\n"
			 "-\n-\n-\n-\n-\n"
			 "5600aa000000-5600aa100000 +3000 103:05 9 /opt/a\\x0ab/c\\x5c134d\n"
			 "-\n-\n"
			 "bad\nbad\nbad\nbad\nbad\nbad\nbad\nbad\n");
	tlog_free(&log);
}

/* No prefix of a good line crashes or invents a path. */
static void a_line_cut_anywhere(void **state)
{
	static const char line[] =
		"7fd2a4036000-7fd2a4091000 r-xp 0001d000 08:02 1311770 /usr/lib/libgnutls.so.30 (deleted)";
	struct guard g = {0};

	(void)state;
	for (size_t len = 0; len < sizeof(line); len++) {
		int kind = maps_parse_line((const char *)guard_copy(&g, line, len), len, &entry);

		assert_true(kind == 1 || kind == 0 || kind == -EBADMSG);
		if (kind == 1)
			assert_memory_equal(entry.path, "/usr/lib/libgnutls.so.30 (deleted)", strlen(entry.path));
	}
	guard_free(&g);
}

static void a_path_too_long_is_bad(void **state)
{
	char line[6000] = "7fd2a4036000-7fd2a4091000 r-xp 0001d000 08:02 1311770 /";

	(void)state;
	memset(line + strlen(line), 'a', sizeof(line) - strlen(line));
	assert_int_equal(maps_parse_line(line, sizeof(line), &entry), -EBADMSG);
	assert_int_equal(maps_parse_line(line, 4096 + 50, &entry), 1);
}

/* --- processes --------------------------------------------------------------------------------------------------- */

struct seen {
	char self[4096];
	unsigned all, self_count, memfd_count, literal, deleted, linked;
};

static void see(void *ctx, const struct map_entry *m)
{
	struct seen *s = ctx;

	s->all++;
	s->self_count += !strcmp(m->path, s->self);
	s->memfd_count += !strcmp(m->path, "/memfd:perfbpf test") && m->deleted;
	s->literal += strstr(m->path, "perfbpf-maps (deleted)") && !m->deleted;
	s->linked += strstr(m->path, "perfbpf-link") != NULL;
	s->deleted += strstr(m->path, "perfbpf-gone") && !strstr(m->path, "(deleted)") && m->deleted;
}

static void map_executable(int fd, unsigned times)
{
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 8192), 0);
	for (unsigned i = 0; i < times; i++)
		assert_true(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, i * 4096) != MAP_FAILED);
	close(fd);
}

static void own_mappings_each_file_once(void **state)
{
	struct seen s = {0};
	ssize_t len = readlink("/proc/self/exe", s.self, sizeof(s.self) - 1);

	(void)state;
	assert_true(len > 0);
	map_executable(memfd_create("perfbpf test", MFD_CLOEXEC), 2);
	map_executable(open("/tmp/perfbpf-maps (deleted)", O_RDWR | O_CREAT | O_CLOEXEC, 0600), 1);
	map_executable(open("/tmp/perfbpf-gone", O_RDWR | O_CREAT | O_CLOEXEC, 0600), 1);
	unlink("/tmp/perfbpf-gone");
	/* two names: only they tell files of two btrfs subvolumes apart */
	map_executable(open("/tmp/perfbpf-link1", O_RDWR | O_CREAT | O_CLOEXEC, 0600), 2);
	assert_true(!link("/tmp/perfbpf-link1", "/tmp/perfbpf-link2") || errno == EEXIST);
	map_executable(open("/tmp/perfbpf-link2", O_RDWR | O_CLOEXEC), 2);
	assert_int_equal(maps_each(getpid(), see, &s), 0);
	assert_int_equal(s.self_count, 1);
	assert_int_equal(s.memfd_count, 1);
	assert_int_equal(s.deleted, 1);
	assert_int_equal(s.linked, 2);
	if (geteuid() == 0) /* map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE */
		assert_int_equal(s.literal, 1);
	assert_true(s.all >= 4);
	unlink("/tmp/perfbpf-maps (deleted)");
	unlink("/tmp/perfbpf-link1");
	unlink("/tmp/perfbpf-link2");
}

static void a_process_that_is_gone(void **state)
{
	struct seen s = {0};
	pid_t pid = fork();

	(void)state;
	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(maps_each(pid, see, &s), -ENOENT);
	assert_int_equal(s.all, 0);
}

static void no_memory(void **state)
{
	struct seen s = {0};
	bool hit = true;
	int err;

	(void)state;
	for (unsigned n = 1; hit; n++) {
		fail_nth(n);
		err = maps_each(getpid(), see, &s);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_of_every_kind),	  cmocka_unit_test(a_line_cut_anywhere),
		cmocka_unit_test(a_path_too_long_is_bad), cmocka_unit_test(own_mappings_each_file_once),
		cmocka_unit_test(a_process_that_is_gone), cmocka_unit_test(no_memory),
	};

	return cmocka_run_group_tests_name("maps", tests, NULL, NULL);
}
