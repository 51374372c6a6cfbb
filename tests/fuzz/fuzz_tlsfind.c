/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The whole finder over any bytes: what it finds is an instruction of the file. */
#include <elf.h>

#include "attach/insn.h"
#include "attach/tlsfind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tls_finds found;
	struct decoder d;
	struct elf e;

	if (elf_from_bytes(&e, data, size))
		return 0;
	if (tlsfind(&e, &found))
		return 0;
	if (decoder_open(&d, &e))
		__builtin_trap();
	for (unsigned i = 0; i < found.count; i++)
		for (unsigned k = 0; k < found.stacks[i].count; k++)
			if (e.machine == EM_X86_64 && !decode_insn(&d, found.stacks[i].funcs[k].site.off))
				__builtin_trap();
	decoder_close(&d);
	elf_unmap(&e);
	return 0;
}
