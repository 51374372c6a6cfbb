/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_WRITER_H
#define FLOW_WRITER_H

/*
 * Files that are either the old one or the new one, never half: a temp file `.NAME.perfbpf-tmp` in the same directory
 * (O_EXCL, O_NOFOLLOW, 0600, locked while it is written), then rename. One that an earlier run left behind is removed
 * first. All of it is done with the rights of the user whose file it is to be (setfsuid(2)): who runs perfbpf by sudo
 * gets no file made or replaced where he could not do so himself. His supplementary groups are the caller's to set.
 *
 * Refused before anything is written: an existing output that is no regular file of the invoking user or has a second
 * hard link, a link, a FIFO; a directory that somebody else owns, or in which others can replace files: writable by
 * others, or by a group that is not the user's private one (gid == uid) or root's. A sticky directory (/tmp) is safe
 * for new files and for the user's own ones.
 */

#include <stddef.h>
#include <sys/types.h>

struct writer {
	int fd;	    /* of the temp file, or of standard output; -1 after commit and abort */
	int dir_fd; /* of the directory; -1 for standard output */
	uid_t uid;
	gid_t gid;
	char *name; /* owned: final name within the directory */
	char *temp; /* owned */
	char *buf;  /* owned: output buffer */
	size_t len;
	int err; /* sticky: first -errno */
};

/* May `path` be written by this user? 0; -ELOOP (link), -EISDIR, -EEXIST (no regular file), -EMLINK (second hard link),
 * -EPERM (another user's file or directory; or there is no acting for him), -EBUSY, -EACCES (unsafe or unwritable
 * directory), -ENAMETOOLONG, other -errno of open. *why: static text for the user. For tests. */
int writer_check(const char *path, uid_t uid, gid_t gid, const char **why);

/* path "-": standard output, no rename. uid, gid: who makes the file (SUDO_UID, SUDO_GID). 0; as writer_check;
 * -EBUSY when another run is writing the same output, published or not; -ENOMEM. On failure *w holds nothing. */
int writer_open(struct writer *w, const char *path, uid_t uid, gid_t gid, const char **why);
int writer_write(struct writer *w, const void *ptr, size_t len); /* 0 or -errno, sticky */
int writer_flush(struct writer *w); /* 0 or -errno, sticky: then nothing of what was not flushed is in the file */
/* For files that are read while they grow: the rename now, more is written later; from then on commit only flushes and
 * abort leaves what is there. 0 or -errno, sticky. */
int writer_publish(struct writer *w);
/* Flush, fsync, rename. On failure the temp file is removed and the old file is untouched. Releases *w. 0 or -errno. */
int writer_commit(struct writer *w);
void writer_abort(struct writer *w); /* removes the temp file; idempotent, also after commit */

#endif
