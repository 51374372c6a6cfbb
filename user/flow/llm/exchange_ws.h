/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_EXCHANGE_WS_H
#define FLOW_LLM_EXCHANGE_WS_H

/* Calls as WebSocket messages: what those who tell where one begins and ends share. Private to exchange_ws*.c. */

#include "exchange_table.h"

/* A call that was asked for and has not ended. Its entry may have lost its pending part to eviction. */
struct ws_call {
	struct ws_call *prev, *next;
	struct entry *entry;
	uint64_t since_ns;		   /* no message of its answer is older: see ws_call_could_get() */
	char lane[REQUEST_NAME_BYTES];	   /* stream_id; "" without */
	char response[REQUEST_NAME_BYTES]; /* id of the response, once it was created */
	bool created;
	bool bytes_unsure; /* some may have been its, or another one's */
	/* Nothing of it can be read: what the client said, and what came then until it spoke again. cut: not to the end
	 * of a message. */
	bool unread, cut;
	bool answered;	  /* a message that cannot be read came, which is its answer's */
	bool read;	  /* ... and one that can be */
	uint64_t last_ns; /* its answer's last byte so far */
	bool doubted;	  /* a message that could not be read may have been its end */
	bool unasked;	  /* nothing that was told yet asked for it */
	bool never_asked; /* what asked for it is lost, or cannot be told from what asked for others */
	bool followed;	  /* a message of the client's that was lost may have asked for another one since */
	bool tools_asked; /* Live: it waits for results of tools */
};

/* A WebSocket. What its handshake said holds for every call on it. */
struct ws_session {
	const struct dialect *dialect; /* NULL: not known yet */
	struct client client;
	char *path, *host;
	char model[REQUEST_NAME_BYTES];
	const char *protocol;
	bool handshake_seen;
	struct ws_call *calls; /* in order of their start */
	unsigned call_count;
	bool understood;    /* some message was of a model's */
	uint64_t turn_ns;   /* the server heard the user's turn end; UNKNOWN_NS */
	uint64_t start_ns;  /* of the handshake */
	uint64_t last_ns;   /* its answer's last byte so far */
	uint64_t sent, got; /* payload bytes */
	uint32_t tid;
	bool compressed; /* what could not be read was */
	/* Bytes of that side were, and with them the way into what follows: of every call some are. */
	bool lost[2];		    /* by enum http_side */
	bool behind;		    /* the server is read again, but not yet from the beginning of an answer on */
	bool foreign;		    /* a message was of something that is no model's */
	bool told;		    /* an unread call was */
	bool unheard;		    /* a message of the client's could not be read: it may have asked for a call */
	bool request_lost;	    /* bytes of the client's were: of the message that is told next */
	uint64_t unasked_ns;	    /* when the latest call began that no message asked for; UNKNOWN_NS */
	unsigned asked_late;	    /* calls that ended, and what asked for them may still be told */
	bool left;		    /* the client closed it: what the server still says answers nothing */
	struct request_facts setup; /* Live: what holds for all of its calls */
};

/* NULL: too many, or no memory; counted. first: of the message that asks for it. */
struct ws_call *ws_call_begin(struct exchange_flow *f, struct ws_session *s, const struct stamp *first);
/* Bytes of the server's that came then may be of its answer. Behind a hole they are told late, when the client may have
 * asked for more already. */
static inline bool ws_call_could_get(const struct ws_call *c, const struct stamp *at)
{
	return c->since_ns <= at->ts_ns;
}
/* ... that no message asked for, as far as is known; m begins its answer. */
struct ws_call *ws_call_begin_unasked(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m);
/* It was asked for by m, of which `facts` are known. `again`: the same words are no second attempt. */
void ws_call_asked(struct ws_call *c, const struct ws_message *m, const struct request_facts *facts, bool again);
/* What m asks for has begun: its answer was read before the program's write had returned. *late: the call, which now
 * begins with m; NULL: it is over. */
bool ws_call_came_before(struct ws_session *s, const struct ws_message *m, struct ws_call **late);
/* A message of its answer. */
void ws_call_answer(struct exchange_flow *f, struct ws_call *c, const struct ws_message *m, struct sv type,
		    const cJSON *doc, int status);
void ws_call_end(struct exchange_flow *f, struct ws_session *s, struct ws_call *c, enum end_reason end, uint64_t ts_ns);

/* --- exchange_ws_live.c: Gemini Live, where a call is a turn of the model ---------------------------------------- */
void ws_live_from_client(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m,
			 const struct request_facts *facts);
/* Is it part of an answer? Else it is passed over. */
bool ws_live_is_answer(const cJSON *doc);
void ws_live_from_server(struct exchange_flow *f, struct ws_session *s, const struct ws_message *m, const cJSON *doc);

#endif
