/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "insn.h"

#include <stdlib.h>

#include "base/err.h"

#define INSN_BYTES_MAX 15

/* --- decoding ---------------------------------------------------------------------------------------------------- */

int decoder_open(struct decoder *d, const struct elf *e)
{
	*d = (struct decoder){.e = e};
	if (cs_open(CS_ARCH_X86, CS_MODE_64, &d->handle) != CS_ERR_OK)
		return -ENOMEM;
	if (cs_option(d->handle, CS_OPT_DETAIL, CS_OPT_ON) == CS_ERR_OK)
		d->insn = cs_malloc(d->handle);
	if (!d->insn) {
		cs_close(&d->handle);
		return -ENOMEM;
	}
	return 0;
}

void decoder_close(struct decoder *d)
{
	cs_free(d->insn, 1);
	cs_close(&d->handle);
}

int64_t code_offset(const struct elf *e, uint64_t vaddr)
{
	for (unsigned i = 0; i < e->load_count; i++) {
		int64_t off = e->loads[i].exec ? elf_offset_of(&e->loads[i], 1, vaddr) : -1;

		if (off >= 0)
			return off;
	}
	return -1;
}

bool decode_insn(struct decoder *d, uint64_t off)
{
	uint64_t vaddr = elf_vaddr_of(d->e, off);
	size_t len = INSN_BYTES_MAX;
	const uint8_t *p;

	if (vaddr == UINT64_MAX || code_offset(d->e, vaddr) != (int64_t)off || off >= d->e->size)
		return false;
	if (d->e->size - off < len)
		len = d->e->size - off;
	p = d->e->map + off;
	d->off = off;
	return cs_disasm_iter(d->handle, &p, &len, &vaddr, d->insn);
}

enum flow flow_of(const struct decoder *d, int64_t *target)
{
	const cs_insn *i = d->insn;
	bool direct = i->detail->x86.op_count == 1 && i->detail->x86.operands[0].type == X86_OP_IMM;

	*target = direct ? code_offset(d->e, (uint64_t)i->detail->x86.operands[0].imm) : -1;
	switch (i->id) {
	case X86_INS_CALL:
		return direct ? FLOW_CALL : FLOW_CALL_INDIRECT;
	case X86_INS_JMP:
		return direct ? FLOW_JUMP : FLOW_JUMP_INDIRECT;
	case X86_INS_LCALL:
	case X86_INS_LJMP:
	case X86_INS_UD0:
	case X86_INS_UD2:
	case X86_INS_HLT:
	case X86_INS_INT3:
	case X86_INS_INT:
	case X86_INS_SYSCALL: /* clobbers registers; nothing that we look at makes one */
	case X86_INS_XBEGIN:
		return FLOW_END;
	default:
		break;
	}
	if (cs_insn_group(d->handle, i, X86_GRP_RET) || cs_insn_group(d->handle, i, X86_GRP_IRET))
		return FLOW_END;
	return cs_insn_group(d->handle, i, X86_GRP_JUMP) ? FLOW_BRANCH : FLOW_NEXT;
}

int reg_number(unsigned reg)
{
	static const uint16_t names[16][5] = {
		{X86_REG_RAX, X86_REG_EAX, X86_REG_AX, X86_REG_AL, X86_REG_AH},
		{X86_REG_RCX, X86_REG_ECX, X86_REG_CX, X86_REG_CL, X86_REG_CH},
		{X86_REG_RDX, X86_REG_EDX, X86_REG_DX, X86_REG_DL, X86_REG_DH},
		{X86_REG_RBX, X86_REG_EBX, X86_REG_BX, X86_REG_BL, X86_REG_BH},
		{X86_REG_RSP, X86_REG_ESP, X86_REG_SP, X86_REG_SPL, X86_REG_RSP},
		{X86_REG_RBP, X86_REG_EBP, X86_REG_BP, X86_REG_BPL, X86_REG_RBP},
		{X86_REG_RSI, X86_REG_ESI, X86_REG_SI, X86_REG_SIL, X86_REG_RSI},
		{X86_REG_RDI, X86_REG_EDI, X86_REG_DI, X86_REG_DIL, X86_REG_RDI},
		{X86_REG_R8, X86_REG_R8D, X86_REG_R8W, X86_REG_R8B, X86_REG_R8},
		{X86_REG_R9, X86_REG_R9D, X86_REG_R9W, X86_REG_R9B, X86_REG_R9},
		{X86_REG_R10, X86_REG_R10D, X86_REG_R10W, X86_REG_R10B, X86_REG_R10},
		{X86_REG_R11, X86_REG_R11D, X86_REG_R11W, X86_REG_R11B, X86_REG_R11},
		{X86_REG_R12, X86_REG_R12D, X86_REG_R12W, X86_REG_R12B, X86_REG_R12},
		{X86_REG_R13, X86_REG_R13D, X86_REG_R13W, X86_REG_R13B, X86_REG_R13},
		{X86_REG_R14, X86_REG_R14D, X86_REG_R14W, X86_REG_R14B, X86_REG_R14},
		{X86_REG_R15, X86_REG_R15D, X86_REG_R15W, X86_REG_R15B, X86_REG_R15},
	};

	for (int n = 0; n < 16; n++)
		for (int k = 0; k < 5; k++)
			if (names[n][k] == reg)
				return n;
	return -1;
}
uint32_t written_regs(const struct decoder *d)
{
	cs_regs read, written;
	uint8_t read_count, written_count;
	uint32_t mask = 0;

	if (cs_regs_access(d->handle, d->insn, read, &read_count, written, &written_count) != CS_ERR_OK)
		return UINT32_MAX;
	for (unsigned i = 0; i < written_count; i++) {
		int n = reg_number(written[i]);

		if (n >= 0)
			mask |= 1u << n;
	}
	return mask;
}

/* --- a function's instructions ----------------------------------------------------------------------------------- */

static int body_init(struct body *b, unsigned max)
{
	*b = (struct body){.max = max, .index_size = 2 * max};
	b->insns = calloc(max, sizeof(*b->insns));
	b->index = calloc(b->index_size, sizeof(*b->index));
	return b->insns && b->index ? 0 : -ENOMEM;
}

void body_release(struct body *b)
{
	free(b->insns);
	free(b->index);
	*b = (struct body){0};
}

static uint32_t *body_slot(const struct body *b, uint64_t off)
{
	unsigned i = (unsigned)((off * 0x9e3779b97f4a7c15ull) >> 40) % b->index_size;

	while (b->index[i] && b->insns[b->index[i] - 1].off != off)
		i = (i + 1) % b->index_size;
	return &b->index[i];
}

int body_find(const struct body *b, int64_t off)
{
	return off < 0 ? -1 : (int)*body_slot(b, (uint64_t)off) - 1;
}

static void body_add(struct body *b, int64_t off)
{
	uint32_t *slot = off < 0 ? NULL : body_slot(b, (uint64_t)off);

	if (!slot || *slot)
		return;
	if (b->count == b->max) {
		b->whole = false;
		return;
	}
	b->insns[b->count].off = (uint64_t)off;
	*slot = ++b->count;
}

int body_read(struct body *b, struct decoder *d, uint64_t func_off, uint64_t size, unsigned max)
{
	int err = body_init(b, max);

	if (err)
		return err;
	b->whole = true;
	body_add(b, (int64_t)func_off);
	for (unsigned i = 0; i < b->count; i++) {
		struct insn *n = &b->insns[i];
		bool inside;

		if (!decode_insn(d, n->off)) {
			n->flow = FLOW_END;
			n->target = -1;
			continue;
		}
		n->size = (uint8_t)d->insn->size;
		n->flow = (uint8_t)flow_of(d, &n->target);
		inside = !size ||
			 (n->target >= 0 && (uint64_t)n->target >= func_off && (uint64_t)n->target - func_off < size);
		if (n->flow == FLOW_NEXT || n->flow == FLOW_BRANCH || n->flow == FLOW_CALL ||
		    n->flow == FLOW_CALL_INDIRECT)
			body_add(b, (int64_t)(n->off + n->size));
		if (n->flow == FLOW_BRANCH || (n->flow == FLOW_JUMP && inside))
			body_add(b, n->target);
	}
	return 0;
}
