/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "site.h"

#include <elf.h>
#include <stdio.h>

#include "base/err.h"
#include "insn.h"
#include "insn_arm64.h"

#define STRAIGHT_LINE_MAX 32	/* instructions looked at from the entry */
#define BODY_INSNS_MAX	  16384 /* of a function, to see whether it comes back to the site */

const char *site_class_name(enum site_class c)
{
	static const char *const names[] = {"emulated", "single-stepped", "entry"};

	return c < ARRAY_SIZE(names) ? names[c] : "?";
}

/* --- rules 1 and 3 ----------------------------------------------------------------------------------------------- */

#define ARGUMENT_REGS (1u << RDI | 1u << RSI | 1u << RDX | 1u << RCX | 1u << R8 | 1u << R9)

/* What arch/x86/kernel/uprobes.c emulates (branch_setup_xol_ops, push_setup_xol_ops), by the bytes: it looks at no
 * more. No prefix is accepted besides the REX.B of push r8-r15, though some would be. */
static bool is_emulated(const uint8_t *p, size_t size)
{
	if (size == 1)
		return (p[0] & 0xf8) == 0x50 || p[0] == 0x90;
	if (size == 2)
		return (p[0] == 0x41 && (p[1] & 0xf8) == 0x50) || (p[0] & 0xf0) == 0x70 || p[0] == 0xeb;
	if (size == 5)
		return p[0] == 0xe8 || p[0] == 0xe9;
	return size == 6 && p[0] == 0x0f && (p[1] & 0xf0) == 0x80;
}

static void fill(const struct decoder *d, uint64_t func_off, enum site_class class, uint8_t rule, struct site *out)
{
	char text[sizeof(d->insn->mnemonic) + sizeof(d->insn->op_str) + 2];
	int len = snprintf(text, sizeof(text), "%s %s", d->insn->mnemonic, d->insn->op_str);

	if (len > 0 && text[len - 1] == ' ')
		text[len - 1] = '\0';
	*out = (struct site){.off = d->off, .func_off = func_off, .class = class, .rule = rule};
	memcpy(out->insn, text, strnlen(text, sizeof(out->insn) - 1));
}

/* A site behind the entry must not be reached twice in one call: a loop back to somewhere before it would do that. */
static bool comes_back(struct decoder *d, uint64_t func_off, uint64_t site_off)
{
	struct body b;
	bool back = true;

	if (site_off == func_off)
		return false;
	if (!body_read(&b, d, func_off, 0, BODY_INSNS_MAX) && b.whole) {
		back = false;
		for (unsigned i = 0; i < b.count; i++)
			back |= (b.insns[i].flow == FLOW_BRANCH || b.insns[i].flow == FLOW_JUMP) &&
				b.insns[i].target > (int64_t)func_off && b.insns[i].target <= (int64_t)site_off;
	}
	body_release(&b);
	return back;
}

/* Values of the entry, each in all the registers of a mask. */
struct values {
	uint32_t in[SITE_ARGUMENTS_MAX];
	unsigned count;
};

/* After the decoded instruction. False: one of them is in no register any more. */
static bool follow_values(const struct decoder *d, struct values *v)
{
	const cs_x86_op *to = d->insn->detail->x86.operands, *from = to + 1;
	bool moved = d->insn->id == X86_INS_MOV && to->type == X86_OP_REG && from->type == X86_OP_REG &&
		     to->size == 8 && reg_number(to->reg) >= 0 && reg_number(from->reg) >= 0;
	uint32_t written = written_regs(d);

	for (unsigned i = 0; i < v->count; i++) {
		bool copied = moved && v->in[i] & 1u << reg_number(from->reg);

		v->in[i] &= ~written;
		if (copied)
			v->in[i] |= 1u << reg_number(to->reg);
		if (!v->in[i])
			return false;
	}
	return true;
}

/* Rule 1: d stands on the site when true. keep: registers that are not written before it. */
static bool straight_line_site(struct decoder *d, uint64_t func_off, uint32_t keep, struct values *v)
{
	uint64_t off = func_off;
	int64_t target;

	for (unsigned i = 0; i < STRAIGHT_LINE_MAX && decode_insn(d, off); i++) {
		if (is_emulated(d->insn->bytes, d->insn->size))
			return !comes_back(d, func_off, off) && decode_insn(d, off);
		if (flow_of(d, &target) != FLOW_NEXT || written_regs(d) & keep || !follow_values(d, v))
			return false;
		off += d->insn->size;
	}
	return false;
}

static bool is_code(const struct elf *e, uint64_t off)
{
	return code_offset(e, elf_vaddr_of(e, off)) == (int64_t)off && elf_at(e, off, 4);
}

/* v: at the entry, then at the site. */
static int resolve(const struct elf *e, uint64_t func_off, uint32_t keep, struct values *v, struct site *out)
{
	const struct values at_entry = *v;
	struct decoder d;
	int err;

	*out = (struct site){.off = func_off, .func_off = func_off, .class = SITE_ENTRY, .rule = 3};
	if (!is_code(e, func_off))
		return -EINVAL;
	if (e->machine != EM_X86_64)
		return 0;
	err = decoder_open(&d, e);
	if (err)
		return err;
	if (straight_line_site(&d, func_off, keep, v)) {
		fill(&d, func_off, SITE_EMULATED, 1, out);
	} else if (decode_insn(&d, func_off)) {
		fill(&d, func_off, SITE_STEPPED, 3, out);
		*v = at_entry;
	} else {
		err = -EINVAL;
	}
	decoder_close(&d);
	return err;
}

int site_resolve_keeping(const struct elf *e, uint64_t func_off, uint32_t keep, struct site *out)
{
	struct values none = {.count = 0};

	return resolve(e, func_off, keep, &none, out);
}

/* What a call need not keep: others are pushed before they are written. */
#define SCRATCH_REGS (ARGUMENT_REGS | 1u << RAX | 1u << R10 | 1u << R11)

int site_resolve_arguments(const struct elf *e, uint64_t func_off, uint8_t *registers, unsigned count, struct site *out)
{
	static const uint8_t argument_regs[] = {RDI, RSI, RDX, RCX, R8, R9};
	struct values v = {.count = count};
	int err;

	for (unsigned i = 0; i < count; i++)
		v.in[i] = 1u << argument_regs[registers[i] - 1];
	err = resolve(e, func_off, 1u << RSP | (0xffff & ~SCRATCH_REGS), &v, out);
	for (unsigned i = 0; i < count && !err; i++)
		registers[i] = e->machine == EM_X86_64 ? (uint8_t)__builtin_ctz(v.in[i]) : registers[i] - 1;
	return err;
}

int site_resolve(const struct elf *e, uint64_t func_off, bool has_return, struct site *out)
{
	/* an entry probe reads arguments only; what a return probe replaces is at the entry's rsp */
	return site_resolve_keeping(e, func_off, ARGUMENT_REGS | (has_return ? 1u << RSP : 0), out);
}

static int arm64_site_at(const struct elf *e, uint64_t func_off, uint64_t off, struct site *out)
{
	struct arm64_word insn;

	if (!arm64_insn_at(e, off, &insn))
		return -EINVAL;
	*out = (struct site){.off = off, .func_off = func_off, .rule = 4};
	out->class = arm64_is_simulated(insn.word) ? SITE_EMULATED : SITE_STEPPED;
	if (arm64_is_return(insn.word))
		strcpy(out->insn, "ret");
	else
		snprintf(out->insn, sizeof(out->insn), "0x%08x", insn.word);
	return 0;
}

int site_at(const struct elf *e, uint64_t func_off, uint64_t off, struct site *out)
{
	struct decoder d;
	int err;

	if (e->machine == EM_AARCH64)
		return arm64_site_at(e, func_off, off, out);
	err = decoder_open(&d, e);
	if (err)
		return err;
	if (decode_insn(&d, off))
		fill(&d, func_off, is_emulated(d.insn->bytes, d.insn->size) ? SITE_EMULATED : SITE_STEPPED, 4, out);
	else
		err = -EINVAL;
	decoder_close(&d);
	return err;
}
