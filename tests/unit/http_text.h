/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_HTTP_TEXT_H
#define TEST_HTTP_TEXT_H

/* Exchanges as text: heads that are made of it, and a sink that logs what it is told. */

#include "flow/proto/http.h"
#include "harness.h"

/* "name: value\n…" into a head. */
static inline void head_of(struct http_head *h, struct http_header *headers, const char *text)
{
	struct sv rest = sv_of(text), line, value;

	h->headers = headers;
	h->protocol = "http/1.1";
	while (rest.len) {
		line = sv_cut(rest, '\n', &rest);
		headers[h->header_count].name = sv_cut(line, ':', &value);
		headers[h->header_count].value = sv_trim(value);
		if (sv_ieq(headers[h->header_count].name, SV("host")))
			h->host = headers[h->header_count].value;
		h->header_count++;
	}
}

static inline void pass_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	(void)h, (void)first;
	tlog_printf(ctx, "request %d\n", (int)xid);
}

static inline void pass_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
			     const struct stamp *at)
{
	(void)ptr, (void)at;
	tlog_printf(ctx, "body %d %d %d\n", (int)xid, (int)side, (int)len);
}

static inline void pass_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
			    const struct stamp *at)
{
	(void)why, (void)at;
	tlog_printf(ctx, "gap %d %d %d\n", (int)xid, (int)side, (int)len);
}

static inline void pass_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	(void)at;
	tlog_printf(ctx, "request end %d %d\n", (int)xid, (int)carried);
}

static inline void pass_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	(void)first;
	tlog_printf(ctx, "response %d %d\n", (int)xid, h ? h->status : 0);
}

static inline void pass_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	(void)at;
	tlog_printf(ctx, "response end %d %d\n", (int)xid, (int)carried);
}

static inline void pass_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	(void)ts_ns;
	tlog_printf(ctx, "abort %d %d %d\n", (int)xid, (int)why, (int)carried);
}

/* The next sink in a chain: what was passed on to it. */
static inline struct http_sink pass_sink(struct tlog *passed)
{
	return (struct http_sink){passed,	    pass_request,  pass_body,	      pass_gap,
				  pass_request_end, pass_response, pass_response_end, pass_abort};
}

#endif
