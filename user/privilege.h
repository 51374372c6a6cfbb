/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PRIVILEGE_H
#define PRIVILEGE_H

/*
 * What is left of root's power, and from when on. It only shrinks:
 *
 * privilege_begin(), when the program has started: the invoking user's groups; his ids are ours as saved ones, so that
 *	flow/writer can act as him without any capability; no CAP_DAC_OVERRIDE.
 *
 * privilege_trace(), when the probes are set: what later ones need, CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE,
 *	CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE; the system calls of sandbox.h.
 *
 * privilege_read(), for replay, report and diff: CAP_DAC_READ_SEARCH; the system calls of sandbox.h.
 *
 * privilege_write(), when nothing is looked at any more: no capability.
 *
 * CAP_CHECKPOINT_RESTORE is what /proc/PID/map_files wants: the very file that a process maps, whatever became of its
 * name. Where uprobes are perf events (Linux before 6.6) each new one takes CAP_SYS_ADMIN, which is then kept.
 * Programs that are loaded after that must not name kernel types that may be missing: libbpf 1.1 then looks for them in
 * the modules' BTF, which takes CAP_SYS_ADMIN. Programs started for `-- CMD` are forked before all of it but
 * privilege_begin() (spawn.h).
 *
 * Capabilities are a thread's: one that is started (attach/allocwindow.h) has those of privilege_trace() at once, and
 * ends before privilege_write(). The system call filter is set for all threads.
 */

#include <pwd.h>
#include <stdbool.h>
#include <sys/types.h>

/* The user on whose behalf we run: SUDO_UID and SUDO_GID where root was asked by sudo, else our own. */
void privilege_user(uid_t *uid, gid_t *gid);

/* The groups of that user, or of gid alone where he has no entry; *pw is his entry, or NULL. 0 or -errno. */
int privilege_groups(uid_t uid, gid_t gid, struct passwd **pw);

/* First of all. 0 or -errno: the invoking user cannot be acted for; printed. */
int privilege_begin(void);
/* Whether we have the capability now. */
bool privilege_has(int capability);
/* Root writes for himself into a folder that its mode keeps him from: CAP_DAC_OVERRIDE after all, and to the end.
 * False: it would not help, or was so already. */
bool privilege_override(void);
/* sandbox false: for tests. */
void privilege_trace(bool perf_probes, bool sandbox);
void privilege_thread(void); /* what privilege_trace() leaves, of the thread that calls it */
void privilege_read(bool sandbox);
void privilege_write(void);
void privilege_keep_stats(void); /* of keeper.h's process: CAP_SYS_ADMIN alone */

/* A process that is about to exec is to have what root has by being root, and nothing that was lent to us (ambient,
 * inheritable). 0 or -errno. */
int privilege_own(void);

#endif
