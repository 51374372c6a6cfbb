/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "mcp_scan.h"

#include <stdlib.h>

#include "base/err.h"
#include "jsonscan.h"
#include "text.h"

struct mcp_scan {
	struct mcp_scan_sink sink;
	struct lost *lost;
	struct jsonscan *json;
	bool begun, batch, over;
	unsigned count; /* messages so far */
	struct mcp_message message;
	bool versioned;	      /* it says "2.0" */
	bool has_id, long_id; /* the id is there; it is too long to compare */
	bool has_method, has_result;
};

/* --- where a value is -------------------------------------------------------------------------------------------- */

/* Levels below the message at hand; 0: the message itself. */
static unsigned depth_in(const struct mcp_scan *s, const struct jsonscan_value *v)
{
	return v->depth - (s->batch ? 1 : 0);
}

static bool key_is(const struct mcp_scan *s, const struct jsonscan_value *v, unsigned level, const char *key)
{
	struct sv found = v->path[level + (s->batch ? 1 : 0)].key;

	return found.ptr && sv_eq(found, sv_of(key));
}

static void set_id(struct mcp_id *id, const struct jsonscan_value *v, bool *too_long)
{
	bool text = v->type == JSON_STRING;

	*id = (struct mcp_id){0};
	if (v->type != JSON_NUMBER && !text)
		return;
	if ((text ? v->bytes : v->text.len) >= sizeof(id->text) || (!text && !v->text.ptr)) {
		*too_long = true;
		return;
	}
	id->type = text ? 's' : 'n';
	text_copy(id->text, sizeof(id->text), v->text);
}

/* --- members ----------------------------------------------------------------------------------------------------- */

static bool is_member_of_message(const struct mcp_scan *s, const struct jsonscan_value *v)
{
	static const char *const members[] = {"jsonrpc", "id", "method", "params", "result", "error"};

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		if (key_is(s, v, 0, members[i]))
			return true;
	}
	return false;
}

static void message_member(struct mcp_scan *s, const struct jsonscan_value *v)
{
	struct mcp_message *m = &s->message;

	if (key_is(s, v, 0, "jsonrpc")) {
		s->versioned = v->type == JSON_STRING && sv_eq(v->text, SV("2.0"));
	} else if (key_is(s, v, 0, "id")) {
		s->has_id = true;
		set_id(&m->id, v, &s->long_id);
	} else if (key_is(s, v, 0, "method") && v->type == JSON_STRING) {
		s->has_method = true;
		text_copy(m->method, sizeof(m->method), v->text);
	} else if (key_is(s, v, 0, "result")) {
		s->has_result = true;
	} else if (key_is(s, v, 0, "error") && v->type == JSON_OBJECT) {
		m->failed = true;
	}
}

/* Members of params, result and error. */
static void inner_member(struct mcp_scan *s, const struct jsonscan_value *v)
{
	struct mcp_message *m = &s->message;
	bool params = key_is(s, v, 0, "params"), result = key_is(s, v, 0, "result"), text = v->type == JSON_STRING;
	bool too_long = false;

	if (params && text && key_is(s, v, 1, "name"))
		text_copy(m->name, sizeof(m->name), v->text);
	else if ((params || result) && text && key_is(s, v, 1, "protocolVersion"))
		text_copy(m->protocol_version, sizeof(m->protocol_version), v->text);
	else if (params && key_is(s, v, 1, "requestId"))
		set_id(&m->cancelled, v, &too_long);
	else if (params && key_is(s, v, 1, "progressToken"))
		set_id(&m->token, v, &too_long);
	else if (result && key_is(s, v, 1, "isError"))
		m->tool_error = v->type == JSON_TRUE;
	else if (key_is(s, v, 0, "error") && v->type == JSON_NUMBER && key_is(s, v, 1, "code"))
		text_copy(m->error_code, sizeof(m->error_code), v->text);
	else if (key_is(s, v, 0, "error") && text && key_is(s, v, 1, "message"))
		text_copy(m->error_message, sizeof(m->error_message), v->text);
}

static void deep_member(struct mcp_scan *s, const struct jsonscan_value *v)
{
	struct mcp_message *m = &s->message;
	bool too_long = false;

	if (key_is(s, v, 0, "result") && key_is(s, v, 1, "serverInfo") && v->type == JSON_STRING) {
		if (key_is(s, v, 2, "name"))
			text_copy(m->peer, sizeof(m->peer), v->text);
		else if (key_is(s, v, 2, "version"))
			text_copy(m->peer_version, sizeof(m->peer_version), v->text);
	} else if (key_is(s, v, 0, "params") && key_is(s, v, 1, "_meta") && key_is(s, v, 2, "progressToken")) {
		set_id(&m->token, v, &too_long);
	}
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

static void message_begin(struct mcp_scan *s)
{
	s->message = (struct mcp_message){0};
	s->versioned = s->has_id = s->long_id = s->has_method = s->has_result = false;
}

static void message_end(struct mcp_scan *s)
{
	struct mcp_message *m = &s->message;

	if (!s->versioned)
		return;
	if (s->long_id || s->count++ >= MCP_BATCH_MAX) {
		s->lost->n[LOST_DECODE_ERRORS]++;
		return;
	}
	if (s->has_method)
		m->kind = s->has_id ? MCP_REQUEST : MCP_NOTIFICATION;
	else if (s->has_id && (s->has_result || m->failed))
		m->kind = MCP_RESPONSE;
	if (m->kind != MCP_NOTHING)
		s->sink.on_message(s->sink.ctx, m);
}

static void on_value(void *ctx, const struct jsonscan_value *v)
{
	struct mcp_scan *s = ctx;
	unsigned depth;

	if (s->over)
		return;
	s->begun = true;
	if (!v->depth) {
		s->batch = v->type == JSON_ARRAY;
		s->over = v->type != JSON_OBJECT && !s->batch;
		message_begin(s);
		return;
	}
	depth = depth_in(s, v);
	if (!depth) {
		s->over = v->type != JSON_OBJECT;
		message_begin(s);
	} else if (depth == 1) {
		/* other JSON is told apart by its first member, before it is read to its end */
		s->over = !v->path[v->depth - 1].index && !is_member_of_message(s, v);
		message_member(s, v);
	} else if (depth == 2) {
		inner_member(s, v);
	} else if (depth == 3) {
		deep_member(s, v);
	}
}

static void on_end(void *ctx, const struct jsonscan_value *v)
{
	struct mcp_scan *s = ctx;

	if (!s->over && v->type == JSON_OBJECT && v->depth == (s->batch ? 1u : 0u))
		message_end(s);
	s->over |= !v->depth;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

struct mcp_scan *mcp_scan_new(const struct mcp_scan_sink *sink, struct lost *lost)
{
	struct mcp_scan *s = calloc(1, sizeof(*s));
	const struct jsonscan_sink json_sink = {.ctx = s, .on_value = on_value, .on_end = on_end};

	if (!s)
		return NULL;
	s->sink = *sink;
	s->lost = lost;
	s->json = jsonscan_new(&json_sink);
	if (!s->json) {
		free(s);
		return NULL;
	}
	return s;
}

void mcp_scan_free(struct mcp_scan *s)
{
	if (!s)
		return;
	jsonscan_free(s->json);
	free(s);
}

void mcp_scan_push(struct mcp_scan *s, const uint8_t *ptr, size_t len)
{
	if (!s->over && jsonscan_push(s->json, ptr, len))
		s->over = true;
}

void mcp_scan_gap(struct mcp_scan *s)
{
	jsonscan_gap(s->json);
	s->over = true;
}

bool mcp_scan_begun(const struct mcp_scan *s)
{
	return s->begun;
}

bool mcp_scan_batch(const struct mcp_scan *s)
{
	return s->batch;
}

bool mcp_scan_over(const struct mcp_scan *s)
{
	return s->over;
}
