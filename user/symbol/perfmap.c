/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "perfmap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_BYTES 65536

/* --- the file ---------------------------------------------------------------------------------------------------- */

/* The pid that the process has in its own pid namespace: the last number of NSpid. 0: not known. */
static unsigned inner_pid(pid_t pid)
{
	char path[64], line[512];
	unsigned inner = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		char *last;

		if (strncmp(line, "NSpid:", 6))
			continue;
		line[strcspn(line, "\n")] = '\0';
		last = strrchr(line, '\t');
		inner = last ? (unsigned)strtoul(last + 1, NULL, 10) : 0;
		break;
	}
	fclose(f);
	return inner;
}

/* Opened below the process's root, so that no link of its can lead out of there, and without waiting for a writer. */
static int open_below(int root, const char *path)
{
	struct open_how how = {
		.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

static int check(int fd, uid_t owner)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_uid != owner)
		return -EPERM;
	return st.st_size > PERFMAP_BYTES_MAX ? -EFBIG : 0;
}

int perfmap_open(pid_t pid)
{
	unsigned inner = inner_pid(pid);
	char path[64];
	struct stat st;
	int root, fd, err;

	if (!inner)
		return -ENOENT;
	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &st))
		return -errno;
	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	snprintf(path, sizeof(path), "tmp/perf-%u.map", inner);
	fd = open_below(root, path);
	close(root);
	if (fd < 0)
		return fd;
	err = check(fd, st.st_uid);
	if (!err)
		return fd;
	close(fd);
	return err;
}

int perfmap_read(int fd, struct symtab *t)
{
	struct buf text;
	ssize_t got = 1;
	int err = 0;

	symtab_clear(t);
	buf_init(&text, PERFMAP_BYTES_MAX);
	while (!err && got > 0) {
		err = buf_reserve(&text, READ_BYTES);
		if (err)
			break;
		got = pread(fd, text.ptr + text.len, READ_BYTES, (off_t)text.len);
		if (got < 0)
			err = -errno;
		else
			text.len += (size_t)got;
	}
	if (!err)
		err = perfmap_parse(t, text.ptr, text.len);
	buf_release(&text);
	symtab_sort(t);
	return err == -ENOSPC ? -EFBIG : err;
}

/* --- its text ---------------------------------------------------------------------------------------------------- */

/* Hex digits, perhaps after 0x, and the blank behind them. */
static bool take_hex(struct sv *s, uint64_t *out)
{
	size_t i = 0, digits = 0;
	uint64_t n = 0;

	if (sv_starts(*s, SV("0x")))
		i = 2;
	for (; i < s->len && s->ptr[i] != ' '; i++, digits++) {
		char c = s->ptr[i] | 0x20;
		unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
			     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
						    : 16;

		if (d > 15 || digits == 16)
			return false;
		n = n << 4 | d;
	}
	if (!digits || i == s->len)
		return false;
	*out = n;
	*s = (struct sv){s->ptr + i + 1, s->len - i - 1};
	return true;
}

int perfmap_parse(struct symtab *t, const char *ptr, size_t len)
{
	struct sv rest = {ptr, len};

	while (rest.len) {
		struct sv line = sv_cut(rest, '\n', &rest);
		uint64_t start, size;
		int err;

		if (!rest.ptr) /* still being written */
			break;
		if (!take_hex(&line, &start) || !take_hex(&line, &size) || !size)
			continue;
		err = symtab_add(t, start, size, sv_trim(line));
		if (err)
			return err == -ENOSPC ? 0 : err;
	}
	return 0;
}
