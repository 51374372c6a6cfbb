/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

/* The one clock is CLOCK_BOOTTIME in ns. Only session and commands read it; stages get times with the bytes. */

#include <stddef.h>
#include <stdint.h>

uint64_t clock_boot_ns(void);
int64_t clock_boot_to_unix_ns(void); /* CLOCK_REALTIME - CLOCK_BOOTTIME now, best of several readings */

/* Processor time of all threads of a process, gone ones too. 0; -ESRCH: no such process. */
int clock_cpu_ns(int32_t pid, uint64_t *out);

#define CLOCK_RFC3339_BYTES 40
/* "2026-11-29T15:28:33.123456789Z". Returns out. */
const char *clock_rfc3339(char out[CLOCK_RFC3339_BYTES], int64_t unix_ns);

#endif
