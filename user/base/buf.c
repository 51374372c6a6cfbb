/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "buf.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

void buf_init(struct buf *b, size_t cap)
{
	*b = (struct buf){.cap = cap};
}

void buf_release(struct buf *b)
{
	free(b->ptr);
	buf_init(b, b->cap);
}

void buf_clear(struct buf *b)
{
	b->len = 0;
}

/* No more is to be asked for: most often. A terminator's room may lie past the cap. */
static bool has_room(const struct buf *b, size_t more)
{
	return more <= b->size - b->len && (!b->cap || more <= b->cap - b->len);
}

int buf_reserve(struct buf *b, size_t more)
{
	size_t need, size;
	char *p;

	if (has_room(b, more))
		return 0;
	if (more > SIZE_MAX / 4 - b->len)
		return -ENOMEM;
	need = b->len + more;
	if (b->cap && need > b->cap)
		return -ENOSPC;
	size = b->size ? b->size : 64;
	while (size < need)
		size *= 2;
	if (b->cap && size > b->cap)
		size = b->cap;
	p = realloc(b->ptr, size);
	if (!p)
		return -ENOMEM;
	b->ptr = p;
	b->size = size;
	return 0;
}

int buf_push(struct buf *b, const void *ptr, size_t len)
{
	int err = has_room(b, len) ? 0 : buf_reserve(b, len);

	if (err)
		return err;
	if (len)
		memcpy(b->ptr + b->len, ptr, len);
	b->len += len;
	return 0;
}

int buf_puts(struct buf *b, const char *s)
{
	return buf_push(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
	return buf_push(b, &c, 1);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	char small[256];
	va_list ap;
	int n, err;

	va_start(ap, fmt);
	n = vsnprintf(small, sizeof(small), fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	if ((size_t)n < sizeof(small))
		return buf_push(b, small, (size_t)n);
	err = buf_reserve(b, (size_t)n + 1);
	if (err)
		return err;
	va_start(ap, fmt);
	vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

void buf_drop_front(struct buf *b, size_t n)
{
	if (n > b->len)
		BUG("buf_drop_front past the end");
	b->len -= n;
	if (b->len)
		memmove(b->ptr, b->ptr + n, b->len);
}

const char *buf_cstr(struct buf *b)
{
	size_t cap = b->cap;
	int err;

	/* The terminator is ours, not content: it may go one past the cap. */
	b->cap = 0;
	err = buf_reserve(b, 1);
	b->cap = cap;
	if (err)
		return "";
	b->ptr[b->len] = '\0';
	return b->ptr;
}
