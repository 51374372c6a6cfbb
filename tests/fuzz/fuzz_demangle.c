/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A name of a symbol table: any bytes. */
#include "symbol/demangle.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char out[DEMANGLE_OUT_BYTES];
	size_t len;

	if (!size || memchr(data, 0, size))
		return 0;
	len = demangle(out, (struct sv){(const char *)data, size});
	if (len >= sizeof(out) || strlen(out) != len)
		__builtin_trap();
	return 0;
}
