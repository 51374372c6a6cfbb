/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef REPORT_H
#define REPORT_H

/* The commands report and diff: tables from trace files, on standard output. */

#include "options.h"

int report_run(const struct options *o); /* exit status */
int diff_run(const struct options *o);	 /* exit status; 4: --fail-on found a regression */

#endif
