/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_CLIENT_H
#define FLOW_LLM_CLIENT_H

/*
 * Who calls: session and agent ids from an allow-list of request headers, and what the client says of the call's class.
 * Private child of exchange.
 */

#include "call.h"
#include "flow/proto/http.h"

#define CLIENT_ID_BYTES 129 /* EXCHANGE_ID_MAX and a NUL */

struct client {
	char session[CLIENT_ID_BYTES], agent[CLIENT_ID_BYTES], parent_agent[CLIENT_ID_BYTES];
	bool class_stated;  /* `class` is the client's own word */
	bool class_of_turn; /* ... of this request only, whatever follows on the connection */
	enum call_class class;
	bool subagent;			  /* the agent is not the session's main one */
	char agent_name[CLIENT_ID_BYTES]; /* kind of sub-agent */
	char turn[CLIENT_ID_BYTES];	  /* id of the turn */
	char tool_durations[512];	  /* "Bash=418" in ms: what the tools before it took */
	bool brings_tools;		  /* its agents always offer tools: what does not is a helper's call */
	bool asks_for_no_schema;	  /* ... never want an answer by a schema: what does and has no tools is one */
	int interactive;		  /* a person (1) or a script (0) drives it; -1 not said */
	enum call_trigger trigger;	  /* what the client says of it, CALL_TRIGGER_UNKNOWN: nothing */
	int retry_count;		  /* attempts before this one by the client's count, -1 unknown */
};

void client_identify(const struct http_head *h, struct client *out);
/* Class by Codex's request_kind: "prewarm", "compaction", "memory". False: another word. */
bool client_class_of_kind(struct sv kind, enum call_class *class);

/*
 * A request target as it may be shown: no scheme and authority, no fragment, query values only where they cannot be a
 * secret: those of known keys, and numbers of up to 4 digits; else "*". So are values of parameters in the path
 * (;jsessionid=), and segments that look like a credential (base/credential.h). Owned. NULL: ENOMEM.
 */
char *client_path(struct sv target);
/* A target without scheme, authority and fragment, borrowed. */
struct sv client_origin_form(struct sv target);
/* Path of a target without query, borrowed. */
struct sv client_plain_path(struct sv target);

#endif
