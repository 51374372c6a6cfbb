/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An argument vector that anybody wrote: what is kept of it has as many parts, and every part is plain. */
#include <stdlib.h>
#include <string.h>

#include "flow/proc_args.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count(struct sv args)
{
	size_t n = 0;

	for (size_t i = 0; i < args.len; i++)
		n += !args.ptr[i];
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sv args = {(const char *)data, size}, hidden;
	struct buf out;

	buf_init(&out, 0);
	if (!args_hide_prompts(&out, args)) {
		hidden = (struct sv){out.ptr, out.len};
		if (count(hidden) != count(args))
			abort();
		for (size_t i = 0; i < hidden.len; i++)
			if (hidden.ptr[i] && (hidden.ptr[i] < ' ' || hidden.ptr[i] > '~' || hidden.ptr[i] == '"'))
				abort();
	}
	buf_release(&out);
	return 0;
}
