/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * A conversation: one byte of flags, then steps of (kind, length, time) and the bytes of the step. Played twice, as it
 * is and byte by byte: the contract of http.h must hold, and both must tell the same.
 */

#include "flow/proto/http2.h"

#define CONTRACT_OPEN_MAX (2 * HTTP2_STREAMS_MAX)
#include "tests/unit/http_contract.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Everything that is told, folded into a number that does not depend on how bodies are cut. */
struct digest {
	uint64_t sum;
};

static void fold(struct digest *d, uint64_t v)
{
	d->sum = (d->sum ^ v) * 0x100000001b3ull;
	d->sum ^= d->sum >> 29;
}

static void fold_sv(struct digest *d, struct sv s)
{
	fold(d, s.len);
	for (size_t i = 0; i < s.len; i++)
		fold(d, (unsigned char)s.ptr[i]);
}

static void fold_head(struct digest *d, const struct http_head *h)
{
	fold_sv(d, h->method);
	fold_sv(d, h->target);
	fold_sv(d, h->host);
	fold(d, (uint64_t)h->status);
	for (size_t i = 0; i < h->header_count; i++) {
		fold_sv(d, h->headers[i].name);
		fold_sv(d, h->headers[i].value);
	}
}

static void on_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	fold(ctx, xid);
	fold(ctx, first->entry_ns);
	if (h)
		fold_head(ctx, h);
}

static void on_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
		    const struct stamp *at)
{
	for (size_t i = 0; i < len; i++) {
		fold(ctx, xid * 2 + side);
		fold(ctx, at->ts_ns);
		fold(ctx, ptr[i]);
	}
}

static void on_body_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
			const struct stamp *at)
{
	fold(ctx, xid * 4 + side * 2 + why);
	fold(ctx, len);
	fold(ctx, at->ts_ns);
}

static void on_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	fold(ctx, xid);
	fold(ctx, carried);
	fold(ctx, at->ts_ns);
}

static void on_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	fold(ctx, xid);
	fold(ctx, first->ts_ns);
	fold_head(ctx, h);
}

static void on_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	on_request_end(ctx, ~xid, carried, at);
}

static void on_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	fold(ctx, xid * 16 + why);
	fold(ctx, carried);
	fold(ctx, ts_ns);
}

static void raw_bytes(void *ctx, uint64_t xid, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	on_body(ctx, ~xid, dir == DIR_TX ? HTTP_REQUEST : HTTP_RESPONSE, ptr, len, at);
}

static void raw_gap(void *ctx, uint64_t xid, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	on_body_gap(ctx, ~xid, dir == DIR_TX ? HTTP_REQUEST : HTTP_RESPONSE, len, why, at);
}

static void raw_end(void *ctx, uint64_t xid, enum http_abort why, uint64_t ts_ns)
{
	on_abort(ctx, ~xid, why, 0, ts_ns);
}

static void push(struct http2 *h, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at, bool bytewise)
{
	for (size_t i = 0; bytewise && i < len; i++)
		http2_push(h, dir, ptr + i, 1, at);
	if (!bytewise)
		http2_push(h, dir, ptr, len, at);
}

static uint64_t play(const uint8_t *data, size_t size, bool bytewise)
{
	static struct contract c;
	struct digest d = {0};
	struct http_sink sink;
	struct http2 *h;
	uint64_t now = 1000;
	uint8_t flags = data[0];

	c = (struct contract){
		.lacking = true,
		.next = {&d, on_request, on_body, on_body_gap, on_request_end, on_response, on_response_end, on_abort}};
	sink = contract_sink(&c);
	h = http2_new(flags & 1, (enum http2_client)((flags >> 1 & 3) % 3), &sink);
	if (!h)
		return 0;
	http2_set_raw(h, &(struct http2_raw){&d, raw_bytes, raw_gap, raw_end});
	data++;
	size--;
	while (size >= 3) {
		enum dir dir = data[0] & 1 ? DIR_RX : DIR_TX;
		size_t len = data[1] | (data[0] & 0xf0) << 4;
		struct stamp at = {now, now + (data[0] & 8 ? 5 : 0), 1, 0};

		now += data[2] == 0xff ? HTTP2_PARK_NS : data[2];
		if ((data[0] & 6) == 6) {
			http2_gap(h, dir, data[1] ? data[1] : UINT64_MAX,
				  data[0] & 16 ? HTTP_GAP_CAPPED : HTTP_GAP_LOST, &at);
			len = 0;
		} else if ((data[0] & 6) == 4) {
			http2_tick(h, now);
			len = 0;
		}
		data += 3;
		size -= 3;
		len = len < size ? len : size;
		push(h, dir, data, len, &at, bytewise);
		data += len;
		size -= len;
	}
	http2_finish(h, (enum http_abort)(flags >> 3) % (HTTP_ABORT_UPGRADE + 1), now);
	fold(&d, http2_errors(h));
	CONTRACT(c.open_count == 0);
	CONTRACT(c.requests == http2_requests(h));
	http2_free(h);
	return d.sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size)
		CONTRACT(play(data, size, false) == play(data, size, true));
	return 0;
}
