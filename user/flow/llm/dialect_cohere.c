/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Cohere v2: POST …/v2/chat. Events say their kind in `type`. */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	(void)out;
	return dialect_post(method, path, SV("/v2/chat"));
}

/* `tokens` is what went through the model; `billed_units` is another count. */
static void say_usage(const struct llm_sink *out, const cJSON *usage)
{
	const cJSON *tokens = json_get(usage, "tokens");
	struct usage_part u = USAGE_PART_NONE;

	if (!cJSON_IsObject(usage))
		return;
	u.input_total = dialect_count(tokens, "input_tokens");
	u.output_total = dialect_count(tokens, "output_tokens");
	u.cache_read = dialect_count(usage, "cached_tokens");
	u.no_cache_write = true;
	out->on_usage(out->ctx, &u);
}

static void say_content(const struct llm_sink *out, const cJSON *content)
{
	dialect_say_member(out, TOKEN_REASONING, content, "thinking");
	dialect_say_member(out, TOKEN_TEXT, content, "text");
}

static void say_tool(const struct llm_sink *out, const cJSON *call)
{
	const cJSON *function = json_get(call, "function");
	struct sv name = json_get_string(function, "name");

	if (name.len)
		out->on_tool(out->ctx, json_get_string(call, "id"), name);
	dialect_say_arguments(out, SV_NONE, json_get(function, "arguments"));
	if (!dialect_say_member(out, TOKEN_TOOL, function, "arguments"))
		dialect_say(out, TOKEN_TOOL, name);
}

static void say_end(const struct llm_sink *out, const cJSON *delta)
{
	struct sv error = json_get_string(delta, "error"), reason = json_get_string(delta, "finish_reason");

	say_usage(out, json_get(delta, "usage"));
	dialect_say_stop(out, delta, "finish_reason");
	/* the error's text is nobody's business */
	if (error.len || sv_eq(reason, SV("ERROR")) || sv_eq(reason, SV("TIMEOUT")))
		out->on_error(out->ctx, reason.len ? reason : SV("error"));
	out->on_end(out->ctx);
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	struct sv type = json_get_string(doc, "type");
	const cJSON *delta = json_get(doc, "delta"), *message = json_get(delta, "message");

	(void)raw;
	if (!type.len)
		type = name;
	if (sv_eq(type, SV("content-delta")) || sv_eq(type, SV("content-start")))
		say_content(out, json_get(message, "content"));
	else if (sv_eq(type, SV("tool-plan-delta")))
		dialect_say_member(out, TOKEN_REASONING, message, "tool_plan");
	else if (sv_eq(type, SV("tool-call-start")) || sv_eq(type, SV("tool-call-delta")))
		say_tool(out, json_get(message, "tool_calls"));
	else if (sv_eq(type, SV("message-end")))
		say_end(out, delta);
	else
		dialect_say_error(out, doc);
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	const cJSON *message = json_get(doc, "message"), *item;

	if (!cJSON_IsObject(message)) {
		if (!dialect_say_error(out, doc) && cJSON_IsString(message))
			out->on_error(out->ctx, SV("error")); /* {"message":"…"} */
		return;
	}
	dialect_say_member(out, TOKEN_REASONING, message, "tool_plan");
	cJSON_ArrayForEach (item, json_get(message, "content"))
		say_content(out, item);
	cJSON_ArrayForEach (item, json_get(message, "tool_calls"))
		say_tool(out, item);
	say_usage(out, json_get(doc, "usage"));
	dialect_say_stop(out, doc, "finish_reason");
	out->on_end(out->ctx);
}

const struct dialect dialect_cohere = {
	.api = "cohere.v2",
	.operation = "chat",
	.provider = "cohere",
	.required = MARK_MODEL | MARK_MESSAGES,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};
