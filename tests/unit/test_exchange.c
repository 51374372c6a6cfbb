/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "exchange_rig.h"

#include <netinet/in.h>

#define ANTHROPIC                                                                                                      \
	"proto=http/1.1 method=POST path=/v1/messages host=api.anthropic.test status=200 api=anthropic "               \
	"provider=anthropic op=chat class=main "

/* --- tests ------------------------------------------------------------------------------------------------------- */

static void test_stream(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req_head(&r, 1, "POST", "/v1/messages?beta=true&key=SECRET", HOST, 10);
	req_body(&r, 1,
		 "{\"model\":\"claude-x\",\"max_tokens\":64,\"stream\":true,\"system\":[{\"type\":\"text\",\"text\":"
		 "\"be kind\"},"
		 "{\"type\":\"text\",\"text\":\"\\u00e9\"}],\"tools\":[{\"name\":\"Read\",\"input_schema\":{}},{"
		 "\"name\":\"ls\"}],"
		 "\"thinking\":{\"type\":\"adaptive\"},\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{}]}",
		 11);
	req_end(&r, 1, 321, 12);
	assert_int_equal(exchanges_conn_calls(r.flow), 1);
	assert_int_equal(exchanges_open_count(r.table), 1);
	resp_head(&r, 1, 200, STREAM, 100);
	resp(&r, 1, START(USAGE10) PING BLOCK("\"type\":\"thinking\",\"thinking\":\"\""), 110);
	resp(&r, 1, THINK("") THINK("hm"), 200);
	resp(&r, 1, TEXT("a\xc3\xa9") TEXT("b"), 1500);
	resp(&r, 1, BLOCK("\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"Read\",\"input\":{}"), 1600);
	resp(&r, 1, TEXT("c") STOP("52") DONE, 1700);
	resp_end(&r, 1, 4321, 1800);
	assert_log(&r.log, "call 1 proto=http/1.1 method=POST path=/v1/messages?beta=true&key=* "
			   "host=api.anthropic.test status=200 "
			   "api=anthropic provider=anthropic op=chat class=main stream=1\n"
			   "  model=claude-x-1 asked=claude-x stop=end_turn\n"
			   "   start=10 send=12 ttfb=100 first=200 visible=1500 last=1700 end=1800 kind=reasoning "
			   "chunks=4 stalls=1 "
			   "gap=1300 decode=34\n"
			   "  request messages=2 tools=2 system=9 max=64 thinking=1 sent=321 got=4321\n"
			   "  usage=reported uncached=10 read=0 write=0 input=10 output=52\n"
			   "  tool=toolu_1 name=Read\n"
			   "  text=a\\xc3\\xa9bc\n");
	assert_int_equal(exchanges_open_count(r.table), 0);
	assert_int_equal(lost_total(&r.lost), 0);
	rig_close(&r);
}

static void test_unary(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req(&r, 1, "/v1/messages", HOST, ASK_UNARY, 0);
	resp_head(&r, 1, 200, JSON, 700);
	resp(&r, 1,
	     "\n\n {\"type\":\"message\",\"model\":\"claude-x-1\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"},"
	     "{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"Bash\"}],\"stop_reason\":\"tool_use\",\"usage\":{",
	     710);
	resp(&r, 1,
	     "\"input_tokens\":16,\"cache_read_input_tokens\":4,\"cache_creation_input_tokens\":2,\"output_tokens\":1}"
	     "}",
	     800);
	resp_end(&r, 1, 300, 800);
	assert_log(&r.log, "call 1 " ANTHROPIC "stream=0\n"
			   "  model=claude-x-1 asked=claude-x stop=tool_use\n"
			   "   start=0 send=0 ttfb=700 end=800\n"
			   "  request messages=1 tools=0 system=0 max=64 thinking=0 sent=192 got=300\n"
			   "  usage=reported uncached=16 read=4 write=2 input=22 output=1\n"
			   "  tool=t name=Bash\n"
			   "  text=hi\n");
	rig_close(&r);
}

/* Counts of one exchange: the last one, never a sum, 0 never over a positive one; what was not said stays unknown. */
static void test_usage_merge(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	stream(&r, 1, 0, 1);
	resp(&r, 1,
	     START("\"input_tokens\":27,\"cache_creation_input_tokens\":200,\"cache_read_input_tokens\":1000,\"output_"
		   "tokens\":3"),
	     2);
	resp(&r, 1,
	     EVENT("message_delta",
		   ",\"usage\":{\"input_tokens\":0,\"cache_read_input_tokens\":1000,\"output_tokens\":47}") DONE,
	     3);
	resp_end(&r, 1, 9, 4);
	assert_non_null(strstr(r.log.text, "usage=reported uncached=27 read=1000 write=200 input=1227 output=47\n"));
	tlog_free(&r.log);
	/* a gateway says the real counts at the end; one without cache counts used none */
	stream(&r, 2, 0, 1);
	resp(&r, 2,
	     START("\"input_tokens\":0,\"output_tokens\":0")
		     EVENT("message_delta", ",\"usage\":{\"input_tokens\":500,\"output_tokens\":20}") DONE,
	     3);
	resp_end(&r, 2, 9, 4);
	assert_non_null(strstr(r.log.text, "usage=reported uncached=500 read=0 write=0 input=500 output=20\n"));
	tlog_free(&r.log);
	/* OpenAI: the input has the cached ones inside */
	req(&r, 3, "/v1/chat/completions", HOST, CHAT, 0);
	resp_head(&r, 3, 200, STREAM, 1);
	resp(&r, 3,
	     "data: "
	     "{\"choices\":[],\"usage\":{\"prompt_tokens\":17903,\"completion_tokens\":10,\"prompt_tokens_details\":"
	     "{\"cached_tokens\":17817},\"completion_tokens_details\":{\"reasoning_tokens\":0}}}\n\ndata: [DONE]\n\n",
	     2);
	resp_end(&r, 3, 9, 4);
	assert_non_null(strstr(r.log.text,
			       "usage=reported uncached=86 read=17817 write=0 input=17903 output=10 reasoning=0\n"));
	tlog_free(&r.log);
	/* without cache details the uncached part is not known either; no usage at all is no usage */
	req(&r, 4, "/v1/chat/completions", HOST, CHAT, 0);
	resp_head(&r, 4, 200, STREAM, 1);
	resp(&r, 4,
	     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n", 2);
	resp_end(&r, 4, 9, 4);
	assert_non_null(strstr(r.log.text, "usage=reported write=0 input=8 output=2\n"));
	tlog_free(&r.log);
	req(&r, 5, "/v1/chat/completions", HOST, CHAT, 0);
	resp_head(&r, 5, 200, STREAM, 1);
	resp(&r, 5, DELTA("{\"content\":\"hi\"}") "data: [DONE]\n\n", 2);
	resp_end(&r, 5, 9, 4);
	assert_null(strstr(r.log.text, "usage="));
	rig_close(&r);
}

/* What is no token moves no token time. */
static void test_first_token(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req(&r, 1, "/v1/chat/completions", HOST, CHAT, 0);
	resp_head(&r, 1, 200, STREAM, 50);
	resp(&r, 1, ": keep-alive\n\n" DELTA("{\"role\":\"assistant\",\"content\":\"\"}"), 60);
	resp(&r, 1, DELTA("{\"content\":null}"), 70);
	resp(&r, 1, DELTA("{\"reasoning_content\":\"hm\",\"content\":null}"), 1175);
	resp(&r, 1, DELTA("{\"content\":\"ans\"}"), 1200);
	resp(&r, 1, DELTA("{\"content\":\"wer\"}"), 2175);
	resp(&r, 1,
	     "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n"
	     "data: "
	     "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":101,\"completion_tokens_details\":"
	     "{\"reasoning_tokens\":90}}}\n\n",
	     2200);
	resp_end(&r, 1, 500, 7000); /* without [DONE]: a stop reason and a clean end are as good */
	assert_log(
		&r.log,
		"call 1 proto=http/1.1 method=POST path=/v1/chat/completions host=api.anthropic.test status=200 "
		"api=openai.chat provider=openai op=chat class=main stream=1\n"
		"  model=gpt-x-1 asked=gpt-x stop=stop\n"
		"   start=0 send=0 ttfb=50 first=1175 visible=1200 last=2175 end=7000 kind=reasoning chunks=3 stalls=0 "
		"gap=975 decode=100\n"
		"  request messages=1 tools=0 system=0 sent=192 got=500\n"
		"  usage=reported write=0 input=9 output=101 reasoning=90\n"
		"  text=answer\n");
	rig_close(&r);
}

/* Reasoning that was counted, or begun, and never shown: the rate over the shown part would be wrong. */
static void test_hidden_reasoning(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	stream(&r, 1, 0, 1);
	resp(&r, 1, START(USAGE10) BLOCK("\"type\":\"thinking\",\"thinking\":\"\""), 2);
	resp(&r, 1, TEXT("a"), 1000);
	resp(&r, 1, TEXT("b") STOP("900") DONE, 2000);
	resp_end(&r, 1, 1, 2001);
	assert_non_null(strstr(r.log.text, " hidden\n"));
	assert_null(strstr(r.log.text, "decode="));
	tlog_free(&r.log);
	/* sealed reasoning comes when it was made: it is the first token, and the rate from it on is not known */
	stream(&r, 3, 0, 1);
	resp(&r, 3, START(USAGE10) BLOCK("\"type\":\"redacted_thinking\",\"data\":\"x\""), 900);
	resp(&r, 3, BLOCK("\"type\":\"thinking\",\"thinking\":\"\"") THINK("hm") TEXT("a"), 1000);
	resp(&r, 3, TEXT("b") STOP("900") DONE, 2000);
	resp_end(&r, 3, 1, 2001);
	assert_non_null(strstr(r.log.text, " hidden\n"));
	assert_non_null(strstr(r.log.text, "first=900 visible=1000 last=2000 end=2001 kind=reasoning chunks=4 "));
	assert_null(strstr(r.log.text, "decode="));
	tlog_free(&r.log);
	/* after the first token it is in that window */
	stream(&r, 4, 0, 1);
	resp(&r, 4, START(USAGE10) BLOCK("\"type\":\"thinking\",\"thinking\":\"\"") THINK("hm"), 900);
	resp(&r, 4, BLOCK("\"type\":\"redacted_thinking\",\"data\":\"x\""), 1000);
	resp(&r, 4, TEXT("b") STOP("901") DONE, 1900);
	resp_end(&r, 4, 1, 2001);
	assert_non_null(strstr(r.log.text, "decode=900\n"));
	tlog_free(&r.log);
	req(&r, 2, "/v1/responses", HOST, "{\"model\":\"gpt-x\",\"stream\":true,\"input\":\"hi\"}", 0);
	resp_head(&r, 2, 200, STREAM, 1);
	resp(&r, 2, EVENT("response.output_text.delta", ",\"delta\":\"a\""), 10);
	resp(&r, 2, EVENT("response.output_text.delta", ",\"delta\":\"b\""), 20);
	resp(&r, 2,
	     EVENT("response.completed",
		   ",\"response\":{\"model\":\"gpt-x-1\",\"status\":\"completed\",\"usage\":{"
		   "\"input_tokens\":100,\"input_tokens_details\":{\"cached_tokens\":64},\"output_tokens\":50,"
		   "\"output_tokens_details\":{\"reasoning_tokens\":20}}}"),
	     30);
	resp_end(&r, 2, 1, 31);
	assert_log(&r.log,
		   "call 4 proto=http/1.1 method=POST path=/v1/responses host=api.anthropic.test status=200 "
		   "api=openai.responses provider=openai op=chat class=main stream=1\n"
		   "  model=gpt-x-1 asked=gpt-x stop=completed hidden\n"
		   "   start=0 send=0 ttfb=1 first=10 visible=10 last=20 end=31 kind=text chunks=2 stalls=0 gap=10\n"
		   "  request messages=1 tools=0 system=0 sent=192 got=1\n"
		   "  usage=reported uncached=36 read=64 write=0 input=100 output=50 reasoning=20\n"
		   "  text=ab\n");
	rig_close(&r);
}

static void test_errors(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	/* an error status with a body */
	req(&r, 1, "/v1/messages", HOST, ASK, 0);
	resp_head(&r, 1, 400, JSON, 5);
	resp(&r, 1, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"SECRET\"}}", 5);
	resp_end(&r, 1, 80, 6);
	assert_log(&r.log, "call 1 proto=http/1.1 method=POST path=/v1/messages host=api.anthropic.test status=400 "
			   "api=anthropic provider=anthropic op=chat class=main stream=1\n"
			   "  model=claude-x asked=claude-x error=invalid_request_error\n"
			   "   start=0 send=0 ttfb=5 end=6\n"
			   "  request messages=1 tools=0 system=0 max=64 thinking=0 sent=192 got=80\n");
	tlog_free(&r.log);
	/* in the stream, after content, and the peer goes away */
	req(&r, 2, "/v1/messages", HOST, ASK_UNARY, 100);
	resp_head(&r, 2, 200, STREAM, 200);
	resp(&r, 2, START(USAGE10) TEXT("part"), 300);
	resp(&r, 2, EVENT("error", ",\"error\":{\"type\":\"overloaded_error\"}"), 400);
	abort_at(&r, 2, HTTP_ABORT_SERVER, 410);
	assert_non_null(strstr(r.log.text, " error=overloaded_error end=server_abort\n"));
	assert_non_null(strstr(r.log.text, "end=410 kind=text chunks=1 stalls=0\n"));
	assert_non_null(strstr(r.log.text, "usage=partial uncached=10 read=0 write=0 input=10 output=1\n"));
	tlog_free(&r.log);
	/* a document under a stream's type, and a stream that says no type */
	req(&r, 3, "/v1/chat/completions", HOST, CHAT, 0);
	resp_head(&r, 3, 200, STREAM, 1);
	resp(&r, 3, "{\"error\":{\"message\":\"m\",\"type\":null,\"code\":\"model_not_found\"}}", 1);
	resp_end(&r, 3, 1, 2);
	assert_non_null(strstr(r.log.text, "error=model_not_found\n"));
	assert_null(strstr(r.log.text, "chunks="));
	tlog_free(&r.log);
	req(&r, 4, "/v1/chat/completions", HOST, CHAT, 0);
	resp_head(&r, 4, 200, "", 1);
	resp(&r, 4, "\n" DELTA("{\"content\":\"x\"}"), 2);
	resp_end(&r, 4, 1, 3);
	assert_non_null(strstr(r.log.text, "first=2 "));
	tlog_free(&r.log);
	/* a gateway's page */
	req(&r, 5, "/v1/chat/completions", HOST, CHAT, 0);
	resp_head(&r, 5, 502, "content-type: text/html\n", 1);
	resp(&r, 5, "<html>data: {}</html>", 2);
	resp_end(&r, 5, 1, 3);
	assert_non_null(strstr(r.log.text, "status=502"));
	assert_null(strstr(r.log.text, "chunks="));
	rig_close(&r);
}

/* --- ends -------------------------------------------------------------------------------------------------------- */

static void test_ends(void **state)
{
	static const struct {
		enum http_abort why;
		const char *want;
	} rows[] = {
		{HTTP_ABORT_CLIENT, " end=client_abort\n"},
		{HTTP_ABORT_SERVER, " end=server_abort\n"},
		{HTTP_ABORT_CLOSED, " end=connection_closed\n"},
		{HTTP_ABORT_EXIT, " end=process_exit exit=3/9\n"},
		{HTTP_ABORT_LOSS, " end=capture_loss lossy lost=-1\n"},
		{HTTP_ABORT_CAPTURE_END, " end=capture_end unfinished\n"},
		{HTTP_ABORT_PARSE, " end=capture_loss undecoded=http/1.1\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct rig r;

		rig_open(&r);
		r.conn.exit_code = 3;
		r.conn.exit_signal = 9;
		req(&r, 1, "/v1/messages", HOST, ASK, 0);
		abort_at(&r, 1, rows[i].why, 500);
		if (!strstr(r.log.text, rows[i].want))
			fail_msg("row %zu: want %s in %s", i, rows[i].want, r.log.text);
		assert_non_null(strstr(r.log.text, "status=0 "));
		assert_non_null(strstr(r.log.text, "start=0 send=0 end=500\n"));
		assert_int_equal(exchanges_open_count(r.table), 0);
		rig_close(&r);
	}
}

/* A handshake to a protocol that is not read yet leaves a mark, not silence. */
/* Of a WebSocket that nobody reads there is one record, which says so. */
static void test_websocket(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req_head(&r, 1, "GET", "/v1/responses", HOST "upgrade: websocket\n", 0);
	req_end(&r, 1, 90, 0);
	abort_at(&r, 1, HTTP_ABORT_UPGRADE, 30);
	assert_log(&r.log, "");
	exchanges_tick(r.table, AT(50).ts_ns);
	exchanges_conn_free(r.flow);
	assert_log(&r.log, "call 2 proto=websocket method=POST path=/v1/responses host=api.anthropic.test status=0 "
			   "api=openai.responses provider=openai op=chat class=main stream=-1\n"
			   "  end=connection_closed undecoded=websocket\n"
			   "   start=0 end=50\n"
			   "  request sent=0 got=0\n");
	r.flow = NULL;
	rig_close(&r);
}

/* Bodies in codings: gzip by pieces, one that nobody knows. */
static void test_codings(void **state)
{
	static const char *const pieces[] = {START(USAGE10), TEXT("o"), TEXT("k") STOP("5") DONE};
	static const char *const ask[] = {ASK};
	uint8_t out[4096];
	size_t ends[3], len;
	struct rig r;

	(void)state;
	rig_open(&r);
	len = gzip(out, sizeof(out), ask, 1, ends);
	req_head(&r, 1, "POST", "/v1/messages", HOST "Content-Encoding: gzip\n", 0);
	r.http.on_body(r.http.ctx, 1, HTTP_REQUEST, out, len, &AT(0));
	req_end(&r, 1, 192, 0);
	len = gzip(out, sizeof(out), pieces, 3, ends);
	resp_head(&r, 1, 200, STREAM "content-encoding: gzip\n", 100);
	resp_bytes(&r, 1, out, ends[0], 110);
	resp_bytes(&r, 1, out + ends[0], ends[1] - ends[0], 200);
	resp_bytes(&r, 1, out + ends[1], len - ends[1], 300);
	resp_end(&r, 1, 400, 300);
	assert_log(
		&r.log,
		"call 1 " ANTHROPIC "stream=1\n"
		"  model=claude-x-1 asked=claude-x stop=end_turn\n"
		"   start=0 send=0 ttfb=100 first=200 visible=200 last=300 end=300 kind=text chunks=2 stalls=0 gap=100 "
		"decode=40\n"
		"  request messages=1 tools=0 system=0 max=64 thinking=0 sent=192 got=400\n"
		"  usage=reported uncached=10 read=0 write=0 input=10 output=5\n"
		"  text=ok\n");
	tlog_free(&r.log);
	req(&r, 2, "/v1/messages", HOST "content-encoding: x-odd\n", "(\xb5/\xfd", 0);
	resp_head(&r, 2, 200, STREAM "content-encoding: x-unknown\n", 100);
	resp(&r, 2, TEXT("plain by accident"), 200);
	resp_end(&r, 2, 400, 300);
	assert_log(&r.log, "call 2 " ANTHROPIC "stream=-1\n"
			   "  undecoded=x-unknown\n"
			   "   start=0 send=0 ttfb=100 end=300\n"
			   "  request sent=192 got=400\n");
	assert_int_equal(r.lost.n[LOST_DECODE_ERRORS], 2);
	tlog_free(&r.log);
	/* cut in the middle of a coding: what came before stays */
	len = gzip(out, sizeof(out), pieces, 3, ends);
	req(&r, 3, "/v1/messages", HOST, ASK, 0);
	resp_head(&r, 3, 200, STREAM "content-encoding: gzip\n", 100);
	resp_bytes(&r, 3, out, ends[1], 200);
	gap(&r, 3, HTTP_RESPONSE, 10, HTTP_GAP_LOST, 250);
	resp_bytes(&r, 3, out + ends[1] + 10, len - ends[1] - 10, 300);
	resp_end(&r, 3, 400, 300);
	assert_non_null(strstr(r.log.text, " lossy lost=10 undecoded=gzip\n"));
	assert_non_null(strstr(r.log.text, "ttfb=100 first=200 visible=200 end=300 kind=text\n"));
	assert_non_null(strstr(r.log.text, "usage=partial uncached=10 read=0 write=0 input=10 output=1\n"));
	rig_close(&r);
}

/* A head of which type and coding are not known: the first bytes tell both, or that nothing can be read is said. */
static void test_partial_head(void **state)
{
	static const char *const pieces[] = {START(USAGE10), TEXT("o"), TEXT("k") STOP("5") DONE};
	static const struct {
		const char *headers, *body, *want;
	} rows[] = {
		{"", START(USAGE10) TEXT("ok") STOP("5") DONE,
		 "first=110 visible=110 last=110 end=300 kind=text chunks=1"},
		{"content-encoding: identity\n", "\x1f no", " undecoded=content coding\n"},
		{"", "\x8b\x02\x80", " undecoded=content coding\n"},
		/* br, which may begin like text */
		{"", "!\x14\x01\x04hello\x03", " undecoded=content coding\n"},
		{"content-type: text/event-stream\n", "\x1b\x02\x80", " undecoded=content coding\n"},
		{"content-type: application/json\n", "!\x14\x01\x04hello\x03", " undecoded=content coding\n"},
		{"content-type: text/event-stream\n", "\n\n" START(USAGE10) TEXT("ok") STOP("5") DONE,
		 "first=110 visible=110 last=110 end=300 kind=text chunks=1"},
		{"", "(no zstd", " undecoded=zstd\n"},
	};
	uint8_t out[4096];
	size_t ends[3], len = gzip(out, sizeof(out), pieces, 3, ends);
	struct rig r;

	(void)state;
	rig_open(&r);
	for (size_t cut = 0; cut < 2; cut++) {
		req(&r, 1 + cut, "/v1/messages", HOST, ASK, 0);
		resp_head_partial(&r, 1 + cut, "", 100);
		resp_bytes(&r, 1 + cut, out, cut, 110);
		resp_bytes(&r, 1 + cut, out + cut, ends[1] - cut, 200);
		resp_bytes(&r, 1 + cut, out + ends[1], len - ends[1], 300);
		resp_end(&r, 1 + cut, 400, 300);
		expect(&r, "first=200 visible=200 last=300 end=300 kind=text chunks=2 stalls=0 gap=100 decode=40\n");
		expect(&r, "  usage=reported uncached=10 read=0 write=0 input=10 output=5\n  text=ok\n");
		tlog_free(&r.log);
	}
	assert_int_equal(lost_total(&r.lost), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		req(&r, 10 + i, "/v1/messages", HOST, ASK, 0);
		resp_head_partial(&r, 10 + i, rows[i].headers, 100);
		resp(&r, 10 + i, rows[i].body, 110);
		resp_end(&r, 10 + i, 400, 300);
		expect(&r, rows[i].want);
		tlog_free(&r.log);
	}
	rig_close(&r);
}

/* The text of a token may be a NUL, or have one in it. */
static void test_nul_tokens(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	stream(&r, 1, 0, 100);
	resp(&r, 1, START(USAGE10), 110);
	resp(&r, 1, TEXT("\\u0000"), 200);
	resp(&r, 1, TEXT("a\\u0000b"), 300);
	resp(&r, 1, STOP("5") DONE, 310);
	resp_end(&r, 1, 400, 310);
	expect(&r, "first=200 visible=200 last=300 end=310 kind=text chunks=2 ");
	expect(&r, "  text=\\xef\\xbf\\xbda\\xef\\xbf\\xbdb\n");
	rig_close(&r);
}

/* A body that is over before its coding is: what came counts, and that it is not all is said. Where the answer's last
 * word came nothing is missing. */
static void test_coding_cut(void **state)
{
	static const char *const pieces[] = {START(USAGE10), TEXT("o"), TEXT("k") STOP("5") DONE};
	static const char *const unary[] = {
		"{\"type\":\"message\",\"model\":\"claude-x-1\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}],"
		"\"stop_reason\":\"end_turn\",\"usage\":{" USAGE10 "}}"};
	uint8_t out[4096];
	size_t ends[3], len = gzip(out, sizeof(out), pieces, 3, ends);
	struct rig r;

	(void)state;
	rig_open(&r);
	req(&r, 1, "/v1/messages", HOST, ASK, 0);
	resp_head(&r, 1, 200, STREAM "content-encoding: gzip\n", 100);
	resp_bytes(&r, 1, out, ends[0], 110);
	resp_bytes(&r, 1, out + ends[0], ends[1] - ends[0], 200);
	resp_end(&r, 1, 400, 300);
	assert_log(&r.log, "call 1 " ANTHROPIC "stream=1\n"
			   "  model=claude-x-1 asked=claude-x undecoded=gzip\n"
			   "   start=0 send=0 ttfb=100 first=200 visible=200 end=300 kind=text\n"
			   "  request messages=1 tools=0 system=0 max=64 thinking=0 sent=192 got=400\n"
			   "  usage=partial uncached=10 read=0 write=0 input=10 output=1\n"
			   "  text=o\n");
	assert_int_equal(r.lost.n[LOST_DECODE_ERRORS], 1);
	tlog_free(&r.log);
	/* without the coding's own end, as a server that never writes it */
	req(&r, 2, "/v1/messages", HOST, ASK, 1000);
	resp_head(&r, 2, 200, STREAM "content-encoding: gzip\n", 1100);
	resp_bytes(&r, 2, out, len - 8, 1200);
	resp_end(&r, 2, 400, 1300);
	expect(&r, "usage=reported uncached=10 read=0 write=0 input=10 output=5\n");
	assert_null(strstr(r.log.text, "undecoded"));
	tlog_free(&r.log);
	len = gzip(out, sizeof(out), unary, 1, ends);
	for (size_t lack = 8; lack <= 12; lack += 4) {
		req(&r, 3 + lack, "/v1/messages", HOST, ASK_UNARY, 2000 + lack);
		resp_head(&r, 3 + lack, 200, JSON "content-encoding: gzip\n", 2100);
		resp_bytes(&r, 3 + lack, out, len - lack, 2200);
		resp_end(&r, 3 + lack, 400, 2300);
		assert_int_equal(!strstr(r.log.text, "usage=reported"), lack > 8);
		assert_int_equal(!strstr(r.log.text, "undecoded=gzip"), lack == 8);
		tlog_free(&r.log);
	}
	assert_int_equal(r.lost.n[LOST_DECODE_ERRORS], 2);
	rig_close(&r);
}

/* --- loss -------------------------------------------------------------------------------------------------------- */

static void test_loss(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	/* before the first token: there is none any more */
	stream(&r, 1, 0, 100);
	resp(&r, 1, START(USAGE10) "event: content_block_delta\nda", 110);
	gap(&r, 1, HTTP_RESPONSE, 247, HTTP_GAP_LOST, 200);
	resp(&r, 1, "_delta\",\"text\":\"x\"}}\n\n" TEXT("b"), 300);
	resp(&r, 1, STOP("7") DONE, 400);
	resp_end(&r, 1, 900, 400);
	assert_log(&r.log, "call 1 " ANTHROPIC "stream=1\n"
			   "  model=claude-x-1 asked=claude-x stop=end_turn lossy lost=247\n"
			   "   start=0 send=0 ttfb=100 seen=300 last=300 end=400\n"
			   "  request messages=1 tools=0 system=0 max=64 thinking=0 sent=192 got=900\n"
			   "  usage=reported uncached=10 read=0 write=0 input=10 output=7\n"
			   "  text=b\n");
	tlog_free(&r.log);
	/* after it: the first stays, the last is unknown unless another one follows; sizes add up, unknown ones win */
	stream(&r, 2, 0, 100);
	resp(&r, 2, START(USAGE10) TEXT("a"), 110);
	gap(&r, 2, HTTP_RESPONSE, 5, HTTP_GAP_LOST, 200);
	gap(&r, 2, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, 210);
	gap(&r, 2, HTTP_RESPONSE, 5, HTTP_GAP_LOST, 220);
	resp(&r, 2, "\n\n" STOP("7"), 400);
	abort_at(&r, 2, HTTP_ABORT_LOSS, 450);
	assert_non_null(strstr(r.log.text, " end=capture_loss lossy lost=-1\n"));
	assert_non_null(strstr(r.log.text, " thinking=0 sent=192\n"));
	assert_non_null(strstr(r.log.text, "ttfb=100 first=110 visible=110 end=450 kind=text\n"));
	assert_non_null(strstr(r.log.text, "usage=partial uncached=10 read=0 write=0 input=10 output=7\n"));
	tlog_free(&r.log);
	/* in a document: nothing of it can be trusted */
	req(&r, 3, "/v1/messages", HOST, ASK_UNARY, 0);
	resp_head(&r, 3, 200, JSON, 100);
	resp(&r, 3, "{\"type\":\"message\",\"model\":\"claude-x-1\",", 110);
	gap(&r, 3, HTTP_RESPONSE, 5, HTTP_GAP_LOST, 200);
	resp(&r, 3, "\"usage\":{\"input_tokens\":1}}", 300);
	resp_end(&r, 3, 100, 300);
	assert_non_null(strstr(r.log.text, "model=claude-x asked=claude-x lossy lost=5\n"));
	assert_null(strstr(r.log.text, "usage="));
	tlog_free(&r.log);
	/* in the request */
	req_head(&r, 4, "POST", "/v1/messages", HOST, 0);
	req_body(&r, 4, "{\"model\":\"claude-x\",\"messages\":[{\"role\":\"us", 0);
	gap(&r, 4, HTTP_REQUEST, 30, HTTP_GAP_LOST, 1);
	req_body(&r, 4, "}]}", 2);
	req_end(&r, 4, 99, 2);
	resp_head(&r, 4, 200, STREAM, 100);
	resp(&r, 4, START(USAGE10) TEXT("a") STOP("5") DONE, 110);
	resp_end(&r, 4, 900, 120);
	assert_log(&r.log,
		   "call 4 " ANTHROPIC "stream=1\n"
		   "  model=claude-x-1 asked=claude-x stop=end_turn lossy lost=30\n"
		   "   start=0 send=2 ttfb=100 first=110 visible=110 last=110 end=120 kind=text chunks=1 stalls=0\n"
		   "  request sent=99 got=900\n"
		   "  usage=reported uncached=10 read=0 write=0 input=10 output=5\n"
		   "  text=a\n");
	/* silences that were seen are stalls; not one with something missing in it, nor the one before the end */
	stream(&r, 9, 0, 100);
	gap(&r, 9, HTTP_RESPONSE, 247, HTTP_GAP_LOST, 200);
	resp(&r, 9, "\n\n" TEXT("a"), 300);
	resp(&r, 9, TEXT("b"), 1400);
	gap(&r, 9, HTTP_RESPONSE, 50, HTTP_GAP_LOST, 3000);
	resp(&r, 9, "\n\n" TEXT("c"), 4000);
	resp_end(&r, 9, 900, 9000);
	assert_non_null(strstr(r.log.text, "seen=300 last=4000 end=9000 stall=300 to=1400\n"));
	rig_close(&r);
}

/* Whose the response is nobody knows, which is said before its head or behind: nothing of it is told. */
static void test_doubt(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	for (int late = 0; late < 2; late++) {
		stream(&r, 1 + (uint64_t)late, 0, 100);
		if (!late)
			gap(&r, 1 + late, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_DOUBT, 100);
		resp(&r, 1 + late, START(USAGE10) TEXT("a") STOP("7") DONE, 110);
		if (late)
			gap(&r, 1 + late, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_DOUBT, 100);
		resp_end(&r, 1 + late, 900, 120);
		assert_non_null(strstr(r.log.text, "  model=claude-x asked=claude-x end=capture_loss lossy lost=-1\n"));
		assert_non_null(strstr(r.log.text, " status=0 "));
		assert_null(strstr(r.log.text, "usage="));
		assert_null(strstr(r.log.text, "text="));
		assert_null(strstr(r.log.text, "ttfb="));
		tlog_free(&r.log);
	}
	rig_close(&r);
}

/* A request over the capture cap is truncated by choice: no loss, and only what was read is known. */
static void test_truncated(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req_head(&r, 1, "POST", "/v1/messages", HOST, 0);
	req_body(&r, 1,
		 "{\"model\":\"claude-x\",\"system\":\"abc\",\"stream\":true,\"max_tokens\":5,\"tools\":[{}],"
		 "\"messages\":[",
		 0);
	gap(&r, 1, HTTP_REQUEST, 300000, HTTP_GAP_CAPPED, 1);
	req_end(&r, 1, 300200, 2);
	resp_head(&r, 1, 200, STREAM, 100);
	resp(&r, 1, START(USAGE10) TEXT("a") STOP("5") DONE, 110);
	resp_end(&r, 1, 900, 120);
	assert_log(&r.log,
		   "call 1 " ANTHROPIC "stream=1\n"
		   "  model=claude-x-1 asked=claude-x stop=end_turn truncated\n"
		   "   start=0 send=2 ttfb=100 first=110 visible=110 last=110 end=120 kind=text chunks=1 stalls=0\n"
		   "  request tools=1 system=3 max=5 sent=300200 got=900\n"
		   "  usage=reported uncached=10 read=0 write=0 input=10 output=5\n"
		   "  text=a\n");
	assert_int_equal(lost_total(&r.lost), 0);
	rig_close(&r);
}

/* --- no calls, and calls attached in the middle ------------------------------------------------------------------ */

static void test_no_calls(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req(&r, 1, "/api/event_logging/v2/batch", HOST, "{\"model\":\"claude-x\",\"messages\":[]}", 0);
	assert_int_equal(exchanges_open_count(r.table), 0);
	resp_head(&r, 1, 200, JSON, 1);
	resp(&r, 1, "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}", 1);
	resp_end(&r, 1, 1, 2);
	/* the path alone is no proof: MCP's old transport, a survey's responses */
	req(&r, 2, "/mcp/v1/messages", HOST, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", 3);
	resp_head(&r, 2, 202, JSON, 4);
	resp(&r, 2, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", 4);
	resp_end(&r, 2, 1, 5);
	req(&r, 3, "/surveys/7/responses", HOST, "answer=42", 6);
	resp_head(&r, 3, 200, JSON, 7);
	resp(&r, 3, "{\"id\":7,\"status\":\"ok\"}", 7);
	resp_end(&r, 3, 1, 8);
	assert_log(&r.log, "");
	assert_int_equal(exchanges_conn_calls(r.flow), 0);
	/* an answer that is a model's proves it all the same */
	req(&r, 4, "/v1/messages", HOST, "", 9);
	resp_head(&r, 4, 400, JSON, 10);
	resp(&r, 4, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"}}", 10);
	resp_end(&r, 4, 1, 11);
	assert_non_null(strstr(r.log.text, "error=invalid_request_error"));
	assert_int_equal(exchanges_conn_calls(r.flow), 1);
	/* words about exchanges that are not there */
	resp(&r, 99, "x", 12);
	resp_end(&r, 99, 1, 13);
	abort_at(&r, 98, HTTP_ABORT_CLIENT, 14);
	req_end(&r, 97, 1, 15);
	assert_int_equal(r.lost.late_bytes, 0);
	rig_close(&r);
}

/* Not the call is old: the connection was seen from its start, or a request on it. */
static void test_request_lost(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	r.http.on_request(r.http.ctx, 1, NULL, &AT(10));
	resp_head(&r, 1, 200, STREAM, 10);
	resp(&r, 1, TEXT("b") STOP("33") DONE, 30);
	resp_end(&r, 1, 100, 40);
	expect(&r, " proto=http/1.1 status=200 api=anthropic provider=anthropic op=chat class=main stream=1\n"
		   "  stop=end_turn lossy lost=-1\n"
		   "   start=10 seen=30 last=30 end=40 chunks=1 stalls=0\n"
		   "  request got=100\n");
	assert_int_equal(r.lost.n[LOST_EVENTS], 1); /* something must say so */
	rig_close(&r);
	/* met in the middle: a response from before the first request that was seen, told when that came, is none's
	 * lost one */
	rig_open(&r);
	r.conn.fresh = false;
	req(&r, 2, "/v1/messages", HOST, ASK, 50);
	r.http.on_request(r.http.ctx, 1, NULL, &AT(10));
	resp_head(&r, 1, 200, STREAM, 10);
	resp(&r, 1, TEXT("b") STOP("33") DONE, 30);
	resp_end(&r, 1, 100, 40);
	expect(&r, "  stop=end_turn mid_attach\n");
	tlog_free(&r.log);
	/* one after it is */
	r.http.on_request(r.http.ctx, 3, NULL, &AT(60));
	resp_head(&r, 3, 200, STREAM, 60);
	resp(&r, 3, TEXT("b") STOP("33") DONE, 70);
	resp_end(&r, 3, 100, 80);
	expect(&r, "  stop=end_turn lossy lost=-1\n");
	rig_close(&r);
}

/* A request's head that is too long: the answer says what it was, and the times are its own. */
static void test_unreadable_head(void **state)
{
	struct http_head head = {.protocol = "http/1.1", .unreadable = true};
	struct rig r;

	(void)state;
	rig_open(&r);
	r.http.on_request(r.http.ctx, 1, &head, &AT(5));
	resp_head(&r, 1, 200, STREAM, 100);
	resp(&r, 1, START(USAGE10) TEXT("a") STOP("5") DONE, 110);
	resp_end(&r, 1, 900, 120);
	expect(&r, "call 1 proto=http/1.1 status=200 api=anthropic provider=anthropic op=chat class=main stream=1\n"
		   "  model=claude-x-1 stop=end_turn undecoded=http/1.1\n"
		   "   start=5 ttfb=100 first=110 visible=110 last=110 end=120 kind=text chunks=1 stalls=0\n"
		   "  request got=900\n");
	tlog_free(&r.log);
	r.http.on_request(r.http.ctx, 2, &head, &AT(200)); /* of nobody knows what */
	resp_head(&r, 2, 431, "", 210);
	resp_end(&r, 2, 90, 210);
	assert_log(&r.log, "");
	head.method = SV("POST"); /* its first line is known */
	head.target = SV("/v1/messages?key=k");
	r.http.on_request(r.http.ctx, 4, &head, &AT(220));
	resp_head(&r, 4, 200, STREAM, 230);
	resp(&r, 4, START(USAGE10) TEXT("a") STOP("5") DONE, 240);
	resp_end(&r, 4, 900, 250);
	expect(&r, "proto=http/1.1 method=POST path=/v1/messages");
	expect(&r, "undecoded=http/1.1");
	req(&r, 3, "/v1/messages", HOST, ASK, 300);
	abort_at(&r, 3, HTTP_ABORT_PARSE, 310);
	expect(&r, "end=capture_loss undecoded=http/1.1\n");
	rig_close(&r);
}

/* What the first event said of the output is a placeholder when the last one may be lost. */
static void test_stale_usage(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	stream(&r, 1, 0, 100);
	resp(&r, 1, START(USAGE10) TEXT("a"), 110);
	gap(&r, 1, HTTP_RESPONSE, 30, HTTP_GAP_LOST, 120);
	resp(&r, 1, "\n\n" DONE, 130);
	resp_end(&r, 1, 900, 130);
	expect(&r, " lossy lost=30\n");
	expect(&r, "usage=partial uncached=10 read=0 write=0 input=10 output=1\n");
	rig_close(&r);
}

/* A count that is none makes the one before it stale, not true. */
static void test_unreadable_usage(void **state)
{
	static const char *const counts[] = {"-7", "7.5", "\"7\"", "9007199254740994", "1e300", "{}", "true"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		char event[512];
		struct rig r;

		rig_open(&r);
		stream(&r, 1, 0, 100);
		resp(&r, 1, START(USAGE10) TEXT("a"), 110);
		snprintf(event, sizeof(event), STOP("%s") DONE, counts[i]);
		resp(&r, 1, event, 120);
		resp_end(&r, 1, 100, 120);
		expect(&r, "  usage=partial uncached=10 read=0 write=0 input=10 good\n");
		rig_close(&r);
	}
}

/* A part that is larger than its whole: neither is known, and what does not depend on them is. */
static void test_contradictory_usage(void **state)
{
	static const struct {
		const char *usage, *want;
	} rows[] = {
		{"\"prompt_tokens\":10,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":50}",
		 "  usage=partial output=2 good\n"},
		{"\"prompt_tokens\":10,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":6,"
		 "\"cache_write_tokens\":5}",
		 "  usage=partial output=2 good\n"},
		{"\"prompt_tokens\":10,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":10}",
		 "  usage=reported uncached=0 read=10 write=0 input=10 output=2\n"},
		{"\"prompt_tokens\":10,\"completion_tokens\":5,\"completion_tokens_details\":{\"reasoning_tokens\":6}",
		 "  usage=partial write=0 input=10 good\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char event[512];
		struct rig r;

		rig_open(&r);
		req(&r, 1, "/v1/chat/completions", HOST, CHAT, 0);
		resp_head(&r, 1, 200, STREAM, 1);
		snprintf(event, sizeof(event), "data: {\"choices\":[],\"usage\":{%s}}\n\ndata: [DONE]\n\n",
			 rows[i].usage);
		resp(&r, 1, event, 2);
		resp_end(&r, 1, 9, 4);
		expect(&r, rows[i].want);
		rig_close(&r);
	}
}

/* What was carried is not known where the length of a hole is not. */
static void test_holes(void **state)
{
	static const struct {
		enum http_side side;
		uint64_t len;
		enum http_gap why;
		const char *want;
	} rows[] = {
		{HTTP_REQUEST, 5, HTTP_GAP_LOST, " sent=192 got=100\n"},
		{HTTP_REQUEST, UINT64_MAX, HTTP_GAP_LOST, " got=100\n"},
		{HTTP_REQUEST, UINT64_MAX, HTTP_GAP_CAPPED, " got=100\n"},
		{HTTP_RESPONSE, 5, HTTP_GAP_LOST, " sent=192 got=100\n"},
		{HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, " sent=192\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool request = rows[i].side == HTTP_REQUEST;
		struct rig r;

		rig_open(&r);
		req_head(&r, 1, "POST", "/v1/messages", HOST, 0);
		req_body(&r, 1, "{\"model\":\"claude-x\",", 0);
		if (request)
			gap(&r, 1, HTTP_REQUEST, rows[i].len, rows[i].why, 1);
		req_end(&r, 1, 192, 2);
		resp_head(&r, 1, 200, STREAM, 100);
		if (!request)
			gap(&r, 1, HTTP_RESPONSE, rows[i].len, rows[i].why, 1);
		resp(&r, 1, TEXT("a") DONE, 110);
		resp_end(&r, 1, 100, 120);
		expect(&r, rows[i].want);
		assert_true(strstr(rows[i].want, "got") || !strstr(r.log.text, "got"));
		assert_true(strstr(rows[i].want, "sent") || !strstr(r.log.text, "sent"));
		rig_close(&r);
	}
}

static void test_mid_attach(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	r.conn.fresh = false;
	r.http.on_request(r.http.ctx, 1, NULL, &AT(5));
	assert_int_equal(exchanges_conn_calls(r.flow), 0);
	resp(&r, 1, "ta: {\"type\":\"x\"}\n\n" PING, 5);
	resp_head(&r, 2, 200, STREAM, 6);
	resp_end(&r, 1, 1, 7);
	assert_log(&r.log, "");
	/* its head was seen */
	r.http.on_request(r.http.ctx, 2, NULL, &AT(10));
	resp_head(&r, 2, 200, STREAM, 10);
	resp(&r, 2, PING TEXT("a"), 20);
	assert_int_equal(exchanges_conn_calls(r.flow), 1);
	resp(&r, 2, TEXT("b") STOP("33") DONE, 30);
	resp_end(&r, 2, 100, 40);
	assert_log(&r.log,
		   "call 1 proto=http/1.1 method=POST status=200 api=anthropic provider=anthropic op=chat class=main "
		   "stream=1\n"
		   "  stop=end_turn mid_attach\n"
		   "   start=10 seen=20 last=30 end=40 chunks=2 stalls=0 gap=10\n"
		   "  request got=100\n"
		   "  usage=reported output=33\n"
		   "  text=ab\n");
	tlog_free(&r.log);
	/* unary, and a document of something else */
	r.http.on_request(r.http.ctx, 3, NULL, &AT(50));
	resp_head(&r, 3, 200, JSON, 50);
	resp(&r, 3, "{\"object\":\"chat.completion\",\"model\":\"g\",\"choices\":[],\"usage\":{\"prompt_tokens\":3}}",
	     60);
	resp_end(&r, 3, 100, 60);
	assert_non_null(strstr(r.log.text,
			       "api=openai.chat provider=openai op=chat class=main stream=0\n  model=g mid_attach\n"));
	tlog_free(&r.log);
	r.http.on_request(r.http.ctx, 4, NULL, &AT(70));
	resp_head(&r, 4, 200, JSON, 70);
	resp(&r, 4, "{\"model\":\"claude\",\"n\":1}", 70);
	resp_end(&r, 4, 100, 70);
	r.http.on_request(r.http.ctx, 5, NULL, &AT(80));
	resp_head(&r, 5, 200, "content-type: image/png\n", 80);
	resp(&r, 5, "\x89PNG", 80);
	resp(&r, 5, "more", 80);
	resp_end(&r, 5, 100, 80);
	assert_log(&r.log, "");
	assert_int_equal(r.lost.n[LOST_LATE], 1); /* the first: only its end was seen, and that says nothing */
	r.http.on_request(r.http.ctx, 6, NULL, &AT(90));
	resp(&r, 6, "\"n\":1}", 90);
	r.http.on_abort(r.http.ctx, 6, HTTP_ABORT_LOSS, 6, 90 * MS);
	assert_log(&r.log, "");
	assert_int_equal(r.lost.n[LOST_LATE], 2);
	rig_close(&r);
}

/* --- who calls --------------------------------------------------------------------------------------------------- */

static void test_identity(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	one(&r, "/v1/messages", HOST "X-Claude-Code-Session-Id: s1\nauthorization: Bearer SECRET\nx-api-key: SECRET\n",
	    ASK);
	expect(&r, "class=main");
	expect(&r, " session=s1\n");
	one(&r, "/v1/messages", HOST "x-claude-code-session-id: s1\nx-claude-code-agent-id: a1\n", ASK);
	expect(&r, "class=subagent");
	expect(&r, " session=s1 agent=a1\n");
	one(&r, "/v1/messages", HOST "x-claude-code-agent-id: a1\nx-claude-code-parent-agent-id: a0\n", ASK);
	expect(&r, "class=subagent");
	expect(&r, " agent=a1 parent=a0\n");
	one(&r, "/v1/messages", HOST "x-claude-code-agent-id: a1\nx-claude-code-request-class: auxiliary\n", ASK);
	expect(&r, "class=aux");
	one(&r, "/v1/responses", HOST "session-id: t\nthread-id: t\n", "{\"model\":\"g\",\"input\":[]}");
	expect(&r, "class=main");
	expect(&r, " session=t agent=t\n");
	one(&r, "/v1/responses", HOST "session-id: t\nthread-id: u\nx-codex-parent-thread-id: t\n",
	    "{\"model\":\"g\",\"input\":[]}");
	expect(&r, "class=subagent");
	expect(&r, " session=t agent=u parent=t\n");
	one(&r, "/v1/responses", HOST "x-openai-subagent: compact\n", "{\"model\":\"g\",\"input\":[]}");
	expect(&r, "class=aux");
	one(&r, "/v1/responses", HOST "x-codex-turn-metadata: {\"turn_id\":\"1\",\"request_kind\": \"prewarm\"}\n",
	    "{\"model\":\"g\",\"input\":[]}");
	expect(&r, "class=prewarm");
	one(&r, "/v1/responses", HOST, "{\"model\":\"g\",\"input\":[],\"generate\":false}");
	expect(&r, "class=prewarm");
	one(&r, "/v1/responses", HOST,
	    "{\"model\":\"g\",\"input\":[],\"prompt_cache_key\":\"k\",\"client_metadata\":{\"x\":1}}");
	expect(&r, " session=k\n");
	one(&r, "/v1/responses", HOST, "{\"model\":\"g\",\"input\":[],\"prompt_cache_key\":\"k\"}");
	assert_null(strstr(r.log.text, "session="));
	one(&r, "/v1/responses", HOST, "{\"model\":\"g\",\"input\":[],\"client_metadata\":{\"session_id\":\"cm\"}}");
	expect(&r, " session=cm\n");
	one(&r, "/v1/chat/completions", HOST "x-session-id: o\nx-parent-session-id: p\n", CHAT);
	expect(&r, "class=subagent");
	expect(&r, " session=o parent=p\n");
	one(&r, "/v1/chat/completions", HOST "x-interaction-type: conversation-subagent\n", CHAT);
	expect(&r, "class=subagent");
	one(&r, "/v1/messages/count_tokens", HOST, ASK);
	expect(&r, "class=count");
	one(&r, "/v1/messages", HOST, "{\"model\":\"c\",\"max_tokens\":0,\"messages\":[]}");
	expect(&r, "class=prewarm");
	one(&r, "/v1/messages", HOST,
	    "{\"messages\":[],\"metadata\":{\"user_id\":\"{\\\"device_id\\\":\\\"d\\\",\\\"session_id\\\":\\\"s9\\\"}"
	    "\"}}");
	expect(&r, " session=s9\n");
	one(&r, "/v1/messages", HOST, "{\"messages\":[],\"metadata\":{\"user_id\":\"user_1_account_2_session_s8\"}}");
	expect(&r, " session=s8\n");
	one(&r, "/v1/messages", HOST, "{\"messages\":[],\"metadata\":{\"user_id\":\"jane@example.com\"}}");
	assert_null(strstr(r.log.text, "jane"));
	assert_null(strstr(r.log.text, "SECRET"));
	rig_close(&r);
}

/* Who resets the stream after the answer's last event has all of it, and the call ended with that event; before that
 * event it does not. */
static void test_reset_when_whole(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	stream(&r, 1, 10, 20);
	resp(&r, 1, "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n", 30);
	resp(&r, 1, "data: {\"type\":\"message_stop\"}\n\n", 40);
	abort_at(&r, 1, HTTP_ABORT_CLIENT, 5000);
	expect(&r, " end=client_abort whole\n");
	expect(&r, " end=40 chunks=");
	tlog_free(&r.log);
	stream(&r, 2, 110, 120);
	resp(&r, 2, "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n", 130);
	abort_at(&r, 2, HTTP_ABORT_CLIENT, 150);
	expect(&r, " end=150 chunks=");
	expect(&r, " end=client_abort\n"); /* and no attempt of the first one's again */
	assert_null(strstr(r.log.text, " whole"));
	rig_close(&r);
}

/* While bytes of the answers are missing nobody knows whether the program left before the end. */
static void test_reset_in_doubt(void **state)
{
	static const enum http_abort by[] = {HTTP_ABORT_CLIENT, HTTP_ABORT_SERVER, HTTP_ABORT_CLOSED};

	(void)state;
	for (unsigned whole = 0; whole < 2; whole++)
		for (size_t i = 0; i < ARRAY_SIZE(by); i++) {
			struct rig r;

			rig_open(&r);
			stream(&r, 1, 10, 20);
			if (whole)
				resp(&r, 1, "data: {\"type\":\"message_stop\"}\n\n", 40);
			r.conn.answers_wait = true;
			abort_at(&r, 1, by[i], 50);
			if (whole)
				assert_null(strstr(r.log.text, "lossy"));
			else
				expect(&r, " end=capture_loss lossy lost=-1\n");
			rig_close(&r);
		}
}

/* --- prompts of sub-agents --------------------------------------------------------------------------------------- */

struct prompts {
	uint64_t asks[4], opening[CALL_OPENINGS];
	size_t tools;
};

static void note_prompts(void *ctx, const struct call *c)
{
	struct prompts *p = ctx;

	p->tools = c->tool_count;
	for (size_t i = 0; i < c->tool_count && i < ARRAY_SIZE(p->asks); i++)
		p->asks[i] = c->tools[i].asks;
	memcpy(p->opening, c->opening, sizeof(p->opening));
}

static struct prompts prompts_of(const char *target, const char *ask, const char *headers, const char *answer)
{
	struct prompts p = {0};
	const struct exchange_sink sink = {.ctx = &p, .on_call = note_prompts};
	struct rig r = {.conn = conn_default()};

	r.table = exchanges_new(&default_config, &r.lost, &sink);
	assert_non_null(r.table);
	r.flow = exchanges_conn_new(r.table, &r.conn);
	assert_non_null(r.flow);
	r.http = exchanges_http_sink(r.flow);
	req(&r, 1, target, HOST, ask, 10);
	resp_head(&r, 1, 200, headers, 20);
	resp(&r, 1, answer, 30);
	resp_end(&r, 1, 1, 40);
	rig_close(&r);
	return p;
}

#define PIECE(json)                                                                                                    \
	EVENT("content_block_delta",                                                                                   \
	      ",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"" json "\"}")

/* What a tool call asks for and what a conversation begins with have the same mark, whichever API says it, in whichever
 * pieces; other texts have others. */
static void test_prompts(void **state)
{
	static const struct {
		const char *target, *headers, *answer;
	} rows[] = {
		{"/v1/messages", STREAM,
		 START(USAGE10) BLOCK("\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"Task\",\"input\":{}") PIECE("")
			 PIECE("{\\\"description\\\":\\\"short\\\",\\\"prompt\\\":\\\"Look \\\\u00fcb")
				 PIECE("er it all.\\\",\\\"x\\\":{\\\"y\\\":")
					 PIECE("\\\"deeper than it may count, and longer\\\"}}") BLOCK(
						 "\"type\":\"tool_use\",\"id\":\"b\",\"name\":\"Task\",\"input\":{}")
						 PIECE("{\\\"prompt\\\":\\\"Look \\\\u00fcber it not.\\\"}") DONE},
		{"/v1/messages", JSON,
		 "{\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":["
		 "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"Task\",\"input\":{\"prompt\":\"Look \\u00fcber it "
		 "all.\"}},"
		 "{\"type\":\"tool_use\",\"id\":\"b\",\"name\":\"Task\",\"input\":{\"prompt\":\"Look \\u00fcber it "
		 "not.\"}}]}"},
		{"/v1/chat/completions", STREAM,
		 DELTA("{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"task\",\"arguments\":\"\"}}"
		       "]}") DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"prompt\\\":"
				   "\\\"Look \"}}]}") DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":"
							    "\"\u00fcber it all.\\\"}\"}}]}")
			 DELTA("{\"tool_calls\":[{\"index\":1,\"id\":\"b\",\"function\":{\"name\":\"task\","
			       "\"arguments\":"
			       "\"{\\\"prompt\\\":\\\"Look \u00fcber it not.\\\"}\"}}]}") "data: [DONE]\n\n"},
		{"/v1/responses", STREAM,
		 "data: "
		 "{\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"call_id\":\"a\","
		 "\"name\":"
		 "\"spawn_agent\",\"arguments\":\"\"}}\n\n"
		 "data: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{\\\"message\\\":\\\"Look "
		 "\u00fcber it \"}\n\n"
		 "data: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"all.\\\"}\"}\n\n"
		 "data: {\"type\":\"response.output_item.done\",\"item\":"
		 "{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"spawn_agent\",\"arguments\":\"{"
		 "\\\"message\\\":\\\"else\\\"}\"}}\n\n"
		 "data: {\"type\":\"response.output_item.done\",\"item\":"
		 "{\"type\":\"function_call\",\"call_id\":\"b\",\"name\":\"spawn_agent\",\"arguments\":"
		 "\"{\\\"message\\\":\\\"Look \u00fcber it not.\\\"}\"}}\n\n"},
		{"/v1beta/models/g:generateContent", JSON,
		 "{\"candidates\":[{\"content\":{\"parts\":["
		 "{\"functionCall\":{\"name\":\"delegate\",\"args\":{\"objective\":\"Look \\u00fcber it all.\"}}},"
		 "{\"functionCall\":{\"name\":\"delegate\",\"args\":{\"objective\":\"Look \\u00fcber it "
		 "not.\"}}}]}}]}"},
	};
	static const struct {
		const char *target, *body;
		unsigned at;
	} asks[] = {
		{"/v1/messages",
		 "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
		 "\"text\":"
		 "\"<system-reminder>x\"},{\"type\":\"text\",\"text\":\"Look \\u00fcber it all.\"}]},"
		 "{\"role\":\"user\",\"content\":\"later\"}]}",
		 0},
		{"/v1/messages",
		 "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
		 "\"text\":"
		 "\"before\"},{\"type\":\"text\",\"text\":\"Look \\u00fcber it all.\"}]}]}",
		 1},
		{"/v1/chat/completions",
		 "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},"
		 "{\"role\":\"user\",\"content\":\"Look \u00fcber it all.\"}]}",
		 0},
		{"/v1/responses", "{\"model\":\"m\",\"input\":\"Look \u00fcber it all.\"}", 0},
		{"/v1beta/models/g:generateContent",
		 "{\"contents\":[{\"role\":\"user\",\"parts\":[{\"text\":\"Look \u00fcber it all.\"}]}]}", 0},
	};
	uint64_t mark = prompts_of(asks[0].target, asks[0].body, JSON, "{}").opening[0];

	(void)state;
	assert_true(mark != 0);
	for (size_t i = 0; i < ARRAY_SIZE(asks); i++)
		assert_true(prompts_of(asks[i].target, asks[i].body, JSON, "{}").opening[asks[i].at] == mark);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct prompts p = prompts_of(rows[i].target, "{\"messages\":[],\"input\":[],\"contents\":[]}",
					      rows[i].headers, rows[i].answer);

		assert_int_equal(p.tools, 2);
		if (p.asks[0] != mark || !p.asks[1] || p.asks[1] == mark)
			fail_msg("row %zu: %llx %llx, not %llx", i, (unsigned long long)p.asks[0],
				 (unsigned long long)p.asks[1], (unsigned long long)mark);
	}
}

/* Small calls without tools are auxiliary beside a session with tools of the same process, and only there; but of
 * clients whose agents always have tools. */
static void test_aux(void **state)
{
	static const char small[] = "{\"model\":\"c\",\"max_tokens\":9,\"messages\":[{},{}]}";
	static const char big[] = "{\"model\":\"c\",\"max_tokens\":9,\"messages\":[{},{},{},{}]}";
	static const char schema[] = "{\"model\":\"c\",\"max_tokens\":9,\"messages\":[{},{},{},{}],"
				     "\"output_config\":{\"format\":{\"type\":\"json_schema\"}}}";
	struct rig r;

	(void)state;
	rig_open(&r);
	one(&r, "/v1/messages", HOST, small);
	expect(&r, "class=main");
	/* the title call runs beside the first main call */
	req(&r, 1, "/v1/messages", HOST, "{\"model\":\"c\",\"tools\":[{}],\"messages\":[{}]}", 0);
	one(&r, "/v1/messages", HOST, small);
	expect(&r, "class=aux");
	one(&r, "/v1/messages", HOST, big);
	expect(&r, "class=main");
	one(&r, "/v1/messages", HOST, schema);
	expect(&r, "class=aux");
	r.conn.key.tgid++;
	one(&r, "/v1/messages", HOST, small);
	expect(&r, "class=main");
	/* clients whose helpers come before the session */
	one(&r, "/v1/chat/completions", HOST "User-Agent: opencode/1.18.33 ai-sdk/provider-utils/4.0.23\n",
	    "{\"model\":\"c\",\"messages\":[{\"role\":\"system\"},{\"role\":\"user\"},{\"role\":\"user\"}]}");
	expect(&r, "class=aux");
	one(&r, "/v1/chat/completions", HOST "User-Agent: opencode/1.18.33 ai-sdk/provider-utils/4.0.23\n",
	    "{\"model\":\"c\",\"messages\":[{\"role\":\"system\"},{\"role\":\"user\"}],\"tools\":[{}]}");
	expect(&r, "class=main");
	r.conn.key.tgid++;
	one(&r, "/v1beta/models/g:generateContent",
	    HOST "User-Agent: GeminiCLI-tui/0.61.0/gemini-x (linux; x64; terminal)\n",
	    "{\"contents\":[{},{},{},{}],\"generationConfig\":{\"responseMimeType\":\"application/json\"}}");
	expect(&r, "class=aux");
	one(&r, "/v1beta/models/g:generateContent", HOST "User-Agent: OpenAI/JS 5.20.1\n",
	    "{\"contents\":[{}],\"generationConfig\":{\"responseMimeType\":\"application/json\"}}");
	expect(&r, "class=main");
	/* Claude Code wants no schema of its agents' answers, and has an option for no tools */
	r.conn.key.tgid++;
	one(&r, "/v1/messages", HOST "user-agent: claude-cli/2.1.332 (external, cli)\n", schema);
	expect(&r, "class=aux");
	one(&r, "/v1/messages", HOST "user-agent: claude-cli/2.1.332 (external, cli)\n", small);
	expect(&r, "class=main");
	abort_at(&r, 1, HTTP_ABORT_CLOSED, 100);
	rig_close(&r);
}

static void test_paths(void **state)
{
	static const struct {
		const char *target, *path;
	} rows[] = {
		{"/v1/messages?beta=true", "/v1/messages?beta=true"},
		{"/a;jsessionid=secret/b;x;y=1;/c", "/a;jsessionid=*/b;x;y=1;/c"},
		{"/bot123456:AAFsecret/sendMessage", "/*/sendMessage"},
		{"/bot123456%3AAAFsecret", "/*"},
		{"/bots/bot1/both/", "/bots/bot1/both/"},
		{"/verify/eyJhbGciOiJIUzI1NiJ9.e30.abc?x=1", "/verify/*?x=1"},
		{"/sk-proj-abcdefgh/v1/messages", "/*/v1/messages"},
		{"/v1/ghp_16C7e42F292c6912E771/ghp_short", "/v1/*/ghp_short"},
		{"/services/T0/B0/XbK2mQ9zLr4TnVw8YhJc3FpD", "/services/T0/B0/*"},
		{"/webhooks/1/q_-aB3dE5fG7hI9jK1lM3nO5pQ-_x", "/webhooks/1/*"},
		{"/v1/0123456789abcdef0123456789abcdef/gw", "/v1/0123456789abcdef0123456789abcdef/gw"},
		{"/models/meta-llama/Meta-Llama-3-8B-Instruct-Turbo-Free",
		 "/models/meta-llama/Meta-Llama-3-8B-Instruct-Turbo-Free"},
		{"/getUserByEmailAddress2", "/getUserByEmailAddress2"},
		{"/v1/messages?key=AIza123", "/v1/messages?key=*"},
		{"/v1/messages?api-version=2024-06-01&sig=x", "/v1/messages?api-version=2024-06-01&sig=*"},
		{"/v1/messages?n=2", "/v1/messages?n=2"},
		{"/v1/messages?n=20240", "/v1/messages?n=*"},
		{"/v1/messages?pin=1234", "/v1/messages?pin=*"},
		{"/v1/messages?a", "/v1/messages?a"},
		{"/v1/messages?c2VjcmV0c2VjcmV0", "/v1/messages?*"},
		{"/v1/messages?x\x1b[2J=1", "/v1/messages?*=*"},
		{"/v1/messages?", "/v1/messages?"},
		{"https://user:pw@host/v1/messages?x=https://a/b", "/v1/messages?x=*"},
		{"/v1/messages#frag", "/v1/messages"},
		{"/proxy/https://api.anthropic.com/v1/messages", "/proxy/https://api.anthropic.com/v1/messages"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct tlog want = {0};
		struct rig r;

		rig_open(&r);
		one(&r, rows[i].target, HOST, ASK);
		put(&want, "path", rows[i].path);
		tlog_printf(&want, " host=");
		expect(&r, want.text);
		tlog_free(&want);
		rig_close(&r);
	}
}

/* Counts of the other dialects' requests. */
static void test_requests(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	one(&r, "/v1/chat/completions", HOST,
	    "{\"model\":\"g\",\"max_completion_tokens\":7,\"reasoning_effort\":\"low\",\"tools\":[{},{},{}],"
	    "\"messages\":["
	    "{\"role\":\"system\",\"content\":\"abc\"},{\"content\":[{\"type\":\"text\",\"text\":\"de\"},{\"text\":"
	    "\"f\"}],"
	    "\"role\":\"developer\"},{\"role\":\"user\",\"content\":\"not counted\"}]}");
	expect(&r, "  request messages=3 tools=3 system=6 max=7 thinking=1 ");
	one(&r, "/v1/responses", HOST,
	    "{\"model\":\"g\",\"max_output_tokens\":8,\"reasoning\":{\"effort\":\"high\"},\"instructions\":\"abcd\","
	    "\"input\":["
	    "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"x\"}]},{\"type\":\"function_call_"
	    "output\"}]}");
	expect(&r, "  request messages=2 tools=0 system=4 max=8 thinking=1 ");
	one(&r, "/v1/responses", HOST, "{\"model\":\"g\",\"input\":\"hi\",\"reasoning\":{\"effort\":\"none\"}}");
	expect(&r, "  request messages=1 tools=0 system=0 thinking=0 ");
	one(&r, "/v1/messages", HOST,
	    "{\"system\":\"abc\",\"thinking\":{\"type\":\"disabled\"},\"messages\":[],\"max_tokens\":1.5}");
	expect(&r, "  request messages=0 tools=0 system=3 thinking=0 ");
	rig_close(&r);
}

/* --- attempts ---------------------------------------------------------------------------------------------------- */

static void fail_with(struct rig *r, uint64_t xid, int status, const char *body, uint64_t start, uint64_t end)
{
	req(r, xid, "/v1/messages", HOST, body, start);
	resp_head(r, xid, status, JSON, end);
	resp_end(r, xid, 9, end);
}

static void test_retries(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	fail_with(&r, 1, 529, ASK, 0, 50);
	fail_with(&r, 2, 429, ASK, 600, 700);
	tlog_free(&r.log);
	fail_with(&r, 3, 200, ASK, 1750, 2000);
	expect(&r, " attempt=3 retry_of=1 wait=1050\n");
	/* it succeeded: the same question again is a new one; so is another body */
	tlog_free(&r.log);
	fail_with(&r, 4, 200, ASK, 2100, 2200);
	fail_with(&r, 5, 422, ASK, 2300, 2400);
	fail_with(&r, 7, 500, "{\"model\":\"another\",\"messages\":[]}", 2450, 2460);
	assert_null(strstr(r.log.text, "attempt="));
	fail_with(&r, 6, 500, ASK, 2500, 2600);
	expect(&r, " attempt=2 retry_of=5 wait=100\n");
	/* two parallel calls cannot both follow one failure */
	req(&r, 8, "/v1/messages", HOST, ASK, 2900);
	req(&r, 9, "/v1/messages", HOST, ASK, 2900);
	tlog_free(&r.log);
	abort_at(&r, 8, HTTP_ABORT_SERVER, 3000);
	expect(&r, " attempt=3 retry_of=5 wait=300\n");
	tlog_free(&r.log);
	abort_at(&r, 9, HTTP_ABORT_CLIENT, 3100);
	assert_null(strstr(r.log.text, "attempt="));
	/* too late; and a count by the client where the first attempt was not seen */
	tlog_free(&r.log);
	fail_with(&r, 10, 200, ASK, 3100 + 600001, 3100 + 600002);
	assert_null(strstr(r.log.text, "attempt="));
	one(&r, "/v1/messages", HOST "x-stainless-retry-count: 2\n", "{\"model\":\"other\",\"messages\":[]}");
	expect(&r, " attempt=3 retry_of=0 wait=-1\n");
	/* the members of a query have no order */
	req(&r, 20, "/v1/messages?beta=true&a=1", HOST, ASK_UNARY, 3200);
	abort_at(&r, 20, HTTP_ABORT_SERVER, 3300);
	req(&r, 21, "/v1/messages?a=1&beta=true", HOST, ASK_UNARY, 3400);
	abort_at(&r, 21, HTTP_ABORT_SERVER, 3500);
	expect(&r, " attempt=2 retry_of=12 wait=100\n");
	/* nor do those of a body; another name in it makes it another one */
	fail_with(&r, 22, 503, "{\"model\":\"z\",\"messages\":[],\"x\":\"1\"}", 4000, 4100);
	tlog_free(&r.log);
	fail_with(&r, 23, 503, "{\"x\":\"2\",\"model\":\"z\",\"messages\":[]}", 4200, 4300);
	assert_null(strstr(r.log.text, "attempt="));
	fail_with(&r, 24, 503, "{\"x\":\"1\",\"messages\":[],\"model\":\"z\"}", 4400, 4500);
	expect(&r, " attempt=2 retry_of=14 wait=300\n");
	rig_close(&r);
}

/* A connection is left, its calls end only when no bytes of it can follow: by then the next attempt may be over. */
static void test_retries_at_once(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req(&r, 1, "/v1/messages", HOST, ASK, 0);
	req(&r, 2, "/v1/messages", HOST, ASK, 10);
	resp_head(&r, 2, 200, JSON, 40); /* its body may end with the connection */
	exchanges_conn_closing(r.flow, AT(50).ts_ns);
	fail_with(&r, 3, 200, ASK, 60, 90);
	expect(&r, " attempt=2 retry_of=1 wait=10\n");
	tlog_free(&r.log);
	fail_with(&r, 4, 200, ASK, 95, 96);
	assert_null(strstr(r.log.text, "attempt="));
	abort_at(&r, 1, HTTP_ABORT_CLOSED, 50);
	abort_at(&r, 2, HTTP_ABORT_CLOSED, 50);
	tlog_free(&r.log);
	/* that one was not repeated yet, the first one was */
	fail_with(&r, 5, 200, ASK, 100, 110);
	expect(&r, " attempt=2 retry_of=2 wait=50\n");
	tlog_free(&r.log);
	fail_with(&r, 6, 200, ASK, 120, 130);
	assert_null(strstr(r.log.text, "attempt="));
	/* it was answered after all */
	req(&r, 7, "/v1/messages", HOST, ASK, 200);
	exchanges_conn_closing(r.flow, AT(210).ts_ns);
	resp_head(&r, 7, 200, JSON, 220);
	resp_end(&r, 7, 9, 220);
	fail_with(&r, 8, 200, ASK, 230, 240);
	assert_null(strstr(r.log.text, "attempt="));
	rig_close(&r);
}

/* Equal questions at once, some of which fail. */
static void test_retries_side_by_side(void **state)
{
	static const char counted[] = HOST "x-stainless-retry-count: 1\n";
	struct rig r;

	(void)state;
	rig_open(&r);
	fail_with(&r, 1, 429, ASK, 0, 50);
	fail_with(&r, 2, 429, ASK, 10, 60);
	/* its connection was being opened when those failed */
	r.conn.connect_begin_ns = AT(40).ts_ns;
	r.conn.connect_end_ns = AT(45).ts_ns;
	r.conn.tls_begin_ns = AT(45).ts_ns;
	r.conn.tls_end_ns = AT(69).ts_ns;
	exchanges_conn_free(r.flow);
	r.flow = exchanges_conn_new(r.table, &r.conn);
	assert_non_null(r.flow);
	r.http = exchanges_http_sink(r.flow);
	tlog_free(&r.log);
	fail_with(&r, 3, 429, ASK, 70, 80);
	assert_null(strstr(r.log.text, "attempt="));
	/* the second attempt of one of them fails, too; what is counted as a second attempt follows a first one */
	req(&r, 4, "/v1/messages", counted, ASK, 500);
	resp_head(&r, 4, 429, JSON, 510);
	tlog_free(&r.log);
	resp_end(&r, 4, 9, 510);
	expect(&r, " attempt=2 retry_of=3 wait=420\n");
	req(&r, 5, "/v1/messages", counted, ASK, 600);
	resp_head(&r, 5, 200, JSON, 610);
	tlog_free(&r.log);
	resp_end(&r, 5, 9, 610);
	expect(&r, " attempt=2 retry_of=2 wait=540\n");
	/* without a count it is the latest that was repeated */
	tlog_free(&r.log);
	fail_with(&r, 6, 200, ASK, 700, 710);
	expect(&r, " attempt=3 retry_of=3 wait=190\n");
	rig_close(&r);
}

/* --- eviction ---------------------------------------------------------------------------------------------------- */

static void rig_stale(struct rig *r)
{
	const struct exchange_config cfg = {.stale_ns = 2000 * MS, .sweep_ns = 1000 * MS, .content = true};

	assert_true(rig_try(r, &cfg));
}

static void test_eviction(void **state)
{
	struct rig r;

	(void)state;
	rig_stale(&r);
	stream(&r, 1, 0, 100);
	resp(&r, 1, START(USAGE10) TEXT("a"), 200);
	exchanges_tick(r.table, AT(1500).ts_ns);
	exchanges_tick(r.table, AT(2150).ts_ns);
	assert_log(&r.log, "");
	/* the sweep that was due at 3000 sees it, however late the clock is told */
	exchanges_tick(r.table, AT(3050).ts_ns);
	assert_log(&r.log, "call 1 " ANTHROPIC "stream=1\n"
			   "  model=claude-x-1 asked=claude-x end=evicted\n"
			   "   start=0 send=0 ttfb=100 first=200 visible=200 last=200 end=3000 kind=text chunks=1 "
			   "stalls=1\n"
			   "  request messages=1 tools=0 system=0 max=64 thinking=0 sent=192\n"
			   "  usage=partial uncached=10 read=0 write=0 input=10 output=1\n"
			   "  text=a\n");
	assert_int_equal(r.lost.evicted_calls, 1);
	assert_int_equal(exchanges_open_count(r.table), 0);
	/* what follows is counted, and no second record comes */
	resp(&r, 1, TEXT("b"), 3100);
	gap(&r, 1, HTTP_RESPONSE, 3, HTTP_GAP_LOST, 3150);
	assert_int_equal(r.lost.late_bytes, strlen(TEXT("b")));
	resp_end(&r, 1, 100, 3200);
	tlog_free(&r.log);
	/* the next call of the connection is whole */
	stream(&r, 2, 3300, 3400);
	resp(&r, 2, START(USAGE10) TEXT("x") STOP("5") DONE, 3500);
	resp_end(&r, 2, 100, 3500);
	expect(&r, "call 2 ");
	expect(&r, "usage=reported uncached=10");
	assert_int_equal(r.lost.late_bytes, strlen(TEXT("b")));
	rig_close(&r);
}

/* Bytes of any kind keep it; a stamp does the work of a tick; the silent one goes, not the busy one. */
static void test_eviction_order(void **state)
{
	struct rig r;

	(void)state;
	rig_stale(&r);
	req(&r, 1, "/v1/messages", HOST, ASK, 0);
	req(&r, 2, "/v1/messages", HOST, ASK, 0);
	resp_head(&r, 1, 200, STREAM, 100);
	for (uint64_t ms = 500; ms < 20000; ms += 500)
		resp(&r, 1, PING, ms);
	assert_int_equal(exchanges_open_count(r.table), 1);
	assert_int_equal(r.lost.evicted_calls, 1);
	expect(&r, "call 2 ");
	expect(&r, "end=evicted\n");
	expect(&r, "send=0 end=2000\n");
	resp(&r, 1, TEXT("a") DONE, 20000);
	resp_end(&r, 1, 1, 20001);
	expect(&r, "first=20000");
	/* an abort is the last word about a stub too; so is the end of the connection */
	abort_at(&r, 2, HTTP_ABORT_EXIT, 20002);
	req(&r, 3, "/v1/messages", HOST, ASK, 21000);
	exchanges_tick(r.table, AT(40000).ts_ns);
	assert_int_equal(r.lost.evicted_calls, 2);
	/* an orphan that said nothing leaves no record */
	r.http.on_request(r.http.ctx, 4, NULL, &AT(41000));
	exchanges_tick(r.table, AT(60000).ts_ns);
	assert_int_equal(r.lost.evicted_calls, 2);
	rig_close(&r);
}

static void count_call(void *ctx, const struct call *c)
{
	(void)c;
	++*(unsigned *)ctx;
}

static void test_limit(void **state)
{
	const struct exchange_config cfg = default_config;
	unsigned calls = 0;
	const struct exchange_sink sink = {.ctx = &calls, .on_call = count_call};
	struct rig r;

	(void)state;
	rig_open(&r);
	exchanges_conn_free(r.flow);
	exchanges_free(r.table);
	r.table = exchanges_new(&cfg, &r.lost, &sink);
	r.flow = exchanges_conn_new(r.table, &r.conn);
	r.http = exchanges_http_sink(r.flow);
	for (uint64_t xid = 0; xid < EXCHANGE_MAX + 3; xid++)
		req(&r, xid, "/v1/messages", HOST, "{\"messages\":[]}", xid / 100);
	assert_int_equal(calls, 3);
	assert_int_equal(r.lost.n[LOST_NO_MEMORY], 3);
	assert_int_equal(exchanges_open_count(r.table), EXCHANGE_MAX);
	resp(&r, 0, "late", 700);
	assert_int_equal(r.lost.late_bytes, 4);
	rig_close(&r);
}

/* --- snapshot, socket, setup ------------------------------------------------------------------------------------- */

static void test_snapshot(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	stream(&r, 1, 0, 100);
	resp(&r, 1, START(USAGE10) TEXT("a"), 200);
	req_head(&r, 2, "POST", "/v1/messages", HOST, 250);
	req_body(&r, 2, "{\"model\":\"half\",\"max", 250);
	r.http.on_request(r.http.ctx, 3, NULL, &AT(260));
	exchanges_each_open(r.table, AT(300).ts_ns, on_call, &r);
	assert_log(&r.log,
		   "call 1 " ANTHROPIC "stream=1\n"
		   "  model=claude-x-1 asked=claude-x unfinished\n"
		   "   start=0 send=0 ttfb=100 first=200 visible=200 last=200 end=300 kind=text chunks=1 stalls=0\n"
		   "  request messages=1 tools=0 system=0 max=64 thinking=0 sent=192\n"
		   "  usage=partial uncached=10 read=0 write=0 input=10 output=1\n"
		   "  text=a\n"
		   "call 2 proto=http/1.1 method=POST path=/v1/messages host=api.anthropic.test status=0 api=anthropic "
		   "provider=anthropic op=chat class=main stream=-1\n"
		   "  model=half asked=half unfinished\n"
		   "   start=250 end=300\n"
		   "  request\n");
	assert_int_equal(exchanges_open_count(r.table), 2);
	rig_close(&r);
}

static void on_call_socket(void *ctx, const struct call *c)
{
	struct tlog *l = ctx;

	tlog_printf(l, "port=%u", c->peer.port);
	put_n(l, "retransmits", c->retransmits);
	put_n(l, "srtt", c->srtt_us);
	put_ms(l, c->reset_sent ? "reset_sent" : "reset", c->reset_ns);
	put_ms(l, "dns", c->dns_begin_ns);
	put_ms(l, "answered", c->dns_end_ns);
	put_ms(l, "connect", c->connect_begin_ns);
	put_ms(l, "connected", c->connect_end_ns);
	put_ms(l, "tls", c->tls_begin_ns);
	put_ms(l, "secure", c->tls_end_ns);
	tlog_printf(l, "%s\n", c->tls_approximate ? " about" : "");
}

static void test_socket(void **state)
{
	struct tlog l = {0};
	const struct exchange_sink sink = {.ctx = &l, .on_call = on_call_socket};
	struct rig r;

	(void)state;
	rig_open(&r);
	exchanges_conn_free(r.flow);
	exchanges_free(r.table);
	r.table = exchanges_new(&default_config, &r.lost, &sink);
	r.flow = exchanges_conn_new(r.table, &r.conn);
	r.http = exchanges_http_sink(r.flow);
	r.conn.dns_begin_ns = AT(2).ts_ns;
	r.conn.dns_end_ns = AT(9).ts_ns;
	r.conn.connect_begin_ns = AT(10).ts_ns;
	r.conn.connect_end_ns = AT(20).ts_ns;
	r.conn.tls_begin_ns = AT(21).ts_ns;
	r.conn.tls_end_ns = AT(50).ts_ns;
	r.conn.tls_approximate = true;
	/* the first call of a connection opened for it; bound while it ran */
	req(&r, 1, "/v1/messages", HOST, ASK, 100);
	r.conn.bound = true;
	r.conn.peer = (struct sock_addr){.family = AF_INET, .port = 443};
	r.conn.retransmits = 2;
	r.conn.srtt_us = 900;
	resp_end(&r, 1, 1, 200);
	/* the second one, with a retransmit of its own */
	req(&r, 2, "/v1/messages", HOST, ASK, 300);
	r.conn.retransmits = 3;
	r.conn.reset_ns = AT(400).ts_ns;
	r.conn.reset_sent = true;
	resp_end(&r, 2, 1, 400);
	r.conn.reset_ns = UNKNOWN_NS;
	assert_log(&l,
		   "port=443 retransmits=2 srtt=900 dns=2 answered=9 connect=10 connected=20 tls=21 secure=50 about\n"
		   "port=443 retransmits=1 srtt=900 reset_sent=400\n");
	tlog_free(&l);
	/* opened long before; not bound */
	exchanges_conn_free(r.flow);
	r.flow = exchanges_conn_new(r.table, &r.conn);
	r.http = exchanges_http_sink(r.flow);
	r.conn.bound = false;
	r.conn.peer = (struct sock_addr){0};
	req(&r, 1, "/v1/messages", HOST, ASK, 101);
	resp_end(&r, 1, 1, 200);
	/* bound later on a connection whose beginning was not seen */
	r.conn.fresh = false;
	req(&r, 2, "/v1/messages", HOST, ASK, 300);
	r.conn.bound = true;
	resp_end(&r, 2, 1, 400);
	assert_log(&l, "port=0\nport=0 srtt=900\n");
	tlog_free(&l);
	rig_close(&r);
}

static void put_intervals(struct tlog *l, const char *name, const struct interval *at, size_t count)
{
	tlog_printf(l, " %s", name);
	for (size_t i = 0; i < count; i++)
		tlog_printf(l, " %llu-%llu", (unsigned long long)((at[i].begin_ns - AT(0).ts_ns) / 1000000),
			    (unsigned long long)((at[i].end_ns - AT(0).ts_ns) / 1000000));
}

static void on_call_delays(void *ctx, const struct call *c)
{
	put_intervals(ctx, "late", c->late_at, c->late_count);
	put_intervals(ctx, "network", c->network_at, c->network_count);
	tlog_printf(ctx, "\n");
}

/* What lies in a call of its socket's delays; late is only what can be its answer. */
static void test_delays(void **state)
{
	const struct interval late[] = {{AT(50).ts_ns, AT(90).ts_ns},
					{AT(95).ts_ns, AT(120).ts_ns},
					{AT(150).ts_ns, AT(170).ts_ns},
					{AT(190).ts_ns, AT(310).ts_ns}};
	const struct interval network[] = {{AT(99).ts_ns, AT(130).ts_ns}, {AT(230).ts_ns, AT(240).ts_ns}};
	struct tlog l = {0};
	const struct exchange_sink sink = {.ctx = &l, .on_call = on_call_delays};
	struct rig r;

	(void)state;
	rig_open(&r);
	exchanges_conn_free(r.flow);
	exchanges_free(r.table);
	r.table = exchanges_new(&default_config, &r.lost, &sink);
	r.flow = exchanges_conn_new(r.table, &r.conn);
	r.http = exchanges_http_sink(r.flow);
	r.conn.late_at = late;
	r.conn.late_count = 4;
	r.conn.network_at = network;
	r.conn.network_count = 2;
	req(&r, 1, "/v1/messages", HOST, ASK, 100);
	exchanges_each_open(r.table, AT(160).ts_ns, on_call_delays, &l);
	resp_end(&r, 1, 1, 200);
	req(&r, 2, "/v1/messages", HOST, ASK, 300);
	r.conn.late_count = r.conn.network_count = 0;
	resp_end(&r, 2, 1, 400);
	assert_log(&l, " late 100-120 150-160 network 100-130\n"
		       " late 100-120 150-170 190-200 network 100-130\n"
		       " late network\n");
	tlog_free(&l);
	rig_close(&r);
}

/* A response that was read before the write returned: sending cannot end after it. */
static void test_early_response(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req_head(&r, 1, "POST", "/v1/messages", HOST, 0);
	req_body(&r, 1, ASK, 500);
	resp_head(&r, 1, 200, STREAM, 100);
	resp(&r, 1, START(USAGE10) TEXT("ok"), 200);
	req_end(&r, 1, 192, 500);
	resp(&r, 1, STOP("5") DONE, 300);
	resp_end(&r, 1, 9, 300);
	expect(&r, "start=0 send=100 ttfb=100 first=200 ");
	expect(&r, "  request messages=1 tools=0 system=0 max=64 thinking=0 sent=192 ");
	rig_close(&r);
}

static void test_no_content(void **state)
{
	struct exchange_config cfg = default_config;
	struct rig r;

	(void)state;
	cfg.content = false;
	assert_true(rig_try(&r, &cfg));
	stream(&r, 1, 0, 100);
	resp(&r, 1, START(USAGE10) TEXT("SECRET") STOP("5") DONE, 200);
	resp_end(&r, 1, 9, 300);
	assert_null(strstr(r.log.text, "SECRET"));
	assert_null(strstr(r.log.text, "text="));
	rig_close(&r);
}

/* Long answers are cut at a character, huge documents are not read. */
static void test_caps(void **state)
{
	const size_t big = EXCHANGE_DOC_MAX + 10;
	char *filler = malloc(big), line[700];
	struct rig r;

	(void)state;
	rig_open(&r);
	stream(&r, 1, 0, 100);
	memset(filler, 0, 601);
	for (int i = 0; i < 600; i += 3)
		memcpy(filler + i, "\xe4\xbd\xa0", 3);
	snprintf(line, sizeof(line),
		 "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"%.540s\"}}\n\n",
		 filler);
	for (int i = 0; i < 2000; i++)
		resp(&r, 1, line, 200);
	exchanges_each_open(r.table, AT(300).ts_ns, on_call, &r);
	assert_non_null(strstr(r.log.text, "chunks=2000"));
	assert_int_equal(strlen(strstr(r.log.text, "  text=")) - 8, (EXCHANGE_TEXT_MAX - 1) * 4);
	tlog_free(&r.log);
	abort_at(&r, 1, HTTP_ABORT_CLIENT, 400);
	tlog_free(&r.log);
	req(&r, 2, "/v1/messages", HOST, ASK_UNARY, 0);
	resp_head(&r, 2, 200, JSON, 100);
	memset(filler, ' ', big);
	filler[0] = '{';
	resp_bytes(&r, 2, filler, big, 200);
	resp(&r, 2, "}", 200);
	resp_end(&r, 2, 9, 300);
	expect(&r, " undecoded=json over 8 MiB\n");
	tlog_free(&r.log);
	req(&r, 3, "/v1/messages", HOST, ASK_UNARY, 0);
	resp_head(&r, 3, 200, JSON, 100);
	for (size_t i = 0; i < 4000000; i++)
		filler[i] = i % 2 ? '1' : ',';
	memcpy(filler, "{\"a\":[", 6);
	resp_bytes(&r, 3, filler, 4000000, 200);
	resp(&r, 3, "]}", 200);
	resp_end(&r, 3, 9, 300);
	expect(&r, " undecoded=json of over 1048576 values\n");
	assert_int_equal(r.lost.n[LOST_DECODE_ERRORS], 2);
	free(filler);
	rig_close(&r);
}

/* --- cuts, gaps, failing malloc ---------------------------------------------------------------------------------- */

static const char scripted[] = "\xef\xbb\xbf: hello\n\n" START(USAGE10) PING BLOCK("\"type\":\"thinking\",\"thinking\":"
										   "\"\"") THINK("h\xc3\xa9")
	TEXT("\xf0\x9f\x99\x82") "event: content_block_start\r\ndata: {\"type\":\"content_block_start\",\r\n"
				 "data: "
				 "\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"n\"}}\r\n\r\n" STOP(
					 "5") DONE;

struct cuts {
	struct guard guard[3];
	struct rig rig;
	uint64_t xid;
	struct tlog golden;
};

static void play(struct cuts *c, size_t a, size_t b)
{
	const size_t at[4] = {0, a, b, sizeof(scripted) - 1};
	struct rig *r = &c->rig;
	uint64_t xid = ++c->xid;

	req(r, xid, "/v1/messages", HOST, ASK, 0);
	resp_head(r, xid, 200, STREAM, 100);
	for (int i = 0; i < 3; i++) {
		size_t n = at[i + 1] - at[i];

		if (n)
			resp_bytes(r, xid, guard_copy(&c->guard[i], scripted + at[i], n), n, 200);
	}
	resp_end(r, xid, 9, 300);
}

/* Without the number of the call, which is another one each time. */
static const char *without_id(const struct tlog *l)
{
	const char *p = l->text ? strstr(l->text, " proto=") : NULL;

	return p ? p : "";
}

static void play_and_compare(void *ctx, size_t a, size_t b)
{
	struct cuts *c = ctx;

	tlog_free(&c->rig.log);
	play(c, a, b);
	assert_string_equal(without_id(&c->rig.log), without_id(&c->golden));
}

static void test_every_cut(void **state)
{
	struct cuts c = {0};

	(void)state;
	rig_open(&c.rig);
	play(&c, 0, 0);
	c.golden = c.rig.log;
	c.rig.log = (struct tlog){0};
	assert_non_null(strstr(c.golden.text, "kind=reasoning chunks=2 stalls=0 gap=0\n"));
	assert_non_null(strstr(c.golden.text, "tool=t name=n\n"));
	assert_non_null(strstr(c.golden.text, "text=\\xf0\\x9f\\x99\\x82\n"));
	every_cut(sizeof(scripted) - 1, 24, play_and_compare, &c);
	/* one byte at a time */
	tlog_free(&c.rig.log);
	req(&c.rig, ++c.xid, "/v1/messages", HOST, ASK, 0);
	resp_head(&c.rig, c.xid, 200, STREAM, 100);
	for (size_t i = 0; i < sizeof(scripted) - 1; i++)
		resp_bytes(&c.rig, c.xid, guard_copy(&c.guard[0], scripted + i, 1), 1, 200);
	resp_end(&c.rig, c.xid, 9, 300);
	assert_string_equal(without_id(&c.rig.log), without_id(&c.golden));
	for (int i = 0; i < 3; i++)
		guard_free(&c.guard[i]);
	tlog_free(&c.golden);
	rig_close(&c.rig);
}

/* Whatever is missing: one record, marked, and none of its numbers better than the whole stream's. */
static void test_every_gap(void **state)
{
	const size_t len = sizeof(scripted) - 1;
	struct rig r;
	uint64_t xid = 0;

	(void)state;
	rig_open(&r);
	for (size_t a = 0; a < len; a += 3) {
		for (size_t b = a + 1; b <= len; b += 41) {
			tlog_free(&r.log);
			req(&r, ++xid, "/v1/messages", HOST, ASK, 0);
			resp_head(&r, xid, 200, STREAM, 100);
			if (a)
				resp_bytes(&r, xid, scripted, a, 200);
			gap(&r, xid, HTTP_RESPONSE, b - a, HTTP_GAP_LOST, 250);
			if (b < len)
				resp_bytes(&r, xid, scripted + b, len - b, 400);
			resp_end(&r, xid, 9, 500);
			expect(&r, " lossy ");
			assert_null(strstr(r.log.text, "first=400"));
			assert_null(strstr(r.log.text, "decode="));
			assert_null(strstr(r.log.text + 1, "call "));
		}
	}
	rig_close(&r);
}

static void play_all(struct rig *r)
{
	static const char *const pieces[] = {START(USAGE10) TEXT("a"), STOP("5") DONE};
	uint8_t out[2048];
	size_t ends[2], len;

	req(r, 1, "/v1/messages?beta=true", HOST "x-claude-code-session-id: s\nx-claude-code-agent-id: a\n",
	    "{\"model\":\"m\",\"tools\":[{}],\"messages\":[{}],\"stream\":true}", 0);
	resp_head(r, 1, 200, STREAM, 1);
	resp_bytes(r, 1, scripted, sizeof(scripted) - 1, 2);
	resp_end(r, 1, 1, 3);
	req(r, 2, "/v1/messages", HOST, ASK_UNARY, 4);
	resp_head(r, 2, 529, JSON, 5);
	resp(r, 2, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}", 6);
	resp_end(r, 2, 1, 7);
	len = gzip(out, sizeof(out), pieces, 2, ends);
	req(r, 3, "/v1/messages", HOST, ASK, 8);
	resp_head(r, 3, 200, STREAM "content-encoding: gzip\n", 9);
	resp_bytes(r, 3, out, len, 10);
	exchanges_each_open(r->table, AT(11).ts_ns, on_call, r);
	resp_end(r, 3, 1, 11);
	r->http.on_request(r->http.ctx, 4, NULL, &AT(12));
	resp_head(r, 4, 200, STREAM, 13);
	resp(r, 4, TEXT("b") DONE, 14);
	abort_at(r, 4, HTTP_ABORT_PARSE, 15);
	req(r, 5, "/v1/messages", HOST, ASK, 16);
	exchanges_tick(r->table, AT(4000000).ts_ns);
	resp(r, 5, TEXT("b") DONE, 4000001);
}

static void test_no_memory(void **state)
{
	(void)state;
	rig_every_allocation(play_all);
}

/* The beginning of a document of `len` bytes. */
static void half_document(struct rig *r, uint64_t xid, size_t len, uint64_t ms)
{
	static const char begin[] =
		"{\"type\":\"message\",\"usage\":{\"input_tokens\":1,\"output_tokens\":2},\"pad\":\"";
	char *text = malloc(len);

	memset(text, 'x', len);
	memcpy(text, begin, sizeof(begin) - 1);
	req(r, xid, "/v1/messages", HOST, ASK_UNARY, ms);
	resp_head(r, xid, 200, JSON, ms);
	resp_bytes(r, xid, text, len, ms);
	free(text);
}

static unsigned occurrences(const struct tlog *l, const char *what)
{
	unsigned n = 0;

	for (const char *p = l->text; p && (p = strstr(p, what)); p += strlen(what))
		n++;
	return n;
}

/* Bodies that do not end: over the limit the largest ones go, a small one beside them is whole, and what ended counts
 * no more. */
static void test_held(void **state)
{
	const uint64_t fit = EXCHANGE_HELD_MAX / EXCHANGE_DOC_MAX; /* with nothing beside them */
	struct rig r;

	(void)state;
	rig_open(&r);
	for (uint64_t round = 0; round < 2; round++) {
		uint64_t xid = round * 100;

		tlog_free(&r.log);
		req(&r, xid + 99, "/v1/messages", HOST, ASK, 1);
		resp_head(&r, xid + 99, 200, STREAM, 1);
		resp(&r, xid + 99, START(USAGE10) TEXT("a"), 2);
		for (uint64_t i = 1; i <= fit; i++)
			half_document(&r, xid + i, EXCHANGE_DOC_MAX / 2 + 1, 3);
		half_document(&r, xid + 98, EXCHANGE_DOC_MAX / 2 - 1, 3);
		resp(&r, xid + 99, STOP("5") DONE, 4);
		resp_end(&r, xid + 99, 9, 4);
		expect(&r, "usage=reported uncached=10 read=0 write=0 input=10 output=5\n  text=a\n");
		for (uint64_t i = 1; i <= fit; i++) {
			resp(&r, xid + i, "\"}", 5);
			resp_end(&r, xid + i, 9, 5);
		}
		resp(&r, xid + 98, "\"}", 5);
		resp_end(&r, xid + 98, 9, 5);
		assert_int_equal(occurrences(&r.log, "output=2\n"), fit);
		assert_int_equal(occurrences(&r.log, " undecoded=over 128 MiB at once"), 1);
		assert_int_equal(r.lost.n[LOST_DECODE_ERRORS], round + 1);
	}
	rig_close(&r);
}

/* A long stream stays cheap. */
static void test_long_stream(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	stream(&r, 1, 0, 100);
	resp(&r, 1, START(USAGE10), 100);
	for (uint64_t i = 0; i < 100000; i++)
		resp(&r, 1, TEXT("x"), 200 + i);
	resp(&r, 1, STOP("100001") DONE, 100300);
	resp_end(&r, 1, 9, 100300);
	expect(&r, "chunks=100000 stalls=0 gap=1 decode=1000\n");
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_unary),
		cmocka_unit_test(test_usage_merge),
		cmocka_unit_test(test_first_token),
		cmocka_unit_test(test_hidden_reasoning),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_websocket),
		cmocka_unit_test(test_codings),
		cmocka_unit_test(test_partial_head),
		cmocka_unit_test(test_coding_cut),
		cmocka_unit_test(test_nul_tokens),
		cmocka_unit_test(test_loss),
		cmocka_unit_test(test_doubt),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_no_calls),
		cmocka_unit_test(test_request_lost),
		cmocka_unit_test(test_holes),
		cmocka_unit_test(test_stale_usage),
		cmocka_unit_test(test_unreadable_head),
		cmocka_unit_test(test_unreadable_usage),
		cmocka_unit_test(test_contradictory_usage),
		cmocka_unit_test(test_mid_attach),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_reset_in_doubt),
		cmocka_unit_test(test_prompts),
		cmocka_unit_test(test_aux),
		cmocka_unit_test(test_reset_when_whole),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_retries),
		cmocka_unit_test(test_retries_at_once),
		cmocka_unit_test(test_retries_side_by_side),
		cmocka_unit_test(test_eviction),
		cmocka_unit_test(test_eviction_order),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_snapshot),
		cmocka_unit_test(test_socket),
		cmocka_unit_test(test_delays),
		cmocka_unit_test(test_early_response),
		cmocka_unit_test(test_no_content),
		cmocka_unit_test(test_caps),
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_every_gap),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_long_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
