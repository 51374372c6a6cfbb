/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* A greeting of a stranger; and records about a few sockets, in any order: what is told of a turn is in order. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "flow/wire.h"
#include "flow/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void on_turn(void *ctx, const struct wire_turn *t)
{
	(void)ctx;
	if (t->begin_ns > t->send_end_ns || t->send_end_ns > t->first_ns || t->first_ns > t->end_ns ||
	    strlen(t->conn.host) > WIRE_HOST_MAX || t->retransmits > WIRE_RETRANSMITS)
		abort();
}

static void on_conn(void *ctx, const struct wire_conn *c)
{
	(void)ctx;
	if (!c->served && !c->turns)
		abort();
}

static uint64_t small_ns(uint8_t b)
{
	return b == 255 ? UNKNOWN_NS : b * 40000000ull;
}

static void step(struct wires *t, const uint8_t b[8], uint64_t now_ns)
{
	struct rec_wire w = {
		.proc = {.tgid = b[1] % 3u},
		.ts_ns = now_ns,
		.cookie = b[1] % 5u + 1,
		.tx_begin_ns = small_ns(b[2]),
		.tx_end_ns = small_ns(b[3]),
		.rx_begin_ns = small_ns(b[4]),
		.rx_end_ns = small_ns(b[5]),
		.turn = b[6] % 16u + 1,
		.hello = b[7] & 1,
		.server = b[7] & 2,
		.ended = b[7] & 4,
		.closed = b[7] & 8,
		.first_type = 0x16 + (b[7] >> 7),
	};
	struct rec_sock s = {
		.ts_ns = now_ns, .cookie = w.cookie, .what = (enum sock_what)(b[2] % 9u + 1), .begin_ns = b[3]};
	struct rec_files f = {
		.tgid = w.proc.tgid, .ts_ns = now_ns, .probed = b[2] & 1, .refused = b[2] & 2, .again = b[2] & 4};
	struct rec_exit x = {.proc = w.proc, .ts_ns = now_ns};

	switch (b[0] % 7) {
	case 0:
	case 1:
		wires_push(t, &w);
		break;
	case 2:
		wires_push_sock(t, &s);
		break;
	case 3:
		wires_push_files(t, &f);
		break;
	case 4:
		wires_push_plain(t, w.proc.tgid, b[2] & 1 ? w.cookie : 0, small_ns(b[3]), now_ns);
		break;
	case 5:
		wires_push_exit(t, &x);
		break;
	default:
		wires_tick(t, now_ns);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct wire_sink sink = {.on_turn = on_turn, .on_conn = on_conn};
	struct rec_hello h = {.cookie = 1, .bytes = {(const char *)bytes, len}};
	struct sv host = hello_host(h.bytes);
	struct lost lost = {0};
	struct wires *t = wires_new(&lost, &sink);

	if (host.len > WIRE_HOST_MAX ||
	    (host.ptr && (host.ptr < h.bytes.ptr || host.ptr + host.len > h.bytes.ptr + len)))
		abort();
	if (hello_session(h.bytes).len > HELLO_SESSION_MAX || hello_resumed(h.bytes, hello_session(h.bytes)) > 1)
		abort();
	if (!t)
		return 0;
	wires_push_hello(t, &h);
	for (size_t i = 0; i + 8 <= len; i += 8)
		step(t, bytes + i, (i / 8) * 100000000ull);
	wires_finish(t, len * 100000000ull);
	wires_free(t);
	return 0;
}
