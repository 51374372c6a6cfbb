/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SPAWN_H
#define SPAWN_H

/*
 * CMD of `-- CMD`: started as the invoking user (SUDO_UID, SUDO_GID, with that user's groups, HOME and USER), in
 * perfbpf's environment less PERFBPF_*, with none of its descriptors or capabilities (but those descriptors that it was
 * given itself, where the user stays the same: <(…) of a shell, a jobserver's). Held before its exec until
 * spawn_go(), and once more in its exec until spawn_let_go(): there its files are those that the kernel mapped, and it
 * has not run an instruction yet. That hold is a ptrace(2) stop of this one process at this one exec: no option follows
 * its children, and nothing traces it afterwards, so that debuggers may be CMD or anywhere below it.
 *
 * A set-user-ID program keeps its privileges under a tracer with CAP_SYS_PTRACE only (cap_bprm_creds_from_file()), so
 * without it there is no hold in the exec; nor where ptrace is refused (seccomp, Yama, another tracer's sandbox).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct spawn {
	pid_t pid;
	int hold_fd; /* a byte lets it go; closed: it exits */
	int err_fd;  /* the errno of a failed exec comes here */
	int pidfd;   /* readable when it ended; -1 unknown */
	/* After spawn_go(): */
	bool held;	     /* stands in its exec, until spawn_let_go() */
	int hold_err;	     /* -errno: why not; 0: it is held, or ended before */
	uint64_t stopped_ns; /* CLOCK_BOOTTIME */
	uint64_t held_ns;    /* after spawn_let_go(): how long; 0: it was not held */
	bool ended;	     /* already collected: */
	int status;
};

int spawn_hold(struct spawn *s, char **argv); /* 0 or -errno */
/* Lets it exec. 0: it stands in its exec (held), or runs, or was killed on the way; -errno of the exec, then it has
 * ended. */
int spawn_go(struct spawn *s);
/* Ends the hold in the exec; does nothing when there is none. */
void spawn_let_go(struct spawn *s);
/* Collects it. true: it has ended, *status as by waitpid(). */
bool spawn_reap(struct spawn *s, int *status);
void spawn_release(struct spawn *s); /* a held child is let down, a running one left alone */

/* What is open now was given to us. Before anything is opened. */
void spawn_note_descriptors(void);

/* As many descriptors as we may have; CMD gets the limit back that was given to us. */
void spawn_raise_limits(void);

#endif
