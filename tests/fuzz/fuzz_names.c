/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * BINARY:SYMBOL up to the first NUL, and behind it any bytes as a file: what is looked for in it by name. What is found
 * is an instruction of the file.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attach/allocfind.h"
#include "attach/funcfind.h"
#include "attach/insn.h"
#include "attach/sqlitefind.h"
#include "symbol/elfsyms.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void check_place(const struct elf *e, uint64_t off)
{
	struct decoder d;

	check(elf_at(e, off, 1));
	if (e->machine != EM_X86_64 || decoder_open(&d, e))
		return;
	check(decode_insn(&d, off));
	decoder_close(&d);
}

static void check_find(const struct elf *e, const struct tls_find *found, int err)
{
	check(!err || err == -EINVAL || err == -ENOENT || err == -ENOMEM);
	check(err ? !found->count : found->count > 0);
	for (unsigned i = 0; i < found->count; i++)
		check_place(e, found->funcs[i].site.off);
}

static void find_allocators(const struct elf *e)
{
	static struct alloc_find found;

	if (allocfind(e, &found))
		return;
	check(found.count && found.count <= ALLOCFIND_MAX && found.slow <= found.count);
	for (unsigned i = 0; i < found.count; i++)
		check_place(e, found.funcs[i].off);
}

static void load_symbols(const struct elf *e)
{
	struct symtab t;

	symtab_init(&t, false);
	elfsyms_load(&t, e, NULL);
	for (size_t i = 0; i < t.count; i++)
		check(symtab_find(&t, t.rows[i].start).len);
	symtab_release(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tls_find found;
	const uint8_t *end = size ? memchr(data, 0, size) : NULL;
	struct func_spec spec;
	struct elf e;

	if (!end || func_spec_parse(&spec, (const char *)data))
		return 0;
	check(strlen(spec.binary) < sizeof(spec.binary) && *spec.symbol);
	if (elf_from_bytes(&e, end + 1, size - (size_t)(end + 1 - data)))
		return 0;
	check_find(&e, &found, funcfind(&e, &spec, 1, &found));
	check_find(&e, &found, sqlitefind(&e, &found));
	find_allocators(&e);
	load_symbols(&e);
	elf_unmap(&e);
	return 0;
}
