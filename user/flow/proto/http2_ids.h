/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HTTP2_IDS_H
#define FLOW_PROTO_HTTP2_IDS_H

/*
 * Private to http2.c: which of the client's stream numbers can still make an exchange. They rise (RFC 9113 section
 * 5.1.1), so what is below the highest one and was seen, or was passed over, is closed for good; unless requests may
 * have gone by unseen: those numbers are kept as ranges.
 */

#include <stdbool.h>
#include <stdint.h>

#include "http2.h"

struct ids_range {
	uint32_t first, last;
};

struct ids {
	uint32_t next; /* lowest number above all that are accounted for */
	bool lossy;    /* requests from next on may have gone by unseen */
	struct ids_range unseen[HTTP2_RANGES_MAX];
	unsigned count;
};

void ids_init(struct ids *ids, bool fresh);
bool ids_is_unseen(const struct ids *ids, uint32_t id); /* it can be that of a request that was not seen */
/* A stream of that number begins. False: it did before, or was passed over. `request`: its request was seen. */
bool ids_take(struct ids *ids, uint32_t id, bool request);
void ids_lose(struct ids *ids); /* bytes of the client's direction are missing */

#endif
