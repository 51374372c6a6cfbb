/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "progcost.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

struct entry {
	struct bpf_program *program;
	uint64_t begin_runs, begin_ns; /* as the moment began: others may keep the account all the time */
	uint64_t runs, ns;
};

struct progcost {
	int fd; /* the kernel keeps the account while this is open; -1: it does not */
	bool refused;
	int (*enable)(void);
	uint64_t next_ns; /* when the next moment begins, or this one ends; 0: before the first tick */
	uint64_t begin_ns, sampled_ns;
	unsigned count;
	struct entry entries[];
};

struct progcost *progcost_new(const struct bpf_object_skeleton *programs, int (*enable)(void))
{
	struct progcost *c = calloc(1, sizeof(*c) + (size_t)programs->prog_cnt * sizeof(c->entries[0]));

	if (!c)
		return NULL;
	c->fd = -1;
	c->enable = enable;
	for (int i = 0; i < programs->prog_cnt; i++)
		c->entries[c->count++].program = *programs->progs[i].prog;
	return c;
}

void progcost_free(struct progcost *c)
{
	if (!c)
		return;
	if (c->fd >= 0)
		close(c->fd);
	free(c);
}

static bool account(const struct entry *e, uint64_t *runs, uint64_t *ns)
{
	struct bpf_prog_info info = {0};
	uint32_t len = sizeof(info);
	int fd = bpf_program__fd(e->program);

	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &len))
		return false;
	*runs = info.run_cnt;
	*ns = info.run_time_ns;
	return true;
}

static void begin(struct progcost *c, uint64_t now_ns)
{
	c->fd = c->enable ? c->enable() : -1;
	if (c->fd < 0) {
		c->refused = true;
		return;
	}
	for (unsigned i = 0; i < c->count; i++)
		account(&c->entries[i], &c->entries[i].begin_runs, &c->entries[i].begin_ns);
	c->begin_ns = now_ns;
	c->next_ns = now_ns + PROGCOST_WINDOW_NS;
}

static void end(struct progcost *c, uint64_t now_ns)
{
	for (unsigned i = 0; i < c->count; i++) {
		struct entry *e = &c->entries[i];
		uint64_t runs, ns;

		if (!account(e, &runs, &ns))
			continue;
		e->runs += runs - e->begin_runs;
		e->ns += ns - e->begin_ns;
	}
	close(c->fd);
	c->fd = -1;
	c->sampled_ns += now_ns - c->begin_ns;
	c->next_ns = c->begin_ns + PROGCOST_INTERVAL_NS;
}

void progcost_tick(struct progcost *c, uint64_t now_ns)
{
	if (!c || c->refused)
		return;
	if (!c->next_ns)
		c->next_ns = now_ns + PROGCOST_FIRST_NS;
	if (now_ns < c->next_ns)
		return;
	if (c->fd < 0)
		begin(c, now_ns);
	else
		end(c, now_ns);
}

void progcost_stop(struct progcost *c, uint64_t now_ns)
{
	if (!c)
		return;
	if (c->fd >= 0)
		end(c, now_ns);
	c->refused = true;
}

uint64_t progcost_each(const struct progcost *c, void (*fn)(void *ctx, const struct progcost_program *p), void *ctx)
{
	if (!c)
		return 0;
	for (unsigned i = 0; i < c->count; i++) {
		const struct entry *e = &c->entries[i];
		struct progcost_program p = {bpf_program__name(e->program), e->runs, e->ns};

		if (e->runs)
			fn(ctx, &p);
	}
	return c->sampled_ns;
}
