/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tlsfind_anchor_scan.h"

#include <elf.h>
#include <stdarg.h>
#include <stdlib.h>

#include <linux/types.h>

#include "base/err.h"
#include "bpf/event.h"

#define FUNCTION_INSNS_MAX   2048
#define ENTRIES_TRIED_MAX    8
#define CALL_SITES_MAX	     4 /* looked at to see whether a call is one */
#define CONSTANTS_AFTER_MAX  12
#define CONSTANTS_BEFORE_MAX 6

/* --- what decoding may cost -------------------------------------------------------------------------------------- */

static bool spend(struct anchors *a, unsigned insns)
{
	if (a->budget < insns) {
		a->budget = 0;
		anchors_refuse_file(a, "its code takes too long to follow");
		return false;
	}
	a->budget -= insns;
	return true;
}

static bool decode(struct anchors *a, uint64_t off)
{
	return spend(a, 1) && decode_insn(&a->d, off);
}

/* The instructions of a function; none when too many were read already. 0 or -ENOMEM. */
static int read_body(struct anchors *a, struct body *b, uint64_t entry)
{
	int err = body_read(b, &a->d, entry, 0, a->budget ? FUNCTION_INSNS_MAX : 1);

	spend(a, b->count);
	return err;
}

/* --- functions --------------------------------------------------------------------------------------------------- */

/* Code or padding ends just before the offset: what stands there is not fallen into. (A call may not come back.) */
static bool code_ends_before(struct anchors *a, uint64_t off)
{
	int64_t target;

	for (unsigned len = 1; len <= 11 && len <= off; len++) {
		if (!decode(a, off - len) || a->d.insn->size != len)
			continue;
		if (a->d.insn->id == X86_INS_NOP)
			return true;
		switch (flow_of(&a->d, &target)) {
		case FLOW_NEXT:
		case FLOW_BRANCH:
			break;
		default:
			return true;
		}
	}
	return false;
}

static bool is_constant(const cs_insn *i, uint32_t *value)
{
	const cs_x86 *x = &i->detail->x86;
	const cs_x86_op *last = x->op_count ? &x->operands[x->op_count - 1] : NULL;

	if (!last || last->type != X86_OP_IMM ||
	    !((i->id == X86_INS_MOV && x->operands[0].type == X86_OP_REG) || i->id == X86_INS_PUSH))
		return false;
	*value = (uint32_t)last->imm;
	return true;
}

static void add_constant(struct anchor_ref *r, const cs_insn *i)
{
	uint32_t value;

	if (is_constant(i, &value) && r->constant_count < ANCHOR_CONSTANTS_MAX)
		r->constants[r->constant_count++] = value;
}

/* The instruction of the body that ends at an offset, or -1. */
static int insn_before(const struct body *b, uint64_t off)
{
	for (unsigned len = 1; len <= 15 && len <= off; len++) {
		int i = body_find(b, (int64_t)(off - len));

		if (i >= 0 && b->insns[i].size == len)
			return i;
	}
	return -1;
}

static bool sets_argument(const cs_insn *i)
{
	return i->id == X86_INS_MOV || i->id == X86_INS_XOR || i->id == X86_INS_PUSH || i->id == X86_INS_POP ||
	       i->id == X86_INS_LEA;
}

/* The arguments of the report: what is set from the reference on until the call, behind one jump too (reports share
 * their end) … */
static void collect_after(struct anchors *a, struct anchor_ref *r)
{
	bool jumped = false;
	uint64_t off = r->off;
	int64_t target;

	for (unsigned n = 0; n < CONSTANTS_AFTER_MAX && decode(a, off); n++) {
		enum flow flow = flow_of(&a->d, &target);

		if (off != r->off)
			add_constant(r, a->d.insn);
		if (flow != FLOW_NEXT && (flow != FLOW_JUMP || target < 0 || jumped))
			break;
		jumped |= flow == FLOW_JUMP;
		off = flow == FLOW_JUMP ? (uint64_t)target : off + a->d.insn->size;
	}
}

/* The straight line that ends at an offset; where it begins. */
static uint64_t collect_line(struct anchors *a, const struct body *b, uint64_t off, struct anchor_ref *r)
{
	int i;

	for (unsigned n = 0; n < CONSTANTS_BEFORE_MAX && (i = insn_before(b, off)) >= 0; n++) {
		if (b->insns[i].flow != FLOW_NEXT || !decode(a, b->insns[i].off) || !sets_argument(a->d.insn))
			break;
		off = b->insns[i].off;
		add_constant(r, a->d.insn);
	}
	return off;
}

/* … and before it. Reports that end alike share their end: what differs is set where the code jumps there. */
static void collect_before(struct anchors *a, const struct body *b, struct anchor_ref *r)
{
	uint64_t begin = collect_line(a, b, r->off, r);

	for (unsigned i = 0; i < b->count; i++)
		if (b->insns[i].flow == FLOW_JUMP && b->insns[i].target >= (int64_t)begin &&
		    b->insns[i].target <= (int64_t)r->off)
			collect_line(a, b, b->insns[i].off, r);
}

/* The reference as an instruction of the body: it may have a prefix that the search did not look for. */
static bool body_holds(const struct body *b, struct anchor_ref *r)
{
	if (body_find(b, (int64_t)r->off) >= 0)
		return true;
	if (r->reached || !r->off || body_find(b, (int64_t)r->off - 1) < 0)
		return false;
	r->off--;
	return true;
}

/* 0 and the position of the function with this entry; -ENOMEM; -E2BIG. */
static int look_at(struct anchors *a, uint64_t entry, unsigned *position)
{
	struct anchor_function *f;
	struct body b;
	int err;

	for (unsigned i = 0; i < a->function_count; i++)
		if (a->functions[i].off == entry) {
			*position = i;
			return 0;
		}
	if (a->function_count == ANCHOR_FUNCTIONS_MAX)
		return -E2BIG;
	err = read_body(a, &b, entry);
	if (!err) {
		*position = a->function_count;
		f = &a->functions[a->function_count++];
		f->off = entry;
		for (unsigned i = 0; i < a->ref_count; i++) {
			struct anchor_ref *r = &a->refs[i];

			if (!body_holds(&b, r))
				continue;
			f->reaches[i / 64] |= 1ull << i % 64;
			if (!r->reached) {
				collect_after(a, r);
				collect_before(a, &b, r);
			}
			r->reached = true;
		}
	}
	body_release(&b);
	return err;
}

/* The last call target at or before an offset: position, or -1. */
static int64_t call_target_before(const struct anchors *a, uint64_t off)
{
	size_t low = 0, high = a->call_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (a->calls[middle].target <= off)
			low = middle + 1;
		else
			high = middle;
	}
	return (int64_t)low - 1;
}

/* The nearest entry at or before `off`, not too far from `from`. */
static bool entry_before(struct anchors *a, uint64_t off, uint64_t from, uint64_t *entry)
{
	uint64_t reach = FUNCTION_BYTES_MAX - (from - off);
	bool found = from - off <= FUNCTION_BYTES_MAX && frames_function_before(&a->frames, off, reach, entry);
	int64_t i = call_target_before(a, off);

	while (i >= 0 && from - a->calls[i].target <= FUNCTION_BYTES_MAX && (!found || a->calls[i].target > *entry)) {
		uint64_t target = a->calls[i].target;

		if (code_ends_before(a, target)) {
			*entry = target;
			return true;
		}
		while (i >= 0 && a->calls[i].target == target)
			i--;
	}
	return found;
}

static bool reaches(const struct anchors *a, unsigned function, unsigned ref)
{
	return a->functions[function].reaches[ref / 64] >> ref % 64 & 1;
}

/* The nearest entry from which decoding arrives at the reference. 0, or -ENOMEM. */
static int place(struct anchors *a, unsigned ref)
{
	uint64_t from = a->refs[ref].off, off = from, entry;

	for (unsigned n = 0; n < ENTRIES_TRIED_MAX && entry_before(a, off, from, &entry); n++) {
		unsigned position;
		int err = look_at(a, entry, &position);

		if (err)
			return err == -ENOMEM ? err : 0;
		if (reaches(a, position, ref)) {
			a->refs[ref].function = (int)position;
			a->functions[position].refers = true;
			return 0;
		}
		if (!entry)
			return 0;
		off = entry - 1;
	}
	return 0;
}

/* A function's part that lies elsewhere: the one function that jumps there. */
static void place_far(struct anchors *a, unsigned ref)
{
	int only = -1;

	if (!a->refs[ref].reached)
		collect_after(a, &a->refs[ref]);
	for (unsigned i = 0; i < a->function_count; i++) {
		if (!a->functions[i].refers || !reaches(a, i, ref))
			continue;
		if (only >= 0)
			return;
		only = (int)i;
	}
	a->refs[ref].function = only;
}

int anchors_read(struct anchors *a, const struct elf *e)
{
	int err;

	*a = (struct anchors){.budget = ANCHOR_INSNS_MAX};
	err = decoder_open(&a->d, e);
	if (err)
		return err;
	if (e->machine != EM_X86_64) {
		anchors_scan_strings(a);
		return anchors_refuse_file(a, "it is stripped, and its functions are then found on x86-64 only"), 0;
	}
	frames_open(&a->frames, e);
	a->refs = calloc(ANCHOR_REFS_MAX, sizeof(*a->refs));
	a->functions = calloc(ANCHOR_FUNCTIONS_MAX, sizeof(*a->functions));
	err = a->refs && a->functions ? anchors_scan(a) : -ENOMEM;
	for (unsigned i = 0; i < a->ref_count && !err; i++)
		err = place(a, i);
	for (unsigned i = 0; i < a->ref_count && !err; i++)
		if (a->refs[i].function < 0)
			place_far(a, i);
	return err;
}

void anchors_release(struct anchors *a)
{
	if (a->d.insn)
		decoder_close(&a->d);
	free(a->refs);
	free(a->calls);
	free(a->functions);
	*a = (struct anchors){0};
}

/* --- questions --------------------------------------------------------------------------------------------------- */

bool anchors_used(const struct anchors *a, enum anchor what)
{
	for (unsigned i = 0; i < a->ref_count; i++)
		if (a->refs[i].what == what)
			return true;
	/* no reference is known of other machines' code: a path as compilers leave it, not a finder's words */
	for (unsigned i = 0; i < a->string_count && a->d.e->machine != EM_X86_64; i++)
		if (a->strings[i].what == what && a->strings[i].first < a->strings[i].last &&
		    (a->strings[i].path.ptr[0] == '/' || a->strings[i].path.ptr[0] == '.'))
			return true;
	return what == ANCHOR_OPENSSL_FILE && a->openssl_file_used;
}

bool anchors_refers(const struct anchors *a, unsigned function, enum anchor what)
{
	for (unsigned i = 0; i < a->ref_count; i++)
		if (a->refs[i].function == (int)function && a->refs[i].what == what)
			return true;
	return false;
}

static bool has_constant(const struct anchor_ref *r, uint32_t value)
{
	for (unsigned i = 0; i < r->constant_count; i++)
		if (r->constants[i] == value)
			return true;
	return false;
}

static bool reports(const struct anchors *a, int function, enum anchor what, uint32_t library, uint32_t reason)
{
	for (unsigned i = 0; i < a->ref_count; i++) {
		const struct anchor_ref *r = &a->refs[i];

		if (r->function == function && r->what == what && has_constant(r, library) && has_constant(r, reason))
			return true;
	}
	return false;
}

bool anchors_reports(const struct anchors *a, unsigned function, enum anchor what, uint32_t library, uint32_t reason)
{
	return reports(a, (int)function, what, library, reason);
}

bool anchors_stray_reports(const struct anchors *a, enum anchor what, uint32_t library, uint32_t reason)
{
	return reports(a, -1, what, library, reason);
}

bool anchors_stray(const struct anchors *a, enum anchor what)
{
	for (unsigned i = 0; i < a->ref_count; i++)
		if (a->refs[i].function < 0 && a->refs[i].what == what)
			return true;
	return false;
}

bool anchors_crowded(const struct anchors *a, unsigned function)
{
	unsigned count = 0;

	for (unsigned i = 0; i < a->ref_count; i++)
		count += a->refs[i].function == (int)function;
	return count > ANCHOR_SITES_MAX;
}

int anchors_each_insn(struct anchors *a, uint64_t func_off, bool (*fn)(void *ctx, struct decoder *d), void *ctx)
{
	struct body b;
	int err = read_body(a, &b, func_off);

	for (unsigned i = 0; i < b.count && !err; i++)
		if (decode(a, b.insns[i].off) && !fn(ctx, &a->d))
			break;
	body_release(&b);
	return err;
}

struct call_search {
	int64_t target;
	bool found;
};

static bool is_call_to(void *ctx, struct decoder *d)
{
	struct call_search *s = ctx;
	int64_t target;

	s->found = flow_of(d, &target) == FLOW_CALL && target == s->target;
	return !s->found;
}

int anchors_calls(struct anchors *a, uint64_t func_off, uint64_t target_off)
{
	struct call_search s = {.target = (int64_t)target_off};
	int err = anchors_each_insn(a, func_off, is_call_to, &s);

	return err ? err : s.found;
}

int anchors_function_of(struct anchors *a, uint64_t off, uint64_t *func_off)
{
	uint64_t before = off;

	for (unsigned n = 0; n < ENTRIES_TRIED_MAX && entry_before(a, before, off, func_off); n++) {
		struct body b;
		bool holds;
		int err;

		err = read_body(a, &b, *func_off);
		holds = !err && body_find(&b, (int64_t)off) >= 0;
		body_release(&b);
		if (err || holds)
			return err;
		if (!*func_off)
			break;
		before = *func_off - 1;
	}
	return -ENOENT;
}

/* Decoding falls into step within a few instructions, wherever it begins: from eight places before a real instruction,
 * nearly all ways lead to it. */
static bool is_instruction(struct anchors *a, uint64_t off)
{
	unsigned arrived = 0;

	for (unsigned back = 64; back < 72 && back <= off; back++) {
		uint64_t at = off - back;

		while (at < off)
			at += decode(a, at) ? a->d.insn->size : 1;
		arrived += at == off;
	}
	return arrived >= 5;
}

bool anchors_proven(struct anchors *a, uint64_t func_off)
{
	int64_t i = call_target_before(a, func_off);
	uint64_t entry;

	if (frames_function_before(&a->frames, func_off, 0, &entry) && entry == func_off)
		return true;

	for (unsigned n = 0; n < CALL_SITES_MAX && i >= 0 && a->calls[i].target == func_off; n++, i--)
		if (is_instruction(a, a->calls[i].site))
			return true;
	return false;
}

/* --- results ----------------------------------------------------------------------------------------------------- */

int anchors_refuse(struct tls_find *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out->reason, sizeof(out->reason), fmt, ap);
	va_end(ap);
	out->count = 0;
	return -EINVAL;
}

int anchors_add(struct anchors *a, unsigned function, const struct tls_func *like, struct tls_find *out)
{
	uint64_t off = a->functions[function].off;
	struct tls_func *f;
	int err;

	if (anchors_crowded(a, function))
		return anchors_refuse(out, "what looks like %s is several functions", like->name);
	if (!anchors_proven(a, off))
		return anchors_refuse(out, "no call to %s was found", like->name);
	if (out->count == TLSFIND_MAX)
		BUG("more TLS functions than TLSFIND_MAX");
	f = &out->funcs[out->count];
	*f = *like;
	err = site_resolve(a->d.e, off, like->role != TLS_ROLE_FREE, &f->site);
	if (err == -EINVAL)
		return anchors_refuse(out, "no instruction can be decoded at %s", like->name);
	f->site.len_arg = (uint8_t)like->len_arg;
	out->count += !err;
	return err;
}
