/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "text.h"

#include <stdlib.h>

size_t text_cut(struct sv text, size_t max)
{
	size_t n = max;

	if (text.len <= max)
		return text.len;
	/* not into a continuation byte */
	while (n > 0 && max - n < 4 && ((uint8_t)text.ptr[n] & 0xc0) == 0x80)
		n--;
	return n;
}

static struct sv until_nul(struct sv text)
{
	const char *nul = text.len ? memchr(text.ptr, '\0', text.len) : NULL;

	return nul ? (struct sv){text.ptr, (size_t)(nul - text.ptr)} : text;
}

void text_copy(char *out, size_t size, struct sv text)
{
	size_t n;

	text = until_nul(text);
	n = text_cut(text, size - 1);
	if (n)
		memcpy(out, text.ptr, n);
	out[n] = '\0';
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void text_percent_decode(char *out, size_t size, struct sv text)
{
	char plain[512];
	size_t n = 0;

	for (size_t i = 0; i < text.len && n < sizeof(plain); i++) {
		bool coded = text.ptr[i] == '%' && text.len - i > 2 && hex(text.ptr[i + 1]) >= 0 &&
			     hex(text.ptr[i + 2]) >= 0;

		plain[n++] = coded ? (char)(hex(text.ptr[i + 1]) << 4 | hex(text.ptr[i + 2])) : text.ptr[i];
		i += coded ? 2 : 0;
	}
	text_copy(out, size, (struct sv){plain, n});
}

char *text_dup(struct sv text, size_t max)
{
	size_t n;
	char *out;

	text = until_nul(text);
	n = text_cut(text, max);
	out = n ? malloc(n + 1) : NULL;
	if (!out)
		return NULL;
	memcpy(out, text.ptr, n);
	out[n] = '\0';
	return out;
}

uint64_t text_hash(uint64_t hash, const void *ptr, size_t len)
{
	const uint8_t *p = ptr;

	if (!len)
		return hash;
	if (!hash)
		hash = 0xcbf29ce484222325ull;
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ p[i]) * 0x100000001b3ull;
	return hash ? hash : 1;
}

uint64_t text_sum(uint64_t sum, const uint8_t *ptr, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint64_t mixed = (ptr[i] + 1) * 0x9e3779b97f4a7c15ull;

		sum += (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93ull;
	}
	return sum;
}

uint64_t text_mark(struct sv prefix, uint64_t bytes)
{
	return text_hash(text_hash(0, prefix.ptr, prefix.len), &bytes, sizeof(bytes));
}

struct sv text_json_member(struct sv json, const char *name)
{
	size_t name_len = strlen(name);

	while (json.len > name_len + 2) {
		const char *at = memmem(json.ptr, json.len, name, name_len);
		struct sv rest, value;

		if (!at)
			return SV_NONE;
		rest = (struct sv){at + name_len, json.len - (size_t)(at + name_len - json.ptr)};
		if (at > json.ptr && at[-1] == '"' && rest.len && rest.ptr[0] == '"') {
			value = sv_trim((struct sv){rest.ptr + 1, rest.len - 1});
			if (value.len && value.ptr[0] == ':') {
				value = sv_trim((struct sv){value.ptr + 1, value.len - 1});
				if (value.len && value.ptr[0] == '"') {
					value = sv_cut((struct sv){value.ptr + 1, value.len - 1}, '"', &rest);
					return rest.ptr ? value : SV_NONE;
				}
			}
		}
		json = rest;
	}
	return SV_NONE;
}
