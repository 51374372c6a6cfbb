/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Requests of MCP, database commands, set-ups of connections, and what nobody could read, as spans. */
#include "span_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define SHAPE_TEXT_BYTES 1024

static int mcp_args(struct span *out, const struct mcp_call *c)
{
	struct buf text;
	struct json j;

	buf_init(&text, 0); /* bounded by the limit of each text */
	json_init(&j, &text);
	json_object(&j, NULL);
	span_put_text(&j, "method", c->method, 128);
	span_put_text(&j, !c->method || strcmp(c->method, "prompts/get") ? "tool" : "prompt", c->target, 128);
	span_put_text(&j, "server", c->server, 256);
	span_put_text(&j, "server_version", c->server_version, 128);
	span_put_text(&j, "protocol_version", c->protocol_version, 64);
	span_put_text(&j, "transport", mcp_transport_name(c->transport), 16);
	span_put_text(&j, "kind", c->answerer ? "server" : "client", 16);
	span_put_text(&j, "host", c->host, 256);
	span_put_peer(&j, &c->peer);
	if (c->status > 0)
		json_int(&j, "status", c->status);
	span_put_text(&j, "error", c->error, 128);
	span_put_text(&j, "error_message", c->error_message, 256);
	span_put_true(&j, "cancelled", c->cancelled);
	span_put_text(&j, "end_reason", end_reason_name(c->end), 32);
	span_put_true(&j, "evicted", c->end == END_EVICTED);
	span_put_true(&j, "unfinished", c->unfinished);
	span_put_true(&j, "lossy", c->lossy);
	span_put_text(&j, "undecoded", c->undecoded, 64);
	if (c->progress)
		json_uint(&j, "progress", c->progress);
	span_put_text(&j, "request_id", c->id, 128);
	json_uint(&j, "os_tid", c->tid);
	json_end_object(&j);
	return span_take_args(out, &j, &text);
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

/* Names as OpenTelemetry has them for database clients. */
static int db_args(struct span *out, const struct db_command *c, const char *shape)
{
	struct buf text;
	struct json j;

	buf_init(&text, 0); /* bounded by the limit of a shape */
	json_init(&j, &text);
	json_object(&j, NULL);
	span_put_text(&j, "db.system.name", c->system, 32);
	span_put_text(&j, "db.query.text", shape, SHAPE_TEXT_BYTES);
	span_put_count(&j, "db.response.returned_rows", c->rows);
	span_put_text(&j, "db.response.status_code", c->error, DB_ERROR_MAX);
	span_put_true(&j, "unfinished", c->unfinished);
	json_uint(&j, "os_tid", c->tid);
	json_end_object(&j);
	return span_take_args(out, &j, &text);
}

/* "postgresql SELECT": the first word of the shape, which is low in cardinality. */
static char *db_name(const struct db_command *c)
{
	size_t word = 0;
	char text[SPAN_NAME_BYTES];

	while (word < c->shape.len && word < 32 &&
	       strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.", c->shape.ptr[word]))
		word++;
	snprintf(text, sizeof(text), "%s%s%.*s", c->system, word ? " " : "", (int)word, word ? c->shape.ptr : "");
	return strdup(text);
}

int span_from_db(struct span *out, const struct db_command *c, uint32_t shown_pid)
{
	char *shape = c->shape.ptr ? strndup(c->shape.ptr, c->shape.len) : NULL;
	int err;

	*out = (struct span){.pid = shown_pid,
			     .track = SPAN_DB,
			     .cat = "db",
			     .begin_ns = c->start_ns,
			     .end_ns = c->end_ns > c->start_ns ? c->end_ns : c->start_ns,
			     .first_token_ns = UNKNOWN_NS};
	out->name = db_name(c);
	err = out->name && (shape || !c->shape.ptr) ? db_args(out, c, shape) : -ENOMEM;
	free(shape);
	if (err)
		span_release(out);
	return err;
}

static int function_args(struct span *out, const struct rec_func_call *c, const char *name)
{
	const char *colon = strchr(name, ':');
	struct buf text;
	struct json j;

	buf_init(&text, 0); /* bounded by the limit of each text */
	json_init(&j, &text);
	json_object(&j, NULL);
	if (colon)
		json_string(&j, "binary", (struct sv){name, (size_t)(colon - name)});
	json_uint(&j, "depth", c->depth);
	json_uint(&j, "os_tid", c->tid);
	json_end_object(&j);
	return span_take_args(out, &j, &text);
}

int span_from_function(struct span *out, const struct rec_func_call *c, const char *name, uint32_t shown_pid)
{
	const char *colon = strchr(name, ':');
	int err;

	*out = (struct span){.pid = shown_pid,
			     .track = SPAN_FUNCTION,
			     .cat = "function",
			     .begin_ns = c->begin_ns,
			     .end_ns = c->ts_ns,
			     .first_token_ns = UNKNOWN_NS};
	out->name = strndup(colon ? colon + 1 : name, SPAN_NAME_BYTES);
	err = out->name ? function_args(out, c, name) : -ENOMEM;
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
	span_put_peer(&j, &s->peer);
	span_put_true(&j, "tls_approximate", s->tls_approximate && known(s->tls_end_ns));
	if (s->tid)
		json_uint(&j, "os_tid", s->tid);
	json_end_object(&j);
	return span_take_args(out, &j, &text);
}

int span_from_setup(struct span *out, const struct span_setup *s)
{
	bool connect = known(s->connect_begin_ns) && known(s->connect_end_ns);
	bool tls = known(s->tls_begin_ns) && known(s->tls_end_ns);
	bool dns = connect && known(s->dns_begin_ns) && known(s->dns_end_ns);
	int err;

	*out = (struct span){.pid = s->shown_pid, .track = SPAN_NETWORK, .cat = "net", .first_token_ns = UNKNOWN_NS};
	if (!connect && !tls)
		return -EINVAL;
	out->begin_ns = earlier(connect ? s->connect_begin_ns : UNKNOWN_NS, tls ? s->tls_begin_ns : UNKNOWN_NS);
	out->end_ns = tls && (!connect || s->tls_end_ns > s->connect_end_ns) ? s->tls_end_ns : s->connect_end_ns;
	if (out->end_ns < out->begin_ns)
		out->end_ns = out->begin_ns;
	if (dns && s->dns_begin_ns < out->begin_ns)
		out->begin_ns = s->dns_begin_ns;
	if (dns)
		span_add_phase(out, "dns", s->dns_begin_ns, s->dns_end_ns);
	if (connect)
		span_add_phase(out, "connect", s->connect_begin_ns, s->connect_end_ns);
	if (tls)
		span_add_phase(out, "tls", s->tls_begin_ns, s->tls_end_ns);
	out->name = strdup("connection");
	err = out->name ? setup_args(out, s) : -ENOMEM;
	if (err)
		span_release(out);
	return err;
}

static int lookup_args(struct span *out, const struct span_lookup *l)
{
	struct buf text;
	struct json j;

	buf_init(&text, 0);
	json_init(&j, &text);
	json_object(&j, NULL);
	span_put_text(&j, "host", l->name, 256);
	json_uint(&j, "queries", l->queries);
	json_uint(&j, "addresses", l->addresses);
	if (l->unanswered && known(l->end_ns))
		json_uint(&j, "unanswered_queries", l->unanswered);
	span_put_true(&j, "unanswered", !known(l->end_ns));
	json_end_object(&j);
	return span_take_args(out, &j, &text);
}

int span_from_lookup(struct span *out, const struct span_lookup *l)
{
	int err;

	*out = (struct span){.pid = l->shown_pid, .track = SPAN_NETWORK, .cat = "net", .first_token_ns = UNKNOWN_NS};
	out->begin_ns = l->begin_ns;
	out->end_ns = known(l->end_ns) ? l->end_ns : l->begin_ns;
	out->name = strdup("dns");
	err = out->name ? lookup_args(out, l) : -ENOMEM;
	if (err)
		span_release(out);
	return err;
}

static int attempt_args(struct span *out, const struct span_attempt *a)
{
	char error[ATTEMPT_ERROR_BYTES];
	struct buf text;
	struct json j;

	buf_init(&text, 0);
	json_init(&j, &text);
	json_object(&j, NULL);
	span_put_text(&j, "host", a->host, 256);
	span_put_peer(&j, &a->attempt->remote);
	span_put_text(&j, "error", attempt_error(a->attempt, error), sizeof(error));
	span_put_true(&j, "unfinished", a->attempt->unfinished);
	json_end_object(&j);
	return span_take_args(out, &j, &text);
}

int span_from_attempt(struct span *out, const struct span_attempt *a)
{
	int err;

	*out = (struct span){.pid = a->shown_pid, .track = SPAN_NETWORK, .cat = "net", .first_token_ns = UNKNOWN_NS};
	out->begin_ns = a->attempt->begin_ns;
	out->end_ns = a->attempt->end_ns;
	out->name = strdup("connection not made");
	err = out->name ? attempt_args(out, a) : -ENOMEM;
	if (err) {
		span_release(out);
		return err;
	}
	if (known(a->attempt->tls_begin_ns)) {
		span_add_phase(out, "connect", a->attempt->begin_ns, a->attempt->tls_begin_ns);
		span_add_phase(out, "tls", a->attempt->tls_begin_ns, a->attempt->end_ns);
	}
	return 0;
}

static int unread_args(struct span *out, const struct span_unread *t)
{
	struct buf text;
	struct json j;

	buf_init(&text, 0);
	json_init(&j, &text);
	json_object(&j, NULL);
	span_put_text(&j, "undecoded", t->undecoded, 160);
	span_put_text(&j, "host", t->host, 256);
	span_put_peer(&j, &t->peer);
	if (t->bytes[DIR_TX]) /* else it was sent before anybody looked */
		json_uint(&j, "sent_bytes", t->bytes[DIR_TX]);
	json_uint(&j, "received_bytes", t->bytes[DIR_RX]);
	if (!t->merged) {
		span_put_number(&j, "first_byte_ms", (double)(t->first_ns - t->send_end_ns) / 1e6, 3);
		span_put_number(&j, "max_gap_ms", (double)t->gap_ns / 1e6, 3);
	}
	json_uint(&j, "retransmits", t->retransmits);
	span_put_true(&j, "merged", t->merged);
	json_end_object(&j);
	return span_take_args(out, &j, &text);
}

int span_from_unread(struct span *out, const struct span_unread *t)
{
	bool connect = known(t->connect_begin_ns) && known(t->connect_end_ns) && t->connect_end_ns <= t->begin_ns;
	bool tls = known(t->tls_begin_ns) && t->tls_begin_ns <= t->begin_ns;
	int err;

	*out = (struct span){.pid = t->shown_pid, .track = SPAN_NETWORK, .cat = "net", .first_token_ns = UNKNOWN_NS};
	out->begin_ns = earlier(connect ? t->connect_begin_ns : t->begin_ns, tls ? t->tls_begin_ns : t->begin_ns);
	out->end_ns = t->end_ns;
	if (connect)
		span_add_phase(out, "connect", t->connect_begin_ns, t->connect_end_ns);
	if (tls)
		span_add_phase(out, "tls", t->tls_begin_ns, t->begin_ns);
	span_add_phase(out, "send", t->begin_ns, t->send_end_ns);
	span_add_phase(out, "wait", t->send_end_ns, t->first_ns);
	span_add_phase(out, "stream", t->first_ns, t->end_ns);
	out->name = strdup("undecoded");
	err = out->name ? unread_args(out, t) : -ENOMEM;
	if (!err)
		err = span_put_retransmits(out, t->retransmit_ns, t->retransmits);
	if (err)
		span_release(out);
	return err;
}
