/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_DISCOVER_H
#define ATTACH_DISCOVER_H

/*
 * From processes to probes: looks through the files that a process maps (or will map), lets the finder look at each
 * file once, and has the probes attached. Reports what it could not do; prints nothing above level verbose.
 */

#include "maps.h"
#include "probes.h"
#include "target.h"

struct discover;

struct discover_result {
	unsigned tls_files; /* files with TLS functions whose probes are set (now or before) */
	unsigned refused;   /* files with TLS functions that could not all be probed; each was warned about once */
	int err;	    /* -errno: the process's files could not be read (-ENOENT: it is gone) */
};

struct discover *discover_new(struct probes *probes); /* NULL: ENOMEM; probes are borrowed */
void discover_free(struct discover *d);

/* Every executable mapping of the process. */
struct discover_result discover_process(struct discover *d, pid_t pid);
/* One mapping, as it was made. */
struct discover_result discover_mapping(struct discover *d, pid_t pid, const struct map_entry *m);
/* The program, its interpreter, and what ld.so will map, as seen from the file system: before an exec. */
struct discover_result discover_command(struct discover *d, const char *program);
/* TLS libraries of the system: what interpreters load later. */
struct discover_result discover_system(struct discover *d);

#endif
