/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "meant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct meant {
	struct target_names late; /* as they were at their exec: who lives shortly is gone when it is told */
	uint64_t since_ns;	  /* exec of the first of them */
	uint64_t window_ns, told; /* since when, and how many lines there were from then on */
	uint64_t more;		  /* that there was no room for */
};

/* "sh[7] (a shell), node[8] (…) only start it" */
static void name_wrappers(const struct target_names *n, pid_t real, char *out, size_t size)
{
	char safe[64];
	size_t len = 0;

	out[0] = '\0';
	for (size_t i = 0; i < n->count && len < size - 1; i++) {
		const struct target_named *t = &n->list[i];

		if (t->wraps && t->real == real)
			len += (size_t)snprintf(out + len, size - len, "%s%s[%d] (%s)",
						len ? ", " : "; it is started by ",
						log_safe(safe, sizeof(safe), sv_of(t->name)), (int)t->pid,
						target_starter_text(t->wraps));
	}
}

/* How many are meant; `most` of them are told. */
static uint64_t tell(const struct target_names *n, uint64_t most)
{
	char wrappers[512], safe[64];
	uint64_t told = 0;

	for (size_t i = 0; i < n->count; i++) {
		const struct target_named *t = &n->list[i];

		if (!t->meant || told++ >= most)
			continue;
		name_wrappers(n, t->pid, wrappers, sizeof(wrappers));
		log_info("-n: %s[%d], by %s%s", log_safe(safe, sizeof(safe), sv_of(t->name)), (int)t->pid,
			 target_by_text(t->by), wrappers);
	}
	return told;
}

static void tell_more(uint64_t more)
{
	if (more)
		log_info("-n: and %" PRIu64 " more", more);
}

void meant_tell(const struct target_names *names, struct proc_stat *first)
{
	struct proc_stat p;
	bool found = false;
	uint64_t count;

	for (size_t i = 0; i < names->count && !found; i++) {
		found = names->list[i].meant && !target_read(names->list[i].pid, &p);
		if (found)
			*first = p;
	}
	count = tell(names, MEANT_TOLD_MAX);
	tell_more(count > MEANT_TOLD_MAX ? count - MEANT_TOLD_MAX : 0);
}

/* --- those that start later -------------------------------------------------------------------------------------- */

struct meant *meant_new(const struct target_filter *f)
{
	struct meant *m = calloc(1, sizeof(*m));

	if (m)
		target_names_init(&m->late, f);
	return m;
}

void meant_free(struct meant *m)
{
	if (m)
		target_names_release(&m->late);
	free(m);
}

static void copy(char *out, size_t size, struct sv text)
{
	size_t len = text.len < size - 1 ? text.len : size - 1;

	memcpy(out, text.len ? text.ptr : "", len);
	out[len] = '\0';
}

void meant_exec(struct meant *m, const struct rec_exec *r, uint64_t now_ns)
{
	struct proc_stat p = {
		.pid = (pid_t)r->proc.tgid, .ppid = (pid_t)r->ppid, .state = 'R', .start_ns = r->proc.start_ns};

	if (m->late.count >= MEANT_LATE_MAX) {
		m->more++;
		return;
	}
	if (!m->late.count)
		m->since_ns = now_ns;
	copy(p.comm, sizeof(p.comm), r->comm);
	copy(p.exe, sizeof(p.exe), r->filename);
	copy(p.args, sizeof(p.args), r->args);
	p.args_len = r->args.len < sizeof(p.args) - 1 ? r->args.len : sizeof(p.args) - 1;
	if (target_names_add(&m->late, &p))
		m->more++;
}

static void on_tree(void *ctx, const struct proc_stat *p)
{
	target_names_add(ctx, p); /* without memory for it, it is not told */
}

/* With what they have started meanwhile; of those that are gone what was known. */
static void look_again(const struct meant *m, struct target_names *now)
{
	for (size_t i = 0; i < m->late.count; i++) {
		const struct target_named *t = &m->late.list[i];
		struct proc_stat p;

		if (!target_read(t->pid, &p) && target_start_matches(&p, t->start_ns))
			target_tree(t->pid, on_tree, now);
		else
			target_names_keep(now, t);
	}
}

static void tell_late(struct meant *m)
{
	uint64_t most = MEANT_TOLD_MAX - m->told, count;
	struct target_names now;

	target_names_init(&now, m->late.filter);
	look_again(m, &now);
	target_names_solve(&now);
	count = tell(&now, most);
	m->told += count < most ? count : most;
	m->more += count < most ? 0 : count - most;
	target_names_release(&now);
	target_names_release(&m->late);
}

void meant_tick(struct meant *m, uint64_t now_ns)
{
	if (now_ns - m->window_ns >= MEANT_WINDOW_NS) {
		tell_more(m->more);
		m->more = m->told = 0;
		m->window_ns = now_ns;
	}
	if (m->late.count && now_ns - m->since_ns >= MEANT_SETTLE_NS)
		tell_late(m);
}

void meant_finish(struct meant *m)
{
	if (m->late.count)
		tell_late(m);
	tell_more(m->more);
}
