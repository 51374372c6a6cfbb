/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Lines of stdio, as steps (steps.h): whole and byte by byte the same must be told. And the same bytes as bodies of
 * HTTP, where a step's kind chooses what happens.
 */

#include "steps.h"

#include "flow/llm/mcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void on_mcp(void *ctx, const struct mcp_call *c)
{
	uint64_t *sum = ctx;

	check(c->start_ns <= c->end_ns && c->method && (!c->error_message || c->error));
	check(!c->target || strlen(c->target) < 256);
	fold(sum, c->start_ns);
	fold(sum, c->end_ns);
	fold(sum, c->end);
	fold(sum, c->progress);
	fold_sv(sum, (struct sv){c->method, strlen(c->method)});
	if (c->error)
		fold_sv(sum, (struct sv){c->error, strlen(c->error)});
	if (c->server)
		fold_sv(sum, (struct sv){c->server, strlen(c->server)});
}

struct play {
	uint64_t sum;
	struct lost lost;
	struct exchange_conn conn;
	struct mcp *table;
	struct mcp_flow *flow;
};

static void play_begin(struct play *p)
{
	const struct mcp_config cfg = {.stale_ns = 2000, .sweep_ns = 1000, .content = true};
	const struct mcp_sink sink = {&p->sum, on_mcp};

	*p = (struct play){.conn = {.key = {.tgid = 1}, .conn_id = 1}};
	p->table = mcp_new(&cfg, &p->lost, &sink);
	p->flow = mcp_conn_new(p->table, &p->conn);
}

static uint64_t play_end(struct play *p)
{
	mcp_each_open(p->table, 1u << 30, on_mcp, &p->sum);
	mcp_conn_free(p->flow);
	mcp_finish(p->table, 1u << 30);
	mcp_free(p->table);
	return p->sum;
}

static uint64_t play_lines(const uint8_t *data, size_t size, bool bytewise)
{
	struct steps s = {data, size, 1000};
	struct step step;
	struct play p;

	play_begin(&p);
	while (steps_next(&s, &step)) {
		if (!step.ptr)
			mcp_stdio_gap(p.flow, step.dir, false, &step.at);
		else if (!bytewise)
			mcp_stdio_push(p.flow, step.dir, step.ptr, step.len, &step.at);
		for (size_t i = 0; step.ptr && bytewise && i < step.len; i++)
			mcp_stdio_push(p.flow, step.dir, step.ptr + i, 1, &step.at);
	}
	mcp_stdio_end(p.flow, HTTP_ABORT_CLOSED, s.now);
	return play_end(&p);
}

/* --- HTTP -------------------------------------------------------------------------------------------------------- */

static void no_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	(void)ctx, (void)xid, (void)h, (void)first;
}

static void no_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
		    const struct stamp *at)
{
	(void)ctx, (void)xid, (void)side, (void)ptr, (void)len, (void)at;
}

static void no_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
		   const struct stamp *at)
{
	(void)ctx, (void)xid, (void)side, (void)len, (void)why, (void)at;
}

static void no_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	(void)ctx, (void)xid, (void)carried, (void)at;
}

static void no_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	(void)ctx, (void)xid, (void)why, (void)carried, (void)ts_ns;
}

static void begin(struct http_sink *http, const struct step *s, uint64_t xid, unsigned how)
{
	static const struct http_header headers[] = {
		{SV("mcp-session-id"), SV("s")},
		{SV("accept"), SV("application/json, text/event-stream")},
		{SV("content-encoding"), SV("gzip")},
	};
	struct http_head h = {
		.method = how & 1 ? SV("GET") : SV("POST"),
		.target = how & 2 ? SV("/m?x") : SV("/mcp"),
		.host = SV("h"),
		.headers = headers + (how >> 2 & 1),
		.header_count = 1 + (how >> 3 & 1),
		.protocol = "http/1.1",
	};

	http->on_request(http->ctx, xid, how == 15 ? NULL : &h, &s->at);
}

static void answer(struct http_sink *http, const struct step *s, uint64_t xid, unsigned how)
{
	static const struct http_header headers[] = {
		{SV("content-type"), SV("text/event-stream")},
		{SV("mcp-session-id"), SV("s")},
		{SV("content-type"), SV("application/json")},
		{SV("content-encoding"), SV("gzip")},
	};
	struct http_head h = {.status = how & 1 ? 404 : 200,
			      .headers = headers + (how & 2),
			      .header_count = 1 + (how >> 2 & 1),
			      .protocol = "http/1.1"};

	http->on_response(http->ctx, xid, &h, &s->at);
}

/* The first byte of a step chooses, the rest are a body. */
static void http_step(struct http_sink *http, const struct step *s)
{
	enum http_side side = s->dir == DIR_TX ? HTTP_REQUEST : HTTP_RESPONSE;
	unsigned what = s->ptr && s->len ? s->ptr[0] : 0;
	uint64_t xid = what & 1;

	if (!s->ptr)
		http->on_body_gap(http->ctx, xid, side, s->len, HTTP_GAP_LOST, &s->at);
	else if (what < 0x20 && side == HTTP_REQUEST)
		begin(http, s, xid, what >> 1);
	else if (what < 0x20)
		answer(http, s, xid, what >> 1);
	else if (what == '!')
		http->on_request_end(http->ctx, xid, 1, &s->at);
	else if (what == '#')
		http->on_response_end(http->ctx, xid, 1, &s->at);
	else if (what == '$')
		http->on_abort(http->ctx, xid, (enum http_abort)(s->len & 7), 1, s->at.ts_ns);
	else
		http->on_body(http->ctx, xid, side, s->ptr, s->len, &s->at);
}

static void play_http(const uint8_t *data, size_t size)
{
	const struct http_sink none = {NULL, no_request, no_body, no_gap, no_end, no_request, no_end, no_abort};
	struct steps s = {data, size, 1000};
	struct http_sink http;
	struct step step;
	struct play p;

	play_begin(&p);
	http = mcp_http_sink(p.flow, &none);
	while (steps_next(&s, &step))
		http_step(&http, &step);
	play_end(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	steps_compare(data, size, play_lines);
	play_http(data, size);
	return 0;
}
