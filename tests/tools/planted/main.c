/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * planted --truth FILE [--model-port N] [--get-us N]: prints "listening PORT", "database PORT" and "pid N", and serves
 * until a line comes, or the end of standard input. Routes, each with one planted cost and a number behind it (/hot/7):
 *
 *   /hot      5 ms of processor time: planted_hot() 40 %, planted_warm() 30 %, planted_cold() 30 %, or nearly so
 *   /alloc    an allocation storm: planted_storm() allocates 1 KiB 2,000 times
 *   /nplus1   12 commands of the same shape to a database, each of 500 us, or as --get-us says
 *   /slow     one that takes 30 ms
 *   /lock     a lock that somebody holds for 15 ms
 *   /model    a call of a model
 *   /relay    a request to itself (/health/90000N)
 *   /tool     a child process of 20 ms
 *   /mixed    some of each
 *   /large    an answer of 4 MiB
 *   /health   nothing
 *
 * planted drive PORT CONNECTIONS REQUESTS ROUTE[,ROUTE...]: asks for these in turn, and prints "N requests N ns".
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "planted.h"

#define GET_US	    500
#define HGETALL_US  30000
#define NPLUS1	    12
#define MODEL_KNOBS "delay_ms=20&gap_ms=2&tokens=5&until_close=1"
#define LARGE_BYTES (4u << 20)
#define REQUEST_MAX 16384

static int truth_fd = -1, model_port, own_port, db_port;

/* --- routes ------------------------------------------------------------------------------------------------------ */

static bool hot(struct costs *c, struct truth *t, const char *number)
{
	(void)c, (void)number;
	cost_hot(t, 5);
	return true;
}

static bool alloc(struct costs *c, struct truth *t, const char *number)
{
	(void)c, (void)number;
	cost_alloc(t, 2000);
	return true;
}

static bool nplus1(struct costs *c, struct truth *t, const char *number)
{
	char key[64];

	for (int i = 0; i < NPLUS1; i++) {
		snprintf(key, sizeof(key), "item:%.16s:%d", number, i);
		if (!cost_db(c, t, "GET", key))
			return false;
	}
	return true;
}

static bool slow(struct costs *c, struct truth *t, const char *number)
{
	return cost_db(c, t, "HGETALL", number);
}

static bool lock(struct costs *c, struct truth *t, const char *number)
{
	(void)c, (void)number;
	cost_lock(t, 15);
	return true;
}

static bool model(struct costs *c, struct truth *t, const char *number)
{
	char name[64];

	snprintf(name, sizeof(name), "planted-%.16s", number);
	return cost_model(c, t, name, MODEL_KNOBS);
}

static bool relay(struct costs *c, struct truth *t, const char *number)
{
	char path[64];

	snprintf(path, sizeof(path), "/health/90000%.16s", number);
	return cost_http(c, t, path);
}

static bool tool(struct costs *c, struct truth *t, const char *number)
{
	(void)c, (void)number;
	return cost_tool(t, "0.02");
}

static bool mixed(struct costs *c, struct truth *t, const char *number)
{
	cost_hot(t, 3);
	cost_lock(t, 5);
	return nplus1(c, t, number) && slow(c, t, number) && tool(c, t, number);
}

static bool nothing(struct costs *c, struct truth *t, const char *number)
{
	(void)c, (void)t, (void)number;
	return true;
}

static const struct route {
	const char *name;
	bool (*cost)(struct costs *c, struct truth *t, const char *number);
	size_t answer_bytes;
} routes[] = {
	{"hot", hot, 16},	 {"alloc", alloc, 16},
	{"nplus1", nplus1, 16},	 {"slow", slow, 16},
	{"lock", lock, 16},	 {"model", model, 16},
	{"relay", relay, 16},	 {"tool", tool, 16},
	{"mixed", mixed, 16},	 {"large", nothing, LARGE_BYTES},
	{"health", nothing, 16},
};

/* --- truth ------------------------------------------------------------------------------------------------------- */

static void tell(const struct truth *t, const char *method, const char *path, const char *route, int status)
{
	char line[1024];
	int len = snprintf(
		line, sizeof(line),
		"{\"method\":\"%s\",\"path\":\"%s\",\"route\":\"%s\",\"status\":%d,\"tid\":%ld,\"begin_ns\":%" PRIu64
		",\"end_ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 ",\"hot_ns\":%" PRIu64 ",\"warm_ns\":%" PRIu64
		",\"cold_ns\":%" PRIu64 ",\"lock_ns\":%" PRIu64 ",\"db\":%u,\"db_ns\":%" PRIu64
		",\"db_served_ns\":%" PRIu64 ",\"model\":%u,\"model_ns\":%" PRIu64
		",\"tool\":%u,\"tool_pid\":%d,\"tool_end_ns\":%" PRIu64 ",\"tool_ns\":%" PRIu64
		",\"http\":%u,\"http_ns\":%" PRIu64 ",\"downstream_ns\":%" PRIu64 ",\"alloc_count\":%" PRIu64
		",\"alloc_bytes\":%" PRIu64 "}\n",
		method, path, route, status, syscall(SYS_gettid), t->begin_ns, t->end_ns, t->cpu_ns, t->hot_ns,
		t->warm_ns, t->cold_ns, t->lock_ns, t->db, t->db_ns, t->db_served_ns, t->model, t->model_ns, t->tool,
		t->tool_pid, t->tool_end_ns, t->tool_ns, t->http, t->http_ns,
		t->db_ns + t->model_ns + t->tool_ns + t->http_ns, t->alloc_count, t->alloc_bytes);

	if (truth_fd >= 0 && len > 0 && (size_t)len < sizeof(line) && write(truth_fd, line, (size_t)len) != len)
		abort();
}

/* --- connections ------------------------------------------------------------------------------------------------- */

static const struct route *route_of(const char *path, const char **number)
{
	size_t len = strcspn(path + 1, "/?");

	*number = path[1 + len] == '/' ? path + 2 + len : "0";
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
		if (strlen(routes[i].name) == len && !memcmp(routes[i].name, path + 1, len))
			return &routes[i];
	return NULL;
}

static bool answer(int fd, int status, size_t bytes)
{
	static char body[LARGE_BYTES];
	char head[128];
	int len = snprintf(head, sizeof(head),
			   "HTTP/1.1 %d OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n", status, bytes);

	/* In one write where it is short. */
	memset(head + len, 'x', bytes < 16 ? bytes : 16);
	if (bytes <= 16)
		return write_all(fd, head, (size_t)len + bytes);
	return write_all(fd, head, (size_t)len) && write_all(fd, body, bytes);
}

static bool serve_request(int fd, struct costs *c, char *request, uint64_t begin_ns, uint64_t cpu_ns)
{
	struct truth t = {.begin_ns = begin_ns};
	char method[16] = "", path[256] = "", shape[32];
	const struct route *r = NULL;
	const char *number;
	int status;
	bool ok;

	if (sscanf(request, "%15s %255s", method, path) != 2)
		return false;
	if (path[0] == '/')
		r = route_of(path, &number);
	status = !r ? 404 : r->cost(c, &t, number) ? 200 : 500;
	/* Who waits for the answer may get this processor before a clock can be read. */
	t.end_ns = now_ns(CLOCK_BOOTTIME);
	ok = answer(fd, status, r ? r->answer_bytes : 16);
	if (r && r->answer_bytes > 16)
		t.end_ns = now_ns(CLOCK_BOOTTIME);
	t.cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	snprintf(shape, sizeof(shape), "/%s/:id", r ? r->name : "");
	tell(&t, method, path, shape, status);
	return ok && !strcasestr(request, "connection: close");
}

/* Requests are small, without a body, and one is answered before the next comes. */
static void serve_connection(int fd, struct costs *c)
{
	char request[REQUEST_MAX];
	uint64_t begin_ns = 0, cpu_ns = 0;
	size_t have = 0;
	ssize_t n;

	while (have < sizeof(request) - 1 && (n = recv(fd, request + have, sizeof(request) - 1 - have, 0)) > 0) {
		if (!have) {
			begin_ns = now_ns(CLOCK_BOOTTIME);
			cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
		}
		have += (size_t)n;
		request[have] = '\0';
		if (!strstr(request, "\r\n\r\n"))
			continue;
		if (!serve_request(fd, c, request, begin_ns, cpu_ns))
			return;
		have = 0;
	}
}

static void *connection(void *arg)
{
	int fd = (int)(intptr_t)arg;
	struct costs c = {.db = connect_to(db_port), .model_port = model_port, .own_port = own_port};

	prctl(PR_SET_TIMERSLACK, 1);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	serve_connection(fd, &c);
	close(c.db);
	close(fd);
	return NULL;
}

static void *accept_all(void *arg)
{
	int listener = (int)(intptr_t)arg, fd;
	pthread_t thread;

	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		if (pthread_create(&thread, NULL, connection, (void *)(intptr_t)fd))
			abort();
		pthread_detach(thread);
	}
	return NULL;
}

static int listen_on_loopback(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(at);

	if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 256) ||
	    getsockname(listener, (struct sockaddr *)&at, &len))
		return -1;
	own_port = ntohs(at.sin_port);
	return listener;
}

int main(int argc, char **argv)
{
	unsigned get_us = GET_US;
	int listener, i;
	pthread_t thread;

	if (argc == 6 && !strcmp(argv[1], "drive"))
		return drive(atoi(argv[2]), (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]), argv[5]);
	for (i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--truth"))
			truth_fd = open(argv[i + 1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		else if (!strcmp(argv[i], "--model-port"))
			model_port = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--get-us"))
			get_us = (unsigned)atoi(argv[i + 1]);
		else
			break;
	}
	if (i != argc)
		return 2;
	db_port = database_start(get_us, HGETALL_US);
	listener = listen_on_loopback();
	if (db_port < 0 || listener < 0 || pthread_create(&thread, NULL, accept_all, (void *)(intptr_t)listener)) {
		perror("planted");
		return 1;
	}
	printf("listening %d\ndatabase %d\npid %d\n", own_port, db_port, getpid());
	fflush(stdout);
	getchar();
	return 0;
}
