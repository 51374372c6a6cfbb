/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <malloc.h>
#include <math.h>

#include "base/json.h"
#include "flow/span.h"
#include "make_call.h"

#define BEGIN (1000000 * MS)

static void log_phases(struct tlog *l, const struct span *s)
{
	for (unsigned i = 0; i < s->phase_count; i++)
		tlog_printf(l, "%s %lld-%lld\n", s->phases[i].name, (long long)(s->phases[i].begin_ns - s->begin_ns),
			    (long long)(s->phases[i].end_ns - s->begin_ns));
	tlog_printf(l, "end %lld\n", (long long)(s->end_ns - s->begin_ns));
}

static void assert_phases(struct call *c, const char *golden)
{
	struct tlog l = {0};
	struct span s;

	assert_int_equal(span_from_call(&s, c, 42, NULL, 0), 0);
	log_phases(&l, &s);
	assert_log(&l, golden);
	tlog_free(&l);
	span_release(&s);
	call_release(c);
}

static void phases_of_a_warm_call(void **state)
{
	struct call c;

	(void)state;
	make_call(&c, 1, 42, BEGIN);
	assert_phases(&c, "send 0-2000000\nwait 2000000-200000000\nstream 200000000-1209999999\nend 1210000000\n");
}

static void phases_of_a_cold_call(void **state)
{
	struct call c;

	(void)state;
	make_call(&c, 1, 42, BEGIN);
	add_setup(&c);
	assert_phases(&c, "connect 0-20000000\ntls 20000000-45000000\nsend 46000000-48000000\nwait 48000000-246000000\n"
			  "stream 246000000-1255999999\nend 1256000000\n");
}

/* A set-up of which one end is unknown was not paid for as far as we know. */
static void half_known_setup_is_left_out(void **state)
{
	struct call c;

	(void)state;
	make_call(&c, 1, 42, BEGIN);
	c.connect_begin_ns = BEGIN - 5 * MS;
	c.tls_end_ns = BEGIN - 1 * MS;
	assert_phases(&c, "send 0-2000000\nwait 2000000-200000000\nstream 200000000-1209999999\nend 1210000000\n");
}

static void send_ends_at_the_first_response_byte(void **state)
{
	struct call c;

	(void)state;
	make_call(&c, 1, 42, BEGIN);
	c.send_end_ns = BEGIN + 150 * MS; /* the server answered while the request was still being sent */
	assert_phases(&c, "send 0-100000000\nwait 100000000-200000000\nstream 200000000-1209999999\nend 1210000000\n");
}

static void unary_waits_for_the_first_byte(void **state)
{
	struct call c;

	(void)state;
	make_call(&c, 1, 42, BEGIN);
	c.first_token_ns = c.first_visible_ns = c.last_token_ns = UNKNOWN_NS;
	assert_phases(&c, "send 0-2000000\nwait 2000000-100000000\nend 1210000000\n");
}

static void unanswered_call_waits_to_its_end(void **state)
{
	struct call c;

	(void)state;
	make_call(&c, 1, 42, BEGIN);
	c.ttfb_ns = c.first_token_ns = c.first_visible_ns = c.last_token_ns = UNKNOWN_NS;
	c.end = END_EVICTED;
	assert_phases(&c, "send 0-2000000\nwait 2000000-1209999999\nend 1210000000\n");
	make_call(&c, 1, 42, BEGIN);
	c.send_end_ns = c.ttfb_ns = c.first_token_ns = c.first_visible_ns = c.last_token_ns = UNKNOWN_NS;
	assert_phases(&c, "send 0-1209999999\nend 1210000000\n");
}

static void mid_attach_has_no_send_and_wait(void **state)
{
	struct call c;

	(void)state;
	make_call(&c, 1, 42, BEGIN);
	c.mid_attach = true;
	assert_phases(&c, "stream 200000000-1209999999\nend 1210000000\n");
	make_call(&c, 1, 42, BEGIN);
	c.mid_attach = true;
	c.start_ns = c.send_end_ns = UNKNOWN_NS;
	assert_phases(&c, "stream 100000000-1109999999\nend 1110000000\n");
}

static void nothing_known_is_an_empty_slice(void **state)
{
	struct call c;

	(void)state;
	call_init(&c);
	assert_phases(&c, "end 0\n");
}

/* Any times in any order: phases lie inside the slice, in order, without overlap, the last one ends before the slice.
 */
static void phases_nest_whatever_the_times(void **state)
{
	uint64_t seed = 1234567;

	(void)state;
	for (int n = 0; n < 20000; n++) {
		struct call c;
		struct span s;
		uint64_t at, *times[] = {&c.start_ns,	   &c.send_end_ns, &c.ttfb_ns,		&c.first_token_ns,
					 &c.last_token_ns, &c.end_ns,	   &c.connect_begin_ns, &c.connect_end_ns,
					 &c.tls_begin_ns,  &c.tls_end_ns};

		call_init(&c);
		for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
			if (test_random(&seed) % 5)
				*times[i] = test_random(&seed) % 12;
		}
		assert_int_equal(span_from_call(&s, &c, 1, NULL, 0), 0);
		assert_true(s.end_ns >= s.begin_ns);
		at = s.begin_ns;
		for (unsigned i = 0; i < s.phase_count; i++) {
			assert_true(s.phases[i].begin_ns >= at);
			assert_true(s.phases[i].end_ns > s.phases[i].begin_ns);
			assert_true(s.phases[i].end_ns < s.end_ns);
			at = s.phases[i].end_ns;
		}
		span_release(&s);
	}
}

static cJSON *args_of(const struct call *c, char **name)
{
	struct span s;
	cJSON *args;

	assert_int_equal(span_from_call(&s, c, 42, NULL, 0), 0);
	args = cJSON_Parse(s.args);
	assert_non_null(args);
	if (name)
		*name = strdup(s.name);
	span_release(&s);
	return args;
}

static double number(const cJSON *o, const char *key)
{
	const cJSON *v = json_get(o, key);

	assert_true(cJSON_IsNumber(v));
	return v->valuedouble;
}

static const char *text(const cJSON *o, const char *key)
{
	struct sv v = json_get_string(o, key);

	assert_non_null(v.ptr);
	return v.ptr;
}

static void args_say_what_is_known(void **state)
{
	struct call c;
	cJSON *a;
	char *name;

	(void)state;
	make_call(&c, 9, 42, BEGIN);
	add_setup(&c);
	add_tool(&c, "toolu_1", "Read");
	add_tool(&c, "toolu_2", NULL);
	c.text = strdup("the secret answer");
	c.text_len = strlen(c.text);
	c.lossy = true;
	c.lost_bytes = 77;
	c.retransmits = 2;
	c.attempt = 2;
	c.retry_of = 8;
	c.retry_wait_ns = 500 * (int64_t)MS;
	a = args_of(&c, &name);
	assert_string_equal(name, "LLM claude-test-1");
	assert_string_equal(text(a, "model"), "claude-test-1");
	assert_string_equal(text(a, "request_model"), "claude-test");
	assert_string_equal(text(a, "peer"), "192.0.2.7:443");
	assert_string_equal(text(a, "stop_reason"), "end_turn");
	assert_string_equal(text(a, "ttft_kind"), "text");
	assert_true(number(a, "ttft_ms") == 200);
	assert_true(number(a, "ttfb_ms") == 100);
	assert_true(number(a, "setup_ms") == 46);
	assert_true(number(a, "itps") == 500);
	assert_true(fabs(number(a, "otps") - 101 / 1.21) < 0.001);
	assert_true(number(a, "cache_hit_rate") == 0.64);
	assert_true(number(a, "input_tokens") == 100 && number(a, "output_tokens") == 101);
	assert_true(number(a, "max_gap_ms") == 30 && number(a, "stalls") == 0);
	assert_true(number(a, "call_id") == 9 && number(a, "status") == 200);
	assert_true(number(a, "lost_bytes") == 77 && json_get_true(a, "lossy"));
	assert_true(number(a, "attempt") == 2 && number(a, "retry_of") == 8 && number(a, "retry_wait_ms") == 500);
	assert_true(number(a, "tool_call_count") == 2);
	assert_int_equal(cJSON_GetArraySize(json_get(a, "tool_calls")), 1);
	/* A lossy call has no decode rate, and unknown is left out. */
	assert_null(json_get(a, "decode_tok_s"));
	assert_null(json_get(a, "error"));
	assert_null(json_get(a, "evicted"));
	assert_null(json_get(a, "counts_left_out"));
	cJSON_Delete(a);
	free(name);
	call_release(&c);
}

/* What is there of partial counts is good where the answer is whole, and so are the rates that are made of it. */
static void args_of_partial_counts(void **state)
{
	(void)state;
	for (int unfinished = 0; unfinished < 2; unfinished++) {
		struct call c;
		cJSON *a;
		char *name;

		make_call(&c, 9, 42, BEGIN);
		c.usage = (struct usage){USAGE_PARTIAL, -1, -1, -1, -1, 101, 0, unfinished};
		a = args_of(&c, &name);
		assert_string_equal(text(a, "usage_source"), "partial");
		assert_true(number(a, "output_tokens") == 101);
		assert_int_equal(json_get_true(a, "counts_left_out"), !unfinished);
		assert_int_equal(!json_get(a, "decode_tok_s"), unfinished);
		assert_int_equal(!json_get(a, "otps"), unfinished);
		cJSON_Delete(a);
		free(name);
		call_release(&c);
	}
}

/* No null, no empty text: an unknown value is left out. And never the answer's text. */
static void unknown_is_left_out(void **state)
{
	struct call c;
	struct span s;

	(void)state;
	call_init(&c);
	c.stop_reason = strdup("");
	c.text = strdup("the secret answer");
	c.text_len = strlen(c.text);
	c.unfinished = true;
	c.end = END_EVICTED;
	assert_int_equal(span_from_call(&s, &c, 42, NULL, 0), 0);
	assert_string_equal(s.name, "LLM call");
	assert_string_equal(s.args,
			    "{\"class\":\"main\",\"end_reason\":\"evicted\",\"evicted\":true,\"unfinished\":true,"
			    "\"call_id\":0,\"os_tid\":0}");
	span_release(&s);
	call_release(&c);
}

static void hostile_texts_stay_bounded_and_valid(void **state)
{
	char *huge = malloc(100001);
	struct call c;
	cJSON *a;
	char *name;

	(void)state;
	for (int i = 0; i < 100000; i++)
		huge[i] = "\x1b\"\\\xe4\xbd\xa0\xff"[i % 7];
	huge[100000] = '\0';
	make_call(&c, 1, 42, BEGIN);
	free(c.model);
	free(c.path);
	c.model = strdup(huge);
	c.path = strdup(huge);
	c.error = strdup("x\x1b[8m");
	for (int i = 0; i < CALL_TOOLS_MAX; i++)
		add_tool(&c, huge, huge);
	a = args_of(&c, &name);
	assert_true(strlen(name) <= 132);
	assert_true(strlen(text(a, "path")) < 2000);
	assert_string_equal(text(a, "error"), "x\x1b[8m");
	assert_int_equal(cJSON_GetArraySize(json_get(a, "tool_calls")), 16);
	cJSON_Delete(a);
	free(name);
	free(huge);
	call_release(&c);
}

/* The name is cut between characters: 43 * 3 = 129 bytes, so the 43rd does not fit in 128. */
static void name_is_cut_at_a_character(void **state)
{
	char model[200] = "", wanted[200] = "LLM ";
	struct call c;
	struct span s;

	(void)state;
	for (int i = 0; i < 43; i++)
		strcat(model, "\xe4\xbd\xa0");
	strncat(wanted, model, 126);
	call_init(&c);
	c.model = strdup(model);
	assert_int_equal(span_from_call(&s, &c, 42, NULL, 0), 0);
	assert_string_equal(s.name, wanted);
	span_release(&s);
	call_release(&c);
}

static void reset_of_a_call(void **state)
{
	const uint64_t retransmit = BEGIN + 300 * MS;
	struct span s;
	struct call c;

	(void)state;
	make_call(&c, 1, 42, BEGIN);
	c.reset_ns = BEGIN + 900 * MS;
	c.reset_sent = true;
	assert_int_equal(span_from_call(&s, &c, 42, &retransmit, 1), 0);
	assert_int_equal(s.instant_count, 2);
	assert_string_equal(s.instants[0].name, "retransmit");
	assert_string_equal(s.instants[1].name, "reset");
	assert_int_equal(s.instants[1].ts_ns, BEGIN + 900 * MS);
	assert_non_null(strstr(s.args, "\"reset\":\"sent\""));
	span_release(&s);
	call_release(&c);
}

static void setup_spans(void **state)
{
	struct span_setup setup = {.shown_pid = 42,
				   .dns_begin_ns = UNKNOWN_NS,
				   .dns_end_ns = UNKNOWN_NS,
				   .connect_begin_ns = 100,
				   .connect_end_ns = 300,
				   .tls_begin_ns = 250,
				   .tls_end_ns = 500,
				   .tls_approximate = true,
				   .peer = {.family = AF_INET6, .port = 443, .ip = {[15] = 1}}};
	struct tlog l = {0};
	struct span s;

	(void)state;
	assert_int_equal(span_from_setup(&s, &setup), 0);
	log_phases(&l, &s);
	assert_log(&l, "connect 0-200\ntls 200-399\nend 400\n");
	assert_string_equal(s.args, "{\"peer\":\"[::1]:443\",\"tls_approximate\":true}");
	assert_int_equal(s.track, SPAN_NETWORK);
	span_release(&s);
	tlog_free(&l);
	setup.dns_begin_ns = 20;
	setup.dns_end_ns = 90;
	assert_int_equal(span_from_setup(&s, &setup), 0);
	log_phases(&l, &s);
	assert_log(&l, "dns 0-70\nconnect 80-280\ntls 280-479\nend 480\n");
	span_release(&s);
	setup.connect_end_ns = setup.tls_begin_ns = UNKNOWN_NS;
	assert_int_equal(span_from_setup(&s, &setup), -EINVAL);
	tlog_free(&l);
}

static void lookup_spans(void **state)
{
	struct span_lookup l = {
		.shown_pid = 42, .name = "a.b", .begin_ns = 20, .end_ns = 90, .queries = 2, .addresses = 1};
	struct span s;

	(void)state;
	assert_int_equal(span_from_lookup(&s, &l), 0);
	assert_string_equal(s.name, "dns");
	assert_int_equal(s.track, SPAN_NETWORK);
	assert_true(s.begin_ns == 20 && s.end_ns == 90);
	assert_string_equal(s.args, "{\"host\":\"a.b\",\"queries\":2,\"addresses\":1}");
	span_release(&s);
	l.unanswered = 1;
	assert_int_equal(span_from_lookup(&s, &l), 0);
	assert_string_equal(s.args, "{\"host\":\"a.b\",\"queries\":2,\"addresses\":1,\"unanswered_queries\":1}");
	span_release(&s);
	l.end_ns = UNKNOWN_NS;
	assert_int_equal(span_from_lookup(&s, &l), 0);
	assert_true(s.begin_ns == 20 && s.end_ns == 20);
	assert_string_equal(s.args, "{\"host\":\"a.b\",\"queries\":2,\"addresses\":1,\"unanswered\":true}");
	span_release(&s);
}

static void attempt_spans(void **state)
{
	struct attempt a = {
		.tgid = 42, .begin_ns = 20, .end_ns = 90, .tls_begin_ns = UNKNOWN_NS, .error = ECONNREFUSED};
	struct span_attempt told = {.shown_pid = 42, .host = "a.b", .attempt = &a};
	struct span s;

	(void)state;
	assert_int_equal(span_from_attempt(&s, &told), 0);
	assert_string_equal(s.name, "connection not made");
	assert_int_equal(s.phase_count, 0);
	assert_string_equal(s.args, "{\"host\":\"a.b\",\"error\":\"ECONNREFUSED\"}");
	span_release(&s);
	a.what = ATTEMPT_TLS_LOCAL;
	a.tls_begin_ns = 40;
	assert_int_equal(span_from_attempt(&s, &told), 0);
	assert_string_equal(s.args, "{\"host\":\"a.b\",\"error\":\"TLS not completed by the client\"}");
	assert_int_equal(s.phase_count, 2);
	assert_true(s.phases[0].begin_ns == 20 && s.phases[0].end_ns == 40 && s.phases[1].end_ns == 89);
	assert_string_equal(s.phases[1].name, "tls");
	span_release(&s);
}

/* Strings are only read. */
static struct mcp_call mcp_call(void)
{
	return (struct mcp_call){
		.conn = {.tgid = 7},
		.tid = 8,
		.start_ns = BEGIN,
		.end_ns = BEGIN + 20 * MS,
		.method = (char *)"tools/call",
		.target = (char *)"read",
		.id = (char *)"3",
		.server = (char *)"files",
		.peer = {.family = AF_INET, .port = 80, .ip = {127, 0, 0, 1}},
	};
}

static void mcp_spans(void **state)
{
	struct mcp_call c = mcp_call();
	struct span s;

	(void)state;
	assert_int_equal(span_from_mcp(&s, &c, 42), 0);
	assert_string_equal(s.name, "tools/call read");
	assert_string_equal(s.cat, "mcp");
	assert_int_equal(s.track, SPAN_MCP);
	assert_int_equal(s.pid, 42);
	assert_int_equal(s.begin_ns, BEGIN);
	assert_int_equal(s.end_ns, BEGIN + 20 * MS);
	assert_int_equal(s.phase_count, 0);
	assert_false(s.is_call);
	assert_string_equal(s.args,
			    "{\"method\":\"tools/call\",\"tool\":\"read\",\"server\":\"files\",\"transport\":\"stdio\","
			    "\"kind\":\"client\",\"peer\":\"127.0.0.1:80\",\"request_id\":\"3\",\"os_tid\":8}");
	span_release(&s);
	c = (struct mcp_call){.method = (char *)"prompts/get",
			      .target = (char *)"p",
			      .transport = MCP_HTTP,
			      .answerer = true,
			      .start_ns = 100,
			      .end_ns = 90,
			      .status = 202,
			      .error = (char *)"-1",
			      .error_message = (char *)"m",
			      .undecoded = (char *)"x",
			      .cancelled = true,
			      .end = END_EVICTED,
			      .unfinished = true,
			      .lossy = true,
			      .progress = 2};
	assert_int_equal(span_from_mcp(&s, &c, 42), 0);
	assert_int_equal(s.end_ns, 100);
	assert_string_equal(s.args,
			    "{\"method\":\"prompts/"
			    "get\",\"prompt\":\"p\",\"transport\":\"http\",\"kind\":\"server\",\"status\":202,"
			    "\"error\":\"-1\",\"error_message\":\"m\",\"cancelled\":true,\"end_reason\":\"evicted\","
			    "\"evicted\":true,"
			    "\"unfinished\":true,\"lossy\":true,\"undecoded\":\"x\",\"progress\":2,\"os_tid\":0}");
	span_release(&s);
	for (unsigned n = 1, hit = 1; hit; n++) {
		int err;

		fail_nth(n);
		err = span_from_mcp(&s, &c, 42);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
		assert_true(hit ? !s.name && !s.args : s.args != NULL);
		span_release(&s);
	}
}

static void database_commands(void **state)
{
	struct db_command c = {
		.system = "postgresql",
		.shape = SV("SELECT ? FROM t"),
		.start_ns = 100,
		.end_ns = 150,
		.rows = 3,
		.tid = 8,
	};
	struct span s;

	(void)state;
	assert_int_equal(span_from_db(&s, &c, 42), 0);
	assert_string_equal(s.name, "postgresql SELECT");
	assert_string_equal(s.cat, "db");
	assert_int_equal(s.track, SPAN_DB);
	assert_int_equal(s.begin_ns, 100);
	assert_int_equal(s.end_ns, 150);
	assert_string_equal(s.args, "{\"db.system.name\":\"postgresql\",\"db.query.text\":\"SELECT ? FROM t\","
				    "\"db.response.returned_rows\":3,\"os_tid\":8}");
	span_release(&s);
	/* Nothing is known of it but that it failed; and it ended before it began, as two clocks may say. */
	c = (struct db_command){
		.system = "redis", .start_ns = 100, .end_ns = 90, .rows = -1, .error = "ERR", .unfinished = true};
	assert_int_equal(span_from_db(&s, &c, 42), 0);
	assert_string_equal(s.name, "redis");
	assert_int_equal(s.end_ns, 100);
	assert_string_equal(s.args, "{\"db.system.name\":\"redis\",\"db.response.status_code\":\"ERR\","
				    "\"unfinished\":true,\"os_tid\":0}");
	span_release(&s);
	c.shape = SV("JSON.GET ?");
	for (unsigned n = 1, hit = 1; hit; n++) {
		int err;

		fail_nth(n);
		err = span_from_db(&s, &c, 42);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
		assert_true(hit ? !s.name && !s.args : !strcmp(s.name, "redis JSON.GET"));
		span_release(&s);
	}
}

static void http_exchanges(void **state)
{
	char method[] = "GET", path[] = "/users/42?x=*", route[] = "/users/:id", label[] = "Show", host[] = "h";
	struct http_operation o = {
		.id = 3,
		.conn_id = 5,
		.server = true,
		.protocol = "http/1.1",
		.method = method,
		.path = path,
		.route = route,
		.label = label,
		.host = host,
		.status = 200,
		.tid = 8,
		.response_tid = 9,
		.start_ns = 1000000,
		.ttfb_ns = 3500000,
		.end_ns = 4000000,
		.request_bytes = 10,
		.response_bytes = 20,
	};
	struct span s;

	(void)state;
	assert_int_equal(span_from_http(&s, &o, 42), 0);
	assert_string_equal(s.name, "GET /users/:id Show");
	assert_string_equal(s.cat, "http");
	assert_int_equal(s.track, SPAN_HTTP);
	assert_int_equal(s.begin_ns, 1000000);
	assert_int_equal(s.end_ns, 4000000);
	assert_string_equal(s.args, "{\"side\":\"server\",\"method\":\"GET\",\"path\":\"/users/42?x=*\","
				    "\"route\":\"/users/:id\",\"operation\":\"Show\",\"protocol\":\"http/1.1\","
				    "\"host\":\"h\",\"status\":200,\"ttfb_ms\":2.500,\"request_bytes\":10,"
				    "\"response_bytes\":20,\"http_id\":3,\"connection_id\":5,\"os_tid\":8,"
				    "\"response_tid\":9}");
	span_release(&s);
	/* Nothing is known but that it was there. */
	o = (struct http_operation){.id = 4,
				    .conn_id = 5,
				    .start_ns = 100,
				    .end_ns = 90,
				    .ttfb_ns = 100,
				    .request_bytes = -1,
				    .response_bytes = -1,
				    .end = END_EVICTED,
				    .unfinished = true,
				    .lossy = true,
				    .mid_attach = true};
	assert_int_equal(span_from_http(&s, &o, 42), 0);
	assert_string_equal(s.name, "request");
	assert_int_equal(s.end_ns, 100);
	assert_string_equal(s.args, "{\"side\":\"client\",\"end_reason\":\"evicted\",\"evicted\":true,"
				    "\"unfinished\":true,\"mid_attach\":true,\"lossy\":true,\"http_id\":4,"
				    "\"connection_id\":5}");
	span_release(&s);
	for (unsigned n = 1, hit = 1; hit; n++) {
		int err;

		fail_nth(n);
		err = span_from_http(&s, &o, 42);
		hit = fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, hit ? -ENOMEM : 0);
		assert_true(hit ? !s.name && !s.args : !strcmp(s.name, "request"));
		span_release(&s);
	}
}

static void undecoded_turns(void **state)
{
	uint64_t retransmits[] = {150, 160};
	struct span_unread t = {
		.shown_pid = 9,
		.undecoded = "no TLS functions found in /bin/x",
		.host = "api.example.com",
		.peer = {.family = AF_INET, .port = 443, .ip = {1, 2, 3, 4}},
		.connect_begin_ns = 10,
		.connect_end_ns = 20,
		.tls_begin_ns = 30,
		.begin_ns = 100,
		.send_end_ns = 120,
		.first_ns = 3000120,
		.end_ns = 9000000,
		.gap_ns = 4000000,
		.bytes = {266, 1908},
		.retransmit_ns = retransmits,
		.retransmits = 2,
	};
	struct tlog l = {0};
	struct span s;

	(void)state;
	assert_int_equal(span_from_unread(&s, &t), 0);
	log_phases(&l, &s);
	assert_log(&l, "connect 0-10\ntls 20-90\nsend 90-110\nwait 110-3000110\nstream 3000110-8999989\nend 8999990\n");
	assert_string_equal(s.args, "{\"undecoded\":\"no TLS functions found in /bin/x\",\"host\":\"api.example.com\","
				    "\"peer\":\"1.2.3.4:443\",\"sent_bytes\":266,\"received_bytes\":1908,"
				    "\"first_byte_ms\":3.000,\"max_gap_ms\":4.000,\"retransmits\":2}");
	assert_int_equal(s.begin_ns, 10);
	assert_int_equal(s.track, SPAN_NETWORK);
	assert_int_equal(s.instant_count, 2);
	assert_false(s.is_call);
	span_release(&s);
	tlog_free(&l);

	/* Of many turns in one nobody knows the first byte of any. */
	t.connect_begin_ns = t.connect_end_ns = t.tls_begin_ns = UNKNOWN_NS;
	t.merged = true;
	t.host = "";
	t.peer.family = 0;
	t.retransmits = 0;
	assert_int_equal(span_from_unread(&s, &t), 0);
	assert_string_equal(s.args, "{\"undecoded\":\"no TLS functions found in /bin/x\",\"sent_bytes\":266,"
				    "\"received_bytes\":1908,\"retransmits\":0,\"merged\":true}");
	assert_int_equal(s.begin_ns, 100);
	span_release(&s);
	for (unsigned n = 1;; n++) {
		int err;

		fail_nth(n);
		err = span_from_unread(&s, &t);
		fail_nth(0);
		if (!fail_nth_hit()) {
			span_release(&s);
			break;
		}
		assert_int_equal(err, -ENOMEM);
		assert_null(s.name);
	}
}

/* --- the ring ---------------------------------------------------------------------------------------------------- */

static void push(struct spans *t, unsigned tag, unsigned phases, unsigned instants)
{
	struct span s = {.begin_ns = tag,
			 .end_ns = tag + 100,
			 .pid = tag,
			 .cat = "llm",
			 .phase_count = phases,
			 .instant_count = instants,
			 .first_token_ns = UNKNOWN_NS};
	char name[32];

	snprintf(name, sizeof(name), "span %u", tag);
	s.name = strdup(name);
	s.args = tag % 2 ? strdup("{\"a\":1}") : NULL;
	for (unsigned i = 0; i < phases; i++)
		s.phases[i] = (struct span_phase){"wait", tag + i, tag + i + 1};
	s.instants = instants ? calloc(instants, sizeof(*s.instants)) : NULL;
	for (unsigned i = 0; i < instants; i++)
		s.instants[i] = (struct span_instant){"retransmit", tag + i};
	assert_int_equal(spans_push(t, &s), 0);
	assert_null(s.name);
}

static void log_span(void *ctx, const struct span *s)
{
	tlog_printf(ctx, "%s %u p%u i%u %s|", s->name, s->pid, s->phase_count, s->instant_count,
		    s->args ? s->args : "-");
	for (unsigned i = 0; i < s->phase_count; i++)
		assert_int_equal(s->phases[i].end_ns, s->begin_ns + i + 1);
	for (unsigned i = 0; i < s->instant_count; i++)
		assert_int_equal(s->instants[i].ts_ns, s->begin_ns + i);
}

static void oldest_whole_spans_go_first(void **state)
{
	struct lost lost = {0};
	struct spans *t = spans_new(10, &lost);
	struct tlog l = {0};

	(void)state;
	push(t, 1, 3, 0); /* 4 events */
	push(t, 2, 2, 1); /* 4 */
	push(t, 3, 1, 0); /* 2: full */
	assert_int_equal(spans_events(t), 10);
	push(t, 4, 0, 0);
	spans_each(t, log_span, &l);
	assert_log(&l, "span 2 2 p2 i1 -|span 3 3 p1 i0 {\"a\":1}|span 4 4 p0 i0 -|");
	assert_int_equal(lost.n[LOST_SPANS], 1);
	assert_int_equal(lost.n[LOST_SPAN_EVENTS], 4);
	tlog_free(&l);
	spans_show(t, 6);
	spans_each(t, log_span, &l);
	assert_log(&l, "span 3 3 p1 i0 {\"a\":1}|span 4 4 p0 i0 -|");
	tlog_free(&l);
	spans_show(t, 0);
	spans_each(t, log_span, &l);
	assert_log(&l, "");
	assert_int_equal(spans_events(t), 7); /* they stay */
	spans_show(t, 7);
	/* One that cannot fit is dropped itself, and takes nobody with it. */
	push(t, 5, 6, 4);
	spans_each(t, log_span, &l);
	assert_log(&l, "span 2 2 p2 i1 -|span 3 3 p1 i0 {\"a\":1}|span 4 4 p0 i0 -|");
	assert_int_equal(lost.n[LOST_SPANS], 2);
	assert_int_equal(lost.n[LOST_SPAN_EVENTS], 15);
	tlog_free(&l);
	spans_free(t);
}

static void count_events(void *ctx, const struct span *s)
{
	*(uint64_t *)ctx += 1 + s->phase_count + s->instant_count;
}

static void ring_wraps_many_times(void **state)
{
	struct lost lost = {0};
	struct spans *t = spans_new(1000, &lost);
	uint64_t seed = 99, pushed = 0, kept = 0;

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		unsigned phases = test_random(&seed) % 7, instants = test_random(&seed) % 3;

		push(t, i, phases, instants);
		pushed += 1 + phases + instants;
		assert_true(spans_events(t) <= 1000);
	}
	spans_each(t, count_events, &kept);
	assert_int_equal(kept, spans_events(t));
	assert_int_equal(kept + lost.n[LOST_SPAN_EVENTS], pushed);
	assert_int_equal(spans_count(t) + lost.n[LOST_SPANS], 20000);
	assert_true(kept > 990);
	spans_free(t);
}

static void long_texts_meet_the_byte_limit(void **state)
{
	struct lost lost = {0};
	struct spans *t = spans_new(100, &lost);

	(void)state;
	for (int i = 0; i < 50; i++) {
		struct span s = {.name = strdup("x"), .cat = "llm", .args = malloc(100001)};

		memset(s.args, ' ', 100000);
		s.args[100000] = '\0';
		assert_int_equal(spans_push(t, &s), 0);
	}
	assert_int_equal(spans_count(t), SPANS_BYTES_MIN / 100100);
	assert_int_equal(lost.n[LOST_SPANS], 50 - spans_count(t));
	spans_free(t);
}

static void process_spans_are_not_pushed(void **state)
{
	struct lost lost = {0};
	struct spans *t = spans_new(100, &lost);
	struct span s = {.name = strdup("x"), .track = SPAN_PROCESS};

	(void)state;
	assert_int_equal(spans_push(t, &s), -EINVAL);
	assert_int_equal(spans_count(t), 0);
	spans_free(t);
}

/* 100,000 events of usual calls. */
static void default_ring_stays_small(void **state)
{
	struct lost lost = {0};
	struct spans *t;
	size_t before = mallinfo2().uordblks, used;

	(void)state;
	t = spans_new(100000, &lost);
	for (uint64_t i = 0; i < 60000; i++) {
		struct call c;
		struct span s;

		make_call(&c, i, 42, BEGIN + i * MS);
		assert_int_equal(span_from_call(&s, &c, 42, NULL, 0), 0);
		assert_int_equal(spans_push(t, &s), 0);
		call_release(&c);
	}
	used = mallinfo2().uordblks - before;
	assert_int_equal(spans_events(t), 100000);
	assert_int_equal(spans_count(t), 25000);
	assert_int_equal(lost.n[LOST_SPANS], 35000);
#ifndef __SANITIZE_ADDRESS__
	print_message("25000 calls, 100000 events: %zu KiB\n", used >> 10);
	assert_true(used < 32u << 20);
#else
	(void)used;
#endif
	spans_free(t);
}

static void no_memory_is_reported(void **state)
{
	const uint64_t retransmits[] = {BEGIN + 1, BEGIN + 2};
	bool done = false;

	(void)state;
	for (unsigned n = 1; !done; n++) {
		struct lost lost = {0};
		struct spans *t = NULL;
		struct call c;
		struct span s = {0};
		int err = 0;

		make_call(&c, 1, 42, BEGIN);
		fail_nth(n);
		t = spans_new(100, &lost);
		err = t ? span_from_call(&s, &c, 42, retransmits, 2) : -ENOMEM;
		if (!err)
			err = spans_push(t, &s);
		done = !fail_nth_hit();
		fail_nth(0);
		assert_int_equal(err, done ? 0 : -ENOMEM);
		assert_null(s.name);
		assert_int_equal(t ? spans_count(t) : 0, done ? 1 : 0);
		spans_free(t);
		call_release(&c);
		assert_true(n < 100);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(phases_of_a_warm_call),
		cmocka_unit_test(phases_of_a_cold_call),
		cmocka_unit_test(half_known_setup_is_left_out),
		cmocka_unit_test(send_ends_at_the_first_response_byte),
		cmocka_unit_test(unary_waits_for_the_first_byte),
		cmocka_unit_test(unanswered_call_waits_to_its_end),
		cmocka_unit_test(mid_attach_has_no_send_and_wait),
		cmocka_unit_test(nothing_known_is_an_empty_slice),
		cmocka_unit_test(phases_nest_whatever_the_times),
		cmocka_unit_test(args_say_what_is_known),
		cmocka_unit_test(args_of_partial_counts),
		cmocka_unit_test(unknown_is_left_out),
		cmocka_unit_test(hostile_texts_stay_bounded_and_valid),
		cmocka_unit_test(name_is_cut_at_a_character),
		cmocka_unit_test(reset_of_a_call),
		cmocka_unit_test(setup_spans),
		cmocka_unit_test(lookup_spans),
		cmocka_unit_test(attempt_spans),
		cmocka_unit_test(mcp_spans),
		cmocka_unit_test(database_commands),
		cmocka_unit_test(http_exchanges),
		cmocka_unit_test(undecoded_turns),
		cmocka_unit_test(oldest_whole_spans_go_first),
		cmocka_unit_test(ring_wraps_many_times),
		cmocka_unit_test(long_texts_meet_the_byte_limit),
		cmocka_unit_test(process_spans_are_not_pushed),
		cmocka_unit_test(default_ring_stays_small),
		cmocka_unit_test(no_memory_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
