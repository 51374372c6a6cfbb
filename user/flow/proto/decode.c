/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "decode.h"

#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

/* Limits are looked at where the output of a stage reaches a multiple of this, so that they do not depend on the cuts.
 */
#define OUT_BYTES 16384

enum coding { CODING_GZIP, CODING_DEFLATE, CODING_UNKNOWN };

enum stage_state {
	STAGE_BEGIN,   /* deflate: wrapped or raw is not told yet */
	STAGE_RUN,     /* inside a compressed stream */
	STAGE_MEMBER,  /* gzip: after a member, another may follow */
	STAGE_PADDING, /* after the end: zeros only */
};

struct stage {
	enum coding coding;
	enum stage_state state;
	z_stream z;
	bool z_open;
	uint8_t first[2]; /* STAGE_BEGIN */
	unsigned first_count;
	uint64_t in, out;
	char name[64];
	uint8_t buf[OUT_BYTES];
};

struct decode {
	struct decode_sink sink;
	enum decode_status status;
	unsigned count;
	struct stage *stages[DECODE_STACK_MAX]; /* in the order of decoding: the coding applied last is first */
	char undecoded[64];
};

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

static void copy_name(char out[64], struct sv name)
{
	size_t n = name.len < 63 ? name.len : 63;

	if (n)
		memcpy(out, name.ptr, n);
	out[n] = '\0';
}

static enum decode_status fail(struct decode *d, enum decode_status status, const char *name)
{
	if (d->status != DECODE_OK)
		return d->status;
	d->status = status;
	copy_name(d->undecoded, sv_of(name));
	return status;
}

static enum coding coding_of(struct sv name)
{
	if (sv_ieq(name, SV("gzip")) || sv_ieq(name, SV("x-gzip")))
		return CODING_GZIP;
	return sv_ieq(name, SV("deflate")) ? CODING_DEFLATE : CODING_UNKNOWN;
}

static enum decode_status stage_open(struct decode *d, struct stage *s, int window_bits)
{
	int r = inflateInit2(&s->z, window_bits);

	if (r != Z_OK)
		return fail(d, r == Z_MEM_ERROR ? DECODE_NO_MEMORY : DECODE_CORRUPT, s->name);
	s->z_open = true;
	s->state = STAGE_RUN;
	return DECODE_OK;
}

/* Return: false when out of memory. */
static bool stage_add(struct decode *d, struct sv name)
{
	enum coding coding = coding_of(name);
	struct stage *s;

	if (coding == CODING_UNKNOWN || d->count == DECODE_STACK_MAX) {
		if (d->status == DECODE_OK) {
			d->status = DECODE_UNKNOWN;
			copy_name(d->undecoded, name);
		}
		return true;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return false;
	memmove(d->stages + 1, d->stages, d->count * sizeof(d->stages[0]));
	d->stages[0] = s;
	d->count++;
	s->coding = coding;
	s->z.zalloc = z_alloc;
	s->z.zfree = z_free;
	copy_name(s->name, name);
	return coding != CODING_GZIP || stage_open(d, s, 15 + 16) != DECODE_NO_MEMORY;
}

struct decode *decode_new(struct sv content_encoding, const struct decode_sink *sink)
{
	struct decode *d = calloc(1, sizeof(*d));
	struct sv rest = content_encoding;

	if (!d)
		return NULL;
	d->sink = *sink;
	while (rest.ptr) {
		struct sv name = sv_trim(sv_cut(rest, ',', &rest));

		if (!name.len || sv_ieq(name, SV("identity")))
			continue;
		if (!stage_add(d, name)) {
			decode_free(d);
			return NULL;
		}
	}
	return d;
}

void decode_free(struct decode *d)
{
	if (!d)
		return;
	for (unsigned i = 0; i < d->count; i++) {
		if (d->stages[i]->z_open)
			inflateEnd(&d->stages[i]->z);
		free(d->stages[i]);
	}
	free(d);
}

static enum decode_status stage_push(struct decode *d, unsigned i, const uint8_t *ptr, size_t len,
				     const struct stamp *at);

static bool over_limit(const struct stage *s)
{
	return s->out > DECODE_OUT_MAX || (s->out >= DECODE_RATIO_MIN && s->out / DECODE_RATIO_MAX > s->in);
}

/* One call of inflate, its output handed on. *more: there may be more output for the input so far. */
static enum decode_status inflate_some(struct decode *d, unsigned i, bool *more, const struct stamp *at)
{
	struct stage *s = d->stages[i];
	size_t room = OUT_BYTES - s->out % OUT_BYTES, n;
	uInt before = s->z.avail_in;
	enum decode_status status = DECODE_OK;
	int r;

	s->z.next_out = s->buf;
	s->z.avail_out = (uInt)room;
	r = inflate(&s->z, Z_SYNC_FLUSH);
	n = room - s->z.avail_out;
	s->in += before - s->z.avail_in;
	s->out += n;
	*more = s->z.avail_out == 0;
	if (n)
		status = stage_push(d, i + 1, s->buf, n, at);
	if (status != DECODE_OK)
		return status;
	if (r == Z_STREAM_END) {
		s->state = s->coding == CODING_GZIP ? STAGE_MEMBER : STAGE_PADDING;
		*more = false;
	} else if (r == Z_MEM_ERROR) {
		return fail(d, DECODE_NO_MEMORY, s->name);
	} else if (r != Z_OK && r != Z_BUF_ERROR) {
		return fail(d, DECODE_CORRUPT, s->name);
	}
	if (s->out % OUT_BYTES == 0 && over_limit(s))
		return fail(d, DECODE_LIMIT, s->name);
	return DECODE_OK;
}

/* Return: bytes of [ptr, ptr+len) that were used; d->status tells how it went. */
static size_t stage_run(struct decode *d, unsigned i, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct stage *s = d->stages[i];
	size_t take = len < UINT_MAX ? len : UINT_MAX;
	bool more = true;

	s->z.next_in = (z_const Bytef *)ptr;
	s->z.avail_in = (uInt)take;
	while (s->state == STAGE_RUN && d->status == DECODE_OK && (more || s->z.avail_in))
		inflate_some(d, i, &more, at);
	return take - s->z.avail_in;
}

/* RFC 1950 header, as all senders that do it right write it; else it is the bare RFC 1951 stream. */
static enum decode_status stage_detect(struct decode *d, unsigned i, const struct stamp *at)
{
	struct stage *s = d->stages[i];
	unsigned cmf = s->first[0], flg = s->first[1];
	bool wrapped = (cmf & 0x0f) == Z_DEFLATED && cmf >> 4 <= 7 && (cmf << 8 | flg) % 31 == 0;

	if (stage_open(d, s, wrapped ? 15 : -15) != DECODE_OK)
		return d->status;
	stage_run(d, i, s->first, sizeof(s->first), at);
	return d->status;
}

/* What follows the end of a compressed stream. Return: bytes used. */
static size_t stage_after(struct decode *d, unsigned i, const uint8_t *ptr, size_t len)
{
	struct stage *s = d->stages[i];
	size_t n = 0;

	if (s->state == STAGE_MEMBER && ptr[0] == 0x1f) {
		if (inflateReset(&s->z) != Z_OK)
			fail(d, DECODE_CORRUPT, s->name);
		s->state = STAGE_RUN;
		return 0;
	}
	s->state = STAGE_PADDING;
	while (n < len && ptr[n] == 0)
		n++;
	if (n < len)
		fail(d, DECODE_CORRUPT, s->name);
	return n;
}

static enum decode_status stage_push(struct decode *d, unsigned i, const uint8_t *ptr, size_t len,
				     const struct stamp *at)
{
	struct stage *s;

	if (i == d->count) {
		d->sink.on_bytes(d->sink.ctx, ptr, len, at);
		return DECODE_OK;
	}
	s = d->stages[i];
	while (len && d->status == DECODE_OK) {
		size_t n = 1;

		if (s->state == STAGE_BEGIN) {
			s->first[s->first_count++] = *ptr;
			if (s->first_count == sizeof(s->first))
				stage_detect(d, i, at);
		} else if (s->state == STAGE_RUN) {
			n = stage_run(d, i, ptr, len, at);
		} else {
			n = stage_after(d, i, ptr, len);
		}
		ptr += n;
		len -= n;
	}
	return d->status;
}

enum decode_status decode_push(struct decode *d, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	if (d->status != DECODE_OK || !len)
		return d->status;
	return stage_push(d, 0, ptr, len, at);
}

void decode_gap(struct decode *d)
{
	if (d->count)
		fail(d, DECODE_GAP, d->stages[0]->name);
}

enum decode_status decode_status(const struct decode *d)
{
	return d->status;
}

bool decode_is_identity(const struct decode *d)
{
	return d->count == 0 && d->status == DECODE_OK;
}

const char *decode_undecoded(const struct decode *d)
{
	return d->undecoded;
}
