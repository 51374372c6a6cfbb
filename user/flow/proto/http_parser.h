/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FLOW_PROTO_HTTP_PARSER_H
#define FLOW_PROTO_HTTP_PARSER_H

/* A parser that says http.h, whichever it is. */

#include "http.h"

/* As http1.h and http2.h have them. */
struct http_parser {
	int (*push)(void *parser, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at);
	int (*gap)(void *parser, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at);
	void (*tick)(void *parser, uint64_t now_ns);
	bool (*waits)(const void *parser);
	void (*warm)(const void *parser, struct warm *w);
	void (*finish)(void *parser, enum http_abort why, uint64_t ts_ns);
	void (*release)(void *parser);
	unsigned (*errors)(const void *parser);
	unsigned (*requests)(const void *parser);
};

/* Functions of `name`, for HTTP_PARSER(). */
#define HTTP_PARSER_FUNCTIONS(name)                                                                                    \
	static int name##_push_any(void *p, enum dir dir, const uint8_t *ptr, size_t len, const struct stamp *at)      \
	{                                                                                                              \
		return name##_push(p, dir, ptr, len, at);                                                              \
	}                                                                                                              \
	static int name##_gap_any(void *p, enum dir dir, uint64_t len, enum http_gap why, const struct stamp *at)      \
	{                                                                                                              \
		return name##_gap(p, dir, len, why, at);                                                               \
	}                                                                                                              \
	static void name##_tick_any(void *p, uint64_t now_ns)                                                          \
	{                                                                                                              \
		name##_tick(p, now_ns);                                                                                \
	}                                                                                                              \
	static bool name##_waits_any(const void *p)                                                                    \
	{                                                                                                              \
		return name##_waits(p);                                                                                \
	}                                                                                                              \
	static void name##_warm_any(const void *p, struct warm *w)                                                     \
	{                                                                                                              \
		name##_warm(p, w);                                                                                     \
	}                                                                                                              \
	static void name##_finish_any(void *p, enum http_abort why, uint64_t ts_ns)                                    \
	{                                                                                                              \
		name##_finish(p, why, ts_ns);                                                                          \
	}                                                                                                              \
	static void name##_free_any(void *p)                                                                           \
	{                                                                                                              \
		name##_free(p);                                                                                        \
	}                                                                                                              \
	static unsigned name##_errors_any(const void *p)                                                               \
	{                                                                                                              \
		return name##_errors(p);                                                                               \
	}                                                                                                              \
	static unsigned name##_requests_any(const void *p)                                                             \
	{                                                                                                              \
		return name##_requests(p);                                                                             \
	}

#define HTTP_PARSER(name)                                                                                              \
	{                                                                                                              \
		name##_push_any, name##_gap_any, name##_tick_any, name##_waits_any, name##_warm_any,                   \
			name##_finish_any, name##_free_any, name##_errors_any, name##_requests_any                     \
	}

#endif
