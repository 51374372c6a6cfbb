/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <elf.h>
#include <errno.h>

#include "attach/site.h"
#include "shapes/chain.h"
#include "shapes/shape.h"

struct lookup {
	const char *name;
	struct elf_symbol s;
	bool found;
};

static bool look(void *ctx, const struct elf_symbol *s)
{
	struct lookup *l = ctx;

	if (!sv_eq(s->name, sv_of(l->name)))
		return true;
	l->s = *s;
	l->found = true;
	return false;
}

static struct elf_symbol symbol(const struct elf *e, const char *name)
{
	struct lookup l = {.name = name};

	elf_each_function(e, look, &l);
	if (!l.found)
		fail_msg("no function %s", name);
	return l.s;
}

static void open_shape(struct elf *e, const char *name)
{
	if (elf_map(e, shape_path(name)))
		skip(); /* built on x86-64 only */
}

/* --- rules 1 and 3 ----------------------------------------------------------------------------------------------- */

static void first_instructions(void **state)
{
	static const struct {
		const char *name;
		bool has_return;
		int at; /* bytes behind the entry */
		enum site_class class;
	} cases[] = {
		{"push_rbx", true, 0, SITE_EMULATED},	  {"push_r12", true, 0, SITE_EMULATED},
		{"endbr_push", true, 4, SITE_EMULATED},	  {"test_je", true, 3, SITE_EMULATED},
		{"test_je_far", true, 7, SITE_EMULATED},  {"xor_push", true, 9, SITE_EMULATED},
		{"nop1", true, 0, SITE_EMULATED},	  {"nop5", true, 5, SITE_EMULATED},
		{"call_first", true, 0, SITE_EMULATED},	  {"jump_first", true, 0, SITE_EMULATED},
		{"sub_je", true, 0, SITE_STEPPED},	  {"sub_je", false, 7, SITE_EMULATED},
		{"pop_push", true, 0, SITE_STEPPED},	  {"pop_push", false, 1, SITE_EMULATED},
		{"wide_nop", true, 0, SITE_STEPPED},	  {"rex_push", true, 0, SITE_STEPPED},
		{"bnd_call", true, 0, SITE_STEPPED},	  {"push_imm", true, 0, SITE_STEPPED},
		{"jrcxz_first", false, 0, SITE_STEPPED},  {"xor_r8", true, 0, SITE_STEPPED},
		{"xor_r8", false, 0, SITE_STEPPED},	  {"mul_push", false, 0, SITE_STEPPED},
		{"cdq_push", false, 0, SITE_STEPPED},	  {"stos_push", false, 0, SITE_STEPPED},
		{"byte_push", false, 0, SITE_STEPPED},	  {"ret_push", false, 0, SITE_STEPPED},
		{"syscall_push", false, 0, SITE_STEPPED}, {"loop_je", true, 0, SITE_STEPPED},
		{"loop_je", false, 0, SITE_STEPPED},	  {"loop_cold", false, 0, SITE_STEPPED},
		{"loop_entry", true, 0, SITE_EMULATED},
	};
	struct elf e;

	(void)state;
	open_shape(&e, "sites");
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct elf_symbol s = symbol(&e, cases[i].name);
		struct site site;

		assert_int_equal(site_resolve(&e, s.off, cases[i].has_return, &site), 0);
		if ((int)(site.off - s.off) != cases[i].at || site.class != cases[i].class)
			fail_msg("%s: +%d %s '%s'", cases[i].name, (int)(site.off - s.off), site_class_name(site.class),
				 site.insn);
		assert_int_equal(site.rule, cases[i].class == SITE_STEPPED ? 3 : 1);
		assert_true(site.func_off == s.off);
		assert_true(site.insn[0] && site.insn[strlen(site.insn) - 1] != ' ');
		assert_true(on_decode_chain(&e, s.off, site.off));
	}
	elf_unmap(&e);
}

enum { RDX = 2, RSI = 6, RDI = 7, R8 = 8 };

/* The first argument, and the third. */
static void arguments_that_move(void **state)
{
	static const struct {
		const char *name;
		int at; /* bytes behind the entry */
		enum site_class class;
		uint8_t first;
	} cases[] = {
		{"push_rbx", 0, SITE_EMULATED, RDI},	{"xor_r8", 3, SITE_EMULATED, RDI},
		{"size_moved", 5, SITE_EMULATED, RSI},	{"size_moved_on", 10, SITE_EMULATED, R8},
		{"size_halved", 0, SITE_STEPPED, RDI},	{"size_kept", 0, SITE_STEPPED, RDI},
		{"size_swapped", 0, SITE_STEPPED, RDI}, {"size_of_segment", 0, SITE_STEPPED, RDI},
		{"pop_push", 0, SITE_STEPPED, RDI},	{"sub_je", 0, SITE_STEPPED, RDI},
		{"cdq_push", 0, SITE_STEPPED, RDI},
	};
	uint8_t no_code[1] = {1};
	struct site site;
	struct elf e;

	(void)state;
	open_shape(&e, "sites");
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct elf_symbol s = symbol(&e, cases[i].name);
		uint8_t registers[2] = {1, 3};

		assert_int_equal(site_resolve_arguments(&e, s.off, registers, 2, &site), 0);
		if ((int)(site.off - s.off) != cases[i].at || site.class != cases[i].class ||
		    registers[0] != cases[i].first || registers[1] != RDX)
			fail_msg("%s: +%d %s '%s' %u %u", cases[i].name, (int)(site.off - s.off),
				 site_class_name(site.class), site.insn, registers[0], registers[1]);
	}
	assert_int_equal(site_resolve_arguments(&e, symbol(&e, "undecodable").off, no_code, 1, &site), -EINVAL);
	elf_unmap(&e);
}

static void what_is_no_code_is_refused(void **state)
{
	struct site site;
	struct elf e;

	(void)state;
	open_shape(&e, "sites");
	assert_int_equal(site_resolve(&e, symbol(&e, "undecodable").off, true, &site), -EINVAL);
	assert_int_equal(site_resolve(&e, 0, true, &site), -EINVAL); /* the ELF header: not executable */
	assert_int_equal(site_resolve(&e, e.size, true, &site), -EINVAL);
	assert_int_equal(site_resolve(&e, UINT64_MAX, true, &site), -EINVAL);
	/* without a decoder for the machine: the public symbol, and nothing else is claimed */
	e.machine = EM_AARCH64;
	assert_int_equal(site_resolve(&e, symbol(&e, "test_je").off, true, &site), 0);
	assert_int_equal(site.class, SITE_ENTRY);
	assert_true(site.off == site.func_off);
	elf_unmap(&e);
}

static void class_names(void **state)
{
	(void)state;
	assert_string_equal(site_class_name(SITE_EMULATED), "emulated");
	assert_string_equal(site_class_name(SITE_STEPPED), "single-stepped");
	assert_string_equal(site_class_name(SITE_ENTRY), "entry");
}

/* --- wrappers ---------------------------------------------------------------------------------------------------- */

static void tail_jumps(void **state)
{
	uint64_t target;
	struct sv plt;
	struct elf e;

	(void)state;
	open_shape(&e, "cet");
	assert_true(site_tail_target(&e, symbol(&e, "SSL_write_ex").off, &target, &plt));
	assert_true(sv_eq(plt, SV("SSL_write_ex2")));
	assert_true(target == symbol(&e, "SSL_write_ex2").off);
	assert_false(site_tail_target(&e, symbol(&e, "SSL_write_ex2").off, &target, &plt));
	assert_false(site_tail_target(&e, symbol(&e, "SSL_read").off, &target, &plt));
	elf_unmap(&e);
	open_shape(&e, "tail");
	assert_true(site_tail_target(&e, symbol(&e, "SSL_write_ex").off, &target, &plt));
	assert_true(sv_eq(plt, SV("SSL_write_ex2")));
	assert_true(target == symbol(&e, "SSL_write_ex2").off);
	elf_unmap(&e);
	open_shape(&e, "hop");
	assert_true(site_tail_target(&e, symbol(&e, "read_wrapper").off, &target, &plt));
	assert_null(plt.ptr);
	assert_true(target == symbol(&e, "ssl_read_internal").off);
	elf_unmap(&e);
}

/* --- rule 2 ------------------------------------------------------------------------------------------------------ */

static void forwarded_arguments(void **state)
{
	static const struct {
		const char *shape, *function;
		unsigned at, what;
		int err;
		const char *target;
	} cases[] = {
		{"internal", "SSL_read", 4, SITE_LOCAL, 0, "ssl_read_internal"},
		{"internal", "SSL_read_ex", 4, 4, 0, "ssl_read_internal"},
		{"internal", "SSL_write", 4, SITE_LOCAL, 0, "ssl_write_internal"},
		{"internal", "SSL_peek", 4, SITE_LOCAL, 0, "ssl_peek_internal"},
		{"internal", "SSL_read", 4, 4, -ENOENT, NULL},		   /* it hands on a local */
		{"internal", "SSL_read_ex", 4, SITE_LOCAL, -ENOENT, NULL}, /* it hands on its own */
		{"internal", "SSL_read", 5, SITE_LOCAL, -ENOENT, NULL},
		{"cet", "SSL_write", 5, SITE_LOCAL, 0, "ssl_write_internal"},
		{"cet", "SSL_write", 4, SITE_LOCAL, -ENOENT, NULL},
		{"cet", "SSL_write_ex2", 5, 5, 0, "ssl_write_internal"},
		{"cet", "SSL_write_ex", 5, 4, 0, "SSL_write_ex2"},
		{"tail", "SSL_read", 4, SITE_LOCAL, 0, "SSL_read_ex"},
		{"hop", "SSL_read", 4, SITE_LOCAL, 0, "ssl_read_internal"},
		{"hop", "SSL_write_ex", 4, 4, 0, "ssl_write_internal"},
		{"inlined", "SSL_read", 4, SITE_LOCAL, -ENOTUNIQ, NULL},
		{"inlined", "SSL_write_ex", 4, 4, -ENOTUNIQ, NULL},
		{"ambiguous", "SSL_read", 4, SITE_LOCAL, -ENOTUNIQ, NULL},
		{"swapped", "SSL_read", 4, SITE_LOCAL, -ENOENT, NULL},
		{"compiled_O0", "SSL_read", 4, SITE_LOCAL, 0, "ssl_read_internal"},
		{"compiled_O0", "SSL_read_ex", 4, 4, 0, "ssl_read_internal"},
		{"compiled_O0", "SSL_write", 5, SITE_LOCAL, 0, "ssl_write_internal"},
		{"compiled_O0", "SSL_write_ex", 5, 4, 0, "SSL_write_ex2"},
		{"compiled_Os", "SSL_write", 5, SITE_LOCAL, 0, "ssl_write_internal"},
		{"compiled_cet", "SSL_read", 4, SITE_LOCAL, 0, "ssl_read_internal"},
		{"compiled_cet", "SSL_write_ex2", 5, 5, 0, "ssl_write_internal"},
		{"compiled_frame", "SSL_read", 4, SITE_LOCAL, 0, "ssl_read_internal"},
		{"compiled_frame", "SSL_write", 5, SITE_LOCAL, 0, "ssl_write_internal"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct elf_symbol s;
		uint64_t target = 0;
		struct elf e;
		int err;

		open_shape(&e, cases[i].shape);
		s = symbol(&e, cases[i].function);
		err = site_forward(&e, s.off, s.size, cases[i].at, cases[i].what, &target);
		if (err != cases[i].err)
			fail_msg("%s: %s at %u: %d", cases[i].shape, cases[i].function, cases[i].at, err);
		if (!err && target != symbol(&e, cases[i].target).off)
			fail_msg("%s: %s: 0x%llx", cases[i].shape, cases[i].function, (unsigned long long)target);
		elf_unmap(&e);
	}
}

static void who_reaches_whom(void **state)
{
	struct elf e;

	(void)state;
	open_shape(&e, "peek");
	assert_true(site_reaches(&e, symbol(&e, "SSL_read").off, symbol(&e, "ssl_read_internal").off));
	assert_true(site_reaches(&e, symbol(&e, "SSL_peek").off, symbol(&e, "ssl_read_internal").off));
	assert_false(site_reaches(&e, symbol(&e, "SSL_peek").off, symbol(&e, "ssl_write_internal").off));
	elf_unmap(&e);
}

/* --- trouble ----------------------------------------------------------------------------------------------------- */

static void no_memory(void **state)
{
	struct elf_symbol s;
	uint64_t target;
	struct site site;
	bool hit = true;
	struct elf e;
	int err;

	(void)state;
	open_shape(&e, "internal");
	s = symbol(&e, "SSL_read_ex");
	for (unsigned n = 1; hit; n++) {
		fail_nth(n);
		err = site_forward(&e, s.off, s.size, 4, 4, &target);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
	}
	fail_nth(1);
	assert_true(
		site_reaches(&e, symbol(&e, "SSL_peek").off, symbol(&e, "ssl_read_internal").off)); /* not known: yes */
	fail_nth(1);
	assert_int_equal(site_resolve(&e, symbol(&e, "SSL_free").off, true, &site), 0);
	assert_true(site.off == site.func_off); /* whether it loops is not known: the entry */
	fail_nth(0);
	elf_unmap(&e);
}

/* Any bytes as code: an answer that is on the decode chain, or none; and the analyses end. */
static void random_code(void **state)
{
	struct elf e = {.fd = -1, .machine = EM_X86_64, .load_count = 1};
	uint64_t random = 1, target;
	uint8_t code[512];
	struct guard g = {0};
	struct site site;

	(void)state;
	for (unsigned round = 0; round < 4000; round++) {
		for (unsigned i = 0; i < sizeof(code); i++) {
			/* many short branches, calls and stack instructions */
			static const uint8_t often[] = {0x74, 0x75, 0xeb, 0xe8, 0x48, 0x89,
							0x8b, 0x8d, 0x50, 0x58, 0xff, 0x0f};

			random = random * 6364136223846793005ull + 1442695040888963407ull;
			code[i] = random >> 62 ? (uint8_t)(random >> 40) : often[(random >> 33) % sizeof(often)];
		}
		e.map = guard_copy(&g, code, sizeof(code));
		e.size = sizeof(code);
		e.loads[0] = (struct elf_load){0, 0x1000, sizeof(code), sizeof(code), true};
		if (!site_resolve(&e, round % 512, round & 1, &site) && !on_decode_chain(&e, site.func_off, site.off))
			fail_msg("round %u: 0x%llx", round, (unsigned long long)site.off);
		site_forward(&e, round % 512, 256, 4 + round % 2, round % 5, &target);
		site_reaches(&e, round % 512, 100);
	}
	guard_free(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_instructions),
		cmocka_unit_test(arguments_that_move),
		cmocka_unit_test(what_is_no_code_is_refused),
		cmocka_unit_test(class_names),
		cmocka_unit_test(tail_jumps),
		cmocka_unit_test(forwarded_arguments),
		cmocka_unit_test(who_reaches_whom),
		cmocka_unit_test(no_memory),
		cmocka_unit_test(random_code),
	};

	return cmocka_run_group_tests_name("site", tests, NULL, NULL);
}
