/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_AGENT_CHARGE_H
#define FLOW_AGENT_CHARGE_H

/* A call's time as intervals of wall time. */

#include "flow/llm/call.h"
#include "walltime.h"

/*
 * main_lane: its calls lie over those of other lanes. Charged: set-up that the call paid for; the shortest round
 * trip after the request was sent and what retransmissions, and the way out of the kernel, delayed, to the network; up
 * to the first token (or the end, where there is none), the server; the rest, generation, with silences as stalls and
 * late reads as the client; what was not seen well enough to say, unknown, but for the time between tokens. 0 or
 * -ENOMEM.
 */
int charge_push(struct walltime *w, const struct call *c, bool main_lane);

#endif
