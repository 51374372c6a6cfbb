/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "symtab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_FIRST 256
#define LOOK_BACK  32 /* rows before the nearest one that may cover an address too */

void symtab_init(struct symtab *t, bool latest)
{
	*t = (struct symtab){.latest = latest};
	buf_init(&t->names, SYMTAB_NAMES_BYTES);
}

void symtab_release(struct symtab *t)
{
	free(t->rows);
	buf_release(&t->names);
	symtab_init(t, t->latest);
}

void symtab_clear(struct symtab *t)
{
	t->count = 0;
	buf_clear(&t->names);
}

static uint32_t size_of(uint64_t size)
{
	return size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
}

int symtab_add(struct symtab *t, uint64_t start, uint64_t size, struct sv name)
{
	size_t at = t->names.len;
	int err;

	if (!name.len || memchr(name.ptr, 0, name.len))
		return 0;
	if (name.len > SYMTAB_NAME_BYTES)
		name.len = SYMTAB_NAME_BYTES;
	if (t->count == SYMTAB_ROWS_MAX)
		return -ENOSPC;
	if (t->count == t->room) {
		size_t room = t->room ? 2 * t->room : ROWS_FIRST;
		struct symtab_row *rows = realloc(t->rows, room * sizeof(*rows));

		if (!rows)
			return -ENOMEM;
		t->rows = rows;
		t->room = room;
	}
	err = buf_reserve(&t->names, name.len + 1);
	if (err)
		return err;
	buf_push(&t->names, name.ptr, name.len);
	buf_putc(&t->names, '\0');
	t->rows[t->count++] = (struct symtab_row){.start = start, .size = size_of(size), .name = (uint32_t)at};
	return 0;
}

static int compare_rows(const void *a, const void *b)
{
	const struct symtab_row *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

static size_t underscores(const struct symtab *t, const struct symtab_row *r)
{
	return strspn(t->names.ptr + r->name, "_");
}

/* Aliases: the plainest name, which is the one that people know. */
static bool is_better(const struct symtab *t, const struct symtab_row *a, const struct symtab_row *b)
{
	size_t x = underscores(t, a), y = underscores(t, b);

	if (!a->size != !b->size)
		return a->size != 0;
	return x != y ? x < y : strlen(t->names.ptr + a->name) < strlen(t->names.ptr + b->name);
}

/* Those without a size end where the next one begins. */
static void set_sizes(struct symtab *t)
{
	for (size_t i = 0; i < t->count; i++) {
		struct symtab_row *r = &t->rows[i];

		if (!r->size)
			r->size = i + 1 < t->count ? size_of(r[1].start - r->start) : UINT32_MAX;
	}
}

void symtab_sort(struct symtab *t)
{
	size_t kept = 0;

	if (!t->count)
		return;
	qsort(t->rows, t->count, sizeof(*t->rows), compare_rows);
	for (size_t i = 1; i < t->count; i++) {
		const struct symtab_row *r = &t->rows[i];

		if (r->start != t->rows[kept].start)
			t->rows[++kept] = *r;
		else if (t->latest || is_better(t, r, &t->rows[kept]))
			t->rows[kept] = *r;
	}
	t->count = kept + 1;
	set_sizes(t);
}

/* How many begin at or before the address. */
static size_t rank(const struct symtab *t, uint64_t addr)
{
	size_t from = 0, to = t->count;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (t->rows[mid].start <= addr)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

void symtab_end(struct symtab *t, uint64_t addr)
{
	size_t n = addr ? rank(t, addr - 1) : 0;
	struct symtab_row *r = n ? &t->rows[n - 1] : NULL;

	if (r && r->size > addr - r->start)
		r->size = (uint32_t)(addr - r->start);
}

struct sv symtab_find(const struct symtab *t, uint64_t addr)
{
	const struct symtab_row *best = NULL;
	size_t n = rank(t, addr);

	for (size_t i = n; i > 0 && n - i < LOOK_BACK; i--) {
		const struct symtab_row *r = &t->rows[i - 1];

		if (addr - r->start >= r->size)
			continue;
		if (!best || r->name > best->name)
			best = r;
		if (!t->latest)
			break;
	}
	return best ? sv_of(t->names.ptr + best->name) : SV_NONE;
}

size_t symtab_bytes(const struct symtab *t)
{
	return t->room * sizeof(*t->rows) + t->names.size;
}
