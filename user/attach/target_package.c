/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "target.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sv.h"

#define ENTRIES_MAX 4096 /* of all directories together */
#define DEPTH_MAX   5
#define FILES_MAX   8
#define SMALL	    (1 << 20) /* bytes: no program with a TLS library of its own is as small */

#ifdef __aarch64__
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_X86_64
#endif

struct package {
	const char *name;
	unsigned entries, files;
	struct found {
		char path[PATH_MAX];
		bool named; /* as the package: most likely what it starts */
	} found[FILES_MAX];
};

static bool is_script(const char *path)
{
	char magic[2] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t len = fd < 0 ? 0 : read(fd, magic, sizeof(magic));

	if (fd >= 0)
		close(fd);
	return len == 2 && !memcmp(magic, "#!", 2);
}

/* A program of this machine, or what one loads (an addon of node). */
static bool is_native(int dir, const char *name, const struct stat *st)
{
	Elf64_Ehdr head;
	ssize_t len;
	int fd;

	if (!S_ISREG(st->st_mode) || st->st_size < SMALL ||
	    (!(st->st_mode & 0111) && !sv_ends(sv_of(name), SV(".node"))))
		return false;
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	if (fd < 0)
		return false;
	len = read(fd, &head, sizeof(head));
	close(fd);
	return len == sizeof(head) && !memcmp(head.e_ident, ELFMAG, SELFMAG) && head.e_machine == MACHINE;
}

/* No link is followed, so that there are no circles. */
static void visit(struct package *p, const char *path, unsigned depth)
{
	char inner[PATH_MAX];
	struct dirent *entry;
	struct stat st;
	DIR *d = opendir(path);

	while (d && (entry = readdir(d)) && p->entries++ < ENTRIES_MAX && p->files < FILES_MAX) {
		const char *name = entry->d_name;

		if (name[0] == '.' || !strcmp(name, "node_modules") ||
		    fstatat(dirfd(d), name, &st, AT_SYMLINK_NOFOLLOW) ||
		    (size_t)snprintf(inner, sizeof(inner), "%s/%s", path, name) >= sizeof(inner))
			continue;
		if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
			visit(p, inner, depth + 1);
		} else if (is_native(dirfd(d), name, &st)) {
			memcpy(p->found[p->files].path, inner, strlen(inner) + 1);
			p->found[p->files++].named = !strcmp(name, p->name);
		}
	}
	if (d)
		closedir(d);
}

/* Packages of a directory that are named after this one: NAME-linux-x64 and the like. */
static void visit_named_after(struct package *p, const char *dir, const char *name)
{
	char path[PATH_MAX], whole[PATH_MAX];
	size_t len = strlen(name);
	struct dirent *entry;
	DIR *d = opendir(dir);

	while (d && (entry = readdir(d)) && p->entries++ < ENTRIES_MAX)
		if (!strncmp(entry->d_name, name, len) && entry->d_name[len] == '-' &&
		    (size_t)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) < sizeof(path) &&
		    realpath(path, whole))
			visit(p, whole, 0);
	if (d)
		closedir(d);
}

/* Cuts the last component off and returns it; NULL: there is none. */
static char *cut_last(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return NULL;
	*slash = '\0';
	return slash + 1;
}

static bool ends_in_modules(const char *path)
{
	return sv_ends(sv_of(path), SV("/node_modules"));
}

/* Of …/node_modules/@scope/name/bin/x.js: the directory in which packages of the scope are, "name", and "@scope" or "".
 * The parts are in `path`. */
static bool find_package(char *path, char **name, char **scope)
{
	char *last, *before = NULL;

	while ((last = cut_last(path))) {
		if (ends_in_modules(path)) {
			*scope = last[0] == '@' && before ? last : NULL;
			*name = *scope ? before : last;
			return last[0] != '@' || before;
		}
		before = last;
	}
	return false;
}

static void collect(struct package *p, const char *modules, const char *scope)
{
	char path[PATH_MAX], dir[PATH_MAX];
	const char *name = p->name;

	if ((size_t)snprintf(dir, sizeof(dir), "%s%s%s", modules, scope ? "/" : "", scope ? scope : "") >= sizeof(dir))
		return;
	visit_named_after(p, dir, name);
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
		return;
	visit(p, path, 0);
	if ((size_t)snprintf(dir, sizeof(dir), "%s/node_modules%s%s", path, scope ? "/" : "", scope ? scope : "") <
	    sizeof(dir))
		visit_named_after(p, dir, name);
}

int target_files_of_package(const char *program, void (*fn)(void *ctx, const char *path), void *ctx)
{
	char path[PATH_MAX], whole[PATH_MAX], *name, *scope;
	int err = target_find_program(program, path, sizeof(path));
	struct package *p;
	struct stat st;

	if (err)
		return err;
	if (!realpath(path, whole))
		return 0;
	if (!is_script(path)) {
		if (!stat(whole, &st) && is_native(AT_FDCWD, whole, &st))
			fn(ctx, whole);
		return 0;
	}
	if (!find_package(whole, &name, &scope))
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->name = name;
	collect(p, whole, scope); /* which is …/node_modules now */
	for (int named = 1; named >= 0; named--)
		for (unsigned i = 0; i < p->files; i++)
			if (p->found[i].named == named)
				fn(ctx, p->found[i].path);
	free(p);
	return 0;
}
