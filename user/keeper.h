/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef KEEPER_H
#define KEEPER_H

/*
 * The one thing that goes on needing CAP_SYS_ADMIN while perfbpf traces: the kernel's account of what BPF programs cost
 * (BPF_ENABLE_STATS; kept for a moment now and then, see attach/progcost.h). A small process of its own, made before
 * anything of strangers is read, does it on request and hands the descriptor over. A request is one byte without a
 * meaning. It holds nothing else, and ends with the process that made it.
 */

/* Before probes are opened, so that it inherits none. 0 or -errno; without CAP_SYS_ADMIN there is none: -EPERM. */
int keeper_start(void);
/* The account is kept until the descriptor is closed. It, or -errno. */
int keeper_stats(void);
void keeper_stop(void); /* does nothing where there is none */

#endif
