/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <unistd.h>

#include "attach/sqlitefind.h"
#include "shapes/chain.h"

#define LIB "/usr/lib/x86_64-linux-gnu/"

/* The functions of the distribution's library, each at an instruction of it. */
static void test_library(void **state)
{
	static const char *const names[] = {"sqlite3_prepare_v2", "sqlite3_prepare_v3", "sqlite3_prepare",
					    "sqlite3_step",	  "sqlite3_reset",	"sqlite3_finalize"};
	static const uint32_t roles[] = {1, 1, 1, 2, 3, 3}, stmt_at[] = {4, 5, 4, 0, 0, 0};
	struct tls_find found;
	struct elf e;

	(void)state;
	if (access(LIB "libsqlite3.so.0", R_OK))
		skip();
	assert_int_equal(elf_map(&e, LIB "libsqlite3.so.0"), 0);
	assert_int_equal(sqlitefind(&e, &found), 0);
	assert_string_equal(found.stack, "sqlite");
	assert_int_equal(found.count, 6);
	for (unsigned i = 0; i < found.count; i++) {
		const struct tls_func *f = &found.funcs[i];

		assert_string_equal(f->name, names[i]);
		assert_int_equal(f->role, roles[i]);
		assert_int_equal(f->len_arg, stmt_at[i]);
		assert_true(on_decode_chain(&e, f->site.func_off, f->site.off));
	}
	elf_unmap(&e);
}

static void test_none(void **state)
{
	struct tls_find found;
	struct elf e;

	(void)state;
	assert_int_equal(elf_map(&e, "/proc/self/exe"), 0);
	assert_int_equal(sqlitefind(&e, &found), -ENOENT);
	assert_int_equal(found.count, 0);
	elf_unmap(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_library), cmocka_unit_test(test_none)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
