/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A message a line. What begins with anything but a brace or a bracket is none: servers print other things, too. */

#include "mcp_table.h"
#include "text.h"

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Without white space, so that no cut shows: both ends see the same. */
static uint64_t hash_line(uint64_t hash, const uint8_t *ptr, size_t len)
{
	while (len) {
		size_t n = 0;

		while (n < len && !is_blank(ptr[n]))
			n++;
		if (n)
			hash = text_hash(hash, ptr, n);
		n += n < len;
		ptr += n;
		len -= n;
	}
	return hash;
}

/* A batch's messages are complete before its bytes are. */
static uint64_t hash_message(const struct mcp_lines *l, const struct mcp_message *m)
{
	uint64_t hash;

	if (!mcp_scan_batch(l->scan))
		return l->hash;
	hash = text_hash(0, &m->id.type, 1);
	hash = text_hash(hash, m->id.text, strlen(m->id.text) + 1);
	hash = text_hash(hash, m->method, strlen(m->method) + 1);
	return text_hash(hash, m->name, strlen(m->name) + 1);
}

static void on_message(void *ctx, const struct mcp_message *m)
{
	struct mcp_lines *l = ctx;
	struct mcp_flow *f = l->flow;
	struct mcp_place at = {.flow = f, .session = f->session, .dir = l->dir, .first = l->first, .last = l->now};

	if (m->kind == MCP_REQUEST)
		at.hash = hash_message(l, m);
	mcp_message(f->table, &at, m);
}

/* The answer to any that is open may have been there. */
static void lose(struct mcp_flow *f, uint64_t ns)
{
	struct mcp_request *r;

	for (r = f->requests ? f->table->open : NULL; r; r = r->next) {
		if (r->flow == f && !r->exchange)
			mcp_request_lossy(r, ns);
	}
}

static void line_end(struct mcp_lines *l)
{
	if (l->lossy)
		lose(l->flow, l->now.ts_ns);
	l->lossy = false;
	mcp_scan_free(l->scan);
	l->scan = NULL;
	l->skipping = false;
}

static void line_begin(struct mcp_lines *l, uint8_t c)
{
	const struct mcp_scan_sink sink = {.ctx = l, .on_message = on_message};
	struct mcp *t = l->flow->table;

	l->first = l->now;
	l->hash = 0;
	l->skipping = c != '{' && c != '[';
	if (l->skipping)
		return;
	if (!l->flow->session)
		l->flow->session = mcp_session_new(t);
	if (l->flow->session) {
		l->scan = mcp_scan_new(&sink, t->lost);
		t->lost->n[LOST_NO_MEMORY] += !l->scan;
	}
	l->skipping = !l->scan;
}

static void line_push(struct mcp_lines *l, const uint8_t *ptr, size_t len)
{
	if (!l->scan && !l->skipping) {
		while (len && is_blank(*ptr))
			ptr++, len--;
		if (len)
			line_begin(l, *ptr);
	}
	if (!l->scan || !len)
		return;
	l->hash = hash_line(l->hash, ptr, len);
	mcp_scan_push(l->scan, ptr, len);
}

void mcp_stdio_push(struct mcp_flow *f, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct mcp_lines *l = &f->lines[dir];

	if (!len)
		return;
	mcp_advance(f->table, at->ts_ns);
	l->flow = f;
	l->dir = dir;
	l->now = *at;
	while (len) {
		const uint8_t *lf = memchr(ptr, '\n', len);
		size_t n = lf ? (size_t)(lf - ptr) : len;

		line_push(l, ptr, n);
		if (lf) {
			line_end(l);
			n++;
		}
		ptr += n;
		len -= n;
	}
}

void mcp_stdio_gap(struct mcp_flow *f, enum dir dir, bool capped, const struct stamp *at)
{
	struct mcp_lines *l = &f->lines[dir];

	mcp_advance(f->table, at->ts_ns);
	if (capped && l->scan && !mcp_scan_over(l->scan))
		f->table->lost->n[LOST_DECODE_ERRORS]++;
	l->flow = f;
	l->dir = dir;
	l->now = *at;
	line_end(l);
	lose(f, at->ts_ns);
	l->skipping = l->lossy = true;
}

void mcp_stdio_end(struct mcp_flow *f, enum http_abort why, uint64_t ts_ns)
{
	struct mcp *t = f->table;
	struct mcp_request *r, *next;

	if (!f->session)
		return;
	mcp_advance(t, ts_ns);
	line_end(&f->lines[DIR_TX]);
	line_end(&f->lines[DIR_RX]);
	DL_FOREACH_SAFE (t->open, r, next) {
		if (r->flow != f || r->exchange)
			continue;
		r->call.exit_code = f->conn->exit_code;
		r->call.exit_signal = f->conn->exit_signal;
		mcp_request_end(t, r, mcp_end_of_abort(why), ts_ns);
	}
	mcp_session_release(t, f->session);
	f->session = NULL;
}
