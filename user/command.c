/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "command.h"

#include <stdio.h>

#include "base/buf.h"
#include "flow/proc.h"

const char *command_text(char out[COMMAND_TEXT_BYTES], int argc, char **argv, bool content)
{
	struct buf joined, redacted;
	int err = 0;

	buf_init(&joined, 65536);
	buf_init(&redacted, 65536);
	for (int i = 0; i < argc && !err; i++)
		err = buf_push(&joined, argv[i], strlen(argv[i]) + 1);
	/* Half a command line could end in half a redaction: all or nothing. */
	if (!err)
		err = proc_public_args(&redacted, (struct sv){joined.ptr, joined.len}, content);
	for (size_t i = 0; i < redacted.len; i++)
		if (!redacted.ptr[i])
			redacted.ptr[i] = ' ';
	snprintf(out, COMMAND_TEXT_BYTES, "%s", err ? "perfbpf" : buf_cstr(&redacted));
	buf_release(&joined);
	buf_release(&redacted);
	return out;
}
