/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_INSN_H
#define ATTACH_INSN_H

/* x86-64 code of an ELF file, by capstone: one instruction, and all that direct branches reach. Private to site*.c and
 * tlsfind_*.c. */

#include <capstone/capstone.h>

#include "elf.h"

struct decoder {
	const struct elf *e;
	csh handle;
	cs_insn *insn; /* what decode_insn() found last */
	uint64_t off;  /* and where */
};

int decoder_open(struct decoder *d, const struct elf *e); /* 0 or -ENOMEM */
void decoder_close(struct decoder *d);
bool decode_insn(struct decoder *d, uint64_t off); /* false: no code there, or none that is known */

/* File offset of code at an address, -1 when no executable segment holds it. */
int64_t code_offset(const struct elf *e, uint64_t vaddr);

enum flow { FLOW_NEXT, FLOW_BRANCH, FLOW_JUMP, FLOW_CALL, FLOW_JUMP_INDIRECT, FLOW_CALL_INDIRECT, FLOW_END };

/* How control leaves the decoded instruction; *target: file offset of a direct branch's target, -1 outside the code. */
enum flow flow_of(const struct decoder *d, int64_t *target);

/* General registers by their number in the instruction set. */
enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };
int reg_number(unsigned reg); /* of a capstone name, whatever its width; -1: not a general one */

/* Bit n: general register n is written, implicitly too. All bits when that is not known. */
uint32_t written_regs(const struct decoder *d);

struct insn {
	uint64_t off;
	int64_t target; /* file offset, -1 */
	uint8_t size;
	uint8_t flow; /* enum flow */
};

struct body {		    /* of a function */
	struct insn *insns; /* breadth first from the entry */
	uint32_t *index;    /* open addressing over offsets: position + 1 */
	unsigned count, max, index_size;
	bool whole; /* not cut by max */
};

/* Every instruction that direct branches reach from the entry, at most max. With a size known, a jump out of
 * [func_off, +size) is taken for a tail call and not followed (a conditional branch out of it leads to the function's
 * own cold part). 0 or -ENOMEM; body_release() in any case. */
int body_read(struct body *b, struct decoder *d, uint64_t func_off, uint64_t size, unsigned max);
void body_release(struct body *b);
int body_find(const struct body *b, int64_t off); /* position of the instruction at an offset, or -1 */

#endif
