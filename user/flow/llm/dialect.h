/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_DIALECT_H
#define FLOW_LLM_DIALECT_H

/*
 * A model API's dialect: how its paths look, and what its response documents say. A dialect is a table row with pure
 * functions; it keeps no state and reads no clock.
 *
 * One more API is one more dialect_*.c and its line of DIALECTS below. Where its answers tell it by themselves, a row
 * of verdicts[] in dialect_verdict.c, which calls whose request is not seen need (and paths that nobody knows). A host
 * of its own is a row of providers[] in dialect.c. Requests that are written as none of enum dialect_request are read
 * by request_scan.c.
 */

#include "base/json.h"
#include "call.h"
#include "flow/proto/http.h"

/* Raw usage as one document states it, already in the normal form of struct usage but each field optional. The exchange
 * merges: last non-null wins, 0 never replaces a positive value, nothing is added up. For APIs that count cache beside
 * the input (Anthropic) `input_uncached` is set, for the others `input_total`; the exchange derives the missing one.
 * Of the former kind of API a cache count that is absent beside a known input is 0: it leaves out a cache not used. */
struct usage_part {
	int64_t input_uncached, input_total, cache_read, cache_write, output_total, reasoning;
	bool no_cache_write; /* this API has no such notion: cache_write is 0 */
};
#define USAGE_UNREADABLE                                                                                               \
	(-2) /* of a count: there is one, but it is no number of tokens. An earlier one is then stale */
#define USAGE_PART_NONE ((struct usage_part){-1, -1, -1, -1, -1, -1, false})

/* What a document says, in document order. All text is borrowed for the call. */
struct llm_sink {
	void *ctx;
	void (*on_token)(void *ctx, enum token_kind kind,
			 struct sv text); /* generated content, never empty; text may be absent */
	void (*on_usage)(void *ctx, const struct usage_part *u);
	void (*on_model)(void *ctx, struct sv model);
	void (*on_reasoning)(void *ctx); /* it reasons, with or without showing it: a block begins; no token */
	/* Reasoning that came whole and unreadable: a token, made before it came. */
	void (*on_sealed)(void *ctx);
	void (*on_tool)(void *ctx, struct sv id, struct sv name); /* a tool call for the program; may be said twice */
	void (*on_stop)(void *ctx, struct sv reason);
	void (*on_error)(void *ctx, struct sv type);		   /* error type of the body or a mid-stream event */
	void (*on_end)(void *ctx);				   /* terminal event: the message is whole */
	void (*on_server)(void *ctx, const struct call_server *s); /* what the server says it spent; unknown ones -1 */
	void (*on_provider)(void *ctx, const char *provider);	   /* whose server it must be; static */
	/* A piece of the arguments' JSON text: of the tool call with that id, all of it; without one, of the latest.
	 * NULL is skipped. */
	void (*on_arguments)(void *ctx, struct sv id, struct sv json);
};

/* What a path says besides which dialect it is. Views are borrowed from the path. */
struct dialect_path {
	enum call_class class; /* CALL_COUNT where tokens are only counted, else CALL_MAIN */
	int stream;	       /* -1: the body says */
	struct sv model;       /* absent: the body says; as written, percent-coded */
	const char *operation; /* static; NULL: the dialect's */
};
#define DIALECT_PATH_NONE ((struct dialect_path){CALL_MAIN, -1, SV_NONE, NULL})

/* How requests are written: where counts, system prompt and the like are. */
enum dialect_request {
	DIALECT_REQUEST_OPENAI,
	DIALECT_REQUEST_ANTHROPIC, /* system and tools beside the messages; no thinking unless asked for */
	DIALECT_REQUEST_GEMINI,	   /* contents[], perhaps inside of "request" */
	DIALECT_REQUEST_CONVERSE,  /* as Anthropic's, with other names for limits and tools */
	DIALECT_REQUEST_INPUT,	   /* text to work on, no conversation */
};

/* Keys of request bodies that tell what a request is. */
enum dialect_mark {
	MARK_MESSAGES = 1 << 0, /* messages[] */
	MARK_ROLE = 1 << 1,	/* messages[].role, input[].role */
	MARK_MODEL = 1 << 2,
	MARK_INPUT = 1 << 3,	 /* input: text or list */
	MARK_RESPONSES = 1 << 4, /* instructions, previous_response_id, prompt_cache_key, include */
	MARK_PROMPT = 1 << 5,
	MARK_CONTENTS = 1 << 6,	  /* contents[] */
	MARK_PARTS = 1 << 7,	  /* contents[].parts[] */
	MARK_INPUTS = 1 << 8,	  /* TGI */
	MARK_SYSTEM = 1 << 9,	  /* system beside messages */
	MARK_LIMIT = 1 << 10,	  /* max_tokens and its kin, temperature, stream, tools: how to generate */
	MARK_ANTHROPIC = 1 << 11, /* anthropic_version, also as a header */
	MARK_JSONRPC = 1 << 12,	  /* "jsonrpc": a remote procedure call (MCP), never a model call */
};

struct dialect {
	const char *api;       /* for `api` of outputs, listed in doc/calls-format.md: "anthropic", "openai.chat" */
	const char *operation; /* OTel: "chat" … */
	const char *provider;  /* family, where the host does not say: "anthropic", "openai" */
	enum dialect_request request;
	/* Some servers leave the terminal event out: a stop reason and a clean end of the body count as one. */
	bool end_optional;
	bool end_is_body;    /* streams have no terminal event at all: a clean end of the body is one */
	bool stream_default; /* a request that does not say streams */
	bool lines;	     /* its streams are JSON texts, a line each */
	bool path_sure;	     /* nobody else has such paths: the body need not confirm */
	/* Marks that a request must have all of, where others have such paths too; 0: any mark does. */
	unsigned required;
	/* Does this method and path (without query) propose the dialect? *out is DIALECT_PATH_NONE before. NULL: none
	 * does; documents tell, or the path of a WebSocket (dialect_by_upgrade()). */
	bool (*match)(struct sv method, struct sv path, struct dialect_path *out);
	/* One document of a stream: SSE event (type as the stream names it; data parsed, NULL when it is no JSON, such
	 * as "[DONE]", then `raw` says it), line, array element, or frame (type: its event type). */
	void (*on_event)(struct sv type, const cJSON *doc, struct sv raw, const struct llm_sink *out);
	/* The document of a unary response, error bodies included. */
	void (*on_document)(const cJSON *doc, const struct llm_sink *out);
	/* What the head of a response says by itself. May be NULL. */
	void (*on_head)(const struct http_head *h, const struct llm_sink *out);
};

/* NULL: no dialect claims it. */
const struct dialect *dialect_by_path(struct sv method, struct sv path, struct dialect_path *out);
/* A WebSocket's path. */
const struct dialect *dialect_by_upgrade(struct sv path);
/* By a response's first stream document or unary document, for exchanges whose request was not seen or not understood.
 * type: see on_event, absent for a unary one. NULL: cannot tell. */
const struct dialect *dialect_by_document(struct sv type, const cJSON *doc);
/* By the marks of a request whose path nobody knows: what it may be. *sure: two of them say so, no answer is needed.
 * NULL: none. */
const struct dialect *dialect_by_marks(unsigned marks, bool *sure);
/* One document, an object, of bounded cost, with U+FFFD for each "\u0000" in its texts, whose lengths are thus those of
 * their C strings. NULL: it is none, or no memory, or *too_many members and elements. */
#define DIALECT_NODES_MAX (1u << 20)
cJSON *dialect_parse(struct sv text, bool *too_many);
/* Telemetry, batches and the like, whatever they look like. */
bool dialect_path_excluded(struct sv path);
/* What the path alone says (Azure deployments), else the host table, else what the answer told (NULL: nothing), else
 * the dialect's family, else "_OTHER". Host may carry a port. Static string. */
const char *dialect_provider(const struct dialect *d, struct sv host, struct sv path, const char *told);

/* All dialects. The first that claims a path has it: one whose paths may end as another's comes before that one. */
#define DIALECTS(X)                                                                                                    \
	X(anthropic)                                                                                                   \
	X(openai_chat)                                                                                                 \
	X(openai_responses)                                                                                            \
	X(openai_completions)                                                                                          \
	X(openai_embeddings)                                                                                           \
	X(openai_realtime)                                                                                             \
	X(vertex_anthropic)                                                                                            \
	X(bedrock_invoke)                                                                                              \
	X(bedrock_converse)                                                                                            \
	X(gemini_codeassist)                                                                                           \
	X(gemini)                                                                                                      \
	X(gemini_embed)                                                                                                \
	X(gemini_interactions)                                                                                         \
	X(gemini_live)                                                                                                 \
	X(cohere)                                                                                                      \
	X(lmstudio)                                                                                                    \
	X(ollama)                                                                                                      \
	X(ollama_embed)                                                                                                \
	X(llamacpp)                                                                                                    \
	X(tgi)

#define X(name) extern const struct dialect dialect_##name;
DIALECTS(X)
#undef X

#endif
