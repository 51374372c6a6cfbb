/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One connection's bytes, TLS or plain; its descriptor may block or not. */

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "server.h"

#define WRITE_WAIT_MS 60000

int conn_read(struct conn *c)
{
	char bytes[16384];
	int n = c->ssl ? SSL_read(c->ssl, bytes, sizeof(bytes)) : (int)recv(c->fd, bytes, sizeof(bytes), 0);

	c->read_ns = clock_boot_ns();
	if (n > 0 && buf_push(&c->in, bytes, (size_t)n))
		return -1;
	if (n < 0 && (c->ssl ? SSL_get_error(c->ssl, n) == SSL_ERROR_WANT_READ : errno == EAGAIN))
		return -EAGAIN;
	return n;
}

static bool can_wait(const struct conn *c, int n)
{
	struct pollfd p = {.fd = c->fd, .events = POLLOUT};

	if (c->ssl ? SSL_get_error(c->ssl, n) != SSL_ERROR_WANT_WRITE : errno != EAGAIN)
		return false;
	return poll(&p, 1, WRITE_WAIT_MS) > 0;
}

int conn_write(struct conn *c, const char *ptr, size_t len)
{
	while (len) {
		int step = len > (1u << 20) ? 1 << 20 : (int)len;
		int n = c->ssl ? SSL_write(c->ssl, ptr, step) : (int)send(c->fd, ptr, (size_t)step, 0);

		if (n <= 0) {
			if (n < 0 && can_wait(c, n))
				continue;
			return -1;
		}
		ptr += n;
		len -= (size_t)n;
	}
	return 0;
}

int conn_wait(struct conn *c, double ms)
{
	uint64_t until = clock_boot_ns() + (uint64_t)(ms * 1e6);

	for (;;) {
		struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
		uint64_t now = clock_boot_ns(), left = until > now ? until - now : 0;
		struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000), .tv_nsec = (long)(left % 1000000000)};

		if (!left)
			return 0;
		if (ppoll(&p, 1, &timeout, NULL) > 0)
			return -1;
	}
}

void conn_reset(struct conn *c)
{
	struct linger linger = {.l_onoff = 1};

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

int conn_need(struct conn *c, size_t want)
{
	while (c->in.len < want)
		if (conn_read(c) <= 0)
			return -1;
	return 0;
}
