/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_MCP_CALL_H
#define FLOW_LLM_MCP_CALL_H

/*
 * One finished request of the Model Context Protocol (a tool called, tools listed …): the plain data that span and
 * summary read. Never arguments or results. Unknown: UNKNOWN_NS, NULL, 0 where said.
 */

#include "call.h"

enum mcp_transport { MCP_STDIO, MCP_HTTP };

struct mcp_call {
	struct conn_key conn; /* of the request */
	uint64_t conn_id;
	uint32_t tid;	   /* thread of the request's first byte */
	uint64_t start_ns; /* entry of the call that moved the first byte of the request */
	uint64_t end_ns;   /* the last byte of the answer was moved; or what ended it instead */
	enum mcp_transport transport;
	bool answerer;		/* the traced program is the one that was asked */
	char *method;		/* owned: tools/call */
	char *target;		/* owned: name of the tool or prompt; NULL where the method has none */
	char *id;		/* owned: the request's, as text */
	char *server;		/* owned: what the server calls itself, else the host asked */
	char *server_version;	/* owned */
	char *protocol_version; /* owned: the one agreed on */
	char *host;		/* owned: HTTP */
	struct sock_addr peer;	/* family 0: unknown */
	int status;		/* HTTP; 0 unknown */
	char *error;		/* owned: tool_error, a JSON-RPC error code, an HTTP status; NULL: none */
	char *error_message;	/* owned; only with content */
	unsigned progress;	/* notifications of progress that came */
	bool cancelled;		/* by the one who asked */
	enum end_reason end;
	bool unfinished;		/* still open when tracing ended, or in a snapshot */
	char *undecoded;		/* owned; why the answer could not be read; NULL: it was */
	bool lossy;			/* bytes are missing in what was said while it was open */
	int32_t exit_code, exit_signal; /* with END_PROCESS_EXIT */
};

void mcp_call_release(struct mcp_call *c);
const char *mcp_transport_name(enum mcp_transport t); /* static: "stdio", "http" */

#endif
