/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define LINE_MAX_BYTES (SSE_EVENT_MAX + 64) /* a field's name before the most data that an event may have */
#define TYPE_MAX_BYTES 1024		    /* of an event's name; longer ones are cut */
#define KEEP_BYTES     65536		    /* memory kept between events */
#define SCAN_BYTES     256		    /* looked through at once for a line end */

static const uint8_t bom[3] = {0xef, 0xbb, 0xbf};

struct sse {
	struct sse_sink sink;
	unsigned bom_seen; /* bytes of a byte order mark so far */
	bool started;	   /* no byte order mark any more */
	bool after_cr;	   /* a LF now belongs to the line end before it */
	bool line_begun;   /* the line at hand has a byte; `line` may lack it when nothing is kept */
	bool comment;	   /* ... and began with a colon */
	bool skipping;	   /* up to the next blank line */
	struct stamp part; /* of the last byte of a line that is not complete */
	bool bare;	   /* the event at hand is JSON without field names */
	bool data_seen;
	struct buf line, data, type;
	struct stamp last; /* of the last line end */
	unsigned oversize;
};

struct sse *sse_new(const struct sse_sink *sink)
{
	struct sse *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->sink = *sink;
	buf_init(&s->line, LINE_MAX_BYTES);
	buf_init(&s->data, SSE_EVENT_MAX + 1); /* and the LF that is taken off at the end */
	buf_init(&s->type, TYPE_MAX_BYTES);
	return s;
}

void sse_free(struct sse *s)
{
	if (!s)
		return;
	buf_release(&s->line);
	buf_release(&s->data);
	buf_release(&s->type);
	free(s);
}

static void clear_some(struct buf *b)
{
	buf_clear(b);
	if (b->size > KEEP_BYTES)
		buf_release(b);
}

static void drop_event(struct sse *s)
{
	clear_some(&s->data);
	buf_clear(&s->type);
	s->data_seen = s->bare = false;
}

static void oversize(struct sse *s)
{
	drop_event(s);
	clear_some(&s->line);
	s->skipping = true;
	s->oversize++;
}

static void deliver(struct sse *s, const struct stamp *at, bool unterminated)
{
	struct sse_event e = {.type = SV("message"), .at = *at, .unterminated = unterminated};

	if (s->data_seen) {
		size_t len = s->data.len - 1; /* without the last LF, whose place the terminator takes */

		s->data.ptr[len] = '\0';
		e.data = (struct sv){s->data.ptr, len};
		if (s->type.len)
			e.type = (struct sv){s->type.ptr, s->type.len};
		s->sink.on_event(s->sink.ctx, &e);
	}
	drop_event(s);
}

static int add_data(struct sse *s, struct sv value)
{
	int err = buf_reserve(&s->data, value.len + 1);

	if (err == -ENOSPC) {
		oversize(s);
		return 0;
	}
	if (err)
		return err;
	buf_push(&s->data, value.ptr, value.len);
	buf_putc(&s->data, '\n');
	s->data_seen = true;
	return 0;
}

static int set_type(struct sse *s, struct sv value)
{
	buf_clear(&s->type);
	return buf_push(&s->type, value.ptr, value.len < TYPE_MAX_BYTES ? value.len : TYPE_MAX_BYTES);
}

/* A line of JSON that stands there without a field name: no field's name begins with a brace. It goes on to the blank
 * line, or to a line of data. */
static bool is_bare(struct sse *s, struct sv line)
{
	if (s->bare)
		return !sv_starts(line, SV("data:")) && !sv_starts(line, SV("event:"));
	s->bare = !s->data_seen && *line.ptr == '{';
	return s->bare;
}

/* `id` and `retry` are for clients that reconnect. */
static int field(struct sse *s, struct sv line, const struct stamp *at)
{
	struct sv value, name = sv_cut(line, ':', &value);

	if (is_bare(s, line))
		return add_data(s, line);
	if (s->bare)
		deliver(s, at, false);
	if (value.len && value.ptr[0] == ' ')
		value.ptr++, value.len--;
	if (sv_eq(name, SV("data")))
		return add_data(s, value);
	if (sv_eq(name, SV("event")))
		return set_type(s, value);
	return 0;
}

/* A line is complete; `tail` is what `line` lacks of it. */
static int line_end(struct sse *s, struct sv tail, const struct stamp *at)
{
	bool blank = !s->line_begun && !tail.len;
	bool comment = s->comment || (!s->line_begun && tail.len && *tail.ptr == ':');
	int err = 0;

	s->last = *at;
	s->line_begun = s->comment = false;
	if (blank) {
		if (!s->skipping)
			deliver(s, at, false);
		s->skipping = false;
		return 0;
	}
	if (comment) {
		if (s->sink.on_comment)
			s->sink.on_comment(s->sink.ctx, at);
		return 0;
	}
	if (s->skipping)
		return 0;
	if (tail.len > LINE_MAX_BYTES - s->line.len) { /* also one that would need no room, being whole */
		oversize(s);
		return 0;
	}
	if (!s->line.len)
		return field(s, tail, at);
	err = buf_push(&s->line, tail.ptr, tail.len);
	if (!err)
		err = field(s, (struct sv){s->line.ptr, s->line.len}, at);
	clear_some(&s->line);
	return err;
}

/* The beginning of a line whose end has not come. */
static int line_part(struct sse *s, struct sv part, const struct stamp *at)
{
	int err;

	if (!part.len)
		return 0;
	s->part = *at;
	if (!s->line_begun)
		s->comment = *part.ptr == ':';
	s->line_begun = true;
	if (s->comment || s->skipping)
		return 0;
	err = buf_push(&s->line, part.ptr, part.len);
	if (err != -ENOSPC)
		return err;
	oversize(s);
	return 0;
}

/* Up to the first CR or LF. By blocks, so that looking for the one does not run far past the other. */
static size_t line_length(const char *ptr, size_t len)
{
	size_t block;

	for (size_t n = 0; n < len; n += block) {
		const char *lf, *cr;

		block = len - n < SCAN_BYTES ? len - n : SCAN_BYTES;
		lf = memchr(ptr + n, '\n', block);
		cr = memchr(ptr + n, '\r', lf ? (size_t)(lf - ptr) - n : block);
		if (cr || lf)
			return (size_t)((cr ? cr : lf) - ptr);
	}
	return len;
}

static int push_text(struct sse *s, const char *ptr, size_t len, const struct stamp *at)
{
	while (len) {
		struct sv text;
		int err;

		if (s->after_cr && *ptr == '\n') {
			s->after_cr = false;
			ptr++, len--;
			continue;
		}
		s->after_cr = false;
		text = (struct sv){ptr, line_length(ptr, len)};
		if (text.len == len)
			return line_part(s, text, at);
		s->after_cr = ptr[text.len] == '\r';
		err = line_end(s, text, at);
		if (err)
			return err;
		ptr += text.len + 1;
		len -= text.len + 1;
	}
	return 0;
}

int sse_push(struct sse *s, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	while (len && !s->started) {
		int err;

		if (*ptr == bom[s->bom_seen]) {
			s->bom_seen++;
			ptr++, len--;
			s->started = s->bom_seen == sizeof(bom);
			continue;
		}
		s->started = true;
		err = push_text(s, (const char *)bom, s->bom_seen, at);
		if (err)
			return err;
	}
	return push_text(s, (const char *)ptr, len, at);
}

void sse_gap(struct sse *s)
{
	drop_event(s);
	clear_some(&s->line);
	s->started = true;
	s->skipping = true;
	s->after_cr = s->comment = false;
	s->line_begun = true; /* the next bytes may be anywhere in a line: its end is no blank line */
}

void sse_finish(struct sse *s)
{
	struct sv line = {s->line.ptr, s->line.len};

	/* only there a line may lack its end: what it says is whole if it is JSON */
	if (!s->skipping && line.len && is_bare(s, line)) {
		s->last = s->part;
		add_data(s, line);
	}
	if (!s->skipping)
		deliver(s, &s->last, true);
	drop_event(s);
	buf_clear(&s->line);
	s->line_begun = false;
}

unsigned sse_oversize(const struct sse *s)
{
	return s->oversize;
}

void sse_warm(const struct sse *s, struct warm *w)
{
	warm_add(w, s, sizeof(*s));
	warm_add(w, s->type.ptr, 1);
	warm_add(w, s->data.ptr, 2 * WARM_LINE_BYTES);
}

size_t sse_held(const struct sse *s)
{
	return s->line.size + s->data.size + s->type.size;
}
