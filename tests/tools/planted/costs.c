/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The planted costs. Each adds to the truth what it took, by its own clocks. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planted.h"

uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool write_all(int fd, const void *ptr, size_t len)
{
	ssize_t n;

	for (; len; ptr = (const char *)ptr + n, len -= (size_t)n) {
		n = send(fd, ptr, len, MSG_NOSIGNAL);
		if (n <= 0)
			return false;
	}
	return true;
}

int connect_to(int port)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at))) {
		close(fd);
		return -1;
	}
	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	return fd;
}

/* --- on a processor ---------------------------------------------------------------------------------------------- */

static volatile uint64_t sum;

/* 40, 30 and 30 of a hundred turns; a turn of one may take longer than another's, by where a processor finds it. */
#define WORK(name, share)                                                                                              \
	__attribute__((noinline)) static void name(void)                                                               \
	{                                                                                                              \
		for (unsigned i = 0; i < (share)*1000u; i++)                                                           \
			sum = sum + i;                                                                                 \
	}

WORK(planted_hot, 40)
WORK(planted_warm, 30)
WORK(planted_cold, 30)

/* How long it ran since *now, which it moves on. */
static uint64_t timed(void (*work)(void), uint64_t *now)
{
	uint64_t began = *now;

	work();
	*now = now_ns(CLOCK_THREAD_CPUTIME_ID);
	return *now - began;
}

void cost_hot(struct truth *t, double cpu_ms)
{
	uint64_t now = now_ns(CLOCK_THREAD_CPUTIME_ID), end = now + (uint64_t)(cpu_ms * 1e6);

	while (now < end) {
		t->hot_ns += timed(planted_hot, &now);
		t->warm_ns += timed(planted_warm, &now);
		t->cold_ns += timed(planted_cold, &now);
	}
}

#define STORM_BYTES 1024

__attribute__((noinline)) static void planted_storm(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		volatile char *p = malloc(STORM_BYTES);

		if (p)
			p[0] = 1;
		free((void *)p);
	}
}

void cost_alloc(struct truth *t, unsigned count)
{
	planted_storm(count);
	t->alloc_count += count;
	t->alloc_bytes += (uint64_t)count * STORM_BYTES;
}

/* --- a lock ------------------------------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct hold {
	unsigned ms;
	sem_t held;
};

/* Others find it taken. */
static void *hold_lock(void *arg)
{
	struct hold *h = arg;
	struct timespec ts = {.tv_nsec = (long)h->ms * 1000000};

	pthread_mutex_lock(&lock);
	sem_post(&h->held);
	nanosleep(&ts, NULL);
	pthread_mutex_unlock(&lock);
	return NULL;
}

void cost_lock(struct truth *t, unsigned hold_ms)
{
	struct hold h = {.ms = hold_ms};
	uint64_t began;
	pthread_t holder;

	sem_init(&h.held, 0, 0);
	if (pthread_create(&holder, NULL, hold_lock, &h))
		return;
	began = now_ns(CLOCK_BOOTTIME);
	sem_wait(&h.held);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	t->lock_ns += now_ns(CLOCK_BOOTTIME) - began;
	pthread_join(holder, NULL);
}

/* --- downstream -------------------------------------------------------------------------------------------------- */

bool cost_db(struct costs *c, struct truth *t, const char *command, const char *key)
{
	uint64_t began = now_ns(CLOCK_BOOTTIME);
	char text[256 + 1];
	int len = snprintf(text, sizeof(text), "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(command), command,
			   strlen(key), key);
	ssize_t n;

	if (c->db < 0 || len < 0 || (size_t)len >= sizeof(text) || !write_all(c->db, text, (size_t)len))
		return false;
	n = recv(c->db, text, sizeof(text) - 1, 0); /* the stub answers in one write */
	t->db++;
	t->db_ns += now_ns(CLOCK_BOOTTIME) - began;
	if (n < SERVED_DIGITS + 2)
		return false;
	text[n] = '\0';
	t->db_served_ns += strtoull(text + n - 2 - SERVED_DIGITS, NULL, 10);
	return true;
}

/* A connection of its own, to its end. 0 or less: it failed. */
static ssize_t exchange(int port, const char *request, size_t len)
{
	int fd = connect_to(port);
	ssize_t n, all = 0;
	char answer[4096];

	if (fd < 0)
		return -1;
	if (write_all(fd, request, len))
		while ((n = recv(fd, answer, sizeof(answer), 0)) > 0)
			all += n;
	close(fd);
	return all;
}

bool cost_model(struct costs *c, struct truth *t, const char *name, const char *knobs)
{
	static const char body[] = "{\"model\":\"gpt-planted\",\"stream\":true,\"max_tokens\":100,"
				   "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
	uint64_t began = now_ns(CLOCK_BOOTTIME);
	char text[1024];
	int len = snprintf(text, sizeof(text),
			   "POST /%s/v1/chat/completions?%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
			   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			   name, knobs, sizeof(body) - 1, body);
	bool ok = c->model_port && len > 0 && (size_t)len < sizeof(text) &&
		  exchange(c->model_port, text, (size_t)len) > 0;

	t->model++;
	t->model_ns += now_ns(CLOCK_BOOTTIME) - began;
	return ok;
}

bool cost_http(struct costs *c, struct truth *t, const char *path)
{
	uint64_t began = now_ns(CLOCK_BOOTTIME);
	char text[512];
	int len = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path);
	bool ok = len > 0 && (size_t)len < sizeof(text) && exchange(c->own_port, text, (size_t)len) > 0;

	t->http++;
	t->http_ns += now_ns(CLOCK_BOOTTIME) - began;
	return ok;
}

bool cost_tool(struct truth *t, const char *seconds)
{
	uint64_t began = now_ns(CLOCK_BOOTTIME);
	int status = -1;
	pid_t pid = vfork();

	if (pid == 0) {
		execlp("sleep", "sleep", seconds, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	t->tool++;
	t->tool_pid = pid;
	t->tool_end_ns = now_ns(CLOCK_MONOTONIC);
	t->tool_ns += now_ns(CLOCK_BOOTTIME) - began;
	return status == 0;
}
