/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "harness.h"

#include <sys/socket.h>

#include "flow/wire.h"
#include "flow/hello.h"

#define MS	  1000000ull
#define SEC	  1000000000ull
#define T0	  (100 * SEC)
#define PID	  42
#define HANDSHAKE 0x16
#define DATA	  0x17

struct world {
	struct tlog log;
	struct lost lost;
	struct wires *t;
};

static const char *const whys[] = {"no functions", "refused", "not run", "not run again", "late"};

static void print_conn(struct world *w, const char *what, const struct wire_conn *c)
{
	tlog_printf(&w->log, "%s %u [%s] port %u %s%s%s%s", what, c->proc.tgid, c->host, c->remote.port, whys[c->why],
		    *c->reason ? ": " : "", c->reason, c->probed ? " probed" : "");
}

static uint64_t since(uint64_t ns)
{
	return ns == UNKNOWN_NS ? 0 : (ns - T0) / MS;
}

static void on_turn(void *ctx, const struct wire_turn *u)
{
	struct world *w = ctx;

	print_conn(w, "turn", &u->conn);
	tlog_printf(&w->log, " %llu %llu %llu %llu ms, %llu/%llu bytes, silent %llu",
		    (unsigned long long)since(u->begin_ns), (unsigned long long)since(u->send_end_ns),
		    (unsigned long long)since(u->first_ns), (unsigned long long)since(u->end_ns),
		    (unsigned long long)u->bytes[0], (unsigned long long)u->bytes[1],
		    (unsigned long long)(u->gap_ns / MS));
	if (u->connect_begin_ns != UNKNOWN_NS)
		tlog_printf(&w->log, ", connect %llu-%llu", (unsigned long long)since(u->connect_begin_ns),
			    (unsigned long long)since(u->connect_end_ns));
	if (u->tls_begin_ns != UNKNOWN_NS)
		tlog_printf(&w->log, ", tls %llu", (unsigned long long)since(u->tls_begin_ns));
	for (unsigned i = 0; i < u->retransmits; i++)
		tlog_printf(&w->log, ", retransmit %llu", (unsigned long long)since(u->retransmit_ns[i]));
	tlog_printf(&w->log, "%s\n", u->merged ? ", merged" : "");
}

static void on_conn(void *ctx, const struct wire_conn *c)
{
	struct world *w = ctx;

	print_conn(w, "end", c);
	tlog_printf(&w->log, " %llu turns%s\n", (unsigned long long)c->turns, c->served ? ", served" : "");
}

static void on_missed(void *ctx, const struct wire_conn *c)
{
	tlog_printf(&((struct world *)ctx)->log, "missed %u\n", c->proc.tgid);
}

static void on_handshake(void *ctx, const struct wire_handshake *h)
{
	static const char *const closers[] = {"", " local", " remote"};
	struct world *w = ctx;

	tlog_printf(&w->log, "handshake %u [%s] %llu %llu-%llu%s%s%s\n", h->conn.proc.tgid, h->conn.host,
		    (unsigned long long)since(h->connect_begin_ns), (unsigned long long)since(h->begin_ns),
		    (unsigned long long)since(h->end_ns), closers[h->closer],
		    h->unanswered  ? " unanswered"
		    : h->completed ? " completed"
				   : "",
		    h->unfinished ? " unfinished" : "");
}

static void on_silent(void *ctx, const struct wire_conn *c)
{
	struct world *w = ctx;

	print_conn(w, "silent", c);
	tlog_printf(&w->log, "\n");
}

static void open_world(struct world *w)
{
	struct wire_sink sink = {w, on_turn, on_conn, on_missed, on_handshake, on_silent};

	*w = (struct world){0};
	w->t = wires_new(&w->lost, &sink);
	assert_non_null(w->t);
}

static void close_world(struct world *w)
{
	wires_free(w->t);
	tlog_free(&w->log);
}

/* A turn that went out at `at` ms for 1 ms and came back from first to last. */
static struct rec_wire turn_of(uint32_t number, uint8_t type, unsigned at, unsigned first, unsigned last)
{
	return (struct rec_wire){
		.proc = {.tgid = PID, .start_ns = 7, .exec_id = 1},
		.ts_ns = T0 + last * MS,
		.cookie = 9,
		.began_ns = T0 + 10 * MS,
		.tx_begin_ns = T0 + at * MS,
		.tx_end_ns = T0 + (at + 1) * MS,
		.rx_begin_ns = T0 + first * MS,
		.rx_end_ns = T0 + last * MS,
		.gap_ns = (first - at - 1) * MS,
		.turn_bytes = {300, 2000},
		.bytes = {300 * number, 2000 * number},
		.remote = {.family = AF_INET, .port = 4433},
		.turn = number,
		.first_type = type,
		.hello = true,
		.ended = true,
	};
}

/* A greeting, with the name of a host as its second extension. */
static size_t greeting(uint8_t *out, const char *host)
{
	size_t n = strlen(host), at = 0;
	static const uint8_t before[] = {0, 10, 0, 4, 0, 2, 0, 29};

	memset(out, 0, 512);
	out[at++] = HANDSHAKE;
	out[at] = 3, at += 4;
	out[at] = 1, at += 4;
	at += 34;
	out[at++] = 4, at += 4;					  /* session */
	out[at + 1] = 4, at += 2 + 4;				  /* cipher suites */
	out[at++] = 1, at += 1;					  /* compression */
	out[at + 1] = (uint8_t)(sizeof(before) + 9 + n), at += 2; /* extensions */
	memcpy(out + at, before, sizeof(before)), at += sizeof(before);
	at += 2; /* server_name */
	out[at + 1] = (uint8_t)(n + 5), at += 2;
	out[at + 1] = (uint8_t)(n + 3), at += 2;
	at += 1;
	out[at + 1] = (uint8_t)n, at += 2;
	memcpy(out + at, host, n);
	out[3] = (uint8_t)((at + n - 5) >> 8), out[4] = (uint8_t)(at + n - 5);
	return at + n;
}

static void push_hello(struct world *w, const char *host)
{
	uint8_t bytes[512];
	struct rec_hello h = {.ts_ns = T0 + 10 * MS, .cookie = 9, .tgid = PID, .bytes = {(const char *)bytes, 0}};

	h.bytes.len = greeting(bytes, host);
	wires_push_hello(w->t, &h);
}

static void push_turn(struct world *w, uint32_t number, uint8_t type, unsigned at, unsigned first, unsigned last)
{
	struct rec_wire r = turn_of(number, type, at, first, last);

	wires_push(w->t, &r);
}

static void push_files(struct world *w, bool probed, bool refused, bool again, const char *reason)
{
	struct rec_files f = {.ts_ns = T0,
			      .tgid = PID,
			      .probed_ns = probed ? T0 : 0,
			      .probed = probed,
			      .refused = refused,
			      .again = again,
			      .reason = sv_of(reason)};

	wires_push_files(w->t, &f);
}

static void push_sock(struct world *w, enum sock_what what, unsigned begin, unsigned at)
{
	struct rec_sock s = {
		.ts_ns = T0 + at * MS, .begin_ns = T0 + begin * MS, .cookie = 9, .tgid = PID, .what = what};

	wires_push_sock(w->t, &s);
}

static void nobody_reads_it(void **state)
{
	struct world w;
	struct rec_wire last;

	(void)state;
	open_world(&w);
	push_sock(&w, SOCK_CONNECTED, 2, 6);
	push_sock(&w, SOCK_PROXY, 0, 8);
	push_hello(&w, "api.example.com");
	push_turn(&w, 1, HANDSHAKE, 10, 20, 21);
	push_turn(&w, 2, DATA, 30, 130, 330);
	push_sock(&w, SOCK_RETRANSMIT, 0, 60);
	push_sock(&w, SOCK_RETRANSMIT, 0, 400);
	wires_tick(w.t, T0 + 1000 * MS);
	assert_log(&w.log, "");
	wires_tick(w.t, T0 + 1400 * MS);
	push_turn(&w, 2, DATA, 30, 130, 330); /* told twice */
	last = turn_of(3, DATA, 2000, 2100, 2200);
	last.ended = false;
	wires_push(w.t, &last);
	last.closed = true;
	last.rx_end_ns += MS;
	wires_push(w.t, &last);
	wires_push(w.t, &last);
	wires_tick(w.t, T0 + 4 * SEC);
	wires_push(w.t, &last); /* it is not begun again */
	assert_log(
		&w.log,
		"turn 42 [api.example.com] port 4433 no functions 30 31 130 330 ms, 300/2000 bytes, silent 99, connect "
		"2-8, tls 10, retransmit 60\n"
		"turn 42 [api.example.com] port 4433 no functions 2000 2001 2100 2201 ms, 300/2000 bytes, silent 99\n"
		"end 42 [api.example.com] port 4433 no functions 2 turns\n");
	wires_finish(w.t, T0 + 5 * SEC);
	close_world(&w);
}

/* A connect that began after its end is none that was seen (a capture may hold anything). */
static void connect_the_wrong_way_round(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push_sock(&w, SOCK_CONNECTED, 7, 6);
	push_turn(&w, 2, DATA, 30, 130, 330);
	wires_finish(w.t, T0 + 3 * SEC);
	assert_null(strstr(w.log.text, "connect"));
	close_world(&w);
}

static void plaintext_decides(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push_turn(&w, 1, HANDSHAKE, 10, 20, 21);
	push_turn(&w, 2, DATA, 30, 130, 330); /* answered before anything was read */
	push_turn(&w, 3, DATA, 400, 500, 600);
	wires_push_plain(w.t, PID, 9, T0 + 400 * MS, T0 + 401 * MS);
	wires_push_plain(w.t, PID, 9, T0 + 700 * MS, T0 + 701 * MS);
	wires_finish(w.t, T0 + 3 * SEC);
	assert_log(&w.log, "turn 42 [] port 4433 late 30 31 130 330 ms, 300/2000 bytes, silent 99, tls 10\n");
	close_world(&w);

	/* Read as it arrived: the read ends after the last byte came. */
	open_world(&w);
	push_turn(&w, 2, DATA, 30, 130, 330);
	wires_push_plain(w.t, PID, 9, T0 + 331 * MS, T0 + 331 * MS);
	wires_finish(w.t, T0 + 3 * SEC);
	assert_log(&w.log, "");
	close_world(&w);
}

/* Answered before the probes were set: that connection never gave plaintext, and nothing is wrong with the probes. */
static void over_before_the_probes(void **state)
{
	struct rec_files f = {
		.ts_ns = T0 + 600 * MS, .tgid = PID, .probed_ns = T0 + 500 * MS, .probed = true, .reason = SV("")};
	struct world w;

	(void)state;
	open_world(&w);
	push_turn(&w, 2, DATA, 30, 130, 330);
	wires_push_files(w.t, &f);
	for (unsigned ms = 600; ms < 10000; ms += 100)
		wires_tick(w.t, T0 + ms * MS);
	wires_finish(w.t, T0 + 20 * SEC);
	assert_log(&w.log, "turn 42 [] port 4433 late probed 30 31 130 330 ms, 300/2000 bytes, silent 99, tls 10\n"
			   "end 42 [] port 4433 late probed 1 turns\n");
	close_world(&w);
}

/* A place for each socket that the search passes by, and the table's. */
static void to_be_warm(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	for (unsigned i = 0; i < 100; i++) {
		struct rec_wire r = turn_of(1, HANDSHAKE, 10, 20, 21);
		struct warm warm = {0};

		r.cookie = i;
		wires_warm(w.t, i, &warm);
		assert_true(warm.count <= (i ? 1 + i : 0));
		wires_push(w.t, &r);
		warm.count = 0;
		wires_warm(w.t, i, &warm);
		assert_true(i ? warm.count >= 2 : warm.count == 0);
	}
	close_world(&w);
}

static void unbound_plaintext_may_be_its(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	push_files(&w, true, false, false, "");
	push_turn(&w, 2, DATA, 30, 130, 330);
	wires_push_plain(w.t, PID, 0, T0 + 31 * MS, T0 + 31 * MS);
	wires_tick(w.t, T0 + 10 * SEC);
	wires_finish(w.t, T0 + 20 * SEC);
	assert_log(&w.log, "");
	close_world(&w);

	/* That of another process, or of before, is not. */
	open_world(&w);
	wires_push_plain(w.t, PID, 0, T0, T0 + 1 * MS);
	wires_push_plain(w.t, PID + 1, 0, T0 + 31 * MS, T0 + 31 * MS);
	push_turn(&w, 2, DATA, 30, 130, 330);
	wires_finish(w.t, T0 + 20 * SEC);
	assert_log(&w.log, "turn 42 [] port 4433 no functions 30 31 130 330 ms, 300/2000 bytes, silent 99, tls 10\n"
			   "end 42 [] port 4433 no functions 1 turns\n");
	close_world(&w);
}

static void who_asks_whom(void **state)
{
	static const struct {
		bool hello, server;
		uint16_t port;
		const char *log;
	} rows[] = {
		{false, true, 50000, "end 42 [] port 50000 no functions 0 turns, served\n"},
		{false, false, 50000, ""}, /* open before, and nothing tells */
		{false, false, 443,
		 "turn 42 [] port 443 no functions 30 31 130 330 ms, 300/2000 bytes, silent 99\n"
		 "end 42 [] port 443 no functions 1 turns\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rec_wire r = turn_of(2, DATA, 30, 130, 330);
		struct world w;

		open_world(&w);
		r.hello = rows[i].hello;
		r.server = rows[i].server;
		r.remote.port = rows[i].port;
		wires_push(w.t, &r);
		wires_finish(w.t, T0 + 3 * SEC);
		assert_log(&w.log, rows[i].log);
		close_world(&w);
	}
}

/* Times that contradict each other (two threads on a socket) or are not known make no turn. */
static void no_wrong_turns(void **state)
{
	struct rec_wire r[4];
	struct world w;

	(void)state;
	open_world(&w);
	for (unsigned i = 0; i < 4; i++) {
		r[i] = turn_of(i + 2, DATA, 30, 130, 330);
		r[i].cookie = i + 1;
	}
	r[0].tx_begin_ns = UNKNOWN_NS;
	r[1].rx_begin_ns = r[1].rx_end_ns = UNKNOWN_NS;
	r[2].rx_begin_ns = r[2].tx_end_ns - 1;
	r[3].rx_end_ns = r[3].rx_begin_ns - 1;
	for (unsigned i = 0; i < 4; i++)
		wires_push(w.t, &r[i]);
	wires_finish(w.t, T0 + 3 * SEC);
	assert_log(&w.log, "");
	close_world(&w);
}

static void watchdog(void **state)
{
	struct rec_exec e = {.proc = {.tgid = PID}, .ts_ns = T0 + 20 * SEC};
	struct rec_files again = {
		.ts_ns = T0 + 10 * SEC, .tgid = PID, .probed_ns = T0, .probed = true, .again = true, .reason = SV("")};
	struct world w;

	(void)state;
	open_world(&w);
	push_files(&w, true, false, false, "");
	push_turn(&w, 2, DATA, 30, 130, 330);
	for (unsigned ms = 0; ms < 10000; ms += 100)
		wires_tick(w.t, T0 + ms * MS);
	assert_log(&w.log, "turn 42 [] port 4433 not run probed 30 31 130 330 ms, 300/2000 bytes, silent 99, tls 10\n"
			   "silent 42 [] port 4433 not run probed\n");
	wires_push_files(w.t, &again); /* probed again: told once more, if it does not help */
	for (unsigned ms = 10000; ms < 12000; ms += 100)
		wires_tick(w.t, T0 + ms * MS);
	push_turn(&w, 3, DATA, 12000, 12100, 12200);
	for (unsigned ms = 12200; ms < 20000; ms += 100)
		wires_tick(w.t, T0 + ms * MS);
	wires_push_exec(w.t, &e);
	push_files(&w, false, true, false, "libx.so: two functions are one");
	wires_tick(w.t, T0 + 21 * SEC);
	assert_log(&w.log,
		   "turn 42 [] port 4433 not run probed 30 31 130 330 ms, 300/2000 bytes, silent 99, tls 10\n"
		   "silent 42 [] port 4433 not run probed\n"
		   "turn 42 [] port 4433 not run again probed 12000 12001 12100 12200 ms, 300/2000 bytes, silent "
		   "99\n"
		   "silent 42 [] port 4433 not run again probed\n"
		   "silent 42 [] port 4433 refused: libx.so: two functions are one\n");
	close_world(&w);
}

/* Plaintext that came and stops coming while the wire goes on. */
static void watchdog_after_plaintext(void **state)
{
	struct rec_wire r = turn_of(3, DATA, 400, 500, 9000);
	struct world w;

	(void)state;
	for (int ignored = 0; ignored < 2; ignored++) {
		open_world(&w);
		push_files(&w, true, false, false, "");
		push_turn(&w, 2, DATA, 30, 130, 330);
		wires_push_plain(w.t, PID, 9, T0 + 30 * MS, T0 + 331 * MS);
		if (ignored)
			wires_ignore(w.t, 9, true);
		r.ended = false;
		r.bytes[1] = 4000 + WIRE_SILENT_BYTES - 1000;
		wires_push(w.t, &r);
		wires_tick(w.t, T0 + 9 * SEC);
		assert_log(&w.log, "");
		r.bytes[1] += 5000;
		wires_push(w.t, &r);
		wires_tick(w.t, T0 + 10 * SEC);
		assert_log(&w.log, ignored ? "" : "silent 42 [] port 4433 late probed\n");
		close_world(&w);
	}
}

/* A burst that was read, told of a second later; then silence, and the last record of TLS itself. */
static void a_burst_is_no_silence(void **state)
{
	struct rec_wire r = turn_of(3, DATA, 400, 500, 700);
	struct world w;

	(void)state;
	open_world(&w);
	push_files(&w, true, false, false, "");
	push_turn(&w, 2, DATA, 30, 130, 330);
	wires_push_plain(w.t, PID, 9, T0 + 30 * MS, T0 + 701 * MS);
	r.ended = false;
	r.bytes[1] = 10000000;
	wires_push(w.t, &r);
	r.bytes[0] += 24;
	r.ts_ns = T0 + 9 * SEC;
	wires_push(w.t, &r);
	wires_tick(w.t, T0 + 20 * SEC);
	assert_log(&w.log, "");
	close_world(&w);
}

static void process_ends_before_its_sockets(void **state)
{
	struct rec_exit x = {.proc = {.tgid = PID, .start_ns = 7}, .ts_ns = T0 + 400 * MS};
	struct rec_wire r = turn_of(2, DATA, 30, 130, 330);
	struct world w;

	(void)state;
	open_world(&w);
	push_files(&w, true, false, false, "");
	wires_push_exit(w.t, &x);
	r.closed = true;
	wires_push(w.t, &r); /* the first word about it is its last one: it is not begun */
	push_turn(&w, 2, DATA, 30, 130, 330);
	wires_push(w.t, &r);
	wires_tick(w.t, T0 + 1400 * MS);
	assert_log(&w.log, "turn 42 [] port 4433 not run probed 30 31 130 330 ms, 300/2000 bytes, silent 99, tls 10\n"
			   "end 42 [] port 4433 not run probed 1 turns\n");
	wires_tick(w.t, T0 + 60 * SEC);
	close_world(&w);
}

/* The kernel's last word was lost: its process has ended, or its socket is closed. Nothing new is said of it. */
static void without_a_last_word(void **state)
{
	struct rec_exit x = {.proc = {.tgid = PID, .start_ns = 7}, .ts_ns = T0 + 400 * MS};
	struct rec_sock closed = {.ts_ns = T0 + 400 * MS, .cookie = 9, .what = SOCK_CLOSED};
	struct rec_exec other = {.proc = {.tgid = PID, .start_ns = 9}, .ts_ns = T0 + 10 * SEC};
	static const char turn[] =
		"turn 42 [] port 4433 not run probed 30 31 130 330 ms, 300/2000 bytes, silent 99, tls 10\n";
	char golden[256];
	struct world w;

	(void)state;
	snprintf(golden, sizeof(golden), "%send 42 [] port 4433 not run probed 1 turns\n", turn);
	for (int how = 0; how < 3; how++) {
		open_world(&w);
		push_turn(&w, 2, DATA, 30, 130, 330);
		push_files(&w, true, false, false, "");
		if (how != 1)
			wires_push_exit(w.t, &x);
		if (how == 1)
			wires_push_sock(w.t, &closed);
		for (unsigned ms = 400; ms < 2000; ms += 100)
			wires_tick(w.t, T0 + ms * MS);
		assert_log(&w.log, turn);
		if (how == 2)
			wires_push_exec(w.t, &other); /* the next process of that pid */
		for (unsigned ms = how == 0 ? 10000 : 5400; how < 2 && ms < 62000; ms += 1000)
			wires_tick(w.t, T0 + ms * MS);
		assert_log(&w.log, golden);
		wires_finish(w.t, T0 + 100 * SEC);
		assert_log(&w.log, golden);
		close_world(&w);
	}
}

/* Its owner has ended, and another process goes on with it, until that one ends too. */
static void another_process_goes_on(void **state)
{
	struct rec_exit first = {.proc = {.tgid = PID, .start_ns = 7}, .ts_ns = T0 + 400 * MS};
	struct rec_exit second = {.proc = {.tgid = PID + 1, .start_ns = 8}, .ts_ns = T0 + 1000 * MS};
	struct rec_wire r = turn_of(3, DATA, 430, 530, 730);
	struct world w;

	(void)state;
	open_world(&w);
	push_turn(&w, 2, DATA, 30, 130, 330);
	wires_push_exit(w.t, &first);
	r.proc = second.proc;
	wires_push(w.t, &r);
	wires_push_exit(w.t, &second);
	for (unsigned ms = 1000; ms < 63000; ms += 1000)
		wires_tick(w.t, T0 + ms * MS);
	assert_log(&w.log, "turn 42 [] port 4433 no functions 30 31 130 330 ms, 300/2000 bytes, silent 99, tls 10\n"
			   "turn 43 [] port 4433 no functions 430 431 530 730 ms, 300/2000 bytes, silent 99\n"
			   "end 43 [] port 4433 no functions 2 turns\n");
	wires_finish(w.t, T0 + 100 * SEC);
	close_world(&w);
}

/* Nobody said which files it maps, and it has ended: no time for a warning. */
static void a_process_that_is_gone_is_not_silent(void **state)
{
	struct rec_exit x = {.proc = {.tgid = PID, .start_ns = 7}, .ts_ns = T0 + 400 * MS};
	struct world w;

	(void)state;
	open_world(&w);
	push_turn(&w, 2, DATA, 30, 130, 330);
	wires_push_exit(w.t, &x);
	for (unsigned ms = 400; ms < 30000; ms += 100)
		wires_tick(w.t, T0 + ms * MS);
	assert_null(strstr(w.log.text, "silent 42"));
	close_world(&w);
}

static void many_turns_and_connections(void **state)
{
	struct world w;

	(void)state;
	open_world(&w);
	for (unsigned i = 0; i < 3 * WIRE_TURNS_MAX; i++)
		push_turn(&w, i + 2, DATA, 10 * i, 10 * i + 2, 10 * i + 3);
	wires_finish(w.t, T0 + 20 * SEC);
	assert_non_null(strstr(w.log.text, "end 42 [] port 4433 no functions 96 turns"));
	for (unsigned i = 0; i < WIRE_MAX + 10; i++) {
		struct rec_sock s = {.ts_ns = T0, .cookie = 100 + i, .what = SOCK_CONNECTED, .begin_ns = T0};

		wires_push_sock(w.t, &s);
	}
	assert_int_equal(w.lost.n[LOST_NO_MEMORY], 0); /* they carried no TLS yet */
	for (unsigned i = 0; i < WIRE_MAX + 10; i++) {
		struct rec_wire r = turn_of(1, HANDSHAKE, 10, 20, 21);

		r.cookie = 100000 + i;
		wires_push(w.t, &r);
	}
	assert_int_equal(w.lost.n[LOST_NO_MEMORY], 10);
	close_world(&w);
}

static void without_memory(void **state)
{
	struct world w;

	(void)state;
	for (unsigned n = 1;; n++) {
		struct wire_sink sink = {&w, on_turn, on_conn, on_missed, on_handshake, on_silent};

		w = (struct world){0};
		fail_nth(n);
		w.t = wires_new(&w.lost, &sink);
		if (w.t) {
			push_sock(&w, SOCK_CONNECTED, 2, 8);
			push_hello(&w, "api.example.com");
			push_files(&w, true, false, false, "");
			push_turn(&w, 2, DATA, 30, 130, 330);
			wires_push_plain(w.t, PID + 1, 0, T0, T0);
			wires_finish(w.t, T0 + 3 * SEC);
		}
		fail_nth(0);
		if (fail_nth_hit())
			assert_true(!w.t || w.lost.n[LOST_NO_MEMORY] == 1);
		close_world(&w);
		if (!fail_nth_hit())
			break;
		fail_nth(n); /* forget the hit */
		fail_nth(0);
	}
}

/* --- what was asked for before ----------------------------------------------------------------------------------- */

static void asked_before(void **state)
{
	static const struct {
		uint16_t port;
		unsigned bytes, plain_ms; /* 0: none comes */
		bool probed, tx;
		const char *golden;
	} all[] = {
		{443, 400, 0, true, false, "missed 42\n"},
		{443, 400, 26, true, false, "missed 42\n"}, /* of the next one */
		{443, 400, 25, true, false, ""},
		{443, 127, 0, true, false, ""},
		{4433, 400, 0, true, false, ""}, /* who asks whom is not known */
		{443, 400, 0, false, false, ""}, /* nobody would have seen it later either */
		{443, 400, 0, true, true, ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct rec_wire r = turn_of(1, 0, 10, 20, 20);
		struct world w;

		open_world(&w);
		r.hello = false;
		r.remote.port = all[i].port;
		r.turn_bytes[DIR_RX] = all[i].bytes;
		if (!all[i].tx)
			r.tx_begin_ns = r.tx_end_ns = UNKNOWN_NS;
		push_files(&w, all[i].probed, false, false, "");
		wires_push(w.t, &r);
		if (all[i].plain_ms)
			wires_push_plain(w.t, PID, 9, T0 + all[i].plain_ms * MS, T0 + all[i].plain_ms * MS);
		if (all[i].tx)
			wires_push_plain(w.t, PID, 9, T0 + 12 * MS, T0 + 13 * MS);
		wires_finish(w.t, T0 + SEC);
		assert_string_equal(w.log.text ? w.log.text : "", all[i].golden);
		close_world(&w);
	}
}

/* What probes_asked() tells, and what follows. */
static void asked_when(void **state)
{
	static const struct {
		unsigned bytes, asked_ms, seen_ms; /* seen: a turn of which more is known, before; 0: none */
		uint32_t tgid;
		const char *golden;
	} all[] = {
		{400, 2, 0, PID,
		 "turn 42 [] port 443 late probed 2 2 20 21 ms, 0/400 bytes, silent 0\n"
		 "end 42 [] port 443 late probed 1 turns\n"},
		{127, 2, 0, PID, ""},		  /* no answer */
		{400, 21, 0, PID, "missed 42\n"}, /* it was not before that */
		{400, 2, 0, PID + 1, "missed 42\n"},
		{400, 2, 1, PID,
		 "turn 42 [] port 443 late probed 1 2 20 21 ms, 300/2000 bytes, silent 18\n"
		 "end 42 [] port 443 late probed 1 turns\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct rec_wire asked = turn_of(1, 0, all[i].asked_ms, 20, 21), r = turn_of(1, 0, 10, 20, 21);
		struct rec_files f = {.ts_ns = T0, .tgid = PID, .probed_ns = T0 + SEC, .probed = true};
		struct world w;

		open_world(&w);
		wires_push_files(w.t, &f);
		asked.remote.port = r.remote.port = 443;
		asked.hello = asked.ended = r.hello = r.ended = false;
		if (all[i].seen_ms) {
			struct rec_wire seen = turn_of(1, 0, all[i].seen_ms, 20, 21);

			seen.remote.port = 443;
			seen.hello = false;
			wires_push(w.t, &seen);
		}
		asked.proc.tgid = all[i].tgid;
		asked.tx_end_ns = asked.tx_begin_ns;
		asked.rx_begin_ns = asked.rx_end_ns = UNKNOWN_NS;
		asked.gap_ns = 0;
		memset(asked.turn_bytes, 0, sizeof(asked.turn_bytes));
		memset(asked.bytes, 0, sizeof(asked.bytes));
		wires_push(w.t, &asked);
		r.tx_begin_ns = r.tx_end_ns = UNKNOWN_NS;
		r.gap_ns = 0;
		r.turn_bytes[DIR_TX] = 0;
		r.turn_bytes[DIR_RX] = all[i].bytes;
		if (!all[i].seen_ms)
			wires_push(w.t, &r);
		wires_finish(w.t, T0 + SEC);
		assert_string_equal(w.log.text ? w.log.text : "", all[i].golden);
		close_world(&w);
	}
}

/* --- handshakes -------------------------------------------------------------------------------------------------- */

/* The greeting, and so many bytes behind it; answered with so many. */
static void push_handshake(struct world *w, unsigned sent, unsigned received, bool closed)
{
	uint8_t bytes[512];
	size_t hello = greeting(bytes, "api.example.com");
	struct rec_wire r = turn_of(1, HANDSHAKE, 10, 20, 21);

	r.turn_bytes[DIR_TX] = r.bytes[DIR_TX] = hello + sent;
	r.turn_bytes[DIR_RX] = r.bytes[DIR_RX] = received;
	r.ended = false;
	r.closed = closed;
	wires_push(w->t, &r);
}

static void handshakes(void **state)
{
	static const struct {
		unsigned sent, received;
		enum sock_what closer; /* 0: it goes on */
		bool plain, hello;
		unsigned end_ms;
		const char *golden;
	} all[] = {
		{30, 854, SOCK_CLOSE_LOCAL, false, true, 100, "handshake 42 [api.example.com] 2 10-25 local\n"},
		{0, 843, SOCK_RESET_SENT, false, true, 100, "handshake 42 [api.example.com] 2 10-25 local\n"},
		{0, 7, SOCK_CLOSE_REMOTE, false, true, 100, "handshake 42 [api.example.com] 2 10-25 remote\n"},
		{0, 0, SOCK_RESET_RECEIVED, false, true, 100,
		 "handshake 42 [api.example.com] 2 10-25 remote unanswered\n"},
		{6, 500, SOCK_CLOSED, false, true, 100, "handshake 42 [api.example.com] 2 10-21\n"},
		{7, 500, SOCK_CLOSE_REMOTE, false, true, 100, "handshake 42 [api.example.com] 2 10-25 local\n"},
		{7, 7, SOCK_CLOSE_LOCAL, false, true, 100, "handshake 42 [api.example.com] 2 10-25 remote\n"},
		{31, 854, SOCK_CLOSE_LOCAL, false, true, 100, ""}, /* a Finished, at least */
		{30, 854, SOCK_CLOSE_LOCAL, true, true, 100, ""},
		{30, 854, SOCK_CLOSE_LOCAL, false, false, 100, ""},
		{0, 0, 0, false, true, 1009, ""},
		{0, 0, 0, false, true, 1010, "handshake 42 [api.example.com] 2 10-1010 unanswered unfinished\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct world w;

		open_world(&w);
		push_sock(&w, SOCK_CONNECTED, 2, 8);
		if (all[i].hello)
			push_hello(&w, "api.example.com");
		push_handshake(&w, all[i].sent, all[i].received, false);
		assert_int_equal(wires_greeted(w.t, 9),
				 all[i].golden[0] || (!all[i].closer && all[i].hello) || all[i].plain);
		assert_false(wires_greeted(w.t, 0) || wires_greeted(w.t, 10));
		if (all[i].plain)
			wires_push_plain(w.t, PID, 9, T0 + 22 * MS, T0 + 23 * MS);
		if (all[i].closer) {
			push_sock(&w, all[i].closer, 0, 25);
			if (all[i].closer != SOCK_CLOSED)
				push_sock(&w, SOCK_CLOSE_REMOTE, 0, 26);
			push_sock(&w, SOCK_CLOSED, 0, 27);
			push_handshake(&w, all[i].sent, all[i].received, true);
		}
		wires_finish(w.t, T0 + all[i].end_ms * MS);
		assert_string_equal(w.log.text ? w.log.text : "", all[i].golden);
		close_world(&w);
	}
}

/* One that was completed: left at once, later, by the server, by the process's end, or used. */
static void left(void **state)
{
	static const struct {
		unsigned sent;
		enum sock_what closer;
		unsigned close_ms, exit_ms; /* exit 0: the process lives */
		const char *golden;
	} all[] = {
		{58, SOCK_CLOSE_LOCAL, 25, 0, "handshake 42 [api.example.com] 2 10-25 local completed\n"},
		{104, SOCK_RESET_SENT, 270, 0, "handshake 42 [api.example.com] 2 10-270 local completed\n"},
		{57, SOCK_CLOSE_LOCAL, 25, 0, ""},
		{105, SOCK_CLOSE_LOCAL, 25, 0, ""},
		{80, SOCK_CLOSE_LOCAL, 271, 0, ""},
		{80, SOCK_CLOSE_REMOTE, 25, 0, ""},
		{80, SOCK_CLOSE_LOCAL, 25, 24, ""},
		{80, SOCK_CLOSE_LOCAL, 25, 26, "handshake 42 [api.example.com] 2 10-25 local completed\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct world w;

		open_world(&w);
		push_sock(&w, SOCK_CONNECTED, 2, 8);
		push_hello(&w, "api.example.com");
		push_handshake(&w, all[i].sent, 854, false);
		if (all[i].exit_ms)
			wires_push_exit(w.t, &(struct rec_exit){.ts_ns = T0 + all[i].exit_ms * MS,
								.proc = {.tgid = PID, .start_ns = 7}});
		push_sock(&w, all[i].closer, 0, all[i].close_ms);
		push_sock(&w, SOCK_CLOSED, 0, all[i].close_ms + 1);
		assert_int_equal(wires_greeted(w.t, 9), all[i].golden[0] != 0);
		push_handshake(&w, all[i].sent, 854, true);
		wires_finish(w.t, T0 + SEC);
		assert_string_equal(w.log.text ? w.log.text : "", all[i].golden);
		close_world(&w);
	}
}

/* One that is told by an address alone, and whose last word comes behind the end of its socket. */
static void handshake_without_a_name(void **state)
{
	struct world w;
	uint8_t bytes[512];
	struct rec_hello h = {.ts_ns = T0 + 10 * MS, .cookie = 9, .tgid = PID, .bytes = {(const char *)bytes, 0}};

	(void)state;
	open_world(&w);
	push_sock(&w, SOCK_CONNECTED, 2, 8);
	h.bytes.len = greeting(bytes, "api.example.com") - 30; /* of the record that long */
	wires_push_hello(w.t, &h);
	push_sock(&w, SOCK_CLOSE_LOCAL, 0, 25);
	push_sock(&w, SOCK_CLOSED, 0, 25);
	push_handshake(&w, 7, 500, true);
	wires_tick(w.t, T0 + 2 * SEC);
	assert_string_equal(w.log.text, "handshake 42 [] 2 10-25 local\n");
	close_world(&w);
}

/* --- the greeting ------------------------------------------------------------------------------------------------ */

static void host_of_a_greeting(void **state)
{
	static const char host[] = "api.example.com";
	struct guard g = {0};
	uint8_t bytes[512];
	size_t len = greeting(bytes, host);

	(void)state;
	/* Cut anywhere: the whole name or none. */
	for (size_t cut = 0; cut <= len; cut++) {
		struct sv got = hello_host((struct sv){(const char *)guard_copy(&g, bytes, cut), cut});

		if (cut < len)
			assert_null(got.ptr);
		else
			assert_true(sv_eq(got, SV("api.example.com")));
	}
	/* Every byte changed: another name at most, never one byte too far. */
	for (size_t i = 0; i < len; i++)
		for (unsigned v = 1; v < 256; v <<= 1) {
			struct sv got;

			bytes[i] ^= (uint8_t)v;
			got = hello_host((struct sv){(const char *)guard_copy(&g, bytes, len), len});
			assert_true(got.len <= WIRE_HOST_MAX);
			bytes[i] ^= (uint8_t)v;
		}
	greeting(bytes, "a\x1b[2Jb.example");
	assert_null(hello_host((struct sv){(const char *)bytes, 512}).ptr);
	greeting(bytes, "");
	assert_null(hello_host((struct sv){(const char *)bytes, 512}).ptr);
	guard_free(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_reads_it),
		cmocka_unit_test(connect_the_wrong_way_round),
		cmocka_unit_test(plaintext_decides),
		cmocka_unit_test(over_before_the_probes),
		cmocka_unit_test(to_be_warm),
		cmocka_unit_test(unbound_plaintext_may_be_its),
		cmocka_unit_test(who_asks_whom),
		cmocka_unit_test(no_wrong_turns),
		cmocka_unit_test(watchdog),
		cmocka_unit_test(watchdog_after_plaintext),
		cmocka_unit_test(a_burst_is_no_silence),
		cmocka_unit_test(process_ends_before_its_sockets),
		cmocka_unit_test(another_process_goes_on),
		cmocka_unit_test(without_a_last_word),
		cmocka_unit_test(a_process_that_is_gone_is_not_silent),
		cmocka_unit_test(many_turns_and_connections),
		cmocka_unit_test(without_memory),
		cmocka_unit_test(asked_before),
		cmocka_unit_test(asked_when),
		cmocka_unit_test(handshakes),
		cmocka_unit_test(left),
		cmocka_unit_test(handshake_without_a_name),
		cmocka_unit_test(host_of_a_greeting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
