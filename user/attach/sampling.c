/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sampling.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/libbpf.h>

struct sampling {
	unsigned count;
	struct bpf_link *links[]; /* own their events */
};

/* 0; -ENODEV: that processor is off line; -errno. */
static int start_on(struct sampling *s, struct bpf_program *program, uint64_t event, uint32_t period, int cpu)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = event,
		.sample_period = period,
		.exclude_idle = 1,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC), err;
	struct bpf_link *link;

	if (fd < 0)
		return -errno;
	link = bpf_program__attach_perf_event(program, fd);
	if (!link) {
		err = -errno;
		close(fd);
		return err;
	}
	s->links[s->count++] = link;
	return 0;
}

struct sampling *sampling_start(struct bpf_program *program, uint64_t event, uint32_t period)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	struct sampling *s = calloc(1, sizeof(*s) + (cpus > 0 ? (size_t)cpus : 0) * sizeof(struct bpf_link *));
	int err = -ENOMEM;

	if (!s)
		goto fail;
	for (int i = 0; i < cpus; i++) {
		err = start_on(s, program, event, period, i);
		if (err && err != -ENODEV)
			goto fail;
	}
	if (s->count)
		return s;
	err = -ENODEV;
fail:
	sampling_stop(s);
	errno = -err;
	return NULL;
}

void sampling_stop(struct sampling *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->count; i++)
		bpf_link__destroy(s->links[i]);
	free(s);
}
