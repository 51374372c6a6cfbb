/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_SV_H
#define BASE_SV_H

/* String view: bytes that somebody else owns, not NUL-terminated. {NULL, 0} is "absent", {"", 0} is "empty". */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct sv {
	const char *ptr;
	size_t len;
};

#define SV(literal) ((struct sv){(literal), sizeof(literal) - 1})
#define SV_NONE	    ((struct sv){NULL, 0})

static inline struct sv sv_of(const char *s)
{
	return s ? (struct sv){s, strlen(s)} : SV_NONE;
}

static inline bool sv_eq(struct sv a, struct sv b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* ASCII case-insensitive: header names and tokens. */
static inline bool sv_ieq(struct sv a, struct sv b)
{
	return a.len == b.len && (a.len == 0 || strncasecmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool sv_starts(struct sv s, struct sv prefix)
{
	return s.len >= prefix.len && memcmp(s.ptr, prefix.ptr, prefix.len) == 0;
}

static inline bool sv_ends(struct sv s, struct sv suffix)
{
	return s.len >= suffix.len && memcmp(s.ptr + s.len - suffix.len, suffix.ptr, suffix.len) == 0;
}

/* Without spaces and tabs at both ends. */
static inline struct sv sv_trim(struct sv s)
{
	while (s.len && (s.ptr[0] == ' ' || s.ptr[0] == '\t'))
		s.ptr++, s.len--;
	while (s.len && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t'))
		s.len--;
	return s;
}

/* Up to the first c; *rest is what follows c (absent when there is no c). */
static inline struct sv sv_cut(struct sv s, char c, struct sv *rest)
{
	const char *p = s.len ? memchr(s.ptr, c, s.len) : NULL;

	if (!p) {
		*rest = SV_NONE;
		return s;
	}
	*rest = (struct sv){p + 1, s.len - (size_t)(p + 1 - s.ptr)};
	return (struct sv){s.ptr, (size_t)(p - s.ptr)};
}

#endif
