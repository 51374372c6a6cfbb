/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "feed.h"
#include "http_text.h"

#include "base/err.h"
#include "flow/http/operations.h"
#include "flow/proto/http1.h"

#define MS    1000000ull
#define STALE (100000 * MS)

/* --- rig: a connection of HTTP/1, and what comes out ------------------------------------------------------------- */

struct rig {
	struct tlog *log, passed; /* passed: what the next sink got */
	struct lost lost;
	struct operation_conn conn;
	struct operations *table;
	struct operation_flow *flow;
	struct http_sink http;
	struct http1 *parser;
	uint64_t call; /* the exchange that is one, as the owner says */
};

static void put(struct tlog *l, const char *name, const char *value)
{
	if (value)
		tlog_printf(l, " %s=%s", name, value);
}

static void put_ms(struct tlog *l, const char *name, uint64_t ns)
{
	if (ns != UNKNOWN_NS)
		tlog_printf(l, " %s=%g", name, (double)ns / MS);
}

static void on_operation(void *ctx, const struct http_operation *o)
{
	struct tlog *l = ((struct rig *)ctx)->log;

	tlog_printf(l, "%s", o->server ? "served" : "called");
	put(l, "method", o->method);
	put(l, "path", o->path);
	put(l, "route", o->route);
	put(l, "label", o->label);
	put(l, "host", o->host);
	put(l, "protocol", o->protocol);
	tlog_printf(l, " status=%d", o->status);
	put_ms(l, "start", o->start_ns);
	put_ms(l, "first", o->ttfb_ns);
	put_ms(l, "end", o->end_ns);
	tlog_printf(l, " bytes=%d/%d tid=%u/%u", (int)o->request_bytes, (int)o->response_bytes, o->tid,
		    o->response_tid);
	put(l, "why", end_reason_name(o->end));
	tlog_printf(l, "%s%s%s\n", o->lossy ? " lossy" : "", o->mid_attach ? " mid" : "",
		    o->unfinished ? " unfinished" : "");
}

static bool is_call(void *ctx, uint64_t conn_id, uint64_t xid)
{
	assert_int_equal(conn_id, 5);
	return xid == ((struct rig *)ctx)->call;
}

static bool rig_open(struct rig *r, struct tlog *log, bool server)
{
	const struct operations_config cfg = {.stale_ns = STALE, .sweep_ns = 1000 * MS};
	const struct operations_sink sink = {r, on_operation, is_call};
	const struct http_sink next = pass_sink(&r->passed);

	*r = (struct rig){.log = log, .conn = {.key = {.tgid = 1}, .conn_id = 5, .server = server}};
	r->table = operations_new(&cfg, &r->lost, &sink);
	r->flow = r->table ? operations_conn_new(r->table, &r->conn) : NULL;
	if (!r->flow)
		return false;
	r->http = operations_http_sink(r->flow, &next);
	r->parser = http1_new(true, server ? DIR_RX : DIR_TX, &r->http);
	return r->parser != NULL;
}

static void rig_close(struct rig *r)
{
	http1_free(r->parser);
	operations_conn_free(r->flow);
	operations_free(r->table);
	tlog_free(&r->passed);
}

static void say(struct rig *r, enum dir dir, uint64_t ms, const char *text)
{
	/* Reads begin long before there is anything. */
	struct stamp at = {(dir == DIR_RX ? ms - 5 : ms) * MS, (dir == DIR_RX ? ms : ms + 1) * MS, 7 + dir, 0};

	assert_int_equal(http1_push(r->parser, dir, (const uint8_t *)text, strlen(text), &at), 0);
}

static void lose(struct rig *r, enum dir dir, uint64_t ms, uint64_t len, enum http_gap why)
{
	struct stamp at = {ms * MS, ms * MS, 7, 0};

	http1_gap(r->parser, dir, len, why, &at);
}

/* --- what comes out ---------------------------------------------------------------------------------------------- */

#define GET    "GET /users/42?key=secret&op=Show HTTP/1.1\r\nHost: h\r\n\r\n"
#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
#define CALLED "called method=GET path=/users/42?key=*&op=* route=/users/:id label=Show host=h protocol=http/1.1"
#define SERVED "served method=GET path=/users/42?key=*&op=* route=/users/:id label=Show host=h protocol=http/1.1"

static void called_and_handed_on(void **state)
{
	struct tlog log = {0};
	struct rig r;

	(void)state;
	assert_true(rig_open(&r, &log, false));
	say(&r, DIR_TX, 100, GET);
	say(&r, DIR_RX, 130, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe");
	say(&r, DIR_RX, 150, "llo");
	assert_log(&log, CALLED " status=200 start=100 first=130 end=150 bytes=54/43 tid=7/8\n");
	assert_log(&r.passed,
		   "request 1\nrequest end 1 54\nresponse 1 200\nbody 1 1 2\nbody 1 1 3\nresponse end 1 43\n");
	rig_close(&r);
	tlog_free(&log);
}

/* From the return of the read that brought it, to the return of the write; nobody else hears of it. */
static void served_and_kept_back(void **state)
{
	struct tlog log = {0};
	struct rig r;

	(void)state;
	assert_true(rig_open(&r, &log, true));
	say(&r, DIR_RX, 100, GET);
	say(&r, DIR_TX, 130, ANSWER);
	say(&r, DIR_RX, 200, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
	http1_finish(r.parser, HTTP_ABORT_SERVER, 250 * MS); /* the peer: the client */
	assert_log(&log, SERVED " status=200 start=100 first=131 end=131 bytes=54/43 tid=8/7\n"
				"served method=GET path=/ route=/ host=h protocol=http/1.1 status=0 start=200 end=250 "
				"bytes=27/-1 tid=8/0 why=client_abort\n");
	assert_log(&r.passed, "");
	rig_close(&r);
	tlog_free(&log);
}

static void calls_are_told_by_others(void **state)
{
	struct tlog log = {0};
	struct rig r;

	(void)state;
	assert_true(rig_open(&r, &log, false));
	r.call = 1; /* still open at its end */
	say(&r, DIR_TX, 100, GET);
	operations_each_open(r.table, 110 * MS, on_operation, &r);
	say(&r, DIR_RX, 130, ANSWER);
	r.call = 0; /* told before its end */
	say(&r, DIR_TX, 200, GET);
	operations_was_call(r.flow, 2);
	operations_was_call(r.flow, 77);
	say(&r, DIR_RX, 230, ANSWER);
	assert_log(&log, "");
	say(&r, DIR_TX, 300, GET);
	operations_each_open(r.table, 310 * MS, on_operation, &r);
	assert_log(&log, CALLED " status=0 start=300 end=310 bytes=54/-1 tid=7/0 unfinished\n");
	rig_close(&r);
	tlog_free(&log);
}

static void graphql_is_named(void **state)
{
	struct tlog log = {0};
	struct rig r;

	(void)state;
	assert_true(rig_open(&r, &log, true));
	say(&r, DIR_RX, 100,
	    "POST /graphql HTTP/1.1\r\nContent-Type: application/json; charset=utf-8\r\n"
	    "Content-Length: 25\r\n\r\n{\"query\":\"query Feed{a}\"}");
	say(&r, DIR_TX, 130, ANSWER);
	assert_log(&log, "served method=POST path=/graphql route=/graphql label=Feed protocol=http/1.1 status=200 "
			 "start=100 first=131 end=131 bytes=118/43 tid=8/7\n");
	rig_close(&r);
	tlog_free(&log);
}

/* What was left out by choice is no loss. */
static void gaps(void **state)
{
	struct tlog log = {0};
	struct rig r;

	(void)state;
	assert_true(rig_open(&r, &log, false));
	say(&r, DIR_TX, 100, GET);
	say(&r, DIR_RX, 130, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
	lose(&r, DIR_RX, 140, 999, HTTP_GAP_CAPPED);
	say(&r, DIR_RX, 150, "x");
	say(&r, DIR_TX, 200, GET);
	say(&r, DIR_RX, 230, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
	lose(&r, DIR_RX, 240, 999, HTTP_GAP_LOST);
	say(&r, DIR_RX, 250, "x");
	say(&r, DIR_TX, 300, GET);
	say(&r, DIR_RX, 330, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe");
	lose(&r, DIR_RX, 340, UINT64_MAX, HTTP_GAP_LOST);
	http1_finish(r.parser, HTTP_ABORT_CLOSED, 400 * MS);
	assert_log(&log, CALLED " status=200 start=100 first=130 end=150 bytes=54/1041 tid=7/8\n" CALLED
				" status=200 start=200 first=230 end=250 bytes=54/1041 tid=7/8 lossy\n" CALLED
				" status=200 start=300 first=330 end=330 bytes=54/-1 tid=7/8 why=capture_loss lossy\n");
	rig_close(&r);
	tlog_free(&log);
}

static void upgrades_are_complete(void **state)
{
	struct tlog log = {0};
	struct rig r;

	(void)state;
	assert_true(rig_open(&r, &log, false));
	say(&r, DIR_TX, 100, "GET /live HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
	say(&r, DIR_RX, 130, "HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
	assert_log(&log, "called method=GET path=/live route=/live protocol=http/1.1 status=101 start=100 first=130 "
			 "end=130 bytes=63/60 tid=7/8\n");
	rig_close(&r);
	tlog_free(&log);
}

static void met_in_the_middle(void **state)
{
	struct stamp at = {100 * MS, 110 * MS, 3, 0};
	struct http_head h = {.status = 200, .protocol = "http/2"};
	struct tlog log = {0};
	struct rig r;

	(void)state;
	assert_true(rig_open(&r, &log, false));
	r.http.on_request(r.http.ctx, 9, NULL, &at);
	r.http.on_request(r.http.ctx, 9, NULL, &at);
	r.http.on_body_gap(r.http.ctx, 9, HTTP_RESPONSE, UINT64_MAX, HTTP_GAP_LOST, &at);
	r.http.on_response(r.http.ctx, 9, &h, &at);
	r.http.on_response(r.http.ctx, 9, &h, &at);
	r.http.on_response_end(r.http.ctx, 9, 100, &at);
	r.http.on_response_end(r.http.ctx, 9, 100, &at); /* nobody's any more */
	r.conn.fresh = true;				 /* then its request was lost */
	r.http.on_request(r.http.ctx, 10, NULL, &at);
	r.http.on_abort(r.http.ctx, 10, HTTP_ABORT_EXIT, 0, 200 * MS);
	assert_log(&log, "called protocol=http/2 status=200 start=110 first=110 end=110 bytes=-1/-1 tid=0/3 mid\n"
			 "called status=0 start=110 end=200 bytes=-1/-1 tid=0/0 why=process_exit lossy mid\n");
	rig_close(&r);
	tlog_free(&log);
}

static void silent_ones_are_evicted(void **state)
{
	struct tlog log = {0};
	struct rig r;

	(void)state;
	assert_true(rig_open(&r, &log, false));
	say(&r, DIR_TX, 100, GET);
	operations_tick(r.table, 100 * MS + STALE);
	assert_log(&log, "");
	operations_tick(r.table, 3000 * MS + STALE);
	assert_log(&log, CALLED " status=0 start=100 end=102101 bytes=54/-1 tid=7/0 why=evicted\n");
	say(&r, DIR_RX, 110000, ANSWER);
	assert_log(&log, CALLED " status=0 start=100 end=102101 bytes=54/-1 tid=7/0 why=evicted\n");
	assert_non_null(strstr(r.passed.text, "response end 1 43\n")); /* others go on */
	rig_close(&r);
	tlog_free(&log);
}

static void only_so_many_at_once(void **state)
{
	struct stamp at = {100 * MS, 110 * MS, 3, 0};
	struct tlog log = {0};
	struct rig r;

	(void)state;
	assert_true(rig_open(&r, &log, true));
	for (uint64_t i = 1; i <= OPERATIONS_MAX + 1; i++)
		r.http.on_request(r.http.ctx, i, NULL, &at);
	assert_int_equal(r.lost.n[LOST_NO_MEMORY], 1);
	assert_log(&log, "served status=0 start=110 end=110 bytes=-1/-1 tid=0/0 why=evicted mid\n");
	rig_close(&r);
	tlog_free(&log);
}

/* --- cuts, memory ------------------------------------------------------------------------------------------------ */

static const struct feed_segment talk[] = {
#define PIECE(text, ts, dir)                                                                                           \
	{                                                                                                              \
		text, sizeof(text) - 1, ts, dir                                                                        \
	}
	PIECE("POST /graphql HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n"
	      "{\"query\":\"query Feed{a}\"}",
	      10, DIR_TX),
	PIECE("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 20, DIR_RX),
	PIECE("GET /o/7 HTTP/1.1\r\n\r\n", 30, DIR_TX),
	PIECE("HTTP/1.1 404 No\r\n\r\nuntil the end", 40, DIR_RX),
};

static void *talk_open(struct tlog *log, const void *arg)
{
	struct rig *r = calloc(1, sizeof(*r));

	(void)arg;
	if (!r)
		return NULL;
	if (rig_open(r, log, false))
		return r;
	rig_close(r);
	free(r);
	return NULL;
}

static int talk_push(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct rig *r = parser;
	int err = http1_push(r->parser, dir, ptr, len, at);

	return r->lost.n[LOST_NO_MEMORY] ? -ENOMEM : err;
}

static void talk_close(void *parser, struct tlog *log)
{
	struct rig *r = parser;

	(void)log;
	http1_finish(r->parser, HTTP_ABORT_SERVER, 50);
	rig_close(r);
	free(r);
}

static void cuts_do_not_show(void **state)
{
	struct feed f = {
		.segments = talk, .count = ARRAY_SIZE(talk), .open = talk_open, .push = talk_push, .close = talk_close};

	(void)state;
	feed_golden(
		&f, 60,
		"called method=POST path=/graphql route=/graphql label=Feed protocol=http/1.1 status=200 start=9e-06 "
		"first=2e-05 end=2e-05 bytes=103/60 tid=1/1\n"
		"called method=GET path=/o/7 route=/o/:id protocol=http/1.1 status=404 start=2.9e-05 first=4e-05 "
		"end=4e-05 bytes=21/32 tid=1/1\n");
	feed_no_memory(&f);
	feed_release(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(called_and_handed_on),
		cmocka_unit_test(served_and_kept_back),
		cmocka_unit_test(calls_are_told_by_others),
		cmocka_unit_test(graphql_is_named),
		cmocka_unit_test(gaps),
		cmocka_unit_test(upgrades_are_complete),
		cmocka_unit_test(met_in_the_middle),
		cmocka_unit_test(silent_ones_are_evicted),
		cmocka_unit_test(only_so_many_at_once),
		cmocka_unit_test(cuts_do_not_show),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
