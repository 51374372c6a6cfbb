/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef REPLAY_H
#define REPLAY_H

#include "options.h"

/* perfbpf replay: a capture file through the same door. Returns the exit status. */
int replay_run(const struct options *o, int argc, char **argv);

#endif
