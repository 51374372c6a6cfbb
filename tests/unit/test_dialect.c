/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <math.h>

#include "base/err.h"
#include "flow/llm/dialect.h"

/* --- what a dialect says, as a line
 * ------------------------------------------------------------------------------------ */

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

struct row {
	const char *event; /* NULL: a unary document */
	const char *json;
	const char *golden;
};

static void check_rows(const struct dialect *d, const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct tlog l = {0};
		struct llm_sink out = {&l,	on_token, on_usage, on_model, on_reasoning,
				       on_tool, on_stop,  on_error, on_end};
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

/* --- anthropic
 * -------------------------------------------------------------------------------------------------------- */

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
		 "reasons reasoning"},
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

/* --- openai.chat
 * ------------------------------------------------------------------------------------------------------ */

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
		{"message", "{\"choices\":[],\"x_groq\":{\"usage\":{\"prompt_tokens\":8}}}", "usage:i8"},
		{"message", "{\"choices\":[],\"usage\":{\"prompt_tokens\":-3,\"completion_tokens\":1.5}}", "usage:"},
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

/* --- openai.responses
 * ------------------------------------------------------------------------------------------------- */

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

/* --- who claims what
 * -------------------------------------------------------------------------------------------------- */

static void test_paths(void **state)
{
	static const struct {
		const char *method, *path, *api;
		enum call_class class;
	} rows[] = {
		{"POST", "/v1/messages", "anthropic", CALL_MAIN},
		{"POST", "/gateway/anthropic/v1/messages", "anthropic", CALL_MAIN},
		{"POST", "/v1/messages/count_tokens", "anthropic", CALL_COUNT},
		{"POST", "/v1/messages/batches", NULL, CALL_MAIN},
		{"POST", "/messages", NULL, CALL_MAIN},
		{"GET", "/v1/messages", NULL, CALL_MAIN},
		{"post", "/v1/messages", NULL, CALL_MAIN},
		{"POST", "/v1/chat/completions", "openai.chat", CALL_MAIN},
		{"POST", "/chat/completions", "openai.chat", CALL_MAIN},
		{"POST", "/openai/deployments/d/chat/completions", "openai.chat", CALL_MAIN},
		{"POST", "/v1/completions", NULL, CALL_MAIN},
		{"POST", "/v1/responses", "openai.responses", CALL_MAIN},
		{"POST", "/v1/responses/input_tokens", "openai.responses", CALL_COUNT},
		{"POST", "/v1/responses/compact", NULL, CALL_MAIN},
		{"GET", "/v1/responses/resp_1", NULL, CALL_MAIN},
		{"POST", "/api/event_logging/v2/batch", NULL, CALL_MAIN},
		{"HEAD", "/api/hello", NULL, CALL_MAIN},
		{"", "", NULL, CALL_MAIN},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		enum call_class class = CALL_AUX;
		const struct dialect *d = dialect_by_path(sv_of(rows[i].method), sv_of(rows[i].path), &class);

		if (!rows[i].api) {
			assert_null(d);
			continue;
		}
		assert_non_null(d);
		assert_string_equal(d->api, rows[i].api);
		assert_int_equal(class, rows[i].class);
	}
	assert_null(dialect_by_path(SV_NONE, SV_NONE, &(enum call_class){0}));
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
		{"{\"model\":\"claude-x\",\"event\":\"telemetry\"}", NULL},
		{"[]", NULL},
		{"bad", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cJSON *doc = cJSON_Parse(rows[i].json);

		if (dialect_by_document(doc) != rows[i].dialect)
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
		{NULL, "example.com", "/", "_OTHER"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(dialect_provider(rows[i].dialect, sv_of(rows[i].host), sv_of(rows[i].path)),
				    rows[i].provider);
	assert_string_equal(dialect_provider(&dialect_openai_chat, SV_NONE, SV_NONE), "openai");
}

/* --- call.c: derived numbers
 * ------------------------------------------------------------------------------------------ */

static struct call good_call(void)
{
	struct call c;

	call_init(&c);
	c.start_ns = 1000000000;
	c.first_token_ns = 1500000000;
	c.last_token_ns = 2500000000;
	c.end_ns = 3000000000;
	c.usage = (struct usage){USAGE_REPORTED, 60, 40, 0, 100, 51, 0};
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
	assert_true(isnan(call_decode_tok_s(&c)) && isnan(call_otps(&c)) && call_itps(&c) == 200.0);
	c = good_call();
	c.lossy = true;
	assert_true(isnan(call_decode_tok_s(&c)) && call_otps(&c) == 25.5);
	c = good_call();
	c.mid_attach = true;
	assert_true(isnan(call_ms(&c, c.end_ns)) && isnan(call_itps(&c)) && isnan(call_otps(&c)) &&
		    call_decode_tok_s(&c) == 50.0);
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
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_documents),
		cmocka_unit_test(test_providers),
		cmocka_unit_test(test_derived),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
