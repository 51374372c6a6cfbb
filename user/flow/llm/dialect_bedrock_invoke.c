/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Bedrock's InvokeModel: POST …/model/ID/invoke and …/invoke-with-response-stream. The bodies are the model family's
 * own; a stream is made of frames of type "chunk" whose payload is {"bytes":BASE64 of one event}.
 */

#include "dialect_parts.h"

#include <stdlib.h>

#define CHUNK_MAX (6u << 20) /* of one decoded event; frames end at 8 MiB */

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	return dialect_bedrock_path(method, path, SV("/invoke"), SV("/invoke-with-response-stream"), out);
}

/* --- base64 ------------------------------------------------------------------------------------------------------ */

static int sextet(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Owned. NULL: not base64, too long, or no memory. */
static char *base64_decode(struct sv text, size_t *len)
{
	uint32_t bits = 0;
	char *out;

	*len = 0;
	while (text.len && text.ptr[text.len - 1] == '=')
		text.len--;
	if (!text.len || text.len / 4 * 3 > CHUNK_MAX)
		return NULL;
	out = malloc(text.len);
	for (size_t i = 0; out && i < text.len; i++) {
		int v = sextet(text.ptr[i]);

		if (v < 0) {
			free(out);
			return NULL;
		}
		bits = bits << 6 | (uint32_t)v;
		if (i % 4)
			out[(*len)++] = (char)(bits >> (6 - 2 * (i % 4)));
	}
	return out;
}

/* --- documents --------------------------------------------------------------------------------------------------- */

/* The last event says what the server counted and measured. Of an Anthropic model the counts were said before, and the
 * input there leaves out the cache. */
static void say_metrics(const struct llm_sink *out, const cJSON *metrics, bool counted)
{
	struct call_server s = CALL_SERVER_NONE;
	struct usage_part u = USAGE_PART_NONE;

	if (!cJSON_IsObject(metrics))
		return;
	s.first_token_ns = dialect_duration(metrics, "firstByteLatency", 1e6);
	s.total_ns = dialect_duration(metrics, "invocationLatency", 1e6);
	dialect_say_server(out, &s);
	if (counted)
		return;
	u.output_total = dialect_count(metrics, "outputTokenCount");
	if (!json_get(metrics, "cacheReadInputTokenCount") && !json_get(metrics, "cacheWriteInputTokenCount"))
		u.input_total = dialect_count(metrics, "inputTokenCount");
	out->on_usage(out->ctx, &u);
}

static void say_inner(const struct llm_sink *out, const cJSON *doc)
{
	const cJSON *metrics = json_get(doc, "amazon-bedrock-invocationMetrics");
	struct sv type = json_get_string(doc, "type");

	/* frames without a type are a gateway's keep-alives, or another family's chunks */
	if (type.len)
		dialect_anthropic.on_event(type, doc, SV_NONE, out);
	else if (json_get(doc, "choices"))
		dialect_openai_chat.on_event(type, doc, SV_NONE, out);
	else if (doc && doc->child && doc->child->string)
		dialect_bedrock_converse.on_event(sv_of(doc->child->string), doc->child, SV_NONE, out); /* Nova */
	say_metrics(out, metrics, type.len != 0);
	if (metrics && !type.len)
		out->on_end(out->ctx);
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	struct sv bytes = json_get_string(doc, "bytes");
	bool too_many;
	cJSON *inner;
	char *text;
	size_t len;

	(void)raw;
	(void)name;
	text = base64_decode(bytes, &len);
	inner = text ? dialect_parse((struct sv){text, len}, &too_many) : NULL;
	say_inner(out, inner);
	cJSON_Delete(inner);
	free(text);
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	if (sv_eq(json_get_string(doc, "type"), SV("message")) || json_get(doc, "error"))
		dialect_anthropic.on_document(doc, out);
	else if (json_get(doc, "choices"))
		dialect_openai_chat.on_document(doc, out);
	else
		dialect_bedrock_converse.on_document(doc, out); /* Nova's shape, and AWS's errors */
}

const struct dialect dialect_bedrock_invoke = {
	.api = "bedrock.invoke",
	.operation = "chat",
	.provider = "aws.bedrock",
	.request = DIALECT_REQUEST_ANTHROPIC,
	.path_sure = true,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
	.on_head = dialect_say_aws_head,
};
