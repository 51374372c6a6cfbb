/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* The first byte says how the rest is cut; cut or whole, the reports must be the same. */

#include <stdlib.h>

#include "base/err.h"
#include "flow/llm/jsonscan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
	uint64_t hash;
	uint64_t reports;
};

static void mix(struct sum *s, const void *ptr, size_t len)
{
	const uint8_t *p = ptr;

	for (size_t i = 0; i < len; i++)
		s->hash = (s->hash ^ p[i]) * 0x100000001b3ull;
}

static void on_value(void *ctx, const struct jsonscan_value *v)
{
	struct sum *s = ctx;

	s->reports++;
	if (v->depth > JSONSCAN_DEPTH || v->text.len > JSONSCAN_VALUE_BYTES)
		abort();
	for (unsigned i = 0; i < v->depth; i++) {
		if (v->path[i].key.len > JSONSCAN_KEY_BYTES)
			abort();
		mix(s, v->path[i].key.ptr, v->path[i].key.len);
		mix(s, &v->path[i].index, sizeof(v->path[i].index));
	}
	mix(s, &v->type, sizeof(v->type));
	mix(s, &v->bytes, sizeof(v->bytes));
	mix(s, v->text.ptr, v->text.len);
}

static int run(const uint8_t *data, size_t size, size_t piece, struct sum *sum)
{
	const struct jsonscan_sink sink = {.ctx = sum, .on_value = on_value, .on_end = on_value};
	struct jsonscan *s = jsonscan_new(&sink);
	int err = 0;

	for (size_t at = 0; at < size; at += piece)
		err = jsonscan_push(s, data + at, size - at < piece ? size - at : piece);
	err = err ? err : jsonscan_done(s);
	jsonscan_free(s);
	return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sum whole = {0}, cut = {0};

	if (size < 2)
		return 0;
	if (run(data + 1, size - 1, size, &whole) != run(data + 1, size - 1, 1u + data[0] % 17, &cut) ||
	    whole.hash != cut.hash || whole.reports != cut.reports)
		abort();
	return 0;
}
