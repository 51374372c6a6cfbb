/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "body.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/err.h"
#include "exchange.h"
#include "flow/proto/decode.h"
#include "flow/proto/eventstream.h"
#include "flow/proto/jsonarray.h"
#include "flow/proto/ndjson.h"
#include "flow/proto/sse.h"
#include "text.h"

enum mode {
	MODE_SNIFF, /* nothing but white space came */
	MODE_SSE,
	MODE_LINES,
	MODE_ARRAY,
	MODE_FRAMES,
	MODE_DOCUMENT,
	MODE_IGNORE,
};

enum type { TYPE_NONE, TYPE_SSE, TYPE_LINES, TYPE_FRAMES, TYPE_JSON, TYPE_HTML, TYPE_OTHER };

struct body {
	struct body_config cfg;
	struct body_sink sink;
	struct lost *lost;
	struct decode *decode;
	enum mode mode;
	enum type type;
	bool unseen;	  /* the type was not seen, for the head was not, or not wholly */
	bool coded;	  /* nor the coding: the first byte is to tell it */
	bool bare;	  /* ... and told none: it may be one without a mark */
	bool ok;	  /* it says success, or was not seen */
	bool ignored;	  /* nobody wants to know any more */
	bool dropped;	  /* body_give_up() was called: there is no parser and no decoder any more */
	bool passed_over; /* begins like nothing that is read */
	bool gap_first;	  /* bytes are missing before the first one */
	union {
		struct sse *sse;
		struct ndjson *lines;
		struct jsonarray *array;
		struct eventstream *frames;
		void *any;
	} parser;
	unsigned skipped; /* events that the parser passed over */
	struct buf document;
	char undecoded[64];
	char other_type[64]; /* the content type, where it is none that is read */
};

/* --- content type ------------------------------------------------------------------------------------------------ */

static const struct {
	struct sv name;
	enum type type;
} types[] = {
	{SV("text/event-stream"), TYPE_SSE},	     {SV("application/x-ndjson"), TYPE_LINES},
	{SV("application/ndjson"), TYPE_LINES},	     {SV("application/jsonl"), TYPE_LINES},
	{SV("application/x-jsonlines"), TYPE_LINES}, {SV("application/vnd.amazon.eventstream"), TYPE_FRAMES},
	{SV("application/json"), TYPE_JSON},	     {SV("text/html"), TYPE_HTML},
};

static struct sv content_type(const struct http_head *h)
{
	struct sv rest;

	return sv_trim(sv_cut(h ? http_header_get(h, "content-type") : SV_NONE, ';', &rest));
}

static enum type type_of(struct sv value)
{
	if (!value.len)
		return TYPE_NONE;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (sv_ieq(value, types[i].name))
			return types[i].type;
	}
	return TYPE_OTHER;
}

/* Nothing was seen of it, or (HTTP/2, attached in the middle) some of its fields are not known. */
static bool head_is_partial(const struct http_head *h)
{
	for (size_t i = 0; h && i < h->header_count; i++) {
		if (!h->headers[i].name.ptr || !h->headers[i].value.ptr)
			return true;
	}
	return !h || h->partial;
}

/* --- parsers ----------------------------------------------------------------------------------------------------- */

/* Events that were too long, frames that were not sound: missing from where the parser says that it passed over them.
 */
static void note_skipped(struct body *b)
{
	unsigned oversize = b->mode == MODE_SSE	     ? sse_oversize(b->parser.sse)
			    : b->mode == MODE_LINES  ? ndjson_oversize(b->parser.lines)
			    : b->mode == MODE_ARRAY  ? jsonarray_oversize(b->parser.array)
			    : b->mode == MODE_FRAMES ? eventstream_oversize(b->parser.frames)
						     : 0;
	unsigned corrupt = b->mode == MODE_FRAMES ? eventstream_errors(b->parser.frames) : 0;

	if (oversize + corrupt == b->skipped)
		return;
	b->skipped = oversize + corrupt;
	b->sink.on_missing(b->sink.ctx);
	b->lost->n[LOST_DECODE_ERRORS]++;
	if (!b->undecoded[0])
		text_copy(b->undecoded, sizeof(b->undecoded),
			  oversize ? SV("event over 8 MiB") : SV("corrupt event stream"));
}

static void on_sse_event(void *ctx, const struct sse_event *e)
{
	struct body *b = ctx;

	note_skipped(b);
	if (!b->ignored)
		b->sink.on_event(b->sink.ctx, e->type, e->data, &e->at);
}

static void on_line(void *ctx, const struct ndjson_line *line)
{
	struct body *b = ctx;

	note_skipped(b);
	if (!b->ignored)
		b->sink.on_event(b->sink.ctx, SV_NONE, line->text, &line->at);
}

static void on_element(void *ctx, const struct jsonarray_element *e)
{
	struct body *b = ctx;

	note_skipped(b);
	if (b->ignored)
		return;
	if (b->cfg.stream_asked)
		b->sink.on_event(b->sink.ctx, SV_NONE, e->text, &e->at);
	else
		b->sink.on_document(b->sink.ctx, e->text);
}

static void on_frame(void *ctx, const struct eventstream_event *e)
{
	struct body *b = ctx;

	note_skipped(b);
	if (b->ignored)
		return;
	if (sv_eq(e->message_type, SV("exception")))
		b->sink.on_error(b->sink.ctx, e->exception_type.len ? e->exception_type : SV("exception"));
	else if (sv_eq(e->message_type, SV("error")))
		b->sink.on_error(b->sink.ctx, e->error_code.len ? e->error_code : SV("error"));
	else
		b->sink.on_event(b->sink.ctx, e->event_type, e->payload, &e->at);
}

static void note_no_memory(struct body *b)
{
	b->lost->n[LOST_NO_MEMORY]++;
	b->sink.on_missing(b->sink.ctx);
}

static void parser_free(struct body *b)
{
	switch (b->mode) {
	case MODE_SSE:
		sse_free(b->parser.sse);
		break;
	case MODE_LINES:
		ndjson_free(b->parser.lines);
		break;
	case MODE_ARRAY:
		jsonarray_free(b->parser.array);
		break;
	case MODE_FRAMES:
		eventstream_free(b->parser.frames);
		break;
	default:
		break;
	}
	b->parser.any = NULL;
}

static void parser_gap(struct body *b, uint64_t len)
{
	switch (b->mode) {
	case MODE_SSE:
		sse_gap(b->parser.sse);
		break;
	case MODE_LINES:
		ndjson_gap(b->parser.lines);
		break;
	case MODE_ARRAY:
		jsonarray_gap(b->parser.array);
		break;
	case MODE_FRAMES:
		eventstream_gap(b->parser.frames, len);
		break;
	default:
		break;
	}
}

static void parser_new(struct body *b, enum mode mode)
{
	const struct sse_sink sse_sink = {.ctx = b, .on_event = on_sse_event};
	const struct ndjson_sink line_sink = {b, on_line};
	const struct jsonarray_sink array_sink = {b, on_element};
	const struct eventstream_sink frame_sink = {b, on_frame};

	if (mode == MODE_SSE)
		b->parser.sse = sse_new(&sse_sink);
	else if (mode == MODE_LINES)
		b->parser.lines = ndjson_new(&line_sink);
	else if (mode == MODE_ARRAY)
		b->parser.array = jsonarray_new(&array_sink);
	else
		b->parser.frames = eventstream_new(&frame_sink);
	b->mode = b->parser.any ? mode : MODE_IGNORE;
	if (!b->parser.any)
		note_no_memory(b);
	if (b->gap_first)
		parser_gap(b, UINT64_MAX);
}

/* --- what it is made of ------------------------------------------------------------------------------------------ */

static bool lines_expected(const struct body *b)
{
	return b->type == TYPE_LINES || (b->cfg.lines && b->cfg.stream_asked && b->ok && b->type != TYPE_SSE);
}

static void start_document(struct body *b)
{
	/* a document with a hole is none */
	b->mode = b->gap_first ? MODE_IGNORE : MODE_DOCUMENT;
}

/* How documents, streams and pages begin; what has frames, if nothing else is known of it, with a NUL. */
static bool begins_text(const struct body *b, uint8_t c)
{
	return c ? strchr("{[de:ir<", c) != NULL : b->unseen;
}

/* A coding that has no mark, most likely. */
static void no_text(struct body *b)
{
	b->mode = MODE_IGNORE;
	if (b->ok && !b->undecoded[0])
		text_copy(b->undecoded, sizeof(b->undecoded), SV("content coding"));
}

/* Of a body whose head was not seen anything is possible. */
static void decide_unseen(struct body *b, uint8_t c)
{
	if (c == '{')
		start_document(b);
	else if (c == '[')
		parser_new(b, MODE_ARRAY);
	else if (!c)
		parser_new(b, MODE_FRAMES);
	else if (c > ' ' && c < 0x7f)
		parser_new(b, MODE_SSE);
	else
		no_text(b);
	b->cfg.stream_asked |= b->mode == MODE_ARRAY;
}

/*
 * Servers mislabel: errors as JSON under text/event-stream, streams without a type. The first byte that is no white
 * space tells: a document begins with a brace, a stream with a field name or a colon.
 */
static void decide(struct body *b, uint8_t c)
{
	if (b->bare && b->type != TYPE_HTML && b->type != TYPE_OTHER && !begins_text(b, c)) {
		no_text(b);
	} else if (c == '{' && lines_expected(b)) {
		parser_new(b, MODE_LINES);
	} else if (b->unseen) {
		decide_unseen(b, c);
	} else if (c == '{') {
		start_document(b);
	} else if (c == '[') {
		parser_new(b, MODE_ARRAY);
	} else if (b->type == TYPE_SSE || (b->cfg.stream_asked && b->type != TYPE_HTML && c && strchr("de:ir", c))) {
		parser_new(b, MODE_SSE);
	} else {
		b->mode = MODE_IGNORE;
		b->passed_over = true;
	}
}

static size_t sniff(struct body *b, const uint8_t *ptr, size_t len)
{
	if (b->type == TYPE_FRAMES) {
		parser_new(b, MODE_FRAMES);
		return 0;
	}
	for (size_t i = 0; i < len; i++) {
		/* white space, and a byte order mark */
		if (ptr[i] && strchr(" \t\r\n\xef\xbb\xbf", ptr[i]))
			continue;
		decide(b, ptr[i]);
		return i;
	}
	return len;
}

/* Where a gap comes first only the head can tell, or, of an array, what was asked for. */
static void decide_at_gap(struct body *b)
{
	b->gap_first = true;
	if (b->type == TYPE_SSE)
		parser_new(b, MODE_SSE);
	else if (b->type == TYPE_FRAMES)
		parser_new(b, MODE_FRAMES);
	else if (lines_expected(b))
		parser_new(b, MODE_LINES);
	else if (b->type == TYPE_JSON && b->cfg.stream_asked && b->ok)
		parser_new(b, MODE_ARRAY);
	else if (!b->unseen)
		b->mode = MODE_IGNORE;
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

static void document_push(struct body *b, const uint8_t *ptr, size_t len)
{
	int err = buf_push(&b->document, ptr, len);

	if (!err)
		return;
	buf_release(&b->document);
	b->mode = MODE_IGNORE;
	b->sink.on_missing(b->sink.ctx);
	b->lost->n[err == -ENOSPC ? LOST_DECODE_ERRORS : LOST_NO_MEMORY]++;
	text_copy(b->undecoded, sizeof(b->undecoded), err == -ENOSPC ? SV("json over 8 MiB") : SV("out of memory"));
}

static void on_decoded(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct body *b = ctx;
	size_t skip = b->mode == MODE_SNIFF ? sniff(b, ptr, len) : 0;
	int err = 0;

	ptr += skip;
	len -= skip;
	if (!len || b->ignored)
		return;
	if (b->mode == MODE_DOCUMENT)
		document_push(b, ptr, len);
	else if (b->mode == MODE_SSE)
		err = sse_push(b->parser.sse, ptr, len, at);
	else if (b->mode == MODE_LINES)
		err = ndjson_push(b->parser.lines, ptr, len, at);
	else if (b->mode == MODE_ARRAY)
		err = jsonarray_push(b->parser.array, ptr, len, at);
	else if (b->mode == MODE_FRAMES)
		err = eventstream_push(b->parser.frames, ptr, len, at);
	if (err)
		note_no_memory(b);
	note_skipped(b);
}

struct body *body_new(const struct body_config *cfg, const struct http_head *h, const struct body_sink *sink,
		      struct lost *lost)
{
	struct decode_sink decode_sink = {.on_bytes = on_decoded};
	struct body *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->cfg = *cfg;
	b->sink = *sink;
	b->lost = lost;
	b->type = type_of(content_type(h));
	if (b->type == TYPE_HTML || b->type == TYPE_OTHER)
		text_copy(b->other_type, sizeof(b->other_type), content_type(h));
	b->unseen = head_is_partial(h) && b->type == TYPE_NONE;
	b->coded = h && head_is_partial(h) && !http_header_get(h, "content-encoding").len;
	b->ok = !h || !h->status || h->status < 300;
	buf_init(&b->document, EXCHANGE_DOC_MAX);
	decode_sink.ctx = b;
	b->decode = decode_new_of(h, &decode_sink);
	if (!b->decode) {
		body_free(b);
		return NULL;
	}
	return b;
}

void body_free(struct body *b)
{
	if (!b)
		return;
	decode_free(b->decode);
	parser_free(b);
	buf_release(&b->document);
	free(b);
}

static void note_undecoded(struct body *b, enum decode_status status)
{
	if (b->undecoded[0])
		return;
	b->sink.on_missing(b->sink.ctx);
	text_copy(b->undecoded, sizeof(b->undecoded), sv_of(decode_undecoded(b->decode)));
	if (!b->undecoded[0])
		text_copy(b->undecoded, sizeof(b->undecoded), SV("content coding"));
	/* a gap was counted where it happened */
	if (status != DECODE_GAP)
		b->lost->n[status == DECODE_NO_MEMORY ? LOST_NO_MEMORY : LOST_DECODE_ERRORS]++;
}

/* RFC 1952 section 2.3.1, RFC 8878 section 3.1.1, RFC 1950 section 2.2: no text begins so. br has no mark. */
static struct sv coding_of(uint8_t first)
{
	return first == 0x1f ? SV("gzip") : first == 0x28 ? SV("zstd") : first == 0x78 ? SV("deflate") : SV_NONE;
}

/* The head has fields that are not known: one of them may have been the coding. */
static void find_coding(struct body *b, uint8_t first)
{
	const struct decode_sink sink = {b, on_decoded};
	struct sv name = coding_of(first);
	struct decode *found = name.len ? decode_new(name, &sink) : NULL;

	b->coded = false;
	b->bare = !name.len;
	if (name.len && !found)
		note_no_memory(b);
	if (!found)
		return;
	decode_free(b->decode);
	b->decode = found;
}

void body_push(struct body *b, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	enum decode_status status;

	if (b->dropped || !len)
		return;
	if (b->coded)
		find_coding(b, *ptr);
	status = decode_push(b->decode, ptr, len, at);
	if (status != DECODE_OK)
		note_undecoded(b, status);
}

void body_gap(struct body *b, uint64_t len)
{
	bool plain;

	b->sink.on_missing(b->sink.ctx);
	if (b->dropped)
		return;
	b->coded = false;
	plain = decode_is_identity(b->decode);
	decode_gap(b->decode);
	if (!plain)
		note_undecoded(b, DECODE_GAP);
	if (b->mode == MODE_SNIFF)
		decide_at_gap(b);
	else if (b->mode == MODE_DOCUMENT)
		b->mode = MODE_IGNORE;
	else
		parser_gap(b, plain ? len : UINT64_MAX);
	buf_release(&b->document);
}

/* --- end --------------------------------------------------------------------------------------------------------- */

static bool is_single(struct sv text)
{
	const char *line = memchr(text.ptr, '\n', text.len);
	size_t first = line ? (size_t)(line - text.ptr) : text.len;

	/* a stream of lines has a whole object in the first one, and another after it */
	while (first && strchr(" \t\r", text.ptr[first - 1]) && text.ptr[first - 1])
		first--;
	return !line || !first || text.ptr[first - 1] != '}' ||
	       !memchr(line, '{', text.len - (size_t)(line - text.ptr));
}

/* Without a head a stream of lines looks like a document until its end; its times are not to be had then. */
static void document_end(struct body *b)
{
	struct sv rest = {b->document.ptr, b->document.len};

	if (!b->unseen || !rest.len || is_single(rest)) {
		b->sink.on_document(b->sink.ctx, rest);
	} else {
		b->sink.on_missing(b->sink.ctx);
		while (rest.len) {
			struct sv line = sv_cut(rest, '\n', &rest);

			b->sink.on_event(b->sink.ctx, SV_NONE, line, NULL);
		}
	}
	buf_release(&b->document);
	b->mode = MODE_IGNORE;
}

bool body_finish(struct body *b)
{
	if (b->dropped)
		return true;
	if (b->mode == MODE_DOCUMENT)
		document_end(b);
	else if (b->mode == MODE_SSE)
		sse_finish(b->parser.sse);
	else if (b->mode == MODE_LINES)
		ndjson_finish(b->parser.lines);
	note_skipped(b);
	return decode_finish(b->decode) != DECODE_CUT;
}

void body_cut(struct body *b)
{
	note_undecoded(b, DECODE_CUT);
}

void body_ignore(struct body *b)
{
	b->ignored = true;
}

void body_give_up(struct body *b, struct sv why)
{
	if (b->dropped)
		return;
	b->dropped = true;
	b->sink.on_missing(b->sink.ctx);
	if (!b->undecoded[0])
		text_copy(b->undecoded, sizeof(b->undecoded), why);
	b->lost->n[LOST_DECODE_ERRORS]++;
	decode_free(b->decode);
	b->decode = NULL;
	parser_free(b);
	buf_release(&b->document);
}

bool body_begun(const struct body *b)
{
	return b->mode != MODE_SNIFF;
}

bool body_streams(const struct body *b)
{
	return b->mode == MODE_SSE || b->mode == MODE_LINES || b->mode == MODE_FRAMES ||
	       (b->mode == MODE_ARRAY && b->cfg.stream_asked);
}

bool body_given_up(const struct body *b)
{
	return b->ignored || b->dropped || b->mode == MODE_IGNORE;
}

static size_t parser_held(const struct body *b)
{
	switch (b->mode) {
	case MODE_SSE:
		return sse_held(b->parser.sse);
	case MODE_LINES:
		return ndjson_held(b->parser.lines);
	case MODE_ARRAY:
		return jsonarray_held(b->parser.array);
	case MODE_FRAMES:
		return eventstream_held(b->parser.frames);
	default:
		return 0;
	}
}

void body_warm(const struct body *b, struct warm *w)
{
	warm_add(w, b, offsetof(struct body, undecoded));
	if (b->dropped)
		return;
	decode_warm(b->decode, w);
	if (b->mode == MODE_SSE)
		sse_warm(b->parser.sse, w);
}

size_t body_held(const struct body *b)
{
	return b->dropped ? 0 : decode_held(b->decode) + parser_held(b) + b->document.size;
}

const char *body_undecoded(const struct body *b)
{
	return b->undecoded;
}

const char *body_other_type(const struct body *b)
{
	return b->passed_over ? b->other_type : "";
}
