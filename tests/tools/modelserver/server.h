/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef MODELSERVER_SERVER_H
#define MODELSERVER_SERVER_H

/*
 * What the model server's parts share. A request (request.c) comes in by HTTP/1.1 (http1.c), HTTP/2 (http2.c) or as a
 * WebSocket message (ws.c); reply.c answers it in its dialect (dialect_*.c) over the same wire, through the codings of
 * coding.c; truth.c writes down what was really sent. Replies block: a thread a connection, and a stream of HTTP/2.
 */

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/sv.h"
#include "coding.h"
#include "knobs.h"

#define HEAD_MAX (64u << 10)
#define BODY_MAX (64u << 20)

/* --- connections (conn.c) ---------------------------------------------------------------------------------------- */

struct conn {
	int fd;
	SSL *ssl; /* NULL: plain */
	struct buf in;
	unsigned id;
	atomic_uint requests;
	uint16_t peer_port;
	uint64_t accept_ns, established_ns, read_ns;
};

/* More bytes into c->in. Count, 0 at the end, -1; of a descriptor that does not block, -EAGAIN. */
int conn_read(struct conn *c);
int conn_write(struct conn *c, const char *ptr, size_t len);
/* Wait that long, or until the client has left (-1). */
int conn_wait(struct conn *c, double ms);
/* End without a close_notify: what a crashed server looks like. */
void conn_reset(struct conn *c);
/* At least `want` unread bytes: 0, or -1 when the connection is over. */
int conn_need(struct conn *c, size_t want);

/* --- requests (request.c) ---------------------------------------------------------------------------------------- */

struct dialect;
struct reply;

struct request {
	char method[16];
	char target[8192];
	const struct dialect *dialect; /* NULL: none has that path */
	size_t head_len;
	size_t content_length;
	bool chunked, keep_alive, expect, websocket, h2c;
	char websocket_key[64], h2c_settings[256];
	bool deflate_offered;
	char coding[64];
	struct knobs knobs;
	struct buf body; /* as carried; decoded once request_parse() has been called */
	size_t carried;
	bool stream, include_usage;
	char path_model[256], request_model[256];
	int64_t messages;
	uint64_t first_byte_ns, complete_ns;
	int refuse; /* status of a request that gets no answer of a model */
	const char *refuse_why;
};

void request_init(struct request *r);
void request_release(struct request *r);
/* Remembers the first refusal. 0. */
int request_refuse(struct request *r, int status, const char *why);
/* What the method and target (with query) say. Returns 0. */
int request_set_target(struct request *r, struct sv method, struct sv target);
/* One header, whatever the wire. Returns 0. */
int request_header(struct request *r, struct sv name, struct sv value);
/* The body is whole: codings undone, what the dialect wants to know read. */
void request_parse(struct request *r);

/* --- how replies go out (http1.c, http2.c, ws.c) ----------------------------------------------------------------- */

/* Each: 0, or -1 when the client is gone. */
struct wire {
	const char *protocol;
	bool frame_messages; /* events are messages */
	/* length -1: not known. Headers are made of the reply. */
	int (*head)(struct reply *r, const char *type, ssize_t length);
	/* Body bytes as they are on this wire, appended to r->wire. */
	void (*frame)(struct reply *r, const char *ptr, size_t len);
	/* *at_ns: when the write began. */
	int (*write)(struct reply *r, const char *ptr, size_t len, uint64_t *at_ns);
	int (*wait)(struct reply *r, double ms);
	/* The end of the body: what belongs to the last write, appended to r->wire; what follows it. NULL: nothing. */
	void (*last)(struct reply *r);
	int (*end)(struct reply *r);
};

/* --- replies (reply.c) ------------------------------------------------------------------------------------------- */

/* How a response ends besides its own end. */
enum stop { STOP_NOT, STOP_CLIENT_GONE, STOP_RST, STOP_FIN, STOP_ERROR };

enum framing {
	FRAMING_SSE,
	FRAMING_LINES,	 /* JSON texts, a line each */
	FRAMING_ARRAY,	 /* elements of one JSON array */
	FRAMING_FRAMES,	 /* AWS event stream */
	FRAMING_CHUNKS,	 /* ... of which each carries an event in base64 */
	FRAMING_MESSAGES /* of a WebSocket */
};

struct reply {
	const struct wire *via;
	void *wire_data; /* the wire's own: HTTP/2's stream, the WebSocket */
	struct conn *conn;
	struct request *req;
	const struct dialect *dialect;
	const struct knobs *knobs;
	enum framing framing;
	enum stop stop;
	bool chunked;
	struct coding coding;
	struct buf events, packed, wire;
	unsigned pending;  /* token events in `events`, not yet written */
	unsigned elements; /* of FRAMING_ARRAY */
	uint64_t *tokens_ns;
	size_t tokens, tokens_size;
	const char *kind; /* of the first token */
	uint64_t head_ns, end_ns;
	uint64_t body_bytes;
	unsigned sequence;
	int status;
	char model[256], model_escaped[2048];
	const char *stop_reason, *error;
	bool usage_sent, final_usage_sent;
	struct buf text;
};

/* What a dialect's answer reports, normalised; -1: not reported. */
struct truth_usage {
	int64_t input_uncached, cache_read, cache_write, input_total, output_total, reasoning;
};

struct dialect {
	const char *name;
	bool (*match)(struct sv path, struct request *r); /* path without query; may set path_model and stream */
	const char *messages;				  /* key of the body's list */
	bool model_in_path, stream_in_path, stream_default;
	bool names_no_model; /* no document of the answer says which model it is */
	enum framing framing;
	const char *stop, *stop_tool; /* usual stop reasons */
	void (*stream)(struct reply *r);
	void (*document)(struct reply *r, struct buf *out);
	void (*error_document)(struct reply *r, struct buf *out, const char *message);
	void (*error_event)(struct reply *r); /* NULL: no stream */
	void (*ping)(struct reply *r);	      /* NULL: nothing, or the framing's own */
	void (*usage)(const struct reply *r, struct truth_usage *u);
};

/* Serves one request over one wire, writes its truth. True: the connection may go on. */
bool reply_serve(struct conn *c, struct request *q, const struct wire *via, void *wire_data, enum stop *stop);
/* The client is gone. */
void reply_gone(struct reply *r);

/* For the dialects: */

/* One event of a stream. name NULL: data only. kind: it carries a token of that kind; NULL: none. */
void emit(struct reply *r, const char *name, const char *kind, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void flush_events(struct reply *r);
/* Before token number i: the wait, and what the knobs do instead of it. True: say it. */
bool pace(struct reply *r, unsigned i);
/* Counts. */
int64_t generated(const struct knobs *k);
int64_t reasoned(const struct knobs *k);
/* Visible token i, which is remembered as said. */
const char *token_text(struct reply *r, unsigned i, char out[256]);
/* All of them. */
void push_tokens(struct reply *r, struct buf *out);
const char *reply_stop_reason(const struct reply *r);
const char *reply_error_type(const struct reply *r);
bool wants_usage(const struct reply *r);
/* The arguments of every tool, in pieces: {"n":[0,1,2]} cut at any place, or what the knobs want, cut anywhere; escaped
 * once. */
#define ARGUMENTS_MAX 512
const char *argument_piece(const struct reply *r, unsigned t, unsigned piece, unsigned pieces, char out[ARGUMENTS_MAX]);
/* All of them; escaped: as in a JSON string. */
const char *arguments_text(const struct reply *r, unsigned t, bool escaped, char out[ARGUMENTS_MAX]);
/* The tool call number t, from 0. prefix: of the ids, where the knobs want none of their own. */
struct tool_words {
	char id[144], name[128];
};
struct tool_words tool_words(const struct reply *r, unsigned t, const char *prefix);

/* --- the dialects ------------------------------------------------------------------------------------------------ */

extern const struct dialect dialect_anthropic, dialect_chat, dialect_responses, dialect_completions, dialect_embeddings,
	dialect_gemini, dialect_ollama_chat, dialect_ollama_generate, dialect_converse, dialect_invoke, dialect_cohere;
/* The model id of …/model/ID/VERB. False: there is none. */
bool bedrock_model(struct sv path, struct request *r);
/* Of the OpenAI family: in, out: "prompt" and "completion", or "input" and "output". */
void push_openai_usage(struct buf *b, const struct knobs *k, const char *in, const char *out);
void openai_error_document(struct reply *r, struct buf *out, const char *message);
void openai_truth_usage(const struct reply *r, struct truth_usage *u);

/* --- truth (truth.c) --------------------------------------------------------------------------------------------- */

int truth_open(const char *path);
void truth_write(struct reply *r);

/* --- the wires --------------------------------------------------------------------------------------------------- */

extern const struct wire http1_wire;
/* One request and its answer. True: the connection goes on. */
bool http1_serve_one(struct conn *c);
/* 1: the connection begins as HTTP/2 does, 0: it does not, -1: it is over. Reads what it needs to know that. */
int http2_begins(struct conn *c);
/* The whole connection. upgraded: the request of an h2c upgrade, whose answer is stream 1; may be NULL. */
void http2_serve(struct conn *c, struct request *upgraded);
/* Everything after the handshake, which it answers. */
void ws_serve(struct conn *c, struct request *handshake);
/* Appends one message to *out, as the session says. */
void ws_push_message(struct reply *r, struct buf *out, struct sv text);
void ws_push_ping(struct buf *out);

extern atomic_uint request_count;

#endif
