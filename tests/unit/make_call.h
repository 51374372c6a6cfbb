/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_MAKE_CALL_H
#define TEST_MAKE_CALL_H

/* A usual streamed call with the fields that most calls have, for the tests of what comes after the exchange stage. */

#include <sys/socket.h>

#include "flow/llm/call.h"
#include "harness.h"

#define MS 1000000ull

/* begin: entry of the first write. send 2 ms, first byte at 100 ms, tokens from 200 ms to 1200 ms, end at 1210 ms. */
static inline void make_call(struct call *c, uint64_t id, uint32_t pid, uint64_t begin)
{
	call_init(c);
	c->id = id;
	c->conn = (struct conn_key){.tgid = pid, .start_ns = 1, .obj = 7, .gen = 1};
	c->conn_id = 3;
	c->tid = pid + 1;
	c->start_ns = begin;
	c->send_end_ns = begin + 2 * MS;
	c->ttfb_ns = begin + 100 * MS;
	c->first_token_ns = c->first_visible_ns = begin + 200 * MS;
	c->last_token_ns = begin + 1200 * MS;
	c->end_ns = begin + 1210 * MS;
	c->first_kind = TOKEN_TEXT;
	c->max_gap_ns = 30 * (int64_t)MS;
	c->stalls = 0;
	c->chunks = 101;
	c->protocol = "http/1.1";
	c->method = strdup("POST");
	c->path = strdup("/v1/messages");
	c->host = strdup("api.example.com");
	c->status = 200;
	c->api = "anthropic";
	c->provider = "anthropic";
	c->operation = "chat";
	c->model = strdup("claude-test-1");
	c->request_model = strdup("claude-test");
	c->stream = 1;
	c->session_id = strdup("7e6b1f9e-58a5-4d0c-9d0f-5e6d0e1b2c3d");
	c->peer = (struct sock_addr){.family = AF_INET, .port = 443, .ip = {192, 0, 2, 7}};
	c->usage = (struct usage){USAGE_REPORTED, 36, 64, 0, 100, 101, 0, false};
	c->stop_reason = strdup("end_turn");
	c->request_bytes = 12345;
	c->response_bytes = 6789;
	c->request = (struct call_request){3, 12, 2048, 4096, 1};
	c->retransmits = 0;
	c->srtt_us = 15000;
}

/* With the set-up of its connection: 20 ms connect, 25 ms TLS, 1 ms idle, then the request. */
static inline void add_setup(struct call *c)
{
	c->connect_begin_ns = c->start_ns - 46 * MS;
	c->connect_end_ns = c->start_ns - 26 * MS;
	c->tls_begin_ns = c->start_ns - 26 * MS;
	c->tls_end_ns = c->start_ns - 1 * MS;
}

static inline void add_tool(struct call *c, const char *id, const char *name)
{
	c->tools = realloc(c->tools, (c->tool_count + 1) * sizeof(*c->tools));
	assert_non_null(c->tools);
	c->tools[c->tool_count++] =
		(struct tool_call){id ? strdup(id) : NULL, name ? strdup(name) : NULL, UNKNOWN_NS, UNKNOWN_NS, 0};
}

/* xorshift64, so that a failing seed can be run again. */
static inline uint64_t test_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

#endif
