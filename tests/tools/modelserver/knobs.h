/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef MODELSERVER_KNOBS_H
#define MODELSERVER_KNOBS_H

/* What a request may ask the server to do, in the query or in headers x-test-NAME. */

#include <stdio.h>

#include "base/sv.h"

/* X(name, default, what it does). Numbers; -1 is "never" for the *_at ones, which count tokens from 0. */
#define NUMBER_KNOBS(X)                                                                                                \
	X(head_delay_ms, 0, "wait before the head of the response")                                                    \
	X(delay_ms, 0, "wait between the head and the first token")                                                    \
	X(gap_ms, 0, "wait between tokens")                                                                            \
	X(tokens, 16, "visible content tokens, an event each")                                                         \
	X(reasoning, 0, "reasoning tokens, streamed before the content")                                               \
	X(hidden_reasoning, 0, "reasoning tokens that are counted but not streamed")                                   \
	X(input_tokens, 100, "input tokens in total, cache included")                                                  \
	X(cache_read, 0, "... of them read from the cache")                                                            \
	X(cache_write, 0, "... of them written to the cache")                                                          \
	X(output_tokens, -1, "output tokens as reported; -1: what was generated")                                      \
	X(usage, -1, "report usage: 0 no, 1 yes, -1 as the API does")                                                  \
	X(tool, 0, "tool calls in the answer")                                                                         \
	X(tool_once, 0, "tool calls only where the request offers tools, and has no result of one")                    \
	X(tool_chunks, 3, "pieces of a tool call's arguments")                                                         \
	X(tool_ids, 1, "gemini: 0: its streamed tool calls have no ids")                                               \
	X(pings, 0, "a ping or comment before every token")                                                            \
	X(utf8, 0, "tokens of two to four byte characters")                                                            \
	X(crlf, 0, "lines of events end in CR LF")                                                                     \
	X(burst, 1, "token events a write")                                                                            \
	X(split, 0, "bytes a write, at most; 0: an event a write")                                                     \
	X(split_gap_ms, 0, "wait between the writes of one event")                                                     \
	X(utf8_cut, 0, "cut the write inside the first long character")                                                \
	X(chunk, 0, "bytes a chunk of the chunked coding, at most; 0: an event a chunk")                               \
	X(gzip, 0, "gzip, flushed at every event; several codings are applied in this order")                          \
	X(deflate, 0, "deflate, flushed at every event; 2: without the zlib header")                                   \
	X(br, 0, "brotli, flushed at every event")                                                                     \
	X(zstd, 0, "zstd, flushed at every event")                                                                     \
	X(close, 0, "Connection: close")                                                                               \
	X(until_close, 0, "neither length nor chunks: the body ends with the connection")                              \
	X(interim, 0, "103 responses before the real one")                                                             \
	X(trailers, 0, "trailers after the body")                                                                      \
	X(padding, 0, "HTTP/2: bytes of padding a frame, at most")                                                     \
	X(goaway, 0, "HTTP/2: a GOAWAY after the head; streams that are open go on")                                   \
	X(array, 0, "gemini: a JSON array although the query says alt=sse")                                            \
	X(ws_deflate, 1, "WebSocket: permessage-deflate where it is offered")                                          \
	X(ws_no_takeover, 0, "WebSocket: no_context_takeover, both ways")                                              \
	X(ws_fragment, 0, "WebSocket: bytes a frame, at most")                                                         \
	X(status, 200, "status of the response; from 400 on an error body")                                            \
	X(retry_after, -1, "seconds in a retry-after header")                                                          \
	X(error_at, -1, "an error event instead of this token")                                                        \
	X(rst_at, -1, "reset the connection (HTTP/2: the stream) instead of this token")                               \
	X(fin_at, -1, "close the connection (HTTP/2: end the stream) instead of this token")                           \
	X(hang_at, -1, "stay silent from this token on, until the client leaves")                                      \
	X(stall_at, -1, "wait stall_ms more before this token")                                                        \
	X(stall_ms, 0, "see stall_at")                                                                                 \
	X(hang, 0, "never answer")

/* X(name, what it is) */
#define TEXT_KNOBS(X)                                                                                                  \
	X(model, "model that the response names; empty: the request's")                                                \
	X(stop, "stop reason")                                                                                         \
	X(tool_name,                                                                                                   \
	  "Anthropic, OpenAI, Gemini: names of the tools, a colon between them; the last one goes for the rest")       \
	X(tool_id, "what the ids of the tool calls begin with; empty: as the API does")                                \
	X(tool_argument, "arguments of the tool calls but Cohere's, Ollama's and Bedrock's: NAME:VALUE:NAME:VALUE; # " \
			 "is the call's number")                                                                       \
	X(word, "what every token says (letters and digits)")                                                          \
	X(error_type, "error type of error bodies and events")                                                         \
	X(id, "copied into the truth line")

struct knobs {
#define X(name, value, text) double name;
	NUMBER_KNOBS(X)
#undef X
#define X(name, text) char name[128];
	TEXT_KNOBS(X)
#undef X
};

void knobs_init(struct knobs *k);
/* 0; -ENOENT: no such knob; -EINVAL: bad value. */
int knob_set(struct knobs *k, struct sv name, struct sv value);
/* NAME=VALUE&… Unknown names are the API's own (beta=true) and mean nothing here. 0 or -EINVAL. */
int knobs_from_query(struct knobs *k, struct sv query);
void knobs_print(FILE *out);

#endif
