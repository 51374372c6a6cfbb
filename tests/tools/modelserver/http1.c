/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* HTTP/1.1: requests off the connection, responses onto it. */

#include <ctype.h>

#include "server.h"

/* --- requests ---------------------------------------------------------------------------------------------------- */

static int parse_start_line(struct request *r, struct sv line)
{
	struct sv rest, version, method = sv_cut(line, ' ', &rest), target = sv_cut(rest, ' ', &version);

	if (!sv_starts(version, SV("HTTP/1.")))
		return request_refuse(r, 400, "bad request line");
	r->keep_alive = sv_eq(version, SV("HTTP/1.1"));
	return request_set_target(r, method, target);
}

static int parse_header(struct request *r, struct sv line)
{
	struct sv value, name = sv_cut(line, ':', &value);

	if (!value.ptr || !name.len || name.ptr[0] == ' ' || name.ptr[0] == '\t')
		return request_refuse(r, 400, "bad header");
	return request_header(r, name, sv_trim(value));
}

/* The head into *r; bytes of it stay in c->in. 0; -1: the connection is over. */
static int read_head(struct conn *c, struct request *r)
{
	const char *end, *line, *next;
	bool first = true;

	r->first_byte_ns = c->in.len ? c->read_ns : 0;
	while (!c->in.len || !(end = memmem(c->in.ptr, c->in.len, "\r\n\r\n", 4))) {
		if (c->in.len > HEAD_MAX)
			return request_refuse(r, 431, "head too large");
		if (conn_read(c) <= 0)
			return -1;
		if (!r->first_byte_ns)
			r->first_byte_ns = c->read_ns;
	}
	r->head_len = (size_t)(end + 4 - c->in.ptr);
	for (line = c->in.ptr; line < end; line = next + 2) {
		struct sv text;

		next = memmem(line, (size_t)(end + 2 - line), "\r\n", 2);
		text = (struct sv){line, (size_t)(next - line)};
		if (memchr(text.ptr, '\0', text.len))
			return request_refuse(r, 400, "NUL in the head");
		first ? parse_start_line(r, text) : parse_header(r, text);
		first = false;
		if (r->refuse)
			break;
	}
	return 0;
}

/* One line of a chunked body, CR LF removed. */
static int read_chunk_line(struct conn *c, char line[256])
{
	const char *end;
	size_t len;

	while (!c->in.len || !(end = memmem(c->in.ptr, c->in.len < 256 ? c->in.len : 256, "\r\n", 2)))
		if (c->in.len >= 256 || conn_read(c) <= 0)
			return -1;
	len = (size_t)(end - c->in.ptr);
	memcpy(line, c->in.ptr, len);
	line[len] = '\0';
	buf_drop_front(&c->in, len + 2);
	return 0;
}

static int read_chunked(struct conn *c, struct request *r)
{
	char line[256], *end;

	for (;;) {
		unsigned long size;

		if (read_chunk_line(c, line))
			return -1;
		size = isxdigit((unsigned char)line[0]) ? strtoul(line, &end, 16) : BODY_MAX + 1ul;
		if (size > BODY_MAX || r->body.len + size > BODY_MAX)
			return request_refuse(r, 413, "bad chunk, or body too large");
		if (!size)
			break;
		if (conn_need(c, size + 2) || buf_push(&r->body, c->in.ptr, size))
			return -1;
		buf_drop_front(&c->in, size + 2);
	}
	do {
		if (read_chunk_line(c, line))
			return -1;
	} while (line[0]);
	return 0;
}

static int read_body(struct conn *c, struct request *r)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	int err = 0;

	buf_drop_front(&c->in, r->head_len);
	if (r->expect && conn_write(c, go_on, sizeof(go_on) - 1))
		return -1;
	if (r->chunked)
		err = read_chunked(c, r);
	else if (r->content_length) {
		if (conn_need(c, r->content_length) || buf_push(&r->body, c->in.ptr, r->content_length))
			return -1;
		buf_drop_front(&c->in, r->content_length);
	}
	r->complete_ns = r->body.len || r->content_length || r->chunked ? c->read_ns : r->first_byte_ns;
	return err;
}

/* 0 and *r is filled; -1: the connection is over. */
static int read_request(struct conn *c, struct request *r)
{
	request_init(r);
	if (read_head(c, r) || (!r->refuse && read_body(c, r)))
		return -1;
	if (r->refuse)
		r->keep_alive = false; /* where its body ends is not known */
	return 0;
}

/* --- responses --------------------------------------------------------------------------------------------------- */

static const char *reason_phrase(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 400:
		return "Bad Request";
	case 401:
		return "Unauthorized";
	case 404:
		return "Not Found";
	case 429:
		return "Too Many Requests";
	case 500:
		return "Internal Server Error";
	case 529:
		return "Overloaded";
	default:
		return "Status";
	}
}

static int send_interim(struct reply *r)
{
	struct buf out;
	int i, err;

	buf_init(&out, 0);
	for (i = 0; i < r->knobs->interim && i < 100; i++)
		buf_puts(&out, "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n");
	err = conn_write(r->conn, out.ptr, out.len);
	buf_release(&out);
	return err;
}

static int send_head(struct reply *r, const char *type, ssize_t length)
{
	const struct knobs *k = r->knobs;
	struct buf out;
	int err;

	if (k->interim > 0 && send_interim(r))
		return -1;
	r->chunked = length < 0 && k->until_close <= 0;
	buf_init(&out, 0);
	buf_printf(&out, "HTTP/1.1 %d %s\r\ncontent-type: %s\r\nrequest-id: req_%06u\r\n", r->status,
		   reason_phrase(r->status), type, r->sequence);
	if (k->retry_after >= 0)
		buf_printf(&out, "retry-after: %.0f\r\n", k->retry_after);
	if (r->coding.count)
		buf_printf(&out, "content-encoding: %s\r\n", r->coding.name);
	if (length >= 0)
		buf_printf(&out, "content-length: %zd\r\n", length);
	else if (r->chunked)
		buf_puts(&out, "transfer-encoding: chunked\r\n");
	if (!r->req->keep_alive)
		buf_puts(&out, "connection: close\r\n");
	buf_puts(&out, "\r\n");
	err = conn_write(r->conn, out.ptr, out.len);
	buf_release(&out);
	return err;
}

static void push_chunks(struct reply *r, const char *ptr, size_t len)
{
	size_t max = r->knobs->chunk >= 1 ? (size_t)r->knobs->chunk : len;

	while (len) {
		size_t step = len < max ? len : max;

		if (r->chunked)
			buf_printf(&r->wire, "%zx\r\n", step);
		buf_push(&r->wire, ptr, step);
		if (r->chunked)
			buf_puts(&r->wire, "\r\n");
		ptr += step;
		len -= step;
	}
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

static void push_last(struct reply *r)
{
	if (r->chunked)
		buf_puts(&r->wire, r->knobs->trailers > 0 ? "0\r\nx-checksum: none\r\n\r\n" : "0\r\n\r\n");
}

const struct wire http1_wire = {
	.protocol = "http/1.1",
	.head = send_head,
	.frame = push_chunks,
	.write = write_some,
	.wait = wait_some,
	.last = push_last,
};

/* --- the two together -------------------------------------------------------------------------------------------- */

/* The request changes what the connection speaks. True: it did, and is done. */
static bool upgrade(struct conn *c, struct request *q)
{
	if (q->refuse || (!q->websocket && !q->h2c))
		return false;
	if (q->websocket && (!q->dialect || q->dialect != &dialect_responses || !q->websocket_key[0]))
		return false;
	if (q->websocket)
		ws_serve(c, q);
	else
		http2_serve(c, q);
	return true;
}

bool http1_serve_one(struct conn *c)
{
	struct request q;
	enum stop stop;
	bool more = false;

	if (read_request(c, &q) || upgrade(c, &q))
		goto out;
	request_parse(&q);
	if (q.knobs.close > 0 || q.knobs.until_close > 0)
		q.keep_alive = false;
	more = reply_serve(c, &q, &http1_wire, NULL, &stop) && q.keep_alive;
	if (stop == STOP_RST)
		conn_reset(c);
	else if (!more && c->ssl && (stop == STOP_NOT || stop == STOP_ERROR))
		SSL_shutdown(c->ssl);
out:
	request_release(&q);
	return more;
}
