/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROC_CATALOGUE_H
#define FLOW_PROC_CATALOGUE_H

/* Known agents and model servers, by the file they run: for display only. Nobody is traced, or not traced, because of
 * it. Private child of proc.c. */

#include "base/sv.h"

/* "Claude Code", "Codex" …; static. NULL: not known. args: NUL-separated. */
const char *catalogue_agent(struct sv exe, struct sv args);

#endif
