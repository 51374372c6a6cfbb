/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "symbols.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "addresses.h"
#include "base/array.h"
#include "base/hash.h"
#include "demangle.h"
#include "kernel.h"
#include "modules.h"
#include "perfmap.h"

#define REREAD_NS   100000000ull  /* what a process maps is read again no sooner */
#define JIT_TICK_NS 1000000000ull /* ... and the map of its runtime */
#define PATH_SHOWN  64

enum what { IS_FILE, IS_JIT, IS_KERNEL_PAGE };

struct mapping {
	uint64_t begin, end, offset;
	struct module *module; /* of IS_FILE */
	enum what what;
};

struct process {
	uint32_t tgid; /* hash key */
	struct proc_key key;
	struct mapping *maps; /* by address */
	size_t map_count, map_room;
	bool crowded;	  /* it maps more */
	uint64_t read_ns; /* 0: never */
	struct addresses told;
	struct addresses pending;  /* code of a runtime without a name */
	struct addresses unmapped; /* in no mapping, when what there is was last read a while ago */
	int jit_fd;		   /* -1: none, yet */
	off_t jit_size;
	struct symtab jit;
	UT_hash_handle hh;
};

struct symbols {
	struct symbols_sink sink;
	struct process *processes;
	struct modules modules;
	struct addresses kernel_told;
	struct symtab kernel;
	FILE *kernel_file; /* until it is read */
	bool kernel_read, kernel_hidden;
	size_t told; /* addresses of all processes */
	unsigned crowded;
	uint64_t jit_ns;
};

/* --- what a process maps ----------------------------------------------------------------------------------------- */

static const struct mapping *mapping_at(const struct process *p, uint64_t addr)
{
	size_t from = 0, to = p->map_count;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (addr < p->maps[mid].begin)
			to = mid;
		else if (addr >= p->maps[mid].end)
			from = mid + 1;
		else
			return &p->maps[mid];
	}
	return NULL;
}

/* Takes what overlaps away. Mostly at the end: maps are read in order. */
static void add_mapping(struct symbols *s, struct process *p, const struct mapping *m)
{
	size_t from = p->map_count, to;

	while (from > 0 && p->maps[from - 1].end > m->begin)
		from--;
	for (to = from; to < p->map_count && p->maps[to].begin < m->end; to++)
		;
	if (p->map_count - (to - from) >= SYMBOLS_MAPPINGS_MAX) {
		s->crowded += !p->crowded;
		p->crowded = true;
		return;
	}
	if (!array_grow(&p->maps, p->map_count, &p->map_room, sizeof(*p->maps)))
		return;
	memmove(p->maps + from + 1, p->maps + to, (p->map_count - to) * sizeof(*p->maps));
	p->maps[from] = *m;
	p->map_count -= to - from;
	p->map_count++;
}

static void add_file(struct symbols *s, struct process *p, const struct map_entry *e)
{
	struct mapping m = {.begin = e->begin, .end = e->end, .offset = e->offset, .what = IS_FILE};

	m.module = modules_get(&s->modules, e);
	if (m.module)
		add_mapping(s, p, &m);
}

/* Executable, and no file: code of a runtime, or a page of the kernel's ("[vdso]"). */
static void add_other(struct symbols *s, struct process *p, const struct map_entry *e, struct sv line)
{
	struct mapping m = {.begin = e->begin, .end = e->end, .what = IS_JIT};
	struct sv rest;

	sv_cut(line, ' ', &rest);
	if (rest.len < 4 || rest.ptr[2] != 'x')
		return;
	if (sv_ends(line, SV("[vdso]")) || sv_ends(line, SV("[vsyscall]")) || sv_ends(line, SV("[uprobes]")))
		m.what = IS_KERNEL_PAGE;
	add_mapping(s, p, &m);
}

/* A process that is gone keeps what is known of it: false. */
static bool read_maps(struct symbols *s, struct process *p, uint64_t now_ns)
{
	char path[64], *line = NULL;
	struct map_entry e;
	size_t size = 0;
	bool any = false;
	ssize_t len;
	FILE *f;

	p->read_ns = now_ns;
	snprintf(path, sizeof(path), "/proc/%u/maps", p->tgid);
	f = fopen(path, "re");
	if (!f)
		return false;
	while ((len = getline(&line, &size, f)) > 0) {
		struct sv text = {line, (size_t)len - (line[len - 1] == '\n')};
		int kind = maps_parse_line(text.ptr, text.len, &e);

		if (!any)
			p->map_count = 0;
		any = true;
		if (kind == 1)
			add_file(s, p, &e);
		else if (!kind)
			add_other(s, p, &e, text);
	}
	free(line);
	fclose(f);
	return any;
}

/* --- processes --------------------------------------------------------------------------------------------------- */

static void reset(struct symbols *s, struct process *p)
{
	s->modules.may_be_less |= p->map_count > 0;
	s->told -= p->told.count;
	free(p->maps);
	addresses_release(&p->told);
	addresses_release(&p->pending);
	addresses_release(&p->unmapped);
	symtab_release(&p->jit);
	if (p->jit_fd >= 0)
		close(p->jit_fd);
	p->maps = NULL;
	p->map_count = p->map_room = 0;
	p->read_ns = 0;
	p->jit_fd = -1;
	p->jit_size = 0;
}

static struct process *find(struct symbols *s, uint32_t tgid)
{
	struct process *p;

	HASH_FIND(hh, s->processes, &tgid, sizeof(tgid), p);
	return p;
}

static struct process *make(struct symbols *s, const struct proc_key *key)
{
	struct process *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->tgid = key->tgid;
	p->key = *key;
	p->jit_fd = -1;
	symtab_init(&p->jit, true);
	HASH_ADD(hh, s->processes, tgid, sizeof(p->tgid), p);
	if (!p->hh.tbl) {
		free(p);
		return NULL;
	}
	return p;
}

static bool same(const struct proc_key *a, const struct proc_key *b)
{
	return a->start_ns == b->start_ns && a->exec_id == b->exec_id;
}

static void name_pending(struct symbols *s, struct process *p);

static struct process *process_of(struct symbols *s, const struct proc_key *key)
{
	struct process *p = find(s, key->tgid);

	if (!p)
		return make(s, key);
	if (!same(&p->key, key)) {
		name_pending(s, p);
		reset(s, p);
		p->key = *key;
	}
	return p;
}

static void drop(struct symbols *s, struct process *p)
{
	reset(s, p);
	HASH_DEL(s->processes, p);
	free(p);
}

/* --- names ------------------------------------------------------------------------------------------------------- */

static void tell(struct symbols *s, const struct proc_key *key, uint64_t addr, enum rec_frame_source source,
		 struct sv name, struct sv module)
{
	char text[DEMANGLE_OUT_BYTES];
	struct rec_frame f = {.proc = *key, .addr = addr, .source = source, .module = module};

	f.name = (struct sv){text, name.len ? demangle(text, name) : 0};
	s->sink.on_frame(s->sink.ctx, &f);
}

static struct sv base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct sv name = sv_of(slash ? slash + 1 : path);

	return (struct sv){name.ptr, name.len < PATH_SHOWN ? name.len : PATH_SHOWN};
}

/* What the map of the runtime says; opened when there is one. */
static struct sv jit_name(struct process *p, uint64_t addr)
{
	return p->jit.count ? symtab_find(&p->jit, addr) : SV_NONE;
}

static void tell_jit(struct symbols *s, struct process *p, uint64_t addr)
{
	struct sv name = jit_name(p, addr);

	if (!name.len)
		addresses_add_bounded(&p->pending, addr, SYMBOLS_WAITING_MAX);
	tell(s, &p->key, addr, name.len ? REC_FRAME_JIT : REC_FRAME_PENDING, name, SV("[jit]"));
}

/* Memory under a name, as some runtimes map the code that they make twice. */
static bool is_memory(const char *path)
{
	struct sv name = sv_of(path);

	return sv_starts(name, SV("/memfd:")) || sv_starts(name, SV("/dev/zero")) || sv_starts(name, SV("/SYSV"));
}

/* As mapped at last reading. */
static void tell_mapped(struct symbols *s, struct process *p, uint64_t addr)
{
	const struct mapping *m = mapping_at(p, addr);
	struct sv name;

	if (!m) {
		tell(s, &p->key, addr, REC_FRAME_NOWHERE, SV_NONE, SV_NONE);
		return;
	}
	if (m->what == IS_KERNEL_PAGE) {
		tell(s, &p->key, addr, REC_FRAME_NATIVE, SV_NONE, SV("[vdso]"));
		return;
	}
	if (m->what == IS_FILE && m->module->state == MODULE_NEW)
		modules_read(&s->modules, m->module, (pid_t)p->tgid, m->begin, m->end);
	if (m->what == IS_JIT || (m->module->state == MODULE_NONE && is_memory(m->module->path))) {
		tell_jit(s, p, addr);
		return;
	}
	name = module_find(m->module, addr - m->begin + m->offset);
	tell(s, &p->key, addr, REC_FRAME_NATIVE, name, base_name(m->module->path));
}

/* Those that waited for it. */
static void tell_unmapped(struct symbols *s, struct process *p)
{
	struct addresses all = p->unmapped;

	p->unmapped = (struct addresses){0};
	for (size_t i = 0; i < all.room; i++)
		if (all.slots[i])
			tell_mapped(s, p, all.slots[i]);
	addresses_release(&all);
}

static void tell_user(struct symbols *s, struct process *p, uint64_t addr, uint64_t now_ns)
{
	if (!mapping_at(p, addr) && p->read_ns != now_ns) { /* else: read for this very sample */
		if (p->read_ns && now_ns - p->read_ns < REREAD_NS) {
			addresses_add_bounded(&p->unmapped, addr, SYMBOLS_WAITING_MAX);
			tell(s, &p->key, addr, REC_FRAME_PENDING, SV_NONE, SV("[unknown]"));
			return;
		}
		if (read_maps(s, p, now_ns))
			tell_unmapped(s, p);
	}
	tell_mapped(s, p, addr);
}

static void push_kernel(struct symbols *s, uint64_t addr)
{
	static const struct proc_key kernel;

	if (addresses_have(&s->kernel_told, addr))
		return;
	if (!s->kernel_read) {
		s->kernel_read = true;
		s->kernel_hidden = kernel_symbols(&s->kernel, s->kernel_file) != 0;
		s->kernel_file = NULL;
	}
	addresses_add_bounded(&s->kernel_told, addr, SYMBOLS_ADDRESSES_MAX);
	tell(s, &kernel, addr, REC_FRAME_KERNEL, symtab_find(&s->kernel, addr), SV("[kernel]"));
}

void symbols_push_sample(struct symbols *s, const struct rec_sample *r)
{
	unsigned count = r->kernel_frames + r->user_frames;
	struct process *p;

	for (unsigned i = 0; i < r->kernel_frames; i++)
		push_kernel(s, rec_sample_addr(r, i));
	if (!r->user_frames)
		return;
	p = process_of(s, &r->proc);
	for (unsigned i = r->kernel_frames; p && i < count; i++) {
		uint64_t addr = rec_sample_addr(r, i);

		if (addresses_have(&p->told, addr))
			continue;
		if (s->told >= SYMBOLS_ADDRESSES_MAX) {
			s->told -= p->told.count;
			addresses_release(&p->told);
		}
		s->told -= p->told.count;
		addresses_add(&p->told, addr);
		s->told += p->told.count;
		tell_user(s, p, addr, r->ts_ns);
	}
}

/* --- code that a runtime made ------------------------------------------------------------------------------------ */

static bool jit_has_grown(struct process *p)
{
	struct stat st;

	if (p->jit_fd < 0)
		p->jit_fd = perfmap_open((pid_t)p->tgid);
	if (p->jit_fd < 0 || fstat(p->jit_fd, &st) || st.st_size == p->jit_size)
		return false;
	p->jit_size = st.st_size;
	return true;
}

static void name_pending(struct symbols *s, struct process *p)
{
	struct addresses left = {0};

	if (!p->pending.count || !jit_has_grown(p) || perfmap_read(p->jit_fd, &p->jit))
		return;
	for (size_t i = 0; i < p->pending.room; i++) {
		uint64_t addr = p->pending.slots[i];
		struct sv name = addr ? jit_name(p, addr) : SV_NONE;

		if (name.len)
			tell(s, &p->key, addr, REC_FRAME_JIT, name, SV("[jit]"));
		else if (addr)
			addresses_add(&left, addr);
	}
	addresses_release(&p->pending);
	p->pending = left;
}

void symbols_tick(struct symbols *s, uint64_t now_ns)
{
	if (now_ns < s->jit_ns + JIT_TICK_NS)
		return;
	symbols_finish(s, now_ns);
}

void symbols_finish(struct symbols *s, uint64_t now_ns)
{
	struct process *p, *tmp;

	s->jit_ns = now_ns;
	HASH_ITER (hh, s->processes, p, tmp) {
		if (p->unmapped.count && read_maps(s, p, now_ns))
			tell_unmapped(s, p);
		name_pending(s, p);
	}
}

/* --- what happens to processes ----------------------------------------------------------------------------------- */

void symbols_exec(struct symbols *s, const struct proc_key *key, uint64_t now_ns)
{
	struct process *p = process_of(s, key);

	/* Now, because it may not live until a sample of it comes. */
	if (p)
		read_maps(s, p, now_ns);
}

void symbols_fork(struct symbols *s, const struct rec_fork *r)
{
	const struct process *parent = find(s, r->parent_tgid);
	struct proc_key key = {.tgid = r->child_tgid, .start_ns = r->child_start_ns};
	struct process *child;

	if (!parent || !parent->map_count)
		return;
	key.exec_id = parent->key.exec_id;
	child = process_of(s, &key);
	if (!child || child->map_count)
		return;
	child->maps = malloc(parent->map_count * sizeof(*child->maps));
	if (!child->maps)
		return;
	memcpy(child->maps, parent->maps, parent->map_count * sizeof(*child->maps));
	child->map_count = child->map_room = parent->map_count;
}

void symbols_map(struct symbols *s, pid_t pid, const struct map_entry *m)
{
	struct process *p = find(s, (uint32_t)pid);

	if (p)
		add_file(s, p, m);
}

void symbols_exit(struct symbols *s, const struct proc_key *key)
{
	struct process *p = find(s, key->tgid);

	if (!p || p->key.start_ns != key->start_ns)
		return;
	name_pending(s, p);
	drop(s, p);
}

/* Of the modules those that a process maps. */
static void mark_mapped(void *ctx)
{
	const struct symbols *s = ctx;

	for (const struct process *p = s->processes; p; p = p->hh.next)
		for (size_t i = 0; i < p->map_count; i++)
			if (p->maps[i].what == IS_FILE)
				p->maps[i].module->used = true;
}

struct symbols *symbols_new(const struct symbols_sink *sink)
{
	struct symbols *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->sink = *sink;
	s->modules.mark = mark_mapped;
	s->modules.ctx = s;
	symtab_init(&s->kernel, false);
	s->kernel_file = kernel_open();
	return s;
}

void symbols_free(struct symbols *s)
{
	struct process *p, *next;

	if (!s)
		return;
	HASH_ITER (hh, s->processes, p, next)
		drop(s, p);
	modules_release(&s->modules);
	addresses_release(&s->kernel_told);
	if (s->kernel_file)
		fclose(s->kernel_file);
	symtab_release(&s->kernel);
	free(s);
}

unsigned symbols_unread(const struct symbols *s)
{
	return s->modules.unread;
}

unsigned symbols_crowded(const struct symbols *s)
{
	return s->crowded;
}

bool symbols_kernel_hidden(const struct symbols *s)
{
	return s->kernel_hidden;
}
