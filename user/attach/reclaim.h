/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_RECLAIM_H
#define ATTACH_RECLAIM_H

/*
 * Deletes kernel state of connections that nobody uses any more: the kernel cannot know, because SSL_free fires before
 * the last reference drops. Watches the records that pass by. Private child of probes.
 */

#include <stddef.h>
#include <stdint.h>

#define RECLAIM_AFTER_NS 1000000000ull	 /* unused that long since CONN_CLOSE, or since its socket was closed */
#define RECLAIM_IDLE_NS	 600000000000ull /* half a connection without a socket: unused that long */

struct reclaim;

/* File descriptors of the maps `conns`, `targets` and `go_calls`, borrowed. NULL: no memory. */
struct reclaim *reclaim_new(int conns_fd, int targets_fd, int go_calls_fd);
void reclaim_free(struct reclaim *r); /* NULL is fine; the maps stay as they are */

/* Every record, in order. */
void reclaim_note(struct reclaim *r, const void *bytes, size_t len);
/* Plain connections on Unix sockets that are open, as far as is known: the kernel does not tell when they close. */
unsigned reclaim_unix_count(const struct reclaim *r);
/* Those whose cookie is not among these `count` (sorted) are closed: a CONN_CLOSE record is given to fn. */
void reclaim_unix_sweep(struct reclaim *r, const uint64_t *cookies, size_t count, uint64_t now_ns,
			void (*fn)(void *ctx, const void *bytes, size_t len), void *ctx);
/* The process is not traced any more: all its connections. */
void reclaim_process(struct reclaim *r, uint32_t tgid);
void reclaim_tick(struct reclaim *r, uint64_t now_ns);
/* The same of another map with keys of struct conn_map_key. */
void reclaim_sweep_map(struct reclaim *r, int fd);
/* State whose process is no target, seen or not: for records that were lost. Walks the whole map, so not often. */
void reclaim_sweep(struct reclaim *r, uint64_t now_ns);

#endif
