/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* OpenAI Responses: POST …/responses. Events say their kind in `type`; usage comes with the last one only. */

#include "dialect_parts.h"

#include "base/err.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	if (dialect_post(method, path, SV("/responses/input_tokens"))) {
		out->class = CALL_COUNT;
		return true;
	}
	if (dialect_post(method, path, SV("/responses/compact"))) {
		out->stream = 0;
		return true;
	}
	return dialect_post(method, path, SV("/responses"));
}

static void say_usage(const struct llm_sink *out, const cJSON *usage)
{
	struct usage_part u = USAGE_PART_NONE;

	if (!cJSON_IsObject(usage))
		return;
	u.input_total = dialect_count(usage, "input_tokens");
	u.cache_read = dialect_detail(usage, "input_tokens_details", "cached_tokens");
	u.cache_write = dialect_detail(usage, "input_tokens_details", "cache_write_tokens");
	u.no_cache_write = true;
	u.output_total = dialect_count(usage, "output_tokens");
	u.reasoning = dialect_detail(usage, "output_tokens_details", "reasoning_tokens");
	out->on_usage(out->ctx, &u);
}

/* Calls that the program has to answer; the others the server runs itself. */
static bool is_tool_item(struct sv type)
{
	static const struct sv types[] = {
		SV("function_call"), SV("custom_tool_call"), SV("local_shell_call"),
		SV("shell_call"),    SV("apply_patch_call"), SV("computer_call"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (sv_eq(type, types[i]))
			return true;
	}
	return false;
}

static void say_item(const struct llm_sink *out, const cJSON *item)
{
	struct sv type = json_get_string(item, "type"), name = json_get_string(item, "name");

	if (sv_eq(type, SV("reasoning")))
		out->on_reasoning(out->ctx);
	if (is_tool_item(type)) {
		out->on_tool(out->ctx, json_get_string(item, "call_id"), name.len ? name : type);
		dialect_say_arguments(out, json_get_string(item, "call_id"), json_get(item, "arguments"));
	}
}

struct delta_row {
	struct sv type;
	enum token_kind kind;
};

static const struct delta_row deltas[] = {
	{SV("response.output_text.delta"), TOKEN_TEXT},
	{SV("response.refusal.delta"), TOKEN_REFUSAL},
	{SV("response.reasoning_text.delta"), TOKEN_REASONING},
	{SV("response.reasoning_summary_text.delta"), TOKEN_REASONING},
	{SV("response.function_call_arguments.delta"), TOKEN_TOOL},
	{SV("response.custom_tool_call_input.delta"), TOKEN_TOOL},
	{SV("response.mcp_call_arguments.delta"), TOKEN_TOOL},
	{SV("response.code_interpreter_call_code.delta"), TOKEN_TOOL},
	{SV("response.shell_call_command.delta"), TOKEN_TOOL},
	{SV("response.audio.delta"), TOKEN_AUDIO},
	{SV("response.audio.transcript.delta"), TOKEN_AUDIO},
	{SV("response.output_audio.delta"), TOKEN_AUDIO},
	{SV("response.output_audio_transcript.delta"), TOKEN_AUDIO},
};

static void say_delta(const struct llm_sink *out, struct sv type, const cJSON *doc)
{
	for (size_t i = 0; i < ARRAY_SIZE(deltas); i++) {
		if (sv_eq(type, deltas[i].type))
			dialect_say_member(out, deltas[i].kind, doc, "delta");
	}
	if (sv_eq(type, SV("response.function_call_arguments.delta")))
		dialect_say_arguments(out, SV_NONE, json_get(doc, "delta"));
}

/* {code} or {type,code}; the code is the narrower word here, `type` of an event is only "error". */
static void say_error(const struct llm_sink *out, const cJSON *doc)
{
	const cJSON *error = json_get(doc, "error");

	if (cJSON_IsObject(error))
		dialect_say_error_object(out, error, "type", "code");
	else
		dialect_say_error_object(out, doc, "code", "code");
}

/* The response object of a terminal event, or the unary document. */
static void say_response(const struct llm_sink *out, const cJSON *response)
{
	struct sv why = json_get_string(json_get(response, "incomplete_details"), "reason");

	dialect_say_model(out, response);
	say_usage(out, json_get(response, "usage"));
	if (why.len)
		out->on_stop(out->ctx, why);
	else
		dialect_say_stop(out, response, "status");
	if (cJSON_IsObject(json_get(response, "error")))
		dialect_say_error_object(out, json_get(response, "error"), "type", "code");
}

static bool is_terminal(struct sv type)
{
	return sv_eq(type, SV("response.completed")) || sv_eq(type, SV("response.incomplete")) ||
	       sv_eq(type, SV("response.failed")) || sv_eq(type, SV("response.cancelled"));
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	struct sv type = json_get_string(doc, "type");

	(void)raw;
	if (!type.len)
		type = name;
	if (sv_ends(type, SV(".delta"))) {
		say_delta(out, type, doc);
	} else if (sv_eq(type, SV("response.output_item.added")) || sv_eq(type, SV("response.output_item.done"))) {
		say_item(out, json_get(doc, "item"));
	} else if (sv_eq(type, SV("response.image_generation_call.partial_image"))) {
		out->on_token(out->ctx, TOKEN_TOOL, SV_NONE);
	} else if (is_terminal(type)) {
		say_response(out, json_get(doc, "response"));
		out->on_end(out->ctx);
	} else if (sv_eq(type, SV("error"))) {
		say_error(out, doc);
	} else if (sv_starts(type, SV("response."))) {
		dialect_say_model(out, json_get(doc, "response"));
	} else {
		dialect_say_error(out, doc);
	}
}

static void say_output(const struct llm_sink *out, const cJSON *item)
{
	const cJSON *part;

	say_item(out, item);
	if (!sv_eq(json_get_string(item, "type"), SV("message")))
		return;
	cJSON_ArrayForEach (part, json_get(item, "content")) {
		dialect_say_member(out, TOKEN_TEXT, part, "text");
		dialect_say_member(out, TOKEN_REFUSAL, part, "refusal");
	}
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	struct sv status = json_get_string(doc, "status");
	const cJSON *item;

	if (!sv_eq(json_get_string(doc, "object"), SV("response")) && !cJSON_IsArray(json_get(doc, "output"))) {
		dialect_say_error(out, doc);
		return;
	}
	cJSON_ArrayForEach (item, json_get(doc, "output"))
		say_output(out, item);
	say_response(out, doc);
	/* a background response is answered before it is done */
	if (!sv_eq(status, SV("queued")) && !sv_eq(status, SV("in_progress")))
		out->on_end(out->ctx);
}

const struct dialect dialect_openai_responses = {
	.api = "openai.responses",
	.operation = "chat",
	.provider = "openai",
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};
