/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "discover_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/clock.h"
#include "base/fdname.h"
#include "base/log.h"
#include "bpf/limits.h"
#include "sqlitefind.h"

#define DISCOVER_FILES_MAX   16384 /* remembered; past it the oldest without probes is forgotten, and looked at again */
#define DISCOVER_REASONS_MAX 1024  /* different ones */
#define REASON_BYTES	     128

struct reason {
	struct reason *next;
	char text[REASON_BYTES];
};

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

void discover_file_show(struct file *f, struct file *real)
{
	if (f->real != f)
		f->real->views--;
	f->real = real;
	real->views += real != f;
}

struct file *discover_file_remember(struct discover *d, const struct file_key *key, struct verdict verdict,
				    struct file *real)
{
	struct file *f;

	if (!real)
		return remember(d, key, verdict);
	real->views++; /* it must not be what makes room */
	f = remember(d, key, verdict);
	real->views--;
	if (f)
		discover_file_show(f, real);
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

/* It may be there the next time. */
static bool is_want(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -EAGAIN || err == -EINTR;
}

/* False: so much was told before, of what is tried again and again. */
static bool note_refused(struct discover *d, const char *shown, int err, const char *why, struct verdict *v)
{
	unsigned before = d->reason_count;

	v->refused = true;
	v->passing = is_want(err);
	v->reason = keep_reason(d, shown, why);
	return !v->passing || d->reason_count != before;
}

/* What cannot be read may hold a TLS stack, for all that is known. */
static void refuse(struct discover *d, const char *shown, int err, struct verdict *v)
{
	const char *why = err == -EIO ? "it was cut while it was read" : strerror(-err);
	char text[256];

	if (note_refused(d, shown, err, why, v))
		log_warn("%s: not traced: %s", log_safe(text, sizeof(text), sv_of(shown)), why);
}

void discover_file_refuse(struct discover *d, const char *shown, int err, struct verdict *v)
{
	if (is_want(err))
		refuse(d, shown, err, v);
}

bool discover_file_is_passing(const struct verdict *v)
{
	return v->passing && !has_probes(v);
}

void discover_file_forget(struct discover *d, struct file *f)
{
	if (!f->views)
		forget(d, f);
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
	if (err && note_refused(d, shown, err, strerror(-err), v))
		log_warn("%s: its TLS functions (%s) cannot be probed: %s", text, found->stack, strerror(-err));
}

struct file *discover_file_recall(const struct discover *d, const struct file_key *key)
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

struct entries { /* of functions of one file that are probed */
	struct entry {
		uint64_t off;
		const char *text; /* as it was asked for */
	} all[LIMIT_FUNCS];
	unsigned count;
};

/* Two names of one function: its calls cannot be told twice, each would look like one that the other one made. */
static const struct entry *entry_at(const struct entries *e, uint64_t off)
{
	for (unsigned i = 0; i < e->count; i++)
		if (e->all[i].off == off)
			return &e->all[i];
	return NULL;
}

/* 0 or -errno: why not. */
static int attach_function(struct discover *d, unsigned number, const char *path, const char *shown,
			   const struct elf *elf, struct tls_find *found, struct entries *probed)
{
	int err = funcfind(elf, &d->functions[number], number, found);
	const struct entry *same = err ? NULL : entry_at(probed, found->funcs[0].site.off);

	if (same) {
		snprintf(found->reason, sizeof(found->reason), "it is the function of -f %.96s, and told as that",
			 same->text);
		return -EINVAL;
	}
	if (!err) {
		*found->reason = '\0';
		err = probes_attach_file(d->probes, path, shown, elf, found);
	}
	if (!err && probed->count < LIMIT_FUNCS)
		probed->all[probed->count++] = (struct entry){found->funcs[0].site.off, d->functions[number].text};
	return err;
}

static void probe_function(struct discover *d, unsigned number, const char *path, const char *shown,
			   const struct elf *elf, struct entries *probed, struct verdict *v)
{
	struct tls_find found = {0};
	int err = attach_function(d, number, path, shown, elf, &found, probed);
	const char *why = err == -EINVAL && *found.reason ? found.reason : strerror(-err);

	v->other |= !err;
	d->on_function(d->function_ctx, number, shown, is_slow(&found), err ? why : NULL);
}

/* Finds, attaches. */
static struct verdict probe_elf(struct discover *d, const char *path, const char *shown, const struct elf *elf)
{
	struct entries probed = {0};
	struct verdict v = {0};
	struct tls_finds found;
	char held[FDNAME_BYTES];
	int err;

	/* The file as it was opened: the way to it ends with the process that maps it. */
	fdname(elf->fd, held);
	err = ahead_find(d->ahead, elf, &found);
	if (err == -ENOMEM || err == -EIO)
		refuse(d, shown, err, &v);
	for (unsigned i = 0; i < found.count; i++)
		attach_stack(d, held, shown, elf, &found.stacks[i], &v);
	if (d->sqlite && err != -EIO)
		probe_sqlite(d, held, shown, elf, &v);
	for (unsigned i = 0; i < d->function_count && err != -EIO; i++)
		if (func_spec_matches(&d->functions[i], elf, shown))
			probe_function(d, i, held, shown, elf, &probed, &v);
	err = err == -EIO ? err : probes_alloc_file(d->probes, path, elf);
	v.alloc = err < 0 ? 0 : err + 1;
	return v;
}

void discover_file_forget_detached(struct discover *d, struct file *real)
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
			discover_file_forget_detached(d, f);
}

struct file *discover_file_probe(struct discover *d, const char *path, const char *shown, const struct file_key *key,
				 struct verdict *v)
{
	struct file_key real = *key;
	struct file *f = NULL;
	char text[256];
	struct elf elf;
	int err = elf_map(&elf, path);

	if (err == -ENOEXEC) /* no program */
		log_debug("%s: %s", log_safe(text, sizeof(text), sv_of(shown)), strerror(-err));
	else if (err)
		refuse(d, shown, err, v);
	if (err)
		return NULL;
	probes_real_file(d->probes, &elf);
	real.dev = elf.dev;
	real.ino = elf.ino;
	if (memcmp(&real, key, sizeof(real)))
		f = discover_file_recall(d, &real);
	if (!f)
		forget_last_inode(d, &real);
	*v = f ? f->verdict : probe_elf(d, path, shown, &elf);
	if (!f && memcmp(&real, key, sizeof(real)) && !discover_file_is_passing(v))
		f = remember(d, &real, *v);
	elf_unmap(&elf);
	return f;
}

void discover_files_free(struct discover *d)
{
	struct file *f, *tmp;

	while (d->reasons) {
		struct reason *r = d->reasons;

		d->reasons = r->next;
		free(r);
	}
	HASH_ITER (hh, d->files, f, tmp) {
		HASH_DEL(d->files, f);
		free(f);
	}
}
