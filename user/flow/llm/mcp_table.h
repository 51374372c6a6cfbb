/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_MCP_TABLE_H
#define FLOW_LLM_MCP_TABLE_H

/* What the parts of the MCP stage (mcp*.c) share. Private to them. */

#include "mcp.h"

#include <utlist.h>

#include "base/hash.h"

#include "mcp_scan.h"

/* A client and a server. Over stdio it is the connection's; over HTTP one of the process, by its id or its target. */
struct mcp_session {
	struct mcp_session *prev, *next; /* of mcp.sessions, longest unused first; HTTP only */
	struct mcp_session_key {	 /* compared with memcmp: no holes */
		uint64_t start_ns, name; /* name: a hash */
		uint32_t tgid, zero;
	} key;
	UT_hash_handle hh;
	bool by_key; /* in mcp.by_key */
	unsigned refs;
	bool proven;	   /* it is one of MCP */
	bool begun;	   /* something was asked in it */
	bool shared;	   /* answers may come on another exchange */
	unsigned mirrored; /* requests that the other end was seen to make */
	char *server, *server_version, *protocol_version;
};

struct mcp_request {
	struct mcp_request *prev, *next;		    /* of mcp.open, by age; or of mcp.lonely */
	struct mcp_request *of_exchange, *of_exchange_prev; /* of mcp_exchange.requests */
	struct mcp_request_key {			    /* compared with memcmp: zeroed first */
		const struct mcp_session *session;
		uint64_t exchange; /* 0: the session's ids are its own */
		uint32_t asker;	   /* enum dir */
		struct mcp_id id;
	} key;
	UT_hash_handle hh;
	bool hashed; /* in mcp.requests */
	struct mcp_session *session;
	struct mcp_flow *flow;	       /* NULL: the connection is gone */
	struct mcp_exchange *exchange; /* NULL: stdio, or it ended */
	struct mcp_id token;	       /* of its progress */
	uint64_t hash;		       /* of its bytes; 0 unknown */
	uint64_t lossy_ns;	       /* when bytes went missing first, UNKNOWN_NS */
	bool counted;		       /* in mcp_flow.open */
	bool mirror, mirrored;	       /* the other end may be traced too; it is */
	struct mcp_call call;	       /* without what the session says */
};

/* One HTTP exchange that may carry messages. */
struct mcp_exchange {
	uint64_t xid; /* key, in mcp_flow.exchanges */
	UT_hash_handle hh;
	struct mcp_flow *flow;
	size_t held;			    /* bytes of it in mcp.held */
	uint64_t serial;		    /* unique in the run */
	struct mcp_session *session;	    /* of the request; NULL: none yet */
	struct mcp_session *answer_session; /* of the response's Mcp-Session-Id; NULL: the same */
	struct mcp_request *requests;	    /* open ones */
	struct decode *decode;		    /* of the request's body */
	struct mcp_scan *scan;		    /* ... */
	struct body *body;		    /* of the response */
	uint64_t session_name;		    /* of the session, made when a message comes */
	bool session_stated;		    /* ... by an id, or by the stream that answers */
	bool post;
	bool heard;		  /* a message came */
	bool foreign;		  /* what came is none */
	bool stream;		  /* it brings messages of a session as they come */
	bool missing;		  /* parts of the response */
	struct stamp first, last; /* of the request's head; of the latest bytes */
	int status;
	char *host; /* owned */
};

/* One direction of a stdio connection. */
struct mcp_lines {
	struct mcp_scan *scan; /* NULL: between lines */
	bool skipping;	       /* up to the next LF */
	bool lossy;	       /* ... because bytes of it are missing */
	uint64_t hash;	       /* of the line so far */
	struct stamp first, now;
	struct mcp_flow *flow;
	enum dir dir;
};

struct mcp_flow {
	struct mcp *table;
	const struct exchange_conn *conn;
	unsigned begun, open;
	unsigned requests; /* in mcp.open whose flow this is */
	/* HTTP */
	struct mcp_exchange *exchanges; /* hash */
	struct http_sink next;
	unsigned streams; /* exchanges that bring messages of a session */
	/* stdio */
	struct mcp_session *session;
	struct mcp_lines lines[2];
};

struct mcp_recent {
	uint64_t hash, conn_id;
};

struct mcp {
	struct mcp_config cfg;
	struct lost *lost;
	struct mcp_sink sink;
	struct mcp_session *sessions; /* list */
	struct mcp_session *by_key;   /* hash */
	struct mcp_request *open;     /* list, oldest first */
	struct mcp_request *lonely;   /* ended; waiting for who asked */
	struct mcp_request *requests; /* hash */
	unsigned open_count, lonely_count, session_count;
	size_t held; /* bytes of memory in bodies that are being read */
	uint64_t now_ns, next_sweep_ns, last_serial;
	struct mcp_recent recent[MCP_RECENT_MAX];
	unsigned recent_at;
};

/* Where a message came. */
struct mcp_place {
	struct mcp_flow *flow;
	struct mcp_session *session;
	struct mcp_exchange *exchange; /* NULL: stdio */
	enum dir dir;		       /* of the message, as the client of HTTP sees it */
	struct stamp first, last;
	uint64_t hash; /* of its bytes; 0 unknown */
};

void mcp_message(struct mcp *t, const struct mcp_place *at, const struct mcp_message *m);
void mcp_request_end(struct mcp *t, struct mcp_request *r, enum end_reason end, uint64_t ns);
void mcp_request_lossy(struct mcp_request *r, uint64_t ns);
void mcp_advance(struct mcp *t, uint64_t ns); /* event time; ends what is due */

struct mcp_session *mcp_session_new(struct mcp *t); /* NULL: no memory, counted */
struct mcp_session *mcp_session_get(struct mcp *t, const struct conn_key *conn, uint64_t name); /* likewise */
void mcp_session_release(struct mcp *t, struct mcp_session *s); /* one reference; NULL is fine */

char *mcp_copy(struct mcp *t, struct sv text, size_t max); /* NULL: empty, or no memory, which is counted */

/* --- mcp_http.c -------------------------------------------------------------------------------------------------- */
void mcp_exchanges_free(struct mcp_flow *f);
enum end_reason mcp_end_of_abort(enum http_abort why);

#endif
