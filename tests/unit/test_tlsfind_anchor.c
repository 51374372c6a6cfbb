/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stripped programs: what is found in them is what their symbols said before they were stripped. */
#include "harness.h"

#include <elf.h>
#include <errno.h>
#include <linux/types.h>
#include <unistd.h>

#include "attach/tlsfind_anchor.h"
#include "bpf/event.h"
#include "shapes/chain.h"
#include "shapes/shape.h"

#define MAP(e, path)                                                                                                   \
	do {                                                                                                           \
		if (elf_map(e, path)) {                                                                                \
			print_message("# %s is not there\n", path);                                                    \
			skip();                                                                                        \
		}                                                                                                      \
	} while (0)

/* --- what every result must be ----------------------------------------------------------------------------------- */

static void check_finds(const struct elf *e, const struct tls_finds *found, int err)
{
	bool probed = false;

	for (unsigned i = 0; i < found->count; i++) {
		const struct tls_find *stack = &found->stacks[i];
		unsigned reads = 0, writes = 0;

		for (unsigned k = 0; k < stack->count; k++) {
			const struct tls_func *f = &stack->funcs[k];

			reads += f->role == TLS_ROLE_READ;
			writes += f->role == TLS_ROLE_WRITE;
			assert_int_equal(f->site.len_arg, f->len_arg);
			assert_true(on_decode_chain(e, f->site.func_off, f->site.off));
			assert_true(f->abi != TLS_ABI_AEAD || f->site.off == f->site.func_off || f->site.rule == 1);
		}
		if (stack->count) {
			probed = true;
			assert_true(reads && writes);
		} else {
			assert_true(stack->reason[0]);
		}
	}
	assert_int_equal(err, probed ? 0 : found->count ? -EINVAL : -ENOENT);
}

static const struct tls_find *stack_of(const struct tls_finds *found, const char *name)
{
	for (unsigned i = 0; i < found->count; i++)
		if (!strcmp(found->stacks[i].stack, name))
			return &found->stacks[i];
	return NULL;
}

/* --- against symbols --------------------------------------------------------------------------------------------- */

struct wanted {
	const char *name;
	uint64_t off;
	unsigned count;
};

static bool match_symbol(void *ctx, const struct elf_symbol *s)
{
	struct wanted *w = ctx;

	if (sv_eq(s->name, sv_of(w->name))) {
		w->off = s->off;
		w->count++;
	}
	return true;
}

static uint64_t symbol_off(const struct elf *e, const char *name)
{
	struct wanted w = {.name = name};

	elf_each_function(e, match_symbol, &w);
	assert_int_equal(w.count, 1);
	return w.off;
}

/* The functions of a stack, each where the symbol of its name is, by role in this order. */
static void check_symbols(const struct elf *symbols, const struct tls_find *stack, const char *const *names)
{
	unsigned i = 0;

	assert_non_null(stack);
	for (; names[i]; i++) {
		assert_true(i < stack->count);
		assert_string_equal(stack->funcs[i].name, names[i]);
		assert_int_equal(stack->funcs[i].site.func_off, symbol_off(symbols, names[i]));
	}
	assert_int_equal(stack->count, i);
}

static const char *const boringssl_names[] = {"SSL_read", "SSL_write", "SSL_do_handshake", NULL};
static const char *const aead_names[] = {"EVP_AEAD_CTX_open", "EVP_AEAD_CTX_seal", NULL};

/* Compilers and options: with padding and without, error reports that share their end, addresses as immediates, code
 * and strings in one segment. */
static void shapes(void **state)
{
	static const struct {
		const char *name;
		bool boringssl, aead;
	} cases[] = {
		{"pic", true, false},
		{"odd_calls", true, false},
		{"os", true, false},
		{"oz", true, true},
		{"nopie", true, true},
		{"peek", true, false},
		{"aead", true, true},
		{"aead_only", false, true},
		/* below SSL_read, its bytes would count twice */
		{"aead_same", true, false},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct elf stripped, symbols;
		struct tls_finds found;
		char file[64];
		int err;

		snprintf(file, sizeof(file), "strings_%s.so", cases[i].name);
		MAP(&stripped, built_path("shapes", file));
		snprintf(file, sizeof(file), "strings_%s.sym", cases[i].name);
		MAP(&symbols, built_path("shapes", file));
		err = tlsfind(&stripped, &found);
		check_finds(&stripped, &found, err);
		assert_int_equal(found.count, cases[i].boringssl + cases[i].aead);
		if (cases[i].boringssl)
			check_symbols(&symbols, stack_of(&found, "boringssl"), boringssl_names);
		if (cases[i].aead)
			check_symbols(&symbols, stack_of(&found, "aws-lc"), aead_names);
		for (unsigned k = 0; k < found.count; k++)
			for (unsigned f = 0; f < found.stacks[k].count; f++)
				assert_int_equal(found.stacks[k].funcs[f].abi,
						 found.stacks[k].stack[0] == 'a' ? TLS_ABI_AEAD : TLS_ABI_C);
		elf_unmap(&stripped);
		elf_unmap(&symbols);
	}
}

/* What is planted twice, or missing, is refused with the reason. */
static void refused(void **state)
{
	static const struct {
		const char *name, *reason;
	} cases[] = {
		{"two_writes", "ambiguous: 2 functions look like SSL_write"},
		{"two_reads", "ambiguous: 2 functions look like SSL_read"},
		{"stray", "ambiguous: code in no known function reports what SSL_write or SSL_read do"},
		{"no_write", "no function looks like SSL_write"},
		{"cold", "ambiguous: code in no known function reports what SSL_write or SSL_read do"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tls_finds found;
		struct elf e;
		char file[64];
		int err;

		snprintf(file, sizeof(file), "strings_%s.so", cases[i].name);
		MAP(&e, built_path("shapes", file));
		err = tlsfind(&e, &found);
		check_finds(&e, &found, err);
		assert_int_equal(err, -EINVAL);
		assert_int_equal(found.count, 1);
		assert_string_equal(found.stacks[0].reason, cases[i].reason);
		elf_unmap(&e);
	}
}

/* Nothing reads the code of other machines, and one line says so of what would be looked for. */
static void other_machine(void **state)
{
	struct tls_finds none;
	struct elf self;

	static const struct {
		const char *name;
		unsigned count;
	} cases[] = {{"strings_pic.so", 1},
		     {"strings_aead.so", 2},
		     {"strings_aead_only.so", 1},
		     {"strings_aead_same.so", 1},
		     {"sites.so", 0}};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tls_finds found;
		struct elf e;

		MAP(&e, built_path("shapes", cases[i].name));
		e.machine = EM_AARCH64;
		assert_int_equal(tlsfind(&e, &found), cases[i].count ? -EINVAL : -ENOENT);
		assert_int_equal(found.count, cases[i].count);
		for (unsigned k = 0; k < found.count; k++)
			assert_string_equal(found.stacks[k].reason,
					    "it is stripped, and its functions are then found on x86-64 only");
		elf_unmap(&e);
	}
	/* a finder has these words in it too */
	MAP(&self, "/proc/self/exe");
	self.machine = EM_AARCH64;
	assert_int_equal(tlsfind(&self, &none), -ENOENT);
	elf_unmap(&self);
}

/* The real OpenSSL, from the distribution's archive. */
static void openssl(void **state)
{
	static const char *const kinds[] = {"pie", "nopie"};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct tls_finds found, named;
		struct elf stripped, symbols;
		char file[64];
		int err;

		snprintf(file, sizeof(file), "modelclient_%s", kinds[i]);
		MAP(&stripped, built_path(".", file));
		snprintf(file, sizeof(file), "modelclient_%s.sym", kinds[i]);
		MAP(&symbols, built_path(".", file));
		err = tlsfind(&stripped, &found);
		check_finds(&stripped, &found, err);
		assert_int_equal(err, 0);
		assert_int_equal(found.count, 1);
		assert_string_equal(found.stacks[0].stack, "openssl 3");
		assert_true(found.stacks[0].confidence == TLS_INFERRED);
		for (unsigned f = 0; f < found.stacks[0].count; f++)
			assert_int_equal(found.stacks[0].funcs[f].site.func_off,
					 symbol_off(&symbols, found.stacks[0].funcs[f].name));
		assert_string_equal(found.stacks[0].funcs[0].name, "ssl_read_internal");
		assert_string_equal(found.stacks[0].funcs[1].name, "ssl_write_internal");
		/* where symbols lead to the same functions, they are called alike */
		assert_int_equal(tlsfind(&symbols, &named), 0);
		for (unsigned f = 0; f < 2; f++)
			if (named.stacks[0].funcs[f].site.func_off == found.stacks[0].funcs[f].site.func_off)
				assert_int_equal(named.stacks[0].funcs[f].len_arg, found.stacks[0].funcs[f].len_arg);
		elf_unmap(&stripped);
		elf_unmap(&symbols);
	}
}

/* Programs of `make clients`: whether the roles are right, the live tests tell (tests/e2e/test_stripped.py). */
static void clients(void **state)
{
	static const struct {
		const char *name, *stack;
		unsigned at_least;
	} cases[] = {{"bun", "boringssl", 3},
		     {"bun-1.3", "boringssl", 3},
		     {"bun-1.1", "boringssl", 3},
		     {"deno", "aws-lc", 2}};
	unsigned seen = 0;

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct tls_find *stack;
		struct tls_finds found;
		struct elf e;
		int err;

		if (elf_map(&e, built_path("../clients", cases[i].name)))
			continue;
		seen++;
		err = tlsfind(&e, &found);
		check_finds(&e, &found, err);
		stack = stack_of(&found, cases[i].stack);
		assert_non_null(stack);
		assert_true(stack->count >= cases[i].at_least);
		assert_int_equal(found.count, 1);
		for (unsigned f = 0; f < stack->count; f++)
			assert_true(stack->funcs[f].site.rule == 1);
		elf_unmap(&e);
	}
	if (!seen) {
		print_message("# no clients: 'make clients' could not fetch them\n");
		skip();
	}
}

/* Node keeps its symbols: without them it must come to the same, or be refused (24 inlines the internal functions). */
static void node_by_strings(void **state)
{
	const char *const paths[] = {"/usr/bin/node", built_path("../clients", "node-24")};
	unsigned seen = 0;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct tls_find found;
		struct anchors a;
		struct elf e;
		int err;

		if (elf_map(&e, paths[i]))
			continue;
		assert_int_equal(anchors_read(&a, &e), 0);
		err = tlsfind_openssl(&a, &found);
		anchors_release(&a);
		seen += err != -ENOENT; /* over a shared libssl there is nothing */
		assert_true(err == 0 || err == -EINVAL || err == -ENOENT);
		for (unsigned f = 0; !err && f < found.count; f++)
			assert_int_equal(found.funcs[f].site.func_off, symbol_off(&e, found.funcs[f].name));
		if (err == -EINVAL)
			print_message("# %s: %s\n", paths[i], found.reason);
		elf_unmap(&e);
	}
	if (!seen)
		skip();
}

/* --- hostile files, no memory ------------------------------------------------------------------------------------ */

static uint8_t *read_file(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	uint8_t *bytes;

	if (!f)
		return NULL;
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	*size = (size_t)ftell(f);
	rewind(f);
	bytes = malloc(*size);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, *size, f), *size);
	fclose(f);
	return bytes;
}

#define MUTANTS 1000

static uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*seed >> 33);
}

/* One mutant: single bytes, mostly of headers and code, or a cut. What is found in it is still decoded code. */
static void try_mutant(const uint8_t *bytes, size_t size, uint64_t *seed, unsigned *still_found)
{
	unsigned changes = 1 + next_random(seed) % 6;
	size_t len = next_random(seed) % 8 ? size : next_random(seed) % size;
	uint8_t *mutant = malloc(len ? len : 1);
	struct tls_finds found;
	struct elf e;
	int err;

	assert_non_null(mutant);
	memcpy(mutant, bytes, len);
	for (unsigned i = 0; i < changes && len; i++) {
		size_t room = next_random(seed) % 3 ? len : len < 512 ? len : 512;

		mutant[next_random(seed) % room] = (uint8_t)next_random(seed);
	}
	if (!elf_from_bytes(&e, mutant, len)) {
		err = tlsfind(&e, &found);
		check_finds(&e, &found, err);
		*still_found += !err;
		elf_unmap(&e);
	}
	free(mutant);
}

static void mutated(void **state)
{
	static const char *const names[] = {"strings_nopie.so", "strings_oz.so", "strings_os.so", "strings_aead.so"};
	unsigned still_found = 0;
	uint64_t seed = 1;

	(void)state;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t size = 0;
		uint8_t *bytes = read_file(built_path("shapes", names[i]), &size);

		if (!bytes)
			skip();
		for (unsigned n = 0; n < MUTANTS / 4; n++)
			try_mutant(bytes, size, &seed, &still_found);
		free(bytes);
	}
	/* else the mutants were no test */
	assert_true(still_found > MUTANTS / 20 && still_found < MUTANTS);
}

static void no_memory(void **state)
{
	struct tls_finds found;
	bool hit = true;
	struct elf e;

	(void)state;
	MAP(&e, shape_path("strings_aead"));
	for (unsigned n = 1; hit; n++) {
		int err;

		fail_nth(n);
		err = tlsfind(&e, &found);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_true((err == 0 && found.count == 2) || (hit && err == -ENOMEM && !found.count));
		if (!err)
			check_finds(&e, &found, err);
	}
	elf_unmap(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shapes),  cmocka_unit_test(refused),	cmocka_unit_test(other_machine),
		cmocka_unit_test(openssl), cmocka_unit_test(clients),	cmocka_unit_test(node_by_strings),
		cmocka_unit_test(mutated), cmocka_unit_test(no_memory),
	};

	return cmocka_run_group_tests_name("tlsfind_anchor", tests, NULL, NULL);
}
