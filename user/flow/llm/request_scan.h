/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_REQUEST_SCAN_H
#define FLOW_LLM_REQUEST_SCAN_H

/* What each key of a request's body means. Private child of request. */

#include "jsonscan.h"
#include "request.h"
#include "suffix.h"

struct request_scan {
	struct request_facts facts;
	const struct dialect *dialect; /* NULL: not known */
	bool system_ended;	       /* a system prompt beside the messages was read to its end */
	int64_t system_bytes;	       /* ... and its size */
	int64_t message_system_bytes;  /* of messages with a system role */
	int64_t message_bytes;	       /* text of the message at hand */
	bool message_is_system;
	bool has_tools;
	int64_t declarations; /* Gemini: of all tools so far */
	bool tool_is_list;    /* the tool at hand is a list of them */
	bool codex;	      /* has client_metadata */
	char cache_key[REQUEST_NAME_BYTES];
	struct suffix suffix;
};

void request_scan_init(struct request_scan *s, const struct dialect *d);
void request_scan_release(struct request_scan *s);
struct jsonscan_sink request_scan_sink(struct request_scan *s);

#endif
