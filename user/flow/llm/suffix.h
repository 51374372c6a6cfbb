/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_SUFFIX_H
#define FLOW_LLM_SUFFIX_H

/*
 * The newest part of a request's conversation: what stands behind the model's last words. Tool results (ids and sizes,
 * no text), a person's text, or text that the client wrote in the person's place. And a mark by which a conversation
 * that has no id is known again: its system prompt, tools and first message. Fed by the request scan. Private child of
 * request.
 */

#include "call.h"
#include "jsonscan.h"

enum suffix_role { SUFFIX_ROLE_USER, SUFFIX_ROLE_MODEL, SUFFIX_ROLE_TOOL, SUFFIX_ROLE_SYSTEM };

struct suffix { /* zero: nothing was read */
	/* The newest part. */
	bool model_last; /* it is empty: the model's words are the last ones */
	bool human, notice;
	struct tool_result *results; /* owned */
	size_t result_count;
	bool no_memory; /* a result was left out */
	/* The message (or item) at hand, and its content block. Its role may come last. */
	struct {
		enum suffix_role role;
		bool human, notice, has_result;
		bool own_result;     /* the item itself is one, by an id or a name */
		size_t first_result; /* its results are those from here on */
		int64_t bytes, block_bytes;
		bool block_is_result;
		uint64_t text_hash;	       /* of its first text; 0 none yet */
		uint64_t marks[CALL_OPENINGS]; /* of texts that are no notices */
		unsigned mark_count;
	} item;
	/* Marks of the conversation, 0 unknown. */
	uint64_t system_hash, tools_hash, first_hash;
	uint64_t opening[CALL_OPENINGS]; /* of the first message; [0] 0: none yet */
	unsigned tools_hashed;
	bool continued; /* previous_response_id: what is sent is new, the first message is not among it */
};

void suffix_release(struct suffix *s);
/* Values and ends as the scan of the body tells them, without a wrapper around the request. */
void suffix_value(struct suffix *s, const struct jsonscan_value *v);
void suffix_end(struct suffix *s, const struct jsonscan_value *v);
/* What it comes to, once the body was read to its end. */
enum call_trigger suffix_trigger(const struct suffix *s);
void suffix_opening(const struct suffix *s, uint64_t out[CALL_OPENINGS]);
uint64_t suffix_conversation(const struct suffix *s); /* 0: nothing to know it by */

#endif
