/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef OPTIONS_H
#define OPTIONS_H

/* The command line (doc/perfbpf.8.md) as plain data. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/funcfind.h"

/* Defaults that a capture is also reported by. */
#define OPTIONS_MAX_EVENTS 100000
#define OPTIONS_STALE_S	   1800
#define OPTIONS_SWEEP_S	   60

enum command { COMMAND_RECORD, COMMAND_REPLAY, COMMAND_CHECK, COMMAND_REPORT, COMMAND_DIFF };

struct options {
	enum command command;
	pid_t *pids; /* owned */
	size_t pid_count;
	const char *name;		     /* -n; this and all text below is borrowed from argv */
	char **argv;			     /* after --; NULL: none */
	bool all;			     /* -a, or record without a target */
	const char *capture;		     /* replay's input */
	const char *traces[2];		     /* report's input; diff's, before and after */
	const char *output, *calls, *record; /* NULL: default or none. PERFBPF_TRACE is an output */
	uint32_t ring_bytes;
	double duration_s; /* 0: none */
	uint32_t cpu_hz;   /* --cpu, or a little less: never in step with the kernel's ticks; 0: off */
	bool off_cpu;
	uint32_t alloc_bytes; /* --alloc: one sample in so many bytes; 0: not */
	const char *op;	      /* report --op; NULL: all */
	int by;		      /* report --by: enum report_by */
	unsigned top;
	bool total, folded, json;
	double last_s; /* 0: all of it */
	bool fail_on;  /* diff --fail-on */
	double fail_percent;
	uint64_t max_events;
	double stale_s, sweep_s, write_interval_s;
	bool content, quiet, strict;
	bool db;		     /* database commands */
	bool http;		     /* every HTTP exchange */
	struct func_spec *functions; /* -f; owned */
	unsigned function_count;
	int verbose;
	int attach_mode;     /* hidden --attach, for tests: enum probes_mode, the best one to try */
	bool no_dynptr;	     /* hidden --no-dynptr, for tests */
	bool no_sock_length; /* hidden --no-sock-length, for tests */
	bool no_sandbox;     /* hidden --no-sandbox, for tests under valgrind */
};

/* 0: go on. Otherwise exit now with *status (--help, --version: 0; usage: 2). */
int options_parse(struct options *o, int argc, char **argv, int *status);
void options_release(struct options *o);

#endif
