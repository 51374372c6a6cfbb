/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_AGENT_MODELS_H
#define FLOW_AGENT_MODELS_H

/* Which model a turn waited for, and which one wrote. Private child of agents. */

#include "agents.h"

#define MODELS_OF_TURN 8 /* told apart; later ones are left out */

struct models { /* zero: none */
	struct models_entry {
		char name[AGENT_TEXT_BYTES];
		uint64_t waited_ns, wrote_ns;
	} of[MODELS_OF_TURN];
	unsigned count;
	uint64_t waited_ns, wrote_ns; /* of all, those that were left out, or have no name, too */
};

/* A call's waits, as long as they were, whatever else went on. */
void models_add(struct models *m, const struct call *c);
/* Its share is of all. NULL: none. Borrowed. */
const char *models_waited(const struct models *m, double *share);
const char *models_wrote(const struct models *m, double *share);
/* How long a call waited for its first token, and was written from there on. False: not known. */
bool models_times(const struct call *c, uint64_t *waited_ns, uint64_t *wrote_ns);
/* Of all; 0 if that is nothing. */
double models_share(uint64_t ns, uint64_t all_ns);

#endif
