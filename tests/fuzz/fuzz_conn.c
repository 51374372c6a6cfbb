/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Any order of any records: connections open and end in pairs, bytes come at rising positions, positions and counters
 * agree. Every operation is 8 bytes of input: what, which connection, direction, position, length, time.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "flow/conn.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

struct world {
	struct conns *t;
	struct lost lost;
	uint64_t now;
	unsigned open;
	uint64_t unknown_gaps, known_gaps, known_bytes;
};

struct seen {
	uint64_t pos[2];
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void on_open(void *ctx, struct conn *c)
{
	((struct world *)ctx)->open++;
	must(!c->ctx);
	c->ctx = calloc(1, sizeof(struct seen));
	must(c->ctx != NULL);
}

static void on_bytes(void *ctx, struct conn *c, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct seen *s = c->ctx;

	(void)ctx;
	(void)ptr;
	(void)at;
	must(len > 0 && c->bytes[dir] >= s->pos[dir] + len);
	s->pos[dir] = c->bytes[dir];
}

static void on_gap(void *ctx, struct conn *c, enum dir dir, uint64_t len, enum gap_why why, const struct stamp *at)
{
	struct world *w = ctx;
	struct seen *s = c->ctx;

	(void)at;
	must(len > 0 && c->bytes[dir] >= s->pos[dir]);
	s->pos[dir] = c->bytes[dir];
	if (why == GAP_CAPPED)
		return;
	if (len == UINT64_MAX) {
		w->unknown_gaps++;
	} else {
		w->known_gaps++;
		w->known_bytes += len;
	}
}

static void on_end(void *ctx, struct conn *c, enum conn_end why, uint64_t ts_ns)
{
	(void)why;
	(void)ts_ns;
	((struct world *)ctx)->open--;
	free(c->ctx);
}

static struct conn_key key_of(uint8_t which)
{
	return (struct conn_key){.tgid = 1 + (which & 1),
				 .exec_id = which >> 1 & 1,
				 .start_ns = 5,
				 .obj = which >> 2 & 3,
				 .gen = which >> 4};
}

static void step(struct world *w, const uint8_t op[8])
{
	static const uint8_t text[256];
	struct conn_key k = key_of(op[1]);
	enum dir dir = op[2] & 1;
	uint64_t pos = op[3] | (uint64_t)(op[2] >> 4) << 8, cookie = op[4] & 7;

	w->now += (uint64_t)op[7] * op[7] * 100000;
	switch (op[0] % 12) {
	case 0:
	case 1:
	case 2:
		conns_push_data(w->t, &(struct rec_data){.conn = k,
							 .dir = dir,
							 .at = {.entry_ns = w->now, .ts_ns = w->now},
							 .pos = op[2] & 2 ? (1ull << 56) - pos : pos,
							 .ptr = text,
							 .len = op[5],
							 .orig_len = op[5] + (uint32_t)op[6],
							 .capped = op[2] & 4});
		break;
	case 3:
		conns_push_gap(w->t, &(struct rec_gap){.conn = k, .dir = dir, .pos = pos, .ts_ns = w->now});
		break;
	case 4:
		conns_push_open(w->t, &(struct rec_open){.conn = k, .ts_ns = w->now, .fresh = op[2] & 2});
		break;
	case 5:
		conns_push_close(
			w->t, &(struct rec_close){.conn = k, .ts_ns = w->now, .pos = {pos, op[5]}, .local = op[2] & 2});
		break;
	case 6:
		conns_push_handshake(w->t,
				     &(struct rec_handshake){.conn = k, .begin_ns = w->now - op[5], .end_ns = w->now});
		break;
	case 7:
		conns_push_conn_sock(w->t, &(struct rec_conn_sock){.conn = k,
								   .ts_ns = w->now,
								   .cookie = cookie,
								   .wire_len = (uint32_t)op[5] + 22,
								   .plain_len = op[5] + (op[6] & 1u),
								   .how = (enum sock_how)(1 + op[3] % 3),
								   .dir = dir});
		break;
	case 8:
		conns_push_sock(w->t, &(struct rec_sock){.ts_ns = w->now,
							 .begin_ns = op[5],
							 .cookie = cookie,
							 .what = (enum sock_what)(1 + op[3] % 9)});
		break;
	case 9:
		conns_push_exec(w->t, &(struct rec_exec){.proc = {k.tgid, k.exec_id + 1, 5}, .ts_ns = w->now});
		break;
	case 10:
		conns_push_exit(w->t, &(struct rec_exit){.proc = {k.tgid, k.exec_id, 5}, .ts_ns = w->now, .code = 1});
		break;
	default:
		conns_tick(w->t, w->now);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct world w = {.now = 1000};

	w.t = conns_new(&w.lost, &(struct conn_sink){&w, on_open, on_bytes, on_gap, NULL, NULL, NULL, on_end});
	if (!w.t)
		return 0;
	for (; len >= 8; bytes += 8, len -= 8)
		step(&w, bytes);
	conns_finish(w.t, w.now);
	must(w.open == 0);
	/* Late records of ended connections are counted without being told. */
	must(w.lost.n[LOST_EVENTS] >= w.known_gaps + w.unknown_gaps && w.lost.n[LOST_BYTES] >= w.known_bytes);
	conns_free(w.t);
	return 0;
}
