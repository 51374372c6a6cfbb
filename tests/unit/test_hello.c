/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The greetings of both sides; more of the client's host is in test_wire.c. */
#include "harness.h"

#include "base/err.h"
#include "flow/hello.h"

#define SESSION "0123456789abcdef0123456789abcdef"

struct text {
	char bytes[512];
	size_t len;
};

static void put(struct text *t, const void *ptr, size_t len)
{
	memcpy(t->bytes + t->len, ptr, len);
	t->len += len;
}

static void put_number(struct text *t, size_t n, unsigned bytes)
{
	while (bytes--)
		t->bytes[t->len++] = (char)(n >> (8 * bytes));
}

/* record: with its header. extensions: as on the wire, NULL: none, not even their length. */
static void greet(struct text *out, bool record, int type, const char *session, const char *random,
		  const struct text *extensions)
{
	struct text t = {0};

	put(&t, "\3\3", 2);
	for (size_t i = 0; i < 32; i++)
		put(&t, i < strlen(random) ? random + i : "r", 1);
	put_number(&t, strlen(session), 1);
	put(&t, session, strlen(session));
	put(&t, type == 1 ? "\0\2\x13\1\1\0" : "\x13\1\0", type == 1 ? 6 : 3);
	if (extensions) {
		put_number(&t, extensions->len, 2);
		put(&t, extensions->bytes, extensions->len);
	}
	out->len = 0;
	if (record) {
		put(out, "\x16\3\3", 3);
		put_number(out, t.len + 4, 2);
	}
	put_number(out, (size_t)type, 1);
	put_number(out, t.len, 3);
	put(out, t.bytes, t.len);
}

static void extension(struct text *t, unsigned type, const char *body, size_t len)
{
	put_number(t, type, 2);
	put_number(t, len, 2);
	put(t, body, len);
}

static struct sv sv(const struct text *t)
{
	return (struct sv){t->bytes, t->len};
}

static const char retry[] = "\xcf\x21\xad\x74\xe5\x9a\x61\x11";

static void servers(void **state)
{
	static const struct {
		bool key, v13, none;
		const char *session, *random;
		int resumed;
	} rows[] = {
		{true, true, false, SESSION, "", 1},	 {false, true, false, SESSION, "", 0}, /* echoed by all */
		{false, false, false, SESSION, "", 1},	 {false, false, true, SESSION, "", 1},
		{false, false, false, "other", "", 0},	 {false, false, true, "", "", 0},
		{true, true, false, SESSION, retry, -1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct text e = {0}, t;

		extension(&e, 51, "some key share", 14);
		if (rows[i].v13)
			extension(&e, 43, "\3\4", 2);
		if (rows[i].key)
			extension(&e, 41, "\0\0", 2);
		for (int record = 0; record <= 1; record++) {
			greet(&t, record, 2, rows[i].session, rows[i].random, rows[i].none ? NULL : &e);
			put(&t, "\x16\3\3 the certificate", 19);
			assert_int_equal(hello_resumed(sv(&t), SV(SESSION)), rows[i].resumed);
		}
	}
	assert_int_equal(hello_resumed(SV_NONE, SV_NONE), -1);
	assert_int_equal(hello_resumed(SV("\x15\3\3\0\2\2\50"), SV_NONE), -1); /* an alert */
}

static void clients(void **state)
{
	struct text t;

	(void)state;
	greet(&t, true, 1, SESSION, "", NULL);
	assert_true(sv_eq(hello_session(sv(&t)), SV(SESSION)));
	greet(&t, true, 1, "", "", NULL);
	assert_int_equal(hello_session(sv(&t)).len, 0);
	greet(&t, true, 1, SESSION "x", "", NULL); /* longer than any */
	assert_int_equal(hello_session(sv(&t)).len, 0);
	greet(&t, true, 2, SESSION, "", NULL);
	assert_int_equal(hello_session(sv(&t)).len, 0);
}

#define NAME_EXTENSION                                                                                                 \
	"\0\x12\0\0\x0f"                                                                                               \
	"api.example.com"

/* A name, unless it may be that of a front. */
static void hosts(void **state)
{
	struct text t = {0}, extensions = {0};

	(void)state;
	extension(&extensions, 10, "\0\2\0\x1d", 4);
	extension(&extensions, 0, NAME_EXTENSION, 20);
	extension(&extensions, 43, "\2\3\4", 3);
	greet(&t, true, 1, SESSION, "", &extensions);
	assert_true(sv_eq(hello_host(sv(&t)), SV("api.example.com")));
	extension(&extensions, 0xfe0d, "\0\0\1\0\1\7\0\0\0\0", 10);
	greet(&t, true, 1, SESSION, "", &extensions);
	assert_null(hello_host(sv(&t)).ptr);
}

/* In two records, wherever the second begins: the whole name, or none. */
static void host_in_two_records(void **state)
{
	struct text t = {0}, extensions = {0};
	unsigned found = 0;

	(void)state;
	/* Who takes the second record's header for a part of this is five bytes early behind it, and reads a name. */
	extension(&extensions, 21, "------\0\0\0\x14\0", 11);
	extension(&extensions, 0x1200, "not.example.com", 15);
	extension(&extensions, 0, NAME_EXTENSION, 20);
	extension(&extensions, 43, "\2\3\4", 3);
	greet(&t, true, 1, SESSION, "", &extensions);
	for (size_t at = 1; at < t.len - 5; at++) {
		struct text two = {0};
		struct sv host;

		put(&two, "\x16\3\1", 3);
		put_number(&two, at, 2);
		put(&two, t.bytes + 5, at);
		put(&two, "\x16\3\1", 3);
		put_number(&two, t.len - 5 - at, 2);
		put(&two, t.bytes + 5 + at, t.len - 5 - at);
		host = hello_host(sv(&two));
		assert_true(!host.ptr || sv_eq(host, SV("api.example.com")));
		found += host.ptr != NULL;
	}
	assert_true(found > 0);
}

static void cut_anywhere(void **state)
{
	struct text e = {0}, client, server;
	struct guard g = {0};

	(void)state;
	extension(&e, 43, "\3\4", 2);
	extension(&e, 41, "\0\0", 2);
	greet(&client, true, 1, SESSION, "", &e);
	greet(&server, true, 2, SESSION, "", &e);
	for (size_t cut = 0; cut <= client.len; cut++) {
		struct sv got = hello_session((struct sv){(const char *)guard_copy(&g, client.bytes, cut), cut});

		assert_true(!got.len || sv_eq(got, SV(SESSION)));
		assert_int_equal(got.len, cut < 5 + 4 + 34 + 1 + 32 ? 0 : 32);
		assert_int_equal(hello_record_bytes((struct sv){(const char *)guard_copy(&g, client.bytes, cut), cut}),
				 cut < 6 ? 0 : client.len);
	}
	assert_int_equal(hello_record_bytes(sv(&server)), 0);
	for (size_t cut = 0; cut <= server.len; cut++)
		assert_int_equal(
			hello_resumed((struct sv){(const char *)guard_copy(&g, server.bytes, cut), cut}, SV(SESSION)),
			cut < server.len ? -1 : 1);
	for (size_t i = 0; i < server.len; i++) {
		for (unsigned v = 0; v < 256; v += 3) {
			char was = server.bytes[i];

			server.bytes[i] = (char)v;
			hello_resumed((struct sv){(const char *)guard_copy(&g, server.bytes, server.len), server.len},
				      SV(SESSION));
			hello_session((struct sv){(const char *)guard_copy(&g, server.bytes, server.len), server.len});
			server.bytes[i] = was;
		}
	}
	guard_free(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(servers),	cmocka_unit_test(clients),
		cmocka_unit_test(hosts),	cmocka_unit_test(host_in_two_records),
		cmocka_unit_test(cut_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
