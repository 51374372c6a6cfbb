/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "discover_parts.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/clock.h"
#include "base/log.h"

#define DISCOVER_DETACHED_MAX 64 /* remembered of those whose probes were removed */

struct use {
	struct file *file;
	struct use *next;
};

struct user { /* a process that maps probed files */
	pid_t pid;
	struct use *uses;
	UT_hash_handle hh;
};

static void user_free(struct discover *d, struct user *u)
{
	struct use *use, *next;

	LL_FOREACH_SAFE (u->uses, use, next) {
		free(use);
		d->use_count--;
	}
	HASH_DEL(d->users, u);
	free(u);
}

static void keep_file(struct discover *d, struct file *f)
{
	f->kept = true;
	if (f->idle)
		DL_DELETE(d->idle, f);
	f->idle = false;
}

static struct user *user_of(struct discover *d, pid_t pid)
{
	struct user *u;

	HASH_FIND(hh, d->users, &pid, sizeof(pid), u);
	if (u)
		return u;
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	u->pid = pid;
	HASH_ADD(hh, d->users, pid, sizeof(pid), u);
	if (u->hh.tbl)
		return u;
	free(u);
	return NULL;
}

static bool has_use(const struct user *u, const struct file *f)
{
	const struct use *use;

	LL_FOREACH (u->uses, use)
		if (use->file == f)
			return true;
	return false;
}

/* What cannot be noted is kept. */
static void add_use(struct discover *d, struct file *f, pid_t pid)
{
	struct user *u = d->use_count < DISCOVER_USES_MAX ? user_of(d, pid) : NULL;
	struct use *use;

	if (u && has_use(u, f))
		return;
	use = u ? malloc(sizeof(*use)) : NULL;
	if (!use) {
		keep_file(d, f);
		return;
	}
	use->file = f;
	LL_PREPEND(u->uses, use);
	d->use_count++;
	f->users++;
	if (f->idle)
		DL_DELETE(d->idle, f);
	f->idle = false;
}

/* Probes that were removed come back: what the finder said is still known. */
static void attach_again(struct discover *d, struct file *f, const char *path, const char *shown)
{
	char text[256];
	int err = probes_attach_again(d->probes, path, f->key.dev, f->key.ino);

	DL_DELETE(d->detached, f);
	d->detached_count--;
	f->detached = false;
	f->verdict.probed_ns = clock_boot_ns();
	if (!err)
		return;
	f->verdict = (struct verdict){.refused = true, .alloc = f->verdict.alloc};
	log_warn("%s: it cannot be probed again: %s", log_safe(text, sizeof(text), sv_of(shown)), strerror(-err));
}

void discover_note_use(struct discover *d, struct file *f, pid_t pid, const char *path, const char *shown)
{
	if (f->detached)
		attach_again(d, f, path, shown);
	if (pid && f->verdict.alloc)
		probes_alloc_map(d->probes, pid, f->verdict.alloc - 1);
	if (!(f->verdict.probed || f->verdict.other) || f->kept)
		return;
	if (!pid || d->keep)
		keep_file(d, f);
	else
		add_use(d, f, pid);
}

void discover_fork(struct discover *d, pid_t parent, pid_t child)
{
	struct user *u;
	struct use *use;

	probes_alloc_fork(d->probes, parent, child);
	HASH_FIND(hh, d->users, &parent, sizeof(parent), u);
	if (!u || parent == child)
		return;
	LL_FOREACH (u->uses, use)
		add_use(d, use->file, child);
}

void discover_forget(struct discover *d, pid_t pid)
{
	struct user *u;
	struct use *use;

	probes_alloc_forget(d->probes, pid);
	HASH_FIND(hh, d->users, &pid, sizeof(pid), u);
	if (!u)
		return;
	LL_FOREACH (u->uses, use) {
		struct file *f = use->file;

		if (--f->users || f->kept)
			continue;
		f->idle = true;
		f->idle_ns = clock_boot_ns();
		DL_APPEND(d->idle, f);
	}
	user_free(d, u);
}

void discover_keep(struct discover *d)
{
	d->keep = true;
}

void discover_tick(struct discover *d, uint64_t now_ns, uint64_t idle_ns)
{
	struct file *f = d->idle;

	ahead_free(d->ahead); /* what was to be asked for has been */
	d->ahead = NULL;
	if (!f || d->keep || now_ns < f->idle_ns || now_ns - f->idle_ns < idle_ns)
		return;
	DL_DELETE(d->idle, f);
	f->idle = false;
	f->detached = true;
	probes_detach_file(d->probes, f->key.dev, f->key.ino);
	DL_APPEND(d->detached, f);
	if (++d->detached_count > DISCOVER_DETACHED_MAX)
		discover_file_forget_detached(d, d->detached);
}

void discover_uses_free(struct discover *d)
{
	struct user *u, *next;

	HASH_ITER (hh, d->users, u, next)
		user_free(d, u);
}
