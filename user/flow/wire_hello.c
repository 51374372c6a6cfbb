/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "wire_hello.h"

#include <stdint.h>

#define RECORD_HANDSHAKE  0x16
#define CLIENT_HELLO	  1
#define EXT_SERVER_NAME	  0
#define NAME_TYPE_HOST	  0
#define RANDOM_AND_BEFORE (2 + 32) /* legacy_version, random */

/* What is left; ptr NULL: the text ended too soon. */
static void skip(struct sv *s, size_t n)
{
	*s = s->ptr && n <= s->len ? (struct sv){s->ptr + n, s->len - n} : SV_NONE;
}

static uint32_t number(struct sv *s, unsigned bytes)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < bytes && s->ptr && i < s->len; i++)
		n = n << 8 | (uint8_t)s->ptr[i];
	skip(s, bytes);
	return n;
}

/* A vector behind its length, as far as it is there; `s` moves behind it. */
static struct sv vector(struct sv *s, unsigned length_bytes)
{
	uint32_t n = number(s, length_bytes);
	struct sv v = *s;

	if (v.ptr && n < v.len)
		v.len = n;
	skip(s, n);
	return v;
}

static bool is_host(struct sv name)
{
	if (!name.len || name.len > WIRE_HOST_MAX)
		return false;
	for (size_t i = 0; i < name.len; i++) {
		char c = name.ptr[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
		      c == '.' || c == '_'))
			return false;
	}
	return true;
}

static struct sv name_of(struct sv extension)
{
	struct sv list = vector(&extension, 2), name;
	uint32_t type = number(&list, 1), len = number(&list, 2);

	name = list;
	if (type != NAME_TYPE_HOST || !name.ptr || name.len < len)
		return SV_NONE;
	name.len = len;
	return is_host(name) ? name : SV_NONE;
}

struct sv hello_host(struct sv bytes)
{
	struct sv s = bytes, extensions;

	if (number(&s, 1) != RECORD_HANDSHAKE)
		return SV_NONE;
	skip(&s, 2 + 2); /* version and length of the record */
	if (number(&s, 1) != CLIENT_HELLO)
		return SV_NONE;
	skip(&s, 3 + RANDOM_AND_BEFORE);
	vector(&s, 1); /* session */
	vector(&s, 2); /* cipher suites */
	vector(&s, 1); /* compression */
	extensions = vector(&s, 2);
	while (extensions.ptr && extensions.len) {
		uint32_t type = number(&extensions, 2);
		struct sv body = vector(&extensions, 2);

		if (type == EXT_SERVER_NAME && body.ptr)
			return name_of(body);
	}
	return SV_NONE;
}
