/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* Every kind of body, dialects from request to record, and what is no call. */

#include "exchange_rig.h"

#include <zlib.h>

#define NDJSON	"content-type: application/x-ndjson\n"
#define FRAMES	"content-type: application/vnd.amazon.eventstream\n"
#define GEMINI	"/v1beta/models/gemini-x:streamGenerateContent"
#define CONTENT "{\"contents\":[{\"role\":\"user\",\"parts\":[{\"text\":\"hi\"}]}]}"
#define OLLAMA	"{\"model\":\"llama\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"

#define LINE(content)                                                                                                  \
	"{\"model\":\"llama:8b\",\"created_at\":\"t\",\"message\":{\"content\":\"" content "\"},\"done\":false}\n"
#define LAST_LINE                                                                                                      \
	"{\"model\":\"llama:8b\",\"created_at\":\"t\",\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":"   \
	"\"stop\",\"total_duration\":9000000,\"load_duration\":1000000,\"prompt_eval_count\":26,"                      \
	"\"prompt_eval_duration\":2000000,\"eval_count\":3,\"eval_duration\":6000000}\n"

#define PART(text, more) "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"" text "\"}]}" more "}],"
#define COUNTS(n, total)                                                                                               \
	"\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":" n ",\"totalTokenCount\":" total "},"     \
	"\"modelVersion\":\"gemini-x-1\"}"

/* --- event stream frames ----------------------------------------------------------------------------------------- */

static void put32(uint8_t *out, uint32_t n)
{
	out[0] = (uint8_t)(n >> 24);
	out[1] = (uint8_t)(n >> 16);
	out[2] = (uint8_t)(n >> 8);
	out[3] = (uint8_t)n;
}

static size_t put_header(uint8_t *out, const char *name, const char *value)
{
	size_t n = 0;

	out[n++] = (uint8_t)strlen(name);
	memcpy(out + n, name, strlen(name));
	n += strlen(name);
	out[n++] = 7;
	out[n++] = 0;
	out[n++] = (uint8_t)strlen(value);
	memcpy(out + n, value, strlen(value));
	return n + strlen(value);
}

/* Appends a frame; returns the new length. */
static size_t frame(uint8_t *out, size_t at, const char *kind, const char *type_name, const char *type,
		    const char *payload)
{
	uint8_t *f = out + at;
	size_t n = 12;

	n += put_header(f + n, ":message-type", kind);
	n += put_header(f + n, type_name, type);
	put32(f + 4, (uint32_t)n - 12);
	memcpy(f + n, payload, strlen(payload));
	n += strlen(payload);
	put32(f, (uint32_t)n + 4);
	put32(f + 8, (uint32_t)crc32(0, f, 8));
	put32(f + n, (uint32_t)crc32(0, f, (uInt)n));
	return at + n + 4;
}

static size_t converse_stream(uint8_t *out)
{
	size_t n = frame(out, 0, "event", ":event-type", "messageStart", "{\"role\":\"assistant\"}");

	n = frame(out, n, "event", ":event-type", "contentBlockDelta",
		  "{\"delta\":{\"text\":\"h\xc3\xa9\"},\"contentBlockIndex\":0}");
	n = frame(out, n, "event", ":event-type", "contentBlockDelta", "{\"delta\":{\"text\":\"y\"}}");
	n = frame(out, n, "event", ":event-type", "messageStop", "{\"stopReason\":\"end_turn\"}");
	return frame(
		out, n, "event", ":event-type", "metadata",
		"{\"usage\":{\"inputTokens\":5,\"outputTokens\":2,\"totalTokens\":107,\"cacheReadInputTokens\":100},"
		"\"metrics\":{\"latencyMs\":800}}");
}

/* --- each kind of body ------------------------------------------------------------------------------------------- */

static void test_lines(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req(&r, 1, "/api/chat", "host: localhost:11434\n", OLLAMA, 0);
	resp_head(&r, 1, 200, NDJSON, 50);
	resp(&r, 1, LINE(""), 60);
	resp(&r, 1, LINE("h") "{\"model\":\"llama:8b\",\"message\":{\"content\":\"i\"},", 100);
	resp(&r, 1, "\"done\":false}\n", 200);
	resp(&r, 1, LAST_LINE, 300);
	resp_end(&r, 1, 400, 300);
	assert_log(
		&r.log,
		"call 1 proto=http/1.1 method=POST path=/api/chat host=localhost:11434 status=200 api=ollama "
		"provider=ollama op=chat class=main stream=1\n"
		"  model=llama:8b asked=llama stop=stop\n"
		"   start=0 send=0 ttfb=50 first=100 visible=100 last=200 end=300 kind=text chunks=2 stalls=0 gap=100 "
		"decode=20\n"
		"  request messages=1 tools=0 system=0 sent=192 got=400\n"
		"  usage=reported output=3\n"
		"  server load=1ms prefill=2ms decode=6ms total=9ms\n"
		"  text=hi\n");
	tlog_free(&r.log);
	/* without a type, and an error in the middle */
	req(&r, 2, "/api/generate", HOST, "{\"model\":\"l\",\"prompt\":\"hi\"}", 0);
	resp_head(&r, 2, 200, "", 50);
	resp(&r, 2, "{\"model\":\"l\",\"response\":\"a\",\"done\":false}\n{\"error\":\"oom\"}\n", 60);
	resp_end(&r, 2, 400, 70);
	expect(&r, "op=text_completion class=main stream=1\n  model=l asked=l error=error\n   start=0 send=0 ttfb=50 "
		   "first=60 ");
	tlog_free(&r.log);
	/* unary when told so; an error is a document */
	req(&r, 3, "/api/chat", HOST, "{\"model\":\"l\",\"stream\":false,\"messages\":[]}", 0);
	resp_head(&r, 3, 200, JSON, 50);
	resp(&r, 3,
	     "{\"model\":\"l\",\"message\":{\"content\":\"hi\"},\n\"done\":true,\"done_reason\":\"stop\",\"eval_"
	     "count\":2}",
	     60);
	resp_end(&r, 3, 400, 70);
	expect(&r, "stream=0\n  model=l asked=l stop=stop\n   start=0 send=0 ttfb=50 end=70\n");
	tlog_free(&r.log);
	req(&r, 4, "/api/chat", HOST, OLLAMA, 0);
	resp_head(&r, 4, 404, JSON, 50);
	resp(&r, 4, "{\n \"error\": \"model not found\"\n}", 60);
	resp_end(&r, 4, 400, 70);
	expect(&r, "status=404 api=ollama provider=ollama op=chat class=main stream=1\n  model=llama asked=llama "
		   "error=error\n");
	tlog_free(&r.log);
	/* only to have it loaded */
	req(&r, 5, "/api/generate", HOST, "{\"model\":\"l\"}", 0);
	resp_head(&r, 5, 200, JSON, 50);
	resp(&r, 5, "{\"model\":\"l\",\"response\":\"\",\"done\":true,\"done_reason\":\"load\"}", 60);
	resp_end(&r, 5, 400, 70);
	expect(&r, "class=prewarm");
	rig_close(&r);
}

static void test_array(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req(&r, 1, GEMINI "?key=AIza", "host: generativelanguage.googleapis.com\n", CONTENT, 0);
	resp_head(&r, 1, 200, JSON, 100);
	resp(&r, 1, "[{\n  \"candidates\": [ { \"content\": { \"parts\": [ { \"text\": \"]}\\\"{\" } ] } } ]\n}", 200);
	resp(&r, 1, ",\r\n" PART("hi", ",\"finishReason\":\"STOP\"") COUNTS("3", "12") "\n", 300);
	resp(&r, 1, "]", 400);
	resp_end(&r, 1, 500, 400);
	assert_log(
		&r.log,
		"call 1 proto=http/1.1 method=POST path=/v1beta/models/gemini-x:streamGenerateContent?key=* "
		"host=generativelanguage.googleapis.com status=200 api=gemini provider=gcp.gemini "
		"op=generate_content class=main stream=1\n"
		"  model=gemini-x-1 asked=gemini-x stop=STOP\n"
		"   start=0 send=0 ttfb=100 first=200 visible=200 last=300 end=400 kind=text chunks=2 stalls=0 gap=100 "
		"decode=20\n"
		"  request messages=1 tools=0 system=0 sent=192 got=500\n"
		"  usage=reported uncached=9 read=0 write=0 input=9 output=3\n"
		"  text=]}\"{hi\n");
	tlog_free(&r.log);
	/* an error is wrapped, or bare, or an event of the stream */
	req(&r, 2, GEMINI, HOST, CONTENT, 0);
	resp_head(&r, 2, 429, JSON, 100);
	resp(&r, 2, "[{\n  \"error\": {\n    \"code\": 429,\n    \"status\": \"RESOURCE_EXHAUSTED\"\n  }\n}\n]\n", 110);
	resp_end(&r, 2, 500, 110);
	expect(&r, "error=RESOURCE_EXHAUSTED\n");
	tlog_free(&r.log);
	req(&r, 3, GEMINI "?alt=sse", HOST, CONTENT, 0);
	resp_head(&r, 3, 503, STREAM, 100);
	resp(&r, 3, "{\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}", 110);
	resp_end(&r, 3, 500, 110);
	expect(&r, "error=UNAVAILABLE\n");
	tlog_free(&r.log);
	req(&r, 4, GEMINI "?alt=sse", HOST, CONTENT, 0);
	resp_head(&r, 4, 200, STREAM, 100);
	resp(&r, 4, "data: " PART("a", "") COUNTS("1", "10") "\n\ndata: {\"error\":{\"status\":\"INTERNAL\"}}\n\n",
	     110);
	resp_end(&r, 4, 500, 110);
	expect(&r, "error=INTERNAL\n");
	expect(&r, "usage=partial ");
	tlog_free(&r.log);
	/* a unary answer in an array has no first token */
	req(&r, 5, "/v1beta/models/g:generateContent", HOST, CONTENT, 0);
	resp_head(&r, 5, 200, JSON, 100);
	resp(&r, 5, "[" PART("a", ",\"finishReason\":\"STOP\"") COUNTS("1", "10") "]", 110);
	resp_end(&r, 5, 500, 110);
	expect(&r, "stream=0\n  model=gemini-x-1 asked=g stop=STOP\n   start=0 send=0 ttfb=100 end=110\n");
	rig_close(&r);
}

static void test_frames(void **state)
{
	uint8_t out[4096];
	size_t len = converse_stream(out);
	struct rig r;

	(void)state;
	rig_open(&r);
	req(&r, 1, "/model/anthropic.claude-x-v1%3A0/converse-stream",
	    "host: bedrock-runtime.eu-west-1.amazonaws.com\n",
	    "{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"hi\"}]}],\"system\":[{\"text\":\"be\"}],"
	    "\"inferenceConfig\":{\"maxTokens\":99},\"toolConfig\":{\"tools\":[{},{}]}}",
	    0);
	resp_head(&r, 1, 200, FRAMES, 100);
	resp_bytes(&r, 1, out, 160, 200);
	resp_bytes(&r, 1, out + 160, len - 160, 300);
	resp_end(&r, 1, len, 300);
	assert_log(
		&r.log,
		"call 1 proto=http/1.1 method=POST path=/model/anthropic.claude-x-v1%3A0/converse-stream "
		"host=bedrock-runtime.eu-west-1.amazonaws.com status=200 api=bedrock.converse provider=aws.bedrock "
		"op=chat class=main stream=1\n"
		"  model=anthropic.claude-x-v1:0 asked=anthropic.claude-x-v1:0 stop=end_turn\n"
		"   start=0 send=0 ttfb=100 first=300 visible=300 last=300 end=300 kind=text chunks=2 stalls=0 gap=0\n"
		"  request messages=1 tools=2 system=2 max=99 sent=192 got=560\n"
		"  usage=reported uncached=5 read=100 write=0 input=105 output=2\n"
		"  server total=800ms\n"
		"  text=h\\xc3\\xa9y\n");
	tlog_free(&r.log);
	/* a frame may say that it failed */
	req(&r, 2, "/model/a/invoke-with-response-stream", HOST, "{}", 0);
	resp_head(&r, 2, 200, FRAMES, 100);
	len = frame(
		out, 0, "event", ":event-type", "chunk",
		"{\"bytes\":\"eyJ0eXBlIjoiY29udGVudF9ibG9ja19kZWx0YSIsImRlbHRhIjp7InR5cGUiOiJ0ZXh0X2RlbHRhIiwidGV4dCI6"
		"ImhpIn19\"}");
	len = frame(out, len, "exception", ":exception-type", "modelStreamErrorException", "{\"message\":\"m\"}");
	resp_bytes(&r, 2, out, len, 200);
	resp_end(&r, 2, len, 300);
	expect(&r, "api=bedrock.invoke provider=aws.bedrock op=chat class=main stream=1\n  model=a asked=a "
		   "error=modelStreamErrorException\n   start=0 send=0 ttfb=100 first=200 ");
	tlog_free(&r.log);
	/* one that is not sound is not read, and said */
	req(&r, 3, "/model/a/converse-stream", HOST, "{}", 0);
	resp_head(&r, 3, 200, FRAMES, 100);
	len = converse_stream(out);
	out[100] ^= 1;
	resp_bytes(&r, 3, out, len, 200);
	resp_end(&r, 3, len, 300);
	expect(&r, "undecoded=corrupt event stream");
	assert_null(strstr(r.log.text, "chunks="));
	assert_int_equal(r.lost.n[LOST_DECODE_ERRORS], 1);
	tlog_free(&r.log);
	/* errors before the stream, in the head */
	req(&r, 4, "/model/a/converse-stream", HOST, "{}", 0);
	resp_head(&r, 4, 429, JSON "x-amzn-errortype: ThrottlingException:\n", 100);
	resp(&r, 4, "{\"message\":\"Too many\"}", 110);
	resp_end(&r, 4, 9, 110);
	expect(&r, "error=ThrottlingException\n");
	rig_close(&r);
}

/* Nothing in it is a model's: passed over, timed all the same. */
static void test_other_bodies(void **state)
{
	static const struct {
		const char *head, *undecoded;
	} types[] = {{"content-type: multipart/mixed; boundary=x\n", "undecoded=multipart/mixed\n"},
		     {"content-type: text/html\n", "undecoded=text/html\n"},
		     {"content-type: image/png\n", "undecoded=image/png\n"},
		     {"", ""}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		struct rig r;

		rig_open(&r);
		req(&r, 1, "/v1/messages", HOST, ASK_UNARY, 0);
		resp_head(&r, 1, 200, types[i].head, 100);
		resp(&r, 1, "--x\r\ncontent-type: application/json\r\n\r\n{\"type\":\"message\"}\r\n--x--\r\n", 150);
		resp_end(&r, 1, 77, 200);
		expect(&r, "   start=0 send=0 ttfb=100 end=200\n");
		expect(&r, types[i].undecoded);
		assert_null(strstr(r.log.text, "usage"));
		rig_close(&r);
	}
}

/* --- every cut, every gap ---------------------------------------------------------------------------------------- */

struct wire {
	const char *target, *request, *type;
	const uint8_t *bytes;
	size_t len;
	const char *want; /* of the whole stream's record */
};

struct wire_cuts {
	struct rig rig;
	const struct wire *wire;
	struct guard guard[3];
	struct tlog golden;
	uint64_t xid;
};

static const char *without_id(const struct tlog *l)
{
	const char *p = l->text ? strstr(l->text, " proto=") : NULL;

	return p ? p : "";
}

static void play(void *ctx, size_t a, size_t b)
{
	struct wire_cuts *c = ctx;
	const size_t at[4] = {0, a, b, c->wire->len};

	req(&c->rig, ++c->xid, c->wire->target, HOST, c->wire->request, 0);
	resp_head(&c->rig, c->xid, 200, c->wire->type, 100);
	for (int i = 0; i < 3; i++) {
		size_t n = at[i + 1] - at[i];

		if (n)
			resp_bytes(&c->rig, c->xid, guard_copy(&c->guard[i], c->wire->bytes + at[i], n), n, 200);
	}
	resp_end(&c->rig, c->xid, 9, 300);
}

static void play_and_compare(void *ctx, size_t a, size_t b)
{
	struct wire_cuts *c = ctx;

	tlog_free(&c->rig.log);
	play(c, a, b);
	assert_string_equal(without_id(&c->rig.log), without_id(&c->golden));
}

static void cut_everywhere(const struct wire *wire)
{
	struct wire_cuts c = {.wire = wire};

	rig_open(&c.rig);
	play(&c, 0, 0);
	c.golden = c.rig.log;
	c.rig.log = (struct tlog){0};
	if (!strstr(c.golden.text, wire->want))
		fail_msg("want %s in\n%s", wire->want, c.golden.text);
	every_cut(wire->len, 24, play_and_compare, &c);
	tlog_free(&c.rig.log);
	req(&c.rig, ++c.xid, wire->target, HOST, wire->request, 0);
	resp_head(&c.rig, c.xid, 200, wire->type, 100);
	for (size_t i = 0; i < wire->len; i++)
		resp_bytes(&c.rig, c.xid, guard_copy(&c.guard[0], wire->bytes + i, 1), 1, 200);
	resp_end(&c.rig, c.xid, 9, 300);
	assert_string_equal(without_id(&c.rig.log), without_id(&c.golden));
	for (int i = 0; i < 3; i++)
		guard_free(&c.guard[i]);
	tlog_free(&c.golden);
	rig_close(&c.rig);
}

/* Whatever is missing: one record, marked, and none of its numbers better than the whole stream's. */
static void gap_everywhere(const struct wire *w)
{
	struct rig r;
	uint64_t xid = 0;

	rig_open(&r);
	for (size_t a = 0; a < w->len; a += 5) {
		for (size_t b = a + 1; b <= w->len; b += 37) {
			tlog_free(&r.log);
			req(&r, ++xid, w->target, HOST, w->request, 0);
			resp_head(&r, xid, 200, w->type, 100);
			if (a)
				resp_bytes(&r, xid, w->bytes, a, 200);
			gap(&r, xid, HTTP_RESPONSE, b - a, HTTP_GAP_LOST, 250);
			if (b < w->len)
				resp_bytes(&r, xid, w->bytes + b, w->len - b, 400);
			resp_end(&r, xid, 9, 500);
			expect(&r, " lossy ");
			assert_null(strstr(r.log.text, "first=400"));
			assert_null(strstr(r.log.text, "decode=20"));
			assert_null(strstr(r.log.text + 1, "call "));
		}
	}
	rig_close(&r);
}

static void every_wire(void (*run)(const struct wire *w))
{
	static const char lines[] = LINE("h") LINE("\\ud83d\\ude42") LAST_LINE;
	static const char array[] = "[" PART("h", "")
		COUNTS("1", "10") "\n,\r\n" PART("i", ",\"finishReason\":\"STOP\"") COUNTS("3", "12") "]\n";
	static const char document[] =
		"{\"type\":\"message\",\"model\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}],"
		"\"stop_reason\":\"end_turn\",\"usage\":{\"input_tokens\":9,\"output_tokens\":3}}";
	uint8_t frames[4096], packed[512];
	size_t end, len = converse_stream(frames);
	const struct wire wires[] = {
		{"/v1/messages", "{\"messages\":[]}", JSON, (const uint8_t *)document, sizeof(document) - 1,
		 "usage=reported uncached=9 read=0 write=0 input=9 output=3\n  text=hi\n"},
		{"/api/chat", OLLAMA, NDJSON "content-encoding: gzip\n", packed,
		 gzip(packed, sizeof(packed), (const char *const[]){lines}, 1, &end),
		 "first=200 visible=200 last=200 end=300 kind=text chunks=2 "},
		{"/api/chat", OLLAMA, NDJSON, (const uint8_t *)lines, sizeof(lines) - 1,
		 "first=200 visible=200 last=200 end=300 kind=text chunks=2 "},
		{GEMINI, CONTENT, JSON, (const uint8_t *)array, sizeof(array) - 1,
		 "usage=reported uncached=9 read=0 write=0 input=9 output=3\n  text=hi\n"},
		{"/model/a/converse-stream", "{}", FRAMES, frames, len, "usage=reported uncached=5 read=100 "},
	};

	for (size_t i = 0; i < ARRAY_SIZE(wires); i++)
		run(&wires[i]);
}

static void test_every_cut(void **state)
{
	(void)state;
	every_wire(cut_everywhere);
}

static void test_every_gap(void **state)
{
	(void)state;
	every_wire(gap_everywhere);
}

/* --- requests of the other dialects ------------------------------------------------------------------------------ */

static void test_requests(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	one(&r, GEMINI, HOST,
	    "{\"contents\":[{\"parts\":[{\"text\":\"a\"}]},{}],\"systemInstruction\":{\"parts\":[{\"text\":\"abc\"},{"
	    "\"text\":"
	    "\"de\"}]},\"tools\":[{\"functionDeclarations\":[{},{}]},{\"googleSearch\":{}},{\"function_declarations\":["
	    "{}]}],"
	    "\"generationConfig\":{\"maxOutputTokens\":77,\"thinkingConfig\":{\"thinkingBudget\":0,\"includeThoughts\":"
	    "true}}}");
	expect(&r, "  request messages=2 tools=4 system=5 max=77 thinking=0 ");
	one(&r, GEMINI, HOST, "{\"contents\":[],\"generationConfig\":{\"thinkingConfig\":{\"thinkingBudget\":0}}}");
	expect(&r, "  request messages=0 tools=0 system=0 thinking=0 ");
	one(&r, "/v1internal:streamGenerateContent?alt=sse", HOST,
	    "{\"model\":\"gemini-x\",\"project\":\"p\",\"request\":{\"contents\":[{},{},{}],\"session_id\":\"s1\","
	    "\"tools\":["
	    "{\"functionDeclarations\":[{}]}]}}");
	expect(&r, "api=gemini.codeassist provider=gcp.gen_ai op=generate_content class=main stream=1\n"
		   "  model=gemini-x asked=gemini-x session=s1\n");
	expect(&r, "  request messages=3 tools=1 system=0 ");
	one(&r, "/api/chat", HOST,
	    "{\"model\":\"l\",\"messages\":[{\"role\":\"system\",\"content\":\"abc\"}],\"think\":true,\"options\":{"
	    "\"num_"
	    "predict\":5},\"tools\":[{}]}");
	expect(&r, "  request messages=1 tools=1 system=3 max=5 thinking=1 ");
	one(&r, "/v2/chat", HOST,
	    "{\"model\":\"c\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"thinking\":{"
	    "\"type\":"
	    "\"disabled\"},\"max_tokens\":3}");
	expect(&r, "  request messages=1 tools=0 system=0 max=3 thinking=0 ");
	one(&r, "/generate_stream", HOST, "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":20}}");
	expect(&r, "api=tgi provider=huggingface_tgi op=text_completion class=main stream=1\n");
	expect(&r, "  request max=20 ");
	one(&r, "/completion", HOST, "{\"prompt\":\"x\",\"n_predict\":4,\"stream\":true}");
	expect(&r, "api=llamacpp provider=llama_cpp op=text_completion class=main stream=1\n");
	expect(&r, "  request max=4 ");
	one(&r, "/v1/publishers/anthropic/models/claude-x%40001:streamRawPredict", HOST,
	    "{\"anthropic_version\":\"vertex-2023-10-16\",\"stream\":true,\"max_tokens\":5,\"system\":\"ab\","
	    "\"messages\":[{}]}");
	expect(&r, "api=vertex.anthropic provider=gcp.vertex_ai op=chat ");
	expect(&r, "  model=claude-x@001 asked=claude-x@001\n");
	expect(&r, "  request messages=1 tools=0 system=2 max=5 thinking=0 ");
	one(&r, "/openai/deployments/my-gpt/chat/completions?api-version=2024-06-01", HOST,
	    "{\"stream\":true,\"messages\":[]}");
	expect(&r, "api=openai.chat provider=azure.ai.openai op=chat ");
	expect(&r, "  model=my-gpt asked=my-gpt\n");
	rig_close(&r);
}

/* Nothing streams, nothing has a first token. */
static void test_embeddings(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	req(&r, 1, "/v1/embeddings", HOST, "{\"model\":\"e\",\"input\":[\"a\",\"b\"]}", 0);
	resp_head(&r, 1, 200, JSON, 100);
	resp(&r, 1,
	     "{\"object\":\"list\",\"model\":\"e-1\",\"data\":[{\"object\":\"embedding\"}],\"usage\":{\"prompt_"
	     "tokens\":8}}",
	     150);
	resp_end(&r, 1, 77, 200);
	assert_log(&r.log, "call 1 proto=http/1.1 method=POST path=/v1/embeddings host=api.anthropic.test status=200 "
			   "api=openai.embeddings provider=openai op=embeddings class=main stream=0\n"
			   "  model=e-1 asked=e\n"
			   "   start=0 send=0 ttfb=100 end=200\n"
			   "  request sent=192 got=77\n"
			   "  usage=reported write=0 input=8\n");
	rig_close(&r);
}

/* --- gateways, and what is no call ------------------------------------------------------------------------------- */

#define SURE "{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define WEAK "{\"messages\":[{\"text\":\"hi\"}]}"

static void answer(struct rig *r, uint64_t xid, int status, const char *type, const char *body)
{
	resp_head(r, xid, status, type, 100);
	resp(r, xid, body, 200);
	resp_end(r, xid, 9, 300);
}

static void test_gateway(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	/* the request is sure, the answer tells which API it is */
	req(&r, 1, "/llm/route?tenant=abc", "host: gw.corp\nanthropic-version: x\n", ASK, 0);
	assert_int_equal(exchanges_open_count(r.table), 1);
	answer(&r, 1, 200, STREAM, START(USAGE10) TEXT("a") STOP("5") DONE);
	expect(&r,
	       "path=/llm/route?tenant=* host=gw.corp status=200 api=anthropic provider=anthropic op=chat class=main "
	       "stream=1\n");
	expect(&r, "first=200 ");
	expect(&r, "usage=reported uncached=10 read=0 write=0 input=10 output=5\n");
	expect(&r, "  request messages=1 tools=0 system=0 max=64 thinking=0 ");
	tlog_free(&r.log);
	req(&r, 2, "/llm/route", HOST, ASK_UNARY, 0);
	answer(&r, 2, 200, JSON,
	       "{\"object\":\"chat.completion\",\"model\":\"g\",\"choices\":[{\"message\":{\"content\":\"x\"}}]}");
	expect(&r, "api=openai.chat ");
	tlog_free(&r.log);
	/* it failed: sure requests are calls all the same */
	req(&r, 3, "/llm/route", HOST, SURE, 0);
	answer(&r, 3, 502, "content-type: text/html\n", "<html>");
	expect(&r, "status=502 api=openai.chat ");
	tlog_free(&r.log);
	req(&r, 4, "/llm/route", HOST, SURE, 0);
	abort_at(&r, 4, HTTP_ABORT_SERVER, 50);
	expect(&r, "end=server_abort");
	tlog_free(&r.log);
	/* one mark: the answer has to be a model's */
	req(&r, 5, "/llm/route", HOST, WEAK, 0);
	assert_int_equal(exchanges_open_count(r.table), 0);
	answer(&r, 5, 200, STREAM, DELTA("{\"content\":\"a\"}") "data: [DONE]\n\n");
	expect(&r, "api=openai.chat provider=openai op=chat class=main stream=1\n");
	tlog_free(&r.log);
	req(&r, 6, "/chat/rooms/7", HOST, WEAK, 0);
	answer(&r, 6, 201, JSON, "{\"id\":7}");
	req(&r, 7, "/chat/rooms/7", HOST, WEAK, 0);
	answer(&r, 7, 500, JSON, "{\"error\":{\"type\":\"x\"}}");
	assert_log(&r.log, "");
	/* a body that is packed in an unknown way: only the answer can tell */
	req(&r, 8, "/llm/route", HOST "content-encoding: x-odd\n", "????", 0);
	answer(&r, 8, 200, STREAM, START(USAGE10) TEXT("a") STOP("5") DONE);
	expect(&r, "api=anthropic ");
	expect(&r, "undecoded=x-odd");
	assert_int_equal(exchanges_conn_calls(r.flow), 6);
	rig_close(&r);
}

static void test_no_calls(void **state)
{
	static const struct {
		const char *target, *headers, *body, *answer;
	} rows[] = {
		/* telemetry, also with whole conversations in it */
		{"/api/event_logging/v2/batch", HOST, SURE, "{\"object\":\"chat.completion\",\"choices\":[]}"},
		{"/v1/traces", HOST, SURE, "{}"},
		{"/log", HOST, "{\"events\":[{\"model\":\"claude-x\",\"messages\":[]}]}", "{}"},
		{"/v1/messages/batches", HOST, "{\"requests\":[{\"params\":{\"model\":\"m\",\"messages\":[]}}]}", "{}"},
		{"/collect", HOST, "{\"model\":\"claude-x\",\"max_tokens\":5}", "{\"ok\":true}"},
		/* remote procedure calls, by any path, whatever is answered */
		{"/mcp", HOST, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"x\"}}",
		 "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"m\"}}"},
		{"/v1/messages", HOST, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"messages\":[]}",
		 "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"m\"}}"},
		{"/v1/messages", HOST, "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
		 "{\"error\":{\"code\":1}}"},
		/* other people's paths of the same name */
		{"/api/chat", HOST, "{\"id\":\"x\",\"messages\":[{\"role\":\"user\"}]}", "{\"error\":\"no\"}"},
		{"/generate", HOST, "{\"report\":7}", "{\"error\":\"no\"}"},
		{"/completion", HOST, "{\"task\":7}", "{\"content\":\"done\"}"},
		{"/v2/chat", HOST, "{\"text\":\"hi\"}", "{\"message\":\"sent\"}"},
		{"/v1/embeddings", HOST, "{\"maps\":[]}", "{\"data\":[]}"},
		/* sure of itself, and answered with something else */
		{"/save", HOST, SURE, "{\"saved\":true}"},
		{"/v1/images/generations", HOST, "{\"model\":\"d\",\"prompt\":\"cat\"}", "{\"data\":[]}"},
		{"/rank", HOST, "{\"model\":\"d\",\"input\":\"cat\"}", "{\"scores\":[]}"},
		{"/upload", HOST "content-type: multipart/form-data; boundary=x\n", SURE,
		 "{\"object\":\"chat.completion\",\"choices\":[]}"},
	};
	struct rig r;

	(void)state;
	rig_open(&r);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		req(&r, i, rows[i].target, rows[i].headers, rows[i].body, 0);
		answer(&r, i, 200, JSON, rows[i].answer);
		if (r.log.len)
			fail_msg("%s: %s", rows[i].target, r.log.text);
		assert_int_equal(exchanges_conn_calls(r.flow), 0);
		assert_int_equal(exchanges_open_count(r.table), 0);
	}
	rig_close(&r);
}

/* HTTP/2 met in the middle: what is not known of a head is absent. The call's times are its own all the same. */
static void test_partial_heads(void **state)
{
	const struct http_header hidden[] = {{SV_NONE, SV_NONE}, {SV("content-length"), SV_NONE}};
	struct http_head h = {.method = SV("POST"), .headers = hidden, .header_count = 2, .protocol = "http/2"};
	struct http_head answered = {.status = 200, .headers = hidden, .header_count = 1, .protocol = "http/2"};
	struct rig r;

	(void)state;
	rig_open(&r);
	/* of a connection that was seen from its first byte it is lost */
	r.http.on_request(r.http.ctx, 9, &h, &AT(0));
	req_body(&r, 9, ASK, 0);
	req_end(&r, 9, 200, 0);
	r.http.on_response(r.http.ctx, 9, &answered, &AT(1));
	resp(&r, 9, START(USAGE10) TEXT("a") STOP("5") DONE, 2);
	resp_end(&r, 9, 400, 3);
	expect(&r, "stop=end_turn lossy lost=-1\n   start=0 send=0 ttfb=1 ");
	rig_close(&r);
	rig_open(&r);
	r.conn.fresh = false;
	r.http.on_request(r.http.ctx, 1, &h, &AT(10));
	req_body(&r, 1, ASK, 10);
	req_end(&r, 1, 200, 10);
	r.http.on_response(r.http.ctx, 1, &answered, &AT(100));
	resp(&r, 1, START(USAGE10) TEXT("a"), 200);
	resp(&r, 1, TEXT("b") STOP("5") DONE, 300);
	resp_end(&r, 1, 400, 310);
	assert_log(&r.log,
		   "call 1 proto=http/2 method=POST status=200 api=anthropic provider=anthropic op=chat class=main "
		   "stream=1\n"
		   "  model=claude-x-1 asked=claude-x stop=end_turn mid_attach\n"
		   "   start=10 send=10 ttfb=100 first=200 visible=200 last=300 end=310 kind=text chunks=2 stalls=0 "
		   "gap=100 decode=40\n"
		   "  request messages=1 tools=0 system=0 max=64 sent=200 got=400\n"
		   "  usage=reported uncached=10 read=0 write=0 input=10 output=5\n"
		   "  text=ab\n");
	tlog_free(&r.log);
	/* neither target nor method nor status nor type */
	h.method = SV_NONE;
	answered.status = 0;
	r.http.on_request(r.http.ctx, 3, &h, &AT(10));
	req_body(&r, 3, "{\"input\":\"hi\",\"instructions\":\"x\"}", 10);
	req_end(&r, 3, 200, 10);
	r.http.on_response(r.http.ctx, 3, &answered, &AT(100));
	resp(&r, 3,
	     "{\"object\":\"response\",\"model\":\"g\",\"status\":\"completed\",\"output\":[],\"usage\":{\"input_"
	     "tokens\":3,\"output_tokens\":2}}",
	     200);
	resp_end(&r, 3, 400, 310);
	expect(&r, "call 2 proto=http/2 status=0 api=openai.responses provider=openai op=chat class=main stream=0\n");
	expect(&r, "  start=10 send=10 ttfb=100 end=310\n");
	tlog_free(&r.log);
	/* something else */
	r.http.on_request(r.http.ctx, 5, &h, &AT(10));
	req_body(&r, 5, "{\"jsonrpc\":\"2.0\"}", 10);
	req_end(&r, 5, 200, 10);
	r.http.on_response(r.http.ctx, 5, &answered, &AT(100));
	resp(&r, 5, "{}", 200);
	resp_end(&r, 5, 400, 310);
	/* no request seen, a line-wise stream, frames, an array */
	r.http.on_request(r.http.ctx, 7, NULL, &AT(10));
	resp(&r, 7, LINE("a") LAST_LINE, 20);
	resp_end(&r, 7, 400, 30);
	expect(&r, "api=ollama provider=ollama op=chat class=main stream=0\n  model=llama:8b stop=stop mid_attach\n");
	tlog_free(&r.log);
	r.http.on_request(r.http.ctx, 9, NULL, &AT(10));
	resp(&r, 9, "[" PART("a", "") COUNTS("1", "10") "]", 20);
	resp_end(&r, 9, 400, 30);
	expect(&r, "api=gemini provider=gcp.gemini op=generate_content class=main stream=1\n  model=gemini-x-1 "
		   "mid_attach\n   start=10 seen=20 last=20 end=30 chunks=1 ");
	rig_close(&r);
}

/* --- without memory ---------------------------------------------------------------------------------------------- */

static void play_all(struct rig *r)
{
	uint8_t out[4096];
	size_t len = converse_stream(out);

	req(r, 1, "/api/chat", HOST, OLLAMA, 0);
	resp_head(r, 1, 200, NDJSON, 1);
	resp(r, 1, LINE("a") LAST_LINE, 2);
	resp_end(r, 1, 9, 3);
	req(r, 2, GEMINI, HOST, CONTENT, 4);
	resp_head(r, 2, 200, JSON, 5);
	resp(r, 2, "[" PART("h", "") COUNTS("1", "10") "]", 6);
	resp_end(r, 2, 9, 7);
	req(r, 3, "/model/a/converse-stream", HOST, "{}", 8);
	resp_head(r, 3, 200, FRAMES, 9);
	resp_bytes(r, 3, out, len, 10);
	resp_end(r, 3, 9, 11);
	len = frame(out, 0, "event", ":event-type", "chunk", "{\"bytes\":\"eyJ0eXBlIjoibWVzc2FnZV9zdG9wIn0=\"}");
	req(r, 4, "/model/a/invoke-with-response-stream", HOST, "{}", 12);
	resp_head(r, 4, 200, FRAMES, 13);
	resp_bytes(r, 4, out, len, 14);
	resp_end(r, 4, 9, 15);
	req(r, 5, "/gateway", HOST, SURE, 16);
	answer(r, 5, 200, STREAM, DELTA("{\"content\":\"a\"}"));
	req(r, 6, "/gateway", HOST, WEAK, 17);
	answer(r, 6, 200, STREAM, DELTA("{\"content\":\"a\"}"));
}

/* --- what only the answer tells ---------------------------------------------------------------------------------- */

static void test_told_by_the_answer(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r);
	/* an error in the middle of an event stream, as JSON without a field name */
	req(&r, 1, "/v1beta/models/g:streamGenerateContent?alt=sse", HOST, "{\"contents\":[]}", 0);
	answer(&r, 1, 200, STREAM,
	       "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}],\"modelVersion\":\"g1\"}\n\n"
	       "{\n  \"error\": {\n    \"code\": 503,\n    \"status\": \"UNAVAILABLE\"\n  }\n}");
	expect(&r, "api=gemini ");
	expect(&r, "model=g1 asked=g error=UNAVAILABLE\n");
	expect(&r, "  text=a\n");
	tlog_free(&r.log);
	/* Gemini has no terminal event: the clean end of the body is one, with a finish reason or without */
	req(&r, 6, "/v1beta/models/g:streamGenerateContent?alt=sse", HOST, "{\"contents\":[]}", 5);
	answer(&r, 6, 200, STREAM,
	       "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}],\"usageMetadata\":{"
	       "\"promptTokenCount\":7,\"candidatesTokenCount\":1,\"totalTokenCount\":8}}\n\n");
	expect(&r, "usage=reported uncached=7 read=0 write=0 input=7 output=1\n");
	tlog_free(&r.log);
	/* whose server answers at a host that nobody knows */
	req(&r, 2, "/v1/chat/completions", "host: gateway\n", CHAT, 10);
	answer(&r, 2, 200, STREAM,
	       DELTA("{\"content\":\"a\"}") "data: {\"choices\":[],\"x_groq\":{\"id\":\"q\"}}\n\ndata: [DONE]\n\n");
	expect(&r, "host=gateway status=200 api=openai.chat provider=groq ");
	tlog_free(&r.log);
	req(&r, 3, "/v1/chat/completions", "host: api.openai.com\n", CHAT, 20);
	answer(&r, 3, 200, STREAM, "data: {\"choices\":[],\"x_groq\":{\"id\":\"q\"}}\n\ndata: [DONE]\n\n");
	expect(&r, "provider=openai ");
	tlog_free(&r.log);
	/* Gemini's Interactions */
	req(&r, 4, "/v1beta/interactions", HOST,
	    "{\"model\":\"g\",\"input\":\"hi\",\"stream\":true,\"system_instruction\":\"be "
	    "kind\",\"generation_config\":{"
	    "\"max_output_tokens\":50}}",
	    30);
	answer(&r, 4, 200, STREAM,
	       "data: {\"event_type\":\"step.delta\",\"index\":0,\"delta\":{\"type\":\"text\",\"text\":\"yo\"}}\n\n"
	       "data: {\"event_type\":\"interaction.completed\",\"interaction\":{\"status\":\"completed\",\"usage\":{"
	       "\"total_input_tokens\":9,\"total_output_tokens\":2}}}\n\n");
	expect(&r, "api=gemini.interactions ");
	expect(&r, "asked=g stop=completed\n");
	expect(&r, "  request messages=1 tools=0 system=7 max=50 ");
	expect(&r, "usage=reported uncached=9 read=0 write=0 input=9 output=2\n  text=yo\n");
	tlog_free(&r.log);
	/* the path alone is anybody's */
	req(&r, 5, "/v1/interactions", HOST, "{\"video\":\"v\",\"kind\":\"like\"}", 40);
	answer(&r, 5, 200, JSON, "{\"ok\":true}");
	assert_log(&r.log, "");
	/* LM Studio's own */
	req(&r, 6, "/api/v1/chat", HOST, "{\"model\":\"m\",\"input\":\"hi\",\"stream\":true,\"reasoning\":\"off\"}",
	    50);
	answer(&r, 6, 200, STREAM,
	       "event: message.delta\ndata: {\"type\":\"message.delta\",\"content\":\"yo\"}\n\n"
	       "event: chat.end\ndata: {\"type\":\"chat.end\",\"result\":{\"stats\":{\"input_tokens\":9,"
	       "\"total_output_tokens\":2,\"time_to_first_token_seconds\":0.5}}}\n\n");
	expect(&r, "api=lmstudio provider=lmstudio op=chat class=main stream=1\n");
	expect(&r, " thinking=0 ");
	expect(&r, "usage=reported write=0 input=9 output=2\n  server first=500ms\n  text=yo\n");
	rig_close(&r);
}

static void test_no_memory(void **state)
{
	(void)state;
	rig_every_allocation(play_all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_array),
		cmocka_unit_test(test_frames),
		cmocka_unit_test(test_other_bodies),
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_every_gap),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_embeddings),
		cmocka_unit_test(test_gateway),
		cmocka_unit_test(test_no_calls),
		cmocka_unit_test(test_partial_heads),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_told_by_the_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
