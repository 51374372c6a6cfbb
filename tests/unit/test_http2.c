/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http2_scenarios.h"

#define END_MS 5000

HTTP_PARSER_FUNCTIONS(http2)
static const struct http_parser http2_parser = HTTP_PARSER(http2);

/* The body of an upgraded stream is logged like another. */
static void raw_bytes(void *ctx, uint64_t xid, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	hlog_body(ctx, 1000 + xid, dir == DIR_TX ? HTTP_REQUEST : HTTP_RESPONSE, ptr, len, at);
}

static void raw_gap(void *ctx, uint64_t xid, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)
{
	hlog_gap(ctx, 1000 + xid, dir == DIR_TX ? HTTP_REQUEST : HTTP_RESPONSE, len, why, at);
}

static void raw_end(void *ctx, uint64_t xid, enum http_abort why, uint64_t ts_ns)
{
	hlog_aborted(ctx, 1000 + xid, why, 0, ts_ns);
}

static void *open_http2(struct http_run *r, const struct http_sink *sink)
{
	const struct scenario *s = r->scenario;
	struct http2 *h = http2_new(!s->middle, s->client, sink);

	if (h)
		http2_set_raw(h, &(struct http2_raw){&r->log, raw_bytes, raw_gap, raw_end});
	return h;
}

static struct http_run run_of(const struct scenario *s, const struct wire *w)
{
	return (struct http_run){
		.parser = &http2_parser,
		.open = open_http2,
		.scenario = s,
		.name = s->name,
		.golden = s->golden,
		.want_errors = s->errors,
		.steps = w->steps,
		.count = w->count,
		.why = HTTP_ABORT_CLOSED,
		.end_ms = END_MS,
		.lacking = true,
		.full = 40,
		.near = 12,
		.cut1 = SIZE_MAX,
		.cut2 = SIZE_MAX,
	};
}

/* --- every scenario ---------------------------------------------------------------------------------------------- */

static void each_scenario(void (*fn)(struct http_run *r))
{
	for (size_t i = 0; i < scenario_count; i++) {
		struct wire *w = wire_new();
		struct http_run r;

		scenarios[i].build(w);
		r = run_of(&scenarios[i], w);
		fn(&r);
		http_run_release(&r);
		wire_free(w);
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

#define FINAL_MS 100000

/* One more call at the end of a script. */
static void add_final(struct wire *w, enum dir client)
{
	wire_at(w, client, FINAL_MS);
	wire_headers(w, 0, 101, WIRE_POST("/final"));
	wire_data(w, F_END, 101, "ask");
	wire_at(w, !client, FINAL_MS + 1);
	wire_headers(w, 0, 101, WIRE_OK);
	wire_data(w, F_END, 101, "answer");
}

/* The final call is whole; of its head the host may be unknown. */
static bool final_is_exact(const char *log)
{
	const char *line = strstr(log, " POST /final host="), *begin = line;
	char golden[200];
	int xid;

	if (!line)
		return false;
	while (begin > log && begin[-1] != '\n')
		begin--;
	xid = atoi(begin);
	snprintf(golden, sizeof(golden), "\n%d > @%d ask\n%d > end ", xid, FINAL_MS, xid);
	line = strstr(line, golden);
	snprintf(golden, sizeof(golden), "\n%d < 200 ", xid);
	line = line ? strstr(line, golden) : NULL;
	snprintf(golden, sizeof(golden), "\n%d < @%d answer\n%d < end ", xid, FINAL_MS + 1, xid);
	return line && strstr(line, golden);
}

/* [from, to) of one step is missing. */
static void run_with_gap(struct http_run *r, const struct wire *w, size_t victim, size_t from, size_t to, bool known)
{
	static struct script_step steps[64];

	r->steps = steps;
	r->count = script_with_gap(w->steps, w->count, victim, from, to, known, steps);
	http_run_once(r);
	if (!final_is_exact(r->log.log.text)) {
		print_error("%s: step %zu without [%zu, %zu), %s:\n%s--- the last call is not exact\n", r->name, victim,
			    from, to, known ? "known" : "unknown", r->log.log.text);
		fail();
	}
	http_run_clear(r);
}

/* Whatever is missing: nothing breaks, and the next call of the connection is exact. */
static void test_every_gap(void **state)
{
	(void)state;
	for (size_t i = 0; i < scenario_count; i++) {
		const struct scenario *s = &scenarios[i];
		struct wire *w = wire_new();
		struct http_run r;

		s->build(w);
		add_final(w, strstr(s->name, "server") ? DIR_RX : DIR_TX);
		r = run_of(s, w);
		for (size_t k = 0; k + 2 < w->count; k++) {
			size_t len = w->steps[k].text ? w->steps[k].len : 0;

			for (size_t from = 0; from < len; from++)
				for (size_t to = from + 1; to <= len; to += to - from < 20 ? 1 : 13) {
					run_with_gap(&r, w, k, from, to, true);
					run_with_gap(&r, w, k, from, to, false);
				}
		}
		http_run_release(&r);
		wire_free(w);
	}
}

/* --- met in the middle of fifty streams -------------------------------------------------------------------------- */

#define TALK_STREAMS 50
#define TALK_WAVE    5

/* Where streams begin, as steps. */
struct talk {
	struct wire *w;
	size_t begins[TALK_STREAMS];
};

static void talk_fields(char *out, size_t size, unsigned n, bool request)
{
	int len = request ? snprintf(out, size, "%s", ":method: POST\n:scheme: https\n:authority: api.test\n")
			  : snprintf(out, size, ":status: %d\n", n % 7 == 6 ? 429 : 200);

	if (request)
		len += snprintf(out + len, size - (size_t)len, ":path: /v1/messages?%u\n", n);
	len += snprintf(out + len, size - (size_t)len, "x-number: %u\nx-same: always the same\nx-wave: w%u\n", n,
			n / TALK_WAVE);
	if (n % 3 == 0)
		snprintf(out + len, size - (size_t)len, "x-third: %s\nx-number-again: %u\n", n % 2 ? "odd" : "even", n);
}

static void talk_build(struct talk *t)
{
	struct wire *w = t->w;
	char text[400];

	wire_open(w, DIR_TX, 0);
	for (unsigned wave = 0; wave < TALK_STREAMS / TALK_WAVE; wave++) {
		for (unsigned k = 0; k < TALK_WAVE; k++) {
			unsigned n = wave * TALK_WAVE + k;

			if (k % 2 == 0)
				wire_at(w, DIR_TX, 10 + n * 10);
			t->begins[n] = w->count - 1;
			talk_fields(text, sizeof(text), n, true);
			if (n % 4 == 1)
				wire_headers_cut(w, n & 2 ? F_PADDED : F_PRIORITY, 1 + 2 * n, text, 20);
			else
				wire_headers(w, 0, 1 + 2 * n, text);
			snprintf(text, sizeof(text), "ask %u", n);
			wire_data(w, F_END, 1 + 2 * n, text);
		}
		for (unsigned k = 0; k < TALK_WAVE * 2; k++) {
			unsigned n = wave * TALK_WAVE + k % TALK_WAVE;

			if (k % 3 == 0)
				wire_at(w, DIR_RX, 10 + (wave + 1) * TALK_WAVE * 10 - 9 + k / 3);
			talk_fields(text, sizeof(text), n, false);
			if (k < TALK_WAVE)
				wire_headers(w, 0, 1 + 2 * n, text);
			snprintf(text, sizeof(text), "answer %u;", n);
			wire_data(w, k < TALK_WAVE ? 0 : F_END, 1 + 2 * n, text);
		}
	}
}

/* What is told of one exchange, checked against itself: all that names a number names the same one. */
struct told {
	int number; /* -1: not known yet */
	bool head, asked, answered, done;
	char ask[32], answer[64];
	int status;
};

struct witness {
	struct told told[TALK_STREAMS * 2 + 2]; /* by xid */
	bool whole[TALK_STREAMS];		/* seen from its request to its end */
};

static void same_number(struct told *x, int n)
{
	assert_in_range(n, 0, TALK_STREAMS - 1);
	if (x->number >= 0)
		assert_int_equal(x->number, n);
	x->number = n;
}

static int number_of(struct sv s)
{
	char text[32];

	snprintf(text, sizeof(text), "%.*s", (int)s.len, s.ptr);
	return atoi(text);
}

static void witness_head(struct told *x, const struct http_head *h, bool request)
{
	char fields[400], line[200];
	struct sv n = http_header_get(h, "x-number");

	if (n.ptr)
		same_number(x, number_of(n));
	if (x->number < 0) /* all that could tell is unknown: so is all that depends on it */
		return;
	talk_fields(fields, sizeof(fields), (unsigned)x->number, request);
	for (size_t i = 0; i < h->header_count; i++) {
		snprintf(line, sizeof(line), "%.*s: %.*s\n", (int)h->headers[i].name.len, h->headers[i].name.ptr,
			 (int)h->headers[i].value.len, h->headers[i].value.ptr);
		assert_non_null(strstr(fields, line));
	}
}

static void witness_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct witness *t = ctx;
	struct told *x = &t->told[xid];

	(void)first;
	*x = (struct told){.number = -1};
	if (!h)
		return;
	assert_true(sv_eq(h->method, SV("POST")));
	assert_true(sv_starts(h->target, SV("/v1/messages?")));
	assert_true(!h->host.ptr || sv_eq(h->host, SV("api.test")));
	x->head = true;
	same_number(x, number_of((struct sv){h->target.ptr + 13, h->target.len - 13}));
	witness_head(x, h, true);
}

static void witness_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct witness *t = ctx;
	struct told *x = &t->told[xid];

	(void)first;
	witness_head(x, h, false);
	x->status = h->status;
	if (x->number >= 0 && h->status)
		assert_int_equal(h->status, x->number % 7 == 6 ? 429 : 200);
}

static void witness_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
			 const struct stamp *at)
{
	struct witness *t = ctx;
	struct told *x = &t->told[xid];
	char *text = side == HTTP_REQUEST ? x->ask : x->answer;

	(void)at;
	strncat(text, (const char *)ptr, len);
}

static void witness_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
			const struct stamp *at)
{
	struct witness *t = ctx;

	(void)side;
	(void)len;
	(void)why;
	(void)at;
	t->told[xid].head = false; /* not from its beginning */
}

static void witness_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct witness *t = ctx;

	(void)carried;
	(void)at;
	t->told[xid].asked = true;
}

static void witness_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct witness *t = ctx;
	struct told *x = &t->told[xid];
	char golden[64];

	(void)carried;
	(void)at;
	if (x->answer[0])
		same_number(x, atoi(strchr(x->answer, ' ') + 1));
	if (!x->head || !x->asked)
		return;
	snprintf(golden, sizeof(golden), "ask %d", x->number);
	assert_string_equal(x->ask, golden);
	snprintf(golden, sizeof(golden), "answer %d;answer %d;", x->number, x->number);
	assert_string_equal(x->answer, golden);
	if (x->number % 7 != 6)
		assert_int_equal(x->status, 200);
	t->whole[x->number] = true;
}

static void witness_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	(void)ctx;
	(void)xid;
	(void)why;
	(void)carried;
	(void)ts_ns;
}

/* All from byte `cut` of step `from` on, in pieces. True: those are whole that begin in a later step. */
static void talk_from(const struct talk *t, size_t from, size_t cut, enum http2_client client, size_t piece)
{
	static struct contract c;
	static struct witness seen;
	struct http_sink sink;
	struct http2 *h;

	seen = (struct witness){.told[0].number = -1};
	c = (struct contract){.lacking = true,
			      .next = {&seen, witness_request, witness_body, witness_gap, witness_request_end,
				       witness_response, witness_response_end, witness_abort}};
	sink = contract_sink(&c);
	h = http2_new(from == 0 && cut == 0, client, &sink);
	for (size_t i = from; i < t->w->count; i++) {
		const struct script_step *s = &t->w->steps[i];
		struct stamp at = step_stamp(s);

		for (size_t done = i == from ? cut : 0; done < s->len; done += piece) {
			size_t n = piece < s->len - done ? piece : s->len - done;

			assert_int_equal(http2_push(h, s->dir, (const uint8_t *)s->text + done, n, &at), 0);
		}
	}
	http2_finish(h, HTTP_ABORT_CLOSED, MS(END_MS));
	assert_int_equal(http2_errors(h), 0);
	http2_free(h);
	assert_int_equal(c.open_count, 0);
	for (unsigned n = 0; n < TALK_STREAMS; n++)
		if (t->begins[n] > from)
			assert_true(seen.whole[n]);
}

static void test_every_attach(void **state)
{
	struct talk t = {.w = wire_new()};

	(void)state;
	talk_build(&t);
	for (size_t from = 0; from < t.w->count; from++)
		for (size_t cut = 0; cut < t.w->steps[from].len; cut++) {
			talk_from(&t, from, cut, cut & 1 ? HTTP2_CLIENT_UNKNOWN : HTTP2_CLIENT_TX, 4096);
			if (cut % 16 == 0)
				talk_from(&t, from, cut, HTTP2_CLIENT_UNKNOWN, 1);
		}
	wire_free(t.w);
}

/* Lost records, any two of them: never a wrong value. */
static void test_lost_records(void **state)
{
	struct talk t = {.w = wire_new()};

	(void)state;
	talk_build(&t);
	for (size_t a = 0; a < t.w->count; a++)
		for (size_t b = a + 1; b < t.w->count; b += 3) {
			static struct contract c;
			static struct witness seen;
			struct http_sink sink;
			struct http2 *h;

			seen = (struct witness){.told[0].number = -1};
			c = (struct contract){.lacking = true,
					      .next = {&seen, witness_request, witness_body, witness_gap,
						       witness_request_end, witness_response, witness_response_end,
						       witness_abort}};
			sink = contract_sink(&c);
			h = http2_new(true, HTTP2_CLIENT_TX, &sink);
			for (size_t i = 0; i < t.w->count; i++) {
				const struct script_step *s = &t.w->steps[i];
				struct stamp at = step_stamp(s);

				if (i == a || i == b)
					http2_gap(h, s->dir, i & 1 ? s->len : UINT64_MAX, HTTP_GAP_LOST, &at);
				else
					http2_push(h, s->dir, (const uint8_t *)s->text, s->len, &at);
			}
			http2_finish(h, HTTP_ABORT_CLOSED, MS(END_MS));
			assert_int_equal(http2_errors(h), 0);
			http2_free(h);
			assert_int_equal(c.open_count, 0);
			for (unsigned n = 0; n < TALK_STREAMS; n++)
				if (t.begins[n] > b + 1)
					assert_true(seen.whole[n]);
		}
	wire_free(t.w);
}

/* --- limits and cost --------------------------------------------------------------------------------------------- */

static struct http2 *plain_new(struct contract *c, bool fresh)
{
	struct http_sink sink;
	struct http2 *h;

	c->lacking = true;
	sink = contract_sink(c);
	h = http2_new(fresh, HTTP2_CLIENT_TX, &sink);
	assert_non_null(h);
	return h;
}

static void push_wire(struct http2 *h, const struct wire *w)
{
	for (size_t i = 0; i < w->count; i++) {
		struct stamp at = step_stamp(&w->steps[i]);

		assert_int_equal(
			http2_push(h, w->steps[i].dir, (const uint8_t *)w->steps[i].text, w->steps[i].len, &at), 0);
	}
}

/* What was written so far goes on its way. */
static void flush(struct http2 *h, struct wire *w)
{
	push_wire(h, w);
	w->count = 0;
	w->len = 0;
}

static void test_many_streams(void **state)
{
	struct wire *w = wire_new();
	struct contract c = {0};
	struct http2 *h = plain_new(&c, true);

	(void)state;
	wire_open(w, DIR_TX, 0);
	for (uint32_t i = 0; i < 10000; i++) {
		wire_at(w, DIR_TX, 10 + i);
		wire_headers(w, F_END, 1 + 2 * i, WIRE_POST("/v1/messages"));
		if (i >= 50) { /* always fifty open */
			wire_at(w, DIR_RX, 10 + i);
			wire_headers(w, 0, 1 + 2 * (i - 50), WIRE_OK);
			wire_data(w, F_END, 1 + 2 * (i - 50), "x");
		}
		flush(h, w);
	}
	assert_int_equal(c.requests, 10000);
	assert_int_equal(c.ends, 9950);
	assert_int_equal(c.open_count, 50);
	assert_int_equal(http2_errors(h), 0);
	http2_finish(h, HTTP_ABORT_EXIT, MS(20000));
	assert_int_equal(c.aborts_by[HTTP_ABORT_EXIT], 50);
	http2_free(h);
	wire_free(w);
}

struct count {
	unsigned requests, ends, aborts, gaps;
	int status; /* of the last head */
};

static void count_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	(void)xid, (void)first;
	((struct count *)ctx)->requests++;
	((struct count *)ctx)->status = h ? h->status : -1;
}
static void count_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
		       const struct stamp *at)
{
	(void)ctx, (void)xid, (void)side, (void)ptr, (void)len, (void)at;
}
static void count_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
		      const struct stamp *at)
{
	(void)xid, (void)side, (void)len, (void)why, (void)at;
	((struct count *)ctx)->gaps++;
}
static void count_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	(void)ctx, (void)xid, (void)carried, (void)at;
}
static void count_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	(void)xid, (void)carried, (void)at;
	((struct count *)ctx)->ends++;
}
static void count_abort(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	(void)xid, (void)why, (void)carried, (void)ts_ns;
	((struct count *)ctx)->aborts++;
}

static struct http2 *counted_new(struct count *c)
{
	struct http_sink sink = {c,	    count_request, count_body, count_gap, count_request_end, count_request,
				 count_end, count_abort};

	return http2_new(true, HTTP2_CLIENT_TX, &sink);
}

/* More streams open than are kept: the next ones are not told, and counted; step is kept. */
static void test_too_many_open(void **state)
{
	struct wire *w = wire_new();
	struct count c = {0};
	struct http2 *h = counted_new(&c);
	unsigned before;

	(void)state;
	wire_open(w, DIR_TX, 0);
	for (uint32_t i = 0; i < HTTP2_STREAMS_MAX + 100; i++) {
		wire_at(w, DIR_TX, 10);
		wire_headers(w, F_END, 1 + 2 * i, WIRE_POST("/"));
		flush(h, w);
	}
	assert_int_equal(c.requests, HTTP2_STREAMS_MAX);
	assert_int_equal(http2_errors(h), 100);
	before = c.requests;
	for (uint32_t i = 0; i < HTTP2_STREAMS_MAX + 100; i++) {
		wire_at(w, DIR_RX, 20);
		wire_headers(w, F_END, 1 + 2 * i, WIRE_OK);
		flush(h, w);
	}
	assert_int_equal(c.ends, HTTP2_STREAMS_MAX);
	assert_int_equal(c.requests, before + HTTP2_STREAMS_MAX); /* and as many responses */
	http2_finish(h, HTTP_ABORT_CLOSED, MS(30));
	assert_int_equal(c.aborts, 0);
	http2_free(h);
	wire_free(w);
}

/* Head and data are lost, the trailers come: an answer of which nothing is known, and not an empty one. */
static void test_trailers_after_loss(void **state)
{
	struct wire *w = wire_new();
	struct count c = {0};
	struct http2 *h = counted_new(&c);
	struct stamp at = {MS(15), MS(15), 7, 0};

	(void)state;
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_TX, 10);
	wire_headers(w, F_END, 1, WIRE_POST("/"));
	flush(h, w);
	http2_gap(h, DIR_RX, UINT64_MAX, HTTP_GAP_LOST, &at);
	wire_at(w, DIR_RX, 20);
	wire_headers(w, F_END, 1, "grpc-status: 0\n");
	wire_frame(w, W_PING, 0, 0, "12345678", 8);
	flush(h, w);
	http2_finish(h, HTTP_ABORT_CLOSED, MS(30));
	assert_int_equal(c.ends, 1);
	assert_int_equal(c.gaps, 1);
	assert_int_equal(c.status, 0);
	assert_int_equal(c.aborts, 0);
	http2_free(h);
	wire_free(w);
}

/* At the cap, streams whose end may have been lost make room. */
static void test_lossy_ones_make_room(void **state)
{
	struct wire *w = wire_new();
	struct count c = {0};
	struct http2 *h = counted_new(&c);
	struct stamp at = {MS(15), MS(15), 7, 0};

	(void)state;
	wire_open(w, DIR_TX, 0);
	for (uint32_t i = 0; i < HTTP2_STREAMS_MAX; i++) {
		wire_at(w, DIR_TX, 10);
		wire_headers(w, F_END, 1 + 2 * i, WIRE_POST("/"));
		flush(h, w);
	}
	http2_gap(h, DIR_RX, UINT64_MAX, HTTP_GAP_LOST, &at);
	for (uint32_t i = 0; i < 100; i++) {
		wire_at(w, DIR_TX, 20);
		wire_headers(w, F_END, 10001 + 2 * i, WIRE_POST("/"));
		flush(h, w);
	}
	assert_int_equal(c.requests, HTTP2_STREAMS_MAX + 100);
	assert_int_equal(c.aborts, 100);
	http2_free(h);
	wire_free(w);
}

/* A call that is exact, behind what was given up before it. */
static void assert_next_is_exact(struct http2 *h, struct wire *w, struct contract *c)
{
	unsigned ends = c->ends;

	wire_at(w, DIR_TX, 1000);
	wire_headers(w, F_END, 99, WIRE_POST("/next"));
	wire_at(w, DIR_RX, 1001);
	wire_headers(w, F_END, 99, WIRE_OK);
	flush(h, w);
	assert_int_equal(c->ends, ends + 1);
}

static void test_continuation_flood(void **state)
{
	static const uint8_t zeros[16384];

	(void)state;
	for (size_t size = 0; size <= sizeof(zeros); size += sizeof(zeros)) {
		struct wire *w = wire_new();
		struct contract c = {0};
		struct http2 *h = plain_new(&c, true);

		wire_open(w, DIR_TX, 0);
		wire_at(w, DIR_TX, 10);
		wire_frame(w, W_HEADERS, 0, 1, "\x82\x84\x87", 3);
		flush(h, w);
		for (int i = 0; i < 20000; i++) {
			wire_at(w, DIR_TX, 11);
			wire_frame(w, W_CONT, 0, 1, zeros, size);
			flush(h, w);
		}
		wire_at(w, DIR_TX, 12);
		wire_frame(w, W_CONT, F_END_HEADERS, 1, NULL, 0);
		flush(h, w);
		assert_int_equal(c.requests, 0);
		assert_int_equal(http2_errors(h), 1);
		assert_next_is_exact(h, w, &c);
		http2_free(h);
		wire_free(w);
	}
}

/* One that decodes to more than a head may be gives up its stream only. */
static void test_head_too_long(void **state)
{
	struct wire *w = wire_new();
	struct contract c = {0};
	struct http2 *h = plain_new(&c, true);
	uint8_t block[16000];

	(void)state;
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_TX, 10);
	wire_headers(w, F_END, 1, WIRE_POST("/one"));
	wire_headers(w, F_END, 3, WIRE_POST("/two"));
	memset(block, 0xc0, sizeof(block)); /* an entry that there is, thousands of times */
	wire_at(w, DIR_RX, 20);
	wire_headers(w, F_END, 1, WIRE_OK "a: first entry, quite long\nb: 2\nc: 3\n");
	wire_frame(w, W_HEADERS, F_END | F_END_HEADERS, 3, block, sizeof(block));
	flush(h, w);
	assert_int_equal(c.ends, 1);
	assert_int_equal(c.aborts_by[HTTP_ABORT_PARSE], 1);
	assert_int_equal(http2_errors(h), 1);
	assert_next_is_exact(h, w, &c);
	http2_free(h);
	wire_free(w);
}

/* What cannot be is an error, and found again behind it. */
static void test_bad_frames(void **state)
{
	static const struct {
		unsigned type, flags;
		uint32_t stream;
		size_t len;
	} bad[] = {
		{W_DATA, 0, 0, 5},
		{W_DATA, F_PADDED, 1, 0},
		{W_HEADERS, F_PRIORITY, 1, 4},
		{W_RST, 0, 1, 5},
		{W_SETTINGS, 0, 1, 6},
		{W_SETTINGS, 0, 0, 7},
		{W_SETTINGS, F_ACK, 0, 6},
		{W_PING, 0, 0, 7},
		{W_PING, 0, 1, 8},
		{W_GOAWAY, 0, 0, 7},
		{W_WINDOW, 0, 0, 5},
		{W_CONT, F_END_HEADERS, 1, 5},
		{W_PRIORITY, 0, 0, 5},
		{W_RST, 0, 0, 4},
		{W_HEADERS, F_PADDED, 1, 3},
		{W_PUSH, F_END_HEADERS, 1, 2},
	};
	static const uint8_t bytes[16] = {0xff, 0xff, 0xff};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wire *w = wire_new();
		struct contract c = {0};
		struct http2 *h = plain_new(&c, true);

		wire_open(w, DIR_TX, 0);
		wire_at(w, DIR_TX, 10);
		wire_frame(w, bad[i].type, bad[i].flags, bad[i].stream, bytes, bad[i].len);
		flush(h, w);
		assert_int_equal(http2_errors(h), 1);
		assert_next_is_exact(h, w, &c);
		http2_free(h);
		wire_free(w);
	}
}

static void test_adopted_stream(void **state)
{
	struct wire *w = wire_new();
	struct hlog l = {0};
	struct http_sink sink = hlog_sink(&l);
	struct http2 *h = http2_new(true, HTTP2_CLIENT_TX, &sink);

	(void)state;
	assert_int_equal(http2_adopt(h, 7), 0);
	wire_open(w, DIR_TX, 0);
	wire_at(w, DIR_RX, 10);
	wire_headers(w, 0, 1, WIRE_OK);
	wire_data(w, F_END, 1, "x");
	wire_at(w, DIR_TX, 20);
	wire_headers(w, F_END, 3, WIRE_POST("/second"));
	flush(h, w);
	http2_finish(h, HTTP_ABORT_CLOSED, MS(30));
	hlog_flush(&l);
	assert_log(&l.log, "7 < 200 n=1 @10\n7 < @10 x\n7 < end 34 @10\n8 POST /second host=api.test n=1 @20/20\n"
			   "8 > end 39 @20\n8 abort closed 0 @30\n");
	http2_free(h);
	hlog_free(&l);
	wire_free(w);
}

/* More than may wait, before any request: told as exchanges whose requests were not seen, none lost. */
static void test_wait_is_bounded(void **state)
{
	struct wire *w = wire_new();
	struct contract c = {0};
	struct http2 *h = plain_new(&c, true);
	char body[1001];

	(void)state;
	memset(body, 'x', 1000);
	body[1000] = '\0';
	wire_open(w, DIR_TX, 0);
	for (uint32_t i = 0; i < 200; i++) {
		wire_at(w, DIR_RX, 5);
		wire_headers(w, 0, 1 + 2 * i, WIRE_OK);
		wire_data(w, F_END, 1 + 2 * i, body);
	}
	flush(h, w);
	assert_in_range(c.ends, 1, 199);
	http2_tick(h, MS(1004));
	assert_in_range(c.ends, 1, 199);
	http2_tick(h, MS(1005));
	assert_int_equal(c.ends, 200);
	assert_int_equal(c.body_bytes, 200000);
	http2_free(h);
	wire_free(w);
}

/* What waits is counted in calls, however each is cut: with the first byte of one too many the wait is over. */
static void test_wait_of_many_calls(void **state)
{
	static const uint8_t head[] = {0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88, 0, 16, 0, 0, 0, 0, 0, 0, 1};

	(void)state;
	for (size_t piece = 1; piece <= sizeof(head); piece += sizeof(head) - 1) {
		struct contract c = {0};
		struct http2 *h = plain_new(&c, true);

		for (uint64_t i = 0; i <= HTTP2_QUEUE_RUNS; i++) {
			struct stamp at = {i, i, 7, 0};

			assert_int_equal(c.requests, 0);
			for (size_t n = 0; n < sizeof(head); n += piece)
				assert_int_equal(http2_push(h, DIR_RX, head + n, piece, &at), 0);
		}
		assert_int_equal(c.requests, 1);
		http2_free(h);
	}
}

/* Silence ends the search where what there is suffices. */
static void test_tick_settles(void **state)
{
	struct wire *w = wire_new();
	struct contract c = {0};
	struct http2 *h = plain_new(&c, false);

	(void)state;
	wire_at(w, DIR_TX, 10);
	wire_headers(w, F_END, 9, WIRE_POST("/alone"));
	flush(h, w);
	http2_tick(h, MS(20));
	assert_int_equal(c.requests, 0);
	assert_false(http2_found(h));
	http2_tick(h, MS(70));
	assert_int_equal(c.requests, 1);
	assert_true(http2_found(h));
	http2_free(h);
	wire_free(w);
}

/* Megabytes that nearly are frames, byte by byte and at once: linear, so this ends. */
static void test_search_is_linear(void **state)
{
	static const char *const bait[] = {"\0\0\0\1\4\0\0\0\1", "\0\x40\0\0\0\0\0\0\1", "\0\0\0\0\0\0\0\0\0",
					   "\0\0\4\3\0\0\0\0\1", "\0\0\0\0\1\0\0\0\1",	 "\0\0\0\4\1\0\0\0\0",
					   "text text",		 "\0\0\5\x09\4\0\0\0\1"};
	static uint8_t all[9 << 16];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bait) * 3; i++) {
		struct contract c = {0};
		struct http2 *h = plain_new(&c, i % 3 == 0);

		for (size_t k = 0; k < sizeof(all); k++)
			all[k] = (uint8_t)bait[i / 3][k % 9];
		for (size_t k = 0; k < sizeof(all); k += i % 3 == 2 ? sizeof(all) : 1) {
			struct stamp at = {k, k, 7, 0};

			http2_push(h, k & 1 ? DIR_TX : DIR_RX, all + k, i % 3 == 2 ? sizeof(all) : 1, &at);
		}
		http2_finish(h, HTTP_ABORT_CLOSED, 2);
		assert_int_equal(c.open_count, 0);
		http2_free(h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_and_bytewise),
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_every_near_cut),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_every_gap),
		cmocka_unit_test(test_every_attach),
		cmocka_unit_test(test_trailers_after_loss),
		cmocka_unit_test(test_lost_records),
		cmocka_unit_test(test_many_streams),
		cmocka_unit_test(test_too_many_open),
		cmocka_unit_test(test_lossy_ones_make_room),
		cmocka_unit_test(test_continuation_flood),
		cmocka_unit_test(test_head_too_long),
		cmocka_unit_test(test_bad_frames),
		cmocka_unit_test(test_adopted_stream),
		cmocka_unit_test(test_wait_is_bounded),
		cmocka_unit_test(test_tick_settles),
		cmocka_unit_test(test_search_is_linear),
		cmocka_unit_test(test_wait_of_many_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
