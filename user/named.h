/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef NAMED_H
#define NAMED_H

/*
 * Functions that are traced by name (-f) in a live run: what became of each, and the guard that takes the probes of one
 * away which is called so often that they would slow its program.
 */

#include "attach/discover.h"
#include "attach/probes.h"
#include "capture.h"

/* Calls a second past which the probes are taken away: a hit costs 0.5 us, one that is single-stepped up to 19 us
 * (measured on a VM, Linux 6.18), so this is at most a tenth of a processor. */
#define NAMED_CALLS_PER_S      20000u
#define NAMED_SLOW_CALLS_PER_S 2000u

struct named;

/* NULL: ENOMEM. specs and probes are borrowed; fn is given records EV_FUNC. */
struct named *named_new(const struct func_spec *specs, unsigned count, struct probes *probes, capture_fn fn, void *ctx);
void named_free(struct named *n);
/* Has them looked for. */
void named_discover(struct named *n, struct discover *d);
void named_tick(struct named *n, uint64_t now_ns);
/* Tells the last counts, and warns of those that nobody mapped: how many functions were not traced to the end. */
unsigned named_finish(struct named *n, uint64_t now_ns);

#endif
