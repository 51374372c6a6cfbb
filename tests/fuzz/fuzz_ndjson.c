/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "flow/proto/ndjson.h"
#include "tests/fuzz/steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_line(void *ctx, const struct ndjson_line *line)
{
	if (!line->text.len || memchr(line->text.ptr, '\n', line->text.len))
		abort();
	fold_sv(ctx, line->text);
	fold(ctx, line->at.ts_ns * 2 + line->unterminated);
}

static uint64_t play(const uint8_t *data, size_t size, bool bytewise)
{
	struct steps steps = {data, size, 1000};
	uint64_t sum = 0;
	struct ndjson *n = ndjson_new(&(struct ndjson_sink){&sum, on_line});
	struct step s;

	while (n && steps_next(&steps, &s)) {
		if (!s.ptr)
			ndjson_gap(n);
		for (size_t i = 0; s.ptr && bytewise && i < s.len; i++)
			ndjson_push(n, s.ptr + i, 1, &s.at);
		if (s.ptr && !bytewise)
			ndjson_push(n, s.ptr, s.len, &s.at);
	}
	if (n)
		ndjson_finish(n);
	ndjson_free(n);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	steps_compare(data, size, play);
	return 0;
}
