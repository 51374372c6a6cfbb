/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SPAWN_H
#define SPAWN_H

/*
 * CMD of `-- CMD`: started as the invoking user (SUDO_UID, SUDO_GID, with that user's groups, HOME and USER), in
 * perfbpf's environment less PERFBPF_*, with none of its descriptors or capabilities. Held before its exec until
 * spawn_go().
 */

#include <stdbool.h>
#include <sys/types.h>

struct spawn {
	pid_t pid;
	int hold_fd; /* a byte lets it go; closed: it exits */
	int err_fd;  /* the errno of a failed exec comes here */
	int pidfd;   /* readable when it ended; -1 unknown */
};

int spawn_hold(struct spawn *s, char **argv); /* 0 or -errno */
/* Lets it exec. 0: it runs; -errno of the exec, then it has ended. */
int spawn_go(struct spawn *s);
/* Collects it. true: it has ended, *status as by waitpid(). */
bool spawn_reap(struct spawn *s, int *status);
void spawn_release(struct spawn *s); /* a held child is let down, a running one left alone */

/* As many descriptors as we may have; CMD gets the limit back that was given to us. */
void spawn_raise_limits(void);

/* The user on whose behalf we run: SUDO_UID and SUDO_GID where root was asked by sudo, else our own. */
void spawn_user(uid_t *uid, gid_t *gid);

#endif
