/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CHAIN_H
#define CHAIN_H

/* The property that no probe may break: it sits on an instruction that decoding from the function's start arrives at.
 * Decoded here anew, one instruction after the other, with nothing of site.c. */

#include <capstone/capstone.h>
#include <stdbool.h>

#include "attach/site.h"

static inline bool on_decode_chain(const struct elf *e, uint64_t func_off, uint64_t site_off)
{
	uint64_t at = func_off;
	bool found = false;
	csh handle;
	cs_insn *insn;

	if (site_off < func_off || site_off - func_off > 8192 || cs_open(CS_ARCH_X86, CS_MODE_64, &handle) != CS_ERR_OK)
		return false;
	while (at < site_off) {
		size_t room = e->size - at < 15 ? e->size - at : 15;

		if (cs_disasm(handle, e->map + at, room, 0, 1, &insn) != 1)
			break;
		at += insn->size;
		cs_free(insn, 1);
	}
	found = at == site_off &&
		cs_disasm(handle, e->map + at, e->size - at < 15 ? e->size - at : 15, 0, 1, &insn) == 1;
	if (found)
		cs_free(insn, 1);
	cs_close(&handle);
	return found;
}

#endif
