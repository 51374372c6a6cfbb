/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Anthropic Messages on Vertex AI: POST …/publishers/anthropic/models/MODEL:rawPredict and :streamRawPredict. */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	if (!dialect_after(path, SV("/publishers/anthropic/models/")).ptr)
		return false;
	if (dialect_post_verb(method, path, SV("streamRawPredict"), &out->model)) {
		out->stream = 1;
		return true;
	}
	if (!dialect_post_verb(method, path, SV("rawPredict"), &out->model))
		return false;
	if (sv_eq(out->model, SV("count-tokens"))) {
		out->class = CALL_COUNT;
		out->model = SV_NONE;
	}
	return true;
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	dialect_anthropic.on_event(name, doc, raw, out);
}

/* Google's own errors have a status word: {"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}} */
static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	if (json_get_string(json_get(doc, "error"), "status").len)
		dialect_say_google_error(out, doc);
	else
		dialect_anthropic.on_document(doc, out);
}

const struct dialect dialect_vertex_anthropic = {
	.api = "vertex.anthropic",
	.operation = "chat",
	.provider = "gcp.vertex_ai",
	.request = DIALECT_REQUEST_ANTHROPIC,
	.path_sure = true,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};
