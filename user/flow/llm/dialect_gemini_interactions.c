/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Gemini's Interactions: POST …/v1beta/interactions. Events say their kind in `event_type`: an interaction is made of
 * steps, which begin, grow and stop. The program may continue one on its own account; each request is a call.
 */

#include "dialect_parts.h"

/* …/v1…/interactions: the word alone is anybody's. */
static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	struct sv version = {path.ptr, path.len >= 13 ? path.len - 13 : 0};
	size_t at = version.len;

	(void)out;
	if (!dialect_post(method, path, SV("/interactions")))
		return false;
	while (at && version.ptr[at - 1] != '/')
		at--;
	return version.len - at >= 2 && version.ptr[at] == 'v' && version.ptr[at + 1] >= '1' &&
	       version.ptr[at + 1] <= '9';
}

static void say_usage(const struct llm_sink *out, const cJSON *usage)
{
	struct dialect_gemini_counts n = {
		.prompt = dialect_count(usage, "total_input_tokens"),
		.tool = dialect_count(usage, "total_tool_use_tokens"),
		.answer = dialect_count(usage, "total_output_tokens"),
		.thoughts = dialect_count(usage, "total_thought_tokens"),
		.cached = dialect_count(usage, "total_cached_tokens"),
		.total = json_get_count(usage, "total_tokens"),
	};

	if (cJSON_IsObject(usage))
		dialect_say_gemini_usage(out, &n);
}

/* {type:"text",text}, {type:"audio",data}, other media */
static void say_content(const struct llm_sink *out, const cJSON *content, enum token_kind text)
{
	struct sv type = json_get_string(content, "type");

	if (sv_eq(type, SV("audio")))
		dialect_say_member(out, TOKEN_AUDIO, content, "data");
	else if (!dialect_say_member(out, text, content, "text") && json_get_string(content, "data").len)
		out->on_token(out->ctx, TOKEN_TEXT, SV_NONE);
}

static void say_contents(const struct llm_sink *out, const cJSON *contents, enum token_kind text)
{
	const cJSON *content;

	cJSON_ArrayForEach (content, contents)
		say_content(out, content, text);
}

/* A step as it begins, or whole in a unary answer. Calls and results of the server's own tools are no calls for the
 * program. */
static void say_step(const struct llm_sink *out, const cJSON *step)
{
	struct sv type = json_get_string(step, "type"), name = json_get_string(step, "name");

	if (sv_eq(type, SV("function_call"))) {
		out->on_tool(out->ctx, json_get_string(step, "id"), name);
		dialect_say_arguments(out, SV_NONE, json_get(step, "arguments"));
		dialect_say(out, TOKEN_TOOL, name);
	} else if (sv_eq(type, SV("thought"))) {
		out->on_reasoning(out->ctx);
		say_contents(out, json_get(step, "summary"), TOKEN_REASONING);
	} else if (sv_eq(type, SV("model_output"))) {
		say_contents(out, json_get(step, "content"), TOKEN_TEXT);
	}
}

static void say_delta(const struct llm_sink *out, const cJSON *delta)
{
	struct sv type = json_get_string(delta, "type");

	if (sv_eq(type, SV("thought_summary"))) {
		out->on_reasoning(out->ctx);
		say_content(out, json_get(delta, "content"), TOKEN_REASONING);
	} else if (sv_eq(type, SV("thought_signature"))) {
		out->on_reasoning(out->ctx);
	} else if (sv_eq(type, SV("arguments_delta"))) {
		dialect_say_member(out, TOKEN_TOOL, delta, "arguments");
		dialect_say_arguments(out, SV_NONE, json_get(delta, "arguments"));
	} else if (sv_ends(type, SV("_call")) || sv_ends(type, SV("_result"))) {
		out->on_token(out->ctx, TOKEN_TOOL, SV_NONE);
	} else if (!sv_eq(type, SV("text_annotation"))) {
		say_content(out, delta, TOKEN_TEXT);
	}
}

static bool is_over(struct sv status)
{
	return status.len && !sv_eq(status, SV("in_progress")) && !sv_eq(status, SV("queued"));
}

/* What an interaction says besides its steps, whole or as it is told in the stream. */
static void say_interaction(const struct llm_sink *out, const cJSON *interaction)
{
	struct sv status = json_get_string(interaction, "status");

	dialect_say_model(out, interaction);
	say_usage(out, json_get(interaction, "usage"));
	if (is_over(status))
		out->on_stop(out->ctx, status);
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	struct sv type = json_get_string(doc, "event_type");

	(void)raw;
	if (!type.len)
		type = name;
	if (sv_eq(type, SV("step.delta"))) {
		say_delta(out, json_get(doc, "delta"));
		say_usage(out, json_get(json_get(doc, "metadata"), "total_usage"));
	} else if (sv_eq(type, SV("step.start"))) {
		say_step(out, json_get(doc, "step"));
	} else if (sv_eq(type, SV("interaction.created"))) {
		dialect_say_model(out, json_get(doc, "interaction"));
	} else if (sv_eq(type, SV("interaction.completed"))) {
		say_interaction(out, json_get(doc, "interaction"));
		out->on_end(out->ctx);
	} else {
		dialect_say_google_error(out, doc);
	}
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	struct sv status = json_get_string(doc, "status");
	const cJSON *step;

	if (dialect_say_google_error(out, doc) || !status.len)
		return;
	cJSON_ArrayForEach (step, json_get(doc, "steps"))
		say_step(out, step);
	say_interaction(out, doc);
	/* one in the background is answered before it is done */
	if (is_over(status))
		out->on_end(out->ctx);
}

const struct dialect dialect_gemini_interactions = {
	.api = "gemini.interactions",
	.operation = "generate_content",
	.provider = "gcp.gemini",
	.required = MARK_INPUT,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};
