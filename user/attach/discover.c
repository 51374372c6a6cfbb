/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "discover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "base/err.h"
#include "base/log.h"
#include "maps.h"

#define DISCOVER_FILES_MAX 65536 /* remembered; later files are looked at each time again */

/* A file as it was looked at: a changed file is another file. */
struct file_key {
	uint64_t dev, ino, size;
	int64_t mtime_s, mtime_ns;
};

enum file_state { FILE_NO_TLS, FILE_PROBED, FILE_REFUSED };

struct file {
	struct file_key key;
	enum file_state state;
	UT_hash_handle hh;
};

struct discover {
	struct probes *probes;
	struct file *files;
};

struct discover *discover_new(struct probes *probes)
{
	struct discover *d = calloc(1, sizeof(*d));

	if (d)
		d->probes = probes;
	return d;
}

void discover_free(struct discover *d)
{
	struct file *f, *tmp;

	if (!d)
		return;
	HASH_ITER (hh, d->files, f, tmp) {
		HASH_DEL(d->files, f);
		free(f);
	}
	free(d);
}

static void remember(struct discover *d, const struct file_key *key, enum file_state state)
{
	struct file *f = HASH_COUNT(d->files) < DISCOVER_FILES_MAX ? calloc(1, sizeof(*f)) : NULL;

	if (!f)
		return;
	f->key = *key;
	f->state = state;
	HASH_ADD(hh, d->files, key, sizeof(f->key), f);
	if (!f->hh.tbl)
		free(f);
}

/* Opens, finds, attaches. */
static enum file_state probe(struct discover *d, const char *path, const char *shown)
{
	struct tls_find found;
	enum file_state state = FILE_NO_TLS;
	char text[256];
	struct elf elf;
	int err = elf_map(&elf, path);

	if (err) {
		log_debug("%s: %s", log_safe(text, sizeof(text), sv_of(shown)), strerror(-err));
		return FILE_NO_TLS;
	}
	err = tlsfind(&elf, &found);
	log_safe(text, sizeof(text), sv_of(shown));
	if (!err) {
		err = probes_attach_file(d->probes, path, shown, &elf, &found);
		state = err ? FILE_REFUSED : FILE_PROBED;
		if (err)
			log_warn("%s: its TLS functions cannot be probed: %s", text, strerror(-err));
	} else if (err != -ENOENT) {
		state = FILE_REFUSED;
		log_warn("%s (build id %s): not traced: %s", text, *elf.build_id ? elf.build_id : "none", found.reason);
	}
	elf_unmap(&elf);
	return state;
}

static void look_at(struct discover *d, const char *path, const char *shown, struct discover_result *r)
{
	struct file_key key = {0};
	enum file_state state;
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
	HASH_FIND(hh, d->files, &key, sizeof(key), f);
	if (f) {
		state = f->state;
	} else {
		state = probe(d, path, shown);
		remember(d, &key, state);
	}
	r->tls_files += state == FILE_PROBED;
	r->refused += state == FILE_REFUSED;
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
