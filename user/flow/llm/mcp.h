/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_MCP_H
#define FLOW_LLM_MCP_H

/*
 * The Model Context Protocol (modelcontextprotocol.io, versions 2024-11-05 to 2025-11-25): JSON-RPC 2.0 requests are
 * paired with their answers, by id and by who asked, and become struct mcp_call.
 *
 *   stdio              a message a line, both ways over one connection
 *   streamable HTTP    a message, or a batch, a POST; answers as JSON or as events of that response, or of another
 *                      one of the session (Mcp-Session-Id)
 *   HTTP with SSE      the older one: a stream of GET names the target to post to (`endpoint`) and brings the answers
 *
 * Others speak JSON-RPC too (LSP, A2A, ACP, Ethereum): a session is one of MCP from the first method on that only MCP
 * has, or an `initialize` whose protocolVersion is text; what comes of a session that never is one is not told.
 * Notifications are not told. An answer whose request was not seen is not told; that
 * of `initialize` names the server all the same.
 *
 * Where both ends of a stdio connection are traced a request is seen twice. The asker's is told; the other one, known
 * by the same bytes, is not. It is told after MCP_MIRROR_NS when nobody was seen to ask.
 *
 * What is answered over HTTP is told like what is asked; the owner of the connection knows which end it is.
 *
 * Times: the entry of the call that moved a request's first byte, and the move of its answer's last one. Eviction as in
 * exchange.h. Missing bytes: what is open on that connection is lossy, and goes on with the next line.
 */

#include "base/lost.h"
#include "exchange.h"
#include "mcp_call.h"

#define MCP_OPEN_MAX 65536 /* requests open at once; more: the longest open one is evicted, and counted */
#define MCP_SESSIONS_MAX                                                                                               \
	4096		       /* HTTP sessions remembered; the longest unused one without open requests is forgotten  \
				*/
#define MCP_EXCHANGES_MAX 1024 /* HTTP exchanges of one connection looked at; more are not, and counted */
/* Bodies that are being read, with their decompressors; the one that passes it is given up: "over 32 MiB at once". */
#define MCP_HELD_MAX   (32u << 20)
#define MCP_RECENT_MAX 1024 /* latest requests over stdio that are compared with the other end's */
#define MCP_LONELY_MAX 1024 /* ended ones that wait for the other end; more: the oldest one is told */
#define MCP_MIRROR_NS  1000000000ull

struct mcp_config {
	uint64_t stale_ns; /* a request open this long is evicted */
	uint64_t sweep_ns; /* how often they are looked for, in event time */
	bool content;	   /* keep messages of errors */
};

struct mcp_sink {
	void *ctx;
	/* A request was answered, or ended without. Owned by the stage, valid for the call. */
	void (*on_mcp)(void *ctx, const struct mcp_call *c);
};

struct mcp;

struct mcp *mcp_new(const struct mcp_config *cfg, struct lost *lost, const struct mcp_sink *sink); /* NULL: ENOMEM */
void mcp_free(struct mcp *t);
void mcp_tick(struct mcp *t, uint64_t now_ns);
/* Ends what is open: HTTP_ABORT_CAPTURE_END. */
void mcp_finish(struct mcp *t, uint64_t now_ns);
/* The process ended: so did what it asked. */
void mcp_exit(struct mcp *t, const struct proc_key *proc, int32_t code, int32_t signal, uint64_t ts_ns);
/* Every open request as it stands now (unfinished = true, end_ns = now), for a snapshot. */
void mcp_each_open(struct mcp *t, uint64_t now_ns, void (*fn)(void *ctx, const struct mcp_call *c), void *ctx);

/* One connection's view. `conn` is borrowed until mcp_conn_free(). */
struct mcp_flow;
struct mcp_flow *mcp_conn_new(struct mcp *t, const struct exchange_conn *conn); /* NULL: no memory, counted */
void mcp_conn_free(struct mcp_flow *f);
/* What it was asked over HTTP is the business of others: nothing of it will be told any more. */
void mcp_conn_forget(struct mcp_flow *f);
/* Looks at what it hands on to `next`. Copied. */
struct http_sink mcp_http_sink(struct mcp_flow *f, const struct http_sink *next);
/* Bytes of stdio. */
void mcp_stdio_push(struct mcp_flow *f, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
/* capped: a message that is longer than what is copied of a request; it cannot be read, and is counted. */
void mcp_stdio_gap(struct mcp_flow *f, enum dir dir, bool capped, const struct stamp *at);
void mcp_stdio_end(struct mcp_flow *f, enum http_abort why, uint64_t ts_ns);

void mcp_conn_warm(const struct mcp_flow *f, struct warm *w); /* adds what a piece of a body looks at */
unsigned mcp_conn_begun(const struct mcp_flow *f);	      /* requests of MCP begun on it */
unsigned mcp_conn_open(const struct mcp_flow *f); /* ... that have no answer yet, or streams that may bring some */

#endif
