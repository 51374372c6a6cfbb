/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Starts the kernel side, and takes all of it away again. */
#include "probes_parts.h"

#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <linux/perf_event.h>

#include "base/clock.h"
#include "base/err.h"
#include "links.h"
#include "ourplace.h"
#include "perfbpf.skel.h"
#include "sampling.h"
#include "syscalls.h"
#include "tails.h"

#define FAULT_BYTES	      4096 /* what a page fault stands for */
#define PID_NAMESPACE_FILE    "/proc/self/ns/pid"
#define INITIAL_PID_NAMESPACE 0xeffffffcu /* PROC_PID_INIT_INO, linux/proc_ns.h */

uint32_t probes_fault_period(uint32_t alloc_bytes)
{
	return alloc_bytes && alloc_bytes < FAULT_BYTES ? 1 : alloc_bytes / FAULT_BYTES;
}

static void prepare_alloc(struct probes *p)
{
	bool alloc = p->cfg.alloc_bytes != 0, session = p->features.alloc == PROBES_ALLOC_FOLLOWED;
	struct perfbpf_bpf *skel = p->skel;

	bpf_program__set_autoload(skel->progs.alloc_session, alloc && session);
	bpf_program__set_autoload(skel->progs.alloc_entry, alloc && p->features.alloc != PROBES_ALLOC_NONE);
	bpf_program__set_autoload(skel->progs.sample_fault, alloc);
	bpf_program__set_expected_attach_type(skel->progs.alloc_session, ATTACH_UPROBE_SESSION);
	bpf_program__set_expected_attach_type(skel->progs.alloc_entry, ATTACH_UPROBE_MULTI);
	if (!alloc || !session)
		bpf_map__set_max_entries(skel->maps.followed, 1);
	skel->rodata->cfg.fault_period = probes_fault_period(p->cfg.alloc_bytes);
}

/* A probe of functions, one link a file where the kernel has such links. */
static void prepare_uprobe(const struct probes *p, struct bpf_program *program, bool wanted)
{
	bpf_program__set_autoload(program, wanted);
	if (p->features.mode != PROBES_PERF)
		bpf_program__set_expected_attach_type(program, ATTACH_UPROBE_MULTI);
}

static void prepare_uprobes(struct probes *p)
{
	const bool session = p->features.mode == PROBES_SESSION;
	struct perfbpf_bpf *skel = p->skel;

	bpf_program__set_autoload(skel->progs.tls_session, session);
	if (session)
		bpf_program__set_expected_attach_type(skel->progs.tls_session, ATTACH_UPROBE_SESSION);
	prepare_uprobe(p, skel->progs.tls_entry, !session);
	prepare_uprobe(p, skel->progs.tls_return, !session);
	prepare_uprobe(p, skel->progs.tls_go, true);
	prepare_uprobe(p, skel->progs.sqlite_entry, p->cfg.db);
	prepare_uprobe(p, skel->progs.sqlite_return, p->cfg.db);
	if (!p->cfg.db)
		bpf_map__set_max_entries(skel->maps.sqlite_runs, 1);
	prepare_uprobe(p, skel->progs.func_entry, p->cfg.functions);
	prepare_uprobe(p, skel->progs.func_exit, p->cfg.functions);
}

static void prepare_tracepoints(struct probes *p)
{
	const struct probes_features *f = &p->features;
	struct perfbpf_bpf *skel = p->skel;

	bpf_program__set_autoload(skel->progs.proc_prepare_exec, f->prepare_exec);
	bpf_program__set_autoload(skel->progs.sock_sent, f->sock_length);
	bpf_program__set_autoload(skel->progs.sock_received, f->sock_length);
	bpf_program__set_autoload(skel->progs.wire_list, f->sock_length);
	bpf_program__set_autoload(skel->progs.asked_list, f->sock_length);
	bpf_program__set_autoload(skel->progs.called_sweep, !f->sock_length);
	bpf_program__set_autoload(skel->progs.sock_rtt, f->tcp_rtt && !f->sock_length);
	bpf_program__set_autoload(skel->progs.sock_retransmit, f->tcp_retransmit);
	bpf_program__set_autoload(skel->progs.sock_reset_sent, f->tcp_reset);
	bpf_program__set_autoload(skel->progs.sock_reset_received, f->tcp_reset);
	bpf_program__set_autoload(skel->progs.delay_ready, f->tcp_late);
	bpf_program__set_autoload(skel->progs.delay_hole, f->tcp_hole);
	bpf_program__set_autoload(skel->progs.delay_repaired, f->tcp_resent);
	bpf_program__set_autoload(skel->progs.sample_cpu, p->cfg.period_ns != 0);
	bpf_program__set_autoload(skel->progs.sample_switch, p->cfg.off_cpu_min_ns != 0);
	bpf_program__set_autoload(skel->progs.sample_wakeup, p->cfg.off_cpu_min_ns != 0);
	if (!p->cfg.off_cpu_min_ns)
		bpf_map__set_max_entries(skel->maps.waits, 1);
}

/* What the programs are told for good. */
static void configure(struct probes *p)
{
	const struct probes_features *f = &p->features;
	struct perfbpf_bpf *skel = p->skel;

	bpf_map__set_max_entries(skel->maps.rb, p->cfg.ring_bytes);
	skel->rodata->cfg.self_tgid = (uint32_t)getpid();
	skel->rodata->cfg.ring_bytes = p->cfg.ring_bytes;
	skel->rodata->cfg.follow_exec = p->cfg.follow_exec;
	skel->rodata->cfg.all = p->cfg.all;
	skel->rodata->cfg.read_dynptr = f->read_dynptr;
	skel->rodata->cfg.sock_length = f->sock_length;
	skel->rodata->cfg.unstored = !f->finds_thread	       ? UNSTORED_LOST
				     : p->cfg.force_no_storage ? UNSTORED_ALL
							       : UNSTORED_KEPT;
	skel->rodata->cfg.db = p->cfg.db;
	skel->rodata->cfg.http = p->cfg.http;
	skel->rodata->cfg.request_bytes = LIMIT_REQUEST_BYTES;
	skel->rodata->cfg.page_kib = (uint32_t)sysconf(_SC_PAGESIZE) / 1024;
	skel->rodata->cfg.period_ns = p->cfg.period_ns;
	skel->rodata->cfg.off_cpu_min_ns = p->cfg.off_cpu_min_ns;
}

/* Every program of a tracepoint that was loaded, but for the end of system calls: attach/syscalls.h says when that one
 * is. TLS probes come with their files. */
static int attach_tracepoints(struct probes *p)
{
	const struct bpf_object_skeleton *all = p->skel->skeleton;

	for (int i = 0; i < all->prog_cnt; i++) {
		const struct bpf_program *program = *all->progs[i].prog;

		if (strncmp(bpf_program__section_name(program), "tp_btf/", 7) != 0 || !bpf_program__autoload(program) ||
		    program == p->skel->progs.call_returned)
			continue;
		*all->progs[i].link = bpf_program__attach(program);
		if (!*all->progs[i].link)
			return -errno;
	}
	return 0;
}

static int identify_process(void *ctx, pid_t pid, uint64_t *start_ns, uint32_t *exec_id)
{
	return probes_identify(ctx, pid, start_ns, exec_id);
}

static void on_alloc_record(void *ctx, const void *bytes, size_t len)
{
	struct probes *p = ctx;

	p->cfg.on_record(p->cfg.ctx, bytes, len);
}

/* 0 or -errno. */
static int start_alloc(struct probes *p)
{
	bool session = p->features.alloc == PROBES_ALLOC_FOLLOWED;
	struct perfbpf_bpf *skel = p->skel;

	p->faults = sampling_start(skel->progs.sample_fault, PERF_COUNT_SW_PAGE_FAULTS,
				   probes_fault_period(p->cfg.alloc_bytes));
	if (!p->faults)
		return -errno;
	if (p->features.alloc == PROBES_ALLOC_NONE)
		return 0;
	p->alloc = allocwatch_new(&(struct allocwatch_config){
		/* Before 6.10 a link with a pid sees one thread. */
		.kernel = {.entries = {bpf_program__fd(skel->progs.alloc_entry), ATTACH_UPROBE_MULTI},
			   .returns = {session ? bpf_program__fd(skel->progs.alloc_session) : -1,
				       ATTACH_UPROBE_SESSION},
			   .by_process = session,
			   .process = &skel->bss->alloc_process,
			   .open = &skel->bss->alloc_open,
			   .period = &skel->bss->alloc_period,
			   .follows = &skel->bss->alloc_follows,
			   .layers = &skel->bss->alloc_layers,
			   .sums = skel->bss->alloc_sums,
			   .sites = skel->bss->alloc_sites,
			   .thread_begins = p->cfg.thread_begins},
		.bytes = p->cfg.alloc_bytes,
		.follows = session,
		.identify = identify_process,
		.on_record = on_alloc_record,
		.ctx = p,
	});
	return p->alloc ? 0 : -errno;
}

static int load(void *ctx)
{
	struct probes *p = ctx;
	struct btf *btf = btf__load_vmlinux_btf();
	int err;

	if (!btf)
		return -errno;
	probes_find_features(p, btf);
	btf__free(btf);
	p->skel = perfbpf_bpf__open();
	if (!p->skel)
		return -errno;
	prepare_uprobes(p);
	prepare_tracepoints(p);
	prepare_alloc(p);
	configure(p);
	err = probes_load(p);
	if (err)
		return err;
	err = attach_tracepoints(p);
	if (err)
		return err;
	if (p->cfg.period_ns) {
		p->sampling = sampling_start(p->skel->progs.sample_cpu, PERF_COUNT_SW_CPU_CLOCK, p->cfg.period_ns);
		if (!p->sampling)
			return -errno;
	}
	if (p->cfg.alloc_bytes) {
		err = start_alloc(p);
		if (err)
			return err;
	}
	err = probes_ring_open(p);
	if (err)
		return err;
	p->cpus = libbpf_num_possible_cpus();
	if (p->cpus < 0)
		return p->cpus;
	p->reclaim = reclaim_new(bpf_map__fd(p->skel->maps.conns), bpf_map__fd(p->skel->maps.targets),
				 bpf_map__fd(p->skel->maps.go_calls));
	p->tails = tails_new(bpf_map__fd(p->skel->maps.tails), (const uint64_t *)&p->skel->bss->tails_noted);
	p->cost = progcost_new(p->skel->skeleton, p->cfg.enable_stats);
	p->syscalls = syscalls_new(&(struct syscalls_config){
		.program = p->skel->progs.call_returned,
		.stdios_fd = bpf_map__fd(p->skel->maps.stdios),
		.ends_fd = bpf_map__fd(p->skel->maps.stdio_ends),
		.stdio_size = bpf_map__value_size(p->skel->maps.stdios),
		.sockets = !p->features.sock_length,
		.seen = &p->skel->bss->syscalls_seen,
		.sockets_open = &p->skel->bss->sockets_open,
		.sockets_ns = &p->skel->bss->sockets_ns,
	});
	return p->reclaim && p->tails && p->syscalls ? 0 : -ENOMEM;
}

/* The kernel tells the numbers that processes have in the initial namespace; here they have others. */
static bool in_other_pid_namespace(void)
{
	struct stat st;

	return !stat(PID_NAMESPACE_FILE, &st) && st.st_ino != INITIAL_PID_NAMESPACE;
}

/* Whether a perf uprobe may be set, which takes more rights than to load what it runs: tried on ourselves. 0 or -EPERM.
 */
static int try_perf(const struct probes *p)
{
	uint64_t offset = ourplace_offset();
	struct bpf_link *link;

	if (p->features.mode != PROBES_PERF || !offset)
		return 0;
	link = bpf_program__attach_uprobe(p->skel->progs.tls_entry, false, -1, "/proc/self/exe", offset);
	if (link) {
		bpf_link__destroy(link);
		return 0;
	}
	if (errno != EACCES && errno != EPERM)
		return 0;
	probes_explain("not permitted to set probes: without uprobe_multi links (Linux 6.6) they are perf events",
		       "run as root, or with CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH");
	return -EPERM;
}

struct probes *probes_begin(const struct probes_config *cfg)
{
	struct probes *p = calloc(1, sizeof(*p));

	probes_explain_begin();
	if (!p) {
		probes_explain("out of memory", "");
		errno = ENOMEM;
		return NULL;
	}
	if (in_other_pid_namespace()) {
		probes_explain("this pid namespace is not the initial one, whose pids the kernel tells",
			       "run it outside of the container, or start the container with --pid=host");
		probes_close(p);
		errno = EXDEV;
		return NULL;
	}
	if (probes_explain_limit()) {
		probes_close(p);
		errno = EMFILE;
		return NULL;
	}
	p->cfg = *cfg;
	/* What is free at the end of another arena than the first never goes back, and each thread would have one. */
	mallopt(M_ARENA_MAX, 1);
	aside_begin(&p->loading, load, p);
	return p;
}

int probes_ready(struct probes *p)
{
	int err = aside_end(&p->loading);

	return err ? -probes_explain_load(-err) : try_perf(p);
}

struct probes *probes_open(const struct probes_config *cfg)
{
	struct probes *p = probes_begin(cfg);
	int err = p ? probes_ready(p) : 0;

	if (!err)
		return p;
	probes_close(p);
	errno = -err;
	return NULL;
}

void probes_detach(struct probes *p)
{
	progcost_stop(p->cost, clock_boot_ns());
	/* First: what detaching costs the targets is none of the sampled time. */
	sampling_stop(p->sampling);
	sampling_stop(p->faults);
	p->sampling = p->faults = NULL;
	if (p->alloc)
		allocwatch_stop(p->alloc);
	bpf_link__destroy(p->skel->links.sample_switch);
	p->skel->links.sample_switch = NULL;
	for (struct file *f = p->files; f; f = f->next)
		probes_file_detach(f);
	syscalls_detach(p->syscalls);
	perfbpf_bpf__detach(p->skel);
	p->detached = true;
}

void probes_close(struct probes *p)
{
	struct file *f;

	if (!p)
		return;
	aside_end(&p->loading);
	while ((f = p->files)) {
		p->files = f->next;
		probes_file_free(f);
	}
	allocwatch_free(p->alloc); /* its thread looks at the kernel's variables */
	probes_ring_close(p);
	sampling_stop(p->sampling);
	sampling_stop(p->faults);
	syscalls_free(p->syscalls);
	progcost_free(p->cost);
	probes_unload(p);
	reclaim_free(p->reclaim);
	tails_free(p->tails);
	free(p);
}

const struct probes_features *probes_features(const struct probes *p)
{
	return &p->features;
}

bool probes_sees_syscalls(const struct probes *p)
{
	return syscalls_attached(p->syscalls);
}

/* --- allocators -------------------------------------------------------------------------------------------------- */

int probes_alloc_file(struct probes *p, const char *path, const struct elf *e)
{
	return p->alloc ? allocwatch_file(p->alloc, path, e) : -ENOENT;
}

void probes_alloc_map(struct probes *p, pid_t pid, int file)
{
	if (p->alloc && file >= 0)
		allocwatch_map(p->alloc, pid, file);
}

void probes_alloc_fork(struct probes *p, pid_t parent, pid_t child)
{
	if (p->alloc)
		allocwatch_fork(p->alloc, parent, child);
}

void probes_alloc_forget(struct probes *p, pid_t pid)
{
	if (p->alloc)
		allocwatch_forget(p->alloc, pid);
}

unsigned probes_alloc_refused(const struct probes *p)
{
	return p->alloc ? allocwatch_refused(p->alloc) : 0;
}
