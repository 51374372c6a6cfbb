/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tlsfind_anchor_scan.h"

#include <stdlib.h>

#include "base/err.h"

#define CHUNK_BYTES	(1u << 20) /* of the file that are resident at once */
#define ANCHOR_PATH_MAX 255	   /* of a path before its needle */
#define CALLS_MAX	(1u << 20)

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

void anchors_refuse_file(struct anchors *a, const char *reason)
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
		anchors_refuse_file(a, "the strings that its functions are known by occur too often");
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
			anchors_refuse_file(a, "too many places refer to the strings that its functions are known by");
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
			anchors_refuse_file(a, "too many calls lead to where its functions are");
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

void anchors_scan_strings(struct anchors *a)
{
	pass_over_all(a, PASS_STRINGS, NULL);
}

int anchors_scan(struct anchors *a)
{
	struct high_bytes h = {0};
	int err;

	anchors_scan_strings(a);
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
