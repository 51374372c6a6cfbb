/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* OpenAI Embeddings and its likes: POST …/embeddings, always unary, no tokens come out. */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	dialect_azure_model(path, out);
	out->stream = 0;
	return dialect_post(method, path, SV("/embeddings")) && !sv_ends(path, SV("/api/embeddings"));
}

static bool is_embeddings(const cJSON *doc)
{
	const cJSON *data = json_get(doc, "data");

	return cJSON_IsArray(data) &&
	       (sv_eq(json_get_string(doc, "object"), SV("list")) || json_get(data->child, "embedding"));
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	if (dialect_say_error(out, doc) || !is_embeddings(doc))
		return;
	dialect_say_model(out, doc);
	dialect_say_openai_usage(out, doc);
	out->on_end(out->ctx);
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	(void)name;
	(void)raw;
	dialect_say_error(out, doc);
}

const struct dialect dialect_openai_embeddings = {
	.api = "openai.embeddings",
	.operation = "embeddings",
	.provider = "openai",
	.request = DIALECT_REQUEST_INPUT,
	.required = MARK_INPUT,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};
