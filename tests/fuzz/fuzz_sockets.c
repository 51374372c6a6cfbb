/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * A connection of any bytes, from the first one to what follows upgrades. An input is a first byte (1: met in the
 * middle; 2: after a handshake that was granted, 4: with compression), and steps: a byte for direction, gap and time,
 * one of length, the bytes.
 */

#include <stdlib.h>

#include "base/err.h"
#include "flow/proto/proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void on_message(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	uint64_t sum = 0;

	(void)ctx;
	(void)xid;
	check(side == HTTP_REQUEST || side == HTTP_RESPONSE);
	check(m->opcode == WS_TEXT || m->opcode == WS_BINARY);
	check(m->data.len <= WS_MESSAGE_MAX && m->first.ts_ns <= m->last.ts_ns);
	for (size_t i = 0; i < m->data.len; i += 64)
		sum += (uint8_t)m->data.ptr[i]; /* it is there to be read */
	check(sum <= 255ull * m->data.len);
}

static bool on_found(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	on_message(ctx, xid, side, m);
	check(m->complete && m->data.len);
	return m->data.len % 2;
}

static void on_what(void *ctx, uint64_t xid, enum http_side side, const struct stamp *at)
{
	(void)ctx;
	(void)xid;
	(void)side;
	check(at->ts_ns != 0);
}

static void on_end(void *ctx, uint64_t xid, enum http_abort why, uint64_t ts_ns)
{
	(void)ctx;
	(void)xid;
	(void)why;
	check(ts_ns != 0);
}

static void on_lost(void *ctx, uint64_t xid, enum http_side side, uint64_t len, bool all, const struct stamp *at)
{
	(void)all;
	check(len != 0);
	on_what(ctx, xid, side, at);
}

static void on_head(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	(void)h;
	on_what(ctx, xid, HTTP_REQUEST, first);
}

static void on_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
		    const struct stamp *at)
{
	(void)ptr;
	(void)len;
	on_what(ctx, xid, side, at);
}

static void on_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
		   const struct stamp *at)
{
	(void)len;
	(void)why;
	on_what(ctx, xid, side, at);
}

static void on_part_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	(void)carried;
	on_what(ctx, xid, HTTP_REQUEST, at);
}

static void on_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	(void)ctx;
	(void)xid;
	(void)why;
	(void)carried;
	(void)ts_ns;
}

static void handshake(struct proto *p, bool deflate)
{
	static const char ask[] = "GET /v1/responses HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
	static const char grant[] = "HTTP/1.1 101 S\r\nUpgrade: websocket\r\n";
	static const char extension[] = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
	const struct stamp at = {1, 1, 1, 0};

	proto_push(p, DIR_TX, (const uint8_t *)ask, sizeof(ask) - 1, &at);
	proto_push(p, DIR_RX, (const uint8_t *)grant, sizeof(grant) - 1, &at);
	if (deflate)
		proto_push(p, DIR_RX, (const uint8_t *)extension, sizeof(extension) - 1, &at);
	proto_push(p, DIR_RX, (const uint8_t *)"\r\n", 2, &at);
	check(proto_kind(p) == PROTO_WEBSOCKET);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct http_sink http = {NULL, on_head, on_body, on_gap, on_part_end, on_head, on_part_end, on_abort};
	const struct socket_sink sockets = {NULL, on_message, on_message, on_what, on_what, on_end, on_lost, on_found};
	uint8_t how = size ? *data : 0;
	struct stamp at = {2, 2, 1, 0};
	struct proto *p = proto_new(!(how & 1), &http);

	proto_set_sockets(p, &sockets);
	if ((how & 3) == 2)
		handshake(p, how & 4);
	for (size_t i = 1; i + 2 <= size;) {
		uint8_t step = data[i];
		size_t len = data[i + 1], left = size - i - 2;
		enum dir dir = step & 1 ? DIR_RX : DIR_TX;

		i += 2;
		at.entry_ns = at.ts_ns += (step >> 4) * 100000000ull;
		if (step & 2) {
			proto_gap(p, dir, step & 4 ? UINT64_MAX : len + 1, HTTP_GAP_LOST, &at);
			continue;
		}
		len = len < left ? len : left;
		proto_push(p, dir, data + i, len, &at);
		if (step & 8)
			proto_tick(p, at.ts_ns);
		i += len;
	}
	proto_finish(p, HTTP_ABORT_CLOSED, at.ts_ns + 1);
	proto_free(p);
	return 0;
}
