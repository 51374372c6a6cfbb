/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections as the kernel keeps them: which are of no interest, where they stand, which are over. */
#include "probes_parts.h"

#include <unistd.h>

#include <bpf/bpf.h>

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

/* --- what is over ------------------------------------------------------------------------------------------------ */

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
