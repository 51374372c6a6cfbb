/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_LLM_CALL_H
#define FLOW_LLM_CALL_H

/*
 * One finished model call: the plain data that span, calls file, live lines and summary read. Unknown: UNKNOWN_NS for
 * times, UNKNOWN_COUNT (-1) for counts, NULL or "" for text, status 0.
 */

#include "base/types.h"

enum token_kind { TOKEN_NONE, TOKEN_REASONING, TOKEN_TEXT, TOKEN_TOOL, TOKEN_REFUSAL, TOKEN_AUDIO };
enum usage_source { USAGE_NONE, USAGE_REPORTED, USAGE_PARTIAL, USAGE_ESTIMATED };
enum call_class { CALL_MAIN, CALL_SUBAGENT, CALL_AUX, CALL_PREWARM, CALL_COUNT };
enum end_reason {
	END_COMPLETE, /* framed to its end: end_reason is null */
	END_CLIENT_ABORT,
	END_SERVER_ABORT,
	END_CONNECTION_CLOSED,
	END_PROCESS_EXIT,
	END_EVICTED,
	END_CAPTURE_LOSS,
	END_CAPTURE_END,
};

/* Token counts, normalised: input_total is input_uncached + cache_read + cache_write, reasoning is part of
 * output_total. Each UNKNOWN_COUNT when not reported. */
struct usage {
	enum usage_source source; /* USAGE_NONE: nothing was reported, usage is null */
	int64_t input_uncached, cache_read, cache_write, input_total, output_total, reasoning;
	/* With USAGE_PARTIAL: the stream did not finish, and output_total and reasoning are what they were by then.
	 * Else some counts could not be read or contradicted each other: they are unknown, and the others are good. */
	bool unfinished;
};

struct tool_call {
	char *id;   /* owned; NULL unknown */
	char *name; /* owned; NULL unknown */
	/* Its block in the stream: from its first byte to the event that ended it. UNKNOWN_NS: not streamed. A client
	 * may start the tool before the answer is over. */
	uint64_t begin_ns, end_ns;
	uint64_t asks; /* text_mark() of the longest text among its arguments: a sub-agent's prompt. 0 unknown */
};
#define CALL_TOOLS_MAX 128
#define CALL_OPENINGS  4

struct call_request {
	int64_t messages, tools, system_bytes, max_tokens;
	int thinking; /* -1 unknown, 0 no, 1 yes */
};

/* A result of a tool that the newest part of the request carries. Sizes only, no text. */
struct tool_result {
	char *id;      /* owned; of the tool call that it answers; NULL unknown */
	char *name;    /* owned; NULL unknown */
	int64_t bytes; /* of its content as sent; UNKNOWN_COUNT */
	int is_error;  /* -1 not said */
};
#define CALL_RESULTS_MAX 128

/* What the last item of the request is: whether it begins a turn or goes on with one. */
enum call_trigger {
	CALL_TRIGGER_UNKNOWN,
	CALL_TRIGGER_HUMAN,	   /* text of a person (or of a script that plays one) */
	CALL_TRIGGER_TOOL_RESULTS, /* answers to tool calls, alone or with text that the client itself wrote */
	CALL_TRIGGER_CONTINUE,	   /* the model's own words last: pause_turn, a cut answer, a prefill */
	CALL_TRIGGER_NOTICE,	   /* user text that the client wrote: system reminders, task notifications */
};

/* A stretch of the answer of one content kind. */
struct call_segment {
	enum token_kind kind;
	struct interval at; /* first to last chunk of it */
	int64_t chunks;
};
#define CALL_SEGMENTS_MAX 64 /* later ones are left out: segments_left_out */

/* A silence over CALL_STALL_NS between two content chunks, or from the last one to the end of an answer not finished.
 */
#define CALL_STALLS_MAX 64 /* kept; `stalls` counts all */

/* What the server says it spent, where it does; each UNKNOWN_COUNT. Beside what was measured, never mixed with it. */
struct call_server {
	int64_t queue_ns, load_ns, prefill_ns, decode_ns; /* waiting, loading the model, the prompt, the answer */
	int64_t first_token_ns, total_ns;
};
bool call_server_known(const struct call_server *s); /* anything of it */
#define CALL_SERVER_NONE ((struct call_server){-1, -1, -1, -1, -1, -1})

/* The texts of a call, each owned and NULL unless known. (`text`, which has a length, is not among them.) */
#define CALL_TEXTS(X)                                                                                                  \
	X(method)                                                                                                      \
	X(path) /* without secret query values */                                                                      \
	X(host)                                                                                                        \
	X(model) /* as the response names it, else as the request does */                                              \
	X(request_model)                                                                                               \
	X(session_id)                                                                                                  \
	X(agent_id)                                                                                                    \
	X(parent_agent_id)                                                                                             \
	X(agent_name)	  /* kind of sub-agent where the client says so: "Explore", "review" */                        \
	X(turn_id)	  /* the client's own */                                                                       \
	X(tool_durations) /* what the client says its tools took: "Bash=418" in ms, comma between */                   \
	X(stop_reason)                                                                                                 \
	X(error)                                                                                                       \
	X(undecoded) /* coding or protocol; NULL: decoded */

/* call_init() makes everything unknown, call_copy() and call_release() know everything that is owned: a new member that
 * is not 0 when unknown, or that is an owned array, is theirs too. What pending_report() tells is lent: see there. */
struct call {
	uint64_t id; /* unique in the run, from 1 */
	struct conn_key conn;
	uint64_t conn_id;
	uint64_t xid; /* of its exchange in its connection; 0: a message of a WebSocket */
	uint32_t tid; /* thread of the request's first byte */

	/* Times, CLOCK_BOOTTIME ns. */
	uint64_t start_ns;    /* entry of the first successful write of the request */
	uint64_t send_end_ns; /* last request byte written; at the first response byte at the latest */
	uint64_t ttfb_ns;     /* first byte of the final response's head */
	uint64_t first_token_ns, first_visible_ns, last_token_ns;
	uint64_t seen_token_ns; /* the first that was seen: others may be missing before it */
	uint64_t end_ns; /* the last response byte; where the framing has no end the terminal event, or what ended the
			    call */
	enum token_kind first_kind;
	int64_t max_gap_ns; /* longest silence between content chunks, UNKNOWN_COUNT below two chunks */
	int64_t stalls;	    /* silences over CALL_STALL_NS */
	int64_t chunks;	    /* content chunks */
	/* Silences between content chunks: median, UNKNOWN_COUNT below two chunks; 95th percentile, below 21. Of 4 %
	 * precision. */
	int64_t gap_p50_ns, gap_p95_ns;
	struct call_segment *segments; /* owned array, in order of time */
	size_t segment_count;
	int64_t segments_left_out;
	struct interval *stall_at; /* owned array, in order of time */
	size_t stall_count;
	/* Bytes of the answer lay in the kernel while the program did not read: its own event loop was busy. */
	struct interval *late_at; /* owned array, in order of time */
	size_t late_count;
	/* Bytes that were lost on the way were waited for, in either direction. */
	struct interval *network_at; /* owned array, in order of time */
	size_t network_count;
	uint64_t dns_begin_ns, dns_end_ns; /* name look-up for the connection that this call paid for */
	int tls_resumed;		   /* -1 unknown */
	/* Set-up of the connection, when this call paid for it (else UNKNOWN_NS). */
	uint64_t connect_begin_ns, connect_end_ns, tls_begin_ns, tls_end_ns;
	bool tls_approximate;

	const char *protocol; /* static */
	int status;
	const char *api, *provider, *operation; /* static: see struct dialect, dialect_provider(); NULL unknown */
#define X(name) char *name;
	CALL_TEXTS(X)
#undef X
	enum call_class class;
	/* Small and without tools: not main but auxiliary, if a call with tools begins in its process before then.
	 * 0: the class is settled. */
	uint64_t class_open_ns;
	int stream; /* -1 unknown */
	enum call_trigger trigger;
	/* Of the system prompt and the tools of the request: with the process and the provider the conversation where
	 * no session id is. 0 unknown. */
	uint64_t conversation;
	/* text_mark() of the texts that the conversation begins with, which are not the client's own; 0: no more. */
	uint64_t opening[CALL_OPENINGS];
	int interactive;	     /* the client says that a person (1) or a script (0) drives it; -1 unknown */
	struct tool_result *results; /* owned array: what the newest part of the request answers */
	size_t result_count;
	struct sock_addr peer; /* family 0: unknown */
	/* Who is there is traced too, and makes calls itself, as a gateway: those that it passes on are told twice. */
	bool to_caller;

	struct usage usage;
	struct call_server server;
	bool hidden_reasoning; /* reasoning was counted and not streamed: decode rate is not known */
	enum end_reason end;
	bool whole;			/* the answer's terminal event came: only its framing can lack an end */
	bool unfinished;		/* still open when tracing ended, or in a snapshot */
	int32_t exit_code, exit_signal; /* with END_PROCESS_EXIT */

	bool lossy, mid_attach, request_truncated;
	bool request_lost;  /* not the call was old: its request is missing (then lossy). It has no start either */
	bool unasked;	    /* nothing says when it was asked for (speech): no start */
	bool start_known;   /* with mid_attach: only headers were missed, times count from the start */
	int64_t lost_bytes; /* of this call's bytes; UNKNOWN_COUNT when lossy and unknown how many */
	int attempt;	    /* from 1 */
	uint64_t retry_of;  /* id of the first attempt, 0 none */
	int64_t retry_wait_ns;

	struct tool_call *tools; /* owned array */
	size_t tool_count;
	int64_t request_bytes, response_bytes; /* as carried */
	struct call_request request;
	int64_t retransmits;	 /* during the call; UNKNOWN_COUNT */
	uint64_t *retransmit_at; /* owned array: the times of the latest of them */
	size_t retransmit_count;
	uint64_t reset_ns; /* its TCP connection was reset; UNKNOWN_NS: not that it was seen */
	bool reset_sent;   /* by the program's side, else by the other one */
	int64_t srtt_us, rtt_min_us;
	char *text; /* visible answer, only with content; owned */
	size_t text_len;
};

#define CALL_STALL_NS 1000000000ll /* a silence longer than this behind a content chunk is a stall */

void call_init(struct call *c); /* everything unknown */
void call_release(struct call *c);
int call_copy(struct call *to, const struct call *from); /* 0, or -ENOMEM: *to is as of call_init() */

/* Derived numbers, one place for every view. NAN when unknown; *_ms relative to the call's start. A call attached in
 * the middle, or whose request was lost or never said, has no start, unless start_known: its start_ns is when it was
 * first seen, and nothing is measured from it. Rates are NAN where the count is of an unfinished stream: it does not
 * belong to the time it would be divided by. */
bool call_has_start(const struct call *c);
double call_ms(const struct call *c, uint64_t ns);
/* From the earliest phase that the call paid for to its end: its slice. 0 and 0 when nothing is known. */
void call_bounds(const struct call *c, uint64_t *begin_ns, uint64_t *end_ns);
double call_cache_hit_rate(const struct call *c);
/* Of the whole answer: UNKNOWN_COUNT where usage is of an unfinished stream, and the count of what there was by then
 * (with Anthropic a placeholder of one token). */
int64_t call_output_total(const struct call *c);
double call_itps(const struct call *c);		/* input_total / ttft */
double call_otps(const struct call *c);		/* output_total / (end - start) */
double call_decode_tok_s(const struct call *c); /* (output_total - 1) / (last_token - first_token) */
double call_tpot_ms(const struct call *c);

/* The answer is whole, and usage partial for counts that are left out alone: those that are there are good. */
bool call_counts_left_out(const struct call *c);

const char *call_class_name(enum call_class c);
const char *call_trigger_name(enum call_trigger t); /* NULL for CALL_TRIGGER_UNKNOWN */
const char *token_kind_name(enum token_kind k);	    /* NULL for TOKEN_NONE */
const char *usage_source_name(enum usage_source s); /* NULL for USAGE_NONE */
const char *end_reason_name(enum end_reason e);	    /* NULL for END_COMPLETE */

#endif
