/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The records of --calls (doc/calls-format.md): of model calls, HTTP exchanges, database commands. */
#include "views.h"

#include <arpa/inet.h>
#include <math.h>

#include "base/clock.h"
#include "base/json.h"

/* The call record: every field is there, null for what is not known. Milliseconds with six decimals: exact to the ns.
 */
#define MS_DECIMALS 6

static bool known(uint64_t ns)
{
	return ns != UNKNOWN_NS;
}

/* Texts that are empty say as little as absent ones. */
static void put_text(struct json *j, const char *key, const char *text)
{
	json_string(j, key, text && *text ? sv_of(text) : SV_NONE);
}

static void put_count(struct json *j, const char *key, int64_t value)
{
	if (value < 0)
		json_null(j, key);
	else
		json_int(j, key, value);
}

static void put_ms(struct json *j, const char *key, double ms)
{
	json_double(j, key, ms, MS_DECIMALS);
}

static double between_ms(uint64_t begin_ns, uint64_t end_ns)
{
	return known(begin_ns) && known(end_ns) && end_ns >= begin_ns ? (double)(end_ns - begin_ns) / 1e6 : NAN;
}

static double ns_to_ms(int64_t ns)
{
	return ns < 0 ? NAN : (double)ns / 1e6;
}

static void put_process(struct json *j, const struct call *c, const struct proc *p)
{
	json_uint(j, "pid", c->conn.tgid);
	json_uint(j, "tid", c->tid);
	put_text(j, "process", p ? p->name : NULL);
	put_text(j, "agent", p ? p->agent : NULL);
	put_text(j, "exe", p ? p->exe : NULL);
	put_count(j, "ppid", p && p->ppid ? (int64_t)p->ppid : UNKNOWN_COUNT);
}

static void put_start(struct json *j, uint64_t ns, uint64_t start_ns, int64_t boot_to_unix_ns)
{
	char time[CLOCK_RFC3339_BYTES];

	if (!known(ns))
		json_null(j, "start_ms");
	else
		put_ms(j, "start_ms",
		       ns >= start_ns ? (double)(ns - start_ns) / 1e6 : -((double)(start_ns - ns) / 1e6));
	put_text(j, "start_time", known(ns) ? clock_rfc3339(time, ns, boot_to_unix_ns) : NULL);
}

static void put_what(struct json *j, const struct call *c)
{
	put_text(j, "protocol", c->protocol);
	put_text(j, "method", c->method);
	put_text(j, "path", c->path);
	put_text(j, "host", c->host);
	put_count(j, "status", c->status > 0 ? c->status : UNKNOWN_COUNT);
	put_text(j, "api", c->api);
	put_text(j, "provider", c->provider);
	put_text(j, "operation", c->operation);
	put_text(j, "model", c->model);
	put_text(j, "request_model", c->request_model);
	put_text(j, "class", call_class_name(c->class));
	if (c->stream < 0)
		json_null(j, "stream");
	else
		json_bool(j, "stream", c->stream);
	put_text(j, "session_id", c->session_id);
	put_text(j, "agent_id", c->agent_id);
	put_text(j, "parent_agent_id", c->parent_agent_id);
}

static void put_peer(struct json *j, const struct sock_addr *a)
{
	char ip[INET6_ADDRSTRLEN];

	if ((a->family != AF_INET && a->family != AF_INET6) || !inet_ntop(a->family, a->ip, ip, sizeof(ip))) {
		json_null(j, "peer");
		return;
	}
	json_object(j, "peer");
	json_string(j, "ip", sv_of(ip));
	json_uint(j, "port", a->port);
	json_end_object(j);
}

static void put_times(struct json *j, const struct call *c)
{
	double tls_ms = between_ms(c->tls_begin_ns, c->tls_end_ns);

	put_ms(j, "connect_ms", between_ms(c->connect_begin_ns, c->connect_end_ns));
	put_ms(j, "tls_ms", tls_ms);
	json_bool(j, "tls_approximate", isfinite(tls_ms) && c->tls_approximate);
	put_ms(j, "dns_ms", between_ms(c->dns_begin_ns, c->dns_end_ns));
	/* Where a write is seen as it returns only (plain sockets), the one write of a request has no duration. */
	put_ms(j, "send_ms", c->send_end_ns > c->start_ns ? call_ms(c, c->send_end_ns) : NAN);
	put_ms(j, "ttfb_ms", call_ms(c, c->ttfb_ns));
	put_ms(j, "ttft_ms", call_ms(c, c->first_token_ns));
	put_ms(j, "ttft_visible_ms", call_ms(c, c->first_visible_ns));
	put_text(j, "ttft_kind", token_kind_name(c->first_kind));
	put_ms(j, "last_token_ms", call_ms(c, c->last_token_ns));
	put_ms(j, "max_gap_ms", ns_to_ms(c->max_gap_ns));
	put_count(j, "stalls", c->stalls);
	put_count(j, "chunks", c->chunks);
}

static void put_usage(struct json *j, const struct call *c)
{
	const struct usage *u = &c->usage;

	if (u->source == USAGE_NONE) {
		json_null(j, "usage");
		return;
	}
	json_object(j, "usage");
	put_count(j, "input_uncached", u->input_uncached);
	put_count(j, "cache_read", u->cache_read);
	put_count(j, "cache_write", u->cache_write);
	put_count(j, "input_total", u->input_total);
	put_count(j, "output_total", u->output_total);
	put_count(j, "reasoning", u->reasoning);
	put_text(j, "source", usage_source_name(u->source));
	json_end_object(j);
}

static void put_rates(struct json *j, const struct call *c)
{
	json_double(j, "cache_hit_rate", call_cache_hit_rate(c), 6);
	json_double(j, "itps", call_itps(c), 3);
	json_double(j, "otps", call_otps(c), 3);
	json_double(j, "decode_tok_s", call_decode_tok_s(c), 3);
	put_ms(j, "tpot_ms", call_tpot_ms(c));
}

/* What the server says it spent, for servers that do. */
static void put_server(struct json *j, const struct call_server *s)
{
	if (!call_server_known(s)) {
		json_null(j, "server");
		return;
	}
	json_object(j, "server");
	put_ms(j, "queue_ms", ns_to_ms(s->queue_ns));
	put_ms(j, "load_ms", ns_to_ms(s->load_ns));
	put_ms(j, "prefill_ms", ns_to_ms(s->prefill_ns));
	put_ms(j, "decode_ms", ns_to_ms(s->decode_ns));
	put_ms(j, "first_token_ms", ns_to_ms(s->first_token_ns));
	put_ms(j, "total_ms", ns_to_ms(s->total_ns));
	json_end_object(j);
}

static void put_end(struct json *j, const struct call *c)
{
	put_text(j, "stop_reason", c->stop_reason);
	put_text(j, "error", c->error);
	json_bool(j, "complete", c->end == END_COMPLETE && !c->unfinished);
	put_text(j, "end_reason", end_reason_name(c->end));
	if (c->end == END_PROCESS_EXIT && c->exit_code != EXIT_CODE_UNKNOWN) {
		json_object(j, "exit");
		json_int(j, "code", c->exit_code);
		json_int(j, "signal", c->exit_signal);
		json_end_object(j);
	} else {
		json_null(j, "exit");
	}
	json_bool(j, "evicted", c->end == END_EVICTED);
	put_ms(j, "end_ms", call_ms(c, c->end_ns));
}

static void put_capture(struct json *j, const struct call *c)
{
	json_bool(j, "lossy", c->lossy);
	put_count(j, "lost_bytes", c->lossy ? c->lost_bytes : 0);
	json_bool(j, "mid_attach", c->mid_attach);
	put_text(j, "undecoded", c->undecoded);
	json_bool(j, "request_truncated", c->request_truncated);
	put_count(j, "attempt", c->attempt > 0 ? c->attempt : UNKNOWN_COUNT);
	put_count(j, "retry_of", c->retry_of ? (int64_t)c->retry_of : UNKNOWN_COUNT);
	put_ms(j, "retry_wait_ms", ns_to_ms(c->retry_wait_ns));
}

/* "None" is only known of an answer that was read to its end. */
static void put_tools(struct json *j, const struct call *c)
{
	if (!c->tool_count && ((c->end != END_COMPLETE && !c->whole) || c->unfinished || c->lossy || c->undecoded)) {
		json_null(j, "tool_calls");
		return;
	}
	json_array(j, "tool_calls");
	for (size_t i = 0; i < c->tool_count; i++) {
		json_object(j, NULL);
		put_text(j, "id", c->tools[i].id);
		put_text(j, "name", c->tools[i].name);
		json_end_object(j);
	}
	json_end_array(j);
}

static void put_request(struct json *j, const struct call_request *r)
{
	json_object(j, "request");
	put_count(j, "messages", r->messages);
	put_count(j, "tools", r->tools);
	put_count(j, "system_bytes", r->system_bytes);
	put_count(j, "max_tokens", r->max_tokens);
	if (r->thinking < 0)
		json_null(j, "thinking");
	else
		json_bool(j, "thinking", r->thinking);
	json_end_object(j);
}

/* What the newest part of the request is. "None" is only known of a request that was read to its end. */
static void put_question(struct json *j, const struct call *c)
{
	put_text(j, "trigger", call_trigger_name(c->trigger));
	if (c->trigger == CALL_TRIGGER_UNKNOWN) {
		json_null(j, "tool_results");
		return;
	}
	json_array(j, "tool_results");
	for (size_t i = 0; i < c->result_count; i++) {
		json_object(j, NULL);
		put_text(j, "id", c->results[i].id);
		put_text(j, "name", c->results[i].name);
		put_count(j, "bytes", c->results[i].bytes);
		if (c->results[i].is_error < 0)
			json_null(j, "is_error");
		else
			json_bool(j, "is_error", c->results[i].is_error);
		json_end_object(j);
	}
	json_end_array(j);
}

static void put_place(struct json *j, const struct agent_place *place)
{
	put_count(j, "turn", place->turn ? (int64_t)place->turn : UNKNOWN_COUNT);
	json_uint(j, "agent_index", place->agent);
}

int view_call_json(struct buf *out, const struct call *c, const struct proc *p, const struct agent_place *place,
		   uint64_t start_ns, int64_t boot_to_unix_ns, bool content)
{
	size_t before = out->len;
	struct json j;

	json_init(&j, out);
	json_object(&j, NULL);
	json_string(&j, "type", SV("call"));
	json_uint(&j, "id", c->id);
	put_process(&j, c, p);
	put_start(&j, c->start_ns, start_ns, boot_to_unix_ns);
	put_what(&j, c);
	put_place(&j, place);
	put_peer(&j, &c->peer);
	put_times(&j, c);
	put_usage(&j, c);
	put_rates(&j, c);
	put_server(&j, &c->server);
	put_end(&j, c);
	put_capture(&j, c);
	put_tools(&j, c);
	put_question(&j, c);
	put_count(&j, "request_bytes", c->request_bytes);
	put_count(&j, "response_bytes", c->response_bytes);
	put_request(&j, &c->request);
	put_count(&j, "retransmits", c->retransmits);
	put_count(&j, "srtt_us", c->srtt_us);
	if (content)
		json_string(&j, "text", c->text ? (struct sv){c->text, c->text_len} : SV_NONE);
	return json_end_line(&j, before);
}

/* --- HTTP exchanges that are no calls ---------------------------------------------------------------------------- */

static void put_http(struct json *j, const struct http_operation *o)
{
	put_text(j, "side", o->server ? "server" : "client");
	put_text(j, "protocol", o->protocol);
	put_text(j, "method", o->method);
	put_text(j, "path", o->path);
	put_text(j, "route", o->route);
	put_text(j, "operation", o->label);
	put_text(j, "host", o->host);
	put_count(j, "status", o->status > 0 ? o->status : UNKNOWN_COUNT);
	put_peer(j, &o->peer);
}

static void put_http_times(struct json *j, const struct http_operation *o)
{
	put_ms(j, "dur_ms", o->mid_attach ? NAN : between_ms(o->start_ns, o->end_ns));
	put_ms(j, "ttfb_ms", o->mid_attach ? NAN : between_ms(o->start_ns, o->ttfb_ns));
}

int view_http_json(struct buf *out, const struct http_operation *o, const struct proc *p, uint64_t start_ns,
		   int64_t boot_to_unix_ns)
{
	size_t before = out->len;
	struct json j;

	json_init(&j, out);
	json_object(&j, NULL);
	json_string(&j, "type", SV("http"));
	json_uint(&j, "id", o->id);
	json_uint(&j, "pid", o->conn.tgid);
	put_count(&j, "tid", o->tid ? (int64_t)o->tid : UNKNOWN_COUNT);
	put_count(&j, "response_tid", o->response_tid ? (int64_t)o->response_tid : UNKNOWN_COUNT);
	put_text(&j, "process", p ? p->name : NULL);
	json_uint(&j, "connection_id", o->conn_id);
	put_start(&j, o->start_ns, start_ns, boot_to_unix_ns);
	put_http(&j, o);
	put_http_times(&j, o);
	put_count(&j, "request_bytes", o->request_bytes);
	put_count(&j, "response_bytes", o->response_bytes);
	json_bool(&j, "complete", o->end == END_COMPLETE && !o->unfinished);
	put_text(&j, "end_reason", end_reason_name(o->end));
	json_bool(&j, "lossy", o->lossy);
	json_bool(&j, "mid_attach", o->mid_attach);
	return json_end_line(&j, before);
}

/* --- database commands ------------------------------------------------------------------------------------------- */

int view_db_json(struct buf *out, const struct db_command *c, const struct proc *p, uint64_t start_ns)
{
	size_t before = out->len;
	struct json j;

	json_init(&j, out);
	json_object(&j, NULL);
	json_string(&j, "type", SV("db"));
	json_uint(&j, "pid", c->proc.tgid);
	json_uint(&j, "tid", c->tid);
	put_text(&j, "process", p ? p->name : NULL);
	put_ms(&j, "start_ms", ((double)c->start_ns - (double)start_ns) / 1e6);
	put_text(&j, "system", c->system);
	json_string(&j, "shape", c->shape.len ? c->shape : SV_NONE);
	put_ms(&j, "dur_ms", (double)(c->end_ns > c->start_ns ? c->end_ns - c->start_ns : 0) / 1e6);
	put_count(&j, "rows", c->rows);
	put_text(&j, "error", c->error);
	json_bool(&j, "complete", !c->unfinished);
	return json_end_line(&j, before);
}
