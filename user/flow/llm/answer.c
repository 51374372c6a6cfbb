/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "answer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/err.h"
#include "exchange.h"
#include "flow/proto/decode.h"
#include "flow/proto/sse.h"
#include "text.h"

/* Members and elements of one document: cJSON takes about 80 bytes for each, a hostile "[1,1,1…" would take gigabytes.
 */
#define JSON_NODES_MAX (1u << 20)
/* Documents looked at before an unknown response is no model's answer. */
#define IDENTIFY_MAX 32

enum mode {
	MODE_SNIFF,  /* nothing but white space came */
	MODE_STREAM, /* server-sent events */
	MODE_DOCUMENT,
	MODE_IGNORE,
};

struct answer {
	struct answer_config cfg;
	const struct dialect *dialect;
	struct lost *lost;
	struct decode *decode;
	struct sse *sse;
	struct buf document;
	struct llm_sink sink;
	enum mode mode;
	bool type_stream, type_html;
	unsigned unidentified; /* documents that told no dialect */
	bool confirmed;

	/* tokens; times of reads */
	const struct stamp *at; /* of the event at hand, NULL in a unary document */
	bool event_has_token;
	uint64_t first_ns, visible_ns, last_ns, last_chunk_ns;
	enum token_kind first_kind;
	int64_t chunks, stalls, max_gap_ns;
	bool broken;	   /* parts of the body are missing: counts and silences are not known */
	bool broken_first; /* ... before the first token */
	bool broken_visible;
	bool reasoning_shown, reasoning_begun;
	bool terminal; /* the message is whole */

	struct usage_part usage;
	char *model, *stop_reason, *error;
	char undecoded[64];
	struct tool_call *tools;
	size_t tool_count;
	struct buf text;
};

/* --- what the dialect says
 * --------------------------------------------------------------------------------------------- */

static bool keep(struct answer *a, char **field, struct sv text)
{
	char *copy = text_dup(text, EXCHANGE_ID_MAX);

	if (!copy) {
		a->lost->n[LOST_NO_MEMORY] += text.len && text.ptr[0];
		return false;
	}
	free(*field);
	*field = copy;
	return true;
}

static void keep_text(struct answer *a, struct sv text)
{
	size_t room = EXCHANGE_TEXT_MAX - a->text.len;
	size_t n = text_cut(text, room);

	if (!n)
		return;
	/* one more for a NUL that readers may rely on */
	if (buf_reserve(&a->text, n + 1) || buf_push(&a->text, text.ptr, n)) {
		a->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	a->text.ptr[a->text.len] = '\0';
	if (n < text.len)
		a->cfg.content = false; /* cut: what follows would not follow it */
}

static void on_token(void *ctx, enum token_kind kind, struct sv text)
{
	struct answer *a = ctx;
	bool visible = (kind == TOKEN_TEXT || kind == TOKEN_REFUSAL) && text.len;

	a->confirmed = true;
	a->reasoning_shown |= kind == TOKEN_REASONING;
	if (visible && a->cfg.content)
		keep_text(a, text);
	if (!a->at)
		return;
	a->event_has_token = true;
	a->last_ns = a->at->ts_ns;
	if (a->first_ns == UNKNOWN_NS && !a->broken_first) {
		a->first_ns = a->at->ts_ns;
		a->first_kind = kind;
	}
	if (visible && a->visible_ns == UNKNOWN_NS && !a->broken_visible)
		a->visible_ns = a->at->ts_ns;
}

/* Last value wins, but 0 never replaces a positive one. */
static void merge(int64_t *field, int64_t value)
{
	if (value > 0 || (value == 0 && *field <= 0))
		*field = value;
}

static void on_usage(void *ctx, const struct usage_part *u)
{
	struct answer *a = ctx;

	a->confirmed = true;
	merge(&a->usage.input_uncached, u->input_uncached);
	merge(&a->usage.input_total, u->input_total);
	merge(&a->usage.cache_read, u->cache_read);
	merge(&a->usage.cache_write, u->cache_write);
	merge(&a->usage.output_total, u->output_total);
	merge(&a->usage.reasoning, u->reasoning);
	a->usage.no_cache_write |= u->no_cache_write;
}

static void on_model(void *ctx, struct sv model)
{
	struct answer *a = ctx;

	a->confirmed = true;
	if (!a->model)
		keep(a, &a->model, model);
}

static void on_reasoning(void *ctx)
{
	struct answer *a = ctx;

	a->confirmed = true;
	a->reasoning_begun = true;
}

static bool tool_is_known(const struct answer *a, struct sv id)
{
	for (size_t i = 0; id.len && i < a->tool_count; i++) {
		if (a->tools[i].id && sv_eq(sv_of(a->tools[i].id), (struct sv){id.ptr, text_cut(id, EXCHANGE_ID_MAX)}))
			return true;
	}
	return false;
}

static void on_tool(void *ctx, struct sv id, struct sv name)
{
	struct answer *a = ctx;
	struct tool_call *tools;

	a->confirmed = true;
	if (a->tool_count == CALL_TOOLS_MAX || tool_is_known(a, id))
		return;
	tools = realloc(a->tools, (a->tool_count + 1) * sizeof(*tools));
	if (!tools) {
		a->lost->n[LOST_NO_MEMORY]++;
		return;
	}
	a->tools = tools;
	tools[a->tool_count] = (struct tool_call){0};
	keep(a, &tools[a->tool_count].id, id);
	keep(a, &tools[a->tool_count].name, name);
	a->tool_count++;
}

static void on_stop(void *ctx, struct sv reason)
{
	struct answer *a = ctx;

	a->confirmed = true;
	if (!a->stop_reason || !sv_eq(sv_of(a->stop_reason), reason))
		keep(a, &a->stop_reason, reason);
}

static void on_error(void *ctx, struct sv type)
{
	struct answer *a = ctx;

	a->confirmed = true;
	if (!a->error)
		keep(a, &a->error, type);
}

static void on_end(void *ctx)
{
	struct answer *a = ctx;

	a->confirmed = true;
	a->terminal = true;
}

/* --- documents
 * -------------------------------------------------------------------------------------------------------- */

static bool too_many_nodes(struct sv text)
{
	size_t nodes = 0;
	bool quoted = false;

	for (size_t i = 0; i < text.len; i++) {
		char c = text.ptr[i];

		if (quoted) {
			i += c == '\\';
			quoted = c != '"';
		} else {
			quoted = c == '"';
			nodes += c == ',' || c == '[' || c == '{';
		}
	}
	return nodes > JSON_NODES_MAX;
}

static cJSON *parse(struct answer *a, struct sv text)
{
	while (text.len && strchr(" \t\r\n", text.ptr[0]) && text.ptr[0])
		text.ptr++, text.len--;
	if (!text.len || text.ptr[0] != '{')
		return NULL;
	/* a node takes two bytes at least */
	if (text.len > 2 * JSON_NODES_MAX && too_many_nodes(text)) {
		text_copy(a->undecoded, sizeof(a->undecoded), SV("json of over 1048576 values"));
		a->lost->n[LOST_DECODE_ERRORS]++;
		return NULL;
	}
	return cJSON_ParseWithLength(text.ptr, text.len);
}

/* True: the dialect is known. */
static bool identify(struct answer *a, const cJSON *doc)
{
	if (a->dialect)
		return true;
	a->dialect = dialect_by_document(doc);
	if (!a->dialect && ++a->unidentified >= IDENTIFY_MAX)
		a->mode = MODE_IGNORE;
	return a->dialect != NULL;
}

static void count_chunk(struct answer *a, uint64_t ts_ns)
{
	if (a->chunks++ && ts_ns >= a->last_chunk_ns) {
		int64_t gap = (int64_t)(ts_ns - a->last_chunk_ns);

		if (gap > a->max_gap_ns)
			a->max_gap_ns = gap;
		a->stalls += gap > CALL_STALL_NS;
	}
	a->last_chunk_ns = ts_ns;
}

static void on_sse_event(void *ctx, const struct sse_event *e)
{
	struct answer *a = ctx;
	cJSON *doc;

	if (a->mode != MODE_STREAM)
		return;
	doc = parse(a, e->data);
	if (identify(a, doc)) {
		a->at = &e->at;
		a->event_has_token = false;
		a->dialect->on_event(e->type, doc, e->data, &a->sink);
		if (a->event_has_token)
			count_chunk(a, e->at.ts_ns);
		a->at = NULL;
	}
	cJSON_Delete(doc);
}

static void document_end(struct answer *a)
{
	cJSON *doc = parse(a, (struct sv){a->document.ptr, a->document.len});

	if (doc && identify(a, doc))
		a->dialect->on_document(doc, &a->sink);
	cJSON_Delete(doc);
	buf_release(&a->document);
	a->mode = MODE_IGNORE;
}

/* --- body
 * ------------------------------------------------------------------------------------------------------------- */

/* What is missing hides tokens from here on, and those that were not seen before. */
static void note_missing(struct answer *a)
{
	if (a->terminal)
		return;
	a->broken = true;
	a->broken_first |= a->first_ns == UNKNOWN_NS;
	a->broken_visible |= a->visible_ns == UNKNOWN_NS;
	a->last_ns = UNKNOWN_NS; /* until a later token is seen */
}

static void start_stream(struct answer *a)
{
	const struct sse_sink sink = {.ctx = a, .on_event = on_sse_event};

	a->sse = sse_new(&sink);
	a->mode = a->sse ? MODE_STREAM : MODE_IGNORE;
	if (!a->sse) {
		a->lost->n[LOST_NO_MEMORY]++;
		note_missing(a);
	}
}

/*
 * Servers mislabel: errors as JSON under text/event-stream, streams without a type. The first byte that is no white
 * space tells: a document begins with a brace, a stream with a field name or a colon.
 */
static void decide(struct answer *a, uint8_t c)
{
	if (c == '{' || c == '[')
		a->mode = MODE_DOCUMENT;
	else if (a->type_stream || (a->cfg.stream_asked && !a->type_html && c && strchr("de:ir", c)))
		start_stream(a);
	else
		a->mode = MODE_IGNORE;
}

static size_t sniff(struct answer *a, const uint8_t *ptr, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		/* white space, and a byte order mark */
		if (ptr[i] && strchr(" \t\r\n\xef\xbb\xbf", ptr[i]))
			continue;
		decide(a, ptr[i]);
		return i;
	}
	return len;
}

static void document_push(struct answer *a, const uint8_t *ptr, size_t len)
{
	int err = buf_push(&a->document, ptr, len);

	if (!err)
		return;
	buf_release(&a->document);
	a->mode = MODE_IGNORE;
	a->broken = true;
	a->lost->n[err == -ENOSPC ? LOST_DECODE_ERRORS : LOST_NO_MEMORY]++;
	text_copy(a->undecoded, sizeof(a->undecoded), err == -ENOSPC ? SV("json over 8 MiB") : SV("out of memory"));
}

static void on_decoded(void *ctx, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	struct answer *a = ctx;
	size_t skip = a->mode == MODE_SNIFF ? sniff(a, ptr, len) : 0;

	ptr += skip;
	len -= skip;
	if (!len)
		return;
	if (a->mode == MODE_DOCUMENT) {
		document_push(a, ptr, len);
	} else if (a->mode == MODE_STREAM && sse_push(a->sse, ptr, len, at)) {
		a->lost->n[LOST_NO_MEMORY]++;
		note_missing(a);
	}
}

static bool type_is(const struct http_head *h, struct sv type)
{
	struct sv rest, value = h ? http_header_get(h, "content-type") : SV_NONE;

	return sv_ieq(sv_trim(sv_cut(value, ';', &rest)), type);
}

struct answer *answer_new(const struct answer_config *cfg, const struct http_head *h, struct lost *lost)
{
	struct decode_sink decode_sink = {.on_bytes = on_decoded};
	struct answer *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->cfg = *cfg;
	a->dialect = cfg->dialect;
	a->lost = lost;
	a->type_stream = type_is(h, SV("text/event-stream"));
	a->type_html = type_is(h, SV("text/html"));
	a->first_ns = a->visible_ns = a->last_ns = a->last_chunk_ns = UNKNOWN_NS;
	a->max_gap_ns = -1;
	a->usage = USAGE_PART_NONE;
	buf_init(&a->document, EXCHANGE_DOC_MAX);
	buf_init(&a->text, EXCHANGE_TEXT_MAX + 1);
	a->sink = (struct llm_sink){a, on_token, on_usage, on_model, on_reasoning, on_tool, on_stop, on_error, on_end};
	decode_sink.ctx = a;
	a->decode = decode_new(h ? http_header_get(h, "content-encoding") : SV_NONE, &decode_sink);
	if (!a->decode) {
		answer_free(a);
		return NULL;
	}
	return a;
}

void answer_free(struct answer *a)
{
	if (!a)
		return;
	decode_free(a->decode);
	sse_free(a->sse);
	buf_release(&a->document);
	buf_release(&a->text);
	free(a->model);
	free(a->stop_reason);
	free(a->error);
	for (size_t i = 0; i < a->tool_count; i++) {
		free(a->tools[i].id);
		free(a->tools[i].name);
	}
	free(a->tools);
	free(a);
}

static void note_undecoded(struct answer *a, enum decode_status status)
{
	if (a->undecoded[0])
		return;
	note_missing(a);
	text_copy(a->undecoded, sizeof(a->undecoded), sv_of(decode_undecoded(a->decode)));
	if (!a->undecoded[0])
		text_copy(a->undecoded, sizeof(a->undecoded), SV("content coding"));
	/* a gap was counted where it happened */
	if (status != DECODE_GAP)
		a->lost->n[status == DECODE_NO_MEMORY ? LOST_NO_MEMORY : LOST_DECODE_ERRORS]++;
}

void answer_push(struct answer *a, const uint8_t *ptr, size_t len, const struct stamp *at)
{
	enum decode_status status = decode_push(a->decode, ptr, len, at);

	if (status != DECODE_OK)
		note_undecoded(a, status);
}

void answer_gap(struct answer *a)
{
	note_missing(a);
	decode_gap(a->decode);
	if (!decode_is_identity(a->decode))
		note_undecoded(a, DECODE_GAP);
	if (a->mode == MODE_SNIFF && a->type_stream)
		start_stream(a);
	if (a->mode == MODE_STREAM)
		sse_gap(a->sse);
	else
		a->mode = MODE_IGNORE; /* a document with a hole is none */
	buf_release(&a->document);
}

void answer_finish(struct answer *a)
{
	if (a->mode == MODE_DOCUMENT)
		document_end(a);
	if (a->sse)
		sse_finish(a->sse);
	if (a->dialect && a->dialect->end_optional && a->stop_reason && !a->error)
		a->terminal = true;
	if (a->sse && sse_oversize(a->sse)) {
		note_missing(a);
		text_copy(a->undecoded, sizeof(a->undecoded), SV("event over 8 MiB"));
		a->lost->n[LOST_DECODE_ERRORS]++;
	}
}

const struct dialect *answer_dialect(const struct answer *a)
{
	return a->dialect;
}

bool answer_rejected(const struct answer *a)
{
	return !a->dialect && a->mode == MODE_IGNORE;
}

bool answer_confirmed(const struct answer *a)
{
	return a->confirmed;
}

/* --- report
 * ----------------------------------------------------------------------------------------------------------- */

static int64_t known(int64_t n)
{
	return n > 0 ? n : 0;
}

static void report_usage(const struct answer *a, struct usage *out)
{
	const struct usage_part *u = &a->usage;

	if (u->input_uncached < 0 && u->input_total < 0 && u->cache_read < 0 && u->cache_write < 0 &&
	    u->output_total < 0 && u->reasoning < 0)
		return;
	out->source = a->terminal ? USAGE_REPORTED : USAGE_PARTIAL;
	out->cache_read = u->cache_read;
	out->cache_write = u->cache_write < 0 && u->no_cache_write ? 0 : u->cache_write;
	out->output_total = u->output_total;
	out->reasoning = u->reasoning;
	out->input_uncached = u->input_uncached;
	out->input_total = u->input_total;
	if (u->input_uncached >= 0) {
		/* Counts beside the cache's: such an API leaves out a cache that was not used. */
		out->cache_read = known(u->cache_read);
		out->cache_write = known(u->cache_write);
		out->input_total = u->input_uncached + out->cache_read + out->cache_write;
	} else if (u->input_total >= 0 && out->cache_read >= 0 && out->cache_write >= 0 &&
		   u->input_total - out->cache_read >= out->cache_write) {
		out->input_uncached = u->input_total - out->cache_read - out->cache_write;
	}
}

static void report_tokens(const struct answer *a, struct call *c)
{
	c->first_token_ns = a->first_ns;
	c->first_visible_ns = a->visible_ns;
	c->last_token_ns = a->last_ns;
	c->first_kind = a->first_ns == UNKNOWN_NS ? TOKEN_NONE : a->first_kind;
	c->hidden_reasoning = (a->usage.reasoning > 0 || a->reasoning_begun) && !a->reasoning_shown;
	if (a->broken)
		return;
	c->chunks = a->chunks;
	c->stalls = a->stalls;
	c->max_gap_ns = a->max_gap_ns >= 0 ? a->max_gap_ns : UNKNOWN_COUNT;
}

void answer_report(const struct answer *a, struct call *c)
{
	report_usage(a, &c->usage);
	if (a->sse)
		report_tokens(a, c);
	if (c->stream < 0 && (a->sse || a->mode != MODE_SNIFF))
		c->stream = a->sse != NULL;
	if (a->model)
		c->model = a->model;
	c->stop_reason = a->stop_reason;
	c->error = a->error;
	if (a->undecoded[0])
		c->undecoded = (char *)a->undecoded;
	c->tools = a->tools;
	c->tool_count = a->tool_count;
	if (a->text.len) {
		c->text = a->text.ptr;
		c->text_len = a->text.len;
	}
}
