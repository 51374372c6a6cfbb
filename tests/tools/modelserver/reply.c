/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers: pacing, framing of events, and what the knobs do instead. What is said is the dialect's. */

#include <math.h>
#include <stdarg.h>
#include <zlib.h>

#include "server.h"

#define TOKENS_MAX 1000000u
#define TOOLS_MAX  100u
#define TEXT_MAX   (256u << 10) /* of the answer, in the truth line */

atomic_uint request_count;

void reply_gone(struct reply *r)
{
	if (r->stop == STOP_NOT)
		r->stop = STOP_CLIENT_GONE;
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

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

static bool live(const struct reply *r)
{
	return r->stop == STOP_NOT || r->stop == STOP_ERROR;
}

/* Write what is in `wire`, in pieces; returns when the write of the last piece began. */
static uint64_t write_wire(struct reply *r)
{
	size_t at = 0;
	bool cut_done = false;
	uint64_t last_ns = 0;

	while (at < r->wire.len && live(r)) {
		size_t piece = piece_len(r, r->wire.ptr + at, r->wire.len - at, &cut_done);

		if (at && r->knobs->split_gap_ms > 0 && r->via->wait(r, r->knobs->split_gap_ms))
			r->stop = STOP_CLIENT_GONE;
		if (live(r) && r->via->write(r, r->wire.ptr + at, piece, &last_ns))
			r->stop = STOP_CLIENT_GONE;
		at += piece;
	}
	buf_clear(&r->wire);
	return last_ns;
}

/* Body bytes through the content codings. */
static void push_body(struct reply *r, const char *ptr, size_t len, bool last)
{
	buf_clear(&r->packed);
	if (coding_push(&r->coding, ptr, len, last, &r->packed))
		return reply_gone(r);
	r->body_bytes += r->packed.len;
	r->via->frame(r, r->packed.ptr, r->packed.len);
}

static void finish_body(struct reply *r)
{
	if (!live(r))
		return;
	if (r->coding.count)
		push_body(r, r->events.ptr, r->events.len, true);
	if (r->via->last)
		r->via->last(r);
	write_wire(r);
	if (r->via->end && live(r) && r->via->end(r))
		r->stop = STOP_CLIENT_GONE;
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

void flush_events(struct reply *r)
{
	if (r->stop != STOP_NOT || !r->events.len)
		return;
	push_body(r, r->events.ptr, r->events.len, false);
	buf_clear(&r->events);
	stamp_tokens(r, write_wire(r));
}

static void send_head(struct reply *r, const char *type, ssize_t length)
{
	r->head_ns = clock_boot_ns();
	if (r->stop == STOP_NOT && r->via->head(r, type, length))
		reply_gone(r);
}

/* --- events ------------------------------------------------------------------------------------------------------ */

static void push_big_endian(struct buf *b, uint32_t n, unsigned bytes)
{
	while (bytes--)
		buf_putc(b, (char)(n >> (8 * bytes)));
}

static void push_frame_header(struct buf *b, const char *name, const char *value)
{
	buf_putc(b, (char)strlen(name));
	buf_puts(b, name);
	buf_putc(b, 7);
	push_big_endian(b, (uint32_t)strlen(value), 2);
	buf_puts(b, value);
}

/* application/vnd.amazon.eventstream: lengths, their CRC, headers, payload, CRC of all of it. */
static void push_aws_frame(struct buf *out, const char *name, struct sv payload)
{
	bool exception = strstr(name, "Exception") != NULL;
	struct buf headers;
	size_t at = out->len;

	buf_init(&headers, 0);
	push_frame_header(&headers, exception ? ":exception-type" : ":event-type", name);
	push_frame_header(&headers, ":content-type", "application/json");
	push_frame_header(&headers, ":message-type", exception ? "exception" : "event");
	push_big_endian(out, (uint32_t)(16 + headers.len + payload.len), 4);
	push_big_endian(out, (uint32_t)headers.len, 4);
	push_big_endian(out, (uint32_t)crc32(0, (unsigned char *)out->ptr + at, 8), 4);
	buf_push(out, headers.ptr, headers.len);
	buf_push(out, payload.ptr, payload.len);
	push_big_endian(out, (uint32_t)crc32(0, (unsigned char *)out->ptr + at, (unsigned)(out->len - at)), 4);
	buf_release(&headers);
}

/* An event as Bedrock's InvokeModel carries it. */
static void push_aws_chunk(struct buf *out, const char *text, size_t len)
{
	unsigned char *coded = malloc(4 * (len / 3 + 1) + 1);
	struct buf payload;
	int n = coded ? EVP_EncodeBlock(coded, (const unsigned char *)text, (int)len) : 0;

	buf_init(&payload, 0);
	buf_printf(&payload, "{\"bytes\":\"%.*s\",\"p\":\"abcdefgh\"}", n, coded ? (char *)coded : "");
	push_aws_frame(out, "chunk", (struct sv){payload.ptr, payload.len});
	buf_release(&payload);
	free(coded);
}

static void push_event(struct reply *r, const char *name, const char *text, size_t len)
{
	const char *eol = r->knobs->crlf > 0 ? "\r\n" : "\n";
	struct buf *out = &r->events;

	switch (r->framing) {
	case FRAMING_SSE:
		if (name)
			buf_printf(out, "event: %s%s", name, eol);
		buf_printf(out, "data: %s%s%s", text, eol, eol);
		break;
	case FRAMING_LINES:
		buf_printf(out, "%s%s", text, eol);
		break;
	case FRAMING_ARRAY:
		buf_printf(out, "%s%s", r->elements++ ? ",\r\n" : "[", text);
		break;
	case FRAMING_FRAMES:
		push_aws_frame(out, name ? name : "chunk", (struct sv){text, len});
		break;
	case FRAMING_CHUNKS:
		if (name && strstr(name, "Exception"))
			push_aws_frame(out, name, (struct sv){text, len});
		else
			push_aws_chunk(out, text, len);
		break;
	case FRAMING_MESSAGES:
		ws_push_message(r, out, (struct sv){text, len});
	}
}

void emit(struct reply *r, const char *name, const char *kind, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;
	int n;

	if (r->stop != STOP_NOT)
		return;
	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return reply_gone(r);
	push_event(r, name, text, (size_t)n);
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

static void error_event(struct reply *r)
{
	r->error = reply_error_type(r);
	r->dialect->error_event(r);
	flush_events(r);
	if (r->stop == STOP_NOT)
		r->stop = STOP_ERROR;
}

static void ping(struct reply *r)
{
	if (r->stop != STOP_NOT)
		return;
	if (r->framing == FRAMING_MESSAGES)
		ws_push_ping(&r->events);
	else if (r->dialect->ping)
		r->dialect->ping(r);
	else if (r->framing == FRAMING_SSE)
		buf_puts(&r->events, r->knobs->crlf > 0 ? ": keep-alive\r\n\r\n" : ": keep-alive\n\n");
	if (!r->pending)
		flush_events(r);
}

bool pace(struct reply *r, unsigned i)
{
	const struct knobs *k = r->knobs;
	double ms = (i ? k->gap_ms : k->delay_ms) + (i == k->stall_at ? k->stall_ms : 0);

	if (r->stop != STOP_NOT)
		return false;
	if (i == k->stall_at || i == k->hang_at || i == k->rst_at || i == k->fin_at)
		flush_events(r);
	if (k->pings > 0)
		ping(r);
	if (ms > 0 && r->via->wait(r, ms))
		reply_gone(r);
	if (i == k->hang_at && r->stop == STOP_NOT)
		while (!r->via->wait(r, 1000))
			;
	if (i == k->hang_at)
		reply_gone(r);
	if (r->stop == STOP_NOT && i == k->rst_at)
		r->stop = STOP_RST;
	if (r->stop == STOP_NOT && i == k->fin_at)
		r->stop = STOP_FIN;
	if (r->stop == STOP_NOT && i == k->error_at)
		error_event(r);
	return r->stop == STOP_NOT;
}

/* --- what is said ------------------------------------------------------------------------------------------------ */

int64_t generated(const struct knobs *k)
{
	return k->output_tokens >= 0 ? (int64_t)k->output_tokens
				     : (int64_t)(k->reasoning + k->hidden_reasoning + k->tokens + 8 * k->tool);
}

int64_t reasoned(const struct knobs *k)
{
	return (int64_t)(k->reasoning + k->hidden_reasoning);
}

const char *token_text(struct reply *r, unsigned i, char out[256])
{
	snprintf(out, 256, r->knobs->utf8 > 0 ? "%s\u00e9\u20ac\U0001F600%u " : "%s%u ", r->knobs->word, i);
	if (r->text.len < TEXT_MAX)
		buf_puts(&r->text, out);
	return out;
}

void push_tokens(struct reply *r, struct buf *out)
{
	char text[256];
	unsigned i;

	for (i = 0; i < r->knobs->tokens; i++)
		buf_puts(out, token_text(r, i, text));
}

const char *arguments_text(const struct reply *r, unsigned t, bool escaped, char out[ARGUMENTS_MAX])
{
	const char *quote = escaped ? "\\\"" : "\"";
	struct sv value, name, rest = sv_of(r->knobs->tool_argument);
	int n = 0;

	if (!rest.len) {
		unsigned i, pieces = (unsigned)r->knobs->tool_chunks;

		n = snprintf(out, ARGUMENTS_MAX, "{%sn%s:[", quote, quote);
		for (i = 0; i < pieces; i++)
			n += snprintf(out + n, ARGUMENTS_MAX - (size_t)n, "%s%u", i ? "," : "", i);
		snprintf(out + n, ARGUMENTS_MAX - (size_t)n, "]}");
		return out;
	}
	/* At most 127 bytes, of which each can be a name or a value. */
	while (rest.ptr) {
		name = sv_cut(rest, ':', &rest);
		value = rest.ptr ? sv_cut(rest, ':', &rest) : SV("");
		n += snprintf(out + n, ARGUMENTS_MAX - (size_t)n, "%s%s%.*s%s:%s%.*s%s", n ? "," : "{", quote,
			      (int)name.len, name.ptr, quote, quote, (int)value.len, value.ptr, quote);
	}
	snprintf(out + n, ARGUMENTS_MAX - (size_t)n, "}");
	for (char *at = out; (at = strchr(at, '#')); at++)
		*at = (char)('1' + t % 9);
	return out;
}

const char *argument_piece(const struct reply *r, unsigned t, unsigned piece, unsigned pieces, char out[ARGUMENTS_MAX])
{
	char all[ARGUMENTS_MAX];
	size_t from, to, len;

	if (!r->knobs->tool_argument[0]) {
		snprintf(out, ARGUMENTS_MAX, "%s%u%s", piece ? "," : "{\\\"n\\\":[", piece,
			 piece + 1 == pieces ? "]}" : "");
		return out;
	}
	len = strlen(arguments_text(r, t, true, all));
	from = len * piece / pieces;
	to = len * (piece + 1) / pieces;
	/* not inside of an escape */
	from -= from && all[from - 1] == '\\';
	to -= to < len && all[to - 1] == '\\';
	snprintf(out, ARGUMENTS_MAX, "%.*s", (int)(to - from), all + from);
	return out;
}

struct tool_words tool_words(const struct reply *r, unsigned t, const char *prefix)
{
	const struct knobs *k = r->knobs;
	struct sv rest = sv_of(k->tool_name), name = sv_cut(rest, ':', &rest);
	struct tool_words w;

	for (unsigned i = 0; i < t && rest.ptr; i++)
		name = sv_cut(rest, ':', &rest);
	snprintf(w.id, sizeof(w.id), "%s_%02u", k->tool_id[0] ? k->tool_id : prefix, t + 1);
	snprintf(w.name, sizeof(w.name), "%.*s", (int)name.len, name.ptr);
	return w;
}

const char *reply_stop_reason(const struct reply *r)
{
	if (r->knobs->stop[0])
		return r->knobs->stop;
	return r->knobs->tool > 0 ? r->dialect->stop_tool : r->dialect->stop;
}

const char *reply_error_type(const struct reply *r)
{
	const bool anthropic = r->dialect == &dialect_anthropic;

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

bool wants_usage(const struct reply *r)
{
	bool on_demand = r->dialect == &dialect_chat || r->dialect == &dialect_completions;

	if (r->knobs->usage >= 0)
		return r->knobs->usage > 0;
	return !on_demand || !r->req->stream || r->req->include_usage;
}

/* --- replies ----------------------------------------------------------------------------------------------------- */

static void said_all(struct reply *r)
{
	if (r->stop != STOP_NOT)
		return;
	r->stop_reason = reply_stop_reason(r);
	r->usage_sent = r->final_usage_sent = wants_usage(r);
}

static void stream_reply(struct reply *r)
{
	static const char *const types[] = {
		[FRAMING_SSE] = "text/event-stream; charset=utf-8",
		[FRAMING_LINES] = "application/x-ndjson",
		[FRAMING_ARRAY] = "application/json; charset=UTF-8",
		[FRAMING_FRAMES] = "application/vnd.amazon.eventstream",
		[FRAMING_CHUNKS] = "application/vnd.amazon.eventstream",
		[FRAMING_MESSAGES] = "",
	};

	send_head(r, types[r->framing], -1);
	r->dialect->stream(r);
	if (r->framing == FRAMING_ARRAY && r->stop == STOP_NOT) {
		buf_puts(&r->events, "]");
		if (!r->coding.count)
			push_body(r, r->events.ptr, r->events.len, false); /* goes with the end */
	}
	said_all(r);
	finish_body(r);
}

/* A whole document with its length, or chunked with the knob `chunk` or a coding. */
static void document_reply(struct reply *r, struct buf *doc)
{
	const struct knobs *k = r->knobs;

	send_head(r, "application/json",
		  k->chunk >= 1 || r->coding.count || k->until_close > 0 ? -1 : (ssize_t)doc->len);
	if (r->coding.count)
		buf_push(&r->events, doc->ptr, doc->len); /* compressed by the end, in one piece */
	else if (strcmp(r->req->method, "HEAD"))
		push_body(r, doc->ptr, doc->len, true);
	finish_body(r);
}

static void unary_reply(struct reply *r)
{
	struct buf doc;

	buf_init(&doc, 0);
	if (r->knobs->delay_ms > 0 && r->via->wait(r, r->knobs->delay_ms))
		reply_gone(r);
	r->dialect->document(r, &doc);
	document_reply(r, &doc);
	said_all(r);
	buf_release(&doc);
}

static void error_reply(struct reply *r, const char *message)
{
	struct buf doc;

	if (r->framing == FRAMING_MESSAGES) {
		r->head_ns = clock_boot_ns();
		return error_event(r);
	}
	buf_init(&doc, 0);
	r->error = reply_error_type(r);
	r->dialect->error_document(r, &doc, message);
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
		if (r->via->wait(r, 1000))
			reply_gone(r);
	if (k->head_delay_ms > 0 && r->stop == STOP_NOT && r->via->wait(r, k->head_delay_ms))
		reply_gone(r);
	if (r->stop != STOP_NOT)
		return;
	if (r->status >= 400)
		error_reply(r, "on demand");
	else if (r->req->stream)
		stream_reply(r);
	else
		unary_reply(r);
}

static void reply_init(struct reply *r, struct conn *c, struct request *q)
{
	struct knobs *k = &q->knobs;
	struct buf escaped;

	memset(r, 0, sizeof(*r));
	r->conn = c;
	r->req = q;
	r->knobs = k;
	r->dialect = q->dialect ? q->dialect : &dialect_chat;
	r->framing = r->dialect->framing;
	if (r->dialect == &dialect_gemini && (k->array > 0 || !strstr(q->target, "alt=sse")))
		r->framing = FRAMING_ARRAY;
	r->status = (int)k->status;
	if (r->status < 200 || r->status > 999)
		r->status = 200;
	k->tokens = fmin(k->tokens, TOKENS_MAX);
	k->reasoning = fmin(k->reasoning, TOKENS_MAX);
	k->tool = fmin(k->tool, TOOLS_MAX);
	k->tool_chunks = fmin(k->tool_chunks, TOOLS_MAX);
	snprintf(r->model, sizeof(r->model), "%s", k->model[0] ? k->model : q->request_model);
	if (r->dialect->names_no_model)
		snprintf(r->model, sizeof(r->model), "%s", q->request_model);
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
	coding_release(&r->coding);
	free(r->tokens_ns);
	buf_release(&r->events);
	buf_release(&r->packed);
	buf_release(&r->wire);
	buf_release(&r->text);
}

bool reply_serve(struct conn *c, struct request *q, const struct wire *via, void *wire_data, enum stop *stop)
{
	struct reply r;

	reply_init(&r, c, q);
	r.via = via;
	r.wire_data = wire_data;
	if (via->frame_messages)
		r.framing = FRAMING_MESSAGES;
	else if (coding_init(&r.coding, r.knobs))
		r.stop = STOP_FIN;
	r.sequence = atomic_fetch_add(&request_count, 1) + 1;
	atomic_fetch_add(&c->requests, 1);
	answer(&r);
	r.end_ns = clock_boot_ns();
	truth_write(&r);
	*stop = r.stop;
	reply_release(&r);
	return *stop == STOP_NOT || *stop == STOP_ERROR;
}
