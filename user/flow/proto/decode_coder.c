/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define ZSTD_STATIC_LINKING_ONLY /* for an allocator of our own */
#include "decode_coder.h"

#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <zstd_errors.h>

#define ZSTD_BLOCK_HEADER 3  /* bytes that zstd asks for beyond a block */
#define ZSTD_HEADER_MAX	  18 /* of a frame. Four bytes of it at once would be searched for formats before RFC 8878 */
#define ZSTD_WINDOW_LOG	  23 /* RFC 9659: what a receiver must cope with, and a sender must not exceed */

/* All through our own malloc, so that a failing one is tested, and that what is held is known. */
static void *counted(struct coder *c, void *p)
{
	c->held += p ? malloc_usable_size(p) : 0;
	return p;
}

static voidpf z_alloc(voidpf opaque, uInt items, uInt size)
{
	return counted(opaque, calloc(items, size));
}

static void *plain_alloc(void *opaque, size_t size)
{
	return counted(opaque, malloc(size));
}

static void plain_free(void *opaque, void *p)
{
	struct coder *c = opaque;

	c->held -= p ? malloc_usable_size(p) : 0;
	free(p);
}

enum coding coding_of(struct sv name)
{
	static const struct {
		struct sv name;
		enum coding coding;
	} codings[] = {
		{SV("gzip"), CODING_GZIP}, {SV("x-gzip"), CODING_GZIP}, {SV("deflate"), CODING_DEFLATE},
		{SV("br"), CODING_BROTLI}, {SV("zstd"), CODING_ZSTD},
	};

	for (size_t i = 0; i < sizeof(codings) / sizeof(codings[0]); i++)
		if (sv_ieq(name, codings[i].name))
			return codings[i].coding;
	return CODING_UNKNOWN;
}

static enum coder_result open_zlib(struct coder *c, bool raw)
{
	int bits = c->coding == CODING_GZIP ? 15 + 16 : raw ? -15 : 15, r;

	c->z = (z_stream){.zalloc = z_alloc, .zfree = plain_free, .opaque = c};
	r = inflateInit2(&c->z, bits);
	c->open = r == Z_OK;
	return r == Z_OK ? CODER_MORE : r == Z_MEM_ERROR ? CODER_NO_MEMORY : CODER_CORRUPT;
}

static enum coder_result open_brotli(struct coder *c)
{
	c->brotli = BrotliDecoderCreateInstance(plain_alloc, plain_free, c);
	c->open = c->brotli;
	return c->open ? CODER_MORE : CODER_NO_MEMORY;
}

static enum coder_result open_zstd(struct coder *c)
{
	c->zstd = ZSTD_createDCtx_advanced((ZSTD_customMem){plain_alloc, plain_free, c});
	c->open = c->zstd;
	if (!c->open)
		return CODER_NO_MEMORY;
	return ZSTD_isError(ZSTD_DCtx_setParameter(c->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG)) ? CODER_CORRUPT
												   : CODER_MORE;
}

enum coder_result coder_open(struct coder *c, enum coding coding, bool raw)
{
	*c = (struct coder){.coding = coding};
	switch (coding) {
	case CODING_BROTLI:
		return open_brotli(c);
	case CODING_ZSTD:
		return open_zstd(c);
	default:
		return open_zlib(c, raw);
	}
}

void coder_close(struct coder *c)
{
	if (!c->open)
		return;
	if (c->coding == CODING_BROTLI)
		BrotliDecoderDestroyInstance(c->brotli);
	else if (c->coding == CODING_ZSTD)
		ZSTD_freeDCtx(c->zstd);
	else
		inflateEnd(&c->z);
	c->open = false;
}

static enum coder_result run_zlib(struct coder *c, const uint8_t **in, size_t *in_len, uint8_t *out, size_t room,
				  size_t *out_len)
{
	uInt take = *in_len < UINT_MAX ? (uInt)*in_len : UINT_MAX;
	int r;

	c->z.next_in = (z_const Bytef *)*in;
	c->z.avail_in = take;
	c->z.next_out = out;
	c->z.avail_out = (uInt)room;
	r = inflate(&c->z, Z_SYNC_FLUSH);
	*out_len = room - c->z.avail_out;
	*in += take - c->z.avail_in;
	*in_len -= take - c->z.avail_in;
	if (r == Z_STREAM_END)
		return c->coding == CODING_GZIP ? CODER_MEMBER : CODER_END;
	return r == Z_OK || r == Z_BUF_ERROR ? CODER_MORE : r == Z_MEM_ERROR ? CODER_NO_MEMORY : CODER_CORRUPT;
}

static enum coder_result run_brotli(struct coder *c, const uint8_t **in, size_t *in_len, uint8_t *out, size_t room,
				    size_t *out_len)
{
	size_t given = !c->full && *in_len, left = given, space = room;
	BrotliDecoderErrorCode code;
	BrotliDecoderResult r;

	r = BrotliDecoderDecompressStream(c->brotli, &left, in, &space, &out, NULL);
	*in_len -= given - left;
	*out_len = room - space;
	if (r == BROTLI_DECODER_RESULT_SUCCESS)
		return CODER_END;
	if (r != BROTLI_DECODER_RESULT_ERROR)
		return CODER_MORE;
	code = BrotliDecoderGetErrorCode(c->brotli);
	return code <= BROTLI_DECODER_ERROR_ALLOC_CONTEXT_MODES && code >= BROTLI_DECODER_ERROR_ALLOC_BLOCK_TYPE_TREES
		       ? CODER_NO_MEMORY
		       : CODER_CORRUPT;
}

/* One frame's end is followed by another frame, or by nothing: its decoder sees to that by itself. */
static enum coder_result run_zstd(struct coder *c, const uint8_t **in, size_t *in_len, uint8_t *out, size_t room,
				  size_t *out_len)
{
	bool block = c->zstd_in >= ZSTD_HEADER_MAX && c->zstd_want > ZSTD_BLOCK_HEADER;
	size_t most = c->full ? 0 : block ? c->zstd_want - ZSTD_BLOCK_HEADER : 1;
	ZSTD_inBuffer from = {*in, *in_len < most ? *in_len : most, 0};
	ZSTD_outBuffer to = {out, room, 0};
	size_t r = ZSTD_decompressStream(c->zstd, &to, &from);

	*out_len = to.pos;
	*in += from.pos;
	*in_len -= from.pos;
	if (!ZSTD_isError(r)) {
		c->zstd_want = r;
		c->zstd_in = r ? c->zstd_in + from.pos : 0;
		return CODER_MORE;
	}
	switch (ZSTD_getErrorCode(r)) {
	case ZSTD_error_memory_allocation:
		return CODER_NO_MEMORY;
	case ZSTD_error_frameParameter_windowTooLarge:
		return CODER_LIMIT;
	default:
		return CODER_CORRUPT;
	}
}

enum coder_result coder_run(struct coder *c, const uint8_t **in, size_t *in_len, uint8_t *out, size_t room,
			    size_t *out_len)
{
	enum coder_result r = c->coding == CODING_BROTLI ? run_brotli(c, in, in_len, out, room, out_len)
			      : c->coding == CODING_ZSTD ? run_zstd(c, in, in_len, out, room, out_len)
							 : run_zlib(c, in, in_len, out, room, out_len);

	c->full = *out_len == room;
	return r;
}

bool coder_restart(struct coder *c)
{
	c->full = false;
	return inflateReset(&c->z) == Z_OK;
}

bool coder_is_between(const struct coder *c)
{
	return c->coding == CODING_ZSTD && !c->zstd_in;
}
