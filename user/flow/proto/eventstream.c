/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "eventstream.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/buf.h"

#define PRELUDE_BYTES  12
#define OVERHEAD_BYTES 16    /* prelude, and the checksum at the end */
#define KEEP_BYTES     65536 /* memory kept between messages */

struct eventstream {
	struct eventstream_sink sink;
	bool in_step;
	uint8_t prelude[PRELUDE_BYTES];
	unsigned prelude_len;
	struct stamp
		prelude_at[PRELUDE_BYTES]; /* of each byte: which one is the first of a message is told by the last */
	uint32_t headers_len;
	uint64_t left;	  /* bytes of the message still to come; 0: reading a prelude */
	bool skip;	  /* this message is not kept */
	struct buf bytes; /* message so far, prelude included */
	unsigned errors, lost, oversize;
};

struct eventstream *eventstream_new(const struct eventstream_sink *sink)
{
	struct eventstream *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->sink = *sink;
	e->in_step = true;
	buf_init(&e->bytes, EVENTSTREAM_MESSAGE_MAX);
	return e;
}

void eventstream_free(struct eventstream *e)
{
	if (!e)
		return;
	buf_release(&e->bytes);
	free(e);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void drop_message(struct eventstream *e)
{
	buf_clear(&e->bytes);
	if (e->bytes.size > KEEP_BYTES)
		buf_release(&e->bytes);
	e->left = 0;
	e->prelude_len = 0;
	e->skip = false;
}

/* --- headers ----------------------------------------------------------------------------------------------------- */

/* Two's complement, big-endian. */
static int64_t get_number(const uint8_t *p, size_t len)
{
	uint64_t v = p[0] & 0x80 ? UINT64_MAX : 0;

	for (size_t i = 0; i < len; i++)
		v = v << 8 | p[i];
	return (int64_t)v;
}

/* The value at *p, which moves behind it. Return: false when it is not wholly there or of no known type. */
static bool read_value(struct sv *p, struct eventstream_header *h)
{
	static const uint8_t sizes[] = {0, 0, 1, 2, 4, 8, 0, 0, 8, 16};
	const uint8_t *at = (const uint8_t *)p->ptr;
	size_t size = sizes[h->type];

	if (h->type == EVENTSTREAM_BYTES || h->type == EVENTSTREAM_STRING) {
		if (p->len < 2)
			return false;
		size = (size_t)at[0] << 8 | at[1];
		p->ptr += 2, p->len -= 2;
	}
	if (p->len < size)
		return false;
	if (h->type <= EVENTSTREAM_FALSE)
		h->number = h->type == EVENTSTREAM_TRUE;
	else if (h->type <= EVENTSTREAM_INT64 || h->type == EVENTSTREAM_TIME)
		h->number = get_number(at, size);
	else
		h->bytes = (struct sv){p->ptr, size};
	p->ptr += size, p->len -= size;
	return true;
}

static bool read_header(struct sv *p, struct eventstream_header *h)
{
	size_t name_len = (uint8_t)p->ptr[0];
	uint8_t type;

	*h = (struct eventstream_header){0};
	if (!name_len || p->len < 1 + name_len + 1)
		return false;
	h->name = (struct sv){p->ptr + 1, name_len};
	type = (uint8_t)p->ptr[1 + name_len];
	p->ptr += 1 + name_len + 1, p->len -= 1 + name_len + 1;
	if (type > EVENTSTREAM_UUID)
		return false;
	h->type = (enum eventstream_type)type;
	return read_value(p, h);
}

/* The headers that events are told apart by. */
static void name_header(struct eventstream_event *event, const struct eventstream_header *h)
{
	const struct {
		struct sv name;
		struct sv *value;
	} known[] = {
		{SV(":message-type"), &event->message_type},	 {SV(":event-type"), &event->event_type},
		{SV(":exception-type"), &event->exception_type}, {SV(":content-type"), &event->content_type},
		{SV(":error-code"), &event->error_code},	 {SV(":error-message"), &event->error_message},
	};

	for (size_t i = 0; h->type == EVENTSTREAM_STRING && i < sizeof(known) / sizeof(known[0]); i++)
		if (sv_eq(h->name, known[i].name))
			*known[i].value = h->bytes;
}

static bool read_headers(struct sv text, struct eventstream_event *event, struct eventstream_header *kept)
{
	while (text.len) {
		struct eventstream_header h;

		if (!read_header(&text, &h))
			return false;
		name_header(event, &h);
		if (event->header_count < EVENTSTREAM_HEADER_KEEP)
			kept[event->header_count++] = h;
	}
	return true;
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

static void deliver(struct eventstream *e, const struct stamp *at)
{
	struct eventstream_header kept[EVENTSTREAM_HEADER_KEEP];
	struct eventstream_event event = {.headers = kept, .first = e->prelude_at[0], .at = *at};
	const uint8_t *p = (const uint8_t *)e->bytes.ptr;
	size_t body = e->bytes.len - OVERHEAD_BYTES;
	struct sv headers = {e->bytes.ptr + PRELUDE_BYTES, e->headers_len};

	event.payload = (struct sv){headers.ptr + headers.len, body - headers.len};
	if (crc32_z(0, p, e->bytes.len - 4) == get32(p + e->bytes.len - 4) && read_headers(headers, &event, kept))
		e->sink.on_event(e->sink.ctx, &event);
	else
		e->errors++;
}

static int begin_message(struct eventstream *e)
{
	uint32_t total = get32(e->prelude);

	e->in_step = true;
	e->headers_len = get32(e->prelude + 4);
	e->left = total - PRELUDE_BYTES;
	e->skip = total > EVENTSTREAM_MESSAGE_MAX;
	if (e->skip) {
		e->oversize++;
		return 0;
	}
	return buf_push(&e->bytes, e->prelude, PRELUDE_BYTES);
}

static bool prelude_fits(const uint8_t *p)
{
	uint32_t total = get32(p), headers = get32(p + 4);

	return total >= OVERHEAD_BYTES && total <= EVENTSTREAM_TOTAL_MAX && headers <= total - OVERHEAD_BYTES &&
	       headers <= EVENTSTREAM_HEADERS_MAX && crc32_z(0, p, 8) == get32(p + 8);
}

static int push_prelude(struct eventstream *e, uint8_t c, const struct stamp *at)
{
	e->prelude_at[e->prelude_len] = *at;
	e->prelude[e->prelude_len++] = c;
	if (e->prelude_len < PRELUDE_BYTES)
		return 0;
	if (prelude_fits(e->prelude))
		return begin_message(e);
	e->errors += e->in_step;
	e->in_step = false;
	e->prelude_len--;
	memmove(e->prelude, e->prelude + 1, e->prelude_len);
	memmove(e->prelude_at, e->prelude_at + 1, e->prelude_len * sizeof(e->prelude_at[0]));
	return 0;
}

static int push_message(struct eventstream *e, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	int err = e->skip ? 0 : buf_push(&e->bytes, ptr, len);

	if (err)
		return err;
	e->left -= len;
	if (e->left)
		return 0;
	if (!e->skip)
		deliver(e, at);
	drop_message(e);
	return 0;
}

int eventstream_push(struct eventstream *e, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	while (len) {
		size_t n = 1;
		int err;

		if (e->left) {
			n = len < e->left ? len : (size_t)e->left;
			err = push_message(e, ptr, n, at);
		} else {
			err = push_prelude(e, *ptr, at);
		}
		if (err)
			return err;
		ptr += n;
		len -= n;
	}
	return 0;
}

void eventstream_gap(struct eventstream *e, uint64_t len)
{
	uint64_t left = e->left;

	if (!len)
		return;
	e->lost += left && !e->skip;
	if (len > left) {
		drop_message(e);
		e->in_step = false;
		return;
	}
	buf_clear(&e->bytes);
	e->skip = true;
	e->left = left - len;
	if (!e->left)
		drop_message(e);
}

bool eventstream_at_end(const struct eventstream *e)
{
	return e->in_step && !e->left && !e->prelude_len;
}

unsigned eventstream_errors(const struct eventstream *e)
{
	return e->errors;
}

unsigned eventstream_lost(const struct eventstream *e)
{
	return e->lost;
}

unsigned eventstream_oversize(const struct eventstream *e)
{
	return e->oversize;
}

size_t eventstream_held(const struct eventstream *e)
{
	return e->bytes.size;
}
