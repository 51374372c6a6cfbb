/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <capstone/capstone.h>
#include <elf.h>
#include <errno.h>
#include <linux/types.h>

#include "attach/gotable.h"
#include "attach/tlsfind.h"
#include "bpf/event.h"
#include "shapes/chain.h"
#include "shapes/shape.h"

/* The programs that the Makefile builds, where there is a Go. The symbol table of the plain one is what the others are
 * compared with: -s -w changes no code. */

#define FUNCTIONS 3
static const char *const names[FUNCTIONS] = {"crypto/tls.(*Conn).Read", "crypto/tls.(*Conn).Write",
					     "crypto/tls.(*Conn).clientHandshake"};
static const uint32_t roles[FUNCTIONS] = {TLS_ROLE_READ, TLS_ROLE_WRITE, TLS_ROLE_HANDSHAKE};

struct program { /* a copy of a file that can be changed */
	uint8_t *bytes;
	size_t size;
	struct elf e;
};

static bool load(struct program *p, const char *name)
{
	FILE *f = fopen(built_path("go", name), "rb");

	*p = (struct program){0};
	if (!f)
		return false;
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	p->size = (size_t)ftell(f);
	rewind(f);
	p->bytes = malloc(p->size);
	assert_non_null(p->bytes);
	assert_int_equal(fread(p->bytes, 1, p->size, f), p->size);
	fclose(f);
	assert_int_equal(elf_from_bytes(&p->e, p->bytes, p->size), 0);
	return true;
}

#define LOAD(p, name)                                                                                                  \
	do {                                                                                                           \
		if (!load(p, name)) {                                                                                  \
			print_message("# no Go program was built\n");                                                  \
			skip();                                                                                        \
		}                                                                                                      \
	} while (0)

static void unload(struct program *p)
{
	elf_unmap(&p->e);
	free(p->bytes);
}

/* --- an independent look at the plain program -------------------------------------------------------------------- */

struct symbols {
	uint64_t off[FUNCTIONS], size[FUNCTIONS];
};

static bool note_symbol(void *ctx, const struct elf_symbol *s)
{
	struct symbols *all = ctx;

	for (unsigned i = 0; i < FUNCTIONS; i++)
		if (sv_eq(s->name, sv_of(names[i]))) {
			all->off[i] = s->off;
			all->size[i] = s->size;
		}
	return true;
}

/* "read 0x104 0x131 …": where a function returns, by nothing but its symbol and the decoder. */
static void show_symbol(struct tlog *log, const struct program *p, const struct symbols *all, unsigned i)
{
	uint64_t address = 0;
	const uint8_t *code = p->bytes + all->off[i];
	size_t len = all->size[i];
	csh handle;
	cs_insn *insn;

	assert_int_equal(cs_open(CS_ARCH_X86, CS_MODE_64, &handle), CS_ERR_OK);
	insn = cs_malloc(handle);
	tlog_printf(log, "%u %llx:", roles[i], (unsigned long long)all->off[i]);
	while (cs_disasm_iter(handle, &code, &len, &address, insn))
		if (insn->id == X86_INS_RET)
			tlog_printf(log, " %llx", (unsigned long long)insn->address);
	assert_int_equal(len, 0);
	tlog_printf(log, "\n");
	cs_free(insn, 1);
	cs_close(&handle);
}

/* The same of what was found; entries apart. */
static void show_found(struct tlog *log, const struct tls_find *found)
{
	for (unsigned i = 0; i < found->count; i++) {
		const struct tls_func *f = &found->funcs[i];

		assert_true(f->abi == TLS_ABI_GO_ENTRY || f->abi == TLS_ABI_GO_RETURN);
		assert_int_equal(f->len_arg, f->role == TLS_ROLE_HANDSHAKE ? TLS_HANDSHAKE_ZERO : TLS_LEN_RET);
		if (f->abi == TLS_ABI_GO_ENTRY)
			tlog_printf(log, "%s%u %llx:", i ? "\n" : "", f->role, (unsigned long long)f->site.func_off);
		else
			tlog_printf(log, " %llx", (unsigned long long)(f->site.off - f->site.func_off));
	}
	tlog_printf(log, "\n");
}

/* An entry stands behind the comparison with the stack's limit at most, on the branch to where it is grown. */
static void check_entries(const struct program *p, const struct tls_find *found)
{
	for (unsigned i = 0; i < found->count; i++) {
		const struct tls_func *f = &found->funcs[i];
		const uint8_t *at = p->bytes + f->site.off;

		if (f->abi == TLS_ABI_GO_RETURN) {
			assert_int_equal(*at, 0xc3);
			assert_int_equal(f->site.class, SITE_STEPPED);
			continue;
		}
		assert_int_equal(f->site.class, SITE_EMULATED);
		assert_true(at[0] == 0x76 || (at[0] == 0x0f && at[1] == 0x86)); /* jbe */
		assert_true(f->site.off - f->site.func_off < 16);
	}
}

static void plain_equals_symbols(void **state)
{
	struct tlog expect = {0}, log = {0};
	struct symbols symbols = {{0}, {0}};
	struct tls_find found;
	struct program p;

	(void)state;
	LOAD(&p, "client");
	elf_each_function(&p.e, note_symbol, &symbols);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		show_symbol(&expect, &p, &symbols, i);
	assert_int_equal(tlsfind_go(&p.e, &found), 0);
	assert_string_equal(found.stack, "go crypto/tls");
	assert_string_equal(found.reason, "");
	assert_int_equal(found.confidence, TLS_NAMED);
	show_found(&log, &found);
	assert_log(&log, expect.text);
	check_entries(&p, &found);
	unload(&p);
	LOAD(&p, "client-stripped");
	tlog_free(&log);
	assert_int_equal(tlsfind_go(&p.e, &found), 0);
	show_found(&log, &found);
	assert_log(&log, expect.text);
	tlog_free(&log);
	tlog_free(&expect);
	unload(&p);
}

/* --- programs of other shapes ------------------------------------------------------------------------------------ */

static void strip_sections(struct program *p)
{
	Elf64_Ehdr *eh = (void *)p->bytes;

	eh->e_shoff = 0;
	eh->e_shnum = eh->e_shstrndx = 0;
	elf_unmap(&p->e);
	assert_int_equal(elf_from_bytes(&p->e, p->bytes, p->size), 0);
}

static void other_shapes(void **state)
{
	static const char *const files[] = {"client-stripped", "client-pie", "load", "load-stripped"};

	(void)state;
	for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct tlog with = {0}, without = {0};
		struct tls_find found;
		struct program p;

		LOAD(&p, files[i]);
		assert_int_equal(tlsfind_go(&p.e, &found), 0);
		check_entries(&p, &found);
		show_found(&with, &found);
		strip_sections(&p);
		assert_int_equal(tlsfind_go(&p.e, &found), 0);
		show_found(&without, &found);
		assert_log(&without, with.text);
		tlog_free(&with);
		tlog_free(&without);
		unload(&p);
	}
}

/* The head of a table as other releases write it. */
static void other_releases(void **state)
{
	static const struct {
		uint32_t magic;
		bool no_text;
		int err;
		const char *reason;
	} cases[] = {
		{0xfffffff1, false, 0, ""}, /* 1.20 */
		{0xfffffff1, true, 0, ""},  /* 1.26 */
		{0xfffffff0, true, 0, ""},
		{0xfffffffa, false, -EINVAL, "made by Go 1.17 or older, which passes arguments in another way"},
		{0xfffffffb, false, -EINVAL, "made by Go 1.17 or older, which passes arguments in another way"},
	};
	static const char *const files[] = {"client-stripped", "client-pie"};

	(void)state;
	for (unsigned i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		struct tlog before = {0}, after = {0};
		struct tls_find found;
		struct go_table t;
		struct program p;

		LOAD(&p, files[i % 2]);
		assert_int_equal(tlsfind_go(&p.e, &found), 0);
		show_found(&before, &found);
		assert_int_equal(go_table_open(&t, &p.e), 0);
		memcpy(p.bytes + t.off, &cases[i / 2].magic, 4);
		if (cases[i / 2].no_text)
			memset(p.bytes + t.off + 24, 0, 8);
		assert_int_equal(tlsfind_go(&p.e, &found), cases[i / 2].err);
		assert_string_equal(found.reason, cases[i / 2].reason);
		if (cases[i / 2].err) {
			assert_int_equal(found.count, 0);
		} else {
			show_found(&after, &found);
			assert_log(&after, before.text);
		}
		tlog_free(&before);
		tlog_free(&after);
		unload(&p);
	}
}

/* --- refusals ---------------------------------------------------------------------------------------------------- */

/* Where the table keeps what it knows of the function with this entry; by the format, not by the code under test. */
static uint8_t *info_of(struct program *p, const struct go_table *t, uint64_t entry)
{
	uint8_t *functions = p->bytes + t->off + t->functions;
	uint32_t pair[2];

	for (uint64_t i = 0; i < t->count; i++) {
		memcpy(pair, functions + 8 * i, 8);
		if (pair[0] == entry)
			return functions + pair[1];
	}
	fail_msg("no function at %llx", (unsigned long long)entry);
	return NULL;
}

static void assert_refused(struct program *p, const char *reason)
{
	struct tls_find found;

	assert_int_equal(tlsfind_go(&p->e, &found), -EINVAL);
	assert_int_equal(found.count, 0);
	assert_string_equal(found.stack, "go crypto/tls");
	assert_string_equal(found.reason, reason);
}

static void refused(void **state)
{
	struct go_function f[FUNCTIONS];
	unsigned count[FUNCTIONS];
	struct tls_find found;
	struct go_table t;
	struct program p;
	uint8_t old[16], *code;

	(void)state;
	LOAD(&p, "client-stripped");
	assert_int_equal(go_table_open(&t, &p.e), 0);
	go_table_find(&t, names, FUNCTIONS, f, count);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		assert_int_equal(count[i], 1);
	assert_int_equal(tlsfind_go(&p.e, &found), 0);

	/* a second function of that name */
	memcpy(old, info_of(&p, &t, f[2].entry) + 4, 4);
	memcpy(info_of(&p, &t, f[2].entry) + 4, info_of(&p, &t, f[0].entry) + 4, 4);
	assert_refused(&p, "crypto/tls.(*Conn).Read: two functions have that name");
	memcpy(info_of(&p, &t, f[2].entry) + 4, old, 4);

	/* none that writes */
	memcpy(old, info_of(&p, &t, f[1].entry) + 4, 4);
	memset(info_of(&p, &t, f[1].entry) + 4, 0, 4);
	assert_refused(&p, "crypto/tls.(*Conn).Write: not there");
	memcpy(info_of(&p, &t, f[1].entry) + 4, old, 4);

	/* another calling convention: no comparison of the stack pointer with g's limit */
	code = p.bytes + found.funcs[0].site.func_off;
	memcpy(old, code, 4);
	memset(code, 0x90, 4);
	assert_refused(&p, "crypto/tls.(*Conn).Read: it does not begin as Go functions with arguments in registers do");
	memcpy(code, old, 4);

	/* a byte that is no instruction */
	code = p.bytes + found.funcs[1].site.off;
	*code = 0x06;
	assert_refused(&p, "crypto/tls.(*Conn).Read: its code cannot be decoded");
	*code = 0xc3;

	/* jbe one byte too far: where the stack is grown, it begins with a `mov` of five bytes */
	code = p.bytes + found.funcs[0].site.off;
	code[2]++;
	assert_refused(&p, "crypto/tls.(*Conn).Read: a jump leads into the middle of an instruction");
	code[2]--;
	code[5]++;
	assert_refused(&p, "crypto/tls.(*Conn).Read: a jump leaves it");
	code[5]--;

	/* more returns than are known of Go's functions */
	memset(p.bytes + found.funcs[1].site.off, 0xc3, 24);
	assert_refused(&p, "crypto/tls.(*Conn).Read: it returns in too many places");
	unload(&p);
}

/* --- arm64: the same program, with other code in these functions ------------------------------------------------- */

#define ARM64_NOP      0xd503201f
#define ARM64_RET      0xd65f03c0
#define ARM64_RET_X1   0xd65f0020
#define ARM64_BR_X1    0xd61f0020
#define ARM64_BRK      0xd4200000
#define ARM64_BL_8     0x94000002
#define ARM64_TBZ_BACK 0x36ffffe0 /* one instruction */
#define ARM64_B_TO(n)  (0x14000000 | ((uint32_t)(n)&0x3ffffff))

static const uint32_t arm64_code[] = {
	0xf9400b90,	/* 0: ldr x16, [x28, #16] */
	ARM64_NOP,	/* 1 */
	0x54000129,	/* 2: b.ls 11 */
	0xb4000080,	/* 3: cbz x0, 7 */
	ARM64_BL_8,	/* 4 */
	ARM64_RET,	/* 5 */
	ARM64_RET,	/* 6: a constant that looks so */
	ARM64_NOP,	/* 7 */
	ARM64_TBZ_BACK, /* 8: tbz w0, #31, 7 */
	ARM64_RET,	/* 9 */
	ARM64_NOP,	/* 10: never */
	ARM64_BL_8,	/* 11 */
	ARM64_B_TO(-12) /* 12: b 0 */
};

struct arm64_program {
	struct program p;
	struct tls_find x86;
	uint8_t *code[FUNCTIONS];
};

static bool load_arm64(struct arm64_program *a)
{
	unsigned functions = 0;

	if (!load(&a->p, "client-stripped"))
		return false;
	assert_int_equal(tlsfind_go(&a->p.e, &a->x86), 0);
	for (unsigned i = 0; i < a->x86.count; i++)
		if (a->x86.funcs[i].abi == TLS_ABI_GO_ENTRY)
			a->code[functions++] = a->p.bytes + a->x86.funcs[i].site.func_off;
	assert_int_equal(functions, FUNCTIONS);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		memcpy(a->code[i], arm64_code, sizeof(arm64_code));
	a->p.e.machine = EM_AARCH64;
	return true;
}

static void arm64(void **state)
{
	struct tlog log = {0}, expect = {0};
	struct arm64_program a;
	struct tls_find found;

	(void)state;
	if (!load_arm64(&a)) {
		print_message("# no Go program was built\n");
		skip();
	}
	assert_int_equal(tlsfind_go(&a.p.e, &found), 0);
	assert_string_equal(found.reason, "");
	for (unsigned i = 0; i < FUNCTIONS; i++)
		tlog_printf(&expect, "%u %llx: 14 24\n", roles[i], (unsigned long long)(a.code[i] - a.p.bytes));
	show_found(&log, &found);
	assert_log(&log, expect.text);
	for (unsigned i = 0; i < found.count; i++) {
		bool entry = found.funcs[i].abi == TLS_ABI_GO_ENTRY;

		assert_int_equal(found.funcs[i].site.class, entry ? SITE_ENTRY : SITE_EMULATED);
		assert_string_equal(found.funcs[i].site.insn, entry ? "" : "ret");
	}
	tlog_free(&log);
	tlog_free(&expect);
	unload(&a.p);
}

static void arm64_refused(void **state)
{
	static const struct {
		unsigned at;
		uint32_t word;
		const char *reason;
	} cases[] = {
		{0, ARM64_NOP, "it does not begin as Go functions with arguments in registers do"},
		{12, ARM64_BRK, "it does not begin as Go functions with arguments in registers do"},
		{4, ARM64_BR_X1, "it jumps to where a register says"},
		{5, ARM64_RET_X1, "it returns in a way that is not Go's"},
		{4, ARM64_B_TO(0x10000), "a jump leaves it"},
		{4, ARM64_B_TO(-5), "a jump leaves it"},
		{3, 0xb4ffff80, "a jump leaves it"}, /* cbz x0, -1 */
	};
	struct arm64_program a;

	(void)state;
	if (!load_arm64(&a)) {
		print_message("# no Go program was built\n");
		skip();
	}
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char reason[128];

		snprintf(reason, sizeof(reason), "crypto/tls.(*Conn).Read: %s", cases[i].reason);
		memcpy(a.code[0] + 4 * cases[i].at, &cases[i].word, 4);
		assert_refused(&a.p, reason);
		memcpy(a.code[0] + 4 * cases[i].at, &arm64_code[cases[i].at], 4);
	}
	unload(&a.p);
}

/* A program without crypto/tls, and one that is not Go's. */
static void no_tls(void **state)
{
	struct tls_find found;
	struct go_table t;
	struct program p;
	struct elf self;

	(void)state;
	assert_int_equal(elf_map(&self, "/proc/self/exe"), 0);
	assert_int_equal(tlsfind_go(&self, &found), -ENOENT);
	elf_unmap(&self);
	LOAD(&p, "client-stripped");
	assert_int_equal(go_table_open(&t, &p.e), 0);
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		uint8_t *at;

		while ((at = memmem(p.bytes + t.off, t.size, names[i], strlen(names[i]) + 1)))
			*at = 'X';
	}
	assert_int_equal(tlsfind_go(&p.e, &found), -ENOENT);
	assert_null(found.stack);
	unload(&p);
}

/* --- hostile and unlucky ----------------------------------------------------------------------------------------- */

static uint32_t random_state = 12345;
static uint32_t next_random(void)
{
	random_state = random_state * 1664525 + 1013904223;
	return random_state >> 8;
}

#define MUTATIONS 1000
#define CHANGES	  8

/* Bytes of the head, of the functions' table and of the code are changed: no crash, and nothing but what decoding from
 * the function's start arrives at. */
static void mutated(void **state)
{
	struct tls_find found;
	unsigned survived = 0;
	struct go_table t;
	struct program p;

	(void)state;
	LOAD(&p, "client-stripped");
	assert_int_equal(go_table_open(&t, &p.e), 0);
	assert_int_equal(tlsfind_go(&p.e, &found), 0);
	for (unsigned round = 0; round < MUTATIONS; round++) {
		const struct {
			uint64_t off, size;
		} places[] = {
			{t.off, 72},
			{t.off + t.functions, 8 * t.count},
			{found.funcs[0].site.func_off, 1024},
			{0, sizeof(Elf64_Ehdr) + 8 * sizeof(Elf64_Phdr)},
		};
		uint64_t off[CHANGES];
		uint8_t old[CHANGES];
		struct tls_find now;
		struct elf e;

		for (unsigned i = 0; i < CHANGES; i++) {
			unsigned place = next_random() % 4;

			off[i] = places[place].off + next_random() % places[place].size;
			old[i] = p.bytes[off[i]];
			p.bytes[off[i]] = (uint8_t)next_random();
		}
		if (!elf_from_bytes(&e, p.bytes, p.size)) {
			int err = tlsfind_go(&e, &now);

			survived += !err;
			assert_true(err == 0 || ((err == -EINVAL || err == -ENOENT) && !now.count));
			for (unsigned i = 0; i < now.count; i++) {
				const struct site *s = &now.funcs[i].site;

				assert_true(on_decode_chain(&e, s->func_off, s->off));
			}
			elf_unmap(&e);
		}
		for (unsigned i = CHANGES; i--;)
			p.bytes[off[i]] = old[i];
	}
	assert_true(survived > 0 && survived < MUTATIONS);
	unload(&p);
}

static void no_memory(void **state)
{
	struct tls_find found;
	struct program p;
	bool hit = true;

	(void)state;
	LOAD(&p, "client-stripped");
	for (unsigned n = 1; hit; n++) {
		int err;

		fail_nth(n);
		err = tlsfind_go(&p.e, &found);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_true(err == 0 || (hit && err == -ENOMEM && !found.count));
	}
	assert_true(found.count > 0);
	unload(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_equals_symbols),
		cmocka_unit_test(other_shapes),
		cmocka_unit_test(other_releases),
		cmocka_unit_test(refused),
		cmocka_unit_test(arm64),
		cmocka_unit_test(arm64_refused),
		cmocka_unit_test(no_tls),
		cmocka_unit_test(mutated),
		cmocka_unit_test(no_memory),
	};

	return cmocka_run_group_tests_name("tlsfind_go", tests, NULL, NULL);
}
