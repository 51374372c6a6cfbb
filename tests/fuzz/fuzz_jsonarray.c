/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "flow/proto/jsonarray.h"
#include "tests/fuzz/steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_element(void *ctx, const struct jsonarray_element *e)
{
	char first = e->text.len < 2 ? 0 : e->text.ptr[0], last = e->text.ptr[e->text.len - 1];

	if ((first != '{' && first != '[') || (last != '}' && last != ']'))
		abort();
	fold_sv(ctx, e->text);
	fold(ctx, e->at.ts_ns * 2 + e->after_gap);
}

static uint64_t play(const uint8_t *data, size_t size, bool bytewise)
{
	struct steps steps = {data, size, 1000};
	uint64_t sum = 0;
	struct jsonarray *a = jsonarray_new(&(struct jsonarray_sink){&sum, on_element});
	struct step s;

	while (a && steps_next(&steps, &s)) {
		if (!s.ptr)
			jsonarray_gap(a);
		for (size_t i = 0; s.ptr && bytewise && i < s.len; i++)
			jsonarray_push(a, s.ptr + i, 1, &s.at);
		if (s.ptr && !bytewise)
			jsonarray_push(a, s.ptr, s.len, &s.at);
	}
	if (a)
		fold(&sum, jsonarray_closed(a) * 2 + jsonarray_is_json(a));
	jsonarray_free(a);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	steps_compare(data, size, play);
	return 0;
}
