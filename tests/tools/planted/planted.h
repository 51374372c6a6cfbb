/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PLANTED_H
#define PLANTED_H

/*
 * A service with planted costs, for the tests of operations: a thread a connection, HTTP/1.1, and of each request a
 * line of truth, by its own clocks. See main.c for the routes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* What a request cost. Of one thread nothing runs beside anything: the sum of downstream times is their union. */
struct truth {
	uint64_t begin_ns,
		end_ns;	 /* CLOCK_BOOTTIME: its first byte was read, the answer is written (of long ones: was) */
	uint64_t cpu_ns; /* of its thread */
	unsigned db, model, tool, http;
	int tool_pid;	      /* the latest child, 0: none */
	uint64_t tool_end_ns; /* CLOCK_MONOTONIC: when it was known to have ended */
	uint64_t db_ns, model_ns, tool_ns, http_ns;
	uint64_t db_served_ns; /* of db_ns, by the database's clock: the rest is turns that either did not get */
	uint64_t lock_ns;      /* from wanting the lock to having it */
	uint64_t hot_ns, warm_ns, cold_ns; /* processor time of planted_hot(), and so on */
	uint64_t alloc_count, alloc_bytes;
};

/* What a connection's thread works with. */
struct costs {
	int db; /* connection to the stub of a database */
	int model_port, own_port;
};

uint64_t now_ns(clockid_t clock);
bool write_all(int fd, const void *ptr, size_t len);

/* costs.c; false: something that it needs does not answer. */
void cost_hot(struct truth *t, double cpu_ms);
void cost_alloc(struct truth *t, unsigned count);
void cost_lock(struct truth *t, unsigned hold_ms);
bool cost_db(struct costs *c, struct truth *t, const char *command, const char *key);
bool cost_model(struct costs *c, struct truth *t, const char *name, const char *knobs);
bool cost_http(struct costs *c, struct truth *t, const char *path);
bool cost_tool(struct truth *t, const char *seconds);
int connect_to(int port); /* on loopback; -1 */

/* drive.c: prints "N requests N ns". 0; 1: it failed; 2: usage. routes: comma between; is changed. */
int drive(int port, unsigned connections, unsigned requests, char *routes);

/* database.c: speaks just enough of Redis. GET answers after `get_us`, HGETALL after `hgetall_us`, and each answer ends
 * with the nanoseconds from reading the command to writing that, in so many digits. Another process, which ends with
 * this one. Its port. */
#define SERVED_DIGITS 9
#define SERVED_MAX_NS 999999999u
int database_start(unsigned get_us, unsigned hgetall_us);

#endif
