/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/writefd.h"
#include "keeper.h"
#include "privilege.h"
#include "session_parts.h"
#include "slice.h"

#define OFF_CPU_MIN_NS 1000000u /* shorter waits are many, and nobody's problem */

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
	s->path_fixed = s->o->output;
	if (s->path_fixed)
		snprintf(s->trace_path, sizeof(s->trace_path), "%s", s->o->output);
	else
		default_trace_path(s,
				   s->o->argv  ? s->o->argv[0]
				   : s->o->all ? "system"
					       : "",
				   s->cmd.pid > 0 ? s->cmd.pid : getpid());
}

static void look_at_word(void *ctx, const char *word)
{
	discover_package_ahead(((struct session *)ctx)->discover, word);
}

/* While the programs are loaded. Children of the processes are looked at later, as all else. */
static void look_ahead(struct session *s)
{
	uint64_t began_ns = clock_boot_ns();

	discover_ahead(s->discover, 0, s->o->argv ? s->o->argv[0] : NULL);
	if (s->o->argv)
		target_words(s->o->argv, look_at_word, s);
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
		.on_record = session_on_record,
		.on_soon = session_on_soon,
		.ctx = s,
	};
	struct mapwatch_sink watch = {.ctx = s, .on_map = session_on_map, .on_lost = session_on_maps_lost};
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
	const struct symbols_sink sink = {s, session_on_symbol};

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
		.on_attempt = output_attempt,
		.on_lookup = output_lookup,
		.on_http = output_http,
		.interest_ctx = s,
		.on_interest = session_on_interest,
		.on_pass = session_on_pass,
		.on_silent = session_on_silent,
	};
	int err;

	session_tap(s);
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
	s->named = named_new(s->o->functions, s->o->function_count, s->probes, session_keep, s);
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
	if (!s->targets || !s->loop) {
		log_error("cannot begin: %s", strerror(errno));
		return -ENOMEM;
	}
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
		capture_make_sampling(&r, session_keep, s);
}

static int trace(struct session *s)
{
	int err, status = 0;

	if (session_add_targets(s))
		return 1;
	err = session_add_sources(s);
	if (err) {
		log_error("cannot wait for events: %s", strerror(-err));
		return 1;
	}
	slice_shorten();
	if (!s->path_fixed && s->first.pid && !s->o->argv)
		default_trace_path(s, *s->first.exe ? s->first.exe : s->first.comm, s->first.pid);
	if (s->o->argv)
		status = session_release_command(s);
	if (!status && output_begin(s->output))
		status = 1;
	if (!status)
		announce(s);
	if (!status && !s->o->all)
		session_tell_asked(s);
	if (!status)
		privilege_trace(probes_features(s->probes)->mode == PROBES_PERF, !s->o->no_sandbox);
	tell_sampling(s);
	if (!status && loop_run(s->loop))
		status = 1;
	return status;
}

static void report_cost(const struct session *s, uint64_t now_ns)
{
	char line[256];

	if (!s->cost.began_ns || s->o->quiet)
		return;
	selfcost_line(line, sizeof(line), s->probes, &s->cost, now_ns);
	log_info("%s", line);
}

static void report_symbols(const struct session *s)
{
	if (!s->symbols)
		return;
	if (symbols_kernel_hidden(s->symbols))
		log_info("the kernel hides its addresses (kernel.kptr_restrict): its functions have no names");
	if (symbols_unread(s->symbols))
		log_info("%u file%s without names: too many symbols", symbols_unread(s->symbols),
			 symbols_unread(s->symbols) == 1 ? " is" : "s are");
	if (symbols_crowded(s->symbols))
		log_info("%u process%s more than %u pieces of code: the rest of it is without names",
			 symbols_crowded(s->symbols), symbols_crowded(s->symbols) == 1 ? " maps" : "es map",
			 SYMBOLS_MAPPINGS_MAX);
	if (!s->o->quiet && strcmp(s->trace_path, "-"))
		log_info("perfbpf report %s: where the processor time, the waiting and the memory went", s->trace_path);
}

/* A second signal while the first one's work is done: it stays pending until the trace is written. */
static bool in_a_hurry(const struct session *s)
{
	sigset_t pending, stop;

	session_stop_signals(&stop);
	return s->hurried || (s->signalled && !sigpending(&pending) && !sigandset(&pending, &pending, &stop) &&
			      !sigisemptyset(&pending));
}

static void absorb(int signal)
{
	(void)signal;
}

/* A second signal ends us at once. Where the session came to its end by itself the first one may still come, and says
 * nothing new. */
static void let_signals_end(const struct session *s)
{
	struct sigaction once = {.sa_handler = absorb, .sa_flags = SA_RESETHAND | SA_RESTART};
	sigset_t set;

	session_stop_signals(&set);
	for (int signal = 1; !s->signalled && signal < NSIG; signal++)
		if (sigismember(&set, signal) == 1)
			sigaction(signal, &once, NULL);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* stop -> detach -> drain -> finish stages in order -> write -> report */
static int finish(struct session *s)
{
	uint64_t now_ns;
	int err;

	tell_sampling(s);
	probes_wires(s->probes);
	if (!in_a_hurry(s))
		probes_detach(s->probes);
	probes_consume(s->probes);
	now_ns = clock_boot_ns();
	if (s->named)
		s->untraced += named_finish(s->named, now_ns);
	session_push_stats(s);
	if (s->meant)
		meant_finish(s->meant);
	if (s->symbols)
		symbols_finish(s->symbols, now_ns);
	privilege_write();
	now_ns = clock_boot_ns();
	capture_make_tick(now_ns, session_keep, s); /* a replay ends then, too */
	pipeline_finish(s->pipeline, now_ns);
	session_write(s);
	let_signals_end(s); /* the trace is whole */
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
	writefd_on_wait(NULL, NULL);
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
