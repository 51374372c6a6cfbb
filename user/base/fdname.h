/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_FDNAME_H
#define BASE_FDNAME_H

#include <stdio.h>

#define FDNAME_BYTES 32

/* A name of the file that is open as `fd`, in `name`, which is returned: it goes on leading there, whatever becomes of
 * the name that it was opened by. */
static inline const char *fdname(int fd, char name[FDNAME_BYTES])
{
	snprintf(name, FDNAME_BYTES, "/proc/self/fd/%d", fd);
	return name;
}

#endif
