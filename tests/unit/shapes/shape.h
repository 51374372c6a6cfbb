/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SHAPE_H
#define SHAPE_H

/* Where the Makefile puts what tests need beside themselves, seen from the plain and the sanitized build: tests/shapes,
 * tests/go. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline const char *built_path(const char *folder, const char *file)
{
	static const char *const places[] = {"/..", "/../../../tests"};
	static char path[4096 + 256];
	char self[4096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[len > 0 ? len : 0] = '\0';
	if (strrchr(self, '/'))
		*strrchr(self, '/') = '\0';
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s%s/%s/%s", self, places[i], folder, file);
		if (!access(path, R_OK))
			break;
	}
	return path;
}

static inline const char *shape_path(const char *name)
{
	char file[128];

	snprintf(file, sizeof(file), "%s.so", name);
	return built_path("shapes", file);
}

#endif
