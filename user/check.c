/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <linux/types.h>

#include "attach/maps.h"
#include "attach/mapwatch.h"
#include "attach/probes.h"
#include "attach/target.h"
#include "base/log.h"
#include "bpf/event.h"
#include "privilege.h"
#include "spawn.h"

/* Probes are not set here: what can be found and how it would be probed is told by the finder alone. */

struct check {
	pid_t pid;
	unsigned good, bad;
	unsigned processes;
	const struct target_filter *filter;
};

/* Go: one line for all the places where a function returns. */
static unsigned print_returns(const struct tls_find *found, unsigned first)
{
	unsigned end = first;

	while (end < found->count && found->funcs[end].abi == TLS_ABI_GO_RETURN)
		end++;
	printf("    %-40s at", "  and where it returns");
	for (unsigned i = first; i < end; i++)
		printf(" 0x%" PRIx64, found->funcs[i].site.off);
	printf(" %s\n", site_class_name(found->funcs[first].site.class));
	return end;
}

static void print_functions(const struct tls_find *found)
{
	unsigned i = 0;

	while (i < found->count) {
		const struct tls_func *f = &found->funcs[i];

		if (f->abi == TLS_ABI_GO_RETURN) {
			i = print_returns(found, i);
			continue;
		}
		printf("    %-40s at 0x%-8" PRIx64 " %-14s %s\n", f->name, f->site.off, site_class_name(f->site.class),
		       f->site.insn);
		i++;
	}
}

static void print_stack(struct check *c, const char *file, const struct elf *elf, const struct tls_find *found)
{
	static const char *const confidence[] = {[TLS_NAMED] = "named", [TLS_INFERRED] = "inferred"};

	if (!found->count) {
		printf("  %s: %s%srefused: %s (build id %s)\n", file, found->stack ? found->stack : "",
		       found->stack ? ": " : "", found->reason, *elf->build_id ? elf->build_id : "none");
		c->bad++;
		return;
	}
	printf("  %s: %s, %s by %s\n", file, found->stack, confidence[found->confidence], found->method);
	print_functions(found);
	if (*found->reason)
		printf("    note: %s\n", found->reason);
	c->good++;
}

/* A file that is no program is none of ours; one that cannot be read may hold a TLS stack. */
static void check_file(struct check *c, const char *path, const char *shown)
{
	struct tls_finds found;
	char text[512];
	struct elf elf;
	struct stat st;
	int err = stat(path, &st) ? -errno : 0;

	if (!err && !S_ISREG(st.st_mode))
		return;
	if (!err)
		err = elf_map(&elf, path);
	if (err == -ENOEXEC)
		return;
	log_safe(text, sizeof(text), sv_of(shown));
	if (!err) {
		err = tlsfind(&elf, &found);
		err = err == -ENOMEM || err == -EIO ? err : 0;
		if (err)
			elf_unmap(&elf);
	}
	if (err) {
		printf("  %s: not looked at: %s\n", text, strerror(-err));
		c->bad++;
		return;
	}
	for (unsigned i = 0; i < found.count; i++)
		print_stack(c, text, &elf, &found.stacks[i]);
	elf_unmap(&elf);
}

static void on_map(void *ctx, const struct map_entry *m)
{
	struct check *c = ctx;
	char path[MAPS_PATH_BYTES];

	check_file(c, maps_path(c->pid, m, path), m->path);
}

static void check_process(void *ctx, const struct proc_stat *p)
{
	struct check *c = ctx;
	unsigned before = c->good + c->bad;
	char exe[512];
	int err;

	if (!*p->exe && !p->args_len) /* a thread of the kernel, or it has ended */
		return;
	c->pid = p->pid;
	c->processes++;
	printf("pid %d: %s\n", p->pid, log_safe(exe, sizeof(exe), sv_of(*p->exe ? p->exe : p->comm)));
	err = maps_each(p->pid, on_map, c);
	if (err) {
		printf("  its files cannot be read: %s\n", strerror(-err));
		c->bad++;
	} else if (c->good + c->bad == before) {
		printf("  no TLS functions in the files that it maps now\n");
	}
}

static bool check_match(void *ctx, const struct proc_stat *p)
{
	struct check *c = ctx;
	struct sv args = {p->args, p->args_len};

	if (target_filter_match(c->filter, p->pid, sv_of(p->exe), args))
		check_process(c, p);
	return true;
}

static void drop_record(void *ctx, const void *bytes, size_t len)
{
	(void)ctx;
	(void)bytes;
	(void)len;
}

static bool check_kernel(void)
{
	static const char *const modes[] = {"uprobe session links", "uprobe multi links", "perf uprobes"};
	static const char *const allocs[] = {"no (uprobe_multi links are missing)", "yes, but not what is freed",
					     "yes"};
	struct probes_config cfg = {.ring_bytes = 65536, .on_record = drop_record};
	const struct probes_features *f;
	struct mapwatch *events;
	struct probes *p;
	struct utsname u;

	if (!uname(&u))
		printf("kernel: %s %s\n", u.release, u.machine);
	p = probes_open(&cfg);
	if (!p) {
		printf("refused: %s\n", probes_why());
		if (probes_hint())
			printf("hint: %s\n", probes_hint());
		return false;
	}
	f = probes_features(p);
	printf("attach: %s\n", modes[f->mode]);
	printf("records: %s\n", f->read_dynptr ? "of the actual length" : "in size classes");
	printf("sockets: %s; retransmits: %s; resets: %s; round-trip time: %s\n",
	       f->sock_length ? "yes" : "by system calls", f->tcp_retransmit ? "yes" : "no",
	       f->tcp_reset ? "yes" : "no", f->tcp_rtt ? "yes" : "no");
	/* Clocks, page faults and this are the same kind of event. */
	events = mapwatch_new(&(struct mapwatch_sink){0});
	printf("sampling: %s; allocations: %s\n", events ? "yes" : strerror(errno), allocs[f->alloc]);
	mapwatch_free(events);
	if (*f->degraded)
		printf("degraded: %s\n", f->degraded);
	probes_close(p);
	return true;
}

static void command_path(void *ctx, const char *path)
{
	check_file(ctx, path, path);
}

/* 0 or -errno, printed. */
static int check_targets(const struct options *o, struct check *c)
{
	struct target_filter filter;
	char why[128];
	int err = 0;

	for (size_t i = 0; i < o->pid_count && !err; i++) {
		unsigned before = c->processes;

		err = target_tree(o->pids[i], check_process, c);
		if (!err && c->processes == before)
			err = -ENOENT;
		if (err)
			log_error("pid %d: %s", o->pids[i],
				  err == -ENOENT ? target_why_none(o->pids[i]) : strerror(-err));
	}
	if (o->name) {
		err = target_filter_init(&filter, o->name, why, sizeof(why));
		if (err) {
			log_error("-n '%s': %s", o->name, why);
			return err;
		}
		c->filter = &filter;
		target_each(check_match, c);
		target_filter_release(&filter);
		if (!c->processes)
			printf("no process matches\n");
	}
	return err;
}

int check_run(const struct options *o)
{
	struct check c = {0};
	bool kernel;
	int err;

	spawn_raise_limits(); /* as a run does */
	kernel = check_kernel();
	privilege_trace(false, !o->no_sandbox); /* files of strangers are only looked at */
	err = check_targets(o, &c);
	if (o->argv) {
		printf("%s and what it will map:\n", o->argv[0]);
		err = target_files_of_command(o->argv[0], command_path, &c);
		if (!err)
			err = target_files_of_package(o->argv[0], command_path, &c);
		if (err)
			log_error("%s: %s", o->argv[0], strerror(-err));
	}
	if (!o->pid_count && !o->name && !o->argv) {
		printf("TLS libraries of this system:\n");
		target_system_tls(command_path, &c);
	}
	if (fflush(stdout) && errno != EPIPE) { /* a reader that went away has what it wanted */
		log_error("cannot write standard output: %s", strerror(errno));
		return 1;
	}
	if (!kernel || err || (c.good == 0 && (o->pid_count || o->name || o->argv)))
		return 1;
	return c.bad ? 3 : 0;
}
