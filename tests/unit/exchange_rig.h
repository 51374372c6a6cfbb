/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_EXCHANGE_RIG_H
#define TEST_EXCHANGE_RIG_H

/* For the tests of the exchange stage: scripted HTTP events in, call records as text out. */

#include "harness.h"

#include <math.h>
#include <zlib.h>

#include "base/err.h"
#include "flow/llm/exchange.h"
#include "http_text.h"

/* --- rig: scripted HTTP events in, call records as text out ------------------------------------------------------ */

#define MS	1000000ull
#define BASE_MS 1000000ull
#define AT(ms)	((struct stamp){(BASE_MS + (ms)) * MS, (BASE_MS + (ms)) * MS, 42, 0})

struct rig {
	struct tlog log;
	struct lost lost;
	struct exchange_conn conn;
	struct exchanges *table;
	struct exchange_flow *flow;
	struct http_sink http;
};

static inline void put(struct tlog *l, const char *name, const char *value)
{
	if (!value)
		return;
	tlog_printf(l, " %s=", name);
	tlog_escaped(l, value, strlen(value));
}

static inline void put_n(struct tlog *l, const char *name, int64_t n)
{
	if (n != UNKNOWN_COUNT)
		tlog_printf(l, " %s=%lld", name, (long long)n);
}

static inline void put_ms(struct tlog *l, const char *name, uint64_t ns)
{
	if (ns != UNKNOWN_NS)
		tlog_printf(l, " %s=%lld", name, (long long)(ns / MS) - (long long)BASE_MS);
}

static inline void put_rate(struct tlog *l, const char *name, double value)
{
	if (!isnan(value))
		tlog_printf(l, " %s=%.4g", name, value);
}

static inline void put_usage(struct tlog *l, const struct usage *u)
{
	if (u->source == USAGE_NONE)
		return;
	tlog_printf(l, "  usage=%s", usage_source_name(u->source));
	put_n(l, "uncached", u->input_uncached);
	put_n(l, "read", u->cache_read);
	put_n(l, "write", u->cache_write);
	put_n(l, "input", u->input_total);
	put_n(l, "output", u->output_total);
	put_n(l, "reasoning", u->reasoning);
	/* what is there is good, though not all is */
	tlog_printf(l, "%s\n", u->source == USAGE_PARTIAL && !u->unfinished ? " good" : "");
}

static inline void put_server(struct tlog *l, const struct call_server *s)
{
	const int64_t all[] = {s->queue_ns, s->load_ns, s->prefill_ns, s->decode_ns, s->first_token_ns, s->total_ns};
	static const char *const names[] = {"queue", "load", "prefill", "decode", "first", "total"};
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (all[i] >= 0)
			tlog_printf(l, "%s %s=%gms", any ? "" : "  server", names[i], (double)all[i] / 1e6);
		any |= all[i] >= 0;
	}
	if (any)
		tlog_printf(l, "\n");
}

static inline void put_request(struct tlog *l, const struct call *c)
{
	tlog_printf(l, "  request");
	put_n(l, "messages", c->request.messages);
	put_n(l, "tools", c->request.tools);
	put_n(l, "system", c->request.system_bytes);
	put_n(l, "max", c->request.max_tokens);
	put_n(l, "thinking", c->request.thinking);
	put_n(l, "sent", c->request_bytes);
	put_n(l, "got", c->response_bytes);
	tlog_printf(l, "\n");
}

static inline void put_flags(struct tlog *l, const struct call *c)
{
	tlog_printf(l, "%s%s%s%s%s",
		    c->hidden_reasoning			 ? " hidden"
		    : c->whole && c->end != END_COMPLETE ? " whole"
							 : "",
		    c->unfinished ? " unfinished" : "", c->lossy ? " lossy" : "", c->mid_attach ? " mid_attach" : "",
		    c->request_truncated ? " truncated" : "");
	if (c->lossy)
		tlog_printf(l, " lost=%lld", (long long)c->lost_bytes);
	put(l, "undecoded", c->undecoded);
	if (c->attempt != 1)
		tlog_printf(l, " attempt=%d retry_of=%llu wait=%lld", c->attempt, (unsigned long long)c->retry_of,
			    (long long)(c->retry_wait_ns < 0 ? -1 : c->retry_wait_ns / (int64_t)MS));
	if (c->end == END_PROCESS_EXIT)
		tlog_printf(l, " exit=%d/%d", c->exit_code, c->exit_signal);
}

/* Everything that is known of a call. */
static inline void put_call(struct tlog *l, const struct call *c)
{
	tlog_printf(l, "call %llu", (unsigned long long)c->id);
	put(l, "proto", c->protocol);
	put(l, "method", c->method);
	put(l, "path", c->path);
	put(l, "host", c->host);
	tlog_printf(l, " status=%d", c->status);
	put(l, "api", c->api);
	put(l, "provider", c->provider);
	put(l, "op", c->operation);
	tlog_printf(l, " class=%s stream=%d\n", call_class_name(c->class), c->stream);
	tlog_printf(l, " ");
	put(l, "model", c->model);
	put(l, "asked", c->request_model);
	put(l, "session", c->session_id);
	put(l, "agent", c->agent_id);
	put(l, "parent", c->parent_agent_id);
	put(l, "stop", c->stop_reason);
	put(l, "error", c->error);
	put(l, "end", end_reason_name(c->end));
	put_flags(l, c);
	tlog_printf(l, "\n  ");
	put_ms(l, "start", c->start_ns);
	put_ms(l, "send", c->send_end_ns);
	put_ms(l, "ttfb", c->ttfb_ns);
	put_ms(l, "first", c->first_token_ns);
	put_ms(l, "visible", c->first_visible_ns);
	if (c->seen_token_ns != c->first_token_ns)
		put_ms(l, "seen", c->seen_token_ns);
	put_ms(l, "last", c->last_token_ns);
	put_ms(l, "end", c->end_ns);
	put(l, "kind", token_kind_name(c->first_kind));
	put_n(l, "chunks", c->chunks);
	put_n(l, "stalls", c->stalls);
	for (size_t i = 0; c->stalls == UNKNOWN_COUNT && i < c->stall_count; i++) {
		put_ms(l, "stall", c->stall_at[i].begin_ns);
		put_ms(l, "to", c->stall_at[i].end_ns);
	}
	put_n(l, "gap", c->max_gap_ns < 0 ? -1 : c->max_gap_ns / (int64_t)MS);
	put_rate(l, "decode", call_decode_tok_s(c));
	tlog_printf(l, "\n");
	put_request(l, c);
	put_usage(l, &c->usage);
	put_server(l, &c->server);
	for (size_t i = 0; i < c->tool_count; i++) {
		tlog_printf(l, " ");
		put(l, "tool", c->tools[i].id ? c->tools[i].id : "-");
		put(l, "name", c->tools[i].name);
		tlog_printf(l, "\n");
	}
	if (c->text) {
		assert_int_equal(strlen(c->text), c->text_len);
		put(l, " text", c->text);
		tlog_printf(l, "\n");
	}
}

static inline void on_call(void *ctx, const struct call *c)
{
	struct rig *r = ctx;

	put_call(&r->log, c);
}

static const struct exchange_config default_config = {
	.stale_ns = 1800000 * MS,
	.sweep_ns = 60000 * MS,
	.content = true,
};

static inline struct exchange_conn conn_default(void)
{
	return (struct exchange_conn){
		.key = {.tgid = 7, .start_ns = 1, .obj = 0x100},
		.conn_id = 1,
		.fresh = true,
		.tls_resumed = -1,
		.reset_ns = UNKNOWN_NS,
		.dns_begin_ns = UNKNOWN_NS,
		.dns_end_ns = UNKNOWN_NS,
		.connect_begin_ns = UNKNOWN_NS,
		.connect_end_ns = UNKNOWN_NS,
		.tls_begin_ns = UNKNOWN_NS,
		.tls_end_ns = UNKNOWN_NS,
	};
}

static inline bool rig_try(struct rig *r, const struct exchange_config *cfg)
{
	const struct exchange_sink sink = {.ctx = r, .on_call = on_call};

	*r = (struct rig){.conn = conn_default()};
	r->table = exchanges_new(cfg, &r->lost, &sink);
	if (!r->table)
		return false;
	r->flow = exchanges_conn_new(r->table, &r->conn);
	if (!r->flow)
		return false;
	r->http = exchanges_http_sink(r->flow);
	return true;
}

static inline void rig_open(struct rig *r)
{
	assert_true(rig_try(r, &default_config));
}

static inline void rig_close(struct rig *r)
{
	exchanges_conn_free(r->flow);
	exchanges_free(r->table);
	tlog_free(&r->log);
}

/* The n-th allocation fails, for every n: no crash and no leak. */
static inline void rig_every_allocation(void (*play)(struct rig *r))
{
	bool hit = true;

	for (unsigned n = 1; hit; n++) {
		struct rig r = {0};

		fail_nth(n);
		if (rig_try(&r, &default_config))
			play(&r);
		hit = fail_nth_hit();
		fail_nth(0);
		rig_close(&r);
		assert_true(n < 5000);
	}
}

static inline void req_head(struct rig *r, uint64_t xid, const char *method, const char *target, const char *headers,
			    uint64_t ms)
{
	struct http_header store[16];
	struct http_head h = {.method = sv_of(method), .target = sv_of(target)};

	head_of(&h, store, headers);
	r->http.on_request(r->http.ctx, xid, &h, &AT(ms));
}

static inline void req_body(struct rig *r, uint64_t xid, const char *body, uint64_t ms)
{
	r->http.on_body(r->http.ctx, xid, HTTP_REQUEST, (const uint8_t *)body, strlen(body), &AT(ms));
}

static inline void req_end(struct rig *r, uint64_t xid, uint64_t carried, uint64_t ms)
{
	r->http.on_request_end(r->http.ctx, xid, carried, &AT(ms));
}

static inline void req(struct rig *r, uint64_t xid, const char *target, const char *headers, const char *body,
		       uint64_t ms)
{
	req_head(r, xid, "POST", target, headers, ms);
	if (*body)
		req_body(r, xid, body, ms);
	req_end(r, xid, 192, ms);
}

static inline void resp_head(struct rig *r, uint64_t xid, int status, const char *headers, uint64_t ms)
{
	struct http_header store[16];
	struct http_head h = {.status = status};

	head_of(&h, store, headers);
	r->http.on_response(r->http.ctx, xid, &h, &AT(ms));
}

/* ... of which fields are not known. */
static inline void resp_head_partial(struct rig *r, uint64_t xid, const char *headers, uint64_t ms)
{
	struct http_header store[16];
	struct http_head h = {.status = 200, .partial = true};

	head_of(&h, store, headers);
	r->http.on_response(r->http.ctx, xid, &h, &AT(ms));
}

static inline void resp_bytes(struct rig *r, uint64_t xid, const void *ptr, size_t len, uint64_t ms)
{
	struct warm w = {0};

	r->http.on_body(r->http.ctx, xid, HTTP_RESPONSE, ptr, len, &AT(ms));
	exchanges_conn_warm(r->flow, &w); /* whatever state it is in */
	assert_true(w.count >= 1);
}

static inline void resp(struct rig *r, uint64_t xid, const char *body, uint64_t ms)
{
	resp_bytes(r, xid, body, strlen(body), ms);
}

static inline void resp_end(struct rig *r, uint64_t xid, uint64_t carried, uint64_t ms)
{
	r->http.on_response_end(r->http.ctx, xid, carried, &AT(ms));
}

static inline void gap(struct rig *r, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why, uint64_t ms)
{
	r->http.on_body_gap(r->http.ctx, xid, side, len, why, &AT(ms));
}

static inline void abort_at(struct rig *r, uint64_t xid, enum http_abort why, uint64_t ms)
{
	r->http.on_abort(r->http.ctx, xid, why, 50, AT(ms).ts_ns);
}

/* --- pieces of wire ---------------------------------------------------------------------------------------------- */

#define HOST   "host: api.anthropic.test\n"
#define STREAM "content-type: text/event-stream; charset=utf-8\n"
#define JSON   "content-type: application/json\n"
#define ASK                                                                                                            \
	"{\"model\":\"claude-x\",\"max_tokens\":64,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":"      \
	"\"hi\"}]}"
#define ASK_UNARY "{\"model\":\"claude-x\",\"max_tokens\":64,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define CHAT	  "{\"model\":\"gpt-x\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"

#define EVENT(type, rest) "event: " type "\ndata: {\"type\":\"" type "\"" rest "}\n\n"
#define START(usage)	  EVENT("message_start", ",\"message\":{\"model\":\"claude-x-1\",\"usage\":{" usage "}}")
#define USAGE10                                                                                                        \
	"\"input_tokens\":10,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":1"
#define TEXT(t) EVENT("content_block_delta", ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"" t "\"}")
#define THINK(t)                                                                                                       \
	EVENT("content_block_delta", ",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"" t "\"}")
#define BLOCK(b) EVENT("content_block_start", ",\"index\":0,\"content_block\":{" b "}")
#define PING	 EVENT("ping", "")
#define STOP(n)	 EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":" n "}")
#define DONE	 EVENT("message_stop", "")
#define DELTA(d)                                                                                                       \
	"data: {\"object\":\"chat.completion.chunk\",\"model\":\"gpt-x-1\",\"choices\":[{\"index\":0,\"delta\":" d     \
	"}]}\n\n"

static inline void expect(struct rig *r, const char *want)
{
	if (!strstr(r->log.text ? r->log.text : "", want))
		fail_msg("want %s in\n%s", want, r->log.text ? r->log.text : "");
}

/* A stream is asked for, and its answer begins. */
static inline void stream(struct rig *r, uint64_t xid, uint64_t asked_ms, uint64_t head_ms)
{
	req(r, xid, "/v1/messages", HOST, ASK, asked_ms);
	resp_head(r, xid, 200, STREAM, head_ms);
}

/* A whole exchange by itself, of which the log tells. */
static inline void one(struct rig *r, const char *target, const char *headers, const char *body)
{
	static uint64_t xid = 1000;

	tlog_free(&r->log);
	req(r, ++xid, target, headers, body, 10);
	resp_head(r, xid, 200, STREAM, 20);
	resp_end(r, xid, 1, 30);
}

/* The pieces one after the other, flushed; ends: where each one ends. */
static inline size_t gzip(uint8_t *out, size_t size, const char *const *pieces, size_t count, size_t *ends)
{
	z_stream z = {0};

	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_out = out;
	z.avail_out = (uInt)size;
	for (size_t i = 0; i < count; i++) {
		z.next_in = (Bytef *)pieces[i];
		z.avail_in = (uInt)strlen(pieces[i]);
		deflate(&z, i + 1 == count ? Z_FINISH : Z_SYNC_FLUSH);
		ends[i] = size - z.avail_out;
	}
	deflateEnd(&z);
	return size - z.avail_out;
}

#endif
