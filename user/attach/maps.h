/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_MAPS_H
#define ATTACH_MAPS_H

/* /proc/PID/maps: the executable, file-backed mappings. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct map_entry {
	uint64_t begin, end; /* as in map_files/BEGIN-END */
	uint64_t offset;
	unsigned dev_major, dev_minor;
	uint64_t ino;
	char path[4096]; /* octal escapes undone, " (deleted)" removed */
	bool deleted;
};

/* One line without its newline. 1: an executable file-backed mapping (memfd included); 0: another line; -EBADMSG. */
int maps_parse_line(const char *line, size_t len, struct map_entry *out);
/* Where the file of a mapping can be opened: map_files reaches the very file, also a deleted or replaced one; without
 * the capability for it, the path in the process's own root has to do, unless it names another file by now (deleted);
 * without the one for that, the path itself, where it leads to the same file. Returns out. */
#define MAPS_PATH_BYTES (4096 + 64)
const char *maps_path(pid_t pid, const struct map_entry *m, char out[MAPS_PATH_BYTES]);
/* All of a process, each file (device, inode, name) once. 0 or -errno (-ENOENT: gone, -EACCES). */
int maps_each(pid_t pid, void (*fn)(void *ctx, const struct map_entry *m), void *ctx);

#endif
