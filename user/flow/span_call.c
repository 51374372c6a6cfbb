/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A model call as a span. */
#include "span_args.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "flow/agent/charge.h"
#include "flow/agent/verdict.h"

/* --- phases ------------------------------------------------------------------------------------------------------ */

static void add_phases(struct span *s, const struct call *c)
{
	uint64_t answer_ns = earlier(c->ttfb_ns, c->first_token_ns);
	uint64_t send_end_ns = earlier(c->send_end_ns, earlier(answer_ns, s->end_ns));
	/* What the program waited for: the first token, or without one the first byte, or nothing that ever came. */
	uint64_t wait_end_ns = known(c->first_token_ns) ? c->first_token_ns
			       : known(c->ttfb_ns)	? c->ttfb_ns
							: s->end_ns;

	if (known(c->dns_end_ns))
		span_add_phase(s, "dns", c->dns_begin_ns, earlier(c->dns_end_ns, c->start_ns));
	if (known(c->connect_end_ns))
		span_add_phase(s, "connect", c->connect_begin_ns, earlier(c->connect_end_ns, c->start_ns));
	if (known(c->tls_end_ns))
		span_add_phase(s, "tls", c->tls_begin_ns, earlier(c->tls_end_ns, c->start_ns));
	/* Attached in the middle: what was seen first is not when it began. */
	if (call_has_start(c)) {
		span_add_phase(s, "send", c->start_ns, send_end_ns);
		span_add_phase(s, "wait", send_end_ns, wait_end_ns);
	}
	span_add_phase(s, "stream", c->first_token_ns, s->end_ns);
}

/* --- details: what came when, inside of the stream --------------------------------------------------------------- */

static const char *segment_name(enum token_kind k)
{
	static const char *const names[] = {
		[TOKEN_NONE] = "content",	 [TOKEN_REASONING] = "thinking", [TOKEN_TEXT] = "text",
		[TOKEN_TOOL] = "tool arguments", [TOKEN_REFUSAL] = "refusal",	 [TOKEN_AUDIO] = "audio",
	};

	return names[k];
}

/* The larger part of `at` is one of these. */
static bool mostly(const struct interval *at, const struct interval *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t begin_ns = list[i].begin_ns > at->begin_ns ? list[i].begin_ns : at->begin_ns;
		uint64_t end_ns = list[i].end_ns < at->end_ns ? list[i].end_ns : at->end_ns;

		if (begin_ns < end_ns && (end_ns - begin_ns) * 2 > at->end_ns - at->begin_ns)
			return true;
	}
	return false;
}

/* Who was late in a silence: bytes that lay in the kernel for most of it are the program's doing, lost segments, or a
 * retransmission in it, the network's; else the server sent nothing. */
static const char *stall_name(const struct call *c, const struct interval *at, const uint64_t *retransmit_ns,
			      unsigned retransmits)
{
	if (mostly(at, c->late_at, c->late_count))
		return "stall: client";
	if (mostly(at, c->network_at, c->network_count))
		return "stall: network";
	for (unsigned i = 0; i < retransmits; i++)
		if (retransmit_ns[i] >= at->begin_ns && retransmit_ns[i] <= at->end_ns)
			return "stall: network";
	return c->retransmits >= 0 ? "stall: server" : "stall";
}

static int outer_first(const void *a, const void *b)
{
	const struct span_phase *x = a, *y = b;

	if (x->begin_ns != y->begin_ns)
		return x->begin_ns < y->begin_ns ? -1 : 1;
	return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

static int add_details(struct span *s, const struct call *c, const uint64_t *retransmit_ns, unsigned retransmits)
{
	size_t count = c->segment_count + c->stall_count;

	if (!count)
		return 0;
	s->details = calloc(count, sizeof(s->details[0]));
	if (!s->details)
		return -ENOMEM;
	for (size_t i = 0; i < c->segment_count; i++)
		s->details[s->detail_count++] = (struct span_phase){
			segment_name(c->segments[i].kind), c->segments[i].at.begin_ns, c->segments[i].at.end_ns};
	for (size_t i = 0; i < c->stall_count; i++)
		s->details[s->detail_count++] =
			(struct span_phase){stall_name(c, &c->stall_at[i], retransmit_ns, retransmits),
					    c->stall_at[i].begin_ns, c->stall_at[i].end_ns};
	qsort(s->details, s->detail_count, sizeof(s->details[0]), outer_first);
	return 0;
}

/* --- args: what the call record knows, unknown left out, each text cut at its limit ------------------------------ */

static void put_metrics(struct json *j, const struct call *c)
{
	span_put_number(j, "ttft_ms", call_ms(c, c->first_token_ns), 3);
	span_put_number(j, "itps", call_itps(c), 3);
	span_put_number(j, "otps", call_otps(c), 3);
	span_put_number(j, "cache_hit_rate", call_cache_hit_rate(c), 6);
	if (c->usage.source != USAGE_NONE) {
		span_put_count(j, "input_tokens", c->usage.input_total);
		span_put_count(j, "output_tokens", c->usage.output_total);
		span_put_count(j, "cache_read_tokens", c->usage.cache_read);
		span_put_count(j, "cache_write_tokens", c->usage.cache_write);
		span_put_count(j, "input_uncached_tokens", c->usage.input_uncached);
		span_put_count(j, "reasoning_tokens", c->usage.reasoning);
		span_put_text(j, "usage_source", usage_source_name(c->usage.source), 32);
		span_put_true(j, "counts_left_out", call_counts_left_out(c));
	}
	span_put_text(j, "stop_reason", c->stop_reason, 64);
	span_put_number(j, "decode_tok_s", call_decode_tok_s(c), 3);
	span_put_number(j, "tpot_ms", call_tpot_ms(c), 3);
	span_put_number(j, "ttfb_ms", call_ms(c, c->ttfb_ns), 3);
	span_put_text(j, "ttft_kind", token_kind_name(c->first_kind), 32);
	if (c->first_visible_ns != c->first_token_ns)
		span_put_number(j, "ttft_visible_ms", call_ms(c, c->first_visible_ns), 3);
	if (c->max_gap_ns >= 0)
		span_put_number(j, "max_gap_ms", (double)c->max_gap_ns / 1e6, 3);
	span_put_duration(j, "gap_p50_ms", c->gap_p50_ns);
	span_put_duration(j, "gap_p95_ms", c->gap_p95_ns);
	span_put_count(j, "stalls", c->stalls);
	span_put_count(j, "chunks", c->chunks);
}

static void put_identity(struct json *j, const struct call *c)
{
	span_put_text(j, "provider", c->provider, 64);
	span_put_text(j, "api", c->api, 64);
	if (c->request_model && c->model && strcmp(c->request_model, c->model))
		span_put_text(j, "request_model", c->request_model, 128);
	span_put_text(j, "host", c->host, 256);
	span_put_text(j, "path", c->path, 512);
	span_put_peer(j, &c->peer);
	if (c->status > 0)
		json_int(j, "status", c->status);
	span_put_text(j, "class", call_class_name(c->class), 32);
	if (c->stream >= 0)
		json_bool(j, "stream", c->stream > 0);
	span_put_text(j, "session_id", c->session_id, 128);
	span_put_text(j, "agent_id", c->agent_id, 128);
	span_put_text(j, "parent_agent_id", c->parent_agent_id, 128);
	span_put_text(j, "agent_name", c->agent_name, 128);
	if (c->attempt > 1)
		json_int(j, "attempt", c->attempt);
	if (c->retry_of)
		json_uint(j, "retry_of", c->retry_of);
	if (c->retry_wait_ns >= 0 && c->retry_of)
		span_put_number(j, "retry_wait_ms", (double)c->retry_wait_ns / 1e6, 3);
}

/* Names of the tools that the answer asks for. Never their arguments, which are the answer's text. */
static void put_tools(struct json *j, const struct call *c)
{
	size_t n = c->tool_count < 16 ? c->tool_count : 16;

	span_put_count(j, "request_messages", c->request.messages);
	span_put_count(j, "request_tools", c->request.tools);
	if (!c->tool_count)
		return;
	json_uint(j, "tool_call_count", c->tool_count);
	json_array(j, "tool_calls");
	for (size_t i = 0; i < n; i++)
		span_put_text(j, NULL, c->tools[i].name, 64);
	json_end_array(j);
}

static void put_server(struct json *j, const struct call_server *s)
{
	span_put_duration(j, "server_queue_ms", s->queue_ns);
	span_put_duration(j, "server_load_ms", s->load_ns);
	span_put_duration(j, "server_prefill_ms", s->prefill_ns);
	span_put_duration(j, "server_decode_ms", s->decode_ns);
	span_put_duration(j, "server_first_token_ms", s->first_token_ns);
	span_put_duration(j, "server_total_ms", s->total_ns);
}

static void put_outcome(struct json *j, const struct call *c)
{
	span_put_text(j, "error", c->error, 256);
	span_put_text(j, "end_reason", end_reason_name(c->end), 32);
	span_put_true(j, "evicted", c->end == END_EVICTED);
	span_put_true(j, "unfinished", c->unfinished);
	span_put_true(j, "mid_attach", c->mid_attach);
	span_put_true(j, "lossy", c->lossy);
	if (c->lossy)
		span_put_count(j, "lost_bytes", c->lost_bytes);
	span_put_text(j, "undecoded", c->undecoded, 64);
	span_put_true(j, "request_truncated", c->request_truncated);
	span_put_count(j, "request_bytes", c->request_bytes);
	span_put_count(j, "response_bytes", c->response_bytes);
	if (c->retransmits > 0)
		json_int(j, "retransmits", c->retransmits);
	if (known(c->reset_ns))
		span_put_text(j, "reset", c->reset_sent ? "sent" : "received", 16);
	span_put_count(j, "srtt_us", c->srtt_us);
	span_put_count(j, "rtt_min_us", c->rtt_min_us);
}

/* All together, which do not overlap but by chance (both directions of the network at once). */
static double sum_ms(const struct interval *at, size_t count)
{
	uint64_t ns = 0, until_ns = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t begin_ns = at[i].begin_ns > until_ns ? at[i].begin_ns : until_ns;

		if (at[i].end_ns <= begin_ns)
			continue;
		ns += at[i].end_ns - begin_ns;
		until_ns = at[i].end_ns;
	}
	return (double)ns / 1e6;
}

/* Where this call's time went. What came before it (the wait for a retry) is no part of it. */
static void put_verdict(struct json *j, const struct span *s, const struct call *c)
{
	struct walltime *w = walltime_new(s->begin_ns);
	struct walltime_report wall;
	const struct verdict_facts facts = {
		.wall = &wall,
		.model = c->model ? c->model : c->request_model,
		.writer = c->model ? c->model : c->request_model,
		.lossy = c->lossy || c->undecoded,
	};

	if (!w || charge_push(w, c, true) || walltime_report(w, s->end_ns, &wall)) {
		j->err = j->err ? j->err : -ENOMEM;
	} else if (call_has_start(c)) {
		wall.pushed_late_ns = 0;
		verdict_json(j, &facts);
	}
	walltime_free(w);
}

static int call_args(struct span *s, const struct call *c)
{
	const char *model = c->model ? c->model : c->request_model;
	struct buf text;
	struct json j;

	buf_init(&text, 0); /* bounded by the limit of each text */
	json_init(&j, &text);
	json_object(&j, NULL);
	span_put_text(&j, "model", model, 128);
	put_metrics(&j, c);
	if (known(c->start_ns) && c->start_ns > s->begin_ns)
		span_put_number(&j, "setup_ms", (double)(c->start_ns - s->begin_ns) / 1e6, 3);
	span_put_true(&j, "tls_approximate", c->tls_approximate && known(c->tls_end_ns));
	put_identity(&j, c);
	put_tools(&j, c);
	put_server(&j, &c->server);
	put_outcome(&j, c);
	if (c->late_count)
		span_put_number(&j, "client_late_ms", sum_ms(c->late_at, c->late_count), 3);
	if (c->network_count)
		span_put_number(&j, "network_delay_ms", sum_ms(c->network_at, c->network_count), 3);
	if (c->tls_resumed >= 0)
		json_bool(&j, "tls_resumed", c->tls_resumed > 0);
	put_verdict(&j, s, c);
	json_uint(&j, "call_id", c->id);
	if (c->conn_id)
		json_uint(&j, "connection_id", c->conn_id);
	json_uint(&j, "os_tid", c->tid);
	json_end_object(&j);
	return span_take_args(s, &j, &text);
}

/* --- makers ------------------------------------------------------------------------------------------------------ */

static char *call_name(const struct call *c)
{
	const char *what = c->model && *c->model		   ? c->model
			   : c->request_model && *c->request_model ? c->request_model
			   : c->api				   ? c->api
								   : "call";
	char text[SPAN_NAME_BYTES];
	size_t len = (size_t)snprintf(text, sizeof(text), "LLM %.128s", what);

	/* Not half a character at the cut. */
	if (strlen(what) > 128 && ((unsigned char)what[128] & 0xc0) == 0x80) {
		while (len && ((unsigned char)text[len - 1] & 0xc0) == 0x80)
			len--;
		if (len)
			len--;
	}
	return strndup(text, len);
}

/* Rates for the counters: areas must be true, so the input is spread over the whole time to its first token. */
static void set_rates(struct span *s, const struct call *c)
{
	double decode = call_decode_tok_s(c);

	s->first_token_ns = c->first_token_ns;
	if (!known(c->first_token_ns) || c->first_token_ns <= s->begin_ns)
		return;
	if (call_has_start(c) && c->usage.source != USAGE_NONE && c->usage.input_total > 0)
		s->input_tok_s = (double)c->usage.input_total * 1e9 / (double)(c->first_token_ns - s->begin_ns);
	if (isfinite(decode) && decode > 0) {
		s->output_tok_s = decode;
		s->last_token_ns = c->last_token_ns;
	}
}

int span_from_call(struct span *out, const struct call *c, uint32_t shown_pid, const uint64_t *retransmit_ns,
		   unsigned retransmit_count)
{
	int err;

	*out = (struct span){.pid = shown_pid, .track = SPAN_LLM, .cat = "llm", .is_call = true};
	call_bounds(c, &out->begin_ns, &out->end_ns);
	add_phases(out, c);
	set_rates(out, c);
	out->name = call_name(c);
	err = out->name ? call_args(out, c) : -ENOMEM;
	if (!err)
		err = span_put_retransmits(out, retransmit_ns, retransmit_count);
	if (!err && known(c->reset_ns))
		err = span_put_instant(out, "reset", c->reset_ns);
	if (!err)
		err = add_details(out, c, retransmit_ns, retransmit_count);
	if (err)
		span_release(out);
	return err;
}
