/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_HTTP_SCRIPT_H
#define TEST_HTTP_SCRIPT_H

/* What went over a connection, as a list, and a sink that writes it down so that cuts do not show. */

#include "harness.h"

#include "base/err.h"
#include "http_contract.h"

#define MS(n) ((uint64_t)(n)*1000000)

/* Bytes, or with text NULL a gap, or with neither a tick. Times in ms. */
struct script_step {
	enum dir dir;
	uint64_t entry_ms, ts_ms;
	const char *text;
	uint64_t gap; /* UINT64_MAX: unknown */
	enum http_gap why;
	size_t len; /* of text; 0: strlen */
};

#define TX(t, text)                                                                                                    \
	{                                                                                                              \
		DIR_TX, (t), (t), (text), 0, HTTP_GAP_LOST, 0                                                          \
	}
#define TX2(e, t, text)                                                                                                \
	{                                                                                                              \
		DIR_TX, (e), (t), (text), 0, HTTP_GAP_LOST, 0                                                          \
	}
#define RX(t, text)                                                                                                    \
	{                                                                                                              \
		DIR_RX, (t), (t), (text), 0, HTTP_GAP_LOST, 0                                                          \
	}
#define GAP(dir, t, n)                                                                                                 \
	{                                                                                                              \
		(dir), (t), (t), NULL, (n), HTTP_GAP_LOST, 0                                                           \
	}
#define CAPPED(dir, t, n)                                                                                              \
	{                                                                                                              \
		(dir), (t), (t), NULL, (n), HTTP_GAP_CAPPED, 0                                                         \
	}
#define TICK(t)                                                                                                        \
	{                                                                                                              \
		DIR_TX, (t), (t), NULL, 0, HTTP_GAP_LOST, 0                                                            \
	}
#define UNKNOWN_BYTES UINT64_MAX

static inline size_t step_len(const struct script_step *s)
{
	return !s->text ? 0 : s->len ? s->len : strlen(s->text);
}

static inline size_t script_len(const struct script_step *s, size_t count)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		n += step_len(&s[i]);
	return n;
}

static inline struct stamp step_stamp(const struct script_step *s)
{
	return (struct stamp){MS(s->entry_ms), MS(s->ts_ms), 7, 0};
}

/* The text log. Body pieces of one stamp are one line. */
struct hlog {
	struct tlog log;
	uint64_t xid;
	enum http_side side;
	struct stamp at;
	struct tlog body;
};

static const char *const hlog_abort[] = {"client", "server", "closed", "exit", "loss", "end", "parse", "upgrade"};

/* tlog_escaped(), but runs of plain characters at once: thousands of cuts are logged. */
static inline void hlog_escaped(struct tlog *l, const char *ptr, size_t len)
{
	size_t i = 0, n;

	while (i < len) {
		for (n = 0; i + n < len && ptr[i + n] >= 0x20 && ptr[i + n] < 0x7f && ptr[i + n] != '\\'; n++)
			;
		if (n)
			tlog_printf(l, "%.*s", (int)n, ptr + i);
		else
			tlog_escaped(l, ptr + i, n = 1);
		i += n;
	}
}

static inline void hlog_flush(struct hlog *l)
{
	if (!l->body.len)
		return;
	tlog_printf(&l->log, "%d %s @%d ", (int)l->xid, l->side == HTTP_REQUEST ? ">" : "<",
		    (int)(l->at.ts_ns / MS(1)));
	tlog_printf(&l->log, "%s\n", l->body.text);
	l->body.len = 0;
}

static inline void hlog_request(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct hlog *l = ctx;

	hlog_flush(l);
	if (!h) {
		tlog_printf(&l->log, "%d unseen @%d\n", (int)xid, (int)(first->ts_ns / MS(1)));
		return;
	}
	if (h->unreadable) {
		tlog_printf(&l->log, "%d unreadable %.*s %.*s @%d\n", (int)xid, (int)h->method.len,
			    h->method.len ? h->method.ptr : "", (int)h->target.len, h->target.len ? h->target.ptr : "",
			    (int)(first->ts_ns / MS(1)));
		return;
	}
	tlog_printf(&l->log, "%d %.*s %.*s host=%.*s n=%zu @%d/%d\n", (int)xid, (int)h->method.len, h->method.ptr,
		    (int)h->target.len, h->target.ptr, (int)h->host.len, h->host.len ? h->host.ptr : "",
		    h->header_count, (int)(first->entry_ns / MS(1)), (int)(first->ts_ns / MS(1)));
}

static inline void hlog_body(void *ctx, uint64_t xid, enum http_side side, const uint8_t *ptr, size_t len,
			     const struct stamp *at)
{
	struct hlog *l = ctx;

	if (l->body.len && (l->xid != xid || l->side != side || memcmp(&l->at, at, sizeof(*at))))
		hlog_flush(l);
	l->xid = xid;
	l->side = side;
	l->at = *at;
	hlog_escaped(&l->body, (const char *)ptr, len);
}

static inline void hlog_gap(void *ctx, uint64_t xid, enum http_side side, uint64_t len, enum http_gap why,
			    const struct stamp *at)
{
	struct hlog *l = ctx;

	(void)at;
	hlog_flush(l);
	tlog_printf(&l->log, "%d %s gap %d%s\n", (int)xid, side == HTTP_REQUEST ? ">" : "<",
		    len == UINT64_MAX ? -1 : (int)len, why == HTTP_GAP_CAPPED ? " capped" : "");
}

static inline void hlog_request_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct hlog *l = ctx;

	hlog_flush(l);
	tlog_printf(&l->log, "%d > end %d @%d\n", (int)xid, (int)carried, (int)(at->ts_ns / MS(1)));
}

static inline void hlog_response(void *ctx, uint64_t xid, const struct http_head *h, const struct stamp *first)
{
	struct hlog *l = ctx;

	hlog_flush(l);
	tlog_printf(&l->log, "%d < %d n=%zu @%d\n", (int)xid, h->status, h->header_count, (int)(first->ts_ns / MS(1)));
}

static inline void hlog_response_end(void *ctx, uint64_t xid, uint64_t carried, const struct stamp *at)
{
	struct hlog *l = ctx;

	hlog_flush(l);
	tlog_printf(&l->log, "%d < end %d @%d\n", (int)xid, (int)carried, (int)(at->ts_ns / MS(1)));
}

static inline void hlog_aborted(void *ctx, uint64_t xid, enum http_abort why, uint64_t carried, uint64_t ts_ns)
{
	struct hlog *l = ctx;

	hlog_flush(l);
	tlog_printf(&l->log, "%d abort %s %d @%d\n", (int)xid, hlog_abort[why], (int)carried, (int)(ts_ns / MS(1)));
}

static inline struct http_sink hlog_sink(struct hlog *l)
{
	return (struct http_sink){
		l, hlog_request, hlog_body, hlog_gap, hlog_request_end, hlog_response, hlog_response_end, hlog_aborted};
}

static inline void hlog_free(struct hlog *l)
{
	tlog_free(&l->log);
	tlog_free(&l->body);
	*l = (struct hlog){0};
}

#endif
