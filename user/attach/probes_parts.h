/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_PROBES_PARTS_H
#define ATTACH_PROBES_PARTS_H

/*
 * What the files of the kernel's user share. Private to them: probes.c starts the programs and takes them away,
 * probes_load.c has the kernel verify them, probes_features.c says what this kernel can do, probes_why.c what went
 * wrong, probes_files.c sets probes of files, probes_targets.c says who is traced, probes_conns.c which connections are
 * of no interest or over, probes_records.c drains the ring.
 */

#include "probes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/libbpf.h>

#include "allocwatch.h"
#include "aside.h"
#include "bpf/event.h"
#include "reclaim.h"

struct perfbpf_bpf; /* perfbpf.skel.h */

struct file {
	struct file *next;
	struct probes_file pub;
	uint32_t slot; /* of attached_ns[]; 0: none was left */
	struct tls_find found;
	char *shown_path;
	int fds[3 * TLSFIND_MAX]; /* raw links */
	unsigned fd_count;
	struct bpf_link *links[2 * TLSFIND_MAX]; /* libbpf's, by perf events */
	unsigned link_count;
	bool removed; /* its probes were, until they are set again */
	bool renewed; /* probed a second time */
	bool stopped; /* a function that is called too often: not probed again */
};

#define PROBES_PARTS 2

struct probes {
	struct probes_config cfg;
	struct probes_features features;
	struct aside loading;
	struct perfbpf_bpf *skel;
	struct perfbpf_bpf *parts[PROBES_PARTS]; /* have the programs of skel->progs, if any */
	struct ring_buffer *ring;
	struct progcost *cost;
	struct file *files; /* newest first */
	struct reclaim *reclaim;
	struct tails *tails;
	struct overload overload;
	const volatile uint64_t *consumed, *produced; /* positions in the ring; NULL: they cannot be read */
	uint64_t drained;			      /* bytes in this probes_consume() */
	unsigned looks;
	unsigned soon; /* so many of the next ones were told before their turn */
	bool detached;
	struct syscalls *syscalls;
	struct sampling *sampling, *faults;
	struct allocwatch *alloc; /* NULL: allocations are not looked at */
	uint64_t next_sweep_ns, next_unix_ns;
	uint64_t wires_ns; /* up to there the movements of TLS connections were read */
	int cpus;
};

/* probes_why.c: probes_why() and probes_hint() say these from then on; hint "": there is none. */
void probes_explain_begin(void); /* nothing went wrong yet; libbpf's messages are ours */
void probes_explain(const char *why, const char *hint);
/* 0, or -EMFILE: too few descriptors may be open. */
int probes_explain_limit(void);
/* Names the cause of a failed load; the errno that probes_open() gives. */
int probes_explain_load(int err);

/* probes_features.c: p->features, by p->cfg and the kernel's types. */
void probes_find_features(struct probes *p, const struct btf *btf);

/* probes_load.c: what p->skel is set up to want. 0 or -errno */
int probes_load(struct probes *p);
void probes_unload(struct probes *p); /* what was not loaded is fine */

/* probes_files.c */
void probes_file_detach(struct file *f);
void probes_file_free(struct file *f); /* detaches it */

/* probes_records.c. 0 or -errno. */
int probes_ring_open(struct probes *p);
void probes_ring_close(struct probes *p); /* one that was never opened is fine */

#endif
