/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http1_scenarios.h"

#include "flow/proto/http1.h"

HTTP_PARSER_FUNCTIONS(http1)
static const struct http_parser http1_parser = HTTP_PARSER(http1);

static void *open_http1(struct http_run *r, const struct http_sink *sink)
{
	const struct scenario *s = r->scenario;

	return http1_new(!s->middle, s->server ? DIR_RX : DIR_TX, sink);
}

static struct http_run run_of(const struct scenario *s)
{
	return (struct http_run){
		.parser = &http1_parser,
		.open = open_http1,
		.scenario = s,
		.name = s->name,
		.golden = s->golden,
		.want_errors = s->errors,
		.steps = s->steps,
		.count = s->count,
		.why = s->why,
		.end_ms = s->end_ms,
		.full = 12,
		.near = 8,
		.cut1 = SIZE_MAX,
		.cut2 = SIZE_MAX,
	};
}

/* --- every scenario ---------------------------------------------------------------------------------------------- */

static void each_scenario(void (*fn)(struct http_run *r))
{
	for (size_t i = 0; i < scenario_count; i++) {
		struct http_run r = run_of(&scenarios[i]);

		fn(&r);
		http_run_release(&r);
	}
}

static void test_whole_and_bytewise(void **state)
{
	(void)state;
	each_scenario(http_run_pieces);
}

static void test_every_cut(void **state)
{
	(void)state;
	each_scenario(http_run_cuts);
}

static void test_every_near_cut(void **state)
{
	(void)state;
	each_scenario(http_run_near_cuts);
}

static void test_no_memory(void **state)
{
	(void)state;
	each_scenario(http_run_no_memory);
}

/* --- gaps -------------------------------------------------------------------------------------------------------- */

#define NEXT_BODY "{\"n\":2}"

/* The lines of the exchange that began at 100 s, without its number. */
static void last_call(const char *log, char out[1024])
{
	const char *begin = strstr(log, "@100000/100000"), *line = log, *end;
	size_t n = 0;
	int xid;

	out[0] = '\0';
	if (!begin)
		return;
	while (begin > log && begin[-1] != '\n')
		begin--;
	xid = atoi(begin);
	for (; *line && n < 900; line = end + 1) {
		end = strchr(line, '\n');
		if (atoi(line) == xid)
			n += (size_t)snprintf(out + n, 1024 - n, "%.*s", (int)(end + 1 - strchr(line, ' ') - 1),
					      strchr(line, ' ') + 1);
	}
}

/* [from, to) of one step is missing; one more call at the end must be exact. */
static void run_with_gap(const struct scenario *s, size_t victim, size_t from, size_t to, bool known)
{
	struct script_step steps[32];
	struct http_run r = run_of(s);
	static const char golden[] = "POST /v1/messages host=api.test n=2 @100000/100000\n> @100000 " NEXT_BODY
				     "\n> end 72 @100000\n< 202 n=1 @100100\n< @100100 last\n< end 67 @100200\n";
	char seen[1024];
	size_t n = script_with_gap(s->steps, s->count, victim, from, to, known, steps);

	steps[n++] = (struct script_step)TX(100000, POST(7) NEXT_BODY);
	steps[n++] = (struct script_step)RX(100100,
					    "HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nlast\r\n");
	steps[n++] = (struct script_step)RX(100200, "0\r\n\r\n");
	r.steps = steps;
	r.count = n;
	r.end_ms = 200000;
	http_run_once(&r);
	last_call(r.log.log.text, seen);
	if (strcmp(seen, golden)) {
		print_error("%s: step %zu without [%zu, %zu), %s:\n%s--- the last call is not\n%s", s->name, victim,
			    from, to, known ? "known" : "unknown", r.log.log.text, golden);
		fail();
	}
	http_run_release(&r);
}

static const struct scenario gap_scenarios[];
static const size_t gap_scenario_count;

/* Whatever is missing: nothing breaks, and the next call of the connection is exact. */
static void test_every_gap(void **state)
{
	(void)state;
	for (size_t i = 0; i < gap_scenario_count; i++) {
		const struct scenario *s = &gap_scenarios[i];

		for (size_t k = 0; k < s->count; k++) {
			size_t len = step_len(&s->steps[k]);

			for (size_t from = 0; from < len; from++)
				for (size_t to = from + 1; to <= len; to += to - from < 24 ? 1 : 17) {
					run_with_gap(s, k, from, to, true);
					run_with_gap(s, k, from, to, false);
				}
		}
	}
}

static const struct scenario gap_scenarios[] = {
	{
		.name = "streamed",
		STEPS(TX(0, POST(12) "{\"stream\":1}"), RX(100, SSE_HEAD "8\r\ndata: a\n\r\n"),
		      RX(150, "9\r\ndata: bc\n\r\n"), RX(200, "0\r\nX-T: 1\r\n\r\n")),
	},
	{
		.name = "unary, chunked request",
		STEPS(TX(0, "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), TX(10, "5\r\nhello\r\n"),
		      TX(20, "0\r\n\r\n"), RX(100, "HTTP/1.1 100 Continue\r\n\r\n"), RX(110, OK(5) "world")),
	},
	{
		.name = "two calls",
		STEPS(TX(0, POST(2) "ab"), RX(100, OK(3) "one"), TX(200, POST(2) "cd"), RX(300, OK(3) "two")),
	},
};
static const size_t gap_scenario_count = ARRAY_SIZE(gap_scenarios);

/* --- limits and cost --------------------------------------------------------------------------------------------- */

static struct http1 *plain_new(struct contract *c, bool fresh)
{
	struct http_sink sink = contract_sink(c);
	struct http1 *h = http1_new(fresh, DIR_TX, &sink);

	assert_non_null(h);
	return h;
}

static void push_text(struct http1 *h, enum dir dir, const char *text, uint64_t ms)
{
	struct stamp at = {MS(ms), MS(ms), 7, 0};

	assert_int_equal(http1_push(h, dir, (const uint8_t *)text, strlen(text), &at), 0);
}

static void gap_at(struct http1 *h, enum dir dir, uint64_t len, uint64_t ms)
{
	struct stamp at = {MS(ms), MS(ms), 7, 0};

	assert_int_equal(http1_gap(h, dir, len, HTTP_GAP_LOST, &at), 0);
}

static void test_many_headers(void **state)
{
	struct hlog l = {0};
	struct contract c = {.next = hlog_sink(&l)};
	struct http1 *h = plain_new(&c, true);

	(void)state;
	push_text(h, DIR_TX, "POST / HTTP/1.1\r\n", 1);
	for (int i = 0; i < 300; i++)
		push_text(h, DIR_TX, "X-Some: header\r\n", 1);
	push_text(h, DIR_TX, "Content-Length: 3\r\n\r\nabc", 1); /* beyond those that are kept, and counts */
	http1_finish(h, HTTP_ABORT_CLIENT, MS(2));
	assert_int_equal(http1_errors(h), 0);
	http1_free(h);
	assert_log(&l.log, "1 POST / host= n=128 @1/1\n1 > @1 abc\n1 > end 4841 @1\n1 abort client 0 @2\n");
	hlog_free(&l);
}

/* The hole in the responses is known before the request is whose response it holds. */
static void test_request_told_after_its_loss(void **state)
{
	for (int answered = 0; answered <= 1; answered++) {
		struct contract c = {0};
		struct hlog l = {0};
		struct http1 *h;

		(void)state;
		c.next = hlog_sink(&l);
		h = plain_new(&c, true);
		push_text(h, DIR_TX, GET("/1"), 1);
		push_text(h, DIR_RX, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", 2);
		http1_gap(h, DIR_RX, 50, HTTP_GAP_LOST, &(struct stamp){.entry_ns = MS(40), .ts_ns = MS(40)});
		if (answered) /* perhaps by what answers a request that is not seen */
			http1_gap(h, DIR_TX, 60, HTTP_GAP_LOST, &(struct stamp){.entry_ns = MS(30), .ts_ns = MS(30)});
		push_text(h, DIR_TX, GET("/2"), 30);
		if (answered)
			push_text(h, DIR_RX, OK(1) "2", 50);
		http1_finish(h, HTTP_ABORT_EXIT, MS(60));
		http1_free(h);
		assert_non_null(strstr(l.log.text, answered ? "2 < gap -1\n2 < 200 n=1 @50\n2 < @50 2\n2 < end 39 @50\n"
							    : "2 abort loss 0 @30\n"));
		hlog_free(&l);
	}
}

/* One hole, known at the end of the connection only, hid the responses of all that was asked before it. */
static void test_hole_over_responses(void **state)
{
	struct stamp at = {.entry_ns = MS(40), .ts_ns = MS(40)};
	struct hlog l = {0};
	struct contract c = {.next = hlog_sink(&l)};
	struct http1 *h = plain_new(&c, true);

	(void)state;
	push_text(h, DIR_TX, GET("/1"), 1);
	push_text(h, DIR_TX, GET("/2"), 10);
	push_text(h, DIR_TX, GET("/3"), 20);
	push_text(h, DIR_TX, GET("/4"), 50); /* after it: nobody answered */
	http1_gap(h, DIR_RX, 500, HTTP_GAP_LOST, &at);
	http1_finish(h, HTTP_ABORT_CLOSED, MS(60));
	http1_free(h);
	assert_non_null(strstr(l.log.text,
			       "1 abort loss 0 @1\n2 abort loss 0 @10\n3 abort loss 0 @20\n4 abort closed 0 @60\n"));
	hlog_free(&l);
}

/* What was lost in the requests is known later than what was lost in the responses: a response is taken for an older
 * request's. That must not put all that follow out of step, nor be taken for pipelining. */
static void test_in_step_again(void **state)
{
	struct stamp hole[2] = {{.entry_ns = MS(35), .ts_ns = MS(35)}, {.entry_ns = MS(20), .ts_ns = MS(20)}};
	struct hlog l = {0};
	struct contract c = {.next = hlog_sink(&l)};
	struct http1 *h = plain_new(&c, true);

	(void)state;
	push_text(h, DIR_TX, GET("/1"), 1);
	push_text(h, DIR_RX, OK(1) "1", 5);
	push_text(h, DIR_TX, GET("/2"), 10);
	http1_gap(h, DIR_RX, 500, HTTP_GAP_LOST, &hole[DIR_RX]); /* what answered /2 and /3 */
	push_text(h, DIR_RX, OK(1) "4", 40);
	push_text(h, DIR_RX, OK(1) "5", 60);
	http1_gap(h, DIR_TX, 500, HTTP_GAP_LOST, &hole[DIR_TX]); /* /3 */
	push_text(h, DIR_TX, GET("/4"), 36);
	push_text(h, DIR_TX, GET("/5"), 50);
	for (unsigned ms = 70; ms < 100; ms += 10) {
		push_text(h, DIR_TX, GET("/6"), ms);
		push_text(h, DIR_RX, OK(1) "6", ms + 5);
	}
	http1_finish(h, HTTP_ABORT_CLOSED, MS(200));
	http1_free(h);
	assert_non_null(strstr(l.log.text, "2 < gap -1\n")); /* it says that it is not sure */
	assert_non_null(strstr(l.log.text, "3 abort loss 0 @36\n"));
	assert_non_null(strstr(l.log.text, "4 < @60 5\n"));
	assert_non_null(strstr(l.log.text, "5 < @75 6\n"));
	assert_non_null(strstr(l.log.text, "6 < @85 6\n"));
	assert_non_null(strstr(l.log.text, "7 < @95 6\n"));
	hlog_free(&l);
}

static void test_head_too_long(void **state)
{
	struct hlog l = {0};
	struct contract c = {.next = hlog_sink(&l)};
	struct http1 *h = plain_new(&c, true);

	(void)state;
	push_text(h, DIR_TX, "POST /long HTTP/1.1\r\n", 1);
	for (int i = 0; i < 5000; i++)
		push_text(h, DIR_TX, "X-Some: header\r\n", 1);
	assert_int_equal(http1_errors(h), 1);
	push_text(h, DIR_RX, OK(0), 2); /* its response can be read all the same */
	push_text(h, DIR_TX, "\r\n" GET("/next"), 3);
	push_text(h, DIR_RX, "HTTP/1.1 200 OK\r\n", 4);
	for (int i = 0; i < 5000; i++)
		push_text(h, DIR_RX, "X-Some: header\r\n", 4);
	assert_int_equal(http1_errors(h), 2);
	http1_finish(h, HTTP_ABORT_CLIENT, MS(5));
	http1_free(h);
	assert_log(&l.log, "1 unreadable POST /long @1\n1 < 200 n=1 @2\n1 < end 38 @2\n"
			   "2 GET /next host=h n=1 @3/3\n2 > end 31 @3\n2 abort parse 0 @4\n");
	hlog_free(&l);
}

/* More bytes at once than a head may have: what cannot begin one is no request, as it is none in pieces. */
static void test_long_and_no_head(void **state)
{
	static uint8_t bytes[HTTP_HEAD_BYTES_MAX + 1];

	(void)state;
	memset(bytes, '\1', sizeof(bytes));
	for (size_t piece = 1; piece <= sizeof(bytes); piece += sizeof(bytes) - 1) {
		struct contract c = {0};
		struct http1 *h = plain_new(&c, true);
		struct stamp at = {1, 1, 7, 0};

		for (size_t n = 0; n < sizeof(bytes); n += piece)
			assert_int_equal(http1_push(h, DIR_TX, bytes + n, piece, &at), 0);
		assert_int_equal(c.requests, 0);
		assert_int_equal(http1_errors(h), 1);
		http1_free(h);
	}
}

static void test_too_many_outstanding(void **state)
{
	struct contract c = {0};
	struct http1 *h;

	(void)state;
	h = plain_new(&c, true);
	for (int i = 0; i < HTTP1_PIPELINE_MAX; i++)
		push_text(h, DIR_TX, GET("/"), (uint64_t)i);
	assert_int_equal(c.open_count, HTTP1_PIPELINE_MAX);
	push_text(h, DIR_TX, GET("/"), 1000);
	assert_int_equal(c.open_count, 0);
	assert_int_equal(c.aborts_by[HTTP_ABORT_PARSE], HTTP1_PIPELINE_MAX);
	assert_int_equal(http1_errors(h), 1);
	push_text(h, DIR_TX, GET("/"), 1001);
	push_text(h, DIR_RX, OK(0), 1002);
	assert_int_equal(c.requests, HTTP1_PIPELINE_MAX);
	http1_free(h);
}

/* More answers than may be parked, before any request: told as exchanges whose requests were not seen, none lost. */
static void test_park_is_bounded(void **state)
{
	struct contract c = {0};
	struct http1 *h;
	char body[1001];

	(void)state;
	memset(body, 'x', 1000);
	body[1000] = '\0';
	h = plain_new(&c, true);
	for (int i = 0; i < 200; i++) {
		push_text(h, DIR_RX, OK(1000), 5);
		push_text(h, DIR_RX, body, 5);
	}
	assert_in_range(c.ends, 1, 199);
	http1_tick(h, MS(1004));
	assert_in_range(c.ends, 1, 199);
	http1_tick(h, MS(1005));
	assert_int_equal(c.ends, 200);
	assert_int_equal(c.body_bytes, 200000);
	http1_free(h);
}

/* What is parked is counted in calls, however each is cut: the first byte of one too many is not. */
static void test_park_of_many_calls(void **state)
{
	static const uint8_t text[] = {'x', 'y', 'z'};

	(void)state;
	for (size_t piece = 1; piece <= sizeof(text); piece += sizeof(text) - 1) {
		struct contract c = {0};
		struct http1 *h = plain_new(&c, true);

		push_text(h, DIR_RX, "HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n", 0);
		for (uint64_t i = 0; i <= HTTP1_PARK_RUNS; i++) {
			struct stamp at = {i, i, 7, 0};

			assert_int_equal(c.requests, 0);
			for (size_t n = 0; n < sizeof(text); n += piece)
				assert_int_equal(http1_push(h, DIR_RX, text + n, piece, &at), 0);
		}
		assert_int_equal(c.requests, 1);
		http1_free(h);
	}
}

/* Chunk sizes around every size that a buffer might have. */
static void test_chunk_sizes(void **state)
{
	static const unsigned near[] = {1, 512, 4096, 16384, 65536, 70000};
	static char chunk[70100];
	struct stamp at = {1, 1, 7, 0};

	(void)state;
	memset(chunk, 'c', sizeof(chunk));
	for (size_t i = 0; i < ARRAY_SIZE(near); i++) {
		for (unsigned size = near[i] > 16 ? near[i] - 16 : 1; size <= near[i] + 16; size++) {
			struct contract c = {0};
			struct http1 *h = plain_new(&c, true);
			char line[32];

			push_text(h, DIR_TX, GET("/"), 0);
			push_text(h, DIR_RX, SSE_HEAD, 1);
			for (int k = 0; k < 3; k++) {
				snprintf(line, sizeof(line), "%x\r\n", size);
				push_text(h, DIR_RX, line, 1);
				assert_int_equal(http1_push(h, DIR_RX, (uint8_t *)chunk, size, &at), 0);
				push_text(h, DIR_RX, "\r\n", 1);
			}
			push_text(h, DIR_RX, "0\r\n\r\n", 1);
			assert_int_equal(c.ends, 1);
			assert_int_equal(c.body_bytes, 3 * size);
			http1_free(h);
		}
	}
}

/* Megabytes that nearly are start lines, byte by byte: linear, so this ends. */
static void test_search_is_linear(void **state)
{
	static const char *const bait[] = {"POST /POST /",	    "HTTP/1.1 200 OK", "HTTP/1.1 200 HTTP/",
					   "GET /aGET /b ",	    "PPPPPP",	       "GETGETGETGETGET",
					   "X: GET / HTTP/1.1\r\n", "\r\n1\r\nx\r\n1"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bait); i++) {
		for (int fresh = 0; fresh < 2; fresh++) {
			struct contract c = {0};
			struct http1 *h = plain_new(&c, fresh);
			struct stamp at = {1, 1, 7, 0};

			for (size_t k = 0; k < 1 << 19; k++) {
				const uint8_t *byte = (const uint8_t *)bait[i] + k % strlen(bait[i]);

				http1_push(h, DIR_TX, byte, 1, &at);
				http1_push(h, DIR_RX, byte, 1, &at);
			}
			http1_finish(h, HTTP_ABORT_CLOSED, 2);
			assert_int_equal(c.open_count, 0);
			http1_free(h);
		}
	}
}

struct raw_log {
	struct tlog log;
};

static void raw_bytes(void *ctx, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct raw_log *l = ctx;

	(void)at;
	tlog_printf(&l->log, "%s %.*s\n", dir == DIR_TX ? "tx" : "rx", (int)len, (const char *)ptr);
}

static void raw_gap(void *ctx, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	struct raw_log *l = ctx;

	(void)why;
	(void)at;
	tlog_printf(&l->log, "%s gap %lld\n", dir == DIR_TX ? "tx" : "rx", (long long)len);
}

static void test_upgrade_hands_over(void **state)
{
	struct contract c = {0};
	struct raw_log l = {0};
	struct http1 *h;

	(void)state;
	h = plain_new(&c, true);
	http1_set_raw(h, &l, raw_bytes, raw_gap);
	push_text(h, DIR_TX, "GET /ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 1);
	assert_int_equal(http1_upgraded(h), HTTP1_NOT_UPGRADED);
	push_text(h, DIR_RX, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n\r\nframe1", 2);
	push_text(h, DIR_TX, "frame2", 3);
	push_text(h, DIR_RX, "frame3", 4);
	assert_int_equal(http1_upgraded(h), HTTP1_WEBSOCKET);
	assert_int_equal(c.aborts_by[HTTP_ABORT_UPGRADE], 1);
	gap_at(h, DIR_RX, 7, 5);
	http1_free(h);
	assert_log(&l.log, "rx frame1\ntx frame2\nrx frame3\nrx gap 7\n");
	tlog_free(&l.log);
}

#define ASK_UPGRADE "GET /ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
#define UPGRADE	    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n\r\n"

static void early_open(struct contract *c, struct raw_log *l, struct http1 **h)
{
	*c = (struct contract){0};
	*l = (struct raw_log){0};
	*h = plain_new(c, true);
	http1_set_raw(*h, l, raw_bytes, raw_gap);
	push_text(*h, DIR_TX, ASK_UPGRADE, 1);
}

/* What follows an upgrade is seen before its answer. */
static void test_upgrade_comes_late(void **state)
{
	struct contract c;
	struct raw_log l;
	struct http1 *h;
	uint8_t *much = calloc(1, HTTP1_EARLY_BYTES);
	struct stamp at = {MS(3), MS(3), 1, 0};

	(void)state;
	early_open(&c, &l, &h);
	push_text(h, DIR_TX, "\x81one", 2);
	push_text(h, DIR_TX, "GET", 3);
	gap_at(h, DIR_TX, 9, 4);
	push_text(h, DIR_TX, "three", 5);
	push_text(h, DIR_RX, UPGRADE "answer", 6);
	http1_free(h);
	assert_log(&l.log, "tx \x81one\ntx GET\ntx gap 9\ntx three\nrx answer\n");
	tlog_free(&l.log);
	/* more than is kept */
	early_open(&c, &l, &h);
	push_text(h, DIR_TX, "\x81", 2);
	assert_int_equal(http1_push(h, DIR_TX, much, HTTP1_EARLY_BYTES, &at), 0);
	gap_at(h, DIR_TX, 9, 4);
	push_text(h, DIR_RX, UPGRADE, 6);
	push_text(h, DIR_TX, "on", 7);
	http1_free(h);
	assert_log(&l.log, "tx gap -1\ntx on\n");
	tlog_free(&l.log);
	/* it was lost, or like a request */
	early_open(&c, &l, &h);
	gap_at(h, DIR_TX, 9, 4);
	push_text(h, DIR_RX, UPGRADE, 6);
	http1_free(h);
	assert_log(&l.log, "tx gap -1\n");
	tlog_free(&l.log);
	/* and there is no upgrade */
	for (int over = 0; over < 2; over++) {
		early_open(&c, &l, &h);
		push_text(h, DIR_TX, "\x81", 2);
		if (over)
			assert_int_equal(http1_push(h, DIR_TX, much, HTTP1_EARLY_BYTES, &at), 0);
		push_text(h, DIR_RX, "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n", 6);
		push_text(h, DIR_TX, "\nGET / HTTP/1.1\r\n\r\n", 7);
		assert_int_equal(http1_requests(h), 2);
		http1_free(h);
		assert_null(l.log.text);
	}
	free(much);
}

/* Behind a handshake that is refused comes another one, and its answer waits: granted while what was kept is read. */
static void test_upgrade_behind_another(void **state)
{
	struct contract c;
	struct raw_log l;
	struct http1 *h;

	(void)state;
	early_open(&c, &l, &h);
	push_text(h, DIR_TX, "\x81\n" ASK_UPGRADE "two", 2);
	push_text(h, DIR_RX, "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n" UPGRADE "answer", 6);
	assert_int_equal(http1_upgraded(h), HTTP1_NOT_UPGRADED);
	push_text(h, DIR_TX, "three", 7);
	assert_int_equal(http1_upgraded(h), HTTP1_WEBSOCKET);
	http1_free(h);
	assert_log(&l.log, "rx answer\ntx two\ntx three\n");
	tlog_free(&l.log);
}

/* It waits for its request, which is lost, and so do the messages behind it: what is missing of them is told. */
static void test_upgrade_waits(void **state)
{
	static const struct stamp late = {.ts_ns = MS(2), .entry_ns = MS(0), .tid = 1};
	struct contract c = {0};
	struct raw_log l = {0};
	struct http1 *h;

	(void)state;
	h = plain_new(&c, true);
	http1_set_raw(h, &l, raw_bytes, raw_gap);
	push_text(h, DIR_RX, UPGRADE "one", 1);
	gap_at(h, DIR_RX, 7, 2);
	push_text(h, DIR_RX, "two", 3);
	assert_null(l.log.text);
	http1_tick(h, MS(1) + HTTP1_PARK_NS);
	gap_at(h, DIR_RX, 8, 2000);
	http1_free(h);
	assert_log(&l.log, "rx one\nrx gap 7\nrx two\nrx gap 8\n");
	tlog_free(&l.log);
	/* it was read before its request was told, a write that returns late: nothing is missing */
	c = (struct contract){0};
	l = (struct raw_log){0};
	h = plain_new(&c, true);
	http1_set_raw(h, &l, raw_bytes, raw_gap);
	push_text(h, DIR_RX, UPGRADE "one", 1);
	assert_int_equal(http1_push(h, DIR_TX, (const uint8_t *)ASK_UPGRADE, sizeof(ASK_UPGRADE) - 1, &late), 0);
	push_text(h, DIR_TX, "two", 3);
	http1_free(h);
	assert_log(&l.log, "rx one\ntx two\n");
	tlog_free(&l.log);
}

#define HELLO "\x81\x85\1\1\1\1idmmn" /* a client's frame */

/* The answer to the handshake is lost. A client that speaks frames was granted what it asked for. */
static void test_upgrade_is_lost(void **state)
{
	static const char *const not [][2] = {
		{ASK_UPGRADE, "\x81\5hello"}, /* not masked: a server's */
		{ASK_UPGRADE, "\x81\x85\1\1"},
		{ASK_UPGRADE, "GET / HTTP/1.1\r\n\r\n"},
		{"GET /ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", HELLO},
		{"GET /ws HTTP/1.1\r\n\r\n", HELLO},
	};
	struct contract c;
	struct raw_log l;
	struct http1 *h;

	(void)state;
	early_open(&c, &l, &h);
	push_text(h, DIR_TX, HELLO, 2);
	assert_int_equal(http1_upgraded(h), HTTP1_NOT_UPGRADED);
	gap_at(h, DIR_RX, 77, 3);
	assert_int_equal(http1_upgraded(h), HTTP1_WEBSOCKET);
	assert_int_equal(c.aborts_by[HTTP_ABORT_UPGRADE], 1);
	push_text(h, DIR_RX, "frame", 4);
	push_text(h, DIR_TX, "more", 5);
	http1_free(h);
	assert_log(&l.log, "tx " HELLO "\nrx gap -1\nrx frame\ntx more\n");
	tlog_free(&l.log);
	/* the hole is known first, and the server speaks first */
	early_open(&c, &l, &h);
	gap_at(h, DIR_RX, 77, 2);
	push_text(h, DIR_RX, "frame", 3);
	push_text(h, DIR_TX, "\x81\x85\1\1", 4);
	push_text(h, DIR_TX, "\1\1id", 4);
	assert_int_equal(http1_upgraded(h), HTTP1_NOT_UPGRADED);
	push_text(h, DIR_TX, "mmn", 4);
	push_text(h, DIR_RX, "frame", 5);
	http1_free(h);
	assert_log(&l.log, "tx " HELLO "\nrx gap -1\nrx frame\n");
	tlog_free(&l.log);
	/* nothing tells so */
	for (size_t i = 0; i < ARRAY_SIZE(not ); i++) {
		c = (struct contract){0};
		h = plain_new(&c, true);
		push_text(h, DIR_TX, not [i][0], 1);
		gap_at(h, DIR_RX, 77, 2);
		push_text(h, DIR_TX, not [i][1], 3);
		assert_int_equal(http1_upgraded(h), HTTP1_NOT_UPGRADED);
		http1_free(h);
	}
}

/* --- what is left of a body -------------------------------------------------------------------------------------- */

static void feed_text(struct http1 *h, enum dir dir, const char *text)
{
	struct stamp at = {MS(10), MS(10), 1, 0};

	assert_int_equal(http1_push(h, dir, (const uint8_t *)text, strlen(text), &at), 0);
}

static void body_left(void **state)
{
	struct stamp at = {MS(10), MS(10), 1, 0};
	struct hlog log = {0};
	struct http_sink sink = hlog_sink(&log);
	struct http1 *h = http1_new(true, DIR_TX, &sink);

	(void)state;
	feed_text(h, DIR_TX, "POST /a HTTP/1.1\r\nContent-Length: 10\r\n");
	assert_int_equal(http1_body_left(h, DIR_TX), 0); /* not its head */
	feed_text(h, DIR_TX, "\r\n123");
	assert_int_equal(http1_body_left(h, DIR_TX), 7);
	assert_int_equal(http1_body_left(h, DIR_RX), 0);
	assert_int_equal(http1_gap(h, DIR_TX, 6, HTTP_GAP_CAPPED, &at), 0);
	assert_int_equal(http1_body_left(h, DIR_TX), 1);
	feed_text(h, DIR_TX, "0");
	assert_int_equal(http1_body_left(h, DIR_TX), 0);
	feed_text(h, DIR_RX, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\nab");
	assert_int_equal(http1_body_left(h, DIR_RX), 254); /* of the chunk */
	assert_int_equal(http1_gap(h, DIR_RX, 254, HTTP_GAP_CAPPED, &at), 0);
	feed_text(h, DIR_RX, "\r\n0\r\n\r\n");
	/* What waits for its request is not read yet, and where step was lost nothing is sure. */
	feed_text(h, DIR_RX, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1");
	assert_int_equal(http1_body_left(h, DIR_RX), 0);
	feed_text(h, DIR_TX, "GET /b HTTP/1.1\r\n\r\n");
	assert_int_equal(http1_gap(h, DIR_RX, UINT64_MAX, HTTP_GAP_LOST, &at), 0);
	assert_int_equal(http1_body_left(h, DIR_RX), 0);
	http1_finish(h, HTTP_ABORT_CLOSED, MS(20));
	assert_int_equal(http1_body_left(h, DIR_TX), 0);
	assert_non_null(strstr(log.log.text, "1 > end 50 "));
	assert_non_null(strstr(log.log.text, "1 < end 315 "));
	http1_free(h);
	hlog_free(&log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_and_bytewise),
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_every_near_cut),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_every_gap),
		cmocka_unit_test(test_many_headers),
		cmocka_unit_test(test_request_told_after_its_loss),
		cmocka_unit_test(test_hole_over_responses),
		cmocka_unit_test(test_in_step_again),
		cmocka_unit_test(test_head_too_long),
		cmocka_unit_test(test_long_and_no_head),
		cmocka_unit_test(test_too_many_outstanding),
		cmocka_unit_test(test_park_is_bounded),
		cmocka_unit_test(test_park_of_many_calls),
		cmocka_unit_test(test_chunk_sizes),
		cmocka_unit_test(test_search_is_linear),
		cmocka_unit_test(test_upgrade_hands_over),
		cmocka_unit_test(test_upgrade_comes_late),
		cmocka_unit_test(test_upgrade_behind_another),
		cmocka_unit_test(test_upgrade_waits),
		cmocka_unit_test(test_upgrade_is_lost),
		cmocka_unit_test(body_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
