/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_EXCHANGE_TABLE_H
#define FLOW_LLM_EXCHANGE_TABLE_H

/* The table of pending exchanges: what its parts (exchange*.c) share. Private to them. */

#include "exchange.h"

#include <utlist.h>

#include "base/hash.h"

#include "answer.h"
#include "client.h"
#include "dialect.h"
#include "ended.h"
#include "request.h"
#include "retry.h"

/* All of an exchange but its framing. */
struct pending {
	struct pending *prev, *next; /* of exchanges.silent */
	struct entry *entry;
	uint64_t last_ns;	       /* when it was last heard of */
	size_t held;		       /* bytes of it in exchanges.held */
	const struct dialect *dialect; /* NULL: it has not said yet what it is */
	struct answer *answer;
	struct request *request;  /* NULL after its end */
	struct call call;	  /* what is known from the request; the answer's part is added by report() */
	struct dialect_path path; /* without its model, which is in path_model */
	char path_model[REQUEST_NAME_BYTES];
	struct request_facts facts;
	struct client client;
	bool upgrade;	     /* asks for a WebSocket */
	bool by_shape;	     /* nobody claims the path: request and answer tell */
	bool first_call;     /* of its connection */
	bool denied;	     /* the request is none of a model call, whatever its path */
	bool rpc;	     /* ... but a remote procedure call (MCP) */
	bool anthropic_head; /* it has an anthropic-version */
	bool hole[2];	     /* of unknown length, in the request, in the response */
	bool doubted;	     /* the response may be another request's: nothing of it is told */
	bool retransmits_known;
	uint32_t retransmits; /* of the socket when it began */
};

/* One exchange of one connection. Without `pending` its call was evicted and only later bytes are counted, or it became
 * a WebSocket. */
struct entry {
	struct entry_key {
		struct exchange_flow *flow;
		uint64_t xid;
	} key;
	struct pending *pending;
	struct ws_session *session;
	struct entry *prev, *next; /* of exchange_flow.entries */
	UT_hash_handle hh;
};

struct exchange_flow {
	struct exchanges *table;
	const struct exchange_conn *conn;
	struct entry *entries;
	struct entry *latest; /* that was looked for; NULL: none, or it is gone */
	unsigned calls;
	uint64_t last_message_call; /* of those that came as WebSocket messages */
	bool used;		    /* it carried an exchange before */
	uint64_t asked_ns;	    /* the first request that was seen, in a protocol that keeps order; UNKNOWN_NS */
};

/* Processes that made calls. Beside a main session, which is one with tools, small calls without are auxiliary. */
struct caller {
	struct caller_key {
		uint32_t tgid, exec_id;
		uint64_t start_ns;
	} key;
	uint64_t first_ns; /* when its first call began */
	bool main;	   /* it made one with tools */
	UT_hash_handle hh;
};

struct exchanges {
	struct exchange_config cfg;
	struct lost *lost;
	struct exchange_sink sink;
	struct entry *entries;	/* hash */
	struct pending *silent; /* list, longest silent first */
	unsigned pending_count, open_calls, session_count;
	size_t held;		/* bytes of memory in bodies that are being read */
	uint64_t now_ns;	/* latest stamp seen */
	uint64_t next_sweep_ns; /* 0: no stamp seen yet */
	uint64_t last_id;
	struct caller *callers; /* hash, oldest first */
	struct retries retries;
};

/* --- exchange_table.c: life -------------------------------------------------------------------------------------- */
struct pending *pending_new(struct exchange_flow *f, uint64_t xid); /* NULL: no memory, counted */
void pending_free(struct exchanges *t, struct pending *p);
void entry_free(struct exchanges *t, struct entry *e);
struct entry *entry_find(struct exchange_flow *f, uint64_t xid);
void pending_touch(struct exchanges *t, struct pending *p); /* it was heard of */
/* It is a model call of that dialect. */
void pending_begin(struct pending *p, const struct dialect *d);
/* The connection's part of a new one; first: of its first byte. */
void pending_conn(struct pending *p, const struct stamp *first);
/* `unseen`: of its head, or of the handshake that it follows, something is not known: from before the attach; or, where
 * the connection was seen from its first byte, lost. It has a start. */
void pending_note_unseen(struct pending *p, bool unseen);
/* What is known of the request is settled: it ended, or the call did. */
void pending_request_done(struct pending *p, bool ended);
void pending_finish(struct exchanges *t, struct entry *e, enum end_reason end, uint64_t end_ns);
void exchanges_advance(struct exchanges *t, uint64_t ns); /* event time; evicts what is due */
void exchanges_make_room(struct exchanges *t);
void exchanges_weigh(struct exchanges *t, struct pending *p); /* its bodies grew or shrank: EXCHANGE_HELD_MAX */
char *exchanges_copy(struct exchanges *t, struct sv text, size_t max);
void call_note_lost(struct call *c, uint64_t len);

/* --- exchange_report.c: what it comes to ------------------------------------------------------------------------- */
bool pending_is_call(const struct pending *p);
/* The waits on its socket, as far as they lie in it: before pending_report(). */
void pending_take_delays(struct pending *p, uint64_t end_ns);
/* The call as it stands: a copy whose texts and arrays stay owned by p and its parts (no call_release()). `end_ns`:
 * now, or when it ended. */
void pending_report(const struct pending *p, enum end_reason end, uint64_t end_ns, struct call *out);
/* When the call began that pending_report() would tell: as of call_bounds(). */
uint64_t pending_begin_ns(const struct pending *p, uint64_t now_ns);
void pending_emit(struct pending *p, enum end_reason end, uint64_t end_ns);
void pending_note_left(struct pending *p, uint64_t ts_ns); /* see exchanges_conn_closing() */
void pending_note_main(struct pending *p);		   /* a main session with tools, if it is one */
void exchanges_note_caller(struct exchanges *t, const struct call *c);
void exchanges_free_callers(struct exchanges *t);

/* --- exchange_ws.c: WebSockets ----------------------------------------------------------------------------------- */
void ws_session_start(struct exchange_flow *f, struct entry *e, uint64_t ts_ns); /* its upgrade was granted */
void ws_session_free(struct exchanges *t, struct entry *e);

#endif
