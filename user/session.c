/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "session.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/discover.h"
#include "attach/mapwatch.h"
#include "attach/probes.h"
#include "attach/target.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "bpf/limits.h"
#include "capture.h"
#include "command.h"
#include "keeper.h"
#include "loop.h"
#include "meant.h"
#include "named.h"
#include "output.h"
#include "pipeline.h"
#include "privilege.h"
#include "selfcost.h"
#include "slice.h"
#include "spawn.h"
#include "symbol/symbols.h"
#include "targets.h"

#define NS_PER_SEC     1000000000ull
#define DRAIN_NS       10000000ull /* the ring is drained this often: a per-record wake-up would charge the traced thread */
#define TICK_NS	       100000000ull /* event time for stages when no record comes */
#define STATS_NS       NS_PER_SEC   /* loss counters */
#define CPU_NS	       250000000ull /* how often processes that make calls are asked for their processor time */
#define SCAN_NS	       NS_PER_SEC   /* the files of all targets are looked at again no sooner */
#define OFF_CPU_MIN_NS 1000000u	    /* shorter waits are many, and nobody's problem */
#define LEFTOVER_NS    NS_PER_SEC   /* CMD ended: how long its children may stay quiet before tracing ends */

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

/* --- the way of a record: tap -> capture -> pipeline
 * ------------------------------------------------------------------ */

static void keep_record(void *ctx, const void *record, size_t len)
{
	struct session *s = ctx;

	if (s->capture)
		capture_file_push(s->capture, record, len);
	pipeline_push(s->pipeline, record, len);
}

static void keep_files(struct session *s, uint32_t tgid)
{
	const struct target_files *f = targets_files(s->targets, tgid);

	if (f && (f->probed_ns || f->refused))
		capture_make_files(tgid, f->probed_ns, f->refused, f->again, f->reason, clock_boot_ns(), keep_record,
				   s);
}

static void keep_tool_call(struct session *s, const struct proc_key *key)
{
	char id[LIMIT_TOOL_CALL_BYTES + 1];

	if (!target_tool_call((pid_t)key->tgid, key->start_ns, id, sizeof(id)))
		capture_make_tool_call(key, id, clock_boot_ns(), keep_record, s);
}

static void on_record(void *ctx, const void *record, size_t len)
{
	struct session *s = ctx;
	uint32_t tgid = record_tgid(record, len);

	/* tgid 0: a socket's event, tied to a connection by its cookie. */
	s->ours = tgid == 0 || s->o->all || targets_has(s->targets, tgid) ||
		  (record_is_late(record, len) && targets_had(s->targets, tgid));
	s->told = 0;
	s->execed.tgid = 0;
	record_push(&s->tap, record, len);
	if (s->ours)
		keep_record(s, record, len);
	tgid = s->told;
	s->told = 0;
	if (tgid)
		keep_files(s, tgid);
	if (s->execed.tgid)
		keep_tool_call(s, &s->execed);
}

static void on_symbol(void *ctx, const struct rec_frame *f)
{
	capture_make_frame(f, clock_boot_ns(), keep_record, ctx);
}

/* Names first: whoever reads the sample knows them. */
static void tap_sample(void *ctx, const struct rec_sample *r)
{
	struct session *s = ctx;

	if (s->ours && s->symbols)
		symbols_push_sample(s->symbols, r);
}

static void on_interest(void *ctx, const struct conn_key *conn, uint32_t answers, enum interest_word word)
{
	static const char *const text[] = {[INTEREST_WANTED] = "read again",
					   [INTEREST_IGNORED] = "ignored",
					   [INTEREST_NEVER] = "ignored for good"};
	struct session *s = ctx;

	if (!probes_ignore(s->probes, conn->gen, answers, word != INTEREST_WANTED, word == INTEREST_NEVER))
		log_debug("pid %u: connection %u is %s", conn->tgid, conn->gen, text[word]);
}

static void on_pass(void *ctx, const struct conn_key *conn, enum dir dir, uint64_t until)
{
	struct session *s = ctx;

	probes_pass(s->probes, conn->gen, dir, until);
}

static void count_untraced(struct session *s, const struct discover_result *r)
{
	s->untraced += r->refused;
}

/* What was found in a process, or a mapping of it. */
static void note_files(struct session *s, uint32_t tgid, const struct discover_result *r)
{
	struct target_files *f = targets_files(s->targets, tgid);

	if (!f || (f->probed_ns >= r->probed_ns && (f->refused || !r->refused)))
		return;
	if (r->probed_ns > f->probed_ns)
		f->probed_ns = r->probed_ns;
	f->refused |= r->refused > 0;
	f->reason = r->reason ? r->reason : f->reason;
	if (s->told != tgid)
		keep_files(s, tgid);
}

/* Bytes move and nothing of them is read. What is probed is probed anew, once: probes have been seen to fall silent. */
static void on_silent(void *ctx, const struct wire_conn *c, const struct proc *p, const char *why)
{
	struct target_files *f = targets_files(((struct session *)ctx)->targets, c->proc.tgid);
	char name[64], host[96], reason[192];
	struct session *s = ctx;
	unsigned again;

	log_safe(name, sizeof(name), sv_of(p ? p->name : ""));
	log_safe(host, sizeof(host), sv_of(*c->host ? c->host : "a server"));
	log_safe(reason, sizeof(reason), sv_of(why));
	if (!c->probed || !f || f->again) {
		s->untraced++;
		log_warn("pid %u (%s): TLS to %s is not read: %s", c->proc.tgid, name, host, reason);
		return;
	}
	again = discover_again(s->discover, (pid_t)c->proc.tgid);
	log_warn("pid %u (%s): TCP bytes without plaintext to %s, although TLS functions of it are probed%s",
		 c->proc.tgid, name, host, again ? ": probed again" : "");
	f->again = true;
	keep_files(s, c->proc.tgid);
}

static void scan_process(struct session *s, pid_t pid)
{
	struct discover_result r = discover_process(s->discover, pid);

	if (r.err == -EACCES) {
		log_warn("pid %d: maps unreadable (EACCES), TLS not traced", pid);
		s->untraced++;
	} else if (r.unreadable) {
		log_warn("pid %d: %u mapped file%s unreadable (EACCES), TLS in there not traced", pid, r.unreadable,
			 r.unreadable == 1 ? "" : "s");
		s->untraced++;
	}
	count_untraced(s, &r);
	note_files(s, (uint32_t)pid, &r);
}

/* Records first: the exec that made the process ours comes before its mappings. */
static void on_map(void *ctx, pid_t pid, const struct map_entry *m)
{
	struct session *s = ctx;
	struct discover_result r;

	probes_consume(s->probes);
	if (!s->o->all && !targets_has(s->targets, (uint32_t)pid))
		return;
	if (s->symbols)
		symbols_map(s->symbols, pid, m);
	r = discover_mapping(s->discover, pid, m);
	count_untraced(s, &r);
	note_files(s, (uint32_t)pid, &r);
}

static void scan_target(void *ctx, uint32_t tgid)
{
	scan_process(ctx, (pid_t)tgid);
}

static void scan_all(struct session *s, uint64_t now_ns)
{
	s->maps_lost = false;
	s->scanned_ns = now_ns;
	targets_each(s->targets, scan_target, s);
}

/* A storm of mappings must not become one of scans. */
static void on_maps_lost(void *ctx)
{
	((struct session *)ctx)->maps_lost = true;
}

static void on_mapwatch(void *ctx)
{
	mapwatch_read(((struct session *)ctx)->mapwatch);
}

/* An interpreter of JavaScript runs a script: what that is going to start is probed while the interpreter starts. */
static void look_at_script(struct session *s, const struct rec_exec *r)
{
	char path[PATH_MAX];
	struct sv rest = r->args, word;

	if (!sv_ends(r->filename, SV("/node")) && !sv_ends(r->filename, SV("/nodejs")) &&
	    !sv_ends(r->filename, SV("/bun")))
		return;
	sv_cut(rest, '\0', &rest);
	do
		word = sv_cut(rest, '\0', &rest);
	while (rest.ptr && word.len && word.ptr[0] == '-');
	if (!word.len || word.ptr[0] != '/' || word.len >= sizeof(path))
		return; /* one that is not absolute is looked at when its program is mapped, as any other */
	memcpy(path, word.ptr, word.len);
	path[word.len] = '\0';
	discover_script(s->discover, (pid_t)r->proc.tgid, path);
}

static void tap_exit(void *ctx, const struct rec_exit *r)
{
	struct session *s = ctx;

	targets_remove(s->targets, r->proc.tgid);
	discover_forget(s->discover, (pid_t)r->proc.tgid);
	if (s->symbols)
		symbols_exit(s->symbols, &r->proc);
}

/* Its end was lost. Nothing of it may stay: connections, conversations, mappings. */
static void end_untold(struct session *s, uint32_t tgid, uint64_t by_ns)
{
	struct rec_exit r = {.proc = {.tgid = tgid, .start_ns = targets_start(s->targets, tgid)}};

	capture_make_exit(&r.proc, by_ns, keep_record, s);
	tap_exit(s, &r);
}

/* The pid is another process's now. */
static void end_other(struct session *s, uint32_t tgid, uint64_t start_ns, uint64_t by_ns)
{
	uint64_t known_ns = targets_start(s->targets, tgid);

	if (known_ns && start_ns && known_ns != start_ns)
		end_untold(s, tgid, by_ns);
}

static void tap_exec(void *ctx, const struct rec_exec *r)
{
	struct session *s = ctx;
	enum targets_verdict v;

	end_other(s, r->proc.tgid, r->proc.start_ns, r->ts_ns);
	v = targets_exec(s->targets, r);
	/* Its birth was lost, or it would be one of them. */
	if (v == TARGETS_OTHER && probes_has_target(s->probes, r->proc.tgid, r->proc.start_ns) &&
	    !targets_add(s->targets, r->proc.tgid, r->proc.start_ns))
		v = TARGETS_OLD;
	s->ours = v != TARGETS_OTHER;
	if (r->already_running)
		return;
	discover_forget(s->discover, (pid_t)r->proc.tgid);
	s->told = s->ours ? r->proc.tgid : 0;
	if (s->symbols && s->ours)
		symbols_exec(s->symbols, &r->proc, r->ts_ns);
	if (v == TARGETS_OTHER) {
		probes_drop_target(s->probes, (pid_t)r->proc.tgid);
		return;
	}
	s->execed = r->proc;
	if (v == TARGETS_NEW && !s->o->all)
		probes_confirm_target(s->probes, (pid_t)r->proc.tgid);
	if (v == TARGETS_NEW && s->meant)
		meant_exec(s->meant, r, clock_boot_ns());
	look_at_script(s, r);
	/* System-wide the mappings of a new program are looked at as they come. */
	if (!s->o->all || !s->mapwatch)
		scan_process(s, (pid_t)r->proc.tgid);
}

static void tap_fork(void *ctx, const struct rec_fork *r)
{
	struct session *s = ctx;

	end_other(s, r->child_tgid, r->child_start_ns, r->ts_ns);
	s->ours = targets_fork(s->targets, r);
	discover_fork(s->discover, (pid_t)r->parent_tgid, (pid_t)r->child_tgid);
	s->told = s->ours ? r->child_tgid : 0;
	if (s->symbols && s->ours)
		symbols_fork(s->symbols, r);
}

/* --- targets at the start
 * ------------------------------------------------------------------------------------------------ */

struct add_ctx {
	struct session *s;
	struct target_names *names; /* of --name; NULL: none */
	unsigned count;
	int err;
};

/* Kernel first, files second: children made in between are followed by the kernel. 0 or -errno. */
static int add_process(struct session *s, const struct proc_stat *p)
{
	struct proc_key key = {.tgid = (uint32_t)p->pid};
	int err;

	if (targets_has(s->targets, (uint32_t)p->pid))
		return 0;
	if (p->state == 'Z' || p->state == 'X')
		return -ESRCH;
	err = probes_identify(s->probes, p->pid, &key.start_ns, &key.exec_id);
	if (!err)
		err = probes_add_target(s->probes, p->pid, key.start_ns);
	if (!err)
		err = targets_add(s->targets, (uint32_t)p->pid, key.start_ns);
	if (err) {
		log_verbose("pid %d: %s", p->pid, strerror(-err));
		return err;
	}
	if (!s->first.pid)
		s->first = *p;
	capture_make_proc(p, &key, clock_boot_ns(), keep_record, s);
	scan_process(s, p->pid);
	return 0;
}

static void on_tree(void *ctx, const struct proc_stat *p)
{
	struct add_ctx *a = ctx;
	int err = add_process(a->s, p);

	a->count += !err;
	if (!err && a->names && target_names_add(a->names, p))
		a->err = -ENOMEM;
	/* Of the process that was asked for; its children may come and go. */
	if (err && !a->count)
		a->err = err;
}

struct matching { /* processes that a name means */
	const struct target_filter *filter;
	pid_t *pids; /* owned */
	size_t count, room;
	int err;
};

static bool on_every(void *ctx, const struct proc_stat *p)
{
	struct sv args = {p->args, p->args_len};
	struct matching *m = ctx;

	if (!target_filter_match(m->filter, p->pid, sv_of(p->exe), args))
		return true;
	if (!array_grow(&m->pids, m->count, &m->room, sizeof(*m->pids))) {
		m->err = -ENOMEM;
		return false;
	}
	m->pids[m->count++] = p->pid;
	return true;
}

static const char *why_not(pid_t pid, int err)
{
	switch (err) {
	case 0:
	case -ENOENT:
	case -ESRCH:
		return target_why_none(pid);
	case -EINVAL:
		return "that is perfbpf itself";
	default:
		return strerror(-err);
	}
}

static int add_pid(void *ctx, const struct target_family *f, pid_t pid)
{
	struct session *s = ctx;
	struct add_ctx a = {.s = s};
	int err = target_family_tree(f, pid, on_tree, &a);

	err = err ? err : a.err;
	if (!err && targets_has(s->targets, (uint32_t)pid))
		return 0;
	log_error("pid %d: %s", pid, why_not(pid, err));
	return err ? err : -ESRCH;
}

/* These and what they started: fn is to add the tree of one. Twice, for a child that was made while its parent was not
 * yet followed; by then a target may have ended. 0, or what fn returned. */
static int add_trees(const pid_t *pids, size_t count, int (*fn)(void *ctx, const struct target_family *f, pid_t pid),
		     void *ctx, struct add_ctx *again)
{
	struct target_family *f = target_family_read();
	int err = f ? 0 : -errno;

	for (size_t i = 0; i < count && !err; i++)
		err = fn(ctx, f, pids[i]);
	target_family_free(f);
	f = err ? NULL : target_family_read();
	for (size_t i = 0; i < count && f; i++)
		target_family_tree(f, pids[i], on_tree, again);
	target_family_free(f);
	return err;
}

static int add_pids(struct session *s)
{
	struct discover_result r = discover_system(s->discover);

	/* A child that a target starts later makes its first call before its own libraries could be looked for. */
	count_untraced(s, &r);
	return add_trees(s->o->pids, s->o->pid_count, add_pid, s, &(struct add_ctx){.s = s});
}

/* Agents that are installed, and may be started any time: their programs are larger than their first call is far. They
 * wait for a quiet moment (discover_next()). */
static void look_at_installed(struct session *s)
{
	static const char *const agents[] = {"codex", "claude", "copilot", "opencode"};

	discover_haste(s->discover, true);
	for (size_t i = 0; i < ARRAY_SIZE(agents); i++)
		if (!s->o->name || target_filter_match_text(&s->filter, sv_of(agents[i]), sv_of(agents[i])))
			discover_package(s->discover, agents[i]);
	discover_haste(s->discover, false);
}

/* One that has ended by now is no error. */
static int add_named(void *ctx, const struct target_family *f, pid_t pid)
{
	target_family_tree(f, pid, on_tree, ctx);
	return 0;
}

static int add_names(struct session *s)
{
	struct target_names names;
	struct matching m = {.filter = &s->filter};
	struct add_ctx a = {.s = s, .names = &names};
	struct discover_result r = discover_system(s->discover);
	int err;

	target_names_init(&names, &s->filter);
	err = target_each(on_every, &m);
	err = err ? err : m.err;
	if (!err && m.count)
		err = add_trees(m.pids, m.count, add_named, &a, &a);
	free(m.pids);
	count_untraced(s, &r);
	if (!err && a.count == 0)
		log_info("no process matches '%s' yet: waiting for one", s->o->name);
	look_at_installed(s);
	target_names_solve(&names);
	meant_tell(&names, &s->first);
	target_names_release(&names);
	return err;
}

static void add_listed(void *ctx, pid_t tgid, uint64_t start_ns, uint32_t exec_id)
{
	struct proc_key key = {.tgid = (uint32_t)tgid, .start_ns = start_ns, .exec_id = exec_id};
	struct session *s = ctx;
	struct proc_stat p;

	if (target_read(tgid, &p) || !target_start_matches(&p, start_ns) || targets_add(s->targets, key.tgid, start_ns))
		return;
	capture_make_proc(&p, &key, clock_boot_ns(), keep_record, s);
}

/* Kernel first, files second: what starts in between is a target too, and its mappings are told. */
static int add_all(struct session *s)
{
	struct discover_result r = discover_system(s->discover);
	int err = probes_add_all(s->probes, add_listed, s);

	count_untraced(s, &r);
	if (err) {
		log_error("cannot list the processes of this machine: %s", strerror(-err));
		return err;
	}
	discover_keep(s->discover); /* any process may map any of them tomorrow */
	discover_haste(s->discover, true);
	scan_all(s, clock_boot_ns());
	discover_haste(s->discover, false);
	look_at_installed(s);
	return 0;
}

static void on_cmd_end(void *ctx)
{
	struct session *s = ctx;

	if (!spawn_reap(&s->cmd, &s->cmd_status))
		return;
	loop_remove_fd(s->loop, s->cmd.pidfd);
	s->cmd_running = false;
	s->cmd_ended = true;
	s->cmd_ended_ns = clock_boot_ns();
}

static int follow_command(struct session *s)
{
	struct discover_result r;
	struct proc_stat p;
	int err;

	r = discover_command(s->discover, s->o->argv[0]);
	count_untraced(s, &r);
	discover_package(s->discover, s->o->argv[0]);
	r = discover_system(s->discover);
	count_untraced(s, &r);
	err = target_read(s->cmd.pid, &p);
	if (!err)
		err = add_process(s, &p);
	if (err)
		log_error("cannot follow %s: %s", s->o->argv[0], strerror(-err));
	return err;
}

/* CMD stands in its exec: what the kernel mapped is probed, and what ld.so will map, before it runs. */
static void probe_held(struct session *s)
{
	struct discover_result r;
	char exe[32];

	probes_consume(s->probes); /* its exec: the files it maps */
	if (s->mapwatch)
		mapwatch_read(s->mapwatch);
	snprintf(exe, sizeof(exe), "/proc/%d/exe", s->cmd.pid);
	r = discover_command(s->discover, exe);
	count_untraced(s, &r);
	spawn_let_go(&s->cmd);
}

/* 0, or the exit status that an exec failure has by convention. */
static int release_command(struct session *s)
{
	int err = spawn_go(&s->cmd);

	if (err) {
		log_error("%s: %s", s->o->argv[0], strerror(-err));
		return err == -ENOENT ? 127 : 126;
	}
	if (s->cmd.held)
		probe_held(s);
	else if (s->cmd.hold_err)
		log_info("%s is not held in its exec (%s): a call that it makes at once may be missed", s->o->argv[0],
			 strerror(-s->cmd.hold_err));
	s->cmd_running = true;
	if (s->cmd.ended)
		on_cmd_end(s);
	else if (s->cmd.pidfd >= 0)
		err = loop_add_fd(s->loop, s->cmd.pidfd, on_cmd_end, s);
	return err ? 1 : 0;
}

/* --- timers and signals
 * ------------------------------------------------------------------------------------------------- */

static void on_drain(void *ctx)
{
	struct session *s = ctx;

	probes_consume(s->probes);
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
	capture_make_tick(now_ns, keep_record, s);
	if (s->symbols)
		symbols_tick(s->symbols, now_ns);
	if (discover_next(s->discover, &r)) {
		count_untraced(s, &r);
		s->maps_lost |= r.tls_files || r.refused || r.alloc_files; /* who maps it has to be noted */
	} else if (!s->all_looked) {
		s->all_looked = true;
		log_verbose("all that runs already is looked through");
	}
	discover_tick(s->discover, now_ns, (uint64_t)(s->o->sweep_s * 1e9));
	if (s->maps_lost && now_ns - s->scanned_ns >= SCAN_NS)
		scan_all(s, now_ns);
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
		end_untold(s, tgid, clock_boot_ns());
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
	capture_make_proc(&p, &key, clock_boot_ns(), keep_record, s);
	scan_process(s, (pid_t)tgid);
}

static void push_stats(struct session *s)
{
	uint64_t *stats = calloc(capture_stat_count(), sizeof(*stats));

	if (!stats)
		return;
	probes_stats(s->probes, stats);
	capture_make_lost(stats, clock_boot_ns(), on_record, s);
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
		capture_make_cpu(key, cpu_ns, target_wait_ns((pid_t)key->tgid), clock_boot_ns(), keep_record, s);
}

static void on_cpu(void *ctx)
{
	struct session *s = ctx;

	pipeline_each_caller(s->pipeline, keep_cpu, s);
}

static void on_stats(void *ctx)
{
	struct session *s = ctx;

	push_stats(s);
	probes_wires(s->probes);
	/* System-wide these are many, and nothing waits for their end. */
	if (!s->o->all || ++s->stats_count % 16 == 0)
		targets_each(s->targets, drop_if_gone, s);
}

static void report_cost(const struct session *s, uint64_t now_ns)
{
	char line[256];

	if (!s->cost.began_ns || s->o->quiet)
		return;
	selfcost_line(line, sizeof(line), s->probes, &s->cost, now_ns);
	log_info("%s", line);
}

static void write_trace(struct session *s)
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
	push_stats(s);
	write_trace(s);
}

static void on_duration(void *ctx)
{
	loop_stop(((struct session *)ctx)->loop);
}

static void on_signal(void *ctx, int signal)
{
	struct session *s = ctx;

	if (signal == SIGUSR1)
		on_write(s);
	else if (signal != SIGPIPE)
		loop_stop(s->loop);
}

static void stop_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
}

/* A second signal while the first one's work is done: it stays pending until the trace is written. */
static bool in_a_hurry(void)
{
	sigset_t set;

	return !sigpending(&set) &&
	       (sigismember(&set, SIGINT) == 1 || sigismember(&set, SIGTERM) == 1 || sigismember(&set, SIGHUP) == 1);
}

static int add_sources(struct session *s)
{
	sigset_t set;
	int err;

	stop_signals(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGPIPE);
	err = loop_add_signals(s->loop, &set, on_signal, s);
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

/* --- start
 * ------------------------------------------------------------------------------------------------------------------ */

static void describe_machine(struct capture_info *info)
{
	struct utsname u;

	info->start_ns = clock_boot_ns();
	info->boot_to_unix_ns = clock_boot_to_unix_ns();
	if (uname(&u))
		return;
	snprintf(info->host, sizeof(info->host), "%s", u.nodename);
	snprintf(info->kernel, sizeof(info->kernel), "%s", u.release);
}

/* perfbpf-NAME-PID-YYYYmmddTHHMMSS.json, NAME and PID those of the first target. */
static void default_trace_path(struct session *s, const char *program, pid_t pid)
{
	const char *base = strrchr(program, '/') ? strrchr(program, '/') + 1 : program;
	char name[64], when[32];
	time_t now = time(NULL);
	struct tm tm;

	snprintf(name, sizeof(name), "%s", *base ? base : "agent");
	for (char *c = name; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+", *c))
			*c = '_';
	strftime(when, sizeof(when), "%Y%m%dT%H%M%S", localtime_r(&now, &tm));
	snprintf(s->trace_path, sizeof(s->trace_path), "perfbpf-%s-%d-%s.json", name, pid, when);
}

/* The path that was asked for; else a name that is good enough to see whether the folder can be written to. */
static void choose_trace_path(struct session *s)
{
	const char *fixed = s->o->output ? s->o->output : getenv("PERFBPF_TRACE");

	s->path_fixed = fixed && *fixed;
	if (s->path_fixed)
		snprintf(s->trace_path, sizeof(s->trace_path), "%s", fixed);
	else
		default_trace_path(s,
				   s->o->argv  ? s->o->argv[0]
				   : s->o->all ? "system"
					       : "",
				   s->cmd.pid > 0 ? s->cmd.pid : getpid());
}

/* While the programs are loaded. Children of the processes are looked at later, as all else. */
static void look_ahead(struct session *s)
{
	uint64_t began_ns = clock_boot_ns();

	discover_ahead(s->discover, 0, s->o->argv ? s->o->argv[0] : NULL);
	for (size_t i = 0; i < s->o->pid_count; i++)
		discover_ahead(s->discover, s->o->pids[i], NULL);
	log_verbose("files were looked through in %.1f ms, while the programs are loaded",
		    (double)(clock_boot_ns() - began_ns) / 1e6);
}

static int open_probes(struct session *s)
{
	struct probes_config cfg = {
		.ring_bytes = s->o->ring_bytes,
		.follow_exec = s->o->name != NULL,
		.all = s->o->all,
		.db = s->o->db,
		.http = s->o->http,
		.functions = s->o->function_count != 0,
		.mode_max = (enum probes_mode)s->o->attach_mode,
		.force_no_dynptr = s->o->no_dynptr,
		.force_no_sock_length = s->o->no_sock_length,
		.period_ns = s->o->cpu_hz ? (uint32_t)(NS_PER_SEC / s->o->cpu_hz) : 0,
		.off_cpu_min_ns = s->o->off_cpu ? OFF_CPU_MIN_NS : 0,
		.enable_stats = keeper_stats,
		.thread_begins = privilege_thread,
		.alloc_bytes = s->o->alloc_bytes,
		.on_record = on_record,
		.ctx = s,
	};
	struct mapwatch_sink watch = {.ctx = s, .on_map = on_map, .on_lost = on_maps_lost};
	const struct probes_features *f;
	int err;

	s->probes = probes_begin(&cfg);
	err = s->probes ? 0 : errno ? -errno : -EINVAL;
	s->discover = err ? NULL : discover_new(s->probes);
	if (s->discover)
		look_ahead(s);
	if (!err)
		err = probes_ready(s->probes);
	if (err) {
		log_error("%s", probes_why());
		if (probes_hint())
			log_hint("%s", probes_hint());
		return err;
	}
	f = probes_features(s->probes);
	if (*f->degraded)
		log_info("%s", f->degraded);
	s->mapwatch = mapwatch_new(&watch);
	if (!s->mapwatch)
		log_info("libraries that targets load later are not seen: perf_event_open: %s", strerror(errno));
	if (s->discover && s->o->db)
		discover_sqlite(s->discover);
	return s->discover ? 0 : -ENOMEM;
}

static int build_sampling(struct session *s)
{
	const struct symbols_sink sink = {s, on_symbol};

	s->symbols = symbols_new(&sink);
	if (!s->symbols)
		return -ENOMEM;
	return 0;
}

static int build_house(struct session *s)
{
	struct output_config output_cfg = {
		.options = s->o, .trace_path = s->trace_path, .info = &s->info, .command = s->command};
	struct pipeline_config cfg = {
		.stale_ns = (uint64_t)(s->o->stale_s * 1e9),
		.sweep_ns = (uint64_t)(s->o->sweep_s * 1e9),
		.max_events = s->o->max_events,
		.content = s->o->content,
		.db = s->o->db,
		.http = s->o->http,
		.callers_only = s->o->all,
		.on_call = output_call,
		.on_turn = output_turn,
		.on_mcp = output_mcp,
		.on_db = output_db,
		.on_http = output_http,
		.interest_ctx = s,
		.on_interest = on_interest,
		.on_pass = on_pass,
		.on_silent = on_silent,
	};
	struct record_sink tap = {
		.ctx = s, .on_exec = tap_exec, .on_fork = tap_fork, .on_exit = tap_exit, .on_sample = tap_sample};
	int err;

	record_init(&s->tap, &s->tap_lost, &tap);
	s->output = output_new(&output_cfg);
	if (!s->output)
		return -errno;
	cfg.ctx = s->output;
	s->pipeline = pipeline_new(&cfg);
	if (!s->pipeline)
		return -ENOMEM;
	if (s->o->record) {
		s->info.db = s->o->db;
		s->info.http = s->o->http;
		s->capture = capture_file_open(s->o->record, &s->info, &err);
		if (!s->capture)
			return err;
		log_info("%s keeps everything that was on the wire, credentials too (mode 0600)", s->o->record);
	}
	return s->o->cpu_hz || s->o->off_cpu || s->o->alloc_bytes ? build_sampling(s) : 0;
}

static int build_named(struct session *s)
{
	if (!s->o->function_count)
		return 0;
	s->named = named_new(s->o->functions, s->o->function_count, s->probes, keep_record, s);
	if (!s->named)
		return -ENOMEM;
	named_discover(s->named, s->discover);
	return 0;
}

static int prepare(struct session *s)
{
	char why[128];
	int err;

	describe_machine(&s->info);
	if (s->o->argv) {
		err = spawn_hold(&s->cmd, s->o->argv);
		if (err) {
			log_error("cannot start a process: %s", strerror(-err));
			return err;
		}
	}
	choose_trace_path(s);
	err = output_check(s->o, s->trace_path);
	if (err)
		return err;
	s->targets = targets_new();
	s->loop = loop_new();
	if (!s->targets || !s->loop)
		return -ENOMEM;
	if (s->o->all)
		targets_set_all(s->targets);
	if (s->o->name) {
		err = target_filter_init(&s->filter, s->o->name, why, sizeof(why));
		if (err) {
			log_error("-n '%s': %s", s->o->name, why);
			return err;
		}
		s->filter_ready = true;
		targets_set_filter(s->targets, &s->filter);
		s->meant = meant_new(&s->filter);
		if (!s->meant)
			return -ENOMEM;
	}
	for (size_t i = 0; i < s->o->pid_count; i++)
		if (!target_alive(s->o->pids[i], 0)) {
			log_error("pid %d: %s", s->o->pids[i], target_why_none(s->o->pids[i]));
			return -ESRCH;
		}
	keeper_start();
	err = open_probes(s);
	if (!err)
		err = build_house(s);
	return err ? err : build_named(s);
}

static bool has_api_key(void)
{
	extern char **environ;

	for (char **e = environ; *e; e++) {
		struct sv value, name = sv_cut(sv_of(*e), '=', &value);

		if (sv_ends(name, SV("_API_KEY")) || sv_ends(name, SV("_AUTH_TOKEN")))
			return true;
	}
	return false;
}

static void announce(struct session *s)
{
	const struct probes_features *f = probes_features(s->probes);
	static const char *const modes[] = {"uprobe session links", "uprobe multi links", "perf uprobes"};

	s->cost.ring_bytes = s->o->ring_bytes;
	selfcost_begin(&s->cost, clock_boot_ns());
	log_verbose("%s; records %s; sockets %s", modes[f->mode],
		    f->read_dynptr ? "of actual length" : "in size classes",
		    f->sock_length ? "bound" : "by system calls");
	if (!s->o->quiet)
		log_info("tracing %s%zu process%s, %s; Ctrl-C stops", s->o->all ? "whoever calls a model among " : "",
			 targets_count(s->targets), targets_count(s->targets) == 1 ? "" : "es",
			 strcmp(s->trace_path, "-") ? s->trace_path : "standard output");
	if (s->o->argv && getenv("SUDO_UID") && !has_api_key())
		log_hint("sudo dropped the environment (no ..._API_KEY is in it): sudo -E keeps it");
}

/* Its beginning, and its end. */
static void tell_sampling(struct session *s)
{
	struct rec_sampling r = {
		.ts_ns = clock_boot_ns(),
		.period_ns = s->o->cpu_hz ? NS_PER_SEC / s->o->cpu_hz : 0,
		.off_cpu_min_ns = s->o->off_cpu ? OFF_CPU_MIN_NS : 0,
		.alloc_bytes = s->o->alloc_bytes,
		.fault_period = probes_fault_period(s->o->alloc_bytes),
	};

	if (s->symbols)
		capture_make_sampling(&r, keep_record, s);
}

static int trace(struct session *s)
{
	int err, status = 0;

	err = s->o->pid_count ? add_pids(s) : s->o->name ? add_names(s) : s->o->all ? add_all(s) : follow_command(s);
	if (!err)
		err = add_sources(s);
	if (err)
		return 1;
	slice_shorten();
	if (!s->path_fixed && s->first.pid && !s->o->argv)
		default_trace_path(s, *s->first.exe ? s->first.exe : s->first.comm, s->first.pid);
	if (s->o->argv)
		status = release_command(s);
	if (!status && output_begin(s->output))
		status = 1;
	if (!status)
		announce(s);
	if (!status)
		privilege_trace(probes_features(s->probes)->mode == PROBES_PERF, !s->o->no_sandbox);
	tell_sampling(s);
	if (!status && loop_run(s->loop))
		status = 1;
	return status;
}

static void report_symbols(const struct session *s)
{
	if (!s->symbols)
		return;
	if (symbols_kernel_hidden(s->symbols))
		log_info("the kernel hides its addresses (kernel.kptr_restrict): its functions have no names");
	if (symbols_unread(s->symbols))
		log_info("%u files are without names: too many symbols", symbols_unread(s->symbols));
	if (!s->o->quiet && strcmp(s->trace_path, "-"))
		log_info("perfbpf report %s: where the processor time, the waiting and the memory went", s->trace_path);
}

/* stop -> detach -> drain -> finish stages in order -> write -> report */
static int finish(struct session *s)
{
	uint64_t now_ns;
	sigset_t set;
	int err;

	tell_sampling(s);
	probes_wires(s->probes);
	if (!in_a_hurry())
		probes_detach(s->probes);
	probes_consume(s->probes);
	push_stats(s);
	now_ns = clock_boot_ns();
	if (s->named)
		s->untraced += named_finish(s->named, now_ns);
	if (s->meant)
		meant_finish(s->meant);
	if (s->symbols)
		symbols_finish(s->symbols, now_ns);
	privilege_write();
	pipeline_finish(s->pipeline, now_ns);
	pipeline_count_lost(s->pipeline, LOST_TARGETS, s->untraced);
	write_trace(s);
	/* From here on a second signal ends us at once; the trace is whole. */
	stop_signals(&set);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	err = output_finish(s->output, s->pipeline, now_ns);
	if (s->capture) {
		int capture_err = capture_file_close(s->capture);

		s->capture = NULL;
		if (capture_err)
			log_error("cannot write %s: %s", s->o->record, strerror(-capture_err));
		err = err ? err : capture_err;
	}
	report_symbols(s);
	report_cost(s, now_ns);
	if (s->cmd.held_ns)
		log_info("%s was held %.1f ms in its exec, while its files were probed", s->o->argv[0],
			 (double)s->cmd.held_ns / 1e6);
	if (s->cmd_running && !s->cmd_ended)
		log_info("%s (pid %d) still runs", s->o->argv[0], s->cmd.pid);
	return err;
}

static void release(struct session *s)
{
	if (s->capture)
		capture_file_close(s->capture);
	spawn_release(&s->cmd);
	mapwatch_free(s->mapwatch);
	discover_free(s->discover);
	symbols_free(s->symbols);
	named_free(s->named);
	meant_free(s->meant);
	probes_close(s->probes);
	keeper_stop();
	pipeline_free(s->pipeline);
	output_free(s->output);
	loop_free(s->loop);
	targets_free(s->targets);
	if (s->filter_ready)
		target_filter_release(&s->filter);
}

static int exit_status(const struct session *s, int err)
{
	int own = err ? 1 : s->o->strict && lost_total(pipeline_lost(s->pipeline)) ? 3 : 0;
	int cmd = 0;

	if (s->cmd_ended)
		cmd = WIFSIGNALED(s->cmd_status) ? 128 + WTERMSIG(s->cmd_status) : WEXITSTATUS(s->cmd_status);
	return cmd ? cmd : own;
}

int session_run(const struct options *o, int argc, char **argv)
{
	struct session *s = calloc(1, sizeof(*s));
	int status = 1;

	spawn_raise_limits();

	if (!s) {
		log_error("out of memory");
		return 1;
	}
	s->o = o;
	s->cost.start_ns = clock_boot_ns();
	s->cmd = (struct spawn){.pid = -1, .hold_fd = -1, .err_fd = -1, .pidfd = -1};
	command_text(s->command, argc, argv, o->content);
	if (!prepare(s)) {
		status = trace(s);
		/* Nothing ran: there is nothing to write. */
		if (!status)
			status = exit_status(s, finish(s));
	}
	release(s);
	free(s);
	return status;
}
