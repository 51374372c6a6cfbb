/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "selfcost.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

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

int selfcost_json(struct buf *out, const struct probes *p, uint32_t ring_bytes, uint64_t held_ns)
{
	static const char *const modes[] = {"uprobe.session", "uprobe.multi", "perf uprobe"};
	const struct probes_features *f = probes_features(p);
	int64_t anonymous = anonymous_bytes();
	struct rusage u;
	struct json j;

	json_init(&j, out);
	json_object(&j, NULL);
	json_string(&j, "attach", sv_of(modes[f->mode]));
	json_uint(&j, "ring_bytes", ring_bytes);
	if (held_ns)
		json_double(&j, "exec_held_ms", (double)held_ns / 1e6, 3);
	if (anonymous >= 0)
		json_int(&j, "anonymous_bytes", anonymous);
	if (!getrusage(RUSAGE_SELF, &u))
		json_double(&j, "cpu_ms",
			    (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
				    (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3,
			    3);
	json_end_object(&j);
	return j.err;
}
