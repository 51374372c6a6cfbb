/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* First byte: size of the pieces (0: whole), and with its top bit a gap in the middle. Bytewise tells the same. */

#include <stdlib.h>

#include "flow/proto/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fold(uint64_t *sum, const char *ptr, size_t len)
{
	for (size_t i = 0; i < len; i++)
		*sum = (*sum ^ (unsigned char)ptr[i]) * 0x100000001b3ull;
	*sum = (*sum ^ len) * 0x100000001b3ull;
}

static void on_event(void *ctx, const struct sse_event *e)
{
	fold(ctx, e->type.ptr, e->type.len);
	fold(ctx, e->data.ptr, e->data.len + 1);
	if (e->data.ptr[e->data.len] || !e->type.len)
		abort();
}

static void on_comment(void *ctx, const struct stamp *at)
{
	(void)at;
	fold(ctx, ":", 1);
}

static uint64_t play(const uint8_t *data, size_t size, size_t piece, bool gap)
{
	uint64_t sum = 0;
	struct sse_sink sink = {&sum, on_event, on_comment};
	struct sse *s = sse_new(&sink);
	struct stamp at = {0};
	size_t middle = gap ? size / 2 : size;

	if (!s)
		return 0;
	for (size_t i = 0, n; i < size; i += n) {
		size_t end = i < middle ? middle : size;

		if (i == middle)
			sse_gap(s);
		n = piece && piece < end - i ? piece : end - i;
		sse_push(s, data + i, n, &at);
	}
	sse_finish(s);
	sse_free(s);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size &&
	    play(data + 1, size - 1, data[0] & 0x7f, data[0] & 0x80) != play(data + 1, size - 1, 1, data[0] & 0x80))
		abort();
	return 0;
}
