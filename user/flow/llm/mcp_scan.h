/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_MCP_SCAN_H
#define FLOW_LLM_MCP_SCAN_H

/*
 * JSON-RPC 2.0 messages (jsonrpc.org/specification) out of a JSON text that comes in pieces: one object, or a batch of
 * them in an array. Bounded memory: of what the messages carry only names and ids are kept. Members may come in any
 * order: SDKs put `jsonrpc` first or last. Private child of mcp.
 */

#include "base/lost.h"
#include "base/types.h"

#define MCP_TEXT_BYTES	  129  /* of a name or an id, and a NUL; longer names are cut */
#define MCP_MESSAGE_BYTES 257  /* of an error's message */
#define MCP_BATCH_MAX	  1024 /* messages of one batch; the rest is passed over, and counted in LOST_DECODE_ERRORS */

enum mcp_kind {
	MCP_NOTHING, /* no message of JSON-RPC 2.0, or one whose id is longer than MCP_TEXT_BYTES */
	MCP_REQUEST,
	MCP_NOTIFICATION,
	MCP_RESPONSE,
};

/* A request's or response's id: numbers and strings are different ids. type 0: none, or null. */
struct mcp_id {
	char type; /* 'n', 's' */
	char text[MCP_TEXT_BYTES];
};

struct mcp_message {
	enum mcp_kind kind;
	struct mcp_id id;
	char method[MCP_TEXT_BYTES];
	char name[MCP_TEXT_BYTES];	       /* params.name */
	char protocol_version[MCP_TEXT_BYTES]; /* of params or result, if it is text */
	char peer[MCP_TEXT_BYTES];	       /* serverInfo.name of a result */
	char peer_version[MCP_TEXT_BYTES];
	struct mcp_id cancelled; /* notifications/cancelled: params.requestId */
	struct mcp_id token;	 /* progress token: of a request's params._meta, or of notifications/progress */
	bool tool_error;	 /* result.isError */
	bool failed;		 /* has `error` */
	char error_code[24];	 /* "" unknown */
	char error_message[MCP_MESSAGE_BYTES];
};

struct mcp_scan_sink {
	void *ctx;
	/* A message is complete. Borrowed for the call. Not called for MCP_NOTHING. */
	void (*on_message)(void *ctx, const struct mcp_message *m);
};

struct mcp_scan;

/* `lost` is borrowed. NULL: ENOMEM. */
struct mcp_scan *mcp_scan_new(const struct mcp_scan_sink *sink, struct lost *lost);
void mcp_scan_free(struct mcp_scan *s);
void mcp_scan_push(struct mcp_scan *s, const uint8_t *ptr, size_t len);
void mcp_scan_gap(struct mcp_scan *s);	       /* nothing more will be told */
bool mcp_scan_begun(const struct mcp_scan *s); /* something of it came */
bool mcp_scan_batch(const struct mcp_scan *s); /* the text is a list of messages */
/* The text is at its end, or is none of JSON-RPC: nothing more will be told. */
bool mcp_scan_over(const struct mcp_scan *s);

#endif
