/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SYMBOL_SYMBOLS_H
#define SYMBOL_SYMBOLS_H

/*
 * Which functions the addresses of samples are in. Live only: it reads what processes map, while they are there; what
 * it finds becomes records, so that a replay knows it too. Each address of a process is told once, before the sample
 * that has it; code that a runtime made is told again when its map names it.
 */

#include <sys/types.h>

#include "attach/maps.h"
#include "base/types.h"
#include "flow/record.h"

/* Of files: modules.h. */
#define SYMBOLS_MAPPINGS_MAX  4096	 /* of one process */
#define SYMBOLS_ADDRESSES_MAX (1u << 20) /* told, of all processes that live; past it they are told again */
#define SYMBOLS_WAITING_MAX   65536	 /* of a process, without a name yet; past it these never get one */

struct symbols_sink {
	void *ctx;
	void (*on_frame)(void *ctx, const struct rec_frame *f); /* borrowed */
};

struct symbols;

struct symbols *symbols_new(const struct symbols_sink *sink); /* NULL: ENOMEM */
void symbols_free(struct symbols *s);
/* Before the sample goes on. */
void symbols_push_sample(struct symbols *s, const struct rec_sample *r);
/* A process runs another program; a child has what its parent maps; a file was mapped; it ended. */
void symbols_exec(struct symbols *s, const struct proc_key *key, uint64_t now_ns);
void symbols_fork(struct symbols *s, const struct rec_fork *r);
void symbols_map(struct symbols *s, pid_t pid, const struct map_entry *m);
void symbols_exit(struct symbols *s, const struct proc_key *key);
/* What was mapped since, and maps of runtimes that have grown: looked at now and then, and at last. */
void symbols_tick(struct symbols *s, uint64_t now_ns);
void symbols_finish(struct symbols *s, uint64_t now_ns);

/* Files that have no names because of a cap; processes of which a part has none, because they map more than there is
 * room for; and whether the kernel hides its own. */
unsigned symbols_unread(const struct symbols *s);
unsigned symbols_crowded(const struct symbols *s);
bool symbols_kernel_hidden(const struct symbols *s);

#endif
