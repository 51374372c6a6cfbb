/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/err.h"
#include "flow/conn.h"

#define MS  1000000ull
#define DAY (24 * 3600 * 1000ull)

static const char *const why_name[] = {"unknown", "local", "remote", "exit", "exec", "replaced", "capture", "limit"};

#define TOLD 256 /* latest connections whose changes are held against what was told */

struct world {
	struct tlog log;
	struct conn told[TOLD]; /* by id: as of the latest word of a change */
	struct lost lost;
	struct conns *t;
	const struct conn *last; /* the latest that was opened */
	unsigned open, closing;
	uint64_t closing_ns; /* of the latest */
	bool quiet;
};

static bool same_delays(const struct conn_delays *a, const struct conn_delays *b)
{
	return a->at == b->at && a->count == b->count;
}

/* Nothing but bytes changes without a word. */
static void expect_told(const struct world *w, const struct conn *c)
{
	const struct conn *t = &w->told[c->id % TOLD];

	if (t->id != c->id)
		return;
	assert_true(t->fresh == c->fresh && t->plain == c->plain && t->halves == c->halves && t->stdio == c->stdio);
	assert_true(t->bound == c->bound && t->cookie == c->cookie);
	assert_memory_equal(&t->local, &c->local, sizeof(t->local));
	assert_memory_equal(&t->remote, &c->remote, sizeof(t->remote));
	assert_true(t->setup.connect_begin_ns == c->setup.connect_begin_ns &&
		    t->setup.connect_end_ns == c->setup.connect_end_ns);
	assert_true(t->setup.tls_begin_ns == c->setup.tls_begin_ns && t->setup.tls_end_ns == c->setup.tls_end_ns);
	assert_true(t->setup.tls_approximate == c->setup.tls_approximate &&
		    t->setup.tls_resumed == c->setup.tls_resumed && t->setup.tid == c->setup.tid);
	assert_true(t->srtt_us == c->srtt_us && t->rtt_min_us == c->rtt_min_us && t->retransmits == c->retransmits);
	assert_true(t->reset_ns == c->reset_ns && t->reset_sent == c->reset_sent);
	assert_true(same_delays(&t->late, &c->late) && same_delays(&t->network, &c->network));
	assert_true(t->exit_code == c->exit_code && t->exit_signal == c->exit_signal);
}

static void on_change(void *ctx, struct conn *c)
{
	struct world *w = ctx;

	w->told[c->id % TOLD] = *c;
}

static void on_open(void *ctx, struct conn *c)
{
	struct world *w = ctx;

	w->last = c;
	w->open++;
	assert_null(c->ctx);
	c->ctx = w;
	w->told[c->id % TOLD] = *c;
	if (!w->quiet)
		tlog_printf(&w->log, "open %llu%s\n", (unsigned long long)c->id, c->fresh ? " fresh" : "");
}

static void on_bytes(void *ctx, struct conn *c, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct world *w = ctx;

	assert_ptr_equal(c->ctx, w);
	expect_told(w, c);
	if (w->quiet)
		return;
	tlog_printf(&w->log, "%llu %s %llu: ", (unsigned long long)c->id, dir == DIR_TX ? "tx" : "rx",
		    (unsigned long long)(at->ts_ns / MS));
	tlog_escaped(&w->log, ptr, len);
	tlog_printf(&w->log, " (%llu)\n", (unsigned long long)c->bytes[dir]);
}

static void on_gap(void *ctx, struct conn *c, enum dir dir, uint64_t len, enum gap_why why, const struct stamp *at)
{
	struct world *w = ctx;

	assert_ptr_equal(c->ctx, w);
	expect_told(w, c);
	(void)at;
	if (!w->quiet)
		tlog_printf(&w->log, "%llu %s gap %lld%s\n", (unsigned long long)c->id, dir == DIR_TX ? "tx" : "rx",
			    (long long)len, why == GAP_CAPPED ? " capped" : "");
}

static void on_sock(void *ctx, struct conn *c, const struct rec_sock *r)
{
	expect_told(ctx, c);
	tlog_printf(&((struct world *)ctx)->log, "%llu sock %d\n", (unsigned long long)c->id, r->what);
}

static void on_closing(void *ctx, struct conn *c, uint64_t ts_ns)
{
	struct world *w = ctx;

	expect_told(w, c);
	w->closing++;
	w->closing_ns = ts_ns;
}

static void on_end(void *ctx, struct conn *c, enum conn_end why, uint64_t ts_ns)
{
	struct world *w = ctx;

	assert_ptr_equal(c->ctx, w);
	expect_told(w, c);
	w->open--;
	if (w->last == c)
		w->last = NULL;
	if (w->quiet)
		return;
	tlog_printf(&w->log, "%llu end %s at %llu", (unsigned long long)c->id, why_name[why],
		    (unsigned long long)(ts_ns / MS));
	if (why == CONN_END_EXIT)
		tlog_printf(&w->log, " %d/%d", c->exit_code, c->exit_signal);
	else
		assert_true(c->exit_code == 0 && c->exit_signal == 0);
	tlog_printf(&w->log, "\n");
}

static void open_world(struct world *w)
{
	*w = (struct world){0};
	w->t = conns_new(&w->lost,
			 &(struct conn_sink){w, on_open, on_bytes, on_gap, on_change, on_sock, on_closing, on_end});
	assert_non_null(w->t);
}

static void close_world(struct world *w)
{
	conns_finish(w->t, 10 * DAY * MS);
	assert_int_equal(w->open, 0);
	conns_free(w->t);
	tlog_free(&w->log);
}

/* Process 42, started at 5; object 0x100 unless said otherwise. */
static struct conn_key key_of(uint32_t gen)
{
	return (struct conn_key){.tgid = 42, .exec_id = 1, .start_ns = 5, .obj = 0x100, .gen = gen};
}

static void data_of(struct world *w, const struct conn_key *k, enum dir dir, uint64_t pos, const char *text,
		    uint64_t ms)
{
	uint32_t len = (uint32_t)strlen(text);

	conns_push_data(w->t, &(struct rec_data){.conn = *k,
						 .dir = dir,
						 .at = {.entry_ns = ms * MS, .ts_ns = ms * MS, .tid = 42},
						 .pos = pos,
						 .ptr = (const uint8_t *)text,
						 .len = len,
						 .orig_len = len});
}

static void data(struct world *w, uint32_t gen, enum dir dir, uint64_t pos, const char *text, uint64_t ms)
{
	struct conn_key k = key_of(gen);

	data_of(w, &k, dir, pos, text, ms);
}

static void open_conn(struct world *w, uint32_t gen, bool fresh, uint64_t ms)
{
	conns_push_open(w->t, &(struct rec_open){.conn = key_of(gen), .ts_ns = ms * MS, .fresh = fresh});
}

static void hint(struct world *w, uint32_t gen, uint64_t tx, uint64_t rx, bool local, uint64_t ms)
{
	conns_push_close(w->t,
			 &(struct rec_close){.conn = key_of(gen), .ts_ns = ms * MS, .pos = {tx, rx}, .local = local});
}

static void socket_vote(struct world *w, uint32_t gen, enum sock_how how, uint64_t cookie, uint32_t plain,
			uint32_t wire, uint64_t ms)
{
	conns_push_conn_sock(
		w->t, &(struct rec_conn_sock){.conn = key_of(gen),
					      .ts_ns = ms * MS,
					      .cookie = cookie,
					      .remote = {.family = 2, .port = 443, .ip = {10, 0, 0, (uint8_t)cookie}},
					      .how = how,
					      .dir = how == SOCK_BEFORE_READ ? DIR_RX : DIR_TX,
					      .plain_len = plain,
					      .wire_len = wire});
}

static void inside(struct world *w, uint32_t gen, uint64_t cookie, uint64_t ms)
{
	socket_vote(w, gen, SOCK_INSIDE, cookie, 0, 0, ms);
}

static void sock(struct world *w, uint64_t cookie, enum sock_what what, uint64_t begin_ms, uint64_t ms)
{
	conns_push_sock(
		w->t, &(struct rec_sock){.ts_ns = ms * MS, .begin_ns = begin_ms * MS, .cookie = cookie, .what = what});
}

static void exit_of(struct world *w, int32_t code, int32_t signal, uint64_t ms)
{
	conns_push_exit(w->t, &(struct rec_exit){.proc = {.tgid = 42, .exec_id = 1, .start_ns = 5},
						 .ts_ns = ms * MS,
						 .code = code,
						 .signal = signal});
}

static void tick(struct world *w, uint64_t ms)
{
	conns_tick(w->t, ms * MS);
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

static void both_directions(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	open_conn(&w, 1, true, 1);
	data(&w, 1, DIR_TX, 0, "ask", 2);
	data(&w, 1, DIR_RX, 0, "ans", 3);
	data(&w, 1, DIR_RX, 6, "!", 5);
	data(&w, 1, DIR_RX, 3, "wer", 4);
	assert_log(&w.log, "open 1 fresh\n1 tx 2: ask (3)\n1 rx 3: ans (3)\n1 rx 4: wer (6)\n1 rx 5: ! (7)\n");
	close_world(&w);
}

/* Looked for, not touched: nothing begins, and nothing is told. */
static void soon(void **state)
{
	struct conn *found[CONN_SOON_MAX];
	struct conn_key keys[CONN_SOON_MAX];
	struct world w;

	(void)state;
	open_world(&w);
	for (unsigned i = 0; i < CONN_SOON_MAX; i++)
		keys[i] = key_of(i);
	conns_soon(w.t, keys, CONN_SOON_MAX, found);
	for (unsigned i = 0; i < CONN_SOON_MAX; i++)
		assert_null(found[i]);
	data(&w, 3, DIR_TX, 0, "a", 1);
	conns_soon(w.t, keys, CONN_SOON_MAX, found);
	for (unsigned i = 0; i < CONN_SOON_MAX; i++)
		assert_ptr_equal(found[i], i == 3 ? w.last : NULL);
	keys[0] = keys[3];
	conns_soon(w.t, keys, 1, found);
	assert_ptr_equal(found[0], w.last);
	assert_log(&w.log, "open 1\n1 tx 1: a (1)\n");
	close_world(&w);
}

static void losses_are_counted(void **state)
{
	struct world w;
	struct rec_data capped = {.conn = key_of(1),
				  .at = {.ts_ns = 3 * MS},
				  .ptr = (const uint8_t *)"x",
				  .pos = 3,
				  .len = 1,
				  .orig_len = 10,
				  .capped = true};
	struct rec_data fault = {.conn = key_of(1), .at = {.ts_ns = 4 * MS}, .pos = 13, .orig_len = 7};

	(void)state;
	open_world(&w);
	data(&w, 1, DIR_TX, 0, "ask", 2);
	conns_push_data(w.t, &capped);
	conns_push_data(w.t, &fault);
	conns_push_gap(w.t, &(struct rec_gap){.conn = key_of(1), .dir = DIR_RX, .pos = 0, .ts_ns = 5 * MS});
	data(&w, 1, DIR_RX, 4, "late", 6);
	tick(&w, 507);
	assert_log(&w.log, "open 1\n1 tx 2: ask (3)\n1 tx 3: x (4)\n1 tx gap 9 capped\n1 tx gap 7\n1 rx gap -1\n"
			   "1 rx gap 4\n1 rx 6: late (8)\n");
	assert_int_equal(w.lost.n[LOST_EVENTS], 3);
	assert_int_equal(w.lost.n[LOST_BYTES], 11);
	close_world(&w);
}

/* A hole is given up by time alone, and event time is enough: no tick is needed. */
static void hole_times_out(void **state)
{
	struct world w;
	struct conn_key other = key_of(9);

	(void)state;
	other.obj = 0x900;
	open_world(&w);
	data(&w, 1, DIR_RX, 0, "a", 1);
	data(&w, 1, DIR_RX, 5, "f", 2);
	data_of(&w, &other, DIR_TX, 0, "x", 490);
	data_of(&w, &other, DIR_TX, 1, "y", 503);
	assert_log(&w.log,
		   "open 1\n1 rx 1: a (1)\nopen 2\n2 tx 490: x (1)\n1 rx gap 4\n1 rx 2: f (6)\n2 tx 503: y (2)\n");
	close_world(&w);
}

/* --- ends -------------------------------------------------------------------------------------------------------- */

static void freed_by_nobody_knows_whom(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	data(&w, 1, DIR_TX, 0, "a", 1);
	hint(&w, 1, 1, 4, false, 10);
	data(&w, 1, DIR_RX, 0, "b", 60); /* after the hint: it waits anew */
	tick(&w, 150);
	assert_int_equal(w.open, 1);
	tick(&w, 170);
	assert_log(&w.log, "open 1\n1 tx 1: a (1)\n1 rx 60: b (1)\n1 rx gap 3\n1 end unknown at 60\n");
	close_world(&w);
}

static void time_passes_by_other_connections(void **state)
{
	struct world w;
	struct conn_key other = key_of(9);

	(void)state;
	other.obj = 0x900;
	open_world(&w);
	data(&w, 1, DIR_TX, 0, "a", 1);
	hint(&w, 1, 1, 0, false, 10);
	data_of(&w, &other, DIR_TX, 0, "x", 2000); /* the end is told first */
	assert_log(&w.log, "open 1\n1 tx 1: a (1)\n1 end unknown at 10\nopen 2\n2 tx 2000: x (1)\n");
	close_world(&w);
}

static void closed_by(void **state)
{
	static const struct {
		enum sock_what first, second;
		uint64_t first_ms, second_ms, hint_ms;
		bool local_flag;
		const char *end;
	} rows[] = {
		{SOCK_CLOSE_REMOTE, SOCK_CLOSE_LOCAL, 20, 21, 20, false, "1 end remote at 20\n"},
		{SOCK_CLOSE_REMOTE, SOCK_CLOSE_LOCAL, 20, 40, 35, false, "1 end remote at 20\n"},
		{SOCK_CLOSE_LOCAL, SOCK_CLOSE_REMOTE, 30, 31, 25, false,
		 "1 end local at 25\n"}, /* SSL_free, then close */
		{SOCK_CLOSE_LOCAL, SOCK_CLOSE_REMOTE, 20, 31, 25, false, "1 end local at 20\n"},
		{SOCK_CLOSE_REMOTE, SOCK_CLOSE_LOCAL, 26, 31, 25, true,
		 "1 end local at 25\n"}, /* its own word came first */
		{SOCK_CLOSE_REMOTE, SOCK_CLOSE_LOCAL, 24, 31, 25, true, "1 end remote at 24\n"},
		{SOCK_RESET_RECEIVED, SOCK_CLOSED, 20, 20, 25, false, "1 end remote at 20\n"},
		{SOCK_RESET_SENT, SOCK_CLOSED, 20, 20, 25, false, "1 end local at 20\n"},
		{SOCK_CLOSED, SOCK_RETRANSMIT, 20, 20, 25, false, "1 end unknown at 20\n"}, /* timed out: by neither */
		{SOCK_RTT, SOCK_RETRANSMIT, 20, 20, 25, true, "1 end local at 25\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w;
		const char *end;

		open_world(&w);
		data(&w, 1, DIR_TX, 0, "a", 1);
		inside(&w, 1, 7, 2);
		for (uint64_t ms = 10; ms < 50; ms++) {
			if (ms == rows[i].first_ms)
				sock(&w, 7, rows[i].first, 0, ms);
			if (ms == rows[i].second_ms)
				sock(&w, 7, rows[i].second, 0, ms);
			if (ms == rows[i].hint_ms)
				hint(&w, 1, 1, 0, rows[i].local_flag, ms);
		}
		tick(&w, 3000);
		end = strstr(w.log.text, "1 end");
		assert_non_null(end);
		assert_string_equal(end, rows[i].end);
		close_world(&w);
	}
}

/* After the peer's FIN the program reads what is still there: the end waits for the object. */
static void bytes_after_the_fin(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	data(&w, 1, DIR_RX, 0, "a", 1);
	inside(&w, 1, 7, 2);
	sock(&w, 7, SOCK_CLOSE_REMOTE, 0, 10);
	tick(&w, 5000);
	data(&w, 1, DIR_RX, 1, "b", 6000);
	hint(&w, 1, 0, 2, false, 6001);
	tick(&w, 7000);
	assert_log(&w.log, "open 1\n1 rx 1: a (1)\n1 sock 4\n1 rx 6000: b (2)\n1 end remote at 6000\n");
	close_world(&w);
}

static void closed_socket_is_enough(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	data(&w, 1, DIR_RX, 0, "a", 1);
	inside(&w, 1, 7, 2);
	sock(&w, 7, SOCK_RESET_RECEIVED, 0, 10);
	sock(&w, 7, SOCK_CLOSED, 0, 10);
	data(&w, 1, DIR_RX, 1, "b", 500); /* the library still had it */
	tick(&w, 1009);
	assert_int_equal(w.open, 1);
	tick(&w, 1020);
	assert_log(&w.log, "open 1\n1 rx 1: a (1)\n1 sock 8\n1 sock 5\n1 rx 500: b (2)\n1 end remote at 500\n");
	close_world(&w);
}

static void process_ends(void **state)
{
	struct world w;
	struct conn_key other = key_of(2), stranger = key_of(3);

	(void)state;
	other.obj = 0x200;
	other.exec_id = 2;
	stranger.obj = 0x300;
	stranger.start_ns = 6; /* the same pid, but another process */
	open_world(&w);
	data(&w, 1, DIR_TX, 0, "a", 1);
	data_of(&w, &other, DIR_TX, 0, "b", 2);
	data_of(&w, &stranger, DIR_TX, 0, "c", 3);
	inside(&w, 1, 7, 4);
	exit_of(&w, 0, 9, 100);
	sock(&w, 7, SOCK_CLOSE_LOCAL, 0, 101); /* the kernel cleans up: not the program's doing */
	tick(&w, 300);
	assert_log(&w.log, "open 1\n1 tx 1: a (1)\nopen 2\n2 tx 2: b (1)\nopen 3\n3 tx 3: c (1)\n1 sock 3\n"
			   "1 end exit at 100 0/9\n2 end exit at 100 0/9\n");
	data(&w, 1, DIR_TX, 1, "late", 400); /* of a dead process: counted, no new connection */
	assert_int_equal(w.open, 1);
	assert_int_equal(w.lost.n[LOST_EVENTS], 1);
	assert_int_equal(w.lost.n[LOST_BYTES], 4);
	close_world(&w);
}

static void who_came_before_the_exit(void **state)
{
	struct world w;

	(void)state;
	open_world(&w); /* the server closed, then the process ended */
	data(&w, 1, DIR_TX, 0, "a", 1);
	inside(&w, 1, 7, 2);
	sock(&w, 7, SOCK_CLOSE_REMOTE, 0, 50);
	exit_of(&w, 1, 0, 60);
	tick(&w, 300);
	assert_non_null(strstr(w.log.text, "1 end remote at 50\n"));
	close_world(&w);

	open_world(&w); /* freed on the way out, nobody known to have closed */
	data(&w, 1, DIR_TX, 0, "a", 1);
	hint(&w, 1, 1, 0, false, 50);
	exit_of(&w, 7, 0, 60);
	tick(&w, 300);
	assert_non_null(strstr(w.log.text, "1 end exit at 50 7/0\n"));
	close_world(&w);

	open_world(&w); /* freed, closed, ended: the program closed */
	data(&w, 1, DIR_TX, 0, "a", 1);
	inside(&w, 1, 7, 2);
	hint(&w, 1, 1, 0, false, 50);
	sock(&w, 7, SOCK_CLOSE_LOCAL, 0, 55);
	exit_of(&w, 7, 0, 60);
	tick(&w, 300);
	assert_non_null(strstr(w.log.text, "1 end local at 50\n"));
	close_world(&w);
}

static void program_is_replaced(void **state)
{
	struct rec_exec r = {.proc = {.tgid = 42, .exec_id = 2, .start_ns = 5}, .ts_ns = 50 * MS};
	struct rec_exec known = {.proc = r.proc, .ts_ns = 40 * MS, .already_running = true};
	struct world w;
	struct conn_key later = key_of(2);

	(void)state;
	later.exec_id = 2;
	open_world(&w);
	data(&w, 1, DIR_TX, 0, "a", 1);
	conns_push_exec(w.t, &known);
	data_of(&w, &later, DIR_TX, 0, "b", 49); /* of the new program, delivered before its exec */
	conns_push_exec(w.t, &r);
	tick(&w, 300);
	assert_log(&w.log, "open 1\n1 tx 1: a (1)\nopen 2\n2 tx 49: b (1)\n1 end exec at 50\n");
	close_world(&w);
}

static void object_is_reused(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	data(&w, 1, DIR_TX, 0, "a", 1);
	open_conn(&w, 2, true, 10);
	data(&w, 2, DIR_TX, 0, "b", 11);
	data(&w, 1, DIR_TX, 1, "z", 9);	 /* late */
	data(&w, 3, DIR_TX, 0, "c", 50); /* its open record was lost */
	tick(&w, 300);
	data(&w, 1, DIR_TX, 2, "y", 301); /* too late */
	assert_log(&w.log,
		   "open 1\n1 tx 1: a (1)\nopen 2 fresh\n2 tx 11: b (1)\n1 tx 9: z (2)\nopen 3\n3 tx 50: c (1)\n"
		   "1 end replaced at 10\n2 end replaced at 50\n");
	assert_int_equal(w.lost.n[LOST_BYTES], 1);
	close_world(&w);
}

/* SSL_free that only dropped a reference: the connection speaks again, and goes on where it was. */
static void object_lives_on(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	data(&w, 1, DIR_RX, 0, "ab", 1);
	hint(&w, 1, 0, 2, false, 10);
	tick(&w, 300);
	hint(&w, 1, 0, 2, false, 310);	   /* freed again: nothing new */
	data(&w, 1, DIR_RX, 0, "ab", 320); /* known */
	data(&w, 1, DIR_RX, 1, "bc", 330);
	assert_log(&w.log, "open 1\n1 rx 1: ab (2)\n1 end unknown at 10\nopen 2\n2 rx 330: c (3)\n");
	assert_int_equal(w.lost.n[LOST_EVENTS], 0);
	close_world(&w);
}

static void end_of_capture(void **state)
{
	struct world w;
	struct conn_key other = key_of(2);

	(void)state;
	other.obj = 0x200;
	open_world(&w);
	data(&w, 1, DIR_RX, 0, "a", 1);
	data(&w, 1, DIR_RX, 3, "d", 2);
	data_of(&w, &other, DIR_TX, 0, "b", 3);
	inside(&w, 1, 7, 3);
	sock(&w, 7, SOCK_CLOSE_REMOTE, 0, 4);
	conns_finish(w.t, 9 * MS);
	assert_log(&w.log, "open 1\n1 rx 1: a (1)\nopen 2\n2 tx 3: b (1)\n1 sock 4\n1 rx gap 2\n1 rx 2: d (4)\n"
			   "1 end remote at 4\n2 end capture at 9\n");
	close_world(&w);
}

static void all_of_it_was_lost(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	hint(&w, 1, 0, 0, false, 10); /* carried nothing: nothing to say */
	assert_log(&w.log, "");
	hint(&w, 2, 10, 20, false, 20);
	tick(&w, 300);
	assert_log(&w.log, "open 1\n1 tx gap -1\n1 rx gap -1\n1 end unknown at 20\n");
	assert_int_equal(w.lost.n[LOST_EVENTS], 2);
	close_world(&w);
}

/* --- sockets ----------------------------------------------------------------------------------------------------- */

/* A plain connection is its socket: its peer and its TCP set-up are known at once; a Unix socket has neither. */
static void plain(void **state)
{
	struct conn_key k = key_of(1);
	struct world w;

	(void)state;
	open_world(&w);
	sock(&w, 7, SOCK_CONNECTED, 10, 30);
	conns_push_open(w.t, &(struct rec_open){.conn = k, .ts_ns = 31 * MS, .fresh = true, .plain = true});
	assert_true(w.last->plain);
	socket_vote(&w, 1, SOCK_ITSELF, 7, 0, 0, 31);
	assert_true(w.last->bound);
	assert_int_equal(w.last->remote.port, 443);
	assert_int_equal(w.last->setup.connect_begin_ns, 10 * MS);
	assert_int_equal(w.last->setup.connect_end_ns, 30 * MS);
	assert_int_equal(w.last->setup.tls_begin_ns, UNKNOWN_NS);
	data(&w, 1, DIR_TX, 0, "POST", 31);
	sock(&w, 7, SOCK_CLOSE_REMOTE, 0, 50);
	hint(&w, 1, 4, 0, false, 51);
	conns_tick(w.t, 1000 * MS);
	k.obj = 0x200;
	conns_push_open(w.t, &(struct rec_open){.conn = k, .ts_ns = 2000 * MS, .plain = true});
	conns_push_conn_sock(
		w.t, &(struct rec_conn_sock){.conn = k, .ts_ns = 2000 * MS, .cookie = 0x200, .how = SOCK_ITSELF});
	assert_true(w.last->plain && w.last->bound && !w.last->stdio);
	assert_int_equal(w.last->remote.family, 0);
	assert_int_equal(w.last->setup.connect_end_ns, UNKNOWN_NS);
	assert_log(&w.log, "open 1 fresh\n"
			   "1 tx 31: POST (4)\n"
			   "1 sock 4\n"
			   "1 end remote at 50\n"
			   "open 2\n");
	close_world(&w);
}

/* Delays are the socket's, before and after it is known to be the connection's; the newest are kept. */
static void delays(void **state)
{
	const struct conn_delays *late, *network;
	struct world w;

	(void)state;
	open_world(&w);
	sock(&w, 7, SOCK_LATE, 10, 30);
	sock(&w, 7, SOCK_LATE, 40, 30); /* contradicts itself */
	sock(&w, 7, SOCK_LATE, 0, 30);
	open_conn(&w, 1, true, 31);
	assert_int_equal(w.last->late.count, 0);
	inside(&w, 1, 7, 32);
	late = &w.last->late, network = &w.last->network;
	assert_int_equal(late->count, 1);
	assert_int_equal(network->count, 0);
	assert_int_equal(late->at[0].begin_ns, 10 * MS);
	assert_int_equal(late->at[0].end_ns, 30 * MS);
	assert_int_equal(w.last->reset_ns, UNKNOWN_NS);
	sock(&w, 7, SOCK_RESET_RECEIVED, 0, 33);
	sock(&w, 7, SOCK_RESET_SENT, 0, 34); /* the first counts */
	assert_int_equal(w.last->reset_ns, 33 * MS);
	assert_false(w.last->reset_sent);
	sock(&w, 7, SOCK_RESENT, 33, 40);
	sock(&w, 7, SOCK_HOLE, 41, 50);
	assert_int_equal(network->count, 2);
	assert_int_equal(network->at[1].begin_ns, 41 * MS);
	sock(&w, 7, SOCK_QUEUED, 35, 60); /* what overlaps is one; what touches is not */
	assert_int_equal(network->count, 1);
	assert_int_equal(network->at[0].begin_ns, 33 * MS);
	assert_int_equal(network->at[0].end_ns, 60 * MS);
	sock(&w, 7, SOCK_RESENT, 60, 65);
	sock(&w, 7, SOCK_HOLE, 61, 63);
	assert_int_equal(network->count, 2);
	assert_int_equal(network->at[1].end_ns, 65 * MS);
	for (uint64_t i = 1; i <= CONN_DELAYS_MAX + 3; i++)
		sock(&w, 7, SOCK_LATE, 100 * i, 100 * i + 50);
	assert_int_equal(late->count, CONN_DELAYS_MAX);
	assert_int_equal(late->at[0].begin_ns, 400 * MS);
	assert_int_equal(late->at[CONN_DELAYS_MAX - 1].begin_ns, (CONN_DELAYS_MAX + 3) * 100 * MS);
	sock(&w, 8, SOCK_LATE, 10, 30);
	inside(&w, 1, 8, 9000); /* proof for two sockets: neither's */
	assert_int_equal(late->count, 0);
	assert_int_equal(network->count, 0);
	close_world(&w);
}

static void greeting(struct world *w, uint64_t cookie, enum dir dir, const void *ptr, size_t len)
{
	conns_push_hello(w->t, &(struct rec_hello){.ts_ns = 5 * MS, .cookie = cookie, .dir = dir, .bytes = {ptr, len}});
}

/* TLS 1.2: the server says the session that the client would go on with. */
static void resumed(void **state)
{
	static const char client[] = "\x16\3\1\0\x35\1\0\0\x31\3\3"
				     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
				     "\4sess\0\2\x13\1\1\0";
	static const char server[] = "\2\0\0\x2a\3\3"
				     "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
				     "\4sess\x13\1\0";
	struct world w;

	(void)state;
	open_world(&w);
	open_conn(&w, 1, true, 1);
	assert_int_equal(w.last->setup.tls_resumed, -1);
	greeting(&w, 7, DIR_TX, client, sizeof(client) - 1);
	inside(&w, 1, 7, 6);
	assert_int_equal(w.last->setup.tls_resumed, -1);
	greeting(&w, 7, DIR_RX, server, sizeof(server) - 1);
	assert_int_equal(w.last->setup.tls_resumed, 1);
	greeting(&w, 8, DIR_RX, server, sizeof(server) - 1);
	open_conn(&w, 2, true, 10);
	inside(&w, 2, 8, 11);
	assert_int_equal(w.last->setup.tls_resumed, 0);
	close_world(&w);
}

/* Two pipes of a child: both directions, no socket. */
static void stdio(void **state)
{
	struct conn_key k = key_of(1);
	struct world w;

	(void)state;
	open_world(&w);
	conns_push_open(w.t,
			&(struct rec_open){.conn = k, .ts_ns = 31 * MS, .fresh = true, .plain = true, .stdio = true});
	data(&w, 1, DIR_TX, 0, "{\"id\"", 31);
	data(&w, 1, DIR_RX, 0, "{\"id\"", 32);
	assert_true(w.last->plain && w.last->stdio && !w.last->bound);
	hint(&w, 1, 5, 5, false, 51);
	conns_tick(w.t, 1000 * MS);
	assert_log(&w.log, "open 1 fresh\n"
			   "1 tx 31: {\"id\" (5)\n"
			   "1 rx 32: {\"id\" (5)\n"
			   "1 end unknown at 51\n");
	close_world(&w);
}

/* A TLS connection over a socket that began in plain text (a proxy's) takes the socket over. */
static void plain_turns_to_tls(void **state)
{
	struct conn_key k = key_of(1);
	struct world w;

	(void)state;
	open_world(&w);
	k.obj = 7;
	sock(&w, 7, SOCK_CONNECTED, 10, 30);
	conns_push_open(w.t, &(struct rec_open){.conn = k, .ts_ns = 31 * MS, .fresh = true, .plain = true});
	conns_push_conn_sock(w.t,
			     &(struct rec_conn_sock){.conn = k, .ts_ns = 31 * MS, .cookie = 7, .how = SOCK_ITSELF});
	conns_push_close(w.t, &(struct rec_close){.conn = k, .ts_ns = 40 * MS});
	open_conn(&w, 2, true, 41);
	inside(&w, 2, 7, 42);
	assert_true(w.last->bound && !w.last->plain);
	assert_int_equal(w.last->setup.connect_end_ns, 30 * MS);
	sock(&w, 7, SOCK_RETRANSMIT, 0, 71);
	assert_int_equal(w.last->retransmits, 1);
	close_world(&w);
}

/* CONN_OPEN was lost: the bytes say what it would have said. */
static void bytes_of_a_fresh_connection(void **state)
{
	struct rec_data r = {
		.conn = key_of(1), .at = {.ts_ns = MS}, .pos = 3, .ptr = (const uint8_t *)"a", .len = 1, .orig_len = 1};
	struct world w;

	(void)state;
	open_world(&w);
	r.fresh = true;
	conns_push_data(w.t, &r);
	assert_true(w.last->fresh);
	conns_tick(w.t, 1000 * MS);
	assert_log(&w.log, "open 1 fresh\n1 tx gap 3\n1 tx 1: a (4)\n");
	close_world(&w);
}

static void reached(struct world *w, uint32_t gen, uint64_t tx, uint64_t rx, uint64_t ms)
{
	conns_push_pos(w->t, &(struct rec_pos){.conn = key_of(gen), .ts_ns = ms * MS, .pos = {tx, rx}});
}

/* The last bytes are missing, and nothing came after them but the word of how far it went. */
static void tail_is_lost(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	open_conn(&w, 1, true, 1);
	data(&w, 1, DIR_RX, 0, "abc", 2);
	reached(&w, 1, 10, 0, 3);
	reached(&w, 1, 0, 2, 3); /* known better by now */
	data(&w, 1, DIR_TX, 10, "d", 4);
	reached(&w, 1, 0, 9, 5);
	exit_of(&w, 0, 0, 6);
	conns_tick(w.t, 200 * MS);
	reached(&w, 2, 0, 7, 201); /* nothing else came of it */
	conns_finish(w.t, 300 * MS);
	assert_log(&w.log, "open 1 fresh\n"
			   "1 rx 2: abc (3)\n"
			   "1 tx gap 10\n"
			   "1 tx 4: d (11)\n"
			   "1 rx gap 6\n"
			   "1 end exit at 6 0/0\n"
			   "open 2\n"
			   "2 rx gap -1\n"
			   "2 end capture at 300\n");
	assert_int_equal(w.lost.n[LOST_EVENTS], 3);
	close_world(&w);
}

/* Whatever order the end of a connection and the word of what it lost come in: the loss is told before the end; or,
 * when it is too late for that, counted. */
static void tail_and_reset(void **state)
{
	for (unsigned order = 0; order < 24; order++) {
		unsigned left = order, done = 0;
		struct world w;

		(void)state;
		open_world(&w);
		open_conn(&w, 1, true, 1);
		inside(&w, 1, 7, 2);
		data(&w, 1, DIR_TX, 0, "ask", 3);
		data(&w, 1, DIR_RX, 0, "abc", 4);
		for (unsigned n = 4; n; n--) { /* a permutation of four by its number */
			unsigned pick = left % n, what = 0;

			left /= n;
			while (done >> what & 1 || pick--)
				what++;
			done |= 1u << what;
			if (what == 0)
				sock(&w, 7, SOCK_RESET_SENT, 0, 10);
			else if (what == 1)
				sock(&w, 7, SOCK_CLOSED, 0, 11);
			else if (what == 2)
				conns_push_close(
					w.t, &(struct rec_close){.conn = key_of(1), .ts_ns = 12 * MS, .local = true});
			else
				reached(&w, 1, 0, 9, 9);
			assert_true(conn_waits(w.last, DIR_RX) == (done >> 3 & 1));
		}
		conns_tick(w.t, 2000 * MS);
		assert_non_null(strstr(w.log.text, "1 rx gap 6\n1 end local at 10"));
		assert_int_equal(w.lost.n[LOST_BYTES], 6);
		close_world(&w);
	}
}

/* Its last word comes when no bytes can follow; that it was left is told at once. */
static void left(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	open_conn(&w, 1, true, 1);
	data(&w, 1, DIR_RX, 0, "abc", 4);
	assert_int_equal(w.closing, 0);
	hint(&w, 1, 0, 3, true, 12);
	assert_true(w.closing == 1 && w.closing_ns == 12 * MS && w.open == 1);
	hint(&w, 1, 0, 3, true, 13);
	conns_tick(w.t, 2000 * MS);
	assert_true(w.closing == 1 && w.open == 0);
	/* not of one that ends with its process */
	open_conn(&w, 2, true, 2001);
	data(&w, 2, DIR_RX, 0, "abc", 2002);
	exit_of(&w, 0, 9, 2003);
	close_world(&w);
	assert_int_equal(w.closing, 1);
}

static void tail_of_ended(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	open_conn(&w, 1, true, 1);
	data(&w, 1, DIR_RX, 0, "abc", 4);
	conns_push_close(w.t, &(struct rec_close){.conn = key_of(1), .ts_ns = 12 * MS});
	conns_tick(w.t, 2000 * MS);
	reached(&w, 1, 0, 9, 9);
	reached(&w, 1, 0, 9, 9);
	assert_int_equal(w.lost.n[LOST_EVENTS], 1);
	assert_int_equal(w.lost.n[LOST_BYTES], 6);
	close_world(&w);
}

/* The word of a loss comes before the connection's first bytes are read: they are its first ones all the same. */
static void tail_before_bytes(void **state)
{
	struct rec_data r = {.conn = key_of(1),
			     .at = {.ts_ns = 2 * MS},
			     .ptr = (const uint8_t *)"a",
			     .len = 1,
			     .orig_len = 1,
			     .fresh = true};
	struct world w;

	(void)state;
	open_world(&w);
	reached(&w, 1, 5, 0, 1);
	conns_push_data(w.t, &r);
	assert_true(w.last->fresh && conn_waits(w.last, DIR_TX));
	conns_finish(w.t, 3 * MS);
	assert_non_null(strstr(w.log.text, "1 tx gap 4\n"));
	close_world(&w);
}

/* The end of a request is missing, and its program writes no more: that is told while its answer is read, or once it
 * has been waited for as for bytes in the middle. */
static void tail_of_what_goes_no_further(void **state)
{
	static char answer[CONN_AHEAD_BYTES + 2];
	struct world w;

	(void)state;
	open_world(&w);
	open_conn(&w, 1, true, 1);
	data(&w, 1, DIR_TX, 0, "ask", 2);
	reached(&w, 1, 10, 0, 3);
	data(&w, 1, DIR_RX, 0, "abc", 4);
	data(&w, 1, DIR_TX, 3, "more", 400); /* late, of another processor */
	tick(&w, 490);
	assert_log(&w.log, "open 1 fresh\n1 tx 2: ask (3)\n1 rx 4: abc (3)\n1 tx 400: more (7)\n");
	assert_true(conn_waits(w.last, DIR_TX));
	tlog_free(&w.log);
	tick(&w, 503);
	assert_false(conn_waits(w.last, DIR_TX));
	data(&w, 1, DIR_TX, 10, "next", 600);
	assert_log(&w.log, "1 tx gap 3\n1 tx 600: next (14)\n");
	reached(&w, 1, 20, 0, 700);
	memset(answer, 'x', sizeof(answer) - 1);
	data(&w, 1, DIR_RX, 3, answer, 701);
	assert_non_null(strstr(w.log.text, "1 tx gap 6\n1 rx 701: x"));
	assert_int_equal(w.lost.n[LOST_BYTES], 9);
	close_world(&w);
}

/* What was written before answers that are read now does not come any more. */
static void hole_while_the_other_way_goes_on(void **state)
{
	static char answer[CONN_AHEAD_BYTES / 2 + 1];
	struct world w;

	(void)state;
	open_world(&w);
	memset(answer, 'x', sizeof(answer) - 1);
	open_conn(&w, 1, true, 1);
	data(&w, 1, DIR_RX, 0, answer, 2); /* before the hole: does not count */
	data(&w, 1, DIR_TX, 4, "POST", 3);
	data(&w, 1, DIR_RX, sizeof(answer) - 1, answer, 4);
	data(&w, 1, DIR_RX, 2 * (sizeof(answer) - 1), answer, 5);
	tlog_free(&w.log);
	data(&w, 1, DIR_RX, 3 * (sizeof(answer) - 1), "y", 6);
	assert_log(&w.log, "1 tx gap 4\n1 tx 3: POST (8)\n1 rx 6: y (49153)\n");
	close_world(&w);
}

static void set_up(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	sock(&w, 7, SOCK_CONNECTED, 10, 30);
	conns_push_handshake(w.t,
			     &(struct rec_handshake){
				     .conn = key_of(1), .begin_ns = 31 * MS, .end_ns = 60 * MS, .approximate = true});
	conns_push_handshake(w.t, &(struct rec_handshake){.conn = key_of(1), .begin_ns = 80 * MS, .end_ns = 90 * MS});
	assert_false(w.last->bound);
	assert_int_equal(w.last->setup.connect_end_ns, UNKNOWN_NS);
	inside(&w, 1, 7, 61);
	assert_true(w.last->bound);
	assert_int_equal(w.last->cookie, 7);
	assert_int_equal(w.last->remote.ip[3], 7);
	assert_int_equal(w.last->setup.connect_begin_ns, 10 * MS);
	assert_int_equal(w.last->setup.connect_end_ns, 30 * MS);
	assert_int_equal(w.last->setup.tls_begin_ns, 31 * MS);
	assert_int_equal(w.last->setup.tls_end_ns, 60 * MS);
	assert_true(w.last->setup.tls_approximate);
	assert_int_equal(w.last->open_ns, 31 * MS);
	conns_push_sock(w.t, &(struct rec_sock){.ts_ns = 70 * MS, .cookie = 7, .what = SOCK_RTT, .srtt_us = 1500});
	sock(&w, 7, SOCK_RETRANSMIT, 0, 71);
	sock(&w, 8, SOCK_RETRANSMIT, 0, 71); /* another's */
	sock(&w, 7, SOCK_RETRANSMIT, 0, 72);
	assert_int_equal(w.last->srtt_us, 1500);
	assert_int_equal(w.last->retransmits, 2);
	conns_push_sock(w.t, &(struct rec_sock){.ts_ns = 73 * MS, .cookie = 7, .what = SOCK_RTT_MIN, .srtt_us = 900});
	assert_int_equal(w.last->srtt_us, 1500);
	assert_int_equal(w.last->rtt_min_us, 900);
	assert_log(&w.log, "open 1\n1 sock 9\n1 sock 6\n1 sock 6\n1 sock 13\n");
	close_world(&w);
}

static void connected(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	conns_push_sock(w.t, &(struct rec_sock){.ts_ns = 60 * MS,
						.begin_ns = 10 * MS,
						.cookie = 7,
						.tid = 43,
						.what = SOCK_CONNECTED,
						.srtt_us = 800});
	open_conn(&w, 1, true, 60);
	inside(&w, 1, 7, 60);
	assert_int_equal(w.last->setup.connect_begin_ns, 10 * MS);
	assert_int_equal(w.last->setup.connect_end_ns, 60 * MS);
	assert_int_equal(w.last->setup.tid, 43);
	assert_int_equal(w.last->rtt_min_us, 800);
	close_world(&w);
}

/* To connect through a proxy takes until it answers, the last time. What it answers to nobody knows began is nothing.
 */
static void through_a_proxy(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	sock(&w, 7, SOCK_CONNECTED, 10, 30);
	sock(&w, 7, SOCK_PROXY, 0, 40);
	sock(&w, 7, SOCK_PROXY, 0, 300);
	sock(&w, 8, SOCK_PROXY, 0, 310);
	for (uint64_t cookie = 7; cookie < 9; cookie++) {
		open_conn(&w, cookie, true, 320);
		inside(&w, cookie, cookie, 320);
		assert_int_equal(w.last->setup.connect_begin_ns, cookie == 7 ? 10 * MS : UNKNOWN_NS);
		assert_int_equal(w.last->setup.connect_end_ns, cookie == 7 ? 300 * MS : UNKNOWN_NS);
	}
	close_world(&w);
}

static void votes(void **state)
{
	static const struct {
		uint32_t plain, wire;
		bool confirmed;
	} rows[] = {
		{500, 522, true},
		{500, 521, true},
		{500, 529, true}, /* TLS 1.3, 1.2 ChaCha20, 1.2 GCM */
		{500, 544, true},
		{500, 610, true}, /* 2 and 5 records */
		{500, 632, false},
		{500, 500, false},
		{500, 523, false},
		{500, 400, false},
		{500, 5000, false},
		{0, 22, false},
		{16384, 16384 + 22, true},
		{16385, 16385 + 22, false}, /* needs two */
		{16385, 16385 + 44, true},
		{40000, 40000 + 66, true},
		{40000, 40000 + 44, false},
		{UINT32_MAX, 22, false},
		{UINT32_MAX - 10, UINT32_MAX, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w;

		open_world(&w);
		data(&w, 1, DIR_TX, 0, "a", 1);
		socket_vote(&w, 1, SOCK_BEFORE_READ, 7, rows[i].plain, rows[i].wire, 2);
		assert_false(w.last->bound); /* one read is not enough */
		socket_vote(&w, 1, SOCK_BEFORE_READ, 7, rows[i].plain, rows[i].wire, 3);
		assert_int_equal(w.last->bound, rows[i].confirmed);
		close_world(&w);
	}
}

/* The first request leaves together with the end of the handshake. */
static void first_write_after_the_handshake(void **state)
{
	static const struct {
		uint32_t more;
		bool confirmed;
	} rows[] = {{22 + 58, true},	  {22 + 74, true},     {22 + 64, true},	 {22 + 80, true},
		    {22 + 6, false},	  {57, false},	       {80 - 1, false},	 {5 * 22 + 74, true},
		    {6 * 22 + 74, false}, {21 + 58 + 1, true}, {29 + 74, false}, {74 + 74, false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (int how = 0; how < 4; how++) {
			bool fresh = how != 1;
			struct world w;

			open_world(&w);
			open_conn(&w, 1, fresh, 1);
			data(&w, 1, DIR_TX, 0, "a", 1);
			if (how == 2) /* not the first */
				socket_vote(&w, 1, SOCK_AFTER_WRITE, 7, 10, 5, 1);
			socket_vote(&w, 1, how == 3 ? SOCK_BEFORE_READ : SOCK_AFTER_WRITE, 7, 300, 300 + rows[i].more,
				    2);
			assert_int_equal(w.last->bound, how == 0 && rows[i].confirmed);
			close_world(&w);
		}
	}
}

static void one_large_write_is_enough_when_alone(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	socket_vote(&w, 1, SOCK_AFTER_WRITE, 7, 127, 149, 1);
	assert_false(w.last->bound);
	close_world(&w);

	open_world(&w);
	socket_vote(&w, 1, SOCK_AFTER_WRITE, 7, 128, 150, 1);
	assert_true(w.last->bound);
	close_world(&w);

	open_world(&w); /* another socket was about, though without a matching size */
	socket_vote(&w, 1, SOCK_BEFORE_READ, 8, 100, 50, 1);
	socket_vote(&w, 1, SOCK_AFTER_WRITE, 7, 1000, 1022, 2);
	assert_false(w.last->bound);
	socket_vote(&w, 1, SOCK_AFTER_WRITE, 7, 1000, 1022, 3);
	assert_true(w.last->bound);
	assert_int_equal(w.last->cookie, 7);
	socket_vote(&w, 1, SOCK_AFTER_WRITE, 8, 30, 52, 4); /* now two have confirmed votes: not known any more */
	assert_false(w.last->bound);
	assert_int_equal(w.last->remote.family, 0);
	for (int i = 0; i < 5; i++)
		socket_vote(&w, 1, SOCK_AFTER_WRITE, 7, 1000, 1022, 5);
	assert_false(w.last->bound);
	inside(&w, 1, 8, 6); /* proof beats votes */
	assert_true(w.last->bound);
	assert_int_equal(w.last->cookie, 8);
	inside(&w, 1, 7, 7); /* and proof against proof */
	assert_false(w.last->bound);
	inside(&w, 1, 7, 8);
	assert_false(w.last->bound);
	close_world(&w);
}

/* An asyncio proxy: every socket call of the loop is near every TLS call. Its client's socket belongs to another
 * connection. */
static void sockets_of_others_do_not_stand(void **state)
{
	struct world w;
	struct conn_key k = key_of(2);

	(void)state;
	open_world(&w);
	inside(&w, 1, 7, 1);
	k.obj = 0x200;
	data_of(&w, &k, DIR_TX, 0, "a", 2);
	for (int i = 0; i < 3; i++)
		conns_push_conn_sock(w.t, &(struct rec_conn_sock){.conn = k,
								  .ts_ns = 3 * MS,
								  .cookie = 7,
								  .plain_len = 1000,
								  .wire_len = 1022,
								  .how = SOCK_AFTER_WRITE});
	assert_int_equal(w.last->key.obj, 0x200);
	assert_false(w.last->bound);
	close_world(&w);
}

/* Connections of one event loop, that do their TLS in memory. */
struct loop {
	struct world w;
	const struct conn *conn[3];
	uint64_t pos[3][2];
};

static struct conn_key key_in_loop(unsigned i)
{
	struct conn_key k = key_of(1);

	k.obj = 0x1000 + i;
	return k;
}

static void moves(struct loop *l, unsigned i, enum dir dir, uint32_t len, uint64_t ms)
{
	struct conn_key k = key_in_loop(i);

	conns_push_data(l->w.t, &(struct rec_data){.conn = k,
						   .dir = dir,
						   .at = {.entry_ns = ms * MS, .ts_ns = ms * MS, .tid = 42},
						   .pos = l->pos[i][dir],
						   .ptr = (const uint8_t *)"",
						   .orig_len = len});
	l->pos[i][dir] += len;
	if (!l->conn[i])
		l->conn[i] = l->w.last;
}

static void elects(struct loop *l, unsigned i, enum sock_how how, uint64_t cookie, uint32_t plain, uint64_t ms)
{
	conns_push_conn_sock(l->w.t, &(struct rec_conn_sock){.conn = key_in_loop(i),
							     .ts_ns = ms * MS,
							     .cookie = cookie,
							     .how = how,
							     .plain_len = plain,
							     .wire_len = plain + 22});
}

static void open_loop(struct loop *l)
{
	*l = (struct loop){0};
	open_world(&l->w);
	l->w.quiet = true;
}

/* The first send after a write may be what another connection had encrypted before. */
static void sends_that_may_be_of_others(void **state)
{
	static const struct {
		const char *name;
		uint32_t before[2];
		int answered;
		uint64_t elsewhere, ms;
		bool bound;
	} rows[] = {
		{"nobody else", {0}, 0, 0, 2, true},
		{"as much", {500}, 0, 0, 2, false},
		{"as much, in one piece of two", {40, 500}, 0, 0, 2, false},
		{"as much in two pieces", {200, 300}, 0, 0, 2, false},
		{"less", {499}, 0, 0, 2, true},
		{"as much, and it is answered", {500}, 1, 0, 2, true},
		{"as much, a second ago", {500}, 0, 0, 1002, true},
		{"as much, by one whose socket is known", {500}, 0, 8, 2, true},
		{"as much, by one whose socket is this one", {500}, 0, 7, 2, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct loop l;

		open_loop(&l);
		for (int k = 0; rows[i].elsewhere && k < 2; k++) {
			moves(&l, 0, DIR_TX, 900, 0);
			elects(&l, 0, SOCK_AFTER_WRITE, rows[i].elsewhere, 900, 0);
		}
		for (int k = 0; k < 2 && rows[i].before[k]; k++)
			moves(&l, 0, DIR_TX, rows[i].before[k], 1);
		if (rows[i].answered)
			moves(&l, 0, DIR_RX, 10, 1);
		moves(&l, 1, DIR_TX, 500, rows[i].ms);
		elects(&l, 1, SOCK_AFTER_WRITE, 7, 500, rows[i].ms);
		if (l.conn[1]->bound != rows[i].bound)
			fail_msg("%s: %d", rows[i].name, l.conn[1]->bound);
		close_world(&l.w);
	}
}

/* In turns, each sent at once: nothing is in doubt. */
static void sends_in_turns(void **state)
{
	struct loop l;

	(void)state;
	open_loop(&l);
	for (unsigned i = 0; i < 3; i++) {
		moves(&l, i, DIR_TX, 500, 1);
		elects(&l, i, SOCK_AFTER_WRITE, 10 + i, 500, 1);
	}
	for (unsigned i = 0; i < 3; i++)
		assert_true(l.conn[i]->bound && l.conn[i]->cookie == 10 + i);
	close_world(&l.w);
}

/* The last receive before a read may be what another connection reads after it. */
static void receives_that_may_be_of_others(void **state)
{
	struct loop l;

	(void)state;
	open_loop(&l);
	moves(&l, 1, DIR_TX, 1, 0);
	for (uint64_t ms = 1; ms < 4; ms++) {
		moves(&l, 0, DIR_RX, 500, ms);
		elects(&l, 0, SOCK_BEFORE_READ, 7, 500, ms);
	}
	assert_true(l.conn[0]->bound);
	/* one that has a receive of its own is no rival, nor one that reads something else */
	moves(&l, 1, DIR_RX, 500, 4);
	elects(&l, 1, SOCK_BEFORE_READ, 8, 500, 4);
	moves(&l, 1, DIR_RX, 20, 4);
	elects(&l, 0, SOCK_BEFORE_READ, 7, 500, 5);
	moves(&l, 1, DIR_RX, 400, 5);
	moves(&l, 1, DIR_RX, 20, 5);
	assert_true(l.conn[0]->bound && l.conn[0]->cookie == 7);
	assert_false(l.conn[1]->bound);
	close_world(&l.w);

	open_loop(&l);
	moves(&l, 1, DIR_TX, 1, 0);
	for (uint64_t ms = 1; ms < 3; ms++) { /* both were received, then both are read */
		moves(&l, 0, DIR_RX, 500, ms);
		elects(&l, 0, SOCK_BEFORE_READ, 8, 500, ms);
		moves(&l, 1, DIR_RX, 500, ms);
	}
	moves(&l, 2, DIR_TX, 1, 3);
	assert_false(l.conn[0]->bound);
	assert_false(l.conn[1]->bound);
	close_world(&l.w);
}

/* One that was proven to use two sockets is never bound again, whatever becomes of votes. */
static void contested_takes_no_vote_back(void **state)
{
	struct loop l;

	(void)state;
	open_loop(&l);
	moves(&l, 1, DIR_TX, 1, 0);
	for (uint64_t ms = 1; ms < 5; ms++) {
		moves(&l, 0, DIR_RX, 500, ms);
		elects(&l, 0, SOCK_BEFORE_READ, 7, 500, ms);
	}
	elects(&l, 0, SOCK_INSIDE, 8, 500, 5);
	assert_true(l.conn[0]->bound && l.conn[0]->cookie == 8);
	elects(&l, 0, SOCK_INSIDE, 9, 500, 6);
	assert_false(l.conn[0]->bound);
	moves(&l, 0, DIR_RX, 500, 7);
	elects(&l, 0, SOCK_BEFORE_READ, 7, 500, 7);
	moves(&l, 1, DIR_RX, 500, 7);
	moves(&l, 1, DIR_TX, 1, 8);
	assert_false(l.conn[0]->bound);
	close_world(&l.w);
}

static void many_candidates(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	for (uint64_t cookie = 1; cookie < 100; cookie++)
		socket_vote(&w, 1, SOCK_BEFORE_READ, cookie, 100, 7, 1);
	for (int i = 0; i < 3; i++)
		socket_vote(&w, 1, SOCK_AFTER_WRITE, 99, 1000, 1022, 2); /* came too late to be a candidate */
	assert_false(w.last->bound);
	socket_vote(&w, 1, SOCK_AFTER_WRITE, 0, 1000, 1022, 3); /* no socket */
	close_world(&w);
}

/* --- bounds ------------------------------------------------------------------------------------------------------ */

static void longest_silent_goes(void **state)
{
	struct world w;
	struct conn_key k = key_of(1);

	(void)state;
	open_world(&w);
	w.quiet = true;
	for (uint32_t i = 0; i < CONN_MAX; i++) {
		k.obj = 0x1000 + i;
		k.gen = i;
		data_of(&w, &k, DIR_TX, 0, "x", 1);
	}
	k.obj = 0x1000;
	k.gen = 0;
	data_of(&w, &k, DIR_TX, 1, "y", 2); /* the first speaks again: the second is the longest silent */
	w.quiet = false;
	data(&w, 70000, DIR_TX, 0, "z", 3);
	assert_log(&w.log, "2 end limit at 3\nopen 65537\n65537 tx 3: z (1)\n");
	assert_int_equal(w.open, CONN_MAX);
	assert_int_equal(w.lost.n[LOST_NO_MEMORY], 1);
	k.obj = 0x1001;
	k.gen = 1;
	data_of(&w, &k, DIR_TX, 1, "again", 4); /* a new one, that goes on where the old one was */
	assert_non_null(strstr(w.log.text, "open 65538\n65538 tx 4: again (6)\n"));
	w.quiet = true;
	close_world(&w);
}

static void many_sockets(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	inside(&w, 1, 1, 1);
	for (uint64_t cookie = 2; cookie < CONN_SOCKS_MAX + 100; cookie++)
		sock(&w, cookie, SOCK_CONNECTED, 1, 2);
	sock(&w, 1, SOCK_CLOSE_REMOTE, 0, 3); /* bound: not forgotten */
	assert_log(&w.log, "open 1\n1 sock 4\n");
	inside(&w, 2, 50, 4); /* forgotten */
	assert_int_equal(w.last->setup.connect_end_ns, UNKNOWN_NS);
	close_world(&w);
}

static void counting(void *ctx, struct conn *c)
{
	(void)c;
	++*(unsigned *)ctx;
}

static void everything(struct world *w)
{
	unsigned n = 0;

	sock(w, 7, SOCK_CONNECTED, 1, 2);
	open_conn(w, 1, true, 3);
	conns_push_handshake(w->t, &(struct rec_handshake){.conn = key_of(1), .begin_ns = 3 * MS, .end_ns = 4 * MS});
	inside(w, 1, 7, 4);
	data(w, 1, DIR_TX, 0, "a", 5);
	data(w, 1, DIR_RX, 3, "d", 6);
	data(w, 1, DIR_RX, 0, "abc", 7);
	conns_push_gap(w->t, &(struct rec_gap){.conn = key_of(1), .dir = DIR_RX, .pos = 9, .ts_ns = 8 * MS});
	open_conn(w, 2, true, 9);
	data(w, 2, DIR_TX, 0, "b", 10);
	tick(w, 200);
	hint(w, 2, 1, 0, false, 201);
	tick(w, 400);
	data(w, 2, DIR_TX, 1, "c", 500);
	exit_of(w, 0, 0, 600);
	conns_each(w->t, counting, &n);
	tick(w, 1000);
}

static void without_memory(void **state)
{
	(void)state;
	for (unsigned n = 1;; n++) {
		struct world w;
		bool hit;

		open_world(&w);
		fail_nth(n);
		everything(&w);
		hit = fail_nth_hit();
		fail_nth(0);
		close_world(&w);
		if (!hit)
			break;
		assert_true(n < 100);
	}
	fail_nth(1);
	assert_null(conns_new(NULL, &(struct conn_sink){0}));
	assert_int_equal(errno, ENOMEM);
	fail_nth(0);
}

/* Freed in the middle: nothing leaks. And a sink without callbacks. */
static void freed_early(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	data(&w, 1, DIR_TX, 0, "a", 1);
	data(&w, 1, DIR_TX, 5, "a", 1);
	inside(&w, 1, 7, 2);
	conns_free(w.t);
	w.t = conns_new(&w.lost, &(struct conn_sink){0});
	everything(&w);
	conns_finish(w.t, 2000 * MS);
	conns_free(w.t);
	tlog_free(&w.log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_directions),
		cmocka_unit_test(soon),
		cmocka_unit_test(losses_are_counted),
		cmocka_unit_test(hole_times_out),
		cmocka_unit_test(freed_by_nobody_knows_whom),
		cmocka_unit_test(time_passes_by_other_connections),
		cmocka_unit_test(closed_by),
		cmocka_unit_test(bytes_after_the_fin),
		cmocka_unit_test(closed_socket_is_enough),
		cmocka_unit_test(process_ends),
		cmocka_unit_test(who_came_before_the_exit),
		cmocka_unit_test(program_is_replaced),
		cmocka_unit_test(object_is_reused),
		cmocka_unit_test(object_lives_on),
		cmocka_unit_test(end_of_capture),
		cmocka_unit_test(all_of_it_was_lost),
		cmocka_unit_test(bytes_of_a_fresh_connection),
		cmocka_unit_test(tail_is_lost),
		cmocka_unit_test(tail_and_reset),
		cmocka_unit_test(left),
		cmocka_unit_test(tail_of_ended),
		cmocka_unit_test(tail_before_bytes),
		cmocka_unit_test(tail_of_what_goes_no_further),
		cmocka_unit_test(hole_while_the_other_way_goes_on),
		cmocka_unit_test(set_up),
		cmocka_unit_test(through_a_proxy),
		cmocka_unit_test(connected),
		cmocka_unit_test(plain),
		cmocka_unit_test(delays),
		cmocka_unit_test(resumed),
		cmocka_unit_test(stdio),
		cmocka_unit_test(plain_turns_to_tls),
		cmocka_unit_test(votes),
		cmocka_unit_test(first_write_after_the_handshake),
		cmocka_unit_test(one_large_write_is_enough_when_alone),
		cmocka_unit_test(sockets_of_others_do_not_stand),
		cmocka_unit_test(sends_that_may_be_of_others),
		cmocka_unit_test(sends_in_turns),
		cmocka_unit_test(receives_that_may_be_of_others),
		cmocka_unit_test(contested_takes_no_vote_back),
		cmocka_unit_test(many_candidates),
		cmocka_unit_test(longest_silent_goes),
		cmocka_unit_test(many_sockets),
		cmocka_unit_test(without_memory),
		cmocka_unit_test(freed_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
