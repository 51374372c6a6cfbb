/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tlsbench: what a tracer costs a program that does nothing but TLS.
 *   tlsbench server            serves on loopback, prints "listening PORT"
 *   tlsbench client PORT       prints "pid N"; each line "ping|bulk|get|call|stream COUNT SIZE [ex]" on stdin is one
 * timed run: "MODE NANOSECONDS CALLS" (wall time, and the TLS calls that the client made) ping, bulk, get: on one
 * connection, which calls no model. call, stream: on another one, which does nothing else. stream: COUNT records of
 * answers, each answer of BURST_RECORDS of them; the pauses between answers are not timed. TLSBENCH_CPU=N pins server
 * and client.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/tools/testcert.h"

#define SIZE_MAX_BYTES	  65536u
#define REQUEST_MAX_BYTES 256
#define CALL_MIN_BYTES	  256
#define ANSWER_BYTES	  512 /* of a model's call: head and body */
#define BURST_RECORDS	  64
#define BURST_PAUSE_NS	  15000000 /* perfbpf tells all of one meanwhile: nothing is lost */

#define STREAM "\r\nRecords: "

struct order {
	uint32_t bulk, size, count, zero;
};

static SSL_CTX *ctx;

static void die(const char *what)
{
	fprintf(stderr, "tlsbench: %s: %s\n", what, strerror(errno));
	ERR_print_errors_fp(stderr);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pin(void)
{
	const char *cpu = getenv("TLSBENCH_CPU");
	cpu_set_t one;

	if (!cpu)
		return;
	CPU_ZERO(&one);
	CPU_SET(atoi(cpu), &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/* --- both ends --------------------------------------------------------------------------------------------------- */

static int read_all(SSL *s, void *buf, size_t len, int ex, unsigned long *calls)
{
	char *at = buf;

	while (len) {
		size_t done = 0;
		int n = ex ? SSL_read_ex(s, at, len, &done) : SSL_read(s, at, (int)len);

		++*calls;
		if (n <= 0)
			return -1;
		done = ex ? done : (size_t)n;
		at += done;
		len -= done;
	}
	return 0;
}

static int write_all(SSL *s, const void *buf, size_t len, int ex, unsigned long *calls)
{
	size_t done;

	++*calls;
	return (ex ? SSL_write_ex(s, buf, len, &done) : SSL_write(s, buf, (int)len)) > 0 ? 0 : -1;
}

static void no_delay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* --- server ------------------------------------------------------------------------------------------------------ */

static int serve_order(SSL *s, const struct order *o, char *buf)
{
	unsigned long calls = 0;
	uint32_t i;

	for (i = 0; i < o->count; i++) {
		if (!o->bulk && read_all(s, buf, o->size, 0, &calls))
			return -1;
		if (write_all(s, buf, o->size, 0, &calls))
			return -1;
	}
	return 0;
}

/* A request of HTTP: GET /COUNT/SIZE, answered with so many records. */
static int serve_get(SSL *s, char *buf)
{
	struct order o = {.bulk = 1};
	unsigned long calls = 0;
	int n;

	if (sscanf(buf, "GET /%u/%u ", &o.count, &o.size) != 2 || !o.size || o.size > SIZE_MAX_BYTES)
		return -1;
	n = snprintf(buf, REQUEST_MAX_BYTES, "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n",
		     (unsigned long long)o.count * o.size);
	return write_all(s, buf, (size_t)n, 0, &calls) ? -1 : serve_order(s, &o, buf);
}

/* A model's call and its answer, each of one size in one record: what a chat API says, as short as it may be. */
static void make_call(char *out, size_t size)
{
	static const char format[] = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
				     "Content-Type: application/json\r\nContent-Length: %5zu\r\n\r\n";
	static const char begin[] = "{\"model\":\"bench\",\"messages\":[{\"role\":\"user\",\"content\":\"";
	static const char end[] = "\"}]}";
	size_t head = (size_t)snprintf(NULL, 0, format, size);

	memset(out, 'x', size);
	memcpy(out + head, begin, sizeof(begin) - 1);
	memcpy(out + size - (sizeof(end) - 1), end, sizeof(end) - 1);
	head = (size_t)snprintf(out, size, format, size - head);
	out[head] = '{'; /* where the text's end was */
}

static int answer_call(SSL *s, char *buf)
{
	static const char body[] =
		"{\"id\":\"c\",\"object\":\"chat.completion\",\"model\":\"bench\",\"choices\":[{\"index\":0,"
		"\"message\":{\"role\":\"assistant\",\"content\":\"yes\"},\"finish_reason\":\"stop\"}],"
		"\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"total_tokens\":11}}";
	unsigned long calls = 0;
	int head = snprintf(buf, ANSWER_BYTES,
			    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
			    ANSWER_BYTES - 72);

	memset(buf + head, ' ', ANSWER_BYTES - (size_t)head);
	memcpy(buf + head, body, sizeof(body) - 1);
	return write_all(s, buf, ANSWER_BYTES, 0, &calls);
}

/* A model's answer that streams: records of one event each, and one that says it is the last. STREAM COUNT/SIZE is a
 * header of the request. */
static int stream_answer(SSL *s, const char *order, char *buf)
{
	static const char begin[] = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"", end[] = "\"}}]}\n\n",
			  last[] = "data: [DONE]\n\n";
	struct order o = {.bulk = 1};
	unsigned long calls = 0;
	int n;

	if (sscanf(order, STREAM "%u/%u", &o.count, &o.size) != 2 || o.size < CALL_MIN_BYTES || o.size > SIZE_MAX_BYTES)
		return -1;
	n = snprintf(buf, REQUEST_MAX_BYTES,
		     "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %llu\r\n\r\n",
		     (unsigned long long)o.count * o.size + sizeof(last) - 1);
	if (write_all(s, buf, (size_t)n, 0, &calls))
		return -1;
	memset(buf, 'x', o.size);
	memcpy(buf, begin, sizeof(begin) - 1);
	memcpy(buf + o.size - (sizeof(end) - 1), end, sizeof(end) - 1);
	return serve_order(s, &o, buf) || write_all(s, last, sizeof(last) - 1, 0, &calls) ? -1 : 0;
}

static int serve_call(SSL *s, char *buf)
{
	const char *order = strstr(buf, STREAM);

	return order ? stream_answer(s, order, buf) : answer_call(s, buf);
}

/* The client sends each in one record. */
static int serve_next(SSL *s, char *buf)
{
	struct order o;
	int n = SSL_read(s, buf, SIZE_MAX_BYTES - 1);

	if (n < (int)sizeof(o))
		return -1;
	buf[n] = '\0';
	if (memcmp(buf, "GET ", 4) == 0)
		return serve_get(s, buf);
	if (memcmp(buf, "POST", 4) == 0)
		return serve_call(s, buf);
	memcpy(&o, buf, sizeof(o));
	return o.size > SIZE_MAX_BYTES ? -1 : serve_order(s, &o, buf);
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char *buf = calloc(1, SIZE_MAX_BYTES);
	SSL *s = SSL_new(ctx);

	no_delay(fd);
	if (s && buf && SSL_set_fd(s, fd) == 1 && SSL_accept(s) == 1)
		while (!serve_next(s, buf))
			;
	ERR_clear_error();
	SSL_free(s);
	free(buf);
	close(fd);
	return NULL;
}

static _Noreturn void run_server(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ctx = SSL_CTX_new(TLS_server_method());
	if (!ctx || testcert_use(ctx, NULL))
		die("certificate");
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 16) ||
	    getsockname(fd, (struct sockaddr *)&at, &len))
		die("listen");
	printf("listening %u\n", ntohs(at.sin_port));
	fflush(stdout);
	for (;;) {
		pthread_t thread;
		int peer = accept(fd, NULL, NULL);

		if (peer < 0)
			die("accept");
		if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)peer))
			die("thread");
		pthread_detach(thread);
	}
}

/* --- client ------------------------------------------------------------------------------------------------------ */

/* A download: the request and the head of its response. */
static void ask(SSL *s, const struct order *o, int ex)
{
	char head[REQUEST_MAX_BYTES];
	unsigned long calls = 0;
	size_t have = 0;
	int n = snprintf(head, sizeof(head), "GET /%u/%u HTTP/1.1\r\nHost: localhost\r\n\r\n", o->count, o->size);

	if (write_all(s, head, (size_t)n, ex, &calls))
		die("write");
	while (have < 4 || memcmp(head + have - 4, "\r\n\r\n", 4) != 0) {
		if (have == sizeof(head) || read_all(s, head + have, 1, ex, &calls))
			die("read");
		have++;
	}
}

static void run_order(SSL *s, const struct order *o, int get, int ex, char *buf)
{
	unsigned long calls = 0;
	uint64_t start;
	uint32_t i;

	if (get)
		ask(s, o, ex);
	else if (write_all(s, o, sizeof(*o), ex, &calls))
		die("write");
	memset(buf, 'y', o->size); /* no call's text, which would be one here too */
	calls = 0;
	start = now_ns();
	for (i = 0; i < o->count; i++) {
		if (!o->bulk && write_all(s, buf, o->size, ex, &calls))
			die("write");
		if (read_all(s, buf, o->size, ex, &calls))
			die("read");
	}
	printf("%s %llu %lu\n", get ? "get" : o->bulk ? "bulk" : "ping", (unsigned long long)(now_ns() - start), calls);
	fflush(stdout);
}

static void run_calls(SSL *s, uint32_t count, uint32_t size, int ex, char *buf)
{
	char answer[ANSWER_BYTES];
	unsigned long calls = 0;
	uint64_t start = now_ns();

	make_call(buf, size);
	while (count--)
		if (write_all(s, buf, size, ex, &calls) || read_all(s, answer, sizeof(answer), ex, &calls))
			die("call");
	printf("call %llu %lu\n", (unsigned long long)(now_ns() - start), calls);
	fflush(stdout);
}

/* The timed part of one answer: from its head, which comes in a record of its own, to its last record but one. */
static uint64_t read_burst(SSL *s, uint32_t count, uint32_t size, int ex, char *buf, unsigned long *calls)
{
	uint64_t took;

	if (SSL_read(s, buf, REQUEST_MAX_BYTES) <= 0)
		die("head");
	took = now_ns();
	while (count--)
		if (read_all(s, buf, size, ex, calls))
			die("stream");
	took = now_ns() - took;
	if (SSL_read(s, buf, REQUEST_MAX_BYTES) <= 0)
		die("end");
	return took;
}

static void run_stream(SSL *s, uint32_t count, uint32_t size, int ex, char *buf)
{
	static const char body[] = "{\"model\":\"bench\",\"stream\":true,\"messages\":[]}";
	const struct timespec pause = {.tv_nsec = BURST_PAUSE_NS};
	unsigned long calls = 0, others = 0;
	uint64_t took = 0;

	while (count) {
		uint32_t burst = count < BURST_RECORDS ? count : BURST_RECORDS;
		int n = snprintf(buf, REQUEST_MAX_BYTES,
				 "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost" STREAM "%u/%u\r\n"
				 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
				 burst, size, sizeof(body) - 1, body);

		if (write_all(s, buf, (size_t)n, ex, &others))
			die("write");
		took += read_burst(s, burst, size, ex, buf, &calls);
		count -= burst;
		nanosleep(&pause, NULL);
	}
	printf("stream %llu %lu\n", (unsigned long long)took, calls);
	fflush(stdout);
}

static SSL *connect_tls(unsigned port)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	SSL *s;

	if (connect(fd, (struct sockaddr *)&at, sizeof(at)))
		die("connect");
	no_delay(fd);
	s = ctx ? SSL_new(ctx) : NULL;
	if (!s || SSL_set_fd(s, fd) != 1 || SSL_connect(s) != 1)
		die("handshake");
	return s;
}

static int run_client(unsigned port)
{
	char *buf = malloc(SIZE_MAX_BYTES), line[128], mode[8], ex[8];
	SSL *s, *model;

	ctx = SSL_CTX_new(TLS_client_method());
	s = connect_tls(port);
	model = connect_tls(port);
	if (!buf)
		die("memory");
	printf("pid %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		struct order o = {0};
		int n = sscanf(line, "%7s %u %u %7s", mode, &o.count, &o.size, ex);

		if (n < 3 || !o.size || o.size > SIZE_MAX_BYTES)
			return 2;
		o.bulk = strcmp(mode, "ping") != 0;
		if (!strcmp(mode, "call") && o.size >= CALL_MIN_BYTES && o.size <= SIZE_MAX_BYTES / 4)
			run_calls(model, o.count, o.size, n == 4, buf);
		else if (!strcmp(mode, "stream") && o.size >= CALL_MIN_BYTES)
			run_stream(model, o.count, o.size, n == 4, buf);
		else
			run_order(s, &o, !strcmp(mode, "get"), n == 4, buf);
	}
	SSL_free(model);
	SSL_free(s);
	free(buf);
	return 0;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	pin();
	if (argc == 2 && !strcmp(argv[1], "server"))
		run_server();
	if (argc == 3 && !strcmp(argv[1], "client"))
		return run_client((unsigned)atoi(argv[2]));
	fprintf(stderr, "usage: tlsbench server | client PORT\n");
	return 2;
}
