/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "array.h"

#include <stdlib.h>
#include <string.h>

bool array_grow(void *list, size_t count, size_t *room, size_t size)
{
	size_t more = *room ? 2 * *room : 64;
	void *p;

	if (count < *room)
		return true;
	memcpy(&p, list, sizeof(p)); /* whatever it points to */
	p = realloc(p, more * size);
	if (!p)
		return false;
	memcpy(list, &p, sizeof(p));
	*room = more;
	return true;
}
