/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_DISCOVER_PARTS_H
#define ATTACH_DISCOVER_PARTS_H

/*
 * What the parts of discover share. Private to them: discover.c says which files are looked at, and when;
 * discover_files.c remembers them, finds what is in one and has it probed; discover_uses.c knows who maps them, and
 * takes probes away.
 */

#include "discover.h"

#include <sys/types.h>

#include "ahead.h"
#include "base/hash.h"

/* A file as it was looked at: a changed file is another file. */
struct file_key {
	uint64_t dev, ino, size;
	int64_t mtime_s, mtime_ns;
};

struct verdict { /* both: a file with two TLS stacks */
	bool probed, refused;
	bool passing;	    /* refused for want of what may be there the next time (descriptors, memory) */
	bool other;	    /* functions of SQLite, or by name, are probed */
	int alloc;	    /* which allocators it has, by number + 1; 0: none (--alloc) */
	uint64_t probed_ns; /* CLOCK_BOOTTIME */
	const char *reason; /* why refused; NULL: no memory. Kept until the end */
};

struct file {
	struct file_key key;
	struct verdict verdict;
	struct file *real; /* of a view (overlayfs): the inode that it shows; else itself */
	unsigned views;	   /* of others, that show it */
	unsigned users;	   /* processes that map it */
	bool kept;	   /* probed to the end */
	bool idle;	   /* in discover.idle, since idle_ns */
	bool detached;	   /* in discover.detached */
	uint64_t idle_ns;
	struct file *prev, *next;
	UT_hash_handle hh;
};

struct discover {
	struct probes *probes;
	struct ahead *ahead; /* NULL: nothing was looked through ahead */
	struct {
		dev_t dev;
		ino_t ino;
	} scripts[DISCOVER_SCRIPTS_MAX]; /* whose packages were looked at */
	unsigned script_count;
	bool unasked; /* files that no process maps are looked through */
	struct reason *reasons;
	unsigned reason_count;
	struct file *files;    /* oldest first */
	struct file *idle;     /* probed, and mapped by nobody; longest first */
	struct file *detached; /* whose probes were removed; longest first */
	unsigned detached_count;
	struct user *users;
	unsigned use_count;
	bool keep; /* discover_keep() */
	struct waiting *waiting;
	unsigned waiting_count;
	bool haste;
	bool sqlite; /* is looked for */
	const struct func_spec *functions;
	unsigned function_count;
	void (*on_function)(void *ctx, unsigned number, const char *path, bool slow, const char *why);
	void *function_ctx;
	uint64_t haste_ns; /* since then */
};

/* --- discover_files.c -------------------------------------------------------------------------------------------- */

/* NULL: it was not looked at. */
struct file *discover_file_recall(const struct discover *d, const struct file_key *key);
/* real: what it shows, NULL: itself. NULL: it is not remembered. */
struct file *discover_file_remember(struct discover *d, const struct file_key *key, struct verdict verdict,
				    struct file *real);
void discover_file_show(struct file *f, struct file *real);
/* Opens; a file that was looked at by another view of its inode (containers of one image) is not looked at again.
 * Remembers and returns the inode when the key is only a view of it; else NULL. */
struct file *discover_file_probe(struct discover *d, const char *path, const char *shown, const struct file_key *key,
				 struct verdict *v);
/* It is refused for want of something, and nothing of it is probed: it should be looked at again when it is mapped
 * again, and not be remembered. */
bool discover_file_is_passing(const struct verdict *v);
/* It could not even be opened. err: negative. Told where it is for want of something. */
void discover_file_refuse(struct discover *d, const char *shown, int err, struct verdict *v);
void discover_file_forget(struct discover *d, struct file *f); /* if no other shows it */
/* Libraries that come and go (each a new file) must not stay. When it is mapped once more it is a new file again. */
void discover_file_forget_detached(struct discover *d, struct file *real);
void discover_files_free(struct discover *d);

/* --- discover_uses.c --------------------------------------------------------------------------------------------- */

/* pid 0: no process, but somebody may run it any time. */
void discover_note_use(struct discover *d, struct file *f, pid_t pid, const char *path, const char *shown);
void discover_uses_free(struct discover *d);

#endif
