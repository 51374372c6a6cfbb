/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* See http_steps.h: any bytes from the first one to what follows upgrades. Flags: 1 from the first byte on. */

#include "flow/proto/http2.h"
#include "flow/proto/proto.h"

#define CONTRACT_OPEN_MAX (2 * HTTP2_STREAMS_MAX)
#include "tests/fuzz/http_steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_message(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	fold(ctx, xid * 2 + side);
	fold_sv(ctx, m->data);
	fold(ctx, m->carried * 128 + m->opcode * 8u + m->compressed * 4u + m->complete * 2u + m->ended);
	fold(ctx, m->last.ts_ns);
}

static void on_told(void *ctx, uint64_t xid, enum http_side side, const struct stamp *at)
{
	fold(ctx, xid * 2 + side);
	fold(ctx, at->ts_ns);
}

static void on_lost(void *ctx, uint64_t xid, enum http_side side, uint64_t len, bool all, const struct stamp *at)
{
	on_told(ctx, xid, side, at);
	fold(ctx, len * 2 + all);
}

static bool on_found(void *ctx, uint64_t xid, enum http_side side, const struct ws_message *m)
{
	on_message(ctx, xid, side, m);
	return m->data.len % 2;
}

static void on_end(void *ctx, uint64_t xid, enum http_abort why, uint64_t ts_ns)
{
	fold_abort(ctx, ~xid, why, 0, ts_ns);
}

static void *open_proto(uint8_t flags, const struct http_sink *sink, uint64_t *sum)
{
	struct proto *p = proto_new(flags & 1, sink);

	if (p)
		proto_set_sockets(p, &(struct socket_sink){sum, on_message, on_message, on_told, on_told, on_end,
							   on_lost, on_found});
	return p;
}

HTTP_PARSER_FUNCTIONS(proto)
static const struct http_parser proto_parser = HTTP_PARSER(proto);

static const struct http_target target = {&proto_parser, open_proto, .park_ns = HTTP2_PARK_NS, .flags_used = 1,
					  .lacking = true};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	http_compare(&target, data, size);
	return 0;
}
