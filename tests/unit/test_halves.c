/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include "flow/halves.h"

#define MS 1000000ull

struct world {
	struct tlog log;
	struct lost lost;
	struct halves *t;
};

#define PRINT(...) tlog_printf(&((struct world *)ctx)->log, __VA_ARGS__)

static void print_conn(void *ctx, const struct conn_key *k)
{
	PRINT("%u/%u sock %llu gen %u", k->tgid, k->exec_id, (unsigned long long)k->obj, k->gen);
}

static void on_open(void *ctx, const struct rec_open *r)
{
	PRINT("%s", "open ");
	print_conn(ctx, &r->conn);
	assert_true(r->half && !r->plain && !r->stdio);
	PRINT("%s\n", r->fresh ? " fresh" : "");
}

static void on_data(void *ctx, const struct rec_data *r)
{
	PRINT("gen %u %s %llu ", r->conn.gen, r->dir == DIR_TX ? "tx" : "rx", (unsigned long long)r->pos);
	tlog_escaped(&((struct world *)ctx)->log, r->ptr, r->len);
	assert_false(r->half);
	PRINT("%s\n", r->orig_len > r->len ? " cut" : "");
}

static void on_gap(void *ctx, const struct rec_gap *r)
{
	assert_false(r->half);
	PRINT("gen %u %s gap at %llu\n", r->conn.gen, r->dir == DIR_TX ? "tx" : "rx", (unsigned long long)r->pos);
}

static void on_pos(void *ctx, const struct rec_pos *r)
{
	assert_false(r->half);
	PRINT("gen %u reached %llu,%llu\n", r->conn.gen, (unsigned long long)r->pos[0], (unsigned long long)r->pos[1]);
}

static void on_handshake(void *ctx, const struct rec_handshake *r)
{
	assert_false(r->half);
	PRINT("gen %u handshake %llu-%llu\n", r->conn.gen, (unsigned long long)r->begin_ns,
	      (unsigned long long)r->end_ns);
}

static void on_conn_sock(void *ctx, const struct rec_conn_sock *r)
{
	assert_false(r->half);
	assert_int_equal(r->how, SOCK_ITSELF);
	assert_int_equal(r->conn.obj, r->cookie);
	PRINT("gen %u is socket %llu port %u\n", r->conn.gen, (unsigned long long)r->cookie, r->remote.port);
}

static void on_unpaired(void *ctx, const struct conn_key *key, enum dir dir)
{
	PRINT("unpaired gen %u %s\n", key->gen, dir == DIR_TX ? "tx" : "rx");
}

static void on_ignored(void *ctx, const struct conn_key *key, uint32_t answers, bool ignored)
{
	PRINT("gen %u %s, answers on %u\n", key->gen, ignored ? "ignored" : "wanted", answers);
}

static bool open_world(struct world *w)
{
	*w = (struct world){0};
	w->t = halves_new(&w->lost, &(struct halves_sink){w, on_open, on_data, on_gap, on_pos, on_handshake,
							  on_conn_sock, on_unpaired, on_ignored});
	return w->t != NULL;
}

static void close_world(struct world *w)
{
	halves_finish(w->t);
	halves_free(w->t);
	tlog_free(&w->log);
}

static void expect_end(struct world *w, const char *golden, uint64_t unpaired)
{
	halves_finish(w->t);
	assert_log(&w->log, golden);
	assert_int_equal(w->lost.n[LOST_UNPAIRED_BYTES], unpaired);
	close_world(w);
}

/* A cipher of process 42 (4: another one). */
static struct conn_key cipher(uint32_t gen)
{
	return (struct conn_key){.tgid = 42, .exec_id = 1, .start_ns = 5, .obj = 0x1000 + gen, .gen = gen};
}

static void data_of(struct world *w, struct conn_key key, enum dir dir, uint64_t pos, const char *text)
{
	halves_push_data(w->t, &(struct rec_data){
				       .conn = key,
				       .dir = dir,
				       .at = {.entry_ns = 7 * MS, .ts_ns = 7 * MS},
				       .pos = pos,
				       .ptr = (const uint8_t *)text,
				       .len = (uint32_t)strlen(text),
				       .orig_len = (uint32_t)strlen(text),
				       .half = true,
			       });
}

static void data(struct world *w, uint32_t gen, enum dir dir, uint64_t pos, const char *text)
{
	data_of(w, cipher(gen), dir, pos, text);
}

static void tie_of(struct world *w, struct conn_key key, enum dir dir, uint64_t cookie)
{
	halves_push_conn_sock(w->t, &(struct rec_conn_sock){
					    .conn = key,
					    .ts_ns = 8 * MS,
					    .cookie = cookie,
					    .remote = {.family = 2, .port = 443},
					    .how = SOCK_RECORDS,
					    .dir = dir,
					    .half = true,
					    .fresh = true,
				    });
}

static void tie(struct world *w, uint32_t gen, enum dir dir, uint64_t cookie)
{
	tie_of(w, cipher(gen), dir, cookie);
}

/* A client's connection: the handshake has keys of its own, the request waits for its socket, keys change. */
static void play_life(struct world *w)
{
	struct conn_key finished = cipher(1);

	tie(w, 1, DIR_TX, 77);
	halves_push_handshake(w->t,
			      &(struct rec_handshake){.conn = finished, .begin_ns = 3, .end_ns = 4, .half = true});
	data(w, 3, DIR_TX, 0, "POST ");
	data(w, 3, DIR_TX, 5, "body");
	tie(w, 3, DIR_TX, 77);
	data(w, 3, DIR_TX, 9, "!");
	tie(w, 4, DIR_RX, 77); /* session tickets */
	data(w, 4, DIR_RX, 0, "200 OK");
	halves_push_gap(w->t, &(struct rec_gap){.conn = cipher(4), .dir = DIR_RX, .pos = 6, .half = true});
	data(w, 5, DIR_RX, 0, "new key");
	halves_push_gap(w->t, &(struct rec_gap){.conn = cipher(5), .dir = DIR_RX, .pos = 7, .half = true});
	halves_push_pos(w->t, &(struct rec_pos){.conn = cipher(5), .pos = {0, 9}, .half = true});
	tie(w, 5, DIR_RX, 77);
	data(w, 5, DIR_RX, 12, "end");
	halves_push_pos(w->t, &(struct rec_pos){.conn = cipher(5), .pos = {0, 20}, .half = true});
	data(w, 6, DIR_RX, 0, "third key");
	tie(w, 6, DIR_RX, 77);
}

static const char golden_life[] = "open 42/1 sock 77 gen 1 fresh\n"
				  "gen 1 is socket 77 port 443\n"
				  "gen 1 handshake 3-4\n"
				  "gen 1 tx 0 POST \n"
				  "gen 1 tx 5 body\n"
				  "gen 1 tx 9 !\n"
				  "gen 1 rx 0 200 OK\n"
				  "gen 1 rx gap at 6\n"
				  "gen 1 rx 6 new key\n"
				  "gen 1 rx gap at 13\n"
				  "gen 1 reached 0,15\n"
				  "gen 1 rx 18 end\n"
				  "gen 1 reached 0,26\n"
				  "gen 1 rx 26 third key\n";

static void life(void **state)
{
	struct world w;

	(void)state;
	assert_true(open_world(&w));
	play_life(&w);
	expect_end(&w, golden_life, 0);
}

/* Whatever allocation fails: no crash, no leak, and it is counted. */
static void no_memory(void **state)
{
	(void)state;
	for (unsigned n = 1;; n++) {
		struct world w;
		bool hit, opened;

		fail_nth(n);
		opened = open_world(&w);
		if (opened)
			play_life(&w);
		hit = fail_nth_hit();
		fail_nth(0);
		if (!hit)
			assert_log(&w.log, golden_life);
		else if (opened)
			assert_int_equal(w.lost.n[LOST_NO_MEMORY], 1);
		if (opened)
			close_world(&w);
		if (!hit)
			break;
	}
}

static void two_connections(void **state)
{
	struct world w;

	(void)state;
	assert_true(open_world(&w));
	data(&w, 1, DIR_TX, 0, "one");
	data(&w, 2, DIR_TX, 0, "two");
	tie(&w, 2, DIR_TX, 8);
	tie(&w, 1, DIR_TX, 9);
	tie(&w, 3, DIR_RX, 8);
	data(&w, 3, DIR_RX, 0, "answer two");
	tie(&w, 4, DIR_RX, 9);
	data(&w, 4, DIR_RX, 0, "answer one");
	expect_end(&w,
		   "open 42/1 sock 8 gen 2 fresh\n"
		   "gen 2 is socket 8 port 443\n"
		   "gen 2 tx 0 two\n"
		   "open 42/1 sock 9 gen 1 fresh\n"
		   "gen 1 is socket 9 port 443\n"
		   "gen 1 tx 0 one\n"
		   "gen 2 rx 0 answer two\n"
		   "gen 1 rx 0 answer one\n",
		   0);
}

/* Nothing is guessed: what has no socket, two, an older key's place, or another process's socket is given up and told
 * once. */
static void given_up(void **state)
{
	struct conn_key other = cipher(6);
	struct world w;

	(void)state;
	assert_true(open_world(&w));
	data(&w, 1, DIR_TX, 0, "never"); /* 5 */
	tie(&w, 2, DIR_TX, 8);
	data(&w, 2, DIR_TX, 0, "known");
	tie(&w, 2, DIR_TX, 8);
	tie(&w, 2, DIR_TX, 9);
	data(&w, 2, DIR_TX, 5, "doubtful"); /* 8 */
	data(&w, 2, DIR_TX, 13, "!");	    /* 1 */
	data(&w, 3, DIR_RX, 0, "late");	    /* 4 */
	tie(&w, 4, DIR_RX, 8);
	data(&w, 4, DIR_RX, 0, "newer");
	tie(&w, 3, DIR_RX, 8);
	other.tgid = 43;
	data_of(&w, other, DIR_TX, 0, "not mine"); /* 8 */
	tie_of(&w, other, DIR_TX, 8);
	tie(&w, 7, DIR_TX, 0); /* no socket at all */
	expect_end(&w,
		   "open 42/1 sock 8 gen 2 fresh\n"
		   "gen 2 is socket 8 port 443\n"
		   "gen 2 tx 0 known\n"
		   "unpaired gen 2 tx\n"
		   "gen 2 rx 0 newer\n"
		   "unpaired gen 3 rx\n"
		   "unpaired gen 6 tx\n"
		   "unpaired gen 1 tx\n",
		   5 + 8 + 1 + 4 + 8);
}

/* The process, or its program, ends; the socket is closed and its number never comes again. */
static void ends(void **state)
{
	struct rec_exec exec = {.proc = {.tgid = 42, .exec_id = 2, .start_ns = 5}};
	struct conn_key later = cipher(3);
	struct world w;

	(void)state;
	assert_true(open_world(&w));
	data(&w, 1, DIR_TX, 0, "a");
	exec.already_running = true;
	halves_push_exec(w.t, &exec);
	tie(&w, 1, DIR_TX, 8);
	data(&w, 2, DIR_TX, 0, "old");
	exec.already_running = false;
	halves_push_exec(w.t, &exec);
	later.exec_id = 2;
	data_of(&w, later, DIR_TX, 0, "new");
	tie_of(&w, later, DIR_TX, 9);
	halves_push_sock(w.t, &(struct rec_sock){.cookie = 9, .what = SOCK_CLOSED, .ts_ns = 10 * MS});
	halves_tick(w.t, 10 * MS + HALVES_LINGER_NS - 1);
	data_of(&w, later, DIR_TX, 3, "er");
	halves_tick(w.t, 10 * MS + HALVES_LINGER_NS);
	data_of(&w, later, DIR_TX, 5, "est");
	halves_push_exit(w.t, &(struct rec_exit){.proc = exec.proc});
	expect_end(&w,
		   "open 42/1 sock 8 gen 1 fresh\n"
		   "gen 1 is socket 8 port 443\n"
		   "gen 1 tx 0 a\n"
		   "unpaired gen 2 tx\n"
		   "open 42/2 sock 9 gen 3 fresh\n"
		   "gen 3 is socket 9 port 443\n"
		   "gen 3 tx 0 new\n"
		   "gen 3 tx 3 er\n"
		   "unpaired gen 3 tx\n",
		   3 + 8);
}

/* What cannot be held becomes a hole, whose place the positions tell. */
static void held_too_long(void **state)
{
	static char big[(256u << 10) + 1];
	struct world w;
	uint64_t pos = 0;

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	assert_true(open_world(&w));
	for (unsigned i = 0; i < 9; i++, pos += sizeof(big) - 1)
		data(&w, 1, DIR_TX, pos, big);
	tie(&w, 1, DIR_TX, 8);
	tlog_free(&w.log);
	w.log = (struct tlog){0};
	data(&w, 1, DIR_TX, pos, "after the hole");
	expect_end(&w, "gen 1 tx 2359296 after the hole\n", 0);

	assert_true(open_world(&w));
	for (uint32_t gen = 1; gen <= 40; gen++)
		for (unsigned i = 0; i < 4; i++)
			data(&w, gen, DIR_TX, i * (sizeof(big) - 1), big);
	data(&w, 41, DIR_TX, 0, "no room");
	halves_finish(w.t);
	assert_int_equal(w.lost.n[LOST_UNPAIRED_BYTES], 40 * 4 * (sizeof(big) - 1) + 7);
	close_world(&w);
}

/* Tables have an end: the oldest goes. */
static void many(void **state)
{
	struct world w;

	(void)state;
	assert_true(open_world(&w));
	for (uint32_t gen = 1; gen <= HALVES_MAX + 2; gen++)
		data(&w, gen, DIR_TX, 0, "x");
	assert_log(&w.log, "unpaired gen 1 tx\nunpaired gen 2 tx\n");
	assert_int_equal(w.lost.n[LOST_UNPAIRED_BYTES], 2);
	close_world(&w);
}

/* A connection of no interest is that with all of its halves, and with those that come later; until its socket is
 * forgotten, or user space wants it again. Halves of other sockets are not touched. */
static void ignored(void **state)
{
	struct world w;

	(void)state;
	assert_true(open_world(&w));
	tie(&w, 1, DIR_TX, 77); /* the handshake's */
	tie(&w, 2, DIR_TX, 77);
	tie(&w, 9, DIR_TX, 78);
	halves_ignore(w.t, 77, true);
	tie(&w, 3, DIR_RX, 77);
	tie(&w, 4, DIR_RX, 77);
	halves_ignore(w.t, 77, false);
	tie(&w, 5, DIR_RX, 77);
	halves_ignore(w.t, 79, true);
	halves_ignore(w.t, 77, true);
	halves_push_sock(w.t, &(struct rec_sock){.cookie = 77, .what = SOCK_CLOSED, .ts_ns = 9 * MS});
	halves_tick(w.t, 9 * MS + HALVES_LINGER_NS);
	expect_end(&w,
		   "open 42/1 sock 77 gen 1 fresh\n"
		   "gen 1 is socket 77 port 443\n"
		   "open 42/1 sock 78 gen 9 fresh\n"
		   "gen 9 is socket 78 port 443\n"
		   "gen 2 ignored, answers on 0\n"
		   "gen 2 wanted, answers on 0\n"
		   "gen 2 ignored, answers on 3\n"
		   "gen 3 ignored, answers on 0\n"
		   "gen 2 wanted, answers on 3\n"
		   "gen 3 wanted, answers on 0\n"
		   "gen 2 ignored, answers on 4\n"
		   "gen 4 ignored, answers on 0\n"
		   "gen 2 wanted, answers on 4\n"
		   "gen 4 wanted, answers on 0\n"
		   "gen 2 ignored, answers on 5\n"
		   "gen 5 ignored, answers on 0\n"
		   "gen 2 wanted, answers on 5\n"
		   "gen 5 wanted, answers on 0\n",
		   0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(life),	    cmocka_unit_test(no_memory), cmocka_unit_test(two_connections),
		cmocka_unit_test(given_up), cmocka_unit_test(ends),	 cmocka_unit_test(held_too_long),
		cmocka_unit_test(many),	    cmocka_unit_test(ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
