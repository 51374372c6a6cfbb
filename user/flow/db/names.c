/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "names.h"

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"

struct name {
	struct shape_ref *shape;
	UT_hash_handle hh;
	char key[];
};

struct shape_ref *shape_ref_new(struct sv text)
{
	struct shape_ref *s = malloc(sizeof(*s) + text.len);

	if (!s)
		return NULL;
	s->refs = 1;
	s->len = text.len;
	memcpy(s->text, text.ptr, text.len);
	return s;
}

struct shape_ref *shape_ref_keep(struct shape_ref *s)
{
	if (s)
		s->refs++;
	return s;
}

void shape_ref_drop(struct shape_ref *s)
{
	if (s && --s->refs == 0)
		free(s);
}

static void forget(struct names *n, struct name *name)
{
	HASH_DEL(n->table, name);
	shape_ref_drop(name->shape);
	free(name);
}

int names_set(struct names *n, const void *key, size_t len, struct shape_ref *shape)
{
	struct name *name;

	HASH_FIND(hh, n->table, key, len, name);
	if (name)
		forget(n, name);
	if (!shape)
		return 0;
	if (HASH_COUNT(n->table) >= NAMES_MAX)
		forget(n, n->table); /* the first is the oldest */
	name = calloc(1, sizeof(*name) + len);
	if (!name)
		return -ENOMEM;
	memcpy(name->key, key, len);
	HASH_ADD_KEYPTR(hh, n->table, name->key, len, name);
	if (!name->hh.tbl) {
		free(name);
		return -ENOMEM;
	}
	name->shape = shape_ref_keep(shape);
	return 0;
}

struct shape_ref *names_get(const struct names *n, const void *key, size_t len)
{
	struct name *name;

	HASH_FIND(hh, n->table, key, len, name);
	return name ? name->shape : NULL;
}

void names_clear(struct names *n)
{
	while (n->table)
		forget(n, n->table);
}
