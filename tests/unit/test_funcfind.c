/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <linux/types.h>

#include "attach/funcfind.h"
#include "base/err.h"
#include "bpf/event.h"
#include "shapes/chain.h"
#include "shapes/shape.h"

static char plain[4096], unwinding[4096];

static void test_specs(void **state)
{
	static const char *const bad[] = {"", "a", ":", "a:", ":b", "/:b", "/usr/lib/:b"};
	struct func_spec spec;
	char text[600];

	(void)state;
	assert_int_equal(func_spec_parse(&spec, "libc.so.6:malloc"), 0);
	assert_string_equal(spec.binary, "libc.so.6");
	assert_string_equal(spec.symbol, "malloc");
	assert_int_equal(func_spec_parse(&spec, "/usr/bin/x:ns::f<a::b>"), 0);
	assert_string_equal(spec.binary, "/usr/bin/x");
	assert_string_equal(spec.symbol, "ns::f<a::b>");
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(func_spec_parse(&spec, bad[i]), -EINVAL);
	memset(text, 'x', sizeof(text));
	memcpy(text + sizeof(text) - 3, ":f", 3);
	assert_int_equal(func_spec_parse(&spec, text), -EINVAL);
}

static void test_matches(void **state)
{
	struct func_spec spec;
	char text[5000];
	struct elf e;

	(void)state;
	assert_int_equal(elf_map(&e, plain), 0);
	assert_int_equal(func_spec_parse(&spec, "functarget:work"), 0);
	assert_true(func_spec_matches(&spec, &e, plain));
	assert_false(func_spec_matches(&spec, &e, unwinding));
	/* The same file under another name, as a container sees it. */
	snprintf(text, sizeof(text), "%s:work", plain);
	assert_int_equal(func_spec_parse(&spec, text), 0);
	assert_true(func_spec_matches(&spec, &e, "/elsewhere/name"));
	assert_int_equal(func_spec_parse(&spec, "/elsewhere/name:work"), 0);
	assert_true(func_spec_matches(&spec, &e, "/elsewhere/name"));
	assert_false(func_spec_matches(&spec, &e, plain));
	elf_unmap(&e);
}

static int find(const char *path, const char *symbol, struct tls_find *out)
{
	struct func_spec spec = {.text = "a:b", .binary = "a", .symbol = symbol};
	struct elf e;
	int err;

	assert_int_equal(elf_map(&e, path), 0);
	err = funcfind(&e, &spec, 7, out);
	for (unsigned i = 0; i < out->count; i++) {
		const struct tls_func *f = &out->funcs[i];

		assert_int_equal(f->abi, TLS_ABI_FUNC);
		assert_int_equal(f->len_arg, 7);
		assert_true(on_decode_chain(&e, f->site.func_off, f->site.off));
	}
	elf_unmap(&e);
	return err;
}

static unsigned count(const struct tls_find *found, uint32_t role)
{
	unsigned n = 0;

	for (unsigned i = 0; i < found->count; i++)
		n += found->funcs[i].role == role;
	return n;
}

/* Where nothing unwinds, a return probe sees the end; else each way out is probed. */
static void test_ends(void **state)
{
	static const char *const names[] = {"recurse", "work", "inner", "outer", "hot", "unwound", "leave"};
	struct tls_find found;

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(find(unwinding, names[i], &found), 0);
		assert_int_equal(count(&found, FUNC_ROLE_ENTRY), 1);
		assert_true(count(&found, FUNC_ROLE_END) >= 1);
		assert_int_equal(count(&found, FUNC_ROLE_CALL), 0);
		assert_string_equal(found.stack, "a:b");
	}
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(find(plain, names[i], &found), 0);
		assert_int_equal(count(&found, FUNC_ROLE_CALL), 1);
		assert_int_equal(found.count, 1);
	}
}

static void test_refused(void **state)
{
	struct tls_find found;

	(void)state;
	assert_int_equal(find(plain, "nothing", &found), -EINVAL);
	assert_int_equal(found.count, 0);
	assert_string_equal(found.reason, "no symbol of the file has that name");
	assert_int_equal(find(plain, "wor", &found), -EINVAL);
	assert_int_equal(find(plain, "work ", &found), -EINVAL);
	assert_int_equal(find(plain, "::", &found), -EINVAL);
}

static void test_memory(void **state)
{
	struct tls_find found;
	int err = -ENOMEM;

	(void)state;
	for (unsigned nth = 1; nth < 200 && err; nth++) {
		fail_nth(nth);
		err = find(unwinding, "work", &found);
		fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM || err == -EINVAL);
	}
	assert_int_equal(err, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_specs),	cmocka_unit_test(test_matches), cmocka_unit_test(test_ends),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_memory),
	};

	snprintf(plain, sizeof(plain), "%s", built_path(".", "functarget"));
	snprintf(unwinding, sizeof(unwinding), "%s", built_path(".", "functarget-unwinding"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
