/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_TARGET_H
#define ATTACH_TARGET_H

/*
 * Who is traced: processes by pid and by name, their children, and the files that they map. Reads /proc; attaches nothing.
 */

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/sv.h"

struct proc_stat { /* what /proc says of one process */
	pid_t pid, ppid;
	uint64_t start_ns; /* CLOCK_BOOTTIME, to clock-tick precision (10 ms): see target_start_matches() */
	char comm[64];
	char exe[512];	 /* readlink, "" unknown */
	char args[4096]; /* NUL-separated */
	size_t args_len;
};

/* 0, or -errno: -ENOENT gone, -EACCES unreadable. */
int target_read(pid_t pid, struct proc_stat *out);
/* Every process of this machine (this pid namespace). 0 or -errno. fn may return false to stop. */
int target_each(bool (*fn)(void *ctx, const struct proc_stat *p), void *ctx);
/* pid and all its descendants, as of now; parents first. */
int target_tree(pid_t pid, void (*fn)(void *ctx, const struct proc_stat *p), void *ctx);

/* Name filter of -n: POSIX ERE on the basename of the executable (or script) or the command line. Never matches perfbpf
 * itself, its sudo or its shell (ancestors of self whose command line carries the same pattern). */
struct target_filter {
	regex_t re;
	pid_t self;
};
int target_filter_init(struct target_filter *f, const char *pattern, char *why, size_t why_size); /* -EINVAL: bad ERE */
void target_filter_release(struct target_filter *f);
bool target_filter_match(const struct target_filter *f, pid_t pid, struct sv exe, struct sv args);

/* Files whose TLS a program may use before it runs: the program itself, its interpreter (#!, PT_INTERP), what ld.so would
 * map (DT_NEEDED, RPATH, ld.so.cache), and every TLS library of ld.so.cache (dlopen'ed later by interpreters). Absolute
 * paths, each once. 0 or -errno (-ENOENT: no such program in PATH). */
int target_files_of_command(const char *program, void (*fn)(void *ctx, const char *path), void *ctx);
/* TLS libraries that ld.so.cache knows (libssl.so.*, libgnutls.so.*). */
void target_system_tls(void (*fn)(void *ctx, const char *path), void *ctx);

#endif
