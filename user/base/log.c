/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "utf8.h"
#include "writefd.h"

static enum log_level level = LOG_INFO;

void log_set_level(enum log_level l)
{
	level = l;
}

enum log_level log_get_level(void)
{
	return level;
}

/* One write a line: lines of several writers do not mix, and a closed standard error is nobody's problem. */
static void line(const char *prefix, const char *fmt, va_list ap)
{
	char text[4096];
	int n = snprintf(text, sizeof(text), "%s", prefix);
	int m = vsnprintf(text + n, sizeof(text) - (size_t)n - 1, fmt, ap);
	size_t len = m < 0 ? (size_t)n : (size_t)n + (size_t)m;

	if (len > sizeof(text) - 2)
		len = sizeof(text) - 2;
	text[len++] = '\n';
	writefd_all(STDERR_FILENO, text, len);
}

#define DEFINE(name, min, prefix)                                                                                      \
	void name(const char *fmt, ...)                                                                                \
	{                                                                                                              \
		va_list ap;                                                                                            \
                                                                                                                       \
		if (level < (min))                                                                                     \
			return;                                                                                        \
		va_start(ap, fmt);                                                                                     \
		line(prefix, fmt, ap);                                                                                 \
		va_end(ap);                                                                                            \
	}

DEFINE(log_error, LOG_ERROR, "perfbpf: ")
DEFINE(log_hint, LOG_ERROR, "hint: ")
DEFINE(log_warn, LOG_WARN, "perfbpf: warning: ")
DEFINE(log_info, LOG_INFO, "perfbpf: ")
DEFINE(log_verbose, LOG_VERBOSE, "perfbpf: ")
DEFINE(log_debug, LOG_DEBUG, "perfbpf: debug: ")

const char *log_safe(char *out, size_t size, struct sv text)
{
	static const char ellipsis[] = "\xe2\x80\xa6", bad[] = "\xef\xbf\xbd";
	const uint8_t *p = (const uint8_t *)text.ptr;
	size_t n = 0, cut = 0; /* cut: where the ellipsis still fits */

	if (!text.ptr) {
		snprintf(out, size, "-");
		return out;
	}
	for (size_t i = 0; i < text.len;) {
		uint32_t cp = 0;
		size_t len = utf8_next(p + i, text.len - i, &cp);
		bool ok = len && !utf8_unsafe(cp);
		const char *from = ok ? (const char *)p + i : bad;
		size_t put = ok ? len : sizeof(bad) - 1;

		if (n + put + 1 > size) {
			snprintf(out + cut, size - cut, "%s", size - cut >= sizeof(ellipsis) ? ellipsis : "");
			return out;
		}
		memcpy(out + n, from, put);
		n += put;
		if (n + sizeof(ellipsis) <= size)
			cut = n;
		i += len ? len : 1;
	}
	if (size)
		out[n] = '\0';
	return out;
}
