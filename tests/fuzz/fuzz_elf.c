/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ELF reader over any bytes: everything it offers is called. */
#include "attach/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
	size_t n;
	const struct elf *e;
};

static bool each_function(void *ctx, const struct elf_symbol *s)
{
	struct sum *sum = ctx;

	for (size_t i = 0; i < s->name.len; i++)
		sum->n += (unsigned char)s->name.ptr[i];
	sum->n += *elf_at(sum->e, s->off, 1);
	return true;
}

static void each_needed(void *ctx, struct sv soname)
{
	((struct sum *)ctx)->n += soname.len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf e;
	struct sum sum = {0, &e};

	if (elf_from_bytes(&e, data, size))
		return 0;
	elf_each_function(&e, each_function, &sum);
	elf_each_needed(&e, each_needed, &sum);
	for (unsigned i = 0; i < e.load_count; i++)
		for (uint64_t at = 0; at < 64; at += 4) {
			uint64_t off = e.loads[i].off + at, vaddr = elf_vaddr_of(&e, off);

			sum.n += elf_plt_name(&e, e.loads[i].vaddr + at).len;
			if (vaddr != UINT64_MAX && elf_offset_of(e.loads, e.load_count, vaddr) < 0)
				__builtin_trap();
		}
	elf_defined(&e, SV("SSL_read"));
	elf_unmap(&e);
	return 0;
}
