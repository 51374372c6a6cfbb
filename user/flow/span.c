/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "span.h"

#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"

/* --- the ring -------------------------------------------------------------------------------------------------------
 */

/* A span as it is kept: one allocation, so that 100,000 events stay small. The texts are behind the struct. */
struct kept {
	uint64_t begin_ns, end_ns, first_token_ns;
	double output_tok_s, input_tok_s;
	const char *cat;
	uint32_t pid;
	uint32_t bytes;	   /* of the whole allocation */
	uint32_t args_len; /* 0: no args */
	uint16_t instant_count;
	uint8_t phase_count;
	uint8_t track;
	bool is_call;
	/* phases, instants, name NUL, args NUL */
	struct span_phase phases[];
};

struct spans {
	struct lost *lost;
	uint64_t max_events, max_bytes;
	uint64_t events, bytes;
	struct kept **ring; /* size is 0 or a power of two */
	size_t size, head, count;
	size_t hidden; /* of the oldest, not shown by spans_each() */
};

struct spans *spans_new(uint64_t max_events, struct lost *lost)
{
	struct spans *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->lost = lost;
	t->max_events = max_events;
	t->max_bytes =
		max_events > UINT64_MAX / SPANS_BYTES_PER_EVENT ? UINT64_MAX : max_events * SPANS_BYTES_PER_EVENT;
	if (t->max_bytes < SPANS_BYTES_MIN)
		t->max_bytes = SPANS_BYTES_MIN;
	return t;
}

void spans_free(struct spans *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->count; i++)
		free(t->ring[(t->head + i) & (t->size - 1)]);
	free(t->ring);
	free(t);
}

void span_release(struct span *s)
{
	free(s->name);
	free(s->args);
	free(s->instants);
	*s = (struct span){0};
}

static uint64_t events_of(unsigned phases, unsigned instants)
{
	return 1 + (uint64_t)phases + instants;
}

static struct kept *pack(const struct span *s, unsigned instants)
{
	size_t name_len = s->name ? strlen(s->name) : 0;
	size_t args_len = s->args ? strlen(s->args) : 0;
	size_t phase_bytes = s->phase_count * sizeof(s->phases[0]);
	size_t instant_bytes = instants * sizeof(s->instants[0]);
	size_t bytes = sizeof(struct kept) + phase_bytes + instant_bytes + name_len + 1 + args_len + 1;
	struct kept *k = bytes < UINT32_MAX ? malloc(bytes) : NULL;
	char *at;

	if (!k)
		return NULL;
	*k = (struct kept){
		.begin_ns = s->begin_ns,
		.end_ns = s->end_ns,
		.first_token_ns = s->first_token_ns,
		.output_tok_s = s->output_tok_s,
		.input_tok_s = s->input_tok_s,
		.cat = s->cat,
		.pid = s->pid,
		.bytes = (uint32_t)bytes,
		.args_len = (uint32_t)args_len,
		.instant_count = (uint16_t)instants,
		.phase_count = (uint8_t)s->phase_count,
		.track = (uint8_t)s->track,
		.is_call = s->is_call,
	};
	at = (char *)k->phases;
	memcpy(at, s->phases, phase_bytes);
	at += phase_bytes;
	if (instant_bytes)
		memcpy(at, s->instants, instant_bytes);
	at += instant_bytes;
	memcpy(at, s->name ? s->name : "", name_len + 1);
	memcpy(at + name_len + 1, s->args ? s->args : "", args_len + 1);
	return k;
}

static void unpack(struct kept *k, struct span *out)
{
	char *at = (char *)(k->phases + k->phase_count);

	*out = (struct span){
		.begin_ns = k->begin_ns,
		.end_ns = k->end_ns,
		.pid = k->pid,
		.track = k->track,
		.cat = k->cat,
		.phase_count = k->phase_count,
		.instants = (struct span_instant *)at,
		.instant_count = k->instant_count,
		.output_tok_s = k->output_tok_s,
		.input_tok_s = k->input_tok_s,
		.first_token_ns = k->first_token_ns,
		.is_call = k->is_call,
	};
	memcpy(out->phases, k->phases, k->phase_count * sizeof(k->phases[0]));
	out->name = at + k->instant_count * sizeof(struct span_instant);
	out->args = k->args_len ? out->name + strlen(out->name) + 1 : NULL;
}

static int grow(struct spans *t)
{
	size_t size = t->size ? t->size * 2 : 64;
	struct kept **ring;

	if (t->count < t->size)
		return 0;
	ring = malloc(size * sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	for (size_t i = 0; i < t->count; i++)
		ring[i] = t->ring[(t->head + i) & (t->size - 1)];
	free(t->ring);
	t->ring = ring;
	t->size = size;
	t->head = 0;
	return 0;
}

static void drop_oldest(struct spans *t)
{
	struct kept *k = t->ring[t->head];
	uint64_t events = events_of(k->phase_count, k->instant_count);

	t->head = (t->head + 1) & (t->size - 1);
	t->count--;
	t->hidden -= t->hidden > 0;
	t->events -= events;
	t->bytes -= k->bytes;
	t->lost->n[LOST_SPANS]++;
	t->lost->n[LOST_SPAN_EVENTS] += events;
	free(k);
}

int spans_push(struct spans *t, struct span *s)
{
	unsigned instants = s->instant_count < SPAN_INSTANTS_MAX ? s->instant_count : SPAN_INSTANTS_MAX;
	uint64_t events;
	struct kept *k;
	int err = 0;

	if (s->track == SPAN_PROCESS || s->phase_count > SPAN_PHASES_MAX) {
		span_release(s);
		return -EINVAL;
	}
	events = events_of(s->phase_count, instants);
	k = pack(s, instants);
	span_release(s);
	if (!k)
		return -ENOMEM;
	if (events > t->max_events || k->bytes > t->max_bytes) {
		t->lost->n[LOST_SPANS]++;
		t->lost->n[LOST_SPAN_EVENTS] += events;
		free(k);
		return 0;
	}
	while (t->events + events > t->max_events || t->bytes + k->bytes > t->max_bytes)
		drop_oldest(t);
	err = grow(t);
	if (err) {
		free(k);
		return err;
	}
	t->ring[(t->head + t->count++) & (t->size - 1)] = k;
	t->events += events;
	t->bytes += k->bytes;
	return 0;
}

void spans_show(struct spans *t, uint64_t max_events)
{
	uint64_t events = t->events;

	for (t->hidden = 0; events > max_events; t->hidden++) {
		const struct kept *k = t->ring[(t->head + t->hidden) & (t->size - 1)];

		events -= events_of(k->phase_count, k->instant_count);
	}
}

void spans_each(const struct spans *t, void (*fn)(void *ctx, const struct span *s), void *ctx)
{
	for (size_t i = t->hidden; i < t->count; i++) {
		struct span s;

		unpack(t->ring[(t->head + i) & (t->size - 1)], &s);
		fn(ctx, &s);
	}
}

uint64_t spans_count(const struct spans *t)
{
	return t->count;
}

uint64_t spans_events(const struct spans *t)
{
	return t->events;
}

/* --- phases ---------------------------------------------------------------------------------------------------------
 */

static bool known(uint64_t ns)
{
	return ns != UNKNOWN_NS;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b; /* UNKNOWN_NS is the largest: the other one wins */
}

/* Unknown and empty phases are left out; a phase never begins before the one before it has ended. */
static void add_phase(struct span *s, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t floor_ns = s->phase_count ? s->phases[s->phase_count - 1].end_ns : s->begin_ns;
	/* 1 ns before the parent: a viewer that adds in doubles must not see the child end after it. */
	uint64_t ceil_ns = s->end_ns - 1;

	if (!known(begin_ns) || !known(end_ns) || s->phase_count == SPAN_PHASES_MAX || s->end_ns <= s->begin_ns)
		return;
	if (begin_ns < floor_ns)
		begin_ns = floor_ns;
	if (end_ns > ceil_ns)
		end_ns = ceil_ns;
	if (end_ns <= begin_ns)
		return;
	s->phases[s->phase_count++] = (struct span_phase){name, begin_ns, end_ns};
}

static void add_phases(struct span *s, const struct call *c)
{
	uint64_t answer_ns = earlier(c->ttfb_ns, c->first_token_ns);
	uint64_t send_end_ns = earlier(c->send_end_ns, earlier(answer_ns, s->end_ns));
	/* What the program waited for: the first token, or without one the first byte, or nothing that ever came. */
	uint64_t wait_end_ns = known(c->first_token_ns) ? c->first_token_ns
			       : known(c->ttfb_ns)	? c->ttfb_ns
							: s->end_ns;

	if (known(c->connect_end_ns))
		add_phase(s, "connect", c->connect_begin_ns, earlier(c->connect_end_ns, c->start_ns));
	if (known(c->tls_end_ns))
		add_phase(s, "tls", c->tls_begin_ns, earlier(c->tls_end_ns, c->start_ns));
	/* Attached in the middle: what was seen first is not when it began. */
	if (call_has_start(c)) {
		add_phase(s, "send", c->start_ns, send_end_ns);
		add_phase(s, "wait", send_end_ns, wait_end_ns);
	}
	add_phase(s, "stream", c->first_token_ns, s->end_ns);
}

/* --- args: what the call record knows, unknown left out, each text cut at its limit ---------------------------------
 */

static void put_text(struct json *j, const char *key, const char *text, size_t max)
{
	struct sv v = sv_of(text);

	if (!v.len)
		return;
	if (v.len > max) {
		v.len = max;
		while (v.len && ((unsigned char)v.ptr[v.len] & 0xc0) == 0x80)
			v.len--;
	}
	json_string(j, key, v);
}

static void put_number(struct json *j, const char *key, double value, int decimals)
{
	if (isfinite(value) && fabs(value) < 1e15)
		json_double(j, key, value, decimals);
}

static void put_count(struct json *j, const char *key, int64_t value)
{
	if (value >= 0)
		json_int(j, key, value);
}

static void put_true(struct json *j, const char *key, bool value)
{
	if (value)
		json_bool(j, key, true);
}

static void put_peer(struct json *j, const struct sock_addr *a)
{
	char ip[INET6_ADDRSTRLEN], text[INET6_ADDRSTRLEN + 16];

	if ((a->family != AF_INET && a->family != AF_INET6) || !inet_ntop(a->family, a->ip, ip, sizeof(ip)))
		return;
	snprintf(text, sizeof(text), a->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip, a->port);
	json_string(j, "peer", sv_of(text));
}

static void put_metrics(struct json *j, const struct call *c)
{
	put_number(j, "ttft_ms", call_ms(c, c->first_token_ns), 3);
	put_number(j, "itps", call_itps(c), 3);
	put_number(j, "otps", call_otps(c), 3);
	put_number(j, "cache_hit_rate", call_cache_hit_rate(c), 6);
	if (c->usage.source != USAGE_NONE) {
		put_count(j, "input_tokens", c->usage.input_total);
		put_count(j, "output_tokens", c->usage.output_total);
		put_count(j, "cache_read_tokens", c->usage.cache_read);
		put_count(j, "cache_write_tokens", c->usage.cache_write);
		put_count(j, "input_uncached_tokens", c->usage.input_uncached);
		put_count(j, "reasoning_tokens", c->usage.reasoning);
		put_text(j, "usage_source", usage_source_name(c->usage.source), 32);
	}
	put_text(j, "stop_reason", c->stop_reason, 64);
	put_number(j, "decode_tok_s", call_decode_tok_s(c), 3);
	put_number(j, "tpot_ms", call_tpot_ms(c), 3);
	put_number(j, "ttfb_ms", call_ms(c, c->ttfb_ns), 3);
	put_text(j, "ttft_kind", token_kind_name(c->first_kind), 32);
	if (c->first_visible_ns != c->first_token_ns)
		put_number(j, "ttft_visible_ms", call_ms(c, c->first_visible_ns), 3);
	if (c->max_gap_ns >= 0)
		put_number(j, "max_gap_ms", (double)c->max_gap_ns / 1e6, 3);
	put_count(j, "stalls", c->stalls);
	put_count(j, "chunks", c->chunks);
}

static void put_identity(struct json *j, const struct call *c)
{
	put_text(j, "provider", c->provider, 64);
	put_text(j, "api", c->api, 64);
	if (c->request_model && c->model && strcmp(c->request_model, c->model))
		put_text(j, "request_model", c->request_model, 128);
	put_text(j, "host", c->host, 256);
	put_text(j, "path", c->path, 512);
	put_peer(j, &c->peer);
	if (c->status > 0)
		json_int(j, "status", c->status);
	put_text(j, "class", call_class_name(c->class), 32);
	if (c->stream >= 0)
		json_bool(j, "stream", c->stream > 0);
	put_text(j, "session_id", c->session_id, 128);
	put_text(j, "agent_id", c->agent_id, 128);
	put_text(j, "parent_agent_id", c->parent_agent_id, 128);
	if (c->attempt > 1)
		json_int(j, "attempt", c->attempt);
	if (c->retry_of)
		json_uint(j, "retry_of", c->retry_of);
	if (c->retry_wait_ns >= 0 && c->retry_of)
		put_number(j, "retry_wait_ms", (double)c->retry_wait_ns / 1e6, 3);
}

/* Names of the tools that the answer asks for. Never their arguments, which are the answer's text. */
static void put_tools(struct json *j, const struct call *c)
{
	size_t n = c->tool_count < 16 ? c->tool_count : 16;

	put_count(j, "request_messages", c->request.messages);
	put_count(j, "request_tools", c->request.tools);
	if (!c->tool_count)
		return;
	json_uint(j, "tool_call_count", c->tool_count);
	json_array(j, "tool_calls");
	for (size_t i = 0; i < n; i++)
		put_text(j, NULL, c->tools[i].name, 64);
	json_end_array(j);
}

static void put_duration(struct json *j, const char *key, int64_t ns)
{
	if (ns >= 0)
		put_number(j, key, (double)ns / 1e6, 3);
}

static void put_server(struct json *j, const struct call_server *s)
{
	put_duration(j, "server_queue_ms", s->queue_ns);
	put_duration(j, "server_load_ms", s->load_ns);
	put_duration(j, "server_prefill_ms", s->prefill_ns);
	put_duration(j, "server_decode_ms", s->decode_ns);
	put_duration(j, "server_first_token_ms", s->first_token_ns);
	put_duration(j, "server_total_ms", s->total_ns);
}

static void put_outcome(struct json *j, const struct call *c)
{
	put_text(j, "error", c->error, 256);
	put_text(j, "end_reason", end_reason_name(c->end), 32);
	put_true(j, "evicted", c->end == END_EVICTED);
	put_true(j, "unfinished", c->unfinished);
	put_true(j, "mid_attach", c->mid_attach);
	put_true(j, "lossy", c->lossy);
	if (c->lossy)
		put_count(j, "lost_bytes", c->lost_bytes);
	put_text(j, "undecoded", c->undecoded, 64);
	put_true(j, "request_truncated", c->request_truncated);
	put_count(j, "request_bytes", c->request_bytes);
	put_count(j, "response_bytes", c->response_bytes);
	if (c->retransmits > 0)
		json_int(j, "retransmits", c->retransmits);
	put_count(j, "srtt_us", c->srtt_us);
}

static int call_args(struct span *s, const struct call *c)
{
	const char *model = c->model ? c->model : c->request_model;
	struct buf text;
	struct json j;

	buf_init(&text, 0); /* bounded by the limit of each text */
	json_init(&j, &text);
	json_object(&j, NULL);
	put_text(&j, "model", model, 128);
	put_metrics(&j, c);
	if (known(c->start_ns) && c->start_ns > s->begin_ns)
		put_number(&j, "setup_ms", (double)(c->start_ns - s->begin_ns) / 1e6, 3);
	put_true(&j, "tls_approximate", c->tls_approximate && known(c->tls_end_ns));
	put_identity(&j, c);
	put_tools(&j, c);
	put_server(&j, &c->server);
	put_outcome(&j, c);
	json_uint(&j, "call_id", c->id);
	json_uint(&j, "os_tid", c->tid);
	json_end_object(&j);
	s->args = j.err ? NULL : strndup(text.ptr, text.len);
	buf_release(&text);
	return s->args ? 0 : -ENOMEM;
}

/* --- makers
 * ----------------------------------------------------------------------------------------------------------- */

#define SPAN_NAME_BYTES 160 /* "LLM " and a model name of at most 128 bytes; viewers warn above 256 characters */

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

static int copy_instants(struct span *s, const uint64_t *retransmit_ns, unsigned count)
{
	if (count > SPAN_INSTANTS_MAX)
		count = SPAN_INSTANTS_MAX;
	if (!count)
		return 0;
	s->instants = calloc(count, sizeof(s->instants[0]));
	if (!s->instants)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++)
		s->instants[i] = (struct span_instant){"retransmit", retransmit_ns[i]};
	s->instant_count = count;
	return 0;
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
	if (isfinite(decode) && decode > 0)
		s->output_tok_s = decode;
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
		err = copy_instants(out, retransmit_ns, retransmit_count);
	if (err)
		span_release(out);
	return err;
}

static int mcp_args(struct span *out, const struct mcp_call *c)
{
	struct buf text;
	struct json j;

	buf_init(&text, 0); /* bounded by the limit of each text */
	json_init(&j, &text);
	json_object(&j, NULL);
	put_text(&j, "method", c->method, 128);
	put_text(&j, !c->method || strcmp(c->method, "prompts/get") ? "tool" : "prompt", c->target, 128);
	put_text(&j, "server", c->server, 256);
	put_text(&j, "server_version", c->server_version, 128);
	put_text(&j, "protocol_version", c->protocol_version, 64);
	put_text(&j, "transport", mcp_transport_name(c->transport), 16);
	put_text(&j, "kind", c->answerer ? "server" : "client", 16);
	put_text(&j, "host", c->host, 256);
	put_peer(&j, &c->peer);
	if (c->status > 0)
		json_int(&j, "status", c->status);
	put_text(&j, "error", c->error, 128);
	put_text(&j, "error_message", c->error_message, 256);
	put_true(&j, "cancelled", c->cancelled);
	put_text(&j, "end_reason", end_reason_name(c->end), 32);
	put_true(&j, "evicted", c->end == END_EVICTED);
	put_true(&j, "unfinished", c->unfinished);
	put_true(&j, "lossy", c->lossy);
	put_text(&j, "undecoded", c->undecoded, 64);
	if (c->progress)
		json_uint(&j, "progress", c->progress);
	put_text(&j, "request_id", c->id, 128);
	json_uint(&j, "os_tid", c->tid);
	json_end_object(&j);
	out->args = j.err ? NULL : strndup(text.ptr, text.len);
	buf_release(&text);
	return out->args ? 0 : -ENOMEM;
}

/* "tools/call NAME": the method alone where it has no target. */
static char *mcp_name(const struct mcp_call *c)
{
	char text[SPAN_NAME_BYTES * 2];
	size_t len = (size_t)snprintf(text, sizeof(text), "%.128s%s%.128s", c->method ? c->method : "request",
				      c->target ? " " : "", c->target ? c->target : "");

	return strndup(text, len); /* both are cut at whole characters where they are copied */
}

int span_from_mcp(struct span *out, const struct mcp_call *c, uint32_t shown_pid)
{
	int err;

	*out = (struct span){.pid = shown_pid,
			     .track = SPAN_MCP,
			     .cat = "mcp",
			     .begin_ns = c->start_ns,
			     .end_ns = c->end_ns > c->start_ns ? c->end_ns : c->start_ns,
			     .first_token_ns = UNKNOWN_NS};
	out->name = mcp_name(c);
	err = out->name ? mcp_args(out, c) : -ENOMEM;
	if (err)
		span_release(out);
	return err;
}

static int setup_args(struct span *out, const struct span_setup *s)
{
	struct buf text;
	struct json j;

	buf_init(&text, 0);
	json_init(&j, &text);
	json_object(&j, NULL);
	put_peer(&j, &s->peer);
	put_true(&j, "tls_approximate", s->tls_approximate && known(s->tls_end_ns));
	json_end_object(&j);
	if (!j.err && text.len > strlen("{}")) {
		out->args = strndup(text.ptr, text.len);
		if (!out->args)
			j.err = -ENOMEM;
	}
	buf_release(&text);
	return j.err;
}

int span_from_setup(struct span *out, const struct span_setup *s)
{
	bool connect = known(s->connect_begin_ns) && known(s->connect_end_ns);
	bool tls = known(s->tls_begin_ns) && known(s->tls_end_ns);
	int err;

	*out = (struct span){.pid = s->shown_pid, .track = SPAN_NETWORK, .cat = "net", .first_token_ns = UNKNOWN_NS};
	if (!connect && !tls)
		return -EINVAL;
	out->begin_ns = earlier(connect ? s->connect_begin_ns : UNKNOWN_NS, tls ? s->tls_begin_ns : UNKNOWN_NS);
	out->end_ns = tls && (!connect || s->tls_end_ns > s->connect_end_ns) ? s->tls_end_ns : s->connect_end_ns;
	if (out->end_ns < out->begin_ns)
		out->end_ns = out->begin_ns;
	if (connect)
		add_phase(out, "connect", s->connect_begin_ns, s->connect_end_ns);
	if (tls)
		add_phase(out, "tls", s->tls_begin_ns, s->tls_end_ns);
	out->name = strdup("connection");
	err = out->name ? setup_args(out, s) : -ENOMEM;
	if (err)
		span_release(out);
	return err;
}
