/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tlsfind_anchor.h"

#include <elf.h>
#include <stdarg.h>
#include <stdlib.h>

#include <linux/types.h>

#include "base/err.h"
#include "bpf/event.h"

#define CHUNK_BYTES	     (1u << 20) /* of the file that are resident at once */
#define ANCHOR_PATH_MAX	     255	/* of a path before its needle */
#define FUNCTION_BYTES_MAX   0x4000	/* from an entry to a reference */
#define FUNCTION_INSNS_MAX   2048
#define ENTRIES_TRIED_MAX    8
#define CALLS_MAX	     (1u << 20)
#define CALL_SITES_MAX	     4 /* looked at to see whether a call is one */
#define CONSTANTS_AFTER_MAX  12
#define CONSTANTS_BEFORE_MAX 6

/* --- strings ----------------------------------------------------------------------------------------------------- */

static const struct needle {
	const char *text; /* with its NUL */
	uint8_t len;	  /* without */
	uint8_t pair;	  /* where the two bytes are that are looked for first: rare ones */
	bool path;	  /* only the end of a string; else all of it */
} needles[ANCHORS] = {
#define NEEDLE(text, pair, path)                                                                                       \
	{                                                                                                              \
		text, sizeof(text) - 1, pair, path                                                                     \
	}
	[ANCHOR_BORINGSSL_FILE] = NEEDLE("/ssl/ssl_lib.cc", 11, true),
	[ANCHOR_AEAD_FILE] = NEEDLE("fipsmodule/cipher/aead.c", 16, true),
	[ANCHOR_OPENSSL_FILE] = NEEDLE("ssl/ssl_lib.c", 10, true),
	[ANCHOR_READ_INTERNAL] = NEEDLE("ssl_read_internal", 7, false),
	[ANCHOR_WRITE_INTERNAL] = NEEDLE("ssl_write_internal", 8, false),
	[ANCHOR_READ] = NEEDLE("SSL_read", 2, false),
	[ANCHOR_WRITE] = NEEDLE("SSL_write", 2, false),
	[ANCHOR_DO_HANDSHAKE] = NEEDLE("SSL_do_handshake", 2, false),
	[ANCHOR_NEW] = NEEDLE("SSL_new", 2, false),
};

typedef uint8_t vector __attribute__((vector_size(16)));

static vector load(const uint8_t *p)
{
	vector v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Places of a comparison that hold, lowest first: `for (struct places p = places_of(v); places_take(&p, &i);)`. */
struct places {
	uint64_t half[2]; /* one bit a byte */
};

static struct places places_of(vector v)
{
	struct places p;

	memcpy(p.half, &v, sizeof(p.half));
	p.half[0] &= 0x8080808080808080ull;
	p.half[1] &= 0x8080808080808080ull;
	return p;
}

static bool places_take(struct places *p, unsigned *i)
{
	unsigned h = p->half[0] ? 0 : 1;

	if (!p->half[h])
		return false;
	*i = 8 * h + (unsigned)__builtin_ctzll(p->half[h]) / 8;
	p->half[h] &= p->half[h] - 1;
	return true;
}

#define IS(v, byte) ((vector)((v) == (uint8_t)(byte)))

/* Bytes [begin, end) of the file: one piece of a segment, a needle may begin before and end behind it. */
struct piece {
	const struct elf_load *load;
	uint64_t begin, end;
};

static void refuse_file(struct anchors *a, const char *reason)
{
	if (!a->reason)
		a->reason = reason;
}

static void note_string(struct anchors *a, const struct elf_load *load, enum anchor what, uint64_t off)
{
	const uint8_t *map = a->d.e->map;
	struct anchor_string *s;
	uint64_t begin = off;

	while (needles[what].path && begin > load->off && off - begin < ANCHOR_PATH_MAX && map[begin - 1])
		begin--;
	if (a->string_count == ANCHOR_STRINGS_MAX) {
		refuse_file(a, "the strings that its functions are known by occur too often");
		return;
	}
	s = &a->strings[a->string_count++];
	s->what = what;
	s->first = begin - load->off + load->vaddr;
	s->last = off - load->off + load->vaddr;
	s->path = (struct sv){(const char *)map + begin, off - begin + needles[what].len};
}

/* A needle whose rare pair is at this offset. */
static void match_needles(struct anchors *a, const struct elf_load *load, uint64_t load_end, uint64_t pair)
{
	const uint8_t *map = a->d.e->map;

	for (unsigned i = 0; i < ANCHORS; i++) {
		const struct needle *n = &needles[i];
		uint64_t off = pair - n->pair;

		if (map[pair] == (uint8_t)n->text[n->pair] && map[pair + 1] == (uint8_t)n->text[n->pair + 1] &&
		    pair - load->off >= n->pair && load_end - off > n->len && !memcmp(map + off, n->text, n->len + 1u))
			note_string(a, load, (enum anchor)i, off);
	}
}

/* Pairs of all needles at 16 places at once: "b." "r/" "d_" "e_" "L_" */
static struct places may_match(const uint8_t *p)
{
	vector first = load(p), second = load(p + 1);

	return places_of((IS(second, '_') & (IS(first, 'd') | IS(first, 'e') | IS(first, 'L'))) |
			 (IS(second, '.') & IS(first, 'b')) | (IS(second, '/') & IS(first, 'r')));
}

static void find_strings(struct anchors *a, const struct piece *p)
{
	uint64_t load_end = p->load->off + p->load->filesz, at = p->begin;

	for (unsigned i; at < p->end && load_end - at > 16; at += 16)
		for (struct places places = may_match(a->d.e->map + at); places_take(&places, &i);)
			match_needles(a, p->load, load_end, at + i);
	for (; at < p->end && load_end - at >= 2; at++)
		match_needles(a, p->load, load_end, at);
}

/* --- references -------------------------------------------------------------------------------------------------- */

static void note_ref(struct anchors *a, uint64_t off, uint64_t target)
{
	for (unsigned i = 0; i < a->string_count; i++) {
		const struct anchor_string *s = &a->strings[i];

		if (target < s->first || target > s->last)
			continue;
		if (s->what == ANCHOR_OPENSSL_FILE) { /* hundreds */
			a->openssl_file_used = true;
			return;
		}
		if (a->ref_count == ANCHOR_REFS_MAX) {
			refuse_file(a, "too many places refer to the strings that its functions are known by");
			return;
		}
		a->refs[a->ref_count++] = (struct anchor_ref){.off = off, .what = s->what, .function = -1};
		return;
	}
}

static uint32_t word_at(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

static bool is_lea(const uint8_t *p)
{
	return (p[0] & 0xfb) == 0x48 && p[1] == 0x8d && (p[2] & 0xc7) == 0x05;
}

/* lea r64, [rip + disp32] and mov r32, imm32 at a place with at least 7 bytes. */
static void match_ref(struct anchors *a, const struct elf_load *load, uint64_t off)
{
	const uint8_t *p = a->d.e->map + off;

	if (is_lea(p))
		note_ref(a, off, off - load->off + load->vaddr + 7 + (uint64_t)(int32_t)word_at(p + 3));
	else if ((p[0] & 0xf8) == 0xb8)
		note_ref(a, off, word_at(p + 1));
}

/* Highest bytes of the strings' addresses, where these fit into an immediate: one or two in practice. */
struct high_bytes {
	uint8_t byte[4];
	unsigned count;
	bool all; /* more than fit here */
};

static void add_high_byte(struct high_bytes *h, uint64_t address)
{
	uint8_t byte = (uint8_t)(address >> 24);

	if (address > UINT32_MAX)
		return;
	for (unsigned i = 0; i < h->count; i++)
		if (h->byte[i] == byte)
			return;
	if (h->count == ARRAY_SIZE(h->byte))
		h->all = true;
	else
		h->byte[h->count++] = byte;
}

static struct places may_refer(const uint8_t *p, const struct high_bytes *h)
{
	vector first = load(p), lea = IS(load(p + 1), 0x8d) & IS(load(p + 2) & (uint8_t)0xc7, 0x05), high = {0};
	vector mov = IS(first & (uint8_t)0xf8, 0xb8), last = load(p + 4);

	for (unsigned i = 0; i < h->count; i++)
		high |= IS(last, h->byte[i]);
	return places_of(lea | (h->all ? mov : mov & high));
}

static void find_refs(struct anchors *a, const struct piece *p, const struct high_bytes *h)
{
	uint64_t load_end = p->load->off + p->load->filesz, at = p->begin;

	for (unsigned i; at < p->end && load_end - at >= 16 + 7; at += 16)
		for (struct places places = may_refer(a->d.e->map + at, h); places_take(&places, &i);)
			match_ref(a, p->load, at + i);
	for (; at < p->end && load_end - at >= 7; at++)
		match_ref(a, p->load, at);
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

/* The first reference at or behind an offset: position, ref_count when there is none. */
static unsigned ref_from(const struct anchors *a, uint64_t off)
{
	unsigned low = 0, high = a->ref_count;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (a->refs[middle].off < off)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int note_call(struct anchors *a, uint64_t target, uint64_t site)
{
	unsigned next = ref_from(a, target);
	struct anchor_call *more;
	size_t max;

	if (next == a->ref_count || a->refs[next].off - target > FUNCTION_BYTES_MAX)
		return 0;
	if (a->call_count == a->call_max) {
		max = a->call_max ? 2 * a->call_max : 4096;
		if (max > CALLS_MAX) {
			refuse_file(a, "too many calls lead to where its functions are");
			return 0;
		}
		more = realloc(a->calls, max * sizeof(*more));
		if (!more)
			return -ENOMEM;
		a->calls = more;
		a->call_max = max;
	}
	a->calls[a->call_count++] = (struct anchor_call){target, site};
	return 0;
}

/* Displacements that end in code where a reference may belong. */
struct reach {
	const struct elf_load *load;
	uint64_t end, low, high; /* file offsets: of the segment, of what is asked for */
};

/* The displacement at an offset, of the instruction that begins at `site` and ends behind it. 0 or -ENOMEM. */
static int note_target(struct anchors *a, const struct reach *r, uint64_t displacement, uint64_t site)
{
	uint64_t target = displacement + 4 + (uint64_t)(int32_t)word_at(a->d.e->map + displacement);

	if (target - r->low > r->high - r->low || target < r->load->off || target >= r->end)
		return 0;
	return note_call(a, target, site);
}

/* call rel32 inside the segment. What was a call through the GOT has a prefix (0x67) since it was linked. */
static int find_direct_calls(struct anchors *a, const struct piece *p, const struct reach *r)
{
	const uint8_t *map = a->d.e->map, *at = map + p->begin;
	int err = 0;

	while (!err && at < map + p->end && (at = memchr(at, 0xe8, (size_t)(map + p->end - at)))) {
		uint64_t site = (uint64_t)(at++ - map);

		if (r->end - site < 5)
			break;
		err = note_target(a, r, site + 1, site > r->load->off && map[site - 1] == 0x67 ? site - 1 : site);
	}
	return err;
}

/* lea r64, [rip + disp32] of code: a function that is called through a register, or later. */
static int find_addresses(struct anchors *a, const struct piece *p, const struct reach *r)
{
	static const struct high_bytes none;
	const uint8_t *map = a->d.e->map;
	uint64_t at = p->begin;
	int err = 0;

	for (unsigned i; at < p->end && r->end - at >= 16 + 7 && !err; at += 16)
		for (struct places places = may_refer(map + at, &none); !err && places_take(&places, &i);)
			if (is_lea(map + at + i))
				err = note_target(a, r, at + i + 3, at + i);
	return err;
}

static int find_calls(struct anchors *a, const struct piece *p)
{
	uint64_t first = a->refs[0].off;
	const struct reach r = {
		.load = p->load,
		.end = p->load->off + p->load->filesz,
		.low = first > FUNCTION_BYTES_MAX ? first - FUNCTION_BYTES_MAX : 0,
		.high = a->refs[a->ref_count - 1].off,
	};
	int err = find_direct_calls(a, p, &r);

	return err ? err : find_addresses(a, p, &r);
}

/* --- passes over the file ---------------------------------------------------------------------------------------- */

enum pass { PASS_STRINGS, PASS_REFS, PASS_CALLS };

static int pass_over(struct anchors *a, const struct elf_load *load, enum pass pass, const struct high_bytes *h)
{
	uint64_t end = load->off + load->filesz;
	int err = 0;

	for (struct piece p = {.load = load, .begin = load->off}; p.begin < end && !err; p.begin = p.end) {
		p.end = end - p.begin > CHUNK_BYTES ? p.begin + CHUNK_BYTES : end;
		if (pass == PASS_STRINGS)
			find_strings(a, &p);
		else if (pass == PASS_REFS)
			find_refs(a, &p, h);
		else
			err = find_calls(a, &p);
		elf_forget(a->d.e, p.begin, p.end - p.begin);
	}
	return err;
}

static int compare_refs(const void *x, const void *y)
{
	const struct anchor_ref *p = x, *q = y;

	return p->off < q->off ? -1 : p->off > q->off;
}

static int compare_calls(const void *x, const void *y)
{
	const struct anchor_call *p = x, *q = y;

	if (p->target != q->target)
		return p->target < q->target ? -1 : 1;
	return p->site < q->site ? -1 : p->site > q->site;
}

/* Read-only data has its own segment in front of the code, unless the linker was told otherwise. */
static bool holds_strings(const struct elf *e, unsigned load)
{
	return !e->loads[load].exec || e->loads[0].exec;
}

/* One pass over the segments with code, or with strings. Segments that overlap (no linker makes them) end it. */
static int pass_over_all(struct anchors *a, enum pass pass, const struct high_bytes *h)
{
	const struct elf *e = a->d.e;
	uint64_t left = e->size;
	int err = 0;

	for (unsigned i = 0; i < e->load_count && !err; i++) {
		struct elf_load load = e->loads[i];

		if (load.off >= e->size || !(pass == PASS_STRINGS ? holds_strings(e, i) : load.exec))
			continue;
		if (load.filesz > e->size - load.off)
			load.filesz = e->size - load.off;
		if (load.filesz > left)
			break;
		left -= load.filesz;
		err = pass_over(a, &load, pass, h);
	}
	return err;
}

static int scan(struct anchors *a)
{
	struct high_bytes h = {0};
	int err;

	pass_over_all(a, PASS_STRINGS, NULL);
	for (unsigned i = 0; i < a->string_count; i++) {
		add_high_byte(&h, a->strings[i].first);
		add_high_byte(&h, a->strings[i].last);
	}
	if (a->string_count)
		pass_over_all(a, PASS_REFS, &h);
	qsort(a->refs, a->ref_count, sizeof(*a->refs), compare_refs);
	err = a->ref_count ? pass_over_all(a, PASS_CALLS, NULL) : 0;
	if (a->call_count)
		qsort(a->calls, a->call_count, sizeof(*a->calls), compare_calls);
	return err;
}

/* --- what decoding may cost -------------------------------------------------------------------------------------- */

static bool spend(struct anchors *a, unsigned insns)
{
	if (a->budget < insns) {
		a->budget = 0;
		refuse_file(a, "its code takes too long to follow");
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
		pass_over_all(a, PASS_STRINGS, NULL);
		return refuse_file(a, "it is stripped, and its functions are then found on x86-64 only"), 0;
	}
	frames_open(&a->frames, e);
	a->refs = calloc(ANCHOR_REFS_MAX, sizeof(*a->refs));
	a->functions = calloc(ANCHOR_FUNCTIONS_MAX, sizeof(*a->functions));
	err = a->refs && a->functions ? scan(a) : -ENOMEM;
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
