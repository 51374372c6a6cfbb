/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "dialect_parts.h"

#include <math.h>
#include <stdio.h>

#include "base/err.h"

static const struct dialect *const dialects[] = {
#define X(name) &dialect_##name,
	DIALECTS(X)
#undef X
};

const struct dialect *dialect_by_path(struct sv method, struct sv path, struct dialect_path *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(dialects); i++) {
		*out = DIALECT_PATH_NONE;
		if (dialects[i]->match && dialects[i]->match(method, path, out))
			return dialects[i];
	}
	*out = DIALECT_PATH_NONE;
	return NULL;
}

const struct dialect *dialect_by_upgrade(struct sv path)
{
	if (sv_ends(path, SV("/responses")))
		return &dialect_openai_responses;
	if (sv_ends(path, SV("GenerativeService.BidiGenerateContent")) ||
	    sv_ends(path, SV("GenerativeService.BidiGenerateContentConstrained")) ||
	    sv_ends(path, SV("LlmBidiService/BidiGenerateContent")))
		return &dialect_gemini_live;
	return sv_ends(path, SV("/realtime")) ? &dialect_openai_realtime : NULL;
}

bool dialect_path_excluded(struct sv path)
{
	static const struct sv parts[] = {
		SV("/event_logging"), SV("/analytics"), SV("/telemetry"), SV("/otlp/"),	   SV("/v1/traces"),
		SV("/v1/metrics"),    SV("/v1/logs"),	SV("/batches"),	  SV("/tokenize"), SV("/moderations"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (dialect_after(path, parts[i]).ptr)
			return true;
	}
	return false;
}

/* --- provider ---------------------------------------------------------------------------------------------------- */

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
	{SV(".aiplatform.googleapis.com"), "gcp.vertex_ai"},
	{SV("cloudcode-pa.googleapis.com"), "gcp.gen_ai"},
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

const char *dialect_provider(const struct dialect *d, struct sv host, struct sv path, const char *told)
{
	struct sv rest, name = host.len && host.ptr[0] == '[' ? host : sv_cut(host, ':', &rest);

	if (dialect_after(path, SV("/openai/deployments/")).ptr)
		return "azure.ai.openai";
	if (d && dialect_after(path, SV("/publishers/")).ptr && dialect_after(path, SV("/models/")).ptr)
		return "gcp.vertex_ai";
	if (dialect_after(path, SV("/google.cloud.aiplatform.")).ptr)
		return "gcp.vertex_ai";
	if (host_is_bedrock(name))
		return "aws.bedrock";
	for (size_t i = 0; i < ARRAY_SIZE(providers); i++) {
		if (host_is(name, providers[i].suffix))
			return providers[i].provider;
	}
	if (told)
		return told;
	return d && d->provider ? d->provider : "_OTHER";
}

/* --- parts ------------------------------------------------------------------------------------------------------- */

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

void dialect_say_arguments(const struct llm_sink *out, struct sv id, const cJSON *arguments)
{
	char *text;

	if (!out->on_arguments)
		return;
	if (cJSON_IsString(arguments)) {
		out->on_arguments(out->ctx, id, sv_of(arguments->valuestring));
		return;
	}
	if (!cJSON_IsObject(arguments) || !arguments->child)
		return;
	text = cJSON_PrintUnformatted(arguments);
	if (text)
		out->on_arguments(out->ctx, id, sv_of(text));
	cJSON_free(text);
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

bool dialect_say_google_error(const struct llm_sink *out, const cJSON *doc)
{
	const cJSON *error = json_get(doc, "error");

	if (!cJSON_IsObject(error))
		return dialect_say_error(out, doc);
	dialect_say_error_object(out, error, "status", "code");
	return true;
}

bool dialect_post(struct sv method, struct sv path, struct sv suffix)
{
	return sv_eq(method, SV("POST")) && sv_ends(path, suffix);
}

bool dialect_post_verb(struct sv method, struct sv path, struct sv verb, struct sv *model)
{
	size_t end;

	if (!dialect_post(method, path, verb) || path.len == verb.len || path.ptr[path.len - verb.len - 1] != ':')
		return false;
	end = path.len - verb.len - 1;
	for (size_t i = end; i > 0; i--) {
		if (path.ptr[i - 1] != '/')
			continue;
		*model = (struct sv){path.ptr + i, end - i};
		return true;
	}
	return false;
}

bool dialect_bedrock_path(struct sv method, struct sv path, struct sv unary, struct sv stream, struct dialect_path *out)
{
	struct sv id = dialect_after(path, SV("/model/"));

	if (!id.ptr)
		return false;
	if (dialect_post(method, path, unary))
		out->stream = 0;
	else if (dialect_post(method, path, stream))
		out->stream = 1;
	else
		return false;
	while (id.len && id.ptr[id.len - 1] != '/')
		id.len--;
	if (id.len)
		out->model = (struct sv){id.ptr, id.len - 1};
	return true;
}

void dialect_azure_model(struct sv path, struct dialect_path *out)
{
	struct sv rest, at = dialect_after(path, SV("/openai/deployments/"));

	if (at.ptr)
		out->model = sv_cut(at, '/', &rest);
}

struct sv dialect_after(struct sv path, struct sv part)
{
	const char *at = path.len >= part.len ? memmem(path.ptr, path.len, part.ptr, part.len) : NULL;

	if (!at)
		return SV_NONE;
	at += part.len;
	return (struct sv){at, path.len - (size_t)(at - path.ptr)};
}

int64_t dialect_duration(const cJSON *object, const char *key, double unit_ns)
{
	const cJSON *number = json_get(object, key);
	double ns = cJSON_IsNumber(number) ? number->valuedouble * unit_ns : -1;

	return ns >= 0 && ns < 9e18 ? (int64_t)llround(ns) : UNKNOWN_COUNT;
}

void dialect_say_server(const struct llm_sink *out, const struct call_server *s)
{
	if (call_server_known(s))
		out->on_server(out->ctx, s);
}

bool dialect_say_aws_error(const struct llm_sink *out, const cJSON *doc)
{
	struct sv type = json_get_string(doc, "__type"), rest;

	if (type.len) {
		/* com.amazon.coral.service#ThrottlingException */
		sv_cut(type, '#', &rest);
		out->on_error(out->ctx, rest.len ? rest : type);
		return true;
	}
	if (!json_get_string(doc, "message").ptr && !json_get_string(doc, "Message").ptr)
		return false;
	out->on_error(out->ctx, SV("error"));
	return true;
}

void dialect_say_aws_head(const struct http_head *h, const struct llm_sink *out)
{
	struct sv rest, type = sv_cut(http_header_get(h, "x-amzn-errortype"), ':', &rest);

	if (type.len)
		out->on_error(out->ctx, type);
}

void dialect_say_timings(const struct llm_sink *out, const cJSON *timings)
{
	struct call_server s = CALL_SERVER_NONE;

	s.prefill_ns = dialect_duration(timings, "prompt_ms", 1e6);
	s.decode_ns = dialect_duration(timings, "predicted_ms", 1e6);
	dialect_say_server(out, &s);
}

int64_t dialect_count(const cJSON *object, const char *key)
{
	const cJSON *member = json_get(object, key);
	int64_t n = json_get_count(object, key);

	return n < 0 && member && !cJSON_IsNull(member) ? USAGE_UNREADABLE : n;
}

int64_t dialect_detail(const cJSON *object, const char *details, const char *key)
{
	return dialect_count(json_get(object, details), key);
}

int64_t dialect_first_known(int64_t a, int64_t b)
{
	if (a >= 0)
		return a;
	return b >= 0 || a == UNKNOWN_COUNT ? b : a;
}
