/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records of every size, and what is told of a call that is longer than what is copied of one. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/err.h"
#include "bpftest.h"

static void case_chunks(void)
{
	do_write(A, big, 300 * 1024);
	do_read(A, big, 16384 * 2 + 5);
}

static void golden_chunks(char *out, size_t size)
{
	size_t len = (size_t)snprintf(out, size, "open A1\n");
	unsigned at, n;

	for (at = 0; at < 300 * 1024; at += n) {
		n = 300 * 1024 - at < LIMIT_CHUNK_BYTES ? 300 * 1024 - at : LIMIT_CHUNK_BYTES;
		len += (size_t)snprintf(out + len, size - len, "data A1 tx %u+%u pattern\n", at, n);
	}
	snprintf(out + len, size - len,
		 "data A1 rx 0+16384 pattern\ndata A1 rx 16384+16384 pattern\ndata A1 rx 32768+5 pattern\n"
		 "exit 0 signal 0\n");
}

/* Every class of record sizes and its edges. */
static void case_sizes(void)
{
	static const int sizes[] = {1, 7, 8, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 16383, 16384};
	size_t i, at = 0;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		do_read(A, big + at, sizes[i]);
		at += (size_t)sizes[i];
	}
}

static void golden_sizes(char *out, size_t size)
{
	static const unsigned sizes[] = {1, 7, 8, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 16383, 16384};
	size_t i, len = (size_t)snprintf(out, size, "open A1\n");
	unsigned at = 0;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		len += (size_t)snprintf(out + len, size - len, "data A1 rx %u+%u pattern\n", at, sizes[i]);
		at += sizes[i];
	}
	snprintf(out + len, size - len, "exit 0 signal 0\n");
}

static void case_capped(void)
{
	do_write(A, big, BIG);
	do_write(A, big, 100);
	do_read(A, text, 1);
	do_write(A, text, 3);
}

static void test_capped(void)
{
	static char golden[65536];
	size_t len = (size_t)snprintf(golden, sizeof(golden), "open A1\n");

	for (unsigned i = 0; i < LIMIT_CHUNKS_PER_CALL; i++)
		len += (size_t)snprintf(golden + len, sizeof(golden) - len, "data A1 tx %u+%u pattern\n",
					i * LIMIT_CHUNK_BYTES, LIMIT_CHUNK_BYTES);
	snprintf(golden + len, sizeof(golden) - len,
		 "data A1 tx %u+0/%u capped\ndata A1 tx %u+16 pattern\ndata A1 tx %u+16 pattern\ndata A1 tx %u+0/68 "
		 "capped\n"
		 "data A1 tx %u+16 pattern\ndata A1 rx 0+1 'a'\ndata A1 tx %u+3 'abc'\nexit 0 signal 0\n",
		 LIMIT_REQUEST_BYTES, BIG - LIMIT_REQUEST_BYTES - 16, BIG - 16, BIG, BIG + 16, BIG + 84, BIG + 100);
	check("a huge request is capped", golden, case_capped);
}

/* --- past the limit: headers of HTTP/2's frames ------------------------------------------------------------------- */

#define WIRE_BYTES (BIG + 4096)
#define PREFACE	   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define FRAMES_LEN 1700175

static uint8_t wire[WIRE_BYTES]; /* headers of HTTP/2's frames, and the pattern between them */

static size_t put_frame(size_t at, unsigned type, unsigned flags, unsigned stream, size_t len)
{
	const uint8_t head[9] = {
		(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, (uint8_t)type, (uint8_t)flags, 0, 0, 0,
		(uint8_t)stream};

	memcpy(wire + at, head, sizeof(head));
	return at + sizeof(head) + len;
}

static void make_wire(void)
{
	for (size_t i = 0; i < WIRE_BYTES; i++)
		wire[i] = pattern(i);
	expected = wire;
}

/* The third frame goes across the limit; the last one is not whole. */
static void put_frames(size_t at)
{
	for (int i = 0; i < 3; i++)
		at = put_frame(at, 0, 0, 1, 400000);
	at = put_frame(at, 1, 4, 3, 30);
	at = put_frame(at, 0, 9, 3, 500000); /* padded */
	put_frame(at, 0, 0, 1, 400000);
}

static size_t golden_from(char *out, size_t size, const char *what, unsigned from, unsigned to)
{
	size_t len = 0;

	for (unsigned n; from < to; from += n) {
		n = to - from < LIMIT_CHUNK_BYTES ? to - from : LIMIT_CHUNK_BYTES;
		len += (size_t)snprintf(out + len, size - len, "data %s %u+%u pattern\n", what, from, n);
	}
	return len;
}

static size_t golden_frames(char *out, size_t size, const char *what, unsigned at)
{
	size_t len = golden_from(out, size, what, at, at + LIMIT_REQUEST_BYTES);

	return len + (size_t)snprintf(out + len, size - len,
				      "data %s %u+0/151451 capped\ndata %s %u+39 pattern capped\n"
				      "data %s %u+10/500009 pattern capped\ndata %s %u+9/100 pattern capped\n",
				      what, at + LIMIT_REQUEST_BYTES, what, at + 1200027, what, at + 1200066, what,
				      at + 1700075);
}

static void case_frames(void)
{
	do_write(A, wire, FRAMES_LEN);
	do_write(A, wire + FRAMES_LEN, 3);
}

static void test_frames(void)
{
	static char golden[16384];
	size_t len = (size_t)snprintf(golden, sizeof(golden), "open A1\n");

	make_wire();
	put_frames(0);
	len += golden_frames(golden + len, sizeof(golden) - len, "A1 tx", 0);
	snprintf(golden + len, sizeof(golden) - len, "data A1 tx %u+3 pattern\nexit 0 signal 0\n", FRAMES_LEN);
	check("past the limit of a call headers of frames are copied", golden, case_frames);
}

static void case_frames_cut(void)
{
	do_write(A, wire, 1048572 + 30009);
}

static void test_frames_cut(void)
{
	static char golden[16384];
	size_t len = (size_t)snprintf(golden, sizeof(golden), "open A1\n");

	make_wire();
	put_frame(put_frame(0, 0, 0, 1, 1048572 - 9), 0, 1, 1, 30000);
	len += golden_from(golden + len, sizeof(golden) - len, "A1 tx", 0, LIMIT_REQUEST_BYTES);
	snprintf(golden + len, sizeof(golden) - len, "data A1 tx %u+5/30005 pattern capped\nexit 0 signal 0\n",
		 LIMIT_REQUEST_BYTES);
	check("the limit may lie in a frame's header", golden, case_frames_cut);
}

/* Where the limit is of a request: each call past it. */
static void case_request_frames(void)
{
	do_write(A, big, LIMIT_REQUEST_BYTES);
	do_write(A, wire + LIMIT_REQUEST_BYTES, 60000);
}

static void test_request_frames(void)
{
	static char golden[16384];
	unsigned at = LIMIT_REQUEST_BYTES;
	size_t len = (size_t)snprintf(golden, sizeof(golden), "open A1\n");

	make_wire();
	put_frame(put_frame(put_frame(at, 0, 0, 1, 20000), 8, 0, 0, 4), 0, 1, 1, 50000);
	len += golden_from(golden + len, sizeof(golden) - len, "A1 tx", 0, LIMIT_REQUEST_BYTES);
	snprintf(golden + len, sizeof(golden) - len,
		 "data A1 tx %u+16 pattern\ndata A1 tx %u+0/19993 capped\ndata A1 tx %u+13 pattern capped\n"
		 "data A1 tx %u+9/39978 pattern capped\nexit 0 signal 0\n",
		 at, at + 16, at + 20009, at + 20022);
	check("past the limit of a request headers of frames are copied", golden, case_request_frames);
	expected = NULL;
}

/* --- with --http: the end of a call ------------------------------------------------------------------------------- */

static void case_tail(void)
{
	do_read(A, wire, BIG);
}

static void test_tail(void)
{
	static char golden[16384];
	size_t len = (size_t)snprintf(golden, sizeof(golden), "open A1\n");

	make_wire();
	len += golden_from(golden + len, sizeof(golden) - len, "A1 rx", 0, LIMIT_REQUEST_BYTES);
	len += (size_t)snprintf(golden + len, sizeof(golden) - len, "data A1 rx %u+0/%u capped\n", LIMIT_REQUEST_BYTES,
				BIG - LIMIT_REQUEST_BYTES - LIMIT_CAPPED_TAIL_BYTES);
	len += golden_from(golden + len, sizeof(golden) - len, "A1 rx", BIG - LIMIT_CAPPED_TAIL_BYTES, BIG);
	snprintf(golden + len, sizeof(golden) - len, "exit 0 signal 0\n");
	check("where there are no frames the end of a call is copied", golden, case_tail);
}

/* To somebody who does not read: the kernel takes it all at once. */
static int connect_with_room(void)
{
	int fd = connect_to(port), room = 4 * BIG;

	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	need(write(fd, wire, sizeof(PREFACE) - 1), sizeof(PREFACE) - 1);
	return fd;
}

static void case_plain_frames(void)
{
	int fd = connect_with_room();

	need(write(fd, wire + sizeof(PREFACE) - 1, FRAMES_LEN), FRAMES_LEN);
	_exit(0);
}

#define SCATTERED 700000
static void case_plain_tail(void)
{
	uint8_t *at = wire + sizeof(PREFACE) - 1;
	struct iovec v[3] = {IOV(at, 5), IOV(at + 5, SCATTERED), IOV(at + 5 + SCATTERED, SCATTERED)};
	int fd = connect_with_room();

	need(writev(fd, v, 3), 5 + 2 * SCATTERED);
	_exit(0);
}

/* How its socket ends is another test's. */
static void check_unread(const char *name, const char *golden, void (*fn)(void))
{
	static const char last[] = "exit 0 signal 0\n";
	pid_t server = fork();
	char *end;

	if (server == 0) {
		serve_nothing(1);
		_exit(0);
	}
	run_child(fn, true);
	end_server(server);
	end = got ? strstr(got, last) : NULL;
	if (end)
		end[sizeof(last) - 1] = '\0';
	expect(name, golden);
}

static void test_plain_past_limit(void)
{
	static char golden[16384];
	const unsigned begin = sizeof(PREFACE) - 1, second = begin + 5 + SCATTERED, limit = begin + LIMIT_REQUEST_BYTES,
		       tail = begin + 5 + 2 * SCATTERED - LIMIT_CAPPED_TAIL_BYTES;
	size_t head, len;

	make_wire();
	memcpy(wire, PREFACE, begin);
	head = (size_t)snprintf(golden, sizeof(golden), PLAIN_OPEN "data x1 tx 0+%u pattern\n", begin);
	len = head + golden_from(golden + head, sizeof(golden) - head, "x1 tx", begin, begin + 5);
	len += golden_from(golden + len, sizeof(golden) - len, "x1 tx", begin + 5, second);
	len += golden_from(golden + len, sizeof(golden) - len, "x1 tx", second, limit);
	len += (size_t)snprintf(golden + len, sizeof(golden) - len, "data x1 tx %u+0/%u capped\n", limit, tail - limit);
	len += golden_from(golden + len, sizeof(golden) - len, "x1 tx", tail, tail + LIMIT_CAPPED_TAIL_BYTES);
	snprintf(golden + len, sizeof(golden) - len, "exit 0 signal 0\n");
	check_unread("a plain socket: the end of many pieces", golden, case_plain_tail);
	put_frames(begin);
	len = head + golden_frames(golden + head, sizeof(golden) - head, "x1 tx", begin);
	snprintf(golden + len, sizeof(golden) - len, "exit 0 signal 0\n");
	check_unread("a plain socket: headers of frames in one piece", golden, case_plain_frames);
}

void limit_tests(void)
{
	static char golden[65536];

	golden_sizes(golden, sizeof(golden));
	check("records of every size", golden, case_sizes);
	golden_chunks(golden, sizeof(golden));
	check("a large write comes in chunks", golden, case_chunks);
	test_capped();
	test_request_frames();
}

void limit_tests_with_http(void)
{
	test_frames();
	test_frames_cut();
	test_tail();
	test_plain_past_limit();
	expected = NULL;
}
