/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROC_ARGS_H
#define FLOW_PROC_ARGS_H

/* Private child of proc.c: argument vectors without what may be a prompt, or part of one. */

#include "base/buf.h"
#include "base/sv.h"

#define ARGS_PLAIN_BYTES 64 /* an argument longer than this says more than a setting does, unless it is a path */

/*
 * NUL-separated in and out. Program names (unless a program wrote a sentence there, as many do), option names, numbers,
 * paths and short plain words stay; of URLs the query values that show nothing, and no user or password; all else is
 * "<57 bytes>". Of programs that are agents no word stays that is not a subcommand or the value of an option known to
 * be harmless. 0 or -errno of the buffer.
 */
int args_hide_prompts(struct buf *out, struct sv args);

#endif
