/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SESSION_PARTS_H
#define SESSION_PARTS_H

/*
 * What the files of a session share. Private to them: session.c starts and ends it, session_targets.c finds whom it
 * traces at the start, session_records.c leads records to the pipeline and follows targets as they come and go,
 * session_loop.c does what time and signals ask for.
 */

#include <signal.h>

#include "attach/discover.h"
#include "attach/mapwatch.h"
#include "attach/probes.h"
#include "attach/target.h"
#include "base/clock.h"
#include "base/log.h"
#include "capture.h"
#include "command.h"
#include "loop.h"
#include "meant.h"
#include "named.h"
#include "options.h"
#include "output.h"
#include "pipeline.h"
#include "selfcost.h"
#include "spawn.h"
#include "symbol/symbols.h"
#include "targets.h"

#define NS_PER_SEC 1000000000ull

struct session {
	const struct options *o;
	char trace_path[4096];
	bool path_fixed; /* by -o or PERFBPF_TRACE */
	char command[COMMAND_TEXT_BYTES];
	struct capture_info info;
	struct selfcost cost;
	struct target_filter filter;
	bool filter_ready;
	struct targets *targets;
	struct proc_stat first; /* target, for names; pid 0: none yet */
	struct loop *loop;
	struct probes *probes;
	struct discover *discover;
	struct mapwatch *mapwatch; /* NULL: this kernel or these privileges do not allow it */
	struct symbols *symbols;   /* NULL: nothing is sampled */
	struct pipeline *pipeline;
	struct output *output;
	struct capture_file *capture;
	struct record tap; /* process records decide who is traced, before anything else sees them */
	struct lost tap_lost;
	uint64_t lost_records; /* of the ring, when targets were last compared with the kernel's */
	struct spawn cmd;
	bool cmd_running, cmd_ended;
	bool signalled; /* to stop */
	bool hurried;	/* once more */
	int cmd_status;
	uint64_t cmd_ended_ns;
	bool maps_lost;	 /* mappings were missed: all targets' files have to be looked at again */
	bool all_looked; /* at what ran already, large files too: and that was told */
	uint64_t scanned_ns;
	unsigned stats_count;
	bool ours;		/* of the record at hand: it belongs to a target */
	uint32_t told;		/* the new process or program that it tells of: its files are told after it; 0: none */
	struct proc_key execed; /* the new program that it tells of; tgid 0: none */
	unsigned untraced;
	struct named *named; /* NULL: no function is traced by name */
	struct meant *meant; /* NULL: nobody is, by name */
};

/* session_records.c. The first group: what probes, watches and the pipeline call; ctx: the session. */
void session_tap(struct session *s);
void session_on_record(void *ctx, const void *record, size_t len);
void session_on_soon(void *ctx, const struct sv *records, unsigned count);
void session_on_symbol(void *ctx, const struct rec_frame *f);
void session_on_map(void *ctx, pid_t pid, const struct map_entry *m);
void session_on_maps_lost(void *ctx);
void session_on_interest(void *ctx, const struct conn_key *conn, uint32_t answers, enum interest_word word);
void session_on_pass(void *ctx, const struct conn_key *conn, enum dir dir, uint64_t until);
/* Who waits for an answer already, it seems. */
void session_tell_asked(struct session *s);
void session_on_silent(void *ctx, const struct wire_conn *c, const struct proc *p, const char *why);

/* A record that is a target's: into the capture, then the pipeline. ctx: the session. */
void session_keep(void *ctx, const void *record, size_t len);
void session_count_untraced(struct session *s, const struct discover_result *r);
void session_scan_process(struct session *s, pid_t pid);
void session_scan_all(struct session *s, uint64_t now_ns);
/* The end of a target was lost: it ended by_ns at the latest. */
void session_end_untold(struct session *s, uint32_t tgid, uint64_t by_ns);

/* session_targets.c. 0 or -errno, which was told. */
int session_add_targets(struct session *s);
/* CMD runs. 0, or the exit status: 126 and 127 as shells have them, 1 for our own errors. */
int session_release_command(struct session *s);

/* session_loop.c. */
int session_add_sources(struct session *s); /* 0 or -errno */
void session_push_stats(struct session *s);
void session_write(struct session *s);
void session_stop_signals(sigset_t *set);

#endif
