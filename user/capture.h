/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CAPTURE_H
#define CAPTURE_H

/*
 * Records that user space makes (a process that already ran, counters, time), and capture files: what the ring
 * delivered, kept for replay. A capture holds what was on the wire, credentials too.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "attach/target.h"
#include "base/types.h"
#include "flow/record.h"

/* Takes one record. */
typedef void (*capture_fn)(void *ctx, const void *record, size_t len);

/* EV_PROC: a process as /proc describes it, with the identity that the kernel gave. */
void capture_make_proc(const struct proc_stat *p, const struct proc_key *key, uint64_t now_ns, capture_fn fn,
		       void *ctx);
/* EV_LOST: ST_COUNT sums; untraced: targets and functions that are not traced, which the kernel does not know. */
void capture_make_lost(const uint64_t *stats, uint64_t untraced, uint64_t now_ns, capture_fn fn, void *ctx);
/* EV_TICK: so that a replay closes and evicts at the same times. */
void capture_make_tick(uint64_t now_ns, capture_fn fn, void *ctx);

/* EV_FILES: what a process maps of what can be probed, since when (0: nothing). reason: cut at CAPTURE_REASON_BYTES;
 * NULL: none. */
#define CAPTURE_REASON_BYTES 128
void capture_make_files(uint32_t tgid, uint64_t probed_ns, bool refused, bool again, const char *reason,
			uint64_t now_ns, capture_fn fn, void *ctx);

/* EV_TOOL_CALL: the program of `key` was started for the tool call of this id, cut at LIMIT_TOOL_CALL_BYTES. */
void capture_make_tool_call(const struct proc_key *key, const char *id, uint64_t now_ns, capture_fn fn, void *ctx);

/* EV_FRAME: which function an address is in. Texts are cut at CAPTURE_NAME_BYTES each. */
#define CAPTURE_NAME_BYTES 1024
void capture_make_frame(const struct rec_frame *f, uint64_t now_ns, capture_fn fn, void *ctx);
/* EV_SAMPLING: that there will be samples, as at now_ns = ts_ns. */
void capture_make_sampling(const struct rec_sampling *r, capture_fn fn, void *ctx);

/* EV_FUNC: a function that is traced by name. */
#define CAPTURE_FUNC_BYTES 1024
void capture_make_func(const struct rec_func *r, capture_fn fn, void *ctx);

/* EV_CPU: processor time of a process since its start. */
void capture_make_cpu(const struct proc_key *key, uint64_t cpu_ns, uint64_t wait_ns, uint64_t now_ns, capture_fn fn,
		      void *ctx);

/* EV_EXIT: a process is gone whose end nobody told, by now_ns. How it ended is not known (EXIT_CODE_UNKNOWN). */
void capture_make_exit(const struct proc_key *key, uint64_t now_ns, capture_fn fn, void *ctx);

struct capture_info {
	uint64_t start_ns;	 /* zero of the run, CLOCK_BOOTTIME */
	int64_t boot_to_unix_ns; /* 0 unknown */
	char host[65], kernel[65];
	bool db, http; /* were asked for; of captures that do not say, true */
};

/* A capture being written (mode 0600, owned by the invoking user). NULL with *err; printed by nobody yet. */
struct capture_file;
struct capture_file *capture_file_open(const char *path, const struct capture_info *info, int *err);
void capture_file_push(struct capture_file *c, const void *record, size_t len); /* errors are kept for close */
int capture_file_close(struct capture_file *c);					/* 0 or the first -errno; frees */

/* Reads a capture from f: header first. 0; -EBADMSG (not a capture, *why says what is wrong); -errno of reading. */
int capture_read_header(FILE *f, struct capture_info *info, const char **why);
/* Every record that follows. A cut last record ends it with -EBADMSG after all whole ones were delivered. *last_ns:
 * latest record time, 0 when there was none. */
int capture_read_records(FILE *f, capture_fn fn, void *ctx, uint64_t *last_ns, const char **why);

/* Kernel side's counters by name for the probes' owner: number of them. */
size_t capture_stat_count(void);

#endif
