/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_MAPWATCH_H
#define ATTACH_MAPWATCH_H

/*
 * Executable mappings as they are made, of every process: PERF_RECORD_MMAP2 of a software event on each processor
 * (perf_event_open(2)). So libraries that are loaded late (dlopen, lazy imports), and programs in other mount
 * namespaces, are looked at once, when they come, and nothing is polled. Needs CAP_PERFMON.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "maps.h"

struct mapwatch_sink {
	void *ctx;
	/* A file was mapped executable. `m` as read from maps (deleted: not known, false); borrowed. */
	void (*on_map)(void *ctx, pid_t pid, const struct map_entry *m);
	/* Events were lost: mappings of any process may have been missed. */
	void (*on_lost)(void *ctx);
};

struct mapwatch;

struct mapwatch *mapwatch_new(const struct mapwatch_sink *sink); /* NULL with errno: EACCES, EPERM, ENOSYS, ENOMEM … */
void mapwatch_free(struct mapwatch *w);
int mapwatch_fd(const struct mapwatch *w); /* readable when there are events */
void mapwatch_read(struct mapwatch *w);	   /* tells all that have come */

#endif
