/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "gotable.h"

#include "base/err.h"

#define MAGIC_1_2  0xfffffffbu
#define MAGIC_1_16 0xfffffffau
#define MAGIC_1_18 0xfffffff0u
#define MAGIC_1_20 0xfffffff1u

/* The head: magic, two zeros, instruction quantum (1 on x86, 4 on aarch64), pointer size; then words. */
#define HEAD_BYTES 72
#define TEXT_AT	   24 /* textStart */
enum head_word { COUNT, FILES, TEXT, NAMES, UNITS, FILE_TABLE, PC_TABLE, FUNCTIONS, HEAD_WORDS };
_Static_assert(8 + 8 * HEAD_WORDS == HEAD_BYTES && 8 + 8 * TEXT == TEXT_AT, "words behind 8 bytes");

#define FUNCTION_BYTES 8 /* of the table at `functions`: u32 entry, u32 offset of what is known of the function */
/* moduledata begins with the table's address and five slices; minpc, the first function's address, is word 20. */
#define MODULE_MINPC_AT	 (8 * 20)
#define MODULE_SCANS_MAX 64 /* places that look like the beginning of a moduledata */

static uint32_t word32(const uint8_t *p)
{
	uint32_t n;

	memcpy(&n, p, sizeof(n));
	return n;
}

static uint64_t word64(const uint8_t *p)
{
	uint64_t n;

	memcpy(&n, p, sizeof(n));
	return n;
}

/* [off, off + len) of the table; NULL when it is not inside. */
static const uint8_t *table_at(const struct go_table *t, uint64_t off, size_t len)
{
	if (off > t->size || len > t->size - off)
		return NULL;
	return elf_at(t->e, t->off + off, len);
}

/* --- where it is ------------------------------------------------------------------------------------------------- */

static bool is_head(const uint8_t *p)
{
	uint32_t magic = word32(p);

	return (magic == MAGIC_1_2 || magic == MAGIC_1_16 || magic == MAGIC_1_18 || magic == MAGIC_1_20) && !p[4] &&
	       !p[5] && (p[6] == 1 || p[6] == 4) && p[7] == 8;
}

static int read_head(struct go_table *t)
{
	const uint8_t *p = table_at(t, 0, HEAD_BYTES);
	uint64_t w[HEAD_WORDS];
	uint32_t magic;

	if (!p || !is_head(p))
		return -EBADMSG;
	magic = word32(p);
	if (magic != MAGIC_1_18 && magic != MAGIC_1_20)
		return -EPROTONOSUPPORT;
	for (unsigned i = 0; i < HEAD_WORDS; i++)
		w[i] = word64(p + 8 + 8 * i);
	t->text = w[TEXT];
	t->names = w[NAMES];
	t->functions = w[FUNCTIONS];
	t->count = w[COUNT];
	/* one more entry ends the table: the end of the last function */
	if (t->names >= t->size || t->functions > t->size - FUNCTION_BYTES || !t->count ||
	    t->count >= (t->size - t->functions) / FUNCTION_BYTES)
		return -EBADMSG;
	return 0;
}

/* Without a section of its own: the first head in a segment that is no code, whose table is whole. */
static int scan_segment(struct go_table *t, uint64_t begin, uint64_t end)
{
	static const uint8_t mark[] = {0xff, 0xff, 0xff, 0, 0}; /* behind the magic's first byte */
	int err = -EBADMSG;

	for (uint64_t at = begin + 1; at < end && end - at >= HEAD_BYTES && err == -EBADMSG; at++) {
		const uint8_t *p = memmem(t->e->map + at, end - at, mark, sizeof(mark));

		if (!p)
			break;
		at = (uint64_t)(p - t->e->map);
		if ((at - 1) % 8 || end - at < HEAD_BYTES || !is_head(p - 1))
			continue;
		t->off = at - 1;
		t->size = end - t->off;
		err = read_head(t);
	}
	return err;
}

static int scan_segments(struct go_table *t)
{
	int err = -EBADMSG;

	for (unsigned i = 0; i < t->e->load_count && err == -EBADMSG; i++) {
		const struct elf_load *l = &t->e->loads[i];
		uint64_t end = l->off + l->filesz;

		if (!l->exec && l->off < t->e->size)
			err = scan_segment(t, l->off, end < t->e->size ? end : t->e->size);
	}
	return err == -EBADMSG ? -ENOENT : err;
}

/* gcc's linker puts the table into .data.rel.ro (cgo, position-independent); section headers may be stripped. */
static bool may_be_go(const struct elf *e)
{
	struct elf_section s;

	return !e->sections.count || elf_section(e, SV(".note.go.buildid"), &s) ||
	       elf_section(e, SV(".go.buildinfo"), &s);
}

int go_table_open(struct go_table *t, const struct elf *e)
{
	struct elf_section s;
	int err;

	*t = (struct go_table){.e = e};
	if (elf_section(e, SV(".gopclntab"), &s) || elf_section(e, SV(".data.rel.ro.gopclntab"), &s)) {
		t->off = s.off;
		t->size = s.size;
		err = read_head(t);
	} else {
		err = may_be_go(e) ? scan_segments(t) : -ENOENT;
	}
	t->vaddr = err == -ENOENT ? UINT64_MAX : elf_vaddr_of(e, t->off);
	return err;
}

/* --- functions --------------------------------------------------------------------------------------------------- */

bool go_table_mentions(const struct go_table *t, const char *name)
{
	const uint8_t *p = elf_at(t->e, t->off, t->size);

	return p && memmem(p, t->size, name, strlen(name) + 1);
}

void go_table_find(const struct go_table *t, const char *const *names, unsigned count, struct go_function *out,
		   unsigned *found)
{
	memset(found, 0, count * sizeof(*found));
	for (uint64_t i = 0; i < t->count; i++) {
		const uint8_t *f = table_at(t, t->functions + i * FUNCTION_BYTES, FUNCTION_BYTES + 4), *info, *name;
		uint64_t at;

		info = f ? table_at(t, t->functions + word32(f + 4), 8) : NULL; /* u32 entry, s32 name */
		if (!info || word32(info) != word32(f))
			continue;
		at = t->names + word32(info + 4);
		for (unsigned k = 0; k < count; k++) {
			size_t len = strlen(names[k]) + 1;

			name = table_at(t, at, len);
			if (!name || memcmp(name, names[k], len) || word32(f + FUNCTION_BYTES) <= word32(f))
				continue;
			if (!found[k]++)
				out[k] = (struct go_function){word32(f), word32(f + FUNCTION_BYTES) - word32(f)};
		}
	}
}

/* --- where the text starts --------------------------------------------------------------------------------------- */

static bool module_text(const struct go_table *t, uint64_t module, uint64_t *text)
{
	const uint8_t *first = table_at(t, t->functions, 4);
	uint64_t minpc;

	if (!first || module > UINT64_MAX - MODULE_MINPC_AT || !elf_word(t->e, module + MODULE_MINPC_AT, &minpc) ||
	    minpc < word32(first))
		return false;
	*text = minpc - word32(first);
	return true;
}

/* Position-independent, and not relocated in place: the pointer to the table is a relocation. */
static bool text_by_relocation(const struct go_table *t, uint64_t *text)
{
	uint64_t module;

	return elf_relocated_to(t->e, t->vaddr, &module) && module_text(t, module, text);
}

static bool text_by_pointer(const struct go_table *t, uint64_t *text)
{
	unsigned scans = 0;

	for (unsigned i = 0; i < t->e->load_count; i++) {
		const struct elf_load *l = &t->e->loads[i];
		uint64_t end = l->off + l->filesz;

		end = end < t->e->size ? end : t->e->size;
		for (uint64_t at = l->off; !l->exec && at < end && scans < MODULE_SCANS_MAX; at++) {
			const uint8_t *p = memmem(t->e->map + at, end - at, &t->vaddr, sizeof(t->vaddr));

			if (!p)
				break;
			scans++;
			at = (uint64_t)(p - t->e->map);
			if (at % 8 == 0 && module_text(t, elf_vaddr_of(t->e, at), text))
				return true;
		}
	}
	return false;
}

bool go_table_text(const struct go_table *t, unsigned way, uint64_t *text)
{
	bool mapped = t->vaddr != UINT64_MAX;
	struct elf_section s;

	switch (way) {
	case 0:
		return mapped && elf_word(t->e, t->vaddr + TEXT_AT, text) && *text;
	case 1:
		*text = t->text;
		return *text;
	case 2:
		return mapped && text_by_pointer(t, text);
	case 3:
		return mapped && text_by_relocation(t, text);
	case 4:
		*text = elf_section(t->e, SV(".text"), &s) ? s.vaddr : 0;
		return *text;
	default:
		return false;
	}
}
