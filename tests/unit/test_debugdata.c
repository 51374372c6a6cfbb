/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <elf.h>
#include <errno.h>
#include <lzma.h>

#include "attach/debugdata.h"
#include "shapes/shape.h"

/* A shape library with another content of its section .gnu_debugdata. */
struct library {
	uint8_t *bytes;
	size_t size;	     /* of the file as it was built; the content follows */
	Elf64_Shdr *section; /* its header in bytes */
	struct elf_section built;
};

#define CONTENT_MAX (1u << 20)

static bool load(struct library *l)
{
	FILE *f = fopen(shape_path("minidebug"), "rb");
	const Elf64_Ehdr *eh;
	struct elf e;

	*l = (struct library){0};
	if (!f)
		return false;
	l->bytes = calloc(1, 2 * CONTENT_MAX);
	assert_non_null(l->bytes);
	l->size = fread(l->bytes, 1, CONTENT_MAX, f);
	fclose(f);
	assert_int_equal(elf_from_bytes(&e, l->bytes, l->size), 0);
	assert_true(elf_section(&e, SV(".gnu_debugdata"), &l->built));
	eh = (void *)l->bytes;
	for (unsigned i = 0; i < eh->e_shnum; i++) {
		Elf64_Shdr *sh = (void *)(l->bytes + eh->e_shoff + i * sizeof(*sh));

		if (sh->sh_offset == l->built.off && sh->sh_size == l->built.size)
			l->section = sh;
	}
	assert_non_null(l->section);
	return true;
}

#define LOAD(l)                                                                                                        \
	do {                                                                                                           \
		if (!load(l))                                                                                          \
			skip(); /* built on x86-64 only */                                                             \
	} while (0)

static int open_with(struct library *l, const void *content, size_t len, struct debugdata *d)
{
	struct elf e;

	assert_true(len <= CONTENT_MAX);
	memcpy(l->bytes + l->size, content, len);
	l->section->sh_offset = l->size;
	l->section->sh_size = len;
	assert_int_equal(elf_from_bytes(&e, l->bytes, l->size + len), 0);
	return debugdata_open(d, &e);
}

static size_t pack(const void *content, size_t len, uint8_t *out)
{
	size_t used = 0;

	assert_int_equal(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, NULL, content, len, out, &used, CONTENT_MAX),
			 LZMA_OK);
	return used;
}

static bool count_function(void *ctx, const struct elf_symbol *s)
{
	*(unsigned *)ctx += sv_starts(s->name, SV("SSL_"));
	return true;
}

/* The offsets come from the library: the unpacked file has no code. */
static void names(void **state)
{
	unsigned own = 0, mini = 0;
	struct debugdata d;
	struct library l;
	struct elf e;

	(void)state;
	LOAD(&l);
	assert_int_equal(elf_from_bytes(&e, l.bytes, l.size), 0);
	assert_int_equal(debugdata_open(&d, &e), 0);
	elf_each_function(&e, count_function, &own);
	elf_each_function_by(&e, &d.elf, count_function, &mini);
	assert_int_equal(own, 0);
	assert_true(mini >= 6);
	debugdata_close(&d);
	free(l.bytes);
	assert_int_equal(elf_map(&e, "/proc/self/exe"), 0);
	assert_int_equal(debugdata_open(&d, &e), -ENOENT);
	elf_unmap(&e);
}

static void too_large(void **state)
{
	size_t size = DEBUGDATA_BYTES_MAX + 1;
	uint8_t *zeros = calloc(1, size), *packed = malloc(CONTENT_MAX);
	struct debugdata d;
	struct library l;

	(void)state;
	assert_true(zeros && packed);
	LOAD(&l);
	assert_int_equal(open_with(&l, packed, pack(zeros, size, packed), &d), -EFBIG);
	assert_null(d.bytes);
	/* what fits is unpacked, and then is no ELF file */
	assert_int_equal(open_with(&l, packed, pack(zeros, size - 1, packed), &d), -EBADMSG);
	assert_int_equal(open_with(&l, packed, pack("text", 4, packed), &d), -EBADMSG);
	assert_int_equal(open_with(&l, "text", 4, &d), -EBADMSG);
	free(zeros);
	free(packed);
	free(l.bytes);
}

static void broken(void **state)
{
	struct debugdata d;
	struct library l;
	uint8_t *built;

	(void)state;
	LOAD(&l);
	built = malloc(l.built.size);
	assert_non_null(built);
	memcpy(built, l.bytes + l.built.off, l.built.size);
	for (size_t len = 1; len < l.built.size; len++)
		assert_int_equal(open_with(&l, built, len, &d), -EBADMSG);
	for (size_t at = 0; at < l.built.size; at++) {
		built[at] ^= 0x55;
		/* xz keeps a checksum of every part */
		assert_int_equal(open_with(&l, built, l.built.size, &d), -EBADMSG);
		built[at] ^= 0x55;
	}
	assert_int_equal(open_with(&l, built, l.built.size, &d), 0);
	debugdata_close(&d);
	free(built);
	free(l.bytes);
}

static void no_memory(void **state)
{
	struct debugdata d;
	struct library l;
	bool hit = true;
	struct elf e;

	(void)state;
	LOAD(&l);
	assert_int_equal(elf_from_bytes(&e, l.bytes, l.size), 0);
	for (unsigned n = 1; hit; n++) {
		int err;

		fail_nth(n);
		err = debugdata_open(&d, &e);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
	}
	debugdata_close(&d);
	free(l.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(too_large),
		cmocka_unit_test(broken),
		cmocka_unit_test(no_memory),
	};

	return cmocka_run_group_tests_name("debugdata", tests, NULL, NULL);
}
