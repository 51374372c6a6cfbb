/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SELFCOST_H
#define SELFCOST_H

/* What tracing is made of and what it costs, for metadata: probe sites and our own CPU and memory. */

#include "attach/probes.h"
#include "base/buf.h"

/* Array text: per file its TLS stack and, per function, the chosen site and its class. 0 or -ENOMEM. */
int selfcost_attach_json(struct buf *out, const struct probes *p);
/* Object text: CPU time, anonymous memory, ring size, attach mode, how long CMD was held in its exec (0: it was not).
 * 0 or -ENOMEM. */
int selfcost_json(struct buf *out, const struct probes *p, uint32_t ring_bytes, uint64_t held_ns);

#endif
