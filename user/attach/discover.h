/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_DISCOVER_H
#define ATTACH_DISCOVER_H

/*
 * From processes to probes: looks through the files that a process maps (or will map), lets the finder look at each
 * file once, and has the probes attached. Reports what it could not do; prints nothing above level verbose.
 */

#include "funcfind.h"
#include "maps.h"
#include "probes.h"
#include "target.h"

struct discover;

struct discover_result {
	unsigned tls_files;   /* files with TLS functions whose probes are set (now or before) */
	unsigned refused;     /* files with TLS functions that could not all be probed; each was warned about once */
	unsigned unreadable;  /* mapped files that may not be opened: what they hold is not known */
	unsigned alloc_files; /* files with allocators (--alloc) */
	uint64_t probed_ns;   /* when the probes of the last of them were set (CLOCK_BOOTTIME); 0: none */
	const char *reason;   /* of the latest refusal; NULL: none. Valid as long as the discover is */
	int err;	      /* -errno: the process's files could not be read (-ENOENT: it is gone) */
};

/*
 * Big files take time to look through. While this is on, those over DISCOVER_BIG_BYTES, and all once DISCOVER_HASTE_NS
 * have gone by, wait for discover_next(): so many targets at once are traced before the last one's files were read.
 */
#define DISCOVER_BIG_BYTES   (32u << 20)
#define DISCOVER_HASTE_NS    700000000ull
#define DISCOVER_WAITING_MAX 1024 /* files, each an open descriptor; more are looked through at once */

struct discover *discover_new(struct probes *probes); /* NULL: ENOMEM; probes are borrowed */
void discover_free(struct discover *d);
/* From now on SQLite is looked for too (sqlitefind.h), and probed; results count TLS only. */
void discover_sqlite(struct discover *d);

/* From now on functions are looked for by name (funcfind.h), the specs borrowed; fn is told what became of one in a
 * file that matches: NULL, or why it is not probed. Results count TLS only. */
void discover_functions(struct discover *d, const struct func_spec *specs, unsigned count,
			void (*fn)(void *ctx, unsigned number, const char *path, bool slow, const char *why),
			void *ctx);

/* Looks through files that will be asked for, so that nothing but their probes is left to be done: what the process
 * maps, or (0) the system's TLS libraries and those of a program (NULL: none). The probes need not be ready yet. */
void discover_ahead(struct discover *d, pid_t pid, const char *program);
/* What discover_package() will ask for; after discover_ahead(). */
void discover_package_ahead(struct discover *d, const char *program);

void discover_haste(struct discover *d, bool on);
/* Looks through one of the files that wait. False: there is none. */
bool discover_next(struct discover *d, struct discover_result *r);

/* Every executable mapping of the process. */
struct discover_result discover_process(struct discover *d, pid_t pid);
/* Probes what the process maps anew, each file once in a run: how many files. */
unsigned discover_again(struct discover *d, pid_t pid);
/* One mapping, as it was made. */
struct discover_result discover_mapping(struct discover *d, pid_t pid, const struct map_entry *m);
/* The program, its interpreter, and what ld.so will map, as seen from the file system: before an exec. */
struct discover_result discover_command(struct discover *d, const char *program);
/* What a script of a package is likely to start (target_files_of_package()). What is refused there may never run: it is
 * told when it is mapped. */
void discover_package(struct discover *d, const char *program);
/* The same of a script that a process runs, by the path that it was started with; each script once,
 * DISCOVER_SCRIPTS_MAX of them in a run, and none of a process whose root is another one. */
#define DISCOVER_SCRIPTS_MAX 64
void discover_script(struct discover *d, pid_t pid, const char *path);
/* TLS libraries of the system: what interpreters load later. */
struct discover_result discover_system(struct discover *d);

/*
 * Probes of a file are shared by all processes that map it, and removed some time after the last one is gone: every
 * program that maps it pays for them. Files that discover_command() and discover_system() found stay probed.
 */
#define DISCOVER_USES_MAX 65536 /* pairs of process and file; files of later ones stay probed */
/* A child maps what its parent maps; a process that ended, or that executes another program, maps nothing any more. */
void discover_fork(struct discover *d, pid_t parent, pid_t child);
void discover_forget(struct discover *d, pid_t pid);
/* From now on nothing is removed: any process may map any file. */
void discover_keep(struct discover *d);
/* Removes the probes of at most one file, one that nobody has mapped for idle_ns: it takes some 10 ms. */
void discover_tick(struct discover *d, uint64_t now_ns, uint64_t idle_ns);

#endif
