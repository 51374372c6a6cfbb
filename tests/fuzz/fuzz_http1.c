/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* See http_steps.h. Flags: 1 from the first byte on, 2 the program is the server. */

#include "flow/proto/http1.h"
#include "tests/fuzz/http_steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *open_http1(uint8_t flags, const struct http_sink *sink, uint64_t *sum)
{
	(void)sum;
	return http1_new(flags & 1, flags & 2 ? DIR_RX : DIR_TX, sink);
}

HTTP_PARSER_FUNCTIONS(http1)
static const struct http_parser http1_parser = HTTP_PARSER(http1);

static const struct http_target target = {&http1_parser, open_http1, .park_ns = HTTP1_PARK_NS, .flags_used = 2};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	http_compare(&target, data, size);
	return 0;
}
