/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Any sequence of HTTP events with any bytes as bodies, and of WebSocket messages. An input is a list of steps: a byte
 * that says what happens (high bits: to which exchange, and how), for requests and responses one more that chooses
 * path and types, for bodies and messages one of length and the bytes. Records must make sense whatever comes.
 */

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "flow/llm/exchange.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static bool is_count(int64_t n)
{
	return n >= UNKNOWN_COUNT;
}

static bool is_rate(double v)
{
	return isnan(v) || (isfinite(v) && v >= 0);
}

static void on_call(void *ctx, const struct call *c)
{
	const struct usage *u = &c->usage;

	(void)ctx;
	check(c->id && !c->api == !c->provider && !c->api == !c->operation && (c->api || c->undecoded));
	check(c->first_token_ns == UNKNOWN_NS || c->first_kind != TOKEN_NONE);
	check(c->first_token_ns == UNKNOWN_NS || c->last_token_ns == UNKNOWN_NS ||
	      c->first_token_ns <= c->last_token_ns);
	check(is_count(c->chunks) && is_count(c->stalls) && is_count(c->max_gap_ns) && is_count(c->lost_bytes));
	check(is_count(u->input_total) && is_count(u->input_uncached) && is_count(u->cache_read) &&
	      is_count(u->cache_write));
	check(u->input_uncached < 0 || u->input_total >= u->input_uncached);
	check(is_count(c->request.messages) && is_count(c->request.tools) && is_count(c->request.system_bytes));
	check(is_rate(call_itps(c)) && is_rate(call_otps(c)) && is_rate(call_decode_tok_s(c)) &&
	      is_rate(call_tpot_ms(c)));
	check(c->tool_count <= CALL_TOOLS_MAX && c->text_len <= EXCHANGE_TEXT_MAX);
	check(!c->mid_attach || c->start_known || isnan(call_ms(c, c->end_ns)));
	check(is_count(c->server.load_ns) && is_count(c->server.prefill_ns) && is_count(c->server.total_ns));
}

struct script {
	const uint8_t *at, *end;
	struct http_sink http;
	struct exchange_flow *flow;
	uint64_t now_ns;
};

static uint8_t take(struct script *s)
{
	return s->at < s->end ? *s->at++ : 0;
}

static void request(struct script *s, uint64_t xid, unsigned how, const struct stamp *at)
{
	static const struct sv targets[] = {
		SV("/v1/messages?beta=true&key=x"),
		SV("/v1/chat/completions"),
		SV("/v1/responses"),
		SV("/v1/messages/count_tokens"),
		SV("/gateway"),
		SV("/v1beta/models/g%3A:streamGenerateContent"),
		SV("/v1internal:generateContent"),
		SV("/model/a/b/converse-stream"),
		SV("/model/a/invoke-with-response-stream"),
		SV("/v1/publishers/anthropic/models/c:streamRawPredict"),
		SV("/v2/chat"),
		SV("/api/chat"),
		SV("/api/embed"),
		SV("/completion"),
		SV("/generate_stream"),
		SV("/v1/embeddings"),
		SV("/v1/completions"),
		SV("/v1/realtime?model=x%"),
		SV_NONE,
		SV("/v1beta/interactions"),
		SV("/api/v1/chat"),
		SV("/ws/google.ai.generativelanguage.v1.GenerativeService.BidiGenerateContent"),
	};
	static const struct http_header headers[] = {
		{SV("x-claude-code-session-id"), SV("s")},
		{SV("content-encoding"), SV("gzip")},
	};
	static const struct http_header upgrade = {SV("upgrade"), SV("websocket")};
	uint8_t which = take(s);
	struct http_head h = {
		.method = SV("POST"),
		.target = targets[which % ARRAY_SIZE(targets)],
		.host = SV("api.anthropic.com"),
		.headers = headers,
		.header_count = 1 + (how >> 2 & 1),
		.protocol = "http/1.1",
	};

	if (how & 1) {
		h.method = SV("GET");
		h.headers = &upgrade;
		h.header_count = 1;
	}
	s->http.on_request(s->http.ctx, xid, how == 7 ? NULL : &h, at);
}

static void response(struct script *s, uint64_t xid, unsigned how, const struct stamp *at)
{
	static const struct http_header types[] = {
		{SV("content-type"), SV("text/event-stream")},
		{SV("content-type"), SV("application/json")},
		{SV("content-type"), SV("application/x-ndjson")},
		{SV("content-type"), SV("application/vnd.amazon.eventstream")},
		{SV("content-type"), SV("text/html")},
		{SV_NONE, SV_NONE},
		{SV("x-prompt-tokens"), SV("12")},
		{SV("x-amzn-errortype"), SV("E:")},
	};
	static const struct sv codings[] = {SV(""), SV("gzip"), SV("deflate"), SV("x-unknown")};
	uint8_t which = take(s);
	struct http_header headers[] = {types[which & 7], {SV("content-encoding"), codings[how & 3]}};
	struct http_head h = {
		.status = which & 8 ? 429 : 200, .headers = headers, .header_count = 2, .protocol = "http/1.1"};

	s->http.on_response(s->http.ctx, xid, &h, at);
}

static void socket_message(struct script *s, uint64_t xid, enum http_side side, unsigned how, const struct stamp *at)
{
	size_t len = take(s) * 4u;
	struct ws_message m = {.opcode = how & 1 ? WS_BINARY : WS_TEXT,
			       .compressed = how & 2,
			       .carried = len,
			       .first = *at,
			       .last = *at};

	if (len > (size_t)(s->end - s->at))
		len = (size_t)(s->end - s->at);
	m.data = len ? (struct sv){(const char *)s->at, len} : SV_NONE;
	s->at += len;
	m.complete = !(how & 4);
	if (how == 3) {
		exchanges_ws_lost(s->flow, xid, side, len + 1, len & 1, at);
		if (!exchanges_ws_found(s->flow, xid, side, &m))
			return;
	}
	if (how & 4)
		exchanges_ws_opaque(s->flow, xid, side, &m);
	else
		exchanges_ws_message(s->flow, xid, side, &m);
}

/* What a WebSocket brings; `which` has the exchange in its lower bits. */
static void socket_step(struct script *s, const struct stamp *at)
{
	uint8_t which = take(s);
	uint64_t xid = which & 3;
	unsigned how = which >> 5;

	switch (which >> 2 & 7) {
	case 0:
	case 1:
		socket_message(s, xid, HTTP_REQUEST, how, at);
		break;
	case 2:
	case 3:
	case 4:
		socket_message(s, xid, HTTP_RESPONSE, how, at);
		break;
	case 5:
		exchanges_ws_close(s->flow, xid, how & 1 ? HTTP_REQUEST : HTTP_RESPONSE, at);
		break;
	case 6:
		s->http.on_abort(s->http.ctx, xid, HTTP_ABORT_UPGRADE, 10, at->ts_ns);
		break;
	default:
		exchanges_ws_end(s->flow, xid, (enum http_abort)how, at->ts_ns);
	}
}

static void body(struct script *s, uint64_t xid, enum http_side side, const struct stamp *at)
{
	size_t len = take(s) * 4u;

	if (len > (size_t)(s->end - s->at))
		len = (size_t)(s->end - s->at);
	if (len)
		s->http.on_body(s->http.ctx, xid, side, s->at, len, at);
	s->at += len;
}

static void step(struct script *s, struct exchanges *t)
{
	uint8_t op = take(s);
	uint64_t xid = op >> 3 & 3;
	unsigned how = op >> 5;
	struct stamp at;

	s->now_ns += how * 100000000ull;
	at = (struct stamp){s->now_ns, s->now_ns, 1, 0};
	switch (op & 7) {
	case 0:
		request(s, xid, how, &at);
		break;
	case 1:
		body(s, xid, HTTP_REQUEST, &at);
		break;
	case 2:
		s->http.on_request_end(s->http.ctx, xid, 10, &at);
		break;
	case 3:
		response(s, xid, how, &at);
		break;
	case 4:
		body(s, xid, HTTP_RESPONSE, &at);
		break;
	case 5:
		s->http.on_body_gap(s->http.ctx, xid, how & 1 ? HTTP_REQUEST : HTTP_RESPONSE,
				    how & 2 ? UINT64_MAX : how, how & 4 ? HTTP_GAP_CAPPED : HTTP_GAP_LOST, &at);
		break;
	case 6:
		s->http.on_response_end(s->http.ctx, xid, 10, &at);
		break;
	default:
		if (how == 7)
			exchanges_tick(t, s->now_ns += 3000000000ull);
		else if (how == 6)
			exchanges_each_open(t, s->now_ns, on_call, NULL);
		else if (how == 5)
			socket_step(s, &at);
		else
			s->http.on_abort(s->http.ctx, xid, (enum http_abort)how, 10, s->now_ns);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct exchange_config cfg = {.stale_ns = 2000000000, .sweep_ns = 1000000000, .content = true};
	const struct exchange_sink sink = {.on_call = on_call};
	struct exchange_conn conn = {.key = {.tgid = 1}, .conn_id = 1, .fresh = true};
	struct lost lost = {0};
	struct exchanges *t = exchanges_new(&cfg, &lost, &sink);
	struct exchange_flow *f = exchanges_conn_new(t, &conn);
	struct script s = {data, data + size, exchanges_http_sink(f), f, 1000000000};

	while (s.at < s.end)
		step(&s, t);
	exchanges_conn_free(f);
	check(exchanges_open_count(t) == 0);
	exchanges_free(t);
	return 0;
}
