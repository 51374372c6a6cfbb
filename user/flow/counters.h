/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_COUNTERS_H
#define FLOW_COUNTERS_H

/*
 * Values that change over time, for the trace's counters: one series for each kind and process. A value is kept when it
 * differs from the one before (the first one from 0, unless one that was not 0 may have been forgotten), and no sooner
 * than COUNTERS_GAP_NS after it; what comes too soon is left out.
 */

#include "base/types.h"

#define COUNTERS_MAX	    32768	 /* samples of all series; past them the oldest go: each tells all by itself */
#define COUNTERS_SERIES_MAX 1024	 /* last values remembered; past it the one told longest ago is forgotten */
#define COUNTERS_GAP_NS	    100000000ull /* at most ten samples a second of one counter */

enum counter_kind {
	COUNTER_CPU,  /* thousandths of a processor */
	COUNTER_SRTT, /* us, of the connection that reported last */
	COUNTER_LOST, /* everything that was lost so far, of the run: pid 0 */
	COUNTER_KINDS,
};

struct counter_sample {
	uint64_t ts_ns;
	uint64_t value;
	uint32_t pid; /* shown pid */
	enum counter_kind kind;
};

struct counters;

/*
 * At most max samples are kept, and at most COUNTERS_MAX; 0: one. A sample is an event of the trace: a run that is told
 * to keep few events has no use for more. NULL: ENOMEM
 */
struct counters *counters_new(uint64_t max);
void counters_free(struct counters *t);
/* 0 or -ENOMEM: this one is not kept. */
int counters_push(struct counters *t, enum counter_kind kind, uint32_t pid, uint64_t ts_ns, uint64_t value);
size_t counters_count(const struct counters *t);
/* Oldest first; 0 <= i < count. */
const struct counter_sample *counters_at(const struct counters *t, size_t i);

#endif
