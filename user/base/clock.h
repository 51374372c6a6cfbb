/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

/* The one clock is the kernel's CLOCK_BOOTTIME in ns, which is what events are stamped with. Only session and commands
 * read it; stages get times with the bytes. */

#include <stddef.h>
#include <stdint.h>

#include "base/sv.h"

uint64_t clock_boot_ns(void);
int64_t clock_boot_to_unix_ns(void); /* CLOCK_REALTIME - clock_boot_ns() now, best of several readings */

/* What the kernel adds to CLOCK_BOOTTIME, and to times in /proc, when it tells them to this process: other than 0 in a
 * time namespace (time_namespaces(7)) alone. clock_boot_ns() is without it. */
int64_t clock_boot_shift_ns(void);
/* The same from the text of /proc/PID/timens_offsets: "monotonic S NS" and "boottime S NS", a line each. 0 where it is
 * not said.
 */
int64_t clock_parse_shift(struct sv text);

/* Processor time of all threads of a process, gone ones too. 0; -ESRCH: no such process. */
int clock_cpu_ns(int32_t pid, uint64_t *out);

#define CLOCK_RFC3339_BYTES 40
/* "2026-11-29T15:28:33.123456789Z". Returns out; NULL where the shift is 0 (unknown), or the sum is no time. */
const char *clock_rfc3339(char out[CLOCK_RFC3339_BYTES], uint64_t boot_ns, int64_t boot_to_unix_ns);

#endif
