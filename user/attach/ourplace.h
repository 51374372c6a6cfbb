/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef OURPLACE_H
#define OURPLACE_H

#include <stdint.h>

/* Where in /proc/self/exe a function begins that never runs: a probe may be set there to see whether it may be set. 0:
 * not known. */
uint64_t ourplace_offset(void);

#endif
