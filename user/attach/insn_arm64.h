/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_INSN_ARM64_H
#define ATTACH_INSN_ARM64_H

/*
 * arm64 code of an ELF file, as much of it as how control goes on (Arm Architecture Reference Manual, C4.1: branches,
 * exception generating). Each instruction is one aligned word, so that none can begin within another; data between
 * functions' code are told only by that no branch leads there. Private to site*.c and tlsfind_*.c.
 */

#include "insn.h"

#define ARM64_INSN_SIZE 4

/* capstone has an arm64_insn */
struct arm64_word {
	uint32_t word;
	enum flow flow;
	int64_t target; /* file offset of a direct branch's target, -1: none, or outside the code */
};

bool arm64_insn_at(const struct elf *e, uint64_t off, struct arm64_word *out); /* false: no code there */

bool arm64_is_return(uint32_t word);	 /* `ret`, to the link register and without authentication */
bool arm64_is_odd_return(uint32_t word); /* any other */
/* What arch/arm64/kernel/probes/decode-insn.c simulates, which costs no single step. */
bool arm64_is_simulated(uint32_t word);

#endif
