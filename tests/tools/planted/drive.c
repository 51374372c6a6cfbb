/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Asks a service for its routes, in turn, over some connections at once: how long many requests take. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "planted.h"

#define CONNECTIONS_MAX 256
#define ROUTES_MAX	32

struct drive {
	int port;
	unsigned requests;
	unsigned next; /* atomic */
	const char *routes[ROUTES_MAX];
	unsigned route_count;
	bool failed;
};

/* Answers are short, and come in one write. */
static bool ask(int fd, const char *route, unsigned number)
{
	char text[512];
	int len = snprintf(text, sizeof(text), "GET /%s/%u HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", route, number);

	return len > 0 && (size_t)len < sizeof(text) && write_all(fd, text, (size_t)len) &&
	       recv(fd, text, sizeof(text), 0) > 12 && !memcmp(text + 9, "200", 3);
}

static void *work(void *arg)
{
	struct drive *d = arg;
	int fd = connect_to(d->port);
	unsigned n;

	while ((n = __atomic_fetch_add(&d->next, 1, __ATOMIC_RELAXED)) < d->requests) {
		if (fd >= 0 && ask(fd, d->routes[n % d->route_count], n))
			continue;
		d->failed = true;
		break;
	}
	close(fd);
	return NULL;
}

int drive(int port, unsigned connections, unsigned requests, char *routes)
{
	struct drive d = {.port = port, .requests = requests};
	pthread_t threads[CONNECTIONS_MAX];
	uint64_t began;
	char *route;

	while ((route = strsep(&routes, ",")) && d.route_count < ROUTES_MAX)
		d.routes[d.route_count++] = route;
	if (!connections || connections > CONNECTIONS_MAX || !d.route_count)
		return 2;
	began = now_ns(CLOCK_BOOTTIME);
	for (unsigned i = 0; i < connections; i++)
		if (pthread_create(&threads[i], NULL, work, &d))
			return 1;
	for (unsigned i = 0; i < connections; i++)
		pthread_join(threads[i], NULL);
	printf("%u requests %" PRIu64 " ns\n", requests, now_ns(CLOCK_BOOTTIME) - began);
	return d.failed;
}
