/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SHAPE_H
#define SHAPE_H

/* Where the Makefile puts the shape libraries: tests/shapes beside the tests, seen from the plain and the sanitized
 * build. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline const char *shape_path(const char *name)
{
	static const char *const places[] = {"/../shapes", "/../../../tests/shapes"};
	static char path[4096 + 256];
	char self[4096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[len > 0 ? len : 0] = '\0';
	if (strrchr(self, '/'))
		*strrchr(self, '/') = '\0';
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s%s/%s.so", self, places[i], name);
		if (!access(path, R_OK))
			break;
	}
	return path;
}

#endif
