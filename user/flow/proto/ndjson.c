/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ndjson.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"

#define KEEP_BYTES 65536 /* memory kept between lines */

struct ndjson {
	struct ndjson_sink sink;
	struct buf line;   /* the beginning of a line that was cut */
	bool started;	   /* past the first line: no byte order mark any more */
	bool skipping;	   /* up to the next LF */
	struct stamp last; /* of the last byte of `line` */
	unsigned oversize;
};

struct ndjson *ndjson_new(const struct ndjson_sink *sink)
{
	struct ndjson *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->sink = *sink;
	buf_init(&n->line, NDJSON_LINE_MAX);
	return n;
}

void ndjson_free(struct ndjson *n)
{
	if (!n)
		return;
	buf_release(&n->line);
	free(n);
}

static void drop_line(struct ndjson *n)
{
	buf_clear(&n->line);
	if (n->line.size > KEEP_BYTES)
		buf_release(&n->line);
}

static struct sv trim(struct sv s)
{
	while (s.len && (s.ptr[0] == ' ' || s.ptr[0] == '\t' || s.ptr[0] == '\r'))
		s.ptr++, s.len--;
	while (s.len && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t' || s.ptr[s.len - 1] == '\r'))
		s.len--;
	return s;
}

static void deliver(struct ndjson *n, struct sv text, const struct stamp *at, bool unterminated)
{
	struct ndjson_line line = {.at = *at, .unterminated = unterminated};

	if (!n->started && sv_starts(text, SV("\xef\xbb\xbf")))
		text.ptr += 3, text.len -= 3;
	n->started = true;
	line.text = trim(text);
	if (line.text.len)
		n->sink.on_line(n->sink.ctx, &line);
}

static void oversize(struct ndjson *n)
{
	drop_line(n);
	n->skipping = n->started = true;
	n->oversize++;
}

/* The beginning of a line, or more of it. */
static int keep(struct ndjson *n, struct sv part, const struct stamp *at)
{
	int err;

	if (n->skipping || !part.len)
		return 0;
	n->last = *at;
	err = buf_push(&n->line, part.ptr, part.len);
	if (err != -ENOSPC)
		return err;
	oversize(n);
	return 0;
}

/* A line ends; `tail` is what `line` lacks of it. */
static int line_end(struct ndjson *n, struct sv tail, const struct stamp *at)
{
	int err;

	if (!n->skipping && !n->line.len && tail.len <= NDJSON_LINE_MAX) {
		deliver(n, tail, at, false);
		return 0;
	}
	err = keep(n, tail, at);
	if (err)
		return err;
	if (!n->skipping)
		deliver(n, (struct sv){n->line.ptr, n->line.len}, at, false);
	n->skipping = false;
	drop_line(n);
	return 0;
}

int ndjson_push(struct ndjson *n, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct sv rest = {(const char *)ptr, len};

	while (rest.len) {
		struct sv after, part = sv_cut(rest, '\n', &after);
		int err = after.ptr ? line_end(n, part, at) : keep(n, part, at);

		if (err)
			return err;
		rest = after;
	}
	return 0;
}

void ndjson_gap(struct ndjson *n)
{
	drop_line(n);
	n->skipping = n->started = true;
}

void ndjson_finish(struct ndjson *n)
{
	if (!n->skipping && n->line.len)
		deliver(n, (struct sv){n->line.ptr, n->line.len}, &n->last, true);
	drop_line(n);
	n->skipping = false;
}

unsigned ndjson_oversize(const struct ndjson *n)
{
	return n->oversize;
}

size_t ndjson_held(const struct ndjson *n)
{
	return n->line.size;
}
