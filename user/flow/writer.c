/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "writer.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/writefd.h"

#define WRITER_BUFFER 65536

static int fail(int err, const char *text, const char **why)
{
	if (why)
		*why = text;
	return err;
}

/* --- whose rights ------------------------------------------------------------------------------------------------ */

static void act_as_self(void)
{
	setfsuid(geteuid());
	setfsgid(getegid());
}

/* Until act_as_self(). These calls tell no errors: what was set is asked for. 0 or -EPERM. */
static int act_as(uid_t uid, gid_t gid, const char **why)
{
	setfsgid(gid);
	setfsuid(uid);
	if ((uid_t)setfsuid((uid_t)-1) == uid && (gid_t)setfsgid((gid_t)-1) == gid)
		return 0;
	act_as_self();
	return fail(-EPERM, "there is no acting for the invoking user", why);
}

/* --- is it safe? ------------------------------------------------------------------------------------------------- */

/* Directory of `path` (opened) and the name in it (borrowed from path). */
static int open_dir(const char *path, const char **name, const char **why)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX] = ".";
	int fd;

	*name = slash ? slash + 1 : path;
	if (!**name || !strcmp(*name, ".") || !strcmp(*name, ".."))
		return fail(-EISDIR, "it is a directory", why);
	if (strlen(*name) > NAME_MAX)
		return fail(-ENAMETOOLONG, "the name is too long", why);
	if (slash) {
		size_t len = slash == path ? 1 : (size_t)(slash - path);

		if (len >= sizeof(dir))
			return fail(-ENAMETOOLONG, "the path is too long", why);
		memcpy(dir, path, len);
		dir[len] = '\0';
	}
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	return fail(-errno, errno == ENOENT ? "its directory does not exist" : "its directory cannot be opened", why);
}

static int check_dir(int dir_fd, uid_t uid, const char **why)
{
	struct stat st;
	bool sticky, by_group;

	if (fstat(dir_fd, &st))
		return fail(-errno, "its directory cannot be read", why);
	sticky = st.st_mode & S_ISVTX;
	by_group = (st.st_mode & S_IWGRP) && st.st_gid != 0 && st.st_gid != (gid_t)uid;
	if (st.st_uid != 0 && st.st_uid != uid)
		return fail(-EPERM, "its directory belongs to another user", why);
	if (((st.st_mode & S_IWOTH) || by_group) && !sticky)
		return fail(-EACCES, "others can write to its directory", why);
	if (faccessat(dir_fd, ".", W_OK | X_OK, AT_EACCESS))
		return fail(-errno, errno == EROFS ? "its file system is read-only" : "its directory is not writable",
			    why);
	return 0;
}

/* A published file is locked while it grows. */
static bool is_being_written(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	bool locked;

	if (fd < 0)
		return false;
	locked = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
	close(fd);
	return locked;
}

static int check_existing(int dir_fd, const char *name, uid_t uid, const char **why)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : fail(-errno, "it cannot be examined", why);
	if (S_ISLNK(st.st_mode))
		return fail(-ELOOP, "it is a symbolic link", why);
	if (S_ISDIR(st.st_mode))
		return fail(-EISDIR, "it is a directory", why);
	if (!S_ISREG(st.st_mode))
		return fail(-EEXIST, "it is not a regular file (-o - writes to a pipe)", why);
	if (st.st_uid != uid)
		return fail(-EPERM, "it belongs to another user", why);
	if (st.st_nlink > 1)
		return fail(-EMLINK, "it has another hard link", why);
	if (is_being_written(dir_fd, name))
		return fail(-EBUSY, "it is being written already", why);
	return 0;
}

/* Both on one descriptor of the directory, so that what was checked is what is used. Returns it, or -errno. */
static int open_checked(const char *path, uid_t uid, const char **name, const char **why)
{
	int fd = open_dir(path, name, why);
	int err;

	if (fd < 0)
		return fd;
	err = check_dir(fd, uid, why);
	if (!err)
		err = check_existing(fd, *name, uid, why);
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

static bool is_stdout(const char *path)
{
	return !strcmp(path, "-");
}

int writer_check(const char *path, uid_t uid, gid_t gid, const char **why)
{
	const char *name;
	int fd;

	if (is_stdout(path))
		return 0;
	fd = act_as(uid, gid, why);
	if (fd)
		return fd;
	fd = open_checked(path, uid, &name, why);
	act_as_self();
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* --- the temp file ----------------------------------------------------------------------------------------------- */

static char *temp_name(const char *name)
{
	static const char suffix[] = ".perfbpf-tmp";
	char text[NAME_MAX + 1];

	snprintf(text, sizeof(text), ".%.*s%s", (int)(NAME_MAX - sizeof(suffix)), name, suffix);
	return strdup(text);
}

/* Removes what a killed run left: a regular file of ours that nobody has locked. 0, or why it may not go. */
static int reclaim(int dir_fd, const char *temp, uid_t uid, const char **why)
{
	/* O_NONBLOCK: a planted FIFO must not hold us up. */
	int fd = openat(dir_fd, temp, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int err = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : fail(-errno, "something is in the way of its temporary file", why);
	if (fstat(fd, &st))
		err = fail(-errno, "its temporary file cannot be examined", why);
	else if (!S_ISREG(st.st_mode) || (st.st_uid != uid && st.st_uid != geteuid()) || st.st_nlink > 1)
		err = fail(-EPERM, "something is in the way of its temporary file", why);
	else if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		err = fail(-EBUSY, "it is being written already", why);
	else if (unlinkat(dir_fd, temp, 0))
		err = fail(-errno, "an old temporary file cannot be removed", why);
	close(fd);
	return err;
}

static int create(struct writer *w, const char **why)
{
	int err = reclaim(w->dir_fd, w->temp, w->uid, why);

	if (err)
		return err;
	w->fd = openat(w->dir_fd, w->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (w->fd < 0)
		return fail(-errno, "its temporary file cannot be made", why);
	if (flock(w->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return fail(-EBUSY, "it is being written already", why);
	return 0;
}

/* Is the temp name still the file that we made? Somebody who can write here may have put another in its place. */
static bool still_ours(const struct writer *w)
{
	struct stat ours, named;

	return !fstat(w->fd, &ours) && !fstatat(w->dir_fd, w->temp, &named, AT_SYMLINK_NOFOLLOW) &&
	       ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

static void release(struct writer *w)
{
	if (w->buf && w->dir_fd >= 0)
		close(w->dir_fd);
	if (w->buf && w->fd > STDOUT_FILENO)
		close(w->fd);
	free(w->name);
	free(w->temp);
	free(w->buf);
	*w = (struct writer){.fd = -1, .dir_fd = -1};
}

/* As the user. */
static int open_temp(struct writer *w, const char *path, const char **why)
{
	const char *name;

	w->dir_fd = open_checked(path, w->uid, &name, why);
	if (w->dir_fd < 0) {
		int err = w->dir_fd;

		w->dir_fd = -1;
		return err;
	}
	w->name = strdup(name);
	w->temp = temp_name(name);
	return w->name && w->temp ? create(w, why) : fail(-ENOMEM, "out of memory", why);
}

int writer_open(struct writer *w, const char *path, uid_t uid, gid_t gid, const char **why)
{
	int err = 0;

	*w = (struct writer){.fd = -1, .dir_fd = -1, .uid = uid, .gid = gid};
	w->buf = malloc(WRITER_BUFFER);
	if (!w->buf)
		return fail(-ENOMEM, "out of memory", why);
	if (is_stdout(path)) {
		int flags = fcntl(STDOUT_FILENO, F_GETFL);

		if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
			writer_abort(w);
			return fail(-EBADF, "standard output is not open for writing", why);
		}
		w->fd = STDOUT_FILENO;
		return 0;
	}
	err = act_as(uid, gid, why);
	if (!err) {
		err = open_temp(w, path, why);
		act_as_self();
	}
	if (err)
		writer_abort(w);
	return err;
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

/* All of it or, in a file, nothing: who reads one that grows is to find whole lines, also when the disk is full. */
static int put(struct writer *w, const char *ptr, size_t len)
{
	off_t at = w->fd == STDOUT_FILENO ? -1 : lseek(w->fd, 0, SEEK_CUR);
	int err = writefd_all(w->fd, ptr, len);

	if (err && at >= 0)
		(void)!ftruncate(w->fd, at);
	return err;
}

int writer_flush(struct writer *w)
{
	if (!w->err && w->len)
		w->err = put(w, w->buf, w->len);
	w->len = 0;
	return w->err;
}

int writer_write(struct writer *w, const void *ptr, size_t len)
{
	if (w->err)
		return w->err;
	if (!w->buf)
		return w->err = -EBADF;
	if (len > WRITER_BUFFER - w->len && writer_flush(w))
		return w->err;
	if (len >= WRITER_BUFFER)
		return w->err = put(w, ptr, len);
	memcpy(w->buf + w->len, ptr, len);
	w->len += len;
	return 0;
}

/* --- the end ----------------------------------------------------------------------------------------------------- */

/* The temp file takes its name. */
static int take_name(struct writer *w)
{
	int err = act_as(w->uid, w->gid, NULL);

	if (err)
		return err;
	if (!still_ours(w))
		err = -ESTALE;
	else if (renameat(w->dir_fd, w->temp, w->dir_fd, w->name))
		err = -errno;
	act_as_self();
	return err;
}

int writer_commit(struct writer *w)
{
	int err = writer_flush(w);

	if (!w->buf && !err)
		err = -EBADF;
	if (w->dir_fd < 0 || err) {
		writer_abort(w);
		return err;
	}
	/* Some file systems cannot sync and say EINVAL; that is no reason to throw the trace away. */
	if (fsync(w->fd) && errno != EINVAL && errno != EROFS)
		err = -errno;
	else
		err = take_name(w);
	if (err) {
		writer_abort(w);
		return err;
	}
	release(w);
	return 0;
}

int writer_publish(struct writer *w)
{
	int err = writer_flush(w);

	if (err || w->dir_fd < 0)
		return err;
	w->err = take_name(w);
	if (w->err)
		return w->err;
	close(w->dir_fd);
	w->dir_fd = -1;
	return 0;
}

void writer_abort(struct writer *w)
{
	/* Without a buffer it was never opened: the descriptors of a zeroed struct are not ours. */
	if (w->buf && w->dir_fd >= 0 && w->fd >= 0 && !act_as(w->uid, w->gid, NULL)) {
		if (still_ours(w))
			unlinkat(w->dir_fd, w->temp, 0);
		act_as_self();
	}
	release(w);
}
