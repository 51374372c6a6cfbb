/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections as the kernel keeps them: which are of no interest, where they stand, which are over. */
#include "probes_parts.h"

#include "base/array.h"
#include "iterator.h"
#include "perfbpf.skel.h"
#include "syscalls.h"

#define SWEEP_INTERVAL_NS 30000000000ull
#define UNIX_INTERVAL_NS  2000000000ull /* how late the closing of a Unix socket may be noticed */

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

/* --- the wire ---------------------------------------------------------------------------------------------------- */

static bool push_wire(void *ctx, const void *record)
{
	const struct ev_wire *wire = record;
	struct probes *p = ctx;

	if (wire->h.ts_ns > p->wires_ns)
		p->wires_ns = wire->h.ts_ns;
	if (wire->turn)
		p->cfg.on_record(p->cfg.ctx, wire, sizeof(*wire));
	return false;
}

void probes_wires(struct probes *p)
{
	union bpf_iter_link_info over = {.map = {.map_fd = (uint32_t)bpf_map__fd(p->skel->maps.wires)}};

	if (!p->features.sock_length)
		return;
	p->skel->bss->wire_since_ns = p->wires_ns;
	iterator_read(p->skel->progs.wire_list, &over, sizeof(struct ev_wire), push_wire, p);
}

struct asked {
	void (*fn)(void *ctx, const struct ev_wire *wire);
	void *ctx;
};

static bool tell_asked(void *ctx, const void *record)
{
	const struct asked *a = ctx;

	a->fn(a->ctx, record);
	return false;
}

void probes_asked(struct probes *p, void (*fn)(void *ctx, const struct ev_wire *wire), void *ctx)
{
	struct asked a = {fn, ctx};

	if (p->features.sock_length)
		iterator_read(p->skel->progs.asked_list, NULL, sizeof(struct ev_wire), tell_asked, &a);
}

/* --- what is over ------------------------------------------------------------------------------------------------ */

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

struct cookies {
	uint64_t *list;
	size_t count, room;
	bool no_memory;
};

static bool add_cookie(void *ctx, const void *record)
{
	struct cookies *c = ctx;

	c->no_memory = !array_grow(&c->list, c->count, &c->room, sizeof(*c->list));
	if (!c->no_memory)
		memcpy(&c->list[c->count++], record, sizeof(*c->list));
	return c->no_memory;
}

/* What plain_list writes, sorted. False: it cannot be read, or there is no memory. */
static bool read_cookies(const struct probes *p, struct cookies *c)
{
	if (!array_grow(&c->list, 0, &c->room, sizeof(*c->list)) ||
	    iterator_read(p->skel->progs.plain_list, NULL, sizeof(*c->list), add_cookie, c) || c->no_memory)
		return false;
	qsort(c->list, c->count, sizeof(*c->list), compare_u64);
	return true;
}

/* Closes those Unix sockets and pipes that no target holds any more. */
static void sweep_unix(struct probes *p, uint64_t now_ns)
{
	size_t pair_count; /* first: what comes later is none of the list's business */
	uint64_t *pairs = syscalls_pairs(p->syscalls, &pair_count);
	struct cookies c = {0};

	if (read_cookies(p, &c)) {
		reclaim_unix_sweep(p->reclaim, c.list, c.count, now_ns, p->cfg.on_record, p->cfg.ctx);
		syscalls_forget(p->syscalls, pairs, pair_count, c.list, c.count);
	}
	free(pairs);
	free(c.list);
}

static bool no_record(void *ctx, const void *record)
{
	(void)ctx;
	(void)record;
	return false;
}

static void sweep_called(struct probes *p)
{
	union bpf_iter_link_info over = {.map = {.map_fd = (uint32_t)bpf_map__fd(p->skel->maps.called)}};

	if (!p->features.sock_length)
		iterator_read(p->skel->progs.called_sweep, &over, sizeof(uint64_t), no_record, NULL);
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
	if (p->next_sweep_ns) {
		reclaim_sweep(p->reclaim, now_ns);
		sweep_called(p);
	}
	if (p->next_sweep_ns && p->alloc)
		reclaim_sweep_map(p->reclaim, bpf_map__fd(p->skel->maps.followed));
	if (p->next_sweep_ns && p->cfg.db)
		reclaim_sweep_map(p->reclaim, bpf_map__fd(p->skel->maps.sqlite_runs));
	p->next_sweep_ns = now_ns + SWEEP_INTERVAL_NS;
}
