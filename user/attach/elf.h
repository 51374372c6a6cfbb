/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_ELF_H
#define ATTACH_ELF_H

/*
 * One ELF file, mapped read-only: headers, segments, symbols. 64-bit little-endian x86-64 and aarch64. Hostile files
 * are survived: every offset is checked against the mapping before use (a file that shrinks while mapped is for
 * base/sigbus.h; elf_map() sees to itself). The bytes are the file's own, without the breakpoints of probes that are
 * attached.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/sv.h"

#define ELF_BUILD_ID_MAX 20

struct elf_load { /* a PT_LOAD */
	uint64_t off, vaddr, filesz, memsz;
	bool exec;
};
#define ELF_LOADS_MAX 64

struct elf_table { /* fixed-size entries in the file; checked: the whole table is inside it */
	uint64_t off, count;
};
struct elf_strings { /* a string table, checked likewise */
	uint64_t off, size;
};

struct elf {
	int fd; /* owned; -1 for elf_from_bytes() */
	const uint8_t *map;
	size_t size;
	uint16_t machine; /* EM_X86_64, EM_AARCH64 */
	struct elf_load loads[ELF_LOADS_MAX];
	unsigned load_count;
	uint64_t dev, ino;
	char build_id[2 * ELF_BUILD_ID_MAX + 1]; /* hex, "" when there is none */
	struct sv soname;			 /* DT_SONAME, borrowed from the mapping */
	bool runpath; /* elf_rpath() is DT_RUNPATH (asked after LD_LIBRARY_PATH), not DT_RPATH */

	/* found once by elf_map(), for the functions below */
	struct elf_table sections, dynamic, dynsym, symtab, jmprel, rela;
	struct elf_strings section_names, dynstr, strtab;
	struct elf_strings eh_frame_hdr; /* PT_GNU_EH_FRAME; not checked to be in the file */
	struct sv interp, rpath;
};

/* A regular file, and never anything else, wherever the name leads to by now: a FIFO that is opened wakes who waits at
 * its other end, and a device may begin to do something. The descriptor, or -errno (-EINVAL: another kind of file). */
int elf_open_regular(const char *path, struct stat *st);

/* Opens O_RDONLY|O_CLOEXEC (through /proc/PID/map_files, root or exe as the caller likes). 0; -ENOEXEC (no ELF we
 * read), -EFBIG, -EINVAL (not a regular file), -EIO (it becomes shorter now),
 * other -errno. */
int elf_map(struct elf *e, const char *path);
/* The same over bytes that the caller keeps until elf_unmap(). 0 or -ENOEXEC. */
int elf_from_bytes(struct elf *e, const void *bytes, size_t size);
void elf_unmap(struct elf *e);

/* Virtual address to file offset, inside a PT_LOAD's file part: offset, or -1. */
int64_t elf_offset_of(const struct elf_load *loads, unsigned n, uint64_t vaddr);
/* The other way; UINT64_MAX when the offset is in no segment. */
uint64_t elf_vaddr_of(const struct elf *e, uint64_t off);
/* Bytes at a file offset, NULL when [off, off+len) is not inside the file. */
const uint8_t *elf_at(const struct elf *e, uint64_t off, size_t len);
/* The whole pages of [off, off+len) need not stay resident: read again, they come from the page cache. */
void elf_forget(const struct elf *e, uint64_t off, uint64_t len);

struct elf_section { /* with its bytes inside the file */
	uint64_t off, size, vaddr;
};
/* The first section of a name. False: none, none with bytes, or the file has no section headers. */
bool elf_section(const struct elf *e, struct sv name, struct elf_section *out);

struct elf_symbol {
	struct sv name; /* without @VERSION; borrowed from the mapping */
	uint64_t vaddr, size;
	uint64_t off; /* file offset */
};

/* Every defined function symbol of .dynsym and .symtab. fn returns false to stop. 0, -EBADMSG for broken tables (what
 * is readable was reported). */
int elf_each_function(const struct elf *e, bool (*fn)(void *ctx, const struct elf_symbol *s), void *ctx);

/* The same, named by the symbol tables of another file about the same code (mini debug info): addresses, segments and
 * offsets are those of e. */
int elf_each_function_by(const struct elf *e, const struct elf *symbols,
			 bool (*fn)(void *ctx, const struct elf_symbol *s), void *ctx);

/* The import (.rela.plt name) that a PLT entry at this virtual address jumps to; SV_NONE when it is none. */
struct sv elf_plt_name(const struct elf *e, uint64_t vaddr);
/* The same for the address of a GOT entry (code compiled without a PLT). */
struct sv elf_got_name(const struct elf *e, uint64_t got);
/* The 64-bit word that a program finds at this virtual address: relocated (as if loaded at 0), or as in the file. */
bool elf_word(const struct elf *e, uint64_t vaddr, uint64_t *value);
/* The first place (virtual address) that is relocated to this one; false: none. */
bool elf_relocated_to(const struct elf *e, uint64_t value, uint64_t *vaddr);
/* Where in this file a name that it imports from itself is defined (.dynsym): file offset, or -1. */
int64_t elf_defined(const struct elf *e, struct sv name);
/* DT_NEEDED names and PT_INTERP, for what ld.so would map. Borrowed. fn may be called 0 times. */
void elf_each_needed(const struct elf *e, void (*fn)(void *ctx, struct sv soname), void *ctx);
struct sv elf_interp(const struct elf *e);
struct sv elf_rpath(const struct elf *e); /* DT_RUNPATH, else DT_RPATH */

#endif
