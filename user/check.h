/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CHECK_H
#define CHECK_H

#include "options.h"

/* perfbpf check: what this kernel, these privileges and these targets allow, on standard output. Returns the exit
 * status: 0 every TLS stack of the target can be traced, 3 some cannot, 1 none can or the kernel refuses. */
int check_run(const struct options *o);

#endif
