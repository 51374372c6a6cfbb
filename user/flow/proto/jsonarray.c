/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "jsonarray.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"

#define KEEP_BYTES 65536 /* memory kept between elements */

enum state {
	STATE_BEGIN,   /* nothing but space so far */
	STATE_BETWEEN, /* elements may begin */
	STATE_STRING,  /* inside a string that is an element of its own */
	STATE_ELEMENT,
	STATE_CLOSED,
	STATE_LOST,  /* after a gap: up to a line's begin */
	STATE_OTHER, /* no JSON array */
};

struct jsonarray {
	struct jsonarray_sink sink;
	enum state state;
	unsigned mark;	      /* bytes of a byte order mark so far */
	uint64_t depth;	      /* brackets open in the element */
	bool string, escaped; /* of the element, or of STATE_STRING */
	bool bare;	      /* no `[` around the elements */
	bool line_begins;     /* STATE_LOST: the byte before was a LF */
	bool after_gap, over;
	struct buf text; /* the beginning of an element that was cut */
	unsigned oversize;
};

struct jsonarray *jsonarray_new(const struct jsonarray_sink *sink)
{
	struct jsonarray *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->sink = *sink;
	buf_init(&a->text, JSONARRAY_ELEMENT_MAX);
	return a;
}

void jsonarray_free(struct jsonarray *a)
{
	if (!a)
		return;
	buf_release(&a->text);
	free(a);
}

static void drop_text(struct jsonarray *a)
{
	buf_clear(&a->text);
	if (a->text.size > KEEP_BYTES)
		buf_release(&a->text);
}

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void begin_element(struct jsonarray *a)
{
	a->state = STATE_ELEMENT;
	a->depth = 0; /* its first bracket is still to come */
	a->string = a->escaped = a->over = false;
}

/* One byte outside of elements. Return: whether it is used up; an element's first bracket is not. */
static bool between(struct jsonarray *a, uint8_t c)
{
	static const uint8_t mark[3] = {0xef, 0xbb, 0xbf};

	if (a->state == STATE_BEGIN && a->mark < sizeof(mark) && c == mark[a->mark]) {
		a->mark++;
		return true;
	}
	if (is_space(c))
		return true;
	if (a->state == STATE_BEGIN) {
		a->bare = c == '{';
		a->state = c == '[' || c == '{' ? STATE_BETWEEN : STATE_OTHER;
		return !a->bare;
	}
	if (c == '{' || (c == '[' && !a->bare)) {
		begin_element(a);
		return false;
	}
	if (c == '"') {
		a->state = STATE_STRING;
		a->escaped = false;
	} else if (c == ']' && !a->bare) {
		/* After a gap it may be the end of an array inside of an element. */
		a->state = a->after_gap ? STATE_LOST : STATE_CLOSED;
	}
	return true;
}

/* Whether a string goes on after this byte of it. */
static bool string_goes_on(struct jsonarray *a, uint8_t c)
{
	bool escaped = a->escaped;

	a->escaped = !escaped && c == '\\';
	return escaped || c != '"';
}

static bool lost(struct jsonarray *a, uint8_t c)
{
	bool begins = a->line_begins;

	a->line_begins = c == '\n';
	if (!begins || c != '{')
		return true;
	begin_element(a);
	return false;
}

/* Bytes of the element in [ptr, ptr+len), its last bracket included; *closed: that one is there. */
static size_t element_length(struct jsonarray *a, const uint8_t *ptr, size_t len, bool *closed)
{
	*closed = false;
	for (size_t i = 0; i < len; i++) {
		uint8_t c = ptr[i];

		if (a->string) {
			a->string = string_goes_on(a, c);
		} else if (c == '"') {
			a->string = true;
		} else if (c == '{' || c == '[') {
			a->depth++;
		} else if ((c == '}' || c == ']') && --a->depth == 0) {
			*closed = true;
			return i + 1;
		}
	}
	return len;
}

static int keep(struct jsonarray *a, struct sv part)
{
	int err = a->over ? 0 : buf_push(&a->text, part.ptr, part.len);

	if (err != -ENOSPC)
		return err;
	a->over = true;
	a->oversize++;
	drop_text(a);
	return 0;
}

/* The element is complete; `tail` is what `text` lacks of it. */
static int end_element(struct jsonarray *a, struct sv tail, const struct stamp *at)
{
	struct jsonarray_element e = {.text = tail, .at = *at, .after_gap = a->after_gap};

	if (a->text.len || a->over || tail.len > JSONARRAY_ELEMENT_MAX) {
		int err = keep(a, tail);

		if (err)
			return err;
		e.text = (struct sv){a->text.ptr, a->text.len};
	}
	a->state = STATE_BETWEEN;
	if (!a->over)
		a->sink.on_element(a->sink.ctx, &e);
	drop_text(a);
	return 0;
}

static int push_element(struct jsonarray *a, const uint8_t *ptr, size_t len, size_t *used, const struct stamp *at)
{
	bool closed;
	struct sv part = {(const char *)ptr, element_length(a, ptr, len, &closed)};

	*used = part.len;
	return closed ? end_element(a, part, at) : keep(a, part);
}

int jsonarray_push(struct jsonarray *a, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	while (len) {
		size_t used = 1;
		int err = 0;

		if (a->state == STATE_CLOSED || a->state == STATE_OTHER)
			return 0;
		if (a->state == STATE_ELEMENT)
			err = push_element(a, ptr, len, &used, at);
		else if (a->state == STATE_STRING)
			a->state = string_goes_on(a, *ptr) ? STATE_STRING : STATE_BETWEEN;
		else if (a->state == STATE_LOST)
			used = lost(a, *ptr);
		else
			used = between(a, *ptr);
		if (err)
			return err;
		ptr += used;
		len -= used;
	}
	return 0;
}

void jsonarray_gap(struct jsonarray *a)
{
	if (a->state == STATE_CLOSED || a->state == STATE_OTHER)
		return;
	drop_text(a);
	a->state = STATE_LOST;
	a->line_begins = false;
	a->after_gap = true;
}

bool jsonarray_closed(const struct jsonarray *a)
{
	return a->state == STATE_CLOSED;
}

bool jsonarray_is_json(const struct jsonarray *a)
{
	return a->state != STATE_OTHER;
}

unsigned jsonarray_oversize(const struct jsonarray *a)
{
	return a->oversize;
}

size_t jsonarray_held(const struct jsonarray *a)
{
	return a->text.size;
}
