/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* First byte: the coding and the size of the pieces. Whole, in pieces and bytewise give the same bytes and the same
 * end. */

#include <stdlib.h>

#include "flow/proto/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct result {
	uint64_t sum, len;
	enum decode_status status, end; /* before and after it was said to be all */
};

static void on_bytes(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct result *r = ctx;

	(void)at;
	if (!len)
		abort();
	r->len += len;
	for (size_t i = 0; i < len; i++)
		r->sum = (r->sum ^ ptr[i]) * 0x100000001b3ull;
}

static struct result play(const char *coding, const uint8_t *data, size_t size, size_t piece)
{
	struct result r = {0};
	struct decode_sink sink = {&r, on_bytes};
	struct decode *d = decode_new(sv_of(coding), &sink);
	struct stamp at = {0};

	if (!d)
		return r;
	for (size_t i = 0, n; i < size; i += n) {
		n = piece && piece < size - i ? piece : size - i;
		decode_push(d, data + i, n, &at);
	}
	r.status = decode_status(d);
	if ((r.status == DECODE_OK) != (decode_undecoded(d)[0] == '\0'))
		abort();
	r.end = decode_finish(d);
	if (r.status != DECODE_OK && r.end != r.status)
		abort();
	decode_free(d);
	return r;
}

static bool same(struct result a, struct result b)
{
	return a.sum == b.sum && a.len == b.len && a.status == b.status && a.end == b.end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const codings[] = {"gzip", "deflate", "gzip, deflate",	  "identity",
					      "br",   "zstd",	 "deflate, gzip, x-gzip", "zstd, br"};
	const char *coding;
	struct result whole;

	if (!size)
		return 0;
	coding = codings[data[0] & 7];
	whole = play(coding, data + 1, size - 1, 0);
	if (!same(whole, play(coding, data + 1, size - 1, 1)) ||
	    !same(whole, play(coding, data + 1, size - 1, data[0] >> 3)))
		abort();
	return 0;
}
