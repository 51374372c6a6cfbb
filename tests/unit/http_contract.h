/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_HTTP_CONTRACT_H
#define TEST_HTTP_CONTRACT_H

/*
 * An http_sink that aborts the process when the promises of flow/proto/http.h are broken, whatever the bytes were. Used
 * by unit tests and fuzz targets.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/proto/http.h"

#ifndef CONTRACT_OPEN_MAX
#define CONTRACT_OPEN_MAX 1024
#endif

struct contract_open {
	uint64_t xid;
	bool orphan, request_end, response;
	uint64_t body[2];
};

struct contract {
	struct contract_open open[CONTRACT_OPEN_MAX];
	unsigned open_count;
	uint64_t last_xid;
	unsigned requests, ends, aborts, aborts_by[HTTP_ABORT_UPGRADE + 1];
	uint64_t body_bytes;
	bool lacking;	       /* HTTP/2: what a head says of method, target and status may be unknown */
	struct http_sink next; /* all functions NULL: nobody */
};

static inline void contract_broken(const char *what)
{
	fprintf(stderr, "contract: %s\n", what);
	abort();
}

#define CONTRACT(condition)                                                                                            \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			contract_broken(#condition);                                                                   \
	} while (0)

static inline struct contract_open *contract_find(struct contract *c, uint64_t xid)
{
	for (unsigned i = 0; i < c->open_count; i++)
		if (c->open[i].xid == xid)
			return &c->open[i];
	contract_broken("a call for an exchange that is not open");
	return NULL;
}

static inline void contract_touch(const struct http_head *h)
{
	unsigned sum = 0;

	for (size_t i = 0; i < h->header_count; i++) {
		for (size_t k = 0; k < h->headers[i].name.len; k++)
			sum += (unsigned char)h->headers[i].name.ptr[k];
		for (size_t k = 0; k < h->headers[i].value.len; k++)
			sum += (unsigned char)h->headers[i].value.ptr[k];
		CONTRACT(h->headers[i].value.ptr);
	}
	CONTRACT(h->header_count <= HTTP_HEADERS_MAX);
	CONTRACT(sum || !h->header_count);
	CONTRACT(http_header_get(h, "no such header").ptr == NULL);
}

static inline void contract_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct contract *c = ctx;

	CONTRACT(xid > c->last_xid);
	CONTRACT(c->open_count < CONTRACT_OPEN_MAX);
	c->last_xid = xid;
	c->requests++;
	c->open[c->open_count++] = (struct contract_open){.xid = xid, .orphan = !h, .request_end = !h || h->unreadable};
	if (h) {
		contract_touch(h);
		CONTRACT(c->lacking || h->unreadable || (h->method.len && h->target.len));
	}
	if (c->next.on_request)
		c->next.on_request(c->next.ctx, xid, h, first);
}

static inline void contract_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
				 const struct stamp *at)
{
	struct contract *c = ctx;
	struct contract_open *o = contract_find(c, xid);

	CONTRACT(len > 0);
	if (side == HTTP_REQUEST)
		CONTRACT(!o->orphan && !o->request_end);
	else
		CONTRACT(o->orphan || o->response);
	o->body[side] += len;
	c->body_bytes += len;
	if (c->next.on_body)
		c->next.on_body(c->next.ctx, xid, side, ptr, len, at);
}

static inline void contract_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
				const struct stamp *at)
{
	struct contract *c = ctx;
	struct contract_open *o = contract_find(c, xid);

	CONTRACT(len > 0);
	CONTRACT(side == HTTP_RESPONSE || !o->request_end);
	if (c->next.on_body_gap)
		c->next.on_body_gap(c->next.ctx, xid, side, len, why, at);
}

static inline void contract_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct contract *c = ctx;
	struct contract_open *o = contract_find(c, xid);

	CONTRACT(!o->request_end);
	CONTRACT(carried > o->body[HTTP_REQUEST]);
	o->request_end = true;
	if (c->next.on_request_end)
		c->next.on_request_end(c->next.ctx, xid, carried, at);
}

static inline void contract_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct contract *c = ctx;
	struct contract_open *o = contract_find(c, xid);

	CONTRACT(!o->response && !o->body[HTTP_RESPONSE]);
	/* of what was lost a head of nothing is told */
	CONTRACT(h->status == 101 || h->status >= 200 || ((c->lacking || !h->header_count) && !h->status));
	contract_touch(h);
	o->response = true;
	if (c->next.on_response)
		c->next.on_response(c->next.ctx, xid, h, first);
}

static inline void contract_close(struct contract *c, struct contract_open *o)
{
	*o = c->open[--c->open_count];
}

static inline void contract_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct contract *c = ctx;
	struct contract_open *o = contract_find(c, xid);

	CONTRACT(o->response || o->orphan);
	CONTRACT(carried > o->body[HTTP_RESPONSE]);
	contract_close(c, o);
	c->ends++;
	if (c->next.on_response_end)
		c->next.on_response_end(c->next.ctx, xid, carried, at);
}

static inline void contract_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	struct contract *c = ctx;
	struct contract_open *o = contract_find(c, xid);

	CONTRACT(why <= HTTP_ABORT_UPGRADE);
	CONTRACT(carried >= o->body[HTTP_RESPONSE]);
	contract_close(c, o);
	c->aborts++;
	c->aborts_by[why]++;
	if (c->next.on_abort)
		c->next.on_abort(c->next.ctx, xid, why, carried, ts_ns);
}

static inline struct http_sink contract_sink(struct contract *c)
{
	return (struct http_sink){c,
				  contract_request,
				  contract_body,
				  contract_gap,
				  contract_request_end,
				  contract_response,
				  contract_response_end,
				  contract_abort};
}

#endif
