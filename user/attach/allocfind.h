/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef ATTACH_ALLOCFIND_H
#define ATTACH_ALLOCFIND_H

/*
 * Functions of a file that hand out memory and take it back, by the names that allocators export: malloc, calloc,
 * realloc, memalign, aligned_alloc, posix_memalign, valloc, free (the C libraries', and those of jemalloc, mimalloc and
 * tcmalloc that stand in for them), what these have under names of their own (je_, _rjem_, mi_, tc_; mallocx, rallocx,
 * dallocx, sdallocx), and operator new and delete. Which of them hand on to which is seen when they run
 * (bpf/alloc.bpf.c).
 *
 * Whose they are is told by their names too: by a prefix, or another name of the same function; jemalloc by mallocx,
 * the C libraries by functions that only they have.
 */

#include "elf.h"

#define ALLOCFIND_MAX 64

struct alloc_func {
	uint64_t off;	 /* file offset of the probe */
	uint64_t cookie; /* ALLOC_COOKIE() of bpf/event.h */
};

struct alloc_find {
	struct alloc_func funcs[ALLOCFIND_MAX];
	unsigned count;
	unsigned slow;	    /* of them are single-stepped */
	uint32_t libraries; /* bit n: enum alloc_library n is in here */
	unsigned refused;   /* functions that cannot be decoded, or were too many */
	bool gives, takes;  /* it hands out memory; it takes it back */
};

/* 0; -ENOENT: none here; -EIO: the file became shorter. */
int allocfind(const struct elf *e, struct alloc_find *out);

#endif
