/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef REPORT_INPUT_H
#define REPORT_INPUT_H

/* What report and diff read: trace files, and captures, which are analysed in memory first. */

#include "view/report.h"

/* last_s: only what ended so late before the end; 0: all of it. op: see report_choose_operations(); NULL: all. NULL,
 * said why. */
struct report *report_input_read(const char *path, double last_s, const char *op);

#endif
