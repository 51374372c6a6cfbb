/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* OpenAI Chat Completions and what many other servers make of it: POST …/chat/completions. */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	dialect_azure_model(path, out);
	return dialect_post(method, path, SV("/chat/completions"));
}

/* Mistral: [{type:"thinking",thinking:[{type:"text",text}]},{type:"text",text}] */
static void say_content_parts(const struct llm_sink *out, const cJSON *parts)
{
	const cJSON *part, *inner;

	cJSON_ArrayForEach (part, parts) {
		if (!sv_eq(json_get_string(part, "type"), SV("thinking"))) {
			dialect_say_member(out, TOKEN_TEXT, part, "text");
			continue;
		}
		dialect_say_member(out, TOKEN_REASONING, part, "thinking");
		cJSON_ArrayForEach (inner, json_get(part, "thinking"))
			dialect_say_member(out, TOKEN_REASONING, inner, "text");
	}
}

/* Servers name it differently, some send two names with the same text: said once. */
static void say_reasoning(const struct llm_sink *out, const cJSON *delta)
{
	const cJSON *part;

	if (dialect_say_member(out, TOKEN_REASONING, delta, "reasoning_content") ||
	    dialect_say_member(out, TOKEN_REASONING, delta, "reasoning") ||
	    dialect_say_member(out, TOKEN_REASONING, delta, "reasoning_text"))
		return;
	if (json_get_string(delta, "reasoning_opaque").len)
		out->on_reasoning(out->ctx);
	cJSON_ArrayForEach (part, json_get(delta, "reasoning_details")) {
		out->on_reasoning(out->ctx);
		if (!dialect_say_member(out, TOKEN_REASONING, part, "text"))
			dialect_say_member(out, TOKEN_REASONING, part, "summary");
	}
}

/* A function or custom call: its name begins it, name and arguments are generated. */
static void say_tool(const struct llm_sink *out, struct sv id, const cJSON *function)
{
	struct sv name = json_get_string(function, "name");

	if (name.len)
		out->on_tool(out->ctx, id, name);
	dialect_say_arguments(out, SV_NONE, json_get(function, "arguments"));
	if (!dialect_say_member(out, TOKEN_TOOL, function, "arguments") &&
	    !dialect_say_member(out, TOKEN_TOOL, function, "input"))
		dialect_say(out, TOKEN_TOOL, name);
}

/* A stream's delta, or the message of a unary answer. */
static void say_delta(const struct llm_sink *out, const cJSON *delta)
{
	const cJSON *audio = json_get(delta, "audio"), *tool;

	say_reasoning(out, delta);
	if (!dialect_say_member(out, TOKEN_TEXT, delta, "content"))
		say_content_parts(out, json_get(delta, "content"));
	dialect_say_member(out, TOKEN_REFUSAL, delta, "refusal");
	if (!dialect_say_member(out, TOKEN_AUDIO, audio, "data"))
		dialect_say_member(out, TOKEN_AUDIO, audio, "transcript");
	say_tool(out, SV_NONE, json_get(delta, "function_call"));
	cJSON_ArrayForEach (tool, json_get(delta, "tool_calls")) {
		say_tool(out, json_get_string(tool, "id"), json_get(tool, "function"));
		say_tool(out, json_get_string(tool, "id"), json_get(tool, "custom"));
	}
}

static void say_choices(const struct llm_sink *out, const cJSON *doc, const char *member)
{
	const cJSON *choice;

	cJSON_ArrayForEach (choice, json_get(doc, "choices")) {
		say_delta(out, json_get(choice, member));
		dialect_say_stop(out, choice, "finish_reason");
		/* OpenRouter, Mistral: the only word of it, where no error is beside it */
		if (sv_eq(json_get_string(choice, "finish_reason"), SV("error")) && !json_get(doc, "error"))
			out->on_error(out->ctx, SV("error"));
	}
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	(void)name;
	if (!doc && sv_eq(sv_trim(raw), SV("[DONE]"))) {
		out->on_end(out->ctx);
		return;
	}
	dialect_say_error(out, doc);
	if (!cJSON_IsArray(json_get(doc, "choices")) && !cJSON_IsObject(json_get(doc, "usage")))
		return;
	dialect_say_model(out, doc);
	dialect_say_openai_provider(out, doc);
	say_choices(out, doc, "delta");
	dialect_say_openai_usage(out, doc);
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	if (dialect_say_error(out, doc) || !cJSON_IsArray(json_get(doc, "choices")))
		return;
	dialect_say_model(out, doc);
	dialect_say_openai_provider(out, doc);
	say_choices(out, doc, "message");
	dialect_say_openai_usage(out, doc);
	out->on_end(out->ctx);
}

const struct dialect dialect_openai_chat = {
	.api = "openai.chat",
	.operation = "chat",
	.provider = "openai",
	.end_optional = true,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};
