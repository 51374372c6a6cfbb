/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void call_init(struct call *c)
{
	*c = (struct call){
		.start_ns = UNKNOWN_NS,
		.send_end_ns = UNKNOWN_NS,
		.ttfb_ns = UNKNOWN_NS,
		.first_token_ns = UNKNOWN_NS,
		.first_visible_ns = UNKNOWN_NS,
		.last_token_ns = UNKNOWN_NS,
		.seen_token_ns = UNKNOWN_NS,
		.end_ns = UNKNOWN_NS,
		.max_gap_ns = UNKNOWN_COUNT,
		.stalls = UNKNOWN_COUNT,
		.chunks = UNKNOWN_COUNT,
		.gap_p50_ns = UNKNOWN_COUNT,
		.gap_p95_ns = UNKNOWN_COUNT,
		.dns_begin_ns = UNKNOWN_NS,
		.dns_end_ns = UNKNOWN_NS,
		.tls_resumed = -1,
		.interactive = -1,
		.connect_begin_ns = UNKNOWN_NS,
		.connect_end_ns = UNKNOWN_NS,
		.tls_begin_ns = UNKNOWN_NS,
		.tls_end_ns = UNKNOWN_NS,
		.stream = -1,
		.usage = {USAGE_NONE, -1, -1, -1, -1, -1, -1, false},
		.server = CALL_SERVER_NONE,
		.attempt = 1,
		.retry_wait_ns = UNKNOWN_COUNT,
		.request_bytes = UNKNOWN_COUNT,
		.response_bytes = UNKNOWN_COUNT,
		.request = {-1, -1, -1, -1, -1},
		.retransmits = UNKNOWN_COUNT,
		.reset_ns = UNKNOWN_NS,
		.srtt_us = UNKNOWN_COUNT,
		.rtt_min_us = UNKNOWN_COUNT,
	};
}

void call_release(struct call *c)
{
#define X(name) free(c->name);
	CALL_TEXTS(X)
#undef X
	free(c->segments);
	free(c->stall_at);
	free(c->late_at);
	free(c->network_at);
	free(c->retransmit_at);
	for (size_t i = 0; i < c->result_count; i++) {
		free(c->results[i].id);
		free(c->results[i].name);
	}
	free(c->results);
	for (size_t i = 0; i < c->tool_count; i++) {
		free(c->tools[i].id);
		free(c->tools[i].name);
	}
	free(c->tools);
	free(c->text);
	call_init(c);
}

/* What *field points to becomes the copy's own. */
static bool copy_array(void *field, size_t size)
{
	void *from, *to = NULL;

	memcpy(&from, field, sizeof(from));
	if (from && size) {
		to = malloc(size);
		if (to)
			memcpy(to, from, size);
	}
	memcpy(field, &to, sizeof(to));
	return to || !from || !size;
}

static bool copy_text(char **field)
{
	return copy_array(field, *field ? strlen(*field) + 1 : 0);
}

static bool copy_texts(struct call *c)
{
	bool done = copy_array(&c->text, c->text ? c->text_len + 1 : 0);

#define X(name) done &= copy_text(&c->name);
	CALL_TEXTS(X)
#undef X
	return done;
}

static bool copy_tools(struct call *c)
{
	bool done = copy_array(&c->results, c->result_count * sizeof(*c->results));

	done &= copy_array(&c->tools, c->tool_count * sizeof(*c->tools));
	c->result_count = c->results ? c->result_count : 0;
	c->tool_count = c->tools ? c->tool_count : 0;
	for (size_t i = 0; i < c->result_count; i++)
		done &= copy_text(&c->results[i].id) & copy_text(&c->results[i].name);
	for (size_t i = 0; i < c->tool_count; i++)
		done &= copy_text(&c->tools[i].id) & copy_text(&c->tools[i].name);
	return done;
}

int call_copy(struct call *to, const struct call *from)
{
	bool done;

	*to = *from;
	done = copy_texts(to);
	done &= copy_tools(to);
	done &= copy_array(&to->segments, to->segment_count * sizeof(*to->segments));
	done &= copy_array(&to->stall_at, to->stall_count * sizeof(*to->stall_at));
	done &= copy_array(&to->late_at, to->late_count * sizeof(*to->late_at));
	done &= copy_array(&to->network_at, to->network_count * sizeof(*to->network_at));
	done &= copy_array(&to->retransmit_at, to->retransmit_count * sizeof(*to->retransmit_at));
	if (!done)
		call_release(to);
	return done ? 0 : -ENOMEM;
}

/* Nanoseconds from a to b; NAN when either is unknown or b is not after a. */
static double span_ns(uint64_t a, uint64_t b)
{
	if (a == UNKNOWN_NS || b == UNKNOWN_NS || b <= a)
		return NAN;
	return (double)(b - a);
}

bool call_server_known(const struct call_server *s)
{
	return s->queue_ns >= 0 || s->load_ns >= 0 || s->prefill_ns >= 0 || s->decode_ns >= 0 ||
	       s->first_token_ns >= 0 || s->total_ns >= 0;
}

bool call_has_start(const struct call *c)
{
	return c->start_ns != UNKNOWN_NS && ((!c->mid_attach && !c->request_lost && !c->unasked) || c->start_known);
}

double call_ms(const struct call *c, uint64_t ns)
{
	if (!call_has_start(c) || ns == UNKNOWN_NS)
		return NAN;
	return ns >= c->start_ns ? (double)(ns - c->start_ns) / 1e6 : -((double)(c->start_ns - ns) / 1e6);
}

double call_cache_hit_rate(const struct call *c)
{
	if (c->usage.source == USAGE_NONE || c->usage.cache_read < 0 || c->usage.input_total <= 0)
		return NAN;
	return (double)c->usage.cache_read / (double)c->usage.input_total;
}

int64_t call_output_total(const struct call *c)
{
	return c->usage.source == USAGE_NONE || c->usage.unfinished ? UNKNOWN_COUNT : c->usage.output_total;
}

bool call_counts_left_out(const struct call *c)
{
	return c->usage.source == USAGE_PARTIAL && !c->usage.unfinished;
}

double call_itps(const struct call *c)
{
	if (!call_has_start(c) || c->usage.source == USAGE_NONE || c->usage.input_total < 0)
		return NAN;
	return (double)c->usage.input_total * 1e9 / span_ns(c->start_ns, c->first_token_ns);
}

double call_otps(const struct call *c)
{
	int64_t output = call_output_total(c);

	if (!call_has_start(c) || c->unfinished || output < 0)
		return NAN;
	return (double)output * 1e9 / span_ns(c->start_ns, c->end_ns);
}

double call_decode_tok_s(const struct call *c)
{
	int64_t output = call_output_total(c);

	if (c->hidden_reasoning || c->lossy || output < 2)
		return NAN;
	return (double)(output - 1) * 1e9 / span_ns(c->first_token_ns, c->last_token_ns);
}

double call_tpot_ms(const struct call *c)
{
	return 1000.0 / call_decode_tok_s(c);
}

const char *call_class_name(enum call_class c)
{
	static const char *const names[] = {
		[CALL_MAIN] = "main",	    [CALL_SUBAGENT] = "subagent", [CALL_AUX] = "aux",
		[CALL_PREWARM] = "prewarm", [CALL_COUNT] = "count",
	};

	return (unsigned)c < ARRAY_SIZE(names) ? names[c] : "main";
}

const char *call_trigger_name(enum call_trigger t)
{
	static const char *const names[] = {
		[CALL_TRIGGER_UNKNOWN] = NULL,
		[CALL_TRIGGER_HUMAN] = "human",
		[CALL_TRIGGER_TOOL_RESULTS] = "tool_results",
		[CALL_TRIGGER_CONTINUE] = "continue",
		[CALL_TRIGGER_NOTICE] = "notice",
	};

	return names[t];
}

const char *token_kind_name(enum token_kind k)
{
	static const char *const names[] = {
		[TOKEN_NONE] = NULL,   [TOKEN_REASONING] = "reasoning", [TOKEN_TEXT] = "text",
		[TOKEN_TOOL] = "tool", [TOKEN_REFUSAL] = "refusal",	[TOKEN_AUDIO] = "audio",
	};

	return (unsigned)k < ARRAY_SIZE(names) ? names[k] : NULL;
}

const char *usage_source_name(enum usage_source s)
{
	static const char *const names[] = {
		[USAGE_NONE] = NULL,
		[USAGE_REPORTED] = "reported",
		[USAGE_PARTIAL] = "partial",
		[USAGE_ESTIMATED] = "estimated",
	};

	return (unsigned)s < ARRAY_SIZE(names) ? names[s] : NULL;
}

const char *end_reason_name(enum end_reason e)
{
	static const char *const names[] = {
		[END_COMPLETE] = NULL,
		[END_CLIENT_ABORT] = "client_abort",
		[END_SERVER_ABORT] = "server_abort",
		[END_CONNECTION_CLOSED] = "connection_closed",
		[END_PROCESS_EXIT] = "process_exit",
		[END_EVICTED] = "evicted",
		[END_CAPTURE_LOSS] = "capture_loss",
		[END_CAPTURE_END] = "capture_end",
	};

	return (unsigned)e < ARRAY_SIZE(names) ? names[e] : NULL;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b; /* UNKNOWN_NS is the largest: the other one wins */
}

void call_bounds(const struct call *c, uint64_t *begin_ns, uint64_t *end_ns)
{
	uint64_t first = earlier(c->start_ns, earlier(c->ttfb_ns, earlier(c->first_token_ns, c->end_ns)));
	uint64_t last = c->end_ns;

	if (first == UNKNOWN_NS)
		first = 0;
	if (last == UNKNOWN_NS)
		last = c->last_token_ns != UNKNOWN_NS ? c->last_token_ns
		       : c->ttfb_ns != UNKNOWN_NS     ? c->ttfb_ns
						      : first;
	*begin_ns = first;
	if (c->dns_end_ns != UNKNOWN_NS)
		*begin_ns = earlier(*begin_ns, c->dns_begin_ns);
	if (c->connect_end_ns != UNKNOWN_NS)
		*begin_ns = earlier(*begin_ns, c->connect_begin_ns);
	if (c->tls_end_ns != UNKNOWN_NS)
		*begin_ns = earlier(*begin_ns, c->tls_begin_ns);
	*end_ns = last > *begin_ns ? last : *begin_ns;
}
