/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef LOOP_H
#define LOOP_H

/* One thread, one epoll: file descriptors, timers, signals. Callbacks run in loop_run(); any of them may call
 * loop_stop(). */

#include <signal.h>
#include <stdint.h>

struct loop;
typedef void (*loop_fn)(void *ctx);

struct loop *loop_new(void);	/* NULL with errno */
void loop_free(struct loop *l); /* closes its own descriptors, not those that were added */

/* Each: 0 or -errno. fn is called when fd is readable; it must read what makes it so. */
int loop_add_fd(struct loop *l, int fd, loop_fn fn, void *ctx);
void loop_remove_fd(struct loop *l, int fd);
/* Every interval_ns from now on (first after one interval). */
int loop_add_timer(struct loop *l, uint64_t interval_ns, loop_fn fn, void *ctx);
/* The signals of `set` are blocked for the process and come here; fn gets the number. */
int loop_add_signals(struct loop *l, const sigset_t *set, void (*fn)(void *ctx, int signal), void *ctx);

/* Runs until loop_stop(). 0 or -errno. May be called again. */
int loop_run(struct loop *l);
void loop_stop(struct loop *l);

#endif
