/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_HTTP2_WIRE_H
#define TEST_HTTP2_WIRE_H

/* Writes what an HTTP/2 connection carries, as a script; header blocks by libnghttp2's encoder. */

#include <nghttp2/nghttp2.h>

#include "http_run.h"

#define WIRE_STEPS_MAX 2048
#define WIRE_BYTES_MAX (1u << 20)

#define W_DATA	   0
#define W_HEADERS  1
#define W_PRIORITY 2
#define W_RST	   3
#define W_SETTINGS 4
#define W_PUSH	   5
#define W_PING	   6
#define W_GOAWAY   7
#define W_WINDOW   8
#define W_CONT	   9

#define F_END	      0x01
#define F_ACK	      0x01
#define F_END_HEADERS 0x04
#define F_PADDED      0x08
#define F_PRIORITY    0x20

struct wire {
	char *bytes;
	size_t len;
	struct script_step steps[WIRE_STEPS_MAX];
	size_t count;
	nghttp2_hd_deflater *deflater[2]; /* by enum dir */
	uint64_t ms;
	enum dir dir;
};

static inline struct wire *wire_new(void)
{
	struct wire *w = calloc(1, sizeof(*w));

	w->bytes = malloc(WIRE_BYTES_MAX);
	nghttp2_hd_deflate_new(&w->deflater[0], 4096);
	nghttp2_hd_deflate_new(&w->deflater[1], 4096);
	return w;
}

static inline void wire_free(struct wire *w)
{
	nghttp2_hd_deflate_del(w->deflater[0]);
	nghttp2_hd_deflate_del(w->deflater[1]);
	free(w->bytes);
	free(w);
}

/* What follows goes that way, at that time: one call of the program. */
static inline void wire_at(struct wire *w, enum dir dir, uint64_t ms)
{
	w->dir = dir;
	w->ms = ms;
	assert_true(w->count < WIRE_STEPS_MAX);
	w->steps[w->count++] = (struct script_step){dir, ms, ms, w->bytes + w->len, 0, HTTP_GAP_LOST, 0};
}

static inline void wire_gap(struct wire *w, enum dir dir, uint64_t ms, uint64_t len)
{
	w->steps[w->count++] = (struct script_step){dir, ms, ms, NULL, len, HTTP_GAP_LOST, 0};
}

static inline void wire_capped(struct wire *w, enum dir dir, uint64_t ms, uint64_t len)
{
	w->steps[w->count++] = (struct script_step){dir, ms, ms, NULL, len, HTTP_GAP_CAPPED, 0};
}

static inline void wire_raw(struct wire *w, const void *ptr, size_t len)
{
	assert_true(w->len + len <= WIRE_BYTES_MAX);
	if (len)
		memcpy(w->bytes + w->len, ptr, len);
	w->len += len;
	w->steps[w->count - 1].len += len;
}

static inline void wire_text(struct wire *w, const char *text)
{
	wire_raw(w, text, strlen(text));
}

static inline void wire_header(struct wire *w, unsigned type, unsigned flags, uint32_t stream, size_t len)
{
	uint8_t h[9] = {(uint8_t)(len >> 16),	 (uint8_t)(len >> 8),	 (uint8_t)len,
			(uint8_t)type,		 (uint8_t)flags,	 (uint8_t)(stream >> 24),
			(uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};

	wire_raw(w, h, sizeof(h));
}

static inline void wire_frame(struct wire *w, unsigned type, unsigned flags, uint32_t stream, const void *ptr,
			      size_t len)
{
	wire_header(w, type, flags, stream, len);
	wire_raw(w, ptr, len);
}

static inline void wire_data(struct wire *w, unsigned flags, uint32_t stream, const char *text)
{
	wire_frame(w, W_DATA, flags, stream, text, strlen(text));
}

static inline void wire_number(struct wire *w, unsigned type, uint32_t stream, uint32_t number)
{
	uint8_t b[4] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16), (uint8_t)(number >> 8), (uint8_t)number};

	wire_frame(w, type, 0, stream, b, sizeof(b));
}

static inline void wire_goaway(struct wire *w, uint32_t last)
{
	uint8_t b[8] = {(uint8_t)(last >> 24), (uint8_t)(last >> 16), (uint8_t)(last >> 8), (uint8_t)last};

	wire_frame(w, W_GOAWAY, 0, 0, b, sizeof(b));
}

/* "name: value\n..." as a block. */
static inline size_t wire_block(struct wire *w, const char *fields, uint8_t *out, size_t size)
{
	static char text[16384];
	nghttp2_nv nv[64];
	size_t n = 0;
	ssize_t len;

	snprintf(text, sizeof(text), "%s", fields);
	for (char *line = text; *line;) {
		char *end = strchr(line, '\n'), *colon = strchr(line + 1, ':');

		*end = *colon = '\0';
		nv[n++] = (nghttp2_nv){(uint8_t *)line, (uint8_t *)colon + 2, strlen(line), strlen(colon + 2),
				       NGHTTP2_NV_FLAG_NONE};
		line = end + 1;
	}
	len = nghttp2_hd_deflate_hd(w->deflater[w->dir], out, size, nv, n);
	assert_true(len >= 0);
	return (size_t)len;
}

static inline void wire_headers(struct wire *w, unsigned flags, uint32_t stream, const char *fields)
{
	uint8_t block[32768];
	size_t len = wire_block(w, fields, block, sizeof(block));

	wire_frame(w, W_HEADERS, flags | F_END_HEADERS, stream, block, len);
}

/* With padding, priority, and the rest of the block in CONTINUATION frames of `piece` bytes (0: all in one). */
static inline void wire_headers_cut(struct wire *w, unsigned flags, uint32_t stream, const char *fields, size_t piece)
{
	uint8_t block[32768];
	static const uint8_t zeros[16], priority[5] = {0x80, 0, 0, 3, 255};
	size_t len = wire_block(w, fields, block, sizeof(block)), n = piece < len ? piece : len, at = n;
	uint8_t pad = 7;

	wire_header(w, W_HEADERS, flags | (at == len ? F_END_HEADERS : 0), stream,
		    n + (flags & F_PADDED ? 8 : 0) + (flags & F_PRIORITY ? 5 : 0));
	if (flags & F_PADDED)
		wire_raw(w, &pad, 1);
	if (flags & F_PRIORITY)
		wire_raw(w, priority, 5);
	wire_raw(w, block, n);
	if (flags & F_PADDED)
		wire_raw(w, zeros, pad);
	for (; at < len; at += n) {
		n = piece && piece < len - at ? piece : len - at;
		wire_frame(w, W_CONT, at + n == len ? F_END_HEADERS : 0, stream, block + at, n);
	}
}

static inline void wire_padded_data(struct wire *w, unsigned flags, uint32_t stream, const char *text, uint8_t pad)
{
	static const uint8_t zeros[255];

	wire_header(w, W_DATA, flags | F_PADDED, stream, strlen(text) + 1 + pad);
	wire_raw(w, &pad, 1);
	wire_text(w, text);
	wire_raw(w, zeros, pad);
}

#define WIRE_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define WIRE_POST(path)                                                                                                \
	":method: POST\n:scheme: https\n:authority: api.test\n:path: " path "\ncontent-type: application/json\n"
#define WIRE_OK ":status: 200\ncontent-type: text/event-stream\n"

/* Preface and SETTINGS of both sides. */
static inline void wire_open(struct wire *w, enum dir client, uint64_t ms)
{
	static const uint8_t settings[] = {0, 3, 0, 0, 0, 100, 0, 4, 0, 1, 0, 0};

	wire_at(w, client, ms);
	wire_text(w, WIRE_PREFACE);
	wire_frame(w, W_SETTINGS, 0, 0, settings, sizeof(settings));
	wire_number(w, W_WINDOW, 0, 1 << 20);
	wire_at(w, !client, ms + 1);
	wire_frame(w, W_SETTINGS, 0, 0, settings, sizeof(settings));
	wire_frame(w, W_SETTINGS, F_ACK, 0, NULL, 0);
}

#endif
