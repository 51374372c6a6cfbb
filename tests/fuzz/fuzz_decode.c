/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* First byte: the coding and the size of the pieces. Whole, in pieces and bytewise give the same bytes and the same
 * end. Of what turns out to be corrupt, how much came out before that may differ (decode.h). */

#include <stdlib.h>
#include <string.h>

#include "flow/proto/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BEGINNING 65536

struct result {
	uint8_t beginning[BEGINNING];
	uint64_t sum, len;
	enum decode_status status, end; /* before and after it was said to be all */
};

static void on_bytes(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct result *r = ctx;

	(void)at;
	if (!len)
		abort();
	for (size_t i = 0; i < len && r->len + i < BEGINNING; i++)
		r->beginning[r->len + i] = ptr[i];
	r->len += len;
	for (size_t i = 0; i < len; i++)
		r->sum = (r->sum ^ ptr[i]) * 0x100000001b3ull;
}

static void play(struct result *r, const char *coding, const uint8_t *data, size_t size, size_t piece)
{
	struct decode_sink sink = {r, on_bytes};
	struct decode *d = decode_new(sv_of(coding), &sink);
	struct stamp at = {0};

	r->sum = r->len = 0;
	if (!d)
		return;
	for (size_t i = 0, n; i < size; i += n) {
		n = piece && piece < size - i ? piece : size - i;
		decode_push(d, data + i, n, &at);
	}
	r->status = decode_status(d);
	if ((r->status == DECODE_OK) != (decode_undecoded(d)[0] == '\0'))
		abort();
	r->end = decode_finish(d);
	if (r->status != DECODE_OK && r->end != r->status)
		abort();
	decode_free(d);
}

static bool same(const struct result *a, const struct result *b)
{
	uint64_t shorter = a->len < b->len ? a->len : b->len;

	if (a->status != b->status || a->end != b->end)
		return false;
	if (a->status == DECODE_CORRUPT)
		return !memcmp(a->beginning, b->beginning, shorter < BEGINNING ? shorter : BEGINNING);
	return a->sum == b->sum && a->len == b->len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const codings[] = {"gzip", "deflate", "gzip, deflate",	  "identity",
					      "br",   "zstd",	 "deflate, gzip, x-gzip", "zstd, br"};
	static struct result whole, cut;
	size_t pieces[2];

	if (!size)
		return 0;
	pieces[0] = 1;
	pieces[1] = data[0] >> 3;
	play(&whole, codings[data[0] & 7], data + 1, size - 1, 0);
	for (int i = 0; i < 2; i++) {
		play(&cut, codings[data[0] & 7], data + 1, size - 1, pieces[i]);
		if (!same(&whole, &cut))
			abort();
	}
	return 0;
}
