/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "hello.h"

#include <string.h>

#define RECORD_HANDSHAKE   0x16
#define RECORD_HEADER	   5
#define CLIENT_HELLO	   1
#define SERVER_HELLO	   2
#define EXT_SERVER_NAME	   0
#define EXT_PRE_SHARED_KEY 41
#define EXT_VERSIONS	   43
#define EXT_ECH		   0xfe0d /* RFC 9849 section 5 */
#define TLS_1_3		   0x0304
#define NAME_TYPE_HOST	   0
#define RANDOM_AND_BEFORE  (2 + 32) /* legacy_version, random */

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
	struct sv s = bytes, extensions, host = SV_NONE;

	if (number(&s, 1) != RECORD_HANDSHAKE)
		return SV_NONE;
	skip(&s, 2);
	s = vector(&s, 2); /* what goes on in another record has a header in its middle */
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
			host = name_of(body);
		if (type == EXT_ECH)
			return SV_NONE;
	}
	return host;
}

uint32_t hello_record_bytes(struct sv bytes)
{
	struct sv s = bytes;
	uint32_t len;

	if (number(&s, 1) != RECORD_HANDSHAKE)
		return 0;
	skip(&s, 2);
	len = number(&s, 2);
	return number(&s, 1) == CLIENT_HELLO ? RECORD_HEADER + len : 0;
}

struct sv hello_session(struct sv bytes)
{
	struct sv s = bytes, session;

	if (number(&s, 1) != RECORD_HANDSHAKE)
		return SV_NONE;
	skip(&s, 2 + 2);
	if (number(&s, 1) != CLIENT_HELLO)
		return SV_NONE;
	skip(&s, 3 + RANDOM_AND_BEFORE);
	session = vector(&s, 1);
	return s.ptr && session.len <= HELLO_SESSION_MAX ? session : SV_NONE;
}

/* SHA-256 of "HelloRetryRequest", in the place of the random (RFC 8446 section 4.1.3). */
static bool is_retry(struct sv random)
{
	static const uint8_t retry[] = {0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11};

	return random.len >= sizeof(retry) && !memcmp(random.ptr, retry, sizeof(retry));
}

/* Of its extensions: 1 or 0 for TLS 1.3, -1 for another version, -2 where they are cut. */
static int resumed_by_key(struct sv extensions)
{
	bool key = false, v13 = false;

	while (extensions.ptr && extensions.len) {
		uint32_t type = number(&extensions, 2);
		struct sv body = vector(&extensions, 2);

		key |= type == EXT_PRE_SHARED_KEY;
		if (type == EXT_VERSIONS && body.ptr)
			v13 |= number(&body, 2) == TLS_1_3;
	}
	if (!extensions.ptr)
		return -2;
	return v13 ? key : -1;
}

int hello_resumed(struct sv bytes, struct sv client_session)
{
	struct sv s = bytes, session;
	uint32_t type = number(&s, 1), len;
	int by_key = -1;

	if (type == RECORD_HANDSHAKE) {
		skip(&s, 2 + 2);
		type = number(&s, 1);
	}
	if (type != SERVER_HELLO)
		return -1;
	len = number(&s, 3);
	if (!s.ptr || s.len < len)
		return -1;
	s.len = len; /* the certificate may follow */
	skip(&s, 2);
	if (!s.ptr || is_retry(s))
		return -1;
	skip(&s, RANDOM_AND_BEFORE - 2);
	session = vector(&s, 1);
	skip(&s, 2 + 1); /* cipher suite, compression */
	if (!s.ptr)
		return -1;
	if (s.len)
		by_key = resumed_by_key(vector(&s, 2));
	if (by_key != -1)
		return by_key == -2 ? -1 : by_key;
	return session.len && sv_eq(session, client_session);
}
