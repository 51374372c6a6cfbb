/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Hugging Face's text-generation-inference: POST …/generate and …/generate_stream. One event is one token. */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	if (dialect_post(method, path, SV("/generate_stream"))) {
		out->stream = 1;
		return true;
	}
	out->stream = 0;
	return dialect_post(method, path, SV("/generate")) && !sv_ends(path, SV("/api/generate"));
}

static void say_details(const struct llm_sink *out, const cJSON *details)
{
	struct usage_part u = USAGE_PART_NONE;

	if (!cJSON_IsObject(details))
		return;
	dialect_say_stop(out, details, "finish_reason");
	u.output_total = dialect_count(details, "generated_tokens");
	u.input_total = dialect_count(details, "input_length");
	u.no_cache_write = true;
	out->on_usage(out->ctx, &u);
}

/* {"error":"text","error_type":"overloaded"} */
static bool say_error(const struct llm_sink *out, const cJSON *doc)
{
	struct sv type = json_get_string(doc, "error_type");

	if (!json_get(doc, "error"))
		return false;
	out->on_error(out->ctx, type.len ? type : SV("error"));
	return true;
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	const cJSON *token = json_get(doc, "token");

	(void)name;
	(void)raw;
	if (say_error(out, doc) || !cJSON_IsObject(token))
		return;
	if (!json_get_true(token, "special"))
		dialect_say_member(out, TOKEN_TEXT, token, "text");
	say_details(out, json_get(doc, "details"));
	if (cJSON_IsString(json_get(doc, "generated_text")))
		out->on_end(out->ctx);
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	if (say_error(out, doc) || !cJSON_IsString(json_get(doc, "generated_text")))
		return;
	dialect_say_member(out, TOKEN_TEXT, doc, "generated_text");
	say_details(out, json_get(doc, "details"));
	out->on_end(out->ctx);
}

/* A decimal number and nothing else. */
static int64_t number_of(struct sv text)
{
	int64_t n = 0;

	if (!text.len || text.len > 15)
		return UNKNOWN_COUNT;
	for (size_t i = 0; i < text.len; i++) {
		if (text.ptr[i] < '0' || text.ptr[i] > '9')
			return UNKNOWN_COUNT;
		n = n * 10 + (text.ptr[i] - '0');
	}
	return n;
}

static int64_t head_ns(const struct http_head *h, const char *name)
{
	int64_t ms = number_of(http_header_get(h, name));

	return ms < 0 ? ms : ms * 1000000;
}

/* Unary answers count and measure in their head; milliseconds. */
static void on_head(const struct http_head *h, const struct llm_sink *out)
{
	struct call_server s = CALL_SERVER_NONE;
	struct usage_part u = USAGE_PART_NONE;

	u.input_total = number_of(http_header_get(h, "x-prompt-tokens"));
	u.output_total = number_of(http_header_get(h, "x-generated-tokens"));
	u.no_cache_write = true;
	if (u.input_total >= 0 || u.output_total >= 0)
		out->on_usage(out->ctx, &u);
	s.queue_ns = head_ns(h, "x-queue-time");
	s.total_ns = head_ns(h, "x-total-time");
	dialect_say_server(out, &s);
}

const struct dialect dialect_tgi = {
	.api = "tgi",
	.operation = "text_completion",
	.provider = "huggingface_tgi",
	.request = DIALECT_REQUEST_INPUT,
	.required = MARK_INPUTS,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
	.on_head = on_head,
};
