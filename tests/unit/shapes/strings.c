/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is left of a static TLS library when it is stripped: functions that report errors with library, reason, file and
 * line. Compiled as different programs are; macros plant what a finder must not be taken in by (Makefile:
 * STRING_FLAGS_NAME).
 */
#include <stddef.h>

#define BORINGSSL "../vendor/boringssl/"
#ifndef AEAD_ROOT
#define AEAD_ROOT "/build/aws-lc/"
#endif
#define FUNCTION __attribute__((noinline, noclone, used, visibility("hidden")))
#ifdef __clang__
#undef FUNCTION
#define FUNCTION __attribute__((noinline, used, visibility("hidden")))
#endif

struct buffer {
	void *owner;
	const char *begin;
	size_t size;
};
struct ssl {
	void *method;
	int (*handshake)(struct ssl *s);
	int (*write)(struct ssl *s, const void *buf, int n);
	struct buffer *buffer;
	int quic;
};
struct aead {
	const void *method;
	int (*open)(const struct aead *c, void *out, size_t n);
	size_t tag;
};

FUNCTION void *copy_bytes(void *to, const void *from, size_t n);
#ifdef COLD /* reports are moved away from their functions */
__attribute__((cold))
#endif
FUNCTION void
put_error(int library, int unused, int reason, const char *file, unsigned line);
FUNCTION int SSL_do_handshake(struct ssl *s);
FUNCTION int ssl_read_impl(struct ssl *s);
FUNCTION int SSL_read(struct ssl *s, void *buf, int n);
FUNCTION int SSL_peek(struct ssl *s, void *buf, int n);
FUNCTION int SSL_write(struct ssl *s, const void *buf, int n);
FUNCTION int EVP_AEAD_CTX_open(const struct aead *c, void *out, size_t *out_len, size_t max, const void *nonce,
			       size_t nonce_len, const void *in, size_t in_len, const void *ad, size_t ad_len);
FUNCTION int EVP_AEAD_CTX_seal(const struct aead *c, void *out, size_t *out_len, size_t max, const void *nonce,
			       size_t nonce_len, const void *in, size_t in_len, const void *ad, size_t ad_len);
__attribute__((visibility("default"))) int use(struct ssl *s, const struct aead *c, char *buf, size_t n);

volatile int reported __attribute__((visibility("hidden")));

void *copy_bytes(void *to, const void *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((volatile char *)to)[i] = ((const char *)from)[i];
	return to;
}

void put_error(int library, int unused, int reason, const char *file, unsigned line)
{
	reported = library + unused + reason + *file + (int)line;
}

#ifndef NO_SSL
#define SSL_ERROR(reason) put_error(16, 0, reason, BORINGSSL "ssl/ssl_lib.cc", __LINE__)

int SSL_do_handshake(struct ssl *s)
{
	if (!s->handshake) {
		SSL_ERROR(134);
		return -1;
	}
	reported = 1;
	return s->handshake(s) + 1;
}

#define READ_BODY(name)                                                                                                \
	int name(struct ssl *s)                                                                                        \
	{                                                                                                              \
		if (!s->handshake) {                                                                                   \
			SSL_ERROR(226);                                                                                \
			return -1;                                                                                     \
		}                                                                                                      \
		while (!s->buffer->size) {                                                                             \
			int done = SSL_do_handshake(s);                                                                \
                                                                                                                       \
			if (done < 0)                                                                                  \
				return done;                                                                           \
			if (!done) {                                                                                   \
				SSL_ERROR(215);                                                                        \
				return -1;                                                                             \
			}                                                                                              \
		}                                                                                                      \
		return 1;                                                                                              \
	}

READ_BODY(ssl_read_impl)
#ifdef TWO_READS
FUNCTION int other_read_impl(struct ssl *s);
READ_BODY(other_read_impl)
#endif

#define PEEK                                                                                                           \
	size_t todo;                                                                                                   \
	int ret;                                                                                                       \
                                                                                                                       \
	if (s->quic) {                                                                                                 \
		SSL_ERROR(66);                                                                                         \
		return -1;                                                                                             \
	}                                                                                                              \
	ret = ssl_read_impl(s);                                                                                        \
	if (ret <= 0 || n <= 0)                                                                                        \
		return ret;                                                                                            \
	todo = (size_t)n < s->buffer->size ? (size_t)n : s->buffer->size;                                              \
	copy_bytes(buf, s->buffer->begin, todo);

int SSL_read(struct ssl *s, void *buf, int n)
{
	PEEK s->buffer->begin += todo;
	s->buffer->size -= todo;
	return (int)todo;
}

#ifdef WITH_PEEK
int SSL_peek(struct ssl *s, void *buf, int n)
{
	PEEK return (int)todo;
}
#endif

#define WRITE(name)                                                                                                    \
	int name(struct ssl *s, const void *buf, int n)                                                                \
	{                                                                                                              \
		int done;                                                                                              \
                                                                                                                       \
		if (s->quic) {                                                                                         \
			SSL_ERROR(66);                                                                                 \
			return -1;                                                                                     \
		}                                                                                                      \
		if (!s->handshake) {                                                                                   \
			SSL_ERROR(226);                                                                                \
			return -1;                                                                                     \
		}                                                                                                      \
		done = SSL_do_handshake(s);                                                                            \
		if (!done)                                                                                             \
			SSL_ERROR(215);                                                                                \
		if (n < 0) {                                                                                           \
			SSL_ERROR(111);                                                                                \
			return -1;                                                                                     \
		}                                                                                                      \
		return s->write(s, buf, n) + done;                                                                     \
	}

#ifndef NO_WRITE
WRITE(SSL_write)
#endif
#if defined(TWO_WRITES) || defined(STRAY)
FUNCTION int other_write(struct ssl *s, const void *buf, int n);
WRITE(other_write)
#endif
#ifdef STRAY /* a second one that nothing calls by its name */
int (*volatile stray)(struct ssl *s, const void *buf, int n) __attribute__((visibility("hidden"))) = other_write;
#endif
#endif

#ifdef AEAD
#define AEAD_ERROR(reason) put_error(30, 0, reason, AEAD_ROOT "crypto/fipsmodule/cipher/aead.c", __LINE__)

int EVP_AEAD_CTX_seal(const struct aead *c, void *out, size_t *out_len, size_t max, const void *nonce, size_t nonce_len,
		      const void *in, size_t in_len, const void *ad, size_t ad_len)
{
	if (in_len + c->tag < in_len) {
		AEAD_ERROR(117);
		return 0;
	}
	if (max < in_len) {
		AEAD_ERROR(103);
		return 0;
	}
	if (in != out && (const char *)in + in_len > (char *)out) {
		AEAD_ERROR(115);
		return 0;
	}
	*out_len = in_len + nonce_len + ad_len;
	reported = ad == nonce;
	return c->open(c, out, in_len) + 1;
}

int EVP_AEAD_CTX_open(const struct aead *c, void *out, size_t *out_len, size_t max, const void *nonce, size_t nonce_len,
		      const void *in, size_t in_len, const void *ad, size_t ad_len)
{
	if (in != out && (const char *)in + in_len > (char *)out) {
		AEAD_ERROR(115);
		return 0;
	}
	if (in_len < c->tag) {
		AEAD_ERROR(101);
		return 0;
	}
	if (max < in_len - c->tag) {
		AEAD_ERROR(103);
		return 0;
	}
	*out_len = in_len - c->tag + nonce_len + ad_len;
	reported = ad == nonce;
	return c->open(c, out, in_len - c->tag) + 1;
}
#endif

int use(struct ssl *s, const struct aead *c, char *buf, size_t n)
{
	size_t done = 0;
	int sum = 0;

#ifdef ODD_CALLS /* as linkers and compilers leave calls that went through the GOT */
	int (*volatile read)(struct ssl * s, void *buf, int n) = SSL_read;

	sum += read(s, buf, (int)n) + SSL_do_handshake(s);
	__asm__ volatile(".byte 0x67\n\tcall SSL_write" ::: "memory");
#elif !defined(NO_SSL)
	sum += SSL_read(s, buf, (int)n) + SSL_do_handshake(s);
#ifndef NO_WRITE
	sum += SSL_write(s, buf, (int)n);
#endif
#ifdef WITH_PEEK
	sum += SSL_peek(s, buf, (int)n);
#endif
#ifdef TWO_READS
	sum += other_read_impl(s);
#endif
#ifdef TWO_WRITES
	sum += other_write(s, buf, (int)n);
#endif
#ifdef STRAY
	sum += stray(s, buf, (int)n);
#endif
#endif
#ifdef AEAD
	sum += EVP_AEAD_CTX_seal(c, buf, &done, n, buf, 12, buf, n, buf, 5);
	sum += EVP_AEAD_CTX_open(c, buf, &done, n, buf, 12, buf, n, buf, 5);
#endif
	(void)s;
	(void)c;
	return sum + (int)done;
}
