/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_HTTP_OPERATION_H
#define FLOW_HTTP_OPERATION_H

/* One HTTP request and its answer, served or called: the plain data that span and record read. Unknown: UNKNOWN_NS,
 * UNKNOWN_COUNT, NULL, status 0, tid 0. */

#include "base/types.h"
#include "flow/llm/call.h"

struct http_operation {
	uint64_t id; /* unique in the run, from 1 */
	struct conn_key conn;
	uint64_t conn_id;
	bool server;	       /* the program answered it; else it asked */
	const char *protocol;  /* static */
	char *method, *host;   /* owned */
	char *path;	       /* owned; without secret query values */
	char *route;	       /* owned; the path's shape: route.h */
	char *label;	       /* owned; what the request says that it does: route.h */
	int status;	       /* of the final response */
	uint32_t tid;	       /* thread that moved the request's first byte */
	uint32_t response_tid; /* ... and the response's */
	struct sock_addr peer; /* family 0: unknown */
	/* A client's begins with the entry of the write of its first byte, a server's with the return of the read. */
	uint64_t start_ns;
	uint64_t ttfb_ns;		       /* the first byte of the final response's head was moved */
	uint64_t end_ns;		       /* the response's last byte was, or what ended it instead */
	int64_t request_bytes, response_bytes; /* as carried */
	enum end_reason end;
	bool unfinished; /* still open, in a snapshot */
	bool lossy;	 /* the capture missed bytes of it */
	bool mid_attach; /* its request was not seen: it has no start, start_ns is when it was first seen */
};

#endif
