/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http_run.h"

#include "flow/proto/proto.h"

#define POST	"POST /v1/messages HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"
#define OK	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define CALL	"1 POST /v1/messages host= n=1 @0/0\n1 > @0 ab\n1 > end 51 @0\n"
#define ANSWER	"1 < 200 n=1 @10\n1 < @10 ok\n1 < end 40 @10\n"

/* Frames: preface and SETTINGS; POST / of host h with a body, on streams 1 and 3; their responses. */
#define BYTES(dir, t, text)                                                                                            \
	{                                                                                                              \
		dir, (t), (t), (text), 0, HTTP_GAP_LOST, sizeof(text) - 1                                              \
	}
#define H2_OPEN	   PREFACE "\0\0\0\4\0\0\0\0\0"
#define H2_POST(n) "\0\0\6\1\4\0\0\0" n "\x83\x87\x84\x41\1h\0\0\2\0\1\0\0\0" n "ab"
#define H2_OK(n)   "\0\0\1\1\4\0\0\0" n "\x88\0\0\2\0\1\0\0\0" n "ok"
#define H2_CALL	   "1 POST / host=h n=0 @0/0\n1 > @0 ab\n1 > end 26 @0\n"
#define H2_ANSWER  "1 < 200 n=0 @10\n1 < @10 ok\n1 < end 21 @10\n"
#define H2C	   "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"

struct scenario {
	const char *name;
	bool middle;
	struct script_step steps[6];
	const char *golden;
	enum proto_kind kind;
	const char *kind_name;
	bool server;
	unsigned requests;
};

static const struct scenario scenarios[] = {
	{"client", false, {TX(0, POST), RX(10, OK)}, CALL ANSWER, PROTO_HTTP1, "http/1.1", false, 1},
	{"client, met while idle", true, {TX(0, POST), RX(10, OK)}, CALL ANSWER, PROTO_HTTP1, "http/1.1", false, 1},
	{"client, response first",
	 false,
	 {RX(10, OK), TX2(0, 20, POST)},
	 "1 POST /v1/messages host= n=1 @0/20\n1 < 200 n=1 @10\n1 < @10 ok\n1 > @20 ab\n1 > end 51 @20\n"
	 "1 < end 40 @10\n",
	 PROTO_HTTP1,
	 "http/1.1",
	 false,
	 1},
	{"server", false, {RX(0, POST), TX(10, OK)}, CALL ANSWER, PROTO_HTTP1, "http/1.1", true, 1},
	{"server, met in the middle of a request",
	 true,
	 {RX(0, "xx rest of something"), TX(5, OK), RX(6, POST), TX(10, OK)},
	 "1 POST /v1/messages host= n=1 @6/6\n2 unseen @5\n2 < 200 n=1 @5\n2 < @5 ok\n2 < end 40 @5\n1 > @6 ab\n"
	 "1 > end 51 @6\n1 < 200 n=1 @10\n1 < @10 ok\n1 < end 40 @10\n",
	 PROTO_HTTP1,
	 "http/1.1",
	 true,
	 2},
	{"method that is not known",
	 false,
	 {TX(0, "BREW /pot HTTP/1.1\r\n\r\n"), RX(1, "x")},
	 "",
	 PROTO_OTHER,
	 "unknown protocol",
	 false,
	 0},
	{"stream met in the middle",
	 true,
	 {RX(0, "x\n\n\r\n2\r\nhi\r\n0\r\n\r\n"), TX(5, POST), RX(10, OK)},
	 "1 unseen @0\n1 < gap -1\n1 < @0 hi\n1 < end 17 @0\n2 POST /v1/messages host= n=1 @5/5\n2 > @5 ab\n2 > end 51 "
	 "@5\n"
	 "2 < 200 n=1 @10\n2 < @10 ok\n2 < end 40 @10\n",
	 PROTO_HTTP1,
	 "http/1.1",
	 false,
	 2},
	{"http/2", false, {TX(0, PREFACE "\0\0\0\4"), RX(1, "x")}, "", PROTO_HTTP2, "http/2", false, 0},
	{"http/2, settings first", false, {RX(0, "\1\2\3\4"), TX(1, PREFACE)}, "", PROTO_HTTP2, "http/2", false, 0},
	{"http/2 server", false, {RX(0, PREFACE)}, "", PROTO_HTTP2, "http/2", true, 0},
	{"http/2 call",
	 false,
	 {BYTES(DIR_TX, 0, H2_OPEN H2_POST("\1")), BYTES(DIR_RX, 10, H2_OK("\1"))},
	 H2_CALL H2_ANSWER,
	 PROTO_HTTP2,
	 "http/2",
	 false,
	 1},
	{"http/2 server, settings first",
	 false,
	 {BYTES(DIR_TX, 0, "\0\0\0\4\0\0\0\0\0"), BYTES(DIR_RX, 0, H2_OPEN H2_POST("\1")),
	  BYTES(DIR_TX, 10, H2_OK("\1"))},
	 H2_CALL H2_ANSWER,
	 PROTO_HTTP2,
	 "http/2",
	 true,
	 1},
	{"http/2, met in the middle",
	 true,
	 {BYTES(DIR_TX, 0, H2_POST("\3")), BYTES(DIR_RX, 10, H2_OK("\3"))},
	 H2_CALL H2_ANSWER,
	 PROTO_HTTP2,
	 "http/2",
	 false,
	 1},
	/* The frames are there before the text in them could be HTTP/1, wherever they are cut. */
	{"http/2, met in the middle, with HTTP/1 in a body",
	 true,
	 {BYTES(DIR_TX, 0, "\0\0\6\1\4\0\0\0\3\x83\x87\x84\x41\1h\0\0\x33\0\1\0\0\0\3" POST),
	  BYTES(DIR_RX, 10, H2_OK("\3"))},
	 "1 POST / host=h n=0 @0/0\n"
	 "1 > @0 POST /v1/messages HTTP/1.1\\x0d\\x0aContent-Length: 2\\x0d\\x0a\\x0d\\x0aab\n1 > end 75 "
	 "@0\n" H2_ANSWER,
	 PROTO_HTTP2,
	 "http/2",
	 false,
	 1},
	{"http/2 server, met in the middle",
	 true,
	 {BYTES(DIR_RX, 0, H2_POST("\3")), BYTES(DIR_TX, 10, H2_OK("\3"))},
	 H2_CALL H2_ANSWER,
	 PROTO_HTTP2,
	 "http/2",
	 true,
	 1},
	{"http/2, its beginning lost",
	 false,
	 {GAP(DIR_TX, 0, 33), BYTES(DIR_RX, 0, "\0\0\0\4\0\0\0\0\0"), BYTES(DIR_TX, 0, H2_POST("\1")),
	  BYTES(DIR_RX, 10, H2_OK("\1"))},
	 H2_CALL H2_ANSWER,
	 PROTO_HTTP2,
	 "http/2",
	 false,
	 1},
	{"upgrade to h2c",
	 false,
	 {TX(0, "GET /up HTTP/1.1\r\n" H2C), BYTES(DIR_RX, 5, "HTTP/1.1 101 S\r\n" H2C "\0\0\0\4\0\0\0\0\0"),
	  BYTES(DIR_TX, 6, H2_OPEN), BYTES(DIR_RX, 10, H2_OK("\1")), BYTES(DIR_TX, 20, H2_POST("\3")),
	  BYTES(DIR_RX, 30, H2_OK("\3"))},
	 "1 GET /up host= n=2 @0/0\n1 > end 55 @0\n" H2_ANSWER
	 "2 POST / host=h n=0 @20/20\n2 > @20 ab\n2 > end 26 @20\n2 < 200 n=0 @30\n2 < @30 ok\n2 < end 21 @30\n",
	 PROTO_HTTP2,
	 "http/2",
	 false,
	 2},
	{"nearly http/2",
	 false,
	 {TX(0, "PRI * HTTP/3.0\r\n"), RX(1, "x")},
	 "",
	 PROTO_OTHER,
	 "unknown protocol",
	 false,
	 0},
	{"something else",
	 false,
	 {TX(0, "\x10\x01MQTT"), RX(1, "\x20\x02")},
	 "",
	 PROTO_OTHER,
	 "unknown protocol",
	 false,
	 0},
	{"something else, only one side yet",
	 false,
	 {TX(0, "\x10\x01MQTT")},
	 "",
	 PROTO_UNDECIDED,
	 "unknown protocol",
	 false,
	 0},
	{"something else, met in the middle",
	 true,
	 {TX(0, "\x10\x01MQTT"), RX(1, "\x20\x02")},
	 "",
	 PROTO_UNDECIDED,
	 "unknown protocol",
	 false,
	 0},
	{"nothing", false, {TICK(1)}, "", PROTO_UNDECIDED, "no data", false, 0},
	{"a few bytes", false, {TX(0, "PO")}, "", PROTO_UNDECIDED, "unknown protocol", false, 0},
	{"websocket",
	 false,
	 {TX(0, "GET /w HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
	  RX(10, "HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n\x81\1x")},
	 "1 GET /w host= n=1 @0/0\n1 > end 39 @0\n1 < 101 n=1 @10\n1 abort upgrade 38 @10\n",
	 PROTO_WEBSOCKET,
	 "websocket",
	 false,
	 1},
	{"the beginning is lost",
	 false,
	 {GAP(DIR_TX, 0, 10), TX(0, "...}" POST), RX(10, OK)},
	 CALL ANSWER,
	 PROTO_HTTP1,
	 "http/1.1",
	 false,
	 1},
	{"a loss in the first bytes",
	 false,
	 {TX(0, "PO"), GAP(DIR_TX, 0, UNKNOWN_BYTES), TX(0, POST), RX(10, OK)},
	 CALL ANSWER,
	 PROTO_HTTP1,
	 "http/1.1",
	 false,
	 1},
	{"a loss later",
	 false,
	 {TX(0, POST), GAP(DIR_RX, 5, 7), RX(10, OK)},
	 "1 POST /v1/messages host= n=1 @0/0\n1 > @0 ab\n"
	 "1 > end 51 @0\n1 < gap -1\n" ANSWER,
	 PROTO_HTTP1,
	 "http/1.1",
	 false,
	 1},
};

HTTP_PARSER_FUNCTIONS(proto)
static const struct http_parser proto_parser = HTTP_PARSER(proto);

static void *open_proto(struct http_run *r, const struct http_sink *sink)
{
	const struct scenario *s = r->scenario;

	return proto_new(!s->middle, sink);
}

static void check_proto(struct http_run *r, void *parser)
{
	const struct scenario *s = r->scenario;
	const struct proto *p = parser;

	assert_int_equal(proto_kind(p), s->kind);
	assert_string_equal(proto_name(p), s->kind_name);
	assert_int_equal(proto_is_server(p), s->server);
	/* What was met in the middle and shows nothing is not read, and yet may be one day. */
	if (s->kind == PROTO_HTTP1 || s->kind == PROTO_HTTP2)
		assert_int_equal(proto_is_hopeless(p), s->server);
	else
		assert_int_equal(proto_is_hopeless(p), s->kind == PROTO_OTHER && !s->middle);
	assert_int_equal(proto_requests(p), s->requests);
}

static void each_scenario(void (*fn)(struct http_run *r))
{
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		struct http_run r = {
			.parser = &proto_parser,
			.open = open_proto,
			.check = check_proto,
			.scenario = &scenarios[i],
			.name = scenarios[i].name,
			.golden = scenarios[i].golden,
			.steps = scenarios[i].steps,
			.count = ARRAY_SIZE(scenarios[i].steps),
			.full = 60,
			.why = HTTP_ABORT_CLOSED,
			.end_ms = 9000,
			.lacking = true,
		};

		fn(&r);
		http_run_release(&r);
	}
}

static void every_pair(struct http_run *r)
{
	http_run_pieces(r);
	http_run_cuts(r);
}

static void test_every_cut(void **state)
{
	(void)state;
	each_scenario(every_pair);
}

/* Whatever is missing, and whatever is then taken for what: the contract holds. */
static void every_range(struct http_run *r)
{
	const struct scenario *s = r->scenario;
	struct script_step steps[ARRAY_SIZE(s->steps) + 2];

	r->check = NULL;
	r->steps = steps;
	r->cut1 = r->cut2 = SIZE_MAX;
	for (size_t k = 0; k < ARRAY_SIZE(s->steps); k++)
		for (size_t from = 0; from < step_len(&s->steps[k]); from++)
			for (size_t to = from + 1; to <= step_len(&s->steps[k]); to += to - from < 24 ? 1 : 17)
				for (int known = 0; known < 2; known++) {
					r->count = script_with_gap(s->steps, ARRAY_SIZE(s->steps), k, from, to, known,
								   steps);
					http_run_once(r);
					assert_int_equal(r->err, 0);
					http_run_clear(r);
				}
}

static void test_every_gap(void **state)
{
	(void)state;
	each_scenario(every_range);
}

static void test_no_memory(void **state)
{
	(void)state;
	each_scenario(http_run_no_memory);
}

static void push_bytes(struct proto *p, enum dir dir, char c, size_t len, const struct stamp *at)
{
	static char block[1 << 17];

	memset(block, c, len);
	assert_int_equal(proto_push(p, dir, (uint8_t *)block, len, at), 0);
}

static void push_block(struct proto *p, enum dir dir, char c, size_t len)
{
	push_bytes(p, dir, c, len, &(struct stamp){1, 1, 1, 0});
}

static void push_text(struct proto *p, enum dir dir, const char *text)
{
	struct stamp at = {2, 2, 1, 0};

	assert_int_equal(proto_push(p, dir, (const uint8_t *)text, strlen(text), &at), 0);
}

/* One direction of something else: held for a while, in case the other one tells, then given up. */
static void test_hold_is_bounded(void **state)
{
	struct contract c = {0};
	struct http_sink sink = contract_sink(&c);

	(void)state;
	for (size_t piece = 1 << 10; piece <= 1 << 17; piece *= 2) {
		struct proto *p = proto_new(true, &sink);

		for (size_t n = 0; n < 1 << 17; n += piece)
			push_block(p, DIR_RX, '\1', piece);
		assert_int_equal(proto_kind(p), PROTO_OTHER);
		push_text(p, DIR_TX, POST);
		assert_int_equal(proto_requests(p), 0);
		proto_free(p);
	}
}

/* How much is held is counted in bytes and in calls of the program, however they are cut: when it is full, the first
 * byte of more that does not tell is the end, even if those right behind it would. */
static void test_hold_is_of_calls(void **state)
{
	static const struct {
		size_t calls, each;
		enum proto_kind kind;
	} held[] = {{1, 65536 - 24, PROTO_HTTP2},
		    {1, 65536 - 22, PROTO_OTHER},
		    {1023, 3, PROTO_HTTP2},
		    {1024, 3, PROTO_OTHER}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(held) * 2; i++) {
		size_t k = i / 2, len = held[k].each, piece = i % 2 ? 1 : len,
		       preface_piece = i % 2 ? 1 : strlen(PREFACE);
		struct contract c = {0};
		struct http_sink sink = contract_sink(&c);
		struct proto *p = proto_new(true, &sink);
		struct stamp at = {1, 1, 1, 0};

		for (; at.ts_ns <= held[k].calls; at.ts_ns++)
			for (size_t n = 0; n < len; n += piece)
				push_bytes(p, DIR_RX, '\1', piece, &at);
		for (size_t n = 0; n < strlen(PREFACE); n += preface_piece)
			proto_push(p, DIR_TX, (const uint8_t *)PREFACE + n, preface_piece, &at);
		assert_int_equal(proto_kind(p), held[k].kind);
		proto_free(p);
	}
}

static void test_many_small_calls(void **state)
{
	struct contract c = {0};
	struct http_sink sink = contract_sink(&c);
	struct proto *p = proto_new(true, &sink);

	(void)state;
	for (uint64_t i = 0; i < 100000; i++)
		push_bytes(p, DIR_RX, '\1', 1, &(struct stamp){i, i, 1, 0});
	assert_int_equal(proto_kind(p), PROTO_OTHER);
	proto_free(p);
}

/* The first piece is larger than what is held. */
static void test_large_first_piece(void **state)
{
	struct contract c = {0};
	struct http_sink sink = contract_sink(&c);
	struct proto *p = proto_new(true, &sink);
	size_t head = strlen("POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n");
	char *text = malloc(head + 200000);
	struct stamp at = {1, 1, 1, 0};

	(void)state;
	memset(text, 'x', head + 200000);
	memcpy(text, "POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n", head);
	assert_int_equal(proto_push(p, DIR_TX, (uint8_t *)text, head + 200000, &at), 0);
	assert_int_equal(c.body_bytes, 200000);
	assert_int_equal(proto_requests(p), 1);
	proto_finish(p, HTTP_ABORT_CLOSED, 2);
	proto_free(p);
	free(text);
}

/* Met in the middle of a long upload: named unknown meanwhile, but the call after it is found. */
static void test_middle_is_searched_on(void **state)
{
	struct contract c = {0};
	struct http_sink sink = contract_sink(&c);
	struct proto *p = proto_new(false, &sink);

	(void)state;
	push_block(p, DIR_TX, 'x', 1 << 17);
	assert_int_equal(proto_kind(p), PROTO_OTHER);
	push_text(p, DIR_TX, POST);
	push_text(p, DIR_RX, OK);
	assert_int_equal(proto_kind(p), PROTO_HTTP1);
	assert_int_equal(c.ends, 1);
	proto_free(p);
}

#define SETTINGS "\0\0\0\4\0\0\0\0\0"
#define PING                                                                                                           \
	"\0\0\x8\6\0\0\0\0\0"                                                                                          \
	"12345678"
#define CREDIT	      "\0\0\4\x8\0\0\0\0\0\0\1\0\0"
#define CREDIT_OF_ONE "\0\0\4\x8\0\0\0\0\1\0\1\0\0"
#define GOAWAY	      "\0\0\x8\7\0\0\0\0\0\0\0\0\0\0\0\0\0"
#define PRIORITY      "\0\0\5\2\0\0\0\0\3\0\0\0\0\1"
#define RESET	      "\0\0\4\3\0\0\0\0\1\0\0\0\x8"

struct idler {
	bool middle;
	struct script_step steps[5];
	bool idle;
};

static const struct idler idlers[] = {
	{false,
	 {BYTES(DIR_TX, 0, PREFACE SETTINGS CREDIT), BYTES(DIR_RX, 1, SETTINGS PING), BYTES(DIR_TX, 2, PING)},
	 true},
	{false, {BYTES(DIR_TX, 0, PREFACE SETTINGS PRIORITY), BYTES(DIR_RX, 1, SETTINGS GOAWAY)}, true},
	{false, {BYTES(DIR_TX, 0, PREFACE)}, true},
	{true, {BYTES(DIR_TX, 0, PING), BYTES(DIR_RX, 1, PING)}, true},
	/* It was used. */
	{true, {BYTES(DIR_TX, 0, CREDIT PING CREDIT_OF_ONE), BYTES(DIR_RX, 1, PING)}, false},
	{false, {BYTES(DIR_TX, 0, PREFACE SETTINGS H2_POST("\1")), BYTES(DIR_RX, 1, SETTINGS)}, false},
	{false, {BYTES(DIR_TX, 0, PREFACE SETTINGS RESET), BYTES(DIR_RX, 1, SETTINGS)}, false},
	{false, {TX(0, "GET /up HTTP/1.1\r\n" H2C), TX(1, "GET")}, false},
	{true, {BYTES(DIR_TX, 0, H2_POST("\3")), BYTES(DIR_RX, 1, SETTINGS)}, false},
	/* It may have been. */
	{false, {BYTES(DIR_TX, 0, PREFACE SETTINGS), GAP(DIR_TX, 1, 40), BYTES(DIR_TX, 2, PING)}, false},
	{false, {BYTES(DIR_TX, 0, PREFACE SETTINGS), BYTES(DIR_RX, 1, "\0\0\0\4\0")}, false},
	{false,
	 {BYTES(DIR_TX, 0, PREFACE SETTINGS), BYTES(DIR_RX, 1,
						    "\0\0\7\6\0\0\0\0\0"
						    "1234567")},
	 false},
	{true, {BYTES(DIR_RX, 0, "..."), BYTES(DIR_RX, 1, PING), BYTES(DIR_TX, 2, PING)}, false},
	/* Nothing says what it is. */
	{false, {TICK(0)}, false},
	{false, {BYTES(DIR_TX, 0, "\1\2"), BYTES(DIR_RX, 1, "\1\2")}, false},
};

static void *open_idler(struct http_run *r, const struct http_sink *sink)
{
	return proto_new(!((const struct idler *)r->scenario)->middle, sink);
}

static void check_idler(struct http_run *r, void *parser)
{
	const struct idler *s = r->scenario;

	if (proto_is_idle(parser) != s->idle)
		fail_msg("idler %zu, pieces of %zu", (size_t)(s - idlers), r->piece);
}

static void test_idle(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(idlers); i++) {
		struct http_run r = {
			.parser = &proto_parser,
			.open = open_idler,
			.check = check_idler,
			.scenario = &idlers[i],
			.steps = idlers[i].steps,
			.count = ARRAY_SIZE(idlers[i].steps),
			.cut1 = SIZE_MAX,
			.cut2 = SIZE_MAX,
			.end_ms = 9000,
			.lacking = true,
		};

		for (; r.piece < 40; r.piece++) {
			http_run_once(&r);
			http_run_clear(&r);
		}
		http_run_release(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_every_gap),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_hold_is_bounded),
		cmocka_unit_test(test_hold_is_of_calls),
		cmocka_unit_test(test_many_small_calls),
		cmocka_unit_test(test_large_first_piece),
		cmocka_unit_test(test_middle_is_searched_on),
		cmocka_unit_test(test_idle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
