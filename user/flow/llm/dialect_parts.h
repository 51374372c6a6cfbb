/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_DIALECT_PARTS_H
#define FLOW_LLM_DIALECT_PARTS_H

/* Private to the dialects: what several of them need. */

#include "dialect.h"

/* Says a token unless the text is absent or empty. True: it was said. */
bool dialect_say(const struct llm_sink *out, enum token_kind kind, struct sv text);
/* String member as a token. */
bool dialect_say_member(const struct llm_sink *out, enum token_kind kind, const cJSON *object, const char *key);
/* A tool call's arguments: a JSON text, or an object with members. See on_arguments. */
void dialect_say_arguments(const struct llm_sink *out, struct sv id, const cJSON *arguments);
/* Model, when the member is a non-empty string. */
void dialect_say_model(const struct llm_sink *out, const cJSON *object);
/* Stop reason, when the member is a non-empty string. */
void dialect_say_stop(const struct llm_sink *out, const cJSON *object, const char *key);

/*
 * The error of a document: {"error":{"type","code"}} with `type` first, or with `code` where the type is absent (also a
 * number), {"error":"text"} and {"object":"error","type"} of compatible servers. True: there was one. Text that is no
 * identifier is content and never said: "error" then.
 */
bool dialect_say_error(const struct llm_sink *out, const cJSON *doc);
/* The error object itself. `first`, `second`: members in order of preference. */
void dialect_say_error_object(const struct llm_sink *out, const cJSON *error, const char *first, const char *second);

/* Method POST and a path that ends with suffix (which begins with '/'). */
bool dialect_post(struct sv method, struct sv path, struct sv suffix);

/* {…}:NAME of Google's paths: the last segment is MODEL:NAME. *model is borrowed. */
bool dialect_post_verb(struct sv method, struct sv path, struct sv verb, struct sv *model);
/* Bedrock's …/model/ID/VERB, by the verb for a unary answer or the one for a stream; ID may be an ARN with slashes. */
bool dialect_bedrock_path(struct sv method, struct sv path, struct sv unary, struct sv stream,
			  struct dialect_path *out);
/* The deployment of an Azure path …/openai/deployments/NAME/… */
void dialect_azure_model(struct sv path, struct dialect_path *out);
/* What follows `part` in path; absent when it is not there. */
struct sv dialect_after(struct sv path, struct sv part);

/* A duration that a number member states, in units of unit_ns: UNKNOWN_COUNT when it is none. */
int64_t dialect_duration(const cJSON *object, const char *key, double unit_ns);
/* Says what the server spent, where anything is known. */
void dialect_say_server(const struct llm_sink *out, const struct call_server *s);
/* {"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}} of Google's servers: its status, else its code. True: it was
 * one. */
bool dialect_say_google_error(const struct llm_sink *out, const cJSON *doc);
/* {"message","__type"} with a type of its own, as AWS writes errors. True: there was one. */
bool dialect_say_aws_error(const struct llm_sink *out, const cJSON *doc);
/* x-amzn-errortype of an AWS answer's head. */
void dialect_say_aws_head(const struct http_head *h, const struct llm_sink *out);
/* Whose server it is, by what only that one adds to OpenAI's documents. */
void dialect_say_openai_provider(const struct llm_sink *out, const cJSON *doc);
/* usage, x_groq, timings and stats of an OpenAI-like document. */
void dialect_say_openai_usage(const struct llm_sink *out, const cJSON *doc);
/* llama.cpp's timings object, which it adds to every API that it speaks: durations, and counts where *u has none. */
void dialect_say_timings(const struct llm_sink *out, const cJSON *timings);
void dialect_add_timings(struct usage_part *u, const cJSON *timings);

/* Gemini's counts, in each of its APIs' spellings: `tool` is input that the server's own tools made. */
struct dialect_gemini_counts {
	int64_t prompt, tool, answer, thoughts, cached, total;
};
void dialect_say_gemini_usage(const struct llm_sink *out, const struct dialect_gemini_counts *n);

/* Number of tokens: UNKNOWN_COUNT when absent or null, USAGE_UNREADABLE when negative, fractional, no number … What a
 * struct usage_part gets is read by this, or a count that cannot be read looks as if it was not said. */
int64_t dialect_count(const cJSON *object, const char *key);
/* {"…_details":{key}} of object: the same. */
int64_t dialect_detail(const cJSON *object, const char *details, const char *key);
/* The first of two counts that is known. Of neither: USAGE_UNREADABLE, if one of them is. */
int64_t dialect_first_known(int64_t a, int64_t b);

#endif
