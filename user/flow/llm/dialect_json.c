/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "dialect_parts.h"

#include <stdlib.h>

/* cJSON takes about 80 bytes for each member and element: a hostile "[1,1,1…" would take gigabytes. */
static bool too_many_nodes(struct sv text)
{
	size_t nodes = 0;
	bool quoted = false;

	for (size_t i = 0; i < text.len; i++) {
		char c = text.ptr[i];

		if (quoted) {
			i += c == '\\';
			quoted = c != '"';
		} else {
			quoted = c == '"';
			nodes += c == ',' || c == '[' || c == '{';
		}
	}
	return nodes > DIALECT_NODES_MAX;
}

/* Of an even number of backslashes before it all are characters, and the one that it begins with is an escape. */
static bool is_escape(const char *begin, const char *at)
{
	const char *p = at;

	while (p > begin && p[-1] == '\\')
		p--;
	return (at - p) % 2 == 0;
}

/* cJSON's texts are as long as up to their first NUL: a token that is one would be none, and hide what follows. The
 * same with U+FFFD in its place, owned by the caller; NULL: there is none, or no memory. */
static char *without_nuls(struct sv text)
{
	static const struct sv nul = SV("\\u0000");
	const char *end = text.ptr + text.len, *at = memmem(text.ptr, text.len, nul.ptr, nul.len);
	char *copy = at ? malloc(text.len) : NULL;

	if (!copy)
		return NULL;
	memcpy(copy, text.ptr, text.len);
	for (; at; at = memmem(at, (size_t)(end - at), nul.ptr, nul.len)) {
		if (is_escape(text.ptr, at))
			memcpy(copy + (at - text.ptr), "\\ufffd", nul.len);
		at += nul.len;
	}
	return copy;
}

static cJSON *parse(struct sv text)
{
	char *copy = without_nuls(text);
	cJSON *doc = cJSON_ParseWithLength(copy ? copy : text.ptr, text.len);

	free(copy);
	return doc;
}

cJSON *dialect_parse(struct sv text, bool *too_many)
{
	*too_many = false;
	while (text.len && text.ptr[0] && strchr(" \t\r\n", text.ptr[0]))
		text.ptr++, text.len--;
	if (!text.len || text.ptr[0] != '{')
		return NULL;
	/* a node takes two bytes at least */
	if (text.len > 2 * DIALECT_NODES_MAX && too_many_nodes(text)) {
		*too_many = true;
		return NULL;
	}
	return parse(text);
}
