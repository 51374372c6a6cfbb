/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "target.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/sigbus.h"
#include "elf.h"
#include "ldcache.h"

#define FILES_MAX	 1024 /* of one program */
#define INTERPRETERS_MAX 4    /* a script whose interpreter is a script …: the kernel follows as many */
#define SCRIPT_LINE_MAX	 256  /* BINPRM_BUF_SIZE */

static const char LD_CACHE[] = "/etc/ld.so.cache";

#ifdef __aarch64__
#define MACHINE	  EM_AARCH64
#define PLATFORM  "aarch64"
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MACHINE	  EM_X86_64
#define PLATFORM  "x86_64"
#define MULTIARCH "x86_64-linux-gnu"
#endif
static const char *const default_dirs[] = {
	"/lib/" MULTIARCH, "/usr/lib/" MULTIARCH, "/lib64", "/usr/lib64", "/lib", "/usr/local/lib", "/usr/lib"};

struct walk {
	void (*fn)(void *ctx, const char *path);
	void *ctx;
	struct file { /* what was reported, each file once; also the queue of files whose needs are looked for */
		dev_t dev;
		ino_t ino;
		char *path; /* owned */
	} * files;
	unsigned count, size;
	const uint8_t *cache; /* mapped; NULL: none */
	size_t cache_len;
	int err; /* -ENOMEM, sticky */
};

/* --- files once -------------------------------------------------------------------------------------------------- */

static bool grow(struct walk *w)
{
	unsigned size = w->size ? 2 * w->size : 32;
	struct file *more = w->count < w->size ? w->files : realloc(w->files, size * sizeof(*more));

	if (!more) {
		w->err = -ENOMEM;
		return false;
	}
	w->size = w->count < w->size ? w->size : size;
	w->files = more;
	return true;
}

/* True when the path leads to a regular file; reports it the first time. */
static bool add_file(struct walk *w, const char *path)
{
	char whole[PATH_MAX], *copy;
	struct stat st;

	if (stat(path, &st) || !S_ISREG(st.st_mode) || !realpath(path, whole))
		return false;
	for (unsigned i = 0; i < w->count; i++)
		if (w->files[i].dev == st.st_dev && w->files[i].ino == st.st_ino)
			return true;
	if (w->count == FILES_MAX || !grow(w))
		return true;
	copy = strdup(whole);
	if (!copy) {
		w->err = -ENOMEM;
		return true;
	}
	w->files[w->count++] = (struct file){st.st_dev, st.st_ino, copy};
	w->fn(w->ctx, copy);
	return true;
}

/* --- ld.so.cache ------------------------------------------------------------------------------------------------- */

/* Without one (musl, a bare chroot) the default directories are all there is. */
static void map_cache(struct walk *w)
{
	int fd = open(LD_CACHE, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *map;

	if (fd < 0)
		return;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size < (1 << 28)) {
		map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (map != MAP_FAILED) {
			w->cache = map;
			w->cache_len = (size_t)st.st_size;
		}
	}
	close(fd);
}

static void walk_release(struct walk *w)
{
	for (unsigned i = 0; i < w->count; i++)
		free(w->files[i].path);
	free(w->files);
	if (w->cache)
		munmap((void *)(uintptr_t)w->cache, w->cache_len);
}

struct lookup {
	struct walk *w;
	const char *soname;
	bool found;
};

/* All variants of a library (glibc-hwcaps): which one ld.so takes depends on the machine. */
static int add_cached(void *ctx, const char *soname, const char *path)
{
	struct lookup *l = ctx;

	if (!strcmp(soname, l->soname) && path[0] == '/')
		l->found |= add_file(l->w, path);
	return 0;
}

static bool is_tls_library(const char *name)
{
	return !strncmp(name, "libssl.so.", 10) || !strncmp(name, "libgnutls.so.", 13) ||
	       !strncmp(name, "libsqlite3.so.", 14); /* of --db; who does not want it leaves it out */
}

static int add_cached_tls(void *ctx, const char *soname, const char *path)
{
	if (is_tls_library(soname) && path[0] == '/')
		add_file(ctx, path);
	return 0;
}

static void add_tls_of_dir(struct walk *w, const char *dir)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *d = opendir(dir);

	while (d && (entry = readdir(d)))
		if (is_tls_library(entry->d_name) &&
		    snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) < (int)sizeof(path))
			add_file(w, path);
	if (d)
		closedir(d);
}

static void add_system_tls(struct walk *w)
{
	if (w->cache) {
		ldcache_each(w->cache, w->cache_len, MACHINE, add_cached_tls, w);
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(default_dirs); i++)
		add_tls_of_dir(w, default_dirs[i]);
}

void target_system_tls(void (*fn)(void *ctx, const char *path), void *ctx)
{
	struct walk w = {.fn = fn, .ctx = ctx};

	map_cache(&w);
	add_system_tls(&w);
	walk_release(&w);
}

/* --- where ld.so looks ------------------------------------------------------------------------------------------- */

/* $ORIGIN, $LIB and $PLATFORM of a run path. lib: what $LIB stands for. False: does not fit. */
static bool expand(char *out, size_t size, struct sv dir, struct sv origin, const char *lib)
{
	const struct {
		struct sv name, value;
	} tokens[] = {
		{SV("$ORIGIN"), origin},    {SV("${ORIGIN}"), origin},	     {SV("$LIB"), sv_of(lib)},
		{SV("${LIB}"), sv_of(lib)}, {SV("$PLATFORM"), SV(PLATFORM)}, {SV("${PLATFORM}"), SV(PLATFORM)},
	};
	size_t len = 0;

	while (dir.len) {
		struct sv piece = {dir.ptr, 1};
		size_t taken = 1;

		for (unsigned i = 0; i < ARRAY_SIZE(tokens); i++)
			if (sv_starts(dir, tokens[i].name)) {
				piece = tokens[i].value;
				taken = tokens[i].name.len;
			}
		if (piece.len >= size - len)
			return false;
		memcpy(out + len, piece.ptr, piece.len);
		len += piece.len;
		dir.ptr += taken;
		dir.len -= taken;
	}
	out[len] = '\0';
	return true;
}

/* The first directory of a colon-separated list that holds the library. */
static bool add_from_list(struct walk *w, struct sv list, struct sv origin, struct sv soname)
{
	static const char *const libs[] = {"lib/" MULTIARCH, "lib64", "lib"};
	char dir[PATH_MAX], path[PATH_MAX + NAME_MAX];

	while (list.ptr) {
		struct sv item = sv_cut(list, ':', &list);

		for (unsigned i = 0; item.len && i < ARRAY_SIZE(libs); i++) {
			if (!expand(dir, sizeof(dir), item, origin, libs[i]))
				break;
			if (snprintf(path, sizeof(path), "%s/%.*s", dir, (int)soname.len, soname.ptr) <
				    (int)sizeof(path) &&
			    add_file(w, path))
				return true;
			if (!memmem(item.ptr, item.len, "LIB", 3))
				break;
		}
	}
	return false;
}

struct needs {
	struct walk *w;
	const struct elf *e;
	struct sv origin;
	bool of_program;
	char program_rpath[4096]; /* DT_RPATH of the program counts for its libraries too */
	struct sv program_origin;
};

static void add_needed(void *ctx, struct sv soname)
{
	struct needs *n = ctx;
	struct sv rpath = elf_rpath(n->e), environment = sv_of(getenv("LD_LIBRARY_PATH"));
	char path[PATH_MAX];
	struct lookup l = {.w = n->w, .soname = path};

	if (snprintf(path, sizeof(path), "%.*s", (int)soname.len, soname.ptr) >= (int)sizeof(path))
		return;
	if (memchr(soname.ptr, '/', soname.len)) {
		add_file(n->w, path);
		return;
	}
	if (!n->e->runpath && (add_from_list(n->w, rpath, n->origin, soname) ||
			       add_from_list(n->w, sv_of(n->program_rpath), n->program_origin, soname)))
		return;
	if (add_from_list(n->w, environment, n->origin, soname) ||
	    (n->e->runpath && add_from_list(n->w, rpath, n->origin, soname)))
		return;
	if (n->w->cache)
		ldcache_each(n->w->cache, n->w->cache_len, MACHINE, add_cached, &l);
	for (unsigned i = 0; i < ARRAY_SIZE(default_dirs) && !l.found; i++)
		l.found = add_from_list(n->w, sv_of(default_dirs[i]), SV_NONE, soname);
}

static struct sv directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (struct sv){path, (size_t)(slash - path)} : SV_NONE;
}

static int read_needs(void *ctx)
{
	struct needs *n = ctx;
	struct sv interp = elf_interp(n->e);
	char path[PATH_MAX];

	if (n->of_program) {
		struct sv rpath = n->e->runpath ? SV_NONE : elf_rpath(n->e);

		snprintf(n->program_rpath, sizeof(n->program_rpath), "%.*s", (int)rpath.len,
			 rpath.ptr ? rpath.ptr : "");
		n->program_origin = n->origin;
	}
	if (interp.len && interp.len < sizeof(path)) {
		memcpy(path, interp.ptr, interp.len + 1); /* ends with its NUL in the file */
		add_file(n->w, path);
	}
	elf_each_needed(n->e, add_needed, n);
	return 0;
}

/* Breadth first over what the files of the list need; the list grows behind. */
static void follow_needs(struct walk *w)
{
	struct needs n = {.w = w};

	for (unsigned i = 0; i < w->count && !w->err; i++) {
		const char *path = w->files[i].path; /* stays where it is when the list grows */
		struct elf e;

		if (elf_map(&e, path))
			continue;
		n.e = &e;
		n.origin = directory_of(path);
		n.of_program = i == 0;
		sigbus_guard(read_needs, &n);
		elf_unmap(&e);
	}
}

/* --- the program ------------------------------------------------------------------------------------------------- */

static int executable(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EACCES;
	return access(path, X_OK) ? -errno : 0;
}

int target_find_program(const char *program, char *out, size_t size)
{
	struct sv path = sv_of(getenv("PATH"));
	int err = -ENOENT;

	if (!program[0])
		return -ENOENT;
	if (strchr(program, '/'))
		return (size_t)snprintf(out, size, "%s", program) < size ? executable(out) : -ENAMETOOLONG;
	if (!path.ptr)
		path = SV("/bin:/usr/bin");
	while (path.ptr) {
		struct sv dir = sv_cut(path, ':', &path);
		int now;

		if ((size_t)snprintf(out, size, "%.*s%s%s", (int)dir.len, dir.len ? dir.ptr : "", dir.len ? "/" : "./",
				     program) >= size)
			continue;
		now = executable(out);
		if (!now)
			return 0;
		if (now == -EACCES)
			err = -EACCES;
	}
	return err;
}

static struct sv next_word(struct sv *rest)
{
	struct sv word;

	*rest = sv_trim(*rest);
	word = *rest;
	word.len = 0;
	while (word.len < rest->len && word.ptr[word.len] != ' ' && word.ptr[word.len] != '\t')
		word.len++;
	*rest = (struct sv){rest->ptr + word.len, rest->len - word.len};
	return word;
}

/* Of "#!/usr/bin/env -S VAR=x node --flag": node. Else the interpreter itself. */
static struct sv interpreter_of(struct sv line)
{
	struct sv first = next_word(&line), word;
	bool env = sv_eq(first, SV("env")) || sv_ends(first, SV("/env"));

	while (env) {
		word = next_word(&line);
		if (!word.len)
			return first;
		if (sv_starts(word, SV("-S")) && word.len > 2)
			word = (struct sv){word.ptr + 2, word.len - 2};
		if (word.ptr[0] != '-' && !memchr(word.ptr, '=', word.len))
			return word;
	}
	return first;
}

/* 1: a script, *out its interpreter as written; 0: another file. */
static int read_script(const char *path, char *out, size_t size)
{
	char line[SCRIPT_LINE_MAX];
	struct sv text, rest, name;
	ssize_t len;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return 0;
	len = read(fd, line, sizeof(line));
	close(fd);
	if (len < 3 || memcmp(line, "#!", 2))
		return 0;
	text = sv_cut((struct sv){line + 2, (size_t)len - 2}, '\n', &rest);
	name = interpreter_of(text);
	if (!name.len || name.len >= size || memchr(name.ptr, '\0', name.len))
		return 0;
	memcpy(out, name.ptr, name.len);
	out[name.len] = '\0';
	return 1;
}

int target_files_of_command(const char *program, void (*fn)(void *ctx, const char *path), void *ctx)
{
	struct walk w = {.fn = fn, .ctx = ctx};
	char path[PATH_MAX], name[SCRIPT_LINE_MAX];
	int err = target_find_program(program, path, sizeof(path));

	if (err)
		return err;
	map_cache(&w);
	for (unsigned i = 0; i < INTERPRETERS_MAX && read_script(path, name, sizeof(name)); i++)
		if (target_find_program(name, path, sizeof(path)))
			break; /* the exec will fail, and say so */
	add_file(&w, path);
	follow_needs(&w);
	add_system_tls(&w);
	err = w.err;
	walk_release(&w);
	return err;
}
