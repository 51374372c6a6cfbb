/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A byte of flags, then a conversation of HTTP/1 as steps (steps.h): whole and byte by byte the same must be told. */
#include "flow/http/operations.h"
#include "flow/proto/http1.h"
#include "steps.h"
#include "tests/unit/http_contract.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_operation(void *ctx, const struct http_operation *o)
{
	CONTRACT(o->id && o->start_ns != UNKNOWN_NS && o->end_ns != UNKNOWN_NS);
	CONTRACT(o->request_bytes >= UNKNOWN_COUNT && o->response_bytes >= UNKNOWN_COUNT);
	CONTRACT(!o->route || strlen(o->route) <= 256);
	CONTRACT(!o->route || o->path);
	fold(ctx, o->id);
	fold(ctx, o->start_ns);
	fold(ctx, o->ttfb_ns);
	fold(ctx, o->end_ns);
	fold(ctx, (uint64_t)o->request_bytes);
	fold(ctx, (uint64_t)o->response_bytes);
	fold(ctx, (uint64_t)o->status << 8 | (uint64_t)o->end << 3 | (uint64_t)o->lossy << 2 | o->mid_attach);
	fold_sv(ctx, sv_of(o->route));
	fold_sv(ctx, sv_of(o->label));
}

static uint64_t play(const uint8_t *data, size_t size, bool bytewise)
{
	const struct operations_config cfg = {.stale_ns = 300, .sweep_ns = 100};
	struct operation_conn conn = {.conn_id = 1, .server = data[0] & 1, .fresh = data[0] & 2};
	struct steps s = {data + 1, size - 1, 1000};
	static struct contract c;
	struct lost lost = {0};
	uint64_t sum = 0;
	struct operations *t = operations_new(&cfg, &lost, &(struct operations_sink){&sum, on_operation, NULL});
	struct operation_flow *f = operations_conn_new(t, &conn);
	struct http_sink sink = contract_sink(&c);
	struct http1 *h;
	struct step step;

	c = (struct contract){0};
	sink = operations_http_sink(f, &sink);
	h = http1_new(conn.fresh, conn.server ? DIR_RX : DIR_TX, &sink);
	while (steps_next(&s, &step)) {
		if (!step.ptr)
			http1_gap(h, step.dir, step.len, HTTP_GAP_LOST, &step.at);
		else if (!bytewise)
			http1_push(h, step.dir, step.ptr, step.len, &step.at);
		for (size_t i = 0; step.ptr && bytewise && i < step.len; i++)
			http1_push(h, step.dir, step.ptr + i, 1, &step.at);
		operations_each_open(t, s.now, on_operation, &sum);
	}
	http1_finish(h, HTTP_ABORT_CLOSED, s.now);
	CONTRACT(c.open_count == 0);
	http1_free(h);
	operations_conn_free(f);
	operations_free(t);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size)
		steps_compare(data, size, play);
	return 0;
}
