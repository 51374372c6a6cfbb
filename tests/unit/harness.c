/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned fail_at, fail_count;
static bool fail_hit;
static int fail_off; /* > 0: our own allocations */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

static bool failing(void)
{
	if (!fail_at || fail_off || ++fail_count != fail_at)
		return false;
	fail_hit = true;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return failing() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return failing() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return failing() ? NULL : __real_realloc(p, size);
}

char *__wrap_strdup(const char *s)
{
	return failing() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
	return failing() ? NULL : __real_strndup(s, n);
}

void fail_nth(unsigned n)
{
	fail_at = n;
	fail_count = 0;
	if (n) /* switching off keeps the answer to "did it happen?" */
		fail_hit = false;
}

bool fail_nth_hit(void)
{
	return fail_hit;
}

void tlog_printf(struct tlog *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	fail_off++;
	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (l->len + (size_t)n + 1 > l->size) {
		l->size = (l->len + (size_t)n + 1) * 2;
		l->text = realloc(l->text, l->size);
		if (!l->text)
			abort();
	}
	va_start(ap, fmt);
	vsnprintf(l->text + l->len, l->size - l->len, fmt, ap);
	va_end(ap);
	l->len += (size_t)n;
	fail_off--;
}

void tlog_escaped(struct tlog *l, const void *ptr, size_t len)
{
	const uint8_t *p = ptr;

	for (size_t i = 0; i < len; i++) {
		if (p[i] >= 0x20 && p[i] < 0x7f && p[i] != '\\')
			tlog_printf(l, "%c", p[i]);
		else
			tlog_printf(l, "\\x%02x", p[i]);
	}
}

void tlog_free(struct tlog *l)
{
	free(l->text);
	*l = (struct tlog){0};
}

const uint8_t *guard_copy(struct guard *g, const void *ptr, size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t need = (len + page - 1) / page * page + page;
	uint8_t *at;

	if (g->mapped < need) {
		guard_free(g);
		g->base = mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (g->base == MAP_FAILED)
			abort();
		g->mapped = need;
		if (mprotect(g->base + need - page, page, PROT_NONE))
			abort();
	}
	at = g->base + g->mapped - page - len;
	if (len)
		memcpy(at, ptr, len);
	return at;
}

void guard_free(struct guard *g)
{
	if (g->base)
		munmap(g->base, g->mapped);
	*g = (struct guard){0};
}

void every_cut(size_t len, size_t full, void (*run)(void *ctx, size_t cut1, size_t cut2), void *ctx)
{
	size_t step = len > full ? len / full + 1 : 1;

	for (size_t a = 0; a <= len; a++) {
		run(ctx, a, len);
		for (size_t b = a; b <= len; b += step)
			run(ctx, a, b);
	}
}
