/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * floorbench: the cheapest thing that a tracer could do at places of a file (floor.bpf.c).
 *   floorbench empty|record|socket PID PATH OFFSET[:memory]...
 * Nothing; a record of each call of process PID; the same with empty programs at sends and receives. ":memory": the
 * function's fourth argument says where its length will be, else it returns it. Prints "attached session|perf", reads
 * the ring until the end of stdin, and prints "told N lost N" (records).
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "floor.skel.h"
#include "user/attach/links.h"

#define PLACES_MAX 32
#define DRAIN_MS   10 /* as perfbpf */

struct places {
	const char *path;
	uint64_t offsets[PLACES_MAX], cookies[PLACES_MAX];
	uint32_t count;
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "floorbench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void parse_places(struct places *at, char **argv)
{
	for (; *argv && at->count < PLACES_MAX; argv++) {
		char *end;

		at->offsets[at->count] = strtoull(*argv, &end, 0);
		at->cookies[at->count++] = !strcmp(end, ":memory");
	}
}

/* NULL: the kernel has no such links, or refuses the programs. */
static struct floor_bpf *load(uint32_t pid, bool session, bool sockets)
{
	struct floor_bpf *skel = floor_bpf__open();

	if (!skel)
		die("open");
	skel->rodata->target = pid;
	bpf_program__set_expected_attach_type(skel->progs.empty_session, ATTACH_UPROBE_SESSION);
	bpf_program__set_expected_attach_type(skel->progs.record_session, ATTACH_UPROBE_SESSION);
	bpf_program__set_autoload(skel->progs.empty_session, session);
	bpf_program__set_autoload(skel->progs.record_session, session);
	bpf_program__set_autoload(skel->progs.socket_sent, sockets);
	bpf_program__set_autoload(skel->progs.socket_received, sockets);
	if (floor_bpf__load(skel)) {
		floor_bpf__destroy(skel);
		return NULL;
	}
	return skel;
}

static int attach_session(const struct bpf_program *program, const struct places *at)
{
	struct link_create attr = {
		.prog_fd = (uint32_t)bpf_program__fd(program),
		.attach_type = ATTACH_UPROBE_SESSION,
		.path = (uintptr_t)at->path,
		.offsets = (uintptr_t)at->offsets,
		.cookies = (uintptr_t)at->cookies,
		.count = at->count,
	};

	return link_create(&attr);
}

static void attach_perf(const struct bpf_program *program, const struct places *at, bool is_return)
{
	for (uint32_t i = 0; i < at->count; i++) {
		LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = at->cookies[i], .retprobe = is_return);

		if (!bpf_program__attach_uprobe_opts(program, -1, at->path, at->offsets[i], &opts))
			die("attach");
	}
}

static int nothing(void *context, void *data, size_t size)
{
	(void)context;
	(void)data;
	(void)size;
	return 0;
}

static void drain_to_end(struct floor_bpf *skel)
{
	struct ring_buffer *ring = ring_buffer__new(bpf_map__fd(skel->maps.ring), nothing, NULL, NULL);
	struct pollfd input = {.fd = 0, .events = POLLIN};
	char byte;

	if (!ring)
		die("ring");
	while (poll(&input, 1, DRAIN_MS) == 0 || read(0, &byte, 1) > 0)
		ring_buffer__consume(ring);
	ring_buffer__free(ring);
}

int main(int argc, char **argv)
{
	bool empty = argc > 1 && !strcmp(argv[1], "empty"), sockets = argc > 1 && !strcmp(argv[1], "socket");
	struct places at = {0};
	struct floor_bpf *skel;
	bool session = true;

	if (argc < 5 || (!empty && !sockets && strcmp(argv[1], "record"))) {
		fprintf(stderr, "usage: floorbench empty|record|socket PID PATH OFFSET[:memory]...\n");
		return 2;
	}
	at.path = argv[3];
	parse_places(&at, argv + 4);
	libbpf_set_print(NULL);
	skel = load((uint32_t)atoi(argv[2]), true, sockets);
	if (!skel || attach_session(empty ? skel->progs.empty_session : skel->progs.record_session, &at) < 0) {
		session = false;
		floor_bpf__destroy(skel);
		skel = load((uint32_t)atoi(argv[2]), false, sockets);
		if (!skel)
			die("load");
		attach_perf(empty ? skel->progs.empty_entry : skel->progs.record_entry, &at, false);
		attach_perf(empty ? skel->progs.empty_return : skel->progs.record_return, &at, true);
	}
	if (sockets &&
	    (!bpf_program__attach(skel->progs.socket_sent) || !bpf_program__attach(skel->progs.socket_received)))
		die("attach to sockets");
	printf("attached %s\n", session ? "session" : "perf");
	fflush(stdout);
	drain_to_end(skel);
	printf("told %llu lost %llu\n", (unsigned long long)skel->bss->told, (unsigned long long)skel->bss->lost);
	return 0; /* the kernel detaches */
}
