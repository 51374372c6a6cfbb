/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Anthropic Messages: POST …/v1/messages. Every document says its kind in `type`, in the stream as well as in SSE's
 * event name; servers that imitate it sometimes leave one of the two out.
 */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	if (dialect_post(method, path, SV("/v1/messages/count_tokens"))) {
		out->class = CALL_COUNT;
		return true;
	}
	return dialect_post(method, path, SV("/v1/messages"));
}

/* Counts of a stream are those of the whole message so far. input_tokens leaves out what came from or went to the
 * cache. */
static void say_usage(const struct llm_sink *out, const cJSON *usage)
{
	struct usage_part u = USAGE_PART_NONE;

	if (!cJSON_IsObject(usage))
		return;
	u.input_uncached = dialect_count(usage, "input_tokens");
	u.cache_read = dialect_count(usage, "cache_read_input_tokens");
	u.cache_write = dialect_count(usage, "cache_creation_input_tokens");
	u.output_total = dialect_count(usage, "output_tokens");
	u.reasoning = dialect_detail(usage, "output_tokens_details", "thinking_tokens");
	out->on_usage(out->ctx, &u);
}

/* A block as it begins in a stream, or whole in a unary message. */
static void say_block(const struct llm_sink *out, const cJSON *block)
{
	struct sv type = json_get_string(block, "type");

	if (sv_eq(type, SV("text"))) {
		dialect_say_member(out, TOKEN_TEXT, block, "text");
	} else if (sv_eq(type, SV("thinking"))) {
		out->on_reasoning(out->ctx);
		dialect_say_member(out, TOKEN_REASONING, block, "thinking");
	} else if (sv_eq(type, SV("redacted_thinking"))) {
		out->on_sealed(out->ctx);
	} else if (sv_eq(type, SV("tool_use"))) {
		out->on_tool(out->ctx, json_get_string(block, "id"), json_get_string(block, "name"));
		dialect_say_arguments(out, json_get_string(block, "id"), json_get(block, "input"));
	} else if (sv_ends(type, SV("_tool_result"))) {
		/* results of tools that the server ran arrive whole */
		out->on_token(out->ctx, TOKEN_TOOL, SV_NONE);
	}
}

static void say_delta(const struct llm_sink *out, const cJSON *delta)
{
	struct sv type = json_get_string(delta, "type");

	if (sv_eq(type, SV("text_delta"))) {
		dialect_say_member(out, TOKEN_TEXT, delta, "text");
	} else if (sv_eq(type, SV("input_json_delta"))) {
		dialect_say_member(out, TOKEN_TOOL, delta, "partial_json");
		dialect_say_arguments(out, SV_NONE, json_get(delta, "partial_json"));
	} else if (sv_eq(type, SV("thinking_delta"))) {
		/* without its text the stream can still count along */
		if (!dialect_say_member(out, TOKEN_REASONING, delta, "thinking") &&
		    json_get_count(delta, "estimated_tokens") > 0)
			out->on_token(out->ctx, TOKEN_REASONING, SV_NONE);
	} else if (sv_eq(type, SV("citations_delta"))) {
		out->on_token(out->ctx, TOKEN_TEXT, SV_NONE);
	} else if (sv_eq(type, SV("compaction_delta"))) {
		if (json_get_string(delta, "content").len)
			out->on_token(out->ctx, TOKEN_TEXT, SV_NONE);
	} else if (sv_eq(type, SV("signature_delta"))) {
		out->on_reasoning(out->ctx);
	}
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	struct sv type = json_get_string(doc, "type");

	(void)raw;
	if (!type.len)
		type = name;
	if (sv_eq(type, SV("content_block_delta"))) {
		say_delta(out, json_get(doc, "delta"));
	} else if (sv_eq(type, SV("content_block_start"))) {
		say_block(out, json_get(doc, "content_block"));
	} else if (sv_eq(type, SV("message_start"))) {
		dialect_say_model(out, json_get(doc, "message"));
		say_usage(out, json_get(json_get(doc, "message"), "usage"));
	} else if (sv_eq(type, SV("message_delta"))) {
		say_usage(out, json_get(doc, "usage"));
		dialect_say_stop(out, json_get(doc, "delta"), "stop_reason");
	} else if (sv_eq(type, SV("message_stop"))) {
		out->on_end(out->ctx);
	} else if (sv_eq(type, SV("error"))) {
		if (!dialect_say_error(out, doc))
			out->on_error(out->ctx, SV("error"));
	}
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	const cJSON *block;

	if (dialect_say_error(out, doc) || !sv_eq(json_get_string(doc, "type"), SV("message")))
		return;
	dialect_say_model(out, doc);
	cJSON_ArrayForEach (block, json_get(doc, "content"))
		say_block(out, block);
	say_usage(out, json_get(doc, "usage"));
	dialect_say_stop(out, doc, "stop_reason");
	out->on_end(out->ctx);
}

const struct dialect dialect_anthropic = {
	.api = "anthropic",
	.operation = "chat",
	.provider = "anthropic",
	.request = DIALECT_REQUEST_ANTHROPIC,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};
