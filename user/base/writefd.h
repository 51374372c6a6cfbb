/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_WRITEFD_H
#define BASE_WRITEFD_H

/*
 * Bytes into a descriptor that somebody else reads: a pipe, a terminal. Who reads slowly is waited for. A process that
 * holds its signals back would wait for ever where nobody reads at all (a pager that shows its first page, a terminal
 * that was stopped): it is asked, while it waits, whether to go on.
 */

#include <stdbool.h>
#include <stddef.h>

/* Called every WRITEFD_WAIT_MS in which nothing could be written. True: from now on nobody is waited for. */
typedef bool (*writefd_wait_fn)(void *ctx);
#define WRITEFD_WAIT_MS 50

/* NULL (at the start): it is waited as long as it takes. ctx is borrowed. */
void writefd_on_wait(writefd_wait_fn fn, void *ctx);
/* All of it. 0; -EINTR: nobody read, and it was not to be waited for (some of it may be written); other -errno. */
int writefd_all(int fd, const char *ptr, size_t len);

#endif
