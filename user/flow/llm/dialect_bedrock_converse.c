/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Bedrock's Converse: POST …/model/ID/converse and …/converse-stream. Frames say their kind in :event-type, the payload
 * is plain JSON.
 */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	return dialect_bedrock_path(method, path, SV("/converse"), SV("/converse-stream"), out);
}

/*
 * Models differ in whether the input counts what came from or went to the cache. The total tells: with it, or without.
 * Where it does not, the input is beside the cache, as Anthropic's is.
 */
static void say_usage(const struct llm_sink *out, const cJSON *usage)
{
	struct usage_part u = USAGE_PART_NONE;
	int64_t input, total, cached;

	if (!cJSON_IsObject(usage))
		return;
	input = dialect_count(usage, "inputTokens");
	total = json_get_count(usage, "totalTokens");
	u.cache_read = dialect_count(usage, "cacheReadInputTokens");
	u.cache_write = dialect_count(usage, "cacheWriteInputTokens");
	u.output_total = dialect_count(usage, "outputTokens");
	cached = (u.cache_read > 0 ? u.cache_read : 0) + (u.cache_write > 0 ? u.cache_write : 0);
	if (cached > 0 && input >= cached && u.output_total >= 0 && total == input + u.output_total) {
		u.input_total = input;
		u.no_cache_write = true;
	} else {
		u.input_uncached = input;
	}
	out->on_usage(out->ctx, &u);
}

static void say_latency(const struct llm_sink *out, const cJSON *metrics)
{
	struct call_server s = CALL_SERVER_NONE;

	s.total_ns = dialect_duration(metrics, "latencyMs", 1e6);
	dialect_say_server(out, &s);
}

/* A block of a unary answer, or the part of one that a delta brings. */
static void say_block(const struct llm_sink *out, const cJSON *block)
{
	const cJSON *tool = json_get(block, "toolUse"), *reasoning = json_get(block, "reasoningContent");
	struct sv name = json_get_string(tool, "name");

	dialect_say_member(out, TOKEN_TEXT, block, "text");
	if (reasoning) {
		out->on_reasoning(out->ctx);
		if (!dialect_say_member(out, TOKEN_REASONING, reasoning, "text") &&
		    !dialect_say_member(out, TOKEN_REASONING, json_get(reasoning, "reasoningText"), "text") &&
		    json_get_string(reasoning, "redactedContent").len)
			out->on_sealed(out->ctx);
	}
	if (name.len)
		out->on_tool(out->ctx, json_get_string(tool, "toolUseId"), name);
	dialect_say_member(out, TOKEN_TOOL, tool, "input");
	dialect_say_arguments(out, SV_NONE, json_get(tool, "input"));
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	(void)raw;
	if (sv_eq(name, SV("contentBlockDelta"))) {
		say_block(out, json_get(doc, "delta"));
	} else if (sv_eq(name, SV("contentBlockStart"))) {
		say_block(out, json_get(doc, "start"));
	} else if (sv_eq(name, SV("messageStop"))) {
		dialect_say_stop(out, doc, "stopReason");
	} else if (sv_eq(name, SV("metadata"))) {
		say_usage(out, json_get(doc, "usage"));
		say_latency(out, json_get(doc, "metrics"));
		out->on_end(out->ctx);
	}
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	const cJSON *block;

	if (!json_get(doc, "output")) {
		dialect_say_aws_error(out, doc);
		return;
	}
	cJSON_ArrayForEach (block, json_get(json_get(json_get(doc, "output"), "message"), "content"))
		say_block(out, block);
	say_usage(out, json_get(doc, "usage"));
	say_latency(out, json_get(doc, "metrics"));
	dialect_say_stop(out, doc, "stopReason");
	out->on_end(out->ctx);
}

const struct dialect dialect_bedrock_converse = {
	.api = "bedrock.converse",
	.operation = "chat",
	.provider = "aws.bedrock",
	.request = DIALECT_REQUEST_CONVERSE,
	.end_optional = true,
	.path_sure = true,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
	.on_head = dialect_say_aws_head,
};
