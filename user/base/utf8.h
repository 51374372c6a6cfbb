/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed UTF-8 character (Unicode table 3-7) at ptr, its code point in *cp; 0 when there is none. */
static inline size_t utf8_next(const uint8_t *ptr, size_t len, uint32_t *cp)
{
	uint8_t c = len ? ptr[0] : 0;
	size_t n = c < 0x80 ? 1 : c >= 0xc2 && c <= 0xdf ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;

	if (!len || !n || n > len)
		return 0;
	*cp = n == 1 ? c : c & (0xff >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((ptr[i] & 0xc0) != 0x80)
			return 0;
		*cp = *cp << 6 | (ptr[i] & 0x3f);
	}
	if ((n == 3 && (*cp < 0x800 || (*cp >= 0xd800 && *cp <= 0xdfff))) ||
	    (n == 4 && (*cp < 0x10000 || *cp > 0x10ffff)))
		return 0;
	return n;
}

/* What drives a terminal or misleads its reader: C0, DEL, C1, and the characters that reorder or hide text (UAX #9
 * embeddings and isolates, zero width, BOM). */
static inline bool utf8_unsafe(uint32_t cp)
{
	return cp < 0x20 || (cp >= 0x7f && cp <= 0x9f) || cp == 0x61c || (cp >= 0x200b && cp <= 0x200f) ||
	       (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2060 && cp <= 0x206f) || cp == 0xfeff ||
	       (cp >= 0xfff9 && cp <= 0xfffb) || (cp >= 0xe0000 && cp <= 0xe007f);
}

#endif
