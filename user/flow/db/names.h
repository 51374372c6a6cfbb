/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_DB_NAMES_H
#define FLOW_DB_NAMES_H

/* Shapes that several things share, and the prepared statements of a connection by their names. Private to flow/db. */

#include "base/sv.h"

#define NAMES_MAX 4096 /* of one table; the oldest is forgotten, and unknown from then on */

struct shape_ref {
	unsigned refs;
	size_t len;
	char text[];
};

struct shape_ref *shape_ref_new(struct sv text); /* one reference; NULL: ENOMEM */
struct shape_ref *shape_ref_keep(struct shape_ref *s);
void shape_ref_drop(struct shape_ref *s); /* NULL is fine */
static inline struct sv shape_ref_text(const struct shape_ref *s)
{
	return s ? (struct sv){s->text, s->len} : SV_NONE;
}

struct name;
struct names {
	struct name *table;
};

/* Takes a reference of its own. shape NULL: forgets the name. 0 or -ENOMEM (then it is forgotten). */
int names_set(struct names *n, const void *key, size_t len, struct shape_ref *shape);
struct shape_ref *names_get(const struct names *n, const void *key, size_t len); /* borrowed; NULL: unknown */
void names_clear(struct names *n);

#endif
