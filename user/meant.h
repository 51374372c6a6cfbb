/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef MEANT_H
#define MEANT_H

/* Tells the user whom -n means, and why: of those that run at the start, and of those that start later. */

#include <stdint.h>

#include "attach/target.h"
#include "flow/record.h"

/* How long after its exec one is told of: a wrapper has started then what it is there to start. */
#define MEANT_SETTLE_NS 500000000ull
#define MEANT_TOLD_MAX	8 /* lines at the start, and then in so long; how many are more is told in one */
#define MEANT_WINDOW_NS 10000000000ull
#define MEANT_LATE_MAX	64 /* remembered until they are told; those past it are only counted */

/* Those of names, which are solved. *first: the first one that is meant, left as it is when there is none that runs. */
void meant_tell(const struct target_names *names, struct proc_stat *first);

struct meant;
struct meant *meant_new(const struct target_filter *f); /* borrowed. NULL: ENOMEM */
void meant_free(struct meant *m);
/* A program that matched just now. */
void meant_exec(struct meant *m, const struct rec_exec *r, uint64_t now_ns);
void meant_tick(struct meant *m, uint64_t now_ns);
void meant_finish(struct meant *m); /* tells what is left */

#endif
