/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "frames.h"

#include <string.h>

#define HEADER_BYTES	12
#define ENTRY_BYTES	8
#define FUNCTION_ALIGN	16
#define PARTS_MAX	16   /* of functions, skipped on the way to an entry */
#define ENCODING_UDATA4 0x03 /* of the count */
#define ENCODING_TABLE	0x3b /* of the entries: sdata4, relative to the header */

/* Call frame instructions that may begin the description of a whole function. */
#define CFA_NOP		 0x00
#define CFA_ADVANCE_LOC1 0x02
#define CFA_ADVANCE_LOC4 0x04
#define CFA_ADVANCE_LOC	 0x40 /* in the two highest bits */

static int32_t word_at(const uint8_t *p)
{
	int32_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

void frames_open(struct frames *f, const struct elf *e)
{
	const uint8_t *p = e->eh_frame_hdr.size >= HEADER_BYTES ? elf_at(e, e->eh_frame_hdr.off, HEADER_BYTES) : NULL;
	uint64_t room = e->eh_frame_hdr.size - HEADER_BYTES;

	*f = (struct frames){.e = e};
	/* version; how .eh_frame's address, the count and the entries are written */
	if (!p || p[0] != 1 || p[2] != ENCODING_UDATA4 || p[3] != ENCODING_TABLE || (p[1] & 7) != ENCODING_UDATA4)
		return;
	f->vaddr = elf_vaddr_of(e, e->eh_frame_hdr.off);
	f->table_off = e->eh_frame_hdr.off + HEADER_BYTES;
	f->count = (uint32_t)word_at(p + 8);
	if (f->vaddr == UINT64_MAX || f->count > room / ENTRY_BYTES || !elf_at(e, f->table_off, room))
		f->count = 0;
}

static uint64_t address(const struct frames *f, uint32_t i, unsigned field)
{
	return f->vaddr + (uint64_t)(int64_t)word_at(f->e->map + f->table_off + (uint64_t)i * ENTRY_BYTES + field);
}

/* Where a description's instructions begin, *end: where it ends. NULL: it is of no kind that we read. */
static const uint8_t *instructions(const struct frames *f, uint32_t i, const uint8_t **end)
{
	int64_t off = elf_offset_of(f->e->loads, f->e->load_count, address(f, i, 4));
	const uint8_t *p = off < 0 ? NULL : elf_at(f->e, (uint64_t)off, 17);
	uint32_t len;

	/* length, offset of the common part, begin, size, length of what is augmented */
	if (!p || address(f, i, 4) + 8 + (uint64_t)(int64_t)word_at(p + 8) != address(f, i, 0))
		return NULL;
	len = (uint32_t)word_at(p);
	if (len < 13 || len > 0xffffff || p[16] > 0x7f || p[16] > len - 13 || !elf_at(f->e, (uint64_t)off, len + 4))
		return NULL;
	*end = p + 4 + len;
	return p + 17 + p[16];
}

/* A part that was moved away (.cold) is described with the frame of its function from the first byte on. */
static bool is_entry(const struct frames *f, uint32_t i)
{
	const uint8_t *end, *p = instructions(f, i, &end);

	if (!p || address(f, i, 0) % FUNCTION_ALIGN)
		return false;
	return p == end || *p == CFA_NOP || (*p >= CFA_ADVANCE_LOC1 && *p <= CFA_ADVANCE_LOC4) ||
	       (*p & 0xc0) == CFA_ADVANCE_LOC;
}

bool frames_function_before(const struct frames *f, uint64_t off, uint64_t reach, uint64_t *entry)
{
	uint64_t vaddr = f->count ? elf_vaddr_of(f->e, off) : UINT64_MAX;
	uint32_t low = 0, high = f->count;

	if (vaddr == UINT64_MAX)
		return false;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (address(f, middle, 0) <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	for (unsigned n = 0; n < PARTS_MAX && low; n++, low--) {
		uint64_t at = address(f, low - 1, 0);
		int64_t found;

		if (vaddr - at > reach) /* or the table is not sorted */
			return false;
		found = is_entry(f, low - 1) ? elf_offset_of(f->e->loads, f->e->load_count, at) : -1;
		if (found >= 0 && (uint64_t)found <= off) {
			*entry = (uint64_t)found;
			return true;
		}
	}
	return false;
}
