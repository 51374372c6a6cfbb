/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_TARGET_H
#define ATTACH_TARGET_H

/*
 * Who is traced: processes by pid and by name, their children, and the files that they map. Reads /proc; attaches
 * nothing.
 */

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/sv.h"

struct proc_stat { /* what /proc says of one process */
	pid_t pid, ppid;
	char state;	   /* R S D Z … as in proc(5) */
	uint64_t start_ns; /* CLOCK_BOOTTIME, to clock-tick precision (10 ms): see target_start_matches() */
	char comm[64];
	char exe[512];	 /* readlink, "" unknown */
	char args[4096]; /* NUL-separated */
	size_t args_len;
};

/* 0, or -errno: -ENOENT gone, -EACCES unreadable. An executable or command line that may not be read is left empty. */
int target_read(pid_t pid, struct proc_stat *out);
/* Whether the kernel's exact start time is the one that /proc rounded down. */
bool target_start_matches(const struct proc_stat *p, uint64_t exact_start_ns);
/* The text of /proc/PID/stat (for target_read and its test): pid, ppid, comm, start_ns. 0 or -EBADMSG. */
int target_parse_stat(struct sv text, struct proc_stat *out);
/* Does it run (or wait)? A zombie, which kill(2) still finds, does not. start_ns: exact, 0 any process of that pid. */
bool target_alive(pid_t pid, uint64_t start_ns);
/* Why it is no target, for a user who asked for it: static text. */
const char *target_why_none(pid_t pid);
/*
 * CODEX_TOOL_CALL_ID of its environment, if it is the child of a program whose name begins with "codex", and still the
 * process that started at `start_ns`. Nothing else of the environment leaves this function. 0; -ENOENT: none, or the
 * process is gone; -errno of reading; -E2BIG: it does not fit.
 */
int target_tool_call(pid_t pid, uint64_t start_ns, char *out, size_t size);
/* How long its first thread could have run, and waited for a processor; 0 where this kernel does not say. */
uint64_t target_wait_ns(pid_t pid);
/* Every process of this machine (this pid namespace). 0 or -errno. fn may return false to stop. */
int target_each(bool (*fn)(void *ctx, const struct proc_stat *p), void *ctx);
/* Who started whom, of every process, as of now. NULL with errno. */
struct target_family *target_family_read(void);
void target_family_free(struct target_family *f);
/* When it started, as /proc tells it; 0: there was no such process. */
uint64_t target_family_start(const struct target_family *f, pid_t pid);
/* pid and all its descendants, as of then, but for those that have ended since, whoever has their numbers now; parents
 * first. start_ns: of it, as /proc tells it; 0: whoever had the number then. 0; -ENOENT: no such process; -ENOMEM. */
int target_family_tree(const struct target_family *f, pid_t pid, uint64_t start_ns,
		       void (*fn)(void *ctx, const struct proc_stat *p), void *ctx);
/* As of now. It looks at every process of the machine: of many pids once is enough. */
int target_tree(pid_t pid, void (*fn)(void *ctx, const struct proc_stat *p), void *ctx);

/* Name filter of -n: POSIX ERE on the basename of the executable (or script) or the command line. Never matches perfbpf
 * itself, the sudo and the shell that it was started from, or any ancestor whose command line carries the invocation.
 */
#define TARGET_PATTERN_MAX 512
struct target_filter {
	regex_t re;
	pid_t self;
	char pattern[TARGET_PATTERN_MAX];
};
int target_filter_init(struct target_filter *f, const char *pattern, char *why, size_t why_size); /* -EINVAL: bad ERE */
void target_filter_release(struct target_filter *f);
bool target_filter_match(const struct target_filter *f, pid_t pid, struct sv exe, struct sv args);

/* The part of it that looks at the process alone. */
bool target_filter_match_text(const struct target_filter *f, struct sv exe, struct sv args);

/*
 * Of all that carry the name: who is meant, and who only starts it. Shells, sudo and its like, package runners (npx,
 * "dotnet run") and interpreters whose script starts a native program carry the name of what they start. All of them
 * are traced; the meant ones are who the user asked for.
 */
enum target_by { TARGET_BY_NOTHING, TARGET_BY_PROGRAM, TARGET_BY_SCRIPT, TARGET_BY_COMMAND_LINE };
enum target_starter {
	TARGET_NO_STARTER,
	TARGET_SHELL,
	TARGET_ELEVATOR, /* sudo, env, timeout … */
	TARGET_RUNNER,	 /* of packages */
	TARGET_LAUNCHER, /* a script that starts a native program */
};
/* Static text for the user: "its program's name", "a shell". */
const char *target_by_text(enum target_by by);
const char *target_starter_text(enum target_starter starter);

struct target_named {
	pid_t pid, ppid;
	uint64_t start_ns;
	char name[64];		     /* captured text */
	enum target_by by;	     /* what the pattern matches; NOTHING: it is a child of one that it matches */
	enum target_starter starter; /* what it would be, if it started another program */
	enum target_starter wraps;   /* what it is; TARGET_NO_STARTER: no wrapper */
	bool interpreter;
	bool meant;
	pid_t real; /* whom it starts; itself */
};

struct target_names {
	const struct target_filter *filter; /* borrowed */
	struct target_named *list;	    /* owned */
	size_t count, room;
};

void target_names_init(struct target_names *n, const struct target_filter *f);
void target_names_release(struct target_names *n);
/* One that is traced; parents before children. 0 or -ENOMEM. */
int target_names_add(struct target_names *n, const struct proc_stat *p);
/* One that was added to another list, and is gone. */
int target_names_keep(struct target_names *n, const struct target_named *t);
void target_names_solve(struct target_names *n);

/* Files whose TLS a program may use before it runs: the program itself, its interpreter (#!, PT_INTERP), what ld.so
 * would map (DT_NEEDED, RPATH, ld.so.cache), and every TLS library of ld.so.cache (dlopen'ed later by interpreters).
 * Absolute paths, each file once. Nothing is executed. 0 or -errno (-ENOENT: no such program in PATH, -EACCES: only
 * ones that cannot be executed). What cannot be found beyond the program is left out. */
int target_files_of_command(const char *program, void (*fn)(void *ctx, const char *path), void *ctx);
/* What of a command line may name the programs that the command starts (it is env, timeout, a shell …): its arguments,
 * the words of what follows a -c, and those of scripts: the command itself, or one that is an argument. Options are
 * left out. The text is valid in fn. */
#define TARGET_WORDS_MAX 256
void target_words(char *const argv[], void (*fn)(void *ctx, const char *word), void *ctx);
/* As execvp() finds it, into out. 0 or -errno: -ENOENT, -EACCES (only ones that cannot be executed), -ENAMETOOLONG. */
int target_find_program(const char *program, char *out, size_t size);
/* What makes its first call sooner than a file of hundreds of megabytes can be looked through: a native program itself;
 * of a script that belongs to a package of npm, the native programs and addons of that package and of those that are
 * named after it (NAME-linux-x64), which such a script starts or loads: at most 8, those that are named as the package
 * first, and nothing outside of node_modules. None below 1 MiB. 0, -ENOMEM, or as target_find_program(). */
int target_files_of_package(const char *program, void (*fn)(void *ctx, const char *path), void *ctx);
/* TLS libraries that ld.so.cache knows (libssl.so.*, libgnutls.so.*), and SQLite (libsqlite3.so.*). */
void target_system_tls(void (*fn)(void *ctx, const char *path), void *ctx);

#endif
