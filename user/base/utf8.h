/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

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

#endif
