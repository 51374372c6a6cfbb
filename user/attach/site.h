/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_SITE_H
#define ATTACH_SITE_H

/*
 * Where in a function a probe sits. The kernel emulates some instructions (push r64, jcc, call/jmp rel, one-byte nop):
 * a hit there costs 0.55 us, where it must single-step up to 19 us (measured on a VM, Linux 6.18). The resolver decodes
 * from the function's start and picks the cheapest safe instruction:
 *  1. the first emulated instruction on the straight line from the entry before rsp or an argument register changes;
 *  2. else the same in the internal function that the public one calls with the same arguments (site_forward);
 *  3. else the entry itself, class STEPPED.
 * Never an offset that was not decoded as an instruction boundary.
 */

#include "elf.h"

enum site_class {
	SITE_EMULATED,
	SITE_STEPPED,
	SITE_ENTRY /* arm64, whose code is not decoded: the function's entry */
};

struct site {
	uint64_t off;	   /* file offset of the probe */
	uint64_t func_off; /* file offset of the function probed (internal one by rule 2) */
	enum site_class class;
	uint8_t rule;	 /* 1, 2, 3; 4: an instruction that was chosen for what it is (site_at) */
	uint8_t len_arg; /* 0: moved length is the return value; N: *(size_t *)argument N, returned > 0 */
	char insn[32];	 /* text of the instruction, for check and metadata */
};

/* Rules 1 and 3 (rule 2 needs the related functions: site_forward).
 * func_off: file offset of the function; has_return: a return probe is wanted (rsp must still be the entry's).
 * 0; -EINVAL when the function cannot be decoded. */
int site_resolve(const struct elf *e, uint64_t func_off, bool has_return, struct site *out);

/* Rules 1 and 3 for code that takes its arguments elsewhere: the general registers of the mask (bit n: number n of the
 * instruction set, 4 is rsp) still have the entry's values at the site. 0; -EINVAL; -ENOMEM. */
int site_resolve_keeping(const struct elf *e, uint64_t func_off, uint32_t keep, struct site *out);
/*
 * Rules 1 and 3 for code whose arguments are read in whatever register they are: registers[i] is the number of an
 * argument, from 1, and then of the register (of the instruction set, as above) that holds it at the site. rsp is the
 * entry's there. On other machines the numbers are those of the registers of arguments, from 0. 0; -EINVAL; -ENOMEM.
 */
#define SITE_ARGUMENTS_MAX 3
int site_resolve_arguments(const struct elf *e, uint64_t func_off, uint8_t *registers, unsigned count,
			   struct site *out);
/* The instruction at an offset that the caller arrived at by decoding. 0; -EINVAL; -ENOMEM. */
int site_at(const struct elf *e, uint64_t func_off, uint64_t off, struct site *out);

/* The function that this one tail-jumps to, possibly through its own PLT, as its whole work: file offset and, for a
 * jump through the PLT, the symbol name. false: none. */
bool site_tail_target(const struct elf *e, uint64_t func_off, uint64_t *target_off, struct sv *plt_name);

/*
 * Rule 2. The one function that the function at func_off (func_size bytes, from its symbol) hands its own first three
 * arguments to, unchanged (the third may be widened), with `what` as argument number `at`: SITE_LOCAL, the address of a
 * local variable, or N, its own argument number N. Every path is followed with what is known of registers and stack.
 * One hop through this file's PLT or a function that only jumps on is taken. 0; -ENOENT: none; -ENOTUNIQ: several, or a
 * call through a pointer besides (inlined internals); -E2BIG; -ENOMEM.
 */
#define SITE_LOCAL 0
int site_forward(const struct elf *e, uint64_t func_off, uint64_t func_size, unsigned at, unsigned what,
		 uint64_t *target_off);

/* Whether the function calls or jumps to the one at target_off, itself or by a function that it calls directly. True
 * too when that cannot be told (no memory, the function is too large, another machine). */
bool site_reaches(const struct elf *e, uint64_t func_off, uint64_t target_off);

const char *site_class_name(enum site_class c); /* "emulated", "single-stepped", "entry" */

#endif
