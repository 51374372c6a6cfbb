/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/elf.h"
#include "shapes/shape.h"

#define LIBSSL "/usr/lib/x86_64-linux-gnu/libssl.so.3"
#define NODE   "/usr/bin/node"

/* --- addresses and offsets --------------------------------------------------------------------------------------- */

static void offsets_follow_the_segment(void **state)
{
	/* GNU ld, not position independent: data first */
	static const struct elf_load non_pie[] = {{0, 0x400000, 0x600, 0x600, false},
						  {0x1000, 0x401000, 0x3000, 0x3000, true}};
	/* lld: address minus offset differs for each segment */
	static const struct elf_load lld[] = {{0, 0, 0x7c0, 0x7c0, false}, {0x7c0, 0x17c0, 0xa00, 0xa00, true}};
	/* prelinked: the first segment is far from 0 */
	static const struct elf_load prelinked[] = {{0, 0x3d0a000000, 0x60000, 0x60000, true}};
	/* .bss: in memory only */
	static const struct elf_load bss[] = {{0x2000, 0x403000, 0x100, 0x900, false}};

	(void)state;
	assert_int_equal(elf_offset_of(non_pie, 2, 0x401234), 0x1234);
	assert_int_equal(elf_offset_of(lld, 2, 0x1800), 0x800);
	assert_int_equal(elf_offset_of(lld, 2, 0x100), 0x100);
	assert_int_equal(elf_offset_of(lld, 2, 0x7c0), -1);
	assert_int_equal(elf_offset_of(lld, 2, 0x17c0 + 0xa00), -1);
	assert_int_equal(elf_offset_of(prelinked, 1, 0x3d0a012345), 0x12345);
	assert_int_equal(elf_offset_of(non_pie, 2, 0x900000), -1);
	assert_int_equal(elf_offset_of(non_pie, 2, 0), -1);
	assert_int_equal(elf_offset_of(bss, 1, 0x4030ff), 0x20ff);
	assert_int_equal(elf_offset_of(bss, 1, 0x403100), -1);
	assert_int_equal(elf_offset_of(NULL, 0, 0x1000), -1);
}

/* --- this program ------------------------------------------------------------------------------------------------ */

struct wanted {
	const char *name;
	struct elf_symbol found;
	unsigned count;
};

static bool find_symbol(void *ctx, const struct elf_symbol *s)
{
	struct wanted *w = ctx;

	if (sv_eq(s->name, sv_of(w->name))) {
		w->found = *s;
		w->count++;
	}
	return true;
}

static void own_code_is_where_it_says(void **state)
{
	struct wanted w = {.name = "elf_each_function"};
	struct elf e;

	(void)state;
	assert_int_equal(elf_map(&e, "/proc/self/exe"), 0);
	elf_each_function(&e, find_symbol, &w);
	assert_true(w.count >= 1);
	assert_true(w.found.size > 8);
	assert_memory_equal(elf_at(&e, w.found.off, 8), (const void *)(uintptr_t)elf_each_function, 8);
	assert_true(elf_vaddr_of(&e, w.found.off) == w.found.vaddr);
	assert_true(elf_vaddr_of(&e, e.size) == UINT64_MAX);
	assert_true(strlen(e.build_id) == 40);
	assert_true(elf_interp(&e).len > 0);
	assert_null(elf_at(&e, e.size, 1));
	assert_null(elf_at(&e, UINT64_MAX, 2));
	assert_non_null(elf_at(&e, e.size, 0));
	elf_unmap(&e);
	elf_unmap(&e); /* again is harmless */
}

/* A uprobe on a file, without BPF. The descriptor, or -1 where that is not possible. */
static int probe_file(const char *path, uint64_t off)
{
	struct perf_event_attr attr = {.size = sizeof(attr)};
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "re");

	if (!f)
		return -1;
	if (fscanf(f, "%u", &attr.type) != 1)
		attr.type = UINT32_MAX;
	fclose(f);
	attr.config1 = (uint64_t)(uintptr_t)path;
	attr.config2 = off;
	return (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
}

static void assert_file_bytes(const struct elf *e, uint64_t off)
{
	uint8_t bytes[8];

	assert_int_equal(pread(e->fd, bytes, sizeof(bytes), (off_t)off), sizeof(bytes));
	assert_memory_equal(elf_at(e, off, sizeof(bytes)), bytes, sizeof(bytes));
}

/* Somebody probes the file, before we open it and after: into a private mapping the kernel would put the breakpoint. */
static void breakpoints_are_not_read_as_code(void **state)
{
	char path[] = "/tmp/perfbpf-elf-XXXXXX", command[512];
	struct wanted w = {.name = "elf_map"};
	struct elf before, after;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	snprintf(command, sizeof(command), "cp /proc/%d/exe %s", (int)getpid(), path);
	assert_int_equal(system(command), 0);
	assert_int_equal(elf_map(&before, path), 0);
	elf_each_function(&before, find_symbol, &w);
	assert_true(w.count > 0);
	assert_file_bytes(&before, w.found.off);
	fd = probe_file(path, w.found.off);
	if (fd >= 0) {
		assert_int_equal(elf_map(&after, path), 0);
		assert_file_bytes(&before, w.found.off);
		assert_file_bytes(&after, w.found.off);
		close(fd);
		elf_unmap(&after);
	}
	elf_unmap(&before);
	unlink(path);
	if (fd < 0) {
		print_message("# no uprobes here\n");
		skip();
	}
}

static void what_is_no_elf_file_is_refused(void **state)
{
	char path[] = "/tmp/perfbpf-elf-XXXXXX";
	uint8_t head[64] = {0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, 1};
	struct elf e;
	int fd;

	(void)state;
	assert_int_equal(elf_map(&e, "/nonexistent"), -ENOENT);
	assert_int_equal(elf_map(&e, "/tmp"), -EINVAL);
	assert_int_equal(elf_map(&e, "/etc/passwd"), -ENOEXEC);
	elf_unmap(&e);
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(elf_map(&e, path), -ENOEXEC); /* empty */
	assert_int_equal(write(fd, head, sizeof(head)), sizeof(head));
	assert_int_equal(elf_map(&e, path), -ENOEXEC); /* 32-bit */
	assert_int_equal(ftruncate(fd, (off_t)5 << 30), 0);
	assert_int_equal(elf_map(&e, path), -EFBIG);
	assert_int_equal(pwrite(fd, "data", 4, 0), 4);
	assert_int_equal(elf_map(&e, path), -ENOEXEC);
	close(fd);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(elf_map(&e, path), -EINVAL); /* and does not wait for a writer */
	unlink(path);
}

/* Whoever may choose the file has perfbpf open it, with rights of its own. */
static void what_is_no_file_is_not_even_opened(void **state)
{
	char path[] = "/tmp/perfbpf-elf-XXXXXX";
	struct elf e;
	pid_t writer;

	(void)state;
	close(mkstemp(path));
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	writer = fork();
	if (!writer)
		_exit(open(path, O_WRONLY | O_CLOEXEC) < 0); /* waits for a reader */
	usleep(100000);
	assert_int_equal(elf_map(&e, path), -EINVAL);
	usleep(100000);
	assert_int_equal(waitpid(writer, NULL, WNOHANG), 0);
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
	unlink(path);
}

/* --- real libraries ---------------------------------------------------------------------------------------------- */

static void collect_needed(void *ctx, struct sv soname)
{
	tlog_printf(ctx, "%.*s\n", (int)soname.len, soname.ptr);
}

struct count {
	unsigned functions, with_at;
	uint64_t sum;
};

static bool count_function(void *ctx, const struct elf_symbol *s)
{
	struct count *c = ctx;

	c->functions++;
	c->with_at += memchr(s->name.ptr, '@', s->name.len) != NULL;
	c->sum += s->off + s->name.len;
	return true;
}

static bool stop_at_once(void *ctx, const struct elf_symbol *s)
{
	(void)s;
	(*(unsigned *)ctx)++;
	return false;
}

/* A library's symbols are where dlsym() finds them. */
static void libssl_is_read_as_ld_so_reads_it(void **state)
{
	static const char *const names[] = {"SSL_read", "SSL_write_ex", "SSL_free", "SSL_CTX_new"};
	struct tlog needed = {0};
	unsigned calls = 0;
	struct elf e;
	void *lib;

	(void)state;
	if (elf_map(&e, LIBSSL))
		skip();
	lib = dlopen(LIBSSL, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(lib);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct wanted w = {.name = names[i]};
		uint8_t *code = dlsym(lib, names[i]);
		Dl_info info;

		assert_int_equal(elf_each_function(&e, find_symbol, &w), 0);
		assert_int_equal(w.count, 1);
		assert_non_null(code);
		assert_true(dladdr(code, &info) != 0);
		assert_true(w.found.vaddr == (uint64_t)(code - (uint8_t *)info.dli_fbase));
		assert_file_bytes(&e, w.found.off);
		assert_true(elf_defined(&e, sv_of(names[i])) == (int64_t)w.found.off);
	}
	assert_int_equal(elf_defined(&e, SV("CRYPTO_free")), -1); /* imported */
	assert_true(sv_eq(e.soname, SV("libssl.so.3")));
	elf_each_needed(&e, collect_needed, &needed);
	assert_non_null(strstr(needed.text, "libcrypto.so.3\n"));
	elf_each_function(&e, stop_at_once, &calls);
	assert_int_equal(calls, 1);
	tlog_free(&needed);
	dlclose(lib);
	elf_unmap(&e);
}

/* Every entry of the PLT names an import, and nothing else does. */
static void plt_entries_have_names(void **state)
{
	struct elf e;
	unsigned named = 0, crypto_free = 0;

	(void)state;
	if (elf_map(&e, LIBSSL))
		skip();
	for (unsigned i = 0; i < e.load_count; i++)
		for (uint64_t at = 0; e.loads[i].exec && at < e.loads[i].filesz; at += 16) {
			struct sv name = elf_plt_name(&e, e.loads[i].vaddr + at);

			named += name.ptr != NULL;
			crypto_free += sv_eq(name, SV("CRYPTO_free"));
		}
	assert_int_equal(crypto_free, 1);
	assert_true(named >= e.jmprel.count && named <= e.jmprel.count + 4); /* and .plt.got */
	assert_null(elf_plt_name(&e, 0).ptr);
	assert_null(elf_plt_name(&e, UINT64_MAX).ptr);
	elf_unmap(&e);
}

/* Without section headers (sstrip, packers) the dynamic table gives the same functions. */
static void stripped_section_headers(void **state)
{
	struct count with = {0}, without = {0};
	struct elf e, bare;
	Elf64_Ehdr *eh;
	uint8_t *copy;

	(void)state;
	if (elf_map(&e, LIBSSL))
		skip();
	copy = malloc(e.size);
	assert_non_null(copy);
	memcpy(copy, e.map, e.size);
	eh = (void *)copy;
	eh->e_shoff = eh->e_shnum = 0;
	assert_int_equal(elf_from_bytes(&bare, copy, e.size), 0);
	elf_each_function(&e, count_function, &with);
	elf_each_function(&bare, count_function, &without);
	assert_true(with.functions > 400);
	assert_int_equal(with.functions, without.functions);
	assert_true(with.sum == without.sum);
	assert_int_equal(with.with_at, 0);
	assert_int_equal(e.dynsym.count, bare.dynsym.count);
	assert_true(sv_eq(bare.soname, SV("libssl.so.3")));
	elf_unmap(&bare);
	elf_unmap(&e);
	free(copy);
}

static void node_is_walked_quickly(void **state)
{
	struct timespec begin, end;
	struct count c = {0};
	struct elf e;
	double s;

	(void)state;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
	if (elf_map(&e, NODE))
		skip();
	if (e.size < 32 << 20) { /* a small program over libnode.so */
		elf_unmap(&e);
		skip();
	}
	elf_each_function(&e, count_function, &c);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	s = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
	assert_true(c.functions > 10000);
	assert_int_equal(c.with_at, 0);
#ifndef __SANITIZE_ADDRESS__
	assert_true(s < 0.3);
#else
	assert_true(s < 10);
#endif
	elf_unmap(&e);
}

/* --- PLT of arm64, by hand --------------------------------------------------------------------------------------- */

static void plt_of_arm64(void **state)
{
	struct {
		uint32_t plt[8];
		Elf64_Rela rela[2];
		Elf64_Sym sym[3];
		char str[32];
	} file = {
		/* bti c; adrp x16, +0x10000; ldr x17, [x16, #0x18]; add; br   and one 16 pages back without bti */
		.plt = {0xd503245f, 0x90000090, 0xf9400e11, 0x91006210, 0x90ffff90, 0xf9401211, 0x91008210, 0xd61f0220},
		.rela = {{0x411018, ELF64_R_INFO(1, R_AARCH64_JUMP_SLOT), 0},
			 {0x3f1020, ELF64_R_INFO(2, R_AARCH64_JUMP_SLOT), 0}},
		.sym = {{0}, {.st_name = 1}, {.st_name = 10}},
		.str = "\0SSL_read\0SSL_write@V1",
	};
	struct elf e = {
		.fd = -1,
		.map = (const void *)&file,
		.size = sizeof(file),
		.machine = EM_AARCH64,
		.loads = {{0, 0x401000, sizeof(file), sizeof(file), true}},
		.load_count = 1,
		.jmprel = {offsetof(__typeof__(file), rela), 2},
		.dynsym = {offsetof(__typeof__(file), sym), 3},
		.dynstr = {offsetof(__typeof__(file), str), sizeof(file.str)},
	};

	(void)state;
	assert_true(sv_eq(elf_plt_name(&e, 0x401000), SV("SSL_read")));
	assert_true(sv_eq(elf_plt_name(&e, 0x401010), SV("SSL_write")));
	assert_null(elf_plt_name(&e, 0x401008).ptr);
}

/* .symtab of a library with versions, a function outside every segment, and kinds that are no functions. */
static void which_symbols_count(void **state)
{
	enum { FUNC = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), OBJECT = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT) };
	enum { IFUNC = ELF64_ST_INFO(STB_GLOBAL, STT_GNU_IFUNC) };
	struct {
		uint8_t code[64];
		Elf64_Sym sym[8];
		char str[64];
	} file = {
		.sym = {{0},
			{1, FUNC, 0, 7, 0x401010, 16},
			{1, FUNC, 0, SHN_UNDEF, 0x401020, 0},
			{1, OBJECT, 0, 7, 0x401020, 8},
			{1, IFUNC, 0, 7, 0x401020, 8},
			{1, FUNC, 0, SHN_ABS, 0x401020, 8},
			{1, FUNC, 0, 7, 0x900000, 8},
			{20, FUNC, 0, 7, 0x401030, 0}},
		.str = "\0SSL_read@@OPENSSL_3\0local_read",
	};
	struct elf e = {
		.fd = -1,
		.map = (const void *)&file,
		.size = sizeof(file),
		.machine = EM_X86_64,
		.loads = {{0, 0x401000, sizeof(file.code), sizeof(file.code), true}},
		.load_count = 1,
		.symtab = {offsetof(__typeof__(file), sym), 8},
		.strtab = {offsetof(__typeof__(file), str), sizeof(file.str)},
	};
	struct wanted read = {.name = "SSL_read"};
	struct count all = {0};

	(void)state;
	assert_int_equal(elf_each_function(&e, find_symbol, &read), 0);
	assert_int_equal(read.count, 1);
	assert_true(read.found.off == 0x10 && read.found.vaddr == 0x401010 && read.found.size == 16);
	elf_each_function(&e, count_function, &all);
	assert_int_equal(all.functions, 2);
	e.loads[0].exec = false;
	elf_each_function(&e, count_function, &all);
	assert_int_equal(all.functions, 2);
}

/* --- hostile files ----------------------------------------------------------------------------------------------- */

static void ignore_name(void *ctx, struct sv soname)
{
	*(size_t *)ctx += soname.len;
}

/* Everything that reads the file, over bytes that end at an unreadable page. */
static void use_all(const void *bytes, size_t len)
{
	struct count c = {0};
	size_t sum = 0;
	struct elf e;

	if (elf_from_bytes(&e, bytes, len))
		return;
	elf_each_function(&e, count_function, &c);
	elf_each_needed(&e, ignore_name, &sum);
	sum += elf_interp(&e).len + elf_rpath(&e).len + e.soname.len;
	for (unsigned i = 0; i < e.load_count; i++)
		for (uint64_t at = 0; at < 256 && at < e.loads[i].filesz; at += 4)
			sum += elf_plt_name(&e, e.loads[i].vaddr + at).len;
	elf_defined(&e, SV("SSL_read"));
	elf_unmap(&e);
}

static uint8_t *read_shape(size_t *len)
{
	FILE *f = fopen(shape_path("tail"), "re");
	uint8_t *bytes = malloc(1 << 20);

	assert_non_null(bytes);
	if (!f) {
		free(bytes);
		skip();
	}
	*len = fread(bytes, 1, 1 << 20, f);
	fclose(f);
	return bytes;
}

static void a_file_cut_anywhere(void **state)
{
	struct guard g = {0};
	size_t len;
	uint8_t *bytes = read_shape(&len);

	(void)state;
	for (size_t cut = 0; cut <= len; cut += cut < 2048 || len - cut < 4096 ? 1 : 7)
		use_all(guard_copy(&g, bytes, cut), cut);
	guard_free(&g);
	free(bytes);
}

/* Each byte of the headers and tables, as several other values; then many at once. */
static void a_file_changed_anywhere(void **state)
{
	static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	uint64_t random = 0x9e3779b97f4a7c15ull;
	size_t len;
	uint8_t *bytes = read_shape(&len), *guarded;
	struct guard g = {0};

	(void)state;
	guarded = (uint8_t *)(uintptr_t)guard_copy(&g, bytes, len);
	for (size_t at = 0; at < len; at++) {
		if (at > 4096 && len - at > 3072 && at % 5)
			continue;
		for (unsigned i = 0; i < sizeof(values); i++) {
			guarded[at] = values[i];
			use_all(guarded, len);
		}
		guarded[at] = bytes[at];
	}
	for (unsigned round = 0; round < 3000; round++) {
		memcpy(guarded, bytes, len);
		for (unsigned i = 0; i < 8; i++) {
			random = random * 6364136223846793005ull + 1442695040888963407ull;
			guarded[(random >> 33) % (i < 4 ? 512 : len)] = (uint8_t)(random >> 20);
		}
		use_all(guarded, len);
	}
	guard_free(&g);
	free(bytes);
}

/* A table that lies: what is readable is reported, and that it is broken. */
static void broken_symbol_names(void **state)
{
	struct count c = {0};
	size_t len;
	uint8_t *bytes = read_shape(&len);
	struct elf e;
	Elf64_Sym *syms;

	(void)state;
	assert_int_equal(elf_from_bytes(&e, bytes, len), 0);
	elf_each_function(&e, count_function, &c);
	syms = (void *)(bytes + e.dynsym.off);
	for (unsigned i = 1; i < e.dynsym.count; i++)
		if (syms[i].st_shndx != SHN_UNDEF)
			syms[i].st_name = UINT32_MAX;
	assert_int_equal(elf_from_bytes(&e, bytes, len), 0);
	c = (struct count){0};
	assert_int_equal(elf_each_function(&e, count_function, &c), -EBADMSG);
	assert_true(c.functions > 0); /* those of .symtab */
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(offsets_follow_the_segment),
		cmocka_unit_test(own_code_is_where_it_says),
		cmocka_unit_test(breakpoints_are_not_read_as_code),
		cmocka_unit_test(what_is_no_elf_file_is_refused),
		cmocka_unit_test(what_is_no_file_is_not_even_opened),
		cmocka_unit_test(libssl_is_read_as_ld_so_reads_it),
		cmocka_unit_test(plt_entries_have_names),
		cmocka_unit_test(stripped_section_headers),
		cmocka_unit_test(node_is_walked_quickly),
		cmocka_unit_test(plt_of_arm64),
		cmocka_unit_test(which_symbols_count),
		cmocka_unit_test(a_file_cut_anywhere),
		cmocka_unit_test(a_file_changed_anywhere),
		cmocka_unit_test(broken_symbol_names),
	};

	return cmocka_run_group_tests_name("elf", tests, NULL, NULL);
}
