/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_WRITER_H
#define FLOW_WRITER_H

/*
 * Files that are either the old one or the new one, never half: a temp file in the same directory (O_EXCL, O_NOFOLLOW, 0600),
 * then rename. Refused before anything is written: an existing output that is no regular file of the invoking user, a link,
 * a FIFO, a directory that others can write (sticky ones of the user's own excepted).
 */

#include <stddef.h>
#include <sys/types.h>

struct writer {
	int fd;	     /* of the temp file, or of standard output */
	int dir_fd;  /* of the directory; -1 for standard output */
	char *name;  /* owned: final name within the directory */
	char *temp;  /* owned */
	char *buf;   /* owned: output buffer */
	size_t len;
	int err; /* sticky: first -errno */
};

/* May `path` be written by uid? 0; -ELOOP (link), -EEXIST (no regular file), -EPERM (another user's file), -EACCES (unsafe or
 * unwritable directory), other -errno of open. *why: static text for the user. */
int writer_check(const char *path, uid_t uid, const char **why);

/* path "-": standard output, no rename. uid, gid: owner of the new file (SUDO_UID, SUDO_GID). 0 or as writer_check. */
int writer_open(struct writer *w, const char *path, uid_t uid, gid_t gid, const char **why);
int writer_write(struct writer *w, const void *ptr, size_t len); /* 0 or -errno, sticky */
/* Flush, fsync, rename. On failure the temp file is removed and the old file is untouched. 0 or -errno. */
int writer_commit(struct writer *w);
void writer_abort(struct writer *w); /* removes the temp file; idempotent, also after commit */

#endif
