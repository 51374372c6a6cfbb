/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "discover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utlist.h>

#include "ahead.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "maps.h"
#include "sqlitefind.h"

#define DISCOVER_FILES_MAX    16384 /* remembered; past it the oldest without probes is forgotten, and looked at again */
#define DISCOVER_DETACHED_MAX 64    /* remembered of those whose probes were removed */
#define DISCOVER_REASONS_MAX  1024  /* different ones */

/* A file as it was looked at: a changed file is another file. */
struct file_key {
	uint64_t dev, ino, size;
	int64_t mtime_s, mtime_ns;
};

#define REASON_BYTES 128

struct verdict { /* both: a file with two TLS stacks */
	bool probed, refused;
	bool other;	    /* functions of SQLite, or by name, are probed */
	int alloc;	    /* which allocators it has, by number + 1; 0: none (--alloc) */
	uint64_t probed_ns; /* CLOCK_BOOTTIME */
	const char *reason; /* why refused; NULL: no memory. Kept until the end */
};

struct file {
	struct file_key key;
	struct verdict verdict;
	struct file *real; /* of a view (overlayfs): the inode that it shows; else itself */
	unsigned views;	   /* of others, that show it */
	unsigned users;	   /* processes that map it */
	bool kept;	   /* probed to the end */
	bool idle;	   /* in discover.idle, since idle_ns */
	bool detached;	   /* in discover.detached */
	uint64_t idle_ns;
	struct file *prev, *next;
	UT_hash_handle hh;
};

struct use {
	struct file *file;
	struct use *next;
};

struct user { /* a process that maps probed files */
	pid_t pid;
	struct use *uses;
	UT_hash_handle hh;
};

/* A file that waits to be looked through; remembered as one without TLS until then. */
struct waiting {
	struct file_key key;
	int fd;
	char *shown;  /* owned */
	bool unasked; /* nobody maps it: what is refused there counts when somebody does */
	struct waiting *prev, *next;
};

struct reason {
	struct reason *next;
	char text[REASON_BYTES];
};

struct discover {
	struct probes *probes;
	struct ahead *ahead; /* NULL: nothing was looked through ahead */
	struct {
		dev_t dev;
		ino_t ino;
	} scripts[DISCOVER_SCRIPTS_MAX]; /* whose packages were looked at */
	unsigned script_count;
	bool unasked; /* files that no process maps are looked through */
	struct reason *reasons;
	unsigned reason_count;
	struct file *files;    /* oldest first */
	struct file *idle;     /* probed, and mapped by nobody; longest first */
	struct file *detached; /* whose probes were removed; longest first */
	unsigned detached_count;
	struct user *users;
	unsigned use_count;
	bool keep; /* discover_keep() */
	struct waiting *waiting;
	unsigned waiting_count;
	bool haste;
	bool sqlite; /* is looked for */
	const struct func_spec *functions;
	unsigned function_count;
	void (*on_function)(void *ctx, unsigned number, const char *path, bool slow, const char *why);
	void *function_ctx;
	uint64_t haste_ns; /* since then */
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

void discover_free(struct discover *d)
{
	struct file *f, *tmp;
	struct user *u, *next;

	if (!d)
		return;
	HASH_ITER (hh, d->users, u, next)
		user_free(d, u);
	while (d->waiting)
		waiting_free(d, d->waiting);
	ahead_free(d->ahead);
	while (d->reasons) {
		struct reason *r = d->reasons;

		d->reasons = r->next;
		free(r);
	}
	HASH_ITER (hh, d->files, f, tmp) {
		HASH_DEL(d->files, f);
		free(f);
	}
	free(d);
}

static void forget(struct discover *d, struct file *f)
{
	if (f->real != f)
		f->real->views--;
	HASH_DEL(d->files, f);
	free(f);
}

static bool has_probes(const struct verdict *v)
{
	return v->probed || v->other || v->alloc;
}

/* False: there is none to be had. */
static bool make_room(struct discover *d)
{
	struct file *f = d->files;

	if (HASH_COUNT(d->files) < DISCOVER_FILES_MAX)
		return true;
	while (f && (f->views || has_probes(&f->verdict)))
		f = f->hh.next;
	if (f)
		forget(d, f);
	return f != NULL;
}

/* NULL: it is not remembered. */
static struct file *remember(struct discover *d, const struct file_key *key, struct verdict verdict)
{
	struct file *f = make_room(d) ? calloc(1, sizeof(*f)) : NULL;

	if (!f)
		return NULL;
	f->key = *key;
	f->verdict = verdict;
	f->real = f;
	HASH_ADD(hh, d->files, key, sizeof(f->key), f);
	if (f->hh.tbl)
		return f;
	free(f);
	return NULL;
}

static void show(struct file *f, struct file *real)
{
	if (f->real != f)
		f->real->views--;
	f->real = real;
	real->views += real != f;
}

/* real: what it shows, NULL: itself. */
static struct file *remember_view(struct discover *d, const struct file_key *key, struct verdict verdict,
				  struct file *real)
{
	struct file *f;

	if (!real)
		return remember(d, key, verdict);
	real->views++; /* it must not be what makes room */
	f = remember(d, key, verdict);
	real->views--;
	if (f)
		show(f, real);
	return f;
}

/* "NAME: why" */
static const char *keep_reason(struct discover *d, const char *shown, const char *why)
{
	const char *name = strrchr(shown, '/') ? strrchr(shown, '/') + 1 : shown;
	char text[REASON_BYTES];
	struct reason *r;

	snprintf(text, sizeof(text), "%.48s: %s", name, why);
	LL_FOREACH (d->reasons, r)
		if (!strcmp(r->text, text))
			return r->text;
	if (d->reason_count == DISCOVER_REASONS_MAX)
		return "not all reasons are kept";
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	memcpy(r->text, text, sizeof(text));
	LL_PREPEND(d->reasons, r);
	d->reason_count++;
	return r->text;
}

static void attach_stack(struct discover *d, const char *path, const char *shown, const struct elf *elf,
			 const struct tls_find *found, struct verdict *v)
{
	char text[256];
	int err;

	log_safe(text, sizeof(text), sv_of(shown));
	if (!found->count) {
		v->refused = true;
		v->reason = keep_reason(d, shown, found->reason);
		log_warn("%s (build id %s): not traced: %s", text, *elf->build_id ? elf->build_id : "none",
			 found->reason);
		return;
	}
	err = probes_attach_file(d->probes, path, shown, elf, found);
	v->probed |= !err;
	if (!err)
		v->probed_ns = clock_boot_ns();
	v->refused |= err != 0;
	if (err)
		v->reason = keep_reason(d, shown, strerror(-err));
	if (err)
		log_warn("%s: its TLS functions (%s) cannot be probed: %s", text, found->stack, strerror(-err));
}

static struct file *recall(const struct discover *d, const struct file_key *key)
{
	struct file *f;

	HASH_FIND(hh, d->files, key, sizeof(*key), f);
	return f;
}

void discover_sqlite(struct discover *d)
{
	d->sqlite = true;
}

static void probe_sqlite(struct discover *d, const char *path, const char *shown, const struct elf *elf,
			 struct verdict *v)
{
	struct tls_find found;
	char text[256];
	int err = sqlitefind(elf, &found);

	if (err == -ENOENT)
		return;
	if (!err)
		err = probes_attach_file(d->probes, path, shown, elf, &found);
	v->other |= !err;
	if (err)
		log_warn("%s: its SQLite functions cannot be probed: %s", log_safe(text, sizeof(text), sv_of(shown)),
			 err == -EINVAL && *found.reason ? found.reason : strerror(-err));
}

void discover_functions(struct discover *d, const struct func_spec *specs, unsigned count,
			void (*fn)(void *ctx, unsigned number, const char *path, bool slow, const char *why), void *ctx)
{
	d->functions = specs;
	d->function_count = count;
	d->on_function = fn;
	d->function_ctx = ctx;
}

/* Whether a hit of one of its probes is single-stepped. */
static bool is_slow(const struct tls_find *found)
{
	for (unsigned i = 0; i < found->count; i++)
		if (found->funcs[i].site.class == SITE_STEPPED || found->funcs[i].site.class == SITE_ENTRY)
			return true;
	return false;
}

static void probe_function(struct discover *d, unsigned number, const char *path, const char *shown,
			   const struct elf *elf, struct verdict *v)
{
	struct tls_find found;
	int err = funcfind(elf, &d->functions[number], number, &found);
	const char *why = err == -EINVAL && *found.reason ? found.reason : strerror(-err);

	if (!err) {
		err = probes_attach_file(d->probes, path, shown, elf, &found);
		why = strerror(-err);
	}
	v->other |= !err;
	d->on_function(d->function_ctx, number, shown, is_slow(&found), err ? why : NULL);
}

/* Finds, attaches. */
static struct verdict probe_elf(struct discover *d, const char *path, const char *shown, const struct elf *elf)
{
	struct verdict v = {0};
	struct tls_finds found;
	char text[256], held[32];
	int err;

	/* The file as it was opened: the way to it ends with the process that maps it. */
	snprintf(held, sizeof(held), "/proc/self/fd/%d", elf->fd);
	err = ahead_find(d->ahead, elf, &found);
	if (err == -ENOMEM || err == -EIO) {
		v.refused = true;
		log_warn("%s: not traced: %s", log_safe(text, sizeof(text), sv_of(shown)),
			 err == -EIO ? "it was cut while it was read" : strerror(-err));
	}
	for (unsigned i = 0; i < found.count; i++)
		attach_stack(d, held, shown, elf, &found.stacks[i], &v);
	if (d->sqlite && err != -EIO)
		probe_sqlite(d, held, shown, elf, &v);
	for (unsigned i = 0; i < d->function_count && err != -EIO; i++)
		if (func_spec_matches(&d->functions[i], elf, shown))
			probe_function(d, i, held, shown, elf, &v);
	err = err == -EIO ? err : probes_alloc_file(d->probes, path, elf);
	v.alloc = err < 0 ? 0 : err + 1;
	return v;
}

/* Libraries that come and go (each a new file) must not stay. When it is mapped once more it is a new file again. */
static void forget_detached(struct discover *d, struct file *real)
{
	struct file *f, *next;

	DL_DELETE(d->detached, real);
	d->detached_count--;
	probes_forget_file(d->probes, real->key.dev, real->key.ino);
	HASH_ITER (hh, d->files, f, next)
		if (f != real && f->real == real)
			forget(d, f);
	forget(d, real);
}

/* The number of an inode is given to the next file: what the last one had is not what this one has. */
static void forget_last_inode(struct discover *d, const struct file_key *key)
{
	struct file *f, *next;

	DL_FOREACH_SAFE (d->detached, f, next)
		if (f->key.dev == key->dev && f->key.ino == key->ino)
			forget_detached(d, f);
}

/* Opens; a file that was looked at by another view of its inode (containers of one image) is not looked at again.
 * Remembers and returns the inode when the key is only a view of it; else NULL. */
static struct file *probe(struct discover *d, const char *path, const char *shown, const struct file_key *key,
			  struct verdict *v)
{
	struct file_key real = *key;
	struct file *f = NULL;
	char text[256];
	struct elf elf;
	int err = elf_map(&elf, path);

	if (err) {
		log_debug("%s: %s", log_safe(text, sizeof(text), sv_of(shown)), strerror(-err));
		return NULL;
	}
	probes_real_file(d->probes, &elf);
	real.dev = elf.dev;
	real.ino = elf.ino;
	if (memcmp(&real, key, sizeof(real)))
		f = recall(d, &real);
	if (!f)
		forget_last_inode(d, &real);
	*v = f ? f->verdict : probe_elf(d, path, shown, &elf);
	if (!f && memcmp(&real, key, sizeof(real)))
		f = remember(d, &real, *v);
	elf_unmap(&elf);
	return f;
}

/* --- who maps a file --------------------------------------------------------------------------------------------- */

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

/* pid 0: no process, but somebody may run it any time. */
static void note_use(struct discover *d, struct file *f, pid_t pid, const char *path, const char *shown)
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
		forget_detached(d, d->detached);
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
	char path[32];

	*r = (struct discover_result){0};
	if (!w)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", w->fd);
	real = probe(d, path, w->shown, &w->key, &verdict);
	f = recall(d, &w->key);
	if (f) {
		f->verdict = verdict;
		show(f, real ? real : f);
		note_use(d, f->real, 0, path, w->shown); /* who mapped it meanwhile is not known */
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

/* pid: who maps it, 0: nobody yet. */
static void look_at(struct discover *d, pid_t pid, const char *path, const char *shown, struct discover_result *r)
{
	struct file_key key = {0};
	struct verdict verdict = {0};
	struct file *f, *real = NULL;

	if (!read_key(path, &key)) {
		r->unreadable += errno == EACCES || errno == EPERM;
		return;
	}
	f = recall(d, &key);
	if (!f) {
		if (!put_off(d, &key, path, shown))
			real = probe(d, path, shown, &key, &verdict);
		f = remember_view(d, &key, verdict, real);
	}
	if (f) {
		note_use(d, f->real, pid, path, shown);
		verdict = f->real->verdict;
	}
	r->tls_files += verdict.probed;
	r->refused += verdict.refused;
	r->reason = verdict.refused ? verdict.reason : r->reason;
	if (verdict.probed && verdict.probed_ns > r->probed_ns)
		r->probed_ns = verdict.probed_ns;
}

struct walk {
	struct discover *d;
	struct discover_result r;
	pid_t pid;
};

static void on_map(void *ctx, const struct map_entry *m)
{
	struct walk *w = ctx;
	char path[MAPS_PATH_BYTES];

	look_at(w->d, w->pid, maps_path(w->pid, m, path), m->path, &w->r);
}

struct discover_result discover_process(struct discover *d, pid_t pid)
{
	struct walk w = {.d = d, .pid = pid};

	w.r.err = maps_each(pid, on_map, &w);
	return w.r;
}

static void on_map_again(void *ctx, const struct map_entry *m)
{
	char path[MAPS_PATH_BYTES];
	struct walk *w = ctx;
	struct file_key key = {0};
	struct file *f;

	if (!read_key(maps_path(w->pid, m, path), &key))
		return;
	f = recall(w->d, &key);
	if (f && f->real->verdict.probed && !f->real->detached)
		w->r.tls_files += !probes_renew_file(w->d->probes, path, f->real->key.dev, f->real->key.ino);
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
		look_at(w->d, 0, path, path, &w->r);
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
		target_files_of_package(program, on_path_ahead, &w);
	if (!pid)
		target_system_tls(on_path_ahead, &w);
}
