/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FUZZ_DB_STEPS_H
#define FUZZ_DB_STEPS_H

/* A byte of flags, then steps (steps.h): a connection of a database. Flag 1: from its first byte on. */

#include "flow/db/db.h"
#include "tests/fuzz/steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void db_fold_command(void *ctx, const struct db_command *c)
{
	if (c->end_ns < c->start_ns || strlen(c->error) >= DB_ERROR_MAX)
		abort();
	fold(ctx, c->start_ns);
	fold(ctx, c->end_ns);
	fold(ctx, (uint64_t)c->rows * 2 + c->unfinished);
	fold_sv(ctx, sv_of(c->system));
	fold_sv(ctx, sv_of(c->error));
	if (c->shape.ptr)
		fold_sv(ctx, c->shape);
}

/* push, gap, finish and release of a parser that open(flags, sink) makes. */
#define DB_FUZZ(name, type, open)                                                                                      \
	static uint64_t play(const uint8_t *data, size_t size, bool bytewise)                                          \
	{                                                                                                              \
		struct steps steps = {data + 1, size - 1, 1000};                                                       \
		uint64_t sum = 0;                                                                                      \
		struct db_sink sink = {&sum, db_fold_command};                                                         \
		struct type *p = open;                                                                                 \
		struct step s;                                                                                         \
                                                                                                                       \
		while (p && steps_next(&steps, &s)) {                                                                  \
			if (!s.ptr)                                                                                    \
				name##_gap(p, s.dir, s.len, &s.at);                                                    \
			for (size_t i = 0; s.ptr && bytewise && i < s.len; i++)                                        \
				name##_push(p, s.dir, s.ptr + i, 1, &s.at);                                            \
			if (s.ptr && !bytewise)                                                                        \
				name##_push(p, s.dir, s.ptr, s.len, &s.at);                                            \
		}                                                                                                      \
		if (p)                                                                                                 \
			name##_finish(p, steps.now);                                                                   \
		if (p)                                                                                                 \
			fold(&sum, name##_errors(p) + (uint64_t)name##_dropped(p) * 1000);                             \
		name##_free(p);                                                                                        \
		return sum;                                                                                            \
	}                                                                                                              \
	int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)                                                   \
	{                                                                                                              \
		if (size)                                                                                              \
			steps_compare(data, size, play);                                                               \
		return 0;                                                                                              \
	}

#endif
