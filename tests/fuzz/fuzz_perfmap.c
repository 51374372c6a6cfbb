/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A map that a runtime, or anybody, wrote: any bytes. */
#include "symbol/perfmap.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symtab t;
	int err;

	symtab_init(&t, true);
	err = perfmap_parse(&t, (const char *)data, size);
	if (err && err != -ENOMEM)
		__builtin_trap();
	symtab_sort(&t);
	for (size_t i = 0; i < t.count; i++)
		if (!symtab_find(&t, t.rows[i].start).len)
			__builtin_trap();
	symtab_find(&t, UINT64_MAX);
	symtab_release(&t);
	return 0;
}
