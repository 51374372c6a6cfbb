/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* OpenAI's Responses over a WebSocket: an answer for each response.create, in turn; permessage-deflate. */

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <zlib.h>

#include "server.h"

enum opcode { CONTINUATION = 0, TEXT = 1, CLOSE = 8, PING = 9, PONG = 10 };

struct ws {
	struct conn *c;
	struct request *handshake;
	bool deflate, no_takeover, reset;
	z_stream in, out;
	struct buf message;
	size_t carried; /* of the message, payload as it came */
	uint64_t first_byte_ns;
};

/* --- frames out -------------------------------------------------------------------------------------------------- */

static void push_frame(struct buf *out, enum opcode opcode, bool fin, bool compressed, const char *ptr, size_t len)
{
	unsigned i, bytes = len > 65535 ? 8 : len > 125 ? 2 : 0;

	buf_putc(out, (char)(opcode | (fin ? 0x80 : 0) | (compressed ? 0x40 : 0)));
	buf_putc(out, (char)(bytes == 8 ? 127 : bytes == 2 ? 126 : len));
	for (i = bytes; i--;)
		buf_putc(out, (char)((uint64_t)len >> (8 * i)));
	buf_push(out, ptr, len);
}

void ws_push_ping(struct buf *out)
{
	push_frame(out, PING, true, false, "are you there", 13);
}

static void pack(struct ws *w, struct sv text, struct buf *out)
{
	unsigned char bytes[16384];

	w->out.next_in = (unsigned char *)(uintptr_t)text.ptr;
	w->out.avail_in = (unsigned)text.len;
	do {
		w->out.next_out = bytes;
		w->out.avail_out = sizeof(bytes);
		deflate(&w->out, Z_SYNC_FLUSH);
		buf_push(out, bytes, sizeof(bytes) - w->out.avail_out);
	} while (!w->out.avail_out);
	if (out->len >= 4)
		out->len -= 4; /* 00 00 ff ff */
	if (w->no_takeover)
		deflateReset(&w->out);
}

void ws_push_message(struct reply *r, struct buf *out, struct sv text)
{
	struct ws *w = r->wire_data;
	struct buf packed;
	size_t at = 0, max;

	buf_init(&packed, 0);
	if (w->deflate)
		pack(w, text, &packed);
	else
		buf_push(&packed, text.ptr, text.len);
	max = r->knobs->ws_fragment >= 1 ? (size_t)r->knobs->ws_fragment : packed.len;
	do {
		size_t step = packed.len - at < max ? packed.len - at : max;
		bool last = at + step == packed.len;

		push_frame(out, at ? CONTINUATION : TEXT, last, w->deflate && !at, packed.ptr + at, step);
		if (!last && r->knobs->pings > 0)
			ws_push_ping(out);
		at += step;
	} while (at < packed.len);
	buf_release(&packed);
}

static int send_frame(struct ws *w, enum opcode opcode, const char *ptr, size_t len)
{
	struct buf out;
	int err;

	buf_init(&out, 0);
	push_frame(&out, opcode, true, false, ptr, len);
	err = conn_write(w->c, out.ptr, out.len);
	buf_release(&out);
	return err;
}

/* --- messages in ------------------------------------------------------------------------------------------------- */

static int unpack(struct ws *w)
{
	unsigned char bytes[16384];
	struct buf plain;
	int result;

	buf_init(&plain, BODY_MAX);
	buf_push(&w->message, "\0\0\xff\xff", 4);
	w->in.next_in = (unsigned char *)w->message.ptr;
	w->in.avail_in = (unsigned)w->message.len;
	do {
		w->in.next_out = bytes;
		w->in.avail_out = sizeof(bytes);
		result = inflate(&w->in, Z_SYNC_FLUSH);
		if ((result != Z_OK && result != Z_BUF_ERROR) ||
		    buf_push(&plain, bytes, sizeof(bytes) - w->in.avail_out)) {
			buf_release(&plain);
			return -1;
		}
	} while (!w->in.avail_out);
	if (w->no_takeover)
		inflateReset(&w->in);
	buf_release(&w->message);
	w->message = plain;
	return 0;
}

/* One frame, unmasked, off the connection. Payload appended to *to. First byte, or -1. */
static int read_frame(struct ws *w, struct buf *to)
{
	struct conn *c = w->c;
	const unsigned char *head;
	unsigned i, bytes, first;
	uint64_t len;
	char mask[4];

	if (conn_need(c, 2))
		return -1;
	head = (const unsigned char *)c->in.ptr;
	first = head[0];
	len = head[1] & 0x7f;
	bytes = len == 127 ? 8 : len == 126 ? 2 : 0;
	if (!(head[1] & 0x80) || conn_need(c, 2 + bytes + 4))
		return -1; /* a client masks */
	head = (const unsigned char *)c->in.ptr + 2;
	for (i = 0, len = bytes ? 0 : len; i < bytes; i++)
		len = len << 8 | head[i];
	memcpy(mask, head + bytes, 4);
	buf_drop_front(&c->in, 2 + bytes + 4);
	if (len > BODY_MAX || conn_need(c, len))
		return -1;
	for (i = 0; i < len; i++)
		c->in.ptr[i] ^= mask[i % 4];
	if (len && buf_push(to, c->in.ptr, len))
		return -1;
	if (len)
		buf_drop_front(&c->in, len);
	return (int)first;
}

/* Answers control frames. 0: w->message is whole; -1: the connection is over. */
static int read_message(struct ws *w)
{
	bool compressed = false;
	struct buf control;
	int first;

	buf_clear(&w->message);
	w->first_byte_ns = w->c->in.len ? w->c->read_ns : 0;
	do {
		if (conn_need(w->c, 1))
			return -1;
		if (!w->first_byte_ns)
			w->first_byte_ns = w->c->read_ns;
		if ((w->c->in.ptr[0] & 0x0f) >= CLOSE) {
			buf_init(&control, 125);
			first = read_frame(w, &control);
			if (first >= 0 && (first & 0x0f) == PING)
				send_frame(w, PONG, control.ptr, control.len);
			if (first >= 0 && (first & 0x0f) == CLOSE)
				send_frame(w, CLOSE, control.ptr, control.len);
			buf_release(&control);
			if (first < 0 || (first & 0x0f) == CLOSE)
				return -1;
			if (!w->message.len)
				w->first_byte_ns = w->c->in.len ? w->c->read_ns : 0;
			first = 0;
			continue;
		}
		first = read_frame(w, &w->message);
		if (first < 0)
			return -1;
		compressed = compressed || (first & 0x40);
	} while (!(first & 0x80));
	w->carried = w->message.len;
	return compressed ? unpack(w) : 0;
}

/* --- answers ----------------------------------------------------------------------------------------------------- */

static int no_head(struct reply *r, const char *type, ssize_t length)
{
	(void)r, (void)type, (void)length;
	return 0;
}

static void push_bytes(struct reply *r, const char *ptr, size_t len)
{
	buf_push(&r->wire, ptr, len);
}

static int write_some(struct reply *r, const char *ptr, size_t len, uint64_t *at_ns)
{
	*at_ns = clock_boot_ns();
	return conn_write(r->conn, ptr, len);
}

static int wait_some(struct reply *r, double ms)
{
	return conn_wait(r->conn, ms);
}

static const struct wire ws_wire = {
	.protocol = "websocket",
	.frame_messages = true,
	.head = no_head,
	.frame = push_bytes,
	.write = write_some,
	.wait = wait_some,
};

/* {"metadata":{"test":"tokens=5"}} beside the knobs of the handshake; nothing is generated with "generate":false. */
static void set_knobs(struct request *q, const cJSON *doc)
{
	q->knobs.id[0] = '\0';
	if (knobs_from_query(&q->knobs, json_get_string(json_get(doc, "metadata"), "test")))
		request_refuse(q, 422, "bad knob");
	if (cJSON_IsFalse(json_get(doc, "generate")))
		q->knobs.tokens = q->knobs.reasoning = q->knobs.hidden_reasoning = q->knobs.tool = 0;
}

/* True: the connection goes on. */
static bool serve_message(struct ws *w)
{
	cJSON *doc = w->message.len ? cJSON_ParseWithLength(w->message.ptr, w->message.len) : NULL;
	bool create = sv_eq(json_get_string(doc, "type"), SV("response.create")), more = true;
	struct request q;
	enum stop stop;

	if (create) {
		request_init(&q);
		request_set_target(&q, SV("POST"), sv_of(w->handshake->target));
		q.knobs = w->handshake->knobs;
		set_knobs(&q, doc);
		q.first_byte_ns = w->first_byte_ns;
		q.complete_ns = w->c->read_ns;
		buf_push(&q.body, w->message.ptr, w->message.len);
		request_parse(&q);
		q.carried = w->carried;
		q.stream = true;
		more = reply_serve(w->c, &q, &ws_wire, w, &stop);
		if (stop == STOP_RST) {
			conn_reset(w->c);
			w->reset = true;
		}
		if (stop == STOP_FIN)
			send_frame(w, CLOSE, "\x03\xf3", 2);
		request_release(&q);
	}
	cJSON_Delete(doc);
	return more;
}

static int send_handshake(struct ws *w)
{
	static const char magic[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	unsigned char hash[SHA_DIGEST_LENGTH], coded[64];
	struct buf out;
	int err;

	buf_init(&out, 0);
	buf_printf(&out, "%s%s", w->handshake->websocket_key, magic);
	SHA1((unsigned char *)out.ptr, out.len, hash);
	EVP_EncodeBlock(coded, hash, sizeof(hash));
	buf_clear(&out);
	buf_printf(&out,
		   "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
		   "sec-websocket-accept: %s\r\n",
		   coded);
	if (w->deflate)
		buf_printf(&out, "sec-websocket-extensions: permessage-deflate%s\r\n",
			   w->no_takeover ? "; server_no_context_takeover; client_no_context_takeover" : "");
	buf_puts(&out, "\r\n");
	err = conn_write(w->c, out.ptr, out.len);
	buf_release(&out);
	return err;
}

void ws_serve(struct conn *c, struct request *handshake)
{
	struct ws w = {.c = c, .handshake = handshake};

	w.deflate = handshake->deflate_offered && handshake->knobs.ws_deflate > 0;
	w.no_takeover = handshake->knobs.ws_no_takeover > 0;
	if (w.deflate && (inflateInit2(&w.in, -15) != Z_OK ||
			  deflateInit2(&w.out, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK))
		return;
	buf_init(&w.message, BODY_MAX);
	if (!send_handshake(&w))
		while (!read_message(&w) && serve_message(&w))
			;
	if (c->ssl && !w.reset) /* a word of farewell would let the client close first */
		SSL_shutdown(c->ssl);
	buf_release(&w.message);
	if (w.deflate) {
		inflateEnd(&w.in);
		deflateEnd(&w.out);
	}
}
