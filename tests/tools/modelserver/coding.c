/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

#include "coding.h"

#include <brotli/decode.h>
#include <brotli/encode.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum kind { GZIP, DEFLATE, RAW_DEFLATE, BROTLI, ZSTD };
static const char *const kind_names[] = {"gzip", "deflate", "deflate", "br", "zstd"};

struct coder {
	enum kind kind;
	z_stream z;
	BrotliEncoderState *brotli;
	ZSTD_CStream *zstd;
};

/* --- on the way out ---------------------------------------------------------------------------------------------- */

static int add(struct coding *c, enum kind kind)
{
	static const int window_bits[] = {[GZIP] = 15 + 16, [DEFLATE] = 15, [RAW_DEFLATE] = -15};
	struct coder *one = calloc(1, sizeof(*one));
	bool ok;

	if (!one)
		return -ENOMEM;
	one->kind = kind;
	if (kind == BROTLI) {
		one->brotli = BrotliEncoderCreateInstance(NULL, NULL, NULL);
		ok = one->brotli && BrotliEncoderSetParameter(one->brotli, BROTLI_PARAM_QUALITY, 4);
	} else if (kind == ZSTD) {
		one->zstd = ZSTD_createCStream();
		ok = one->zstd != NULL;
	} else {
		ok = deflateInit2(&one->z, 6, Z_DEFLATED, window_bits[kind], 8, Z_DEFAULT_STRATEGY) == Z_OK;
	}
	if (!ok) {
		free(one);
		return -ENOMEM;
	}
	if (c->count)
		strcat(c->name, ", ");
	strcat(c->name, kind_names[kind]);
	c->coders[c->count++] = one;
	return 0;
}

int coding_init(struct coding *c, const struct knobs *k)
{
	int err = 0;

	memset(c, 0, sizeof(*c));
	if (k->gzip > 0)
		err = add(c, GZIP);
	if (!err && k->deflate > 0)
		err = add(c, k->deflate > 1 ? RAW_DEFLATE : DEFLATE);
	if (!err && k->br > 0)
		err = add(c, BROTLI);
	if (!err && k->zstd > 0)
		err = add(c, ZSTD);
	if (err)
		coding_release(c);
	return err;
}

void coding_release(struct coding *c)
{
	unsigned i;

	for (i = 0; i < c->count; i++) {
		struct coder *one = c->coders[i];

		if (one->kind == BROTLI)
			BrotliEncoderDestroyInstance(one->brotli);
		else if (one->kind == ZSTD)
			ZSTD_freeCStream(one->zstd);
		else
			deflateEnd(&one->z);
		free(one);
	}
	memset(c, 0, sizeof(*c));
}

static int push_deflate(struct coder *one, const char *ptr, size_t len, bool last, struct buf *out)
{
	unsigned char bytes[16384];

	one->z.next_in = (unsigned char *)(uintptr_t)ptr;
	one->z.avail_in = (unsigned)len;
	do {
		one->z.next_out = bytes;
		one->z.avail_out = sizeof(bytes);
		if (deflate(&one->z, last ? Z_FINISH : Z_SYNC_FLUSH) == Z_STREAM_ERROR)
			return -EIO;
		buf_push(out, bytes, sizeof(bytes) - one->z.avail_out);
	} while (!one->z.avail_out);
	return 0;
}

static int push_brotli(struct coder *one, const char *ptr, size_t len, bool last, struct buf *out)
{
	BrotliEncoderOperation what = last ? BROTLI_OPERATION_FINISH : BROTLI_OPERATION_FLUSH;
	const uint8_t *next = (const uint8_t *)ptr;
	uint8_t bytes[16384];

	do {
		uint8_t *to = bytes;
		size_t room = sizeof(bytes);

		if (!BrotliEncoderCompressStream(one->brotli, what, &len, &next, &room, &to, NULL))
			return -EIO;
		buf_push(out, bytes, sizeof(bytes) - room);
	} while (len || BrotliEncoderHasMoreOutput(one->brotli));
	return 0;
}

static int push_zstd(struct coder *one, const char *ptr, size_t len, bool last, struct buf *out)
{
	ZSTD_inBuffer in = {ptr, len, 0};
	char bytes[16384];
	size_t left;

	do {
		ZSTD_outBuffer to = {bytes, sizeof(bytes), 0};

		left = ZSTD_compressStream2(one->zstd, &to, &in, last ? ZSTD_e_end : ZSTD_e_flush);
		if (ZSTD_isError(left))
			return -EIO;
		buf_push(out, bytes, to.pos);
	} while (left);
	return 0;
}

static int push_one(struct coder *one, const char *ptr, size_t len, bool last, struct buf *out)
{
	if (one->kind == BROTLI)
		return push_brotli(one, ptr, len, last, out);
	if (one->kind == ZSTD)
		return push_zstd(one, ptr, len, last, out);
	return push_deflate(one, ptr, len, last, out);
}

int coding_push(struct coding *c, const char *ptr, size_t len, bool last, struct buf *out)
{
	struct buf between[2];
	int err = 0;
	unsigned i;

	if (!c->count)
		return buf_push(out, ptr, len);
	buf_init(&between[0], 0);
	buf_init(&between[1], 0);
	for (i = 0; i < c->count && !err; i++) {
		struct buf *to = i + 1 == c->count ? out : &between[i % 2];

		if (to != out)
			buf_clear(to);
		err = push_one(c->coders[i], ptr, len, last, to);
		ptr = to->ptr;
		len = to->len;
	}
	buf_release(&between[0]);
	buf_release(&between[1]);
	return err;
}

/* --- on the way in ----------------------------------------------------------------------------------------------- */

static int undo_deflate(const struct buf *in, struct buf *out, int window_bits)
{
	z_stream z = {.next_in = (unsigned char *)in->ptr, .avail_in = (unsigned)in->len};
	unsigned char bytes[16384];
	int err = 0, result;

	if (inflateInit2(&z, window_bits) != Z_OK)
		return -EINVAL;
	do {
		z.next_out = bytes;
		z.avail_out = sizeof(bytes);
		result = inflate(&z, Z_NO_FLUSH);
		err = buf_push(out, bytes, sizeof(bytes) - z.avail_out);
	} while (!err && result == Z_OK);
	inflateEnd(&z);
	return result == Z_STREAM_END ? err : -EINVAL;
}

static int undo_brotli(const struct buf *in, struct buf *out)
{
	BrotliDecoderState *state = BrotliDecoderCreateInstance(NULL, NULL, NULL);
	const uint8_t *next = (const uint8_t *)in->ptr;
	BrotliDecoderResult result;
	size_t len = in->len;
	uint8_t bytes[16384];
	int err = 0;

	if (!state)
		return -EINVAL;
	do {
		uint8_t *to = bytes;
		size_t room = sizeof(bytes);

		result = BrotliDecoderDecompressStream(state, &len, &next, &room, &to, NULL);
		err = buf_push(out, bytes, sizeof(bytes) - room);
	} while (!err && result == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT);
	BrotliDecoderDestroyInstance(state);
	return result == BROTLI_DECODER_RESULT_SUCCESS ? err : -EINVAL;
}

static int undo_zstd(const struct buf *in, struct buf *out)
{
	ZSTD_inBuffer from = {in->ptr, in->len, 0};
	ZSTD_DStream *state = ZSTD_createDStream();
	size_t left = 1;
	char bytes[16384];
	int err = state ? 0 : -EINVAL;

	while (!err && left && (from.pos < from.size)) {
		ZSTD_outBuffer to = {bytes, sizeof(bytes), 0};

		left = ZSTD_decompressStream(state, &to, &from);
		err = ZSTD_isError(left) ? -EINVAL : buf_push(out, bytes, to.pos);
	}
	ZSTD_freeDStream(state);
	return left ? -EINVAL : err;
}

static int undo_one(struct sv name, const struct buf *in, struct buf *out)
{
	if (sv_ieq(name, SV("identity")))
		return buf_push(out, in->ptr, in->len);
	if (sv_ieq(name, SV("gzip")) || sv_ieq(name, SV("deflate")))
		return undo_deflate(in, out, 15 + 32);
	if (sv_ieq(name, SV("br")))
		return undo_brotli(in, out);
	return sv_ieq(name, SV("zstd")) ? undo_zstd(in, out) : -ENOTSUP;
}

int coding_undo(struct sv names, struct buf *body)
{
	int err = 0;

	while (names.len && !err) {
		const char *comma = memrchr(names.ptr, ',', names.len);
		size_t at = comma ? (size_t)(comma + 1 - names.ptr) : 0;
		struct buf plain;

		buf_init(&plain, body->cap);
		err = undo_one(sv_trim((struct sv){names.ptr + at, names.len - at}), body, &plain);
		buf_release(body);
		*body = plain;
		names.len = at ? at - 1 : 0;
	}
	return err;
}
