/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names of addresses: tables, mangled names, the kernel's, maps of runtimes, files, and a living process (this one). */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

#include "symbol/demangle.h"
#include "symbol/elfsyms.h"
#include "symbol/kernel.h"
#include "symbol/modules.h"
#include "symbol/perfmap.h"
#include "symbol/symbols.h"
#include "symbol/symtab.h"

static void assert_name(const struct symtab *t, uint64_t addr, const char *name)
{
	struct sv found = symtab_find(t, addr);

	if (!name)
		assert_null(found.ptr);
	else
		assert_true(sv_eq(found, sv_of(name)));
}

static void tables(void **state)
{
	struct symtab t;

	(void)state;
	symtab_init(&t, false);
	assert_name(&t, 5, NULL);
	assert_int_equal(symtab_add(&t, 0x300, 0x10, SV("third")), 0);
	assert_int_equal(symtab_add(&t, 0x100, 0x10, SV("__first")), 0);
	assert_int_equal(symtab_add(&t, 0x100, 0x10, SV("first")), 0);
	assert_int_equal(symtab_add(&t, 0x100, 0x10, SV("_first")), 0);
	assert_int_equal(symtab_add(&t, 0x200, 0, SV("second")), 0);
	assert_int_equal(symtab_add(&t, 0x400, 1, SV("")), 0);
	assert_int_equal(symtab_add(&t, 0x400, 1, SV("a\0b")), 0);
	symtab_sort(&t);
	assert_int_equal(t.count, 3);
	assert_name(&t, 0xff, NULL);
	assert_name(&t, 0x100, "first");
	assert_name(&t, 0x10f, "first");
	assert_name(&t, 0x110, NULL);
	assert_name(&t, 0x2ff, "second"); /* without a size, up to the next one */
	assert_name(&t, 0x300, "third");
	assert_name(&t, 0x310, NULL);
	symtab_release(&t);
}

/* Without a size, up to where its section ends. */
static void ends(void **state)
{
	struct symtab t;

	(void)state;
	symtab_init(&t, false);
	symtab_end(&t, 0x100);
	assert_int_equal(symtab_add(&t, 0x100, 0, SV("_init")), 0);
	assert_int_equal(symtab_add(&t, 0x200, 0x10, SV("main")), 0);
	assert_int_equal(symtab_add(&t, 0x300, 0, SV("_fini")), 0);
	symtab_sort(&t);
	symtab_end(&t, 0);
	symtab_end(&t, 0x100);
	symtab_end(&t, 0x118);
	symtab_end(&t, 0x220);
	assert_name(&t, 0x117, "_init");
	assert_name(&t, 0x118, NULL);
	assert_name(&t, 0x20f, "main");
	assert_name(&t, 0x210, NULL);
	assert_name(&t, 0x3000, "_fini");
	symtab_end(&t, 0x310);
	assert_name(&t, 0x30f, "_fini");
	assert_name(&t, 0x310, NULL);
	symtab_release(&t);
}

/* Code that was moved, and what lies there now. */
static void used_again(void **state)
{
	struct symtab t;

	(void)state;
	symtab_init(&t, true);
	assert_int_equal(symtab_add(&t, 0x140, 0x10, SV("old")), 0);
	assert_int_equal(symtab_add(&t, 0x100, 0x100, SV("large")), 0);
	assert_int_equal(symtab_add(&t, 0x180, 0x10, SV("new")), 0);
	assert_int_equal(symtab_add(&t, 0x180, 0x10, SV("newest")), 0);
	symtab_sort(&t);
	assert_name(&t, 0x145, "large");
	assert_name(&t, 0x185, "newest");
	assert_name(&t, 0x1ff, "large");
	symtab_release(&t);
}

/* However many lay where one lies now, and wherever they end. */
static void used_by_many(void **state)
{
	uint64_t seed = 1;
	struct symtab t;
	char name[16];

	(void)state;
	symtab_init(&t, true);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(symtab_add(&t, 0x1000 + 0x10 * i, 0x10, SV("stub")), 0);
	assert_int_equal(symtab_add(&t, 0x1000, 0x10 * 100, SV("large")), 0);
	assert_int_equal(symtab_add(&t, UINT64_MAX - 2, 0x100, SV("last")), 0);
	symtab_sort(&t);
	for (unsigned i = 0; i < 100; i++)
		assert_name(&t, 0x1000 + 0x10 * i, "large");
	assert_name(&t, 0xfff, NULL);
	assert_name(&t, 0x1000 + 0x10 * 100, NULL);
	assert_name(&t, UINT64_MAX - 1, "last");
	symtab_clear(&t);
	/* As if each wrote its name into the memory that it takes. */
	for (unsigned i = 0; i < 200; i++) {
		static char memory[300][16];

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		snprintf(name, sizeof(name), "f%u", i);
		for (unsigned k = seed >> 32 & 0xff, n = 1 + (seed >> 40 & 0x3f); n && k < 300; n--, k++)
			memcpy(memory[k], name, sizeof(name));
		assert_int_equal(symtab_add(&t, seed >> 32 & 0xff, 1 + (seed >> 40 & 0x3f), sv_of(name)), 0);
		if (i == 199)
			symtab_sort(&t);
		for (unsigned k = 0; i == 199 && k < 300; k++)
			assert_name(&t, k, memory[k][0] ? memory[k] : NULL);
	}
	assert_true(t.count <= 400);
	/* Without memory nothing is known, and nothing said. */
	symtab_clear(&t);
	assert_int_equal(symtab_add(&t, 1, 5, SV("old")), 0);
	fail_nth(1);
	symtab_sort(&t);
	fail_nth(0);
	assert_name(&t, 1, NULL);
	symtab_release(&t);
}

static void assert_demangled(const char *mangled, const char *plain)
{
	char out[DEMANGLE_OUT_BYTES];

	assert_int_equal(demangle(out, sv_of(mangled)), strlen(plain));
	assert_string_equal(out, plain);
}

static void names(void **state)
{
	char out[DEMANGLE_OUT_BYTES], many[1200] = "_Z1f", deep[900] = "_Z1fI";

	(void)state;
	assert_demangled("main", "main");
	assert_demangled("_ZN3foo3Bar3bazEi", "foo::Bar::baz");
	assert_demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt");
	assert_demangled("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example");
	assert_demangled("_Znot mangled", "_Znot mangled");
	assert_demangled("_R", "_R");
	memset(many + 4, 'i', sizeof(many) - 5);
	many[sizeof(many) - 1] = '\0';
	assert_int_equal(demangle(out, sv_of(many)), DEMANGLE_OUT_BYTES - 1); /* too long: as it is, cut */
	assert_memory_equal(out + DEMANGLE_OUT_BYTES - 4, "...", 4);
	/* Each pair refers to the one before it, twice: text that doubles with every nine bytes. */
	strcat(deep, "St4pairIiiE");
	for (int i = 0; i < 60; i++)
		strcat(deep, i ? "S_IS1_S1_E" : "S_IS0_S0_E");
	strcat(deep, "Evv");
	assert_true(demangle(out, sv_of(deep)) < DEMANGLE_OUT_BYTES);
}

static void kernel_lines(void **state)
{
	struct symtab t;

	(void)state;
	symtab_init(&t, false);
	assert_int_equal(kernel_parse_line(&t, SV("ffffffff81000000 T start_kernel")), 1);
	assert_int_equal(kernel_parse_line(&t, SV("ffffffffc0000010 t helper\t[mod]")), 1);
	assert_int_equal(kernel_parse_line(&t, SV("ffffffff82000000 D data")), 0);
	assert_int_equal(kernel_parse_line(&t, SV("0000000000000000 T hidden")), -EPERM);
	assert_int_equal(kernel_parse_line(&t, SV("")), 0);
	assert_int_equal(kernel_parse_line(&t, SV("x T y")), 0);
	assert_int_equal(kernel_parse_line(&t, SV("12345678901234567 T y")), 0);
	symtab_sort(&t);
	assert_name(&t, 0xffffffff81000005, "start_kernel");
	assert_name(&t, 0xffffffffc0000010, "helper");
	symtab_release(&t);
}

/* --- maps of runtimes -------------------------------------------------------------------------------------------- */

static const char map_text[] = "7f0000001000 40 LazyCompile:~work /app/x.js:1:2\n"
			       "0x7f0000002000 0x10 py::fib:/x.py\n"
			       "\n"
			       "zz 10 bad\n"
			       "7f0000003000 0 empty\n"
			       "7f0000003000 10\n"
			       "11112222333344445 10 too long\n"
			       "7f0000004000 10 half a li";

static void map_lines(void **state)
{
	struct guard g = {0};
	struct symtab t;

	(void)state;
	symtab_init(&t, true);
	for (size_t cut = 0; cut < sizeof(map_text); cut++) {
		symtab_clear(&t);
		assert_int_equal(perfmap_parse(&t, (const char *)guard_copy(&g, map_text, cut), cut), 0);
	}
	symtab_sort(&t);
	assert_int_equal(t.count, 2);
	assert_name(&t, 0x7f000000103f, "LazyCompile:~work /app/x.js:1:2");
	assert_name(&t, 0x7f0000002001, "py::fib:/x.py");
	assert_name(&t, 0x7f0000004001, NULL); /* its line is not whole yet */
	symtab_release(&t);
	guard_free(&g);
}

static void map_without_memory(void **state)
{
	struct symtab t;
	unsigned n = 0;
	bool hit;
	int err;

	(void)state;
	do {
		symtab_init(&t, true);
		fail_nth(++n);
		err = perfmap_parse(&t, map_text, sizeof(map_text) - 1);
		hit = fail_nth_hit();
		assert_int_equal(err, hit ? -ENOMEM : 0);
		symtab_release(&t);
	} while (hit);
	fail_nth(0);
	assert_true(n > 2);
}

static char map_path[64];

static void map_file(const char *text, mode_t mode)
{
	int fd = open(map_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void maps_of_anybody(void **state)
{
	char other[80];
	struct symtab t;
	int fd;

	(void)state;
	snprintf(map_path, sizeof(map_path), "/tmp/perf-%d.map", getpid());
	snprintf(other, sizeof(other), "%s.other", map_path);
	unlink(map_path);
	assert_int_equal(perfmap_open(getpid()), -ENOENT);
	map_file(map_text, 0600);
	fd = perfmap_open(getpid());
	assert_true(fd >= 0);
	symtab_init(&t, true);
	assert_int_equal(perfmap_read(fd, &t), 0);
	assert_int_equal(t.count, 2);
	close(fd);
	symtab_release(&t);
	assert_int_equal(truncate(map_path, 2ll << 30), 0);
	assert_int_equal(perfmap_open(getpid()), -EFBIG);
	assert_int_equal(rename(map_path, other), 0);
	assert_int_equal(symlink(other, map_path), 0);
	assert_int_equal(perfmap_open(getpid()), -ELOOP);
	unlink(map_path);
	unlink(other);
	assert_int_equal(mkfifo(map_path, 0600), 0);
	alarm(60); /* nobody writes: waiting would be for ever */
	assert_int_equal(perfmap_open(getpid()), -EINVAL);
	alarm(0);
	unlink(map_path);
	if (!geteuid()) {
		map_file(map_text, 0644);
		assert_int_equal(chown(map_path, 65534, 65534), 0);
		assert_int_equal(perfmap_open(getpid()), -EPERM);
		unlink(map_path);
	}
}

/* --- files and processes ----------------------------------------------------------------------------------------- */

/* The shapes of the test build: one whose names are in mini debug info only. */
static void mini_debug_info(void **state)
{
	char path[4200], self[4096];
	struct symtab t;
	struct elf e;
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	bool found = false;
	char *build;

	(void)state;
	assert_true(len > 0);
	self[len] = '\0';
	build = strstr(self, "/san/tests/unit/");
	build = build ? build : strstr(self, "/tests/unit/");
	assert_non_null(build);
	*build = '\0';
	snprintf(path, sizeof(path), "%s/tests/shapes/minidebug.so", self);
	if (elf_map(&e, path)) {
		skip(); /* another machine type: there are no shapes */
		return;
	}
	symtab_init(&t, false);
	assert_int_equal(elfsyms_load(&t, &e, NULL), 0);
	for (size_t i = 0; i < t.count; i++)
		found |= !strcmp(t.names.ptr + t.rows[i].name, "ssl_read_internal");
	assert_true(found);
	symtab_release(&t);
	elf_unmap(&e);
}

/* What lies between the sections of this program is no function of it. */
static void stubs(void **state)
{
	struct elf_section init, plt;
	struct symtab t;
	struct elf e;

	(void)state;
	assert_int_equal(elf_map(&e, "/proc/self/exe"), 0);
	symtab_init(&t, false);
	assert_int_equal(elfsyms_load(&t, &e, NULL), 0);
	if (!elf_section(&e, SV(".init"), &init) || !elf_section(&e, SV(".plt"), &plt) || plt.vaddr < init.vaddr) {
		symtab_release(&t);
		elf_unmap(&e);
		skip(); /* another C library */
		return;
	}
	assert_name(&t, init.vaddr, "_init");
	assert_name(&t, plt.vaddr, NULL);
	assert_name(&t, plt.vaddr + plt.size - 1, NULL);
	symtab_release(&t);
	elf_unmap(&e);
}

struct told {
	struct tlog log;
	unsigned count;
};

static void on_frame(void *ctx, const struct rec_frame *f)
{
	struct told *t = ctx;

	t->count++;
	tlog_printf(&t->log, "%d %.*s\n", f->source, (int)f->name.len, f->name.len ? f->name.ptr : "");
}

__attribute__((noinline)) static void a_function_of_this_test(void)
{
	__asm__ volatile("");
}

static void this_process(void **state)
{
	struct told told = {0};
	const struct symbols_sink sink = {&told, on_frame};
	struct symbols *s = symbols_new(&sink);
	uint64_t frames[] = {(uint64_t)(uintptr_t)a_function_of_this_test, 17};
	struct rec_sample sample = {.proc = {.tgid = (uint32_t)getpid(), .start_ns = 1, .exec_id = 1},
				    .ts_ns = 1000000000,
				    .what = REC_SAMPLE_CPU,
				    .frames = frames,
				    .user_frames = 2};

	(void)state;
	assert_non_null(s);
	symbols_push_sample(s, &sample);
	symbols_push_sample(s, &sample); /* each address once */
	assert_int_equal(told.count, 2);
	frames[1] = 33;
	sample.ts_ns += 1000; /* too soon to look again: later */
	symbols_push_sample(s, &sample);
	symbols_tick(s, sample.ts_ns + 2000000000);
	assert_log(&told.log, "1 a_function_of_this_test\n5 \n4 \n5 \n");
	symbols_exit(s, &sample.proc);
	symbols_free(s);
	tlog_free(&told.log);
}

static void map_many(struct symbols *s, uint32_t tgid, uint64_t first_ino, unsigned count)
{
	struct proc_key key = {.tgid = tgid, .start_ns = 1, .exec_id = 1};
	struct map_entry e = {.path = "/nowhere"};

	symbols_exec(s, &key, 1000000000);
	for (unsigned i = 0; i < count; i++) {
		e.begin = (i + 1) * 0x10000ull;
		e.end = e.begin + 0x1000;
		e.ino = first_ino + i;
		symbols_map(s, (pid_t)tgid, &e);
	}
}

/* Files that come and go: those of processes that are gone make room. */
static void many_files(void **state)
{
	const uint32_t nobody = 0x40000000; /* above any pid */
	const unsigned half = MODULES_MAX / 2;
	struct symbols *s = symbols_new(&(struct symbols_sink){NULL, on_frame});

	(void)state;
	assert_non_null(s);
	map_many(s, nobody, 1, half);
	for (uint32_t i = 1; i <= 5; i++) {
		struct proc_key key = {.tgid = nobody + i, .start_ns = 1, .exec_id = 1};

		map_many(s, nobody + i, 100000 * i, half);
		assert_int_equal(symbols_unread(s), 0);
		symbols_exit(s, &key);
	}
	map_many(s, nobody + 6, 900000, half + 3);
	assert_int_equal(symbols_unread(s), 3); /* all are mapped */
	symbols_free(s);
}

/* What is mapped beyond the limit has no names, which is said. */
static void many_mappings(void **state)
{
	const struct proc_key key = {.tgid = 0x40000000, .start_ns = 1, .exec_id = 1};
	struct map_entry e = {.path = "/nowhere", .ino = 1};
	struct symbols *s = symbols_new(&(struct symbols_sink){NULL, on_frame});

	(void)state;
	assert_non_null(s);
	symbols_exec(s, &key, 1000000000);
	for (unsigned i = 0; i < SYMBOLS_MAPPINGS_MAX + 2; i++) {
		assert_int_equal(symbols_crowded(s), i > SYMBOLS_MAPPINGS_MAX);
		e.begin = (i + 1) * 0x10000ull;
		e.end = e.begin + 0x1000;
		symbols_map(s, (pid_t)key.tgid, &e);
	}
	assert_int_equal(symbols_crowded(s), 1);
	symbols_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables),
		cmocka_unit_test(ends),
		cmocka_unit_test(used_again),
		cmocka_unit_test(used_by_many),
		cmocka_unit_test(many_mappings),
		cmocka_unit_test(names),
		cmocka_unit_test(kernel_lines),
		cmocka_unit_test(map_lines),
		cmocka_unit_test(map_without_memory),
		cmocka_unit_test(maps_of_anybody),
		cmocka_unit_test(mini_debug_info),
		cmocka_unit_test(stubs),
		cmocka_unit_test(this_process),
		cmocka_unit_test(many_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
