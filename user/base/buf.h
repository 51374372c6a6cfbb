/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_BUF_H
#define BASE_BUF_H

/* Growable bytes with a cap that the caller states: nothing here grows without bound. */

#include <stdarg.h>
#include <stddef.h>

struct buf {
	char *ptr; /* owned; NULL while empty. Not NUL-terminated, see buf_cstr() */
	size_t len;
	size_t size;
	size_t cap; /* most bytes it may hold; 0 = no cap (only for our own output) */
};

void buf_init(struct buf *b, size_t cap);
void buf_release(struct buf *b); /* frees; the buffer can be used again */
void buf_clear(struct buf *b);	 /* keeps the memory */

/* Each: 0; -ENOSPC at the cap (nothing was added); -ENOMEM. */
int buf_push(struct buf *b, const void *ptr, size_t len);
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_reserve(struct buf *b, size_t more); /* room for that many bytes more */

void buf_drop_front(struct buf *b, size_t n); /* n <= len */
const char *buf_cstr(struct buf *b);	      /* NUL-terminated, "" when out of memory */

#endif
