/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "dialect_parts.h"

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
	return cJSON_ParseWithLength(text.ptr, text.len);
}
