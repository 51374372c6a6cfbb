/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

/* Shared by the unit tests: cmocka with its includes, a text log for sinks, guard pages, cut points, failing malloc. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A growing text that sinks write into; compared with a golden text. Freed by tlog_free(). Never counted by fail_nth.
 */
struct tlog {
	char *text; /* NUL-terminated */
	size_t len, size;
};
void tlog_printf(struct tlog *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tlog_escaped(struct tlog *l, const void *ptr, size_t len); /* printable, \xNN else */
void tlog_free(struct tlog *l);
#define assert_log(l, golden) assert_string_equal((l)->text ? (l)->text : "", (golden))

/* A copy of [ptr, ptr+len) that ends at an unreadable page: one byte too far crashes. Reused until guard_free(). */
struct guard {
	uint8_t *base;
	size_t mapped;
};
const uint8_t *guard_copy(struct guard *g, const void *ptr, size_t len);
void guard_free(struct guard *g);

/* Calls run(ctx, cut1, cut2) for every pair 0 <= cut1 <= cut2 <= len (every pair up to `full`, then a spread). */
void every_cut(size_t len, size_t full, void (*run)(void *ctx, size_t cut1, size_t cut2), void *ctx);

/* The n-th allocation from now on (1 = next) fails, once; 0 switches off. fail_nth_hit(): it happened
 * since the last fail_nth(n > 0). */
void fail_nth(unsigned n);
bool fail_nth_hit(void);

#endif
