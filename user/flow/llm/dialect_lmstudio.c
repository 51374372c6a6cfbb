/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * LM Studio's own API: POST …/api/v1/chat. Events say their kind in `type`; the last one has the unary answer inside.
 * Tools are run by the server.
 */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	(void)out;
	return dialect_post(method, path, SV("/api/v1/chat"));
}

static void say_model(const struct llm_sink *out, const cJSON *doc)
{
	struct sv model = json_get_string(doc, "model_instance_id");

	if (model.len)
		out->on_model(out->ctx, model);
}

static void say_stats(const struct llm_sink *out, const cJSON *stats)
{
	struct call_server s = CALL_SERVER_NONE;
	struct usage_part u = USAGE_PART_NONE;

	if (!cJSON_IsObject(stats))
		return;
	u.input_total = dialect_count(stats, "input_tokens");
	u.output_total = dialect_count(stats, "total_output_tokens");
	u.reasoning = dialect_count(stats, "reasoning_output_tokens");
	u.no_cache_write = true;
	out->on_usage(out->ctx, &u);
	s.first_token_ns = dialect_duration(stats, "time_to_first_token_seconds", 1e9);
	s.load_ns = dialect_duration(stats, "model_load_time_seconds", 1e9);
	dialect_say_server(out, &s);
}

/* An item of a unary answer. */
static void say_item(const struct llm_sink *out, const cJSON *item)
{
	struct sv type = json_get_string(item, "type");

	if (sv_eq(type, SV("message")))
		dialect_say_member(out, TOKEN_TEXT, item, "content");
	else if (sv_eq(type, SV("reasoning")))
		dialect_say_member(out, TOKEN_REASONING, item, "content");
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	struct sv type = json_get_string(doc, "type");

	(void)raw;
	if (!type.len)
		type = name;
	if (sv_eq(type, SV("message.delta"))) {
		dialect_say_member(out, TOKEN_TEXT, doc, "content");
	} else if (sv_eq(type, SV("reasoning.delta"))) {
		dialect_say_member(out, TOKEN_REASONING, doc, "content");
	} else if (sv_eq(type, SV("reasoning.start"))) {
		out->on_reasoning(out->ctx);
	} else if (sv_eq(type, SV("tool_call.start"))) {
		dialect_say_member(out, TOKEN_TOOL, doc, "tool");
	} else if (sv_eq(type, SV("tool_call.arguments"))) {
		out->on_token(out->ctx, TOKEN_TOOL, SV_NONE);
	} else if (sv_eq(type, SV("chat.start"))) {
		say_model(out, doc);
	} else if (sv_eq(type, SV("chat.end"))) {
		say_stats(out, json_get(json_get(doc, "result"), "stats"));
		out->on_end(out->ctx);
	} else {
		dialect_say_error(out, doc);
	}
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	const cJSON *item;

	if (dialect_say_error(out, doc) || !cJSON_IsArray(json_get(doc, "output")))
		return;
	say_model(out, doc);
	cJSON_ArrayForEach (item, json_get(doc, "output"))
		say_item(out, item);
	say_stats(out, json_get(doc, "stats"));
	out->on_end(out->ctx);
}

const struct dialect dialect_lmstudio = {
	.api = "lmstudio",
	.operation = "chat",
	.provider = "lmstudio",
	.required = MARK_INPUT | MARK_MODEL,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};
