/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fdname.h"
#include "base/sigbus.h"

#define FILE_BYTES_MAX	(4ull << 30) /* the largest agents are 0.4 GB */
#define NAME_BYTES_MAX	4096	     /* longer symbol names are skipped: keeps a walk linear over hostile tables */
#define DYNAMIC_MAX	4096
#define NOTES_MAX	1024
#define RELOCATIONS_MAX (1u << 20) /* looked through for one GOT entry */
#define PLT_ENTRY_BYTES 24

/* --- bytes and addresses ----------------------------------------------------------------------------------------- */

const uint8_t *elf_at(const struct elf *e, uint64_t off, size_t len)
{
	if (off > e->size || len > e->size - off)
		return NULL;
	return e->map + off;
}

int64_t elf_offset_of(const struct elf_load *loads, unsigned n, uint64_t vaddr)
{
	for (unsigned i = 0; i < n; i++)
		if (vaddr >= loads[i].vaddr && vaddr - loads[i].vaddr < loads[i].filesz)
			return (int64_t)(loads[i].off + (vaddr - loads[i].vaddr));
	return -1;
}

uint64_t elf_vaddr_of(const struct elf *e, uint64_t off)
{
	for (unsigned i = 0; i < e->load_count; i++)
		if (off >= e->loads[i].off && off - e->loads[i].off < e->loads[i].filesz)
			return e->loads[i].vaddr + (off - e->loads[i].off);
	return UINT64_MAX;
}

static bool table_fits(const struct elf *e, uint64_t off, uint64_t count, size_t entry)
{
	return off <= e->size && count <= (e->size - off) / entry;
}

static int64_t offset_of(const struct elf *e, uint64_t vaddr)
{
	return elf_offset_of(e->loads, e->load_count, vaddr);
}

/* A NUL-terminated string of at most NAME_BYTES_MAX bytes, else SV_NONE. */
static struct sv string_at(const struct elf *e, const struct elf_strings *s, uint64_t index)
{
	const char *p;
	size_t room, len;

	if (index >= s->size)
		return SV_NONE;
	room = s->size - index < NAME_BYTES_MAX ? s->size - index : NAME_BYTES_MAX;
	p = (const char *)elf_at(e, s->off + index, room);
	if (!p)
		return SV_NONE;
	len = strnlen(p, room);
	return len == room ? SV_NONE : (struct sv){p, len};
}

/* --- program headers --------------------------------------------------------------------------------------------- */

static void read_build_id(struct elf *e, const Elf64_Phdr *ph, unsigned *budget)
{
	uint64_t align = ph->p_align == 8 ? 8 : 4, at = 0;

	while (!e->build_id[0] && *budget && (*budget)--) {
		const uint8_t *p = ph->p_filesz - at < sizeof(Elf64_Nhdr) || at > ph->p_filesz
					   ? NULL
					   : elf_at(e, ph->p_offset + at, sizeof(Elf64_Nhdr));
		uint64_t name, desc;
		Elf64_Nhdr n;

		if (!p)
			return;
		memcpy(&n, p, sizeof(n));
		name = at + sizeof(n);
		desc = (name + n.n_namesz + align - 1) & ~(align - 1);
		at = (desc + n.n_descsz + align - 1) & ~(align - 1);
		if (desc + n.n_descsz > ph->p_filesz)
			return;
		if (n.n_type != NT_GNU_BUILD_ID || n.n_namesz != 4 || !n.n_descsz || n.n_descsz > ELF_BUILD_ID_MAX)
			continue;
		p = elf_at(e, ph->p_offset + name, 4);
		if (!p || memcmp(p, "GNU", 4))
			continue;
		p = elf_at(e, ph->p_offset + desc, n.n_descsz);
		for (unsigned i = 0; p && i < n.n_descsz; i++)
			snprintf(e->build_id + 2 * i, 3, "%02x", p[i]);
	}
}

static int add_load(struct elf *e, const Elf64_Phdr *ph)
{
	/* an overflow would make addresses out of offsets that are none */
	if (e->load_count == ELF_LOADS_MAX || ph->p_offset > INT64_MAX || ph->p_filesz > INT64_MAX - ph->p_offset ||
	    ph->p_vaddr + ph->p_filesz < ph->p_vaddr)
		return -ENOEXEC;
	e->loads[e->load_count++] = (struct elf_load){
		.off = ph->p_offset,
		.vaddr = ph->p_vaddr,
		.filesz = ph->p_filesz,
		.memsz = ph->p_memsz,
		.exec = ph->p_flags & PF_X,
	};
	return 0;
}

static void read_interp(struct elf *e, const Elf64_Phdr *ph)
{
	struct elf_strings s = {ph->p_offset, ph->p_filesz};

	e->interp = string_at(e, &s, 0);
}

static int read_segments(struct elf *e, const Elf64_Ehdr *eh)
{
	unsigned notes = NOTES_MAX;

	if (eh->e_phentsize != sizeof(Elf64_Phdr) || !table_fits(e, eh->e_phoff, eh->e_phnum, sizeof(Elf64_Phdr)))
		return -ENOEXEC;
	for (unsigned i = 0; i < eh->e_phnum; i++) {
		Elf64_Phdr ph;

		memcpy(&ph, e->map + eh->e_phoff + i * sizeof(ph), sizeof(ph));
		if (ph.p_type == PT_LOAD && add_load(e, &ph))
			return -ENOEXEC;
		if (ph.p_type == PT_NOTE)
			read_build_id(e, &ph, &notes);
		if (ph.p_type == PT_INTERP)
			read_interp(e, &ph);
		if (ph.p_type == PT_GNU_EH_FRAME)
			e->eh_frame_hdr = (struct elf_strings){ph.p_offset, ph.p_filesz};
		if (ph.p_type == PT_DYNAMIC) {
			uint64_t count = ph.p_filesz / sizeof(Elf64_Dyn);

			count = count < DYNAMIC_MAX ? count : DYNAMIC_MAX;
			if (table_fits(e, ph.p_offset, count, sizeof(Elf64_Dyn)))
				e->dynamic = (struct elf_table){ph.p_offset, count};
		}
	}
	return e->load_count ? 0 : -ENOEXEC;
}

/* --- sections: symbol tables, and the size of .dynsym ------------------------------------------------------------ */

static bool read_section(const struct elf *e, uint64_t i, Elf64_Shdr *out)
{
	if (i >= e->sections.count)
		return false;
	memcpy(out, e->map + e->sections.off + i * sizeof(*out), sizeof(*out));
	return true;
}

static void read_sections(struct elf *e, const Elf64_Ehdr *eh)
{
	Elf64_Shdr sh, str;

	if (!eh->e_shoff || eh->e_shentsize != sizeof(sh) || !table_fits(e, eh->e_shoff, eh->e_shnum, sizeof(sh)))
		return;
	e->sections = (struct elf_table){eh->e_shoff, eh->e_shnum};
	if (read_section(e, eh->e_shstrndx, &str) && table_fits(e, str.sh_offset, str.sh_size, 1))
		e->section_names = (struct elf_strings){str.sh_offset, str.sh_size};
	for (uint64_t i = 0; read_section(e, i, &sh); i++) {
		uint64_t count = sh.sh_size / sizeof(Elf64_Sym);

		if ((sh.sh_type != SHT_SYMTAB && sh.sh_type != SHT_DYNSYM) ||
		    !table_fits(e, sh.sh_offset, count, sizeof(Elf64_Sym)) || !read_section(e, sh.sh_link, &str) ||
		    !table_fits(e, str.sh_offset, str.sh_size, 1))
			continue;
		if (sh.sh_type == SHT_SYMTAB) {
			e->symtab = (struct elf_table){sh.sh_offset, count};
			e->strtab = (struct elf_strings){str.sh_offset, str.sh_size};
		} else {
			e->dynsym = (struct elf_table){sh.sh_offset, count};
			e->dynstr = (struct elf_strings){str.sh_offset, str.sh_size};
		}
	}
}

bool elf_section(const struct elf *e, struct sv name, struct elf_section *out)
{
	Elf64_Shdr sh;

	for (uint64_t i = 0; read_section(e, i, &sh); i++) {
		if (sh.sh_type == SHT_NOBITS || !sh.sh_size || !table_fits(e, sh.sh_offset, sh.sh_size, 1) ||
		    !sv_eq(string_at(e, &e->section_names, sh.sh_name), name))
			continue;
		*out = (struct elf_section){sh.sh_offset, sh.sh_size, sh.sh_addr};
		return true;
	}
	return false;
}

/* --- the dynamic table: works without section headers ------------------------------------------------------------ */

/* Symbols that DT_GNU_HASH reaches: the highest bucket's chain ends the table. 0 when it is broken. */
static uint64_t gnu_hash_count(const struct elf *e, uint64_t off)
{
	const uint8_t *p = elf_at(e, off, 16);
	uint32_t h[4], top = 0, word;
	uint64_t buckets;

	if (!p)
		return 0;
	memcpy(h, p, sizeof(h)); /* buckets, first symbol, bloom words, shift */
	buckets = off + 16 + 8ull * h[2];
	if (!table_fits(e, buckets, h[0], 4))
		return 0;
	for (uint32_t i = 0; i < h[0]; i++) {
		memcpy(&word, e->map + buckets + 4ull * i, 4);
		top = word > top ? word : top;
	}
	if (top < h[1])
		return h[1]; /* no exported symbol: only imports precede */
	for (uint64_t i = top;; i++) {
		p = elf_at(e, buckets + 4ull * h[0] + 4 * (i - h[1]), 4);
		if (!p)
			return 0;
		memcpy(&word, p, 4);
		if (word & 1)
			return i + 1;
	}
}

static uint64_t hash_count(const struct elf *e, uint64_t off)
{
	const uint8_t *p = elf_at(e, off, 8);
	uint32_t h[2];

	if (!p)
		return 0;
	memcpy(h, p, sizeof(h));
	return h[1]; /* chains: one a symbol */
}

struct dynamic { /* values of the dynamic table, 0 where absent */
	uint64_t symtab, strtab, strsz, hash, gnu_hash, jmprel, pltrelsz, rela, relasz, soname, rpath, runpath;
};

static bool dynamic_entry(const struct elf *e, uint64_t i, Elf64_Dyn *d)
{
	if (i >= e->dynamic.count)
		return false;
	memcpy(d, e->map + e->dynamic.off + i * sizeof(*d), sizeof(*d));
	return d->d_tag != DT_NULL;
}

static void collect_dynamic(const struct elf *e, struct dynamic *d)
{
	const struct {
		int64_t tag;
		uint64_t *value;
	} wanted[] = {
		{DT_SYMTAB, &d->symtab}, {DT_STRTAB, &d->strtab},     {DT_STRSZ, &d->strsz},
		{DT_HASH, &d->hash},	 {DT_GNU_HASH, &d->gnu_hash}, {DT_JMPREL, &d->jmprel},
		{DT_RELA, &d->rela},	 {DT_PLTRELSZ, &d->pltrelsz}, {DT_RELASZ, &d->relasz},
		{DT_RPATH, &d->rpath},	 {DT_RUNPATH, &d->runpath},   {DT_SONAME, &d->soname},
	};
	Elf64_Dyn entry;

	for (uint64_t i = 0; dynamic_entry(e, i, &entry); i++)
		for (unsigned k = 0; k < ARRAY_SIZE(wanted); k++)
			if (entry.d_tag == wanted[k].tag)
				*wanted[k].value = entry.d_un.d_val;
}

static struct elf_table relocations(const struct elf *e, uint64_t vaddr, uint64_t size)
{
	int64_t off = vaddr ? offset_of(e, vaddr) : -1;
	uint64_t count = size / sizeof(Elf64_Rela);

	if (off < 0 || !table_fits(e, (uint64_t)off, count, sizeof(Elf64_Rela)))
		return (struct elf_table){0, 0};
	return (struct elf_table){(uint64_t)off, count < RELOCATIONS_MAX ? count : RELOCATIONS_MAX};
}

static void read_dynamic(struct elf *e)
{
	struct dynamic d = {0};
	int64_t symtab, strtab, hash, gnu_hash;
	uint64_t count;

	collect_dynamic(e, &d);
	strtab = d.strtab ? offset_of(e, d.strtab) : -1;
	symtab = d.symtab ? offset_of(e, d.symtab) : -1;
	if (strtab >= 0 && table_fits(e, (uint64_t)strtab, d.strsz, 1))
		e->dynstr = (struct elf_strings){(uint64_t)strtab, d.strsz};
	/* ld.so goes by the dynamic table; a section header that agrees with it only adds the size */
	if (symtab >= 0 && (uint64_t)symtab != e->dynsym.off) {
		hash = d.hash ? offset_of(e, d.hash) : -1;
		gnu_hash = d.gnu_hash ? offset_of(e, d.gnu_hash) : -1;
		count = hash >= 0 ? hash_count(e, (uint64_t)hash) : 0;
		if (!count && gnu_hash >= 0)
			count = gnu_hash_count(e, (uint64_t)gnu_hash);
		if (table_fits(e, (uint64_t)symtab, count, sizeof(Elf64_Sym)))
			e->dynsym = (struct elf_table){(uint64_t)symtab, count};
	}
	e->jmprel = relocations(e, d.jmprel, d.pltrelsz);
	e->rela = relocations(e, d.rela, d.relasz);
	if (d.soname)
		e->soname = string_at(e, &e->dynstr, d.soname);
	e->runpath = d.runpath != 0;
	if (d.runpath || d.rpath)
		e->rpath = string_at(e, &e->dynstr, d.runpath ? d.runpath : d.rpath);
}

/* --- open, close ------------------------------------------------------------------------------------------------- */

int elf_from_bytes(struct elf *e, const void *bytes, size_t size)
{
	Elf64_Ehdr eh;

	*e = (struct elf){.fd = -1, .map = bytes, .size = size};
	if (size < sizeof(eh))
		return -ENOEXEC;
	memcpy(&eh, bytes, sizeof(eh));
	if (memcmp(eh.e_ident, ELFMAG, SELFMAG) || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
	    eh.e_ident[EI_DATA] != ELFDATA2LSB || (eh.e_type != ET_EXEC && eh.e_type != ET_DYN) ||
	    (eh.e_machine != EM_X86_64 && eh.e_machine != EM_AARCH64))
		return -ENOEXEC;
	e->machine = eh.e_machine;
	if (read_segments(e, &eh))
		return -ENOEXEC;
	read_sections(e, &eh);
	if (e->dynamic.count)
		read_dynamic(e);
	return 0;
}

struct bytes {
	struct elf *e;
	const void *bytes;
	size_t size;
};

static int read_bytes(void *ctx)
{
	struct bytes *b = ctx;

	return elf_from_bytes(b->e, b->bytes, b->size);
}

int elf_open_regular(const char *path, struct stat *st)
{
	int place = open(path, O_PATH | O_CLOEXEC), fd;
	char held[FDNAME_BYTES];

	if (place < 0)
		return -errno;
	fd = fstat(place, st) ? -errno : !S_ISREG(st->st_mode) ? -EINVAL : 0;
	if (!fd) {
		fd = open(fdname(place, held), O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* nobody's lease makes us wait */
		fd = fd < 0 ? -errno : fd;
	}
	close(place);
	return fd;
}

/* Before all else is asked: that data is too large, or cannot be mapped, is nobody's concern. 0 or -errno. */
static int look_at_magic(int fd)
{
	char magic[SELFMAG];
	ssize_t len = pread(fd, magic, sizeof(magic), 0);

	if (len < 0)
		return -errno;
	return len == sizeof(magic) && !memcmp(magic, ELFMAG, SELFMAG) ? 0 : -ENOEXEC;
}

int elf_map(struct elf *e, const char *path)
{
	struct bytes b = {.e = e};
	struct stat st;
	void *map;
	int fd, err;

	*e = (struct elf){.fd = -1};
	fd = elf_open_regular(path, &st);
	if (fd < 0)
		return fd;
	err = look_at_magic(fd);
	if (!err && (uint64_t)st.st_size > FILE_BYTES_MAX)
		err = -EFBIG;
	if (!err && (size_t)st.st_size < sizeof(Elf64_Ehdr))
		err = -ENOEXEC;
	if (err)
		goto fail;
	/* Shared: into a private mapping, read-only or not, the kernel puts the breakpoints of every uprobe on the file
	 * (valid_vma in kernel/events/uprobes.c), our own and other tracers', and we would read them as code. */
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		err = -errno;
		goto fail;
	}
	b.bytes = map;
	b.size = (size_t)st.st_size;
	err = sigbus_guard(read_bytes, &b);
	if (err) {
		munmap(map, (size_t)st.st_size);
		goto fail;
	}
	e->fd = fd;
	e->dev = st.st_dev;
	e->ino = st.st_ino;
	return 0;
fail:
	close(fd);
	*e = (struct elf){.fd = -1};
	return err;
}

void elf_unmap(struct elf *e)
{
	if (e->fd >= 0) {
		munmap((void *)(uintptr_t)e->map, e->size);
		close(e->fd);
	}
	*e = (struct elf){.fd = -1};
}

void elf_forget(const struct elf *e, uint64_t off, uint64_t len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = (off + page - 1) / page * page, end;

	/* bytes of the caller would be lost, not forgotten */
	if (e->fd < 0 || off > e->size || len > e->size - off)
		return;
	end = (off + len) / page * page;
	if (begin < end)
		madvise((void *)(uintptr_t)(e->map + begin), end - begin, MADV_DONTNEED);
}

/* --- symbols ----------------------------------------------------------------------------------------------------- */

static Elf64_Sym symbol_at(const struct elf *e, const struct elf_table *t, uint64_t i)
{
	Elf64_Sym s;

	memcpy(&s, e->map + t->off + i * sizeof(s), sizeof(s));
	return s;
}

/* 1: a defined function of e; 0: something else; -EBADMSG. `symbols` holds its name. IFUNCs are left out: their value
 * is the resolver's. */
static int function_of(const struct elf *e, const struct elf *symbols, const Elf64_Sym *s,
		       const struct elf_strings *names, struct elf_symbol *out)
{
	struct sv version;
	int64_t off = -1;

	if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || s->st_shndx == SHN_UNDEF || s->st_shndx == SHN_ABS ||
	    s->st_shndx == SHN_COMMON)
		return 0;
	for (unsigned i = 0; i < e->load_count && off < 0; i++)
		if (e->loads[i].exec)
			off = elf_offset_of(&e->loads[i], 1, s->st_value);
	if (off < 0 || !elf_at(e, (uint64_t)off, 1))
		return 0;
	if (s->st_name >= names->size)
		return -EBADMSG;
	out->name = string_at(symbols, names, s->st_name);
	if (!out->name.ptr)
		return 0;
	out->name = sv_cut(out->name, '@', &version);
	out->vaddr = s->st_value;
	out->size = s->st_size;
	out->off = (uint64_t)off;
	return 1;
}

static int each_in(const struct elf *e, const struct elf *symbols, const struct elf_table *t,
		   const struct elf_strings *names, bool (*fn)(void *ctx, const struct elf_symbol *s), void *ctx,
		   bool *stopped)
{
	struct elf_symbol out;
	int err = 0;

	for (uint64_t i = 0; i < t->count && !*stopped; i++) {
		Elf64_Sym s = symbol_at(symbols, t, i);
		int is = function_of(e, symbols, &s, names, &out);

		if (is < 0)
			err = is;
		else if (is)
			*stopped = !fn(ctx, &out);
	}
	return err;
}

int elf_each_function_by(const struct elf *e, const struct elf *symbols,
			 bool (*fn)(void *ctx, const struct elf_symbol *s), void *ctx)
{
	bool stopped = false;
	int err = each_in(e, symbols, &symbols->dynsym, &symbols->dynstr, fn, ctx, &stopped);
	int err2 = each_in(e, symbols, &symbols->symtab, &symbols->strtab, fn, ctx, &stopped);

	return err ? err : err2;
}

int elf_each_function(const struct elf *e, bool (*fn)(void *ctx, const struct elf_symbol *s), void *ctx)
{
	return elf_each_function_by(e, e, fn, ctx);
}

int64_t elf_defined(const struct elf *e, struct sv name)
{
	struct elf_symbol out;

	for (uint64_t i = 0; i < e->dynsym.count; i++) {
		Elf64_Sym s = symbol_at(e, &e->dynsym, i);

		if (function_of(e, e, &s, &e->dynstr, &out) > 0 && sv_eq(out.name, name))
			return (int64_t)out.off;
	}
	return -1;
}

/* --- PLT --------------------------------------------------------------------------------------------------------- */

static struct sv relocation_name(const struct elf *e, const struct elf_table *t, uint64_t got)
{
	struct sv version;

	for (uint64_t i = 0; i < t->count; i++) {
		Elf64_Sym s;
		Elf64_Rela r;
		uint32_t type;

		memcpy(&r, e->map + t->off + i * sizeof(r), sizeof(r));
		type = ELF64_R_TYPE(r.r_info);
		if (r.r_offset != got || ELF64_R_SYM(r.r_info) >= e->dynsym.count)
			continue;
		if (e->machine == EM_X86_64 ? type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT
					    : type != R_AARCH64_JUMP_SLOT && type != R_AARCH64_GLOB_DAT)
			continue;
		s = symbol_at(e, &e->dynsym, ELF64_R_SYM(r.r_info));
		return sv_cut(string_at(e, &e->dynstr, s.st_name), '@', &version);
	}
	return SV_NONE;
}

struct sv elf_got_name(const struct elf *e, uint64_t got)
{
	struct sv name = relocation_name(e, &e->jmprel, got);

	return name.ptr ? name : relocation_name(e, &e->rela, got);
}

/* The relative relocation whose place, or (by_value) whose value this is. */
static bool relative_relocation(const struct elf *e, uint64_t wanted, bool by_value, Elf64_Rela *r)
{
	uint32_t relative = e->machine == EM_X86_64 ? R_X86_64_RELATIVE : R_AARCH64_RELATIVE;

	for (uint64_t i = 0; i < e->rela.count; i++) {
		memcpy(r, e->map + e->rela.off + i * sizeof(*r), sizeof(*r));
		if (ELF64_R_TYPE(r->r_info) == relative && (by_value ? (uint64_t)r->r_addend : r->r_offset) == wanted)
			return true;
	}
	return false;
}

bool elf_word(const struct elf *e, uint64_t vaddr, uint64_t *value)
{
	int64_t off = offset_of(e, vaddr);
	const uint8_t *p = off < 0 ? NULL : elf_at(e, (uint64_t)off, sizeof(*value));
	Elf64_Rela r;

	if (!p)
		return false;
	if (relative_relocation(e, vaddr, false, &r))
		*value = (uint64_t)r.r_addend;
	else
		memcpy(value, p, sizeof(*value));
	return true;
}

bool elf_relocated_to(const struct elf *e, uint64_t value, uint64_t *vaddr)
{
	Elf64_Rela r;

	if (!relative_relocation(e, value, true, &r))
		return false;
	*vaddr = r.r_offset;
	return true;
}

/* [endbr64] [bnd] jmp *disp(%rip), of .plt, .plt.sec and .plt.got alike. 0: something else. */
static uint64_t got_of_plt_x86(const uint8_t *p, size_t len, uint64_t vaddr)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	size_t at = 0;
	int32_t disp;

	if (len >= 4 && !memcmp(p, endbr64, 4))
		at = 4;
	if (at < len && p[at] == 0xf2)
		at++;
	if (at + 6 > len || p[at] != 0xff || p[at + 1] != 0x25)
		return 0;
	memcpy(&disp, p + at + 2, 4);
	return vaddr + at + 6 + (uint64_t)(int64_t)disp;
}

/* [bti c] adrp x16, page; ldr x17, [x16, #lo12] */
static uint64_t got_of_plt_arm64(const uint8_t *p, size_t len, uint64_t vaddr)
{
	size_t at = 0;
	uint32_t w[2];
	int64_t page;

	if (len >= 4) {
		memcpy(w, p, 4);
		at = w[0] == 0xd503245f ? 4 : 0;
	}
	if (at + 8 > len)
		return 0;
	memcpy(w, p + at, 8);
	if ((w[0] & 0x9f00001f) != 0x90000010 || (w[1] & 0xffc003ff) != 0xf9400211)
		return 0;
	page = (int64_t)(((w[0] >> 5 & 0x7ffff) << 2) | (w[0] >> 29 & 3));
	page = (page ^ (1 << 20)) - (1 << 20);
	return ((vaddr + at) & ~0xfffull) + (uint64_t)(page * 4096) + (uint64_t)((w[1] >> 10 & 0xfff) * 8);
}

struct sv elf_plt_name(const struct elf *e, uint64_t vaddr)
{
	int64_t off = offset_of(e, vaddr);
	uint64_t got;
	size_t len;

	if (off < 0 || (uint64_t)off >= e->size)
		return SV_NONE;
	len = e->size - (uint64_t)off < PLT_ENTRY_BYTES ? e->size - (uint64_t)off : PLT_ENTRY_BYTES;
	got = e->machine == EM_X86_64 ? got_of_plt_x86(e->map + off, len, vaddr)
				      : got_of_plt_arm64(e->map + off, len, vaddr);
	return got ? elf_got_name(e, got) : SV_NONE;
}

/* --- what ld.so would map ---------------------------------------------------------------------------------------- */

void elf_each_needed(const struct elf *e, void (*fn)(void *ctx, struct sv soname), void *ctx)
{
	Elf64_Dyn d;

	for (uint64_t i = 0; dynamic_entry(e, i, &d); i++) {
		struct sv name = d.d_tag == DT_NEEDED ? string_at(e, &e->dynstr, d.d_un.d_val) : SV_NONE;

		if (name.len)
			fn(ctx, name);
	}
}

struct sv elf_interp(const struct elf *e)
{
	return e->interp;
}

struct sv elf_rpath(const struct elf *e)
{
	return e->rpath;
}
