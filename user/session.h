/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SESSION_H
#define SESSION_H

#include "options.h"

/* perfbpf record: live tracing from attach to the written trace. Returns the exit status. */
int session_run(const struct options *o, int argc, char **argv);

#endif
