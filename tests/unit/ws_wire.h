/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_WS_WIRE_H
#define TEST_WS_WIRE_H

/* For the tests of WebSockets: frames and compressed messages are made here. */

#include "harness.h"

#include <zlib.h>

#include "base/buf.h"
#include "flow/proto/ws.h"

#define FIN	   0x80
#define COMPRESSED 0x40

static const uint8_t ws_key[4] = {0x12, 0x34, 0x56, 0x78};

/* One frame; the client's are masked. */
static inline void put_frame(struct buf *b, bool client, uint8_t head, const void *ptr, size_t len)
{
	size_t from;

	buf_putc(b, (char)head);
	if (len < 126) {
		buf_putc(b, (char)(len | (client ? 0x80 : 0)));
	} else {
		int bytes = len <= UINT16_MAX ? 2 : 8;

		buf_putc(b, (char)((bytes == 2 ? 126 : 127) | (client ? 0x80 : 0)));
		while (bytes--)
			buf_putc(b, (char)(len >> 8 * bytes));
	}
	if (client)
		buf_push(b, ws_key, 4);
	from = b->len;
	assert_int_equal(buf_push(b, ptr, len), 0);
	for (size_t i = 0; client && i < len; i++)
		b->ptr[from + i] ^= (char)ws_key[i & 3];
}

static inline void put_text(struct buf *b, bool client, const char *text)
{
	put_frame(b, client, FIN | WS_TEXT, text, strlen(text));
}

/* The compressor of one direction, with context takeover unless reset. */
struct packer {
	z_stream z;
	uint8_t *out;
	size_t len;
};

static inline void packer_init(struct packer *p, int bits)
{
	*p = (struct packer){0};
	assert_int_equal(deflateInit2(&p->z, 9, Z_DEFLATED, -bits, 9, Z_DEFAULT_STRATEGY), Z_OK);
}

static inline void pack(struct packer *p, const void *ptr, size_t len, int flush)
{
	size_t room = len + len / 100 + 100;

	p->out = realloc(p->out, room);
	p->z.next_in = (Bytef *)ptr;
	p->z.avail_in = (uInt)len;
	p->z.next_out = p->out;
	p->z.avail_out = (uInt)room;
	deflate(&p->z, flush);
	p->len = room - p->z.avail_out;
	if (flush == Z_SYNC_FLUSH) {
		p->len -= 4;
		assert_memory_equal(p->out + p->len, "\0\0\xff\xff", 4);
	}
}

static inline void packer_release(struct packer *p)
{
	deflateEnd(&p->z);
	free(p->out);
}

static inline void put_packed(struct buf *b, struct packer *p, bool client, const char *text)
{
	pack(p, text, strlen(text), Z_SYNC_FLUSH);
	put_frame(b, client, FIN | COMPRESSED | WS_TEXT, p->out, p->len);
}

#endif
