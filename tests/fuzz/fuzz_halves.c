/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Any order of any records of half connections: a connection is opened once and before all else of it, each socket has
 * one at a time, what comes out is of whole connections, and what was not told is counted. Every operation is 8 bytes
 * of input: what, which half, direction, position, socket, length, time.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "flow/halves.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define GENS 64

struct world {
	struct halves *t;
	struct lost lost;
	uint64_t now, told, pushed;
	bool open[GENS], unpaired[GENS];
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void must_be_whole(struct world *w, const struct conn_key *k, bool half)
{
	must(!half && k->gen < GENS && w->open[k->gen] && k->obj);
}

static void on_open(void *ctx, const struct rec_open *r)
{
	struct world *w = ctx;

	must(r->half && r->conn.gen < GENS && r->conn.obj);
	w->open[r->conn.gen] = true;
}

static void on_data(void *ctx, const struct rec_data *r)
{
	must_be_whole(ctx, &r->conn, r->half);
	for (uint32_t i = 0; i < r->len; i++)
		must(r->ptr[i] == 0);
	((struct world *)ctx)->told += r->orig_len;
}

static void on_gap(void *ctx, const struct rec_gap *r)
{
	must_be_whole(ctx, &r->conn, r->half);
}

static void on_pos(void *ctx, const struct rec_pos *r)
{
	must_be_whole(ctx, &r->conn, r->half);
}

static void on_handshake(void *ctx, const struct rec_handshake *r)
{
	must_be_whole(ctx, &r->conn, r->half);
}

static void on_conn_sock(void *ctx, const struct rec_conn_sock *r)
{
	must_be_whole(ctx, &r->conn, r->half);
	must(r->how == SOCK_ITSELF && r->conn.obj == r->cookie);
}

static void on_unpaired(void *ctx, const struct conn_key *key, enum dir dir)
{
	must(key->gen < GENS && dir <= DIR_RX);
	((struct world *)ctx)->unpaired[key->gen] = true;
}

static void on_ignored(void *ctx, const struct conn_key *key, uint32_t answers, bool ignored)
{
	(void)ctx;
	(void)ignored;
	must(key->gen < GENS && answers < GENS);
}

static void step(struct world *w, const uint8_t op[8])
{
	static const uint8_t zeros[256];
	struct conn_key k = {
		.tgid = 1 + (op[1] & 1), .exec_id = op[1] >> 1 & 1, .start_ns = 5, .obj = 9, .gen = op[1] >> 2};
	enum dir dir = op[2] & 1;
	uint64_t pos = op[2] & 2 ? (1ull << 56) - op[3] : op[3], cookie = op[4] & 7;

	w->now += (uint64_t)op[7] * op[7] * 100000;
	switch (op[0] % 11) {
	case 0:
	case 1:
		w->pushed += op[5] + (uint32_t)op[6];
		halves_push_data(w->t, &(struct rec_data){.conn = k,
							  .dir = dir,
							  .at = {.entry_ns = w->now, .ts_ns = w->now},
							  .pos = pos,
							  .ptr = zeros,
							  .len = op[5],
							  .orig_len = op[5] + (uint32_t)op[6],
							  .half = true});
		break;
	case 2:
		halves_push_gap(w->t,
				&(struct rec_gap){.conn = k, .dir = dir, .pos = pos, .ts_ns = w->now, .half = true});
		break;
	case 3:
		halves_push_pos(w->t, &(struct rec_pos){.conn = k,
							.ts_ns = w->now,
							.pos = {op[5] & 1 ? pos : 0, op[5] & 2 ? pos : 0},
							.half = true});
		break;
	case 4:
		halves_push_handshake(w->t,
				      &(struct rec_handshake){.conn = k, .begin_ns = 1, .end_ns = 2, .half = true});
		break;
	case 5:
	case 6:
		halves_push_conn_sock(w->t, &(struct rec_conn_sock){.conn = k,
								    .ts_ns = w->now,
								    .cookie = cookie,
								    .how = op[3] & 8 ? SOCK_AFTER_WRITE : SOCK_RECORDS,
								    .dir = dir,
								    .half = true,
								    .fresh = op[3] & 1});
		break;
	case 7:
		halves_push_sock(
			w->t,
			&(struct rec_sock){.ts_ns = w->now, .cookie = cookie, .what = (enum sock_what)(1 + op[3] % 9)});
		break;
	case 8:
		if (op[3] & 1)
			halves_push_exit(w->t, &(struct rec_exit){.proc = {k.tgid, k.exec_id, 5}, .ts_ns = w->now});
		else
			halves_push_exec(w->t, &(struct rec_exec){.proc = {k.tgid, k.exec_id + 1, 5}, .ts_ns = w->now});
		break;
	case 9:
		halves_tick(w->t, w->now);
		break;
	default:
		halves_ignore(w->t, cookie, op[3] & 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct world w = {.now = 1000};
	bool any = false;

	w.t = halves_new(&w.lost, &(struct halves_sink){&w, on_open, on_data, on_gap, on_pos, on_handshake,
							on_conn_sock, on_unpaired, on_ignored});
	if (!w.t)
		return 0;
	for (; len >= 8; bytes += 8, len -= 8)
		step(&w, bytes);
	halves_finish(w.t);
	for (unsigned i = 0; i < GENS; i++)
		any |= w.unpaired[i];
	must(any == (w.lost.n[LOST_UNPAIRED_BYTES] > 0));
	must(w.told <= w.pushed);
	halves_free(w.t);
	return 0;
}
