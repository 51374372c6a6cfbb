/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SLICE_H
#define SLICE_H

/*
 * How soon the ring is drained when all processors are busy. At some gigabytes a second its 8 MiB last two
 * milliseconds; whoever waits his turn behind two busy threads is let in at the next tick (4 ms at 250 Hz), and by then
 * records are lost. A shorter time slice (sched_attr.sched_runtime of a normal task, Linux 6.12: EEVDF) lets a woken
 * thread in at once, and gives it no larger share of the processor: what it takes at once it takes in short turns.
 */

/* The calling thread's slice, not that of programs it has started. Kernels before take no notice of it. */
void slice_shorten(void);

#endif
