/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_EXCHANGE_H
#define FLOW_LLM_EXCHANGE_H

/*
 * Exchanges: HTTP messages become model calls. Owns the pending calls: content decoding, SSE, request scan, dialect,
 * times of tokens, usage, and stale eviction by event time. An exchange that is no model call is dropped early.
 *
 * Is it one? Method and path propose it; a body without any key of a call denies it, unless the answer is a model's.
 * JSON that is posted to a path that nobody claims is one where request and answer agree. Of an exchange whose request
 * was not seen the documents of the answer decide (dialect_by_document); it is not measured from. A remote procedure
 * call
 * ("jsonrpc": MCP) is never one.
 *
 * WebSocket: see exchanges_ws_message().
 *
 * Token time: the read that completed the event. Missing bytes before the first token leave its time unknown for good;
 * any missing bytes before the message's end leave counts and silences of chunks unknown, and the last token's time
 * until another one is seen.
 *
 * Who left first is not known while bytes of the answers are missing: they may hold the end of the one at hand.
 *
 * Eviction: sweeps are due every sweep_ns of event time from the first stamp on, and are done when a stamp or tick
 * passes them; end_ns of an evicted call is the time its sweep was due. So live and replay evict the same.
 */

#include "base/lost.h"
#include "call.h"
#include "flow/proto/http.h"
#include "flow/proto/ws.h"

#define EXCHANGE_MAX	 65536	    /* pending at once; more: the longest silent one is evicted */
#define EXCHANGE_DOC_MAX (8u << 20) /* unary response document, decoded; longer: undecoded "json over 8 MiB" */
/* Bodies that are being read, of all exchanges together, with their decompressors. Over it the largest one is given up:
 * undecoded "over 128 MiB at once". */
#define EXCHANGE_HELD_MAX  (128u << 20)
#define EXCHANGE_TEXT_MAX  (1u << 20)	 /* visible answer kept with content; the rest is cut */
#define EXCHANGE_ID_MAX	   128		 /* session ids and the like; longer ones are cut */
#define EXCHANGE_BESIDE_NS 2000000000ull /* of a process's first call on: see call.class_open_ns */
#define EXCHANGE_WS_MAX	   256		 /* calls open at once on one WebSocket; more are not told, and counted */

struct exchange_config {
	uint64_t stale_ns; /* an exchange silent this long is evicted */
	uint64_t sweep_ns; /* how often they are looked for, in event time */
	bool content;	   /* keep the visible answer's text */
	/* Processes are traced that nobody named (system-wide): what cannot be read has to show by its path that it is
	 * a model's. Else a compressed WebSocket met in the middle is taken for one. */
	bool anybody;
};

/* What the exchange stage wants to know of a connection; filled by the owner, may change until the call ends. */
struct exchange_conn {
	struct conn_key key;
	uint64_t conn_id;
	bool fresh;			   /* seen from its first byte */
	const char *protocol;		   /* static; NULL: not known. Of exchanges of which no head was seen */
	struct sock_addr peer;		   /* family 0 until bound */
	uint64_t dns_begin_ns, dns_end_ns; /* the name's look-up, before the connection */
	uint64_t connect_begin_ns, connect_end_ns, tls_begin_ns, tls_end_ns;
	bool tls_approximate;
	int tls_resumed; /* -1 unknown */
	int32_t exit_code, exit_signal;
	uint32_t srtt_us, rtt_min_us, retransmits; /* so far */
	uint64_t reset_ns;			   /* UNKNOWN_NS: none */
	bool reset_sent;			   /* by the program's side */
	/* The newest waits on its socket, in order of time; borrowed. */
	const struct interval *late_at, *network_at;
	size_t late_count, network_count;
	bool bound;
	/* Bytes of the answers are missing, and waited for: whose they are is not known. */
	bool answers_wait;
};

struct exchange_sink {
	void *ctx;
	/* A call ended (or was evicted). Owned by the stage, valid for the call. */
	void (*on_call)(void *ctx, const struct call *c);
	/* A call with tools begins in that process, the first one: what is told of it later is settled. NULL is
	 * skipped. */
	void (*on_main)(void *ctx, const struct proc_key *process);
};

struct exchanges;

struct exchanges *exchanges_new(const struct exchange_config *cfg, struct lost *lost, const struct exchange_sink *sink);
void exchanges_free(struct exchanges *t);

/* One connection's view: gives the http_sink to plug into its proto. `conn` is borrowed until exchanges_conn_free(). */
struct exchange_flow;
struct exchange_flow *exchanges_conn_new(struct exchanges *t, const struct exchange_conn *conn);
void exchanges_conn_free(struct exchange_flow *f); /* pending calls must have been aborted by the proto before */
struct http_sink exchanges_http_sink(struct exchange_flow *f);
/* The connection was left at ts_ns, though bytes of it may still be on their way here: a call that was not answered has
 * failed, and one that ends before this is told may be its next attempt. */
void exchanges_conn_closing(struct exchange_flow *f, uint64_t ts_ns);
/* Adds what a piece of the response at hand looks at. */
void exchanges_conn_warm(const struct exchange_flow *f, struct warm *w);
unsigned exchanges_conn_calls(const struct exchange_flow *f); /* model calls begun on it */
/* That exchange is open, and taken for a call as far as can be told now. */
bool exchanges_is_call(struct exchange_flow *f, uint64_t xid);

/*
 * Messages of an exchange that became a WebSocket (on_abort HTTP_ABORT_UPGRADE said so), or whose handshake was not
 * seen (any xid that no request has). `side`: HTTP_REQUEST is from the client. One call a response: from
 * response.create to its last event; calls of one stream_id follow each other. The upgrade itself is no call.
 *
 * Where messages cannot be read (met in the middle, the window of compressed ones unknown) a call is what the client
 * says, and what comes then until it speaks again: sizes and times, marked undecoded. So is the answer alone where only
 * that cannot be read. Not where the handshake names no
 * model's path, or a message that can be read is of something else. Of a WebSocket to a model's path of which not even
 * that could be told one record tells. Until exchanges_ws_end(), at the latest exchanges_conn_free().
 */
void exchanges_ws_message(struct exchange_flow *f, uint64_t xid, enum http_side side, const struct ws_message *m);
/* ... of which the content is not, or not wholly, known. */
void exchanges_ws_opaque(struct exchange_flow *f, uint64_t xid, enum http_side side, const struct ws_message *m);
/* That side can, from here on, not be told wholly, or not at all. */
void exchanges_ws_undecoded(struct exchange_flow *f, uint64_t xid, enum http_side side, const struct stamp *at);
/* Bytes of that side were lost. `all`: what follows of it cannot be read either, until exchanges_ws_found(). */
void exchanges_ws_lost(struct exchange_flow *f, uint64_t xid, enum http_side side, uint64_t len, bool all,
		       const struct stamp *at);
/*
 * Is what was found behind such a loss certainly a message? True: it comes next, and all that follows. Of Responses
 * alone, and without stream ids: there its client speaks when the answer before is over, so that no call that the loss
 * hides is taken for one that follows. The client's side goes on with a response.create; the server's with any event,
 * of which those of an answer that was under way are passed over. Calls that begin then are whole again.
 */
bool exchanges_ws_found(struct exchange_flow *f, uint64_t xid, enum http_side side, const struct ws_message *m);
/* A close frame: that side ends what is open. */
void exchanges_ws_close(struct exchange_flow *f, uint64_t xid, enum http_side side, const struct stamp *at);
/* The connection, or the stream, ended. */
void exchanges_ws_end(struct exchange_flow *f, uint64_t xid, enum http_abort why, uint64_t ts_ns);

void exchanges_tick(struct exchanges *t, uint64_t now_ns);
/* Every pending call as it stands now (unfinished = true, end_ns = now), for a snapshot. */
void exchanges_each_open(struct exchanges *t, uint64_t now_ns, void (*fn)(void *ctx, const struct call *c), void *ctx);
/* When the first of the calls that are open began; UNKNOWN_NS: none is. */
uint64_t exchanges_first_open_ns(const struct exchanges *t, uint64_t now_ns);
unsigned exchanges_open_count(const struct exchanges *t);

#endif
