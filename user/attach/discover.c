/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "discover_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utlist.h>

#include "base/clock.h"
#include "base/fdname.h"
#include "maps.h"

/* A file that waits to be looked through; remembered as one without TLS until then. */
struct waiting {
	struct file_key key;
	int fd;
	char *shown;  /* owned */
	bool unasked; /* nobody maps it: what is refused there counts when somebody does */
	struct waiting *prev, *next;
};

struct discover *discover_new(struct probes *probes)
{
	struct discover *d = calloc(1, sizeof(*d));

	if (d)
		d->probes = probes;
	return d;
}

static void waiting_free(struct discover *d, struct waiting *w)
{
	DL_DELETE(d->waiting, w);
	d->waiting_count--;
	close(w->fd);
	free(w->shown);
	free(w);
}

void discover_free(struct discover *d)
{
	if (!d)
		return;
	discover_uses_free(d);
	while (d->waiting)
		waiting_free(d, d->waiting);
	ahead_free(d->ahead);
	discover_files_free(d);
	free(d);
}

/* --- files one after the other ----------------------------------------------------------------------------------- */

void discover_haste(struct discover *d, bool on)
{
	d->haste = on;
	d->haste_ns = clock_boot_ns();
}

/* False: it has to be looked through now. */
static bool put_off(struct discover *d, const struct file_key *key, const char *path, const char *shown)
{
	struct waiting *w;

	if (!d->haste || d->waiting_count >= DISCOVER_WAITING_MAX ||
	    (key->size < DISCOVER_BIG_BYTES && clock_boot_ns() - d->haste_ns < DISCOVER_HASTE_NS))
		return false;
	w = calloc(1, sizeof(*w));
	if (!w)
		return false;
	w->key = *key;
	w->shown = strdup(shown);
	w->fd = w->shown ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	if (w->fd < 0) {
		free(w->shown);
		free(w);
		return false;
	}
	w->unasked = d->unasked;
	DL_APPEND(d->waiting, w);
	d->waiting_count++;
	return true;
}

bool discover_next(struct discover *d, struct discover_result *r)
{
	struct waiting *w = d->waiting;
	struct verdict verdict = {0};
	struct file *f, *real;
	char path[FDNAME_BYTES];

	*r = (struct discover_result){0};
	if (!w)
		return false;
	fdname(w->fd, path);
	real = discover_file_probe(d, path, w->shown, &w->key, &verdict);
	f = discover_file_recall(d, &w->key);
	if (f && discover_file_is_passing(&verdict)) {
		discover_file_forget(d, f);
	} else if (f) {
		f->verdict = verdict;
		discover_file_show(f, real ? real : f);
		discover_note_use(d, f->real, 0, path, w->shown); /* who mapped it meanwhile is not known */
	}
	r->tls_files = verdict.probed;
	r->refused = w->unasked ? 0 : verdict.refused;
	r->alloc_files = verdict.alloc != 0;
	waiting_free(d, w);
	return true;
}

/* False with errno, 0: not a regular file. A FIFO or device that is mapped or named must not be opened. */
static bool read_key(const char *path, struct file_key *key)
{
	struct stat st;

	errno = 0;
	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return false;
	key->dev = st.st_dev;
	key->ino = st.st_ino;
	key->size = (uint64_t)st.st_size;
	key->mtime_s = st.st_mtim.tv_sec;
	key->mtime_ns = st.st_mtim.tv_nsec;
	return true;
}

/*
 * The file that a name leads to now; fdname() of it goes on leading there: what is looked through is what is probed,
 * although the name is in the hands of the process that is looked at. (With the places of functions of one file probes
 * of another would be in the middle of instructions, of everybody who maps it.) Not opened: it may be a device. -1 with
 * errno.
 */
static int hold(const char *path)
{
	return open(path, O_PATH | O_CLOEXEC);
}

static int hold_mapped(pid_t pid, const struct map_entry *m)
{
	char path[MAPS_PATH_BYTES];
	int fd = hold(maps_path(pid, m, path));

	/* Unmapped, or in two parts, since it was looked at: its name is left. */
	return fd < 0 && errno == ENOENT ? hold(maps_path(pid, m, path)) : fd;
}

static void add_verdict(struct discover_result *r, const struct verdict *v)
{
	r->tls_files += v->probed;
	r->refused += v->refused;
	r->reason = v->refused ? v->reason : r->reason;
	if (v->probed && v->probed_ns > r->probed_ns)
		r->probed_ns = v->probed_ns;
}

static void look_at_held(struct discover *d, pid_t pid, const char *path, const char *shown, struct discover_result *r)
{
	struct file_key key = {0};
	struct verdict verdict = {0};
	struct file *f, *real = NULL;

	if (!read_key(path, &key))
		return;
	f = discover_file_recall(d, &key);
	if (!f) {
		if (!put_off(d, &key, path, shown))
			real = discover_file_probe(d, path, shown, &key, &verdict);
		if (!discover_file_is_passing(&verdict))
			f = discover_file_remember(d, &key, verdict, real);
	}
	if (f) {
		discover_note_use(d, f->real, pid, path, shown);
		verdict = f->real->verdict;
	}
	add_verdict(r, &verdict);
}

/* pid: who maps it, 0: nobody yet. fd: hold()'s, taken. */
static void look_at(struct discover *d, pid_t pid, int fd, const char *shown, struct discover_result *r)
{
	struct verdict verdict = {0};
	char held[FDNAME_BYTES];

	if (fd < 0) {
		r->unreadable += errno == EACCES || errno == EPERM;
		discover_file_refuse(d, shown, -errno, &verdict);
		add_verdict(r, &verdict);
		return;
	}
	fdname(fd, held);
	look_at_held(d, pid, held, shown, r);
	close(fd);
}

struct walk {
	struct discover *d;
	struct discover_result r;
	pid_t pid;
};

static void on_map(void *ctx, const struct map_entry *m)
{
	struct walk *w = ctx;

	look_at(w->d, w->pid, hold_mapped(w->pid, m), m->path, &w->r);
}

struct discover_result discover_process(struct discover *d, pid_t pid)
{
	struct walk w = {.d = d, .pid = pid};

	w.r.err = maps_each(pid, on_map, &w);
	return w.r;
}

static void on_map_again(void *ctx, const struct map_entry *m)
{
	struct walk *w = ctx;
	struct file_key key = {0};
	char held[FDNAME_BYTES];
	struct file *f;
	int fd = hold_mapped(w->pid, m);

	if (fd < 0)
		return;
	fdname(fd, held);
	f = read_key(held, &key) ? discover_file_recall(w->d, &key) : NULL;
	if (f && f->real->verdict.probed && !f->real->detached)
		w->r.tls_files += !probes_renew_file(w->d->probes, held, f->real->key.dev, f->real->key.ino);
	close(fd);
}

unsigned discover_again(struct discover *d, pid_t pid)
{
	struct walk w = {.d = d, .pid = pid};

	maps_each(pid, on_map_again, &w);
	return w.r.tls_files;
}

struct discover_result discover_mapping(struct discover *d, pid_t pid, const struct map_entry *m)
{
	struct walk w = {.d = d, .pid = pid};

	on_map(&w, m);
	return w.r;
}

static void on_path(void *ctx, const char *path)
{
	struct walk *w = ctx;

	if (w->d->sqlite || !strstr(path, "/libsqlite3.so."))
		look_at(w->d, 0, hold(path), path, &w->r);
}

struct discover_result discover_command(struct discover *d, const char *program)
{
	struct walk w = {.d = d};

	w.r.err = target_files_of_command(program, on_path, &w);
	return w.r;
}

void discover_package(struct discover *d, const char *program)
{
	struct walk w = {.d = d};

	d->unasked = true;
	target_files_of_package(program, on_path, &w);
	d->unasked = false;
}

static bool is_our_root(pid_t pid)
{
	struct stat ours, its;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	return !stat("/", &ours) && !stat(path, &its) && ours.st_dev == its.st_dev && ours.st_ino == its.st_ino;
}

void discover_script(struct discover *d, pid_t pid, const char *path)
{
	struct file_key key = {0};

	if (d->script_count >= DISCOVER_SCRIPTS_MAX || !is_our_root(pid) || !read_key(path, &key))
		return;
	for (unsigned i = 0; i < d->script_count; i++)
		if (d->scripts[i].dev == key.dev && d->scripts[i].ino == key.ino)
			return;
	d->scripts[d->script_count].dev = key.dev;
	d->scripts[d->script_count++].ino = key.ino;
	discover_package(d, path);
}

struct discover_result discover_system(struct discover *d)
{
	struct walk w = {.d = d};

	target_system_tls(on_path, &w);
	return w.r;
}

/* --- before the probes are there --------------------------------------------------------------------------------- */

static void on_map_ahead(void *ctx, const struct map_entry *m)
{
	char path[MAPS_PATH_BYTES];
	struct walk *w = ctx;

	ahead_look(w->d->ahead, maps_path(w->pid, m, path));
}

static void on_path_ahead(void *ctx, const char *path)
{
	struct walk *w = ctx;

	ahead_look(w->d->ahead, path);
}

void discover_package_ahead(struct discover *d, const char *program)
{
	struct walk w = {.d = d};

	if (d->ahead)
		target_files_of_package(program, on_path_ahead, &w);
}

void discover_ahead(struct discover *d, pid_t pid, const char *program)
{
	struct walk w = {.d = d, .pid = pid};

	d->ahead = d->ahead ? d->ahead : ahead_new();
	if (!d->ahead)
		return;
	if (pid)
		maps_each(pid, on_map_ahead, &w);
	if (program)
		target_files_of_command(program, on_path_ahead, &w);
	if (program)
		discover_package_ahead(d, program);
	if (!pid)
		target_system_tls(on_path_ahead, &w);
}
