/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_SAMPLING_H
#define ATTACH_SAMPLING_H

/*
 * A software event on each processor (perf_event_open(2)) that runs a program: the clocks of --cpu
 * (PERF_COUNT_SW_CPU_CLOCK, a period in ns), the page faults of --alloc (PERF_COUNT_SW_PAGE_FAULTS, a number of them).
 * Needs no performance counters, and takes none from anybody. Private to probes.
 */

#include <stdint.h>

struct bpf_program;
struct sampling;

/* NULL with errno: EACCES, EPERM (CAP_PERFMON), ENODEV (no processor), ENOMEM … */
struct sampling *sampling_start(struct bpf_program *program, uint64_t event, uint32_t period);
void sampling_stop(struct sampling *s); /* NULL is fine */

#endif
