/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_HTTP_OPERATIONS_H
#define FLOW_HTTP_OPERATIONS_H

/*
 * Every HTTP exchange that the program serves or calls becomes a struct http_operation, unless it turns out to be a
 * call of a model, which others tell. Of bodies only their sizes are looked at (of GraphQL also the operation's name).
 *
 * What the program serves is not handed on: nobody else tells of it.
 *
 * A WebSocket ends its handshake, complete, with status 101. Eviction as in flow/llm/exchange.h.
 */

#include "base/lost.h"
#include "flow/proto/http.h"
#include "operation.h"

#define OPERATIONS_MAX 65536 /* open at once; more: the longest silent one is evicted, and counted */

struct operations_config {
	uint64_t stale_ns; /* one silent this long is evicted */
	uint64_t sweep_ns; /* how often they are looked for, in event time */
};

/* What the stage wants to know of a connection; filled by the owner, may change until the connection ends. */
struct operation_conn {
	struct conn_key key;
	uint64_t conn_id;
	bool fresh;  /* seen from its first byte: a response without a request is a loss */
	bool server; /* the program answers here */
	struct sock_addr peer;
};

struct operations_sink {
	void *ctx;
	/* One ended. Valid for the call. */
	void (*on_operation)(void *ctx, const struct http_operation *o);
	/* Is this exchange taken for a model's call, as far as can be told now? */
	bool (*is_call)(void *ctx, uint64_t conn_id, uint64_t xid);
};

struct operations;

struct operations *operations_new(const struct operations_config *cfg, struct lost *lost,
				  const struct operations_sink *sink); /* NULL: ENOMEM */
void operations_free(struct operations *t);
void operations_tick(struct operations *t, uint64_t now_ns);
/* Every open one as it stands now (unfinished, end_ns = now), for a snapshot. */
void operations_each_open(struct operations *t, uint64_t now_ns, void (*fn)(void *ctx, const struct http_operation *o),
			  void *ctx);

/* One connection's view. `conn` is borrowed until operations_conn_free(). */
struct operation_flow;
struct operation_flow *operations_conn_new(struct operations *t, const struct operation_conn *conn); /* NULL: ENOMEM */
void operations_conn_free(struct operation_flow *f);
/* Looks at what it hands on to `next`, before it looks itself. Copied. */
struct http_sink operations_http_sink(struct operation_flow *f, const struct http_sink *next);
/* That exchange was a model's call, which has been told. */
void operations_was_call(struct operation_flow *f, uint64_t xid);

#endif
