/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "session_parts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/writefd.h"

#define DRAIN_NS    10000000ull /* the ring is drained this often: a per-record wake-up would charge the traced thread */
#define TICK_NS	    100000000ull /* event time for stages when no record comes */
#define STATS_NS    NS_PER_SEC	 /* loss counters */
#define CPU_NS	    250000000ull /* how often processes that make calls are asked for their processor time */
#define SCAN_NS	    NS_PER_SEC	 /* the files of all targets are looked at again no sooner */
#define LEFTOVER_NS NS_PER_SEC	 /* CMD ended: how long its children may stay quiet before tracing ends */

static void on_drain(void *ctx)
{
	struct session *s = ctx;

	probes_consume(s->probes);
}

static void on_mapwatch(void *ctx)
{
	mapwatch_read(((struct session *)ctx)->mapwatch);
}

/* A process that CMD left behind is traced while a call of it is open; a daemon must not keep us for ever. */
static bool cmd_is_done(const struct session *s, uint64_t now_ns)
{
	if (!s->cmd_ended)
		return false;
	return targets_count(s->targets) == 0 ||
	       (now_ns - s->cmd_ended_ns >= LEFTOVER_NS && pipeline_open_calls(s->pipeline) == 0);
}

static void on_tick(void *ctx)
{
	struct session *s = ctx;
	struct discover_result r;
	uint64_t now_ns = clock_boot_ns();

	probes_consume(s->probes);
	probes_tick(s->probes, now_ns);
	if (s->named)
		named_tick(s->named, now_ns);
	if (s->meant)
		meant_tick(s->meant, now_ns);
	capture_make_tick(now_ns, session_keep, s);
	if (s->symbols)
		symbols_tick(s->symbols, now_ns);
	if (discover_next(s->discover, &r)) {
		session_count_untraced(s, &r);
		s->maps_lost |= r.tls_files || r.refused || r.alloc_files; /* who maps it has to be noted */
	} else if (!s->all_looked) {
		s->all_looked = true;
		log_verbose("all that runs already is looked through");
	}
	discover_tick(s->discover, now_ns, (uint64_t)(s->o->sweep_s * 1e9));
	if (s->maps_lost && now_ns - s->scanned_ns >= SCAN_NS)
		session_scan_all(s, now_ns);
	if (s->o->argv ? cmd_is_done(s, now_ns) : !s->o->name && !s->o->all && targets_count(s->targets) == 0)
		loop_stop(s->loop);
}

/* Its EXIT record may have been lost; or it lies in the ring, behind what the process did at last and records of which
 * would be nobody's. By the next look all that has come. */
static void drop_if_gone(void *ctx, uint32_t tgid)
{
	struct session *s = ctx;
	struct target_files *f = targets_files(s->targets, tgid);
	bool gone = !target_alive((pid_t)tgid, targets_start(s->targets, tgid)), before = f && f->gone;

	if (f)
		f->gone = gone;
	if (gone && before)
		session_end_untold(s, tgid, clock_boot_ns());
}

/* The kernel follows a child whose birth was lost. */
static void adopt(void *ctx, uint32_t tgid, uint64_t start_ns)
{
	struct proc_key key = {.tgid = tgid};
	struct session *s = ctx;
	struct proc_stat p;

	if (targets_has(s->targets, tgid) || target_read((pid_t)tgid, &p) || !target_start_matches(&p, start_ns) ||
	    probes_identify(s->probes, (pid_t)tgid, &key.start_ns, &key.exec_id) || key.start_ns != start_ns ||
	    targets_add(s->targets, tgid, start_ns))
		return;
	capture_make_proc(&p, &key, clock_boot_ns(), session_keep, s);
	session_scan_process(s, (pid_t)tgid);
}

void session_push_stats(struct session *s)
{
	uint64_t *stats = calloc(capture_stat_count(), sizeof(*stats));

	if (!stats)
		return;
	probes_stats(s->probes, stats);
	capture_make_lost(stats, s->untraced + probes_alloc_refused(s->probes), clock_boot_ns(), session_on_record, s);
	free(stats);
	if (s->tap_lost.n[LOST_RING_RECORDS] != s->lost_records && !s->o->all)
		probes_each_target(s->probes, adopt, s);
	s->lost_records = s->tap_lost.n[LOST_RING_RECORDS];
}

static void keep_cpu(void *ctx, const struct proc_key *key)
{
	struct session *s = ctx;
	uint64_t cpu_ns;

	if (!clock_cpu_ns((int32_t)key->tgid, &cpu_ns))
		capture_make_cpu(key, cpu_ns, target_wait_ns((pid_t)key->tgid), clock_boot_ns(), session_keep, s);
}

static void on_cpu(void *ctx)
{
	struct session *s = ctx;

	pipeline_each_caller(s->pipeline, keep_cpu, s);
}

static void on_stats(void *ctx)
{
	struct session *s = ctx;

	session_push_stats(s);
	probes_wires(s->probes);
	/* System-wide these are many, and nothing waits for their end. */
	if (!s->o->all || ++s->stats_count % 16 == 0)
		targets_each(s->targets, drop_if_gone, s);
}

void session_write(struct session *s)
{
	struct buf attach, self;

	buf_init(&attach, 0);
	buf_init(&self, 0);
	selfcost_attach_json(&attach, s->probes);
	s->cost.held_ns = s->cmd.held_ns;
	selfcost_json(&self, s->probes, &s->cost);
	output_trace(s->output, s->pipeline, clock_boot_ns(), (struct sv){attach.ptr, attach.len},
		     (struct sv){self.ptr, self.len});
	buf_release(&attach);
	buf_release(&self);
}

static void on_write(void *ctx)
{
	struct session *s = ctx;

	probes_consume(s->probes);
	session_push_stats(s);
	session_write(s);
}

static void on_duration(void *ctx)
{
	loop_stop(((struct session *)ctx)->loop);
}

static void stop_by_signal(struct session *s)
{
	s->hurried = s->signalled;
	s->signalled = true;
	loop_stop(s->loop);
}

static void on_signal(void *ctx, int signal)
{
	struct session *s = ctx;

	if (signal == SIGPIPE)
		return;
	if (signal != SIGUSR1)
		stop_by_signal(s);
	else if (strcmp(s->trace_path, "-"))
		on_write(s);
	else
		log_warn("standard output gets one trace, at the end: SIGUSR1 writes a file (-o FILE)");
}

/* Somebody does not read what we write: the loop, which would be told of signals, does not go on. */
static bool is_hurried(void *ctx)
{
	static const struct timespec at_once;
	struct session *s = ctx;
	sigset_t stop;

	session_stop_signals(&stop);
	while (sigtimedwait(&stop, NULL, &at_once) > 0)
		stop_by_signal(s);
	return s->hurried;
}

void session_stop_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
}

int session_add_sources(struct session *s)
{
	sigset_t set;
	int err;

	session_stop_signals(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGPIPE);
	err = loop_add_signals(s->loop, &set, on_signal, s);
	writefd_on_wait(is_hurried, s);
	if (!err)
		err = loop_add_fd(s->loop, probes_fd(s->probes), on_drain, s);
	if (!err && s->mapwatch)
		err = loop_add_fd(s->loop, mapwatch_fd(s->mapwatch), on_mapwatch, s);
	if (!err)
		err = loop_add_timer(s->loop, DRAIN_NS, on_drain, s);
	if (!err)
		err = loop_add_timer(s->loop, TICK_NS, on_tick, s);
	if (!err)
		err = loop_add_timer(s->loop, STATS_NS, on_stats, s);
	if (!err)
		err = loop_add_timer(s->loop, CPU_NS, on_cpu, s);
	if (!err && s->o->duration_s > 0)
		err = loop_add_timer(s->loop, (uint64_t)(s->o->duration_s * 1e9) + 1, on_duration, s);
	if (!err && s->o->write_interval_s > 0)
		err = loop_add_timer(s->loop, (uint64_t)(s->o->write_interval_s * 1e9) + 1, on_write, s);
	return err;
}
