/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* See http_steps.h. Flags: 1 from the first byte on, 2 and 4 who the client is. */

#include "flow/proto/http2.h"

#define CONTRACT_OPEN_MAX (2 * HTTP2_STREAMS_MAX)
#include "tests/fuzz/http_steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void raw_bytes(void *ctx, uint64_t xid, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	fold_body(ctx, ~xid, dir == DIR_TX ? HTTP_REQUEST : HTTP_RESPONSE, ptr, len, at);
}

static void raw_gap(void *ctx, uint64_t xid, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	fold_body_gap(ctx, ~xid, dir == DIR_TX ? HTTP_REQUEST : HTTP_RESPONSE, len, why, at);
}

static void raw_end(void *ctx, uint64_t xid, enum http_abort why, uint64_t ts_ns)
{
	fold_abort(ctx, ~xid, why, 0, ts_ns);
}

static void *open_http2(uint8_t flags, const struct http_sink *sink, uint64_t *sum)
{
	struct http2 *h = http2_new(flags & 1, (enum http2_client)((flags >> 1 & 3) % 3), sink);

	if (h)
		http2_set_raw(h, &(struct http2_raw){sum, raw_bytes, raw_gap, raw_end});
	return h;
}

HTTP_PARSER_FUNCTIONS(http2)
static const struct http_parser http2_parser = HTTP_PARSER(http2);

static const struct http_target target = {&http2_parser, open_http2, .park_ns = HTTP2_PARK_NS, .flags_used = 3,
					  .lacking = true};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	http_compare(&target, data, size);
	return 0;
}
