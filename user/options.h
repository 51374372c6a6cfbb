/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef OPTIONS_H
#define OPTIONS_H

/* The command line (INTERFACE: README and man page) as plain data. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum command { COMMAND_RECORD, COMMAND_REPLAY, COMMAND_CHECK };

struct options {
	enum command command;
	pid_t *pids; /* owned */
	size_t pid_count;
	char *name;    /* -n */
	char **argv;   /* after --, borrowed; NULL: none */
	bool all;      /* -a */
	char *capture; /* replay's input */
	char *output, *calls, *record; /* owned; NULL: default or none */
	uint32_t ring_bytes;
	double duration_s; /* 0: none */
	uint64_t max_events;
	double stale_s, sweep_s, write_interval_s;
	bool content, quiet, strict;
	int verbose;
	int force_mode; /* -1; hidden --attach=session|multi|perf for tests */
	bool force_no_dynptr;
};

/* 0: go on. Otherwise exit now with *status (--help, --version: 0; usage: 2). */
int options_parse(struct options *o, int argc, char **argv, int *status);
void options_release(struct options *o);

#endif
