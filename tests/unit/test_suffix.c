/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "flow/llm/pace.h"
#include "flow/llm/request.h"

static void read_body(struct call *c, const char *body, size_t piece)
{
	struct lost lost = {0};
	struct request *r = request_new(NULL, NULL, &lost);
	struct request_facts facts;
	struct stamp at = {0};

	call_init(c);
	assert_non_null(r);
	for (size_t i = 0, len = strlen(body); i < len; i += piece)
		request_push(r, (const uint8_t *)body + i, len - i < piece ? len - i : piece, &at);
	request_report(r, true, &facts);
	request_take_suffix(r, c);
	request_free(r);
	assert_int_equal(lost.n[LOST_NO_MEMORY], 0);
}

static void log_call(struct tlog *log, const struct call *c)
{
	static const char *const names[] = {"unknown", "human", "results", "continue", "notice"};

	tlog_printf(log, "%s", names[c->trigger]);
	for (size_t i = 0; i < c->result_count; i++)
		tlog_printf(log, " %s/%s %lld%s", c->results[i].id ? c->results[i].id : "-",
			    c->results[i].name ? c->results[i].name : "-", (long long)c->results[i].bytes,
			    c->results[i].is_error > 0 ? " error" : "");
}

static const struct {
	const char *body, *golden;
} rows[] = {
	/* Anthropic */
	{"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "human"},
	{"{\"messages\":[{\"content\":[{\"text\":\"hi\",\"type\":\"text\"}],\"role\":\"user\"}]}", "human"},
	{"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":[{\"type\":"
	 "\"tool_use\",\"id\":\"t1\",\"name\":\"Bash\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"tool_use_"
	 "id\":"
	 "\"t1\",\"type\":\"tool_result\",\"content\":\"12345\",\"is_error\":true},{\"type\":\"tool_result\","
	 "\"content\":"
	 "[{\"type\":\"text\",\"text\":\"123\"}],\"tool_use_id\":\"t2\"},{\"type\":\"text\",\"text\":"
	 "\"<system-reminder>x\"}]}]}",
	 "results t1/- 5 error t2/- 3"},
	{"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"old\"}]},{"
	 "\"role\":"
	 "\"assistant\",\"content\":\"done\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
	 "\" <system-reminder>x\"},{\"type\":\"text\",\"text\":\"go on\"}]}]}",
	 "human"},
	{"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<task-notification>\"}]}]}",
	 "notice"},
	{"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"well\"}]}",
	 "continue"},
	{"{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"user\",\"content\":[{\"type\":"
	 "\"image\","
	 "\"source\":{}}]}]}",
	 "human"},
	/* OpenAI chat, Mistral, Cohere */
	{"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"name\":\"Bob\",\"content\":"
	 "\"hi\"},"
	 "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c1\",\"function\":{\"name\":\"f\"}}]},{\"role\":\"tool\","
	 "\"tool_call_id\":\"c1\",\"content\":\"1234\"},{\"content\":[{\"type\":\"text\",\"text\":\"12\"}],"
	 "\"tool_call_id\":\"c2\",\"role\":\"tool\"}]}",
	 "results c1/- 4 c2/- 2"},
	{"{\"messages\":[{\"role\":\"user\",\"name\":\"Bob\",\"content\":\"hi\"}]}", "human"},
	/* Ollama */
	{"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"},{\"role\":\"tool\",\"content\":\"ab\",\"tool_name\":"
	 "\"weather\"}]}",
	 "results -/weather 2"},
	/* Responses */
	{"{\"input\":\"hi\"}", "human"},
	{"{\"previous_response_id\":\"r\",\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"k\",\"output\":"
	 "\"123456\"}]}",
	 "results k/- 6"},
	{"{\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"hi\"}]},"
	 "{"
	 "\"type\":\"reasoning\",\"summary\":[]},{\"type\":\"function_call\",\"call_id\":\"k\",\"name\":\"shell\","
	 "\"arguments\":\"{}\"},{\"type\":\"custom_tool_call_output\",\"call_id\":\"k\",\"output\":\"1\"}]}",
	 "results k/- 1"},
	{"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"<environment_context>\"}]}]}",
	 "notice"},
	/* Gemini */
	{"{\"contents\":[{\"role\":\"user\",\"parts\":[{\"text\":\"hi\"}]},{\"role\":\"model\",\"parts\":[{"
	 "\"functionCall\":{\"name\":\"ls\"}}]},{\"role\":\"user\",\"parts\":[{\"functionResponse\":{\"id\":\"g1\","
	 "\"name\":\"ls\",\"response\":{\"output\":\"12345678\"}}},{\"functionResponse\":{\"name\":\"cat\"}}]}]}",
	 "results g1/ls 8 -/cat 0"},
	/* Converse */
	{"{\"messages\":[{\"role\":\"user\",\"content\":[{\"toolResult\":{\"toolUseId\":\"v\",\"status\":\"error\","
	 "\"content\":[{\"text\":\"123\"}]}}]}]}",
	 "results v/- 3 error"},
	{"{\"messages\":[]}", "unknown"},
	{"{\"messages\":[{\"role\":\"user\",\"content\":\"cut", "unknown"},
};

static void test_triggers(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (size_t piece = 1; piece < 8192; piece *= 90) {
			struct tlog log = {0};
			struct call c;

			read_body(&c, rows[i].body, piece);
			log_call(&log, &c);
			if (strcmp(log.text, rows[i].golden))
				print_error("row %zu: ", i);
			assert_string_equal(log.text, rows[i].golden);
			tlog_free(&log);
			call_release(&c);
		}
}

static uint64_t conversation(const char *body)
{
	struct call c;
	uint64_t hash;

	read_body(&c, body, 4096);
	hash = c.conversation;
	call_release(&c);
	return hash;
}

static void test_conversation(void **state)
{
	uint64_t a = conversation("{\"system\":\"S\",\"messages\":[{\"role\":\"user\",\"content\":\"one\"}]}");

	(void)state;
	assert_true(a != 0);
	/* goes on; the order of members is no matter */
	assert_int_equal(a,
			 conversation("{\"messages\":[{\"role\":\"user\",\"content\":\"one\"},{\"role\":\"assistant\","
				      "\"content\":\"x\"},{\"role\":\"user\",\"content\":\"two\"}],\"system\":\"S\"}"));
	/* another system prompt, another first message, other tools */
	assert_true(a != conversation("{\"system\":\"T\",\"messages\":[{\"role\":\"user\",\"content\":\"one\"}]}"));
	assert_true(a != conversation("{\"system\":\"S\",\"messages\":[{\"role\":\"user\",\"content\":\"two\"}]}"));
	assert_true(a != conversation("{\"system\":\"S\",\"tools\":[{\"name\":\"f\"}],\"messages\":[{\"role\":\"user\","
				      "\"content\":\"one\"}]}"));
	/* the system prompt among the messages is the same thing */
	assert_int_equal(a, conversation("{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
					 "\"content\":\"one\"}]}"));
	/* increments: what is sent first is no first message */
	assert_int_equal(conversation("{\"instructions\":\"S\",\"previous_response_id\":\"a\",\"input\":\"x\"}"),
			 conversation("{\"instructions\":\"S\",\"previous_response_id\":\"b\",\"input\":\"y\"}"));
	assert_int_equal(conversation("{\"model\":\"m\"}"), 0);
}

/* More results than are kept: the first ones are. */
static void test_cap(void **state)
{
	struct tlog body = {0};
	struct call c;

	(void)state;
	tlog_printf(&body, "{\"messages\":[{\"role\":\"user\",\"content\":[");
	for (int i = 0; i < 3 * CALL_RESULTS_MAX; i++)
		tlog_printf(&body, "%s{\"type\":\"tool_result\",\"tool_use_id\":\"t%d\",\"content\":\"x\"}",
			    i ? "," : "", i);
	tlog_printf(&body, "]}]}");
	read_body(&c, body.text, 1000);
	assert_int_equal(c.result_count, CALL_RESULTS_MAX);
	assert_string_equal(c.results[CALL_RESULTS_MAX - 1].id, "t127");
	call_release(&c);
	tlog_free(&body);
}

#define MS 1000000ull

static void test_pace(void **state)
{
	struct pace p = {0};
	struct call c;

	(void)state;
	call_init(&c);
	for (uint64_t i = 0; i < 100; i++) /* 20 ms apart, thinking then text */
		assert_int_equal(pace_push(&p, i < 40 ? TOKEN_REASONING : TOKEN_TEXT, i * 20 * MS, true), 0);
	assert_int_equal(pace_push(&p, TOKEN_TOOL, 99 * 20 * MS, false), 0); /* in the same event */
	assert_int_equal(pace_push(&p, TOKEN_TOOL, 5000 * MS, true), 0);
	pace_report(&p, &c);
	assert_int_equal(c.chunks, 101);
	assert_int_equal(c.stalls, 1);
	assert_int_equal(c.stall_count, 1);
	assert_int_equal(c.stall_at[0].begin_ns, 1980 * MS);
	assert_int_equal(c.stall_at[0].end_ns, 5000 * MS);
	assert_int_equal(c.max_gap_ns, 3020 * MS);
	assert_true(c.gap_p50_ns > 19 * (int64_t)MS && c.gap_p50_ns < 21 * (int64_t)MS);
	assert_int_equal(c.segment_count, 3);
	assert_int_equal(c.segments[0].at.end_ns, 39 * 20 * MS);
	assert_int_equal(c.segments[1].kind, TOKEN_TEXT);
	assert_int_equal(c.segments[1].chunks, 60);
	assert_int_equal(c.segments[2].at.end_ns, 5000 * MS);
	pace_release(&p);
	/* What hangs after a chunk has stalled until its end; told as often as asked. */
	assert_int_equal(pace_push(&p, TOKEN_TEXT, 100 * MS, true), 0);
	for (int i = 0; i < 2; i++) {
		call_init(&c);
		c.end_ns = 1100 * MS;
		pace_report(&p, &c);
		pace_report_end(&p, &c);
		assert_true(c.stalls == 0 && c.stall_count == 0 && c.max_gap_ns == UNKNOWN_COUNT);
		c.end_ns = 9100 * MS;
		pace_report_end(&p, &c);
		assert_true(c.stalls == 1 && c.stall_count == 1 && c.max_gap_ns == UNKNOWN_COUNT);
		assert_true(c.stall_at[0].begin_ns == 100 * MS && c.stall_at[0].end_ns == 9100 * MS);
	}
	assert_int_equal(pace_push(&p, TOKEN_TEXT, 3100 * MS, true), 0);
	call_init(&c);
	c.end_ns = 5200 * MS;
	pace_report(&p, &c);
	pace_report_end(&p, &c);
	assert_true(c.stalls == 2 && c.stall_count == 2 && c.max_gap_ns == 3000 * (int64_t)MS);
	assert_true(c.stall_at[0].end_ns == 3100 * MS && c.stall_at[1].begin_ns == 3100 * MS);
	pace_release(&p);
	call_init(&c);
	c.end_ns = 9000 * MS;
	pace_report(&p, &c); /* nothing came: that is the wait for the first token */
	pace_report_end(&p, &c);
	assert_true(c.stalls == 0 && c.stall_count == 0);
	/* The highest of few is no percentile. */
	for (uint64_t i = 0; i < 21; i++) {
		pace_push(&p, TOKEN_TEXT, i * i * MS, true);
		call_init(&c);
		pace_report(&p, &c);
		assert_true((c.gap_p50_ns != UNKNOWN_COUNT) == (i > 0));
		assert_true((c.gap_p95_ns != UNKNOWN_COUNT) == (i > 19));
	}
	assert_true(c.gap_p95_ns > 36 * (int64_t)MS && c.gap_p95_ns < 39 * (int64_t)MS);
	pace_release(&p);
	/* Changing kinds all the time: bounded. */
	for (uint64_t i = 0; i < 1000; i++)
		pace_push(&p, i % 2 ? TOKEN_TEXT : TOKEN_REASONING, i * 2000 * MS, true);
	call_init(&c);
	pace_report(&p, &c);
	assert_int_equal(c.segment_count, CALL_SEGMENTS_MAX);
	assert_int_equal(c.segments_left_out, 1000 - CALL_SEGMENTS_MAX);
	assert_int_equal(c.stalls, 999);
	assert_int_equal(c.stall_count, CALL_STALLS_MAX);
	c.end_ns = 2100000 * MS;
	pace_report_end(&p, &c);
	assert_true(c.stalls == 1000 && c.stall_count == CALL_STALLS_MAX);
	pace_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_triggers),
		cmocka_unit_test(test_conversation),
		cmocka_unit_test(test_cap),
		cmocka_unit_test(test_pace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
