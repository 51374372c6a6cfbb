/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SYMBOL_ADDRESSES_H
#define SYMBOL_ADDRESSES_H

/* A set of addresses. {0} is an empty one. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct addresses {	    /* open addressing; 0 is no address */
	uint64_t *slots;    /* owned */
	size_t count, room; /* a power of two */
};

bool addresses_have(const struct addresses *a, uint64_t addr);
/* Without memory it is not there. */
void addresses_add(struct addresses *a, uint64_t addr);
/* At the bound it begins anew. */
void addresses_add_bounded(struct addresses *a, uint64_t addr, size_t max);
void addresses_release(struct addresses *a); /* empty again */

#endif
