/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BASE_TYPES_H
#define BASE_TYPES_H

/* Plain data that several stages share. No functions, no ownership. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A process: the pid alone is reused, so the start time is part of the identity. */
struct proc_key {
	uint32_t tgid;
	uint32_t exec_id;
	uint64_t start_ns; /* CLOCK_BOOTTIME */
};

/* One generation of one TLS connection of one process. Compared with memcmp: keep it without holes. */
struct conn_key {
	uint32_t tgid;
	uint32_t exec_id;
	uint64_t start_ns;
	uint64_t obj;
	uint32_t gen;
	uint32_t zero;
};

static inline struct proc_key proc_key_of(const struct conn_key *c)
{
	return (struct proc_key){.tgid = c->tgid, .exec_id = c->exec_id, .start_ns = c->start_ns};
}

/* Whichever programs they ran. */
static inline bool proc_key_same_process(const struct proc_key *a, const struct proc_key *b)
{
	return a->tgid == b->tgid && a->start_ns == b->start_ns;
}

/* Direction as the traced program sees it. */
enum dir { DIR_TX = 0, DIR_RX = 1 };

static inline enum dir dir_other(enum dir dir)
{
	return dir == DIR_TX ? DIR_RX : DIR_TX;
}

/* When bytes moved. A request starts at entry, a response counts at return. CLOCK_BOOTTIME. */
struct stamp {
	uint64_t entry_ns; /* the call that moved them began */
	uint64_t ts_ns;	   /* ... and returned */
	uint32_t tid;
	uint32_t zero;
};

struct sock_addr {
	uint16_t family; /* AF_INET, AF_INET6; 0 unknown */
	uint16_t port;	 /* host byte order */
	uint8_t ip[16];	 /* AF_INET: first 4 bytes */
};

/* A stretch of time, both ends known, begin_ns <= end_ns. */
struct interval {
	uint64_t begin_ns, end_ns;
};

#define UNKNOWN_NS	  UINT64_MAX /* a time that is not known */
#define UNKNOWN_COUNT	  (-1)	     /* a count (int64_t) that was not reported */
#define EXIT_CODE_UNKNOWN (-1)	     /* the process has ended, and nobody told how */

#endif
