/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_ASIDE_H
#define ATTACH_ASIDE_H

/*
 * One piece of work aside, in a thread of its own, while the caller does another: the kernel's verifier takes a tenth
 * of a second, and so does a look through a big program. Nothing that the work touches is touched by the caller
 * meanwhile. The thread takes no signals, and is gone before anything is traced.
 */

#include <pthread.h>
#include <stdbool.h>

struct aside {
	int (*work)(void *ctx);
	void *ctx;
	pthread_t thread;
	bool runs;
	int result;
};

/* Begins; where no thread can be made, the work is done at once. */
void aside_begin(struct aside *a, int (*work)(void *ctx), void *ctx);
/* Waits for its end: what the work returned. May be called again. */
int aside_end(struct aside *a);

#endif
