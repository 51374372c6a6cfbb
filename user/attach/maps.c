/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "maps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/err.h"
#include "base/hash.h"

#define LINE_BYTES_MAX (4 * 4096 + 256) /* a path of newlines only, escaped */

/* --- one line ---------------------------------------------------------------------------------------------------- */

struct cursor {
	const char *at, *end;
};

/* Digits of a base up to the character that must follow; false: none, too large, or another character. */
static bool take_number(struct cursor *c, unsigned base, char follow, uint64_t *out)
{
	const char *begin = c->at;
	uint64_t n = 0;

	for (; c->at < c->end && *c->at != follow; c->at++) {
		char ch = *c->at;
		unsigned digit = ch >= '0' && ch <= '9'	  ? (unsigned)(ch - '0')
				 : ch >= 'a' && ch <= 'f' ? (unsigned)(ch - 'a' + 10)
							  : 99;

		if (digit >= base || n > (UINT64_MAX - digit) / base)
			return false;
		n = n * base + digit;
	}
	*out = n;
	if (c->at == begin || c->at == c->end)
		return false;
	c->at++;
	return true;
}

/* The kernel escapes newlines only (seq_file_path with "\n"); a backslash stands for itself. */
static int take_path(struct map_entry *out, const char *p, size_t len)
{
	static const char deleted[] = " (deleted)";
	size_t n = 0;

	if (len >= sizeof(deleted) - 1 && !memcmp(p + len - (sizeof(deleted) - 1), deleted, sizeof(deleted) - 1)) {
		out->deleted = true;
		len -= sizeof(deleted) - 1;
	}
	for (size_t i = 0; i < len; n++) {
		bool newline = len - i >= 4 && !memcmp(p + i, "\\012", 4);

		if (n + 1 >= sizeof(out->path) || !p[i])
			return -EBADMSG;
		out->path[n] = newline ? '\n' : p[i];
		i += newline ? 4 : 1;
	}
	out->path[n] = '\0';
	return 0;
}

int maps_parse_line(const char *line, size_t len, struct map_entry *out)
{
	struct cursor c = {line, line + len};
	uint64_t major, minor;
	const char *perms;

	out->deleted = false;
	out->path[0] = '\0';
	if (!take_number(&c, 16, '-', &out->begin) || !take_number(&c, 16, ' ', &out->end) || c.end - c.at < 5)
		return -EBADMSG;
	perms = c.at;
	if (perms[4] != ' ')
		return -EBADMSG;
	c.at += 5;
	if (!take_number(&c, 16, ' ', &out->offset) || !take_number(&c, 16, ':', &major) ||
	    !take_number(&c, 16, ' ', &minor))
		return -EBADMSG;
	if (major > UINT32_MAX || minor > UINT32_MAX)
		return -EBADMSG;
	out->dev_major = (unsigned)major;
	out->dev_minor = (unsigned)minor;
	/* an anonymous mapping's line may end right after the inode */
	if (!memchr(c.at, ' ', (size_t)(c.end - c.at)))
		return c.at < c.end ? 0 : -EBADMSG;
	if (!take_number(&c, 10, ' ', &out->ino))
		return -EBADMSG;
	while (c.at < c.end && *c.at == ' ')
		c.at++;
	if (perms[2] != 'x' || c.at == c.end || *c.at != '/')
		return 0;
	return take_path(out, c.at, (size_t)(c.end - c.at)) ? -EBADMSG : 1;
}

/* --- a process --------------------------------------------------------------------------------------------------- */

/* Compared with memcmp: no holes. With the name, since on btrfs files of different subvolumes can have the same numbers
 * here (the device is the file system's). */
struct seen_file {
	uint64_t dev, ino, name;
};
struct seen {
	struct seen_file file;
	UT_hash_handle hh;
};

/* A file may really be called "x (deleted)": then the mapped file still has a name, and it is that one. */
static void check_deleted(pid_t pid, struct map_entry *m)
{
	struct stat mapped, named;
	char path[sizeof(m->path) + 64];
	size_t len = strlen(m->path);

	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)pid, (unsigned long long)m->begin,
		 (unsigned long long)m->end);
	if (len + sizeof(" (deleted)") > sizeof(m->path) || stat(path, &mapped) || !mapped.st_nlink)
		return;
	snprintf(path, sizeof(path), "/proc/%d/root%s (deleted)", (int)pid, m->path);
	if (stat(path, &named) || named.st_ino != mapped.st_ino || named.st_dev != mapped.st_dev)
		return;
	memcpy(m->path + len, " (deleted)", sizeof(" (deleted)"));
	m->deleted = false;
}

static uint64_t hash_name(const char *name) /* FNV-1a */
{
	uint64_t hash = 0xcbf29ce484222325;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
	return hash;
}

/* 1: not seen before; 0: seen; -ENOMEM */
static int see(struct seen **all, const struct map_entry *m)
{
	struct seen_file key = {makedev(m->dev_major, m->dev_minor), m->ino, hash_name(m->path)};
	struct seen *s;

	HASH_FIND(hh, *all, &key, sizeof(key), s);
	if (s)
		return 0;
	s = malloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->file = key;
	HASH_ADD(hh, *all, file, sizeof(key), s);
	if (!s->hh.tbl) { /* uthash had no memory */
		free(s);
		return -ENOMEM;
	}
	return 1;
}

int maps_each(pid_t pid, void (*fn)(void *ctx, const struct map_entry *m), void *ctx)
{
	struct seen *all = NULL, *s, *next;
	struct map_entry *m = NULL;
	char path[64], *line = NULL;
	size_t size = 0;
	ssize_t len;
	FILE *f;
	int err = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return errno == EPERM ? -EACCES : errno == ESRCH ? -ENOENT : -errno;
	m = malloc(sizeof(*m));
	if (!m)
		err = -ENOMEM;
	while (!err && (errno = 0, len = getline(&line, &size, f)) >= 0) {
		if (len && line[len - 1] == '\n')
			len--;
		/* a line that cannot be read must not hide the others */
		if (len > LINE_BYTES_MAX || maps_parse_line(line, (size_t)len, m) <= 0)
			continue;
		err = see(&all, m);
		if (err <= 0)
			continue;
		err = 0;
		if (m->deleted)
			check_deleted(pid, m);
		fn(ctx, m);
	}
	if (!err && ferror(f))
		err = errno == ESRCH ? -ENOENT : errno ? -errno : -EIO;
	HASH_ITER (hh, all, s, next) {
		HASH_DEL(all, s);
		free(s);
	}
	free(line);
	free(m);
	fclose(f);
	return err;
}

/* By its name here, if that is the same file: the name may mean another one in the root of the process. */
static bool is_here(const struct map_entry *m)
{
	struct stat st;

	return !m->deleted && !stat(m->path, &st) && st.st_dev == makedev(m->dev_major, m->dev_minor) &&
	       st.st_ino == m->ino;
}

const char *maps_path(pid_t pid, const struct map_entry *m, char out[MAPS_PATH_BYTES])
{
	struct stat st;

	snprintf(out, MAPS_PATH_BYTES, "/proc/%d/map_files/%llx-%llx", (int)pid, (unsigned long long)m->begin,
		 (unsigned long long)m->end);
	if (!stat(out, &st) || m->deleted)
		return out;
	snprintf(out, MAPS_PATH_BYTES, "/proc/%d/root%s", (int)pid, m->path);
	if (stat(out, &st) && is_here(m))
		snprintf(out, MAPS_PATH_BYTES, "%s", m->path);
	return out;
}
