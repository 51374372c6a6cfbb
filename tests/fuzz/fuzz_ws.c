/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* A byte of what was agreed on in the handshake, then steps: see steps.h. */

#include "flow/proto/ws.h"
#include "tests/fuzz/steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct told {
	uint64_t sum;
	uint64_t messages[2], opaque[2];
	unsigned undecoded[2], closed[2];
};

static void fold_message(struct told *t, enum dir dir, const struct ws_message *m, bool whole)
{
	if ((m->opcode != WS_TEXT && m->opcode != WS_BINARY) || m->data.len > WS_MESSAGE_MAX || t->closed[dir])
		abort();
	if (!whole && m->data.len > WS_PREFIX_MAX)
		abort();
	if (whole && (!m->complete || (!m->compressed && m->carried != m->data.len)))
		abort();
	fold_sv(&t->sum, m->data);
	fold(&t->sum, dir * 2u + whole);
	fold(&t->sum, m->carried * 16 + m->opcode * 4u + m->compressed * 2u + m->complete);
	fold(&t->sum, m->first.ts_ns);
	fold(&t->sum, m->last.ts_ns);
}

static void on_message(void *ctx, enum dir dir, const struct ws_message *m)
{
	struct told *t = ctx;

	fold_message(t, dir, m, true);
	t->messages[dir]++;
}

static void on_opaque(void *ctx, enum dir dir, const struct ws_message *m)
{
	struct told *t = ctx;

	fold_message(t, dir, m, false);
	t->opaque[dir]++;
}

static void on_close(void *ctx, enum dir dir, int code, const struct stamp *at)
{
	struct told *t = ctx;

	fold(&t->sum, (uint64_t)code * 2 + dir);
	fold(&t->sum, at->ts_ns);
	if (t->closed[dir]++)
		abort();
}

static void on_undecoded(void *ctx, enum dir dir, const char *reason, const struct stamp *at)
{
	struct told *t = ctx;

	fold_sv(&t->sum, sv_of(reason));
	fold(&t->sum, at->ts_ns);
	if (t->undecoded[dir]++)
		abort();
}

static bool on_found(void *ctx, enum dir dir, const struct ws_message *m)
{
	struct told *t = ctx;

	if (!m->complete || !sv_starts(m->data, SV("{")) || !t->undecoded[dir])
		abort();
	fold_sv(&t->sum, m->data);
	if (m->data.len % 3 == 0)
		return false;
	t->undecoded[dir] = 0;
	return true;
}

static void finish(struct ws *w, struct told *t)
{
	ws_finish(w);
	for (int dir = 0; dir < 2; dir++) {
		const struct ws_counts *c = ws_counts(w, (enum dir)dir);

		if (c->messages != t->messages[dir] || c->opaque != t->opaque[dir])
			abort();
		fold(&t->sum, c->bytes);
		fold(&t->sum, c->frames * 1000 + c->control);
		fold(&t->sum, c->hidden * 2 + ws_given_up(w, (enum dir)dir));
	}
	ws_free(w);
}

static uint64_t play(const uint8_t *data, size_t size, bool bytewise)
{
	struct ws_params params = {
		.known = data[0] & 1,
		.deflate = data[0] & 2,
		.other = data[0] & 4,
		.client_no_context_takeover = data[0] & 8,
		.server_no_context_takeover = data[0] & 16,
	};
	struct steps steps = {data + 1, size - 1, 1000};
	struct told told = {0};
	struct ws_sink sink = {&told, on_message, on_opaque, on_close, on_undecoded, on_found};
	struct ws *w = ws_new(data[0] & 32 ? DIR_RX : DIR_TX, &params, &sink);
	struct step s;

	while (w && steps_next(&steps, &s)) {
		if (!s.ptr)
			ws_gap(w, s.dir, s.len, &s.at);
		for (size_t i = 0; s.ptr && bytewise && i < s.len; i++)
			ws_push(w, s.dir, s.ptr + i, 1, &s.at);
		if (s.ptr && !bytewise)
			ws_push(w, s.dir, s.ptr, s.len, &s.at);
	}
	if (w)
		finish(w, &told);
	return told.sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ws_detect(data, size);
	if (size)
		steps_compare(data, size, play);
	return 0;
}
