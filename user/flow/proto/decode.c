/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "decode.h"

#include <stdlib.h>

#include "decode_coder.h"

/* Limits are looked at where the output of a stage reaches a multiple of this, so that they do not depend on the cuts.
 */
#define OUT_BYTES 16384

enum stage_state {
	STAGE_BEGIN,   /* deflate: wrapped or raw is not told yet */
	STAGE_RUN,     /* inside a compressed stream */
	STAGE_MEMBER,  /* gzip: after a member, another may follow */
	STAGE_PADDING, /* after the end: zeros only */
};

struct stage {
	enum coding coding;
	enum stage_state state;
	struct coder coder;
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

static enum decode_status stage_failed(struct decode *d, const struct stage *s, enum coder_result r)
{
	return fail(d,
		    r == CODER_NO_MEMORY ? DECODE_NO_MEMORY
		    : r == CODER_LIMIT	 ? DECODE_LIMIT
					 : DECODE_CORRUPT,
		    s->name);
}

static enum decode_status stage_open(struct decode *d, struct stage *s, bool raw)
{
	enum coder_result r = coder_open(&s->coder, s->coding, raw);

	if (r != CODER_MORE)
		return stage_failed(d, s, r);
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
	copy_name(s->name, name);
	return coding == CODING_DEFLATE || stage_open(d, s, false) != DECODE_NO_MEMORY;
}

/* In the order in which they were applied. Return: false when out of memory. */
static bool codings_add(struct decode *d, struct sv list)
{
	while (list.ptr) {
		struct sv name = sv_trim(sv_cut(list, ',', &list));

		if (!name.len || sv_ieq(name, SV("identity")) || sv_ieq(name, SV("chunked")))
			continue;
		if (!stage_add(d, name))
			return false;
	}
	return true;
}

static struct decode *decode_make(const struct decode_sink *sink)
{
	struct decode *d = calloc(1, sizeof(*d));

	if (d)
		d->sink = *sink;
	return d;
}

struct decode *decode_new(struct sv content_encoding, const struct decode_sink *sink)
{
	struct decode *d = decode_make(sink);

	if (d && !codings_add(d, content_encoding)) {
		decode_free(d);
		return NULL;
	}
	return d;
}

static bool headers_add(struct decode *d, const struct http_head *h, struct sv name)
{
	for (size_t i = 0; i < h->header_count; i++)
		if (sv_ieq(h->headers[i].name, name) && !codings_add(d, h->headers[i].value))
			return false;
	return true;
}

struct decode *decode_new_of(const struct http_head *h, const struct decode_sink *sink)
{
	struct decode *d = decode_make(sink);

	if (d && h && !(headers_add(d, h, SV("content-encoding")) && headers_add(d, h, SV("transfer-encoding")))) {
		decode_free(d);
		return NULL;
	}
	return d;
}

static void stages_free(struct decode *d)
{
	for (unsigned i = 0; i < d->count; i++) {
		coder_close(&d->stages[i]->coder);
		free(d->stages[i]);
	}
	d->count = 0;
}

void decode_free(struct decode *d)
{
	if (!d)
		return;
	stages_free(d);
	free(d);
}

static enum decode_status stage_push(struct decode *d, unsigned i, const uint8_t *ptr, size_t len,
				     const struct stamp *at);

static bool over_limit(const struct stage *s, bool last)
{
	unsigned most = last ? DECODE_RATIO_MAX : DECODE_RATIO_STACKED;

	return s->out > DECODE_OUT_MAX || (s->out >= DECODE_RATIO_MIN && s->out / most > s->in);
}

/* One call of the decompressor, its output handed on. *used: bytes of input. */
static enum decode_status run_some(struct decode *d, unsigned i, const uint8_t *ptr, size_t len, size_t *used,
				   const struct stamp *at)
{
	struct stage *s = d->stages[i];
	size_t left = len, n;
	enum coder_result r = coder_run(&s->coder, &ptr, &left, s->buf, OUT_BYTES - s->out % OUT_BYTES, &n);

	*used = len - left;
	s->in += *used;
	s->out += n;
	if (n && stage_push(d, i + 1, s->buf, n, at) != DECODE_OK)
		return d->status;
	if (r == CODER_MEMBER || r == CODER_END)
		s->state = r == CODER_MEMBER ? STAGE_MEMBER : STAGE_PADDING;
	else if (r != CODER_MORE)
		return stage_failed(d, s, r);
	if (n && s->out % OUT_BYTES == 0 && over_limit(s, i + 1 == d->count))
		return fail(d, DECODE_LIMIT, s->name);
	return DECODE_OK;
}

/* Return: bytes of [ptr, ptr+len) that were used; d->status tells how it went. */
static size_t stage_run(struct decode *d, unsigned i, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct stage *s = d->stages[i];
	size_t done = 0, used;

	while (s->state == STAGE_RUN && d->status == DECODE_OK && (done < len || s->coder.full)) {
		run_some(d, i, ptr + done, len - done, &used, at);
		done += used;
	}
	return done;
}

/* RFC 1950 header, as all senders that do it right write it; else it is the bare RFC 1951 stream. */
static enum decode_status stage_detect(struct decode *d, unsigned i, const struct stamp *at)
{
	struct stage *s = d->stages[i];
	unsigned cmf = s->first[0], flg = s->first[1];
	bool wrapped = (cmf & 0x0f) == Z_DEFLATED && cmf >> 4 <= 7 && (cmf << 8 | flg) % 31 == 0;

	if (stage_open(d, s, !wrapped) != DECODE_OK)
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
		if (!coder_restart(&s->coder))
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
	if (d->status == DECODE_OK && len)
		stage_push(d, 0, ptr, len, at);
	if (d->status != DECODE_OK)
		stages_free(d);
	return d->status;
}

void decode_gap(struct decode *d)
{
	if (d->count)
		fail(d, DECODE_GAP, d->stages[0]->name);
	if (d->status != DECODE_OK)
		stages_free(d);
}

static bool stage_is_cut(const struct stage *s)
{
	switch (s->state) {
	case STAGE_BEGIN:
		return s->first_count;
	case STAGE_RUN:
		return s->in && !coder_is_between(&s->coder);
	default:
		return false;
	}
}

enum decode_status decode_finish(struct decode *d)
{
	for (unsigned i = 0; i < d->count && d->status == DECODE_OK; i++)
		if (stage_is_cut(d->stages[i]))
			fail(d, DECODE_CUT, d->stages[i]->name);
	if (d->status != DECODE_OK)
		stages_free(d);
	return d->status;
}

enum decode_status decode_status(const struct decode *d)
{
	return d->status;
}

bool decode_is_identity(const struct decode *d)
{
	return d->count == 0 && d->status == DECODE_OK;
}

void decode_warm(const struct decode *d, struct warm *w)
{
	warm_add(w, d, offsetof(struct decode, undecoded));
	for (unsigned i = 0; i < d->count; i++)
		warm_add(w, d->stages[i], sizeof(*d->stages[i]));
}

size_t decode_held(const struct decode *d)
{
	size_t held = 0;

	for (unsigned i = 0; i < d->count; i++)
		held += sizeof(*d->stages[i]) + d->stages[i]->coder.held;
	return held;
}

const char *decode_undecoded(const struct decode *d)
{
	return d->undecoded;
}
