/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One line of /proc/PID/maps: any bytes. */
#include "attach/maps.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct map_entry m;
	int kind = maps_parse_line((const char *)data, size, &m);

	if (kind != 0 && kind != 1 && kind != -EBADMSG)
		__builtin_trap();
	if (kind == 1 && (m.path[0] != '/' || strlen(m.path) >= sizeof(m.path)))
		__builtin_trap();
	return 0;
}
