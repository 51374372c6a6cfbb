/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_TAILS_H
#define ATTACH_TAILS_H

/*
 * Bytes that the ring refused and that nothing came after: takes them out of the kernel's map `tails` and tells them as
 * EV_CONN_POS records. Private child of probes.
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

/*
 * Before a record of that time is read: collects and tells what was lost by then, at most so often in event time. A
 * ring that fills while it is read holds the end of a connection behind what that one lost, and a connection is over so
 * long after its end that what it lost is told by then (CONN_CLOSE_LINGER_NS is twice that).
 */
#define TAILS_EVERY_NS 50000000ull
void tails_advance(struct tails *t, uint64_t ts_ns, void (*on_record)(void *ctx, const void *bytes, size_t len),
		   void *ctx);

#endif
