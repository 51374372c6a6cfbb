/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FUZZ_HTTP_STEPS_H
#define FUZZ_HTTP_STEPS_H

/*
 * A conversation over a connection, for the parsers that say http.h: one byte of flags, then steps of (kind, length,
 * time) and the bytes of the step. Played twice, as it is and byte by byte: the contract of http.h must hold, and both
 * must tell the same.
 */

#include "steps.h"
#include "tests/unit/http_contract.h"
#include "flow/proto/http_parser.h"

/* Everything that is told, folded into a number that does not depend on how bodies are cut. */
static inline void fold_head(uint64_t *sum, const struct http_head *h)
{
	fold_sv(sum, h->method);
	fold_sv(sum, h->target);
	fold_sv(sum, h->host);
	fold(sum, (uint64_t)h->status);
	for (size_t i = 0; i < h->header_count; i++) {
		fold_sv(sum, h->headers[i].name);
		fold_sv(sum, h->headers[i].value);
	}
}

static inline void fold_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	fold(ctx, xid);
	fold(ctx, first->entry_ns);
	if (h)
		fold_head(ctx, h);
}

static inline void fold_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
			     const struct stamp *at)
{
	for (size_t i = 0; i < len; i++) {
		fold(ctx, xid * 2 + side);
		fold(ctx, at->ts_ns);
		fold(ctx, ptr[i]);
	}
}

static inline void fold_body_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
				 const struct stamp *at)
{
	fold(ctx, xid * 4 + side * 2 + why);
	fold(ctx, len);
	fold(ctx, at->ts_ns);
}

static inline void fold_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	fold(ctx, xid);
	fold(ctx, carried);
	fold(ctx, at->ts_ns);
}

static inline void fold_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	fold(ctx, xid);
	fold(ctx, first->ts_ns);
	fold_head(ctx, h);
}

static inline void fold_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	fold_request_end(ctx, ~xid, carried, at);
}

static inline void fold_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	fold(ctx, xid * 16 + why);
	fold(ctx, carried);
	fold(ctx, ts_ns);
}

struct http_target {
	const struct http_parser *parser;
	/* flags: the input's first byte. What it says besides the sink is folded into `sum`. NULL: no memory. */
	void *(*open)(uint8_t flags, const struct http_sink *sink, uint64_t *sum);
	uint64_t park_ns;
	unsigned flags_used; /* bits of the flags that open() uses; the ones above say how it finishes */
	bool lacking;	     /* see struct contract */
};

/* One step; the bytes of it that there are come behind its three. */
static inline size_t http_step(const struct http_target *t, void *parser, uint64_t *now, const uint8_t *data,
			       size_t size, bool bytewise)
{
	enum dir dir = data[0] & 1 ? DIR_RX : DIR_TX;
	size_t len = data[1] | (data[0] & 0xf0) << 4;
	struct stamp at = {*now, *now + (data[0] & 8 ? 5 : 0), 1, 0};

	*now += data[2] == 0xff ? t->park_ns : data[2];
	if ((data[0] & 6) == 6) {
		t->parser->gap(parser, dir, data[1] ? data[1] : UINT64_MAX,
			       data[0] & 16 ? HTTP_GAP_CAPPED : HTTP_GAP_LOST, &at);
		return 3;
	}
	if ((data[0] & 6) == 4) {
		t->parser->tick(parser, *now);
		return 3;
	}
	len = len < size - 3 ? len : size - 3;
	for (size_t i = 0; bytewise && i < len; i++)
		t->parser->push(parser, dir, data + 3 + i, 1, &at);
	if (!bytewise)
		t->parser->push(parser, dir, data + 3, len, &at);
	return 3 + len;
}

static inline uint64_t http_play(const struct http_target *t, const uint8_t *data, size_t size, bool bytewise)
{
	static struct contract c;
	uint64_t sum = 0, now = 1000;
	struct http_sink sink;
	uint8_t flags = data[0];
	void *parser;

	c = (struct contract){.lacking = t->lacking,
			      .next = {&sum, fold_request, fold_body, fold_body_gap, fold_request_end, fold_response,
				       fold_response_end, fold_abort}};
	sink = contract_sink(&c);
	parser = t->open(flags, &sink, &sum);
	if (!parser)
		return 0;
	for (size_t i = 1; i + 3 <= size;)
		i += http_step(t, parser, &now, data + i, size - i, bytewise);
	t->parser->finish(parser, (enum http_abort)(flags >> t->flags_used) % (HTTP_ABORT_UPGRADE + 1), now);
	fold(&sum, t->parser->errors(parser));
	CONTRACT(c.open_count == 0);
	CONTRACT(c.requests == t->parser->requests(parser));
	t->parser->release(parser);
	return sum;
}

static inline void http_compare(const struct http_target *t, const uint8_t *data, size_t size)
{
	if (size)
		CONTRACT(http_play(t, data, size, false) == http_play(t, data, size, true));
}

#endif
