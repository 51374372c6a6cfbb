/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <math.h>

#include "base/err.h"
#include "flow/llm/dialect.h"

/* --- what a dialect says, as a line ------------------------------------------------------------------------------ */

static void say(struct tlog *l, const char *what, struct sv text)
{
	tlog_printf(l, "%s%s", l->len ? " " : "", what);
	if (text.ptr) {
		tlog_printf(l, "(");
		tlog_escaped(l, text.ptr, text.len);
		tlog_printf(l, ")");
	}
}

static void on_token(void *ctx, enum token_kind kind, struct sv text)
{
	say(ctx, token_kind_name(kind), text);
}

static void put_count(struct tlog *l, const char *name, int64_t n)
{
	if (n >= 0)
		tlog_printf(l, "%s%lld", name, (long long)n);
	else if (n == USAGE_UNREADABLE)
		tlog_printf(l, "%s?", name);
}

static void on_usage(void *ctx, const struct usage_part *u)
{
	struct tlog *l = ctx;

	say(l, "usage:", SV_NONE);
	put_count(l, "u", u->input_uncached);
	put_count(l, "i", u->input_total);
	put_count(l, "r", u->cache_read);
	put_count(l, "w", u->cache_write);
	put_count(l, "o", u->output_total);
	put_count(l, "t", u->reasoning);
}

static void on_model(void *ctx, struct sv model)
{
	say(ctx, "model", model);
}

static void on_reasoning(void *ctx)
{
	say(ctx, "reasons", SV_NONE);
}

static void on_sealed(void *ctx)
{
	say(ctx, "sealed", SV_NONE);
}

static void on_tool(void *ctx, struct sv id, struct sv name)
{
	say(ctx, "call", id.ptr ? id : SV("-"));
	say(ctx, "name", name);
}

static void on_stop(void *ctx, struct sv reason)
{
	say(ctx, "stop", reason);
}

static void on_error(void *ctx, struct sv type)
{
	say(ctx, "error", type);
}

static void on_end(void *ctx)
{
	say(ctx, "end", SV_NONE);
}

static void put_us(struct tlog *l, const char *name, int64_t ns)
{
	if (ns >= 0)
		tlog_printf(l, " %s%lldus", name, (long long)(ns / 1000));
}

static void on_server(void *ctx, const struct call_server *s)
{
	struct tlog *l = ctx;

	say(l, "server:", SV_NONE);
	put_us(l, "queue", s->queue_ns);
	put_us(l, "load", s->load_ns);
	put_us(l, "prefill", s->prefill_ns);
	put_us(l, "decode", s->decode_ns);
	put_us(l, "first", s->first_token_ns);
	put_us(l, "total", s->total_ns);
}

static void on_provider(void *ctx, const char *provider)
{
	say(ctx, "provider", sv_of(provider));
}

struct row {
	const char *event; /* NULL: a unary document */
	const char *json;
	const char *golden;
};

static void check_rows(const struct dialect *d, const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct tlog l = {0};
		struct llm_sink out = {&l,	on_token, on_usage, on_model,  on_reasoning, on_sealed, on_tool,
				       on_stop, on_error, on_end,   on_server, on_provider,  NULL};
		cJSON *doc = cJSON_Parse(rows[i].json);

		if (rows[i].event)
			d->on_event(sv_of(rows[i].event), doc, sv_of(rows[i].json), &out);
		else
			d->on_document(doc, &out);
		if (strcmp(l.text ? l.text : "", rows[i].golden) != 0)
			fail_msg("%s row %zu\n  doc  %s\n  want %s\n  got  %s", d->api, i, rows[i].json, rows[i].golden,
				 l.text ? l.text : "");
		cJSON_Delete(doc);
		tlog_free(&l);
	}
}

/* --- anthropic --------------------------------------------------------------------------------------------------- */

static void test_anthropic_events(void **state)
{
	static const struct row rows[] = {
		{"message_start",
		 "{\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"claude-x\",\"usage\":{\"input_"
		 "tokens\":10,"
		 "\"cache_creation_input_tokens\":2,\"cache_read_input_tokens\":0,\"output_tokens\":1}}}",
		 "model(claude-x) usage:u10r0w2o1"},
		{"message_start",
		 "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1,"
		 "\"cache_read_input_tokens\":null}}}",
		 "usage:u1"},
		{"ping", "{\"type\":\"ping\"}", ""},
		{"content_block_start",
		 "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}",
		 ""},
		{"content_block_start",
		 "{\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":"
		 "\"Read\","
		 "\"input\":{}}}",
		 "call(t1) name(Read)"},
		{"content_block_start",
		 "{\"type\":\"content_block_start\",\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"t1\","
		 "\"name\":\"web_search\"}}",
		 ""},
		{"content_block_start",
		 "{\"type\":\"content_block_start\",\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}",
		 "reasons"},
		{"content_block_start",
		 "{\"type\":\"content_block_start\",\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"x\"}}",
		 "sealed"},
		{"content_block_start",
		 "{\"type\":\"content_block_start\",\"content_block\":{\"type\":\"web_search_tool_result\"}}", "tool"},
		{"content_block_delta",
		 "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}",
		 "text(hi)"},
		{"content_block_delta",
		 "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"\"}}", ""},
		{"content_block_delta",
		 "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}",
		 "reasoning(hm)"},
		{"content_block_delta",
		 "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"\"}}", ""},
		{"content_block_delta",
		 "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"\","
		 "\"estimated_tokens\":50}}",
		 "reasoning"},
		{"content_block_delta",
		 "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"s\"}}",
		 "reasons"},
		{"content_block_delta",
		 "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}",
		 "tool({)"},
		{"content_block_delta",
		 "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}}",
		 ""},
		{"content_block_delta",
		 "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"citations_delta\",\"citation\":{}}}", "text"},
		{"content_block_delta", "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"new_delta\"}}", ""},
		{"content_block_delta", "{\"type\":\"content_block_delta\"}", ""},
		{"content_block_stop", "{\"type\":\"content_block_stop\",\"index\":0}", ""},
		{"message_delta",
		 "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":47,"
		 "\"output_tokens_details\":{\"thinking_tokens\":30}}}",
		 "usage:o47t30 stop(end_turn)"},
		{"message_stop", "{\"type\":\"message_stop\"}", "end"},
		{"error", "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"secret\"}}",
		 "error(overloaded_error)"},
		{"error", "{\"type\":\"error\"}", "error(error)"},
		/* a name in one place only */
		{"message", "{\"type\":\"message_stop\"}", "end"},
		{"message_stop", "{}", "end"},
		{"message_stop", "no json", "end"},
		{"content_block_delta", "[1]", ""},
	};

	(void)state;
	check_rows(&dialect_anthropic, rows, ARRAY_SIZE(rows));
}

static void test_anthropic_documents(void **state)
{
	static const struct row rows[] = {
		{NULL,
		 "{\"type\":\"message\",\"model\":\"claude-x\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"},"
		 "{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"Bash\",\"input\":{}}],\"stop_reason\":\"tool_use\","
		 "\"usage\":{\"input_tokens\":16,\"cache_read_input_tokens\":4,\"cache_creation_input_tokens\":2,"
		 "\"output_tokens\":1}}",
		 "model(claude-x) text(hi) call(t) name(Bash) usage:u16r4w2o1 stop(tool_use) end"},
		{NULL, "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\"}}", "error(rate_limit_error)"},
		{NULL, "{\"error\":\"no such path /v1/secret\"}", "error(error)"},
		{NULL, "{\"input_tokens\":14}", ""},
		{NULL, "{\"jsonrpc\":\"2.0\",\"result\":{}}", ""},
	};

	(void)state;
	check_rows(&dialect_anthropic, rows, ARRAY_SIZE(rows));
}

/* --- openai.chat ------------------------------------------------------------------------------------------------- */

#define CHUNK "{\"object\":\"chat.completion.chunk\",\"model\":\"gpt-x\",\"choices\":[{\"index\":0,\"delta\":"

static void test_chat_events(void **state)
{
	static const struct row rows[] = {
		{"message", CHUNK "{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null}",
		 "model(gpt-x)"},
		{"message", CHUNK "{\"content\":\"hi\"},\"finish_reason\":null}]}", "model(gpt-x) text(hi)"},
		{"message", CHUNK "{\"content\":null,\"refusal\":\"no\"}}]}", "model(gpt-x) refusal(no)"},
		{"message", CHUNK "{\"reasoning_content\":\"hm\",\"content\":null}}]}", "model(gpt-x) reasoning(hm)"},
		{"message",
		 CHUNK
		 "{\"reasoning\":\"hm\",\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"hm\"}]}}]}",
		 "model(gpt-x) reasoning(hm)"},
		{"message", CHUNK "{\"reasoning_details\":[{\"type\":\"reasoning.encrypted\",\"data\":\"x\"}]}}]}",
		 "model(gpt-x) reasons"},
		{"message",
		 CHUNK "{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"a\"}]},"
		       "{\"type\":\"text\",\"text\":\"b\"}]}}]}",
		 "model(gpt-x) reasoning(a) text(b)"},
		{"message",
		 CHUNK
		 "{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"ls\","
		 "\"arguments\":\"\"}}]}}]}",
		 "model(gpt-x) call(c1) name(ls) tool(ls)"},
		{"message", CHUNK "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"c\"}}]}}]}",
		 "model(gpt-x) tool({\"c)"},
		{"message",
		 CHUNK "{\"tool_calls\":[{\"index\":0,\"id\":\"c2\",\"custom\":{\"name\":\"sh\",\"input\":\"x\"}}]}}]}",
		 "model(gpt-x) call(c2) name(sh) tool(x)"},
		{"message", CHUNK "{\"function_call\":{\"name\":\"f\",\"arguments\":\"a\"}}}]}",
		 "model(gpt-x) call(-) name(f) tool(a)"},
		{"message", CHUNK "{\"audio\":{\"transcript\":\"la\"}}}]}", "model(gpt-x) audio(la)"},
		{"message", CHUNK "{},\"finish_reason\":\"stop\"}]}", "model(gpt-x) stop(stop)"},
		{"message", "{\"model\":\"\",\"choices\":[],\"prompt_filter_results\":[{}],\"usage\":null}", ""},
		{"message", "{\"model\":\"g\",\"choices\":[{\"index\":0,\"finish_reason\":null}]}", "model(g)"},
		{"message",
		 "{\"model\":\"g\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,"
		 "\"prompt_tokens_details\":{\"cached_tokens\":4,\"cache_write_tokens\":1},"
		 "\"completion_tokens_details\":{\"reasoning_tokens\":2}}}",
		 "model(g) usage:i9r4w1o3t2"},
		{"message",
		 "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_cache_hit_tokens\":5,\"completion_tokens\":3}"
		 "}",
		 "usage:i9r5o3"},
		{"message", "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"num_cached_tokens\":6}}", "usage:i9r6"},
		{"message", "{\"choices\":[],\"usage\":{\"prompt_tokens\":9},\"timings\":{\"cache_n\":7}}",
		 "usage:i9r7"},
		{"message", "{\"choices\":[],\"x_groq\":{\"usage\":{\"prompt_tokens\":8}}}", "provider(groq) usage:i8"},
		{"message", "{\"choices\":[],\"usage\":{\"prompt_tokens\":-3,\"completion_tokens\":1.5}}",
		 "usage:i?o?"},
		{"message", "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_cache_hit_tokens\":\"5\"}}",
		 "usage:i9r?"},
		{"message", "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"num_cached_tokens\":-6}}", "usage:i9r?"},
		{"message", "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"cached_tokens\":1.5}}", "usage:i9r?"},
		{"message", "{\"choices\":[],\"timings\":{\"cache_n\":-1,\"prompt_n\":7,\"predicted_n\":0.5}}",
		 "usage:i?r?o?"},
		{"message", "[DONE]", "end"},
		{"message", " [DONE] ", "end"},
		{"message", "nonsense", ""},
		{"message", "{\"error\":{\"type\":\"server_error\",\"code\":\"x\",\"message\":\"m\"}}",
		 "error(server_error)"},
		{"message", "{\"error\":{\"code\":429,\"message\":\"m\"}}", "error(429)"},
		{"message", "{\"error\":{\"type\":null,\"code\":\"quota\"}}", "error(quota)"},
		{"message",
		 "{\"error\":{\"code\":502},\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}",
		 "error(502) stop(error)"},
		{"message", "{\"object\":\"error\",\"type\":\"BadRequestError\",\"code\":400}",
		 "error(BadRequestError)"},
	};

	(void)state;
	check_rows(&dialect_openai_chat, rows, ARRAY_SIZE(rows));
}

static void test_chat_documents(void **state)
{
	static const struct row rows[] = {
		{NULL,
		 "{\"object\":\"chat.completion\",\"model\":\"gpt-x\",\"choices\":[{\"message\":{\"role\":"
		 "\"assistant\","
		 "\"content\":\"hi\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]"
		 "},"
		 "\"finish_reason\":\"tool_calls\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}",
		 "model(gpt-x) text(hi) call(c) name(f) tool({}) stop(tool_calls) usage:i5o2 end"},
		{NULL, "{\"error\":{\"message\":\"m\",\"type\":\"invalid_request_error\",\"code\":null}}",
		 "error(invalid_request_error)"},
		{NULL, "{\"ok\":true}", ""},
	};

	(void)state;
	check_rows(&dialect_openai_chat, rows, ARRAY_SIZE(rows));
}

/* --- openai.responses -------------------------------------------------------------------------------------------- */

static void test_responses_events(void **state)
{
	static const struct row rows[] = {
		{"response.created",
		 "{\"type\":\"response.created\",\"response\":{\"model\":\"gpt-x\",\"status\":\"in_progress\","
		 "\"usage\":null}}",
		 "model(gpt-x)"},
		{"response.in_progress", "{\"type\":\"response.in_progress\",\"response\":{}}", ""},
		{"response.output_item.added",
		 "{\"type\":\"response.output_item.added\",\"item\":{\"type\":\"reasoning\",\"id\":\"r\"}}", "reasons"},
		{"response.output_item.added",
		 "{\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"call_id\":\"c\","
		 "\"name\":\"ls\"}}",
		 "call(c) name(ls)"},
		{"response.output_item.done",
		 "{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"local_shell_call\",\"call_id\":\"c\"}}",
		 "call(c) name(local_shell_call)"},
		{"response.output_item.added",
		 "{\"type\":\"response.output_item.added\",\"item\":{\"type\":\"web_search_call\",\"id\":\"w\"}}", ""},
		{"response.output_text.delta",
		 "{\"type\":\"response.output_text.delta\",\"delta\":\"hi\",\"obfuscation\":\"x\"}", "text(hi)"},
		{"response.output_text.delta", "{\"type\":\"response.output_text.delta\",\"delta\":\"\"}", ""},
		{"response.refusal.delta", "{\"type\":\"response.refusal.delta\",\"delta\":\"no\"}", "refusal(no)"},
		{"response.reasoning_summary_text.delta",
		 "{\"type\":\"response.reasoning_summary_text.delta\",\"delta\":\"hm\"}", "reasoning(hm)"},
		{"response.reasoning_text.delta", "{\"type\":\"response.reasoning_text.delta\",\"delta\":\"hm\"}",
		 "reasoning(hm)"},
		{"response.function_call_arguments.delta",
		 "{\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{\"}", "tool({)"},
		{"response.custom_tool_call_input.delta",
		 "{\"type\":\"response.custom_tool_call_input.delta\",\"delta\":\"x\"}", "tool(x)"},
		{"response.audio.delta", "{\"type\":\"response.audio.delta\",\"delta\":\"AA\"}", "audio(AA)"},
		{"response.unknown.delta", "{\"type\":\"response.unknown.delta\",\"delta\":\"AA\"}", ""},
		{"response.output_text.done", "{\"type\":\"response.output_text.done\",\"text\":\"hi\"}", ""},
		{"response.completed",
		 "{\"type\":\"response.completed\",\"response\":{\"model\":\"gpt-x\",\"status\":\"completed\","
		 "\"error\":null,"
		 "\"incomplete_details\":null,\"usage\":{\"input_tokens\":100,\"input_tokens_details\":{\"cached_"
		 "tokens\":64},"
		 "\"output_tokens\":50,\"output_tokens_details\":{\"reasoning_tokens\":20}}}}",
		 "model(gpt-x) usage:i100r64o50t20 stop(completed) end"},
		{"response.incomplete",
		 "{\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\",\"incomplete_details\":"
		 "{\"reason\":\"max_output_tokens\"}}}",
		 "stop(max_output_tokens) end"},
		{"response.failed",
		 "{\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_"
		 "error\"}}}",
		 "stop(failed) error(server_error) end"},
		{"error", "{\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"m\"}",
		 "error(rate_limit_exceeded)"},
		{"error", "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"code\":\"c\"}}",
		 "error(invalid_request_error)"},
		{"error", "{\"type\":\"error\",\"code\":null}", "error(error)"},
		{"message", "{\"error\":{\"message\":\"m\",\"type\":\"server_error\"}}", "error(server_error)"},
		{"message", "[DONE]", ""},
	};

	(void)state;
	check_rows(&dialect_openai_responses, rows, ARRAY_SIZE(rows));
}

static void test_responses_documents(void **state)
{
	static const struct row rows[] = {
		{NULL,
		 "{\"object\":\"response\",\"model\":\"gpt-x\",\"status\":\"completed\",\"error\":null,\"output\":["
		 "{\"type\":\"reasoning\"},{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":"
		 "\"hi\"},"
		 "{\"type\":\"refusal\",\"refusal\":\"no\"}]},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":"
		 "\"f\"}],"
		 "\"usage\":{\"input_tokens\":3,\"output_tokens\":2}}",
		 "reasons text(hi) refusal(no) call(c) name(f) model(gpt-x) usage:i3o2 stop(completed) end"},
		{NULL, "{\"object\":\"response\",\"status\":\"queued\",\"output\":[]}", "stop(queued)"},
		{NULL, "{\"error\":{\"type\":\"invalid_request_error\"}}", "error(invalid_request_error)"},
		{NULL, "{\"id\":7,\"status\":\"ok\"}", ""},
	};

	(void)state;
	check_rows(&dialect_openai_responses, rows, ARRAY_SIZE(rows));
}

/* --- openai.completions, embeddings, realtime -------------------------------------------------------------------- */

static void test_completions(void **state)
{
	static const struct row rows[] = {
		{"message",
		 "{\"object\":\"text_completion\",\"model\":\"m\",\"choices\":[{\"text\":\"hi\",\"finish_reason\":null}"
		 "]}",
		 "model(m) text(hi)"},
		{"message",
		 "{\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":4,"
		 "\"completion_tokens\":2}}",
		 "stop(length) usage:i4o2"},
		{"message", "[DONE]", "end"},
		{"message", "{\"error\":{\"type\":\"server_error\"}}", "error(server_error)"},
		{NULL,
		 "{\"object\":\"text_completion\",\"model\":\"m\",\"choices\":[{\"text\":\"hi\",\"finish_reason\":"
		 "\"stop\"}],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":1}}",
		 "model(m) text(hi) stop(stop) usage:i4o1 end"},
		{NULL, "{\"error\":{\"code\":\"model_not_found\"}}", "error(model_not_found)"},
		{NULL, "{\"ok\":1}", ""},
		/* llama.cpp at the same path */
		{"message", "{\"content\":\"hi\",\"stop\":false}", "text(hi)"},
		{NULL,
		 "{\"content\":\"hi\",\"stop\":true,\"tokens_evaluated\":7,\"tokens_predicted\":1,\"stop_type\":"
		 "\"eos\"}",
		 "text(hi) stop(eos) usage:i7o1 end"},
	};

	(void)state;
	check_rows(&dialect_openai_completions, rows, ARRAY_SIZE(rows));
}

static void test_embeddings(void **state)
{
	static const struct row rows[] = {
		{NULL,
		 "{\"object\":\"list\",\"model\":\"e\",\"data\":[{\"object\":\"embedding\",\"embedding\":[0.1]}],"
		 "\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}",
		 "model(e) usage:i8 end"},
		{NULL, "{\"error\":{\"type\":\"invalid_request_error\"}}", "error(invalid_request_error)"},
		{NULL, "{\"items\":[]}", ""},
		{"message", "{\"choices\":[{\"delta\":{\"content\":\"x\"}}]}", ""},
	};

	(void)state;
	check_rows(&dialect_openai_embeddings, rows, ARRAY_SIZE(rows));
}

static void test_realtime(void **state)
{
	static const struct row rows[] = {
		{"", "{\"type\":\"session.created\",\"session\":{\"model\":\"r\"}}", ""},
		{"", "{\"type\":\"response.created\",\"response\":{\"id\":\"x\",\"status\":\"in_progress\"}}", ""},
		{"", "{\"type\":\"response.output_audio.delta\",\"delta\":\"AA\"}", "audio(AA)"},
		{"", "{\"type\":\"response.output_audio_transcript.delta\",\"delta\":\"la\"}", "audio(la)"},
		{"", "{\"type\":\"response.audio_transcript.delta\",\"delta\":\"la\"}", "audio(la)"},
		{"", "{\"type\":\"response.text.delta\",\"delta\":\"hi\"}", "text(hi)"},
		{"", "{\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}", "text(hi)"},
		{"", "{\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{\"}", "tool({)"},
		{"",
		 "{\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"call_id\":\"c\","
		 "\"name\":\"f\"}}",
		 "call(c) name(f)"},
		{"",
		 "{\"type\":\"response.done\",\"response\":{\"status\":\"completed\",\"usage\":{\"input_tokens\":30,"
		 "\"input_token_details\":{\"cached_tokens\":10},\"output_tokens\":5}}}",
		 "usage:i30r10o5 stop(completed) end"},
		{"",
		 "{\"type\":\"response.done\",\"response\":{\"status\":\"cancelled\",\"status_details\":{\"reason\":"
		 "\"turn_detected\"}}}",
		 "stop(turn_detected) end"},
		{"",
		 "{\"type\":\"response.done\",\"response\":{\"status\":\"failed\",\"status_details\":{\"error\":{"
		 "\"type\":\"server_error\"}}}}",
		 "stop(failed) error(server_error) end"},
		{"", "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"}}",
		 "error(invalid_request_error)"},
		{NULL, "{\"error\":{\"type\":\"invalid_request_error\"}}", "error(invalid_request_error)"},
	};

	(void)state;
	check_rows(&dialect_openai_realtime, rows, ARRAY_SIZE(rows));
}

/* What compatible servers add to Chat Completions. */
static void test_chat_extensions(void **state)
{
	static const struct row rows[] = {
		/* Groq */
		{"message",
		 "{\"model\":\"g\",\"choices\":[],\"x_groq\":{\"id\":\"r\",\"usage\":{\"queue_time\":0.25,\"prompt_"
		 "tokens\":8,\"prompt_time\":0.001,\"completion_tokens\":2,\"completion_time\":0.5,\"total_time\":0."
		 "501}}}",
		 "model(g) provider(groq) usage:i8o2 server: queue250000us prefill1000us decode500000us total501000us"},
		/* llama.cpp: without usage its own count, which has the cached part beside the evaluated one */
		{"message",
		 "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"timings\":{\"cache_n\":100,\"prompt_n\":"
		 "20,\"prompt_ms\":12.5,\"predicted_n\":7,\"predicted_ms\":70}}",
		 "provider(llama_cpp) stop(stop) usage:i120r100o7 server: prefill12500us decode70000us"},
		{"message", "{\"choices\":[],\"timings\":{\"prompt_n\":20,\"predicted_n\":7}}", "usage:o7"},
		/* LM Studio */
		{NULL,
		 "{\"model\":\"l\",\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1},\"stats\":{"
		 "\"tokens_per_second\":51,\"time_to_first_token\":0.111,\"generation_time\":0.954}}",
		 "model(l) provider(lmstudio) usage:i1o1 server: first111000us end"},
		/* DeepSeek */
		{NULL,
		 "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\"prompt_cache_hit_tokens\":4,"
		 "\"prompt_cache_miss_tokens\":5,\"completion_tokens_details\":{\"reasoning_tokens\":1}}}",
		 "provider(deepseek) usage:i9r4o1t1 end"},
		{NULL, "{\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"queue_time\":-1,\"total_time\":1e300}}",
		 "usage:i1 end"},
	};

	(void)state;
	check_rows(&dialect_openai_chat, rows, ARRAY_SIZE(rows));
}

/* --- anthropic elsewhere ----------------------------------------------------------------------------------------- */

static void test_vertex_anthropic(void **state)
{
	static const struct row rows[] = {
		{"content_block_delta",
		 "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}", "text(hi)"},
		{"message_stop", "{\"type\":\"message_stop\"}", "end"},
		{NULL,
		 "{\"type\":\"message\",\"model\":\"c\",\"content\":[],\"stop_reason\":\"end_turn\",\"usage\":{\"input_"
		 "tokens\":3,\"output_tokens\":1}}",
		 "model(c) usage:u3o1 stop(end_turn) end"},
		{NULL, "{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"message\":\"m\"}}",
		 "error(RESOURCE_EXHAUSTED)"},
		{NULL, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}", "error(overloaded_error)"},
	};

	(void)state;
	check_rows(&dialect_vertex_anthropic, rows, ARRAY_SIZE(rows));
}

/* base64 of the events named beside it */
static void test_bedrock_invoke(void **state)
{
	static const struct row rows[] = {
		/* {"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}} */
		{"chunk",
		 "{\"bytes\":"
		 "\"eyJ0eXBlIjoiY29udGVudF9ibG9ja19kZWx0YSIsImRlbHRhIjp7InR5cGUiOiJ0ZXh0X2RlbHRhIiwidGV4dCI6ImhpIn19\","
		 "\"p\":\"abc\"}",
		 "text(hi)"},
		/* {"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":9,"outputTokenCount":2,"invocationLatency":900,"firstByteLatency":300}}
		 */
		{"chunk",
		 "{\"bytes\":"
		 "\"eyJ0eXBlIjoibWVzc2FnZV9zdG9wIiwiYW1hem9uLWJlZHJvY2staW52b2NhdGlvbk1ldHJpY3MiOnsiaW5wdXRUb2tlbkNvdW5"
		 "0Ijo5LCJvdXRwdXRUb2tlbkNvdW50IjoyLCJpbnZvY2F0aW9uTGF0ZW5jeSI6OTAwLCJmaXJzdEJ5dGVMYXRlbmN5IjozMDB9fQ=="
		 "\"}",
		 "end server: first300000us total900000us"},
		/* another family:
		   {"generation":"hi","amazon-bedrock-invocationMetrics":{"inputTokenCount":9,"outputTokenCount":2}} */
		{"chunk",
		 "{\"bytes\":"
		 "\"eyJnZW5lcmF0aW9uIjoiaGkiLCJhbWF6b24tYmVkcm9jay1pbnZvY2F0aW9uTWV0cmljcyI6eyJpbnB1dFRva2VuQ291bnQiOjk"
		 "sIm91dHB1dFRva2VuQ291bnQiOjJ9fQ==\"}",
		 "usage:i9o2 end"},
		/* Nova: {"contentBlockDelta":{"delta":{"text":"hi"}}} */
		{"chunk", "{\"bytes\":\"eyJjb250ZW50QmxvY2tEZWx0YSI6eyJkZWx0YSI6eyJ0ZXh0IjoiaGkifX19\"}", "text(hi)"},
		{"chunk", "{\"bytes\":\"bm8ganNvbg==\"}", ""},
		{"chunk", "{\"bytes\":\"!!!!\"}", ""},
		{"chunk", "{\"bytes\":\"e\"}", ""},
		{"chunk", "{\"bytes\":\"\"}", ""},
		{"chunk", "{}", ""},
		{"chunk", "no json", ""},
		{NULL,
		 "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}],\"usage\":{\"input_tokens\":"
		 "3,\"output_tokens\":1}}",
		 "text(hi) usage:u3o1 end"},
		{NULL, "{\"choices\":[{\"message\":{\"content\":\"hi\"}}]}", "text(hi) end"},
		{NULL, "{\"message\":\"Too many requests\"}", "error(error)"},
		{NULL, "{\"__type\":\"com.amazon.coral.service#ThrottlingException\"}", "error(ThrottlingException)"},
	};

	(void)state;
	check_rows(&dialect_bedrock_invoke, rows, ARRAY_SIZE(rows));
}

static void test_bedrock_converse(void **state)
{
	static const struct row rows[] = {
		{"messageStart", "{\"role\":\"assistant\"}", ""},
		{"contentBlockStart",
		 "{\"start\":{\"toolUse\":{\"toolUseId\":\"t\",\"name\":\"ls\"}},\"contentBlockIndex\":1}",
		 "call(t) name(ls)"},
		{"contentBlockDelta", "{\"delta\":{\"text\":\"hi\"},\"contentBlockIndex\":0}", "text(hi)"},
		{"contentBlockDelta", "{\"delta\":{\"reasoningContent\":{\"text\":\"hm\"}}}", "reasons reasoning(hm)"},
		{"contentBlockDelta", "{\"delta\":{\"reasoningContent\":{\"signature\":\"s\"}}}", "reasons"},
		{"contentBlockDelta", "{\"delta\":{\"toolUse\":{\"input\":\"{\"}}}", "tool({)"},
		{"contentBlockStop", "{\"contentBlockIndex\":0}", ""},
		{"messageStop", "{\"stopReason\":\"tool_use\"}", "stop(tool_use)"},
		/* the total has the cache in it: the input has not */
		{"metadata",
		 "{\"usage\":{\"inputTokens\":5,\"outputTokens\":2,\"totalTokens\":117,\"cacheReadInputTokens\":100,"
		 "\"cacheWriteInputTokens\":10},\"metrics\":{\"latencyMs\":700}}",
		 "usage:u5r100w10o2 server: total700000us end"},
		/* it has not, and the input could have: it has */
		{"metadata",
		 "{\"usage\":{\"inputTokens\":115,\"outputTokens\":2,\"totalTokens\":117,\"cacheReadInputTokens\":100}"
		 "}",
		 "usage:i115r100o2 end"},
		/* ... and could not */
		{"metadata",
		 "{\"usage\":{\"inputTokens\":5,\"outputTokens\":2,\"totalTokens\":7,\"cacheReadInputTokens\":100}}",
		 "usage:u5r100o2 end"},
		{"metadata", "{\"usage\":{\"inputTokens\":5,\"outputTokens\":2,\"totalTokens\":7}}", "usage:u5o2 end"},
		{NULL,
		 "{\"output\":{\"message\":{\"role\":\"assistant\",\"content\":[{\"reasoningContent\":{"
		 "\"reasoningText\":{\"text\":\"hm\"}}},{\"text\":\"hi\"},{\"toolUse\":{\"toolUseId\":\"t\",\"name\":"
		 "\"ls\",\"input\":{}}}]}},\"stopReason\":\"tool_use\",\"usage\":{\"inputTokens\":5,\"outputTokens\":2,"
		 "\"totalTokens\":7},\"metrics\":{\"latencyMs\":9}}",
		 "reasons reasoning(hm) text(hi) call(t) name(ls) usage:u5o2 server: total9000us stop(tool_use) end"},
		{NULL, "{\"message\":\"The model is busy\"}", "error(error)"},
		{NULL, "{\"ok\":true}", ""},
	};

	(void)state;
	check_rows(&dialect_bedrock_converse, rows, ARRAY_SIZE(rows));
}

/* --- gemini ------------------------------------------------------------------------------------------------------ */

static void test_gemini(void **state)
{
	static const struct row rows[] = {
		{"message",
		 "{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"hm\",\"thought\":true}]}}],"
		 "\"usageMetadata\":{\"promptTokenCount\":41,\"cachedContentTokenCount\":32,\"thoughtsTokenCount\":100,"
		 "\"totalTokenCount\":141},\"modelVersion\":\"g\"}",
		 "model(g) reasons reasoning(hm) usage:i41r32o100t100"},
		{"message",
		 "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hi\"}]},\"finishReason\":\"STOP\"}],"
		 "\"usageMetadata\":{\"promptTokenCount\":41,\"candidatesTokenCount\":5,\"thoughtsTokenCount\":343,"
		 "\"totalTokenCount\":389}}",
		 "text(hi) stop(STOP) usage:i41r0o348t343"},
		/* the total shows that the thoughts are inside */
		{"message",
		 "{\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":50,\"thoughtsTokenCount\":40,"
		 "\"totalTokenCount\":60}}",
		 "usage:i10r0o50t40"},
		/* what the server's own tools read is input, and in the total */
		{"message",
		 "{\"usageMetadata\":{\"promptTokenCount\":10,\"toolUsePromptTokenCount\":7,\"candidatesTokenCount\":3,"
		 "\"totalTokenCount\":20}}",
		 "usage:i17r0o3"},
		{"message",
		 "{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"ls\",\"args\":{}}}]}}]}",
		 "call(-) name(ls) tool"},
		{"message",
		 "{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"id\":\"c\",\"name\":\"ls\"}},{"
		 "\"executableCode\":{\"code\":\"x\"}}]}}]}",
		 "call(c) name(ls) tool tool"},
		{"message",
		 "{\"candidates\":[{\"content\":{\"parts\":[{\"thoughtSignature\":\"s\"},{\"text\":\"\"}]}}]}", ""},
		{"message",
		 "{\"candidates\":[{\"content\":{\"parts\":[{\"inlineData\":{\"mimeType\":\"audio/"
		 "pcm\",\"data\":\"AA\"}},{\"inlineData\":{\"mimeType\":\"image/png\"}}]}}]}",
		 "audio text"},
		{"message", "{\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}", "stop(SAFETY)"},
		{"message", "{\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\",\"message\":\"m\"}}",
		 "error(UNAVAILABLE)"},
		{"message", "{\"error\":{\"code\":503}}", "error(503)"},
		{"message", "no json", ""},
		{NULL,
		 "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hi\"}]},\"finishReason\":\"MAX_TOKENS\"}],"
		 "\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":1,\"totalTokenCount\":5}}",
		 "text(hi) stop(MAX_TOKENS) usage:i4r0o1 end"},
		{NULL, "{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\"}}", "error(RESOURCE_EXHAUSTED)"},
		{NULL, "{\"totalTokens\":31}", ""},
	};
	static const struct row wrapped[] = {
		{"message",
		 "{\"response\":{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hi\"}]}}],\"modelVersion\":\"g\"}"
		 ",\"traceId\":\"t\"}",
		 "model(g) text(hi)"},
		{NULL,
		 "{\"response\":{\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":2,\"candidatesTokenCount\":"
		 "1}}}",
		 "usage:i2r0o1 end"},
		{NULL, "{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\"}}", "error(RESOURCE_EXHAUSTED)"},
	};
	static const struct row embed[] = {
		{NULL, "{\"embedding\":{\"values\":[0.1]}}", "end"},
		{NULL, "{\"error\":{\"status\":\"INVALID_ARGUMENT\"}}", "error(INVALID_ARGUMENT)"},
	};

	(void)state;
	check_rows(&dialect_gemini, rows, ARRAY_SIZE(rows));
	check_rows(&dialect_gemini_codeassist, wrapped, ARRAY_SIZE(wrapped));
	check_rows(&dialect_gemini_embed, embed, ARRAY_SIZE(embed));
}

/* --- others ------------------------------------------------------------------------------------------------------ */

static void test_gemini_live(void **state)
{
	static const struct row rows[] = {
		{"", "{\"setupComplete\":{}}", ""},
		{"", "{\"serverContent\":{\"inputTranscription\":{\"text\":\"hello\"}}}", ""},
		{"",
		 "{\"serverContent\":{\"modelTurn\":{\"parts\":[{\"text\":\"hm\",\"thought\":true},{\"text\":\"hi\"},"
		 "{\"inlineData\":{\"mimeType\":\"audio/pcm;rate=24000\",\"data\":\"AAAA\"}}]}}}",
		 "reasons reasoning(hm) text(hi) audio"},
		{"", "{\"serverContent\":{\"outputTranscription\":{\"text\":\"hi\"}}}", "audio(hi)"},
		{"",
		 "{\"toolCall\":{\"functionCalls\":[{\"id\":\"f1\",\"name\":\"lamp\",\"args\":{}},{\"id\":\"f2\","
		 "\"name\":\"door\"}]}}",
		 "call(f1) name(lamp) tool call(f2) name(door) tool"},
		{"", "{\"toolCallCancellation\":{\"ids\":[\"f1\"]}}", ""},
		{"", "{\"serverContent\":{\"generationComplete\":true}}", ""},
		{"", "{\"serverContent\":{\"interrupted\":true}}", "stop(interrupted)"},
		{"",
		 "{\"serverContent\":{\"turnComplete\":true},\"usageMetadata\":{\"promptTokenCount\":20,"
		 "\"responseTokenCount\":9,\"thoughtsTokenCount\":4,\"toolUsePromptTokenCount\":5,"
		 "\"totalTokenCount\":38}}",
		 "usage:i25r0o13t4 end"},
		{"", "{\"serverContent\":{\"turnComplete\":true,\"turnCompleteReason\":\"RESPONSE_REJECTED\"}}",
		 "stop(RESPONSE_REJECTED) end"},
		{"", "{\"goAway\":{\"timeLeft\":\"5s\"}}", ""},
		{"", "no json", ""},
		{NULL, "{\"error\":{\"code\":403,\"status\":\"PERMISSION_DENIED\"}}", "error(PERMISSION_DENIED)"},
	};

	(void)state;
	check_rows(&dialect_gemini_live, rows, ARRAY_SIZE(rows));
}

static void test_gemini_interactions(void **state)
{
	static const struct row rows[] = {
		{"message",
		 "{\"event_type\":\"interaction.created\",\"interaction\":{\"id\":\"i\",\"model\":\"gemini-x\","
		 "\"status\":\"in_progress\"}}",
		 "model(gemini-x)"},
		{"message", "{\"event_type\":\"interaction.status_update\",\"status\":\"in_progress\"}", ""},
		{"message", "{\"event_type\":\"step.start\",\"index\":0,\"step\":{\"type\":\"thought\"}}", "reasons"},
		{"message",
		 "{\"event_type\":\"step.delta\",\"index\":0,\"delta\":{\"type\":\"thought_summary\",\"content\":{"
		 "\"type\":\"text\",\"text\":\"hm\"}}}",
		 "reasons reasoning(hm)"},
		{"message",
		 "{\"event_type\":\"step.delta\",\"delta\":{\"type\":\"thought_signature\",\"signature\":\"s\"}}",
		 "reasons"},
		{"message", "{\"event_type\":\"step.start\",\"index\":1,\"step\":{\"type\":\"model_output\"}}", ""},
		{"message",
		 "{\"event_type\":\"step.delta\",\"index\":1,\"delta\":{\"type\":\"text\",\"text\":\"hi\"},"
		 "\"metadata\":{\"total_usage\":{\"total_input_tokens\":9,\"total_output_tokens\":1}}}",
		 "text(hi) usage:i9r0o1"},
		{"message", "{\"event_type\":\"step.delta\",\"delta\":{\"type\":\"text\",\"text\":\"\"}}", ""},
		{"message", "{\"event_type\":\"step.delta\",\"delta\":{\"type\":\"text_annotation\",\"text\":\"x\"}}",
		 ""},
		{"message", "{\"event_type\":\"step.delta\",\"delta\":{\"type\":\"audio\",\"data\":\"AA\"}}",
		 "audio(AA)"},
		{"message", "{\"event_type\":\"step.delta\",\"delta\":{\"type\":\"image\",\"data\":\"AA\"}}", "text"},
		{"message",
		 "{\"event_type\":\"step.start\",\"index\":2,\"step\":{\"type\":\"function_call\",\"id\":\"f1\","
		 "\"name\":\"lamp\",\"arguments\":{}}}",
		 "call(f1) name(lamp) tool(lamp)"},
		{"message",
		 "{\"event_type\":\"step.delta\",\"delta\":{\"type\":\"arguments_delta\",\"arguments\":\"{}\"}}",
		 "tool({})"},
		{"message", "{\"event_type\":\"step.delta\",\"delta\":{\"type\":\"google_search_call\"}}", "tool"},
		{"message", "{\"event_type\":\"step.stop\",\"index\":2,\"usage\":{\"total_input_tokens\":9}}", ""},
		{"message",
		 "{\"event_type\":\"interaction.completed\",\"interaction\":{\"status\":\"requires_action\",\"usage\":{"
		 "\"total_input_tokens\":30,\"total_cached_tokens\":10,\"total_output_tokens\":7,"
		 "\"total_thought_tokens\":5,\"total_tool_use_tokens\":2,\"total_tokens\":44}}}",
		 "usage:i32r10o12t5 stop(requires_action) end"},
		{"message", "{\"event_type\":\"error\",\"error\":{\"code\":\"resource_exhausted\"}}",
		 "error(resource_exhausted)"},
		{"done", "[DONE]", ""},
		{NULL,
		 "{\"id\":\"i\",\"model\":\"gemini-x\",\"status\":\"completed\",\"steps\":[{\"type\":\"user_input\","
		 "\"content\":[{\"type\":\"text\",\"text\":\"no\"}]},{\"type\":\"thought\",\"summary\":[{\"type\":"
		 "\"text\",\"text\":\"hm\"}]},{\"type\":\"model_output\",\"content\":[{\"type\":\"text\",\"text\":"
		 "\"hi\"}]}],\"usage\":{\"total_input_tokens\":3,\"total_output_tokens\":2}}",
		 "reasons reasoning(hm) text(hi) model(gemini-x) usage:i3r0o2 stop(completed) end"},
		{NULL, "{\"id\":\"i\",\"status\":\"in_progress\"}", ""},
		{NULL, "{\"error\":{\"code\":400,\"status\":\"INVALID_ARGUMENT\"}}", "error(INVALID_ARGUMENT)"},
		{NULL, "{\"interactions\":[]}", ""},
	};

	(void)state;
	check_rows(&dialect_gemini_interactions, rows, ARRAY_SIZE(rows));
}

static void test_lmstudio(void **state)
{
	static const struct row rows[] = {
		{"chat.start", "{\"type\":\"chat.start\",\"model_instance_id\":\"org/m\"}", "model(org/m)"},
		{"model_load.progress", "{\"type\":\"model_load.progress\",\"progress\":0.5}", ""},
		{"prompt_processing.end", "{\"type\":\"prompt_processing.end\"}", ""},
		{"reasoning.start", "{\"type\":\"reasoning.start\"}", "reasons"},
		{"reasoning.delta", "{\"type\":\"reasoning.delta\",\"content\":\"hm\"}", "reasoning(hm)"},
		{"tool_call.start", "{\"type\":\"tool_call.start\",\"tool\":\"search\"}", "tool(search)"},
		{"tool_call.arguments", "{\"type\":\"tool_call.arguments\",\"tool\":\"search\",\"arguments\":{}}",
		 "tool"},
		{"tool_call.success", "{\"type\":\"tool_call.success\",\"tool\":\"search\",\"output\":\"x\"}", ""},
		{"message.delta", "{\"type\":\"message.delta\",\"content\":\"hi\"}", "text(hi)"},
		{"message.delta", "{\"type\":\"message.delta\",\"content\":\"\"}", ""},
		{"error", "{\"type\":\"error\",\"error\":{\"type\":\"model_not_found\",\"message\":\"secret\"}}",
		 "error(model_not_found)"},
		{"chat.end",
		 "{\"type\":\"chat.end\",\"result\":{\"model_instance_id\":\"org/m\",\"output\":[{\"type\":\"message\","
		 "\"content\":\"hi\"}],\"stats\":{\"input_tokens\":329,\"total_output_tokens\":268,"
		 "\"reasoning_output_tokens\":5,\"tokens_per_second\":43.7,\"time_to_first_token_seconds\":0.781,"
		 "\"model_load_time_seconds\":1.5}}}",
		 "usage:i329o268t5 server: load1500000us first781000us end"},
		{NULL,
		 "{\"model_instance_id\":\"org/m\",\"output\":[{\"type\":\"reasoning\",\"content\":\"hm\"},{\"type\":"
		 "\"tool_call\",\"tool\":\"t\"},{\"type\":\"message\",\"content\":\"hi\"}],\"stats\":{"
		 "\"input_tokens\":3,\"total_output_tokens\":2}}",
		 "model(org/m) reasoning(hm) text(hi) usage:i3o2 end"},
		{NULL, "{\"error\":{\"type\":\"invalid_request\"}}", "error(invalid_request)"},
		{NULL, "{\"ok\":true}", ""},
	};

	(void)state;
	check_rows(&dialect_lmstudio, rows, ARRAY_SIZE(rows));
}

/* Whose server it is, and errors that are a finish reason. */
static void test_compatible_servers(void **state)
{
	static const struct row rows[] = {
		{"", "{\"choices\":[],\"x_groq\":{\"id\":\"r\"}}", "provider(groq)"},
		{"", "{\"choices\":[],\"timings\":{\"predicted_ms\":5}}",
		 "provider(llama_cpp) usage: server: decode5000us"},
		{"", "{\"id\":\"gen-1\",\"provider\":\"Acme\",\"choices\":[]}", "provider(openrouter)"},
		{"", "{\"id\":\"chatcmpl-1\",\"provider\":\"Acme\",\"choices\":[]}", ""},
		{"", "{\"system_fingerprint\":\"fp_ollama\",\"choices\":[]}", "provider(ollama)"},
		{"", "{\"system_fingerprint\":\"fp_123\",\"choices\":[]}", ""},
		{"",
		 "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_cache_hit_tokens\":4,"
		 "\"prompt_cache_miss_tokens\":5}}",
		 "provider(deepseek) usage:i9r4o2"},
		{NULL, "{\"choices\":[],\"stats\":{\"tokens_per_second\":4,\"time_to_first_token\":0.5}}",
		 "provider(lmstudio) end"},
		{"", "{\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}", "stop(error) error(error)"},
		{"",
		 "{\"error\":{\"code\":502},\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}",
		 "error(502) stop(error)"},
		{"",
		 "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"time_to_first_token\":0.25,\"total_latency\":1.5}}",
		 "usage:i9 server: first250000us total1500000us"},
		/* xAI: reasoning beside the answer's tokens; the others: inside */
		{"",
		 "{\"choices\":[],\"usage\":{\"prompt_tokens\":32,\"completion_tokens\":9,\"total_tokens\":135,"
		 "\"completion_tokens_details\":{\"reasoning_tokens\":94}}}",
		 "usage:i32o103t94"},
		{"",
		 "{\"choices\":[],\"usage\":{\"prompt_tokens\":32,\"completion_tokens\":103,\"total_tokens\":135,"
		 "\"completion_tokens_details\":{\"reasoning_tokens\":94}}}",
		 "usage:i32o103t94"},
	};

	(void)state;
	check_rows(&dialect_openai_chat, rows, ARRAY_SIZE(rows));
}

static void test_cohere(void **state)
{
	static const struct row rows[] = {
		{"message-start",
		 "{\"type\":\"message-start\",\"id\":\"1\",\"delta\":{\"message\":{\"role\":\"assistant\"}}}", ""},
		{"content-start",
		 "{\"type\":\"content-start\",\"delta\":{\"message\":{\"content\":{\"type\":\"text\",\"text\":\"\"}}}}",
		 ""},
		{"content-delta",
		 "{\"type\":\"content-delta\",\"delta\":{\"message\":{\"content\":{\"text\":\"hi\"}}}}", "text(hi)"},
		{"content-delta",
		 "{\"type\":\"content-delta\",\"delta\":{\"message\":{\"content\":{\"thinking\":\"hm\"}}}}",
		 "reasoning(hm)"},
		{"tool-plan-delta", "{\"type\":\"tool-plan-delta\",\"delta\":{\"message\":{\"tool_plan\":\"I\"}}}",
		 "reasoning(I)"},
		{"tool-call-start",
		 "{\"type\":\"tool-call-start\",\"delta\":{\"message\":{\"tool_calls\":{\"id\":\"t\",\"function\":{"
		 "\"name\":\"ls\",\"arguments\":\"\"}}}}}",
		 "call(t) name(ls) tool(ls)"},
		{"tool-call-delta",
		 "{\"type\":\"tool-call-delta\",\"delta\":{\"message\":{\"tool_calls\":{\"function\":{\"arguments\":\"{"
		 "\"}}}}}",
		 "tool({)"},
		{"message-end",
		 "{\"type\":\"message-end\",\"delta\":{\"finish_reason\":\"COMPLETE\",\"usage\":{\"billed_units\":{"
		 "\"input_tokens\":5},\"tokens\":{\"input_tokens\":50,\"output_tokens\":3},\"cached_tokens\":16}}}",
		 "usage:i50r16o3 stop(COMPLETE) end"},
		{"message-end",
		 "{\"type\":\"message-end\",\"delta\":{\"usage\":{\"tokens\":{\"input_tokens\":-5,\"output_tokens\":3}}"
		 "}}",
		 "usage:i?o3 end"},
		{"message-end",
		 "{\"type\":\"message-end\",\"delta\":{\"finish_reason\":\"ERROR\",\"error\":\"secret\"}}",
		 "stop(ERROR) error(ERROR) end"},
		{NULL,
		 "{\"id\":\"1\",\"finish_reason\":\"TOOL_CALL\",\"message\":{\"tool_plan\":\"I\",\"content\":[{"
		 "\"type\":\"text\",\"text\":\"hi\"}],\"tool_calls\":[{\"id\":\"t\",\"function\":{\"name\":\"ls\","
		 "\"arguments\":\"{}\"}}]},\"usage\":{\"tokens\":{\"input_tokens\":5,\"output_tokens\":3}}}",
		 "reasoning(I) text(hi) call(t) name(ls) tool({}) usage:i5o3 stop(TOOL_CALL) end"},
		{NULL, "{\"message\":\"invalid api token\"}", "error(error)"},
		{NULL, "{}", ""},
	};

	(void)state;
	check_rows(&dialect_cohere, rows, ARRAY_SIZE(rows));
}

static void test_ollama(void **state)
{
	static const struct row rows[] = {
		{"",
		 "{\"model\":\"l\",\"created_at\":\"t\",\"message\":{\"role\":\"assistant\",\"content\":\"hi\"},"
		 "\"done\":false}",
		 "model(l) text(hi)"},
		{"", "{\"model\":\"l\",\"message\":{\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}",
		 "model(l) reasoning(hm)"},
		{"",
		 "{\"model\":\"l\",\"message\":{\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"ls\","
		 "\"arguments\":{}}}]},\"done\":false}",
		 "model(l) call(-) name(ls) tool"},
		{"", "{\"model\":\"l\",\"response\":\"hi\",\"done\":false}", "model(l) text(hi)"},
		/* prompt_eval_count is less than the input where a cache helped: not said */
		{"",
		 "{\"model\":\"l\",\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"total_"
		 "duration\":5000000,\"load_duration\":1000000,\"prompt_eval_count\":26,\"prompt_eval_duration\":"
		 "2000000,\"eval_count\":3,\"eval_duration\":1500000}",
		 "model(l) stop(stop) usage:o3 server: load1000us prefill2000us decode1500us total5000us end"},
		{"", "{\"error\":\"an error was encountered while running the model\"}", "error(error)"},
		{NULL,
		 "{\"model\":\"l\",\"response\":\"hi\",\"done\":true,\"done_reason\":\"length\",\"eval_count\":1}",
		 "model(l) text(hi) stop(length) usage:o1 end"},
		{NULL, "{\"model\":\"l\",\"response\":\"\",\"done\":true,\"done_reason\":\"load\"}",
		 "model(l) stop(load) end"},
		{NULL, "{\"response\":\"hi\"}", ""},
	};
	static const struct row embed[] = {
		{NULL,
		 "{\"model\":\"e\",\"embeddings\":[[0.1]],\"total_duration\":14000,\"load_duration\":1000,\"prompt_"
		 "eval_count\":8}",
		 "model(e) usage:i8 server: load1us total14us end"},
		{NULL, "{\"embedding\":[0.1]}", "end"},
		{NULL, "{\"error\":\"model not found\"}", "error(error)"},
	};

	(void)state;
	check_rows(&dialect_ollama, rows, ARRAY_SIZE(rows));
	check_rows(&dialect_ollama_embed, embed, ARRAY_SIZE(embed));
}

static void test_local_servers(void **state)
{
	static const struct row llamacpp[] = {
		{"message", "{\"content\":\"hi\",\"stop\":false,\"tokens_predicted\":1}", "text(hi)"},
		{"message",
		 "{\"content\":\"\",\"stop\":true,\"model\":\"q\",\"stop_type\":\"limit\",\"tokens_predicted\":7,"
		 "\"tokens_evaluated\":120,\"timings\":{\"cache_n\":100,\"prompt_n\":20,\"prompt_ms\":10,\"predicted_"
		 "n\":7,\"predicted_ms\":70}}",
		 "model(q) stop(limit) usage:i120r100o7 server: prefill10000us decode70000us end"},
		{NULL,
		 "{\"content\":\"hi\",\"stop\":true,\"stopped_eos\":true,\"tokens_predicted\":1,\"tokens_evaluated\":"
		 "3}",
		 "text(hi) stop(eos) usage:i3o1 end"},
		{NULL, "{\"error\":{\"code\":503,\"type\":\"unavailable_error\"}}", "error(unavailable_error)"},
		{NULL, "{\"content\":1}", ""},
	};
	static const struct row tgi[] = {
		{"message",
		 "{\"index\":1,\"token\":{\"id\":1,\"text\":\"hi\",\"logprob\":-1,\"special\":false},\"generated_"
		 "text\":null,\"details\":null}",
		 "text(hi)"},
		{"message",
		 "{\"index\":2,\"token\":{\"id\":2,\"text\":\"</"
		 "s>\",\"special\":true},\"generated_text\":\"hi\",\"details\":{\"finish_reason\":\"eos_token\","
		 "\"generated_tokens\":2,\"input_length\":9}}",
		 "stop(eos_token) usage:i9o2 end"},
		{"message", "{\"error\":\"Model is overloaded\",\"error_type\":\"overloaded\"}", "error(overloaded)"},
		{NULL, "{\"generated_text\":\"hi\",\"details\":{\"finish_reason\":\"length\",\"generated_tokens\":1}}",
		 "text(hi) stop(length) usage:o1 end"},
		{NULL, "{\"error\":\"x\"}", "error(error)"},
		{NULL, "{\"text\":\"hi\"}", ""},
	};
	static const struct http_header headers[] = {
		{SV("x-prompt-tokens"), SV("9")}, {SV("x-generated-tokens"), SV("2")}, {SV("x-queue-time"), SV("3")},
		{SV("x-total-time"), SV("50")},	  {SV("x-time-per-token"), SV("no")},
	};
	const struct http_head head = {.status = 200, .headers = headers, .header_count = ARRAY_SIZE(headers)};
	struct tlog l = {0};
	struct llm_sink out = {&l,	on_token, on_usage, on_model,  on_reasoning, on_sealed, on_tool,
			       on_stop, on_error, on_end,   on_server, on_provider,  NULL};

	(void)state;
	check_rows(&dialect_llamacpp, llamacpp, ARRAY_SIZE(llamacpp));
	check_rows(&dialect_tgi, tgi, ARRAY_SIZE(tgi));
	dialect_tgi.on_head(&head, &out);
	assert_log(&l, "usage:i9o2 server: queue3000us total50000us");
	tlog_free(&l);
	dialect_tgi.on_head(&(struct http_head){.status = 200}, &out);
	assert_log(&l, "");
	dialect_bedrock_converse.on_head(
		&(struct http_head){
			.headers = &(struct http_header){SV("x-amzn-ErrorType"), SV("ThrottlingException:http://x")},
			.header_count = 1},
		&out);
	assert_log(&l, "error(ThrottlingException)");
	tlog_free(&l);
}

/* --- who claims what --------------------------------------------------------------------------------------------- */

static void test_paths(void **state)
{
	static const struct {
		const char *method, *path, *api, *model, *operation;
		enum call_class class;
		int stream;
	} rows[] = {
		{"POST", "/v1/messages", "anthropic", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/gateway/anthropic/v1/messages", "anthropic", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v1/messages/count_tokens", "anthropic", NULL, NULL, CALL_COUNT, -1},
		{"POST", "/v1/messages/batches", NULL, NULL, NULL, CALL_MAIN, -1},
		{"POST", "/messages", NULL, NULL, NULL, CALL_MAIN, -1},
		{"GET", "/v1/messages", NULL, NULL, NULL, CALL_MAIN, -1},
		{"post", "/v1/messages", NULL, NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v1/chat/completions", "openai.chat", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/chat/completions", "openai.chat", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/api/v0/chat/completions", "openai.chat", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/openai/deployments/d/chat/completions", "openai.chat", "d", NULL, CALL_MAIN, -1},
		{"POST", "/openai/deployments/d/completions", "openai.completions", "d", NULL, CALL_MAIN, -1},
		{"POST", "/openai/deployments/d/embeddings", "openai.embeddings", "d", NULL, CALL_MAIN, 0},
		{"POST", "/openai/responses", "openai.responses", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v1/completions", "openai.completions", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v1/embeddings", "openai.embeddings", NULL, NULL, CALL_MAIN, 0},
		{"POST", "/v1/responses", "openai.responses", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v1/responses/input_tokens", "openai.responses", NULL, NULL, CALL_COUNT, -1},
		{"POST", "/v1/responses/compact", "openai.responses", NULL, NULL, CALL_MAIN, 0},
		{"GET", "/v1/responses/resp_1", NULL, NULL, NULL, CALL_MAIN, -1},
		{"GET", "/v1/realtime", NULL, NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v1/realtime/calls", NULL, NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@1:rawPredict",
		 "vertex.anthropic", "claude-x@1", NULL, CALL_MAIN, -1},
		{"POST", "/v1/publishers/anthropic/models/claude-x:streamRawPredict", "vertex.anthropic", "claude-x",
		 NULL, CALL_MAIN, 1},
		{"POST", "/v1/publishers/anthropic/models/count-tokens:rawPredict", "vertex.anthropic", NULL, NULL,
		 CALL_COUNT, -1},
		{"POST", "/model/anthropic.claude%3A0/invoke", "bedrock.invoke", "anthropic.claude%3A0", NULL,
		 CALL_MAIN, 0},
		{"POST", "/model/a/invoke-with-response-stream", "bedrock.invoke", "a", NULL, CALL_MAIN, 1},
		{"POST", "/model/arn:aws:bedrock:us:1:inference-profile/x/converse", "bedrock.converse",
		 "arn:aws:bedrock:us:1:inference-profile/x", NULL, CALL_MAIN, 0},
		{"POST", "/model/a/converse-stream", "bedrock.converse", "a", NULL, CALL_MAIN, 1},
		{"GET", "/inference-profiles", NULL, NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v1beta/models/gemini-x:generateContent", "gemini", "gemini-x", NULL, CALL_MAIN, 0},
		{"POST", "/v1beta/models/gemini-x:streamGenerateContent", "gemini", "gemini-x", NULL, CALL_MAIN, 1},
		{"POST", "/v1/publishers/google/models/gemini-x:streamGenerateContent", "gemini", "gemini-x", NULL,
		 CALL_MAIN, 1},
		{"POST", "/v1beta/models/gemini-x:countTokens", "gemini", "gemini-x", NULL, CALL_COUNT, -1},
		{"POST", "/v1beta/models/e:embedContent", "gemini", "e", NULL, CALL_MAIN, 0},
		{"POST", "/v1beta/models/e:batchEmbedContents", "gemini", "e", NULL, CALL_MAIN, 0},
		{"POST", "/v1beta/interactions", "gemini.interactions", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v1beta/interactions/i1/cancel", NULL, NULL, NULL, CALL_MAIN, -1},
		{"POST", "/interactions", NULL, NULL, NULL, CALL_MAIN, -1},
		{"POST", "/video/interactions", NULL, NULL, NULL, CALL_MAIN, -1},
		{"POST", "/api/v1/chat", "lmstudio", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v1internal:streamGenerateContent", "gemini.codeassist", NULL, NULL, CALL_MAIN, 1},
		{"POST", "/v1internal:generateContent", "gemini.codeassist", NULL, NULL, CALL_MAIN, 0},
		{"POST", "/v1internal:countTokens", "gemini.codeassist", NULL, NULL, CALL_COUNT, -1},
		{"POST", ":generateContent", NULL, NULL, NULL, CALL_MAIN, -1},
		{"POST", "/v2/chat", "cohere.v2", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/api/chat", "ollama", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/api/generate", "ollama", NULL, "text_completion", CALL_MAIN, -1},
		{"POST", "/api/embed", "ollama.embed", NULL, NULL, CALL_MAIN, 0},
		{"POST", "/api/embeddings", "ollama.embed", NULL, NULL, CALL_MAIN, 0},
		{"POST", "/completion", "llamacpp", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/infill", "llamacpp", NULL, NULL, CALL_MAIN, -1},
		{"POST", "/generate", "tgi", NULL, NULL, CALL_MAIN, 0},
		{"POST", "/generate_stream", "tgi", NULL, NULL, CALL_MAIN, 1},
		{"POST", "/log", NULL, NULL, NULL, CALL_MAIN, -1},
		{"POST", "/api/event_logging/v2/batch", NULL, NULL, NULL, CALL_MAIN, -1},
		{"HEAD", "/api/hello", NULL, NULL, NULL, CALL_MAIN, -1},
		{"", "", NULL, NULL, NULL, CALL_MAIN, -1},
	};
	static const struct dialect *const all[] = {
#define X(name) &dialect_##name,
		DIALECTS(X)
#undef X
	};
	bool claimed[ARRAY_SIZE(all)] = {false};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct dialect_path said;
		const struct dialect *d = dialect_by_path(sv_of(rows[i].method), sv_of(rows[i].path), &said);

		if (!d != !rows[i].api || (d && strcmp(d->api, rows[i].api) != 0))
			fail_msg("%s is %s", rows[i].path, d ? d->api : "nobody's");
		if (!d)
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(all); k++)
			claimed[k] |= all[k] == d;
		assert_int_equal(said.class, rows[i].class);
		assert_int_equal(said.stream, rows[i].stream);
		assert_true(sv_eq(said.model, sv_of(rows[i].model)));
		assert_string_equal(said.operation ? said.operation : "", rows[i].operation ? rows[i].operation : "");
	}
	for (size_t k = 0; k < ARRAY_SIZE(all); k++)
		if (all[k]->match && !claimed[k])
			fail_msg("no path of these is one of %s (number %zu): another dialect has them", all[k]->api,
				 k);
	assert_null(dialect_by_path(SV_NONE, SV_NONE, &(struct dialect_path){0}));
	assert_ptr_equal(dialect_by_upgrade(SV("/v1/responses")), &dialect_openai_responses);
	assert_ptr_equal(dialect_by_upgrade(SV("/backend-api/codex/responses")), &dialect_openai_responses);
	assert_ptr_equal(dialect_by_upgrade(SV("/v1/realtime")), &dialect_openai_realtime);
	assert_null(dialect_by_upgrade(SV("/socket")));
	assert_true(dialect_path_excluded(SV("/api/event_logging/v2/batch")));
	assert_true(dialect_path_excluded(SV("/v1/messages/batches")));
	assert_false(dialect_path_excluded(SV("/gateway/anything")));
	assert_false(dialect_path_excluded(SV_NONE));
}

static void test_marks(void **state)
{
	static const struct {
		unsigned marks;
		const struct dialect *dialect;
		bool sure;
	} rows[] = {
		{0, NULL, false},
		{MARK_MODEL, NULL, false},
		{MARK_MODEL | MARK_LIMIT, NULL, false},
		{MARK_MESSAGES, &dialect_openai_chat, false},
		{MARK_MESSAGES | MARK_MODEL, &dialect_openai_chat, false},
		{MARK_MESSAGES | MARK_ROLE | MARK_MODEL | MARK_LIMIT, &dialect_openai_chat, true},
		{MARK_MESSAGES | MARK_ROLE | MARK_MODEL | MARK_LIMIT | MARK_SYSTEM, &dialect_anthropic, true},
		{MARK_MESSAGES | MARK_ROLE | MARK_ANTHROPIC, &dialect_anthropic, false},
		{MARK_CONTENTS, &dialect_gemini, false},
		{MARK_CONTENTS | MARK_PARTS, &dialect_gemini, true},
		{MARK_INPUT | MARK_RESPONSES, &dialect_openai_responses, false},
		{MARK_INPUT | MARK_RESPONSES | MARK_MODEL, &dialect_openai_responses, true},
		{MARK_INPUT | MARK_MODEL, &dialect_openai_embeddings, false},
		{MARK_PROMPT, NULL, false},
		{MARK_PROMPT | MARK_MODEL, &dialect_openai_completions, false},
		{MARK_MESSAGES | MARK_ROLE | MARK_MODEL | MARK_LIMIT | MARK_JSONRPC, NULL, false},
	};
	bool sure;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_ptr_equal(dialect_by_marks(rows[i].marks, &sure), rows[i].dialect);
		assert_int_equal(sure, rows[i].sure);
	}
}

/* A document's cost is bounded, and it has to be an object. */
static void test_parse(void **state)
{
	size_t len = 2 * DIALECT_NODES_MAX + 64;
	char *text = malloc(len);
	bool too_many;
	cJSON *doc;

	(void)state;
	assert_non_null(text);
	memset(text, ',', len);
	memcpy(text, "{\"a\":[1", 7);
	assert_null(dialect_parse((struct sv){text, len}, &too_many));
	assert_true(too_many);
	assert_null(dialect_parse(SV("[1]"), &too_many));
	assert_false(too_many);
	assert_null(dialect_parse(SV_NONE, &too_many));
	assert_null(dialect_parse(SV("{\"a\""), &too_many));
	doc = dialect_parse(SV(" \r\n{\"a\":1}"), &too_many);
	assert_int_equal(json_get_count(doc, "a"), 1);
	cJSON_Delete(doc);
	free(text);
}

/* A text ends where it ends, not at a NUL in it. */
static void test_parse_nuls(void **state)
{
	static const struct {
		const char *json, *want;
	} rows[] = {
		{"{\"a\":\"\\u0000\"}", "\xef\xbf\xbd"},
		{"{\"a\":\"x\\u0000y\\u0000\"}", "x\xef\xbf\xbdy\xef\xbf\xbd"},
		{"{\"a\":\"\\\\\\u0000\"}", "\\\xef\xbf\xbd"},
		{"{\"a\":\"\\\\u0000\"}", "\\u0000"}, /* a backslash and five characters */
		{"{\"a\":\"\\u0000\\\\u0000\"}", "\xef\xbf\xbd\\u0000"},
		{"{\"b\":\"\\u0000\",\"a\\u0000\":\"no\",\"a\":\"yes\"}", "yes"},
		{"{\"a\":\"u0000\"}", "u0000"},
	};
	bool too_many;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cJSON *doc = dialect_parse(sv_of(rows[i].json), &too_many);

		assert_string_equal(json_get_string(doc, "a").ptr, rows[i].want);
		cJSON_Delete(doc);
	}
	for (size_t len = 1; len <= strlen(rows[0].json); len++) {
		struct guard g = {0};
		const char *text = (const char *)guard_copy(&g, rows[0].json, len);
		cJSON *doc = dialect_parse((struct sv){text, len}, &too_many);

		assert_int_equal(!doc, len < strlen(rows[0].json));
		cJSON_Delete(doc);
		guard_free(&g);
	}
}

static void test_documents(void **state)
{
	static const struct {
		const char *json;
		const struct dialect *dialect;
	} rows[] = {
		{"{\"type\":\"message_start\",\"message\":{}}", &dialect_anthropic},
		{"{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\"}}", &dialect_anthropic},
		{"{\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}", &dialect_anthropic},
		{"{\"type\":\"message\",\"content\":\"chat room\"}", NULL},
		{"{\"type\":\"message_start\"}", NULL},
		{"{\"type\":\"ping\"}", NULL},
		{"{\"type\":\"response.created\",\"response\":{}}", &dialect_openai_responses},
		{"{\"type\":\"response.output_text.delta\",\"delta\":\"x\"}", &dialect_openai_responses},
		{"{\"object\":\"response\",\"output\":[]}", &dialect_openai_responses},
		{"{\"type\":\"response.x\"}", NULL},
		{"{\"object\":\"chat.completion.chunk\",\"choices\":[]}", &dialect_openai_chat},
		{"{\"object\":\"chat.completion\",\"choices\":[]}", &dialect_openai_chat},
		{"{\"choices\":[\"red\",\"blue\"]}", NULL},
		{"{\"event_type\":\"interaction.created\",\"interaction\":{}}", &dialect_gemini_interactions},
		{"{\"event_type\":\"step.delta\",\"index\":0,\"delta\":{}}", &dialect_gemini_interactions},
		{"{\"event_type\":\"step.delta\"}", NULL},
		{"{\"object\":\"interaction\",\"steps\":[]}", &dialect_gemini_interactions},
		{"{\"serverContent\":{\"modelTurn\":{\"parts\":[]}}}", &dialect_gemini_live},
		{"{\"serverContent\":{\"turnComplete\":true}}", &dialect_gemini_live},
		{"{\"toolCall\":{\"functionCalls\":[]}}", &dialect_gemini_live},
		{"{\"serverContent\":{\"page\":1}}", NULL},
		{"{\"type\":\"chat.start\",\"model_instance_id\":\"m\"}", &dialect_lmstudio},
		{"{\"type\":\"chat.start\"}", NULL},
		{"{\"type\":\"chat.end\",\"result\":{}}", &dialect_lmstudio},
		{"{\"model\":\"claude-x\",\"event\":\"telemetry\"}", NULL},
		{"[]", NULL},
		{"bad", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cJSON *doc = cJSON_Parse(rows[i].json);

		if (dialect_by_document(SV_NONE, doc) != rows[i].dialect)
			fail_msg("wrong verdict on %s", rows[i].json);
		cJSON_Delete(doc);
	}
}

static void test_providers(void **state)
{
	static const struct {
		const struct dialect *dialect;
		const char *host, *path, *provider;
	} rows[] = {
		{&dialect_anthropic, "api.anthropic.com", "/v1/messages", "anthropic"},
		{&dialect_anthropic, "API.Anthropic.com:443", "/v1/messages", "anthropic"},
		{&dialect_anthropic, "api.anthropic.test", "/v1/messages", "anthropic"},
		{&dialect_anthropic, "openrouter.ai", "/api/v1/messages", "openrouter"},
		{&dialect_anthropic, "bedrock-mantle.us-east-1.api.aws", "/anthropic/v1/messages", "aws.bedrock"},
		{&dialect_openai_chat, "api.openai.com", "/v1/chat/completions", "openai"},
		{&dialect_openai_chat, "eu.api.openai.com", "/v1/chat/completions", "openai"},
		{&dialect_openai_chat, "x.openai.azure.com", "/openai/v1/chat/completions", "azure.ai.openai"},
		{&dialect_openai_chat, "gateway", "/openai/deployments/d/chat/completions", "azure.ai.openai"},
		{&dialect_openai_chat, "api.deepseek.com", "/chat/completions", "deepseek"},
		{&dialect_openai_chat, "api.groq.com", "/openai/v1/chat/completions", "groq"},
		{&dialect_openai_chat, "api.mistral.ai", "/v1/chat/completions", "mistral_ai"},
		{&dialect_openai_chat, "us-east5-aiplatform.googleapis.com", "/v1/chat/completions", "gcp.vertex_ai"},
		{&dialect_openai_chat, "api.deepseek.com.evil.test", "/chat/completions", "openai"},
		{&dialect_openai_chat, "[::1]:8080", "/v1/chat/completions", "openai"},
		{&dialect_openai_responses, "chatgpt.com", "/backend-api/codex/responses", "openai"},
		{&dialect_openai_responses, "", "", "openai"},
		{&dialect_gemini, "generativelanguage.googleapis.com", "/v1beta/models/g:generateContent",
		 "gcp.gemini"},
		{&dialect_gemini, "gl.googleapis.test", "/v1beta/models/g:generateContent", "gcp.gemini"},
		{&dialect_gemini, "x", "/v1/publishers/google/models/g:generateContent", "gcp.vertex_ai"},
		{&dialect_gemini, "aiplatform.googleapis.com", "/v1/publishers/google/models/g:x", "gcp.vertex_ai"},
		{&dialect_vertex_anthropic, "x", "/v1/publishers/anthropic/models/c:rawPredict", "gcp.vertex_ai"},
		{&dialect_gemini_codeassist, "cloudcode-pa.googleapis.com", "/v1internal:generateContent",
		 "gcp.gen_ai"},
		{&dialect_bedrock_invoke, "bedrock-runtime.eu-west-1.amazonaws.com", "/model/a/invoke", "aws.bedrock"},
		{&dialect_bedrock_converse, "localhost", "/model/a/converse", "aws.bedrock"},
		{&dialect_ollama, "localhost:11434", "/api/chat", "ollama"},
		{&dialect_cohere, "api.cohere.com", "/v2/chat", "cohere"},
		{&dialect_llamacpp, "localhost:8080", "/completion", "llama_cpp"},
		{&dialect_gemini_live, "generativelanguage.googleapis.com", "/ws/x.BidiGenerateContent", "gcp.gemini"},
		{&dialect_gemini_live, "h", "/ws/google.cloud.aiplatform.v1.LlmBidiService/BidiGenerateContent",
		 "gcp.vertex_ai"},
		{NULL, "example.com", "/", "_OTHER"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(dialect_provider(rows[i].dialect, sv_of(rows[i].host), sv_of(rows[i].path), NULL),
				    rows[i].provider);
	assert_string_equal(dialect_provider(&dialect_openai_chat, SV_NONE, SV_NONE, NULL), "openai");
	/* what the answer tells is asked where neither path nor host does */
	assert_string_equal(dialect_provider(&dialect_openai_chat, SV("gateway"), SV("/chat/completions"), "groq"),
			    "groq");
	assert_string_equal(dialect_provider(&dialect_openai_chat, SV("api.openai.com"), SV("/x"), "groq"), "openai");
}

/* --- call.c: derived numbers ------------------------------------------------------------------------------------- */

static struct call good_call(void)
{
	struct call c;

	call_init(&c);
	c.start_ns = 1000000000;
	c.first_token_ns = 1500000000;
	c.last_token_ns = 2500000000;
	c.end_ns = 3000000000;
	c.usage = (struct usage){USAGE_REPORTED, 60, 40, 0, 100, 51, 0, false};
	return c;
}

static void test_derived(void **state)
{
	struct call c = good_call();

	(void)state;
	assert_true(call_ms(&c, c.first_token_ns) == 500.0);
	assert_true(call_ms(&c, 999000000) == -1.0);
	assert_true(isnan(call_ms(&c, UNKNOWN_NS)));
	assert_true(call_cache_hit_rate(&c) == 0.4);
	assert_true(call_itps(&c) == 200.0);
	assert_true(call_otps(&c) == 25.5);
	assert_true(call_decode_tok_s(&c) == 50.0);
	assert_true(call_tpot_ms(&c) == 20.0);
}

/* Each way in which one number is not known, and no other one is touched. */
static void test_unknown(void **state)
{
	struct call c;

	(void)state;
	call_init(&c);
	assert_true(isnan(call_ms(&c, 5)) && isnan(call_itps(&c)) && isnan(call_otps(&c)) &&
		    isnan(call_decode_tok_s(&c)) && isnan(call_tpot_ms(&c)) && isnan(call_cache_hit_rate(&c)));
	c = good_call();
	c.usage.output_total = 1;
	assert_true(isnan(call_decode_tok_s(&c)) && isnan(call_tpot_ms(&c)) && call_otps(&c) == 0.5);
	c = good_call();
	c.last_token_ns = c.first_token_ns;
	assert_true(isnan(call_decode_tok_s(&c)));
	c = good_call();
	c.hidden_reasoning = true;
	assert_true(isnan(call_decode_tok_s(&c)) && call_itps(&c) == 200.0);
	c = good_call();
	c.usage.source = USAGE_PARTIAL;
	c.usage.unfinished = true;
	assert_true(isnan(call_decode_tok_s(&c)) && isnan(call_otps(&c)) && call_itps(&c) == 200.0);
	assert_true(call_output_total(&c) == UNKNOWN_COUNT && !call_counts_left_out(&c));
	c.usage.unfinished = false;
	assert_true(call_decode_tok_s(&c) == 50.0 && call_otps(&c) == 25.5 && call_itps(&c) == 200.0);
	assert_true(call_output_total(&c) == c.usage.output_total && call_counts_left_out(&c));
	c = good_call();
	c.lossy = true;
	assert_true(isnan(call_decode_tok_s(&c)) && call_otps(&c) == 25.5);
	c = good_call();
	c.mid_attach = true;
	assert_true(isnan(call_ms(&c, c.end_ns)) && isnan(call_itps(&c)) && isnan(call_otps(&c)) &&
		    call_decode_tok_s(&c) == 50.0);
	c.start_known = true; /* only its headers were missed */
	assert_true(call_ms(&c, c.first_token_ns) == 500.0 && call_itps(&c) == 200.0 && call_otps(&c) == 25.5);
	c = good_call();
	c.usage.input_total = 0;
	assert_true(isnan(call_cache_hit_rate(&c)) && call_itps(&c) == 0.0);
	c = good_call();
	c.usage.source = USAGE_NONE;
	assert_true(isnan(call_cache_hit_rate(&c)) && isnan(call_itps(&c)) && isnan(call_otps(&c)));
	c = good_call();
	c.end_ns = c.start_ns;
	assert_true(isnan(call_otps(&c)));
	c.unfinished = true;
	assert_true(isnan(call_otps(&c)));
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(call_class_name(CALL_MAIN), "main");
	assert_string_equal(call_class_name(CALL_COUNT), "count");
	assert_null(token_kind_name(TOKEN_NONE));
	assert_string_equal(token_kind_name(TOKEN_AUDIO), "audio");
	assert_null(usage_source_name(USAGE_NONE));
	assert_string_equal(usage_source_name(USAGE_ESTIMATED), "estimated");
	assert_null(end_reason_name(END_COMPLETE));
	assert_string_equal(end_reason_name(END_CLIENT_ABORT), "client_abort");
	assert_string_equal(end_reason_name(END_CAPTURE_END), "capture_end");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_anthropic_events),
		cmocka_unit_test(test_anthropic_documents),
		cmocka_unit_test(test_chat_events),
		cmocka_unit_test(test_chat_documents),
		cmocka_unit_test(test_responses_events),
		cmocka_unit_test(test_responses_documents),
		cmocka_unit_test(test_completions),
		cmocka_unit_test(test_embeddings),
		cmocka_unit_test(test_realtime),
		cmocka_unit_test(test_chat_extensions),
		cmocka_unit_test(test_vertex_anthropic),
		cmocka_unit_test(test_bedrock_invoke),
		cmocka_unit_test(test_bedrock_converse),
		cmocka_unit_test(test_gemini),
		cmocka_unit_test(test_gemini_live),
		cmocka_unit_test(test_gemini_interactions),
		cmocka_unit_test(test_lmstudio),
		cmocka_unit_test(test_compatible_servers),
		cmocka_unit_test(test_cohere),
		cmocka_unit_test(test_ollama),
		cmocka_unit_test(test_local_servers),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_marks),
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_parse_nuls),
		cmocka_unit_test(test_documents),
		cmocka_unit_test(test_providers),
		cmocka_unit_test(test_derived),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
