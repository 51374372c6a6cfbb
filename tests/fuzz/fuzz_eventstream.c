/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Checksums keep a fuzzer out: those of a message are put right, where its lengths allow, before it is pushed. */

#include <zlib.h>

#include "flow/proto/eventstream.h"
#include "tests/fuzz/steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_event(void *ctx, const struct eventstream_event *e)
{
	fold_sv(ctx, e->message_type);
	fold_sv(ctx, e->event_type);
	fold_sv(ctx, e->exception_type);
	fold_sv(ctx, e->content_type);
	fold_sv(ctx, e->error_code);
	fold_sv(ctx, e->error_message);
	fold_sv(ctx, e->payload);
	for (size_t i = 0; i < e->header_count; i++) {
		fold_sv(ctx, e->headers[i].name);
		fold_sv(ctx, e->headers[i].bytes);
		fold(ctx, (uint64_t)e->headers[i].number * 16 + e->headers[i].type);
	}
	fold(ctx, e->first.ts_ns);
	fold(ctx, e->at.ts_ns);
}

static void put32(uint8_t *p, unsigned long v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* A step whose first byte is 0 is a message: its total length is made to fit, its checksums right. */
static void repair(uint8_t *p, size_t len)
{
	if (len < 16 || p[0])
		return;
	put32(p, len);
	put32(p + 8, crc32(0, p, 8));
	put32(p + len - 4, crc32(0, p, (uInt)len - 4));
}

static uint64_t play(const uint8_t *data, size_t size, bool bytewise)
{
	struct steps steps = {data, size, 1000};
	uint64_t sum = 0;
	struct eventstream *e = eventstream_new(&(struct eventstream_sink){&sum, on_event});
	struct step s;

	while (e && steps_next(&steps, &s)) {
		uint8_t copy[4096];

		if (!s.ptr) {
			eventstream_gap(e, s.len);
			continue;
		}
		memcpy(copy, s.ptr, s.len);
		repair(copy, s.len);
		for (size_t i = 0; bytewise && i < s.len; i++)
			eventstream_push(e, copy + i, 1, &s.at);
		if (!bytewise)
			eventstream_push(e, copy, s.len, &s.at);
	}
	if (e) {
		fold(&sum, eventstream_errors(e));
		fold(&sum, eventstream_lost(e) * 2 + eventstream_at_end(e));
	}
	eventstream_free(e);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	steps_compare(data, size, play);
	return 0;
}
