/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * modelserver: a small model API on loopback whose every answer is known to the nanosecond. Three dialects by path
 * suffix (…/v1/messages, …/chat/completions, …/responses), streaming or unary by the body's "stream", over TLS with a
 * certificate made at start or, with --plain, without. What it does is asked for per request by knobs, in the query
 * (?tokens=20&gap_ms=5) or in headers (x-test-gap-ms: 5); --truth FILE gets a JSON line a request with the stamps of
 * what was really sent.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <math.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "testcert.h"

#define HEAD_MAX	(64u << 10)
#define BODY_MAX	(64u << 20)
#define KNOB_MAX	1e9
#define TOKENS_MAX	1000000u
#define TOOLS_MAX	100u
#define CONNECTIONS_MAX 4096
#define IDLE_SECONDS	600
#define TEXT_MAX	(256u << 10) /* of the answer, in the truth line */

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
	X(tool_chunks, 3, "pieces of a tool call's arguments")                                                         \
	X(pings, 0, "a ping or comment before every token")                                                            \
	X(utf8, 0, "tokens of two to four byte characters")                                                            \
	X(crlf, 0, "lines of events end in CR LF")                                                                     \
	X(burst, 1, "token events a write")                                                                            \
	X(split, 0, "bytes a write, at most; 0: an event a write")                                                     \
	X(split_gap_ms, 0, "wait between the writes of one event")                                                     \
	X(utf8_cut, 0, "cut the write inside the first long character")                                                \
	X(chunk, 0, "bytes a chunk of the chunked coding, at most; 0: an event a chunk")                               \
	X(gzip, 0, "gzip, flushed at every event")                                                                     \
	X(deflate, 0, "deflate, flushed at every event")                                                               \
	X(close, 0, "Connection: close")                                                                               \
	X(until_close, 0, "neither length nor chunks: the body ends with the connection")                              \
	X(interim, 0, "103 responses before the real one")                                                             \
	X(status, 200, "status of the response; from 400 on an error body")                                            \
	X(retry_after, -1, "seconds in a retry-after header")                                                          \
	X(error_at, -1, "an error event instead of this token")                                                        \
	X(rst_at, -1, "reset the connection instead of this token")                                                    \
	X(fin_at, -1, "close the connection instead of this token")                                                    \
	X(hang_at, -1, "stay silent from this token on, until the client leaves")                                      \
	X(stall_at, -1, "wait stall_ms more before this token")                                                        \
	X(stall_ms, 0, "see stall_at")                                                                                 \
	X(hang, 0, "never answer")

/* X(name, what it is) */
#define TEXT_KNOBS(X)                                                                                                  \
	X(model, "model that the response names; empty: the request's")                                                \
	X(stop, "stop reason")                                                                                         \
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

enum dialect { DIALECT_NONE, DIALECT_ANTHROPIC, DIALECT_CHAT, DIALECT_RESPONSES };
static const char *const dialect_names[] = {"none", "anthropic", "openai.chat", "openai.responses"};

struct conn {
	int fd;
	SSL *ssl; /* NULL: plain */
	struct buf in;
	unsigned id, requests;
	uint16_t peer_port;
	uint64_t accept_ns, established_ns, read_ns;
};

struct request {
	char method[16];
	char target[8192];
	enum dialect dialect;
	size_t head_len;
	size_t content_length;
	bool chunked, keep_alive, expect;
	struct knobs knobs;
	struct buf body;
	bool stream, include_usage;
	char request_model[128];
	int64_t messages;
	uint64_t first_byte_ns, complete_ns;
	int refuse; /* status of a request that gets no answer of a model */
	const char *refuse_why;
};

/* How a response ends besides its own end. */
enum stop { STOP_NOT, STOP_CLIENT_GONE, STOP_RST, STOP_FIN, STOP_ERROR };
static const char *const stop_names[] = {"complete", "client_gone", "rst", "fin", "error"};

struct reply {
	struct conn *conn;
	struct request *req;
	const struct knobs *knobs;
	enum stop stop;
	bool chunked, encoded;
	z_stream z;
	struct buf events, packed, wire;
	unsigned pending; /* token events in `events`, not yet written */
	uint64_t *tokens_ns;
	size_t tokens, tokens_size;
	const char *kind; /* of the first token */
	uint64_t head_ns, end_ns;
	uint64_t body_bytes;
	int status;
	char model[128], model_escaped[1024];
	const char *stop_reason, *error;
	bool usage_sent, final_usage_sent;
	struct buf text;
};

static SSL_CTX *tls;
static int truth_fd = -1;
static pthread_mutex_t truth_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint request_count, connection_count;
static atomic_int connections_open;

/* --- knobs -----------------------------------------------------------------------------------------------------------
 */

static void knobs_init(struct knobs *k)
{
	memset(k, 0, sizeof(*k));
#define X(name, value, text) k->name = (value);
	NUMBER_KNOBS(X)
#undef X
	strcpy(k->word, "tok");
}

static int set_number(double *field, const char *value)
{
	char *end;
	double number = strtod(value, &end);

	if (end == value || *end || !isfinite(number) || number < -1 || number > KNOB_MAX)
		return -EINVAL;
	*field = number;
	return 0;
}

static int set_text(char field[128], const char *value)
{
	size_t i;

	for (i = 0; value[i]; i++)
		if (i >= 127 || !(isalnum((unsigned char)value[i]) || strchr("-_.:/ ", value[i])))
			return -EINVAL;
	memcpy(field, value, i + 1);
	return 0;
}

/* 0; -ENOENT: no such knob; -EINVAL: bad value. */
static int knob_set(struct knobs *k, struct sv name, struct sv value)
{
	char key[64], text[256];
	size_t i;

	if (name.len >= sizeof(key) || value.len >= sizeof(text))
		return -ENOENT;
	for (i = 0; i < name.len; i++)
		key[i] = name.ptr[i] == '-' ? '_' : (char)tolower((unsigned char)name.ptr[i]);
	key[i] = '\0';
	if (value.len)
		memcpy(text, value.ptr, value.len);
	text[value.len] = '\0';
#define X(knob, initial, what)                                                                                         \
	if (!strcmp(key, #knob))                                                                                       \
		return set_number(&k->knob, text);
	NUMBER_KNOBS(X)
#undef X
#define X(knob, what)                                                                                                  \
	if (!strcmp(key, #knob))                                                                                       \
		return set_text(k->knob, text);
	TEXT_KNOBS(X)
#undef X
	return -ENOENT;
}

/* Unknown parameters of a query are the API's own (beta=true) and mean nothing here. */
static int knobs_from_query(struct knobs *k, const char *target)
{
	const char *query = strchr(target, '?');
	struct sv rest = query ? sv_of(query + 1) : SV_NONE;

	while (rest.ptr) {
		struct sv value, name = sv_cut(sv_cut(rest, '&', &rest), '=', &value);

		if (knob_set(k, name, value) == -EINVAL)
			return -EINVAL;
	}
	return 0;
}

/* --- one connection's bytes ------------------------------------------------------------------------------------------
 */

/* More bytes into c->in. Count, 0 at the end, -1. */
static int conn_read(struct conn *c)
{
	char bytes[16384];
	int n = c->ssl ? SSL_read(c->ssl, bytes, sizeof(bytes)) : (int)recv(c->fd, bytes, sizeof(bytes), 0);

	c->read_ns = clock_boot_ns();
	if (n > 0 && buf_push(&c->in, bytes, (size_t)n))
		return -1;
	return n;
}

static int conn_write(struct conn *c, const char *ptr, size_t len)
{
	while (len) {
		int step = len > (1u << 20) ? 1 << 20 : (int)len;
		int n = c->ssl ? SSL_write(c->ssl, ptr, step) : (int)send(c->fd, ptr, (size_t)step, 0);

		if (n <= 0)
			return -1;
		ptr += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Wait that long, or until the client has left (-1). */
static int conn_wait(struct conn *c, double ms)
{
	uint64_t until = clock_boot_ns() + (uint64_t)(ms * 1e6);

	for (;;) {
		struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
		uint64_t now = clock_boot_ns(), left = until > now ? until - now : 0;
		struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000), .tv_nsec = (long)(left % 1000000000)};

		if (!left)
			return 0;
		if (ppoll(&p, 1, &timeout, NULL) > 0)
			return -1;
	}
}

/* End without a close_notify: what a crashed server looks like. */
static void conn_reset(struct conn *c)
{
	struct linger linger = {.l_onoff = 1};

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

/* --- request ---------------------------------------------------------------------------------------------------------
 */

static int refuse(struct request *r, int status, const char *why)
{
	if (!r->refuse) {
		r->refuse = status;
		r->refuse_why = why;
	}
	return 0;
}

static enum dialect dialect_of(const char *target)
{
	struct sv rest, path = sv_cut(sv_of(target), '?', &rest);

	if (sv_ends(path, SV("/v1/messages")))
		return DIALECT_ANTHROPIC;
	if (sv_ends(path, SV("/chat/completions")))
		return DIALECT_CHAT;
	return sv_ends(path, SV("/responses")) ? DIALECT_RESPONSES : DIALECT_NONE;
}

static int parse_start_line(struct request *r, struct sv line)
{
	struct sv rest, version, method = sv_cut(line, ' ', &rest), target = sv_cut(rest, ' ', &version);

	if (!method.len || method.len >= sizeof(r->method) || !target.len || target.ptr[0] != '/' ||
	    !sv_starts(version, SV("HTTP/1.")))
		return refuse(r, 400, "bad request line");
	if (target.len >= sizeof(r->target))
		return refuse(r, 431, "target too long");
	memcpy(r->method, method.ptr, method.len);
	memcpy(r->target, target.ptr, target.len);
	r->keep_alive = sv_eq(version, SV("HTTP/1.1"));
	r->dialect = dialect_of(r->target);
	if (knobs_from_query(&r->knobs, r->target))
		return refuse(r, 422, "bad knob in the query");
	return 0;
}

static int parse_length(struct request *r, struct sv value)
{
	size_t i, length = 0;

	for (i = 0; i < value.len; i++) {
		if (!isdigit((unsigned char)value.ptr[i]))
			return refuse(r, 400, "bad content-length");
		length = length * 10 + (size_t)(value.ptr[i] - '0');
		if (length > BODY_MAX)
			return refuse(r, 413, "body too large");
	}
	if (!value.len)
		return refuse(r, 400, "bad content-length");
	r->content_length = length;
	return 0;
}

static int parse_header(struct request *r, struct sv line)
{
	struct sv value, name = sv_cut(line, ':', &value);

	if (!value.ptr || !name.len || name.ptr[0] == ' ' || name.ptr[0] == '\t')
		return refuse(r, 400, "bad header");
	value = sv_trim(value);
	if (sv_ieq(name, SV("content-length")))
		return parse_length(r, value);
	if (sv_ieq(name, SV("transfer-encoding"))) {
		r->chunked = sv_ieq(value, SV("chunked"));
		return r->chunked ? 0 : refuse(r, 400, "unknown transfer coding");
	}
	if (sv_ieq(name, SV("connection")) && sv_ieq(value, SV("close")))
		r->keep_alive = false;
	if (sv_ieq(name, SV("expect")))
		r->expect = sv_ieq(value, SV("100-continue"));
	if (name.len > 7 && strncasecmp(name.ptr, "x-test-", 7) == 0 &&
	    knob_set(&r->knobs, (struct sv){name.ptr + 7, name.len - 7}, value))
		return refuse(r, 422, "unknown knob, or a bad value of one");
	return 0;
}

/* The head into *r; bytes of it stay in c->in. 0; -1: the connection is over. */
static int read_head(struct conn *c, struct request *r)
{
	const char *end, *line, *next;
	bool first = true;

	r->first_byte_ns = c->in.len ? c->read_ns : 0;
	while (!c->in.len || !(end = memmem(c->in.ptr, c->in.len, "\r\n\r\n", 4))) {
		if (c->in.len > HEAD_MAX)
			return refuse(r, 431, "head too large");
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
			return refuse(r, 400, "NUL in the head");
		first ? parse_start_line(r, text) : parse_header(r, text);
		first = false;
		if (r->refuse)
			break;
	}
	return 0;
}

/* At least `want` unread bytes. */
static int need(struct conn *c, size_t want)
{
	while (c->in.len < want)
		if (conn_read(c) <= 0)
			return -1;
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
			return refuse(r, 413, "bad chunk, or body too large");
		if (!size)
			break;
		if (need(c, size + 2) || buf_push(&r->body, c->in.ptr, size))
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
		if (need(c, r->content_length) || buf_push(&r->body, c->in.ptr, r->content_length))
			return -1;
		buf_drop_front(&c->in, r->content_length);
	}
	r->complete_ns = r->body.len || r->content_length || r->chunked ? c->read_ns : r->first_byte_ns;
	return err;
}

static void parse_body(struct request *r)
{
	cJSON *doc = r->body.len ? cJSON_ParseWithLength(r->body.ptr, r->body.len) : NULL;
	struct sv model = json_get_string(doc, "model");
	const cJSON *list = json_get(doc, r->dialect == DIALECT_RESPONSES ? "input" : "messages");

	if (!cJSON_IsObject(doc)) {
		refuse(r, 422, "the body is no JSON object");
	} else if (!model.len || model.len >= sizeof(r->request_model)) {
		refuse(r, 422, "model is missing or too long");
	} else {
		memcpy(r->request_model, model.ptr, model.len);
		r->stream = json_get_true(doc, "stream");
		r->include_usage = json_get_true(json_get(doc, "stream_options"), "include_usage");
		r->messages = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : -1;
	}
	cJSON_Delete(doc);
}

/* 0 and *r is filled; -1: the connection is over. */
static int read_request(struct conn *c, struct request *r)
{
	memset(r, 0, sizeof(*r));
	knobs_init(&r->knobs);
	buf_init(&r->body, BODY_MAX);
	if (read_head(c, r) || (!r->refuse && read_body(c, r)))
		return -1;
	if (r->refuse) {
		r->keep_alive = false; /* where its body ends is not known */
		return 0;
	}
	if (r->dialect == DIALECT_NONE)
		return refuse(r, 404, "no such path");
	if (strcmp(r->method, "POST"))
		return refuse(r, 405, "only POST");
	parse_body(r);
	return 0;
}

/* --- response bytes --------------------------------------------------------------------------------------------------
 */

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

static void gone(struct reply *r)
{
	if (r->stop == STOP_NOT)
		r->stop = STOP_CLIENT_GONE;
}

/* Where the next write ends, by the knobs. */
static size_t piece_len(struct reply *r, const char *ptr, size_t left, bool *cut_done)
{
	size_t i, piece = r->knobs->split >= 1 && r->knobs->split < (double)left ? (size_t)r->knobs->split : left;

	if (r->knobs->utf8_cut > 0 && !*cut_done)
		for (i = 0; i + 1 < piece; i++)
			if ((unsigned char)ptr[i] >= 0xc0) {
				*cut_done = true;
				return i + 1;
			}
	return piece;
}

/* Write what is in `wire`, in pieces; returns when the write of the last piece began. */
static uint64_t write_wire(struct reply *r)
{
	size_t at = 0;
	bool cut_done = false;
	uint64_t last_ns = 0;

	while (at < r->wire.len && r->stop == STOP_NOT) {
		size_t piece = piece_len(r, r->wire.ptr + at, r->wire.len - at, &cut_done);

		if (at && r->knobs->split_gap_ms > 0 && conn_wait(r->conn, r->knobs->split_gap_ms))
			gone(r);
		last_ns = clock_boot_ns();
		if (r->stop == STOP_NOT && conn_write(r->conn, r->wire.ptr + at, piece))
			gone(r);
		at += piece;
	}
	buf_clear(&r->wire);
	return last_ns;
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
		r->body_bytes += step;
		ptr += step;
		len -= step;
	}
}

/* Body bytes through the content coding. flush: Z_SYNC_FLUSH or Z_FINISH. */
static void encode(struct reply *r, const char *ptr, size_t len, int flush)
{
	unsigned char out[16384];

	if (!r->encoded) {
		push_chunks(r, ptr, len);
		return;
	}
	buf_clear(&r->packed);
	r->z.next_in = (unsigned char *)(uintptr_t)ptr;
	r->z.avail_in = (unsigned)len;
	do {
		r->z.next_out = out;
		r->z.avail_out = sizeof(out);
		deflate(&r->z, flush);
		buf_push(&r->packed, out, sizeof(out) - r->z.avail_out);
	} while (!r->z.avail_out);
	push_chunks(r, r->packed.ptr, r->packed.len);
}

static void stamp_tokens(struct reply *r, uint64_t ns)
{
	for (; r->pending; r->pending--) {
		if (r->tokens == r->tokens_size) {
			size_t size = r->tokens_size ? 2 * r->tokens_size : 256;
			uint64_t *grown = realloc(r->tokens_ns, size * sizeof(*grown));

			if (!grown)
				return;
			r->tokens_ns = grown;
			r->tokens_size = size;
		}
		r->tokens_ns[r->tokens++] = ns;
	}
}

static void flush_events(struct reply *r)
{
	if (r->stop != STOP_NOT || !r->events.len)
		return;
	encode(r, r->events.ptr, r->events.len, Z_SYNC_FLUSH);
	buf_clear(&r->events);
	stamp_tokens(r, write_wire(r));
}

/* One event of a stream. name NULL: data only. kind: it carries a token of that kind; NULL: none. */
static void emit(struct reply *r, const char *name, const char *kind, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void emit(struct reply *r, const char *name, const char *kind, const char *fmt, ...)
{
	const char *eol = r->knobs->crlf > 0 ? "\r\n" : "\n";
	char *text = NULL;
	va_list ap;
	int n;

	if (r->stop != STOP_NOT)
		return;
	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return gone(r);
	if (name)
		buf_printf(&r->events, "event: %s%s", name, eol);
	buf_printf(&r->events, "data: %s%s%s", text, eol, eol);
	free(text);
	if (kind) {
		r->pending++;
		if (!r->kind)
			r->kind = kind;
		if (r->pending < r->knobs->burst)
			return;
	} else if (r->pending && r->knobs->burst > 1) {
		return; /* behind the tokens of an unfinished burst */
	}
	flush_events(r);
}

static void send_head(struct reply *r, const char *type, ssize_t length)
{
	struct request *q = r->req;
	const struct knobs *k = r->knobs;
	int i;

	for (i = 0; i < k->interim && i < 100; i++)
		buf_puts(&r->wire, "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n");
	if (r->wire.len)
		write_wire(r);
	buf_printf(&r->wire, "HTTP/1.1 %d %s\r\ncontent-type: %s\r\nrequest-id: req_%06u\r\n", r->status,
		   reason_phrase(r->status), type, atomic_load(&request_count));
	if (k->retry_after >= 0)
		buf_printf(&r->wire, "retry-after: %.0f\r\n", k->retry_after);
	if (r->encoded)
		buf_printf(&r->wire, "content-encoding: %s\r\n", k->gzip > 0 ? "gzip" : "deflate");
	if (length >= 0)
		buf_printf(&r->wire, "content-length: %zd\r\n", length);
	else if (r->chunked)
		buf_puts(&r->wire, "transfer-encoding: chunked\r\n");
	if (!q->keep_alive)
		buf_puts(&r->wire, "connection: close\r\n");
	buf_puts(&r->wire, "\r\n");
	r->head_ns = clock_boot_ns();
	if (r->stop == STOP_NOT && conn_write(r->conn, r->wire.ptr, r->wire.len))
		gone(r);
	buf_clear(&r->wire);
}

/* The end of a streamed body: rest of the coding and the last chunk, in one write with what is pending. */
static void finish_body(struct reply *r)
{
	if (r->stop != STOP_NOT && r->stop != STOP_ERROR)
		return;
	if (r->encoded)
		encode(r, r->events.ptr, r->events.len, Z_FINISH);
	if (r->chunked)
		buf_puts(&r->wire, "0\r\n\r\n");
	if (r->wire.len && conn_write(r->conn, r->wire.ptr, r->wire.len))
		gone(r);
	buf_clear(&r->wire);
}

/* --- what is said ----------------------------------------------------------------------------------------------------
 */

static int64_t generated(const struct knobs *k)
{
	return k->output_tokens >= 0 ? (int64_t)k->output_tokens
				     : (int64_t)(k->reasoning + k->hidden_reasoning + k->tokens + 8 * k->tool);
}

static int64_t reasoned(const struct knobs *k)
{
	return (int64_t)(k->reasoning + k->hidden_reasoning);
}

static const char *token_text(struct reply *r, unsigned i, char out[256])
{
	snprintf(out, 256, r->knobs->utf8 > 0 ? "%s\u00e9\u20ac\U0001F600%u " : "%s%u ", r->knobs->word, i);
	if (r->text.len < TEXT_MAX)
		buf_puts(&r->text, out);
	return out;
}

static const char *error_type(const struct reply *r)
{
	const bool anthropic = r->req->dialect == DIALECT_ANTHROPIC;

	if (r->knobs->error_type[0])
		return r->knobs->error_type;
	switch (r->status) {
	case 200:
	case 529:
		return anthropic ? "overloaded_error" : "server_error";
	case 401:
		return anthropic ? "authentication_error" : "invalid_request_error";
	case 429:
		return anthropic ? "rate_limit_error" : "tokens";
	case 500:
		return anthropic ? "api_error" : "server_error";
	default:
		return "invalid_request_error";
	}
}

static void error_event(struct reply *r)
{
	const char *type = error_type(r);

	r->error = type;
	if (r->req->dialect == DIALECT_ANTHROPIC)
		emit(r, "error", NULL, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"on demand\"}}",
		     type);
	else if (r->req->dialect == DIALECT_CHAT)
		emit(r, NULL, NULL,
		     "{\"error\":{\"message\":\"on demand\",\"type\":\"%s\",\"param\":null,\"code\":null}}", type);
	else
		emit(r, "error", NULL,
		     "{\"type\":\"error\",\"code\":\"%s\",\"message\":\"on "
		     "demand\",\"param\":null,\"sequence_number\":9}",
		     type);
	flush_events(r);
	if (r->stop == STOP_NOT)
		r->stop = STOP_ERROR;
}

static void ping(struct reply *r)
{
	if (r->req->dialect == DIALECT_ANTHROPIC) {
		emit(r, "ping", NULL, "{\"type\": \"ping\"}");
	} else if (r->stop == STOP_NOT) {
		buf_puts(&r->events, r->knobs->crlf > 0 ? ": keep-alive\r\n\r\n" : ": keep-alive\n\n");
		if (!r->pending)
			flush_events(r);
	}
}

/* Before token number i: the wait, and what the knobs do instead of it. */
static void pace(struct reply *r, unsigned i)
{
	const struct knobs *k = r->knobs;
	double ms = (i ? k->gap_ms : k->delay_ms) + (i == k->stall_at ? k->stall_ms : 0);

	if (r->stop != STOP_NOT)
		return;
	if (i == k->stall_at || i == k->hang_at || i == k->rst_at || i == k->fin_at)
		flush_events(r);
	if (k->pings > 0)
		ping(r);
	if (ms > 0 && conn_wait(r->conn, ms))
		gone(r);
	if (i == k->hang_at && r->stop == STOP_NOT)
		while (!conn_wait(r->conn, 1000))
			;
	if (i == k->hang_at)
		gone(r);
	if (r->stop == STOP_NOT && i == k->rst_at)
		r->stop = STOP_RST;
	if (r->stop == STOP_NOT && i == k->fin_at)
		r->stop = STOP_FIN;
	if (r->stop == STOP_NOT && i == k->error_at)
		error_event(r);
}

static const char *stop_reason(const struct reply *r)
{
	static const char *const usual[] = {"", "end_turn", "stop", "completed"};
	static const char *const tool[] = {"", "tool_use", "tool_calls", "completed"};

	if (r->knobs->stop[0])
		return r->knobs->stop;
	return (r->knobs->tool > 0 ? tool : usual)[r->req->dialect];
}

static void push_anthropic_usage(struct buf *b, const struct knobs *k, bool final)
{
	buf_printf(b,
		   "{\"input_tokens\":%.0f,\"cache_creation_input_tokens\":%.0f,\"cache_read_input_tokens\":%.0f,"
		   "\"output_tokens\":%lld",
		   k->input_tokens - k->cache_read - k->cache_write, k->cache_write, k->cache_read,
		   final ? (long long)generated(k) : 1ll);
	if (final && reasoned(k))
		buf_printf(b, ",\"output_tokens_details\":{\"thinking_tokens\":%lld}", (long long)reasoned(k));
	buf_puts(b, ",\"service_tier\":\"standard\"}");
}

/* in: "prompt" and "completion", or "input" and "output": the two OpenAI APIs differ in these words alone. */
static void push_openai_usage(struct buf *b, const struct knobs *k, const char *in, const char *out)
{
	buf_printf(b,
		   "{\"%s_tokens\":%.0f,\"%s_tokens\":%lld,\"total_tokens\":%.0f,\"%s_tokens_details\":{\"cached_"
		   "tokens\":%.0f",
		   in, k->input_tokens, out, (long long)generated(k), k->input_tokens + (double)generated(k), in,
		   k->cache_read);
	if (k->cache_write > 0)
		buf_printf(b, ",\"cache_write_tokens\":%.0f", k->cache_write);
	buf_printf(b, "},\"%s_tokens_details\":{\"reasoning_tokens\":%lld}}", out, (long long)reasoned(k));
}

static bool wants_usage(const struct reply *r)
{
	if (r->knobs->usage >= 0)
		return r->knobs->usage > 0;
	return r->req->dialect != DIALECT_CHAT || !r->req->stream || r->req->include_usage;
}

/* --- anthropic -------------------------------------------------------------------------------------------------------
 */

static void anthropic_block(struct reply *r, unsigned block, const char *start)
{
	emit(r, "content_block_start", NULL, "{\"type\":\"content_block_start\",\"index\":%u,\"content_block\":%s}",
	     block, start);
}

static void anthropic_delta(struct reply *r, unsigned block, const char *kind, const char *type, const char *field,
			    const char *text)
{
	emit(r, "content_block_delta", kind,
	     "{\"type\":\"content_block_delta\",\"index\":%u,\"delta\":{\"type\":\"%s\",\"%s\":\"%s\"}}", block, type,
	     field, text);
}

static void anthropic_block_end(struct reply *r, unsigned block)
{
	emit(r, "content_block_stop", NULL, "{\"type\":\"content_block_stop\",\"index\":%u}", block);
}

/* The arguments of every tool, in pieces: {"n":[0,1,2]} cut at any place. */
static const char *argument_piece(unsigned piece, unsigned pieces, char out[64], const char *quote)
{
	snprintf(out, 64, "%s%u%s", piece ? "," : quote, piece, piece + 1 == pieces ? "]}" : "");
	return out;
}

static unsigned anthropic_tools(struct reply *r, unsigned block, unsigned token)
{
	unsigned t, i, pieces = (unsigned)r->knobs->tool_chunks;
	char start[256], piece[64];

	for (t = 0; t < r->knobs->tool; t++, block++) {
		snprintf(start, sizeof(start),
			 "{\"type\":\"tool_use\",\"id\":\"toolu_%02u\",\"name\":\"get_weather\",\"input\":{}}", t + 1);
		anthropic_block(r, block, start);
		anthropic_delta(r, block, NULL, "input_json_delta", "partial_json", "");
		for (i = 0; i < pieces; i++) {
			pace(r, token++);
			anthropic_delta(r, block, "tool", "input_json_delta", "partial_json",
					argument_piece(i, pieces, piece, "{\\\"n\\\":["));
		}
		anthropic_block_end(r, block);
	}
	return token;
}

static void anthropic_content(struct reply *r)
{
	const struct knobs *k = r->knobs;
	unsigned i, token = 0, block = 0;
	char text[256];

	if (k->reasoning > 0) {
		anthropic_block(r, block, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
		for (i = 0; i < k->reasoning; i++) {
			pace(r, token++);
			anthropic_delta(r, block, "reasoning", "thinking_delta", "thinking", "hm ");
		}
		anthropic_delta(r, block, NULL, "signature_delta", "signature", "c2lnbmF0dXJl");
		anthropic_block_end(r, block++);
	}
	if (k->tokens > 0) {
		anthropic_block(r, block, "{\"type\":\"text\",\"text\":\"\"}");
		for (i = 0; i < k->tokens && r->stop == STOP_NOT; i++) {
			pace(r, token++);
			if (r->stop == STOP_NOT)
				anthropic_delta(r, block, "text", "text_delta", "text", token_text(r, i, text));
		}
		anthropic_block_end(r, block++);
	}
	anthropic_tools(r, block, token);
}

static void anthropic_stream(struct reply *r)
{
	struct buf usage;

	buf_init(&usage, 0);
	if (wants_usage(r)) {
		buf_puts(&usage, ",\"usage\":");
		push_anthropic_usage(&usage, r->knobs, false);
		r->usage_sent = true;
	}
	emit(r, "message_start", NULL,
	     "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_01\",\"type\":\"message\",\"role\":\"assistant\","
	     "\"model\":\"%s\","
	     "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null%s}}",
	     r->model_escaped, buf_cstr(&usage));
	ping(r);
	anthropic_content(r);
	buf_clear(&usage);
	if (wants_usage(r)) {
		buf_puts(&usage, ",\"usage\":");
		push_anthropic_usage(&usage, r->knobs, true);
	}
	emit(r, "message_delta", NULL,
	     "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"%s\",\"stop_sequence\":null}%s}", stop_reason(r),
	     buf_cstr(&usage));
	emit(r, "message_stop", NULL, "{\"type\":\"message_stop\"}");
	flush_events(r);
	buf_release(&usage);
}

static void anthropic_document(struct reply *r, struct buf *out)
{
	const struct knobs *k = r->knobs;
	char text[256];
	unsigned i;

	buf_printf(out, "{\"id\":\"msg_01\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"%s\",\"content\":[",
		   r->model_escaped);
	if (k->reasoning > 0)
		buf_puts(out, "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"c2ln\"},");
	buf_puts(out, "{\"type\":\"text\",\"text\":\"");
	for (i = 0; i < k->tokens; i++)
		buf_puts(out, token_text(r, i, text));
	buf_puts(out, "\"}");
	for (i = 0; i < k->tool; i++)
		buf_printf(
			out,
			",{\"type\":\"tool_use\",\"id\":\"toolu_%02u\",\"name\":\"get_weather\",\"input\":{\"n\":[0]}}",
			i + 1);
	buf_printf(out, "],\"stop_reason\":\"%s\",\"stop_sequence\":null", stop_reason(r));
	if (wants_usage(r)) {
		buf_puts(out, ",\"usage\":");
		push_anthropic_usage(out, k, true);
	}
	buf_puts(out, "}");
}

/* --- openai.chat -----------------------------------------------------------------------------------------------------
 */

/* choices: the whole array; usage: NULL or an object. */
static void chat_chunk(struct reply *r, const char *kind, const char *choices, const char *usage)
{
	emit(r, NULL, kind,
	     "{\"id\":\"chatcmpl-01\",\"object\":\"chat.completion.chunk\",\"created\":1764400000,\"model\":\"%s\","
	     "\"choices\":%s%s%s}",
	     r->model_escaped, choices, usage ? ",\"usage\":" : "", usage ? usage : "");
}

static void chat_delta(struct reply *r, const char *kind, const char *delta)
{
	char choices[1024];

	snprintf(choices, sizeof(choices), "[{\"index\":0,\"delta\":%s,\"finish_reason\":null}]", delta);
	chat_chunk(r, kind, choices, wants_usage(r) ? "null" : NULL);
}

static void chat_tools(struct reply *r, unsigned token)
{
	unsigned t, i, pieces = (unsigned)r->knobs->tool_chunks;
	char delta[512], piece[64];

	for (t = 0; t < r->knobs->tool; t++) {
		pace(r, token++);
		snprintf(delta, sizeof(delta),
			 "{\"tool_calls\":[{\"index\":%u,\"id\":\"call_%02u\",\"type\":\"function\",\"function\":{"
			 "\"name\":\"get_weather\","
			 "\"arguments\":\"\"}}]}",
			 t, t + 1);
		chat_delta(r, "tool", delta);
		for (i = 0; i < pieces; i++) {
			pace(r, token++);
			snprintf(delta, sizeof(delta),
				 "{\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":\"%s\"}}]}", t,
				 argument_piece(i, pieces, piece, "{\\\"n\\\":["));
			chat_delta(r, "tool", delta);
		}
	}
}

static void chat_stream(struct reply *r)
{
	const struct knobs *k = r->knobs;
	unsigned i, token = 0;
	char delta[512], text[256];
	struct buf usage;

	chat_delta(r, NULL, "{\"role\":\"assistant\",\"content\":\"\"}");
	for (i = 0; i < k->reasoning; i++) {
		pace(r, token++);
		chat_delta(r, "reasoning", "{\"reasoning_content\":\"hm \"}");
	}
	for (i = 0; i < k->tokens && r->stop == STOP_NOT; i++) {
		pace(r, token++);
		if (r->stop != STOP_NOT)
			break;
		snprintf(delta, sizeof(delta), "{\"content\":\"%s\"}", token_text(r, i, text));
		chat_delta(r, "text", delta);
	}
	chat_tools(r, token);
	snprintf(delta, sizeof(delta), "[{\"index\":0,\"delta\":{},\"finish_reason\":\"%s\"}]", stop_reason(r));
	chat_chunk(r, NULL, delta, wants_usage(r) ? "null" : NULL);
	if (wants_usage(r)) {
		buf_init(&usage, 0);
		push_openai_usage(&usage, k, "prompt", "completion");
		chat_chunk(r, NULL, "[]", buf_cstr(&usage));
		buf_release(&usage);
	}
	emit(r, NULL, NULL, "[DONE]");
	flush_events(r);
}

static void chat_document(struct reply *r, struct buf *out)
{
	const struct knobs *k = r->knobs;
	char text[256];
	unsigned i;

	buf_printf(out,
		   "{\"id\":\"chatcmpl-01\",\"object\":\"chat.completion\",\"created\":1764400000,\"model\":\"%s\","
		   "\"choices\":[{\"index\":0,"
		   "\"message\":{\"role\":\"assistant\",\"content\":\"",
		   r->model_escaped);
	for (i = 0; i < k->tokens; i++)
		buf_puts(out, token_text(r, i, text));
	buf_puts(out, "\"");
	for (i = 0; i < k->tool; i++)
		buf_printf(out,
			   "%s{\"id\":\"call_%02u\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
			   "\"arguments\":\"{}\"}}",
			   i ? "," : ",\"tool_calls\":[", i + 1);
	buf_printf(out, "%s},\"finish_reason\":\"%s\"}]", i ? "]" : "", stop_reason(r));
	if (wants_usage(r)) {
		buf_puts(out, ",\"usage\":");
		push_openai_usage(out, k, "prompt", "completion");
	}
	buf_puts(out, "}");
}

/* --- openai.responses ------------------------------------------------------------------------------------------------
 */

static void push_response(struct reply *r, struct buf *out, const char *status, const char *output, bool final)
{
	bool incomplete = !strcmp(status, "incomplete");

	buf_printf(out,
		   "{\"id\":\"resp_01\",\"object\":\"response\",\"created_at\":1764400000,\"status\":\"%s\",\"model\":"
		   "\"%s\",\"error\":null,",
		   status, r->model_escaped);
	if (incomplete)
		buf_printf(out, "\"incomplete_details\":{\"reason\":\"%s\"},", r->knobs->stop);
	else
		buf_puts(out, "\"incomplete_details\":null,");
	buf_printf(out, "\"output\":%s,\"usage\":", output);
	if (final && wants_usage(r))
		push_openai_usage(out, r->knobs, "input", "output");
	else
		buf_puts(out, "null");
	buf_puts(out, "}");
}

static void responses_event(struct reply *r, const char *type, const char *status, const char *output, bool final)
{
	struct buf doc;

	buf_init(&doc, 0);
	push_response(r, &doc, status, output, final);
	emit(r, type, NULL, "{\"type\":\"%s\",\"sequence_number\":0,\"response\":%s}", type, buf_cstr(&doc));
	buf_release(&doc);
}

static void responses_item(struct reply *r, const char *type, unsigned index, const char *item)
{
	emit(r, type, NULL, "{\"type\":\"%s\",\"sequence_number\":1,\"output_index\":%u,\"item\":%s}", type, index,
	     item);
}

static void responses_delta(struct reply *r, const char *type, const char *kind, unsigned index, const char *delta)
{
	emit(r, type, kind,
	     "{\"type\":\"%s\",\"sequence_number\":2,\"item_id\":\"item_%02u\",\"output_index\":%u,\"content_index\":0,"
	     "\"delta\":\"%s\"}",
	     type, index, index, delta);
}

static void responses_tools(struct reply *r, unsigned index, unsigned token)
{
	unsigned t, i, pieces = (unsigned)r->knobs->tool_chunks;
	char item[512], piece[64];

	for (t = 0; t < r->knobs->tool; t++, index++) {
		snprintf(item, sizeof(item),
			 "{\"type\":\"function_call\",\"id\":\"fc_%02u\",\"call_id\":\"call_%02u\",\"name\":\"get_"
			 "weather\",\"arguments\":\"\"}",
			 t + 1, t + 1);
		responses_item(r, "response.output_item.added", index, item);
		for (i = 0; i < pieces; i++) {
			pace(r, token++);
			responses_delta(r, "response.function_call_arguments.delta", "tool", index,
					argument_piece(i, pieces, piece, "{\\\"n\\\":["));
		}
		responses_item(r, "response.output_item.done", index, item);
	}
}

static void responses_stream(struct reply *r)
{
	static const char message[] = "{\"type\":\"message\",\"id\":\"msg_01\",\"role\":\"assistant\",\"content\":[]}";
	static const char thought[] = "{\"type\":\"reasoning\",\"id\":\"rs_01\",\"summary\":[]}";
	const struct knobs *k = r->knobs;
	unsigned i, token = 0, index = 0;
	char text[256];

	responses_event(r, "response.created", "in_progress", "[]", false);
	responses_event(r, "response.in_progress", "in_progress", "[]", false);
	if (k->reasoning > 0) {
		responses_item(r, "response.output_item.added", index, thought);
		for (i = 0; i < k->reasoning; i++) {
			pace(r, token++);
			responses_delta(r, "response.reasoning_summary_text.delta", "reasoning", index, "hm ");
		}
		responses_item(r, "response.output_item.done", index++, thought);
	}
	responses_item(r, "response.output_item.added", index, message);
	for (i = 0; i < k->tokens && r->stop == STOP_NOT; i++) {
		pace(r, token++);
		if (r->stop == STOP_NOT)
			responses_delta(r, "response.output_text.delta", "text", index, token_text(r, i, text));
	}
	responses_item(r, "response.output_item.done", index++, message);
	responses_tools(r, index, token);
	if (k->stop[0])
		responses_event(r, "response.incomplete", "incomplete", "[]", true);
	else
		responses_event(r, "response.completed", "completed", "[]", true);
	flush_events(r);
}

static void responses_document(struct reply *r, struct buf *out)
{
	struct buf output;
	char text[256];
	unsigned i;

	buf_init(&output, 0);
	buf_puts(&output,
		 "[{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"");
	for (i = 0; i < r->knobs->tokens; i++)
		buf_puts(&output, token_text(r, i, text));
	buf_puts(&output, "\"}]}");
	for (i = 0; i < r->knobs->tool; i++)
		buf_printf(&output,
			   ",{\"type\":\"function_call\",\"call_id\":\"call_%02u\",\"name\":\"get_weather\","
			   "\"arguments\":\"{}\"}",
			   i + 1);
	buf_puts(&output, "]");
	push_response(r, out, r->knobs->stop[0] ? "incomplete" : "completed", buf_cstr(&output), true);
	buf_release(&output);
}

/* --- replies ---------------------------------------------------------------------------------------------------------
 */

static void stream_reply(struct reply *r)
{
	static void (*const streams[])(struct reply *) = {NULL, anthropic_stream, chat_stream, responses_stream};
	const struct knobs *k = r->knobs;

	r->chunked = k->until_close <= 0;
	r->encoded = k->gzip > 0 || k->deflate > 0;
	if (r->encoded &&
	    deflateInit2(&r->z, 6, Z_DEFLATED, k->gzip > 0 ? 15 + 16 : 15, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
		r->encoded = false;
		return gone(r);
	}
	send_head(r, "text/event-stream; charset=utf-8", -1);
	streams[r->req->dialect](r);
	if (r->stop == STOP_NOT) {
		r->stop_reason = stop_reason(r);
		r->usage_sent = r->final_usage_sent = wants_usage(r);
	}
	finish_body(r);
	if (r->encoded)
		deflateEnd(&r->z);
}

/* A whole document with its length, or chunked with the knob `chunk`; gzip in one piece. */
static void document_reply(struct reply *r, struct buf *doc)
{
	const struct knobs *k = r->knobs;

	r->encoded = k->gzip > 0 || k->deflate > 0;
	if (r->encoded && deflateInit2(&r->z, 6, Z_DEFLATED, k->gzip > 0 ? 15 + 16 : 15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		r->encoded = false;
	r->chunked = k->chunk >= 1 || (r->encoded && k->until_close <= 0);
	send_head(r, "application/json", r->chunked || k->until_close > 0 ? -1 : (ssize_t)doc->len);
	if (r->encoded) {
		encode(r, doc->ptr, doc->len, Z_FINISH);
		deflateEnd(&r->z);
	} else {
		push_chunks(r, doc->ptr, doc->len);
	}
	if (r->chunked)
		buf_puts(&r->wire, "0\r\n\r\n");
	write_wire(r);
}

static void unary_reply(struct reply *r)
{
	static void (*const documents[])(struct reply *, struct buf *) = {NULL, anthropic_document, chat_document,
									  responses_document};
	struct buf doc;

	buf_init(&doc, 0);
	if (r->knobs->delay_ms > 0 && conn_wait(r->conn, r->knobs->delay_ms))
		gone(r);
	documents[r->req->dialect](r, &doc);
	document_reply(r, &doc);
	if (r->stop == STOP_NOT) {
		r->stop_reason = stop_reason(r);
		r->usage_sent = r->final_usage_sent = wants_usage(r);
	}
	buf_release(&doc);
}

static void error_reply(struct reply *r, const char *message)
{
	struct buf doc;

	buf_init(&doc, 0);
	r->error = error_type(r);
	if (r->req->dialect == DIALECT_ANTHROPIC)
		buf_printf(
			&doc,
			"{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"%s\"},\"request_id\":\"req_1\"}",
			r->error, message);
	else
		buf_printf(&doc, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":null}}",
			   message, r->error);
	document_reply(r, &doc);
	buf_release(&doc);
}

static void answer(struct reply *r)
{
	const struct knobs *k = r->knobs;

	if (r->req->refuse) {
		r->status = r->req->refuse;
		return error_reply(r, r->req->refuse_why);
	}
	while (k->hang > 0 && r->stop == STOP_NOT)
		if (conn_wait(r->conn, 1000))
			gone(r);
	if (k->head_delay_ms > 0 && r->stop == STOP_NOT && conn_wait(r->conn, k->head_delay_ms))
		gone(r);
	if (r->stop != STOP_NOT)
		return;
	if (r->status >= 400)
		error_reply(r, "on demand");
	else if (r->req->stream)
		stream_reply(r);
	else
		unary_reply(r);
}

static void json_stamp(struct json *j, const char *key, uint64_t ns)
{
	if (ns)
		json_uint(j, key, ns);
	else
		json_null(j, key);
}

static void truth_usage(struct json *j, const struct reply *r)
{
	const struct knobs *k = r->knobs;
	bool chat = r->req->dialect != DIALECT_ANTHROPIC;

	if (!r->usage_sent) {
		json_null(j, "usage");
		return;
	}
	json_object(j, "usage");
	json_int(j, "input_uncached", (int64_t)(k->input_tokens - k->cache_read - k->cache_write));
	json_int(j, "cache_read", (int64_t)k->cache_read);
	json_int(j, "cache_write", (int64_t)k->cache_write);
	json_int(j, "input_total", (int64_t)k->input_tokens);
	if (r->final_usage_sent)
		json_int(j, "output_total", generated(k));
	else
		json_null(j, "output_total");
	if (r->final_usage_sent && (chat || reasoned(k)))
		json_int(j, "reasoning", reasoned(k));
	else
		json_null(j, "reasoning");
	json_bool(j, "final", r->final_usage_sent);
	json_end_object(j);
}

static void truth_times(struct json *j, const struct reply *r)
{
	struct timespec mono;
	size_t i;

	clock_gettime(CLOCK_MONOTONIC, &mono);
	json_int(j, "mono_minus_boot_ns", mono.tv_sec * 1000000000ll + mono.tv_nsec - (int64_t)clock_boot_ns());
	json_stamp(j, "accept_ns", r->conn->accept_ns);
	json_stamp(j, "established_ns", r->conn->established_ns);
	json_stamp(j, "first_byte_ns", r->req->first_byte_ns);
	json_stamp(j, "complete_ns", r->req->complete_ns);
	json_stamp(j, "head_ns", r->head_ns);
	json_stamp(j, "first_token_ns", r->tokens ? r->tokens_ns[0] : 0);
	json_stamp(j, "last_token_ns", r->tokens ? r->tokens_ns[r->tokens - 1] : 0);
	json_stamp(j, "end_ns", r->end_ns);
	json_array(j, "tokens_ns");
	for (i = 0; i < r->tokens; i++)
		json_uint(j, NULL, r->tokens_ns[i]);
	json_end_array(j);
}

static void truth_text(struct json *j, const char *key, const char *text)
{
	json_string(j, key, text && text[0] ? sv_of(text) : SV_NONE);
}

/* One line a request. Stamps are CLOCK_BOOTTIME; mono_minus_boot_ns added to one makes it CLOCK_MONOTONIC. */
static void write_truth(struct reply *r, unsigned sequence)
{
	struct request *q = r->req;
	struct buf line;
	struct json j;

	if (truth_fd < 0)
		return;
	buf_init(&line, 0);
	json_init(&j, &line);
	json_object(&j, NULL);
	json_uint(&j, "seq", sequence);
	truth_text(&j, "id", r->knobs->id);
	json_uint(&j, "conn", r->conn->id);
	json_uint(&j, "conn_seq", r->conn->requests);
	json_uint(&j, "peer_port", r->conn->peer_port);
	json_string(&j, "api", sv_of(dialect_names[q->dialect]));
	truth_text(&j, "method", q->method);
	truth_text(&j, "path", q->target);
	json_int(&j, "status", r->head_ns ? r->status : 0);
	json_bool(&j, "stream", q->stream);
	truth_text(&j, "request_model", q->request_model);
	truth_text(&j, "model", q->refuse || r->status >= 400 ? NULL : r->model);
	json_int(&j, "messages", q->messages);
	truth_text(&j, "stop_reason", r->stop_reason);
	truth_text(&j, "error", r->error);
	json_string(&j, "outcome", sv_of(stop_names[r->stop]));
	truth_text(&j, "kind", r->kind);
	json_uint(&j, "request_bytes", q->head_len + q->body.len);
	json_uint(&j, "body_bytes", r->body_bytes);
	json_int(&j, "tools", (int64_t)(r->stop_reason ? r->knobs->tool : 0));
	truth_usage(&j, r);
	json_string(&j, "text", (struct sv){r->text.len ? r->text.ptr : "", r->text.len});
	truth_times(&j, r);
	json_end_object(&j);
	buf_putc(&line, '\n');
	pthread_mutex_lock(&truth_lock);
	if (write(truth_fd, line.ptr, line.len) < 0)
		perror("modelserver: truth");
	pthread_mutex_unlock(&truth_lock);
	buf_release(&line);
}

static void reply_init(struct reply *r, struct conn *c, struct request *q)
{
	struct buf escaped;

	memset(r, 0, sizeof(*r));
	r->conn = c;
	r->req = q;
	r->knobs = &q->knobs;
	r->status = (int)q->knobs.status;
	if (r->status < 200 || r->status > 999)
		r->status = 200;
	if (q->knobs.close > 0 || q->knobs.until_close > 0)
		q->keep_alive = false;
	q->knobs.tokens = fmin(q->knobs.tokens, TOKENS_MAX);
	q->knobs.reasoning = fmin(q->knobs.reasoning, TOKENS_MAX);
	q->knobs.tool = fmin(q->knobs.tool, TOOLS_MAX);
	q->knobs.tool_chunks = fmin(q->knobs.tool_chunks, TOOLS_MAX);
	snprintf(r->model, sizeof(r->model), "%s", q->knobs.model[0] ? q->knobs.model : q->request_model);
	buf_init(&escaped, sizeof(r->model_escaped) - 1);
	json_escape(&escaped, sv_of(r->model));
	snprintf(r->model_escaped, sizeof(r->model_escaped), "%s", buf_cstr(&escaped));
	buf_release(&escaped);
	buf_init(&r->events, 0);
	buf_init(&r->packed, 0);
	buf_init(&r->wire, 0);
	buf_init(&r->text, 0);
}

static void reply_release(struct reply *r)
{
	free(r->tokens_ns);
	buf_release(&r->events);
	buf_release(&r->packed);
	buf_release(&r->wire);
	buf_release(&r->text);
}

/* One request and its answer. true: the connection goes on. */
static bool serve_one(struct conn *c)
{
	struct request q;
	struct reply r;
	bool more;

	if (read_request(c, &q)) {
		buf_release(&q.body);
		return false;
	}
	c->requests++;
	reply_init(&r, c, &q);
	unsigned sequence = atomic_fetch_add(&request_count, 1) + 1;
	answer(&r);
	r.end_ns = clock_boot_ns();
	if (r.stop == STOP_RST)
		conn_reset(c);
	write_truth(&r, sequence);
	more = q.keep_alive && (r.stop == STOP_NOT || r.stop == STOP_ERROR);
	if (!more && c->ssl && (r.stop == STOP_NOT || r.stop == STOP_ERROR))
		SSL_shutdown(c->ssl);
	reply_release(&r);
	buf_release(&q.body);
	return more;
}

static void set_timeouts(int fd, int receive, int transmit)
{
	struct timeval r = {.tv_sec = receive}, t = {.tv_sec = transmit};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &r, sizeof(r));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* After a refused request the rest of it may still be on its way: closing now would reset the answer away. */
static void drain(struct conn *c)
{
	char rest[16384];
	int i;

	shutdown(c->fd, SHUT_WR);
	set_timeouts(c->fd, 1, 1);
	for (i = 0; i < 1024 && recv(c->fd, rest, sizeof(rest), 0) > 0; i++)
		;
}

static void *serve(void *arg)
{
	struct conn *c = arg;
	struct linger linger = {0};
	socklen_t len = sizeof(linger);
	int one = 1;

	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	set_timeouts(c->fd, 20, 20);
	buf_init(&c->in, BODY_MAX + HEAD_MAX);
	if (tls) {
		c->ssl = SSL_new(tls);
		if (!c->ssl || SSL_set_fd(c->ssl, c->fd) != 1 || SSL_accept(c->ssl) != 1)
			goto out;
	}
	c->established_ns = clock_boot_ns();
	set_timeouts(c->fd, IDLE_SECONDS, 60);
	while (serve_one(c))
		;
	getsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, &len);
	if (!linger.l_onoff)
		drain(c);
out:
	ERR_clear_error();
	SSL_free(c->ssl);
	close(c->fd);
	buf_release(&c->in);
	free(c);
	atomic_fetch_sub(&connections_open, 1);
	return NULL;
}

/* --- start -----------------------------------------------------------------------------------------------------------
 */

static int start_connection(int fd, uint64_t accept_ns, const struct sockaddr_in *peer)
{
	struct conn *c = calloc(1, sizeof(*c));
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (!c)
		return -ENOMEM;
	c->fd = fd;
	c->accept_ns = accept_ns;
	c->id = atomic_fetch_add(&connection_count, 1) + 1;
	c->peer_port = ntohs(peer->sin_port);
	atomic_fetch_add(&connections_open, 1);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 512 << 10);
	err = pthread_create(&thread, &attr, serve, c);
	pthread_attr_destroy(&attr);
	if (err) {
		atomic_fetch_sub(&connections_open, 1);
		free(c);
	}
	return -err;
}

static void accept_loop(int listener)
{
	for (;;) {
		struct sockaddr_in peer;
		socklen_t len = sizeof(peer);
		int fd = accept4(listener, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC);
		uint64_t now = clock_boot_ns();

		if (fd < 0) {
			usleep(10000); /* out of descriptors: some connection ends sooner or later */
			continue;
		}
		if (atomic_load(&connections_open) >= CONNECTIONS_MAX || start_connection(fd, now, &peer))
			close(fd);
	}
}

static int select_http1(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
			unsigned in_len, void *arg)
{
	static const unsigned char http1[] = "\x08http/1.1";

	(void)ssl, (void)arg;
	if (SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_len, http1, sizeof(http1) - 1, in, in_len) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_NOACK;
	return SSL_TLSEXT_ERR_OK;
}

static int start_tls(const char *cert_path, bool old)
{
	tls = SSL_CTX_new(TLS_server_method());
	if (!tls || testcert_use(tls, cert_path)) {
		ERR_print_errors_fp(stderr);
		return -1;
	}
	SSL_CTX_set_alpn_select_cb(tls, select_http1, NULL);
	SSL_CTX_set_mode(tls, SSL_MODE_AUTO_RETRY);
	if (old)
		SSL_CTX_set_max_proto_version(tls, TLS1_2_VERSION);
	return 0;
}

static int listen_on(unsigned port)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 1024) ||
	    getsockname(fd, (struct sockaddr *)&at, &len)) {
		close(fd);
		return -1;
	}
	printf("listening %u\n", ntohs(at.sin_port));
	fflush(stdout);
	return fd;
}

static void usage(FILE *out)
{
	fprintf(out,
		"usage: modelserver [--port N] [--plain] [--tls12] [--cert-out FILE] [--truth FILE]\n"
		"prints \"listening PORT\" when ready; loopback only. Knobs, as ?NAME=VALUE or header x-test-NAME:\n");
#define X(name, value, text) fprintf(out, "  %-18s %s (%g)\n", #name, text, (double)(value));
	NUMBER_KNOBS(X)
#undef X
#define X(name, text) fprintf(out, "  %-18s %s\n", #name, text);
	TEXT_KNOBS(X)
#undef X
}

struct settings {
	unsigned port;
	bool plain, tls12;
	const char *cert, *truth;
};

static int parse_arguments(struct settings *s, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(argv[i], "--plain"))
			s->plain = true;
		else if (!strcmp(argv[i], "--tls12"))
			s->tls12 = true;
		else if (!value)
			return -1;
		else if (!strcmp(argv[i], "--port") && i++)
			s->port = (unsigned)atoi(value);
		else if (!strcmp(argv[i], "--cert-out") && i++)
			s->cert = value;
		else if (!strcmp(argv[i], "--truth") && i++)
			s->truth = value;
		else
			return -1;
	}
	return s->port > 65535 ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct settings s = {0};
	int listener;

	if (argc == 2 && !strcmp(argv[1], "--help")) {
		usage(stdout);
		return 0;
	}
	if (parse_arguments(&s, argc, argv)) {
		usage(stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (s.truth)
		truth_fd = open(s.truth, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (s.truth && truth_fd < 0) {
		perror(s.truth);
		return 1;
	}
	if (!s.plain && start_tls(s.cert, s.tls12)) {
		fprintf(stderr, "modelserver: cannot make or write the certificate\n");
		return 1;
	}
	listener = listen_on(s.port);
	if (listener < 0) {
		perror("modelserver: listen");
		return 1;
	}
	accept_loop(listener);
}
