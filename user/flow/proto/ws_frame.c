/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ws_frame.h"

#include "base/utf8.h"

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

/* --- a handshake that was missed --------------------------------------------------------------------------------- */

/* The beginning of a UTF-8 character. */
static bool is_cut(const uint8_t *ptr, size_t len)
{
	size_t n = ptr[0] >= 0xc2 && ptr[0] <= 0xf4 ? 2 + (ptr[0] >= 0xe0) + (ptr[0] >= 0xf0) : 0;

	for (size_t i = 1; i < len; i++)
		if ((ptr[i] & 0xc0) != 0x80)
			return false;
	return len < n;
}

/* Payload bytes that begin the text of a message. The last character may be cut. */
static bool text_begins(const uint8_t *ptr, size_t len)
{
	for (size_t i = 0; i < len;) {
		uint32_t cp;
		size_t n = utf8_next(ptr + i, len - i, &cp);

		if (!n)
			return is_cut(ptr + i, len - i);
		if (cp == 0x7f || (cp < 0x20 && cp != '\t' && cp != '\n' && cp != '\r'))
			return false;
		i += n;
	}
	return true;
}

int ws_detect(const uint8_t *ptr, size_t len)
{
	struct ws_frame_head h;
	uint8_t text[WS_DETECT_BYTES];
	size_t need = 0, n;
	uint64_t total;

	ws_frame_clear(&h);
	if (len && ((ptr[0] & 0x0f) != WS_TEXT || (ptr[0] & WS_RSV2_3)))
		return 0;
	if (len >= 2 && !(ptr[1] & 0x80))
		return 0;
	while (need < len && !ws_frame_push(&h, ptr[need++]))
		;
	if (h.len < 2 || h.len < h.need)
		return -1;
	total = ws_frame_length(&h);
	if (!total || total >> 32 || !ws_frame_is_shortest(&h))
		return 0;
	n = total < WS_DETECT_BYTES - need ? (size_t)total : WS_DETECT_BYTES - need;
	if (len - need < n)
		return -1;
	ws_frame_unmask(&h, 0, text, ptr + need, n);
	if (ptr[0] & WS_RSV1)
		return (text[0] & 6) != 6; /* block type 3 does not exist */
	return text_begins(text, n);
}
