/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* llama.cpp's own API: POST …/completion and …/infill. Chunks and unary answers are alike; the last one counts. */

#include "dialect_parts.h"

static bool match(struct sv method, struct sv path, struct dialect_path *out)
{
	(void)out;
	return dialect_post(method, path, SV("/completion")) || dialect_post(method, path, SV("/infill"));
}

/* Older servers say why in booleans. */
static void say_stop(const struct llm_sink *out, const cJSON *doc)
{
	if (json_get_string(doc, "stop_type").len)
		dialect_say_stop(out, doc, "stop_type");
	else if (json_get_true(doc, "stopped_eos"))
		out->on_stop(out->ctx, SV("eos"));
	else if (json_get_true(doc, "stopped_word"))
		out->on_stop(out->ctx, SV("word"));
	else if (json_get_true(doc, "stopped_limit"))
		out->on_stop(out->ctx, SV("limit"));
}

static void say_usage(const struct llm_sink *out, const cJSON *doc)
{
	struct usage_part u = USAGE_PART_NONE;

	u.output_total = dialect_count(doc, "tokens_predicted");
	u.no_cache_write = true;
	dialect_add_timings(&u, json_get(doc, "timings"));
	u.input_total = dialect_first_known(u.input_total, dialect_count(doc, "tokens_evaluated"));
	out->on_usage(out->ctx, &u);
}

static void on_document(const cJSON *doc, const struct llm_sink *out)
{
	if (dialect_say_error(out, doc) || !cJSON_IsString(json_get(doc, "content")) ||
	    !cJSON_IsBool(json_get(doc, "stop")))
		return;
	dialect_say_model(out, doc);
	dialect_say_member(out, TOKEN_TEXT, doc, "content");
	if (!json_get_true(doc, "stop"))
		return;
	say_stop(out, doc);
	say_usage(out, doc);
	dialect_say_timings(out, json_get(doc, "timings"));
	out->on_end(out->ctx);
}

static void on_event(struct sv name, const cJSON *doc, struct sv raw, const struct llm_sink *out)
{
	(void)name;
	(void)raw;
	on_document(doc, out);
}

const struct dialect dialect_llamacpp = {
	.api = "llamacpp",
	.operation = "text_completion",
	.provider = "llama_cpp",
	.request = DIALECT_REQUEST_INPUT,
	.required = MARK_PROMPT,
	.match = match,
	.on_event = on_event,
	.on_document = on_document,
};
