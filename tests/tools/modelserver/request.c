/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a request says, whatever wire it came by. */

#include <ctype.h>

#include "server.h"

static const struct dialect *const dialects[] = {
	&dialect_anthropic,   &dialect_chat,   &dialect_responses,   &dialect_embeddings,
	&dialect_completions, &dialect_gemini, &dialect_ollama_chat, &dialect_ollama_generate,
	&dialect_converse,    &dialect_invoke, &dialect_cohere,
};

void request_init(struct request *r)
{
	memset(r, 0, sizeof(*r));
	knobs_init(&r->knobs);
	buf_init(&r->body, BODY_MAX);
	r->keep_alive = true;
	r->messages = -1;
}

void request_release(struct request *r)
{
	buf_release(&r->body);
}

int request_refuse(struct request *r, int status, const char *why)
{
	if (!r->refuse) {
		r->refuse = status;
		r->refuse_why = why;
	}
	return 0;
}

int request_set_target(struct request *r, struct sv method, struct sv target)
{
	struct sv query, path = sv_cut(target, '?', &query);
	size_t i;

	if (!method.len || method.len >= sizeof(r->method) || !target.len || target.ptr[0] != '/')
		return request_refuse(r, 400, "bad request line");
	if (target.len >= sizeof(r->target))
		return request_refuse(r, 431, "target too long");
	memcpy(r->method, method.ptr, method.len);
	memcpy(r->target, target.ptr, target.len);
	for (i = 0; i < sizeof(dialects) / sizeof(dialects[0]) && !r->dialect; i++)
		if (dialects[i]->match(path, r))
			r->dialect = dialects[i];
	if (knobs_from_query(&r->knobs, query))
		return request_refuse(r, 422, "bad knob in the query");
	return 0;
}

static int parse_length(struct request *r, struct sv value)
{
	size_t i, length = 0;

	for (i = 0; i < value.len; i++) {
		if (!isdigit((unsigned char)value.ptr[i]))
			return request_refuse(r, 400, "bad content-length");
		length = length * 10 + (size_t)(value.ptr[i] - '0');
		if (length > BODY_MAX)
			return request_refuse(r, 413, "body too large");
	}
	if (!value.len)
		return request_refuse(r, 400, "bad content-length");
	r->content_length = length;
	return 0;
}

static void copy_value(char *to, size_t size, struct sv value)
{
	if (value.len < size) {
		memcpy(to, value.ptr, value.len);
		to[value.len] = '\0';
	}
}

static void upgrade_header(struct request *r, struct sv name, struct sv value)
{
	if (sv_ieq(name, SV("upgrade"))) {
		r->websocket = sv_ieq(value, SV("websocket"));
		r->h2c = sv_ieq(value, SV("h2c"));
	} else if (sv_ieq(name, SV("sec-websocket-key"))) {
		copy_value(r->websocket_key, sizeof(r->websocket_key), value);
	} else if (sv_ieq(name, SV("sec-websocket-extensions"))) {
		r->deflate_offered = value.len && memmem(value.ptr, value.len, "permessage-deflate", 18);
	} else if (sv_ieq(name, SV("http2-settings"))) {
		copy_value(r->h2c_settings, sizeof(r->h2c_settings), value);
	}
}

int request_header(struct request *r, struct sv name, struct sv value)
{
	if (sv_ieq(name, SV("content-length")))
		return parse_length(r, value);
	if (sv_ieq(name, SV("transfer-encoding"))) {
		r->chunked = sv_ieq(value, SV("chunked"));
		return r->chunked ? 0 : request_refuse(r, 400, "unknown transfer coding");
	}
	if (sv_ieq(name, SV("content-encoding")))
		copy_value(r->coding, sizeof(r->coding), value);
	if (sv_ieq(name, SV("connection")) && sv_ieq(value, SV("close")))
		r->keep_alive = false;
	if (sv_ieq(name, SV("expect")))
		r->expect = sv_ieq(value, SV("100-continue"));
	upgrade_header(r, name, value);
	if (name.len > 7 && strncasecmp(name.ptr, "x-test-", 7) == 0 &&
	    knob_set(&r->knobs, (struct sv){name.ptr + 7, name.len - 7}, value))
		return request_refuse(r, 422, "unknown knob, or a bad value of one");
	return 0;
}

/* The model: of the body, else of the path, where %3A is a colon. */
static void set_model(struct request *r, struct sv model)
{
	size_t i, n = 0;

	if (!r->dialect->model_in_path) {
		if (!model.len || model.len >= sizeof(r->request_model)) {
			request_refuse(r, 422, "model is missing or too long");
			return;
		}
		memcpy(r->request_model, model.ptr, model.len);
		return;
	}
	for (i = 0; r->path_model[i]; i++) {
		unsigned byte;

		if (r->path_model[i] == '%' && sscanf(r->path_model + i, "%%%2x", &byte) == 1 && byte) {
			r->request_model[n++] = (char)byte;
			i += 2;
		} else {
			r->request_model[n++] = r->path_model[i];
		}
	}
}

/* Results of tools have other names everywhere, and keys or types that nothing else has. */
static bool has_results(const cJSON *value)
{
	static const char *const types[] = {"tool_result", "function_call_output", "custom_tool_call_output"};
	struct sv type = json_get_string(value, "type");
	const cJSON *child;
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (sv_eq(type, sv_of(types[i])))
			return true;
	if (sv_eq(json_get_string(value, "role"), SV("tool")) || json_get(value, "functionResponse"))
		return true;
	cJSON_ArrayForEach (child, value)
		if (has_results(child))
			return true;
	return false;
}

static void parse_body(struct request *r)
{
	cJSON *doc = r->body.len ? cJSON_ParseWithLength(r->body.ptr, r->body.len) : NULL;
	const cJSON *list = json_get(doc, r->dialect->messages), *stream = json_get(doc, "stream");

	if (!cJSON_IsObject(doc)) {
		request_refuse(r, 422, "the body is no JSON object");
	} else {
		set_model(r, json_get_string(doc, "model"));
		if (!r->dialect->stream_in_path)
			r->stream = r->dialect->stream &&
				    (cJSON_IsBool(stream) ? cJSON_IsTrue(stream) : r->dialect->stream_default);
		r->include_usage = json_get_true(json_get(doc, "stream_options"), "include_usage");
		r->messages = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : -1;
		if (r->knobs.tool_once > 0 && (!cJSON_GetArraySize(json_get(doc, "tools")) || has_results(list)))
			r->knobs.tool = 0;
	}
	cJSON_Delete(doc);
}

void request_parse(struct request *r)
{
	r->carried = r->body.len;
	if (r->refuse)
		return;
	if (!r->dialect)
		request_refuse(r, 404, "no such path");
	else if (strcmp(r->method, "POST"))
		request_refuse(r, 405, "only POST");
	else if (r->coding[0] && coding_undo(sv_of(r->coding), &r->body))
		request_refuse(r, 415, "the body's coding is unknown, or broken");
	else
		parse_body(r);
}
