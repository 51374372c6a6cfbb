/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Ollama's own API: POST …/api/chat, …/api/generate, …/api/embed. Streams unless told not to, a JSON text a line; a
 * unary answer is one such line.
 */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	if (dialect_post(method, path, SV("/api/chat")))
		return true;
	out->operation = "text_completion";
	return dialect_post(method, path, SV("/api/generate"));
}

/* Nanoseconds, left out when zero. */
static void say_server(const struct llm_sink *out, const cJSON *doc)
{
	struct call_server s = CALL_SERVER_NONE;

	s.load_ns = dialect_duration(doc, "load_duration", 1);
	s.prefill_ns = dialect_duration(doc, "prompt_eval_duration", 1);
	s.decode_ns = dialect_duration(doc, "eval_duration", 1);
	s.total_ns = dialect_duration(doc, "total_duration", 1);
	dialect_say_server(out, &s);
}

/* prompt_eval_count is what had to be evaluated, which a cache makes less than the input: not said. */
static void say_usage(const struct llm_sink *out, const cJSON *doc)
{
	struct usage_part u = USAGE_PART_NONE;

	u.output_total = json_get_count(doc, "eval_count");
	if (u.output_total >= 0)
		out->on_usage(out->ctx, &u);
}

static void say_message(const struct llm_sink *out, const cJSON *message)
{
	const cJSON *tool;

	dialect_say_member(out, TOKEN_REASONING, message, "thinking");
	dialect_say_member(out, TOKEN_TEXT, message, "content");
	dialect_say_member(out, TOKEN_TEXT, message, "response");
	cJSON_ArrayForEach (tool, json_get(message, "tool_calls")) {
		out->on_tool(out->ctx, json_get_string(tool, "id"),
			     json_get_string(json_get(tool, "function"), "name"));
		dialect_say_arguments(out, SV_NONE, json_get(json_get(tool, "function"), "arguments"));
		out->on_token(out->ctx, TOKEN_TOOL, SV_NONE);
	}
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	if (dialect_say_error(out, doc) || !cJSON_IsBool(json_get(doc, "done")))
		return;
	dialect_say_model(out, doc);
	say_message(out, cJSON_IsObject(json_get(doc, "message")) ? json_get(doc, "message") : doc);
	if (!json_get_true(doc, "done"))
		return;
	dialect_say_stop(out, doc, "done_reason");
	say_usage(out, doc);
	say_server(out, doc);
	out->on_end(out->ctx);
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	(void)name;
	(void)raw;
	on_document(doc, out);
}

const struct dialect dialect_ollama = {
	.api = "ollama",
	.operation = "chat",
	.provider = "ollama",
	.stream_default = true,
	.lines = true,
	.required = MARK_MODEL,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};

/* --- embeddings -------------------------------------------------------------------------------------------------- */

static bool match_embed(struct sv method, struct sv path, struct dialect_path *out)
{
	out->stream = 0;
	return dialect_post(method, path, SV("/api/embed")) || dialect_post(method, path, SV("/api/embeddings"));
}

static void on_document_embed(const cJSON *doc, const struct llm_sink *out)
{
	struct usage_part u = USAGE_PART_NONE;

	if (dialect_say_error(out, doc) || (!json_get(doc, "embeddings") && !json_get(doc, "embedding")))
		return;
	dialect_say_model(out, doc);
	u.input_total = json_get_count(doc, "prompt_eval_count");
	u.no_cache_write = true;
	if (u.input_total >= 0)
		out->on_usage(out->ctx, &u);
	say_server(out, doc);
	out->on_end(out->ctx);
}

const struct dialect dialect_ollama_embed = {
	.api = "ollama.embed",
	.operation = "embeddings",
	.provider = "ollama",
	.request = DIALECT_REQUEST_INPUT,
	.required = MARK_MODEL,
	.match = match_embed,
	.on_event = on_event,
	.on_document = on_document_embed,
};
