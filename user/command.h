/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>

#define COMMAND_TEXT_BYTES 1024

/* Our own command line as one line of text, without secrets and, without content, prompts; cut to size. Returns out. */
const char *command_text(char out[COMMAND_TEXT_BYTES], int argc, char **argv, bool content);

#endif
