/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ahead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct found {
	struct found *next;
	struct stat file;
	int result;		  /* of tlsfind() */
	struct tls_finds *stacks; /* NULL: none */
};

struct ahead {
	struct found *all;
	unsigned count;
};

struct ahead *ahead_new(void)
{
	return calloc(1, sizeof(struct ahead));
}

void ahead_free(struct ahead *a)
{
	struct found *f;

	if (!a)
		return;
	while ((f = a->all)) {
		a->all = f->next;
		free(f->stacks);
		free(f);
	}
	free(a);
}

/* A changed file is another file. */
static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static const struct found *known(const struct ahead *a, const struct stat *file)
{
	const struct found *f = a->all;

	while (f && !is_same(&f->file, file))
		f = f->next;
	return f;
}

/* Of the file that was opened: by then the name may lead to another one. */
static struct found *look(const char *path)
{
	struct found *f = calloc(1, sizeof(*f));
	struct tls_finds *stacks = malloc(sizeof(*stacks));
	struct elf elf = {.fd = -1};

	if (!f || !stacks || elf_map(&elf, path) || fstat(elf.fd, &f->file)) {
		elf_unmap(&elf);
		free(stacks);
		free(f);
		return NULL;
	}
	f->result = tlsfind(&elf, stacks);
	if (stacks->count)
		f->stacks = stacks;
	else
		free(stacks);
	elf_unmap(&elf);
	return f;
}

void ahead_look(struct ahead *a, const char *path)
{
	struct found *f;
	struct stat file;

	/* A FIFO or device that is mapped or named must not be opened. */
	if (a->count >= AHEAD_FILES_MAX || stat(path, &file) || !S_ISREG(file.st_mode) || known(a, &file))
		return;
	f = look(path);
	if (!f)
		return;
	f->next = a->all;
	a->all = f;
	a->count++;
}

int ahead_find(const struct ahead *a, const struct elf *e, struct tls_finds *out)
{
	const struct found *f = NULL;
	struct stat file;

	if (a && !fstat(e->fd, &file))
		f = known(a, &file);
	if (!f || (f->result && f->result != -ENOENT && f->result != -EINVAL))
		return tlsfind(e, out);
	out->count = 0;
	if (f->stacks)
		*out = *f->stacks;
	return f->result;
}
