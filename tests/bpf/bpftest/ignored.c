/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections that user space ignores, some for good, and what makes the kernel look at one again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bpftest.h"

static volatile int *ignore_step; /* shared with the child. 1: the connection is ignored */

static void ignore_this(const struct ev_data *d)
{
	if (d->len >= 6 && memcmp(d->bytes, "GET /n", 6) == 0 && !*ignore_step) {
		if (probes_ignore(probes, d->conn.gen, 0, true, true))
			note("IGNORE FAILED\n");
		*ignore_step = 1;
	}
	if (d->len < 6 || memcmp(d->bytes, "GET /i", 6) != 0 || *ignore_step)
		return;
	if (probes_ignore(probes, d->conn.gen, 0, true, false) || probes_ignore(probes, d->conn.gen, 0, true, false))
		note("IGNORE FAILED\n");
	if (probes_ignore(probes, d->conn.gen + LIMIT_IGNORED, 0, true, false) != -EBUSY)
		note("TWO IN ONE PLACE\n");
	if (probes_ignore(probes, d->conn.gen + LIMIT_IGNORED, 0, false, false))
		note("NOT ITS OWN\n");
	*ignore_step = 1;
}

static void wait_until_ignored(void)
{
	int i;

	for (i = 0; !*ignore_step && i < 5000; i++)
		usleep(1000);
}

static void case_ignored_plain(void)
{
	struct iovec v[2] = {IOV("GET /b ", 7), IOV(big, 8185)};
	char *buf = malloc(8192);
	int fd = connect_to(port);

	need(write(fd, "GET /i ", 7), 7);
	wait_until_ignored();
	need(recv(fd, buf, 7, MSG_WAITALL), 7);
	need(writev(fd, v, 2), 8192);
	need(recv(fd, buf, 4000, MSG_WAITALL), 4000);
	need(recv(fd, buf, 4192, MSG_WAITALL), 4192);
	need(write(fd, "GET /c ", 7), 7);
	need(recv(fd, buf, 7, MSG_WAITALL), 7);
	need(write(fd, "POST /d ", 8), 8);
	need(recv(fd, buf, 8, MSG_WAITALL), 8);
	close_and_settle(fd);
}

static const char golden_ignored_plain[] =
	PLAIN_OPEN "data x1 tx 0+7 'GET /i '\n"
		   "data x1 rx 0+0/7 ignored\n"
		   "data x1 tx 7+7 'GET /b '\n"
		   "data x1 tx 14+4089 BADBYTES\n" /* right, at another place */
		   "data x1 tx 4103+0/4096 ignored\n"
		   "data x1 rx 7+0/8192 ignored\n"
		   "data x1 tx 8199+7 'GET /c '\n"
		   "data x1 rx 8199+0/7 ignored\n"
		   "data x1 tx 8206+8 'POST /d '\n"
		   "data x1 rx 8206+8 'POST /d '\n" PLAIN_CLOSE "close x1 tx=8214 rx=8214\n"
		   "exit 0 signal 0\n";

static void case_ignored_tls(void)
{
	char request[] = "GET /i ", other[] = "GET /x ", post[] = "POST /y ";
	int i;

	do_write(A, request, 7);
	wait_until_ignored();
	do_read(A, text, 100);
	do_read(A, text, 100);
	do_write(A, other, 7);
	for (i = 0; i < 3; i++) /* more than LIMIT_IGNORED_READ_BYTES */
		do_read(A, big, 500000);
	do_read(A, big, 1);
	fake_free(A);
	do_write(A, post, 8);
	do_read(A, text, 5);
}

static const char golden_ignored_tls[] = "open A1\n"
					 "data A1 tx 0+7 'GET /i '\n"
					 "data A1 rx 0+0/200 ignored\n"
					 "data A1 tx 7+7 'GET /x '\n"
					 "data A1 rx 200+0/1500000 ignored\n"
					 "data A1 rx 1500200+0/1 ignored\n"
					 "close A1 tx=14 rx=1500201\n"
					 "data A1 tx 14+8 'POST /y '\n"
					 "data A1 rx 1500201+5 'abcde'\n"
					 "exit 0 signal 0\n";

static char post_y[] = "POST /y ", get_x[] = "GET /x ";

static void get_inside(void)
{
	script.inside = send_inside;
	do_write(A, get_x, 7);
	recv_inside();
}

static void post_inside(void)
{
	script.inside = send_inside;
	do_write(A, post_y, 8);
	recv_inside();
}

/* Both directions on one socket, so that threads remember the connection. */
static void bind_ignored(char *request)
{
	inside_fd = connect_to(port);
	fake_new(A);
	script.inside = send_inside;
	do_write(A, request, 7);
	wait_until_ignored();
	script.inside = recv_inside;
	do_read(A, text, 10);
}

/* Calls around and inside of reads that are let go; one of them asks for what the read brings. */
static void case_calm(void)
{
	char request[] = "GET /i ";
	int i;

	bind_ignored(request);
	for (i = 0; i < 3; i++)
		do_read(A, big, 500000);
	do_read(A, text, -1);
	do_read_ex(A, text, 1, 20);
	script.inside = get_inside;
	do_read(A, text, 3);
	do_read(A, text, 7);
	script.inside = post_inside;
	do_read(A, text, 5);
	do_read(A, text, 2);
	fake_free(A);
	fake_new(A);
	do_read(A, text, 3);
	close_and_settle(inside_fd);
}

static const char golden_calm[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				  "open A1 fresh\n"
				  "inside A1 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
				  "data A1 tx 0+7 'GET /i '\n"
				  "data A1 rx 0+0/1500010 ignored\n"
				  "data A1 rx 1500010+0/20 ignored\n"
				  "data A1 tx 7+7 'GET /x '\n"
				  "data A1 rx 1500030+0/10 ignored\n"
				  "data A1 tx 14+8 'POST /y '\n"
				  "data A1 rx 1500040+5 'abcde'\n"
				  "data A1 rx 1500045+2 'ab'\n"
				  "close A1 tx=22 rx=1500047\n"
				  "open A2 fresh\n"
				  "data A2 rx 0+3 'abc'\n"
				  "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				  "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				  "exit 0 signal 0\n";

/* Nothing is seen of it any more, until the object is another connection's. */
static void case_never(void)
{
	char request[] = "GET /n ";
	int i;

	bind_ignored(request);
	for (i = 0; i < 3; i++) {
		script.inside = send_inside;
		do_write(A, post_y, 8);
		script.inside = recv_inside;
		do_read(A, text, 9);
	}
	do_write(B, text, 4);
	do_write(A, post_y, 8);
	close_and_settle(inside_fd);
	inside_fd = connect_to(port);
	script.inside = send_inside;
	do_handshake(A, 1); /* SSL_clear, another socket */
	script.inside = recv_inside;
	do_read(A, text, 1);
	fake_free(A);
	fake_new(A);
	do_write(A, text, 2);
	close_and_settle(inside_fd);
}

static const char golden_never[] = "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				   "open A1 fresh\n"
				   "inside A1 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
				   "data A1 tx 0+7 'GET /n '\n"
				   "open B2\n"
				   "data B2 tx 0+4 'abcd'\n"
				   "data A1 rx 0+0/10 ignored\n"
				   "data A1 tx 7+0/8 ignored\n"
				   "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				   "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				   "sock connected 127.0.0.1:L>127.0.0.1:R\n"
				   "open A3 fresh\n"
				   "inside A3 tx wire=6 plain=0 127.0.0.1:L>127.0.0.1:R\n"
				   "handshake A3\n"
				   "data A3 rx 0+1 'a'\n"
				   "close A3 tx=0 rx=1\n"
				   "open A4 fresh\n"
				   "data A4 tx 0+2 'ab'\n"
				   "sock close-local 127.0.0.1:L>127.0.0.1:R\n"
				   "sock closed 127.0.0.1:L>127.0.0.1:R\n"
				   "exit 0 signal 0\n";

static void test_never(void)
{
	uint64_t before = stat_of(ST_IGNORED_BYTES);

	check_served("a connection that is ignored for good", golden_never, case_never, serve_echo, 2);
	verdict(stat_of(ST_IGNORED_BYTES) - before == 36, "its bytes are counted on the wire");
}

/* HEADERS with END_STREAM ask for something; those without, here behind a WINDOW_UPDATE, may call a model. */
static void case_ignored_http2(void)
{
	char request[] = "GET /i ", get[] = "\0\0\1\1\5\0\0\0\1\x82",
	     post[] = "\0\0\4\x08\0\0\0\0\0\0\0\1\0\0\0\1\1\4\0\0\0\3\x83";

	do_write(A, request, 7);
	wait_until_ignored();
	do_write(A, get, sizeof(get) - 1);
	do_read(A, text, 100);
	do_write(A, post, sizeof(post) - 1);
	do_read(A, text, 5);
}

static const char golden_ignored_http2[] = "open A1\n"
					   "data A1 tx 0+7 'GET /i '\n"
					   "data A1 tx 7+10 ''\n"
					   "data A1 rx 0+0/100 ignored\n"
					   "data A1 tx 17+23 ''\n"
					   "data A1 rx 100+5 'abcde'\n"
					   "exit 0 signal 0\n";

void ignored_tests(void)
{
	ignore_step = shared_page();
	on_data_hook = ignore_this;
	check_served("an ignored plain connection", golden_ignored_plain, case_ignored_plain, serve_echo, 1);
	*ignore_step = 0;
	check("an ignored TLS connection", golden_ignored_tls, case_ignored_tls);
	*ignore_step = 0;
	check("an ignored HTTP/2 connection", golden_ignored_http2, case_ignored_http2);
	*ignore_step = 0;
	check_served("reads of an ignored connection that are let go", golden_calm, case_calm, serve_echo, 1);
	*ignore_step = 0;
	if (probes_features(probes)->sock_length) /* elsewhere nobody would count its bytes */
		test_never();
	on_data_hook = NULL;
}
