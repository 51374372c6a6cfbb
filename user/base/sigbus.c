/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sigbus.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf *place;

static void on_sigbus(int signal, siginfo_t *info, void *context)
{
	struct sigaction usual = {.sa_handler = SIG_DFL};

	(void)context;
	if (info->si_code == BUS_ADRERR)
		siglongjmp(*place, 1);
	/* another kind, or sent by somebody: as if we were not there */
	sigaction(signal, &usual, NULL);
	raise(signal);
}

int sigbus_guard(int (*fn)(void *ctx), void *ctx)
{
	struct sigaction guard = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO}, before;
	sigjmp_buf here, *outer = place;
	int err;

	sigemptyset(&guard.sa_mask);
	if (sigaction(SIGBUS, &guard, &before))
		return -errno;
	place = &here;
	if (sigsetjmp(here, 1))
		err = -EIO;
	else
		err = fn(ctx);
	place = outer;
	sigaction(SIGBUS, &before, NULL);
	return err;
}
