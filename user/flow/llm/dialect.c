/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "dialect_parts.h"

#include <stdio.h>

#include "base/err.h"

static const struct dialect *const dialects[] = {
	&dialect_anthropic,
	&dialect_openai_chat,
	&dialect_openai_responses,
};

const struct dialect *dialect_by_path(struct sv method, struct sv path, enum call_class *class)
{
	for (size_t i = 0; i < ARRAY_SIZE(dialects); i++) {
		*class = CALL_MAIN;
		if (dialects[i]->match(method, path, class))
			return dialects[i];
	}
	return NULL;
}

/* --- by document: each verdict needs two marks that agree
 * ------------------------------------------------------------- */

static bool is_anthropic(const cJSON *doc, struct sv type)
{
	if (sv_eq(type, SV("message_start")))
		return cJSON_IsObject(json_get(doc, "message"));
	if (sv_eq(type, SV("content_block_start")))
		return cJSON_IsObject(json_get(doc, "content_block"));
	if (sv_eq(type, SV("content_block_delta")) || sv_eq(type, SV("message_delta")))
		return cJSON_IsObject(json_get(doc, "delta"));
	return sv_eq(type, SV("message")) && cJSON_IsArray(json_get(doc, "content")) && json_get(doc, "role");
}

static bool is_openai_responses(const cJSON *doc, struct sv type)
{
	if (sv_starts(type, SV("response.")))
		return json_get(doc, "response") || json_get(doc, "delta") || json_get(doc, "item") ||
		       json_get(doc, "sequence_number");
	return sv_eq(json_get_string(doc, "object"), SV("response")) && cJSON_IsArray(json_get(doc, "output"));
}

static bool is_openai_chat(const cJSON *doc)
{
	struct sv object = json_get_string(doc, "object");

	return cJSON_IsArray(json_get(doc, "choices")) &&
	       (sv_eq(object, SV("chat.completion.chunk")) || sv_eq(object, SV("chat.completion")));
}

const struct dialect *dialect_by_document(const cJSON *doc)
{
	struct sv type = json_get_string(doc, "type");

	if (!cJSON_IsObject(doc))
		return NULL;
	if (is_anthropic(doc, type))
		return &dialect_anthropic;
	if (is_openai_responses(doc, type))
		return &dialect_openai_responses;
	return is_openai_chat(doc) ? &dialect_openai_chat : NULL;
}

/* --- provider
 * --------------------------------------------------------------------------------------------------------- */

struct provider_row {
	struct sv suffix; /* of the host; one that begins with '.' needs something before it */
	const char *provider;
};

/* Names of the OpenTelemetry GenAI conventions 1.41 where they have one. */
static const struct provider_row providers[] = {
	{SV("api.anthropic.com"), "anthropic"},
	{SV(".anthropic.com"), "anthropic"},
	{SV("api.openai.com"), "openai"},
	{SV(".api.openai.com"), "openai"}, /* regional: eu.api.openai.com */
	{SV("chatgpt.com"), "openai"},
	{SV(".openai.azure.com"), "azure.ai.openai"},
	{SV(".services.ai.azure.com"), "azure.ai.inference"},
	{SV(".models.ai.azure.com"), "azure.ai.inference"},
	{SV("openrouter.ai"), "openrouter"},
	{SV("api.deepseek.com"), "deepseek"},
	{SV("api.groq.com"), "groq"},
	{SV("api.mistral.ai"), "mistral_ai"},
	{SV("codestral.mistral.ai"), "mistral_ai"},
	{SV("api.x.ai"), "x_ai"},
	{SV(".api.x.ai"), "x_ai"},
	{SV("api.together.xyz"), "together_ai"},
	{SV("api.together.ai"), "together_ai"},
	{SV("api.perplexity.ai"), "perplexity"},
	{SV("api.cohere.com"), "cohere"},
	{SV("api.cohere.ai"), "cohere"},
	{SV("api.githubcopilot.com"), "github_copilot"},
	{SV(".githubcopilot.com"), "github_copilot"},
	{SV("generativelanguage.googleapis.com"), "gcp.gemini"},
	{SV("aiplatform.googleapis.com"), "gcp.vertex_ai"},
	{SV("-aiplatform.googleapis.com"), "gcp.vertex_ai"}, /* regional: us-east5-aiplatform… */
};

static bool host_is(struct sv host, struct sv suffix)
{
	if (suffix.ptr[0] != '.' && suffix.ptr[0] != '-')
		return sv_ieq(host, suffix);
	return host.len > suffix.len && sv_ieq((struct sv){host.ptr + host.len - suffix.len, suffix.len}, suffix);
}

/* bedrock-runtime.REGION.amazonaws.com, bedrock-mantle.REGION.api.aws */
static bool host_is_bedrock(struct sv host)
{
	return host.len > 7 && sv_ieq((struct sv){host.ptr, 7}, SV("bedrock")) &&
	       (host_is(host, SV(".amazonaws.com")) || host_is(host, SV(".api.aws")));
}

static bool path_has(struct sv path, struct sv part)
{
	return path.len >= part.len && memmem(path.ptr, path.len, part.ptr, part.len) != NULL;
}

const char *dialect_provider(const struct dialect *d, struct sv host, struct sv path)
{
	struct sv rest, name = host.len && host.ptr[0] == '[' ? host : sv_cut(host, ':', &rest);

	if (path_has(path, SV("/openai/deployments/")))
		return "azure.ai.openai";
	if (host_is_bedrock(name))
		return "aws.bedrock";
	for (size_t i = 0; i < ARRAY_SIZE(providers); i++) {
		if (host_is(name, providers[i].suffix))
			return providers[i].provider;
	}
	return d && d->provider ? d->provider : "_OTHER";
}

/* --- parts
 * ------------------------------------------------------------------------------------------------------------ */

bool dialect_say(const struct llm_sink *out, enum token_kind kind, struct sv text)
{
	if (!text.len)
		return false;
	out->on_token(out->ctx, kind, text);
	return true;
}

bool dialect_say_member(const struct llm_sink *out, enum token_kind kind, const cJSON *object, const char *key)
{
	return dialect_say(out, kind, json_get_string(object, key));
}

void dialect_say_model(const struct llm_sink *out, const cJSON *object)
{
	struct sv model = json_get_string(object, "model");

	if (model.len)
		out->on_model(out->ctx, model);
}

void dialect_say_stop(const struct llm_sink *out, const cJSON *object, const char *key)
{
	struct sv reason = json_get_string(object, key);

	if (reason.len)
		out->on_stop(out->ctx, reason);
}

void dialect_say_error_object(const struct llm_sink *out, const cJSON *error, const char *first, const char *second)
{
	struct sv type = json_get_string(error, first);
	char number[24];
	int64_t code;

	if (!type.len)
		type = json_get_string(error, second);
	code = json_get_count(error, second);
	if (!type.len && code >= 0) {
		snprintf(number, sizeof(number), "%lld", (long long)code);
		type = sv_of(number);
	}
	out->on_error(out->ctx, type.len ? type : SV("error"));
}

bool dialect_say_error(const struct llm_sink *out, const cJSON *doc)
{
	const cJSON *error = json_get(doc, "error");

	if (cJSON_IsObject(error))
		dialect_say_error_object(out, error, "type", "code");
	else if (cJSON_IsString(error))
		out->on_error(out->ctx, SV("error"));
	else if (sv_eq(json_get_string(doc, "object"), SV("error")))
		dialect_say_error_object(out, doc, "type", "code");
	else
		return false;
	return true;
}

bool dialect_post(struct sv method, struct sv path, struct sv suffix)
{
	return sv_eq(method, SV("POST")) && sv_ends(path, suffix);
}

int64_t dialect_detail(const cJSON *object, const char *details, const char *key)
{
	return json_get_count(json_get(object, details), key);
}

int64_t dialect_first_known(int64_t a, int64_t b)
{
	return a >= 0 ? a : b;
}
