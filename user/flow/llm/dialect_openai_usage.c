/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Usage of Chat Completions and Completions, with what compatible servers add to it. */

#include "dialect_parts.h"

/* Cached tokens have five spellings; all are part of the prompt. */
static int64_t cache_read(const cJSON *usage)
{
	int64_t n = dialect_detail(usage, "prompt_tokens_details", "cached_tokens");

	n = dialect_first_known(n, dialect_detail(usage, "prompt_token_details", "cached_tokens")); /* Mistral */
	n = dialect_first_known(n, dialect_count(usage, "prompt_cache_hit_tokens"));		    /* DeepSeek */
	n = dialect_first_known(n, dialect_count(usage, "num_cached_tokens"));			    /* Mistral */
	return dialect_first_known(n, dialect_count(usage, "cached_tokens"));
}

/* Prompt and answer by llama.cpp's own count: prompt_n is what was not in its cache. */
void dialect_add_timings(struct usage_part *u, const cJSON *timings)
{
	int64_t cached = dialect_count(timings, "cache_n"), prompt = dialect_count(timings, "prompt_n");

	if (u->input_total < 0 && cached >= 0 && prompt >= 0)
		u->input_total = prompt + cached;
	else if (cached == USAGE_UNREADABLE || prompt == USAGE_UNREADABLE)
		u->input_total = dialect_first_known(u->input_total, USAGE_UNREADABLE);
	u->cache_read = dialect_first_known(u->cache_read, cached);
	u->output_total = dialect_first_known(u->output_total, dialect_count(timings, "predicted_n"));
}

/* Groq, SambaNova: seconds in usage. LM Studio: seconds in stats. */
static void say_server(const struct llm_sink *out, const cJSON *usage, const cJSON *stats)
{
	struct call_server s = CALL_SERVER_NONE;

	s.queue_ns = dialect_duration(usage, "queue_time", 1e9);
	s.prefill_ns = dialect_duration(usage, "prompt_time", 1e9);
	s.decode_ns = dialect_duration(usage, "completion_time", 1e9);
	s.total_ns = dialect_duration(usage, "total_time", 1e9);
	s.first_token_ns = dialect_duration(stats, "time_to_first_token", 1e9);
	if (s.first_token_ns < 0)
		s.first_token_ns = dialect_duration(usage, "time_to_first_token", 1e9);
	if (s.total_ns < 0)
		s.total_ns = dialect_duration(usage, "total_latency", 1e9);
	dialect_say_server(out, &s);
}

/* Reasoning is inside completion_tokens; with xAI it is beside them, which the total shows. */
static int64_t output_total(const cJSON *usage, int64_t prompt, int64_t reasoning)
{
	int64_t n = dialect_count(usage, "completion_tokens"), total = json_get_count(usage, "total_tokens");

	if (n >= 0 && prompt >= 0 && reasoning > 0 && total == prompt + n + reasoning)
		n += reasoning;
	return n;
}

void dialect_say_openai_usage(const struct llm_sink *out, const cJSON *doc)
{
	const cJSON *usage = json_get(doc, "usage"), *timings = json_get(doc, "timings");
	struct usage_part u = USAGE_PART_NONE;

	if (!cJSON_IsObject(usage))
		usage = json_get(json_get(doc, "x_groq"), "usage");
	if (!cJSON_IsObject(usage) && !cJSON_IsObject(timings))
		return;
	u.input_total = dialect_count(usage, "prompt_tokens");
	u.cache_read = cache_read(usage);
	u.cache_write = dialect_detail(usage, "prompt_tokens_details", "cache_write_tokens");
	u.no_cache_write = true;
	u.reasoning = dialect_detail(usage, "completion_tokens_details", "reasoning_tokens");
	u.output_total = output_total(usage, u.input_total, u.reasoning);
	dialect_add_timings(&u, timings);
	out->on_usage(out->ctx, &u);
	say_server(out, usage, json_get(doc, "stats"));
	dialect_say_timings(out, timings);
}

void dialect_say_openai_provider(const struct llm_sink *out, const cJSON *doc)
{
	const cJSON *usage = json_get(doc, "usage");

	if (cJSON_IsObject(json_get(doc, "x_groq")))
		out->on_provider(out->ctx, "groq");
	else if (json_get(json_get(doc, "timings"), "predicted_ms"))
		out->on_provider(out->ctx, "llama_cpp");
	else if (json_get_string(doc, "provider").len && sv_starts(json_get_string(doc, "id"), SV("gen-")))
		out->on_provider(out->ctx, "openrouter");
	else if (sv_eq(json_get_string(doc, "system_fingerprint"), SV("fp_ollama")))
		out->on_provider(out->ctx, "ollama");
	else if (json_get(usage, "prompt_cache_hit_tokens") && json_get(usage, "prompt_cache_miss_tokens"))
		out->on_provider(out->ctx, "deepseek");
	else if (json_get(json_get(doc, "stats"), "tokens_per_second"))
		out->on_provider(out->ctx, "lmstudio");
}
