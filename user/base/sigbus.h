/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_SIGBUS_H
#define BASE_SIGBUS_H

/*
 * Reading a mapped file of somebody else's: when it becomes shorter meanwhile (an updater that writes in place), what
 * was behind its new end is gone, and reading it raises SIGBUS. That ends the reading, not the run: that of the
 * innermost call. One thread.
 */

/* What fn returns; -EIO when the file became shorter while it ran (what it had allocated is lost then); -errno. */
int sigbus_guard(int (*fn)(void *ctx), void *ctx);

#endif
