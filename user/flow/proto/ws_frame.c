/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ws_frame.h"

#define MASKED 0x80 /* in the second byte */

static unsigned length_bytes(const struct ws_frame_head *h)
{
	uint8_t length = h->bytes[1] & 0x7f;

	return length == 126 ? 2 : length == 127 ? 8 : 0;
}

void ws_frame_clear(struct ws_frame_head *h)
{
	h->len = 0;
	h->need = 2;
}

bool ws_frame_push(struct ws_frame_head *h, uint8_t c)
{
	h->bytes[h->len++] = c;
	if (h->len == 2)
		h->need = 2 + length_bytes(h) + (ws_frame_is_masked(h) ? 4 : 0);
	return h->len >= 2 && h->len == h->need;
}

bool ws_frame_is_control(const struct ws_frame_head *h)
{
	return h->bytes[0] & 0x08;
}

bool ws_frame_is_masked(const struct ws_frame_head *h)
{
	return h->bytes[1] & MASKED;
}

uint64_t ws_frame_length(const struct ws_frame_head *h)
{
	unsigned bytes = length_bytes(h);
	uint64_t n = 0;

	for (unsigned i = 0; i < bytes; i++)
		n = n << 8 | h->bytes[2 + i];
	return bytes ? n : h->bytes[1] & 0x7f;
}

bool ws_frame_is_shortest(const struct ws_frame_head *h)
{
	unsigned bytes = length_bytes(h);

	return ws_frame_length(h) >= (bytes == 8 ? UINT16_MAX + 1 : bytes == 2 ? 126 : 0);
}

void ws_frame_unmask(const struct ws_frame_head *h, uint64_t offset, uint8_t *out, const uint8_t *ptr, size_t len)
{
	const uint8_t *key = h->bytes + h->need - 4;

	for (size_t i = 0; i < len; i++)
		out[i] = ptr[i] ^ key[(offset + i) & 3];
}
