/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "feed.h"
#include "http_text.h"

#include "base/err.h"
#include "flow/llm/mcp.h"

#define MS    1000000ull
#define STALE (100000 * MS)

static void put(struct tlog *l, const char *name, const char *value)
{
	if (value)
		tlog_printf(l, " %s=%s", name, value);
}

/* What is measured first, then what is said of it; times in ms. */
static void put_call(struct tlog *l, const struct mcp_call *c)
{
	tlog_printf(l, "%s%s%s %s %g-%g", c->method, c->target ? " " : "", c->target ? c->target : "", c->id,
		    (double)c->start_ns / MS, (double)c->end_ns / MS);
	put(l, "error", c->error);
	put(l, "message", c->error_message);
	put(l, "end", end_reason_name(c->end));
	put(l, "undecoded", c->undecoded);
	tlog_printf(l, "%s%s%s%s |", c->cancelled ? " cancelled" : "", c->lossy ? " lossy" : "",
		    c->unfinished ? " unfinished" : "", c->answerer ? " answerer" : "");
	put(l, "server", c->server);
	put(l, "version", c->server_version);
	put(l, "protocol", c->protocol_version);
	put(l, "host", c->host);
	if (c->status)
		tlog_printf(l, " status=%d", c->status);
	if (c->progress)
		tlog_printf(l, " progress=%u", c->progress);
	if (c->end == END_PROCESS_EXIT)
		tlog_printf(l, " exit=%d/%d", c->exit_code, c->exit_signal);
	tlog_printf(l, "\n");
}

static void on_mcp(void *ctx, const struct mcp_call *c)
{
	put_call(ctx, c);
}

/* --- rig: one process, two connections --------------------------------------------------------------------------- */

struct rig {
	struct tlog log, passed; /* passed: what the next sink got */
	struct lost lost;
	struct exchange_conn conn[2];
	struct mcp *table;
	struct mcp_flow *flow[2];
	struct http_sink http[2];
	uint8_t zeros[65536];
};

static bool rig_try(struct rig *r, bool content)
{
	const struct mcp_config cfg = {.stale_ns = STALE, .sweep_ns = 1000 * MS, .content = content};
	const struct mcp_sink sink = {.ctx = &r->log, .on_mcp = on_mcp};
	const struct http_sink next = pass_sink(&r->passed);

	*r = (struct rig){0};
	r->table = mcp_new(&cfg, &r->lost, &sink);
	if (!r->table)
		return false;
	for (unsigned i = 0; i < 2; i++) {
		r->conn[i] = (struct exchange_conn){
			.key = {.tgid = 7, .start_ns = 1, .obj = 0x100 + i}, .conn_id = 1 + i, .exit_code = 3};
		r->flow[i] = mcp_conn_new(r->table, &r->conn[i]);
		if (!r->flow[i])
			return false;
		r->http[i] = mcp_http_sink(r->flow[i], &next);
	}
	return true;
}

static void rig_close(struct rig *r)
{
	if (r->table)
		mcp_finish(r->table, 90000 * MS);
	mcp_conn_free(r->flow[0]);
	mcp_conn_free(r->flow[1]);
	mcp_free(r->table);
	tlog_free(&r->log);
	tlog_free(&r->passed);
}

#define AT(ms) ((struct stamp){(ms)*MS, (ms)*MS, 42, 0})

static void line_on(struct rig *r, unsigned conn, enum dir dir, const char *text, uint64_t ms)
{
	mcp_stdio_push(r->flow[conn], dir, (const uint8_t *)text, strlen(text), &AT(ms));
}

static void said(struct rig *r, const char *text, uint64_t ms)
{
	line_on(r, 0, DIR_TX, text, ms);
}

static void heard(struct rig *r, const char *text, uint64_t ms)
{
	line_on(r, 0, DIR_RX, text, ms);
}

/* The log is this, and begins anew. */
static void told(struct rig *r, const char *want)
{
	assert_log(&r->log, want);
	r->log.len = 0;
	if (r->log.text)
		r->log.text[0] = '\0';
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

/* As the SDKs for JavaScript write them, and the one for Python. */
#define INITIALIZE                                                                                                     \
	"{\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},"               \
	"\"clientInfo\":{\"name\":\"agent\",\"version\":\"1\"}},\"jsonrpc\":\"2.0\",\"id\":0}"
#define INITIALIZED                                                                                                    \
	"{\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{\"name\":\"no\"}},"              \
	"\"serverInfo\":{\"name\":\"files\",\"version\":\"1.2\"}},\"jsonrpc\":\"2.0\",\"id\":0}"
#define READY  "{\"method\":\"notifications/initialized\",\"jsonrpc\":\"2.0\"}"
#define LIST   "{\"jsonrpc\": \"2.0\", \"id\": \"l-1\", \"method\": \"tools/list\"}"
#define LISTED "{\"jsonrpc\":\"2.0\",\"id\":\"l-1\",\"result\":{\"tools\":[{\"name\":\"read\"}]}}"
#define CALL(id, name)                                                                                                 \
	"{\"method\":\"tools/call\",\"params\":{\"name\":\"" name "\",\"arguments\":{\"name\":\"SECRET\",\"id\":7},"   \
	"\"_meta\":{\"progressToken\":" id "}},\"jsonrpc\":\"2.0\",\"id\":" id "}"
#define RESULT(id)                                                                                                     \
	"{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"SECRET\"}]}}"
#define TOOL_ERROR(id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":{\"content\":[],\"isError\":true}}"
#define FAILED(id)                                                                                                     \
	"{\"jsonrpc\":\"2.0\",\"id\":" id                                                                              \
	",\"error\":{\"code\":-32602,\"message\":\"SECRET name\",\"data\":{\"code\":1}}}"
#define PROGRESS(id)                                                                                                   \
	"{\"method\":\"notifications/progress\",\"params\":{\"progressToken\":" id ",\"progress\":1},\"jsonrpc\":"     \
	"\"2.0\"}"

/* --- stdio: cuts and gaps ---------------------------------------------------------------------------------------- */

struct stdio {
	struct lost lost;
	struct exchange_conn conn;
	struct mcp *table;
	struct mcp_flow *flow;
	uint64_t last_ns;
};

static void *open_stdio(struct tlog *log, const void *arg)
{
	const struct mcp_config cfg = {.stale_ns = STALE, .sweep_ns = 1000 * MS};
	const struct mcp_sink sink = {.ctx = log, .on_mcp = on_mcp};
	struct stdio *s = calloc(1, sizeof(*s));

	(void)arg;
	assert_non_null(s);
	s->conn = (struct exchange_conn){.key = {.tgid = 7, .start_ns = 1}, .conn_id = 1};
	s->table = mcp_new(&cfg, &s->lost, &sink);
	s->flow = mcp_conn_new(s->table, &s->conn);
	return s;
}

static int push_stdio(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct stdio *s = parser;

	s->last_ns = at->ts_ns;
	mcp_stdio_push(s->flow, dir, ptr, len, at);
	return 0;
}

static void gap_stdio(void *parser, enum dir dir, uint64_t len, const struct stamp *at)
{
	struct stdio *s = parser;

	(void)len;
	s->last_ns = at->ts_ns;
	mcp_stdio_gap(s->flow, dir, false, at);
}

static void close_stdio(void *parser, struct tlog *log)
{
	struct stdio *s = parser;

	mcp_stdio_end(s->flow, HTTP_ABORT_SERVER, s->last_ns + 1 * MS);
	mcp_conn_free(s->flow);
	mcp_finish(s->table, s->last_ns + 1 * MS);
	mcp_free(s->table);
	if (s->lost.n[LOST_NO_MEMORY] || s->lost.n[LOST_DECODE_ERRORS])
		tlog_printf(log, "lost\n");
	free(s);
}

#define SEGMENT(text, ms, way) FEED_SEGMENT(way, (ms)*MS + 1, text)
#define FEED(...)                                                                                                      \
	{                                                                                                              \
		FEED_OF(open_stdio, push_stdio, gap_stdio, close_stdio, __VA_ARGS__)                                   \
	}

#define DIALOGUE                                                                                                       \
	SEGMENT(INITIALIZE "\n", 1, DIR_TX), SEGMENT("starting up\n" INITIALIZED "\r\n", 5, DIR_RX),                   \
		SEGMENT(READY "\n" LIST "\n", 6, DIR_TX), SEGMENT(LISTED "\n", 8, DIR_RX),                             \
		SEGMENT(CALL("1", "read") "\n" CALL("2", "w\\u00e4it") "\n", 10, DIR_TX),                              \
		SEGMENT(PROGRESS("2") "\n" TOOL_ERROR("2") "\n", 20, DIR_RX), SEGMENT(RESULT("1") "\n", 30, DIR_RX),   \
		SEGMENT("[" CALL("3", "a") ", " CALL("\"3\"", "b") "]\n", 40, DIR_TX),                                 \
		SEGMENT("[" FAILED("\"3\"") "," RESULT("3") "]\n", 50, DIR_RX),                                        \
		SEGMENT(CALL("4", "c") "\n", 60, DIR_TX)

#define DIALOGUE_TOLD                                                                                                  \
	"initialize 0 1-5 | server=files version=1.2 protocol=2025-06-18\n"                                            \
	"tools/list l-1 6-8 | server=files version=1.2 protocol=2025-06-18\n"                                          \
	"tools/call w\xc3\xa4it 2 10-20 error=tool_error | server=files version=1.2 protocol=2025-06-18 progress=1\n"  \
	"tools/call read 1 10-30 | server=files version=1.2 protocol=2025-06-18\n"                                     \
	"tools/call b 3 40-50 error=-32602 | server=files version=1.2 protocol=2025-06-18\n"                           \
	"tools/call a 3 40-50 | server=files version=1.2 protocol=2025-06-18\n"                                        \
	"tools/call c 4 60-61 end=server_abort | server=files version=1.2 protocol=2025-06-18\n"

static void test_cuts(void **state)
{
	struct feed f = FEED(DIALOGUE);

	(void)state;
	feed_golden(&f, 60, DIALOGUE_TOLD);
	feed_release(&f);
}

/* Each line is one that is told without the gap too, but for what the session says, or says that it is lossy. */
static void check_gap(struct feed *f, const struct feed_run *r)
{
	struct sv rest = sv_of(f->log.text), line;

	while (rest.len) {
		char begin[256];
		size_t n;

		line = sv_cut(rest, '\n', &rest);
		for (n = 0; n + 1 < line.len && !(line.ptr[n] == ' ' && line.ptr[n + 1] == '|'); n++)
			;
		snprintf(begin, sizeof(begin), "%.*s |", (int)n, line.ptr);
		if (!strstr(begin, "lossy") && !strstr(DIALOGUE_TOLD, begin))
			fail_msg("gap %zu-%zu: %s", r->gap_from, r->gap_to, begin);
	}
	assert_null(f->log.text ? strstr(f->log.text, "SECRET") : NULL);
}

static void test_gaps(void **state)
{
	struct feed f = FEED(DIALOGUE);

	(void)state;
	feed_gaps(&f, 61, check_gap);
	feed_release(&f);
}

/* --- stdio: what is told ----------------------------------------------------------------------------------------- */

static void test_ends(void **state)
{
	struct rig r;

	(void)state;
	assert_true(rig_try(&r, false));
	said(&r, CALL("1", "slow") "\n", 10);
	said(&r, "{\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1},\"jsonrpc\":\"2.0\"}\n", 20);
	heard(&r, RESULT("1") "\n", 25);
	told(&r, "tools/call slow 1 10-20 end=client_abort cancelled |\n");
	/* an id that comes again before its answer */
	said(&r, CALL("2", "a") "\n", 30);
	said(&r, CALL("2", "b") "\n", 35);
	told(&r, "tools/call a 2 30-35 end=capture_loss |\n");
	heard(&r, RESULT("2") "\n", 40);
	told(&r, "tools/call b 2 35-40 |\n");
	/* lost: it ends where bytes went missing, when nobody answers any more */
	said(&r, CALL("3", "lost") "\n", 50);
	mcp_stdio_gap(r.flow[0], DIR_RX, false, &AT(60));
	heard(&r, "rest\n" RESULT("9") "\n", 70);
	assert_int_equal(mcp_conn_open(r.flow[0]), 1);
	mcp_stdio_end(r.flow[0], HTTP_ABORT_EXIT, 80 * MS);
	told(&r, "tools/call lost 3 50-60 end=capture_loss lossy |\n");
	assert_int_equal(mcp_conn_begun(r.flow[0]), 4);
	assert_int_equal(mcp_conn_open(r.flow[0]), 0);
	/* exit, eviction, the end of tracing */
	line_on(&r, 1, DIR_TX, CALL("1", "dies") "\n", 90);
	mcp_stdio_end(r.flow[1], HTTP_ABORT_EXIT, 95 * MS);
	told(&r, "tools/call dies 1 90-95 end=process_exit | exit=3/0\n");
	line_on(&r, 1, DIR_TX, CALL("1", "stale") "\n", 100);
	line_on(&r, 1, DIR_TX, CALL("2", "open") "\n", 2100);
	mcp_tick(r.table, 100000 * MS);
	told(&r, "");
	mcp_tick(r.table, 101100 * MS);
	told(&r, "tools/call stale 1 100-101010 end=evicted |\n");
	assert_int_equal(r.lost.evicted_calls, 1);
	mcp_each_open(r.table, 101200 * MS, on_mcp, &r.log);
	told(&r, "tools/call open 2 2100-101200 unfinished |\n");
	mcp_finish(r.table, 101300 * MS);
	told(&r, "tools/call open 2 2100-101300 end=capture_end unfinished |\n");
	rig_close(&r);
}

/* JSON-RPC of others, and what is no message. */
static void test_others(void **state)
{
	static const char *const texts[] = {
		"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n", /* ACP
														  */
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/prompt\",\"params\":{\"name\":\"x\"}}\n",
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n",
		"{\"jsonrpc\":\"1.0\",\"id\":3,\"method\":\"tools/call\"}\n",
		"{\"id\":3,\"method\":\"tools/call\"}\n",
		"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"tools/call\"}\n",
		"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"tools/call\"}\n",
		"{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":7}\n",
		"{\"model\":\"x\",\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\"}\n",
		"[1,{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\"}]\n",
		"{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"tools/call\"\n",
		"\n \t\r\n{}\n[]\nnull\n\"\n",
	};
	struct rig r;

	(void)state;
	assert_true(rig_try(&r, false));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		said(&r, texts[i], 10 + i);
	heard(&r, RESULT("0") "\n" RESULT("1") "\n" RESULT("2") "\n" RESULT("3") "\n" RESULT("77") "\n", 30);
	assert_int_equal(mcp_conn_begun(r.flow[0]), 0);
	mcp_stdio_end(r.flow[0], HTTP_ABORT_CLOSED, 40 * MS);
	told(&r, "");
	/* one that is proven later tells what is open still; other methods are told, too */
	said(&r, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n", 50);
	said(&r, "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}\n", 51);
	said(&r, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"x/own\",\"params\":{\"name\":\"not told\"}}\n", 52);
	heard(&r, RESULT("1") "\n" RESULT("3") "\n" RESULT("2") "\n", 60);
	told(&r, "ping 1 50-60 |\nx/own 3 52-60 |\ntools/list 2 51-60 |\n");
	/* the beginning was not seen but for the server's name */
	heard(&r, INITIALIZED "\n", 70);
	said(&r, LIST "\n", 71);
	heard(&r, LISTED "\n", 72);
	told(&r, "tools/list l-1 71-72 | server=files version=1.2 protocol=2025-06-18\n");
	assert_int_equal(r.lost.n[LOST_DECODE_ERRORS], 0);
	rig_close(&r);
}

/* What the server asks. The one who asked is told where both ends are traced; else who was asked, a second later. */
static void test_both_ends(void **state)
{
	struct rig r;

	(void)state;
	assert_true(rig_try(&r, false));
	said(&r, INITIALIZE "\n", 10);
	line_on(&r, 1, DIR_RX, INITIALIZE, 11);
	line_on(&r, 1, DIR_RX, "\n", 12);
	line_on(&r, 1, DIR_TX, INITIALIZED "\n", 13);
	heard(&r, INITIALIZED "\n", 14);
	told(&r, "initialize 0 10-14 | server=files version=1.2 protocol=2025-06-18\n");
	/* the server's process was faster to tell */
	line_on(&r, 1, DIR_RX, CALL("1", "fast") "\n", 20);
	line_on(&r, 1, DIR_TX, RESULT("1") "\n", 21);
	said(&r, CALL("1", "fast") "\n", 22);
	heard(&r, RESULT("1") "\n", 23);
	told(&r, "tools/call fast 1 22-23 | server=files version=1.2 protocol=2025-06-18\n");
	/* a request of the server */
	line_on(&r, 1, DIR_TX, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n", 30);
	heard(&r, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n", 31);
	said(&r, RESULT("1") "\n", 32);
	line_on(&r, 1, DIR_RX, RESULT("1") "\n", 33);
	told(&r, "roots/list 1 30-33 | server=files version=1.2 protocol=2025-06-18\n");
	mcp_tick(r.table, 5000 * MS);
	told(&r, "");
	/* nobody else is seen */
	line_on(&r, 1, DIR_RX, CALL("2", "alone") "\n", 6000);
	line_on(&r, 1, DIR_TX, RESULT("2") "\n", 6005);
	told(&r, "");
	mcp_each_open(r.table, 6006 * MS, on_mcp, &r.log);
	told(&r, "tools/call alone 2 6000-6005 answerer | server=files version=1.2 protocol=2025-06-18\n");
	mcp_tick(r.table, 7005 * MS);
	told(&r, "tools/call alone 2 6000-6005 answerer | server=files version=1.2 protocol=2025-06-18\n");
	line_on(&r, 1, DIR_RX, CALL("3", "late") "\n", 8000);
	line_on(&r, 1, DIR_TX, RESULT("3") "\n", 8005);
	mcp_finish(r.table, 8006 * MS);
	told(&r, "tools/call late 3 8000-8005 answerer | server=files version=1.2 protocol=2025-06-18\n");
	rig_close(&r);
}

/* Errors' messages only with content; ids and names have bounds. */
static void test_texts(void **state)
{
	char long_id[400], line[900];
	struct rig r;

	(void)state;
	assert_true(rig_try(&r, true));
	said(&r, CALL("1", "read") "\n", 10);
	heard(&r, FAILED("1") "\n", 20);
	told(&r, "tools/call read 1 10-20 error=-32602 message=SECRET name |\n");
	memset(long_id, 'x', sizeof(long_id));
	long_id[129] = '\0';
	snprintf(line, sizeof(line), "{\"jsonrpc\":\"2.0\",\"id\":\"%s\",\"method\":\"tools/call\"}\n", long_id);
	said(&r, line, 30);
	assert_int_equal(r.lost.n[LOST_DECODE_ERRORS], 1);
	assert_int_equal(mcp_conn_open(r.flow[0]), 0);
	long_id[128] = '\0';
	snprintf(line, sizeof(line), "{\"jsonrpc\":\"2.0\",\"id\":\"%s\",\"method\":\"tools/call\"}\n", long_id);
	said(&r, line, 30);
	assert_int_equal(mcp_conn_open(r.flow[0]), 1);
	/* a request that is longer than what is copied */
	said(&r, "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"a\":\"", 40);
	mcp_stdio_gap(r.flow[0], DIR_TX, true, &AT(41));
	assert_int_equal(r.lost.n[LOST_DECODE_ERRORS], 2);
	said(&r, "\"}}\n" LIST "\n", 42);
	heard(&r, LISTED "\n", 43);
	told(&r, "tools/list l-1 42-43 |\n");
	rig_close(&r);
}

static void test_bounds(void **state)
{
	struct rig r;
	char line[160];

	(void)state;
	assert_true(rig_try(&r, false));
	for (unsigned i = 0; i <= MCP_OPEN_MAX; i++) {
		snprintf(line, sizeof(line), "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"tools/list\"}\n", i);
		said(&r, line, 10);
	}
	told(&r, "tools/list 0 10-10 end=evicted |\n");
	assert_int_equal(r.lost.n[LOST_NO_MEMORY], 1);
	assert_int_equal(mcp_conn_open(r.flow[0]), MCP_OPEN_MAX);
	rig_close(&r);
}

/* --- HTTP -------------------------------------------------------------------------------------------------------- */

#define ACCEPT "host: tools.test\ncontent-type: application/json\naccept: application/json, text/event-stream\n"
#define JSON   "content-type: application/json\n"
#define EVENTS "content-type: text/event-stream\n"

static void ask(struct rig *r, unsigned conn, uint64_t xid, const char *method, const char *target, const char *headers,
		const char *body, uint64_t ms)
{
	struct http_header store[16];
	struct http_head h = {.method = sv_of(method), .target = sv_of(target)};
	struct http_sink *s = &r->http[conn];

	head_of(&h, store, headers);
	s->on_request(s->ctx, xid, &h, &AT(ms));
	if (*body)
		s->on_body(s->ctx, xid, HTTP_REQUEST, (const uint8_t *)body, strlen(body), &AT(ms));
	s->on_request_end(s->ctx, xid, 99, &AT(ms));
}

static void post(struct rig *r, uint64_t xid, const char *more, const char *body, uint64_t ms)
{
	char headers[512];

	snprintf(headers, sizeof(headers), "%s%s", ACCEPT, more);
	ask(r, 0, xid, "POST", "/mcp", headers, body, ms);
}

static void answer_head(struct rig *r, unsigned conn, uint64_t xid, int status, const char *headers, uint64_t ms)
{
	struct http_header store[16];
	struct http_head h = {.status = status};

	head_of(&h, store, headers);
	r->http[conn].on_response(r->http[conn].ctx, xid, &h, &AT(ms));
}

static void answer_body(struct rig *r, unsigned conn, uint64_t xid, const char *body, uint64_t ms)
{
	r->http[conn].on_body(r->http[conn].ctx, xid, HTTP_RESPONSE, (const uint8_t *)body, strlen(body), &AT(ms));
}

static void answer_end(struct rig *r, unsigned conn, uint64_t xid, uint64_t ms)
{
	r->http[conn].on_response_end(r->http[conn].ctx, xid, 88, &AT(ms));
}

static void answer(struct rig *r, uint64_t xid, int status, const char *headers, const char *body, uint64_t ms)
{
	answer_head(r, 0, xid, status, headers, ms);
	if (*body)
		answer_body(r, 0, xid, body, ms);
	answer_end(r, 0, xid, ms + 1);
}

static void test_http(void **state)
{
	struct rig r;

	(void)state;
	assert_true(rig_try(&r, false));
	post(&r, 1, "", INITIALIZE, 10);
	answer(&r, 1, 200, EVENTS "mcp-session-id: s-1\n", "event: message\ndata: " INITIALIZED "\n\n", 20);
	told(&r, "initialize 0 10-20 | server=files version=1.2 protocol=2025-06-18 host=tools.test status=200\n");
	post(&r, 2, "mcp-session-id: s-1\n", READY, 21);
	answer(&r, 2, 202, "", "", 22);
	/* one document, and an error; the name is the session's */
	post(&r, 3, "mcp-session-id: s-1\n", CALL("1", "read"), 30);
	answer(&r, 3, 200, JSON, RESULT("1"), 40);
	told(&r, "tools/call read 1 30-40 | server=files version=1.2 protocol=2025-06-18 host=tools.test status=200\n");
	post(&r, 4, "mcp-session-id: s-1\n", CALL("2", "read"), 50);
	answer(&r, 4, 404, JSON, "{\"error\":\"no such session\"}", 60);
	told(&r, "tools/call read 2 50-61 error=404 | server=files version=1.2 protocol=2025-06-18 host=tools.test "
		 "status=404\n");
	/* events: progress, a request of the server, the answer; a batch */
	post(&r, 5, "mcp-session-id: s-1\n", CALL("3", "slow"), 70);
	answer_head(&r, 0, 5, 200, EVENTS, 71);
	answer_body(&r, 0, 5,
		    ": hello\n\ndata: " PROGRESS("3") "\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":", 72);
	answer_body(&r, 0, 5, "\"sampling/createMessage\"}\n\n", 73);
	post(&r, 6, "mcp-session-id: s-1\n", RESULT("1"), 80);
	told(&r, "sampling/createMessage 1 73-80 answerer | server=files version=1.2 protocol=2025-06-18 "
		 "host=tools.test\n");
	answer(&r, 6, 202, "", "", 81);
	answer_body(&r, 0, 5, "data: " RESULT("3") "\n\n", 90);
	told(&r, "tools/call slow 3 70-90 | server=files version=1.2 protocol=2025-06-18 host=tools.test status=200 "
		 "progress=1\n");
	answer_end(&r, 0, 5, 91);
	post(&r, 7, "mcp-session-id: s-1\n", "[" CALL("4", "a") "," CALL("5", "b") "]", 100);
	answer(&r, 7, 200, JSON, "[" RESULT("5") "," RESULT("4") "]", 110);
	told(&r, "tools/call b 5 100-110 | server=files version=1.2 protocol=2025-06-18 host=tools.test status=200\n"
		 "tools/call a 4 100-110 | server=files version=1.2 protocol=2025-06-18 host=tools.test status=200\n");
	/* what the next stage got is all there was */
	assert_int_equal(strncmp(r.passed.text, "request 1\nbody 1 0 ", 19), 0);
	assert_non_null(strstr(r.passed.text, "response 7 200\nbody 7 1 "));
	assert_non_null(strstr(r.passed.text, "response end 7 88\n"));
	rig_close(&r);
}

/* The answer comes on a stream of its own: of the session, or of the older transport. */
static void test_other_stream(void **state)
{
	struct rig r;

	(void)state;
	assert_true(rig_try(&r, false));
	ask(&r, 1, 1, "GET", "/mcp", "host: tools.test\naccept: text/event-stream\nmcp-session-id: s-2\n", "", 10);
	answer_head(&r, 1, 1, 200, EVENTS, 11);
	assert_int_equal(mcp_conn_open(r.flow[1]), 1);
	post(&r, 2, "mcp-session-id: s-2\n", CALL("1", "read"), 20);
	answer(&r, 2, 202, "", "", 21);
	told(&r, "");
	answer_body(&r, 1, 1, "data: " RESULT("1") "\n\n", 40);
	told(&r, "tools/call read 1 20-40 | server=tools.test host=tools.test status=202\n");
	answer_end(&r, 1, 1, 41);
	assert_int_equal(mcp_conn_open(r.flow[1]), 0);

	ask(&r, 1, 3, "GET", "/sse", "host: tools.test\naccept: text/event-stream\n", "", 50);
	answer_head(&r, 1, 3, 200, EVENTS, 51);
	answer_body(&r, 1, 3, "event: endpoint\ndata: http://tools.test/messages?sessionId=x\n\n", 52);
	ask(&r, 0, 4, "POST", "/messages?sessionId=x", "host: tools.test\n" JSON, CALL("1", "old"), 60);
	answer(&r, 4, 202, "content-type: text/plain\n", "Accepted", 61);
	ask(&r, 0, 5, "POST", "/messages?sessionId=y", "host: tools.test\n" JSON, CALL("1", "other"), 62);
	answer_body(&r, 1, 3, "event: message\ndata: " RESULT("1") "\n\n", 70);
	told(&r, "tools/call old 1 60-70 | server=tools.test host=tools.test status=202\n");
	/* the process ends: so does what waits for a stream */
	ask(&r, 0, 6, "POST", "/messages?sessionId=x", "host: tools.test\n" JSON, CALL("2", "never"), 80);
	answer(&r, 6, 202, "", "", 81);
	mcp_conn_free(r.flow[0]);
	r.flow[0] = NULL;
	mcp_exit(r.table, &(struct proc_key){.tgid = 8, .start_ns = 1}, 1, 0, 85 * MS);
	mcp_exit(r.table, &(struct proc_key){.tgid = 7, .start_ns = 1}, 1, 9, 90 * MS);
	told(&r, "tools/call other 1 62-90 end=process_exit | server=tools.test host=tools.test exit=1/9\n"
		 "tools/call never 2 80-90 end=process_exit | server=tools.test host=tools.test status=202 exit=1/9\n");
	rig_close(&r);
}

static void test_http_ends(void **state)
{
	struct rig r;

	(void)state;
	assert_true(rig_try(&r, false));
	/* without a session ids are the exchange's own */
	ask(&r, 0, 1, "POST", "/mcp", ACCEPT, CALL("1", "a"), 10);
	ask(&r, 1, 1, "POST", "/mcp", ACCEPT, CALL("1", "b"), 11);
	answer_head(&r, 1, 1, 200, JSON, 12);
	answer_body(&r, 1, 1, RESULT("1"), 13);
	answer_end(&r, 1, 1, 14);
	told(&r, "tools/call b 1 11-13 | server=tools.test host=tools.test status=200\n");
	r.http[0].on_abort(r.http[0].ctx, 1, HTTP_ABORT_SERVER, 0, 20 * MS);
	told(&r, "tools/call a 1 10-20 end=server_abort | server=tools.test host=tools.test\n");
	/* an answer that is none, one that cannot be read, one that is lost */
	post(&r, 2, "", CALL("1", "none"), 30);
	answer(&r, 2, 200, JSON, "{}", 31);
	told(&r, "tools/call none 1 30-32 end=server_abort | server=tools.test host=tools.test status=200\n");
	post(&r, 3, "", CALL("1", "coded"), 40);
	answer(&r, 3, 200, JSON "content-encoding: x-own\n", "zz", 41);
	told(&r, "tools/call coded 1 40-42 undecoded=x-own | server=tools.test host=tools.test status=200\n");
	post(&r, 9, "", CALL("1", "cut"), 43);
	answer(&r, 9, 200, JSON "content-encoding: gzip\n", "\x1f\x8b", 44);
	told(&r, "tools/call cut 1 43-45 undecoded=gzip | server=tools.test host=tools.test status=200\n");
	post(&r, 4, "", CALL("1", "lost"), 50);
	answer_head(&r, 0, 4, 200, EVENTS, 51);
	r.http[0].on_body_gap(r.http[0].ctx, 4, HTTP_RESPONSE, 10, HTTP_GAP_LOST, &AT(52));
	answer_end(&r, 0, 4, 60);
	told(&r, "tools/call lost 1 50-52 end=capture_loss lossy | server=tools.test host=tools.test status=200\n");
	/* one whose request is lost, and one of others */
	post(&r, 5, "", "", 70);
	answer(&r, 5, 200, JSON, RESULT("1"), 71);
	ask(&r, 0, 6, "POST", "/rpc", ACCEPT, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_call\"}", 72);
	answer(&r, 6, 200, JSON, RESULT("1"), 73);
	post(&r, 7, "", "{\"model\":\"m\",\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}", 74);
	answer(&r, 7, 200, JSON, RESULT("1"), 75);
	ask(&r, 0, 8, "GET", "/news", "host: tools.test\naccept: text/event-stream\n", "", 76);
	answer_head(&r, 0, 8, 200, EVENTS, 77);
	answer_body(&r, 0, 8, "data: hello\n\ndata: " RESULT("1") "\n\n", 78);
	assert_int_equal(mcp_conn_open(r.flow[0]), 0);
	told(&r, "");
	/* a server's connection */
	post(&r, 9, "", CALL("1", "served"), 80);
	mcp_conn_forget(r.flow[0]);
	answer(&r, 9, 200, JSON, RESULT("1"), 81);
	told(&r, "");
	/* a request longer than what is copied */
	r.http[0].on_request(r.http[0].ctx, 10,
			     &(struct http_head){.method = SV("POST"), .target = SV("/mcp"), .protocol = "http/1.1"},
			     &AT(90));
	r.http[0].on_body(r.http[0].ctx, 10, HTTP_REQUEST, (const uint8_t *)"{\"jsonrpc\":\"2.0\"", 16, &AT(90));
	r.http[0].on_body_gap(r.http[0].ctx, 10, HTTP_REQUEST, 10, HTTP_GAP_CAPPED, &AT(91));
	r.http[0].on_request_end(r.http[0].ctx, 10, 99, &AT(91));
	assert_int_equal(r.lost.n[LOST_DECODE_ERRORS], 3); /* and the codings above */
	rig_close(&r);
}

static void test_http_bounds(void **state)
{
	struct rig r;
	char headers[256];

	(void)state;
	assert_true(rig_try(&r, false));
	for (unsigned i = 0; i <= MCP_EXCHANGES_MAX; i++)
		ask(&r, 0, i, "POST", "/mcp", ACCEPT, CALL("1", "a"), 10);
	assert_int_equal(r.lost.n[LOST_NO_MEMORY], 1);
	assert_int_equal(mcp_conn_open(r.flow[0]), MCP_EXCHANGES_MAX);
	for (unsigned i = 0; i < MCP_EXCHANGES_MAX; i++)
		r.http[0].on_abort(r.http[0].ctx, i, HTTP_ABORT_CLIENT, 0, 11 * MS);
	/* documents that do not end: eight of 8 MiB are too many */
	for (unsigned i = 0; i < 8; i++) {
		post(&r, 3000 + i, "", CALL("1", "large"), 12);
		answer_head(&r, 0, 3000 + i, 200, JSON, 13);
		answer_body(&r, 0, 3000 + i, "{\"result\":\"", 14);
		for (unsigned k = 0; k < 127; k++)
			r.http[0].on_body(r.http[0].ctx, 3000 + i, HTTP_RESPONSE, r.zeros, sizeof(r.zeros), &AT(15));
	}
	r.log.len = 0;
	for (unsigned i = 0; i < 8; i++)
		answer_end(&r, 0, 3000 + i, 16);
	assert_non_null(strstr(r.log.text, "tools/call large 1 12-16 undecoded=over 32 MiB at once |"));
	assert_non_null(strstr(r.log.text, "tools/call large 1 12-16 end=server_abort |"));
	/* sessions that nobody uses are forgotten */
	for (unsigned i = 0; i < MCP_SESSIONS_MAX + 10; i++) {
		snprintf(headers, sizeof(headers), "mcp-session-id: many-%u\n", i);
		post(&r, 5000 + i, headers, LIST, 20);
		answer(&r, 5000 + i, 200, JSON, LISTED, 21);
	}
	assert_int_equal(r.lost.n[LOST_NO_MEMORY], 1);
	rig_close(&r);
}

/* --- failing malloc ---------------------------------------------------------------------------------------------- */

static void play_all(struct rig *r)
{
	said(r, INITIALIZE "\n", 10);
	heard(r, INITIALIZED "\n", 14);
	said(r, CALL("1", "read") "\n", 20);
	heard(r, FAILED("1") "\n", 21);
	line_on(r, 1, DIR_RX, CALL("1", "read") "\n", 22);
	line_on(r, 1, DIR_TX, RESULT("1") "\n", 23);
	post(r, 1, "", INITIALIZE, 30);
	answer(r, 1, 200, EVENTS "mcp-session-id: s-1\n", "data: " INITIALIZED "\n\n", 31);
	post(r, 2, "mcp-session-id: s-1\ncontent-encoding: gzip\n", CALL("1", "read"), 32);
	post(r, 3, "mcp-session-id: s-1\n", CALL("2", "read"), 33);
	answer(r, 3, 200, JSON, TOOL_ERROR("2"), 34);
	ask(r, 1, 4, "GET", "/sse", "host: tools.test\naccept: text/event-stream\n", "", 35);
	answer_head(r, 1, 4, 200, EVENTS, 36);
	answer_body(r, 1, 4, "event: endpoint\ndata: /m?x\n\n", 37);
	post(r, 5, "", CALL("3", "read"), 38);
	answer(r, 5, 500, JSON, "", 39);
}

static void test_no_memory(void **state)
{
	(void)state;
	for (unsigned n = 1;; n++) {
		struct rig r = {0};
		bool hit;

		fail_nth(n);
		if (rig_try(&r, true)) {
			play_all(&r);
			assert_true(!fail_nth_hit() || r.lost.n[LOST_NO_MEMORY]);
		}
		hit = fail_nth_hit();
		fail_nth(0);
		rig_close(&r);
		if (!hit)
			break;
		assert_true(n < 1000);
	}
}

/* A new server is asked to initialize first: what is asked before that could be seen is counted. */
static void missed_beginnings(void **state)
{
	static const struct {
		bool fresh;
		const char *first;
		unsigned lost;
	} cases[] = {{true, INITIALIZE "\n", 0}, {true, LIST "\n", 1}, {false, LIST "\n", 0}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct tlog log = {0};
		struct stdio *s = open_stdio(&log, NULL);
		struct stamp at = {.entry_ns = MS, .ts_ns = MS};

		s->conn.fresh = cases[i].fresh;
		push_stdio(s, DIR_TX, (const uint8_t *)cases[i].first, strlen(cases[i].first), &at);
		push_stdio(s, DIR_TX, (const uint8_t *)CALL("9", "x") "\n", strlen(CALL("9", "x") "\n"), &at);
		assert_int_equal(s->lost.n[LOST_LATE], cases[i].lost);
		close_stdio(s, &log);
		tlog_free(&log);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(missed_beginnings), cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_gaps),	     cmocka_unit_test(test_ends),
		cmocka_unit_test(test_others),	     cmocka_unit_test(test_both_ends),
		cmocka_unit_test(test_texts),	     cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_http),	     cmocka_unit_test(test_other_stream),
		cmocka_unit_test(test_http_ends),    cmocka_unit_test(test_http_bounds),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
