/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_AGENT_LOAD_H
#define FLOW_AGENT_LOAD_H

/* When an agent's process was busy, from how busy it was in stretches of time. Private child of agents. */

#include "base/types.h"

/* How much of a stretch of time a process had, or wanted, a processor. Zero: not told. */
struct load {
	struct interval at;
	uint64_t busy_ns;
};

/* When it was busy in `l`, of three stretches that may follow each other: an agent that starts or stops to work does so
 * at any moment, so that a stretch that is partly busy has its work beside the one that wholly is. Less than half of
 * the time, alone, is no work that anybody waits for: empty. */
struct interval load_busy(const struct load *before, const struct load *l, const struct load *after);

#endif
