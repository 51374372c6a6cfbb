/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ws_inflate.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "decode.h"
#include "ws.h"

/* Any smaller window that was agreed on is a part of this one. */
#define WINDOW_BITS 15

/* Through our own malloc, so that a failing one is tested. */
static voidpf z_alloc(voidpf opaque, uInt items, uInt size)
{
	(void)opaque;
	return calloc(items, size);
}

static void z_free(voidpf opaque, voidpf p)
{
	(void)opaque;
	free(p);
}

void ws_inflate_release(struct ws_inflate *i)
{
	if (i->open)
		inflateEnd(&i->z);
	i->open = false;
}

void ws_inflate_begin(struct ws_inflate *i)
{
	i->in = i->out = 0;
	i->ended = false;
}

void ws_inflate_forget(struct ws_inflate *i)
{
	if (i->open)
		inflateReset(&i->z);
}

static enum ws_inflate_status keep(struct ws_inflate *i, size_t len, struct buf *out, bool *over)
{
	int err = *over ? 0 : buf_push(out, i->step, len);

	*over |= err == -ENOSPC;
	return err == -ENOMEM ? WS_INFLATE_NO_MEMORY : WS_INFLATE_OK;
}

static bool over_limit(const struct ws_inflate *i)
{
	return i->out > WS_INFLATE_MAX || (i->out >= DECODE_RATIO_MIN && i->out / DECODE_RATIO_MAX > i->in);
}

/* One call of inflate. *more: there may be more output for the input so far. */
static enum ws_inflate_status inflate_some(struct ws_inflate *i, struct buf *out, bool *over, bool *more)
{
	size_t room = WS_INFLATE_STEP - i->out % WS_INFLATE_STEP, n;
	uInt before = i->z.avail_in;
	int r;

	i->z.next_out = i->step;
	i->z.avail_out = (uInt)room;
	r = inflate(&i->z, Z_SYNC_FLUSH);
	n = room - i->z.avail_out;
	i->in += before - i->z.avail_in;
	i->out += n;
	i->ended = r == Z_STREAM_END;
	*more = i->z.avail_out == 0;
	if (keep(i, n, out, over) != WS_INFLATE_OK || r == Z_MEM_ERROR)
		return WS_INFLATE_NO_MEMORY;
	/* A final block ends no message: another stream may follow in it or in the next one, and refer back. */
	if (r == Z_STREAM_END && inflateResetKeep(&i->z) == Z_OK)
		*more = false;
	else if (r != Z_OK && r != Z_BUF_ERROR)
		return WS_INFLATE_CORRUPT;
	return i->out % WS_INFLATE_STEP == 0 && over_limit(i) ? WS_INFLATE_LIMIT : WS_INFLATE_OK;
}

static enum ws_inflate_status run(struct ws_inflate *i, const uint8_t *ptr, uInt len, struct buf *out, bool *over)
{
	enum ws_inflate_status status = WS_INFLATE_OK;
	bool more = len;

	i->z.next_in = (z_const Bytef *)ptr;
	i->z.avail_in = len;
	while (status == WS_INFLATE_OK && (more || i->z.avail_in))
		status = inflate_some(i, out, over, &more);
	return status;
}

static enum ws_inflate_status open_stream(struct ws_inflate *i)
{
	if (i->open)
		return WS_INFLATE_OK;
	i->z = (z_stream){.zalloc = z_alloc, .zfree = z_free};
	i->open = inflateInit2(&i->z, -WINDOW_BITS) == Z_OK;
	return i->open ? WS_INFLATE_OK : WS_INFLATE_NO_MEMORY;
}

enum ws_inflate_status ws_inflate_assume(struct ws_inflate *i)
{
	static const uint8_t zeros[1 << WINDOW_BITS];
	enum ws_inflate_status status = open_stream(i);

	if (status == WS_INFLATE_OK && inflateSetDictionary(&i->z, zeros, sizeof(zeros)) != Z_OK)
		status = WS_INFLATE_NO_MEMORY;
	return status;
}

enum ws_inflate_status ws_inflate_push(struct ws_inflate *i, const uint8_t *ptr, size_t len, struct buf *out,
				       bool *over)
{
	enum ws_inflate_status status = open_stream(i);

	while (len && status == WS_INFLATE_OK) {
		uInt n = len < UINT_MAX ? (uInt)len : UINT_MAX;

		status = run(i, ptr, n, out, over);
		ptr += n;
		len -= n;
	}
	return status;
}

enum ws_inflate_status ws_inflate_end(struct ws_inflate *i, struct buf *out, bool *over)
{
	static const uint8_t tail[4] = {0x00, 0x00, 0xff, 0xff}; /* taken off by the sender */
	enum ws_inflate_status status;

	if (i->in == 0 || i->ended)
		return WS_INFLATE_OK;
	status = run(i, tail, sizeof(tail), out, over);
	if (status != WS_INFLATE_OK)
		return status;
	/* Bits of the last byte that are not used yet, or inside of a block: see data_type in zlib.h. */
	return (i->z.data_type & 0x3f) == 0 && (i->z.data_type & 0x80) ? WS_INFLATE_OK : WS_INFLATE_CORRUPT;
}
