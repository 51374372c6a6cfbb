/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "writefd.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

static writefd_wait_fn on_wait;
static void *on_wait_ctx;
static bool gave_up; /* many lines are not to wait one after the other */

void writefd_on_wait(writefd_wait_fn fn, void *ctx)
{
	on_wait = fn;
	on_wait_ctx = ctx;
	gave_up = false;
}

/* Until there is room, or an error to be had by writing. 0 or -errno. */
static int wait_for_room(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int n;

	do {
		n = poll(&p, 1, gave_up ? 0 : on_wait ? WRITEFD_WAIT_MS : -1);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			gave_up = gave_up || on_wait(on_wait_ctx);
		if (n == 0 && gave_up)
			return -EINTR;
	} while (n <= 0);
	return 0;
}

static bool is_file(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode);
}

/* A pipe that has room for something has room for PIPE_BUF: so much never waits inside of write(2). */
int writefd_all(int fd, const char *ptr, size_t len)
{
	bool asks = on_wait && !is_file(fd);

	while (len) {
		size_t step = asks && len > PIPE_BUF ? PIPE_BUF : len;
		int err = asks ? wait_for_room(fd) : 0;
		ssize_t n = err ? 0 : write(fd, ptr, step);

		if (n < 0 && errno == EAGAIN) /* its owner made it non-blocking */
			err = wait_for_room(fd);
		else if (n < 0 && errno != EINTR)
			err = -errno;
		if (err)
			return err;
		if (n > 0) {
			ptr += n;
			len -= (size_t)n;
		}
	}
	return 0;
}
