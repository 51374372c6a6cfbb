/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "aside.h"

#include <signal.h>
#include <stddef.h>

static void *run(void *arg)
{
	struct aside *a = arg;

	a->result = a->work(a->ctx);
	return NULL;
}

void aside_begin(struct aside *a, int (*work)(void *ctx), void *ctx)
{
	sigset_t all, before;

	*a = (struct aside){.work = work, .ctx = ctx};
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	a->runs = !pthread_create(&a->thread, NULL, run, a);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!a->runs)
		run(a);
}

int aside_end(struct aside *a)
{
	if (a->runs)
		pthread_join(a->thread, NULL);
	a->runs = false;
	return a->result;
}
