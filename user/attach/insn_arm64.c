/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "insn_arm64.h"

#include <string.h>

/* A signed field of the word, in instructions: bits [low, low + bits). */
static int64_t displacement(uint32_t word, unsigned low, unsigned bits)
{
	int32_t field = (int32_t)(word << (32 - low - bits)) >> (32 - bits);

	return (int64_t)field * ARM64_INSN_SIZE;
}

/* b and bl; b.cond, cbz, tbz and theirs. 0: no direct branch. */
static int64_t direct_branch(uint32_t word, enum flow *flow)
{
	if ((word & 0x7c000000) == 0x14000000) {
		*flow = word & 0x80000000 ? FLOW_CALL : FLOW_JUMP;
		return displacement(word, 0, 26);
	}
	if ((word & 0xff000000) == 0x54000000 || (word & 0x7e000000) == 0x34000000) {
		*flow = FLOW_BRANCH;
		return displacement(word, 5, 19);
	}
	if ((word & 0x7e000000) == 0x36000000) {
		*flow = FLOW_BRANCH;
		return displacement(word, 5, 14);
	}
	*flow = FLOW_NEXT;
	return 0;
}

/* By a register; traps; what is no instruction. */
static enum flow other_flow(uint32_t word)
{
	if ((word & 0xfe000000) == 0xd6000000) {
		switch (word >> 21 & 7) { /* bit 24 is pointer authentication */
		case 0:
			return FLOW_JUMP_INDIRECT;
		case 1:
			return FLOW_CALL_INDIRECT;
		default:
			return FLOW_END; /* ret, eret, drps */
		}
	}
	/* svc, hvc, smc, brk, hlt; udf */
	return (word & 0xff000000) == 0xd4000000 || !(word & 0xffff0000) ? FLOW_END : FLOW_NEXT;
}

bool arm64_insn_at(const struct elf *e, uint64_t off, struct arm64_word *out)
{
	uint64_t vaddr = elf_vaddr_of(e, off);
	const uint8_t *p = elf_at(e, off, ARM64_INSN_SIZE);
	int64_t distance;

	*out = (struct arm64_word){.target = -1};
	if (!p || vaddr == UINT64_MAX || vaddr % ARM64_INSN_SIZE || code_offset(e, vaddr) != (int64_t)off)
		return false;
	memcpy(&out->word, p, ARM64_INSN_SIZE);
	distance = direct_branch(out->word, &out->flow);
	if (out->flow != FLOW_NEXT)
		out->target = code_offset(e, vaddr + (uint64_t)distance);
	else
		out->flow = other_flow(out->word);
	return true;
}

bool arm64_is_return(uint32_t word)
{
	return word == 0xd65f03c0;
}

bool arm64_is_odd_return(uint32_t word)
{
	return (word & 0xfe000000) == 0xd6000000 && (word >> 21 & 7) == 2 && !arm64_is_return(word);
}

bool arm64_is_simulated(uint32_t word)
{
	enum flow flow;

	direct_branch(word, &flow);
	return flow != FLOW_NEXT || (word & 0xff9ffc1f) == 0xd61f0000 ||	       /* br, blr, ret */
	       (word & 0x1f000000) == 0x10000000 ||				       /* adr, adrp */
	       (word & 0xbf000000) == 0x18000000 || (word & 0xff000000) == 0x98000000; /* ldr of a literal */
}
