/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SANDBOX_H
#define SANDBOX_H

/*
 * The system calls that perfbpf makes while it reads what strangers send: files are opened and mapped, BPF programs
 * loaded and attached, outputs written. No program is started, no process made, signalled or traced, no socket made, no
 * memory made executable, no identity changed but between the invoking user's and our own for files.
 *
 * What is not listed does not happen and looks like an older kernel's (ENOSYS): the C library then tries another way.
 * It is told once for each number, for it is either a bug or an attack; it does not end the run, because what was
 * traced so far is worth more than knowing which of the two.
 */

/* From now on, for the whole process. Nothing happens in builds with a sanitizer, where the kernel has no filters, and
 * on other machines than x86-64 and arm64; told with -v. May be called again. */
void sandbox_enter(void);
void sandbox_enter_keeper(void); /* what keeper.h's process needs */

#endif
