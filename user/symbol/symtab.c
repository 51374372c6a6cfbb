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

/* One row an address: the plainest name. */
static void drop_aliases(struct symtab *t)
{
	size_t kept = 0;

	for (size_t i = 1; i < t->count; i++) {
		const struct symtab_row *r = &t->rows[i];

		if (r->start != t->rows[kept].start)
			t->rows[++kept] = *r;
		else if (is_better(t, r, &t->rows[kept]))
			t->rows[kept] = *r;
	}
	t->count = kept + 1;
}

/* --- ranges that lie over each other ----------------------------------------------------------------------------- */

/* The ranges that cover a place, as a heap: the one that was added last on top; and what they come to. */
struct layers {
	const struct symtab_row **heap;
	size_t count;
	struct symtab_row *out;
	size_t out_count;
	uint64_t at; /* up to here it is known */
};

static void push_layer(struct layers *l, const struct symtab_row *r)
{
	size_t at = l->count++;

	for (; at && l->heap[(at - 1) / 2]->name < r->name; at = (at - 1) / 2)
		l->heap[at] = l->heap[(at - 1) / 2];
	l->heap[at] = r;
}

static void pop_layer(struct layers *l)
{
	const struct symtab_row *last = l->heap[--l->count];
	size_t at = 0, child;

	for (; (child = 2 * at + 1) < l->count; at = child) {
		child += child + 1 < l->count && l->heap[child + 1]->name > l->heap[child]->name;
		if (l->heap[child]->name < last->name)
			break;
		l->heap[at] = l->heap[child];
	}
	l->heap[at] = last;
}

static uint64_t end_of(const struct symtab_row *r)
{
	return r->size > UINT64_MAX - r->start ? UINT64_MAX : r->start + r->size;
}

/* What lies on top up to an address. */
static void put_layers(struct layers *l, uint64_t to)
{
	while (l->count && l->at < to) {
		const struct symtab_row *top = l->heap[0];
		uint64_t end = end_of(top) < to ? end_of(top) : to;

		if (end > l->at)
			l->out[l->out_count++] =
				(struct symtab_row){.start = l->at, .size = (uint32_t)(end - l->at), .name = top->name};
		l->at = end > l->at ? end : l->at;
		if (end_of(top) <= l->at)
			pop_layer(l);
	}
	l->at = to;
}

/* Each range but for what was written over it later. Without memory none is left. */
static void flatten(struct symtab *t)
{
	struct layers l = {.heap = calloc(t->count, sizeof(struct symtab_row *)),
			   .out = calloc(2 * t->count, sizeof(struct symtab_row))};

	for (size_t i = 0; l.heap && l.out && i < t->count; i++) {
		put_layers(&l, t->rows[i].start);
		push_layer(&l, &t->rows[i]);
	}
	if (l.heap && l.out) {
		put_layers(&l, UINT64_MAX);
		free(t->rows);
		t->rows = l.out;
		t->room = 2 * t->count;
	} else {
		free(l.out);
	}
	t->count = l.out_count;
	free(l.heap);
}

void symtab_sort(struct symtab *t)
{
	if (!t->count)
		return;
	qsort(t->rows, t->count, sizeof(*t->rows), compare_rows);
	if (t->latest) {
		flatten(t);
		return;
	}
	drop_aliases(t);
	set_sizes(t);
}

/* --- looking up -------------------------------------------------------------------------------------------------- */

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
	size_t n = rank(t, addr);

	for (size_t i = n; i > 0 && n - i < LOOK_BACK; i--) {
		const struct symtab_row *r = &t->rows[i - 1];

		if (addr - r->start < r->size)
			return sv_of(t->names.ptr + r->name);
	}
	return SV_NONE;
}

size_t symtab_bytes(const struct symtab *t)
{
	return t->room * sizeof(*t->rows) + t->names.size;
}
