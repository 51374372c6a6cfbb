/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the probed functions do, and with which objects and bytes: bpftest.h. */
#include <stdlib.h>
#include <string.h>

#include "bpftest.h"

#define PROBED __attribute__((noinline, noipa, noclone))

__thread struct script script;

int perform(size_t *out)
{
	void (*inside)(void) = script.inside;
	int ret = script.ret;
	size_t n = script.out;

	script.inside = NULL;
	if (inside)
		inside();
	if (out)
		*out = n;
	return ret;
}

PROBED int fake_read(void *obj, void *buf, int n)
{
	__asm__ volatile("" : : "r"(obj), "r"(buf), "r"(n) : "memory");
	return perform(NULL);
}

PROBED int fake_read_ex(void *obj, void *buf, size_t n, size_t *out)
{
	__asm__ volatile("" : : "r"(obj), "r"(buf), "r"(n) : "memory");
	return perform(out);
}

PROBED int fake_write(void *obj, const void *buf, int n)
{
	__asm__ volatile("" : : "r"(obj), "r"(buf), "r"(n) : "memory");
	return perform(NULL);
}

PROBED int fake_write_ex2(void *obj, const void *buf, size_t n, unsigned long flags, size_t *out)
{
	__asm__ volatile("" : : "r"(obj), "r"(buf), "r"(n), "r"(flags) : "memory");
	return perform(out);
}

/* A tail call, as in OpenSSL 3.3 and later. */
PROBED __attribute__((optimize("O2"))) int fake_write_ex(void *obj, const void *buf, size_t n, size_t *out)
{
	return fake_write_ex2(obj, buf, n, 0, out);
}

/* A loop around partial writes: its own bytes were all told by the calls inside. */
PROBED int fake_write_all(void *obj, const void *buf, int n)
{
	int done = 0;

	while (done < n) {
		script.ret = n - done < 4 ? n - done : 4;
		done += fake_write(obj, (const char *)buf + done, n - done);
	}
	return done;
}

PROBED int fake_peek(void *obj, void *buf, int n)
{
	__asm__ volatile("" : : "r"(obj), "r"(buf), "r"(n) : "memory");
	return perform(NULL);
}

PROBED int fake_handshake(void *obj)
{
	__asm__ volatile("" : : "r"(obj) : "memory");
	return perform(NULL);
}

PROBED int fake_handshake_zero(void *obj)
{
	__asm__ volatile("" : : "r"(obj) : "memory");
	return perform(NULL);
}

PROBED void *fake_new(void *result)
{
	__asm__ volatile("" : "+r"(result) : : "memory");
	return result;
}

PROBED void fake_free(void *obj)
{
	__asm__ volatile("" : : "r"(obj) : "memory");
}

/* As a cipher in place does: what was plain is not any more. */
PROBED int fake_seal(void *ctx, void *out, size_t *out_len, size_t max, const void *nonce, size_t nonce_len,
		     const void *in, size_t in_len, const void *ad, size_t ad_len)
{
	__asm__ volatile(""
			 :
			 : "r"(ctx), "r"(max), "r"(nonce), "r"(nonce_len), "r"(in), "r"(ad), "r"(ad_len)
			 : "memory");
	memset(out, 'X', in_len);
	return perform(out_len);
}

PROBED int fake_open(void *ctx, void *out, size_t *out_len, size_t max, const void *nonce, size_t nonce_len,
		     const void *in, size_t in_len, const void *ad, size_t ad_len)
{
	__asm__ volatile(""
			 :
			 : "r"(ctx), "r"(out), "r"(max), "r"(nonce), "r"(nonce_len), "r"(in), "r"(in_len)
			 : "memory");
	__asm__ volatile("" : : "r"(ad), "r"(ad_len) : "memory");
	return perform(out_len);
}

int do_read(void *obj, void *buf, int ret)
{
	script.ret = ret;
	return fake_read(obj, buf, 4096);
}

void do_read_ex(void *obj, void *buf, int ret, size_t out)
{
	size_t got = 0;

	script.ret = ret;
	script.out = out;
	fake_read_ex(obj, buf, 16384, &got);
}

int do_write(void *obj, const void *buf, int ret)
{
	script.ret = ret;
	return fake_write(obj, buf, 1 << 30);
}

void do_write_ex(void *obj, const void *buf, int ret, size_t out)
{
	size_t got = 0;

	script.ret = ret;
	script.out = out;
	fake_write_ex(obj, buf, 1 << 20, &got);
}

void do_handshake(void *obj, int ret)
{
	script.ret = ret;
	fake_handshake(obj);
}

char objects[4][16];
uint8_t *big;
char text[4096];

uint8_t pattern(uint64_t at)
{
	return (uint8_t)(at * 7 + (at >> 8) * 13 + 1);
}

void make_bytes(void)
{
	size_t i;

	big = malloc(BIG);
	if (!big)
		abort();
	for (i = 0; i < BIG; i++)
		big[i] = pattern(i);
	for (i = 0; i < sizeof(text); i++)
		text[i] = (char)('a' + i % 26);
}
