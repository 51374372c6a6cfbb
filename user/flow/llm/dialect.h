/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_DIALECT_H
#define FLOW_LLM_DIALECT_H

/*
 * A model API's dialect: how its paths look, and what its response documents say. A dialect is a table row with pure
 * functions; it keeps no state and reads no clock. One more API is one more dialect_*.c and one row in dialect.c.
 */

#include "base/json.h"
#include "call.h"

/* Raw usage as one document states it, already in the normal form of struct usage but each field optional. The exchange
 * merges: last non-null wins, 0 never replaces a positive value, nothing is added up. For APIs that count cache beside
 * the input (Anthropic) `input_uncached` is set, for the others `input_total`; the exchange derives the missing one.
 * Of the former kind of API a cache count that is absent beside a known input is 0: it leaves out a cache not used. */
struct usage_part {
	int64_t input_uncached, input_total, cache_read, cache_write, output_total, reasoning;
	bool no_cache_write; /* this API has no such notion: cache_write is 0 */
};
#define USAGE_PART_NONE ((struct usage_part){-1, -1, -1, -1, -1, -1, false})

/* What a document says, in document order. All text is borrowed for the call. */
struct llm_sink {
	void *ctx;
	void (*on_token)(void *ctx, enum token_kind kind,
			 struct sv text); /* generated content, never empty; text may be absent */
	void (*on_usage)(void *ctx, const struct usage_part *u);
	void (*on_model)(void *ctx, struct sv model);
	void (*on_reasoning)(void *ctx); /* it reasons, with or without showing it: a block begins; no token */
	void (*on_tool)(void *ctx, struct sv id, struct sv name); /* a tool call for the program; may be said twice */
	void (*on_stop)(void *ctx, struct sv reason);
	void (*on_error)(void *ctx, struct sv type); /* error type of the body or a mid-stream event */
	void (*on_end)(void *ctx);		     /* terminal event: the message is whole */
};

struct dialect {
	const char *api;       /* id of llm-wire.md section 2.1: "anthropic", "openai.chat", "openai.responses" */
	const char *operation; /* OTel: "chat" … */
	const char *provider;  /* family, where the host does not say: "anthropic", "openai" */
	/* Some servers leave the terminal event out: a stop reason and a clean end of the body count as one. */
	bool end_optional;
	/* Does this method and path (without query) propose the dialect? *class is set for count calls. */
	bool (*match)(struct sv method, struct sv path, enum call_class *class);
	/* One document of a stream: SSE event (type as the stream names it; data parsed, NULL when it is no JSON, such
	 * as
	 * "[DONE]", then `raw` says it). */
	void (*on_event)(struct sv type, const cJSON *doc, struct sv raw, const struct llm_sink *out);
	/* The document of a unary response, error bodies included. */
	void (*on_document)(const cJSON *doc, const struct llm_sink *out);
};

/* NULL: no dialect claims it. */
const struct dialect *dialect_by_path(struct sv method, struct sv path, enum call_class *class);
/* By a response's first stream document or unary document, for exchanges whose request was not seen. NULL: cannot tell.
 */
const struct dialect *dialect_by_document(const cJSON *doc);
/* What the path alone says (Azure deployments), else the host table, else the dialect's family, else "_OTHER". Host
 * may carry a port. Static string. */
const char *dialect_provider(const struct dialect *d, struct sv host, struct sv path);

extern const struct dialect dialect_anthropic;
extern const struct dialect dialect_openai_chat;
extern const struct dialect dialect_openai_responses;

#endif
