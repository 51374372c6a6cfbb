/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The same functions as a compiler makes them; built with several options (Makefile: SHAPE_FLAGS_compiled_NAME). */
#include <stddef.h>

struct ssl {
	int state, shutdown;
	void *handler;
	int (*read)(struct ssl *s, void *buf, size_t n, size_t *done);
	int (*write)(struct ssl *s, const void *buf, size_t n, int flags, size_t *done);
};

#define PUBLIC __attribute__((visibility("default")))
PUBLIC int SSL_do_handshake(struct ssl *s);
PUBLIC int SSL_read(struct ssl *s, void *buf, int n);
PUBLIC int SSL_read_ex(struct ssl *s, void *buf, size_t n, size_t *done);
PUBLIC int SSL_write(struct ssl *s, const void *buf, int n);
PUBLIC int SSL_write_ex2(struct ssl *s, const void *buf, size_t n, unsigned long flags, size_t *done);
PUBLIC int SSL_write_ex(struct ssl *s, const void *buf, size_t n, size_t *done);
PUBLIC int raised;
int raised;

__attribute__((noinline, cold)) static void raise_error(int line)
{
	raised = line;
	__asm__ volatile("" ::: "memory");
}

int SSL_do_handshake(struct ssl *s)
{
	if (!s->handler) {
		raise_error(1);
		return -1;
	}
	s->state = 1;
	return 1;
}

__attribute__((noinline)) static void check_finish_init(struct ssl *s)
{
	if (s->state == 8)
		SSL_do_handshake(s);
}

__attribute__((noinline)) static int ssl_read_internal(struct ssl *s, void *buf, size_t n, size_t *done)
{
	if (!s->handler) {
		raise_error(2);
		return -1;
	}
	if (s->shutdown & 2)
		return 0;
	check_finish_init(s);
	return s->read(s, buf, n, done);
}

__attribute__((noinline)) static int ssl_write_internal(struct ssl *s, const void *buf, size_t n, int flags,
							size_t *done)
{
	if (!s->handler) {
		raise_error(3);
		return -1;
	}
	check_finish_init(s);
	return s->write(s, buf, n, flags, done);
}

int SSL_read(struct ssl *s, void *buf, int n)
{
	size_t done;
	int ret;

	if (n < 0) {
		raise_error(4);
		return -1;
	}
	ret = ssl_read_internal(s, buf, (size_t)n, &done);
	return ret > 0 ? (int)done : ret;
}

int SSL_read_ex(struct ssl *s, void *buf, size_t n, size_t *done)
{
	int ret = ssl_read_internal(s, buf, n, done);

	return ret < 0 ? 0 : ret;
}

int SSL_write(struct ssl *s, const void *buf, int n)
{
	size_t done;
	int ret;

	if (n < 0) {
		raise_error(5);
		return -1;
	}
	ret = ssl_write_internal(s, buf, (size_t)n, 0, &done);
	return ret > 0 ? (int)done : ret;
}

int SSL_write_ex2(struct ssl *s, const void *buf, size_t n, unsigned long flags, size_t *done)
{
	int ret = ssl_write_internal(s, buf, n, (int)flags, done);

	return ret < 0 ? 0 : ret;
}

int SSL_write_ex(struct ssl *s, const void *buf, size_t n, size_t *done)
{
	return SSL_write_ex2(s, buf, n, 0, done);
}
