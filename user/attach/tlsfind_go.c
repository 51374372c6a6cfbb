/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tlsfind.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>

#include <linux/types.h>

#include "base/err.h"
#include "bpf/event.h"
#include "gotable.h"
#include "insn.h"
#include "insn_arm64.h"

#define FUNCTION_BYTES_MAX 65536 /* the largest of these functions has 6 KiB */
#define RETURNS_MAX	   20
#define STACK_CHECK_WITHIN 6  /* instructions from the entry */
#define STACK_GUARD_AT	   16 /* of g, src/runtime/stubs.go: stack.lo, stack.hi, stackguard0 */

/* Receiver and slice of the call, g, and the stack pointer that tells calls of one g apart. */
#define ENTRY_REGS (1u << RAX | 1u << RBX | 1u << RCX | 1u << R14 | 1u << RSP)

enum role_index { READ, WRITE, HANDSHAKE, ROLES };
static const char *const names[ROLES] = {
	[READ] = "crypto/tls.(*Conn).Read",
	[WRITE] = "crypto/tls.(*Conn).Write",
	/* runs once a connection; Read and Write call handshakeContext each time */
	[HANDSHAKE] = "crypto/tls.(*Conn).clientHandshake",
};
static const struct {
	uint32_t role, len_arg;
} roles[ROLES] = {
	[READ] = {TLS_ROLE_READ, TLS_LEN_RET},
	[WRITE] = {TLS_ROLE_WRITE, TLS_LEN_RET},
	[HANDSHAKE] = {TLS_ROLE_HANDSHAKE, TLS_HANDSHAKE_ZERO}, /* returns an error, nil is 0 */
};

/* One function's code as it was decoded. x86-64: straight from the entry to the end, since Go puts no data in between.
 * arm64: what branches lead to from the entry, since Go puts constants in between. */
struct code {
	uint64_t off, size; /* in the file */
	uint64_t returns[RETURNS_MAX];
	unsigned return_count;
	bool checks_stack; /* compares the stack pointer with g's limit, g in R14 or X28: the register ABI */
	bool starts_again; /* ends with a jump to the entry, after the stack was grown */
	uint8_t *starts;   /* 1 for each byte where an instruction starts */
	uint32_t *todo;	   /* arm64: distances from the entry that are still to be decoded */
	unsigned todo_count;
};

/* --- code -------------------------------------------------------------------------------------------------------- */

static bool is_stack_check(const cs_insn *i)
{
	const cs_x86 *x = &i->detail->x86;

	for (unsigned n = 0; i->id == X86_INS_CMP && n < x->op_count; n++)
		if (x->operands[n].type == X86_OP_MEM && x->operands[n].mem.base == X86_REG_R14 &&
		    x->operands[n].mem.index == X86_REG_INVALID && x->operands[n].mem.disp == STACK_GUARD_AT)
			return true;
	return false;
}

static const char *note_return(struct code *c, uint64_t off)
{
	if (c->return_count == RETURNS_MAX)
		return "it returns in too many places";
	c->returns[c->return_count++] = off;
	return NULL;
}

static bool leaves(const struct code *c, enum flow flow, int64_t target)
{
	bool inside = target >= (int64_t)c->off && (uint64_t)target - c->off < c->size;

	return (flow == FLOW_JUMP || flow == FLOW_BRANCH) && !inside;
}

/* Notes one instruction; NULL, or why this code is not what is expected of Go. */
static const char *note_instruction(struct decoder *d, struct code *c, unsigned number)
{
	int64_t target;
	enum flow flow = flow_of(d, &target);
	const char *why = NULL;

	c->starts[d->off - c->off] = 1;
	if (number < STACK_CHECK_WITHIN && is_stack_check(d->insn))
		c->checks_stack = true;
	if (cs_insn_group(d->handle, d->insn, X86_GRP_RET)) {
		if (d->insn->size != 1)
			return "it returns in a way that is not Go's";
		why = note_return(c, d->off);
	}
	if (flow == FLOW_JUMP && target == (int64_t)c->off)
		c->starts_again = true;
	return !why && leaves(c, flow, target) ? "a jump leaves it" : why;
}

static const char *decode_all(struct decoder *d, struct code *c)
{
	const char *why = NULL;
	uint64_t at = 0;

	for (unsigned number = 0; at < c->size && !why; number++) {
		if (!decode_insn(d, c->off + at) || d->insn->size > c->size - at)
			return "its code cannot be decoded";
		why = note_instruction(d, c, number);
		at += d->insn->size;
	}
	return why;
}

/* What was decoded straight on must be what branches lead to. */
static const char *check_branches(struct decoder *d, const struct code *c)
{
	int64_t target;

	for (uint64_t at = 0; at < c->size; at++) {
		enum flow flow;

		if (!c->starts[at] || !decode_insn(d, c->off + at))
			continue;
		flow = flow_of(d, &target);
		if ((flow == FLOW_JUMP || flow == FLOW_BRANCH) && !c->starts[(uint64_t)target - c->off])
			return "a jump leads into the middle of an instruction";
	}
	return NULL;
}

static const char *arm64_visit(struct code *c, uint64_t at)
{
	if (at % ARM64_INSN_SIZE)
		return "a jump leads into the middle of an instruction";
	if (c->size < ARM64_INSN_SIZE || at > c->size - ARM64_INSN_SIZE)
		return "it goes on behind its end";
	if (!c->starts[at]) {
		c->starts[at] = 1;
		c->todo[c->todo_count++] = (uint32_t)at;
	}
	return NULL;
}

/* ldr xN, [x28, #STACK_GUARD_AT] */
static bool is_arm64_stack_check(uint32_t word)
{
	return (word & 0xffffffe0) == (0xf9400000 | STACK_GUARD_AT / 8 << 10 | 28 << 5);
}

static const char *arm64_follow(struct code *c, uint64_t at, const struct arm64_word *i)
{
	bool jumps = i->flow == FLOW_JUMP || i->flow == FLOW_BRANCH;
	const char *why = NULL;

	if (i->flow == FLOW_JUMP_INDIRECT)
		return "it jumps to where a register says";
	if (leaves(c, i->flow, i->target))
		return "a jump leaves it";
	if (arm64_is_odd_return(i->word))
		return "it returns in a way that is not Go's";
	if (at / ARM64_INSN_SIZE < STACK_CHECK_WITHIN && is_arm64_stack_check(i->word))
		c->checks_stack = true;
	if (i->flow == FLOW_JUMP && i->target == (int64_t)c->off)
		c->starts_again = true;
	if (jumps)
		why = arm64_visit(c, (uint64_t)i->target - c->off);
	if (!why && i->flow != FLOW_JUMP && i->flow != FLOW_END)
		why = arm64_visit(c, at + ARM64_INSN_SIZE);
	return why;
}

static const char *arm64_decode_all(const struct elf *e, struct code *c)
{
	const char *why = arm64_visit(c, 0);
	struct arm64_word insn;

	while (c->todo_count && !why) {
		uint64_t at = c->todo[--c->todo_count];

		why = arm64_insn_at(e, c->off + at, &insn) ? arm64_follow(c, at, &insn) : "its code cannot be decoded";
	}
	for (uint64_t at = 0; at < c->size && !why; at++)
		if (c->starts[at] && arm64_insn_at(e, c->off + at, &insn) && arm64_is_return(insn.word))
			why = note_return(c, c->off + at);
	return why;
}

static const char *check_shape(const struct code *c)
{
	if (!c->checks_stack || !c->starts_again)
		return "it does not begin as Go functions with arguments in registers do";
	return c->return_count ? NULL : "it does not return";
}

static void free_code(struct code *c)
{
	free(c->starts);
	free(c->todo);
	c->starts = NULL;
	c->todo = NULL;
}

/* 0; -EINVAL with *why; -ENOMEM. */
static int read_code(struct decoder *d, struct code *c, const char **why)
{
	*why = NULL;
	if (c->size > FUNCTION_BYTES_MAX) {
		*why = "it is too large";
		return -EINVAL;
	}
	c->starts = calloc(1, c->size);
	c->todo = calloc(c->size / ARM64_INSN_SIZE + 1, sizeof(*c->todo));
	if (!c->starts || !c->todo) {
		free_code(c);
		return -ENOMEM;
	}
	*why = d->e->machine == EM_AARCH64 ? arm64_decode_all(d->e, c) : decode_all(d, c);
	if (!*why && d->e->machine != EM_AARCH64)
		*why = check_branches(d, c);
	if (!*why)
		*why = check_shape(c);
	free_code(c);
	return *why ? -EINVAL : 0;
}

/* --- results ----------------------------------------------------------------------------------------------------- */

static void add(struct tls_find *out, enum role_index i, uint32_t abi, const struct site *site)
{
	struct tls_func *f = &out->funcs[out->count++];

	*f = (struct tls_func){.role = roles[i].role, .len_arg = roles[i].len_arg, .abi = abi, .site = *site};
	f->site.len_arg = (uint8_t)roles[i].len_arg;
	if (abi == TLS_ABI_GO_ENTRY)
		snprintf(f->name, sizeof(f->name), "%s", names[i]);
	else
		snprintf(f->name, sizeof(f->name), "%s +0x%llx", names[i],
			 (unsigned long long)(site->off - site->func_off));
}

/* The entry and every return of a function. 0 or -errno; a function whole or not at all. */
static int add_function(const struct elf *e, struct tls_find *out, enum role_index i, const struct code *c)
{
	unsigned before = out->count;
	struct site site;
	int err = 0;

	if (c->return_count + 1 > TLSFIND_MAX - out->count)
		return -E2BIG;
	err = site_resolve_keeping(e, c->off, ENTRY_REGS, &site);
	if (!err)
		add(out, i, TLS_ABI_GO_ENTRY, &site);
	for (unsigned k = 0; k < c->return_count && !err; k++) {
		err = site_at(e, c->off, c->returns[k], &site);
		if (!err)
			add(out, i, TLS_ABI_GO_RETURN, &site);
	}
	if (err)
		out->count = before;
	return err;
}

static int refuse(struct tls_find *out, const char *what, const char *why)
{
	out->count = 0;
	snprintf(out->reason, sizeof(out->reason), "%s%s%s", what, why ? ": " : "", why ? why : "");
	return -EINVAL;
}

/* --- the functions ----------------------------------------------------------------------------------------------- */

struct go {
	struct decoder d;
	struct go_function functions[ROLES];
	unsigned found[ROLES];
	struct code code[ROLES];
	const char *why[ROLES]; /* NULL: the code was read */
};

/* Reads the code of a role with the text at an address. 0, -EINVAL, -ENOMEM. */
static int read_role(struct go *g, uint64_t text, enum role_index i)
{
	int64_t off = code_offset(g->d.e, text + g->functions[i].entry);

	if (off < 0) {
		g->why[i] = "it is in no executable segment";
		return -EINVAL;
	}
	g->code[i] = (struct code){.off = (uint64_t)off, .size = g->functions[i].size};
	return read_code(&g->d, &g->code[i], &g->why[i]);
}

/* The text's start is the one with which both functions are what they must be. 0, -EINVAL, -ENOMEM. */
static int place(struct go *g, const struct go_table *t)
{
	int err = -EINVAL;
	uint64_t text;

	g->why[READ] = "the address of the text is not known";
	for (unsigned way = 0; way < GO_TEXT_WAYS && err == -EINVAL; way++) {
		if (!go_table_text(t, way, &text))
			continue;
		err = read_role(g, text, READ);
		if (!err)
			err = read_role(g, text, WRITE);
		if (!err && g->found[HANDSHAKE] == 1 && read_role(g, text, HANDSHAKE) == -ENOMEM)
			err = -ENOMEM;
	}
	return err;
}

static int add_all(struct go *g, struct tls_find *out)
{
	int err = 0;

	for (unsigned i = READ; i <= WRITE && !err; i++)
		err = add_function(g->d.e, out, i, &g->code[i]);
	if (err == -ENOMEM)
		return err;
	if (err)
		return refuse(out, "crypto/tls has too many returns", NULL);
	if (g->found[HANDSHAKE] == 1 && !g->why[HANDSHAKE])
		err = add_function(g->d.e, out, HANDSHAKE, &g->code[HANDSHAKE]);
	else
		err = -ENOENT;
	if (err == -ENOMEM) {
		out->count = 0;
		return err;
	}
	if (err)
		snprintf(out->reason, sizeof(out->reason), "handshakes are not seen: clientHandshake %s",
			 err == -ENOENT ? "was not found" : "returns in too many places");
	return 0;
}

static int find(struct go *g, const struct go_table *t, struct tls_find *out)
{
	int err;

	go_table_find(t, names, ROLES, g->functions, g->found);
	if (!g->found[READ] && !g->found[WRITE])
		return -ENOENT;
	for (unsigned i = READ; i <= WRITE; i++)
		if (g->found[i] != 1)
			return refuse(out, names[i], g->found[i] ? "two functions have that name" : "not there");
	err = place(g, t);
	if (err == -EINVAL)
		return refuse(out, names[g->why[READ] ? READ : WRITE], g->why[READ] ? g->why[READ] : g->why[WRITE]);
	return err ? err : add_all(g, out);
}

int tlsfind_go(const struct elf *e, struct tls_find *out)
{
	struct go g = {.found = {0}};
	struct go_table t;
	int err = go_table_open(&t, e);

	*out = (struct tls_find){.method = "gopclntab"};
	if (err == -ENOENT)
		return err;
	out->stack = "go crypto/tls";
	if (!go_table_mentions(&t, names[READ]))
		err = -ENOENT;
	else if (err == -EPROTONOSUPPORT)
		err = refuse(out, "made by Go 1.17 or older, which passes arguments in another way", NULL);
	else if (err)
		err = refuse(out, "its function table (gopclntab) is broken", NULL);
	else
		err = decoder_open(&g.d, e);
	if (!err) {
		err = find(&g, &t, out);
		decoder_close(&g.d);
	}
	if (err)
		out->count = 0;
	if (err == -ENOENT)
		*out = (struct tls_find){.method = "gopclntab"};
	return err;
}
