/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* OpenAI Completions, the old one: POST …/completions. llama.cpp has its own API under that name, too. */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	dialect_azure_model(path, out);
	return dialect_post(method, path, SV("/completions")) && !sv_ends(path, SV("/chat/completions"));
}

static bool is_llamacpp(const cJSON *doc)
{
	return !json_get(doc, "choices") && cJSON_IsBool(json_get(doc, "stop"));
}

static void say_choices(const struct llm_sink *out, const cJSON *doc)
{
	const cJSON *choice;

	cJSON_ArrayForEach (choice, json_get(doc, "choices")) {
		dialect_say_member(out, TOKEN_TEXT, choice, "text");
		dialect_say_stop(out, choice, "finish_reason");
	}
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	if (is_llamacpp(doc)) {
		dialect_llamacpp.on_event(name, doc, raw, out);
		return;
	}
	if (!doc && sv_eq(sv_trim(raw), SV("[DONE]"))) {
		out->on_end(out->ctx);
		return;
	}
	dialect_say_error(out, doc);
	if (!cJSON_IsArray(json_get(doc, "choices")))
		return;
	dialect_say_model(out, doc);
	dialect_say_openai_provider(out, doc);
	say_choices(out, doc);
	dialect_say_openai_usage(out, doc);
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	if (is_llamacpp(doc)) {
		dialect_llamacpp.on_document(doc, out);
		return;
	}
	if (dialect_say_error(out, doc) || !cJSON_IsArray(json_get(doc, "choices")))
		return;
	dialect_say_model(out, doc);
	dialect_say_openai_provider(out, doc);
	say_choices(out, doc);
	dialect_say_openai_usage(out, doc);
	out->on_end(out->ctx);
}

const struct dialect dialect_openai_completions = {
	.api = "openai.completions",
	.operation = "text_completion",
	.provider = "openai",
	.request = DIALECT_REQUEST_INPUT,
	.required = MARK_PROMPT,
	.end_optional = true,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};
