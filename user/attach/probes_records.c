/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records out of the ring, what waits in it, and the kernel's counters. */
#include "probes_parts.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "base/clock.h"
#include "base/log.h"
#include "perfbpf.skel.h"
#include "ringahead.h"
#include "syscalls.h"
#include "tails.h"

#define LOOK_RECORDS 64 /* so often a long drain looks at how full the ring is */

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

int probes_ring_open(struct probes *p)
{
	p->ring = ring_buffer__new(bpf_map__fd(p->skel->maps.rb), on_ring, p, NULL);
	if (!p->ring)
		return -errno;
	map_positions(p);
	return 0;
}

void probes_ring_close(struct probes *p)
{
	if (p->produced) {
		munmap((void *)p->consumed, (size_t)sysconf(_SC_PAGESIZE));
		munmap((void *)p->produced, (size_t)sysconf(_SC_PAGESIZE));
	}
	ring_buffer__free(p->ring);
}

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
