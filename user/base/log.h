/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_LOG_H
#define BASE_LOG_H

/*
 * Diagnostics on standard error, for session, probes, options and commands (flow/ and base/ never print). Strings that
 * come from traced programs must go through log_safe(): control bytes, C1 and bidi overrides never reach a terminal.
 */

#include <stddef.h>

#include "sv.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_VERBOSE, LOG_DEBUG };

void log_set_level(enum log_level level); /* default LOG_INFO; -q LOG_WARN; -v LOG_VERBOSE; -vv LOG_DEBUG */
enum log_level log_get_level(void);

/* "perfbpf: …" and a newline. A failed write to standard error is ignored. */
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_hint(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* "hint: …", at most one a failure */
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_verbose(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Text made fit for a terminal, cut to size - 1 bytes at a character boundary (with "…"). Absent: "-". Returns out. */
const char *log_safe(char *out, size_t size, struct sv text);

#endif
