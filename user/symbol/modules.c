/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "modules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elfsyms.h"

static uint64_t hash_text(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 0x100000001b3ull;
	return h;
}

static void module_free(struct module *m)
{
	symtab_release(&m->symbols);
	free(m->path);
	free(m);
}

/* What no process maps any more. */
static void drop_unused(struct modules *s)
{
	struct module *m, *next;

	if (!s->may_be_less)
		return;
	s->may_be_less = false;
	HASH_ITER (hh, s->table, m, next)
		m->used = false;
	s->mark(s->ctx);
	HASH_ITER (hh, s->table, m, next) {
		if (m->used)
			continue;
		s->bytes -= m->state == MODULE_READ ? symtab_bytes(&m->symbols) : 0;
		HASH_DEL(s->table, m);
		module_free(m);
	}
}

struct module *modules_get(struct modules *s, const struct map_entry *e)
{
	struct module_key key = {
		.dev = (uint64_t)e->dev_major << 32 | e->dev_minor, .ino = e->ino, .name = hash_text(e->path)};
	struct module *m;

	HASH_FIND(hh, s->table, &key, sizeof(key), m);
	if (m)
		return m;
	if (HASH_COUNT(s->table) >= MODULES_MAX)
		drop_unused(s);
	if (HASH_COUNT(s->table) >= MODULES_MAX) {
		s->unread++;
		return NULL;
	}
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->key = key;
	m->path = strdup(e->path);
	symtab_init(&m->symbols, false);
	if (m->path)
		HASH_ADD(hh, s->table, key, sizeof(m->key), m);
	if (!m->path || !m->hh.tbl) {
		free(m->path);
		free(m);
		return NULL;
	}
	return m;
}

/* The file behind a mapping: as its process sees it, or, when that is gone, under its name, if it is still that file.
 */
static int open_module(struct elf *e, const struct module *m, pid_t pid, uint64_t begin, uint64_t end)
{
	struct map_entry entry = {.begin = begin,
				  .end = end,
				  .dev_major = (unsigned)(m->key.dev >> 32),
				  .dev_minor = (unsigned)m->key.dev,
				  .ino = m->key.ino};
	char path[MAPS_PATH_BYTES];
	int err;

	snprintf(entry.path, sizeof(entry.path), "%s", m->path);
	err = elf_map(e, maps_path(pid, &entry, path));
	if (!err)
		return 0;
	err = elf_map(e, m->path);
	if (!err && e->ino != m->key.ino) {
		elf_unmap(e);
		err = -ESTALE;
	}
	return err;
}

void modules_read(struct modules *s, struct module *m, pid_t pid, uint64_t begin, uint64_t end)
{
	char root[64];
	struct elf e;

	m->state = MODULE_NONE;
	if (s->bytes >= MODULES_BYTES_MAX)
		drop_unused(s);
	if (s->bytes >= MODULES_BYTES_MAX) {
		s->unread++;
		return;
	}
	if (open_module(&e, m, pid, begin, end))
		return;
	memcpy(m->loads, e.loads, sizeof(m->loads));
	m->load_count = e.load_count;
	snprintf(root, sizeof(root), "/proc/%d/root", pid);
	elfsyms_load(&m->symbols, &e, root); /* what could be read counts */
	elf_unmap(&e);
	s->bytes += symtab_bytes(&m->symbols);
	m->state = MODULE_READ;
}

static bool vaddr_of(const struct module *m, uint64_t off, uint64_t *vaddr)
{
	for (unsigned i = 0; i < m->load_count; i++) {
		const struct elf_load *l = &m->loads[i];

		/* Mappings begin and end at pages: a little before and behind of what the segment says. */
		if (l->exec && off >= (l->off & ~4095ull) && off < l->off + l->filesz) {
			*vaddr = off - l->off + l->vaddr;
			return true;
		}
	}
	return false;
}

struct sv module_find(const struct module *m, uint64_t offset)
{
	uint64_t vaddr;

	return vaddr_of(m, offset, &vaddr) ? symtab_find(&m->symbols, vaddr) : SV_NONE;
}

void modules_release(struct modules *s)
{
	struct module *m, *next;

	HASH_ITER (hh, s->table, m, next) {
		HASH_DEL(s->table, m);
		module_free(m);
	}
}
