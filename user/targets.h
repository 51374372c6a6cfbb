/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TARGETS_H
#define TARGETS_H

/*
 * The processes that are traced now: a set that follows fork, exec and exit records. Decides for -n which new programs
 * belong to it. Knows nothing of probes.
 */

#include "attach/target.h"
#include "flow/record.h"

struct targets;

struct targets *targets_new(void); /* NULL: ENOMEM */
void targets_free(struct targets *t);
/* Every process is a target, as soon as anything is told of it. */
void targets_set_all(struct targets *t);
/* NULL: no name filter (every exec of a target stays one, no other process becomes one). Borrowed. */
void targets_set_filter(struct targets *t, const struct target_filter *f);

/* start_ns: 0 not known. 0 (also when it was there) or -ENOMEM. */
int targets_add(struct targets *t, uint32_t tgid, uint64_t start_ns);
/* 0: not known, or no target. */
uint64_t targets_start(const struct targets *t, uint32_t tgid);
void targets_remove(struct targets *t, uint32_t tgid);
/* It was one, and has ended lately: of it more may be told (record_is_late). TARGETS_ENDED_MAX are remembered. */
#define TARGETS_ENDED_MAX 256
bool targets_had(const struct targets *t, uint32_t tgid);
bool targets_has(const struct targets *t, uint32_t tgid);
size_t targets_count(const struct targets *t);
void targets_each(const struct targets *t, void (*fn)(void *ctx, uint32_t tgid), void *ctx);

/* What a target maps of what can be probed, since its exec; a child begins with its parent's. */
struct target_files {
	uint64_t probed_ns; /* when the probes of the last file were set; 0: none is probed */
	bool refused, again;
	bool gone; /* was no process any more when somebody looked; what it did at last may still be on its way */
	const char *reason; /* of the latest refusal; borrowed, NULL none */
};
struct target_files *targets_files(struct targets *t, uint32_t tgid); /* NULL: no target. Valid until it is removed */

enum targets_verdict {
	TARGETS_OTHER, /* not ours */
	TARGETS_OLD,   /* ours before, goes on */
	TARGETS_NEW,   /* matched the filter just now */
};
/* What an exec means for the process. */
enum targets_verdict targets_exec(struct targets *t, const struct rec_exec *r);
/* true: the child is a target too. */
bool targets_fork(struct targets *t, const struct rec_fork *r);

#endif
