/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_TAILS_H
#define ATTACH_TAILS_H

/*
 * Bytes that the ring refused and that nothing came after: takes them out of the kernel's map `tails` and tells them as
 * EV_CONN_POS records. Private child of probes.c.
 */

#include <stddef.h>
#include <stdint.h>

struct tails;

/* The map's file descriptor, and how often the kernel put something into it, are borrowed. NULL: no memory. */
struct tails *tails_new(int map_fd, const uint64_t *noted);
void tails_free(struct tails *t); /* NULL is fine */

/*
 * What the kernel noted so far. Told later, once the ring has been read to its end: the connection's own first record
 * may wait there. Before the end of a process is read, what was noted of that process is complete.
 */
void tails_collect(struct tails *t);
/* Tells what was collected of one process, 0: of all. */
void tails_tell(struct tails *t, uint32_t tgid, void (*on_record)(void *ctx, const void *bytes, size_t len), void *ctx);

#endif
