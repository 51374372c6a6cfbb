/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

/* Arrays that grow at their end; the caller counts, and says how many there may be. */

#include <stdbool.h>
#include <stddef.h>

/* Room for one more element of `size` bytes in *list, which holds `count` of *room. `list` is the address of a pointer
 * to elements of any type. False: no memory, nothing has changed. */
bool array_grow(void *list, size_t count, size_t *room, size_t size);

#endif
