/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probes.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>

#include "aside.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "bpf/event.h"
#include "allocwatch.h"
#include "fileid.h"
#include "links.h"
#include "ourplace.h"
#include "overload.h"
#include "perfbpf.skel.h"
#include "reclaim.h"
#include "ringahead.h"
#include "sampling.h"
#include "syscalls.h"
#include "tails.h"

#define START_TOLERANCE_NS    20000000ull /* /proc tells start times in clock ticks */
#define FAULT_BYTES	      4096	  /* what a page fault stands for */
#define SWEEP_INTERVAL_NS     30000000000ull
#define LOOK_RECORDS	      64	    /* so often a long drain looks at how full the ring is */
#define UNIX_INTERVAL_NS      2000000000ull /* how late the closing of a Unix socket may be noticed */
#define LOCKDOWN_FILE	      "/sys/kernel/security/lockdown"
#define BTF_FILE	      "/sys/kernel/btf/vmlinux"
#define PID_NAMESPACE_FILE    "/proc/self/ns/pid"
#define INITIAL_PID_NAMESPACE 0xeffffffcu /* PROC_PID_INIT_INO, linux/proc_ns.h */

struct file {
	struct file *next;
	struct probes_file pub;
	uint32_t slot; /* of attached_ns[]; 0: none was left */
	struct tls_find found;
	char *shown_path;
	int fds[3 * TLSFIND_MAX]; /* raw links */
	unsigned fd_count;
	struct bpf_link *links[2 * TLSFIND_MAX]; /* libbpf's, by perf events */
	unsigned link_count;
	bool removed; /* its probes were, until they are set again */
	bool renewed; /* probed a second time */
	bool stopped; /* a function that is called too often: not probed again */
};

struct probes {
	struct probes_config cfg;
	struct probes_features features;
	struct aside loading;
	struct perfbpf_bpf *skel;
	struct ring_buffer *ring;
	struct progcost *cost;
	struct file *files; /* newest first */
	struct reclaim *reclaim;
	struct tails *tails;
	struct overload overload;
	const volatile uint64_t *consumed, *produced; /* positions in the ring; NULL: they cannot be read */
	uint64_t drained;			      /* bytes in this probes_consume() */
	unsigned looks;
	unsigned soon; /* so many of the next ones were told before their turn */
	bool detached;
	struct syscalls *syscalls;
	struct sampling *sampling, *faults;
	struct allocwatch *alloc; /* NULL: allocations are not looked at */
	uint64_t next_sweep_ns, next_unix_ns;
	uint64_t wires_ns; /* up to there the movements of TLS connections were read */
	int cpus;
};

/* --- what went wrong, for the user ------------------------------------------------------------------------------- */

static char why_text[256];
static char hint_text[256];
static char first_warning[160]; /* libbpf's, since probes_open() began */

const char *probes_why(void)
{
	return why_text;
}

const char *probes_hint(void)
{
	return hint_text[0] ? hint_text : NULL;
}

__attribute__((format(printf, 2, 3))) static void say(char text[256], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, 256, fmt, ap);
	va_end(ap);
}

/* libbpf's messages, one level down: what it calls a warning is often tried on purpose. */
__attribute__((format(printf, 2, 0))) static int on_libbpf_print(enum libbpf_print_level level, const char *fmt,
								 va_list ap)
{
	char *text, *line, *rest, safe[1024];

	if (log_get_level() < LOG_DEBUG &&
	    (level == LIBBPF_DEBUG || (log_get_level() < LOG_VERBOSE && first_warning[0])))
		return 0;
	if (vasprintf(&text, fmt, ap) < 0)
		return 0;
	rest = text; /* many lines: a verifier's log */
	while ((line = strsep(&rest, "\n"))) {
		if (!*line)
			continue;
		for (char *tab = line; (tab = strchr(tab, '\t')); *tab = ' ')
			;
		log_safe(safe, sizeof(safe), sv_of(line)); /* it may name a traced program's file */
		if (level == LIBBPF_WARN && !first_warning[0])
			snprintf(first_warning, sizeof(first_warning), "%.150s", safe);
		if (level == LIBBPF_WARN)
			log_verbose("%s", safe);
		else
			log_debug("%s", safe);
	}
	free(text);
	return 0;
}

static bool lockdown_confidentiality(void)
{
	char text[128] = "";
	int fd = open(LOCKDOWN_FILE, O_RDONLY | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	return len > 0 && strstr(text, "[confidentiality]");
}

/* Names the cause of a failed load; the errno that probes_open() gives. */
static int explain_load(int err)
{
	hint_text[0] = 0;
	if (access(BTF_FILE, F_OK) && errno == ENOENT) {
		say(why_text, "this kernel has no type information (%s)", BTF_FILE);
		say(hint_text, "run a kernel built with CONFIG_DEBUG_INFO_BTF=y");
		return ENOENT;
	}
	if (lockdown_confidentiality()) {
		say(why_text, "kernel lockdown is in mode 'confidentiality': BPF programs must not read memory");
		say(hint_text, "boot with lockdown=integrity or none");
		return EPERM;
	}
	if (err == EPERM) { /* EACCES is the verifier's word */
		if (geteuid() != 0)
			say(hint_text, "run as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE");
		else
			say(hint_text, "root without CAP_BPF or CAP_SYS_ADMIN, as in a container? add --privileged");
		say(why_text, "not permitted to load BPF programs");
		return EPERM;
	}
	say(why_text, "the kernel refused the BPF programs: %s%s%s", strerror(err), first_warning[0] ? ": " : "",
	    first_warning);
	if (err == ENOMEM)
		say(hint_text, "a smaller ring buffer, or a higher memory limit (memlock on kernels before 5.11)");
	return err;
}

/* --- what this kernel can do ------------------------------------------------------------------------------------- */

/* Whether a link of this type can be made: tries it on a directory, which a kernel that knows the type refuses as such.
 */
static bool link_type_works(uint32_t attach_type)
{
	struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = (enum bpf_attach_type)attach_type);
	uint64_t offset = 0;
	struct link_create attr = {
		.attach_type = attach_type, .path = (uintptr_t) "/", .offsets = (uintptr_t)&offset, .count = 1};
	int err, fd = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "perfbpf_try", "GPL", insns, ARRAY_SIZE(insns), &opts);

	if (fd < 0)
		return false;
	attr.prog_fd = (uint32_t)fd;
	err = link_create(&attr);
	close(fd);
	if (err >= 0)
		close(err);
	return err == -EBADF || err >= 0;
}

static bool btf_has(const struct btf *btf, const char *name, uint32_t kind)
{
	return btf__find_by_name_kind(btf, name, kind) > 0;
}

static bool has_tracepoint(const struct btf *btf, const char *name)
{
	char type[96];

	snprintf(type, sizeof(type), "btf_trace_%s", name);
	return btf_has(btf, type, BTF_KIND_TYPEDEF);
}

static void find_mode(struct probes *p, const struct btf *btf)
{
	p->features.mode = PROBES_PERF;
	if (p->cfg.mode_max == PROBES_SESSION && btf_has(btf, "bpf_session_is_return", BTF_KIND_FUNC) &&
	    link_type_works(ATTACH_UPROBE_SESSION))
		p->features.mode = PROBES_SESSION;
	else if (p->cfg.mode_max <= PROBES_MULTI && link_type_works(ATTACH_UPROBE_MULTI))
		p->features.mode = PROBES_MULTI;
}

/* Linked in place of libbpf's (--wrap). libbpf 1.1 looks for a weak kernel function that this kernel lacks in the
 * types of all modules, which takes CAP_SYS_ADMIN, and gives up loading without it; it goes on where there are no
 * modules. */
int __real_bpf_btf_get_next_id(__u32 start_id, __u32 *next_id);
int __wrap_bpf_btf_get_next_id(__u32 start_id, __u32 *next_id);
int __wrap_bpf_btf_get_next_id(__u32 start_id, __u32 *next_id)
{
	int err = __real_bpf_btf_get_next_id(start_id, next_id);

	if (!err || errno != EPERM)
		return err;
	errno = ENOENT;
	return -ENOENT;
}

static void add_degraded(struct probes_features *f, const char *what)
{
	size_t len = strlen(f->degraded);

	snprintf(f->degraded + len, sizeof(f->degraded) - len, "%s%s", len ? "; " : "", what);
}

static void find_features(struct probes *p, const struct btf *btf)
{
	struct probes_features *f = &p->features;

	find_mode(p, btf);
	f->alloc = f->mode == PROBES_SESSION ? PROBES_ALLOC_FOLLOWED
		   : f->mode == PROBES_MULTI ? PROBES_ALLOC_COUNTED
					     : PROBES_ALLOC_NONE;
	f->read_dynptr = !p->cfg.force_no_dynptr && btf_has(btf, "bpf_probe_read_user_dynptr", BTF_KIND_FUNC);
	f->finds_thread = btf_has(btf, "bpf_task_storage_get_recur", BTF_KIND_FUNC);
	f->sock_length = !p->cfg.force_no_sock_length && has_tracepoint(btf, "sock_send_length") &&
			 has_tracepoint(btf, "sock_recv_length");
	f->prepare_exec = has_tracepoint(btf, "sched_prepare_exec");
	f->tcp_rtt = f->sock_length || has_tracepoint(btf, "tcp_rcv_space_adjust");
	f->tcp_retransmit = has_tracepoint(btf, "tcp_retransmit_skb");
	f->tcp_reset = has_tracepoint(btf, "tcp_send_reset") && has_tracepoint(btf, "tcp_receive_reset");
	f->tcp_late = f->sock_length && has_tracepoint(btf, "sk_data_ready");
	f->tcp_hole = f->tcp_late && has_tracepoint(btf, "tcp_probe");
	f->tcp_resent = f->sock_length && f->tcp_retransmit && has_tracepoint(btf, "tcp_cong_state_set");
	if (f->mode == PROBES_PERF)
		add_degraded(f, "no uprobe_multi links: attaching and detaching are slow");
	if (p->cfg.alloc_bytes && f->alloc == PROBES_ALLOC_NONE)
		add_degraded(f, "no uprobe_multi links: of --alloc only page faults are seen");
	if (p->cfg.alloc_bytes && f->alloc == PROBES_ALLOC_COUNTED)
		add_degraded(f, "no uprobe session links: what is freed of allocations is not seen");
	if (!f->sock_length)
		add_degraded(f,
			     "no sock_send_length: system calls are traced in its place, while a target may use "
			     "plain HTTP; TLS that cannot be read, sessions that go on and look-ups of names are not "
			     "seen");
	if (!f->tcp_rtt)
		add_degraded(f, "no TCP round trip times");
	if (!f->tcp_retransmit)
		add_degraded(f, "no TCP retransmits");
	if (!f->tcp_late)
		add_degraded(f, "no sk_data_ready: what a program reads late is not told from what comes late");
	if (!f->tcp_hole || !f->tcp_resent)
		add_degraded(f, "how long lost segments delayed a connection is not seen");
	if (!f->tcp_reset)
		add_degraded(f, "no TCP resets");
}

/* --- load -------------------------------------------------------------------------------------------------------- */

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

static void prepare(struct probes *p)
{
	const struct probes_features *f = &p->features;
	struct perfbpf_bpf *skel = p->skel;
	bool session = f->mode == PROBES_SESSION;

	bpf_program__set_autoload(skel->progs.tls_session, session);
	bpf_program__set_autoload(skel->progs.tls_entry, !session);
	bpf_program__set_autoload(skel->progs.tls_return, !session);
	if (f->mode != PROBES_PERF)
		bpf_program__set_expected_attach_type(skel->progs.tls_go, ATTACH_UPROBE_MULTI);
	bpf_program__set_autoload(skel->progs.sqlite_entry, p->cfg.db);
	bpf_program__set_autoload(skel->progs.sqlite_return, p->cfg.db);
	if (f->mode != PROBES_PERF) {
		bpf_program__set_expected_attach_type(skel->progs.sqlite_entry, ATTACH_UPROBE_MULTI);
		bpf_program__set_expected_attach_type(skel->progs.sqlite_return, ATTACH_UPROBE_MULTI);
	}
	if (!p->cfg.db)
		bpf_map__set_max_entries(skel->maps.sqlite_runs, 1);
	bpf_program__set_autoload(skel->progs.func_entry, p->cfg.functions);
	bpf_program__set_autoload(skel->progs.func_exit, p->cfg.functions);
	if (f->mode != PROBES_PERF) {
		bpf_program__set_expected_attach_type(skel->progs.func_entry, ATTACH_UPROBE_MULTI);
		bpf_program__set_expected_attach_type(skel->progs.func_exit, ATTACH_UPROBE_MULTI);
	}
	if (session) {
		bpf_program__set_expected_attach_type(skel->progs.tls_session, ATTACH_UPROBE_SESSION);
	} else if (f->mode == PROBES_MULTI) {
		bpf_program__set_expected_attach_type(skel->progs.tls_entry, ATTACH_UPROBE_MULTI);
		bpf_program__set_expected_attach_type(skel->progs.tls_return, ATTACH_UPROBE_MULTI);
	}
	bpf_program__set_autoload(skel->progs.proc_prepare_exec, f->prepare_exec);
	bpf_program__set_autoload(skel->progs.sock_sent, f->sock_length);
	bpf_program__set_autoload(skel->progs.sock_received, f->sock_length);
	bpf_program__set_autoload(skel->progs.wire_list, f->sock_length);
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
	prepare_alloc(p);
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

/* The tracepoints: those of sockets and processes. TLS probes come with their files. */
static int attach_tracepoints(struct probes *p)
{
	struct perfbpf_bpf *skel = p->skel;
	struct {
		struct bpf_program *program;
		struct bpf_link **link;
	} all[] = {
		{skel->progs.proc_fork, &skel->links.proc_fork},
		{skel->progs.proc_prepare_exec, &skel->links.proc_prepare_exec},
		{skel->progs.proc_exec, &skel->links.proc_exec},
		{skel->progs.proc_exit, &skel->links.proc_exit},
		{skel->progs.proc_gone, &skel->links.proc_gone},
		{skel->progs.sock_state, &skel->links.sock_state},
		{skel->progs.sock_sent, &skel->links.sock_sent},
		{skel->progs.sock_received, &skel->links.sock_received},
		{skel->progs.sock_rtt, &skel->links.sock_rtt},
		{skel->progs.sock_retransmit, &skel->links.sock_retransmit},
		{skel->progs.sock_reset_sent, &skel->links.sock_reset_sent},
		{skel->progs.sock_reset_received, &skel->links.sock_reset_received},
		{skel->progs.delay_ready, &skel->links.delay_ready},
		{skel->progs.delay_hole, &skel->links.delay_hole},
		{skel->progs.delay_repaired, &skel->links.delay_repaired},
		{skel->progs.sample_wakeup, &skel->links.sample_wakeup},
		{skel->progs.sample_switch, &skel->links.sample_switch},
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		if (!bpf_program__autoload(all[i].program))
			continue;
		*all[i].link = bpf_program__attach(all[i].program);
		if (!*all[i].link)
			return -errno;
	}
	return 0;
}

/* Changes how much is copied, by how much waits. */
static void look_at_ring(struct probes *p, bool draining)
{
	struct overload *o = &p->overload;
	uint32_t level = o->level, highest = o->highest;
	uint64_t used = p->produced ? *p->produced - *p->consumed : 0;

	if (!overload_look(o, used, p->cfg.ring_bytes, draining, p->skel->bss->last_gen, clock_boot_ns()))
		return;
	p->skel->bss->overload.dropped = o->dropped;
	p->skel->bss->overload.level = o->level;
	if (o->level > highest)
		log_warn("more comes than is drained: %s", overload_text(o->level));
	else if (o->level < level)
		log_verbose("less comes: %s", overload_text(o->level));
}

/* The first page of a ring is where its reader is, the second where its writers are (kernel/bpf/ringbuf.c). */
static void map_positions(struct probes *p)
{
	int fd = bpf_map__fd(p->skel->maps.rb);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *consumed = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
	void *produced = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, (off_t)page);

	if (consumed != MAP_FAILED && produced != MAP_FAILED) {
		p->consumed = consumed;
		p->produced = produced;
	}
}

/* This record and those behind it are told before their turn, some at once. */
static void tell_soon(struct probes *p, const void *bytes, size_t len)
{
	struct sv records[PROBES_SOON_MAX];
	uint64_t left;

	if (p->soon) {
		p->soon--;
		return;
	}
	if (!p->cfg.on_soon || !p->produced)
		return;
	left = __atomic_load_n(p->produced, __ATOMIC_ACQUIRE) - *p->consumed; /* the reader is at this record */
	p->soon = ringahead_look(bytes, len, left, records, PROBES_SOON_MAX);
	p->cfg.on_soon(p->cfg.ctx, records, p->soon);
	if (p->soon)
		p->soon--;
}

static int on_ring(void *ctx, void *bytes, size_t len)
{
	const struct ev_head *h = bytes;
	struct probes *p = ctx;

	p->drained += len;
	tell_soon(p, bytes, len);
	if (++p->looks % LOOK_RECORDS == 0)
		look_at_ring(p, true);
	/* Rooms of a constant size: the record says how much of it counts. */
	if (len >= sizeof(*h) && h->size >= sizeof(*h) && h->size < len)
		len = h->size;
	/* What a sample costs is measured with our own. */
	if (len >= sizeof(*h) && h->kind == EV_SAMPLE && h->tgid == (uint32_t)getpid())
		return 0;
	if (len >= sizeof(*h))
		tails_advance(p->tails, h->ts_ns, p->cfg.on_record, p->cfg.ctx);
	/* What the process lost at last has to be known when it ends. */
	if (len >= sizeof(*h) && (h->kind == EV_EXIT || h->kind == EV_EXEC)) {
		tails_collect(p->tails);
		tails_tell(p->tails, h->tgid, p->cfg.on_record, p->cfg.ctx);
	}
	reclaim_note(p->reclaim, bytes, len);
	/* Before the new program speaks to its parent over pipes. */
	if (len >= sizeof(*h) && h->kind == EV_EXEC) {
		syscalls_expect(p->syscalls, h->ts_ns);
		syscalls_update(p->syscalls, h->ts_ns);
	}
	p->cfg.on_record(p->cfg.ctx, bytes, len);
	/* Others want their turn too, however much comes. */
	return p->drained > 2ull * p->cfg.ring_bytes && !p->detached ? -EAGAIN : 0;
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
	find_features(p, btf);
	btf__free(btf);
	p->skel = perfbpf_bpf__open();
	if (!p->skel)
		return -errno;
	prepare(p);
	err = perfbpf_bpf__load(p->skel);
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
	p->ring = ring_buffer__new(bpf_map__fd(p->skel->maps.rb), on_ring, p, NULL);
	if (!p->ring)
		return -errno;
	map_positions(p);
	p->cpus = libbpf_num_possible_cpus();
	if (p->cpus < 0)
		return p->cpus;
	p->reclaim = reclaim_new(bpf_map__fd(p->skel->maps.conns), bpf_map__fd(p->skel->maps.targets),
				 bpf_map__fd(p->skel->maps.go_calls));
	p->tails = tails_new(bpf_map__fd(p->skel->maps.tails), (const uint64_t *)&p->skel->bss->tails_noted);
	p->cost = progcost_new(p->skel->obj, p->cfg.enable_stats);
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
	say(why_text, "not permitted to set probes: without uprobe_multi links (Linux 6.6) they are perf events");
	say(hint_text, "run as root, or with CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH");
	return -EPERM;
}

struct probes *probes_begin(const struct probes_config *cfg)
{
	struct probes *p = calloc(1, sizeof(*p));

	why_text[0] = hint_text[0] = first_warning[0] = 0;
	if (!p) {
		say(why_text, "out of memory");
		errno = ENOMEM;
		return NULL;
	}
	if (in_other_pid_namespace()) {
		say(why_text, "this pid namespace is not the initial one, whose pids the kernel tells");
		say(hint_text, "run it outside of the container, or start the container with --pid=host");
		probes_close(p);
		errno = EXDEV;
		return NULL;
	}
	p->cfg = *cfg;
	libbpf_set_print(on_libbpf_print);
	aside_begin(&p->loading, load, p);
	return p;
}

int probes_ready(struct probes *p)
{
	int err = aside_end(&p->loading);

	return err ? -explain_load(-err) : try_perf(p);
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

static void file_detach(struct file *f)
{
	unsigned i;

	for (i = 0; i < f->fd_count; i++)
		close(f->fds[i]);
	for (i = 0; i < f->link_count; i++)
		bpf_link__destroy(f->links[i]);
	f->fd_count = f->link_count = 0;
}

static void file_free(struct file *f)
{
	file_detach(f);
	free(f->shown_path);
	free(f);
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
		file_detach(f);
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
		file_free(f);
	}
	allocwatch_free(p->alloc); /* its thread looks at the kernel's variables */
	if (p->produced) {
		munmap((void *)p->consumed, (size_t)sysconf(_SC_PAGESIZE));
		munmap((void *)p->produced, (size_t)sysconf(_SC_PAGESIZE));
	}
	ring_buffer__free(p->ring);
	sampling_stop(p->sampling);
	sampling_stop(p->faults);
	syscalls_free(p->syscalls);
	progcost_free(p->cost);
	perfbpf_bpf__destroy(p->skel);
	reclaim_free(p->reclaim);
	tails_free(p->tails);
	free(p);
}

const struct probes_features *probes_features(const struct probes *p)
{
	return &p->features;
}

/* --- TLS probes of a file ---------------------------------------------------------------------------------------- */

static bool has_role(const struct tls_find *found, uint32_t role)
{
	for (unsigned i = 0; i < found->count; i++)
		if (found->funcs[i].role == role)
			return true;
	return false;
}

static uint64_t cookie_of(const struct file *f, const struct tls_func *func)
{
	const struct tls_find *found = &f->found;
	uint32_t len_arg = func->len_arg;

	if (func->role == TLS_ROLE_HANDSHAKE && func->abi == TLS_ABI_C)
		len_arg = found->stack && strncmp(found->stack, "gnutls", 6) == 0 ? TLS_HANDSHAKE_ZERO : 0;
	return TLS_COOKIE(func->role, len_arg, func->abi) | TLS_COOKIE_PLACE(f->slot, !has_role(found, TLS_ROLE_FREE));
}

static bool is_go(const struct tls_func *func)
{
	return func->abi == TLS_ABI_GO_ENTRY || func->abi == TLS_ABI_GO_RETURN;
}

static bool is_sqlite(const struct tls_func *func)
{
	return func->abi == TLS_ABI_SQLITE;
}

static bool is_named(const struct tls_func *func)
{
	return func->abi == TLS_ABI_FUNC;
}

/* Where a program looks at a function: at the entry and at the return of C's, at all probes of Go's as entries. In the
 * order in which they are set, returns first: a return without its entry is ignored, an entry without its return would
 * be counted as missed. */
enum where { AT_RETURN, AT_ENTRY, AT_GO, AT_SQLITE_RETURN, AT_SQLITE, AT_NAMED_RETURN, AT_NAMED_END, AT_NAMED, WHERES };

static bool is_return(enum where where)
{
	return where == AT_RETURN || where == AT_SQLITE_RETURN || where == AT_NAMED_RETURN;
}

static bool looks_at(const struct tls_func *func, enum where where)
{
	switch (where) {
	case AT_ENTRY:
		return !is_go(func) && !is_sqlite(func) && !is_named(func);
	case AT_RETURN: /* a record is read before it is sealed */
		return !is_go(func) && !is_sqlite(func) && !is_named(func) && func->role != TLS_ROLE_FREE &&
		       !(func->abi == TLS_ABI_AEAD && func->role == TLS_ROLE_WRITE);
	case AT_GO:
		return is_go(func);
	case AT_SQLITE:
		return is_sqlite(func);
	case AT_SQLITE_RETURN:
		return is_sqlite(func) && func->role != SQLITE_ROLE_RESET;
	case AT_NAMED:
		return is_named(func) && func->role != FUNC_ROLE_END;
	case AT_NAMED_END:
		return is_named(func) && func->role == FUNC_ROLE_END;
	case AT_NAMED_RETURN:
		return is_named(func) && func->role == FUNC_ROLE_CALL;
	case WHERES:
		break;
	}
	return false;
}

/* NULL: a session's program at the entry sees the return too. */
static const struct bpf_program *program_at(const struct probes *p, enum where where)
{
	const struct perfbpf_bpf *skel = p->skel;
	bool session = p->features.mode == PROBES_SESSION;

	switch (where) {
	case AT_RETURN:
		return session ? NULL : skel->progs.tls_return;
	case AT_ENTRY:
		return session ? skel->progs.tls_session : skel->progs.tls_entry;
	case AT_GO:
		return skel->progs.tls_go;
	case AT_SQLITE_RETURN:
		return skel->progs.sqlite_return;
	case AT_SQLITE:
		return skel->progs.sqlite_entry;
	case AT_NAMED_RETURN:
	case AT_NAMED_END:
		return skel->progs.func_exit;
	case AT_NAMED:
		return skel->progs.func_entry;
	case WHERES:
		break;
	}
	return NULL;
}

/* One link over functions [first, first + count) of the file; 0 or -errno. */
static int attach_multi(const struct probes *p, struct file *f, const char *path, enum where where, unsigned first,
			unsigned count)
{
	const struct bpf_program *program = program_at(p, where);
	bool session = p->features.mode == PROBES_SESSION && where == AT_ENTRY;
	uint64_t offsets[TLSFIND_MAX], cookies[TLSFIND_MAX];
	struct link_create attr = {
		.attach_type = session ? ATTACH_UPROBE_SESSION : ATTACH_UPROBE_MULTI,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.multi_flags = is_return(where) ? UPROBE_MULTI_RETURN : 0,
	};
	unsigned i;
	int fd;

	/* The kernel sets them in this order, and a function's returns stand behind its entry (Go): a call that is seen
	 * to begin is seen to end. */
	for (i = first + count; i-- > first;) {
		const struct tls_func *func = &f->found.funcs[i];

		if (!looks_at(func, where))
			continue;
		offsets[attr.count] = func->site.off;
		cookies[attr.count++] = cookie_of(f, func);
	}
	if (!program || !attr.count)
		return 0;
	attr.prog_fd = (uint32_t)bpf_program__fd(program);
	fd = link_create(&attr);
	if (fd < 0)
		return fd;
	f->fds[f->fd_count++] = fd;
	return 0;
}

/* Entries and returns of functions [first, first + count), by session or multi links. All of them, or none. */
static int attach_links(const struct probes *p, struct file *f, const char *path, unsigned first, unsigned count)
{
	unsigned before = f->fd_count;
	int err = 0;

	for (enum where where = 0; where < WHERES && !err; where++)
		err = attach_multi(p, f, path, where, first, count);
	while (err && f->fd_count > before)
		close(f->fds[--f->fd_count]);
	return err;
}

static int attach_perf(const struct probes *p, struct file *f, const char *path, enum where where, unsigned i)
{
	const struct tls_func *func = &f->found.funcs[i];
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = cookie_of(f, func), .retprobe = is_return(where));
	struct bpf_link *link;

	if (!looks_at(func, where))
		return 0;
	link = bpf_program__attach_uprobe_opts(program_at(p, where), -1, path, func->site.off, &opts);
	if (!link)
		return -errno;
	f->links[f->link_count++] = link;
	return 0;
}

static int attach_one(const struct probes *p, struct file *f, const char *path, unsigned i)
{
	int err = 0;

	if (p->features.mode != PROBES_PERF)
		return attach_links(p, f, path, i, 1);
	for (enum where where = 0; where < WHERES && !err; where++)
		err = attach_perf(p, f, path, where, i);
	return err;
}

/* Reading and writing both; or that statements run; or all of a function. */
static bool is_useful(const struct file *f)
{
	bool reads = false, writes = false, steps = false, named = false, whole = true;

	for (unsigned i = 0; i < f->found.count; i++) {
		const struct tls_func *func = &f->found.funcs[i];

		named |= is_named(func);
		whole &= !f->pub.status[i];
		if (f->pub.status[i])
			continue;
		reads |= !is_sqlite(func) && func->role == TLS_ROLE_READ;
		writes |= !is_sqlite(func) && func->role == TLS_ROLE_WRITE;
		steps |= is_sqlite(func) && func->role == SQLITE_ROLE_STEP;
	}
	return named ? whole : steps || (reads && writes);
}

static int attach_all(struct probes *p, struct file *f, const char *path)
{
	unsigned i;
	int err = 0;

	/* One link for the whole file: detaching costs tens of milliseconds a link. */
	if (p->features.mode == PROBES_PERF || attach_links(p, f, path, 0, f->found.count)) {
		for (i = 0; i < f->found.count; i++) {
			f->pub.status[i] = attach_one(p, f, path, i);
			if (f->pub.status[i])
				err = f->pub.status[i];
		}
	}
	if (!err)
		p->skel->bss->attached_ns[f->slot] = f->slot ? clock_boot_ns() : 0;
	if (is_useful(f))
		return 0;
	return err ? err : -ENOENT;
}

static bool has_stack(const struct probes *p, const struct elf *e, const char *stack)
{
	const struct file *f;

	for (f = p->files; f; f = f->next)
		if (f->pub.dev == e->dev && f->pub.ino == e->ino && !strcmp(f->found.stack, stack))
			return true;
	return false;
}

static unsigned probed_files(const struct probes *p)
{
	unsigned n = 0;

	for (const struct file *f = p->files; f; f = f->next)
		n += !f->removed;
	return n;
}

/* A slot of attached_ns[] that no file has; 0: none. */
static uint32_t free_slot(const struct probes *p)
{
	bool taken[LIMIT_PROBED_FILES] = {true};

	for (const struct file *f = p->files; f; f = f->next)
		taken[f->slot] = true;
	for (uint32_t i = 1; i < LIMIT_PROBED_FILES; i++)
		if (!taken[i])
			return i;
	return 0;
}

/* A file takes up to some 200 ms to be looked through and probed, in which the ring waits. A new child and its parent
 * do not: they may speak over pipes by then. (What was needed and is not any more has time.) */
static void keep_up(struct probes *p)
{
	if (!syscalls_attached(p->syscalls))
		syscalls_update(p->syscalls, clock_boot_ns());
}

void probes_real_file(struct probes *p, struct elf *e)
{
	uint64_t dev, ino;
	int err = fileid_read(p->skel->progs.file_list, e, &dev, &ino);

	keep_up(p);
	if (err) {
		log_debug("the kernel does not tell which file is mapped: %s", strerror(-err));
		return;
	}
	e->dev = dev;
	e->ino = ino;
}

int probes_attach_file(struct probes *p, const char *path, const char *shown_path, const struct elf *e,
		       const struct tls_find *found)
{
	struct file *f;

	keep_up(p);
	if (has_stack(p, e, found->stack))
		return 0;
	if (found->count > TLSFIND_MAX)
		return -EINVAL;
	if (probed_files(p) >= PROBES_FILES_MAX)
		return -EMFILE;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->found = *found;
	f->shown_path = strdup(shown_path);
	if (!f->shown_path) {
		free(f);
		return -ENOMEM;
	}
	f->pub.shown_path = f->shown_path;
	f->pub.dev = e->dev;
	f->pub.ino = e->ino;
	f->pub.found = &f->found;
	f->slot = free_slot(p);
	p->skel->bss->attached_ns[f->slot] = 0;
	f->next = p->files;
	p->files = f;
	return attach_all(p, f, path);
}

void probes_detach_file(struct probes *p, uint64_t dev, uint64_t ino)
{
	char text[256];

	for (struct file *f = p->files; f; f = f->next) {
		if (f->pub.dev != dev || f->pub.ino != ino)
			continue;
		file_detach(f);
		f->removed = true;
		p->skel->bss->attached_ns[f->slot] = 0;
		log_verbose("%s: no traced process maps it any more: its probes are removed",
			    log_safe(text, sizeof(text), sv_of(f->shown_path)));
	}
}

void probes_forget_file(struct probes *p, uint64_t dev, uint64_t ino)
{
	struct file **at = &p->files, *f;

	while ((f = *at)) {
		if (!f->removed || f->stopped || f->pub.dev != dev || f->pub.ino != ino) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		file_free(f);
	}
}

void probes_stop_function(struct probes *p, const char *stack)
{
	for (struct file *f = p->files; f; f = f->next)
		if (f->found.stack == stack) {
			/* Probes go one by one: an entry that is still there must not open what nobody ends. */
			for (unsigned i = 0; i < f->found.count; i++)
				p->skel->bss->func_rates[f->found.funcs[i].len_arg % LIMIT_FUNCS].stopped = 1;
			file_detach(f);
			f->stopped = true;
		}
}

void probes_function_calls(const struct probes *p, unsigned number, uint64_t *calls, uint64_t *untold)
{
	const struct func_rate *rate = &p->skel->bss->func_rates[number % LIMIT_FUNCS];

	*calls = __atomic_load_n(&rate->calls, __ATOMIC_RELAXED);
	*untold = __atomic_load_n(&rate->untold, __ATOMIC_RELAXED);
}

int probes_attach_again(struct probes *p, const char *path, uint64_t dev, uint64_t ino)
{
	int err = 0;

	for (struct file *f = p->files; f; f = f->next) {
		int now = 0;

		if (f->pub.dev == dev && f->pub.ino == ino && !f->fd_count && !f->link_count && !f->stopped) {
			f->removed = false;
			memset(f->pub.status, 0, sizeof(f->pub.status));
			now = attach_all(p, f, path);
		}
		err = now ? now : err;
	}
	return err;
}

int probes_renew_file(struct probes *p, const char *path, uint64_t dev, uint64_t ino)
{
	for (struct file *f = p->files; f; f = f->next) {
		if (f->pub.dev != dev || f->pub.ino != ino)
			continue;
		if (f->renewed)
			return -EALREADY;
		f->renewed = true;
		/* The old ones first: with both, everything would be told twice. */
		file_detach(f);
	}
	return probes_attach_again(p, path, dev, ino);
}

void probes_each_file(const struct probes *p, void (*fn)(void *ctx, const struct probes_file *f), void *ctx)
{
	const struct file *f;

	for (f = p->files; f; f = f->next)
		fn(ctx, &f->pub);
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

/* --- targets ----------------------------------------------------------------------------------------------------- */

/* Reads what proc_list writes; fn returns true when it has enough. 0 or -errno. */
static int read_identities(int fd, bool (*fn)(void *ctx, const struct proc_identity *id), void *ctx)
{
	struct proc_identity ids[64];
	size_t have = 0;
	ssize_t got;

	while ((got = read(fd, (char *)ids + have, sizeof(ids) - have)) > 0) {
		size_t i, n;

		have += (size_t)got;
		n = have / sizeof(ids[0]);
		for (i = 0; i < n; i++)
			if (fn(ctx, &ids[i]))
				return 0;
		have -= n * sizeof(ids[0]);
		memmove(ids, ids + n, have);
	}
	return got < 0 ? -errno : 0;
}

static bool is_wanted(void *ctx, const struct proc_identity *id)
{
	struct proc_identity *wanted = ctx;

	if (id->tgid != wanted->tgid)
		return false;
	*wanted = *id;
	return true;
}

int probes_identify(struct probes *p, pid_t tgid, uint64_t *start_ns, uint32_t *exec_id)
{
	union bpf_iter_link_info info = {.task = {.pid = (uint32_t)tgid}};
	LIBBPF_OPTS(bpf_iter_attach_opts, opts, .link_info = &info, .link_info_len = sizeof(info));
	struct bpf_link *link = bpf_program__attach_iter(p->skel->progs.proc_list, &opts);
	struct proc_identity found = {.tgid = (uint32_t)tgid};
	int fd, err;

	if (!link && errno == ESRCH)
		return -ESRCH;
	if (!link) /* before 6.1 there is no filter: all processes are listed */
		link = bpf_program__attach_iter(p->skel->progs.proc_list, NULL);
	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	err = fd < 0 ? -errno : read_identities(fd, is_wanted, &found);
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
	*start_ns = found.start_ns;
	*exec_id = found.exec_id;
	return err ? err : found.start_ns ? 0 : -ESRCH;
}

/* The kernel sets others of them at the same time. */
static void hint_target(struct probes *p, uint32_t tgid)
{
	__atomic_fetch_or(&p->skel->bss->target_hints[tgid % LIMIT_TARGET_HINTS], HINT_TARGET, __ATOMIC_SEQ_CST);
}

int probes_add_target(struct probes *p, pid_t tgid, uint64_t start_ns)
{
	struct target t = {0};
	uint32_t exec_id, key = (uint32_t)tgid;
	uint64_t exact_ns = 0;
	int err;

	if (tgid == getpid())
		return -EINVAL;
	err = probes_identify(p, tgid, &exact_ns, &exec_id);
	if (err)
		return err;
	if (start_ns && (exact_ns > start_ns ? exact_ns - start_ns : start_ns - exact_ns) > START_TOLERANCE_NS)
		return -ESRCH; /* the pid was given to another process */
	t.start_ns = exact_ns;
	hint_target(p, key);
	syscalls_expect(p->syscalls, clock_boot_ns());
	syscalls_update(p->syscalls, clock_boot_ns());
	return bpf_map_update_elem(bpf_map__fd(p->skel->maps.targets), &key, &t, BPF_ANY) ? -errno : 0;
}

struct adding {
	struct probes *p;
	void (*fn)(void *ctx, pid_t tgid, uint64_t start_ns, uint32_t exec_id);
	void *ctx;
	int err;
};

static bool add_listed(void *ctx, const struct proc_identity *id)
{
	struct adding *a = ctx;
	struct target t = {.start_ns = id->start_ns};

	if (id->tgid == (uint32_t)getpid())
		return false;
	hint_target(a->p, id->tgid);
	if (bpf_map_update_elem(bpf_map__fd(a->p->skel->maps.targets), &id->tgid, &t, BPF_ANY)) {
		a->err = -errno;
		return true;
	}
	a->fn(a->ctx, (pid_t)id->tgid, id->start_ns, id->exec_id);
	return false;
}

int probes_add_all(struct probes *p, void (*fn)(void *ctx, pid_t tgid, uint64_t start_ns, uint32_t exec_id), void *ctx)
{
	struct adding a = {.p = p, .fn = fn, .ctx = ctx};
	struct bpf_link *link = bpf_program__attach_iter(p->skel->progs.proc_list, NULL);
	int fd, err;

	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	err = fd < 0 ? -errno : read_identities(fd, add_listed, &a);
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
	return err ? err : a.err;
}

void probes_confirm_target(struct probes *p, pid_t tgid)
{
	int fd = bpf_map__fd(p->skel->maps.targets);
	uint32_t key = (uint32_t)tgid;
	struct target t;

	if (bpf_map_lookup_elem(fd, &key, &t))
		return;
	t.provisional = 0;
	bpf_map_update_elem(fd, &key, &t, BPF_EXIST);
}

void probes_drop_target(struct probes *p, pid_t tgid)
{
	uint32_t key = (uint32_t)tgid;

	bpf_map_delete_elem(bpf_map__fd(p->skel->maps.targets), &key);
	__atomic_fetch_add(&p->skel->data->target_epoch, 1, __ATOMIC_SEQ_CST); /* after: threads look again */
	reclaim_process(p->reclaim, key);
}

bool probes_has_target(const struct probes *p, uint32_t tgid, uint64_t start_ns)
{
	struct target t;

	return !bpf_map_lookup_elem(bpf_map__fd(p->skel->maps.targets), &tgid, &t) && t.start_ns == start_ns &&
	       !t.provisional;
}

void probes_each_target(const struct probes *p, void (*fn)(void *ctx, uint32_t tgid, uint64_t start_ns), void *ctx)
{
	int fd = bpf_map__fd(p->skel->maps.targets);
	uint32_t key, *last = NULL;
	struct target t;

	/* When one is taken out meanwhile it may begin anew: at most so many. */
	for (unsigned i = 0; i < LIMIT_TARGETS && !bpf_map_get_next_key(fd, last, &key); i++) {
		last = &key;
		if (!bpf_map_lookup_elem(fd, &key, &t) && !t.provisional)
			fn(ctx, key, t.start_ns);
	}
}

/* --- connections of no interest ---------------------------------------------------------------------------------- */

int probes_ignore(struct probes *p, uint32_t gen, uint32_t answers, bool on, bool for_good)
{
	uint32_t *slot = &p->skel->bss->ignored[gen % LIMIT_IGNORED];
	uint32_t have = __atomic_load_n(slot, __ATOMIC_SEQ_CST);
	uint32_t want = !on ? 0 : for_good ? gen | IGNORED_FOR_GOOD : gen;

	if (have && (have & ~IGNORED_FOR_GOOD) != gen)
		return on ? -EBUSY : 0;
	if (on)
		__atomic_store_n(&p->skel->bss->ignored_answers[gen % LIMIT_IGNORED], answers, __ATOMIC_SEQ_CST);
	/* The kernel takes entries out, at the same time. */
	while (have != want &&
	       !__atomic_compare_exchange_n(slot, &have, want, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return 0;
}

void probes_pass(struct probes *p, uint32_t gen, enum dir dir, uint64_t until)
{
	struct passed *slot = &p->skel->bss->passed[gen % LIMIT_PASSED];

	if (slot->gen != gen) { /* nobody's, until it is whole */
		__atomic_store_n(&slot->gen, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&slot->until[0], 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&slot->until[1], 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&slot->gen, gen, __ATOMIC_SEQ_CST);
	}
	__atomic_store_n(&slot->until[dir], until, __ATOMIC_SEQ_CST);
}

bool probes_sees_syscalls(const struct probes *p)
{
	return syscalls_attached(p->syscalls);
}

/* --- the wire ---------------------------------------------------------------------------------------------------- */

/* Reads what wire_list writes. */
static void read_wires(struct probes *p, int fd)
{
	struct ev_wire wires[16];
	size_t have = 0;
	ssize_t got;

	while ((got = read(fd, (char *)wires + have, sizeof(wires) - have)) > 0) {
		size_t n = (have + (size_t)got) / sizeof(wires[0]);

		for (size_t i = 0; i < n; i++) {
			if (wires[i].h.ts_ns > p->wires_ns)
				p->wires_ns = wires[i].h.ts_ns;
			if (wires[i].turn)
				p->cfg.on_record(p->cfg.ctx, &wires[i], sizeof(wires[i]));
		}
		have += (size_t)got - n * sizeof(wires[0]);
		memmove(wires, wires + n, have);
	}
}

void probes_wires(struct probes *p)
{
	union bpf_iter_link_info info = {.map = {.map_fd = (uint32_t)bpf_map__fd(p->skel->maps.wires)}};
	LIBBPF_OPTS(bpf_iter_attach_opts, opts, .link_info = &info, .link_info_len = sizeof(info));
	struct bpf_link *link;
	int fd;

	if (!p->features.sock_length)
		return;
	p->skel->bss->wire_since_ns = p->wires_ns;
	link = bpf_program__attach_iter(p->skel->progs.wire_list, &opts);
	fd = link ? bpf_iter_create(bpf_link__fd(link)) : -1;
	if (fd >= 0) {
		read_wires(p, fd);
		close(fd);
	}
	bpf_link__destroy(link);
}

/* --- records ----------------------------------------------------------------------------------------------------- */

int probes_fd(const struct probes *p)
{
	return ring_buffer__epoll_fd(p->ring);
}

int probes_consume(struct probes *p)
{
	int n;

	tails_collect(p->tails);
	if (p->alloc)
		allocwatch_collect(p->alloc);
	look_at_ring(p, false);
	p->drained = 0;
	n = ring_buffer__consume(p->ring);
	tails_tell(p->tails, 0, p->cfg.on_record, p->cfg.ctx);
	if (p->alloc && n >= 0) { /* read to its end */
		allocwatch_tell(p->alloc);
		allocwatch_update(p->alloc, clock_boot_ns());
	}
	return n;
}

const struct progcost *probes_cost(const struct probes *p)
{
	return p->cost;
}

const struct overload *probes_overload(const struct probes *p)
{
	return &p->overload;
}

uint64_t probes_ring_peak(const struct probes *p)
{
	return p->skel->bss->ring_peak;
}

void probes_stats(struct probes *p, uint64_t *stats)
{
	int fd = bpf_map__fd(p->skel->maps.stats), i;
	uint64_t *per_cpu = calloc((size_t)p->cpus, sizeof(*per_cpu));
	uint32_t id;

	for (id = 0; id < ST_COUNT; id++) {
		stats[id] = 0;
		if (!per_cpu || bpf_map_lookup_elem(fd, &id, per_cpu))
			continue;
		for (i = 0; i < p->cpus; i++)
			stats[id] += per_cpu[i];
	}
	free(per_cpu);
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* What plain_list writes: cookies, sorted. NULL: it cannot be read, or there is no memory. */
static uint64_t *read_cookies(int fd, size_t *count)
{
	size_t size = 4096, len = 0;
	char *bytes = malloc(size), *more;
	ssize_t got = -1;

	while (bytes && (got = read(fd, bytes + len, size - len)) > 0) {
		len += (size_t)got;
		if (len < size)
			continue;
		size *= 2;
		more = realloc(bytes, size);
		if (!more)
			free(bytes);
		bytes = more;
	}
	if (!bytes || got < 0) {
		free(bytes);
		return NULL;
	}
	*count = len / sizeof(uint64_t);
	qsort(bytes, *count, sizeof(uint64_t), compare_u64);
	return (uint64_t *)(void *)bytes;
}

/* Closes those Unix sockets and pipes that no target holds any more. */
static void sweep_unix(struct probes *p, uint64_t now_ns)
{
	size_t pair_count; /* first: what comes later is none of the list's business */
	uint64_t *pairs = syscalls_pairs(p->syscalls, &pair_count);
	struct bpf_link *link = bpf_program__attach_iter(p->skel->progs.plain_list, NULL);
	int fd = link ? bpf_iter_create(bpf_link__fd(link)) : -1;
	size_t count = 0;
	uint64_t *cookies = fd >= 0 ? read_cookies(fd, &count) : NULL;

	if (cookies)
		reclaim_unix_sweep(p->reclaim, cookies, count, now_ns, p->cfg.on_record, p->cfg.ctx);
	if (cookies)
		syscalls_forget(p->syscalls, pairs, pair_count, cookies, count);
	free(pairs);
	free(cookies);
	if (fd >= 0)
		close(fd);
	bpf_link__destroy(link);
}

void probes_tick(struct probes *p, uint64_t now_ns)
{
	progcost_tick(p->cost, now_ns);
	reclaim_tick(p->reclaim, now_ns);
	if (reclaim_unix_count(p->reclaim))
		syscalls_expect(p->syscalls, now_ns);
	syscalls_update(p->syscalls, now_ns);
	if ((reclaim_unix_count(p->reclaim) || p->skel->bss->stdio_any) && now_ns >= p->next_unix_ns) {
		sweep_unix(p, now_ns);
		p->next_unix_ns = now_ns + UNIX_INTERVAL_NS;
	}
	if (now_ns < p->next_sweep_ns)
		return;
	if (p->next_sweep_ns)
		reclaim_sweep(p->reclaim, now_ns);
	if (p->next_sweep_ns && p->alloc)
		reclaim_sweep_map(p->reclaim, bpf_map__fd(p->skel->maps.followed));
	if (p->next_sweep_ns && p->cfg.db)
		reclaim_sweep_map(p->reclaim, bpf_map__fd(p->skel->maps.sqlite_runs));
	p->next_sweep_ns = now_ns + SWEEP_INTERVAL_NS;
}
