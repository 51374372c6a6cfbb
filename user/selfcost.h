/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SELFCOST_H
#define SELFCOST_H

/* What tracing is made of and what it costs, for metadata: probe sites and our own CPU and memory. */

#include "attach/probes.h"
#include "base/buf.h"

/* Array text: per file its TLS stack and, per function, the chosen site and its class. 0 or -ENOMEM. */
int selfcost_attach_json(struct buf *out, const struct probes *p);
struct selfcost {
	uint32_t ring_bytes;
	uint64_t held_ns;   /* how long CMD was held in its exec, 0: it was not */
	uint64_t start_ns;  /* perfbpf began */
	uint64_t began_ns;  /* tracing began: everything was attached */
	double start_cpu_s; /* what it took until then, most of it in the kernel's verifier */
};

void selfcost_begin(struct selfcost *c, uint64_t now_ns);
/* Object text: CPU time, anonymous memory and what of it is in use, ring size and what waited in it at most, BPF
 * programs, attach mode. 0 or -ENOMEM. */
int selfcost_json(struct buf *out, const struct probes *p, const struct selfcost *c);
/* For the summary: one line, without its end. */
void selfcost_line(char *line, size_t size, const struct probes *p, const struct selfcost *c, uint64_t now_ns);

#endif
