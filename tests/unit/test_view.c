/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>

#include "base/err.h"
#include "base/json.h"
#include "base/lost.h"
#include "make_call.h"
#include "view/format.h"
#include "view/views.h"

#define START (5000 * MS)
#define S     (1000 * MS)

static const struct agent_place place = {.agent = 1, .turn = 3}, nowhere;
static const struct proc agent = {
	.key = {.tgid = 42, .start_ns = 1}, .ppid = 7, .shown_pid = 42, .name = "agent", .exe = "/usr/bin/agent"};

/* --- call records ------------------------------------------------------------------------------------------------ */

static cJSON *record_of(const struct call *c, const struct proc *p, int64_t offset, bool content)
{
	struct buf out;
	cJSON *o;

	buf_init(&out, 0);
	assert_int_equal(view_call_json(&out, c, p, &place, START, offset, content), 0);
	assert_ptr_equal(memchr(out.ptr, '\n', out.len), out.ptr + out.len - 1);
	o = cJSON_ParseWithLength(out.ptr, out.len);
	assert_non_null(o);
	buf_release(&out);
	return o;
}

static void assert_record(struct call *c, const struct proc *p, int64_t offset, bool content, const char *golden)
{
	struct buf out;

	buf_init(&out, 0);
	assert_int_equal(view_call_json(&out, c, p, p ? &place : &nowhere, START, offset, content), 0);
	assert_string_equal(buf_cstr(&out), golden);
	buf_release(&out);
	call_release(c);
}

static void a_full_record(void **state)
{
	struct call c;

	(void)state;
	make_call(&c, 9, 42, START + S + 1);
	add_setup(&c);
	add_tool(&c, "toolu_1", "Read");
	add_tool(&c, NULL, NULL);
	c.trigger = CALL_TRIGGER_TOOL_RESULTS;
	c.results = calloc(2, sizeof(*c.results));
	assert_non_null(c.results);
	c.results[c.result_count++] = (struct tool_result){strdup("toolu_0"), NULL, 12, -1};
	c.results[c.result_count++] = (struct tool_result){NULL, strdup("Bash"), UNKNOWN_COUNT, 1};
	c.text = strdup("h\xc3\xa9 \"ok\"");
	c.text_len = strlen(c.text);
	c.attempt = 2;
	c.retry_of = 8;
	c.retry_wait_ns = 1500000;
	c.stop_reason[3] = '\x1b';
	c.server.load_ns = 1500000;
	c.server.total_ns = 9000000;
	assert_record(
		&c, &agent, 1700000000000000000, true,
		"{\"type\":\"call\",\"id\":9,\"pid\":42,\"tid\":43,\"process\":\"agent\",\"agent\":null,\"exe\":\"/usr/"
		"bin/"
		"agent\",\"ppid\":7,"
		"\"start_ms\":1000.000001,\"start_time\":\"2023-11-14T22:13:26.000000001Z\",\"protocol\":\"http/1.1\","
		"\"method\":\"POST\",\"path\":\"/v1/messages\",\"host\":\"api.example.com\",\"status\":200,"
		"\"api\":\"anthropic\",\"provider\":\"anthropic\",\"operation\":\"chat\",\"model\":\"claude-test-1\","
		"\"request_model\":\"claude-test\",\"class\":\"main\",\"stream\":true,"
		"\"session_id\":\"7e6b1f9e-58a5-4d0c-9d0f-5e6d0e1b2c3d\",\"agent_id\":null,\"parent_agent_id\":null,"
		"\"turn\":3,\"agent_index\":1,\"peer\":{\"ip\":\"192.0.2.7\",\"port\":443},\"connect_ms\":20.000000,"
		"\"tls_ms\":25.000000,"
		"\"tls_approximate\":false,\"dns_ms\":null,\"send_ms\":2.000000,\"ttfb_ms\":100.000000,"
		"\"ttft_ms\":200.000000,\"ttft_visible_ms\":200.000000,\"ttft_kind\":\"text\",\"last_token_ms\":1200."
		"000000,"
		"\"max_gap_ms\":30.000000,\"stalls\":0,\"chunks\":101,\"usage\":{\"input_uncached\":36,\"cache_read\":"
		"64,"
		"\"cache_write\":0,\"input_total\":100,\"output_total\":101,\"reasoning\":0,\"source\":\"reported\"},"
		"\"cache_hit_rate\":0.640000,\"itps\":500.000,\"otps\":83.471,\"decode_tok_s\":100.000,"
		"\"tpot_ms\":10.000000,\"server\":{\"queue_ms\":null,\"load_ms\":1.500000,\"prefill_ms\":null,\"decode_"
		"ms\":null,"
		"\"first_token_ms\":null,\"total_ms\":9.000000},\"stop_reason\":\"end\\u001bturn\",\"error\":null,"
		"\"complete\":true,\"end_"
		"reason\":null,"
		"\"exit\":null,\"evicted\":false,\"end_ms\":1210.000000,\"lossy\":false,\"lost_bytes\":0,"
		"\"mid_attach\":false,\"undecoded\":null,\"request_truncated\":false,\"attempt\":2,\"retry_of\":8,"
		"\"retry_wait_ms\":1.500000,\"tool_calls\":[{\"id\":\"toolu_1\",\"name\":\"Read\"},{\"id\":null,"
		"\"name\":null}],\"trigger\":\"tool_results\",\"tool_results\":[{\"id\":\"toolu_0\",\"name\":null,"
		"\"bytes\":12,"
		"\"is_error\":null},{\"id\":null,\"name\":\"Bash\",\"bytes\":null,\"is_error\":true}],"
		"\"request_bytes\":12345,\"response_bytes\":6789,\"request\":{\"messages\":3,\"tools\":12,"
		"\"system_bytes\":2048,\"max_tokens\":4096,\"thinking\":true},\"retransmits\":0,\"srtt_us\":15000,"
		"\"text\":\"h\xc3\xa9 \\\"ok\\\"\"}\n");
}

/* A request of one write of which the return alone was seen. */
static void a_write_without_its_entry(void **state)
{
	struct call c;
	struct buf out;

	(void)state;
	make_call(&c, 1, 42, START);
	c.send_end_ns = c.start_ns;
	buf_init(&out, 0);
	assert_int_equal(view_call_json(&out, &c, NULL, &nowhere, START, 0, false), 0);
	assert_non_null(strstr(buf_cstr(&out), "\"send_ms\":null,\"ttfb_ms\":"));
	buf_release(&out);
	call_release(&c);
}

/* Nothing known: every field is still there, and null; without --content there is no text. */
static void an_empty_record(void **state)
{
	struct call c;

	(void)state;
	call_init(&c);
	c.id = 1;
	c.end = END_EVICTED;
	c.text = strdup("secret");
	c.text_len = 6;
	c.stop_reason = strdup("");
	c.tls_approximate = true;
	assert_record(
		&c, NULL, 0, false,
		"{\"type\":\"call\",\"id\":1,\"pid\":0,\"tid\":0,\"process\":null,\"agent\":null,\"exe\":null,\"ppid\":"
		"null,"
		"\"start_ms\":null,\"start_time\":null,\"protocol\":null,\"method\":null,\"path\":null,\"host\":null,"
		"\"status\":null,\"api\":null,\"provider\":null,\"operation\":null,\"model\":null,"
		"\"request_model\":null,\"class\":\"main\",\"stream\":null,\"session_id\":null,\"agent_id\":null,"
		"\"parent_agent_id\":null,\"turn\":null,\"agent_index\":0,\"peer\":null,\"connect_ms\":null,\"tls_ms\":"
		"null,"
		"\"tls_approximate\":false,\"dns_ms\":null,\"send_ms\":null,\"ttfb_ms\":null,\"ttft_ms\":null,"
		"\"ttft_visible_ms\":null,\"ttft_kind\":null,\"last_token_ms\":null,\"max_gap_ms\":null,"
		"\"stalls\":null,\"chunks\":null,\"usage\":null,\"cache_hit_rate\":null,\"itps\":null,\"otps\":null,"
		"\"decode_tok_s\":null,\"tpot_ms\":null,\"server\":null,\"stop_reason\":null,\"error\":null,"
		"\"complete\":false,"
		"\"end_reason\":\"evicted\",\"exit\":null,\"evicted\":true,\"end_ms\":null,\"lossy\":false,"
		"\"lost_bytes\":0,\"mid_attach\":false,\"undecoded\":null,\"request_truncated\":false,\"attempt\":1,"
		"\"retry_of\":null,\"retry_wait_ms\":null,\"tool_calls\":null,\"trigger\":null,\"tool_results\":null,"
		"\"request_bytes\":null,"
		"\"response_bytes\":null,\"request\":{\"messages\":null,\"tools\":null,\"system_bytes\":null,"
		"\"max_tokens\":null,\"thinking\":null},\"retransmits\":null,\"srtt_us\":null}\n");
}

static void record_of_a_killed_program(void **state)
{
	struct call c;
	cJSON *o;

	(void)state;
	make_call(&c, 1, 42, START - 2 * S); /* began before the trace did */
	c.end = END_PROCESS_EXIT;
	c.exit_signal = 9;
	c.lossy = true;
	c.lost_bytes = UNKNOWN_COUNT;
	c.peer = (struct sock_addr){.family = AF_INET6, .port = 8443, .ip = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}};
	o = record_of(&c, &agent, 0, false);
	assert_true(json_get(json_get(o, "exit"), "code")->valuedouble == 0);
	assert_true(json_get(json_get(o, "exit"), "signal")->valuedouble == 9);
	assert_string_equal(json_get_string(o, "end_reason").ptr, "process_exit");
	assert_true(cJSON_IsFalse(json_get(o, "complete")));
	assert_true(json_get_true(o, "lossy"));
	assert_true(cJSON_IsNull(json_get(o, "lost_bytes")));
	assert_true(cJSON_IsNull(json_get(o, "tool_calls"))); /* not read to its end: none seen is not none */
	assert_true(cJSON_IsNull(json_get(o, "start_time")));
	assert_true(json_get(o, "start_ms")->valuedouble == -2000);
	assert_string_equal(json_get_string(json_get(o, "peer"), "ip").ptr, "2001:db8::1");
	cJSON_Delete(o);
	call_release(&c);
}

static void complete_without_tools_is_an_empty_list(void **state)
{
	struct call c;
	cJSON *o;

	(void)state;
	make_call(&c, 1, 42, START);
	o = record_of(&c, &agent, 0, true);
	assert_true(cJSON_IsArray(json_get(o, "tool_calls")) && cJSON_GetArraySize(json_get(o, "tool_calls")) == 0);
	assert_true(cJSON_IsNull(json_get(o, "text")));
	cJSON_Delete(o);
	call_release(&c);
}

static void captured_bytes_are_valid_json(void **state)
{
	struct proc p = agent;
	struct call c;
	cJSON *o;

	(void)state;
	make_call(&c, 1, 42, START);
	strcpy(p.name, "\xff\x1b]0;pwned\x07");
	c.error = strdup("x\x1b[8m");
	o = record_of(&c, &p, 0, false);
	assert_string_equal(json_get_string(o, "process").ptr, "\xef\xbf\xbd\x1b]0;pwned\x07");
	assert_string_equal(json_get_string(o, "error").ptr, "x\x1b[8m");
	cJSON_Delete(o);
	call_release(&c);
}

static void no_half_records(void **state)
{
	bool done = false;
	struct call c;

	(void)state;
	make_call(&c, 1, 42, START);
	for (unsigned n = 1; !done; n++) {
		struct buf out;
		int err;

		buf_init(&out, 0);
		assert_int_equal(buf_puts(&out, "before\n"), 0);
		fail_nth(n);
		err = n % 2 ? view_call_json(&out, &c, &agent, &place, START, 1, true)
			    : view_call_line(&out, &c, &agent, START);
		done = !fail_nth_hit() && n % 2;
		assert_int_equal(err, fail_nth_hit() ? -ENOMEM : 0);
		fail_nth(0);
		if (err)
			assert_int_equal(out.len, 7);
		buf_release(&out);
		assert_true(n < 100);
	}
	call_release(&c);
}

/* --- live lines -------------------------------------------------------------------------------------------------- */

static void assert_line(struct call *c, const struct proc *p, const char *golden)
{
	struct buf out;

	buf_init(&out, 0);
	assert_int_equal(view_call_line(&out, c, p, START), 0);
	assert_string_equal(buf_cstr(&out), golden);
	buf_release(&out);
	call_release(c);
}

static void live_lines(void **state)
{
	struct call c;

	(void)state;
	make_call(&c, 1, 42, START + 12345 * MS);
	assert_line(
		&c, &agent,
		"  12.345s agent[42]        claude-test-1        200  ttft  200ms  total  1.21s  in   100 (64% cached)"
		"  out   101   100 tok/s  end_turn\n");
	call_init(&c);
	assert_line(
		&c, NULL,
		"        - -[0]             -                      -  ttft      -  total      -  in     - (- cached)"
		"  out     -     - tok/s\n");
	make_call(&c, 1, 42, START);
	c.end = END_EVICTED;
	c.lossy = c.mid_attach = c.unfinished = true;
	c.undecoded = strdup("br");
	c.error = strdup("overloaded_error");
	c.class = CALL_AUX;
	c.attempt = 3;
	c.status = 529;
	assert_line(
		&c, &agent,
		"   0.000s agent[42]        claude-test-1        529  ttft      -  total      -  in   100 (64% cached)"
		"  out   101     - tok/s  end_turn  class=aux  attempt=3  error=overloaded_error  evicted  unfinished"
		"  lossy  mid-attach  undecoded br\n");
}

/* Of a whole answer each count that is good is shown, whatever is wrong with the others. */
static void a_line_without_some_counts(void **state)
{
	struct call c;

	(void)state;
	make_call(&c, 1, 42, START);
	c.usage = (struct usage){USAGE_PARTIAL, -1, -1, -1, -1, 101, 0, false};
	assert_line(
		&c, &agent,
		"   0.000s agent[42]        claude-test-1        200  ttft  200ms  total  1.21s  in     - (- cached)"
		"  out   101   100 tok/s  end_turn\n");
	make_call(&c, 1, 42, START);
	c.usage = (struct usage){USAGE_PARTIAL, 36, 64, 0, 100, -1, -1, false};
	assert_line(
		&c, &agent,
		"   0.000s agent[42]        claude-test-1        200  ttft  200ms  total  1.21s  in   100 (64% cached)"
		"  out     -     - tok/s  end_turn\n");
	make_call(&c, 1, 42, START);
	c.usage.source = USAGE_PARTIAL;
	c.usage.unfinished = true;
	assert_line(
		&c, &agent,
		"   0.000s agent[42]        claude-test-1        200  ttft  200ms  total  1.21s  in   100 (64% cached)"
		"  out     -     - tok/s  end_turn\n");
}

static void a_line_for_a_turn(void **state)
{
	struct turn t = {.at = {START + 2 * S, START + 12 * S},
			 .shown_pid = 42,
			 .steps = 3,
			 .tools = 2,
			 .model = "claude\x1b]0;x\x07",
			 .model_share = 1,
			 .wall = {.total_ns = 10 * S}};
	struct buf out;

	(void)state;
	t.wall.part_ns[PART_TOOL] = 7 * S;
	t.wall.part_ns[PART_FIRST_TOKEN] = 3 * S;
	buf_init(&out, 0);
	assert_int_equal(view_turn_line(&out, &t, START), 0);
	assert_string_equal(
		buf_cstr(&out),
		"   2.000s turn[42]         steps 3, tools 2: 70 % of 10.0 s was tools; first token 30 % of "
		"claude\xef\xbf\xbd]0;x\xef\xbf\xbd; confidence high\n");
	buf_clear(&out);
	t.steps = 1; /* its call's line says it all */
	assert_int_equal(view_turn_line(&out, &t, START), 0);
	assert_int_equal(out.len, 0);
	buf_release(&out);
}

/* Captured text must not drive the terminal: every captured field is full of what would. */
static void no_control_bytes_reach_the_terminal(void **state)
{
	static const char evil[] = "\x1b]0;title\x07\x1b[2J\r\n\x08\x7f\xc2\x9b"
				   "31m\xe2\x80\xae\xff end";
	struct proc p = agent;
	struct call c;
	struct buf out;

	(void)state;
	make_call(&c, 1, 42, START);
	snprintf(p.name, sizeof(p.name), "%s", evil);
	free(c.model);
	free(c.stop_reason);
	c.model = strdup(evil);
	c.stop_reason = strdup(evil);
	c.error = strdup(evil);
	c.undecoded = strdup(evil);
	buf_init(&out, 0);
	assert_int_equal(view_call_line(&out, &c, &p, START), 0);
	for (size_t i = 0; i < out.len; i++) {
		assert_true((uint8_t)out.ptr[i] >= 0x20 || i == out.len - 1);
		assert_int_not_equal((uint8_t)out.ptr[i], 0x7f);
	}
	buf_putc(&out, '\0');
	assert_null(strstr(out.ptr, "\xc2\x9b"));
	assert_null(strstr(out.ptr, "\xe2\x80\xae"));
	buf_release(&out);
	call_release(&c);
}

static void formats(void **state)
{
	static const struct {
		double ms;
		const char *text;
	} times[] = {{0, "0.00ms"},    {0.8123, "0.81ms"}, {9.994, "9.99ms"},  {9.996, "10.0ms"},  {99.94, "99.9ms"},
		     {99.96, "100ms"}, {812.3, "812ms"},   {999.6, "1.00s"},   {4214, "4.21s"},	   {59949, "59.9s"},
		     {59951, "1m00s"}, {187000, "3m07s"},  {7500000, "2h05m"}, {3599600, "1h00m"}, {NAN, "-"},
		     {INFINITY, "-"},  {1e300, "-"},	   {-5, "-5ms"}};
	static const struct {
		int64_t count;
		const char *text;
	} counts[] = {{-1, "-"},	{0, "0"},	   {999, "999"},       {1000, "1.00k"},	       {12345, "12.3k"},
		      {999499, "999k"}, {999600, "1.00M"}, {4560000, "4.56M"}, {INT64_MAX, "9223372T"}};
	char out[FORMAT_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		assert_string_equal(format_ms(out, times[i].ms), times[i].text);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		assert_string_equal(format_count(out, counts[i].count), counts[i].text);
	assert_string_equal(format_rate(out, 152.4), "152");
	assert_string_equal(format_rate(out, NAN), "-");
	assert_string_equal(format_percent(out, 0.64), "64%");
	assert_string_equal(format_percent(out, 0.996), "99%");
	assert_string_equal(format_percent(out, 1), "100%");
	assert_string_equal(format_percent(out, 0), "0%");
}

/* --- summary ----------------------------------------------------------------------------------------------------- */

/* A summary, with what it tells of. */
struct told {
	struct lost lost;
	struct coverage *coverage;
	struct summary *s;
	char *text; /* of the last told_text() */
};

static void told_open(struct told *t)
{
	*t = (struct told){0};
	t->coverage = coverage_new(&t->lost);
	t->s = summary_new();
	assert_true(t->coverage && t->s);
}

static const char *told_text(struct told *t)
{
	struct buf out;

	buf_init(&out, 0);
	assert_int_equal(summary_render(t->s, &out, &t->lost, t->coverage, 90 * S), 0);
	free(t->text);
	t->text = strdup(buf_cstr(&out));
	buf_release(&out);
	assert_non_null(t->text);
	return t->text;
}

static void told_holds(struct told *t, const char *part)
{
	if (!strstr(told_text(t), part))
		fail_msg("want %s in\n%s", part, t->text);
}

static void told_close(struct told *t)
{
	free(t->text);
	summary_free(t->s);
	coverage_free(t->coverage);
}

static void an_empty_summary(void **state)
{
	struct told t;

	(void)state;
	told_open(&t);
	assert_string_equal(told_text(&t),
			    "0 model calls in 1m30s\n"
			    "  tokens         in - (- cached)  out -\n"
			    "  ttft           p50       -  p90       -  p95       -  p99       -  (0 calls)\n"
			    "  decode tok/s   p50       -  p90       -  p95       -  p99       -  (0 calls)\n"
			    "  total          p50       -  p90       -  p95       -  p99       -  (0 calls)\n"
			    "nothing lost\n"
			    "coverage: no TLS or HTTP connection carried anything\n");
	told_close(&t);
}

/* Programs close a stream whose terminal event they have read: that is a call like others. */
static void left_when_whole(void **state)
{
	struct told t;
	struct call c;

	(void)state;
	make_call(&c, 1, 42, START);
	c.end = END_CLIENT_ABORT;
	c.whole = true;
	told_open(&t);
	summary_push(t.s, &c);
	assert_null(strstr(told_text(&t), "not finished"));
	told_holds(&t, "  total          p50   1.21s ");
	told_close(&t);
	assert_line(
		&c, &agent,
		"   0.000s agent[42]        claude-test-1        200  ttft  200ms  total  1.21s  in   100 (64% cached)"
		"  out   101   100 tok/s  end_turn\n");
}

/* Counts that a call does not state are not 0, and that they are missing is said. */
static void counts_that_are_missing(void **state)
{
	static const struct {
		enum usage_source source;
		int64_t input, output;
		const char *operation, *want;
	} rows[] = {
		{USAGE_REPORTED, -1, 7, "chat", "  tokens         in - (- cached)  out 7  (1 call without a count)\n"},
		{USAGE_REPORTED, 9, -1, "chat", "  tokens         in 9 (- cached)  out -  (1 call without a count)\n"},
		{USAGE_REPORTED, 9, -1, "embeddings", "  tokens         in 9 (- cached)  out -\n"},
		{USAGE_REPORTED, 0, 0, "chat", "  tokens         in 0 (- cached)  out 0\n"},
		/* of a whole answer: some contradicted each other, these are good */
		{USAGE_PARTIAL, -1, 7, "chat", "  tokens         in - (- cached)  out 7  (1 call without a count)\n"},
		{USAGE_PARTIAL, 9, -1, "chat", "  tokens         in 9 (- cached)  out -  (1 call without a count)\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct told t;
		struct call c;

		told_open(&t);
		make_call(&c, 1, 42, START);
		c.usage = (struct usage){rows[i].source, -1, -1, -1, rows[i].input, rows[i].output, -1, false};
		c.operation = rows[i].operation;
		summary_push(t.s, &c);
		call_release(&c);
		told_holds(&t, rows[i].want);
		told_close(&t);
	}
}

/* Of which tokens the share of the cache is, where not all calls say what was cached. */
static void cached_of_those_that_say(void **state)
{
	static const struct {
		int64_t input, cached;
		const char *want;
	} steps[] = {
		{1000, -1, "  tokens         in 1.00k (- cached)  out"},
		{3000, 1500, "  tokens         in 4.00k (50% of 3.00k cached)  out"},
		{-1, -1, "  tokens         in 4.00k (50% of 3.00k cached)  out"},
		{2000, 0, "  tokens         in 6.00k (30% of 5.00k cached)  out"},
	};
	struct told t;

	(void)state;
	told_open(&t);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		struct call c;

		make_call(&c, 1, 42, START);
		c.usage = (struct usage){USAGE_REPORTED, -1, steps[i].cached, -1, steps[i].input, 5, -1, false};
		summary_push(t.s, &c);
		call_release(&c);
		told_holds(&t, steps[i].want);
	}
	told_close(&t);
}

/* What a call that was cut short had reported by then is not its output. */
static void output_of_a_part(void **state)
{
	struct told t;
	struct call c;

	(void)state;
	told_open(&t);
	make_call(&c, 1, 42, START);
	c.usage = (struct usage){USAGE_PARTIAL, -1, -1, -1, 9, 1, -1, true};
	assert_int_equal(call_output_total(&c), UNKNOWN_COUNT);
	summary_push(t.s, &c);
	call_release(&c);
	told_holds(&t, "  tokens         in 9 (- cached)  out -  (1 call without a count)\n");
	told_close(&t);
}

/* A gateway that is traced with who asks it: the sums have what it passed on twice, and that is said. */
static void calls_to_a_gateway(void **state)
{
	struct told t;
	struct call c;

	(void)state;
	told_open(&t);
	make_call(&c, 1, 42, START);
	summary_push(t.s, &c);
	assert_null(strstr(told_text(&t), "twice"));
	c.to_caller = true;
	summary_push(t.s, &c);
	call_release(&c);
	told_holds(
		&t,
		"  1 of the calls went to a process that is traced too and makes calls itself: those that it passed on "
		"are counted twice\n");
	told_close(&t);
}

/* TTFT 1..200 ms: numpy.percentile gives 100.5, 180.1, 190.05, 198.01. */
static void push_ttfts(struct summary *s)
{
	for (uint64_t i = 200; i >= 1; i--) {
		struct call c;

		make_call(&c, i, 42, START);
		c.ttfb_ns = c.start_ns + MS / 2;
		c.send_end_ns = c.start_ns + MS / 4;
		c.first_token_ns = c.start_ns + i * MS;
		c.last_token_ns = c.first_token_ns + 100 * MS;
		c.end_ns = c.start_ns + 1000 * MS;
		summary_push(s, &c);
		call_release(&c);
	}
}

static void percentiles_leave_out_what_failed(void **state)
{
	static const enum call_class helpers[] = {CALL_AUX, CALL_PREWARM, CALL_COUNT};
	struct told t;
	struct call c;

	(void)state;
	told_open(&t);
	push_ttfts(t.s);
	for (int i = 0; i < 8; i++) {
		make_call(&c, 1000, 42, START);
		c.first_token_ns = c.start_ns + 100000 * MS;
		c.end_ns = c.first_token_ns + 1;
		c.usage.source = USAGE_NONE;
		if (i < 3)
			c.class = helpers[i];
		else if (i == 3)
			c.error = strdup("overloaded_error");
		else if (i == 4)
			c.status = 500;
		else if (i == 5)
			c.end = END_SERVER_ABORT;
		else if (i == 6)
			c.lossy = true;
		else
			c.unfinished = true;
		summary_push(t.s, &c);
		call_release(&c);
	}
	assert_string_equal(
		told_text(&t),
		"208 model calls in 1m30s, 205 main, 1 aux, 1 prewarm, 1 count, 2 failed, 2 not finished, 1 lossy\n"
		"  tokens         in 20.0k (64% cached)  out 20.2k  (8 calls without a count)\n"
		"  ttft           p50   100ms  p90   180ms  p95   190ms  p99   198ms  (200 calls)\n"
		"  decode tok/s   p50    1000  p90    1000  p95    1000  p99    1000  (200 calls)\n"
		"  total          p50   1.00s  p90   1.00s  p95   1.00s  p99   1.00s  (200 calls)\n"
		"nothing lost\ncoverage: no TLS or HTTP connection carried anything\n");
	told_close(&t);
}

/* Two values: the median lies between them; so few have no tail. */
static void few_calls_are_interpolated(void **state)
{
	struct told t;

	(void)state;
	told_open(&t);
	for (int i = 0; i < 2; i++) {
		struct call c;

		make_call(&c, 1, 42, START);
		c.first_token_ns = c.start_ns + (i ? 200 : 100) * MS;
		c.usage.cache_read = i ? 100 : 0;
		summary_push(t.s, &c);
		call_release(&c);
	}
	told_holds(&t, "ttft           p50   150ms  p90       -  p95       -  p99       -  (2 calls)");
	told_holds(&t, "in 200 (50% cached)");
	told_close(&t);
}

/* Only where there were some; times only of tools that were called to their end. */
static void mcp_is_counted(void **state)
{
	struct mcp_call c = {.method = (char *)"tools/call", .end_ns = 10 * MS};
	struct told t;

	(void)state;
	told_open(&t);
	assert_null(strstr(told_text(&t), "MCP"));
	summary_push_mcp(t.s, &c);
	c.end_ns = 30 * MS;
	summary_push_mcp(t.s, &c);
	c.error = (char *)"tool_error";
	summary_push_mcp(t.s, &c);
	c.error = NULL;
	c.end = END_SERVER_ABORT;
	summary_push_mcp(t.s, &c);
	c.end = END_COMPLETE;
	c.method = (char *)"tools/list";
	summary_push_mcp(t.s, &c);
	told_holds(&t, "5 MCP requests, 1 failed, 1 not finished\n"
		       "  tool call      p50  20.0ms  p90       -  p95       -  p99       -  (2 calls)\n");
	told_close(&t);
}

/* Past the reservoir the percentiles are those of a fair sample, and the summary says so. */
static void database_record(void **state)
{
	struct db_command c = {
		.proc = {.tgid = 9},
		.system = "mysql",
		.shape = SV("SELECT \"x\"\n?"),
		.start_ns = START + 1500000,
		.end_ns = START + 2000000,
		.rows = 0,
		.tid = 10,
	};
	struct buf out;

	(void)state;
	buf_init(&out, 0);
	assert_int_equal(view_db_json(&out, &c, NULL, START), 0);
	assert_string_equal(
		buf_cstr(&out),
		"{\"type\":\"db\",\"pid\":9,\"tid\":10,\"process\":null,\"start_ms\":1.500000,\"system\":\"mysql\","
		"\"shape\":\"SELECT \\\"x\\\"\\n?\",\"dur_ms\":0.500000,\"rows\":0,\"error\":null,"
		"\"complete\":true}\n");
	buf_clear(&out);
	/* Unknown is null; before the beginning of the trace is negative; a command never takes less than nothing. */
	c = (struct db_command){.proc = {.tgid = 9},
				.system = "redis",
				.start_ns = START - 1000000,
				.end_ns = START - 2000000,
				.rows = -1,
				.error = "ERR",
				.unfinished = true};
	assert_int_equal(view_db_json(&out, &c, NULL, START), 0);
	assert_string_equal(
		buf_cstr(&out),
		"{\"type\":\"db\",\"pid\":9,\"tid\":0,\"process\":null,\"start_ms\":-1.000000,\"system\":\"redis\","
		"\"shape\":null,\"dur_ms\":0.000000,\"rows\":null,\"error\":\"ERR\",\"complete\":false}\n");
	buf_clear(&out);
	for (unsigned n = 1, hit = 1; hit; n++) {
		struct buf fresh;
		int err;

		buf_init(&fresh, 0);
		fail_nth(n);
		err = view_db_json(&fresh, &c, NULL, START);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
		assert_true(!hit || !fresh.len);
		buf_release(&fresh);
	}
	buf_release(&out);
}

static void http_record(void **state)
{
	char method[] = "GET", path[] = "/a", route[] = "/a", host[] = "h";
	struct http_operation o = {
		.id = 3,
		.conn = {.tgid = 9},
		.conn_id = 5,
		.server = true,
		.protocol = "http/2",
		.method = method,
		.path = path,
		.route = route,
		.host = host,
		.status = 404,
		.tid = 10,
		.response_tid = 11,
		.start_ns = START + 1500000,
		.ttfb_ns = START + 1750000,
		.end_ns = START + 2000000,
		.request_bytes = 7,
		.response_bytes = 8,
	};
	struct buf out;

	(void)state;
	buf_init(&out, 0);
	assert_int_equal(view_http_json(&out, &o, NULL, START, 0), 0);
	assert_string_equal(
		buf_cstr(&out),
		"{\"type\":\"http\",\"id\":3,\"pid\":9,\"tid\":10,\"response_tid\":11,\"process\":null,"
		"\"connection_id\":5,\"start_ms\":1.500000,\"start_time\":null,\"side\":\"server\",\"protocol\":\"http/"
		"2\","
		"\"method\":\"GET\",\"path\":\"/a\",\"route\":\"/a\",\"operation\":null,\"host\":\"h\",\"status\":404,"
		"\"peer\":null,\"dur_ms\":0.500000,\"ttfb_ms\":0.250000,\"request_bytes\":7,\"response_bytes\":8,"
		"\"complete\":true,\"end_reason\":null,\"lossy\":false,\"mid_attach\":false}\n");
	buf_clear(&out);
	/* Met in the middle nothing is measured from its start. */
	o = (struct http_operation){.id = 4,
				    .conn = {.tgid = 9},
				    .start_ns = START,
				    .ttfb_ns = START,
				    .end_ns = START + 5,
				    .request_bytes = -1,
				    .response_bytes = -1,
				    .end = END_CLIENT_ABORT,
				    .lossy = true,
				    .mid_attach = true};
	assert_int_equal(view_http_json(&out, &o, NULL, START, 0), 0);
	assert_non_null(strstr(buf_cstr(&out), "\"tid\":null,\"response_tid\":null,"));
	assert_non_null(strstr(buf_cstr(&out), "\"side\":\"client\",\"protocol\":null,"));
	assert_non_null(strstr(buf_cstr(&out), "\"dur_ms\":null,\"ttfb_ms\":null,\"request_bytes\":null,"));
	assert_non_null(strstr(buf_cstr(&out), "\"complete\":false,\"end_reason\":\"client_abort\",\"lossy\":true,"));
	buf_release(&out);
}

/* Those that took longest together come first; what is no text of ours stays off the terminal. */
static void shape_table(void **state)
{
	const struct shape_words commands = {"database command", "", "shape", true};
	const struct shape_words requests = {"HTTP request", " served", "route", false};
	struct shape_table *t = shape_table_new();
	char text[16];
	struct buf out;

	(void)state;
	buf_init(&out, 0);
	assert_int_equal(shape_table_render(t, &out, &commands), 0);
	assert_int_equal(out.len, 0);
	shape_table_push(t, SV("redis -"), 2000000, -1, false);
	shape_table_push(t, SV("redis GET\x1b?"), 1500000, -1, false);
	shape_table_push(t, SV("redis GET\x1b?"), 1500000, 7, true);
	shape_table_push(t, SV("redis BLPOP ?"), UNKNOWN_NS, -1, false);
	assert_int_equal(shape_table_render(t, &out, &commands), 0);
	assert_string_equal(buf_cstr(&out), "4 database commands\n"
					    "     count      p50    total     rows  errors  shape\n"
					    "         2   1.50ms   3.00ms        7       1  redis GET\xef\xbf\xbd?\n"
					    "         1   2.00ms   2.00ms        -       0  redis -\n"
					    "         1        -        -        -       0  redis BLPOP ?\n");
	buf_clear(&out);
	for (unsigned i = 0; i < 2 * SHAPE_TABLE_SHAPES; i++) {
		snprintf(text, sizeof(text), "X%u ?", i);
		shape_table_push(t, sv_of(text), 1500000, 7, true);
	}
	assert_int_equal(shape_table_render(t, &out, &requests), 0);
	assert_non_null(strstr(buf_cstr(&out), "2052 HTTP requests served\n"));
	assert_non_null(strstr(buf_cstr(&out), " 1027   1.50ms    1.54s    1027  other\n"));
	assert_non_null(strstr(buf_cstr(&out), "  and 1015 more routes\n"));
	buf_release(&out);
	shape_table_free(t);
}

/* What is told of commands and requests, each in its table. */
static void summary_of_shapes(void **state)
{
	char method[] = "GET", route[] = "/a/:id", label[] = "Show";
	struct http_operation o = {
		.method = method, .route = route, .start_ns = START, .end_ns = START + 2000000, .server = true};
	struct db_command c = {.system = "redis", .shape = SV("GET ?"), .rows = -1, .end_ns = 1000000};
	struct told t;

	(void)state;
	told_open(&t);
	summary_push_db(t.s, &c);
	strcpy(c.error, "ERR");
	c.shape = SV_NONE;
	c.start_ns = 2000000; /* two clocks */
	summary_push_db(t.s, &c);
	summary_push_http(t.s, &o);
	o.status = 503;
	summary_push_http(t.s, &o);
	o.mid_attach = true;
	summary_push_http(t.s, &o);
	summary_push_http(t.s, &(struct http_operation){.label = label, .end_ns = 3000000, .end = END_CLIENT_ABORT});
	told_holds(&t, "2 HTTP requests served\n"
		       "     count      p50    total  errors  route\n"
		       "         2   2.00ms   4.00ms       1  GET /a/:id\n"
		       "1 HTTP request made\n"
		       "     count      p50    total  errors  route\n"
		       "         1   3.00ms   3.00ms       1  - - Show\n"
		       "2 database commands\n"
		       "     count      p50    total     rows  errors  shape\n"
		       "         1   1.00ms   1.00ms        -       0  redis GET ?\n"
		       "         1   0.00ms   0.00ms        -       1  redis -\n");
	told_close(&t);
}

static void many_calls_are_sampled(void **state)
{
	struct told t;
	struct call c;
	const char *at;
	double p50;

	(void)state;
	told_open(&t);
	make_call(&c, 1, 42, START);
	for (uint64_t i = 0; i < 100000; i++) {
		c.first_token_ns = c.start_ns + i * MS / 1000 + 1;
		summary_push(t.s, &c);
	}
	call_release(&c);
	told_holds(&t, "sampled from 100000 calls");
	at = strstr(t.text, "p50");
	assert_non_null(at);
	p50 = atof(at + 3);
	assert_true(p50 > 47 && p50 < 53);
	told_close(&t);
}

static void losses_and_coverage_are_named(void **state)
{
	struct told t;
	struct proc evil = agent;

	(void)state;
	told_open(&t);
	t.lost = (struct lost){.late_bytes = 10, .evicted_calls = 2, .capped_bytes = 99};
	t.lost.n[LOST_RING_RECORDS] = 3;
	t.lost.n[LOST_TARGETS] = 1;
	evil.key.tgid = 43;
	strcpy(evil.name, "a\x1b[2Jb");
	coverage_push_conn(t.coverage, &agent, COVERAGE_DECODED, NULL);
	for (int i = 0; i < 5; i++)
		coverage_push_call(t.coverage, &agent);
	coverage_push_conn(t.coverage, &agent, COVERAGE_EMPTY, NULL);
	coverage_push_conn(t.coverage, &evil, COVERAGE_UNDECODED, "http/2\x1b");
	coverage_push_conn(t.coverage, &evil, COVERAGE_SERVED, NULL);
	told_holds(&t, "lost:\n             3  records dropped: ring buffer full\n"
		       "             1  targets or functions that could not be traced\n"
		       "2 stale calls closed (10 bytes came after)\n"
		       "99 bytes not copied: over the limit of a request, or of an answer that was served; no loss\n"
		       "coverage                  conns  decoded  undecoded  served  empty  calls\n"
		       "  agent[42]                   2        1          0       0      1      5\n"
		       "  a\xef\xbf\xbd[2Jb[43]");
	told_holds(&t, "undecoded: http/2\xef\xbf\xbd\n");
	assert_null(strchr(t.text, '\x1b'));
	t.lost.late_bytes = t.lost.evicted_calls = t.lost.capped_bytes = 1;
	told_holds(&t, "1 stale call closed (1 byte came after)\n1 byte not copied: over the limit");
	for (uint32_t i = 100; i < 119; i++) { /* 21 processes */
		struct proc many = agent;

		many.key.tgid = i;
		coverage_push_conn(t.coverage, &many, COVERAGE_DECODED, NULL);
	}
	told_holds(&t, "\n  agent (20 processes)       21       20          0       0      1      5\n"
		       "  a\xef\xbf\xbd[2Jb[43]");
	told_close(&t);
}

static void no_memory_is_reported(void **state)
{
	struct lost lost = {0};
	struct coverage *coverage = coverage_new(&lost);
	bool done = false;

	(void)state;
	coverage_push_conn(coverage, &agent, COVERAGE_DECODED, NULL);
	for (int i = 0; i < 5; i++)
		coverage_push_call(coverage, &agent);
	for (unsigned n = 1; !done; n++) {
		struct summary *s;
		struct buf out;
		int err;

		buf_init(&out, 0);
		fail_nth(n);
		s = summary_new();
		err = s ? summary_render(s, &out, &lost, coverage, S) : -ENOMEM;
		done = !fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, done ? 0 : -ENOMEM);
		summary_free(s);
		buf_release(&out);
		assert_true(n < 100);
	}
	coverage_free(coverage);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_record),
		cmocka_unit_test(a_write_without_its_entry),
		cmocka_unit_test(an_empty_record),
		cmocka_unit_test(record_of_a_killed_program),
		cmocka_unit_test(complete_without_tools_is_an_empty_list),
		cmocka_unit_test(captured_bytes_are_valid_json),
		cmocka_unit_test(no_half_records),
		cmocka_unit_test(live_lines),
		cmocka_unit_test(a_line_without_some_counts),
		cmocka_unit_test(a_line_for_a_turn),
		cmocka_unit_test(no_control_bytes_reach_the_terminal),
		cmocka_unit_test(formats),
		cmocka_unit_test(left_when_whole),
		cmocka_unit_test(counts_that_are_missing),
		cmocka_unit_test(cached_of_those_that_say),
		cmocka_unit_test(output_of_a_part),
		cmocka_unit_test(calls_to_a_gateway),
		cmocka_unit_test(an_empty_summary),
		cmocka_unit_test(percentiles_leave_out_what_failed),
		cmocka_unit_test(few_calls_are_interpolated),
		cmocka_unit_test(mcp_is_counted),
		cmocka_unit_test(http_record),
		cmocka_unit_test(database_record),
		cmocka_unit_test(shape_table),
		cmocka_unit_test(summary_of_shapes),
		cmocka_unit_test(many_calls_are_sampled),
		cmocka_unit_test(losses_and_coverage_are_named),
		cmocka_unit_test(no_memory_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
