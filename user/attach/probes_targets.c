/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who is traced: the kernel's set of targets, and what it knows of a process. */
#include "probes_parts.h"

#include <unistd.h>

#include <bpf/bpf.h>

#include "base/clock.h"
#include "iterator.h"
#include "perfbpf.skel.h"
#include "syscalls.h"

#define START_TOLERANCE_NS 20000000ull /* /proc tells start times in clock ticks */

static bool is_wanted(void *ctx, const void *record)
{
	struct proc_identity *wanted = ctx;
	const struct proc_identity *id = record;

	if (id->tgid != wanted->tgid)
		return false;
	*wanted = *id;
	return true;
}

int probes_identify(struct probes *p, pid_t tgid, uint64_t *start_ns, uint32_t *exec_id)
{
	union bpf_iter_link_info over = {.task = {.pid = (uint32_t)tgid}};
	struct proc_identity found = {.tgid = (uint32_t)tgid};
	int err = iterator_read(p->skel->progs.proc_list, &over, sizeof(found), is_wanted, &found);

	if (err && err != -ESRCH) /* before 6.1 there is no filter: all processes are listed */
		err = iterator_read(p->skel->progs.proc_list, NULL, sizeof(found), is_wanted, &found);
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

static bool add_listed(void *ctx, const void *record)
{
	const struct proc_identity *id = record;
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
	int err = iterator_read(p->skel->progs.proc_list, NULL, sizeof(struct proc_identity), add_listed, &a);

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
