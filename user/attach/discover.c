/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "discover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "maps.h"

#define DISCOVER_FILES_MAX 65536 /* remembered; later files are looked at each time again */

/* A file as it was looked at: a changed file is another file. */
struct file_key {
	uint64_t dev, ino, size;
	int64_t mtime_s, mtime_ns;
};

struct verdict { /* both: a file with two TLS stacks */
	bool probed, refused;
};

struct file {
	struct file_key key;
	struct verdict verdict;
	UT_hash_handle hh;
};

/* A file that waits to be looked through; remembered as one without TLS until then. */
struct waiting {
	struct file_key key;
	int fd;
	char *shown; /* owned */
	struct waiting *prev, *next;
};

struct discover {
	struct probes *probes;
	struct file *files;
	struct waiting *waiting;
	unsigned waiting_count;
	bool haste;
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

void discover_free(struct discover *d)
{
	struct file *f, *tmp;

	if (!d)
		return;
	while (d->waiting)
		waiting_free(d, d->waiting);
	HASH_ITER (hh, d->files, f, tmp) {
		HASH_DEL(d->files, f);
		free(f);
	}
	free(d);
}

static void remember(struct discover *d, const struct file_key *key, struct verdict verdict)
{
	struct file *f = HASH_COUNT(d->files) < DISCOVER_FILES_MAX ? calloc(1, sizeof(*f)) : NULL;

	if (!f)
		return;
	f->key = *key;
	f->verdict = verdict;
	HASH_ADD(hh, d->files, key, sizeof(f->key), f);
	if (!f->hh.tbl)
		free(f);
}

static void attach_stack(struct discover *d, const char *path, const char *shown, const struct elf *elf,
			 const struct tls_find *found, struct verdict *v)
{
	char text[256];
	int err;

	log_safe(text, sizeof(text), sv_of(shown));
	if (!found->count) {
		v->refused = true;
		log_warn("%s (build id %s): not traced: %s", text, *elf->build_id ? elf->build_id : "none",
			 found->reason);
		return;
	}
	err = probes_attach_file(d->probes, path, shown, elf, found);
	v->probed |= !err;
	v->refused |= err != 0;
	if (err)
		log_warn("%s: its TLS functions (%s) cannot be probed: %s", text, found->stack, strerror(-err));
}

static struct file *recall(const struct discover *d, const struct file_key *key)
{
	struct file *f;

	HASH_FIND(hh, d->files, key, sizeof(*key), f);
	return f;
}

/* Finds, attaches. */
static struct verdict probe_elf(struct discover *d, const char *path, const char *shown, const struct elf *elf)
{
	struct verdict v = {false, false};
	struct tls_finds found;
	char text[256];

	if (tlsfind(elf, &found) == -ENOMEM) {
		v.refused = true;
		log_warn("%s: not traced: %s", log_safe(text, sizeof(text), sv_of(shown)), strerror(ENOMEM));
	}
	for (unsigned i = 0; i < found.count; i++)
		attach_stack(d, path, shown, elf, &found.stacks[i], &v);
	return v;
}

/* Opens; a file that was looked at by another view of its inode (containers of one image) is not looked at again. */
static struct verdict probe(struct discover *d, const char *path, const char *shown, const struct file_key *key)
{
	struct verdict v = {false, false};
	struct file_key real = *key;
	struct file *f = NULL;
	char text[256];
	struct elf elf;
	int err = elf_map(&elf, path);

	if (err) {
		log_debug("%s: %s", log_safe(text, sizeof(text), sv_of(shown)), strerror(-err));
		return v;
	}
	probes_real_file(d->probes, &elf);
	real.dev = elf.dev;
	real.ino = elf.ino;
	if (memcmp(&real, key, sizeof(real)))
		f = recall(d, &real);
	v = f ? f->verdict : probe_elf(d, path, shown, &elf);
	if (!f && memcmp(&real, key, sizeof(real)))
		remember(d, &real, v);
	elf_unmap(&elf);
	return v;
}

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
	DL_APPEND(d->waiting, w);
	d->waiting_count++;
	return true;
}

bool discover_next(struct discover *d, struct discover_result *r)
{
	struct waiting *w = d->waiting;
	struct verdict verdict;
	struct file *f;
	char path[32];

	*r = (struct discover_result){0};
	if (!w)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", w->fd);
	verdict = probe(d, path, w->shown, &w->key);
	f = recall(d, &w->key);
	if (f)
		f->verdict = verdict;
	r->tls_files = verdict.probed;
	r->refused = verdict.refused;
	waiting_free(d, w);
	return true;
}

static void look_at(struct discover *d, const char *path, const char *shown, struct discover_result *r)
{
	struct file_key key = {0};
	struct verdict verdict = {false, false};
	struct file *f;
	struct stat st;

	/* Not a regular file: a FIFO or device that is mapped or named must not be opened. */
	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return;
	key.dev = st.st_dev;
	key.ino = st.st_ino;
	key.size = (uint64_t)st.st_size;
	key.mtime_s = st.st_mtim.tv_sec;
	key.mtime_ns = st.st_mtim.tv_nsec;
	f = recall(d, &key);
	if (f) {
		verdict = f->verdict;
	} else {
		if (!put_off(d, &key, path, shown))
			verdict = probe(d, path, shown, &key);
		remember(d, &key, verdict);
	}
	r->tls_files += verdict.probed;
	r->refused += verdict.refused;
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

	look_at(w->d, maps_path(w->pid, m, path), m->path, &w->r);
}

struct discover_result discover_process(struct discover *d, pid_t pid)
{
	struct walk w = {.d = d, .pid = pid};

	w.r.err = maps_each(pid, on_map, &w);
	return w.r;
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

	look_at(w->d, path, path, &w->r);
}

struct discover_result discover_command(struct discover *d, const char *program)
{
	struct walk w = {.d = d};

	w.r.err = target_files_of_command(program, on_path, &w);
	return w.r;
}

struct discover_result discover_system(struct discover *d)
{
	struct walk w = {.d = d};

	target_system_tls(on_path, &w);
	return w.r;
}
