/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FUZZ_STEPS_H
#define FUZZ_STEPS_H

/*
 * A fuzz input as steps: a byte of kind, a byte of length, bytes. Kinds from 0xf0 on are gaps; of the others bit 0 is
 * the direction, bits 1 to 3 are more of the length. Played as it is and byte by byte: both must tell the same.
 */

#include <stdio.h>
#include <stdlib.h>

#include "base/sv.h"
#include "base/types.h"

struct steps {
	const uint8_t *data;
	size_t size;
	uint64_t now;
};

struct step {
	enum dir dir;
	const uint8_t *ptr; /* NULL: a gap of `len` bytes, UINT64_MAX: unknown */
	uint64_t len;
	struct stamp at;
};

static inline bool steps_next(struct steps *s, struct step *out)
{
	uint8_t kind;

	if (s->size < 2)
		return false;
	kind = s->data[0];
	*out = (struct step){.dir = kind & 1 ? DIR_RX : DIR_TX, .ptr = s->data + 2, .at = {s->now, s->now + 1, 1, 0}};
	out->len = (uint64_t)s->data[1] | (uint64_t)(kind & 0x0e) << 7;
	s->now += 10;
	s->data += 2;
	s->size -= 2;
	if ((kind & 0xf0) == 0xf0) {
		out->ptr = NULL;
		out->len = out->len ? out->len : UINT64_MAX;
		return true;
	}
	out->len = out->len < s->size ? out->len : s->size;
	s->data += out->len;
	s->size -= out->len;
	return true;
}

static inline void fold(uint64_t *sum, uint64_t v)
{
	*sum = (*sum ^ v) * 0x100000001b3ull;
	*sum ^= *sum >> 29;
}

static inline void fold_sv(uint64_t *sum, struct sv s)
{
	fold(sum, s.len);
	for (size_t i = 0; i < s.len; i++)
		fold(sum, (uint8_t)s.ptr[i]);
}

/* play(): runs a parser over the input, byte by byte or not, and returns the sum of all that it told. */
static inline void steps_compare(const uint8_t *data, size_t size,
				 uint64_t (*play)(const uint8_t *data, size_t size, bool bytewise))
{
	if (play(data, size, false) != play(data, size, true)) {
		fprintf(stderr, "the cuts of the input show in the output\n");
		abort();
	}
}

#endif
