/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "selfcost.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/json.h"

static void add_file(void *ctx, const struct probes_file *f)
{
	struct json *j = ctx;

	json_object(j, NULL);
	json_string(j, "file", sv_of(f->shown_path));
	json_string(j, "tls", sv_of(f->found->stack));
	json_string(j, "method", sv_of(f->found->method));
	json_array(j, "functions");
	for (unsigned i = 0; i < f->found->count; i++) {
		const struct tls_func *fn = &f->found->funcs[i];
		char off[32];

		snprintf(off, sizeof(off), "0x%" PRIx64, fn->site.off);
		json_object(j, NULL);
		json_string(j, "name", sv_of(fn->name));
		json_string(j, "offset", sv_of(off));
		json_string(j, "class", sv_of(site_class_name(fn->site.class)));
		json_string(j, "instruction", sv_of(fn->site.insn));
		if (f->status[i])
			json_string(j, "error", sv_of(strerror(-f->status[i])));
		json_end_object(j);
	}
	json_end_array(j);
	json_end_object(j);
}

static void add_ns(void *ctx, const struct progcost_program *p)
{
	*(uint64_t *)ctx += p->ns;
}

/* Of one CPU, while the account was kept. */
static double share_of(const struct progcost *c, uint64_t *sampled_ns)
{
	uint64_t ns = 0;

	*sampled_ns = progcost_each(c, add_ns, &ns);
	return *sampled_ns ? (double)ns / (double)*sampled_ns : 0;
}

int selfcost_attach_json(struct buf *out, const struct probes *p)
{
	struct json j;

	json_init(&j, out);
	json_array(&j, NULL);
	probes_each_file(p, add_file, &j);
	json_end_array(&j);
	return j.err;
}

/* RssAnon: what we keep, without the ring (its pages are shared memory) and the program text. -1: unknown. */
static int64_t anonymous_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	int64_t kib = -1;

	if (!f)
		return -1;
	while (kib < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %" SCNd64, &kib) != 1)
			kib = -1;
	fclose(f);
	return kib < 0 ? -1 : kib * 1024;
}

/* Blocks that were asked for and not given back, in every arena. What is anonymous beyond them lies free between them.
 */
static uint64_t heap_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return (uint64_t)m.uordblks + m.hblkhd;
}

struct programs {
	struct json *j;
	uint64_t ns;
};

static void add_program(void *ctx, const struct progcost_program *p)
{
	struct programs *all = ctx;

	all->ns += p->ns;
	json_object(all->j, NULL);
	json_string(all->j, "name", sv_of(p->name));
	json_uint(all->j, "runs", p->runs);
	json_double(all->j, "ns_per_run", (double)p->ns / (double)p->runs, 1);
	json_end_object(all->j);
}

/* Nothing where the kernel keeps no account. */
static void add_programs(struct json *j, const struct progcost *c)
{
	struct programs all = {j, 0};
	uint64_t sampled_ns;

	if (!share_of(c, &sampled_ns) && !sampled_ns)
		return;
	json_object(j, "bpf");
	json_double(j, "sampled_ms", (double)sampled_ns / 1e6, 3);
	json_array(j, "programs");
	progcost_each(c, add_program, &all);
	json_end_array(j);
	json_double(j, "cpu_share", (double)all.ns / (double)sampled_ns, 6);
	json_end_object(j);
}

static double own_cpu_s(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u))
		return 0;
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

void selfcost_begin(struct selfcost *c, uint64_t now_ns)
{
	c->began_ns = now_ns;
	c->start_cpu_s = own_cpu_s();
}

int selfcost_json(struct buf *out, const struct probes *p, const struct selfcost *c)
{
	static const char *const modes[] = {"uprobe.session", "uprobe.multi", "perf uprobe"};
	const struct probes_features *f = probes_features(p);
	int64_t anonymous = anonymous_bytes();
	struct json j;

	json_init(&j, out);
	json_object(&j, NULL);
	json_string(&j, "attach", sv_of(modes[f->mode]));
	json_uint(&j, "ring_bytes", c->ring_bytes);
	json_uint(&j, "ring_peak_bytes", probes_ring_peak(p));
	json_uint(&j, "overload_level", probes_overload(p)->highest);
	json_double(&j, "overload_ms", (double)overload_spent_ns(probes_overload(p), clock_boot_ns()) / 1e6, 3);
	add_programs(&j, probes_cost(p));
	if (c->held_ns)
		json_double(&j, "exec_held_ms", (double)c->held_ns / 1e6, 3);
	if (anonymous >= 0)
		json_int(&j, "anonymous_bytes", anonymous);
	json_uint(&j, "heap_bytes", heap_bytes());
	json_double(&j, "cpu_ms", own_cpu_s() * 1e3, 3);
	if (c->began_ns) {
		json_double(&j, "start_ms", (double)(c->began_ns - c->start_ns) / 1e6, 3);
		json_double(&j, "start_cpu_ms", c->start_cpu_s * 1e3, 3);
	}
	json_end_object(&j);
	return j.err;
}

void selfcost_line(char *line, size_t size, const struct probes *p, const struct selfcost *c, uint64_t now_ns)
{
	double run_s = now_ns > c->began_ns ? (double)(now_ns - c->began_ns) / 1e9 : 1;
	uint64_t sampled_ns;
	double share = share_of(probes_cost(p), &sampled_ns);
	char programs[64] = "probes not measured";

	if (sampled_ns)
		snprintf(programs, sizeof(programs), "probes %.2f%% of a CPU (sampled)", 100 * share);
	snprintf(line, size, "tracing cost: %s; perfbpf %.2f%%, %.2f s to start, %.1f MiB; ring at most %.0f%% full",
		 programs, 100 * (own_cpu_s() - c->start_cpu_s) / run_s, c->start_cpu_s,
		 (double)anonymous_bytes() / (1 << 20), 100 * (double)probes_ring_peak(p) / (double)c->ring_bytes);
}
