/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Which dialect, where the path does not tell: by a document of the answer, by the keys of the request. */

#include "dialect_parts.h"

#include "base/err.h"

/* --- by document: each verdict needs two marks that agree -------------------------------------------------------- */

static bool is_anthropic(struct sv type, const cJSON *doc)
{
	if (sv_eq(type, SV("message_start")))
		return cJSON_IsObject(json_get(doc, "message"));
	if (sv_eq(type, SV("content_block_start")))
		return cJSON_IsObject(json_get(doc, "content_block"));
	if (sv_eq(type, SV("content_block_delta")) || sv_eq(type, SV("message_delta")))
		return cJSON_IsObject(json_get(doc, "delta"));
	return sv_eq(type, SV("message")) && cJSON_IsArray(json_get(doc, "content")) && json_get(doc, "role");
}

static bool is_responses(struct sv type, const cJSON *doc)
{
	/* the last event of a Realtime response is named otherwise */
	if (sv_starts(type, SV("response.")))
		return !sv_eq(type, SV("response.done")) && (json_get(doc, "response") || json_get(doc, "delta") ||
							     json_get(doc, "item") || json_get(doc, "sequence_number"));
	return sv_eq(json_get_string(doc, "object"), SV("response")) && cJSON_IsArray(json_get(doc, "output"));
}

static bool is_realtime(struct sv type, const cJSON *doc)
{
	if (sv_eq(type, SV("response.done")))
		return cJSON_IsObject(json_get(doc, "response"));
	return sv_eq(type, SV("session.created")) && cJSON_IsObject(json_get(doc, "session"));
}

static bool has_choices(const cJSON *doc, struct sv object)
{
	struct sv have = json_get_string(doc, "object");

	return cJSON_IsArray(json_get(doc, "choices")) && sv_starts(have, object);
}

static bool is_chat(struct sv type, const cJSON *doc)
{
	(void)type;
	return has_choices(doc, SV("chat.completion"));
}

static bool is_completions(struct sv type, const cJSON *doc)
{
	(void)type;
	return has_choices(doc, SV("text_completion"));
}

static bool is_embeddings(struct sv type, const cJSON *doc)
{
	const cJSON *data = json_get(doc, "data");

	(void)type;
	return sv_eq(json_get_string(doc, "object"), SV("list")) && cJSON_IsArray(data) &&
	       sv_eq(json_get_string(data->child, "object"), SV("embedding")) && json_get(doc, "usage");
}

static bool is_gemini(struct sv type, const cJSON *doc)
{
	(void)type;
	return (cJSON_IsArray(json_get(doc, "candidates")) &&
		(json_get(doc, "usageMetadata") || json_get(doc, "modelVersion") || json_get(doc, "responseId"))) ||
	       (cJSON_IsObject(json_get(doc, "usageMetadata")) && json_get(doc, "modelVersion"));
}

static bool is_interactions(struct sv type, const cJSON *doc)
{
	struct sv event = json_get_string(doc, "event_type");

	(void)type;
	if (sv_starts(event, SV("interaction.")))
		return cJSON_IsObject(json_get(doc, "interaction"));
	if (sv_starts(event, SV("step.")))
		return json_get(doc, "index") != NULL;
	return sv_eq(json_get_string(doc, "object"), SV("interaction")) && cJSON_IsArray(json_get(doc, "steps"));
}

static bool is_live(struct sv type, const cJSON *doc)
{
	const cJSON *content = json_get(doc, "serverContent");

	(void)type;
	return cJSON_IsArray(json_get(json_get(doc, "toolCall"), "functionCalls")) ||
	       cJSON_IsArray(json_get(json_get(content, "modelTurn"), "parts")) ||
	       cJSON_IsBool(json_get(content, "turnComplete")) || cJSON_IsBool(json_get(content, "generationComplete"));
}

static bool is_lmstudio(struct sv type, const cJSON *doc)
{
	if (sv_eq(type, SV("chat.start")))
		return json_get(doc, "model_instance_id") != NULL;
	if (sv_eq(type, SV("chat.end")))
		return cJSON_IsObject(json_get(doc, "result"));
	return json_get(doc, "model_instance_id") && json_get(json_get(doc, "stats"), "total_output_tokens");
}

static bool is_codeassist(struct sv type, const cJSON *doc)
{
	return is_gemini(type, json_get(doc, "response"));
}

static bool is_converse(struct sv type, const cJSON *doc)
{
	const cJSON *usage = json_get(doc, "usage");

	if (sv_eq(type, SV("messageStart")))
		return json_get(doc, "role") != NULL;
	if (sv_eq(type, SV("contentBlockDelta")))
		return cJSON_IsObject(json_get(doc, "delta"));
	if (sv_eq(type, SV("messageStop")))
		return json_get(doc, "stopReason") != NULL;
	if (sv_eq(type, SV("metadata")))
		return json_get(usage, "inputTokens") != NULL;
	return json_get(doc, "stopReason") && json_get(usage, "inputTokens");
}

static bool is_bedrock_chunk(struct sv type, const cJSON *doc)
{
	return sv_eq(type, SV("chunk")) && cJSON_IsString(json_get(doc, "bytes"));
}

static bool is_cohere(struct sv type, const cJSON *doc)
{
	if (sv_eq(type, SV("message-start")) || sv_eq(type, SV("content-delta")) || sv_eq(type, SV("message-end")))
		return cJSON_IsObject(json_get(doc, "delta"));
	return cJSON_IsObject(json_get(doc, "message")) && json_get(doc, "finish_reason") &&
	       cJSON_IsObject(json_get(json_get(doc, "usage"), "tokens"));
}

static bool is_ollama(struct sv type, const cJSON *doc)
{
	(void)type;
	return cJSON_IsBool(json_get(doc, "done")) && json_get(doc, "created_at") && json_get(doc, "model") &&
	       (json_get(doc, "message") || json_get(doc, "response"));
}

static bool is_llamacpp(struct sv type, const cJSON *doc)
{
	(void)type;
	return cJSON_IsBool(json_get(doc, "stop")) && cJSON_IsString(json_get(doc, "content")) &&
	       (json_get(doc, "tokens_predicted") || json_get(doc, "timings"));
}

static bool is_tgi(struct sv type, const cJSON *doc)
{
	const cJSON *token = json_get(doc, "token");

	(void)type;
	return json_get(doc, "generated_text") && (json_get(token, "logprob") || json_get(doc, "details"));
}

static const struct {
	bool (*is)(struct sv type, const cJSON *doc);
	const struct dialect *dialect;
} verdicts[] = {
	{is_anthropic, &dialect_anthropic},
	{is_realtime, &dialect_openai_realtime},
	{is_responses, &dialect_openai_responses},
	{is_chat, &dialect_openai_chat},
	{is_completions, &dialect_openai_completions},
	{is_embeddings, &dialect_openai_embeddings},
	{is_gemini, &dialect_gemini},
	{is_codeassist, &dialect_gemini_codeassist},
	{is_interactions, &dialect_gemini_interactions},
	{is_live, &dialect_gemini_live},
	{is_lmstudio, &dialect_lmstudio},
	{is_converse, &dialect_bedrock_converse},
	{is_bedrock_chunk, &dialect_bedrock_invoke},
	{is_cohere, &dialect_cohere},
	{is_ollama, &dialect_ollama},
	{is_llamacpp, &dialect_llamacpp},
	{is_tgi, &dialect_tgi},
};

const struct dialect *dialect_by_document(struct sv name, const cJSON *doc)
{
	struct sv type = json_get_string(doc, "type");

	if (!cJSON_IsObject(doc))
		return NULL;
	if (!type.len)
		type = name;
	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		if (verdicts[i].is(type, doc))
			return verdicts[i].dialect;
	}
	return NULL;
}

/* --- by the request's keys --------------------------------------------------------------------------------------- */

static bool has(unsigned marks, unsigned all)
{
	return (marks & all) == all;
}

const struct dialect *dialect_by_marks(unsigned marks, bool *sure)
{
	*sure = false;
	if (marks & MARK_JSONRPC)
		return NULL;
	if (marks & MARK_MESSAGES) {
		*sure = has(marks, MARK_ROLE | MARK_MODEL | MARK_LIMIT);
		return has(marks, MARK_LIMIT | MARK_SYSTEM) || marks & MARK_ANTHROPIC ? &dialect_anthropic
										      : &dialect_openai_chat;
	}
	if (marks & MARK_CONTENTS) {
		*sure = marks & MARK_PARTS;
		return &dialect_gemini;
	}
	if (has(marks, MARK_INPUT | MARK_RESPONSES)) {
		*sure = marks & MARK_MODEL;
		return &dialect_openai_responses;
	}
	if (marks & MARK_INPUT)
		return &dialect_openai_embeddings;
	return has(marks, MARK_PROMPT | MARK_MODEL) ? &dialect_openai_completions : NULL;
}
