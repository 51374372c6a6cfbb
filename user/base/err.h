/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_ERR_H
#define BASE_ERR_H

/* int functions return 0 or -errno. BUG() is only for our own invariants, never for a stranger's bytes. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define BUG(what)                                                                                                      \
	do {                                                                                                           \
		fprintf(stderr, "perfbpf: bug: %s (%s:%d)\n", (what), __FILE__, __LINE__);                             \
		abort();                                                                                               \
	} while (0)

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
