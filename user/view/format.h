/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VIEW_FORMAT_H
#define VIEW_FORMAT_H

/* Numbers for people: short, with their unit, "-" when unknown. Private to view/. */

#include <stdint.h>

#define FORMAT_BYTES 32

/* Each returns out. */
const char *format_ms(char out[FORMAT_BYTES], double ms); /* 0.81ms 81.2ms 812ms 4.21s 42.1s 3m07s 2h05m; NAN: - */
const char *format_count(char out[FORMAT_BYTES], int64_t count); /* 512 12.3k 4.56M; negative: - */
const char *format_rate(char out[FORMAT_BYTES], double per_s);	 /* 9.5 152; NAN: - */
const char *format_percent(char out[FORMAT_BYTES], double part); /* 97%; NAN: - */

/* For a regular noun behind a count. */
static inline const char *format_plural(double count)
{
	return count == 1 ? "" : "s";
}

#endif
