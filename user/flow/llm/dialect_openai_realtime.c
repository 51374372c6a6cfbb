/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* OpenAI Realtime, a WebSocket at …/realtime: the events of Responses, with another last one. */

#include "dialect_parts.h"

static void say_usage(const struct llm_sink *out, const cJSON *usage)
{
	struct usage_part u = USAGE_PART_NONE;

	if (!cJSON_IsObject(usage))
		return;
	u.input_total = dialect_count(usage, "input_tokens");
	u.cache_read = dialect_detail(usage, "input_token_details", "cached_tokens");
	u.no_cache_write = true;
	u.output_total = dialect_count(usage, "output_tokens");
	u.reasoning = dialect_detail(usage, "output_token_details", "reasoning_tokens");
	out->on_usage(out->ctx, &u);
}

/* {status,status_details:{type,reason,error:{type,code}},usage} */
static void say_response(const struct llm_sink *out, const cJSON *response)
{
	const cJSON *details = json_get(response, "status_details"), *error = json_get(details, "error");
	struct sv why = json_get_string(details, "reason");

	dialect_say_model(out, response);
	say_usage(out, json_get(response, "usage"));
	if (why.len)
		out->on_stop(out->ctx, why);
	else
		dialect_say_stop(out, response, "status");
	if (cJSON_IsObject(error))
		dialect_say_error_object(out, error, "type", "code");
	out->on_end(out->ctx);
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	struct sv type = json_get_string(doc, "type");

	if (sv_eq(type, SV("response.text.delta")))
		dialect_say_member(out, TOKEN_TEXT, doc, "delta"); /* its beta's name */
	else if (sv_eq(type, SV("response.audio_transcript.delta")))
		dialect_say_member(out, TOKEN_AUDIO, doc, "delta");
	else if (sv_eq(type, SV("response.done")))
		say_response(out, json_get(doc, "response"));
	else
		dialect_openai_responses.on_event(name, doc, raw, out);
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	dialect_say_error(out, doc); /* of a handshake that was refused */
}

const struct dialect dialect_openai_realtime = {
	.api = "openai.realtime",
	.operation = "chat",
	.provider = "openai",
	.on_event = on_event,
	.on_document = on_document,
};
