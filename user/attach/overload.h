/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_OVERLOAD_H
#define ATTACH_OVERLOAD_H

/*
 * What happens when targets say more than this machine drains. Targets never wait for perfbpf: what finds no room in
 * the ring is lost. Before it comes to that, less is copied, in steps, by how full the ring is:
 *   1. payload: of a request LIMIT_OVERLOAD_REQUEST_BYTES, of a read LIMIT_OVERLOAD_READ_BYTES
 *   2. heads: of a request and of its answer LIMIT_OVERLOAD_HEAD_BYTES each
 *   3. connections: nothing at all of the older half of those that there are, then of half of the rest, and so on: the
 *      newest goes last
 * A step is taken when the ring is OVERLOAD_FULL full again, or still, OVERLOAD_FULL_NS after it was, each time that it
 * is about to be drained; and taken back when it was nearly empty for OVERLOAD_CALM_NS. What was not copied is a hole
 * in its stream, and counted (ST_OVERLOAD). Private child of probes; no BPF in here.
 */

#include <stdbool.h>
#include <stdint.h>

#include "bpf/limits.h"

#define OVERLOAD_FULL(size) ((size) / 8 * 7)
#define OVERLOAD_FULL_NS    20000000ull
#define OVERLOAD_CALM_NS    1000000000ull

struct overload {
	uint32_t level;		   /* OVERLOAD_* of limits.h */
	uint32_t dropped;	   /* CONNECTIONS: generations up to this one are not looked at */
	uint64_t full_ns, calm_ns; /* since when, 0: it is not */
	uint32_t highest;	   /* level so far */
	uint64_t spent_ns;	   /* above OVERLOAD_NONE, until changed_ns */
	uint64_t changed_ns;
};

/* used of size bytes wait in the ring, which is about to be drained, or (draining) is being so; last_gen: the newest
 * connection. True: level or dropped has changed. */
bool overload_look(struct overload *o, uint64_t used, uint64_t size, bool draining, uint32_t last_gen, uint64_t now_ns);
uint64_t overload_spent_ns(const struct overload *o, uint64_t now_ns);
const char *overload_text(uint32_t level); /* what is done, for a warning */

#endif
