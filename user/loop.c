/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "loop.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define NS_PER_SEC	 1000000000ull
#define LOOP_SOURCES_MAX 64 /* timers, signals and descriptors of one session are few */

struct source {
	struct loop *loop;
	int fd;
	bool own; /* made here: closed by loop_free() */
	bool timer;
	loop_fn fn;
	void (*signal_fn)(void *ctx, int signal);
	void *ctx;
};

struct loop {
	int epoll_fd;
	bool stop;
	struct source sources[LOOP_SOURCES_MAX];
};

struct loop *loop_new(void)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	for (int i = 0; i < LOOP_SOURCES_MAX; i++)
		l->sources[i].fd = -1;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0) {
		free(l);
		return NULL;
	}
	return l;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	for (int i = 0; i < LOOP_SOURCES_MAX; i++)
		if (l->sources[i].fd >= 0 && l->sources[i].own)
			close(l->sources[i].fd);
	close(l->epoll_fd);
	free(l);
}

static int add(struct loop *l, const struct source *source)
{
	struct epoll_event ev = {.events = EPOLLIN};

	for (int i = 0; i < LOOP_SOURCES_MAX; i++) {
		if (l->sources[i].fd >= 0)
			continue;
		ev.data.u32 = (uint32_t)i;
		if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, source->fd, &ev))
			return -errno;
		l->sources[i] = *source;
		return 0;
	}
	return -ENOSPC;
}

int loop_add_fd(struct loop *l, int fd, loop_fn fn, void *ctx)
{
	return add(l, &(struct source){.loop = l, .fd = fd, .fn = fn, .ctx = ctx});
}

void loop_remove_fd(struct loop *l, int fd)
{
	for (int i = 0; i < LOOP_SOURCES_MAX; i++) {
		if (l->sources[i].fd != fd)
			continue;
		epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		l->sources[i].fd = -1;
	}
}

int loop_add_timer(struct loop *l, uint64_t interval_ns, loop_fn fn, void *ctx)
{
	struct timespec ts = {.tv_sec = (time_t)(interval_ns / NS_PER_SEC),
			      .tv_nsec = (long)(interval_ns % NS_PER_SEC)};
	struct itimerspec spec = {.it_interval = ts, .it_value = ts};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int err;

	if (fd < 0)
		return -errno;
	err = timerfd_settime(fd, 0, &spec, NULL) ? -errno : 0;
	if (!err)
		err = add(l, &(struct source){.loop = l, .fd = fd, .own = true, .timer = true, .fn = fn, .ctx = ctx});
	if (err)
		close(fd);
	return err;
}

int loop_add_signals(struct loop *l, const sigset_t *set, void (*fn)(void *ctx, int signal), void *ctx)
{
	int fd, err;

	if (sigprocmask(SIG_BLOCK, set, NULL))
		return -errno;
	fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	err = add(l, &(struct source){.loop = l, .fd = fd, .own = true, .signal_fn = fn, .ctx = ctx});
	if (err)
		close(fd);
	return err;
}

static void serve(struct source *s)
{
	struct signalfd_siginfo info;
	uint64_t expirations;

	if (s->timer && read(s->fd, &expirations, sizeof(expirations)) < 0)
		return;
	if (!s->signal_fn) {
		s->fn(s->ctx);
		return;
	}
	while (read(s->fd, &info, sizeof(info)) == sizeof(info))
		s->signal_fn(s->ctx, (int)info.ssi_signo);
}

int loop_run(struct loop *l)
{
	struct epoll_event events[16];

	l->stop = false;
	while (!l->stop) {
		int n = epoll_wait(l->epoll_fd, events, 16, -1);

		if (n < 0 && errno != EINTR)
			return -errno;
		/* A callback may have removed a source that is still in this batch. */
		for (int i = 0; i < n && !l->stop; i++)
			if (l->sources[events[i].data.u32].fd >= 0)
				serve(&l->sources[events[i].data.u32]);
	}
	return 0;
}

void loop_stop(struct loop *l)
{
	l->stop = true;
}
