/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_PROGCOST_H
#define ATTACH_PROGCOST_H

/*
 * What our BPF programs cost the machine, by the kernel's own account of them (BPF_ENABLE_STATS, Linux 5.8, needs
 * CAP_SYS_ADMIN). The account itself costs each run of each BPF program of the machine some 25 ns, as much as the
 * cheapest of ours: it is kept for a moment now and then only, and what is told is of those moments.
 */

#include <stdint.h>

#define PROGCOST_FIRST_NS    200000000ull  /* after the start */
#define PROGCOST_WINDOW_NS   50000000ull   /* so long, */
#define PROGCOST_INTERVAL_NS 5000000000ull /* so often */

struct bpf_object_skeleton;
struct progcost;

struct progcost_program {
	const char *name;
	uint64_t runs, ns; /* in all moments together */
};

/* enable (NULL: it is not asked for): the account is kept until its descriptor is closed; that, or -errno. NULL: no
 * memory. The programs are borrowed. */
struct progcost *progcost_new(const struct bpf_object_skeleton *programs, int (*enable)(void));
void progcost_free(struct progcost *c); /* NULL is fine */
void progcost_tick(struct progcost *c, uint64_t now_ns);
void progcost_stop(struct progcost *c, uint64_t now_ns); /* the last moment ends */
/* How long all moments were, 0: there was none, or the kernel keeps no account. fn is told each program that ran. */
uint64_t progcost_each(const struct progcost *c, void (*fn)(void *ctx, const struct progcost_program *p), void *ctx);

#endif
