/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rule 2: which function a function hands its arguments to. */
#include "site.h"

#include <elf.h>
#include <stdlib.h>

#include "base/err.h"
#include "insn.h"

#define WRAPPER_INSNS_MAX 32
#define FLOW_INSNS_MAX	  1024 /* of a function whose arguments are followed: wrappers are far smaller */
#define FLOW_STEPS_MAX	  32768

/* --- wrappers ---------------------------------------------------------------------------------------------------- */

/* The GOT entry of `jmp *disp(%rip)`, as code compiled without a PLT does it. 0: another jump. */
static uint64_t got_of_jump(const struct decoder *d)
{
	const cs_x86 *x = &d->insn->detail->x86;

	if (d->insn->id != X86_INS_JMP || x->op_count != 1 || x->operands[0].type != X86_OP_MEM ||
	    x->operands[0].mem.base != X86_REG_RIP || x->operands[0].mem.index != X86_REG_INVALID)
		return 0;
	return d->insn->address + d->insn->size + (uint64_t)x->operands[0].mem.disp;
}

/* Through the PLT to where this same file defines the name. */
static uint64_t resolve_plt(const struct elf *e, uint64_t off, struct sv *plt_name)
{
	int64_t defined;

	*plt_name = elf_plt_name(e, elf_vaddr_of(e, off));
	defined = plt_name->ptr ? elf_defined(e, *plt_name) : -1;
	return defined >= 0 ? (uint64_t)defined : off;
}

static bool tail_target(struct decoder *d, uint64_t func_off, uint64_t *target_off, struct sv *plt_name)
{
	uint64_t off = func_off, got;
	int64_t target;
	enum flow flow;

	*plt_name = SV_NONE;
	for (unsigned i = 0; i < WRAPPER_INSNS_MAX && decode_insn(d, off); i++) {
		flow = flow_of(d, &target);
		if (flow == FLOW_JUMP && target >= 0) {
			*target_off = resolve_plt(d->e, (uint64_t)target, plt_name);
			return true;
		}
		got = flow == FLOW_JUMP_INDIRECT ? got_of_jump(d) : 0;
		*plt_name = got ? elf_got_name(d->e, got) : SV_NONE;
		if (plt_name->ptr) {
			target = elf_defined(d->e, *plt_name);
			*target_off = target >= 0 ? (uint64_t)target : off;
			return true;
		}
		/* a wrapper shuffles registers and nothing else */
		if (flow != FLOW_NEXT || written_regs(d) & (1u << RSP))
			return false;
		for (unsigned k = 0; k < d->insn->detail->x86.op_count; k++)
			if (d->insn->detail->x86.operands[k].type == X86_OP_MEM && d->insn->id != X86_INS_LEA &&
			    d->insn->id != X86_INS_NOP)
				return false;
		off += d->insn->size;
	}
	return false;
}

bool site_tail_target(const struct elf *e, uint64_t func_off, uint64_t *target_off, struct sv *plt_name)
{
	struct decoder d;
	bool found;

	*plt_name = SV_NONE;
	if (e->machine != EM_X86_64 || decoder_open(&d, e))
		return false;
	found = tail_target(&d, func_off, target_off, plt_name);
	decoder_close(&d);
	return found;
}

/* One hop: through the PLT, or a function that only jumps on. -1: into another file. */
static int64_t one_hop(struct decoder *d, int64_t off)
{
	uint64_t target;
	struct sv name;

	if (off < 0)
		return -1;
	target = resolve_plt(d->e, (uint64_t)off, &name);
	if (name.ptr)
		return target == (uint64_t)off ? -1 : (int64_t)target;
	if (!tail_target(d, (uint64_t)off, &target, &name))
		return off;
	return name.ptr && elf_defined(d->e, name) < 0 ? -1 : (int64_t)target;
}

static bool reaches(struct decoder *d, uint64_t func_off, uint64_t target_off, unsigned depth)
{
	struct body b;
	bool found = body_read(&b, d, func_off, 0, FLOW_INSNS_MAX) || (depth && !b.whole);

	for (unsigned i = 0; i < b.count && !found; i++) {
		struct insn n = b.insns[i];
		int64_t hop = n.flow == FLOW_CALL || n.flow == FLOW_JUMP ? one_hop(d, n.target) : -1;

		found = hop >= 0 &&
			(n.target == (int64_t)target_off || hop == (int64_t)target_off ||
			 (depth && n.flow == FLOW_CALL && reaches(d, (uint64_t)hop, target_off, depth - 1)));
	}
	body_release(&b);
	return found;
}

bool site_reaches(const struct elf *e, uint64_t func_off, uint64_t target_off)
{
	struct decoder d;
	bool found;

	if (e->machine != EM_X86_64 || decoder_open(&d, e))
		return true;
	found = reaches(&d, func_off, target_off, 1);
	decoder_close(&d);
	return found;
}

/* --- rule 2: what becomes of the arguments ----------------------------------------------------------------------- */

enum value_kind {
	VALUE_UNKNOWN,
	VALUE_ARGUMENT,	       /* n: own argument, from 1 */
	VALUE_ARGUMENT_32BITS, /* its lower half, widened */
	VALUE_ARGUMENT_HALF,   /* its lower half, four bytes on the stack */
	VALUE_STACK,	       /* n: address relative to rsp at the entry */
};
struct value {
	int32_t kind, n;
};

#define SLOTS 128 /* 4-byte steps below the entry's rsp; what begins there is followed */
struct state {
	struct value reg[16];
	struct value slot[SLOTS];
	bool seen;
};

struct dataflow {
	struct decoder *d;
	struct body body;
	struct state *states; /* before each instruction */
	uint32_t *queue;      /* instructions to look at again, a stack */
	bool *queued;
	unsigned queue_len;
};

static const struct value UNKNOWN = {VALUE_UNKNOWN, 0};

static struct value *slot_of(struct state *s, int64_t at)
{
	return at < 0 && at >= -4 * SLOTS && at % 4 == 0 ? &s->slot[-at / 4 - 1] : NULL;
}

static void forget_range(struct state *s, int64_t at, unsigned size)
{
	for (int k = 0; k < SLOTS; k++) {
		int64_t slot = -4 * (k + 1);
		unsigned bytes = s->slot[k].kind == VALUE_ARGUMENT_HALF ? 4 : 8;

		if (slot < at + (int64_t)size && at < slot + (int64_t)bytes)
			s->slot[k] = UNKNOWN;
	}
}

static void forget_slots(struct state *s)
{
	memset(s->slot, 0, sizeof(s->slot));
}

/* Whether a memory operand is a place in our frame: its address relative to the entry's rsp. */
static bool frame_address(const struct state *s, const x86_op_mem *m, int64_t *at)
{
	int base = reg_number(m->base);

	if (base < 0 || m->segment != X86_REG_INVALID || m->index != X86_REG_INVALID ||
	    s->reg[base].kind != VALUE_STACK)
		return false;
	*at = s->reg[base].n + m->disp;
	return true;
}

static struct value narrowed(struct value v)
{
	return v.kind == VALUE_ARGUMENT || v.kind == VALUE_ARGUMENT_32BITS || v.kind == VALUE_ARGUMENT_HALF
		       ? (struct value){VALUE_ARGUMENT_32BITS, v.n}
		       : UNKNOWN;
}

static struct value value_of(struct state *s, const cs_x86_op *op)
{
	struct value v = UNKNOWN;
	int64_t at;

	if (op->type == X86_OP_REG) {
		int n = reg_number(op->reg);

		v = n >= 0 ? s->reg[n] : UNKNOWN;
	} else if (op->type == X86_OP_MEM && frame_address(s, &op->mem, &at)) {
		v = slot_of(s, at) ? *slot_of(s, at) : UNKNOWN;
	}
	if (op->size == 4)
		return narrowed(v);
	return op->size == 8 && v.kind != VALUE_ARGUMENT_HALF ? v : UNKNOWN;
}

/* Any instruction: what it writes is unknown from now on. */
static void step_unknown(struct dataflow *f, struct state *s)
{
	const cs_x86 *x = &f->d->insn->detail->x86;
	uint32_t mask = written_regs(f->d);

	for (unsigned i = 0; i < x->op_count; i++) {
		int base = x->operands[i].type == X86_OP_MEM ? reg_number(x->operands[i].mem.base) : -1;
		int64_t at;

		if (base < 0 || !(x->operands[i].access & CS_AC_WRITE) || s->reg[base].kind != VALUE_STACK)
			continue;
		if (frame_address(s, &x->operands[i].mem, &at))
			forget_range(s, at, x->operands[i].size);
		else
			forget_slots(s);
	}
	for (int n = 0; n < 16; n++)
		if (mask & 1u << n)
			s->reg[n] = UNKNOWN;
}

static void step_mov(struct dataflow *f, struct state *s)
{
	const cs_x86_op *to = &f->d->insn->detail->x86.operands[0], *from = &f->d->insn->detail->x86.operands[1];
	struct value v = value_of(s, from);
	struct value *slot = NULL;
	int64_t at;

	if (to->type == X86_OP_MEM && to->size >= 4 && frame_address(s, &to->mem, &at))
		slot = slot_of(s, at);
	if (slot && to->size == 4 && v.kind == VALUE_ARGUMENT_32BITS)
		v.kind = VALUE_ARGUMENT_HALF;
	step_unknown(f, s);
	if (slot)
		*slot = v;
	else if (to->type == X86_OP_REG && to->size >= 4 && reg_number(to->reg) >= 0)
		s->reg[reg_number(to->reg)] = v;
}

static void step_lea(struct dataflow *f, struct state *s)
{
	const cs_x86_op *to = &f->d->insn->detail->x86.operands[0], *from = &f->d->insn->detail->x86.operands[1];
	struct value v = UNKNOWN;
	int base = reg_number(from->mem.base);
	int64_t at;

	if (frame_address(s, &from->mem, &at) && at > INT32_MIN && at < INT32_MAX)
		v = (struct value){VALUE_STACK, (int32_t)at};
	else if (base >= 0 && from->mem.index == X86_REG_INVALID && !from->mem.disp)
		v = s->reg[base];
	step_unknown(f, s);
	if (to->size == 8 && reg_number(to->reg) >= 0)
		s->reg[reg_number(to->reg)] = v;
}

static void move_stack(struct state *s, int64_t by)
{
	int64_t to = s->reg[RSP].n + by;

	s->reg[RSP] = s->reg[RSP].kind == VALUE_STACK && to > -(1 << 24) && to < (1 << 24)
			      ? (struct value){VALUE_STACK, (int32_t)to}
			      : UNKNOWN;
}

static void step_push(struct state *s, const cs_x86_op *op)
{
	struct value v = value_of(s, op);

	move_stack(s, -8);
	if (s->reg[RSP].kind != VALUE_STACK)
		return;
	forget_range(s, s->reg[RSP].n, 8);
	if (slot_of(s, s->reg[RSP].n))
		*slot_of(s, s->reg[RSP].n) = v;
}

static void step_pop(struct dataflow *f, struct state *s, const cs_x86_op *op)
{
	struct value v = UNKNOWN;
	struct value sp = s->reg[RSP];

	if (sp.kind == VALUE_STACK && slot_of(s, sp.n) && slot_of(s, sp.n)->kind != VALUE_ARGUMENT_HALF)
		v = *slot_of(s, sp.n);
	step_unknown(f, s);
	s->reg[RSP] = sp;
	if (op->type == X86_OP_REG && op->size == 8 && reg_number(op->reg) >= 0)
		s->reg[reg_number(op->reg)] = v;
	move_stack(s, 8);
}

/* add and sub of a constant to rsp, and `and $-16`: at the entry rsp is 8 past a multiple of 16 (psABI). */
static bool step_rsp(struct state *s, unsigned id, const cs_x86_op *to, const cs_x86_op *from)
{
	struct value sp = s->reg[RSP];

	if (to->type != X86_OP_REG || to->reg != X86_REG_RSP || from->type != X86_OP_IMM || sp.kind != VALUE_STACK)
		return false;
	if (id == X86_INS_AND && from->imm == -16)
		move_stack(s, ((sp.n + 8) & ~15) - 8 - sp.n);
	else if (id == X86_INS_SUB || id == X86_INS_ADD)
		move_stack(s, id == X86_INS_SUB ? -from->imm : from->imm);
	else
		return false;
	return true;
}

static void step_call(struct state *s)
{
	static const uint8_t clobbered[] = {RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11};

	for (unsigned i = 0; i < sizeof(clobbered); i++)
		s->reg[clobbered[i]] = UNKNOWN;
}

/* The state after the decoded instruction. */
static void step(struct dataflow *f, struct state *s)
{
	const cs_x86 *x = &f->d->insn->detail->x86;

	switch (f->d->insn->id) {
	case X86_INS_MOV:
	case X86_INS_MOVABS:
		step_mov(f, s);
		return;
	case X86_INS_MOVSXD:
		step_mov(f, s); /* the source is four bytes wide */
		return;
	case X86_INS_CDQE: {
		struct value v = narrowed(s->reg[RAX]);

		s->reg[RAX] = v;
		return;
	}
	case X86_INS_LEA:
		step_lea(f, s);
		return;
	case X86_INS_PUSH:
		step_push(s, &x->operands[0]);
		return;
	case X86_INS_POP:
		step_pop(f, s, &x->operands[0]);
		return;
	case X86_INS_LEAVE:
		s->reg[RSP] = s->reg[RBP];
		step_pop(f, s, &(cs_x86_op){.type = X86_OP_REG, .reg = X86_REG_RBP, .size = 8});
		return;
	case X86_INS_CALL:
		step_call(s);
		return;
	case X86_INS_ADD:
	case X86_INS_SUB:
	case X86_INS_AND:
		if (step_rsp(s, f->d->insn->id, &x->operands[0], &x->operands[1]))
			return;
		break;
	default:
		break;
	}
	step_unknown(f, s);
}

/* Two paths meet: only what they agree on is known. True when `into` changed. */
static bool meet(struct state *into, const struct state *s)
{
	bool changed = !into->seen;

	if (!into->seen) {
		*into = *s;
		into->seen = true;
		return true;
	}
	for (unsigned i = 0; i < 16 + SLOTS; i++) {
		struct value *a = i < 16 ? &into->reg[i] : &into->slot[i - 16];
		const struct value *b = i < 16 ? &s->reg[i] : &s->slot[i - 16];

		if (a->kind != VALUE_UNKNOWN && (a->kind != b->kind || a->n != b->n)) {
			*a = UNKNOWN;
			changed = true;
		}
	}
	return changed;
}

static void flow_to(struct dataflow *f, int64_t off, const struct state *s)
{
	int i = body_find(&f->body, off);

	if (i < 0 || !meet(&f->states[i], s) || f->queued[i])
		return;
	f->queued[i] = true;
	f->queue[f->queue_len++] = (uint32_t)i;
}

static int run_dataflow(struct dataflow *f, uint64_t func_off)
{
	static const uint8_t arguments[] = {RDI, RSI, RDX, RCX, R8, R9};
	struct state s = {0};

	for (unsigned i = 0; i < sizeof(arguments); i++)
		s.reg[arguments[i]] = (struct value){VALUE_ARGUMENT, (int32_t)i + 1};
	s.reg[RSP] = (struct value){VALUE_STACK, 0};
	flow_to(f, (int64_t)func_off, &s);
	for (unsigned steps = 0; f->queue_len; steps++) {
		uint32_t i = f->queue[--f->queue_len];
		const struct insn *n = &f->body.insns[i];

		if (steps == FLOW_STEPS_MAX)
			return -E2BIG;
		f->queued[i] = false;
		s = f->states[i];
		if (!decode_insn(f->d, n->off))
			continue;
		step(f, &s);
		if (s.reg[RSP].kind != VALUE_STACK)
			forget_slots(&s);
		if (n->flow != FLOW_JUMP && n->flow != FLOW_JUMP_INDIRECT && n->flow != FLOW_END)
			flow_to(f, (int64_t)(n->off + n->size), &s);
		if (n->flow == FLOW_BRANCH || n->flow == FLOW_JUMP)
			flow_to(f, n->target, &s);
	}
	return 0;
}

static bool is_argument(struct value v, int n)
{
	return v.kind == VALUE_ARGUMENT && v.n == n;
}

/* Whether the callee gets (s, buf, n) and, as argument `at`, what is asked for. */
static bool hands_on(const struct state *s, unsigned at, unsigned what)
{
	static const uint8_t argument_regs[] = {RDI, RSI, RDX, RCX, R8, R9};
	struct value length = s->reg[argument_regs[at - 1]];

	if (!is_argument(s->reg[RDI], 1) || !is_argument(s->reg[RSI], 2))
		return false;
	if (what == SITE_LOCAL) /* the plain function's n is an int */
		return (is_argument(s->reg[RDX], 3) ||
			(s->reg[RDX].kind == VALUE_ARGUMENT_32BITS && s->reg[RDX].n == 3)) &&
		       length.kind == VALUE_STACK && length.n < 0;
	return is_argument(s->reg[RDX], 3) && is_argument(length, (int)what);
}

/* Looks at every call and tail jump: 0 and the one target; -ENOENT; -ENOTUNIQ. */
static int pick_target(struct dataflow *f, unsigned at, unsigned what, uint64_t *target_off)
{
	int64_t found = -1;

	for (unsigned i = 0; i < f->body.count; i++) {
		const struct insn *n = &f->body.insns[i];
		const struct state *s = &f->states[i];
		bool tail =
			(n->flow == FLOW_JUMP && body_find(&f->body, n->target) < 0) || n->flow == FLOW_JUMP_INDIRECT;
		int64_t target;

		if (!s->seen || !(n->flow == FLOW_CALL || n->flow == FLOW_CALL_INDIRECT || tail) ||
		    !hands_on(s, at, what))
			continue;
		if (tail && (s->reg[RSP].kind != VALUE_STACK || s->reg[RSP].n != 0))
			continue; /* not a call: the frame is still there */
		target = n->flow == FLOW_CALL || n->flow == FLOW_JUMP ? one_hop(f->d, n->target) : -1;
		if (target < 0 || (found >= 0 && found != target))
			return -ENOTUNIQ;
		found = target;
	}
	if (found < 0)
		return -ENOENT;
	*target_off = (uint64_t)found;
	return 0;
}

int site_forward(const struct elf *e, uint64_t func_off, uint64_t func_size, unsigned at, unsigned what,
		 uint64_t *target_off)
{
	struct dataflow f = {0};
	struct decoder d;
	int err;

	if (e->machine != EM_X86_64 || !func_size || at < 4 || at > 6)
		return -ENOENT;
	err = decoder_open(&d, e);
	if (err)
		return err;
	f.d = &d;
	err = body_read(&f.body, &d, func_off, func_size, FLOW_INSNS_MAX);
	if (!err && !f.body.whole)
		err = -E2BIG;
	if (!err) {
		f.states = calloc(f.body.count, sizeof(*f.states));
		f.queue = calloc(f.body.count, sizeof(*f.queue));
		f.queued = calloc(f.body.count, sizeof(*f.queued));
		err = f.states && f.queue && f.queued ? run_dataflow(&f, func_off) : -ENOMEM;
	}
	if (!err)
		err = pick_target(&f, at, what, target_off);
	free(f.states);
	free(f.queue);
	free(f.queued);
	body_release(&f.body);
	decoder_close(&d);
	return err;
}
